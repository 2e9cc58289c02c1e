/*
 * Random duplicates and closes, each beside a model of what the numbers stand for. Comes after the
 * helpers of duplicates.c.
 */
#ifndef DUPLICATES_RANDOM_H
#define DUPLICATES_RANDOM_H

/* A model: which object each number stands for, what each counter holds. */
enum { NUMBERS = 24, OBJECTS = 24, FIRST = 60 };
static int at[NUMBERS];
static struct {
	int numbers;
	uint64_t holds;
	unsigned watched;
} objects[OBJECTS];

static uint32_t random_state = 1;
static uint32_t next_random(uint32_t below)
{
	random_state = random_state * 1664525 + 1013904223;
	return (uint32_t)(((uint64_t)random_state * below) >> 32);
}

/* The close of a number, and what it ends. */
static void lose(int i)
{
	int object = at[i];
	at[i] = -1;
	if (object >= 0 && --objects[object].numbers == 0)
		objects[object].watched = 0;
}

static int free_object(void)
{
	for (int i = 0; i < OBJECTS; i++)
		if (objects[i].numbers == 0)
			return i;
	return -1;
}

static void random_step(int *sets, long *wrong)
{
	int i = (int)next_random(NUMBERS), j = (int)next_random(NUMBERS), fd = FIRST + i;
	int set = sets[next_random(2)];
	switch (next_random(8)) {
	case 0: {
		int object = free_object();
		if (object < 0)
			break;
		int made = new_counter();
		/* The number that it is made with is one of the range. */
		must(dup2(made, fd));
		must(close(made));
		lose(i);
		at[i] = object;
		objects[object].numbers = 1;
		objects[object].holds = 0;
		break;
	}
	case 1:
	case 2:
		if (i != j) {
			int got = dup2(FIRST + j, fd);
			*wrong += (got == fd) != (at[j] >= 0);
			if (got == fd && at[i] != at[j]) {
				objects[at[j]].numbers++;
				lose(i);
				at[i] = at[j];
			}
		}
		break;
	case 3:
		*wrong += (close(fd) == 0) != (at[i] >= 0);
		lose(i);
		break;
	case 4:
		*wrong += (add(fd, 1) == 8) != (at[i] >= 0);
		if (at[i] >= 0)
			objects[at[i]].holds++;
		break;
	case 5: {
		uint64_t holds = at[i] >= 0 ? objects[at[i]].holds : 0;
		*wrong += take(fd) != (holds ? (long long)holds : -1);
		if (at[i] >= 0)
			objects[at[i]].holds = 0;
		break;
	}
	case 6: {
		/* Only the first set is in the model. */
		int done = ctl(sets[0], EPOLL_CTL_ADD, fd, EPOLLIN, (uint64_t)i);
		int want = at[i] < 0 ? EBADF : objects[at[i]].watched >> i & 1 ? EEXIST : 0;
		*wrong += want ? done == 0 || errno != want : done != 0;
		if (want == 0)
			objects[at[i]].watched |= 1U << i;
		break;
	}
	default: {
		struct epoll_event events[NUMBERS * 4];
		int n = epoll_wait(set, events, NUMBERS * 4, 0), want = 0;
		for (int object = 0; object < OBJECTS; object++)
			if (objects[object].numbers && objects[object].holds)
				want += __builtin_popcount(objects[object].watched);
		*wrong += n != want;
	}
	}
}

static void go(int steps, int *sets, long *wrong)
{
	for (int i = 0; i < NUMBERS; i++)
		at[i] = -1;
	for (int step = 0; step < steps; step++)
		random_step(sets, wrong);
	for (int i = 0; i < NUMBERS; i++)
		if (at[i] >= 0) {
			must(close(FIRST + i));
			lose(i);
		}
}

static void show_random(int steps)
{
	heading("at random");
	int sets[2] = {new_set(), 0};
	sets[1] = must(fcntl(sets[0], F_DUPFD_CLOEXEC, 0));
	long wrong = 0;
	go(steps / 10, sets, &wrong);
	int before = open_numbers();
	long pages = resident();
	go(steps, sets, &wrong);
	number("differences", 0, wrong);
	/* Fewer are no fault: what served an earlier child may have ended since. */
	int left = open_numbers() - before;
	number("descriptors left over", 0, left > 0 ? left : 0);
	yes("no memory left over", resident() - pages < 64);
	number("ready", 0, digits_of(sets[1]));
	must(close(sets[0]));
	must(close(sets[1]));
}

#endif
