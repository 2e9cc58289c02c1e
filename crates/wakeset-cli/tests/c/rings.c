/*
 * io_uring(7) and io_submit(2): ways to the kernel that no call of libc's goes through. Descriptors
 * made before a ring is set up, and those made after it, must mean the same to it as to the
 * program. Where the system does not allow rings, the program says so and is content.
 */
#include "show.h"
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <sys/mman.h>

/* ---- the least there is to a ring ---- */

struct ring {
	int fd;
	char *base;
	struct io_uring_sqe *entries;
	struct io_uring_params params;
};

static int open_ring(struct ring *ring)
{
	memset(ring, 0, sizeof *ring);
	ring->fd = (int)syscall(SYS_io_uring_setup, 8, &ring->params);
	if (ring->fd < 0)
		return -1;
	if (!(ring->params.features & IORING_FEAT_SINGLE_MMAP))
		return -1;
	size_t submissions = ring->params.sq_off.array + ring->params.sq_entries * sizeof(unsigned);
	size_t completions = ring->params.cq_off.cqes +
	    ring->params.cq_entries * sizeof(struct io_uring_cqe);
	ring->base = mmap(NULL, submissions > completions ? submissions : completions,
	                  PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQ_RING);
	ring->entries = mmap(NULL, ring->params.sq_entries * sizeof *ring->entries, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
	return ring->base == MAP_FAILED || (void *)ring->entries == MAP_FAILED ? -1 : 0;
}

static void submit(struct ring *ring, const struct io_uring_sqe *entry)
{
	_Atomic unsigned *tail = (void *)(ring->base + ring->params.sq_off.tail);
	unsigned mask = *(unsigned *)(ring->base + ring->params.sq_off.ring_mask);
	unsigned *array = (void *)(ring->base + ring->params.sq_off.array);
	unsigned at = atomic_load(tail) & mask;
	ring->entries[at] = *entry;
	array[at] = at;
	atomic_fetch_add(tail, 1);
	must(syscall(SYS_io_uring_enter, ring->fd, 1, 0, 0, NULL, 0));
}

/* The result of what completes next. */
static int complete(struct ring *ring)
{
	_Atomic unsigned *head = (void *)(ring->base + ring->params.cq_off.head);
	_Atomic unsigned *tail = (void *)(ring->base + ring->params.cq_off.tail);
	unsigned mask = *(unsigned *)(ring->base + ring->params.cq_off.ring_mask);
	struct io_uring_cqe *results = (void *)(ring->base + ring->params.cq_off.cqes);
	while (atomic_load(head) == atomic_load(tail))
		must(syscall(SYS_io_uring_enter, ring->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0));
	int result = results[atomic_load(head) & mask].res;
	atomic_fetch_add(head, 1);
	return result;
}

static int through(struct ring *ring, unsigned char what, int fd, void *where, unsigned size)
{
	struct io_uring_sqe entry = {.opcode = what, .fd = fd, .addr = (uintptr_t)where, .len = size,
	                             .off = (uint64_t)-1};
	submit(ring, &entry);
	return complete(ring);
}

static void show_ring(void)
{
	struct ring ring;
	uint64_t value = 3;
	struct waiter waiter;
	heading("io_uring");
	int before = must(eventfd(5, EFD_NONBLOCK)), set = must(epoll_create1(0)),
	    watched = must(eventfd(0, EFD_NONBLOCK));
	must(watch_new(set, before, EPOLLIN, 'a'));
	int quiet = must(epoll_create1(0));
	must(watch_new(quiet, watched, EPOLLIN | EPOLLET, 'w'));
	start_waiting(&waiter, quiet, 4);
	if (open_ring(&ring) == -1) {
		printf("not here\n");
		must(add(watched, 1));
		finish(&waiter.thread);
		return;
	}
	number("a ring writes to a counter made before it", 8,
	       through(&ring, IORING_OP_WRITE, before, &value, 8));
	number("and reads from it", 8, through(&ring, IORING_OP_READ, before, &value, 8));
	number("the sum", 8, (long long)value);
	show("the set sees that it is empty", "none", ready(set));
	value = 2;
	number("a ring's write", 8, through(&ring, IORING_OP_WRITE, watched, &value, 8));
	show("wakes who slept before it was there", "w=IN", what_it_saw(&waiter));
	show("is an edge once", "none", ready(quiet));

	int after = must(eventfd(1, EFD_NONBLOCK));
	value = 4;
	number("a counter made after it", 8, through(&ring, IORING_OP_WRITE, after, &value, 8));
	number("has both", 5, take(after));

	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 'r'};
	struct io_uring_sqe entry = {.opcode = IORING_OP_EPOLL_CTL, .fd = set, .addr = (uintptr_t)&event,
				     .len = EPOLL_CTL_ADD, .off = (uint64_t)after};
	submit(&ring, &entry);
	number("a ring adds to a set", 0, complete(&ring));
	CALL("which knows it", "-1 EEXIST", watch_new(set, after, EPOLLIN, 'x'));
	must(add(after, 1));
	show("and reports it", "r=IN", ready(set));

	entry = (struct io_uring_sqe){.opcode = IORING_OP_POLL_ADD, .fd = before, .poll32_events = POLLIN};
	submit(&ring, &entry);
	must(add(before, 1));
	number("a ring polls a counter", POLLIN, complete(&ring));
	entry.fd = set;
	submit(&ring, &entry);
	number("and a set", POLLIN, complete(&ring));
	entry = (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = watched, .addr = (uintptr_t)&value,
	                              .len = 8,
				      .off = (uint64_t)-1};
	drain(watched);
	must(fcntl(watched, F_SETFL, 0));
	submit(&ring, &entry);
	must(add(watched, 9));
	number("a ring's read waits for a write", 8, complete(&ring));
	number("and takes its value", 9, (long long)value);
	entry = (struct io_uring_sqe){.opcode = IORING_OP_CLOSE, .fd = after};
	submit(&ring, &entry);
	number("a ring closes a counter", 0, complete(&ring));
	CALL("which is closed", "-1 EBADF", take(after));

	int told = must(eventfd(0, EFD_NONBLOCK));
	CALL("a counter is told of completions", "0",
	     syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_EVENTFD, &told, 1));
	must(watch_new(set, told, EPOLLIN, 't'));
	drain(before);
	number("something completes", 8, through(&ring, IORING_OP_WRITE, watched, &value, 8));
	/* A completion is there before the counter is told. */
	for (int i = 0; i < 1000 && strcmp(ready(set), "none") == 0; i++)
		must(usleep(1000));
	show("the set sees it", "t=IN", ready(set));
	number("once", 1, take(told));
	must(close(ring.fd));
	must(close(told));
	must(close(before));
	must(close(watched));
	must(close(set));
	must(close(quiet));
}

static void show_aio(void)
{
	aio_context_t context = 0;
	char bytes[16] = "";
	int ends[2];
	heading("io_submit");
	int told = must(eventfd(0, EFD_NONBLOCK)), set = must(epoll_create1(0));
	must(watch_new(set, told, EPOLLIN, 't'));
	must(pipe(ends));
	if (syscall(SYS_io_setup, 4, &context) == -1) {
		printf("not here\n");
		return;
	}
	struct iocb request = {.aio_fildes = (unsigned)ends[0], .aio_lio_opcode = IOCB_CMD_POLL,
	                       .aio_buf = POLLIN,
			       .aio_flags = IOCB_FLAG_RESFD, .aio_resfd = (unsigned)told};
	struct iocb *requests[] = {&request};
	CALL("submitted", "1", syscall(SYS_io_submit, context, 1, requests));
	show("not complete", "none", ready(set));
	must(write(ends[1], "x", 1));
	show("the set is told of the completion", "t=IN", ordered(set, 4, -1));
	number("once", 1, take(told));
	struct io_event event;
	CALL("which is there", "1", syscall(SYS_io_getevents, context, 1, 1, &event, NULL));

	int counter = must(eventfd(6, EFD_NONBLOCK));
	request = (struct iocb){.aio_fildes = (unsigned)counter, .aio_lio_opcode = IOCB_CMD_PREAD,
				.aio_buf = (uintptr_t)bytes, .aio_nbytes = 8};
	printf("a counter read: %s\n", outcome(syscall(SYS_io_submit, context, 1, requests)));
	must(add(counter, 1));
	printf("what it left: %lld\n", take(counter));
	must(syscall(SYS_io_destroy, context));
	must(close(counter));
	must(close(told));
	must(close(set));
	must(close(ends[0]));
	must(close(ends[1]));
}

int main(void)
{
	show_aio();
	show_ring();
	return verdict();
}
