/*
 * What children of a fork do, in `forked.c`: each gets the address of a descriptor's number, and
 * returns its exit status.
 */
#ifndef FORKED_CHILDREN_H
#define FORKED_CHILDREN_H

#include "../conversation.h"
#include "acts.h"
#include <dirent.h>

/* Runs `act` in a child, and returns its exit status. */
static int in_child(int (*act)(void *), void *argument)
{
	pid_t child = fork();
	if (child == 0)
		_exit(act(argument));
	return status_of(child);
}

static int entries_of(const char *directory, const char *that_lead_to)
{
	int count = 0;
	char file[64] = "";
	DIR *entries = opendir(directory);
	for (struct dirent *entry; (entry = readdir(entries)) != NULL;)
		if (that_lead_to == NULL)
			count += entry->d_name[0] != '.';
		else if (readlinkat(dirfd(entries), entry->d_name, file, sizeof file - 1) > 0)
			count += strncmp(file, that_lead_to, strlen(that_lead_to)) == 0;
	closedir(entries);
	return count;
}

/* ---- what a child does ---- */

static int put_a_file_over_in_vain(void *fd)
{
	return dup2(-1, *(int *)fd) != -1 || dup3(1, *(int *)fd, 12345) != -1 || write_three(fd);
}

/* What the child makes is its own, also beside what it has from its parent. */
static int make_its_own(void *fd)
{
	int own = counter_of(0), set = set_with(own, EPOLLIN);
	struct epoll_event event = { .events = EPOLLIN };
	uint64_t one = 1;
	if (write(own, &one, 8) != 8 || epoll_wait(set, &event, 1, 0) != 1)
		return 1;
	if (epoll_ctl(set, EPOLL_CTL_ADD, *(int *)fd, &event) != 0)
		return 2;
	return epoll_wait(set, &event, 1, 0) != 1 || read_it(&own) != 1 || read_it(fd) != 5;
}

static int watch_no_more(void *set)
{
	return epoll_ctl(*(int *)set, EPOLL_CTL_DEL, *watched, NULL);
}

static int forks_without_a_word(void *fd)
{
	int failed = in_child(nothing, fd) != 7;
	return write_three(fd) || failed;
}

static void *write_there(void *fd)
{
	return (void *)(intptr_t)write_three(fd);
}

static int has_threads(void *fd)
{
	pthread_t threads[4];
	void *failed = NULL, *one;
	for (int i = 0; i < 4; i++)
		must_be_zero(pthread_create(&threads[i], NULL, write_there, fd));
	for (int i = 0; i < 4; i++) {
		must_be_zero(pthread_join(threads[i], &one));
		failed = failed ? failed : one;
	}
	return failed != NULL;
}

static int is_killed(void *fd)
{
	write_three(fd);
	raise(SIGKILL);
	return 1;
}

static int failing_exec(void *fd)
{
	execl("/nonexistent", "nothing", NULL);
	return write_three(fd);
}

#endif
