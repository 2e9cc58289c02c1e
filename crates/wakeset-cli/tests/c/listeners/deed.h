/*
 * Something that happens while the main thread sleeps, and small helpers of all parts.
 */
#ifndef LISTENERS_DEED_H
#define LISTENERS_DEED_H

#include "../listening.h"
#include <sys/wait.h>

static int64_t milliseconds_since(int64_t begin)
{
	return (now() - begin) / 1000000;
}

/* ---- something that happens while the main thread sleeps ---- */

struct deed {
	struct thread thread;
	pid_t sleeper;
	int listener, pipe, signal;
	int client;
	int times;
};

static void *do_deed(void *argument)
{
	struct deed *deed = argument;
	for (int i = 0; i < (deed->times ? deed->times : 1); i++) {
		until_asleep(deed->sleeper);
		if (deed->pipe >= 0)
			must(write(deed->pipe, "x", 1));
		if (deed->listener >= 0)
			deed->client = connect_to(deed->listener);
		if (deed->signal)
			must((int)syscall(SYS_tgkill, getpid(), deed->sleeper, deed->signal));
	}
	return NULL;
}

static void begin_deed(struct deed *deed, int listener, int pipe, int signal)
{
	*deed = (struct deed){.sleeper = (pid_t)syscall(SYS_gettid), .listener = listener, .pipe = pipe,
	                      .signal = signal};
	start(&deed->thread, do_deed, deed);
}

static void end_deed(struct deed *deed)
{
	finish(&deed->thread);
	if (deed->client > 0)
		must(close(deed->client));
}

static const char *poll_text(const struct pollfd *fds, int count, int result)
{
	static char text[256];
	size_t used = 0;
	if (result < 0)
		return outcome(result);
	used += (size_t)snprintf(text, sizeof text, "%d:", result);
	for (int i = 0; i < count; i++) {
		char bits[64];
		name_bits(bits, sizeof bits, (uint32_t)fds[i].revents);
		used += (size_t)snprintf(text + used, sizeof text - used, " %s", *bits ? bits : "-");
	}
	return text;
}

static volatile sig_atomic_t handled;
static void on_signal(int signal)
{
	handled += signal;
}

static void handle(int signal, int flags)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
	must(sigaction(signal, &action, NULL));
}

#endif
