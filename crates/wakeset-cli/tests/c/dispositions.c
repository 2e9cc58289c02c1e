/*
 * What sigaction(2) reports and does: flags as they were asked for, handlers for once
 * (SA_RESETHAND), also when the signal arrives in the middle of a call, and disposition by
 * disposition what is discarded.
 */
#include "show.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

static volatile sig_atomic_t handled;
static volatile int value;

static void count(int number_)
{
	(void)number_;
	handled++;
}

static void note_value(int number_, siginfo_t *info, void *context)
{
	(void)number_, (void)context;
	handled++;
	value = info->si_value.sival_int;
}

static const char *what(const struct sigaction *action)
{
	static char text[96];
	const char *handler = action->sa_handler == SIG_DFL ? "default"
	    : action->sa_handler == SIG_IGN                 ? "ignored"
	    : action->sa_handler == count                   ? "handler"
	                                                    : "?";
	/* Including the flag that libc adds. */
	snprintf(text, sizeof text, "%s, flags %x", handler, (unsigned)action->sa_flags);
	return text;
}

static void show_reported(int signal_number)
{
	struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESETHAND | SA_NODEFER}, old;
	handled = 0;
	must(sigaction(signal_number, NULL, &old));
	show("at first", "default, flags 0", what(&old));
	must(sigaction(signal_number, &action, NULL));
	must(sigaction(signal_number, NULL, &old));
	show("a handler for once", "handler, flags c4000000", what(&old));
	raise(signal_number);
	number("handled", 1, handled);
	must(sigaction(signal_number, NULL, &old));
	show("and then", "default, flags c4000000", what(&old));
	action.sa_flags = SA_RESTART;
	must(sigaction(signal_number, &action, &old));
	show("replaced", "default, flags c4000000", what(&old));
	must(sigaction(signal_number, NULL, &old));
	show("by one that stays", "handler, flags 14000000", what(&old));
	raise(signal_number);
	raise(signal_number);
	number("handled", 3, handled);
	yes("signal says so", signal(signal_number, SIG_DFL) == count);
}

/* In a child: how it ends when a handler for once meets two signals. */
static void show_second(int signal_number)
{
	int status;
	pid_t child = must(fork());
	if (child == 0) {
		struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESETHAND};
		handled = 0;
		must(sigaction(signal_number, &action, NULL));
		raise(signal_number);
		if (handled != 1)
			_exit(1);
		raise(signal_number);
		_exit(2);
	}
	must(waitpid(child, &status, 0));
	number("the second one ends the process", signal_number,
	       WIFSIGNALED(status) ? WTERMSIG(status) : -1);
}

static atomic_int sent, stop;

static void *send_slowly(void *to)
{
	while (!atomic_load(&stop)) {
		/* The next when the last was handled and the handler is there again. */
		if (atomic_load(&sent) == 0) {
			atomic_store(&sent, 1);
			pthread_kill(*(pthread_t *)to, SIGUSR1);
		}
		spin(3000);
	}
	return NULL;
}

/* One for once, that arrives anywhere in a call. */
static void show_in_calls(void)
{
	struct thread sender;
	struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESETHAND}, old;
	pthread_t self = pthread_self();
	int set = must(epoll_create1(0)), fd = must(eventfd(0, EFD_NONBLOCK)), wrong = 0, rounds = 0;
	heading("handlers for once, in the middle of calls");
	must(watch_new(set, fd, EPOLLIN, 'e'));
	atomic_store(&sent, 1);
	start(&sender, send_slowly, &self);
	for (int64_t end = now() + 1000000000LL; now() < end && rounds < 20000; rounds++) {
		handled = 0;
		must(sigaction(SIGUSR1, &action, NULL));
		atomic_store(&sent, 0);
		while (handled == 0) {
			watch(set, EPOLL_CTL_MOD, fd, EPOLLIN, 'e');
			add(fd, 1);
			take(fd);
		}
		must(sigaction(SIGUSR1, NULL, &old));
		wrong += handled != 1 || old.sa_handler != SIG_DFL;
	}
	atomic_store(&stop, 1);
	finish(&sender);
	number("wrong", 0, wrong);
	must(close(set));
	must(close(fd));
}

/* What is pending for a signal goes when it is ignored. */
static void show_discarded(void)
{
	struct sigaction action = {.sa_sigaction = note_value, .sa_flags = SA_SIGINFO};
	sigset_t one, before;
	heading("pending, and ignored");
	sigemptyset(&one);
	sigaddset(&one, SIGRTMIN);
	must(sigaction(SIGRTMIN, &action, NULL));
	must(sigprocmask(SIG_BLOCK, &one, &before));
	handled = 0;
	must_be_zero(pthread_sigqueue(pthread_self(), SIGRTMIN, (union sigval){.sival_int = 1}));
	signal(SIGRTMIN, SIG_IGN);
	must(sigaction(SIGRTMIN, &action, NULL));
	must(sigprocmask(SIG_SETMASK, &before, NULL));
	number("handled", 0, handled);
	must_be_zero(pthread_sigqueue(pthread_self(), SIGRTMIN, (union sigval){.sival_int = 2}));
	number("another", 1, handled);
	number("its value", 2, value);
}

int main(void)
{
	heading("SIGUSR1");
	show_reported(SIGUSR1);
	heading("SIGSEGV");
	show_reported(SIGSEGV);
	heading("SIGSYS");
	show_reported(SIGSYS);
	heading("the second signal of a handler for once");
	show_second(SIGUSR1);
	show_second(SIGSEGV);
	show_in_calls();
	show_discarded();
	return verdict();
}
