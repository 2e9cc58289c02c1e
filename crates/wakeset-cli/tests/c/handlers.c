/*
 * Handlers that come at the worst moment: within a call on an eventfd or a set, and around fork(2).
 * write, read, epoll_ctl and epoll_wait are atomic towards the handlers of their own thread, each
 * is there or not there yet; and signals come as signal(7) says, in order, none lost, none to the
 * child of a fork.
 *
 * What each case would catch:
 *   jumps out of write and read       a watch left on no list by siglongjmp(3) out of a handler
 *                                     within a write
 *   a handler's own write             a write within a handler that is not seen for the one that it
 *                                     interrupts
 *   signals of faults, sent           handlers of SIGBUS and the like that are let in where locks
 *                                     are held
 *   sigaction within faults' signals  a lock of sigaction(2) that a handler's arrival on the same
 *                                     thread leaves taken
 *   real-time signals                 signals put off that are queued anew, behind others
 *   fork and signals                  a signal put off in the parent that the child, too, is given
 *   fork and sigaction                a lock of sigaction(2), held by another thread, that stays
 *                                     held in the child
 *   ignored signals and exec          a signal ignored that an exec'ed program finds at its default
 */
#include "show.h"
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

static int set, counter;

static void new_pair(void)
{
	set = must(epoll_create1(EPOLL_CLOEXEC));
	counter = must(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	must(watch_new(set, counter, EPOLLIN, 'a'));
}

static void close_pair(void)
{
	must(close(set));
	must(close(counter));
}

static int look(void)
{
	struct epoll_event event;
	return epoll_wait(set, &event, 1, 0);
}

static void catch(int signal_number, void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
	must(sigaction(signal_number, &action, NULL));
}

static void alarm_every(int microseconds)
{
	struct itimerval time = {{0, microseconds}, {0, microseconds}};
	must(setitimer(ITIMER_REAL, &time, NULL));
}

/*
 * The end of a case that goes by how often something happened, on machines where it happens less
 * often.
 */
static int64_t latest(void)
{
	return now() + 1500000000LL;
}

/* ---- jumps out of write and read ---- */

static sigjmp_buf back;
static volatile sig_atomic_t armed;

static void jump(int unused)
{
	(void)unused;
	if (armed) {
		armed = 0;
		siglongjmp(back, 1);
	}
}

static void show_jumps(void)
{
	static volatile int jumps, lost, lost_for_good;
	static int64_t end;
	heading("jumps out of write and read");
	new_pair();
	catch(SIGALRM, jump, 0);
	end = latest();
	alarm_every(50);
	while (jumps < 3000 && now() < end) {
		if (sigsetjmp(back, 1) == 0) {
			for (armed = 1;;) {
				add(counter, 1);
				look();
				take(counter);
				look();
			}
		}
		jumps++;
		int seen = look();
		if (take(counter) > 0 && seen != 1)
			lost++;
		must(add(counter, 1));
		lost_for_good += look() != 1;
		drain(counter);
	}
	alarm_every(0);
	number("what was written, not reported", 0, lost);
	number("nor after another write", 0, lost_for_good);
	close_pair();
}

/* ---- a handler's own write ---- */

static volatile int handled, unseen;

static void write_and_look(int unused)
{
	int saved = errno;
	(void)unused;
	handled++;
	add(counter, 1);
	unseen += look() != 1;
	errno = saved;
}

static void show_own_write(void)
{
	heading("a handler's own write");
	new_pair();
	catch(SIGALRM, write_and_look, SA_RESTART);
	int64_t end = latest();
	alarm_every(50);
	while (handled < 5000 && now() < end) {
		for (int i = 0; i < 100; i++) {
			add(counter, 1);
			look();
			take(counter);
			look();
		}
	}
	alarm_every(0);
	number("not seen by the handler", 0, unseen);
	close_pair();
}

/* ---- signals of faults, sent ---- */

static atomic_int stop, stopped;
static atomic_int handled_here;

static void work_on_set(int unused)
{
	int saved = errno;
	(void)unused;
	atomic_fetch_add(&handled_here, 1);
	add(counter, 1);
	watch(set, EPOLL_CTL_MOD, counter, EPOLLIN, 'a');
	look();
	errno = saved;
}

static void *keep_working(void *unused)
{
	(void)unused;
	while (!atomic_load(&stop)) {
		watch(set, EPOLL_CTL_MOD, counter, EPOLLIN, 'a');
		add(counter, 1);
		look();
		take(counter);
	}
	atomic_store(&stopped, 1);
	return NULL;
}

static void *keep_asking(void *unused)
{
	(void)unused;
	while (!atomic_load(&stop)) {
		struct sigaction action;
		must(sigaction(SIGSEGV, NULL, &action));
	}
	atomic_store(&stopped, 1);
	return NULL;
}

static void start_worker(struct thread *worker, void *(*body)(void *))
{
	atomic_store(&stop, 0);
	atomic_store(&stopped, 0);
	atomic_store(&handled_here, 0);
	start(worker, body, NULL);
}

static void stop_worker(struct thread *worker, const char *name)
{
	atomic_store(&stop, 1);
	int ended = in_time(&stopped);
	yes(name, ended);
	if (!ended)
		give_up();
	finish(worker);
}

static const struct {
	int number;
	const char *name;
} faults[] = {{SIGBUS, "SIGBUS"},   {SIGSEGV, "SIGSEGV"}, {SIGFPE, "SIGFPE"},
	      {SIGILL, "SIGILL"},   {SIGTRAP, "SIGTRAP"}, {SIGSYS, "SIGSYS"}};

static void send_many(struct thread *worker, int signal_number)
{
	for (int i = 0; i < 10000; i++) {
		must_be_zero(pthread_kill(worker->handle, signal_number));
		spin(500);
	}
}

static void show_faults(void)
{
	static struct thread worker;
	heading("signals of faults, sent: the thread that handles them goes on");
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
		new_pair();
		catch(faults[i].number, work_on_set, SA_RESTART);
		start_worker(&worker, keep_working);
		send_many(&worker, faults[i].number);
		stop_worker(&worker, faults[i].name);
		yes("handled", atomic_load(&handled_here) > 0);
		signal(faults[i].number, SIG_DFL);
		close_pair();
	}

	heading("sigaction within faults' signals");
	new_pair();
	catch(SIGSEGV, work_on_set, SA_RESTART);
	start_worker(&worker, keep_asking);
	send_many(&worker, SIGSEGV);
	stop_worker(&worker, "the thread that asks goes on");
	signal(SIGSEGV, SIG_DFL);
	close_pair();
}

/* ---- real-time signals ---- */

static atomic_int received, disordered;
static int last;

static void count_queued(int unused, siginfo_t *info, void *context)
{
	(void)unused;
	(void)context;
	/* Some may not be sent, for want of room: the numbers only go up. */
	if (info->si_value.sival_int <= last)
		atomic_fetch_add(&disordered, 1);
	last = info->si_value.sival_int;
	atomic_fetch_add(&received, 1);
}

static void show_queued(const char *name)
{
	static struct thread worker;
	int sent = 0;
	printf("%s\n", name);
	new_pair();
	atomic_store(&received, 0);
	atomic_store(&disordered, 0);
	last = 0;
	start_worker(&worker, keep_working);
	int64_t late = latest();
	for (int i = 1; i <= 60000 && now() < late; i++) {
		sent += pthread_sigqueue(worker.handle, SIGRTMIN, (union sigval){.sival_int = i}) == 0;
		/* In short bursts: the order shows where one is put off while the next arrives. */
		if (i % 3 == 0)
			spin(rand() % 2000);
	}
	for (int64_t end = now() + 5000000000LL; atomic_load(&received) < sent && now() < end;)
		sleep_ms(1);
	stop_worker(&worker, "the thread goes on");
	number("lost", 0, sent - atomic_load(&received));
	number("out of order", 0, atomic_load(&disordered));
	close_pair();
}

static void show_real_time(void)
{
	struct rlimit limit, low;
	struct sigaction action = {.sa_sigaction = count_queued, .sa_flags = SA_SIGINFO | SA_RESTART};
	heading("real-time signals");
	must(sigaction(SIGRTMIN, &action, NULL));
	show_queued("with room in the queue");
	must(getrlimit(RLIMIT_SIGPENDING, &limit));
	low = limit;
	low.rlim_cur = 8;
	must(setrlimit(RLIMIT_SIGPENDING, &low));
	show_queued("with little room");
	must(setrlimit(RLIMIT_SIGPENDING, &limit));
	signal(SIGRTMIN, SIG_DFL);
}

/* ---- fork ---- */

static pid_t parent;
static volatile sig_atomic_t child_handled;

static void note_child(int unused)
{
	(void)unused;
	child_handled |= getpid() != parent;
}

static void show_fork_and_signals(void)
{
	enum { COUNTERS = 200 };
	int fds[COUNTERS], given = 0, masked = 0;
	sigset_t before;
	heading("fork and signals");
	parent = getpid();
	must_be_zero(pthread_sigmask(SIG_BLOCK, NULL, &before));
	catch(SIGALRM, note_child, SA_RESTART);
	int64_t end = latest();
	alarm_every(100);
	for (int round = 0; round < 400 && now() < end; round++) {
		/* So that fork has something to move. */
		for (int i = 0; i < COUNTERS; i++)
			fds[i] = must(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
		pid_t child = must(fork());
		if (child == 0) {
			sigset_t mask;
			pthread_sigmask(SIG_BLOCK, NULL, &mask);
			int changed = 0;
			for (int i = 1; i < SIGRTMAX; i++)
				changed |= sigismember(&mask, i) != sigismember(&before, i);
			spin(1000);
			_exit((child_handled ? 1 : 0) | (changed ? 2 : 0));
		}
		int status;
		while (waitpid(child, &status, 0) == -1)
			;
		given += WEXITSTATUS(status) & 1;
		masked += WEXITSTATUS(status) >> 1 & 1;
		for (int i = 0; i < COUNTERS; i++)
			must(close(fds[i]));
	}
	alarm_every(0);
	number("children given a signal of the parent's", 0, given);
	number("children with another mask", 0, masked);
	signal(SIGALRM, SIG_DFL);
}

static void do_nothing(int unused)
{
	(void)unused;
}

static void *keep_setting(void *unused)
{
	(void)unused;
	while (!atomic_load(&stop))
		catch(SIGSEGV, do_nothing, 0);
	atomic_store(&stopped, 1);
	return NULL;
}

static void show_fork_and_sigaction(void)
{
	static struct thread worker;
	int hung = 0;
	heading("fork and sigaction");
	start_worker(&worker, keep_setting);
	int64_t end = latest();
	for (int round = 0; round < 1000 && now() < end && !hung; round++) {
		pid_t child = must(fork());
		if (child == 0) {
			catch(SIGSEGV, do_nothing, 0);
			_exit(0);
		}
		int64_t patience = now() + 5000000000LL;
		while (waitpid(child, NULL, WNOHANG) == 0 && !hung) {
			usleep(50);
			hung = now() > patience;
		}
		if (hung) {
			must(kill(child, SIGKILL));
			must(waitpid(child, NULL, 0));
		}
	}
	number("children that hang", 0, hung);
	stop_worker(&worker, "the parent's thread goes on");
	signal(SIGSEGV, SIG_DFL);
}

/* ---- ignored signals and exec ---- */

static int show_inherited(void)
{
	heading("ignored signals and exec");
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
		struct sigaction action;
		must(sigaction(faults[i].number, NULL, &action));
		show(faults[i].name, "ignored", action.sa_handler == SIG_IGN ? "ignored" : "not ignored");
	}
	return verdict();
}

int main(int count, char **arguments)
{
	if (count > 1)
		return show_inherited();
	show_jumps();
	show_own_write();
	show_faults();
	show_real_time();
	show_fork_and_signals();
	show_fork_and_sigaction();
	if (surprises)
		return verdict();
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
		signal(faults[i].number, SIG_IGN);
	execl("/proc/self/exe", arguments[0], "inherited", NULL);
	return 2;
}
