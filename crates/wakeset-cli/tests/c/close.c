/*
 * The ways a descriptor goes away, and what that does to the sets that watch it: close(2),
 * close_range(2), closefrom(3), dup2(2) over it, and its number being used again. By epoll(7), a
 * watch ends when the last descriptor of its description is closed.
 */
#include "show.h"
#include <linux/close_range.h>

static int new_set(void)
{
	return must(epoll_create1(EPOLL_CLOEXEC));
}

static int new_counter(unsigned value)
{
	return must(eventfd(value, EFD_CLOEXEC | EFD_NONBLOCK));
}

/* The lowest number free now. */
static int next_number(void)
{
	int fd = must(dup(0));
	must(close(fd));
	return fd;
}

static void show_close(void)
{
	heading("close(2)");
	int set = new_set(), fd = new_counter(1), other = new_counter(1);
	must(watch_new(set, fd, EPOLLIN, 'a'));
	must(watch_new(set, other, EPOLLIN, 'b'));
	show("two", "a=IN b=IN", sorted(set, 16, 0));
	CALL("close one", "0", close(fd));
	show("the other", "b=IN", ready(set));
	CALL("close it again", "-1 EBADF", close(fd));
	CALL("close -1", "-1 EBADF", close(-1));
	CALL("read it", "-1 EBADF", take(fd));
	CALL("write it", "-1 EBADF", add(fd, 1));
	CALL("its flags", "-1 EBADF", fcntl(fd, F_GETFL));
	CALL("duplicate it", "-1 EBADF", dup(fd));
	CALL("close the set", "0", close(set));
	CALL("wait on it", "-1 EBADF", epoll_wait(set, (struct epoll_event[1]){{0}}, 1, 0));
	number("the counter is as it was", 1, take(other));
	must(close(other));

	heading("numbers used again");
	int lowest = next_number();
	fd = new_counter(1);
	number("the lowest number is given", 0, fd - lowest);
	must(close(fd));
	set = new_set();
	number("and again, to a set", 0, set - lowest);
	CALL("which is no counter", "-1 EINVAL", take(set));
	must(close(set));
	int ends[2];
	kernel_pipe(ends, 0);
	number("and again, to a pipe", 0, ends[0] - lowest);
	CALL("which is no set", "-1 EINVAL", epoll_wait(ends[0], (struct epoll_event[1]){{0}}, 1, 0));
	must(write(ends[1], "12345678", 8));
	CALL("nor a counter", "8", read(ends[0], (char[16]){0}, 16));
	must(close(ends[0]));
	must(close(ends[1]));
	int file = must(open("/dev/null", O_RDWR));
	number("and again, to a file", 0, file - lowest);
	CALL("which takes any write", "3", write(file, "abc", 3));
	must(close(file));
	fd = new_counter(0);
	CALL("and to a counter that is empty", "-1 EAGAIN", take(fd));
	must(close(fd));
	for (int i = 0; i < 1000; i++) {
		set = new_set();
		fd = new_counter(0);
		must(watch_new(set, fd, EPOLLIN, 'a'));
		must(add(fd, 1));
		if (strcmp(ready(set), "a=IN") != 0)
			printf("round %d: lost\n", i);
		if (i % 2) {
			must(close(fd));
			must(close(set));
		} else {
			must(close(set));
			must(close(fd));
		}
	}
	number("after a thousand rounds of set and counter, the lowest number", 0, next_number() - lowest);
}

static void show_dup2(void)
{
	heading("dup2(2) over a watched one");
	int set = new_set(), fd = new_counter(1), other = new_counter(1);
	int ends[2];
	must(watch_new(set, fd, EPOLLIN, 'a'));
	yes("dup2", dup2(other, fd) == fd);
	show("the watch is gone", "none", ready(set));
	CALL("what has its number is not watched", "-1 ENOENT",
	     watch(set, EPOLL_CTL_MOD, fd, EPOLLIN, 'b'));
	CALL("and can be", "0", watch_new(set, fd, EPOLLIN, 'b'));
	show("it is", "b=IN", ready(set));
	must(close(other));
	show("by its number", "b=IN", ready(set));
	yes("dup2 to itself", dup2(fd, fd) == fd);
	show("changes nothing", "b=IN", ready(set));
	CALL("dup3 to itself", "-1 EINVAL", dup3(fd, fd, 0));
	kernel_pipe(ends, 0);
	yes("a pipe over it", dup2(ends[0], fd) == fd);
	show("the watch is gone", "none", ready(set));
	must(write(ends[1], "12345678", 8));
	CALL("it reads as a pipe", "8", read(fd, (char[16]){0}, 16));
	other = new_counter(7);
	yes("a counter over the pipe", dup3(other, fd, O_CLOEXEC) == fd);
	CALL("with the flag asked for", "1", fcntl(fd, F_GETFD));
	number("it reads as a counter", 7, take(fd));
	CALL("dup2 of a closed one", "-1 EBADF", dup2(must(next_number()), fd));
	must(add(fd, 1));
	number("leaves it alone", 1, take(fd));
	CALL("dup3 with a flag it does not know", "-1 EINVAL", dup3(other, fd, O_NONBLOCK));

	must(watch_new(set, fd, EPOLLIN, 'c'));
	int second = new_set();
	must(watch_new(second, other, EPOLLOUT, 'd'));
	yes("a set over a set", dup2(second, set) == set);
	show("it is the second now", "d=OUT", ready(set));
	CALL("one and the same", "-1 EEXIST", watch_new(set, other, EPOLLIN, 'd'));
	must(close(second));
	yes("a counter over a set", dup2(fd, set) == set);
	CALL("which is no set now", "-1 EINVAL", epoll_wait(set, (struct epoll_event[1]){{0}}, 1, 0));
	must(add(set, 3));
	number("but a counter", 3, take(other));
	must(close(set));
	must(close(fd));
	must(close(other));
	must(close(ends[0]));
	must(close(ends[1]));
}

static void show_ranges(void)
{
	heading("close_range(2) and closefrom(3)");
	int base = must(fcntl(0, F_DUPFD, 300)), fds[6];
	must(close(base));
	int set = new_set();
	for (int i = 0; i < 6; i++) {
		int fd = new_counter(1);
		fds[i] = must(fcntl(fd, F_DUPFD, 300 + i));
		must(close(fd));
		must(watch_new(set, fds[i], EPOLLIN, (char)('a' + i)));
	}
	show("six", "a=IN b=IN c=IN d=IN e=IN f=IN", sorted(set, 16, 0));
	CALL("close_range of none", "-1 EINVAL", close_range(301, 300, 0));
	CALL("close_range with a flag it does not know", "-1 EINVAL", close_range(300, 301, 1));
	show("all are there", "a=IN b=IN c=IN d=IN e=IN f=IN", sorted(set, 16, 0));
	CALL("close_range, two in the middle", "0", close_range(302, 303, 0));
	show("four", "a=IN b=IN e=IN f=IN", sorted(set, 16, 0));
	CALL("closed", "-1 EBADF", take(302));
	CALL("not closed", "1", take(304));
	CALL("CLOSE_RANGE_CLOEXEC", "0", close_range(300, 305, CLOSE_RANGE_CLOEXEC));
	CALL("marks them", "1", fcntl(300, F_GETFD));
	show("and closes none", "a=IN b=IN f=IN", sorted(set, 16, 0));
#ifdef WAKESET_EPOLL_H
	/* The C library does not see what syscall() closes. */
	CALL("close_range through syscall()", "0", close_range(305, ~0u, 0));
#else
	CALL("close_range through syscall()", "0", syscall(SYS_close_range, 305u, ~0u, 0));
#endif
	show("two", "a=IN b=IN", sorted(set, 16, 0));
	/*
	 * A table of its own: what is marked or closed there is not closed for other threads, and there
	 * are none.
	 */
	CALL("CLOSE_RANGE_UNSHARE", "0", close_range(301, 301, CLOSE_RANGE_UNSHARE));
	show("one", "a=IN", ready(set));
	closefrom(300);
	show("closefrom", "none", ready(set));
	CALL("closed", "-1 EBADF", take(300));
	int copy = must(fcntl(new_counter(4), F_DUPFD, 310));
	closefrom(310);
	CALL("closed", "-1 EBADF", take(copy));
	show("the set is there still", "none", ready(set));
	must(close(set));
}

/* ---- closing while others work ---- */

static atomic_int stop;
static int busy[2];

static void *write_and_read(void *argument)
{
	int fd = *(int *)argument;
	long long total = 0, taken = 0;
	while (!atomic_load(&stop)) {
		must(add(fd, 1));
		total++;
		if (total % 3 == 0)
			taken += take(fd);
	}
	long long rest = take(fd);
	return (void *)(intptr_t)(total - taken - (rest > 0 ? rest : 0));
}

static void *open_and_close(void *argument)
{
	int *rounds = argument;
	for (int i = 0; i < *rounds; i++) {
		int set = new_set(), fd = new_counter(0), copy = must(dup(fd));
		must(watch_new(set, fd, EPOLLIN, 'a'));
		must(watch_new(set, copy, EPOLLIN | EPOLLET, 'b'));
		must(add(copy, 1));
		must(close(fd));
		if (strcmp(sorted(set, 16, 0), "a=IN b=IN") != 0)
			return "lost";
		must(close(copy));
		if (strcmp(ready(set), "none") != 0)
			return "stale";
		must(close(set));
	}
	return "good";
}

static void show_concurrent(void)
{
	struct thread workers[2], closers[2];
	int rounds = 3000;
	heading("closing while others work");
	for (int i = 0; i < 2; i++) {
		busy[i] = new_counter(0);
		start(&workers[i], write_and_read, &busy[i]);
	}
	for (int i = 0; i < 2; i++)
		start(&closers[i], open_and_close, &rounds);
	for (int i = 0; i < 2; i++)
		show("what a thread that opens and closes saw", "good", finish(&closers[i]));
	atomic_store(&stop, 1);
	for (int i = 0; i < 2; i++) {
		number("what another's counter lost meanwhile", 0, (intptr_t)finish(&workers[i]));
		must(close(busy[i]));
	}
}

int main(void)
{
	show_close();
	show_dup2();
	show_ranges();
	show_concurrent();
	return verdict();
}
