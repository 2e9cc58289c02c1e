/* Registered files, eventfds and io_urings; other kinds of io_uring; forks. */

static long registers(struct ring *ring, unsigned op, const void *argument, unsigned count)
{
	return by(SYS_io_uring_register, ring->fd, op, (long)argument, count, 0, 0);
}

static void show_registered(struct ring *ring)
{
	heading("registered");
	int fds[3] = {must(eventfd(2, 0)), -1, must(eventfd(0, EFD_NONBLOCK))};
	uint64_t value = 0;
	CALL("files", "0", registers(ring, IORING_REGISTER_FILES, fds, 2));
	next_with(ring, IORING_OP_READ, 0, 'r', &value, 8)->flags = IOSQE_FIXED_FILE;
	expect(ring, "by an index", "r=8");
	number("the count", 2, (long long)value);
	int late = must(eventfd(6, 0));
	struct io_uring_files_update update = {.offset = 1, .fds = (uintptr_t)&late};
	CALL("another one", "1", registers(ring, IORING_REGISTER_FILES_UPDATE, &update, 1));
	next_with(ring, IORING_OP_READ, 1, 'r', &value, 8)->flags = IOSQE_FIXED_FILE;
	expect(ring, "by an index", "r=8");
	number("the count", 6, (long long)value);
	int later = must(eventfd(8, 0));
	next_with(ring, IORING_OP_FILES_UPDATE, -1, 'u', &later, 1);
	expect(ring, "one by a request", "u=1");
	next_with(ring, IORING_OP_READ, 0, 'r', &value, 8)->flags = IOSQE_FIXED_FILE;
	expect(ring, "by an index", "r=8");
	number("the count", 8, (long long)value);
	CALL("unregistered", "0", registers(ring, IORING_UNREGISTER_FILES, NULL, 0));
	CALL("an eventfd for completions", "0", registers(ring, IORING_REGISTER_EVENTFD, &fds[2], 1));
	next(ring, IORING_OP_NOP, -1, 'n');
	expect(ring, "one completion", "n=0");
	number("is counted", 1, take(fds[2]));
	CALL("unregistered", "0", registers(ring, IORING_UNREGISTER_EVENTFD, NULL, 0));
	CALL("no such operation", "-1 EINVAL", registers(ring, 9999, NULL, 0));
	close(fds[0]), close(fds[2]), close(late), close(later);
}

/* What each kind of io_uring does: a command, and a request on an object. */
static void show_setup(const char *name, unsigned flags)
{
	struct ring ring;
	struct epoll_event event = letter_of('e', EPOLLIN);
	uint64_t value = 0;
	heading(name);
	if (ring_try_set_up(&ring, 8, flags) < 0) {
		yes("the kernel is older", errno == EINVAL);
		return;
	}
	int set = must(epoll_create1(0)), fd = must(eventfd(5, EFD_NONBLOCK));
	for (int i = 0; i < 20; i++) {
		next(&ring, IORING_OP_NOP, -1, 'n');
		submit(&ring, 1, 1);
		completed(&ring, 1);
	}
	next_ctl(&ring, set, EPOLL_CTL_ADD, fd, 'a', &event);
	next_ctl(&ring, set, EPOLL_CTL_ADD, fd, 'b', &event);
	expect(&ring, "commands", "a=0 b=EEXIST");
	show("reported", "e", reported(set));
	next_with(&ring, IORING_OP_READ, fd, 'r', &value, 8);
	expect(&ring, "read", "r=8");
	number("the count", 5, (long long)value);
	show("reported", "", reported(set));
	close(ring.fd), close(set), close(fd);
}

static void show_by_index(void)
{
	heading("an io_uring by its index");
	struct ring ring;
	struct epoll_event event = letter_of('e', EPOLLIN);
	uint64_t value = 0;
	ring_set_up(&ring, 8, 0);
	struct io_uring_rsrc_update update = {.offset = -1U, .data = (unsigned)ring.fd};
	CALL("registered", "1", registers(&ring, IORING_REGISTER_RING_FDS, &update, 1));
	int set = must(epoll_create1(0)), fd = must(eventfd(5, EFD_NONBLOCK));
	ring.number = (int)update.offset;
	ring.flags = IORING_ENTER_REGISTERED_RING;
	next_ctl(&ring, set, EPOLL_CTL_ADD, fd, 'a', &event);
	next_ctl(&ring, set, EPOLL_CTL_ADD, fd, 'b', &event);
	expect(&ring, "commands", "a=0 b=EEXIST");
	show("reported", "e", reported(set));
	int number_of_ring = ring.fd;
	ring.fd = must(dup(ring.fd));
	close(number_of_ring);
	next_with(&ring, IORING_OP_READ, fd, 'r', &value, 8);
	expect(&ring, "its number is closed", "r=8");
	number("the count", 5, (long long)value);
	update.data = 0;
	CALL("unregistered", "1", registers(&ring, IORING_UNREGISTER_RING_FDS, &update, 1));
	CALL("not any more", "-1 EBADF", submit(&ring, 1, 0));
	ring.number = ring.fd;
	ring.flags = 0;
	must(add(fd, 3));
	next_with(&ring, IORING_OP_READ, fd, 'r', &value, 8);
	expect(&ring, "by a number that another one was copied to", "r=8");
	number("the count", 3, (long long)value);
	close(ring.fd), close(set), close(fd);
}

static void show_other_setups(void)
{
	show_setup("entries in order", IORING_SETUP_NO_SQARRAY);
	show_setup("large entries", IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	show_setup("in the program's memory", IORING_SETUP_NO_MMAP);
	show_setup("one thread", IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
	show_by_index();
}

static void show_fork(struct ring *ring)
{
	heading("a fork");
	int status = -1, fd = must(eventfd(2, EFD_NONBLOCK));
	uint64_t value = 0;
	pid_t child = must(fork());
	if (child == 0) {
		struct ring own;
		int made = must(eventfd(7, EFD_NONBLOCK));
		ring_set_up(&own, 8, 0);
		next_with(&own, IORING_OP_READ, made, 'c', &value, 8);
		expect(&own, "an io_uring of the child's", "c=8");
		number("the count", 7, (long long)value);
		next_with(ring, IORING_OP_READ, fd, 'r', &value, 8);
		expect(ring, "the parent's", "r=8");
		number("the count", 2, (long long)value);
		exit(verdict());
	}
	must(waitpid(child, &status, 0));
	number("the child ends", 0, status);
	int made = must(eventfd(6, EFD_NONBLOCK));
	next_with(ring, IORING_OP_READ, made, 'r', &value, 8);
	expect(ring, "the parent goes on", "r=8");
	number("the count", 6, (long long)value);
	close(made), close(fd);
}

static void show_polled_queue(void)
{
	struct ring ring;
	uint64_t value = 0;
	int fd = must(eventfd(5, 0));
	heading("a thread of the kernel's");
	if (ring_try_set_up(&ring, 8, IORING_SETUP_SQPOLL) < 0) {
		yes("the kernel refuses it", errno == EPERM);
		return;
	}
	next_with(&ring, IORING_OP_READ, fd, 'r', &value, 8);
	atomic_store(ring.tail, 1);
	ring.prepared = 0;
	by(SYS_io_uring_enter, ring.fd, 0, 0, IORING_ENTER_SQ_WAKEUP, 0, 0);
	show("read unseen", "r=8", completed(&ring, 1));
	number("the count", 5, (long long)value);
	int made = must(eventfd(4, 0));
	next_with(&ring, IORING_OP_READ, made, 'r', &value, 8);
	atomic_store(ring.tail, 2);
	by(SYS_io_uring_enter, ring.fd, 0, 0, IORING_ENTER_SQ_WAKEUP, 0, 0);
	show("and once more", "r=8", completed(&ring, 1));
	number("the count", 4, (long long)value);
	close(fd), close(made), close(ring.fd);
}
