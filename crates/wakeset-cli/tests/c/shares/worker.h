/*
 * Workers that keep what they accept, each until its client closes, and clients that know which
 * worker has answered them.
 */
#ifndef SHARES_WORKER_H
#define SHARES_WORKER_H

enum way { SELECT, POLL, LEVEL, EDGE, EXCLUSIVE, ACCEPT, WAYS };
static const char *const way_names[] = {
	"select", "poll", "epoll by level", "epoll by edge", "EPOLLEXCLUSIVE", "accept",
};

enum { WORKERS = 4, MOST_OPEN = 400, ENDS = WORKERS };

/* What the workers are: forked; threads; or executed, and passed the listener by number, on which
 * they call listen(2) themselves, as Python's are, or in a message, as Node's are. */
enum kind { PROCESSES, THREADS, EXECUTED, SENT };
static const char *const kind_names[] = {"processes", "threads", "executed", "executed and sent"};

static int listener;
static enum kind kind;
/* Whether a worker accepts until there is nothing left, as event loops do. */
static int accepts_all;
/* Whether a worker has something else to do every few milliseconds, as event loops with timers do:
 * it looks without a sleep, works, and looks again. */
static int ticks;
static pid_t workers[WORKERS];
/* Of the client: its connections, and which worker has each. */
static int open_connections, client_of[MOST_OPEN], worker_of[MOST_OPEN], held[WORKERS];
/* The longest wait for an answer. */
static double longest;

static double seconds(void)
{
	struct timespec now;
	must(clock_gettime(CLOCK_MONOTONIC, &now));
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Watches what a worker keeps, for the end of it; closes what has ended. */
struct keeper {
	int set;
};

static void drop_ended(int set)
{
	struct epoll_event events[16];
	int n = must(epoll_wait(set, events, 16, 0));
	for (int i = 0; i < n; i++)
		must(close(events[i].data.fd));
}

static void keep(int set, int fd, char name)
{
	must(watch_new(set, fd, EPOLLIN | EPOLLRDHUP, (unsigned)fd));
	must(write(fd, &name, 1));
}

static int accept_one(int set, char name)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd == -1)
		return 0;
	keep(set, fd, name);
	return 1;
}

static void accept_some(int set, char name, int all)
{
	while (accept_one(set, name) && all)
		;
}

/* In accept(2) a worker cannot see that connections end: a thread of its own closes them. */
static void *close_ended(void *set)
{
	for (;;) {
		struct pollfd ended = {*(int *)set, POLLIN, 0};
		must(poll(&ended, 1, -1));
		drop_ended(*(int *)set);
	}
	return NULL;
}

static void work(double length)
{
	for (double end = seconds() + length; seconds() < end;)
		;
}

static void serve_events(enum way way, int kept, char name, const struct epoll_event *events, int n)
{
	for (int i = 0; i < n; i++) {
		if (events[i].data.u64 == 'k')
			drop_ended(kept);
		else
			accept_some(kept, name, accepts_all || way == EDGE);
	}
}

static void tick(enum way way, int own, int kept, char name)
{
	struct epoll_event events[3];
	work(0.0001);
	int n = must(epoll_wait(own, events, 3, 0));
	serve_events(way, kept, name, events, n);
	work(0.0001);
}

static void wait_and_serve(enum way way, int own, int kept, char name)
{
	struct pollfd fds[] = {{listener, POLLIN, 0}, {kept, POLLIN, 0}};
	struct epoll_event events[2];
	fd_set read;
	int n;
	switch (way) {
	case SELECT:
		FD_ZERO(&read);
		FD_SET(listener, &read);
		FD_SET(kept, &read);
		must(select((listener > kept ? listener : kept) + 1, &read, NULL, NULL, NULL));
		if (FD_ISSET(kept, &read))
			drop_ended(kept);
		if (FD_ISSET(listener, &read))
			accept_some(kept, name, accepts_all);
		break;
	case POLL:
		must(poll(fds, 2, -1));
		if (fds[1].revents)
			drop_ended(kept);
		if (fds[0].revents)
			accept_some(kept, name, accepts_all);
		break;
	case ACCEPT:
		accept_one(kept, name);
		break;
	default:
		/* It ends when the process is stopped and goes on. */
		n = epoll_wait(own, events, 2, ticks ? 2 + rand() % 4 : -1);
		serve_events(way, kept, name, events, n);
		if (ticks && n == 0)
			tick(way, own, kept, name);
	}
}

static _Noreturn void serve(enum way way, char name)
{
	int own = must(epoll_create1(EPOLL_CLOEXEC)), kept = must(epoll_create1(EPOLL_CLOEXEC));
	unsigned how = way == EDGE ? EPOLLET : way == EXCLUSIVE ? EPOLLEXCLUSIVE : 0;
	if (way == LEVEL || way == EDGE || way == EXCLUSIVE) {
		must(watch_new(own, kept, EPOLLIN, 'k'));
		must(watch_new(own, listener, EPOLLIN | how, 'l'));
	}
	pthread_t closer;
	if (way == ACCEPT)
		must_be_zero(pthread_create(&closer, NULL, close_ended, &kept));
	for (;;)
		wait_and_serve(way, own, kept, name);
}

struct task {
	enum way way;
	char name;
};

static void *serve_in_thread(void *given)
{
	struct task *task = given;
	serve(task->way, task->name);
	return NULL;
}

static _Noreturn void serve_in_threads(enum way way)
{
	static struct task tasks[WORKERS];
	pthread_t threads[WORKERS];
	for (int i = 0; i < WORKERS; i++) {
		tasks[i] = (struct task){way, (char)('a' + i)};
		must_be_zero(pthread_create(&threads[i], NULL, serve_in_thread, &tasks[i]));
	}
	for (;;)
		pause();
}

/* A worker that was executed: its end of a pair, over which the listener comes, or the listener. */
static _Noreturn void serve_executed(char **arguments)
{
	int passed = atoi(arguments[4]);
	kind = (enum kind)atoi(arguments[3]);
	listener = kind == SENT ? receive(passed) : passed;
	must(listen(listener, 100));
	serve((enum way)atoi(arguments[1]), *arguments[2]);
}

static _Noreturn void execute(enum way way, char name, int passed)
{
	char words[4][16] = {"", {name}, "", ""};
	sprintf(words[0], "%d", (int)way);
	sprintf(words[2], "%d", (int)kind);
	sprintf(words[3], "%d", passed);
	must(fcntl(passed, F_SETFD, 0));
	/* As a server does that knows nothing of what is open besides. */
	for (int fd = 3; fd < 1024; fd++)
		if (fd != passed)
			close(fd);
	execl("/proc/self/exe", "shares", "worker", words[0], words[1], words[2], words[3], (char *)NULL);
	_exit(must(-1));
}

/* The listener is sent once the worker is executed, as it is made then. */
static pid_t begin_executed(enum way way, char name)
{
	int ends[2];
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
	pid_t worker = must(fork());
	if (worker == 0)
		execute(way, name, kind == SENT ? ends[1] : listener);
	if (kind == SENT)
		must(pass(ends[0], listener));
	/* What was passed is still to be read. */
	must(close(ends[0]));
	must(close(ends[1]));
	return worker;
}

static void begin(enum way way, enum kind of)
{
	int threads = of == THREADS;
	kind = of;
	listener = of < EXECUTED ? listen_on(AF_UNIX) : bind_on(AF_UNIX);
	longest = 0;
	if (way == ACCEPT)
		must(set_blocking(listener));
	for (int i = 0; i < WORKERS; i++)
		held[i] = 0;
	for (int i = 0; i < (threads ? 1 : WORKERS); i++) {
		workers[i] =
			of < EXECUTED ? must(fork()) : begin_executed(way, (char)('a' + i));
		if (workers[i] == 0 && threads)
			serve_in_threads(way);
		else if (workers[i] == 0)
			serve(way, (char)('a' + i));
	}
	usleep(of < EXECUTED ? 100000 : 300000);
}

static void end(void)
{
	kill_workers(workers, kind == THREADS ? 1 : WORKERS);
	while (open_connections > 0)
		must(close(client_of[--open_connections]));
	must(close(listener));
}

/* Whether a thread sleeps. */
static int sleeps(const char *path)
{
	char line[256] = "";
	FILE *file = fopen(path, "re");
	if (!file)
		return 1;
	const char *name = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
	must_be_zero(fclose(file));
	return name && strchr("STZ", name[2]) != NULL;
}

static int all_sleep(void)
{
	for (int i = 0; i < ((kind == THREADS) ? 1 : WORKERS); i++) {
		char path[400];
		snprintf(path, sizeof path, "/proc/%d/task", (int)workers[i]);
		DIR *threads = opendir(path);
		for (struct dirent *entry; threads && (entry = readdir(threads));) {
			snprintf(path, sizeof path, "/proc/%d/task/%s/stat", (int)workers[i], entry->d_name);
			if (entry->d_name[0] != '.' && !sleeps(path)) {
				must(closedir(threads));
				return 0;
			}
		}
		if (threads)
			must(closedir(threads));
	}
	return 1;
}

/* Until all workers sleep, several times in a row: none is on its way to or from a connection. */
static void until_idle(void)
{
	for (int in_a_row = 0; in_a_row < 2;) {
		in_a_row = all_sleep() ? in_a_row + 1 : 0;
		if (in_a_row == 0)
			usleep(50);
	}
}

/* This connection, which was made then, is answered; the worker that has it. */
static int note_answer(int client, double begun)
{
	char answer = 0;
	must(read(client, &answer, 1));
	double waited = seconds() - begun;
	longest = waited > longest ? waited : longest;
	int worker = answer - 'a';
	if (worker < 0 || worker >= WORKERS)
		must(-1);
	client_of[open_connections] = client;
	worker_of[open_connections++] = worker;
	held[worker]++;
	return worker;
}

/* One more connection; the worker that has it. */
static int open_one(void)
{
	until_idle();
	double begun = seconds();
	int client = connect_to(listener);
	return note_answer(client, begun);
}

static void close_one(int which)
{
	held[worker_of[which]]--;
	must(close(client_of[which]));
	open_connections--;
	client_of[which] = client_of[open_connections];
	worker_of[which] = worker_of[open_connections];
}

static int spread(void)
{
	int least = held[0], most = held[0];
	for (int i = 1; i < WORKERS; i++) {
		least = held[i] < least ? held[i] : least;
		most = held[i] > most ? held[i] : most;
	}
	return most - least;
}

static void print_held(void)
{
	printf("held:");
	for (int i = 0; i < WORKERS; i++)
		printf(" %d", held[i]);
	printf(", longest wait %.1f ms\n", longest * 1000);
}

#endif
