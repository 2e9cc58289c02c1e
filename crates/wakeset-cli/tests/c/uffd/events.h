/*
 * Messages other than those of faults: remaps, removals and forks; and the numbers of Wakeset's
 * that a program may take.
 */
#ifndef UFFD_EVENTS_H
#define UFFD_EVENTS_H

#include "servers.h"
#include <sys/socket.h>
#include <sys/wait.h>

static void *change_memory(void *argument)
{
	char *memory = argument;
	must(madvise(memory, (size_t)page_size, MADV_DONTNEED));
	must(mremap(memory + page_size, (size_t)page_size, (size_t)page_size,
	            MREMAP_MAYMOVE | MREMAP_FIXED,
		    memory + 8 * page_size) == MAP_FAILED ? -1 : 0);
	return NULL;
}

static void *read_events(void *argument)
{
	struct server *server = argument;
	struct uffd_msg message;
	while (server->served < server->most && read_message(server->fd, &message) == sizeof message) {
		snprintf(server->saw, sizeof server->saw, "%s",
			 message.event == UFFD_EVENT_REMOVE  ? "remove"
			 : message.event == UFFD_EVENT_REMAP ? "remap"
			 : message.event == UFFD_EVENT_FORK  ? "fork"
			 : message.event == UFFD_EVENT_UNMAP ? "unmap"
							     : "fault");
		server->served++;
		if (message.event == UFFD_EVENT_FORK)
			must(close((int)message.arg.fork.ufd));
	}
	atomic_store(&server->back, 1);
	return NULL;
}

static void show_events(void)
{
	struct server servers[3];
	struct thread changer;
	int fd = open_uffd(0, UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP), seen = 0;
	char *memory = map_pages(fd, 16);
	heading("events");
	for (int i = 0; i < 2; i++)
		start_server(&servers[i], fd, read_events, 1);
	start(&changer, change_memory, memory);
	finish(&changer);
	for (int i = 0; i < 2; i++) {
		finish(&servers[i].thread);
		seen += strcmp(servers[i].saw, "remove") == 0 ? 1 : strcmp(servers[i].saw, "remap") == 0 ? 10
		    : 100;
	}
	number("one of each, to one of each", 11, seen);
	must(close(fd));
}

/* Serves the first page that the child of a fork touches. */
static void serve_child(int fd)
{
	struct uffd_msg message;
	struct pollfd wanted = {fd, POLLIN, 0};
	/* It is non-blocking if the parent's is. */
	if (fcntl(fd, F_GETFL) & O_NONBLOCK)
		must(poll(&wanted, 1, 10000));
	if (read_message(fd, &message) == sizeof message)
		serve(fd, &message);
	must(close(fd));
}

static void *serve_forks(void *argument)
{
	struct server *server = argument;
	struct uffd_msg message;
	while (server->served < server->most) {
		struct pollfd wanted[] = {{server->fd, POLLIN, 0}, {server->control, POLLIN, 0}};
		if (server->control >= 0 && must(poll(wanted, 2, -1)) && wanted[1].revents)
			break;
		if (read_message(server->fd, &message) != sizeof message) {
			server->empty++;
			continue;
		}
		if (message.event == UFFD_EVENT_FORK) {
			server->own++;
			serve_child((int)message.arg.fork.ufd);
		} else {
			serve(server->fd, &message);
		}
		server->served++;
	}
	atomic_store(&server->back, 1);
	return NULL;
}

/*
 * fork(2) returns when somebody has read its message, and the child's pages come through a
 * userfaultfd that is in it.
 */
static void show_fork_events(int flags)
{
	struct server servers[3];
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_EVENT_FORK};
	int fd = (int)must(syscall(SYS_userfaultfd, flags | O_CLOEXEC | UFFD_USER_MODE_ONLY)), control[2],
	    forks = 0;
	heading(flags ? "fork events, polled" : "fork events");
	/* Asks for CAP_SYS_PTRACE. */
	if (ioctl(fd, UFFDIO_API, &api) == -1) {
		show("not permitted", "EPERM", strerrorname_np(errno));
		must(close(fd));
		return;
	}
	char *memory = map_pages(fd, 16);
	must(pipe2(control, O_CLOEXEC));
	for (int i = 0; i < 3; i++) {
		servers[i] = (struct server){.fd = fd, .control = flags ? control[0] : -1,
		                             .most = flags ? 100 : 2};
		start(&servers[i].thread, serve_forks, &servers[i]);
		until_asleep(servers[i].thread.id);
	}
	for (int i = 0; i < 5; i++) {
		int status;
		pid_t child = must(fork());
		if (child == 0) {
			sink = memory[i * page_size];
			_exit(7);
		}
		must(waitpid(child, &status, 0));
		number("the child has its page", 7, WEXITSTATUS(status));
	}
	touch_one(memory, 9);
	must(close(control[1]));
	for (int i = 0; i < 3; i++) {
		finish(&servers[i].thread);
		forks += servers[i].own;
	}
	number("each was told once", 5, forks);
	must(close(control[0]));
	must(close(fd));
}

/* A child has none of the threads, and the same userfaultfd. */
static void show_fork(void)
{
	struct server servers[2];
	int fd = open_uffd(0, 0), status;
	char *memory = map_pages(fd, PAGES);
	heading("fork");
	for (int i = 0; i < 2; i++)
		start_server(&servers[i], fd, serve_reads, 1);
	pid_t child = must(fork());
	if (child == 0) {
		struct uffd_msg message;
		ssize_t got = read_message(fd, &message);
		if (got == sizeof message)
			serve(fd, &message);
		_exit(got == sizeof message ? 0 : 1);
	}
	/* Whoever of the three gets it; three pages, one for each. */
	for (int i = 0; i < 3; i++)
		touch_one(memory, i);
	for (int i = 0; i < 2; i++) {
		finish(&servers[i].thread);
		show("a thread served", "all", servers[i].saw);
	}
	must(waitpid(child, &status, 0));
	number("the child served", 0, status);
	must(close(fd));
}

/*
 * High numbers that the process has open and the program has not opened: it may take them with
 * dup2(2) at any time.
 */
static int next_stranger(int *from)
{
	char name[32], target[64];
	for (int fd = *from; fd < 2048; fd++) {
		snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
		ssize_t length = readlink(name, target, sizeof target - 1);
		target[length < 0 ? 0 : length] = 0;
		if (length > 0 && fcntl(fd, F_GETFD) == -1 && strcmp(target, "anon_inode:[eventfd]") == 0) {
			*from = fd + 1;
			return fd;
		}
	}
	return -1;
}

/* Polls beside a pipe, which under Wakeset takes a descriptor of its own, again and again. */
static void *poll_for_moments(void *argument)
{
	struct server *server = argument;
	while (!atomic_load(&server->back)) {
		struct pollfd wanted[] = {{server->fd, POLLIN, 0}, {server->control, POLLIN, 0}};
		server->empty += must(poll(wanted, 2, server->most)) != 0;
	}
	return NULL;
}

static void show_numbers(void)
{
	struct server servers[THREADS];
	int fd = open_uffd(O_NONBLOCK, 0), control[2], ends[2], untouched = 0;
	enum { ROUNDS = 600 };
	char bytes[16];
	heading("numbers that look closed");
	must(pipe2(control, O_CLOEXEC));
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends));
	for (int i = 0; i < THREADS; i++) {
		servers[i] = (struct server){.fd = fd, .control = control[0], .most = i + 1};
		start(&servers[i].thread, poll_for_moments, &servers[i]);
	}
	for (int round = 0; round < ROUNDS; round++) {
		must(write(ends[1], "12345678", 8));
		int from = 256, mine = next_stranger(&from);
		int number = must(mine < 0 ? fcntl(ends[0], F_DUPFD_CLOEXEC, 300) : dup2(ends[0], mine));
		if (round % 10 == 0)
			sleep_ms(2);
		/* Nobody has taken anything from our file, or put anything into it. */
		untouched += read(number, bytes, sizeof bytes) == 8 && read(ends[1], bytes, sizeof bytes) == -1;
		must(close(number));
	}
	for (int i = 0; i < THREADS; i++)
		atomic_store(&servers[i].back, 1);
	for (int i = 0; i < THREADS; i++) {
		finish(&servers[i].thread);
		number("told of nothing", 0, servers[i].empty);
	}
	number("files that stayed as they were", ROUNDS, untouched);
	must(close(ends[0]));
	must(close(ends[1]));
	must(close(control[0]));
	must(close(control[1]));
	must(close(fd));
}

#endif
