/*
 * By which a parent and its children tell each other to go on, in programs that fork; and the
 * second thread of such a parent.
 */
#ifndef CONVERSATION_H
#define CONVERSATION_H

#include "show.h"
#include <sys/socket.h>

/* Both ways, by the kernel alone. */
static int down[2], up[2];

/* Of datagrams, which never live in process. */
static void make_conversation(void)
{
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, down));
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, up));
}

static void say(int to, char what)
{
	must(write(to, &what, 1));
}

static void hear(int from)
{
	char what;
	if (read(from, &what, 1) != 1)
		must(-1);
}

/* A process has a second thread. */
static void *sleep_on(void *unused)
{
	for (;;)
		pause();
	return unused;
}

#endif
