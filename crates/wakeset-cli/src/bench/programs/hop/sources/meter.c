/* The clock, and what each program says of itself when it is over. */

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

struct used {
	double time, processor;
	long switches;
};

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static struct used used(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (struct used){
		.time = now(),
		.processor = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
			     (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6,
		.switches = usage.ru_nvcsw + usage.ru_nivcsw,
	};
}

static void say(long trips, struct used before)
{
	struct used after = used();
	printf("{\"trips\":%ld,\"seconds\":%.9f,\"processor_seconds\":%.9f,\"switches\":%ld}\n",
	       trips, after.time - before.time, after.processor - before.processor,
	       after.switches - before.switches);
}
