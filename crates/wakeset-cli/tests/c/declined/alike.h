/*
 * Two listeners whose inodes are equal in their last bits, by which waiters may name them.
 */
#ifndef DECLINED_ALIKE_H
#define DECLINED_ALIKE_H

#include <sys/stat.h>

static ino_t inode_of(int fd)
{
	struct stat stat;
	must(fstat(fd, &stat));
	return stat.st_ino;
}

/* A listener whose inode is that of `like` in the last six bits. */
static int listen_like(int like)
{
	int tried[64], count = 0, found = -1;
	while (found == -1 && count < 64) {
		int fd = must(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
		if (inode_of(fd) % 64 == inode_of(like) % 64)
			found = fd;
		else
			tried[count++] = fd;
	}
	while (count > 0)
		must(close(tried[--count]));
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	must(bind(found, (struct sockaddr *)&address, sizeof address));
	must(listen(found, 100));
	return found;
}

/* A worker that sleeps for one of them must not take what was declined of the other for its own. */
static int64_t two_listeners(void)
{
	struct course *course = begin();
	must(close(course->other));
	course->other = listen_like(course->listener);
	void (*const works[])(struct course *, int) = {decline, await_other, serve_anywhere};
	for (int i = 0; i < 3; i++) {
		add_worker(course, works[i]);
		step(course, i);
		sleep_ms(20);
	}
	int client = connect_to(course->listener);
	hear(course->done[0]);
	int64_t began = now();
	tell(course->go[0][1]);
	int64_t longest = waited(course, 1, began);
	must(close(client));
	end(course);
	return longest;
}

#endif
