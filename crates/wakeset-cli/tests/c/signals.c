/*
 * Signals: EINTR and SA_RESTART as signal(7) has them for these calls, the masks of epoll_pwait(2),
 * ppoll(2) and pselect(2), what sigaction(2) promises, and calls made from within handlers: write,
 * read, epoll_ctl, epoll_wait, close and dup are all async-signal-safe by signal-safety(7) or,
 * where that is silent, in the kernel.
 */
#include "show.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/time.h>

static atomic_int handled;
static pid_t main_thread;

static void count_signal(int number_)
{
	(void)number_;
	atomic_fetch_add(&handled, 1);
}

static void catch(int signal_number, int flags)
{
	struct sigaction action = {.sa_handler = count_signal, .sa_flags = flags};
	sigemptyset(&action.sa_mask);
	must(sigaction(signal_number, &action, NULL));
	atomic_store(&handled, 0);
}

static void *signal_main(void *target)
{
	until_asleep(main_thread);
	must_be_zero(pthread_kill(*(pthread_t *)target, SIGUSR1));
	return NULL;
}

static pthread_t myself;

/* SIGUSR1 arrives when this thread sleeps in the call. */
#define INTERRUPTED(name, want, call)                           \
	do {                                                    \
		struct thread sender_;                          \
		start(&sender_, signal_main, &myself);          \
		CALL(name, want, call);                         \
		finish(&sender_);                               \
		number("handled", 1, atomic_exchange(&handled, 0)); \
	} while (0)

/* SIGUSR1 arrives first, and a write that ends the call when it sleeps again. */
static void *signal_and_write(void *fd)
{
	signal_main(&myself);
	until_asleep(main_thread);
	must(add(*(int *)fd, 5));
	return NULL;
}

#define RESTARTED(name, want, fd, call)                         \
	do {                                                    \
		struct thread sender_;                          \
		start(&sender_, signal_and_write, &(fd));       \
		CALL(name, want, call);                         \
		finish(&sender_);                               \
		number("handled", 1, atomic_exchange(&handled, 0)); \
	} while (0)

static void show_interruption(const char *what, int set, int counter)
{
	struct epoll_event event;
	struct timespec long_time = {1000, 0};
	struct pollfd polled[2] = {{counter, POLLIN, 0}, {set, POLLIN, 0}};
	fd_set readable;
	heading(what);
	for (int restart = 0; restart < 2; restart++) {
		catch(SIGUSR1, restart ? SA_RESTART : 0);
		printf("%s SA_RESTART\n", restart ? "with" : "without");
		INTERRUPTED("epoll_wait", "-1 EINTR", epoll_wait(set, &event, 1, -1));
		INTERRUPTED("epoll_wait with a timeout", "-1 EINTR", epoll_wait(set, &event, 1, 1000000));
		INTERRUPTED("epoll_pwait", "-1 EINTR", epoll_pwait(set, &event, 1, -1, NULL));
		INTERRUPTED("epoll_pwait2", "-1 EINTR", epoll_pwait2(set, &event, 1, &long_time, NULL));
		INTERRUPTED("poll", "-1 EINTR", poll(polled, 2, -1));
		INTERRUPTED("ppoll", "-1 EINTR", ppoll(polled, 2, &long_time, NULL));
		FD_ZERO(&readable);
		FD_SET(counter, &readable);
		FD_SET(set, &readable);
		INTERRUPTED("select", "-1 EINTR",
		            select(counter + 1 > set + 1 ? counter + 1 : set + 1, &readable, NULL, NULL, NULL));
		INTERRUPTED("pselect", "-1 EINTR",
			    pselect(counter + 1 > set + 1 ? counter + 1 : set + 1, &readable, NULL, NULL, &long_time,
			            NULL));
		if (restart) {
			RESTARTED("read goes on", "5", counter, take(counter));
		} else {
			INTERRUPTED("read", "-1 EINTR", take(counter));
		}
	}
	int full = must(eventfd(0, 0));
	must(add(full, 0xfffffffffffffffe));
	catch(SIGUSR1, 0);
	INTERRUPTED("write to a full one", "-1 EINTR", add(full, 1));
	must(close(full));

	/* A signal nobody handles ends nothing. */
	signal(SIGUSR1, SIG_IGN);
	struct thread sender;
	start(&sender, signal_and_write, &counter);
	CALL("an ignored signal does not end a wait", "1", epoll_wait(set, &event, 1, -1));
	finish(&sender);
	drain(counter);
}

static void show_masks(const char *what, int set, int counter)
{
	struct epoll_event event;
	struct timespec no_time = {0, 0}, long_time = {1000, 0};
	struct pollfd polled = {set, POLLIN, 0};
	fd_set readable;
	sigset_t blocked, none, now_blocked, old;
	heading(what);
	catch(SIGUSR1, SA_RESTART);
	sigemptyset(&none);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	must_be_zero(pthread_sigmask(SIG_BLOCK, &blocked, &old));
	for (int way = 0; way < 5; way++) {
		static const char *const names[] = {"epoll_pwait", "epoll_pwait2", "ppoll", "pselect",
		                                    "syscall epoll_pwait"};
		FD_ZERO(&readable);
		FD_SET(set, &readable);
		must(raise(SIGUSR1));
		number("a signal that is blocked waits", 0, atomic_load(&handled));
		errno = 0;
		long result;
		switch (way) {
		case 0: result = epoll_pwait(set, &event, 1, -1, &none); break;
		case 1: result = epoll_pwait2(set, &event, 1, &long_time, &none); break;
		case 2: result = ppoll(&polled, 1, &long_time, &none); break;
		case 3: result = pselect(set + 1, &readable, NULL, NULL, &long_time, &none); break;
		default: result = syscall(SYS_epoll_pwait, set, &event, 1, -1, &none, 8L); break;
		}
		show(names[way], "-1 EINTR", outcome(result));
		number("it was handled in the call", 1, atomic_exchange(&handled, 0));
		must_be_zero(pthread_sigmask(SIG_BLOCK, NULL, &now_blocked));
		yes("the mask is as before", sigismember(&now_blocked, SIGUSR1));

		/* When it comes during the sleep. */
		struct thread sender;
		start(&sender, signal_main, &myself);
		switch (way) {
		case 0: result = epoll_pwait(set, &event, 1, -1, &none); break;
		case 1: result = epoll_pwait2(set, &event, 1, NULL, &none); break;
		case 2: result = ppoll(&polled, 1, NULL, &none); break;
		case 3: result = pselect(set + 1, &readable, NULL, NULL, NULL, &none); break;
		default: result = syscall(SYS_epoll_pwait, set, &event, 1, 1000000, &none, 8L); break;
		}
		show("asleep", "-1 EINTR", outcome(result));
		finish(&sender);
		number("handled", 1, atomic_exchange(&handled, 0));
	}
	/* The other way about: a mask that blocks for the time of the call. */
	must_be_zero(pthread_sigmask(SIG_SETMASK, &old, NULL));
	struct thread sender;
	start(&sender, signal_and_write, &counter);
	CALL("a signal that the call blocks does not end it", "1",
	     epoll_pwait(set, &event, 1, -1, &blocked));
	number("but is handled on return", 1, atomic_exchange(&handled, 0));
	finish(&sender);
	start(&sender, signal_and_write, &counter);
	drain(counter);
	CALL("nor ppoll", "1", ppoll(&polled, 1, NULL, &blocked));
	number("but is handled on return", 1, atomic_exchange(&handled, 0));
	finish(&sender);

	/* Events go first: the mask was there for nothing, and the signal waits on. */
	must_be_zero(pthread_sigmask(SIG_BLOCK, &blocked, NULL));
	must(raise(SIGUSR1));
	CALL("an event that is ready goes before a signal", "1", epoll_pwait(set, &event, 1, -1, &none));
	number("which waits on", 0, atomic_load(&handled));
	drain(counter);
	CALL("a look goes before it too", "0", epoll_pwait(set, &event, 1, 0, &none));
	CALL("by either call", "0", epoll_pwait2(set, &event, 1, &no_time, &none));
	number("it waits on", 0, atomic_load(&handled));
	CALL("until a wait", "-1 EINTR", epoll_pwait(set, &event, 1, 1, &none));
	number("handled", 1, atomic_exchange(&handled, 0));
	must_be_zero(pthread_sigmask(SIG_SETMASK, &old, NULL));
}

/* ---- sigaction(2) ---- */

static volatile sig_atomic_t depth, deepest, runs, value_seen, code_seen, sender_seen, on_stack;
static char *other_stack;

static void nest(int signal_number)
{
	if (++depth > deepest)
		deepest = depth;
	if (++runs < 3)
		raise(signal_number);
	depth--;
}

static void look(int signal_number, siginfo_t *info, void *context)
{
	char here;
	(void)signal_number;
	value_seen = info->si_value.sival_int;
	code_seen = info->si_code;
	sender_seen = info->si_pid == getpid();
	on_stack = &here >= other_stack && &here < other_stack + 65536 && context != NULL;
}

static void show_actions(void)
{
	heading("sigaction(2)");
	struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART | SA_NODEFER}, old;
	sigemptyset(&action.sa_mask);
	sigaddset(&action.sa_mask, SIGUSR2);
	signal(SIGUSR1, SIG_DFL);
	must(sigaction(SIGUSR1, &action, &old));
	yes("what was there: the default", old.sa_handler == SIG_DFL);
	must(sigaction(SIGUSR1, NULL, &old));
	yes("what is there: the handler that was set", old.sa_handler == count_signal);
	number("its flags", SA_RESTART | SA_NODEFER,
	       old.sa_flags & (SA_RESTART | SA_NODEFER | SA_SIGINFO));
	yes("its mask", sigismember(&old.sa_mask, SIGUSR2) && !sigismember(&old.sa_mask, SIGUSR1));
	CALL("of SIGKILL", "-1 EINVAL", sigaction(SIGKILL, &action, NULL));
	CALL("of signal 0", "-1 EINVAL", sigaction(0, &action, NULL));
	CALL("of signal 65", "-1 EINVAL", sigaction(65, &action, NULL));
	yes("signal() returns the handler", signal(SIGUSR1, SIG_IGN) == count_signal);
	yes("signal() returns what it set", signal(SIGUSR1, count_signal) == SIG_IGN);
	must(sigaction(SIGUSR1, NULL, &old));
	yes("signal() restarts", old.sa_flags & SA_RESTART);
	yes("and names the handler", old.sa_handler == count_signal);
	yes("signal() of SIGKILL", signal(SIGKILL, SIG_IGN) == SIG_ERR);

	atomic_store(&handled, 0);
	catch(SIGUSR1, (int)SA_RESETHAND);
	must(raise(SIGUSR1));
	number("SA_RESETHAND: handled", 1, atomic_load(&handled));
	must(sigaction(SIGUSR1, NULL, &old));
	yes("then the default is back", old.sa_handler == SIG_DFL);

	action = (struct sigaction){.sa_handler = nest, .sa_flags = SA_NODEFER};
	sigemptyset(&action.sa_mask);
	must(sigaction(SIGUSR1, &action, NULL));
	must(raise(SIGUSR1));
	number("SA_NODEFER: handlers within handlers", 3, deepest);
	deepest = runs = 0;
	action.sa_flags = 0;
	must(sigaction(SIGUSR1, &action, NULL));
	must(raise(SIGUSR1));
	number("without it one after the other", 1, deepest);

	other_stack = malloc(65536);
	stack_t stack = {.ss_sp = other_stack, .ss_size = 65536};
	must(sigaltstack(&stack, NULL));
	action = (struct sigaction){.sa_sigaction = look, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	sigemptyset(&action.sa_mask);
	must(sigaction(SIGUSR2, &action, NULL));
	must(sigqueue(getpid(), SIGUSR2, (union sigval){.sival_int = 4711}));
	number("SA_SIGINFO: the value", 4711, value_seen);
	number("the code", SI_QUEUE, code_seen);
	yes("the sender", sender_seen);
	yes("SA_ONSTACK: on the other stack", on_stack);
	must(sigaction(SIGUSR2, NULL, &old));
	yes("the handler named is the one set", old.sa_sigaction == look);
	number("with its flags", SA_SIGINFO | SA_ONSTACK,
	       old.sa_flags & (SA_SIGINFO | SA_ONSTACK | SA_RESTART));
	stack.ss_flags = SS_DISABLE;
	must(sigaltstack(&stack, NULL));
	signal(SIGUSR2, SIG_DFL);
}

/* ---- leaving a call by a jump ---- */

static sigjmp_buf away;

static void jump(int signal_number)
{
	(void)signal_number;
	siglongjmp(away, 1);
}

static void show_jumps(const char *what, int set, int counter)
{
	struct sigaction action = {.sa_handler = jump};
	struct thread sender;
	struct epoll_event event;
	static volatile int way;
	heading(what);
	sigemptyset(&action.sa_mask);
	must(sigaction(SIGUSR1, &action, NULL));
	for (way = 0; way < 3; way++) {
		start(&sender, signal_main, &myself);
		if (sigsetjmp(away, 1) == 0) {
			if (way == 0)
				epoll_wait(set, &event, 1, -1);
			else if (way == 1)
				(void)!take(counter);
			else
				poll(&(struct pollfd){counter, POLLIN, 0}, 1, -1);
			printf("not reached\n");
		}
		finish(&sender);
		must(add(counter, 2));
		show(way == 0 ? "out of epoll_wait: the set works"
			      : way == 1 ? "out of read: the set works"
					 : "out of poll: the set works",
		     "a=IN", ready(set));
		number("and the counter", 2, take(counter));
	}
	signal(SIGUSR1, SIG_DFL);
}

/* ---- a storm ---- */

static int storm_set, storm_counter, storm_ends[2];
static atomic_llong added, taken;
static atomic_int wrong, storms;

static void check(int truth)
{
	if (!truth)
		atomic_fetch_add(&wrong, 1);
}

/* The same for the handler and for what it interrupts. */
static void work_a_little(void)
{
	struct epoll_event event;
	int error = errno;
	if (add(storm_counter, 1) == 8)
		atomic_fetch_add(&added, 1);
	check(epoll_wait(storm_set, &event, 1, 0) >= 0);
	if (atomic_load(&added) % 3 == 0) {
		long long value = take(storm_counter);
		if (value > 0)
			atomic_fetch_add(&taken, value);
	}
	int fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
	check(fd >= 0);
	check(watch_new(storm_set, fd, EPOLLIN | EPOLLET, 'h') == 0);
	check(watch(storm_set, EPOLL_CTL_MOD, fd, EPOLLIN, 'h') == 0);
	int copy = dup(fd);
	check(copy >= 0);
	check(close(fd) == 0);
	check(take(copy) == 1);
	check(add(copy, 7) == 8);
	check(epoll_wait(storm_set, &event, 1, 0) == 1);
	check(close(copy) == 0);
	int set = epoll_create1(EPOLL_CLOEXEC);
	check(watch_new(set, storm_counter, EPOLLIN | EPOLLOUT, 's') == 0);
	check(epoll_wait(set, &event, 1, 0) == 1);
	check(close(set) == 0);
	errno = error;
}

static void storm(int signal_number)
{
	(void)signal_number;
	atomic_fetch_add(&storms, 1);
	work_a_little();
}

static void show_storm(const char *what, int with_pipe)
{
	heading(what);
	storm_set = must(epoll_create1(EPOLL_CLOEXEC));
	storm_counter = must(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	must(watch_new(storm_set, storm_counter, EPOLLIN, 'c'));
	if (with_pipe) {
		kernel_pipe(storm_ends, 0);
		must(watch_new(storm_set, storm_ends[0], EPOLLIN, 'p'));
	}
	atomic_store(&added, 0);
	atomic_store(&taken, 0);
	atomic_store(&storms, 0);
	catch(SIGALRM, 0);
	struct sigaction action = {.sa_handler = storm};
	sigemptyset(&action.sa_mask);
	must(sigaction(SIGALRM, &action, NULL));
	struct itimerval each = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
	must(setitimer(ITIMER_REAL, &each, NULL));
	for (int64_t end = now() + 1000000000; now() < end;)
		work_a_little();
	must(setitimer(ITIMER_REAL, &never, NULL));
	signal(SIGALRM, SIG_IGN);
	long long rest = take(storm_counter);
	yes("handlers ran", atomic_load(&storms) > 0);
	number("lost or doubled", 0, atomic_load(&added) - atomic_load(&taken) - (rest > 0 ? rest : 0));
	number("calls that failed", 0, atomic_load(&wrong));
	show("what is left in the set", "none", ready(storm_set));
	must(close(storm_counter));
	must(close(storm_set));
	if (with_pipe) {
		must(close(storm_ends[0]));
		must(close(storm_ends[1]));
	}
}

/* A handler that makes an event of a signal: the self-pipe trick, with an eventfd. */

static int self_fd;

static void tell(int signal_number)
{
	(void)signal_number;
	int error = errno;
	(void)!add(self_fd, 1);
	errno = error;
}

static void show_self_pipe(int set, int counter)
{
	struct thread sender;
	struct epoll_event event;
	heading("a handler that writes what the wait it interrupts waits for");
	self_fd = counter;
	struct sigaction action = {.sa_handler = tell, .sa_flags = SA_RESTART};
	sigemptyset(&action.sa_mask);
	must(sigaction(SIGUSR1, &action, NULL));
	start(&sender, signal_main, &myself);
	int got = epoll_wait(set, &event, 1, -1);
	/* Either the wait was interrupted or it found the event: the kernel looks for events first. */
	yes("the wait ends", got == 1 || (got == -1 && errno == EINTR));
	finish(&sender);
	show("the event is there", "a=IN", ready(set));
	number("once", 1, take(counter));
	start(&sender, signal_main, &myself);
	number("a read ends with what its own handler wrote", 1, take(counter));
	finish(&sender);
	signal(SIGUSR1, SIG_DFL);
}

int main(void)
{
	int ends[2];
	main_thread = (pid_t)syscall(SYS_gettid);
	myself = pthread_self();
	int counter = must(eventfd(0, 0)), set = must(epoll_create1(0)), mixed = must(epoll_create1(0));
	kernel_pipe(ends, 0);
	must(watch_new(set, counter, EPOLLIN, 'a'));
	must(watch_new(mixed, counter, EPOLLIN, 'a'));
	must(watch_new(mixed, ends[0], EPOLLIN, 'p'));

	show_interruption("interruption, a set with a counter", set, counter);
	show_interruption("interruption, a set with a counter and a pipe", mixed, counter);
	show_masks("masks, a set with a counter", set, counter);
	show_masks("masks, a set with a counter and a pipe", mixed, counter);
	show_actions();
	show_jumps("jumps, a set with a counter", set, counter);
	show_jumps("jumps, a set with a counter and a pipe", mixed, counter);
	show_self_pipe(set, counter);
	show_self_pipe(mixed, counter);
	show_storm("a storm, a set with a counter", 0);
	show_storm("a storm, a set with a counter and a pipe", 1);
	return verdict();
}
