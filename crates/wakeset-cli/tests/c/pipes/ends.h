/*
 * Pipes and pairs of sockets, and short ways to use their ends.
 */
#ifndef PIPES_ENDS_H
#define PIPES_ENDS_H

#include "../show.h"
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

static void make_pipe(int ends[2], int flags)
{
	must(pipe2(ends, flags | O_CLOEXEC));
}

static void make_sockets(int ends[2], int flags)
{
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0, ends));
}

static void close_both(const int ends[2])
{
	must(close(ends[0]));
	must(close(ends[1]));
}

/* What one read gives, as text. */
static const char *taken(int fd)
{
	static char text[5000];
	ssize_t got = read(fd, text, sizeof text - 1);
	if (got < 0)
		return outcome(-1);
	text[got] = '\0';
	return text;
}

static int put(int fd, const char *text)
{
	return (int)write(fd, text, strlen(text));
}

static int there(int fd)
{
	int bytes = -1;
	must(ioctl(fd, FIONREAD, &bytes));
	return bytes;
}

static long fill(int fd)
{
	long written = 0;
	while (write(fd, "x", 1) == 1)
		written++;
	return written;
}

static int finish_child(pid_t child)
{
	int status;
	must(waitpid(child, &status, 0));
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#endif
