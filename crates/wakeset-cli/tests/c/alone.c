/*
 * A worker that waits for a listener alone, which may then spin (`wakeset run --spin 50`), until a
 * second one comes: a thread with a set of its own, then a child. Each connection is answered, and
 * none waits for long.
 */
#include "listening.h"

enum { ROUNDS = 300, PINGS = 5, TOO_LONG = 900 };

struct worker {
	int listener, set, counter;
	pthread_t thread;
};

static atomic_int stop;
static atomic_long counted;

static void watch_for(int set, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
	must(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
}

static void answer(int connection)
{
	char byte;
	if (read(connection, &byte, 1) == 1)
		must(write(connection, &byte, 1));
	else
		must(close(connection));
}

static void *serve(void *argument)
{
	struct worker *worker = argument;
	struct epoll_event events[4];
	while (!stop) {
		int found = epoll_wait(worker->set, events, 4, 20);
		for (int i = 0; i < found; i++) {
			int fd = events[i].data.fd;
			uint64_t value;
			if (fd == worker->counter) {
				must(read(fd, &value, sizeof value));
				counted += value;
			} else if (fd != worker->listener) {
				answer(fd);
			} else {
				int connection = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
				if (connection != -1)
					watch_for(worker->set, connection);
			}
		}
	}
	return NULL;
}

static struct worker make_worker(int listener)
{
	struct worker worker = {listener, must(epoll_create1(EPOLL_CLOEXEC)), -1, 0};
	worker.counter = must(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	watch_for(worker.set, listener);
	watch_for(worker.set, worker.counter);
	return worker;
}

static void ask_often(const char *who, int listener, int counter)
{
	int answered = 0;
	long long longest = 0, before = counted;
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t one = 1;
		must(write(counter, &one, sizeof one));
		long long began = now();
		int connection = connect_to(listener);
		for (int ping = 0; ping < PINGS; ping++) {
			char byte = 'x';
			must(write(connection, &byte, 1));
			answered += read(connection, &byte, 1) == 1;
		}
		must(close(connection));
		long long took = (now() - began) / 1000000;
		longest = took > longest ? took : longest;
	}
	heading(who);
	number("answers", ROUNDS * PINGS, answered);
	yes("each came soon", longest < TOO_LONG);
	for (int i = 0; i < 2000 && counted - before < ROUNDS; i++)
		usleep(1000);
	number("eventfd", ROUNDS, counted - before);
}

int main(void)
{
	int listener = listen_on(AF_INET);
	struct worker first = make_worker(listener), second;
	must(pthread_create(&first.thread, NULL, serve, &first));
	ask_often("alone", listener, first.counter);
	second = make_worker(listener);
	must(pthread_create(&second.thread, NULL, serve, &second));
	ask_often("beside a thread", listener, first.counter);
	/* The child would keep open, and watched, what the workers have not closed yet. */
	sleep_ms(100);
	pid_t child = must(fork());
	if (child == 0) {
		must(prctl(PR_SET_PDEATHSIG, SIGKILL));
		struct worker third = make_worker(listener);
		serve(&third);
		_exit(0);
	}
	ask_often("beside a child", listener, second.counter);
	must(kill(child, SIGKILL));
	must(waitpid(child, NULL, 0));
	ask_often("after the child", listener, first.counter);
	stop = 1;
	must(pthread_join(first.thread, NULL));
	must(pthread_join(second.thread, NULL));
	return surprises != 0;
}
