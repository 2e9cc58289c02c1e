/*
 * Objects of an operator's own that a child of `forks_random.c` has used: afterwards nobody else
 * has them, and they may come home, by calls whose results stay exact all the time.
 */
#ifndef FORKS_RANDOM_RETURNS_H
#define FORKS_RANDOM_RETURNS_H

#include "numbers.h"
#include <sys/ioctl.h>

/* Who serves children hears of their ends some time after that. */
static void let_it_be_heard(void)
{
	if (below(8))
		nap(below(2000));
}

/* Asks of an end how much is in it, in one way or another. */
static void ask_of_end(int fd, int bytes)
{
	int found = -1;
	fd_set set;
	struct timeval no_time = {0};
	struct pollfd one = {fd, POLLIN, 0};
	switch (below(4)) {
	case 0:
		need(ioctl(fd, FIONREAD, &found));
		expect("FIONREAD of a private end", bytes, found);
		break;
	case 1:
		expect("poll of a private end", bytes != 0, look_at(&one, 1));
		break;
	case 2:
		do {
			FD_ZERO(&set);
			FD_SET(fd, &set);
			found = select(fd + 1, &set, NULL, NULL, &no_time);
		} while (found == -1 && errno == EINTR);
		expect("select of a private end", bytes != 0, need(found));
		break;
	default:
		break;
	}
}

/* Messages of `socket` and bytes of any pair: `from` is the count of what was sent before. */
static void send_private(int fd, int socket, uint64_t from, int bytes)
{
	unsigned char data[8];
	struct iovec parts[2] = {{data, 1}, {data + 1, (size_t)bytes - 1}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	ssize_t sent;
	for (int i = 0; i < bytes; i++)
		data[i] = byte_at(from + (uint64_t)i);
	switch (below(socket ? 4 : 2)) {
	case 0: sent = write(fd, data, (size_t)bytes); break;
	case 1: sent = writev(fd, parts, 2); break;
	case 2: sent = send(fd, data, (size_t)bytes, MSG_NOSIGNAL); break;
	default: sent = sendmsg(fd, &message, 0);
	}
	expect("a write to a private end", bytes, sent);
}

static void take_private(int fd, int socket, uint64_t from, int bytes)
{
	unsigned char data[8];
	struct iovec parts[2] = {{data, 1}, {data + 1, sizeof data - 1}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	ssize_t taken;
	switch (below(socket ? 4 : 2)) {
	case 0: taken = read(fd, data, sizeof data); break;
	case 1: taken = readv(fd, parts, 2); break;
	case 2: taken = recv(fd, data, sizeof data, 0); break;
	default: taken = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	}
	expect("a read of a private end", bytes, taken);
	for (int i = 0; i < bytes; i++)
		expect("a byte of a private end", byte_at(from + (uint64_t)i), data[i]);
}

/* Some bytes through the pair of an operator's own. */
static void pass_private(const int ends[2], int socket, int set, uint64_t *from)
{
	int bytes = 2 + (int)below(6);
	struct epoll_event event;
	ask_of_end(ends[0], 0);
	send_private(ends[1], socket, *from, bytes);
	ask_of_end(ends[0], bytes);
	if (set >= 0)
		expect("a set of a private end", 1, need(epoll_wait(set, &event, 1, 0)));
	take_private(ends[0], socket, *from, bytes);
	*from += (uint64_t)bytes;
}

/* A child has sent something by it, or taken something, and goes. */
static void return_private_ends(void)
{
	int ends[2], socket = (int)below(2), flags = below(2) ? O_NONBLOCK : 0;
	uint64_t from = 0;
	if (socket)
		need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0, ends));
	else
		need(pipe2(ends, O_CLOEXEC | flags));
	int set = below(2) ? set_of(ends[0], EPOLLIN | (below(2) ? EPOLLET : 0), O_CLOEXEC) : -1;
	for (unsigned children = 1 + below(2); children > 0; children--) {
		int child_sends = (int)below(2);
		if (!child_sends)
			send_private(ends[1], socket, from, 5);
		pid_t child = fork_one();
		if (child == 0) {
			if (child_sends)
				send_private(ends[1], socket, from, 5);
			else
				take_private(ends[0], socket, from, 5);
			_exit(0);
		}
		await_child(child, "a child of a private pair", 0);
		let_it_be_heard();
		if (child_sends)
			take_private(ends[0], socket, from, 5);
		from += 5;
		for (unsigned turns = 1 + below(40); turns > 0; turns--)
			pass_private(ends, socket, set, &from);
	}
	close_number(set);
	int first = (int)below(2);
	need(close(ends[first]));
	need(close(ends[1 - first]));
}

/* It is set, asked for its time, set again and read. */
static void use_private_timer(int timer)
{
	struct itimerspec far = {.it_value.tv_sec = 1000}, soon = {.it_value.tv_nsec = 1}, left;
	need(timerfd_settime(timer, 0, &far, NULL));
	need(timerfd_gettime(timer, &left));
	if (left.it_value.tv_sec < 900 || left.it_value.tv_sec > 1000)
		fail("a private timer has %lld s left", (long long)left.it_value.tv_sec);
	need(timerfd_settime(timer, 0, &soon, &left));
	if (left.it_value.tv_sec < 900 || left.it_value.tv_sec > 1000)
		fail("a private timer had %lld s left", (long long)left.it_value.tv_sec);
	if (below(2))
		wait_by_poll(timer, POLLIN);
	expect("what a private timer gives", 1, take(timer));
}

/* A child has read it, and goes. */
static void return_private_timer(void)
{
	int timer = need(timerfd_create(CLOCK_MONOTONIC, O_CLOEXEC));
	int set = below(2) ? set_of(timer, EPOLLIN | (below(2) ? EPOLLET : 0), O_CLOEXEC) : -1;
	struct itimerspec soon = {.it_value.tv_nsec = 1 + below(100000)};
	struct epoll_event event;
	need(timerfd_settime(timer, 0, &soon, NULL));
	pid_t child = fork_one();
	if (child == 0) {
		expect("what a child takes of a timer", 1, take(timer));
		_exit(0);
	}
	await_child(child, "a child of a private timer", 0);
	let_it_be_heard();
	begin_wait("a private timer", -1);
	for (unsigned turns = 1 + below(20); turns > 0; turns--)
		use_private_timer(timer);
	if (set >= 0)
		expect("a set of a private timer", 0, need(epoll_wait(set, &event, 1, 0)));
	end_wait();
	close_number(set);
	need(close(timer));
}

#endif
