/*
 * Threads that have been told of a connection and have left it, and have ended or have been left
 * behind by a fork: a wait that has nothing to do for them is libc's own call again. The kernel
 * says in whose code a thread sleeps.
 */
#include "listening.h"

static int listener, connection, client;

/* In whose code an address of a process is. */
static const char *owner_of(pid_t process, unsigned long address)
{
	char path[64], line[512];
	const char *owner = "nobody's";
	snprintf(path, sizeof path, "/proc/%d/maps", process);
	FILE *maps = fopen(path, "r");
	must(maps ? 0 : -1);
	while (fgets(line, sizeof line, maps)) {
		unsigned long from, to;
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && address >= from && address < to)
			owner = strstr(line, "/libc") ? "libc's" : "another's";
	}
	fclose(maps);
	return owner;
}

/* Whose call a thread sleeps in, once that is a wait for events. */
static const char *sleeps_in(pid_t process, pid_t thread)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", process, thread);
	for (;;) {
		FILE *file = fopen(path, "r");
		long number = -1;
		unsigned long place = 0;
		must(file ? 0 : -1);
		int known = fscanf(file, "%ld %*s %*s %*s %*s %*s %*s %*s %lx", &number, &place);
		fclose(file);
		int waits = number == SYS_epoll_pwait;
#ifdef SYS_epoll_wait
		waits |= number == SYS_epoll_wait;
#endif
#ifdef SYS_epoll_pwait2
		waits |= number == SYS_epoll_pwait2;
#endif
		if (known == 2 && waits)
			return owner_of(process, place);
		usleep(1000);
	}
}

/* A wait that sleeps until the client writes. */
static int sleep_once(int set)
{
	struct epoll_event event;
	char byte;
	int found = epoll_wait(set, &event, 1, 20000);
	return found == 1 && read(connection, &byte, 1) == 1;
}

/* A new set that watches this. */
static int watching(int fd)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	must(watch_new(set, fd, EPOLLIN, 'w'));
	return set;
}

/* NULL: it was told of what it waited for. */
static void *sleep_in_thread(void *argument)
{
	(void)argument;
	int set = watching(connection);
	int result = sleep_once(set);
	close(set);
	return result ? NULL : &connection;
}

/* Whose call a thread's wait is. */
static const char *call_of_a_thread(void)
{
	struct thread thread;
	start(&thread, sleep_in_thread, NULL);
	const char *owner = sleeps_in(getpid(), thread.id);
	must(write(client, "x", 1) == 1 ? 0 : -1);
	must(finish(&thread) ? -1 : 0);
	return owner;
}

static sem_t is_told, may_end;

/* Is told of a connection and does not accept it. */
static void *leave(void *argument)
{
	struct epoll_event event;
	int set = watching(listener);
	must(epoll_wait(set, &event, 1, 20000) == 1 ? 0 : -1);
	if (argument)
		must(epoll_ctl(set, EPOLL_CTL_DEL, listener, NULL));
	sem_post(&is_told);
	while (sem_wait(&may_end))
		;
	close(set);
	return NULL;
}

static void *stop_watching(void *argument)
{
	(void)argument;
	int set = watching(listener);
	must(epoll_ctl(set, EPOLL_CTL_DEL, listener, NULL));
	close(set);
	return NULL;
}

static void run(void *(*body)(void *), void *argument)
{
	struct thread thread;
	start(&thread, body, argument);
	finish(&thread);
}

int main(void)
{
	listener = listen_on(AF_INET);
	client = connect_to(listener);
	connection = must(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
	sem_init(&is_told, 0, 0);
	sem_init(&may_end, 0, 0);
	show("at first", "libc's", call_of_a_thread());

	int waiting = connect_to(listener);
	sem_post(&may_end);
	run(leave, NULL);
	sem_wait(&is_told);
	show("after a thread that has ended", "libc's", call_of_a_thread());
	sem_post(&may_end);
	run(leave, &listener);
	sem_wait(&is_told);
	show("after one that had declined before", "libc's", call_of_a_thread());
	run(stop_watching, NULL);
	show("after one that was never told", "libc's", call_of_a_thread());

	struct thread told;
	start(&told, leave, NULL);
	while (sem_wait(&is_told))
		;
	pid_t child = must(fork());
	if (child == 0) {
		alarm(60);
		_exit(!sleep_once(watching(connection)));
	}
	show("in a forked child", "libc's", sleeps_in(child, child));
	must(write(client, "x", 1) == 1 ? 0 : -1);
	int status;
	must(waitpid(child, &status, 0));
	show("its wait", "ended", status == 0 ? "ended" : "failed");
	sem_post(&may_end);
	finish(&told);
	show("and after that thread, too", "libc's", call_of_a_thread());
	close(waiting);
	return verdict();
}
