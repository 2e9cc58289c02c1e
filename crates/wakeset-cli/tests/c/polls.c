/*
 * poll(2), ppoll(2), select(2) and pselect(2) on eventfds and sets, alone and beside pipes. Built
 * with and without _FORTIFY_SOURCE: the fortified program calls __poll_chk, __ppoll_chk, __read_chk
 * and __fdelt_chk instead.
 */
#include "show.h"
#include <sys/select.h>

/* a count the compiler does not know, so that the fortified calls check it */
static volatile nfds_t some;
/* and a place it knows nothing about, for what must be refused */
static struct pollfd *volatile elsewhere;

static const char *returned(const struct pollfd *fds, int count)
{
	static char text[256];
	size_t used = 0;
	text[0] = '\0';
	for (int i = 0; i < count; i++) {
		char bits[64];
		short got = fds[i].revents;
		if (got == POLLNVAL)
			snprintf(bits, sizeof bits, "NVAL");
		else
			name_bits(bits, sizeof bits, (uint32_t)got);
		used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "",
		                         *bits ? bits : "-");
	}
	return text;
}

static void *write_when_asleep(void *argument)
{
	int *pair = argument;
	until_asleep(pair[1]);
	must(add(pair[0], 1));
	return NULL;
}

static void show_poll(void)
{
	heading("poll(2)");
	int fd = must(eventfd(0, EFD_NONBLOCK)), set = must(epoll_create1(0)),
	    inner = must(eventfd(0, EFD_NONBLOCK));
	int ends[2], closed;
	must(pipe(ends));
	closed = must(dup(fd));
	must(close(closed));
	must(watch_new(set, inner, EPOLLIN, 'i'));
	struct pollfd fds[] = {{fd, POLLIN, 0}, {fd, POLLOUT, 0}, {fd, POLLIN | POLLOUT, 0},
	                       {set, POLLIN, 0},
			       {ends[0], POLLIN, 0}, {ends[1], POLLOUT, 0}, {closed, POLLIN, 0}, {-1, POLLIN, 0},
			       {fd, 0, 0}};
	some = sizeof fds / sizeof *fds;
	number("count", 4, poll(fds, some, 0));
	show("nothing written", "- OUT OUT - - OUT NVAL - -", returned(fds, 9));
	must(add(fd, 1));
	number("count", 5, poll(fds, some, -1));
	show("the eventfd written", "IN OUT IN|OUT - - OUT NVAL - -", returned(fds, 9));
	must(add(inner, 1));
	must(write(ends[1], "x", 1));
	number("count", 7, poll(fds, some, 1000));
	show("all written", "IN OUT IN|OUT IN IN OUT NVAL - -", returned(fds, 9));
	drain(fd);
	must(add(fd, 0xfffffffffffffffe));
	number("count", 6, poll(fds, some, 0));
	show("the eventfd full", "IN - IN IN IN OUT NVAL - -", returned(fds, 9));
	show("a look takes nothing from the set", "i=IN", ready(set));

	struct timespec no_time = {0, 0};
	number("ppoll's count", 6, ppoll(fds, some, &no_time, NULL));
	show("ppoll says the same", "IN - IN IN IN OUT NVAL - -", returned(fds, 9));
	some = 3;
	fds[3].revents = 77;
	number("of three", 2, poll(fds, some, 0));
	number("the fourth is not touched", 77, fds[3].revents);
	drain(fd);

	heading("poll(2) on one");
	struct pollfd one = {fd, POLLIN, 0};
	some = 1;
	number("nothing", 0, poll(&one, some, 0));
	number("nothing for 5 ms", 0, poll(&one, some, 5));
	must(add(fd, 1));
	number("written", 1, poll(&one, some, 5));
	number("and again", 1, poll(&one, some, -1));
	drain(fd);
	one.fd = -1;
	number("a negative descriptor is passed over", 0, poll(&one, some, 5));
	number("and says nothing", 0, one.revents);
	one.fd = -5;
	number("any negative one", 0, poll(&one, some, 0));
	one.fd = closed;
	number("a closed one is reported at once", 1, poll(&one, some, -1));
	number("as such", POLLNVAL, one.revents);
	some = 0;
	number("none at all", 0, poll(&one, some, 5));
	elsewhere = (struct pollfd *)1;
	some = 1;
	CALL("fds at 1", "-1 EFAULT", poll(elsewhere, some, 0));
	struct timespec wrong = {0, 1000000000};
	one.fd = fd;
	some = 1;
	CALL("ppoll with a whole second of nanoseconds", "-1 EINVAL", ppoll(&one, some, &wrong, NULL));
	elsewhere = &one;
	CALL("poll of more than there can be", "-1 EINVAL", poll(elsewhere, (nfds_t)1 << 30, 0));

	heading("poll(2) that sleeps");
	struct thread thread;
	int to[2] = {fd, (int)syscall(SYS_gettid)};
	start(&thread, write_when_asleep, to);
	number("woken by a write", 1, poll(&one, some, -1));
	finish(&thread);
	drain(fd);
	struct pollfd mixed[] = {{ends[0], POLLIN, 0}, {fd, POLLIN, 0}, {set, POLLIN, 0}};
	char byte;
	must(read(ends[0], &byte, 1));
	drain(inner);
	some = 3;
	start(&thread, write_when_asleep, to);
	number("among a pipe and a set", 1, poll(mixed, some, 10000));
	finish(&thread);
	show("which", "- IN -", returned(mixed, 3));
	drain(fd);
	to[0] = inner;
	start(&thread, write_when_asleep, to);
	number("through a set", 1, ppoll(mixed, some, NULL, NULL));
	finish(&thread);
	show("which", "- - IN", returned(mixed, 3));
	drain(inner);
	must(watch_new(set, ends[0], EPOLLIN, 'p'));
	must(write(ends[1], "x", 1));
	number("a set with a pipe too", 2, poll(mixed, some, -1));
	show("which", "IN - IN", returned(mixed, 3));
	must(read(ends[0], &byte, 1));
	must(add(inner, 1));
	number("a set with a pipe too, its counter", 1, poll(mixed, some, -1));
	show("which", "- - IN", returned(mixed, 3));
	must(close(fd));
	must(close(inner));
	must(close(set));
	must(close(ends[0]));
	must(close(ends[1]));
}

static void show_select(void)
{
	heading("select(2)");
	int fd = must(eventfd(0, EFD_NONBLOCK)), set = must(epoll_create1(0)), ends[2];
	must(pipe(ends));
	int most = ends[1] + 1;
	fd_set readable, writable, exceptional;
	must(watch_new(set, fd, EPOLLIN, 'a'));
	for (int round = 0; round < 4; round++) {
		struct timeval no_time = {0, 0};
		struct timespec no_time_either = {0, 0};
		if (round == 1)
			must(add(fd, 1));
		if (round == 2)
			must(write(ends[1], "x", 1));
		if (round == 3) {
			drain(fd);
			must(add(fd, 0xfffffffffffffffe));
		}
		FD_ZERO(&readable);
		FD_SET(fd, &readable);
		FD_SET(set, &readable);
		FD_SET(ends[0], &readable);
		writable = exceptional = readable;
		FD_CLR(ends[0], &writable);
		FD_SET(ends[1], &writable);
		int count = round % 2 ? pselect(most, &readable, &writable, &exceptional, &no_time_either, NULL)
				      : select(most, &readable, &writable, &exceptional, &no_time);
		printf("round %d: %d;", round, count);
		printf(" eventfd%s%s%s", FD_ISSET(fd, &readable) ? " r" : "", FD_ISSET(fd, &writable) ? " w" : "",
		       FD_ISSET(fd, &exceptional) ? " e" : "");
		printf(", set%s%s%s", FD_ISSET(set, &readable) ? " r" : "", FD_ISSET(set, &writable) ? " w" : "",
		       FD_ISSET(set, &exceptional) ? " e" : "");
		printf(", pipe%s%s\n", FD_ISSET(ends[0], &readable) ? " r" : "",
		       FD_ISSET(ends[1], &writable) ? " w" : "");
		number("select's count is that of the bits", count,
		       !!FD_ISSET(fd, &readable) + !!FD_ISSET(fd, &writable) + !!FD_ISSET(set, &readable) +
			       !!FD_ISSET(ends[0], &readable) + !!FD_ISSET(ends[1], &writable));
	}
	drain(fd);

	heading("select(2), the edges");
	struct timeval a_while = {0, 5000};
	FD_ZERO(&readable);
	FD_SET(fd, &readable);
	number("nothing for 5 ms", 0, select(most, &readable, NULL, NULL, &a_while));
	yes("the bit is cleared", !FD_ISSET(fd, &readable));
	a_while.tv_usec = 5000;
	number("no descriptors for 5 ms", 0, select(0, NULL, NULL, NULL, &a_while));
	FD_SET(fd, &readable);
	must(add(fd, 1));
	number("descriptors not below the first argument are not looked at", 0,
	       select(fd, &readable, NULL, NULL, &(struct timeval){0, 0}));
	drain(fd);
	int closed = must(dup(fd));
	must(close(closed));
	FD_ZERO(&readable);
	FD_SET(closed, &readable);
	FD_SET(fd, &readable);
	CALL("a closed descriptor", "-1 EBADF", select(closed + 1, &readable, NULL, NULL, NULL));
	yes("leaves the bits alone", FD_ISSET(fd, &readable) && FD_ISSET(closed, &readable));
	CALL("a negative count", "-1 EINVAL", select(-1, &readable, NULL, NULL, NULL));
	CALL("a negative time", "-1 EINVAL", select(1, NULL, NULL, NULL, &(struct timeval){-1, 0}));
	CALL("pselect with a whole second of nanoseconds", "-1 EINVAL",
	     pselect(0, NULL, NULL, NULL, &(struct timespec){0, 1000000000}, NULL));

	heading("select(2) that sleeps");
	struct thread thread;
	int to[2] = {fd, (int)syscall(SYS_gettid)};
	for (int way = 0; way < 4; way++) {
		FD_ZERO(&readable);
		FD_SET(way % 2 ? set : fd, &readable);
		FD_SET(ends[0], &readable);
		char byte;
		if (way == 0)
			must(read(ends[0], &byte, 1));
		struct timeval long_time = {1000, 0};
		start(&thread, write_when_asleep, to);
		if (way < 2)
			number("select, woken by a write", 1,
			       select(most, &readable, NULL, NULL, way ? NULL : &long_time));
		else
			number("pselect, woken by a write", 1, pselect(most, &readable, NULL, NULL, NULL, NULL));
		finish(&thread);
		yes("the right one", FD_ISSET(way % 2 ? set : fd, &readable) && !FD_ISSET(ends[0], &readable));
		drain(fd);
	}

	heading("all bits");
	int semaphore = must(eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK));
	struct pollfd one = {semaphore, POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLPRI | POLLRDHUP,
	                     0};
	some = 1;
	number("a semaphore", 1, poll(&one, some, 0));
	printf("all bits asked: %#x\n", (unsigned)one.revents);
	one.fd = set;
	number("a set, nothing ready", 0, poll(&one, some, 0));
	must(add(fd, 1));
	number("a set", 1, poll(&one, some, 0));
	printf("all bits asked: %#x\n", (unsigned)one.revents);
	must(close(semaphore));
	must(close(fd));
	must(close(set));
	must(close(ends[0]));
	must(close(ends[1]));
}

int main(void)
{
	show_poll();
	show_select();
	return verdict();
}
