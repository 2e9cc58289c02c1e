/*
 * For `home.c`: loops with a wake-up and a pipe, whose children let everything come home.
 */
#ifndef HOME_LOOPS_H
#define HOME_LOOPS_H

/* A turn of a loop: a wake-up is written, waited for, and read; whether all of that was right. */
static int turn(int set, int counter)
{
	struct epoll_event events[4];
	must(add(counter, 2));
	int in_process = lives_here && in_kernel(counter) == 0;
	if (epoll_wait(set, events, 4, 5000) != 1 || events[0].data.u64 != 'c' ||
	    take(counter) != 2 || epoll_wait(set, events, 4, 0) != 0)
		give_up();
	return in_process;
}

static int nothing_at_all(void *unused)
{
	(void)unused;
	return 0;
}

/* The set of the loop. */
static int looped;

/* A set cannot be read, so this shows it to nobody. */
static int read_the_set(void *fd)
{
	uint64_t value;
	return read(looped, &value, 8) != -1 || errno != EINVAL || read_it(fd) != -1;
}

static int read_the_set_late(void *fd)
{
	sleep_ms(1300);
	return read_the_set(fd) || write_three(fd);
}

/* A loop with a wake-up and a pipe of the kernel's, whose child writes, or names the set, too. */
static void loop(const char *name, int (*act)(void *), uint32_t events, long long left)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC)), ends[2], tries = 0;
	int counter = must(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	kernel_pipe(ends, O_CLOEXEC);
	looped = set;
	struct epoll_event event = { .events = events, .data.u64 = 'c' }, found[4];
	must(epoll_ctl(set, EPOLL_CTL_ADD, counter, &event));
	event = (struct epoll_event){ .events = EPOLLIN, .data.u64 = 'p' };
	must(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
	number(name, 0, in_child(act, &counter));
	number("  reports", left > 0, epoll_wait(set, found, 4, 0));
	number("  holds", left > 0 ? left : -1, take(counter));
	while (!turn(set, counter) && lives_here && tries++ < 2000)
		sleep_ms(1);
	turn(set, counter);
	must(write(ends[1], "x", 1));
	must(add(counter, 1));
	number("  reports both", 2, epoll_wait(set, found, 4, 0));
	number("  reports no more", events & EPOLLET ? 1 : 2, epoll_wait(set, found, 4, 0));
	must(epoll_ctl(set, EPOLL_CTL_DEL, counter, NULL));
	number("  and of the pipe alone", 1, epoll_wait(set, found, 4, 0));
	must(close(counter));
	must(close(set));
	must(close(ends[0]));
	must(close(ends[1]));
}

static int read_too_little(void *fd)
{
	uint64_t value;
	return read(*(int *)fd, &value, 4) != -1 || errno != EINVAL;
}

/* An edge of what has come home is reported, and then it goes again. */
static void edge_goes_again(void)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC)), tries = 0;
	int counter = must(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.u64 = 'c' }, found;
	must(epoll_ctl(set, EPOLL_CTL_ADD, counter, &event));
	for (int i = 0; i < 3; i++) {
		number("a child that finds an edge", 0, in_child(write_three, &counter));
		number("  reports", 1, epoll_wait(set, &found, 1, 0));
		number("  holds", 3, take(counter));
		while (!turn(set, counter) && lives_here && tries++ < 2000)
			sleep_ms(1);
		must(add(counter, 1));
		number("  reports the next", 1, epoll_wait(set, &found, 1, 0));
		number("  a child looks", 0, in_child(read_too_little, &counter));
		number("  no more is reported", 0, epoll_wait(set, &found, 1, 0));
		number("  holds", 1, take(counter));
	}
	must(close(counter));
	must(close(set));
}

static void *wait_for_three_seconds(void *set)
{
	struct epoll_event event;
	return (void *)(intptr_t)epoll_wait(*(int *)set, &event, 1, 3000);
}

/* A wait that has begun before the set migrates, and sleeps on. */
static void sleeping_loop(void)
{
	int set = looped = must(epoll_create1(EPOLL_CLOEXEC));
	int counter = must(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 'c' };
	struct thread waiter;
	int found = 0;
	must(epoll_ctl(set, EPOLL_CTL_ADD, counter, &event));
	start(&waiter, wait_for_three_seconds, &set);
	until_asleep(waiter.id);
	number("a child beside a wait", 0, in_child(read_the_set, &counter));
	for (int i = 0; i < 50; i++) {
		found += epoll_wait(set, &event, 1, 0);
		sleep_ms(1);
	}
	number("  nothing yet", 0, found);
	must(add(counter, 1));
	number("  the wait finds it", 1, (long long)(intptr_t)finish(&waiter));
	number("  and holds", 1, take(counter));
	must(close(counter));
	must(close(set));
}

static void loops(int long_ones)
{
	heading("a loop");
	loop("a child that does nothing", nothing_at_all, EPOLLIN, 0);
	loop("a child that writes", write_three, EPOLLIN, 3);
	loop("a child that writes, with edges", write_three, EPOLLIN | EPOLLET, 3);
	if (!long_ones) {
		edge_goes_again();
		return;
	}
	loop("a child that names the set", read_the_set, EPOLLIN, 0);
	loop("a child that names it late", read_the_set_late, EPOLLIN, 3);
	sleeping_loop();
}

#endif
