/*
 * The way home: what becomes of eventfds, timers and pairs that a forked child has named, once it
 * has ended or executed a program, and of those that may be somebody else's by then. The parent has
 * a second thread. On either side each count is exact, and what both sides print is the same.
 *
 * "home come" and "home stay" are run for their counts: in the one every object comes home, in
 * the other none does. So are "home pairs come" and "home pairs stay", and "home timers come" and
 * "home timers stay". "home steps" leaves out what takes long. "home traffic ROUNDS", "home pairs
 * ROUNDS" and "home timers ROUNDS" have objects go and come beside writers and readers, "home loop"
 * has loops whose children take more than a second. "home take NUMBER" is what children execute: it
 * reads 8 bytes from a descriptor that it may have inherited.
 */
#include "conversation.h"
#include <poll.h>
#include <sys/wait.h>

static int status_of(pid_t child)
{
	int status;
	while (waitpid(child, &status, 0) == -1 && errno == EINTR) {
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Runs `act` in a child, and returns its exit status. */
static int in_child(int (*act)(void *), void *argument)
{
	pid_t child = fork();
	if (child == 0)
		_exit(act(argument));
	return status_of(child);
}

static int write_three(void *fd)
{
	return add(*(int *)fd, 3) != 8;
}

static int read_it(void *fd)
{
	return (int)take(*(int *)fd);
}

/* What the kernel object holds: 0 once the state is in process. */
static long long in_kernel(int fd)
{
	char path[64], line[128];
	unsigned long long count = 0;
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof line, file))
		sscanf(line, "eventfd-count: %llx", &count);
	if (file)
		fclose(file);
	return (long long)count;
}

/* Whether objects live in process at all. */
static int lives_here;

/* Makes calls on a counter that holds something until it has come home, or for so long. */
static void call_for(int fd, int milliseconds)
{
	if (!lives_here)
		return;
	for (int i = 0; i < milliseconds && in_kernel(fd) != 0; i++) {
		uint64_t none = 0;
		must(write(fd, &none, 8));
		sleep_ms(1);
	}
}

/* ---- what a child does ---- */

static int send_it(void *fd)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) != 0)
		return 1;
	pid_t keeper = fork();
	if (keeper == 0) {
		char byte, room[CMSG_SPACE(sizeof(int))];
		struct iovec part = { &byte, 1 };
		struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room,
			.msg_controllen = sizeof room };
		must(close(*(int *)fd));
		must(recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC));
		int received;
		memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof received);
		/* The parent says when. */
		hear(down[1]);
		write_three(&received);
		say(up[1], 'k');
		_exit(0);
	}
	char byte = 0;
	union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control = { 0 };
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = sizeof control };
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.header), fd, sizeof(int));
	return write_three(fd) || sendmsg(pair[0], &message, 0) != 1;
}

/* The child's child writes when the parent says so. */
static int leave_a_child(void *fd)
{
	if (write_three(fd) != 0)
		return 1;
	pid_t keeper = fork();
	if (keeper == 0) {
		hear(down[1]);
		write_three(fd);
		say(up[1], 'k');
		_exit(0);
	}
	return keeper < 0;
}

static int write_and_execute(void *fd)
{
	char number[16];
	snprintf(number, sizeof number, "%d", *(int *)fd);
	if (write_three(fd) != 0)
		return 1;
	execl("/proc/self/exe", "home", "take", number, (char *)NULL);
	return 2;
}

static int poll_and_write(void *fd)
{
	struct pollfd entry = { *(int *)fd, POLLIN, 0 };
	return write_three(fd) || poll(&entry, 1, 0) != 1;
}

static int duplicate_and_write(void *fd)
{
	int copy = dup(*(int *)fd);
	return write_three(&copy);
}

static int write_late(void *fd)
{
	sleep_ms(1300);
	return write_three(fd);
}

static int read_and_write(void *fd)
{
	return read_it(fd) != 5 || write_three(fd) || write_three(fd);
}

/* ---- those that come home ---- */

struct coming {
	const char *name;
	int (*act)(void *);
	int status;
	long long left;
};

static void come(void)
{
	heading("comes home");
	int counter = must(eventfd(7, EFD_SEMAPHORE | EFD_CLOEXEC));
	number("a semaphore", 0, in_child(write_three, &counter));
	must(fcntl(counter, F_SETFL, O_NONBLOCK));
	call_for(counter, 5000);
	for (int i = 0; i < 10; i++)
		number("  one at a time", 1, take(counter));
	number("  and then", -1, take(counter));
	number("  it still does not block", O_NONBLOCK, fcntl(counter, F_GETFL) & O_NONBLOCK);
	must(close(counter));
	static const struct coming cases[] = {
		{ "a child that writes", write_three, 0, 8 },
		{ "a child that reads and writes", read_and_write, 0, 6 },
		{ "a child that writes and executes", write_and_execute, 99, 8 },
		{ "a child that outlives a second", write_late, 0, 8 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		/* The last one makes the next fork move everything first, for a while. */
		counter = must(eventfd(5, EFD_NONBLOCK | EFD_CLOEXEC));
		number(cases[i].name, cases[i].status, in_child(cases[i].act, &counter));
		call_for(counter, 5000);
		must(add(counter, 2));
		number("  what it holds", cases[i].left + 2, take(counter));
		number("  and then", -1, take(counter));
		must(close(counter));
	}
}

/* ---- those that stay ---- */

static void stay_in_kernel(void)
{
	heading("stays");
	static const struct coming cases[] = {
		{ "a child that polls", poll_and_write, 0, 8 },
		{ "a child that duplicates", duplicate_and_write, 0, 8 },
		{ "a child that leaves a child", leave_a_child, 0, 8 },
		{ "a child that sends it", send_it, 0, 8 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int counter = must(eventfd(5, EFD_NONBLOCK | EFD_CLOEXEC));
		number(cases[i].name, cases[i].status, in_child(cases[i].act, &counter));
		call_for(counter, 50);
		long long left = cases[i].left;
		if (cases[i].act == leave_a_child || cases[i].act == send_it) {
			/* It has it still. */
			say(down[0], 'x');
			hear(up[0]);
			left += 3;
		}
		must(add(counter, 2));
		number("  what it holds", left + 2, take(counter));
		number("  and then", -1, take(counter));
		must(close(counter));
	}
	/* A child that executes a program, which inherits it. */
	int counter = must(eventfd(5, EFD_NONBLOCK));
	number("a program that inherits", 8, in_child(write_and_execute, &counter));
	must(add(counter, 4));
	call_for(counter, 50);
	number("  what it holds", 4, take(counter));
	must(close(counter));
	/* The parent's own doing, while the object is away or before. */
	counter = must(eventfd(5, EFD_NONBLOCK | EFD_CLOEXEC));
	number("the parent duplicates", 0, in_child(write_three, &counter));
	int copy = must(dup(counter));
	call_for(counter, 50);
	must(add(copy, 1));
	number("  what it holds", 9, take(counter));
	must(close(counter));
	must(add(copy, 1));
	number("  by the other number", 1, take(copy));
	must(close(copy));
}

/* ---- calls that sleep, numbers that are used again ---- */

static void *read_one(void *fd)
{
	return (void *)(intptr_t)take(*(int *)fd);
}

static void sleepers(void)
{
	heading("a reader that sleeps");
	int counter = must(eventfd(0, EFD_CLOEXEC));
	int child_may_end[2];
	kernel_pipe(child_may_end, O_CLOEXEC);
	struct thread reader;
	pid_t child = fork();
	if (child == 0) {
		char byte;
		uint64_t none = 0;
		_exit(write(counter, &none, 8) != 8 || read(child_may_end[0], &byte, 1) != 1);
	}
	sleep_ms(50);
	start(&reader, read_one, &counter);
	sleep_ms(50);
	say(child_may_end[1], 'x');
	number("the child", 0, status_of(child));
	sleep_ms(50);
	uint64_t three = 3;
	must(write(counter, &three, 8));
	number("it takes", 3, (long long)(intptr_t)finish(&reader));
	must(add(counter, 4));
	call_for(counter, 5000);
	number("and the next one", 4, take(counter));
	must(close(counter));
	must(close(child_may_end[0]));
	must(close(child_may_end[1]));

	heading("a number that is used again");
	counter = must(eventfd(5, EFD_NONBLOCK | EFD_CLOEXEC));
	number("the child", 0, in_child(write_three, &counter));
	must(close(counter));
	int next = must(eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));
	number("the same number", counter, next);
	number("  what it holds", 1, take(next));
	number("another child", 0, in_child(write_three, &next));
	sleep_ms(50);
	number("  what it holds", 3, take(next));
	must(close(next));
}

/* ---- children that are still there ---- */

static int write_when_told(void *fd)
{
	if (write_three(fd) != 0)
		return 1;
	say(up[1], 'w');
	hear(down[1]);
	return write_three(fd);
}

static void beside_a_child(void)
{
	static const char *const names[] = { "a child that is still there", "the same without a deputy" };
	heading("does not come home yet");
	for (int i = 0; i < 2; i++) {
		int counter = must(eventfd(5, EFD_NONBLOCK | EFD_CLOEXEC));
		pid_t child = fork();
		if (child == 0)
			_exit(write_when_told(&counter));
		hear(up[0]);
		if (i == 1)
			must(setuid(getuid()));
		call_for(counter, 50);
		say(down[0], 'x');
		number(names[i], 0, status_of(child));
		call_for(counter, 50);
		must(add(counter, 2));
		number("  what it holds", 13, take(counter));
		number("  and then", -1, take(counter));
		must(close(counter));
	}
}

#include "home/loops.h"

/* ---- writers beside it ---- */

static atomic_int over;
static int busy;

static void *write_on(void *unused)
{
	(void)unused;
	intptr_t sum = 0;
	while (!atomic_load(&over)) {
		must(add(busy, 1));
		sum++;
		if (sum % 64 == 0)
			sched_yield();
	}
	return (void *)sum;
}

static void *read_on(void *unused)
{
	(void)unused;
	intptr_t sum = 0;
	for (;;) {
		int last = atomic_load(&over) == 2;
		long long value = take(busy);
		if (value > 0)
			sum += value;
		else if (last)
			return (void *)sum;
		else
			sched_yield();
	}
}

static int write_a_little(void *fd)
{
	return write_three(fd) || usleep(500);
}

static void traffic(int rounds)
{
	heading("writers and readers beside it");
	struct thread writers[2], readers[2];
	long long sum = 0, taken = 0;
	busy = must(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	for (int i = 0; i < 2; i++) {
		start(&writers[i], write_on, NULL);
		start(&readers[i], read_on, NULL);
	}
	for (int i = 0; i < rounds; i++) {
		sum += 3;
		if (in_child(write_a_little, &busy) != 0)
			give_up();
		/* With more children at a time than can be heard, it would stay in the kernel. */
		sleep_ms(2);
	}
	atomic_store(&over, 1);
	for (int i = 0; i < 2; i++)
		sum += (intptr_t)finish(&writers[i]);
	atomic_store(&over, 2);
	for (int i = 0; i < 2; i++)
		taken += (intptr_t)finish(&readers[i]);
	number("lost or doubled", 0, sum - taken);
	must(close(busy));
}

#include "home/pairs.h"

#include "home/timers.h"

static void pairs(const char *what)
{
	if (strcmp(what, "come") == 0) {
		pairs_come();
	} else if (strcmp(what, "stay") == 0) {
		pairs_stay();
	} else {
		pair_traffic(atoi(what));
	}
}

static void timers(const char *what)
{
	if (strcmp(what, "come") == 0)
		timers_come();
	else if (strcmp(what, "stay") == 0)
		timers_stay();
	else
		timer_traffic(atoi(what));
}

int main(int count, char **arguments)
{
	uint64_t value = 0;
	if (count == 3 && strcmp(arguments[1], "take") == 0)
		return read(atoi(arguments[2]), &value, 8) > 0 ? (int)(value & 0xff) : 99;
	make_conversation();
	int probe = must(eventfd(1, EFD_CLOEXEC));
	lives_here = in_kernel(probe) == 0;
	must(close(probe));
	pthread_t second;
	must_be_zero(pthread_create(&second, NULL, sleep_on, NULL));
	if (count == 2 && strcmp(arguments[1], "come") == 0) {
		come();
	} else if (count == 2 && strcmp(arguments[1], "stay") == 0) {
		stay_in_kernel();
	} else if (count == 2 && strcmp(arguments[1], "loop") == 0) {
		loops(1);
	} else if (count == 3 && strcmp(arguments[1], "traffic") == 0) {
		traffic(atoi(arguments[2]));
	} else if (count == 3 && strcmp(arguments[1], "pairs") == 0) {
		pairs(arguments[2]);
	} else if (count == 3 && strcmp(arguments[1], "timers") == 0) {
		timers(arguments[2]);
	} else {
		stay_in_kernel();
		sleepers();
		beside_a_child();
		loops(0);
		traffic(200);
		pairs("stay");
		pairs("come");
		pairs("100");
		timers("stay");
		timers("come");
		timers("100");
		/* Last: after its last child nothing stays at a fork for a while. */
		if (count == 1)
			come();
	}
	return verdict();
}
