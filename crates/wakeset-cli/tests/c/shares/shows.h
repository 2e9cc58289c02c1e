/*
 * What holds of the workers of `worker.h`.
 */
#ifndef SHARES_SHOWS_H
#define SHARES_SHOWS_H

static void open_many(int n)
{
	for (int i = 0; i < n; i++)
		open_one();
}

static void close_all_of(int worker)
{
	for (int i = open_connections - 1; i >= 0; i--)
		if (worker_of[i] == worker)
			close_one(i);
}

static void show_even(enum way way, enum kind of, int connections)
{
	printf("-- %s, %s, %d connections\n", way_names[way], kind_names[of], connections);
	begin(way, of);
	open_many(connections);
	print_held();
	yes("even", spread() <= 1);
	/* They come and go: one worker's are all closed, and some of the others'. */
	for (int i = open_connections - 1; i >= 0; i--)
		if (worker_of[i] == 1 || rand() % 3 == 0)
			close_one(i);
	for (int i = 0; i < 60; i++) {
		if (open_connections == 0 || rand() % 2)
			open_one();
		else
			close_one(rand() % open_connections);
	}
	open_many(connections - open_connections);
	print_held();
	yes("even after connections have come and gone", spread() <= 1);
	end();
}

/*
 * Workers with timers, most of which sleep at any moment: one whose timer is due takes no
 * connection that another should have, and is waited for if it should have it. How often in so
 * many turns the workers were uneven; the number of our own sleeps that ended late is added to.
 */
static int uneven_turns(enum way way, int turns, int *late)
{
	int uneven = 0;
	ticks = 1;
	begin(way, PROCESSES);
	open_many(100);
	for (int i = 0; i < turns; i++) {
		close_one(rand() % open_connections);
		double length = (3000 + rand() % 2000) / 1e6, before = seconds();
		usleep((useconds_t)(length * 1e6));
		*late += seconds() - before > length + 0.001;
		note_answer(connect_to(listener), seconds());
		uneven += spread() > 1;
	}
	print_held();
	printf("%d of %d times uneven, %d late so far\n", uneven, turns, *late);
	end();
	ticks = 0;
	return uneven;
}

/*
 * Without Wakeset they are uneven all the time. A worker that other programs keep from running for
 * longer than it is waited for gets nothing, so only a machine that is idle shows that it takes
 * its share.
 */
static void show_ticks(enum way way)
{
	enum { TURNS = 200, MOST_UNEVEN = TURNS / 8, MOST_WHERE_BUSY = TURNS * 3 / 4 };
	int uneven = TURNS, late = 0, tries = 0;
	printf("-- %s, workers with timers\n", way_names[way]);
	for (; uneven > MOST_UNEVEN && tries < 3; tries++)
		uneven = uneven_turns(way, TURNS, &late);
	int busy = late > tries * TURNS / 50;
	yes(busy ? "less uneven than without" : "hardly ever uneven",
	    uneven <= (busy ? MOST_WHERE_BUSY : MOST_UNEVEN));
}

/* The spread of the workers after the first. */
static int spread_of_rest(void)
{
	held[0] = held[1];
	return spread();
}

/*
 * The first worker ends, or stops, while it sleeps and holds less than the others: they step back
 * for it once each, and not for every connection.
 */
static void show_gone(enum way way, int signal_number, int keeps)
{
	enum { BEFORE = 24, AFTER = 30, MOST_SLOW = 12 };
	printf("-- %s, a worker that %s and holds %s\n", way_names[way],
	       signal_number == SIGKILL ? "is killed" : "stops", keeps ? "its share" : "nothing");
	begin(way, 0);
	open_many(BEFORE);
	if (!keeps)
		close_all_of(0);
	until_idle();
	must(kill(workers[0], signal_number));
	if (signal_number == SIGKILL)
		must(waitpid(workers[0], NULL, 0));
	until_idle();
	close_all_of(0);
	int slow = 0;
	for (int i = 0; i < AFTER; i++) {
		double before = longest;
		longest = 0;
		open_one();
		slow += longest > 0.018;
		longest = longest > before ? longest : before;
	}
	print_held();
	printf("%d slow ones\n", slow);
	yes("few connections wait", slow <= MOST_SLOW);
	yes("the rest are even", spread_of_rest() <= 1);
	if (signal_number == SIGKILL) {
		workers[0] = must(fork());
		if (workers[0] == 0)
			serve(way, 'a');
	}
	end();
}

/* All that this process shares with others, without a name: nothing of the program's own. */
static int find_shared(char **places, size_t *sizes, int most)
{
	char line[400];
	int n = 0;
	FILE *maps = fopen("/proc/self/maps", "re");
	while (maps && fgets(line, sizeof line, maps)) {
		unsigned long first, end;
		char flags[8];
		if (strstr(line, "memfd:wakeset-listeners") && n < most &&
		    sscanf(line, "%lx-%lx %7s", &first, &end, flags) == 3 && strcmp(flags, "rw-s") == 0) {
			places[n] = (char *)first;
			sizes[n++] = end - first;
		}
	}
	if (!maps)
		must(-1);
	must_be_zero(fclose(maps));
	return n;
}

enum rubbish { ONES, ZEROS, RANDOM, LIES, RUBBISHES };
static const char *const rubbish_names[] = {"ones", "zeros", "random bytes", "lies"};

/* Words that may well stand there: the time, nothing, and all bits. */
static void write_lies(uint64_t *place, size_t size)
{
	struct timespec now;
	must(clock_gettime(CLOCK_MONOTONIC, &now));
	uint64_t words[] = {(uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec, 0, UINT64_MAX};
	for (size_t at = 0; at < size / 8; at++)
		place[at] = words[rand() % 3];
}

static _Noreturn void write_rubbish(enum rubbish what)
{
	char *places[8];
	size_t sizes[8];
	int n = find_shared(places, sizes, 8);
	for (;;) {
		for (int i = 0; i < n && what == LIES; i++)
			write_lies((uint64_t *)(void *)places[i], sizes[i]);
		for (int i = 0; i < n && what != LIES; i++)
			for (size_t at = 0; at < sizes[i]; at++)
				places[i][at] = (char)(what == ONES ? 0xff : what == ZEROS ? 0 : rand());
		usleep(200);
	}
}

/* Whatever a process writes there, each connection is answered, and later they are even again. */
static void show_rubbish(enum way way, enum rubbish what)
{
	char *places[8];
	size_t sizes[8];
	printf("-- %s, %s over what is shared\n", way_names[way], rubbish_names[what]);
	begin(way, 0);
	yes("something is shared", find_shared(places, sizes, 8) > 0);
	open_many(10);
	pid_t vandal = must(fork());
	if (vandal == 0)
		write_rubbish(what);
	open_many(60);
	print_held();
	yes("none waits for longer than the rescue takes", longest < 2);
	must(kill(vandal, SIGKILL));
	must(waitpid(vandal, NULL, 0));
	/* Each worker says once in a second that it waits. */
	usleep(1200000);
	int behind = 3 * spread() + 40;
	open_many(behind < MOST_OPEN - open_connections ? behind : MOST_OPEN - open_connections);
	print_held();
	yes("even again", spread() <= 1);
	end();
}

static void signal_all(int signal_number)
{
	for (int i = 0; i < WORKERS; i++)
		must(kill(workers[i], signal_number));
}

/* All are woken at a time, and the first to run finds connections for all; how many the one that
 * has most has taken. */
static int most_of_burst(enum way way, int connections)
{
	int clients[MOST_OPEN], most = 0;
	begin(way, 0);
	until_idle();
	signal_all(SIGSTOP);
	until_idle();
	for (int i = 0; i < connections; i++)
		clients[i] = connect_to(listener);
	double begun = seconds();
	signal_all(SIGCONT);
	for (int i = 0; i < connections; i++)
		note_answer(clients[i], begun);
	print_held();
	for (int i = 0; i < WORKERS; i++)
		most = held[i] > most ? held[i] : most;
	end();
	return most;
}

/* On average, because the first may have taken several before the second has begun to run. */
static void show_burst(enum way way)
{
	enum { BURSTS = 6, EACH = 5 * WORKERS };
	int sum = 0;
	printf("-- %s, all workers are woken at a time\n", way_names[way]);
	accepts_all = 1;
	for (int i = 0; i < BURSTS; i++)
		sum += most_of_burst(way, EACH);
	yes("none takes more than half", sum * 2 <= BURSTS * EACH);
	accepts_all = 0;
}

/*
 * How long a worker that holds too many leaves a connection to another, which may not have run by
 * then: the machine may have more to do.
 */
#define LEFT_FOR 0.02

/* Opens so many, and says how many a worker took that had as many as it may, although another had
 * fewer and it had not left the connection to that one. */
static int taken_by_full(int connections, int most)
{
	int taken = 0;
	for (int i = 0; i < connections; i++) {
		double before = longest;
		int full = 0;
		for (int worker = 0; worker < WORKERS; worker++)
			full += held[worker] >= most;
		longest = 0;
		int worker = open_one();
		taken += full < WORKERS && held[worker] > most && longest < LEFT_FOR;
		longest = longest > before ? longest : before;
	}
	print_held();
	return taken;
}

/* None holds more than `most` while another holds less; then they do. How many did before. */
static int fill(enum way way, int threads, int most)
{
	printf("-- %s, %s, %d connections each\n", way_names[way], threads ? "threads" : "processes",
	       most);
	begin(way, threads);
	int taken = taken_by_full(WORKERS * most, most);
	open_many(WORKERS);
	print_held();
	yes("more are answered too", open_connections == WORKERS * (most + 1));
	close_all_of(2);
	until_idle();
	taken += taken_by_full(most, most);
	end();
	return taken;
}

static void show_most(enum way way, int threads, int most)
{
	int taken = fill(way, threads, most);
	/* One whose connection another has taken, between the look and accept(2), sleeps in the kernel,
	   where nobody knows that it is free. */
	for (int again = 0; taken && way == ACCEPT && again < 2; again++)
		taken = fill(way, threads, most);
	number("taken by full ones while others are free", 0, taken);
}

#endif
