/* epoll_ctl(2) as requests. */

static struct epoll_event letter_of(char letter, uint32_t events)
{
	return (struct epoll_event){.events = events, .data.u64 = (unsigned char)letter};
}

static void show_commands(struct ring *ring)
{
	heading("epoll_ctl(2) as requests");
	int set = must(epoll_create1(0)), fd = must(eventfd(0, EFD_NONBLOCK)), ends[2];
	struct epoll_event event = letter_of('e', EPOLLIN), other = letter_of('o', EPOLLIN);
	must(pipe(ends));
	next_ctl(ring, set, EPOLL_CTL_ADD, fd, 'a', &event);
	expect(ring, "an eventfd is added", "a=0");
	next_ctl(ring, set, EPOLL_CTL_ADD, fd, 'a', &event);
	expect(ring, "once more", "a=EEXIST");
	next_ctl(ring, set, EPOLL_CTL_MOD, fd, 'm', &other);
	expect(ring, "it is changed", "m=0");
	next_ctl(ring, set, EPOLL_CTL_DEL, fd, 'd', NULL);
	expect(ring, "it is removed", "d=0");
	next_ctl(ring, set, EPOLL_CTL_DEL, fd, 'd', NULL);
	next_ctl(ring, set, EPOLL_CTL_MOD, fd, 'm', &event);
	expect(ring, "it is not there", "d=ENOENT m=ENOENT");
	next_ctl(ring, set, EPOLL_CTL_ADD, -1, 'a', &event);
	next_ctl(ring, set, 17, fd, '?', &event);
	expect(ring, "what cannot be", "a=EBADF ?=EINVAL");
	next_ctl(ring, set, EPOLL_CTL_ADD, ends[0], 'p', &event);
	next_ctl(ring, set, EPOLL_CTL_ADD, ring->fd, 'r', &event);
	next_ctl(ring, set, EPOLL_CTL_DEL, ring->fd, 'q', NULL);
	expect(ring, "a pipe, and the io_uring itself", "p=0 r=0 q=0");
	close(set), close(fd), close(ends[0]), close(ends[1]);
}

static const char *reported(int set)
{
	static char text[64];
	struct epoll_event events[8];
	int count = epoll_wait(set, events, 8, 0);
	size_t used = 0;
	text[0] = '\0';
	for (int i = 0; i < count; i++)
		text[used++] = (char)events[i].data.u64;
	text[used] = '\0';
	return text;
}

static void *wait_for_one(void *set)
{
	struct epoll_event event = {0};
	int count = epoll_wait(*(int *)set, &event, 1, 10000);
	return (void *)(uintptr_t)(count == 1 ? event.data.u64 : 0);
}

static void show_events_of_commands(struct ring *ring)
{
	heading("what they watch");
	int set = must(epoll_create1(0)), fd = must(eventfd(1, EFD_NONBLOCK));
	struct epoll_event event = letter_of('e', EPOLLIN);
	pthread_t thread;
	void *letter;
	must_be_zero(pthread_create(&thread, NULL, wait_for_one, &set));
	nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	next_ctl(ring, set, EPOLL_CTL_ADD, fd, 'a', &event);
	expect(ring, "a thread sleeps in the set", "a=0");
	must_be_zero(pthread_join(thread, &letter));
	number("it is woken", 'e', (long long)(uintptr_t)letter);
	show("reported", "e", reported(set));
	event = letter_of('f', EPOLLIN);
	next_ctl(ring, set, EPOLL_CTL_MOD, fd, 'm', &event);
	event = letter_of('g', EPOLLIN);
	expect(ring, "changed, as the event is at the submission", "m=0");
	show("reported", "g", reported(set));
	next_ctl(ring, set, EPOLL_CTL_DEL, fd, 'd', NULL);
	expect(ring, "removed", "d=0");
	show("reported", "", reported(set));
	close(set), close(fd);
}

static void show_order(struct ring *ring)
{
	heading("several");
	int set = must(epoll_create1(0)), fds[3], ends[2];
	struct epoll_event event = letter_of('e', EPOLLIN);
	kernel_pipe(ends, 0);
	for (int i = 0; i < 3; i++)
		fds[i] = must(eventfd(1, EFD_NONBLOCK));
	next(ring, IORING_OP_NOP, -1, 'n');
	next_ctl(ring, set, EPOLL_CTL_ADD, fds[0], 'a', &event);
	next_ctl(ring, set, EPOLL_CTL_ADD, fds[0], 'b', &event);
	next_with(ring, IORING_OP_WRITE, ends[1], 'w', "xyz", 3);
	next_ctl(ring, set, EPOLL_CTL_ADD, fds[1], 'c', &event);
	next(ring, IORING_OP_NOP, -1, 'm');
	next_ctl(ring, set, EPOLL_CTL_DEL, fds[2], 'd', NULL);
	expect(ring, "beside other requests", "n=0 a=0 b=EEXIST w=3 c=0 m=0 d=ENOENT");
	show("reported", "ee", reported(set));
	for (int i = 0; i < 3; i++)
		next_ctl(ring, set, EPOLL_CTL_DEL, fds[i], (uint64_t)('0' + i), NULL);
	CALL("two of three are submitted", "2", submit(ring, 2, 2));
	show("completed", "0=0 1=0", completed(ring, 2));
	CALL("the third", "1", submit(ring, 1, 1));
	show("completed", "2=ENOENT", completed(ring, 1));
	/* not filled in anew */
	next_ctl(ring, set, EPOLL_CTL_ADD, fds[0], 'a', &event);
	expect(ring, "added", "a=0");
	for (unsigned i = 0; i < ring->mask; i++)
		next(ring, IORING_OP_NOP, -1, 'n');
	CALL("as many entries as there are", "15", submit(ring, 15, 15));
	for (int i = 0; i < 15; i++)
		completed(ring, 1);
	ring->prepared = 1;
	expect(ring, "the same entry again", "a=EEXIST");
	struct io_uring_sqe *quiet = next_ctl(ring, set, EPOLL_CTL_DEL, fds[0], 'd', NULL);
	quiet->flags = IOSQE_CQE_SKIP_SUCCESS;
	quiet = next_ctl(ring, set, EPOLL_CTL_DEL, fds[0], 'e', NULL);
	quiet->flags = IOSQE_CQE_SKIP_SUCCESS;
	CALL("success without a completion", "2", submit(ring, 2, 1));
	show("completed", "e=ENOENT", completed(ring, 1));
	no_more(ring);
	CALL("nothing is left", "0", submit(ring, 5, 0));
	close(set), close(ends[0]), close(ends[1]);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
}

static void show_bad_commands(struct ring *ring)
{
	heading("commands that the kernel refuses");
	int set = must(epoll_create1(0)), fd = must(eventfd(0, 0));
	struct epoll_event event = letter_of('e', EPOLLIN);
	next_ctl(ring, set, EPOLL_CTL_ADD, fd, 'a', NULL);
	next(ring, IORING_OP_NOP, -1, 'n');
	CALL("without an event; the next one waits", "1", submit(ring, 2, 1));
	show("completed", "a=EFAULT", completed(ring, 1));
	CALL("the next one", "1", submit(ring, 1, 1));
	show("completed", "n=0", completed(ring, 1));
	next_ctl(ring, set, EPOLL_CTL_ADD, fd, 'a', &event)->buf_index = 1;
	expect(ring, "with what it does not take", "a=EINVAL");
	next_ctl(ring, set, EPOLL_CTL_ADD, set, 's', &event);
	expect(ring, "a set in itself", "s=EINVAL");
	close(set);
	next_ctl(ring, set, EPOLL_CTL_ADD, fd, 'a', &event);
	expect(ring, "a closed set", "a=EBADF");
	next_ctl(ring, fd, EPOLL_CTL_ADD, fd, 'a', &event);
	expect(ring, "no set", "a=EINVAL");
	close(fd);
}

static void show_linked_commands(struct ring *ring)
{
	heading("linked commands");
	int set = must(epoll_create1(0)), fd = must(eventfd(1, 0));
	struct epoll_event event = letter_of('e', EPOLLIN);
	next_ctl(ring, set, EPOLL_CTL_DEL, fd, 'd', NULL)->flags = IOSQE_IO_LINK;
	next_ctl(ring, set, EPOLL_CTL_ADD, fd, 'a', &event);
	expect(ring, "the second waits for the first", "d=ENOENT a=ECANCELED");
	show("reported", "", reported(set));
	next_ctl(ring, set, EPOLL_CTL_ADD, fd, 'a', &event)->flags = IOSQE_IO_LINK;
	next_ctl(ring, set, EPOLL_CTL_MOD, fd, 'm', &event);
	expect(ring, "both", "a=0 m=0");
	show("reported", "e", reported(set));
	close(set), close(fd);
}
