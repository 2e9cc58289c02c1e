/*
 * Small stacks, alternate stacks, and stacks that are too small: threads with PTHREAD_STACK_MIN,
 * coroutines of 16 KiB, and handlers that leave a call which has run out of stack.
 *
 * What each case would catch:
 *   threads with the smallest stack   handlers, and calls that migrate objects, for which there is
 *                                     no room
 *   coroutines                        a handler that runs on the interrupted stack though it asked
 *                                     for another
 *   what a call takes                 one that needs more of its caller's stack than docs/limits.md
 *                                     says, which two nested handlers would find missing
 *   no room left                      locks, deferred handlers and masks that a call leaves behind
 *                                     when the program jumps out of it
 */
#include "show.h"
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/time.h>
#include <ucontext.h>

/* ---- the load: a call on an object of each kind ---- */

struct objects {
	int set, counter, timer, lines[2], pair[2];
};

static void make(struct objects *objects)
{
	objects->set = must(epoll_create1(EPOLL_CLOEXEC));
	objects->counter = must(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	objects->timer = must(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
	must(pipe2(objects->lines, O_NONBLOCK | O_CLOEXEC));
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, objects->pair));
	must(watch_new(objects->set, objects->counter, EPOLLIN, 'c'));
	must(watch_new(objects->set, objects->timer, EPOLLIN, 't'));
	must(watch_new(objects->set, objects->lines[0], EPOLLIN, 'l'));
	must(watch_new(objects->set, objects->pair[0], EPOLLIN | EPOLLET, 'p'));
}

static void unmake(const struct objects *objects)
{
	const int fds[] = {objects->set, objects->counter, objects->timer, objects->lines[0],
	    objects->lines[1], objects->pair[0], objects->pair[1]};
	for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
		close(fds[i]);
}

static void use(const struct objects *objects)
{
	struct itimerspec soon = {{0, 0}, {0, 1000}};
	struct epoll_event events[4];
	struct pollfd polled = {objects->counter, POLLIN, 0};
	char byte;
	add(objects->counter, 1);
	timerfd_settime(objects->timer, 0, &soon, NULL);
	if (write(objects->lines[1], "x", 1) < 0 || write(objects->pair[1], "x", 1) < 0)
		return;
	epoll_wait(objects->set, events, 4, 0);
	poll(&polled, 1, 0);
	take(objects->counter);
	take(objects->timer);
	if (read(objects->lines[0], &byte, 1) < 0 || read(objects->pair[0], &byte, 1) < 0)
		return;
	epoll_ctl(objects->set, EPOLL_CTL_DEL, objects->counter, NULL);
	watch_new(objects->set, objects->counter, EPOLLIN, 'c');
}

/* Sends everything into the kernel, and makes it anew. */
static void migrate(struct objects *objects)
{
	close(dup(objects->set));
	close(dup(objects->counter));
	unmake(objects);
	make(objects);
}

/* ---- threads with the smallest stack ---- */

static atomic_int handled, stop;
static struct objects of_thread;

static void count(int number_)
{
	(void)number_;
	atomic_fetch_add(&handled, 1);
}

static void *work(void *unused)
{
	make(&of_thread);
	for (int i = 0; !atomic_load(&stop); i++) {
		use(&of_thread);
		if (i % 64 == 0)
			migrate(&of_thread);
	}
	unmake(&of_thread);
	return unused;
}

static void show_smallest(void)
{
	enum { SIGNALS = 2000 };
	pthread_t thread;
	pthread_attr_t attributes;
	int sent = 0;
	heading("threads with the smallest stack");
	signal(SIGUSR1, count);
	must_be_zero(pthread_attr_init(&attributes));
	must_be_zero(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN));
	must_be_zero(pthread_create(&thread, &attributes, work, NULL));
	for (int i = 0; i < SIGNALS; i++) {
		must_be_zero(pthread_kill(thread, SIGUSR1));
		sent++;
		for (int64_t end = now() + 5000000000LL; atomic_load(&handled) < sent && now() < end;)
			spin(500);
	}
	atomic_store(&stop, 1);
	must_be_zero(pthread_join(thread, NULL));
	number("handled", SIGNALS, atomic_load(&handled));
}

/* ---- coroutines ---- */

enum { COROUTINE = 16384, GUARD = 4096, ALTERNATE = 65536 };

static ucontext_t of_main, of_coroutine;
static char *stack;
static char *alternate;
static atomic_int elsewhere;
static struct objects of_coroutines;

static char *with_guard(size_t size)
{
	char *memory =
	    mmap(NULL, size + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(memory == MAP_FAILED ? -1 : 0);
	must(mprotect(memory, GUARD, PROT_NONE));
	return memory + GUARD;
}

static void enter(void (*body)(void))
{
	must(getcontext(&of_coroutine));
	of_coroutine.uc_stack.ss_sp = stack;
	of_coroutine.uc_stack.ss_size = COROUTINE;
	of_coroutine.uc_link = &of_main;
	makecontext(&of_coroutine, body, 0);
	must(swapcontext(&of_main, &of_coroutine));
}

/* Takes more than a coroutine has. */
static void need_much(int number_)
{
	volatile char room[3 * COROUTINE / 2];
	(void)number_;
	for (size_t i = 0; i < sizeof room; i += 512)
		room[i] = 1;
	if ((char *)room < alternate || (char *)room >= alternate + ALTERNATE)
		atomic_fetch_add(&elsewhere, 1);
	atomic_fetch_add(&handled, 1);
}

static void work_in_coroutine(void)
{
	int64_t end = now() + 2000000000LL;
	for (int i = 0; atomic_load(&handled) < 5000 && now() < end; i++) {
		use(&of_coroutines);
		if (i % 64 == 0)
			migrate(&of_coroutines);
	}
}

static void show_coroutines(void)
{
	struct itimerval often = {{0, 60}, {0, 60}}, never = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = need_much, .sa_flags = SA_ONSTACK};
	stack_t other = {.ss_sp = alternate, .ss_size = ALTERNATE};
	heading("coroutines, and handlers on an alternate stack");
	must(sigaltstack(&other, NULL));
	must(sigaction(SIGALRM, &action, NULL));
	atomic_store(&handled, 0);
	must(setitimer(ITIMER_REAL, &often, NULL));
	enter(work_in_coroutine);
	must(setitimer(ITIMER_REAL, &never, NULL));
	yes("handlers ran", atomic_load(&handled) > 0);
	number("on another stack", 0, atomic_load(&elsewhere));
}

/* ---- what a call takes ---- */

enum { PAINT = 0x5a, MOST = 3584, MOST_BESIDE_LISTENERS = 5120 };

static void (*measured)(void);
static size_t taken;

/* What else runs above the paint. */
enum { UNPAINTED = 256 };

static void measure(void)
{
	char here;
	size_t low = 0, room = (size_t)(&here - stack) - UNPAINTED;
	memset(stack, PAINT, room);
	measured();
	while (low < room && stack[low] == PAINT)
		low++;
	taken = room + UNPAINTED - low;
}

static void wait_for_set(void)
{
	struct epoll_event events[4];
	epoll_wait(of_coroutines.set, events, 4, 1);
}

static int waited_for;

static void wait_in_poll(void)
{
	struct pollfd polled = {waited_for, POLLIN, 0};
	poll(&polled, 1, 1);
}

static void wait_in_select(void)
{
	struct timeval soon = {0, 1000};
	fd_set sets;
	FD_ZERO(&sets);
	FD_SET(waited_for, &sets);
	select(waited_for + 1, &sets, NULL, NULL, &soon);
}

static void use_all(void)
{
	use(&of_coroutines);
}

static void migrate_all(void)
{
	migrate(&of_coroutines);
}

static void show_one(const char *name, size_t most, void (*call)(void))
{
	measured = call;
	/* The first time the loader looks for the functions, which takes 3 KiB with AVX-512. */
	measured();
	enter(measure);
	if (taken > most)
		fprintf(stderr, "%s takes %zu bytes\n", name, taken);
	yes(name, taken <= most);
}

static void show_what_calls_take(void)
{
	heading("what a call takes");
	show_one("use", MOST, use_all);
	show_one("migrate, make and close", MOST, migrate_all);
	show_one("epoll_wait", MOST, wait_for_set);
	waited_for = of_coroutines.counter;
	show_one("poll", MOST, wait_in_poll);
	show_one("select", MOST, wait_in_select);
	waited_for = must(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	must(bind(waited_for, &(struct sockaddr){.sa_family = AF_UNIX}, sizeof(sa_family_t)));
	must(listen(waited_for, 1));
	show_one("poll of a listener", MOST_BESIDE_LISTENERS, wait_in_poll);
	/* A low number takes less. */
	int low = waited_for;
	waited_for = must(fcntl(low, F_DUPFD_CLOEXEC, 100));
	show_one("select of a listener", MOST_BESIDE_LISTENERS, wait_in_select);
	close(waited_for);
	close(low);
}

/* ---- no room left ---- */

static sigjmp_buf back;
static volatile size_t room_left;
static volatile int which, overflows, finished;

static void leave(int number_)
{
	(void)number_;
	overflows++;
	siglongjmp(back, 1);
}

static void call_once(void)
{
	switch (which) {
	case 0:
		close(dup(of_coroutines.set));
		break;
	case 1:
		use(&of_coroutines);
		break;
	default:
		close(dup(of_coroutines.counter));
	}
}

__attribute__((noinline)) static void with_little_room(void)
{
	char here;
	size_t room = (size_t)(&here - stack);
	volatile char *taken = __builtin_alloca(room - room_left);
	call_once();
	finished++;
	(void)taken;
}

static void show_little_room(const char *name, int microseconds)
{
	struct itimerval often = {{0, microseconds}, {0, microseconds}}, never = {{0, 0}, {0, 0}};
	static volatile int unhandled, masked;
	sigset_t before, mask;
	heading(name);
	must(sigprocmask(SIG_BLOCK, NULL, &before));
	signal(SIGALRM, count);
	for (which = 0; which < 3; which++) {
		overflows = finished = unhandled = masked = 0;
		for (room_left = 64; room_left < 8192; room_left += 32) {
			must(setitimer(ITIMER_REAL, &often, NULL));
			if (sigsetjmp(back, 1) == 0)
				enter(with_little_room);
			must(setitimer(ITIMER_REAL, &never, NULL));
			int had = atomic_load(&handled);
			raise(SIGUSR2);
			unhandled += atomic_load(&handled) == had;
			must(sigprocmask(SIG_BLOCK, NULL, &mask));
			for (int i = 1; i < SIGRTMAX; i++)
				masked += sigismember(&mask, i) != sigismember(&before, i);
			migrate(&of_coroutines);
			use(&of_coroutines);
		}
		yes("stacks overflowed, others did not", overflows > 0 && finished > 0);
		number("handlers that did not run afterwards", 0, unhandled);
		number("masks changed", 0, masked);
	}
}

int main(void)
{
	struct sigaction action = {.sa_handler = leave, .sa_flags = SA_ONSTACK};
	alternate = with_guard(ALTERNATE);
	stack = with_guard(COROUTINE);
	show_smallest();
	make(&of_coroutines);
	show_what_calls_take();
	show_coroutines();
	must(sigaction(SIGSEGV, &action, NULL));
	signal(SIGUSR2, count);
	show_little_room("no room left", 0);
	show_little_room("no room left, and signals", 60);
	return verdict();
}
