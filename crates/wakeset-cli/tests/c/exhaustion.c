/*
 * What runs out under load: memory (RLIMIT_AS, lowered from inside) and descriptor numbers
 * (RLIMIT_NOFILE, lowered from inside and, by another process, from outside), and by what the whole
 * system has, by a filter that says so: ENFILE, ENOSPC, ENOMEM. Each call succeeds or fails as
 * without us, and what was made before works on.
 */
#include "show.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { MANY = 1500 };
static int counters[MANY], sets[MANY];

static rlim_t address_space(void)
{
	char line[128];
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	if (file && fgets(line, sizeof line, file))
		pages = strtoul(line, NULL, 10);
	if (file)
		fclose(file);
	return pages * 4096;
}

static void limit(int what, rlim_t most)
{
	struct rlimit now;
	getrlimit(what, &now);
	now.rlim_cur = most < now.rlim_max ? most : now.rlim_max;
	setrlimit(what, &now);
}

/* Waits for everything in a set; how many events, and the sum of their data. */
static void take_all(int set, int *events, uint64_t *sum)
{
	static struct epoll_event found[MANY + 10];
	int n = epoll_wait(set, found, MANY + 10, 0);
	*events = n;
	*sum = 0;
	for (int i = 0; i < n; i++)
		*sum += found[i].data.u64;
}

static void show_take(const char *what, int set, int want, uint64_t want_sum)
{
	int events;
	uint64_t sum;
	take_all(set, &events, &sum);
	number(what, want, events);
	number("  their data together", want_sum, sum);
}

static volatile int stop;
static int busy_counter;
static uint64_t written;

static void *write_on(void *unused)
{
	(void)unused;
	uint64_t one = 1;
	while (!stop)
		if (write(busy_counter, &one, 8) == 8)
			written++;
	return NULL;
}

static void memory(void)
{
	printf("-- no more memory\n");
	int set = epoll_create1(0), made = 0, added = 0;
	uint64_t read_back = 0;
	for (int i = 0; i < 100; i++) {
		counters[i] = eventfd(1, EFD_NONBLOCK);
		struct epoll_event event = {EPOLLIN, {.u64 = i}};
		added += epoll_ctl(set, EPOLL_CTL_ADD, counters[i], &event) == 0;
	}
	number("watched before", 100, added);
	busy_counter = eventfd(0, EFD_NONBLOCK);
	pthread_t thread;
	pthread_create(&thread, NULL, write_on, NULL);
	limit(RLIMIT_AS, address_space());
	for (int i = 100; i < MANY; i++) {
		counters[i] = eventfd(i % 2, EFD_NONBLOCK);
		made += counters[i] >= 0;
		struct epoll_event event = {EPOLLIN, {.u64 = i}};
		added += epoll_ctl(set, EPOLL_CTL_ADD, counters[i], &event) == 0;
	}
	number("made", MANY - 100, made);
	number("watched", MANY, added);
	show_take("all that are ready", set, 800, 564950);
	made = added = 0;
	for (int i = 0; i < MANY; i++) {
		sets[i] = epoll_create1(0);
		made += sets[i] >= 0;
		struct epoll_event event = {EPOLLIN | EPOLLET, {.u64 = i}};
		/* One counter in thousands of sets, and one of its own in each. */
		added += epoll_ctl(sets[i], EPOLL_CTL_ADD, counters[7], &event) == 0;
		added += epoll_ctl(sets[i], EPOLL_CTL_ADD, counters[i], &event) == 0;
	}
	/* The counter 7 cannot be added to set 7 twice. */
	number("sets", MANY, made);
	number("watches", 2 * MANY - 1, added);
	uint64_t one = 1;
	write(counters[7], &one, 8);
	int told = 0;
	for (int i = 0; i < MANY; i++) {
		int events;
		uint64_t sum;
		take_all(sets[i], &events, &sum);
		told += events > 0;
	}
	number("sets that are told", MANY, told);
	int twin = dup(counters[8]);
	yes("a duplicate", twin >= 0);
	for (int i = 0; i < MANY; i++) {
		uint64_t value = 0;
		if (read(counters[i], &value, 8) == 8)
			read_back += value;
	}
	number("read back", 801, read_back);
	show_take("nothing is ready", set, 0, 0);
	stop = 1;
	pthread_join(thread, NULL);
	uint64_t counted = 0;
	read(busy_counter, &counted, 8);
	yes("the busy one has all that was written", counted == written && written > 0);
	int closed = 0;
	for (int i = 0; i < MANY; i++)
		closed += close(sets[i]) == 0 && close(counters[i]) == 0;
	closed += close(set) == 0 && close(twin) == 0 && close(busy_counter) == 0;
	number("closed", MANY + 1, closed);
	limit(RLIMIT_AS, RLIM_INFINITY);
}

static const char *result(int fd)
{
	return fd >= 0 ? "a number" : errno == EMFILE ? "EMFILE" : strerror(errno);
}

static void numbers(int from_outside)
{
	printf("-- no more numbers%s\n", from_outside ? ", by another process" : "");
	int set = epoll_create1(0), mixed = epoll_create1(0), pair[2], listener[2];
	for (int i = 0; i < 10; i++) {
		counters[i] = eventfd(0, EFD_NONBLOCK);
		struct epoll_event event = {EPOLLIN, {.u64 = i}};
		epoll_ctl(set, EPOLL_CTL_ADD, counters[i], &event);
		epoll_ctl(mixed, EPOLL_CTL_ADD, counters[i], &event);
	}
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	socketpair(AF_UNIX, SOCK_STREAM, 0, listener);
	int next = dup(0);
	close(next);
	if (from_outside) {
		pid_t parent = getpid(), child = fork();
		if (child == 0) {
			struct rlimit now;
			prlimit(parent, RLIMIT_NOFILE, NULL, &now);
			now.rlim_cur = next;
			_exit(prlimit(parent, RLIMIT_NOFILE, &now, NULL) != 0);
		}
		int status = -1;
		waitpid(child, &status, 0);
		number("lowered", 0, status);
	} else {
		limit(RLIMIT_NOFILE, next);
	}
	show("eventfd", "EMFILE", result(eventfd(1, 0)));
	show("epoll_create1", "EMFILE", result(epoll_create1(0)));
	show("dup", "EMFILE", result(dup(counters[0])));
	show("F_DUPFD", "EMFILE", result(fcntl(counters[1], F_DUPFD, 0)));
	show("socket", "EMFILE", result(socket(AF_UNIX, SOCK_STREAM, 0)));
	uint64_t one = 1;
	for (int i = 0; i < 10; i++)
		write(counters[i], &one, 8);
	show_take("the set", set, 10, 45);
	/* It needs a doorbell, for which there is no number. */
	struct epoll_event event = {EPOLLIN, {.u64 = 1000}};
	number("a socket", 0, epoll_ctl(mixed, EPOLL_CTL_ADD, pair[0], &event));
	write(pair[1], "x", 1);
	show_take("both halves", mixed, 11, 1045);
	event.data.u64 = 2000;
	number("a set in a set", 0, epoll_ctl(mixed, EPOLL_CTL_ADD, set, &event));
	show_take("with a set", mixed, 12, 3045);
	close(counters[9]);
	show_take("without one", mixed, 11, 3036);
	int again = eventfd(5, EFD_NONBLOCK);
	yes("a number that came free is used again", again == counters[9]);
	event.data.u64 = 9;
	number("watched", 0, epoll_ctl(mixed, EPOLL_CTL_ADD, again, &event));
	show_take("with it", mixed, 12, 3045);
	uint64_t sum = 0;
	for (int i = 0; i < 10; i++) {
		uint64_t value = 0;
		read(i < 9 ? counters[i] : again, &value, 8);
		sum += value;
	}
	number("read back", 14, sum);
	limit(RLIMIT_NOFILE, RLIM_INFINITY);
	for (int i = 0; i < 9; i++)
		close(counters[i]);
	close(again);
	close(set);
	close(mixed);
	for (int i = 0; i < 2; i++) {
		close(pair[i]);
		close(listener[i]);
	}
}

static void *write_late(void *counter)
{
	usleep(50000);
	must(add(*(int *)counter, 1));
	return NULL;
}

/*
 * The system has no more watches, or memory for them, for what the kernel is asked for; what there
 * is works on.
 */
static void watches(int error, const char *name)
{
	printf("-- no more watches: %s\n", name);
	int set = must(epoll_create1(0)), mixed = must(epoll_create1(0)), kernel = must(epoll_create1(0)),
	    ends[2];
	int a = must(eventfd(0, EFD_NONBLOCK)), b = must(eventfd(0, EFD_NONBLOCK));
	char refused[16];
	sprintf(refused, "-1 %s", name);
	kernel_pipe(ends, 0);
	must(watch_new(set, a, EPOLLIN, 'a'));
	must(watch_new(mixed, a, EPOLLIN, 'a'));
	must(watch_new(mixed, ends[0], EPOLLIN, 'p'));
	must(watch_new(kernel, ends[0], EPOLLIN, 'p'));
	refuse(SYS_epoll_ctl, EPOLL_CTL_ADD, error);
	/* A set of eventfds, and the first descriptor of another kind. */
	show("a pipe to eventfds", refused, outcome(watch_new(set, ends[0], EPOLLIN, 'p')));
	show("an eventfd to a pipe", refused, outcome(watch_new(kernel, b, EPOLLIN, 'b')));
	show("not there", "-1 ENOENT", outcome(epoll_ctl(kernel, EPOLL_CTL_DEL, b, NULL)));
	must(add(a, 1));
	must(write(ends[1], "x", 1));
	show("the eventfds", "a=IN", ready(set));
	show("both", "a=IN p=IN", ready(mixed));
	show("the pipe", "p=IN", ready(kernel));
	must(take(a));
	must(read(ends[0], refused, 1));
	show("empty", "none", ready(set));
	/* A wait with a signal mask sleeps in the kernel half, for which there is no doorbell. */
	for (int i = 0; i < 3; i++) {
		struct epoll_event event = {0, {0}};
		sigset_t mask;
		pthread_t writer;
		sigemptyset(&mask);
		must(pthread_create(&writer, NULL, write_late, &a));
		number("a wait with a mask", 1, epoll_pwait(i < 2 ? set : mixed, &event, 1, 20000, &mask));
		number("hears of the eventfd", 'a', event.data.u64);
		pthread_join(writer, NULL);
		must(take(a));
		number("and one in vain", 0, epoll_pwait(set, &event, 1, 30, &mask));
	}
	must(watch(set, EPOLL_CTL_MOD, a, EPOLLOUT, 'A'));
	show("changed", "A=OUT", ready(set));
	must(epoll_ctl(set, EPOLL_CTL_DEL, a, NULL));
	must(epoll_ctl(mixed, EPOLL_CTL_DEL, a, NULL));
	show("removed", "none", ready(set));
	show("from both", "none", ready(mixed));
}

/*
 * Of several errors the kernel names the same one. Refused are watches on high numbers only, such
 * as doorbells have.
 */
static void errors_first(int error, const char *name)
{
	printf("-- other errors come before %s\n", name);
	int set = must(epoll_create1(0)), a = must(eventfd(1, EFD_NONBLOCK)),
	    file = must(open("/proc/self/stat", O_RDONLY));
	must(watch_new(set, a, EPOLLIN, 'a'));
	refuse_from(SYS_epoll_ctl, EPOLL_CTL_ADD, 400, error);
	show("a file", "-1 EPERM", outcome(watch_new(set, file, EPOLLIN, 'f')));
	must(close(file));
	show("a closed number", "-1 EBADF", outcome(watch_new(set, file, EPOLLIN, 'f')));
	show("the set", "a=IN", ready(set));
}

/* The system has no more files. */
static void files(void)
{
	printf("-- no more files\n");
	int set = must(epoll_create1(0)), a = must(eventfd(0, EFD_NONBLOCK)), ends[2];
	kernel_pipe(ends, 0);
	must(watch_new(set, a, EPOLLIN, 'a'));
	refuse(SYS_eventfd2, -1, ENFILE);
	refuse(SYS_epoll_create1, -1, ENFILE);
	show("eventfd", "-1 ENFILE", outcome(eventfd(1, 0)));
	show("epoll_create1", "-1 ENFILE", outcome(epoll_create1(0)));
	/* It needs a doorbell, which is a file. */
	must(watch_new(set, ends[0], EPOLLIN, 'p'));
	must(add(a, 1));
	must(write(ends[1], "x", 1));
	show("both", "a=IN p=IN", ready(set));
	int twin = must(dup(a));
	number("the duplicate", 1, take(twin));
	show("one", "p=IN", ready(set));
}

static void in_child(void (*part)(int, const char *), int error, const char *name)
{
	int status = -1;
	pid_t child = must(fork());
	if (child == 0) {
		alarm(40);
		if (part)
			part(error, name);
		else
			files();
		exit(verdict());
	}
	waitpid(child, &status, 0);
	number("status", 0, status);
}

int main(void)
{
	limit(RLIMIT_NOFILE, 2 * MANY + 200);
	memory();
	numbers(0);
	numbers(1);
	limit(RLIMIT_NOFILE, 1000);
	in_child(watches, ENOSPC, "ENOSPC");
	in_child(watches, ENOMEM, "ENOMEM");
	in_child(errors_first, ENOSPC, "ENOSPC");
	in_child(NULL, 0, NULL);
	return verdict();
}
