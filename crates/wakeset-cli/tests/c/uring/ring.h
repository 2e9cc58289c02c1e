/* An io_uring, by its system calls. */
#include <linux/io_uring.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

/* of headers that are older than the kernel */
#ifndef IORING_SETUP_NO_SQARRAY
#define IORING_SETUP_NO_SQARRAY (1U << 16)
#endif
#ifndef IORING_SETUP_NO_MMAP
#define IORING_SETUP_NO_MMAP (1U << 14)
#endif

struct ring {
	int fd;
	unsigned setup;
	/* of io_uring_enter(2), and what it is called with */
	unsigned flags;
	int number;
	_Atomic unsigned *head, *tail, *done_head, *done_tail;
	unsigned mask, done_mask;
	unsigned *array;
	char *entries;
	struct io_uring_cqe *done;
	unsigned prepared;
};

static long by_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	return syscall(number, a, b, c, d, e, f);
}

static long by_instruction_6(long number, long a, long b, long c, long d, long e, long f)
{
	long result = f ? -ENOSYS : by_instruction(number, a, b, c, d, e);
	if (result >= 0)
		return result;
	errno = (int)-result;
	return -1;
}

static long (*by)(long, long, long, long, long, long, long) = by_syscall;

static void ring_map(struct ring *ring, const struct io_uring_params *params, char *base,
                     char *entries)
{
	ring->head = (void *)(base + params->sq_off.head);
	ring->tail = (void *)(base + params->sq_off.tail);
	ring->mask = *(unsigned *)(base + params->sq_off.ring_mask);
	ring->array = params->flags & IORING_SETUP_NO_SQARRAY
			      ? NULL
			      : (unsigned *)(base + params->sq_off.array);
	ring->entries = entries;
	ring->done_head = (void *)(base + params->cq_off.head);
	ring->done_tail = (void *)(base + params->cq_off.tail);
	ring->done_mask = *(unsigned *)(base + params->cq_off.ring_mask);
	ring->done = (void *)(base + params->cq_off.cqes);
}

static size_t entry_size(const struct ring *ring)
{
	return ring->setup & IORING_SETUP_SQE128 ? 128 : 64;
}

/* 0, or -1 where the kernel does not have it. */
static int ring_try_set_up(struct ring *ring, unsigned count, unsigned flags)
{
	static _Alignas(4096) char memory[2][4096];
	struct io_uring_params params = {.flags = flags};
	*ring = (struct ring){.setup = flags};
	if (flags & IORING_SETUP_NO_MMAP) {
		params.cq_off.resv2 = (uintptr_t)memory[0];
		params.sq_off.resv2 = (uintptr_t)memory[1];
	}
	ring->fd = (int)by(SYS_io_uring_setup, count, (long)&params, 0, 0, 0, 0);
	if (ring->fd < 0)
		return -1;
	ring->number = ring->fd;
	if (flags & IORING_SETUP_NO_MMAP) {
		ring_map(ring, &params, memory[0], memory[1]);
		return 0;
	}
	size_t len = params.sq_off.array + params.sq_entries * sizeof(unsigned);
	size_t done_len = params.cq_off.cqes +
			  (params.cq_entries << !!(flags & IORING_SETUP_CQE32)) *
				  sizeof(struct io_uring_cqe);
	if (done_len > len)
		len = done_len;
	char *base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_SQ_RING);
	char *entries = mmap(NULL, params.sq_entries * entry_size(ring), PROT_READ | PROT_WRITE,
	                     MAP_SHARED, ring->fd, IORING_OFF_SQES);
	if (base == MAP_FAILED || entries == MAP_FAILED)
		must(-1);
	ring_map(ring, &params, base, entries);
	return 0;
}

static void ring_set_up(struct ring *ring, unsigned count, unsigned flags)
{
	must(ring_try_set_up(ring, count, flags));
}

/* The next entry, all zero but for what every one has. */
static struct io_uring_sqe *next(struct ring *ring, int op, int fd, uint64_t name)
{
	unsigned place = (atomic_load(ring->tail) + ring->prepared++) & ring->mask;
	struct io_uring_sqe *entry = (void *)(ring->entries + place * entry_size(ring));
	memset(entry, 0, entry_size(ring));
	if (ring->array)
		ring->array[place] = place;
	entry->opcode = (uint8_t)op;
	entry->fd = fd;
	entry->user_data = name;
	return entry;
}

static struct io_uring_sqe *next_with(struct ring *ring, int op, int fd, uint64_t name,
                                      const void *memory, unsigned len)
{
	struct io_uring_sqe *entry = next(ring, op, fd, name);
	entry->addr = (uintptr_t)memory;
	entry->len = len;
	entry->off = op == IORING_OP_READ || op == IORING_OP_WRITE ? (uint64_t)-1 : 0;
	return entry;
}

static struct io_uring_sqe *next_ctl(struct ring *ring, int set, int op, int fd, uint64_t name,
                                     struct epoll_event *event)
{
	struct io_uring_sqe *entry = next(ring, IORING_OP_EPOLL_CTL, set, name);
	entry->len = (unsigned)op;
	entry->off = (uint64_t)fd;
	entry->addr = (uintptr_t)event;
	return entry;
}

/* Hands over what is prepared, and submits `count` entries. */
static long submit(struct ring *ring, unsigned count, unsigned wanted)
{
	atomic_store(ring->tail, atomic_load(ring->tail) + ring->prepared);
	ring->prepared = 0;
	unsigned flags = ring->flags | (wanted ? IORING_ENTER_GETEVENTS : 0);
	return by(SYS_io_uring_enter, ring->number, count, wanted, flags, 0, 0);
}

/* What the next completions say, as "name=result"; each within five seconds */
static const char *completed(struct ring *ring, int count)
{
	static char text[512];
	size_t used = 0;
	text[0] = '\0';
	for (int i = 0; i < count; i++) {
		struct pollfd wait = {ring->fd, POLLIN, 0};
		unsigned head = atomic_load(ring->done_head);
		/* a poll of the io_uring, which has nothing of ours */
		if (head == atomic_load(ring->done_tail) && poll(&wait, 1, 5000) < 1)
			return "nothing";
		struct io_uring_cqe *cqe = (void *)((char *)ring->done + (head & ring->done_mask) *
		                           (sizeof *cqe << !!(ring->setup & IORING_SETUP_CQE32)));
		const char *error = cqe->res < 0 ? strerrorname_np(-cqe->res) : NULL;
		char result[16];
		snprintf(result, sizeof result, "%d", cqe->res);
		used += (size_t)snprintf(text + used, sizeof text - used, "%s%c=%s", i ? " " : "",
		                         (char)cqe->user_data, error ? error : result);
		atomic_store(ring->done_head, head + 1);
	}
	return text;
}

static void no_more(struct ring *ring)
{
	yes("no other completion", atomic_load(ring->done_head) == atomic_load(ring->done_tail));
}

/* Submits what is prepared, and says what came of each. */
static void expect(struct ring *ring, const char *name, const char *want)
{
	int count = (int)ring->prepared;
	if (submit(ring, ring->prepared, ring->prepared) != count)
		show(name, want, outcome(-1));
	else
		show(name, want, completed(ring, count));
}
