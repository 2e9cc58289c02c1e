/*
 * An eventfd orders two threads' accesses to `data`. A sanitizer that does not see the calls
 * reports a race.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int fd, data;

static void *give(void *argument)
{
	uint64_t one = 1;
	data = 5;
	return write(fd, &one, sizeof one) == sizeof one ? argument : NULL;
}

int main(void)
{
	pthread_t thread;
	uint64_t value;
	fd = eventfd(0, 0);
	pthread_create(&thread, NULL, give, NULL);
	if (read(fd, &value, sizeof value) != sizeof value)
		return 1;
	printf("%d\n", data);
	pthread_join(thread, NULL);
	return 0;
}
