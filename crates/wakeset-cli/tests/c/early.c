/*
 * Code that runs before the constructors of any library that the program has not loaded itself: a
 * function in .preinit_array comes before all constructors, as the constructors of the program's
 * libraries come before those of preloaded ones. What it registers, makes and leaves behind is as
 * if main had done it.
 */
#include "show.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

static sigjmp_buf back;
static volatile sig_atomic_t faults, alarms, ends;
static int early_set, early_counter, early_pipe[2], rounds;

static void on_fault(int number_)
{
	(void)number_;
	faults++;
	siglongjmp(back, 1);
}

static void on_alarm(int number_)
{
	(void)number_;
	alarms++;
}

static void on_end(int number_)
{
	(void)number_;
	ends++;
}

/* Calls on objects, until a timer has interrupted them many times. */
static void work_under_a_timer(void)
{
	struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
	struct epoll_event event;
	int64_t end = now() + 3000000000LL;
	setitimer(ITIMER_REAL, &often, NULL);
	while (alarms < 500 && now() < end) {
		watch(early_set, EPOLL_CTL_MOD, early_counter, EPOLLIN, 'e');
		add(early_counter, 1);
		epoll_wait(early_set, &event, 1, 0);
		take(early_counter);
		rounds++;
	}
	setitimer(ITIMER_REAL, &never, NULL);
}

static void be_early(int count, char **arguments, char **environment)
{
	struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
	(void)count, (void)arguments, (void)environment;
	sigaction(SIGSEGV, &action, NULL);
	signal(SIGBUS, on_fault);
	signal(SIGALRM, on_alarm);
	signal(SIGTERM, on_end);
	early_set = epoll_create1(EPOLL_CLOEXEC);
	early_counter = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pipe2(early_pipe, O_CLOEXEC) == 0)
		watch_new(early_set, early_counter, EPOLLIN, 'e');
	work_under_a_timer();
}

__attribute__((section(".preinit_array"), used)) static void (*early)(int, char **, char **) =
    be_early;

static void show_handlers(void)
{
	struct sigaction action;
	heading("handlers registered early");
	must(sigaction(SIGSEGV, NULL, &action));
	yes("SIGSEGV's", action.sa_handler == on_fault && action.sa_flags & SA_NODEFER);
	must(sigaction(SIGBUS, NULL, &action));
	yes("SIGBUS's", action.sa_handler == on_fault);
	if (sigsetjmp(back, 1) == 0) {
		int *volatile nowhere = (int *)8;
		*nowhere = 1;
	}
	number("faults handled", 1, faults);
	if (sigsetjmp(back, 1) == 0)
		raise(SIGBUS);
	number("and one that was sent", 2, faults);
}

static void show_mask(void)
{
	sigset_t mask;
	int blocked = 0;
	heading("signals that came early");
	yes("came", alarms > 0 && rounds > 0);
	must(sigprocmask(SIG_BLOCK, NULL, &mask));
	for (int i = 1; i < SIGRTMAX; i++)
		blocked += sigismember(&mask, i) == 1;
	number("blocked now", 0, blocked);
	raise(SIGTERM);
	number("another is handled", 1, ends);
}

static void show_objects(void)
{
	char byte = 0;
	heading("objects made early");
	must(add(early_counter, 3));
	show("the set", "e=IN", ready(early_set));
	number("the eventfd", 3, take(early_counter));
	must(write(early_pipe[1], "x", 1));
	number("the pipe", 1, read(early_pipe[0], &byte, 1));
	CALL("a bad pointer", "-1 EFAULT",
	     epoll_ctl(early_set, EPOLL_CTL_MOD, early_counter, (void *)8));
}

int main(void)
{
	show_handlers();
	show_mask();
	show_objects();
	return verdict();
}
