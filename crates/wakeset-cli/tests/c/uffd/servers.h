/*
 * A userfaultfd, threads that serve it, and threads that touch its memory.
 */
#ifndef UFFD_SERVERS_H
#define UFFD_SERVERS_H

#include "../show.h"
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

enum { THREADS = 4, PAGES = 256 };
static long page_size;

/* Messages that were read, by children too. */
static atomic_int *messages;

static ssize_t read_message(int fd, struct uffd_msg *message)
{
	ssize_t got = read(fd, message, sizeof *message);
	if (got == sizeof *message)
		atomic_fetch_add(messages, 1);
	return got;
}

static int open_uffd(int flags, uint64_t features)
{
	int fd = (int)must(syscall(SYS_userfaultfd, flags | O_CLOEXEC | UFFD_USER_MODE_ONLY));
	struct uffdio_api api = {.api = UFFD_API, .features = features};
	must(ioctl(fd, UFFDIO_API, &api));
	return fd;
}

static char *map_pages(int fd, int pages)
{
	char *memory = mmap(NULL, (size_t)(pages * page_size), PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register reg = {.range = {(uintptr_t)memory, (uint64_t)(pages * page_size)},
				      .mode = UFFDIO_REGISTER_MODE_MISSING};
	must(memory == MAP_FAILED ? -1 : 0);
	must(ioctl(fd, UFFDIO_REGISTER, &reg));
	return memory;
}

/* Brings the page that a message asks for. */
static void serve(int fd, const struct uffd_msg *message)
{
	struct uffdio_zeropage zero = {
	    .range = {message->arg.pagefault.address & ~((uint64_t)page_size - 1), (uint64_t)page_size}};
	if (ioctl(fd, UFFDIO_ZEROPAGE, &zero) == -1 && errno != EEXIST)
		surprises++;
}

static volatile char sink;

/* Another thread that touches a page each time it is told to. */
struct toucher {
	struct thread thread;
	char *memory;
	int from, to;
	atomic_int done;
};

static void *touch(void *argument)
{
	struct toucher *toucher = argument;
	for (int i = toucher->from; i < toucher->to; i++)
		sink = toucher->memory[i * page_size];
	atomic_store(&toucher->done, 1);
	return NULL;
}

static void start_touching(struct toucher *toucher, char *memory, int from, int to)
{
	toucher->memory = memory;
	toucher->from = from;
	toucher->to = to;
	atomic_store(&toucher->done, 0);
	start(&toucher->thread, touch, toucher);
}

static void touch_one(char *memory, int page)
{
	struct toucher toucher;
	start_touching(&toucher, memory, page, page + 1);
	if (!in_time(&toucher.done)) {
		printf("page %d: nobody served it\n", page);
		give_up();
	}
	finish(&toucher.thread);
}

/* A thread that serves. */
struct server {
	struct thread thread;
	int fd;
	int control; /* a pipe's end to poll as well, or -1 */
	int mine;    /* a pipe of its own */
	int most;    /* messages after which it ends; 0 for no end but the control pipe's */
	int served, own, empty;
	atomic_int back;
	char saw[64];
};

static void *serve_reads(void *argument)
{
	struct server *server = argument;
	struct uffd_msg message;
	while (!server->most || server->served < server->most) {
		ssize_t got = read_message(server->fd, &message);
		if (got != sizeof message) {
			snprintf(server->saw, sizeof server->saw, "%s", outcome(got));
			break;
		}
		serve(server->fd, &message);
		server->served++;
	}
	atomic_store(&server->back, 1);
	return NULL;
}

static void *serve_polls(void *argument)
{
	struct server *server = argument;
	struct uffd_msg message;
	for (;;) {
		struct pollfd wanted[] = {{server->fd, POLLIN, 0}, {server->control, POLLIN, 0},
		                          {server->mine, POLLIN, 0}};
		int found = poll(wanted, server->control < 0 ? 1 : 3, -1);
		char byte;
		if (found < 1) {
			snprintf(server->saw, sizeof server->saw, "%s", outcome(found));
			break;
		}
		if (server->control >= 0 && wanted[1].revents)
			break;
		if (server->control >= 0 && wanted[2].revents)
			server->own += read(server->mine, &byte, 1) == 1;
		if (wanted[0].revents & POLLIN) {
			if (read_message(server->fd, &message) == sizeof message) {
				serve(server->fd, &message);
				server->served++;
			} else {
				server->empty++;
			}
		}
	}
	atomic_store(&server->back, 1);
	return NULL;
}

static void start_server(struct server *server, int fd, void *(*body)(void *), int most)
{
	*server = (struct server){.fd = fd, .control = -1, .mine = -1, .most = most, .saw = "all"};
	start(&server->thread, body, server);
	until_asleep(server->thread.id);
}

#endif
