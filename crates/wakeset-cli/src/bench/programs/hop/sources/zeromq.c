/* Messages of a byte between two threads of one context, over PAIR or REQ and REP sockets. */

#include <pthread.h>
#include <string.h>
#include <zmq.h>

static void *context;
static char address[128];
static int is_tcp;

static void demand(int holds, const char *what)
{
	if (!holds) {
		perror(what);
		exit(1);
	}
}

static void send_byte(void *socket, char byte)
{
	demand(zmq_send(socket, &byte, 1, 0) == 1, "zmq_send");
}

static char receive_byte(void *socket)
{
	char byte;
	demand(zmq_recv(socket, &byte, 1, 0) == 1, "zmq_recv");
	return byte;
}

static void close_socket(void *socket)
{
	demand(zmq_close(socket) == 0, "zmq_close");
}

/* Sends back what it receives, until that is a q. */
static void *answer(void *argument)
{
	void *socket = zmq_socket(context, is_tcp ? ZMQ_REQ : ZMQ_PAIR);
	char byte;
	(void)argument;
	demand(socket && zmq_connect(socket, address) == 0, "zmq_connect");
	/* A REQ socket speaks first. */
	if (is_tcp)
		send_byte(socket, 'a');
	while ((byte = receive_byte(socket)) != 'q')
		send_byte(socket, byte);
	close_socket(socket);
	return NULL;
}

static long go_on(void *socket, double seconds)
{
	double end = now() + seconds;
	long trips = 0;
	do {
		send_byte(socket, 'a');
		demand(receive_byte(socket) == 'a', "an answer");
		trips++;
	} while (now() < end);
	return trips;
}

int main(int count, char **arguments)
{
	double seconds = atof(arguments[count - 1]);
	is_tcp = strcmp(arguments[1], "tcp") == 0;
	demand((context = zmq_ctx_new()) != NULL, "zmq_ctx_new");
	void *socket = zmq_socket(context, is_tcp ? ZMQ_REP : ZMQ_PAIR);
	size_t length = sizeof address;
	pthread_t thread;
	demand(socket && zmq_bind(socket, is_tcp ? "tcp://127.0.0.1:*" : "inproc://hop") == 0,
	       "zmq_bind");
	demand(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, address, &length) == 0, "the address");
	demand(pthread_create(&thread, NULL, answer, NULL) == 0, "pthread_create");
	if (is_tcp)
		receive_byte(socket);
	go_on(socket, seconds / 5);
	struct used before = used();
	long trips = go_on(socket, seconds * 4 / 5);
	say(trips, before);
	send_byte(socket, 'q');
	pthread_join(thread, NULL);
	close_socket(socket);
	zmq_ctx_term(context);
	return 0;
}
