/*
 * Asks a server on 127.0.0.1 from several clients, each of which asks again when it has its answer,
 * and prints one line of JSON: how many answers, how long they took, and which process gave them.
 *
 *     load PORT CLIENTS SECONDS short|kept[:RATE] REQUEST...
 *
 * Each REQUEST is a file with the bytes to send; of several, one is drawn by lot. An answer has the
 * process id of its worker as the first word of its body. With `short`, each request has a
 * connection of its own, and is over when the server closes that. With `kept`, a client keeps its
 * connection, and an answer ends where its Content-Length or its last chunk says. A connection that
 * ends without a whole answer, or with a refusal (503), is broken, but for one that was kept: that
 * request is made again. A client whose connection is refused ends.
 *
 * With a rate, so many requests begin each second, those of a client at even intervals: one whose
 * answer is late asks for the next one late, and how long that took is counted from when it was
 * due. Otherwise a worker that is slow would be asked less often, and would hardly show.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_CLIENTS = 1024, MOST_REQUESTS = 8, MOST_WORKERS = 512, ROOM = 16384 };

struct client {
	int fd, waits;
	/* How many answers its connection has had. */
	int had;
	double begun, due;
	size_t got;
	char reply[ROOM];
};

static struct client clients[MOST_CLIENTS];
static char *requests[MOST_REQUESTS];
static size_t lengths[MOST_REQUESTS];
static int request_count, keeps, port, set;
/* Seconds between two requests of a client; 0 for none. */
static double interval;
static long workers[MOST_WORKERS], answers_of[MOST_WORKERS];
static int worker_count;
static double *times;
static size_t answers, room, broken, wrong, refused;

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fail(const char *what)
{
	perror(what);
	exit(2);
}

static void connect_client(struct client *client)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int yes = 1;
	client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	client->had = 0;
	if (client->fd == -1)
		fail("socket");
	setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	if (connect(client->fd, (struct sockaddr *)&address, sizeof address) == -1) {
		if (errno != ECONNREFUSED)
			fail("connect");
		/* The server has ended. */
		close(client->fd);
		client->fd = -1;
		refused++;
		return;
	}
	struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = client}};
	if (epoll_ctl(set, EPOLL_CTL_ADD, client->fd, &event) == -1)
		fail("epoll_ctl");
}

/* Whether there is a server to ask. */
static int ask_again(struct client *client)
{
	if (client->fd == -1)
		connect_client(client);
	if (client->fd == -1)
		return 0;
	client->got = 0;
	int which = request_count > 1 ? rand() % request_count : 0;
	/* It fits into the socket; one that has been closed meanwhile shows when it is read. */
	if (send(client->fd, requests[which], lengths[which], MSG_NOSIGNAL) == -1 && errno != EPIPE &&
	    errno != ECONNRESET)
		fail("send");
	return 1;
}

static int ask(struct client *client)
{
	client->begun = interval > 0 ? client->due : seconds();
	client->due += interval;
	return ask_again(client);
}

static void note_worker(const char *body)
{
	long pid = strtol(body, NULL, 10);
	int i = 0;
	while (i < worker_count && workers[i] != pid)
		i++;
	if (pid <= 0 || i == MOST_WORKERS) {
		wrong++;
		return;
	}
	if (i == worker_count)
		workers[worker_count++] = pid;
	answers_of[i]++;
}

/* Where the body begins, NULL if the head is not whole. */
static char *body_of(struct client *client)
{
	char *end = memmem(client->reply, client->got, "\r\n\r\n", 4);
	return end ? end + 4 : NULL;
}

static int is_chunked(const struct client *client, const char *body)
{
	const char *field = strcasestr(client->reply, "\r\ntransfer-encoding: chunked");
	return field && field < body;
}

/* Whether the answer on a kept connection is whole. */
static int is_whole(struct client *client)
{
	char *body = body_of(client);
	if (!body)
		return 0;
	if (is_chunked(client, body))
		return client->got >= 5 && memcmp(client->reply + client->got - 5, "0\r\n\r\n", 5) == 0;
	const char *field = strcasestr(client->reply, "\r\ncontent-length:");
	return field && field < body && client->reply + client->got >= body + atol(field + 17);
}

/* Whether the server has said that it cannot answer. */
static int is_refusal(const struct client *client)
{
	return strncmp(client->reply, "HTTP/1.", 7) == 0 && client->reply[9] != '2';
}

/* Whether the connection has ended before the length that the answer says it has. */
static int is_cut(struct client *client, const char *body)
{
	const char *field = strcasestr(client->reply, "\r\ncontent-length:");
	return field && field < body && client->reply + client->got < body + atol(field + 17);
}

static void note_answer(struct client *client)
{
	char *body = body_of(client);
	if (!body || !*body || is_refusal(client) || is_cut(client, body)) {
		broken++;
		return;
	}
	if (is_chunked(client, body)) {
		char *line = strstr(body, "\r\n");
		body = line ? line + 2 : body;
	}
	note_worker(body);
	if (answers == room) {
		room = room ? 2 * room : 4096;
		times = realloc(times, room * sizeof *times);
		if (!times)
			fail("realloc");
	}
	times[answers++] = seconds() - client->begun;
}

/* Reads what is there; whether the answer is over. */
static int hear(struct client *client)
{
	ssize_t n = recv(client->fd, client->reply + client->got, ROOM - 1 - client->got, 0);
	if (n > 0) {
		client->got += (size_t)n;
		client->reply[client->got] = '\0';
		if (!(keeps && is_whole(client)))
			return 0;
		client->had++;
		note_answer(client);
		return 1;
	}
	close(client->fd);
	client->fd = -1;
	/* A server may close a connection that it has kept, as the request comes. */
	if (keeps && client->had && client->got == 0 && ask_again(client))
		return 0;
	note_answer(client);
	return 1;
}

static void load_request(const char *path)
{
	FILE *file = fopen(path, "re");
	requests[request_count] = malloc(ROOM);
	if (!file || !requests[request_count])
		fail(path);
	lengths[request_count] = fread(requests[request_count], 1, ROOM, file);
	request_count++;
	fclose(file);
}

static int by_time(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;
	return (a > b) - (a < b);
}

static double quantile(double part)
{
	return answers ? times[(size_t)(part * (double)(answers - 1))] * 1e6 : 0;
}

static void report(double took)
{
	qsort(times, answers, sizeof *times, by_time);
	printf("{\"answers\": %zu, \"broken\": %zu, \"wrong\": %zu, \"refused\": %zu", answers, broken,
	       wrong, refused);
	printf(", \"seconds\": %.6f", took);
	printf(", \"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f, \"max\": %.1f, \"by\": {",
	       quantile(0.5), quantile(0.99), quantile(0.999), quantile(1));
	for (int i = 0; i < worker_count; i++)
		printf("%s\"%ld\": %ld", i ? ", " : "", workers[i], answers_of[i]);
	printf("}}\n");
}

/* Asks what is due; how many clients have ended. */
static int ask_due(int n)
{
	int ended = 0;
	double now = seconds();
	for (int i = 0; i < n; i++) {
		if (!clients[i].waits || clients[i].due > now)
			continue;
		clients[i].waits = 0;
		ended += !ask(&clients[i]);
	}
	return ended;
}

/* Milliseconds until a request is due; -1 for never. */
static int until_due(int n)
{
	double next = -1, now = seconds();
	for (int i = 0; i < n; i++)
		if (clients[i].waits && (next < 0 || clients[i].due < next))
			next = clients[i].due;
	return next < 0 ? -1 : next <= now ? 0 : (int)((next - now) * 1000);
}

/* The answer of a client is over: whether it ends. */
static int go_on(struct client *client, double end)
{
	/* What was due before the end is asked after it. */
	if ((interval > 0 ? client->due : seconds()) >= end)
		return 1;
	client->waits = interval > 0;
	return interval > 0 ? 0 : !ask(client);
}

static void serve(int n, double end)
{
	int busy = n - ask_due(n);
	while (busy > 0) {
		struct epoll_event events[64];
		int found = epoll_wait(set, events, 64, until_due(n));
		for (int i = 0; i < found; i++) {
			struct client *client = events[i].data.ptr;
			if (hear(client))
				busy -= go_on(client, end);
		}
		busy -= ask_due(n);
	}
}

int main(int count, char **arguments)
{
	if (count < 6 || count - 5 > MOST_REQUESTS)
		return 2;
	port = atoi(arguments[1]);
	int n = atoi(arguments[2]);
	double limit = atof(arguments[3]);
	const char *rate = strchr(arguments[4], ':');
	keeps = strncmp(arguments[4], "kept", 4) == 0;
	for (int i = 5; i < count; i++)
		load_request(arguments[i]);
	if (n < 1 || n > MOST_CLIENTS)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	/* A server that hangs ends this, too. */
	alarm((unsigned)limit + 30);
	set = epoll_create1(EPOLL_CLOEXEC);
	interval = rate ? n / atof(rate + 1) : 0;
	double start = seconds();
	for (int i = 0; i < n; i++) {
		clients[i].fd = -1;
		clients[i].waits = 1;
		clients[i].due = start + interval * i / n;
	}
	serve(n, start + limit);
	report(seconds() - start);
	return 0;
}
