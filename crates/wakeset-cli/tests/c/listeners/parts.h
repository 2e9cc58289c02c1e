/*
 * Parts that mostly sleep, a second of rescue each and more: they run beside each other and beside
 * the rest, each in a process that executes this program anew. What they print comes at the end, in
 * order.
 */
#ifndef LISTENERS_PARTS_H
#define LISTENERS_PARTS_H

#include "calls.h"
#include "sets.h"
#include "waiters.h"
#include <sys/mman.h>
#include <sys/wait.h>

struct part {
	void (*run)(int argument);
	int argument;
	/* It stops its process, and with it whoever looks after that. */
	int stops;
	pid_t child;
	int output;
};

static void run_signals(int unused)
{
	(void)unused;
	show_signals();
}

static void run_stopped(int argument)
{
	static const enum way ways[] = {POLL, EPOLL, EDGE};
	show_stopped(ways[argument % 3], argument / 3);
}

static void run_stopped_beside_accept(int argument)
{
	static const enum way ways[] = {POLL, EPOLL, EDGE};
	show_stopped_beside_accept(ways[argument]);
}

static struct part parts[] = {
	{.run = run_signals, .stops = 1},
	{.run = show_sets, .argument = 0},
	{.run = show_sets, .argument = 1},
	{.run = show_sets, .argument = 2},
	{.run = run_stopped, .argument = 0},
	{.run = run_stopped, .argument = 1},
	{.run = run_stopped, .argument = 2},
	{.run = run_stopped, .argument = 3},
	{.run = run_stopped, .argument = 4},
	{.run = run_stopped, .argument = 5},
	{.run = run_stopped_beside_accept, .argument = 0},
	{.run = run_stopped_beside_accept, .argument = 1},
	{.run = run_stopped_beside_accept, .argument = 2},
	{.run = show_accept_beside_poll, .argument = 0},
	{.run = show_accept_beside_poll, .argument = 1},
	{.run = show_accept_beside_poll, .argument = 2},
};
enum { PARTS = sizeof parts / sizeof *parts };

static void begin_parts(int with_stops)
{
	for (int i = 0; i < PARTS; i++) {
		struct part *part = &parts[i];
		char index[16];
		if (part->stops && !with_stops)
			continue;
		snprintf(index, sizeof index, "%d", i);
		part->output = must(memfd_create("part", MFD_CLOEXEC));
		part->child = must(fork());
		if (part->child == 0) {
			must(dup2(part->output, STDOUT_FILENO));
			execl("/proc/self/exe", "listeners", "part", index, NULL);
			must(-1);
		}
	}
}

static void end_parts(void)
{
	for (int i = 0; i < PARTS; i++) {
		struct part *part = &parts[i];
		char text[4096];
		ssize_t len;
		int status;
		if (part->child == 0)
			continue;
		must(waitpid(part->child, &status, 0));
		for (off_t at = 0; (len = pread(part->output, text, sizeof text, at)) > 0; at += len)
			fwrite(text, 1, (size_t)len, stdout);
		number("ended well", 0, status);
		must(close(part->output));
	}
}

#endif
