/*
 * Signals in a program that makes system calls by instruction.
 */
#ifndef SIGNALS_H
#define SIGNALS_H

#include "calls.h"

static raw_call *in_handler;
static int from_handler, caught;
static volatile long got_in_handler;

static void on_signal(int signal)
{
	caught = signal;
	got_in_handler = get(in_handler, from_handler);
}

static void on_sigsys(int signal, siginfo_t *info, void *context)
{
	(void)context;
	caught = signal;
	got_in_handler = info->si_code;
}

static void masks(raw_call *raw)
{
	heading("masks");
	sigset_t all, none;
	sigfillset(&all);
	sigemptyset(&none);
	show("block all", sigprocmask(SIG_SETMASK, &all, NULL), 0);
	show("by instruction", raw(SYS_getpid, 0, 0, 0, 0, 0) == getpid(), 1);
	sigset_t now;
	uint64_t before;
	show("asked by instruction",
	     raw(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)&before, 8, 0), 0);
	show("SIGUSR1 is blocked", before >> (SIGUSR1 - 1) & 1, 1);
	show("none", sigprocmask(SIG_SETMASK, &none, NULL), 0);
	uint64_t everything = ~0UL;
	show("block all by instruction",
	     raw(SYS_rt_sigprocmask, SIG_BLOCK, (long)&everything, (long)&before, 8, 0), 0);
	show("before", (long)before, 0);
	show("by instruction", raw(SYS_getpid, 0, 0, 0, 0, 0) == getpid(), 1);
	sigprocmask(SIG_SETMASK, NULL, &now);
	show("SIGUSR2 is blocked", sigismember(&now, SIGUSR2), 1);
	show("none", sigprocmask(SIG_SETMASK, &none, NULL), 0);
}

static void handlers(raw_call *raw)
{
	heading("handlers");
	struct sigaction action = {.sa_handler = on_signal};
	sigfillset(&action.sa_mask);
	sigaction(SIGUSR1, &action, NULL);
	in_handler = raw;
	from_handler = eventfd(21, EFD_NONBLOCK);
	raise(SIGUSR1);
	show("in a handler that blocks all", got_in_handler, 21);
	close(from_handler);
	from_handler = eventfd(22, EFD_NONBLOCK);
	static char alternate[65536];
	stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
	show("sigaltstack by instruction", raw(SYS_sigaltstack, (long)&stack, 0, 0, 0, 0), 0);
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR1, &action, NULL);
	raw(SYS_tgkill, getpid(), gettid(), SIGUSR1, 0, 0);
	show("on an alternate stack", got_in_handler, 22);
	close(from_handler);
	from_handler = eventfd(23, EFD_NONBLOCK);
	int ends[2];
	show("pipe", pipe(ends), 0);
	struct sigaction alarm = {.sa_handler = on_signal};
	sigaction(SIGALRM, &alarm, NULL);
	ualarm(20000, 0);
	char byte;
	show("a read that is interrupted", raw(SYS_read, ends[0], (long)&byte, 1, 0, 0), -EINTR);
	show("by a handler", got_in_handler, 23);
	close(from_handler);
	from_handler = eventfd(24, EFD_NONBLOCK);
	alarm.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &alarm, NULL);
	got_in_handler = 0;
	ualarm(20000, 0);
	if (fork() == 0) {
		usleep(60000);
		_exit(write(ends[1], "x", 1) != 1);
	}
	show("a read that is restarted", raw(SYS_read, ends[0], (long)&byte, 1, 0, 0), 1);
	show("by a handler", got_in_handler, 24);
	wait(NULL);
	close(from_handler);
	close(ends[0]);
	close(ends[1]);
}

static void sigsys(raw_call *raw)
{
	heading("SIGSYS of the program's own");
	struct sigaction action = {.sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO}, old;
	show("sigaction", sigaction(SIGSYS, &action, NULL), 0);
	show("sent", raw(SYS_tgkill, getpid(), gettid(), SIGSYS, 0, 0), 0);
	show("caught", caught, SIGSYS);
	show("code", got_in_handler, SI_TKILL);
	int fd = eventfd(25, EFD_NONBLOCK);
	caught = 0;
	show("by instruction", get(raw, fd), 25);
	show("not caught", caught, 0);
	close(fd);
	action.sa_handler = SIG_IGN;
	action.sa_flags = 0;
	show("ignored", sigaction(SIGSYS, &action, &old), 0);
	show("the old one", old.sa_sigaction == on_sigsys, 1);
	show("sent", raise(SIGSYS), 0);
	signal(SIGSYS, SIG_DFL);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0)
		_exit(raise(SIGSYS));
	int status;
	waitpid(child, &status, 0);
	show("it ends a child", WIFSIGNALED(status) ? WTERMSIG(status) : -1, SIGSYS);
}

#endif
