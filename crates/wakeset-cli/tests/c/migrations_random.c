/*
 * Random migrations under traffic, with every count accounted for. Migrators make batches of
 * eventfds, put them into a set that is drained by other threads, publish them to writers that keep
 * adding to them, and meanwhile hand them out of the process by fork, exec, SCM_RIGHTS or dup.
 * Whoever gets them adds to them, and some take from them too. When a batch is taken back, the
 * drainers must come to have, by events alone, exactly what was added: a count lost, a count
 * doubled or a wake-up lost shows as a difference or as a batch that is never drained.
 *
 *     migrations_random [ESCAPES [SEED]]
 *
 * A migration is one eventfd handed over once.
 */
#include "show.h"
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

extern char **environ;

enum {
	MIGRATORS = 2,
	WRITERS = 2,
	DRAINERS = 2,
	/* eventfds in a batch at most: their numbers fit a message and a command line */
	BATCH = 12,
	SLOTS = MIGRATORS * BATCH,
	STRANGERS_ADD = 3,     /* what another process adds to each eventfd */
	PATIENCE = 20,         /* seconds for a batch to be drained, with everything else running */
};

/* An eventfd, as writers and drainers see it. */
struct slot {
	atomic_int open;            /* whether writers may add */
	atomic_int life;            /* how often it was used: tells events of an earlier eventfd apart */
	atomic_int draining;        /* whether drainers may take */
	atomic_int users;           /* threads that hold `fd` in their hands */
	int fd;
	int edge;                   /* drained until it is empty, as epoll(7) asks of who uses EPOLLET */
	atomic_llong added, taken;
};

static struct slot slots[SLOTS];
static int set, stop_fd;
static atomic_int stop_writers;
static atomic_llong migrations, total_added, total_taken;
static long long wanted = 2000;
static uint64_t seed = 20261121;

/* xorshift64*: the same migrations for the same seed, as far as threads allow. */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1d;
}

static unsigned below(uint64_t *state, unsigned limit)
{
	return (unsigned)(next_random(state) >> 33) % limit;
}

static void abandon(const char *complaint)
{
	printf("%s\n", complaint);
	exit(1);
}

/* ---- traffic ---- */

static void *write_all_the_time(void *argument)
{
	uint64_t state = seed ^ (uintptr_t)argument;
	while (!atomic_load(&stop_writers)) {
		struct slot *slot = &slots[below(&state, SLOTS)];
		atomic_fetch_add(&slot->users, 1);
		if (atomic_load(&slot->open)) {
			uint64_t value = 1 + below(&state, 3);
			if (add(slot->fd, value) != 8)
				abandon("a write failed");
			atomic_fetch_add(&slot->added, (long long)value);
		}
		atomic_fetch_sub(&slot->users, 1);
		if (below(&state, 64) == 0)
			sched_yield();
	}
	return NULL;
}

static void drain_slot(uint64_t tag)
{
	struct slot *slot = &slots[tag >> 32];
	atomic_fetch_add(&slot->users, 1);
	if (atomic_load(&slot->draining) && (uint32_t)atomic_load(&slot->life) == (uint32_t)tag) {
		do {
			long long value = take(slot->fd);
			if (value == -1 && errno != EAGAIN)
				abandon("a read failed");
			if (value == -1)
				break;
			atomic_fetch_add(&slot->taken, value);
		} while (slot->edge);
	}
	atomic_fetch_sub(&slot->users, 1);
}

static void *drain_all_the_time(void *unused)
{
	(void)unused;
	for (;;) {
		struct epoll_event events[8];
		int count = epoll_wait(set, events, 8, -1);
		/* A SIGCHLD nobody handles may end a wait while posix_spawn has it blocked in its own thread. */
		if (count == -1 && errno != EINTR)
			abandon("a wait failed");
		for (int i = 0; i < count; i++) {
			if (events[i].data.u64 == UINT64_MAX)
				return NULL;
			drain_slot(events[i].data.u64);
		}
	}
}

/* ---- another process, or another descriptor ---- */

/* Adds to each, takes from every third, and reports what it took of each in one message. */
static int be_a_stranger(const int *fds, int count, int report)
{
	long long took[BATCH] = {0};
	for (int i = 0; i < count; i++) {
		if (add(fds[i], STRANGERS_ADD) != 8)
			return 1;
		if (i % 3 == 0) {
			took[i] = take(fds[i]);
			if (took[i] == -1 && errno != EAGAIN)
				return 1;
			if (took[i] == -1)
				took[i] = 0;
		}
	}
	return write(report, took, sizeof took) == (ssize_t)sizeof took ? 0 : 1;
}

/* `stranger REPORT FD,FD,…`: the program again, executed. */
static int be_an_executed_stranger(char **argv)
{
	int fds[BATCH], count = 0;
	for (char *text = strtok(argv[3], ","); text && count < BATCH; text = strtok(NULL, ","))
		fds[count++] = atoi(text);
	return be_a_stranger(fds, count, atoi(argv[2]));
}

static void account(struct slot *batch, int count, const long long *took)
{
	for (int i = 0; i < count; i++) {
		atomic_fetch_add(&batch[i].added, STRANGERS_ADD);
		atomic_fetch_add(&batch[i].taken, took[i]);
	}
	atomic_fetch_add(&migrations, count);
}

static void hear_report(pid_t child, struct slot *batch, int count, int ends[2])
{
	long long took[BATCH];
	int status = -1;
	must(close(ends[1]));
	if (read(ends[0], took, sizeof took) != (ssize_t)sizeof took)
		abandon("a child did not report");
	while (waitpid(child, &status, 0) == -1 && errno == EINTR)
		;
	if (status != 0)
		abandon("a child failed");
	must(close(ends[0]));
	account(batch, count, took);
}

static void collect(const struct slot *batch, int count, int *fds)
{
	for (int i = 0; i < count; i++)
		fds[i] = batch[i].fd;
}

static void migrate_by_fork(struct slot *batch, int count)
{
	int ends[2], fds[BATCH];
	kernel_pipe(ends, O_CLOEXEC);
	collect(batch, count, fds);
	pid_t child = fork();
	if (child == 0)
		_exit(be_a_stranger(fds, count, ends[1]));
	must(child);
	hear_report(child, batch, count, ends);
}

static void migrate_by_exec(struct slot *batch, int count, unsigned way)
{
	int ends[2];
	char report[16], list[BATCH * 8],
	    *arguments[] = {"migrations_random", "stranger", report, list, NULL};
	size_t used = 0;
	pid_t child;
	kernel_pipe(ends, 0);
	must(fcntl(ends[0], F_SETFD, FD_CLOEXEC));
	snprintf(report, sizeof report, "%d", ends[1]);
	for (int i = 0; i < count; i++) {
		/* The batch is close-on-exec until now, so that no other child gets it by accident. */
		must(fcntl(batch[i].fd, F_SETFD, 0));
		used += (size_t)snprintf(list + used, sizeof list - used, "%d,", batch[i].fd);
	}
	if (way == 0) {
		must_be_zero(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ));
	} else if (way == 1) {
		child = vfork();
		if (child == 0) {
			execv("/proc/self/exe", arguments);
			_exit(127);
		}
	} else {
		child = fork();
		if (child == 0) {
			execv("/proc/self/exe", arguments);
			_exit(127);
		}
	}
	must(child);
	hear_report(child, batch, count, ends);
}

static void migrate_by_message(struct slot *batch, int count, int many)
{
	int pair[2], fds[BATCH], received[BATCH], ends[2];
	long long took[BATCH];
	char byte = 'x';
	struct iovec part = {&byte, 1};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof fds)];
	} control = {0};
	struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
					      .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))}};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message.msg_hdr);
	must(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair));
	kernel_pipe(ends, O_CLOEXEC);
	collect(batch, count, fds);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
	memcpy(CMSG_DATA(header), fds, (size_t)count * sizeof(int));
	if (many)
		must(sendmmsg(pair[0], &message, 1, 0));
	else
		must(sendmsg(pair[0], &message.msg_hdr, 0));
	message.msg_hdr.msg_controllen = sizeof control;
	must(recvmsg(pair[1], &message.msg_hdr, MSG_CMSG_CLOEXEC));
	header = CMSG_FIRSTHDR(&message.msg_hdr);
	if (!header || header->cmsg_len != CMSG_LEN((size_t)count * sizeof(int)))
		abandon("a message came without its descriptors");
	memcpy(received, CMSG_DATA(header), (size_t)count * sizeof(int));
	if (be_a_stranger(received, count, ends[1]) != 0 ||
	    read(ends[0], took, sizeof took) != (ssize_t)sizeof took)
		abandon("received descriptors do not work");
	for (int i = 0; i < count; i++)
		must(close(received[i]));
	for (int i = 0; i < 2; i++) {
		must(close(pair[i]));
		must(close(ends[i]));
	}
	account(batch, count, took);
}

static void migrate_by_dup(struct slot *batch, int count, unsigned way)
{
	int copies[BATCH], ends[2];
	long long took[BATCH];
	kernel_pipe(ends, O_CLOEXEC);
	for (int i = 0; i < count; i++) {
		int fd = batch[i].fd;
		switch (way) {
		case 0: copies[i] = must(dup(fd)); break;
		case 1: copies[i] = must(fcntl(fd, F_DUPFD_CLOEXEC, 100)); break;
		case 2: copies[i] = must((int)syscall(SYS_dup, fd)); break;
		default: copies[i] = must(dup3(fd, must(open("/dev/null", O_RDONLY | O_CLOEXEC)), O_CLOEXEC));
		    break;
		}
	}
	if (be_a_stranger(copies, count, ends[1]) != 0 ||
	    read(ends[0], took, sizeof took) != (ssize_t)sizeof took)
		abandon("copies do not work");
	for (int i = 0; i < count; i++)
		must(close(copies[i]));
	must(close(ends[0]));
	must(close(ends[1]));
	account(batch, count, took);
}

/* ---- the life of a batch ---- */

static void open_batch(struct slot *batch, int count, uint64_t *state)
{
	for (int i = 0; i < count; i++) {
		struct slot *slot = &batch[i];
		unsigned initial = below(state, 4), semaphore = below(state, 4) == 0;
		uint32_t life = (uint32_t)atomic_fetch_add(&slot->life, 1) + 1;
		slot->fd = must(eventfd(initial, EFD_NONBLOCK | EFD_CLOEXEC | (semaphore ? EFD_SEMAPHORE : 0)));
		slot->edge = below(state, 2);
		atomic_store(&slot->added, initial);
		atomic_store(&slot->taken, 0);
		atomic_store(&slot->draining, 1);
		struct epoll_event event = {.events = EPOLLIN | (slot->edge ? EPOLLET : 0),
					    .data.u64 = (uint64_t)(slot - slots) << 32 | life};
		must(epoll_ctl(set, EPOLL_CTL_ADD, slot->fd, &event));
		atomic_store(&slot->open, 1);
	}
}

static void close_batch(struct slot *batch, int count, uint64_t *state)
{
	for (int i = 0; i < count; i++)
		atomic_store(&batch[i].open, 0);
	for (int i = 0; i < count; i++) {
		struct slot *slot = &batch[i];
		/* A writer that saw it open has counted its write when it is no longer a user. */
		while (atomic_load(&slot->users) != 0)
			sched_yield();
		int64_t end = now() + PATIENCE * 1000000000LL;
		while (atomic_load(&slot->taken) != atomic_load(&slot->added) && now() < end)
			sched_yield();
		if (atomic_load(&slot->taken) != atomic_load(&slot->added)) {
			printf("added %lld, taken %lld, still there %lld\n", (long long)atomic_load(&slot->added),
			       (long long)atomic_load(&slot->taken), take(slot->fd));
			abandon("a count or a wake-up was lost or doubled");
		}
		atomic_store(&slot->draining, 0);
		while (atomic_load(&slot->users) != 0)
			sched_yield();
		if (take(slot->fd) != -1)
			abandon("an eventfd holds more than was added");
		atomic_fetch_add(&total_added, atomic_load(&slot->added));
		atomic_fetch_add(&total_taken, atomic_load(&slot->taken));
		if (below(state, 2))
			must(epoll_ctl(set, EPOLL_CTL_DEL, slot->fd, NULL));
		must(close(slot->fd));
	}
}

static void *migrate_all_the_time(void *argument)
{
	int me = (int)(intptr_t)argument;
	uint64_t state = seed + (uint64_t)me * 7919 + 1;
	while (atomic_load(&migrations) < wanted) {
		struct slot *batch = &slots[me * BATCH];
		int count = 1 + (int)below(&state, BATCH);
		open_batch(batch, count, &state);
		/* Some leave more than once, by different ways. */
		for (unsigned again = 1 + below(&state, 3); again > 0; again--) {
			switch (below(&state, 4)) {
			case 0: migrate_by_fork(batch, count); break;
			case 1: migrate_by_exec(batch, count, below(&state, 3)); break;
			case 2: migrate_by_message(batch, count, (int)below(&state, 2)); break;
			default: migrate_by_dup(batch, count, below(&state, 4)); break;
			}
		}
		close_batch(batch, count, &state);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct thread writers[WRITERS], drainers[DRAINERS], migrators[MIGRATORS];
	if (argc == 4 && strcmp(argv[1], "stranger") == 0)
		return be_an_executed_stranger(argv);
	if (argc > 1)
		wanted = atoll(argv[1]);
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 0);
	printf("seed: %llu\n", (unsigned long long)seed);

	set = must(epoll_create1(EPOLL_CLOEXEC));
	stop_fd = must(eventfd(0, EFD_CLOEXEC));
	must(epoll_ctl(set, EPOLL_CTL_ADD, stop_fd,
	               &(struct epoll_event){.events = EPOLLIN, .data.u64 = UINT64_MAX}));
	for (intptr_t i = 0; i < DRAINERS; i++)
		start(&drainers[i], drain_all_the_time, NULL);
	for (intptr_t i = 0; i < WRITERS; i++)
		start(&writers[i], write_all_the_time, (void *)(i + 1));
	for (intptr_t i = 0; i < MIGRATORS; i++)
		start(&migrators[i], migrate_all_the_time, (void *)i);
	for (int i = 0; i < MIGRATORS; i++)
		finish(&migrators[i]);
	atomic_store(&stop_writers, 1);
	for (int i = 0; i < WRITERS; i++)
		finish(&writers[i]);
	must(add(stop_fd, 1));
	for (int i = 0; i < DRAINERS; i++)
		finish(&drainers[i]);

	yes("as many migrations as were asked for", atomic_load(&migrations) >= wanted);
	number("lost or doubled", 0, atomic_load(&total_added) - atomic_load(&total_taken));
	printf("migrations: %lld\n", (long long)atomic_load(&migrations));
	printf("counts: %lld\n", (long long)atomic_load(&total_added));
	return verdict();
}
