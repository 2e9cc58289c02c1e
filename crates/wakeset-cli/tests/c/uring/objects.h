/* Requests on objects. Each object begins in process. */

static void show_eventfd(struct ring *ring)
{
	heading("eventfds");
	int fd = must(eventfd(5, 0));
	uint64_t value = 0, three = 3;
	next_with(ring, IORING_OP_READ, fd, 'r', &value, 8);
	expect(ring, "read", "r=8");
	number("the count", 5, (long long)value);
	next_with(ring, IORING_OP_READ, fd, 'r', &value, 8);
	CALL("a read that waits", "1", submit(ring, 1, 0));
	must(add(fd, 7));
	show("completed", "r=8", completed(ring, 1));
	number("the count", 7, (long long)value);
	close(fd);
	fd = must(eventfd(0, 0));
	next_with(ring, IORING_OP_WRITE, fd, 'w', &three, 8);
	next_with(ring, IORING_OP_WRITE, fd, 'x', &three, 8);
	expect(ring, "written twice", "w=8 x=8");
	number("the count", 6, take(fd));
	close(fd);
	fd = must(timerfd_create(CLOCK_MONOTONIC, 0));
	struct itimerspec soon = {.it_value.tv_nsec = 1000000};
	must(timerfd_settime(fd, 0, &soon, NULL));
	next_with(ring, IORING_OP_READ, fd, 't', &value, 8);
	expect(ring, "a timerfd", "t=8");
	number("expired", 1, (long long)value);
	close(fd);
}

static void show_bytes(struct ring *ring)
{
	heading("pipes and pairs");
	int ends[2], pair[2];
	char text[8] = "";
	must(pipe(ends));
	must(write(ends[1], "abc", 3));
	next_with(ring, IORING_OP_READ, ends[0], 'r', text, 2);
	next_with(ring, IORING_OP_WRITE, ends[1], 'w', "de", 2);
	expect(ring, "read and written", "r=2 w=2");
	CALL("the rest", "3", read(ends[0], text + 2, 5));
	show("in order", "abcde", text);
	close(ends[0]), close(ends[1]);
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	must(write(pair[0], "gh", 2));
	next_with(ring, IORING_OP_RECV, pair[1], 'r', text, 2);
	next_with(ring, IORING_OP_SEND, pair[1], 's', "ij", 2);
	expect(ring, "a pair", "r=2 s=2");
	CALL("the other end", "2", read(pair[0], text + 2, 5));
	show("in order", "ghije", text);
	next(ring, IORING_OP_SHUTDOWN, pair[1], 'e')->len = SHUT_WR;
	expect(ring, "an end", "e=0");
	CALL("is an end", "0", read(pair[0], text, 5));
	close(pair[0]), close(pair[1]);
	int from[2], to[2];
	must(pipe(from)), must(pipe(to));
	must(write(from[1], "kl", 2));
	struct io_uring_sqe *entry = next(ring, IORING_OP_SPLICE, to[1], 'c');
	entry->splice_fd_in = from[0];
	entry->splice_off_in = entry->off = (uint64_t)-1;
	entry->len = 2;
	expect(ring, "spliced", "c=2");
	CALL("read", "2", read(to[0], text, 8));
	show("bytes", "klije", text);
	close(from[0]), close(from[1]), close(to[0]), close(to[1]);
}

static void show_polled(struct ring *ring)
{
	heading("polls");
	int fd = must(eventfd(0, 0)), set = must(epoll_create1(0)), inner = must(eventfd(0, 0));
	must(watch_new(set, inner, EPOLLIN, 'i'));
	next(ring, IORING_OP_POLL_ADD, fd, 'p')->poll32_events = POLLIN;
	next(ring, IORING_OP_POLL_ADD, set, 's')->poll32_events = POLLIN;
	CALL("two that wait", "2", submit(ring, 2, 0));
	no_more(ring);
	must(add(fd, 1));
	show("an eventfd", "p=1", completed(ring, 1));
	must(add(inner, 1));
	show("a set", "s=1", completed(ring, 1));
	show("and the set itself", "i", reported(set));
	close(fd), close(set), close(inner);
}

static void interrupt(int signal)
{
	(void)signal;
}

static void *read_until_interrupted(void *fd)
{
	uint64_t value;
	ssize_t got = read(*(int *)fd, &value, sizeof value);
	return (void *)(intptr_t)(got < 0 ? errno : 0);
}

/* A read that waits keeps its file when the number is closed. */
static void show_closed_below_a_read(struct ring *ring)
{
	struct sigaction action = {.sa_handler = interrupt};
	struct timespec while_it_sleeps = {.tv_nsec = 30000000};
	int fd = must(eventfd(0, 0)), first = fd;
	pthread_t thread;
	void *error;
	must(sigaction(SIGUSR1, &action, NULL));
	must_be_zero(pthread_create(&thread, NULL, read_until_interrupted, &first));
	nanosleep(&while_it_sleeps, NULL);
	next(ring, IORING_OP_CLOSE, fd, 'c');
	expect(ring, "one that a thread reads", "c=0");
	int again = must(eventfd(3, EFD_NONBLOCK));
	yes("its number is the next one's", again == fd);
	nanosleep(&while_it_sleeps, NULL);
	number("which nobody else reads", 3, take(again));
	must_be_zero(pthread_kill(thread, SIGUSR1));
	must_be_zero(pthread_join(thread, &error));
	show("the read", "EINTR", strerrorname_np((int)(intptr_t)error));
	close(again);
}

static void show_closed(struct ring *ring)
{
	heading("closes");
	int fd = must(eventfd(1, EFD_NONBLOCK)), set = must(epoll_create1(0)), ends[2];
	must(watch_new(set, fd, EPOLLIN, 'e'));
	next(ring, IORING_OP_CLOSE, fd, 'c');
	expect(ring, "an eventfd", "c=0");
	CALL("it is closed", "-1 EBADF", take(fd));
	show("and not watched", "", reported(set));
	int again = must(eventfd(0, EFD_NONBLOCK));
	yes("its number is the next one's", again == fd);
	must(add(again, 4));
	number("which counts for itself", 4, take(again));
	next(ring, IORING_OP_CLOSE, set, 's');
	next(ring, IORING_OP_CLOSE, set, 't');
	expect(ring, "a set, twice", "s=0 t=EBADF");
	must(pipe(ends));
	next(ring, IORING_OP_CLOSE, ends[1], 'p');
	expect(ring, "an end of a pipe", "p=0");
	char byte;
	CALL("the other one", "0", read(ends[0], &byte, 1));
	close(again), close(ends[0]);
	show_closed_below_a_read(ring);
}

static void show_passed(struct ring *ring)
{
	heading("passed on");
	int pair[2], fd = must(eventfd(0, EFD_NONBLOCK));
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0}, got = {0};
	char byte = 'x';
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part,
	                         .msg_iovlen = 1,
	                         .msg_control = control.bytes,
	                         .msg_controllen = sizeof control.bytes};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(head), &fd, sizeof fd);
	next_with(ring, IORING_OP_SENDMSG, pair[0], 's', &message, 1);
	expect(ring, "an eventfd", "s=1");
	struct msghdr reply = {.msg_iov = &part,
	                       .msg_iovlen = 1,
	                       .msg_control = got.bytes,
	                       .msg_controllen = sizeof got.bytes};
	must(recvmsg(pair[1], &reply, 0));
	int copy;
	memcpy(&copy, CMSG_DATA(CMSG_FIRSTHDR(&reply)), sizeof copy);
	must(add(fd, 9));
	number("is one object", 9, take(copy));
	close(fd), close(copy), close(pair[0]), close(pair[1]);
}

/* One eventfd is named; another one, a pipe and a set are not. */
static void show_beside(void)
{
	heading("others");
	struct ring ring;
	uint64_t value = 0;
	ring_set_up(&ring, 8, 0);
	int named = must(eventfd(5, 0)), one = must(eventfd(1, 0)), ends[2];
	int set = must(epoll_create1(0));
	must(pipe(ends));
	must(watch_new(set, one, EPOLLIN, 'o'));
	next_with(&ring, IORING_OP_READ, named, 'r', &value, 8);
	next(&ring, IORING_OP_NOP, one, 'n');
	next(&ring, IORING_OP_POLL_REMOVE, one, 'p');
	expect(&ring, "requests", "r=8 n=0 p=ENOENT");
	show("reported", "o", reported(set));
	number("the other count", 1, take(one));
	must(write(ends[1], "x", 1));
	next_with(&ring, IORING_OP_READ, named, 'r', &value, 8);
	CALL("one that waits", "1", submit(&ring, 1, 0));
	must(add(named, 2));
	show("completed", "r=8", completed(&ring, 1));
}
