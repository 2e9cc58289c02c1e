/*
 * Threads and children of a program that makes system calls by instruction.
 */
#ifndef THREADS_H
#define THREADS_H

#include "calls.h"

static int shared;

static void *read_in_thread(void *raw)
{
	sigset_t all;
	sigfillset(&all);
	/* SIGSYS blocked ends a process in which calls are caught. */
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	return (void *)get(*(raw_call **)raw, shared);
}

static int read_in_c11_thread(void *raw)
{
	return (int)get(*(raw_call **)raw, shared);
}

static void threads(raw_call *raw)
{
	heading("threads");
	pthread_t thread;
	thrd_t c11;
	void *got;
	int result;
	shared = eventfd(11, EFD_NONBLOCK);
	show("a thread", pthread_create(&thread, NULL, read_in_thread, &raw), 0);
	pthread_join(thread, &got);
	show("in it", (long)got, 11);
	close(shared);
	shared = eventfd(12, EFD_NONBLOCK);
	show("a C11 thread", thrd_create(&c11, read_in_c11_thread, &raw), thrd_success);
	thrd_join(c11, &result);
	show("in it", result, 12);
	close(shared);
	shared = eventfd(0, 0);
	/* One that blocks, by instruction, while another thread writes through libc. */
	show("a thread", pthread_create(&thread, NULL, read_in_thread, &raw), 0);
	usleep(20000);
	uint64_t one = 1;
	show("written", write(shared, &one, 8), 8);
	pthread_join(thread, &got);
	show("in it", (long)got, 1);
	close(shared);
}

static int status_of(pid_t child)
{
	int status = -1;
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

/* What a child sees: 0 if all is as it should be. */
static int child_sees(raw_call *raw, int before)
{
	if (get(raw, before) != 13)
		return 1;
	int fd = eventfd(14, EFD_NONBLOCK);
	if (get(raw, fd) != 14)
		return 2;
	put(raw, fd, 15);
	return get_by_libc(fd) != 15;
}

static void children(raw_call *raw)
{
	heading("children");
	int fd = eventfd(13, EFD_NONBLOCK);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0)
		_exit(child_sees(raw, fd));
	show("child of a fork", status_of(child), 0);
	show("its parent", get(raw, fd), -EAGAIN);
	close(fd);
	fd = eventfd(16, EFD_NONBLOCK);
	show("its parent, later", get(raw, fd), 16);
	close(fd);
}

/* By instruction, from a frame that both return through. */
static inline void children_by_instruction(raw_call *raw)
{
	heading("children made by instruction");
	int fd = eventfd(13, EFD_NONBLOCK);
	pid_t child = raw(SYS_fork, 0, 0, 0, 0, 0);
	if (child == 0)
		_exit(child_sees(raw, fd));
	show("child of a fork", status_of(child), 0);
	close(fd);
	fd = eventfd(13, EFD_NONBLOCK);
	child = raw(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (child == 0)
		_exit(child_sees(raw, fd));
	show("child of a clone", status_of(child), 0);
	close(fd);
	fd = eventfd(17, EFD_NONBLOCK);
	show("by instruction", get(raw, fd), 17);
	close(fd);
	char *arguments[] = {"/bin/sh", "-c", "exit 3", NULL}, *none[] = {NULL};
	child = raw(SYS_vfork, 0, 0, 0, 0, 0);
	if (child == 0) {
		raw(SYS_execve, (long)arguments[0], (long)arguments, (long)none, 0, 0);
		_exit(4);
	}
	show("child of a vfork", status_of(child), 3);
	fd = eventfd(18, EFD_NONBLOCK);
	show("by instruction", get(raw, fd), 18);
	close(fd);
}

static void *stay(void *unused)
{
	pause();
	return unused;
}

static inline void begin_thread_that_stays(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, stay, NULL);
}

#endif
