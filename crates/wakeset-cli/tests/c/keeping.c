/*
 * Who gets the next connection where the order depends on what a worker holds (--order auto): one
 * that has closed what it accepted keeps its place for 32 connections, and one that still holds
 * some goes to the end of the queue at once. The client asks when all workers are asleep, so that
 * only the queue decides.
 */
#include "listening.h"
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/select.h>

enum { TURN = 32, MOST_WORKERS = 8, MOST_HELD = 200 };

enum way { SELECT, POLL, EPOLL, WAYS };
static const char *const way_names[] = {"select", "poll", "epoll"};

/* What a worker does with a connection once it has answered. */
enum how { CLOSES, CLOSES_IN_LIBC, CLOSES_BY_DUP2, CLOSES_RANGE, CLOSES_BY_THREAD, KEEPS };
static const char *const how_names[] = {
	"closes", "closes inside libc", "closes by dup2", "closes a range", "closes by another thread",
	"keeps open",
};

static int listener, count;
static pid_t workers[MOST_WORKERS];
static int held[MOST_WORKERS];

static int wait_for_connection(enum way way, int set, int other)
{
	struct pollfd fds[] = {{listener, POLLIN, 0}, {other, POLLIN, 0}};
	struct epoll_event event;
	fd_set read;
	switch (way) {
	case SELECT:
		FD_ZERO(&read);
		FD_SET(listener, &read);
		FD_SET(other, &read);
		must(select((listener > other ? listener : other) + 1, &read, NULL, NULL, NULL));
		return FD_ISSET(listener, &read);
	case POLL:
		must(poll(fds, 2, -1));
		return fds[0].revents != 0;
	default:
		must(epoll_wait(set, &event, 1, -1));
		return event.data.u64 == 'l';
	}
}

static void *close_one(void *fd)
{
	must(close((int)(intptr_t)fd));
	return NULL;
}

static void end_connection(int fd, enum how how)
{
	pthread_t thread;
	switch (how) {
	case CLOSES:
		must(close(fd));
		break;
	case CLOSES_IN_LIBC:
		if (fclose(fdopen(fd, "r")) != 0)
			must(-1);
		break;
	case CLOSES_BY_DUP2:
		must(dup2(STDERR_FILENO, fd));
		must(close(fd));
		break;
	case CLOSES_RANGE:
		must(close_range((unsigned)fd, (unsigned)fd, 0));
		break;
	case CLOSES_BY_THREAD:
		must_be_zero(pthread_create(&thread, NULL, close_one, (void *)(intptr_t)fd));
		/* Awake, so that the client does not take it for idle. */
		while (pthread_tryjoin_np(thread, NULL) == EBUSY)
			sched_yield();
		break;
	default:
		break;
	}
}

/* On a byte in `drops`, a worker closes all that it has kept. */
static _Noreturn void serve(int worker, enum way way, enum how how, int drops)
{
	int kept[MOST_HELD], n = 0, set = must(epoll_create1(EPOLL_CLOEXEC));
	must(watch_new(set, listener, EPOLLIN, 'l'));
	must(watch_new(set, drops, EPOLLIN, 'd'));
	for (;;) {
		char byte = (char)('a' + worker);
		if (!wait_for_connection(way, set, drops)) {
			must(read(drops, &byte, 1));
			while (n > 0)
				must(close(kept[--n]));
			how = CLOSES;
			continue;
		}
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd == -1)
			continue;
		must(write(fd, &byte, 1));
		end_connection(fd, how);
		if (how == KEEPS && n < MOST_HELD)
			kept[n++] = fd;
	}
}

static void begin(int family, int n, enum way way, enum how how, const int *drops)
{
	listener = listen_on(family);
	count = n;
	for (int i = 0; i < n; i++) {
		held[i] = 0;
		workers[i] = must(fork());
		if (workers[i] == 0)
			serve(i, way, how, drops[2 * i]);
	}
}

static void end(void)
{
	kill_workers(workers, count);
	must(close(listener));
}

/* Until all workers are asleep, several times in a row. */
static void until_idle(void)
{
	for (int in_a_row = 0; in_a_row < 2;) {
		int asleep = 1;
		for (int i = 0; i < count; i++) {
			char path[64], line[256] = "";
			snprintf(path, sizeof path, "/proc/%d/stat", (int)workers[i]);
			FILE *file = fopen(path, "re");
			if (file && fgets(line, sizeof line, file)) {
				char *name = strrchr(line, ')');
				asleep &= name && name[1] == ' ' && name[2] == 'S';
			}
			if (file)
				fclose(file);
		}
		in_a_row = asleep ? in_a_row + 1 : 0;
		if (!asleep)
			usleep(50);
	}
}

/* The worker that answers; the client's end is stored. */
static int ask_one(int *client)
{
	char answer = 0;
	until_idle();
	*client = connect_to(listener);
	must(read(*client, &answer, 1));
	int worker = answer - 'a';
	if (worker < 0 || worker >= count)
		must(-1);
	held[worker]++;
	return worker;
}

static void spread(int *least, int *most)
{
	*least = *most = held[0];
	for (int i = 1; i < count; i++) {
		*least = held[i] < *least ? held[i] : *least;
		*most = held[i] > *most ? held[i] : *most;
	}
}

/* So many requests, and how often another worker than the one before has answered. */
static int changes_in(int requests)
{
	int changes = 0;
	for (int i = 0, before = -1; i < requests; i++) {
		int client, worker = ask_one(&client);
		must(close(client));
		changes += i > 0 && worker != before;
		before = worker;
	}
	return changes;
}

static void make_drops(int *drops, int n)
{
	for (int i = 0; i < n; i++)
		must(pipe2(drops + 2 * i, O_CLOEXEC));
}

static void close_drops(const int *drops, int n)
{
	for (int i = 0; i < n; i++)
		close_both(drops + 2 * i);
}

/* Turns of 32, so the same worker for most requests, and all workers in the long run. */
static void show_closed(enum way way, enum how how, int n, int requests)
{
	int drops[2 * MOST_WORKERS], least, most;
	printf("-- %s, a worker that %s\n", way_names[way], how_names[how]);
	make_drops(drops, n);
	begin(AF_UNIX, n, way, how, drops);
	int changes = changes_in(requests);
	spread(&least, &most);
	printf("%d changes, %d to %d each\n", changes, least, most);
	yes("it keeps its place", changes <= requests / TURN + requests / 20);
	if (requests >= 2000)
		yes("even in the long run", most * 4 <= least * 5);
	end();
	close_drops(drops, n);
}

/* Connections that stay open are dealt out, and once a worker has closed all it keeps its place. */
static void show_kept(enum way way, int connections)
{
	enum { GROUP = 4 };
	int drops[2 * GROUP], clients[MOST_HELD], least, most;
	printf("-- %s, %d connections that are kept open\n", way_names[way], connections);
	make_drops(drops, GROUP);
	begin(AF_UNIX, GROUP, way, KEEPS, drops);
	for (int i = 0; i < connections; i++)
		ask_one(&clients[i]);
	spread(&least, &most);
	printf("%d to %d each\n", least, most);
	yes("even", most - least <= 1);
	for (int i = 0; i < GROUP; i++)
		must(write(drops[2 * i + 1], "d", 1));
	for (int i = 0; i < connections; i++)
		must(close(clients[i]));
	int changes = changes_in(3 * TURN);
	printf("%d changes\n", changes);
	yes("it keeps its place again", changes <= 8);
	end();
	close_drops(drops, GROUP);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	for (int way = 0; way < WAYS; way++) {
		for (int how = CLOSES; how < KEEPS; how++)
			show_closed(way, how, 4, 4 * TURN);
		show_kept(way, 100);
		show_kept(way, 101);
	}
	show_closed(SELECT, CLOSES, 8, 2000);
	return verdict();
}
