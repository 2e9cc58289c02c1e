/*
 * For `home.c`: pipes and socket pairs that children have named, with sets that watch them.
 *
 * Nothing asks whether a pair is at home, because each way to ask keeps it in the kernel. The
 * harness counts what has come.
 */
#ifndef HOME_PAIRS_H
#define HOME_PAIRS_H

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>

/* What is read from is the first end, what is written to the second. */
static void make_pair(int sockets, int ends[2])
{
	if (sockets)
		must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends));
	else
		must(pipe2(ends, O_NONBLOCK | O_CLOEXEC));
}

static void close_pair(const int ends[2])
{
	must(close(ends[0]));
	must(close(ends[1]));
}

static char next_byte(int fd)
{
	char byte = 0;
	return read(fd, &byte, 1) == 1 ? byte : '-';
}

static int watched(uint32_t events, int fd)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	struct epoll_event event = { .events = events, .data.u64 = 'p' };
	must(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	return set;
}

static int reports(int set, int milliseconds)
{
	struct epoll_event events[4];
	return epoll_wait(set, events, 4, milliseconds);
}

/* Turns of a loop that wakes itself: a byte is written, waited for, and read. */
static void turns(int set, const int ends[2], int sockets, int count)
{
	for (int i = 0; i < count; i++) {
		char byte = 0;
		long sent = sockets ? send(ends[1], "x", 1, 0) : write(ends[1], "x", 1);
		if (sent != 1 || reports(set, 5000) != 1)
			give_up();
		long taken = sockets ? recv(ends[0], &byte, 1, 0) : read(ends[0], &byte, 1);
		if (taken != 1 || byte != 'x' || reports(set, 0) != 0)
			give_up();
		sleep_ms(1);
	}
}

/* ---- what a child does ---- */

static int take_one_and_write_two(void *ends)
{
	int *pair = ends;
	return next_byte(pair[0]) != 'a' || write(pair[1], "cd", 2) != 2;
}

/* As messages, of which a pipe knows nothing. */
static int take_one_and_send_two(void *ends)
{
	int *pair = ends;
	char byte = 0;
	if (recv(pair[0], &byte, 1, MSG_DONTWAIT) == -1 && errno == ENOTSOCK)
		return send(pair[1], "cd", 2, 0) != -1 || take_one_and_write_two(ends);
	return byte != 'a' || send(pair[1], "cd", 2, MSG_NOSIGNAL) != 2;
}

/* As take_one_and_write_two, by one buffer and by two. */
static int take_and_write_by_buffers(void *ends)
{
	int *pair = ends, bytes = 0;
	char byte = 0, first = 'c', second = 'd';
	struct iovec one = { &byte, 1 }, two[] = { { &first, 1 }, { &second, 1 } };
	return ioctl(pair[0], FIONREAD, &bytes) || bytes != 2 || readv(pair[0], &one, 1) != 1 ||
	       byte != 'a' || writev(pair[1], two, 2) != 2;
}

static int write_two_and_execute(void *ends)
{
	if (take_one_and_write_two(ends) != 0)
		return 1;
	execl("/proc/self/exe", "home", "take", "0", (char *)NULL);
	return 2;
}

static int duplicate_an_end(void *ends)
{
	return take_one_and_write_two(ends) || dup(((int *)ends)[1]) < 0;
}

static int poll_an_end(void *ends)
{
	struct pollfd entry = { ((int *)ends)[0], POLLIN, 0 };
	return take_one_and_write_two(ends) || poll(&entry, 1, 0) != 1;
}

/* Its own child writes when the parent says so. */
static int leave_a_writer(void *ends)
{
	if (take_one_and_write_two(ends) != 0)
		return 1;
	pid_t keeper = fork();
	if (keeper == 0) {
		hear(down[1]);
		must(write(((int *)ends)[1], "y", 1));
		say(up[1], 'k');
		_exit(0);
	}
	return keeper < 0;
}

static int set_flags(void *ends)
{
	int fd = ((int *)ends)[0];
	return take_one_and_write_two(ends) || fcntl(fd, F_SETFL, O_NONBLOCK | O_ASYNC) != 0;
}

/* ---- what the parent finds ---- */

struct pair_case {
	const char *name;
	int (*act)(void *);
	int status;
};

/* A child takes one of two bytes and writes two; the parent takes what is left, and goes on. */
static void pair_goes(const struct pair_case *it, int sockets, uint32_t events)
{
	int ends[2];
	make_pair(sockets, ends);
	int set = watched(events, ends[0]);
	must(write(ends[1], "ab", 2));
	number(it->name, it->status, in_child(it->act, ends));
	sleep_ms(20);
	/* The parent changes nothing that others would see. */
	must(ioctl(ends[0], FIONBIO, &(int){1}));
	number("  reports", 1, reports(set, 0));
	for (char byte = 'b'; byte <= 'd'; byte++)
		number("  the next byte", byte, next_byte(ends[0]));
	number("  reports no more", 0, reports(set, 0));
	if (it->act == leave_a_writer) {
		/* It has the pair still. */
		turns(set, ends, sockets, 20);
		say(down[0], 'x');
		hear(up[0]);
		number("  what it writes", 'y', next_byte(ends[0]));
	}
	turns(set, ends, sockets, 100);
	must(write(ends[1], "ef", 2));
	number("  reports", 1, reports(set, 0));
	number("  reports an edge once", events & EPOLLET ? 0 : 1, reports(set, 0));
	number("  a byte", 'e', next_byte(ends[0]));
	must(close(ends[1]));
	number("  reports the end", 1, reports(set, 0));
	number("  what was left", 'f', next_byte(ends[0]));
	number("  and the end", 0, read(ends[0], &(char){0}, 1));
	must(close(ends[0]));
	must(close(set));
}

static void pairs_come(void)
{
	heading("pairs come home");
	static const struct pair_case cases[] = {
		{ "a child that reads and writes", take_one_and_write_two, 0 },
		{ "a child that sends", take_one_and_send_two, 0 },
		{ "a child that has buffers", take_and_write_by_buffers, 0 },
		{ "a child that executes", write_two_and_execute, 99 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		for (int sockets = 0; sockets < 2; sockets++) {
			pair_goes(&cases[i], sockets, EPOLLIN);
			pair_goes(&cases[i], sockets, EPOLLIN | EPOLLET);
		}
	}
}

/* An answer that nobody reads is in the way. */
static void unread(int sockets)
{
	int ends[2];
	make_pair(sockets, ends);
	int set = watched(EPOLLIN, ends[0]);
	must(write(ends[1], "ab", 2));
	number("a pair that is not emptied", 0, in_child(take_one_and_write_two, ends));
	for (int i = 0; i < 50; i++) {
		must(write(ends[1], "x", 1));
		next_byte(ends[0]);
		sleep_ms(1);
	}
	number("  reports", 1, reports(set, 0));
	close_pair(ends);
	must(close(set));
}

static void pairs_stay(void)
{
	heading("pairs stay");
	static const struct pair_case cases[] = {
		{ "a child that duplicates an end", duplicate_an_end, 0 },
		{ "a child that polls an end", poll_an_end, 0 },
		{ "a child that leaves a child", leave_a_writer, 0 },
		{ "a child that wants signals", set_flags, 0 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (int sockets = 0; sockets < 2; sockets++)
			pair_goes(&cases[i], sockets, EPOLLIN);
	unread(0);
	unread(1);
	/* The parent's own doing: an end is duplicated while the pair is away. */
	int ends[2];
	make_pair(1, ends);
	int set = watched(EPOLLIN, ends[0]);
	must(write(ends[1], "ab", 2));
	number("the parent duplicates an end", 0, in_child(take_one_and_write_two, ends));
	must(close(must(dup(ends[1]))));
	for (char byte = 'b'; byte <= 'd'; byte++)
		number("  the next byte", byte, next_byte(ends[0]));
	turns(set, ends, 1, 50);
	close_pair(ends);
	must(close(set));
}

/* ---- random traffic beside it ---- */

enum { CHANNELS = 4, HELD = 64, BATCHES = 30 };
enum way { LEVEL, EDGE, BOTH_ENDS, BLOCKED, WAYS };

/* What all processes see of a channel. */
struct counts {
	atomic_llong sent, taken;
	atomic_int over;
};

static struct channel {
	int ends[2], set;
	enum way way;
	struct counts *counts;
	struct thread writer, reader;
} channels[CHANNELS];

static _Thread_local uint64_t dice = 1;

static unsigned below(unsigned most)
{
	dice = dice * 6364136223846793005 + 1442695040888963407;
	return (unsigned)(dice >> 33) % most;
}

/* The pair holds few, or it would be the kernel's for good. */
static int write_some(struct channel *it)
{
	size_t count = 1 + below(4);
	if (atomic_load(&it->counts->sent) - atomic_load(&it->counts->taken) > HELD)
		return 0;
	atomic_fetch_add(&it->counts->sent, (long long)count);
	return write(it->ends[1], "abcd", count) != (long)count;
}

/* Whether something was there. */
static int read_some(struct channel *it)
{
	char bytes[16];
	long count = read(it->ends[0], bytes, 1 + below(sizeof bytes));
	if (count > 0)
		atomic_fetch_add(&it->counts->taken, count);
	return count > 0;
}

static void *write_on_and_on(void *argument)
{
	struct channel *it = argument;
	dice += (uint64_t)(uintptr_t)argument;
	while (atomic_load(&it->counts->over) == 0) {
		if (write_some(it) != 0)
			give_up();
		if (below(4) == 0)
			usleep(below(100));
	}
	return NULL;
}

static int is_all_taken(struct channel *it)
{
	return atomic_load(&it->counts->taken) == atomic_load(&it->counts->sent);
}

/* What can be read is reported within moments, or a wake-up is lost. */
static void wait_for_some(struct channel *it)
{
	struct epoll_event events[2];
	for (int tries = 0; tries < 3000; tries++) {
		int found = epoll_wait(it->set, events, 2, 10);
		for (int i = 0; i < found; i++)
			if (events[i].data.u64 == 'r')
				return;
		/* It is reported at once that there is room. */
		if (found > 0)
			sleep_ms(1);
		if (is_all_taken(it) || atomic_load(&it->counts->over) == 0)
			tries = 0;
		if (is_all_taken(it) && atomic_load(&it->counts->over) == 2)
			return;
	}
	struct pollfd entry = { it->ends[0], POLLIN, 0 };
	int ready = poll(&entry, 1, 0), bytes = -1;
	ioctl(it->ends[0], FIONREAD, &bytes);
	printf("way %d: sent %lld, taken %lld, over %d; poll says %d, %d bytes\n", it->way,
	       atomic_load(&it->counts->sent), atomic_load(&it->counts->taken),
	       atomic_load(&it->counts->over), ready, bytes);
	give_up();
}

static void *read_on_and_on(void *argument)
{
	struct channel *it = argument;
	dice += (uint64_t)(uintptr_t)argument;
	while (atomic_load(&it->counts->over) != 2 || !is_all_taken(it)) {
		if (it->way != BLOCKED)
			wait_for_some(it);
		while (read_some(it) && it->way == EDGE) {
		}
	}
	return NULL;
}

static void open_channel(struct channel *it, struct counts *counts)
{
	it->way = below(WAYS);
	it->counts = counts;
	memset(counts, 0, sizeof *counts);
	make_pair(below(2), it->ends);
	if (it->way == BLOCKED)
		must(fcntl(it->ends[0], F_SETFL, 0));
	it->set = must(epoll_create1(EPOLL_CLOEXEC));
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 'r' };
	if (it->way == EDGE)
		event.events |= EPOLLET;
	if (it->way != BLOCKED)
		must(epoll_ctl(it->set, EPOLL_CTL_ADD, it->ends[0], &event));
	event = (struct epoll_event){ .events = EPOLLOUT, .data.u64 = 'w' };
	if (it->way == BOTH_ENDS)
		must(epoll_ctl(it->set, EPOLL_CTL_ADD, it->ends[1], &event));
	start(&it->writer, write_on_and_on, it);
	start(&it->reader, read_on_and_on, it);
}

/* Whether all that was sent has been taken, and nothing else. */
static int close_channel(struct channel *it)
{
	atomic_store(&it->counts->over, 1);
	finish(&it->writer);
	/* A reader that sleeps in a read. */
	atomic_fetch_add(&it->counts->sent, 1);
	atomic_store(&it->counts->over, 2);
	must(write(it->ends[1], "z", 1));
	finish(&it->reader);
	close_pair(it->ends);
	must(close(it->set));
	return is_all_taken(it);
}

static int use_a_channel(void *argument)
{
	struct channel *it = argument;
	dice += (uint64_t)getpid();
	int wrong = 0;
	for (unsigned i = 1 + below(3); i > 0; i--) {
		if (it->way != BLOCKED && below(2))
			read_some(it);
		else
			wrong |= write_some(it);
	}
	if (below(32) == 0)
		wrong |= dup(it->ends[below(2)]) < 0;
	usleep(below(500));
	return wrong;
}

static void pair_traffic(int rounds)
{
	heading("random traffic through pairs");
	struct counts *counts = mmap(NULL, CHANNELS * sizeof *counts, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counts == MAP_FAILED)
		give_up();
	int wrong = 0, done = 0;
	while (done < rounds) {
		for (int i = 0; i < CHANNELS; i++)
			open_channel(&channels[i], &counts[i]);
		/* What stays in the kernel is closed in the end. */
		for (int i = 0; i < BATCHES && done < rounds; i++, done++) {
			wrong += in_child(use_a_channel, &channels[below(CHANNELS)]) != 0;
			usleep(below(4000));
		}
		for (int i = 0; i < CHANNELS; i++)
			wrong += !close_channel(&channels[i]);
	}
	number("what went wrong", 0, wrong);
	must(munmap(counts, CHANNELS * sizeof *counts));
}

#endif
