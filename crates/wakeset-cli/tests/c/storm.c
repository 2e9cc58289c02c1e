/*
 * A storm of signals over a load of all kinds of objects, on stacks of all kinds. Each worker of
 * a process is sent real-time signals with a number each, and SIGSEGV, SIGBUS, SIGALRM and
 * SIGUSR1, one of each at a time; but for worker 1 it also raises faults of its own and leaves
 * them by siglongjmp. The process is stopped and continued, and killed, or ends by itself. Every
 * handler runs once for each signal and in order, every byte and every count is right, and what
 * a killed process has written is there.
 *
 * | worker | its stack |
 * |---|---|
 * | 0 | a thread's |
 * | 1 | PTHREAD_STACK_MIN |
 * | 2 | a thread's, and an alternate one for every second kind of signal |
 * | 3 | a coroutine of 16 KiB, and an alternate one |
 *
 * storm SIGNALS [SEED]. `ci/storm` runs it.
 */
#include "storm/worker.h"
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* How many queued signals may be under way to one worker, of each kind. */
enum { BACKLOG = 24 };
/* Seconds after which something is lost. */
enum { PATIENCE = 60 };

static void nap(long microseconds)
{
	struct timespec time = {0, microseconds * 1000};
	nanosleep(&time, NULL);
}

static double seconds(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* ---- the victim ---- */

static uint64_t seed;
static pthread_t threads[WORKERS];

static char *with_guard(size_t size)
{
	char *memory =
	    mmap(NULL, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED || mprotect(memory, 4096, PROT_NONE) != 0)
		fail("a stack", errno, 0);
	return memory + 4096;
}

static void run_worker(int number)
{
	uint64_t state = (seed + (uint64_t)number) * 0x9e3779b97f4a7c15 | 1;
	struct objects objects;
	self = &shared->workers[number];
	make_objects(&objects);
	self->ready = 1;
	while (!shared->stop)
		work(&state, &objects);
	/* Until all that was sent has come. */
	for (int kind = 0; kind < KINDS; kind++)
		for (double end = seconds() + PATIENCE; self->handled[kind] != self->sent[kind];) {
			if (seconds() > end)
				fail("signals lost", (long long)self->handled[kind],
				     (long long)self->sent[kind]);
			nap(100);
		}
	expect("faults", (long long)self->faults_handled, (long long)self->faults_made);
	close_objects(&objects);
	self->over = 1;
}

static ucontext_t of_thread, of_coroutine;

static void run_coroutine(void)
{
	run_worker(3);
}

static void *be_worker(void *argument)
{
	int number = (int)(intptr_t)argument;
	if (number >= 2) {
		stack_t other = {.ss_sp = with_guard(ALTERNATE), .ss_size = ALTERNATE};
		sigaltstack(&other, NULL);
	}
	if (number == 3) {
		getcontext(&of_coroutine);
		of_coroutine.uc_stack.ss_sp = with_guard(COROUTINE);
		of_coroutine.uc_stack.ss_size = COROUTINE;
		of_coroutine.uc_link = &of_thread;
		makecontext(&of_coroutine, run_coroutine, 0);
		swapcontext(&of_thread, &of_coroutine);
	} else {
		run_worker(number);
	}
	return NULL;
}

/*
 * Whether the smallest stack has room for a handler of SIGUSR1, which others may interrupt, and for
 * a call about an object in the second one, which needs 3.5 KiB (docs/limits.md). Two frames take
 * 3 KiB without AVX-512 and 7 with it.
 */
static int has_room(int number, int kind)
{
	return number != SMALLEST || signal_of(kind) != SIGUSR1 || getauxval(AT_MINSIGSTKSZ) < 2048;
}

/* Sends one signal, if the worker can take one of that kind; whether it did. */
static int send_one(int number, int kind)
{
	struct worker *worker = &shared->workers[number];
	uint64_t sent = worker->sent[kind];
	if (!has_room(number, kind))
		return 0;
	if (sent - worker->handled[kind] >= (kind < QUEUED ? BACKLOG : 1))
		return 0;
	/* First: the handler compares. */
	worker->sent[kind] = sent + 1;
	if (kind == SEGV && worker->faulting) {
		worker->sent[kind] = sent;
		return 0;
	}
	if (kind < QUEUED) {
		union sigval value = {.sival_int = (int)sent + 1};
		while (pthread_sigqueue(threads[number], signal_of(kind), value) == EAGAIN)
			nap(100);
	} else {
		pthread_kill(threads[number], signal_of(kind));
	}
	return 1;
}

static void send_signals(void)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15 | 1;
	double last = seconds();
	while (!shared->stop) {
		int some = 0;
		for (int i = 0; i < 8; i++)
			some |= send_one((int)(next_random(&state) % WORKERS),
			                 (int)(next_random(&state) % KINDS));
		if (some) {
			last = seconds();
		} else if (seconds() - last > PATIENCE) {
			for (int number = 0; number < WORKERS; number++)
				for (int kind = 0; kind < KINDS; kind++)
					if (shared->workers[number].sent[kind] != shared->workers[number].handled[kind])
						fail("a signal was lost by worker, of kind", number, kind);
		} else {
			sched_yield();
		}
	}
}

static void be_victim(void)
{
	sigset_t all, none;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	register_handlers();
	common = made(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	sigfillset(&all);
	sigemptyset(&none);
	for (intptr_t i = 0; i < WORKERS; i++) {
		pthread_attr_t attributes;
		pthread_attr_init(&attributes);
		if (i == SMALLEST)
			pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
		expect("a thread", pthread_create(&threads[i], &attributes, be_worker, (void *)i), 0);
		/* A signal is for a worker that has its objects. */
		while (!shared->workers[i].ready)
			nap(100);
	}
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	send_signals();
	for (int i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	uint64_t rest = 0;
	if (read(common, &rest, 8) != 8)
		rest = 0;
	expect("what all have added", (long long)(shared->taken + rest), (long long)shared->added);
	_exit(0);
}

/* ---- the supervisor ---- */

static unsigned long long signals, stops, kills, ends;

static uint64_t sum_of_handled(void)
{
	uint64_t sum = 0;
	for (int number = 0; number < WORKERS; number++) {
		struct worker *worker = &shared->workers[number];
		sum += worker->faults_handled;
		for (int kind = 0; kind < KINDS; kind++)
			sum += worker->handled[kind];
	}
	return sum;
}

static void give_up(const char *what, long long found, long long expected)
{
	printf("%s: %lld, not %lld\n", what, found, expected);
	fflush(stdout);
	kill(0, SIGKILL);
}

/* What a victim has written is all there, but for a write that it was in the middle of. */
static void check_writes(void)
{
	uint64_t begun = 0, done = 0, value = 0;
	for (int number = 0; number < WORKERS; number++) {
		begun += shared->workers[number].begun;
		done += shared->workers[number].done;
	}
	if (read(supervisors, &value, 8) != 8)
		value = 0;
	if (value < done || value > begun)
		give_up("what a victim has written", (long long)value, (long long)done);
}

static void check_failure(void)
{
	if (shared->failed)
		give_up(shared->what, shared->found, shared->expected);
}

/* One victim: stops of it, and its end. */
static void storm_once(uint64_t *state, uint64_t goal)
{
	int status;
	memset(shared, 0, sizeof *shared);
	seed = next_random(state);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		be_victim();
	if (pid < 0)
		give_up("a fork", errno, 0);
	double limit = seconds() + 4 * PATIENCE;
	for (uint64_t most = 2000 + next_random(state) % 30000;;) {
		nap((long)(next_random(state) % 3000));
		if (next_random(state) % 4 == 0) {
			kill(pid, SIGSTOP);
			nap((long)(next_random(state) % 300));
			kill(pid, SIGCONT);
			stops += 2;
		}
		check_failure();
		if (waitpid(pid, &status, WNOHANG) == pid) {
			check_failure();
			give_up("how a victim ended", status, 0);
		}
		uint64_t handled = sum_of_handled();
		if (handled >= most || signals + handled >= goal)
			break;
		if (seconds() > limit)
			give_up("signals in four minutes", (long long)handled, (long long)most);
	}
	int killed = next_random(state) % 2 == 0;
	if (killed)
		kill(pid, SIGKILL);
	shared->stop = 1;
	if (waitpid(pid, &status, 0) != pid)
		give_up("a wait", errno, 0);
	check_failure();
	if (killed ? !WIFSIGNALED(status) : status != 0)
		give_up("how a victim ended", status, killed ? SIGKILL : 0);
	check_writes();
	signals += sum_of_handled();
	kills += killed;
	ends += !killed;
}

int main(int argc, char **argv)
{
	uint64_t goal = argc > 1 ? strtoull(argv[1], NULL, 0) : 20000;
	uint64_t state = (argc > 2 ? strtoull(argv[2], NULL, 0) : 1) * 0x9e3779b97f4a7c15 | 1;
	setpgid(0, 0);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	supervisors = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	while (signals < goal)
		storm_once(&state, goal);
	printf("counts: %llu signals handled, %llu stops and continues, %llu kills, %llu ends\n",
	       signals, stops, kills, ends);
	printf("nothing lost\n");
	return 0;
}
