/*
 * userfaultfd: several threads that read or poll the same one. Each message goes to one of them, whatever the others do
 * meanwhile: are interrupted, run out of time, jump out of a handler, have the descriptor closed under them.
 */
#include "show.h"
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

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
	char *memory = mmap(NULL, (size_t)(pages * page_size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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
		struct pollfd wanted[] = {{server->fd, POLLIN, 0}, {server->control, POLLIN, 0}, {server->mine, POLLIN, 0}};
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

static void show_reads(void)
{
	struct server servers[THREADS];
	int fd = open_uffd(0, 0), all = 0;
	char *memory = map_pages(fd, PAGES);
	heading("blocking reads");
	for (int i = 0; i < THREADS; i++)
		start_server(&servers[i], fd, serve_reads, PAGES / THREADS);
	struct toucher touchers[THREADS];
	for (int i = 0; i < THREADS; i++)
		start_touching(&touchers[i], memory, i * PAGES / THREADS, (i + 1) * PAGES / THREADS);
	for (int i = 0; i < THREADS; i++) {
		yes("all its pages came", in_time(&touchers[i].done));
		if (!atomic_load(&touchers[i].done))
			give_up();
		finish(&touchers[i].thread);
	}
	for (int i = 0; i < THREADS; i++) {
		finish(&servers[i].thread);
		all += servers[i].served;
		show("a server ended with", "all", servers[i].saw);
	}
	number("messages", PAGES, all);

	heading("reads that do not block");
	struct uffd_msg message;
	must(fcntl(fd, F_SETFL, O_NONBLOCK));
	CALL("nothing there", "-1 EAGAIN", read_message(fd, &message));
	CALL("too short", "-1 EINVAL", read(fd, &message, 8));
	must(fcntl(fd, F_SETFL, 0));
	struct pollfd wanted = {fd, POLLIN, 0};
	CALL("poll of one that blocks", "1", poll(&wanted, 1, -1));
	number("says POLLERR", POLLERR, wanted.revents);
	CALL("too short, and blocking", "-1 EINVAL", read(fd, &message, 8));
	must(close(fd));
	CALL("closed", "-1 EBADF", read_message(fd, &message));
}

static atomic_int handled;
static char *touched_by_handler;
static sigjmp_buf jump;

static void count(int signal)
{
	(void)signal;
	atomic_fetch_add(&handled, 1);
}

static void touch_in_handler(int signal)
{
	(void)signal;
	sink = *touched_by_handler;
	atomic_fetch_add(&handled, 1);
}

static void jump_away(int signal)
{
	(void)signal;
	siglongjmp(jump, 1);
}

static void on_signal(void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
	must(sigaction(SIGUSR1, &action, NULL));
}

static void signal_thread(struct server *server)
{
	must(syscall(SYS_tgkill, getpid(), server->thread.id, SIGUSR1));
}

static void *read_and_jump(void *argument)
{
	struct server *server = argument;
	if (sigsetjmp(jump, 1) == 0)
		serve_reads(server);
	snprintf(server->saw, sizeof server->saw, "jumped");
	atomic_store(&server->back, 1);
	return NULL;
}

static void show_signals(void)
{
	struct server servers[3];
	int fd = open_uffd(0, 0), page = 0;
	char *memory = map_pages(fd, PAGES);

	heading("a reader is interrupted");
	/* The first to come is the one that waits in the kernel, the others for their turn. */
	for (int chosen = 0; chosen < 3; chosen++) {
		atomic_store(&handled, 0);
		on_signal(count, 0);
		for (int i = 0; i < 3; i++)
			start_server(&servers[i], fd, serve_reads, 1);
		signal_thread(&servers[chosen]);
		yes("its call ended", in_time(&servers[chosen].back));
		show("with", "-1 EINTR", servers[chosen].saw);
		number("after its handler", 1, atomic_load(&handled));
		finish(&servers[chosen].thread);
		touch_one(memory, page++);
		touch_one(memory, page++);
		for (int i = 0; i < 3; i++)
			if (i != chosen)
				finish(&servers[i].thread);
	}

	heading("and resumes");
	for (int chosen = 0; chosen < 3; chosen++) {
		atomic_store(&handled, 0);
		on_signal(count, SA_RESTART);
		for (int i = 0; i < 3; i++)
			start_server(&servers[i], fd, serve_reads, 1);
		for (int times = 1; times <= 3; times++) {
			signal_thread(&servers[chosen]);
			while (atomic_load(&handled) < times)
				sleep_ms(1);
			until_asleep(servers[chosen].thread.id);
		}
		for (int i = 0; i < 3; i++)
			touch_one(memory, page++);
		for (int i = 0; i < 3; i++) {
			finish(&servers[i].thread);
			show("served", "all", servers[i].saw);
		}
	}

	heading("its handler needs a page that another brings");
	for (int chosen = 0; chosen < 2; chosen++) {
		atomic_store(&handled, 0);
		on_signal(touch_in_handler, SA_RESTART);
		touched_by_handler = memory + page++ * page_size;
		for (int i = 0; i < 2; i++)
			start_server(&servers[i], fd, serve_reads, 1);
		signal_thread(&servers[chosen]);
		yes("the handler got it", in_time(&handled));
		if (!atomic_load(&handled))
			give_up();
		finish(&servers[1 - chosen].thread);
		touch_one(memory, page++);
		finish(&servers[chosen].thread);
		show("and then the thread serves", "all", servers[chosen].saw);
	}

	heading("its handler jumps away");
	for (int chosen = 0; chosen < 2; chosen++) {
		on_signal(jump_away, 0);
		for (int i = 0; i < 2; i++)
			start_server(&servers[i], fd, i == chosen ? read_and_jump : serve_reads, 1);
		signal_thread(&servers[chosen]);
		yes("out of the call", in_time(&servers[chosen].back));
		finish(&servers[chosen].thread);
		touch_one(memory, page++);
		finish(&servers[1 - chosen].thread);
		show("the other serves", "all", servers[1 - chosen].saw);
	}
	must(close(fd));
}

static void show_closes(void)
{
	struct server servers[3];
	int fd = open_uffd(0, 0), other = must(dup(fd));
	char *memory = map_pages(fd, PAGES);
	int before = surprises;
	heading("closed under its readers");
	for (int i = 0; i < 3; i++) {
		start_server(&servers[i], fd, serve_reads, 1);
	}
	must(close(fd));
	/* The number is something else now; the calls have the file. */
	int ends[2];
	must(pipe(ends));
	yes("the number is used again", ends[0] == fd);
	for (int i = 0; i < 3; i++) {
		struct toucher toucher;
		start_touching(&toucher, memory, i, i + 1);
		/* Who was told cannot serve it through that number. */
		int served = 0;
		for (int tries = 0; tries < 5000 && !served; tries++) {
			for (int k = 0; k < 3; k++)
				served += atomic_load(&servers[k].back);
			served = served > i;
			sleep_ms(1);
		}
		yes("a message was read", served);
		if (!served)
			give_up();
		struct uffdio_zeropage zero = {.range = {(uintptr_t)memory + (uint64_t)(i * page_size), (uint64_t)page_size}};
		must(ioctl(other, UFFDIO_ZEROPAGE, &zero));
		finish(&toucher.thread);
	}
	for (int i = 0; i < 3; i++)
		finish(&servers[i].thread);
	surprises = before; /* their own ZEROPAGE went to the pipe */
	must(close(ends[0]));
	must(close(ends[1]));
	must(close(other));
}

static void show_polls(void)
{
	struct server servers[THREADS];
	int control[2], mine[THREADS][2], fd = open_uffd(O_NONBLOCK, 0), all = 0, own = 0;
	char *memory = map_pages(fd, PAGES);
	must(pipe(control));
	heading("polls with pipes");
	for (int i = 0; i < THREADS; i++) {
		must(pipe(mine[i]));
		servers[i] = (struct server){.fd = fd, .control = control[0], .mine = mine[i][0], .saw = "all"};
		start(&servers[i].thread, serve_polls, &servers[i]);
		until_asleep(servers[i].thread.id);
	}
	for (int i = 0; i < THREADS; i++)
		must(write(mine[i][1], "x", 1));
	struct toucher touchers[THREADS];
	for (int i = 0; i < THREADS; i++)
		start_touching(&touchers[i], memory, i * PAGES / THREADS, (i + 1) * PAGES / THREADS);
	for (int i = 0; i < THREADS; i++)
		must(write(mine[i][1], "y", 1));
	for (int i = 0; i < THREADS; i++) {
		yes("all its pages came", in_time(&touchers[i].done));
		if (!atomic_load(&touchers[i].done))
			give_up();
		finish(&touchers[i].thread);
	}
	for (int i = 0; i < THREADS; i++)
		until_asleep(servers[i].thread.id);
	must(close(control[1]));
	for (int i = 0; i < THREADS; i++) {
		finish(&servers[i].thread);
		all += servers[i].served;
		own += servers[i].own;
		show("a server ended with", "all", servers[i].saw);
		must(close(mine[i][0]));
		must(close(mine[i][1]));
	}
	number("messages", PAGES, all);
	number("bytes from its own pipe", 2 * THREADS, own);
	must(close(control[0]));
	must(close(fd));
}

struct poller {
	struct thread thread;
	int fd, milliseconds;
	sigset_t *mask;
	char saw[64];
	int64_t took;
	atomic_int back;
};

static void *poll_once(void *argument)
{
	struct poller *poller = argument;
	struct pollfd wanted = {poller->fd, POLLIN, 0};
	struct timespec limit = {poller->milliseconds / 1000, poller->milliseconds % 1000 * 1000000L};
	int64_t begin = now();
	int found = poller->mask ? ppoll(&wanted, 1, poller->milliseconds < 0 ? NULL : &limit, poller->mask)
				 : poll(&wanted, 1, poller->milliseconds);
	poller->took = now() - begin;
	snprintf(poller->saw, sizeof poller->saw, "%s", outcome(found));
	atomic_store(&poller->back, 1);
	return NULL;
}

static void start_poller(struct poller *poller, int fd, int milliseconds, sigset_t *mask)
{
	*poller = (struct poller){.fd = fd, .milliseconds = milliseconds, .mask = mask};
	start(&poller->thread, poll_once, poller);
	until_asleep(poller->thread.id);
}

static void show_limits(void)
{
	struct poller pollers[3];
	int fd = open_uffd(O_NONBLOCK, 0), page = 0;
	char *memory = map_pages(fd, PAGES);
	sigset_t none, usr1;
	sigemptyset(&none);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);

	heading("a poller runs out of time");
	for (int i = 0; i < 3; i++)
		start_poller(&pollers[i], fd, 100 * (i + 1), i == 2 ? &none : NULL);
	for (int i = 0; i < 3; i++) {
		finish(&pollers[i].thread);
		show("nothing came", "0", pollers[i].saw);
		yes("not before its time", pollers[i].took >= 100000000LL * (i + 1));
		yes("and soon after", pollers[i].took < 100000000LL * (i + 1) + 900000000LL);
	}
	start_poller(&pollers[0], fd, 0, NULL);
	finish(&pollers[0].thread);
	show("no time at all", "0", pollers[0].saw);

	heading("a poller is interrupted");
	must_be_zero(pthread_sigmask(SIG_BLOCK, &usr1, NULL));
	on_signal(count, SA_RESTART);
	for (int chosen = 0; chosen < 3; chosen++) {
		atomic_store(&handled, 0);
		for (int i = 0; i < 3; i++)
			start_poller(&pollers[i], fd, -1, &none);
		must(syscall(SYS_tgkill, getpid(), pollers[chosen].thread.id, SIGUSR1));
		yes("its call ended", in_time(&pollers[chosen].back));
		show("with", "-1 EINTR", pollers[chosen].saw);
		number("after its handler", 1, atomic_load(&handled));
		finish(&pollers[chosen].thread);
		/* A message that nobody reads: all who poll are told sooner or later. */
		struct toucher toucher;
		start_touching(&toucher, memory, page, page + 1);
		page++;
		for (int i = 0; i < 3; i++) {
			if (i == chosen)
				continue;
			yes("the others are told of a message that stays", in_time(&pollers[i].back));
			if (!atomic_load(&pollers[i].back))
				give_up();
			finish(&pollers[i].thread);
			show("each", "1", pollers[i].saw);
		}
		struct uffd_msg message;
		CALL("read at last", "32", read_message(fd, &message));
		serve(fd, &message);
		finish(&toucher.thread);
	}
	must_be_zero(pthread_sigmask(SIG_UNBLOCK, &usr1, NULL));
	must(close(fd));
}

/* Polls again and again: signals, or its own limit, end its calls. */
static void *poll_often(void *argument)
{
	struct poller *poller = argument;
	struct pollfd wanted = {poller->fd, POLLIN, 0};
	struct timespec limit = {poller->milliseconds / 1000, poller->milliseconds % 1000 * 1000000L};
	int64_t begin = now();
	int found;
	do
		found = poller->mask ? ppoll(&wanted, 1, &limit, poller->mask) : poll(&wanted, 1, poller->milliseconds);
	while ((found == 0 || (found == -1 && errno == EINTR)) && now() - begin < 4000000000LL);
	poller->took = now() - begin;
	snprintf(poller->saw, sizeof poller->saw, "%s", outcome(found));
	atomic_store(&poller->back, 1);
	return NULL;
}

/* A message is told to somebody who does not read it: others are told of it, too, however short their calls are. */
static void show_unread(void)
{
	heading("a message that is not read by who was told of it");
	sigset_t none;
	sigemptyset(&none);
	on_signal(count, 0);
	for (int way = 0; way < 4; way++) {
		int fd = open_uffd(O_NONBLOCK, 0);
		char *memory = map_pages(fd, 1);
		struct toucher toucher;
		struct poller poller = {.fd = fd, .milliseconds = way ? 20000 : 100, .mask = way == 1 ? &none : NULL};
		struct pollfd wanted = {fd, POLLIN, 0};
		start_touching(&toucher, memory, 0, 1);
		number("told", 1, poll(&wanted, 1, -1));
		start(&poller.thread, poll_often, &poller);
		int again = 1;
		for (int i = 0; way && i < 200 && !atomic_load(&poller.back); i++) {
			sleep_ms(20);
			if (i % 10 == 0)
				/* It may be over. */
				syscall(SYS_tgkill, getpid(), poller.thread.id, SIGUSR1);
			/* Also if he asks again, and is told again. */
			if (way == 3)
				again &= poll(&wanted, 1, 5000) == 1;
		}
		yes("told again", again);
		finish(&poller.thread);
		show("told as well", "1", poller.saw);
		yes("in time", poller.took < 1800000000LL);
		struct uffd_msg message;
		CALL("read at last", "32", read_message(fd, &message));
		serve(fd, &message);
		finish(&toucher.thread);
		must(munmap(memory, (size_t)page_size));
		must(close(fd));
	}
}

static void *change_memory(void *argument)
{
	char *memory = argument;
	must(madvise(memory, (size_t)page_size, MADV_DONTNEED));
	must(mremap(memory + page_size, (size_t)page_size, (size_t)page_size, MREMAP_MAYMOVE | MREMAP_FIXED,
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
		seen += strcmp(servers[i].saw, "remove") == 0 ? 1 : strcmp(servers[i].saw, "remap") == 0 ? 10 : 100;
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

/* fork(2) returns when somebody has read its message, and the child's pages come through a userfaultfd that is in it. */
static void show_fork_events(int flags)
{
	struct server servers[3];
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_EVENT_FORK};
	int fd = (int)must(syscall(SYS_userfaultfd, flags | O_CLOEXEC | UFFD_USER_MODE_ONLY)), control[2], forks = 0;
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
		servers[i] = (struct server){.fd = fd, .control = flags ? control[0] : -1, .most = flags ? 100 : 2};
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

/* High numbers that the process has open and the program has not opened: it may take them with dup2(2) at any time. */
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

int main(void)
{
	page_size = sysconf(_SC_PAGESIZE);
	messages = mmap(NULL, sizeof *messages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(messages == MAP_FAILED ? -1 : 0);
	show_reads();
	show_signals();
	show_closes();
	show_polls();
	show_limits();
	show_unread();
	show_events();
	show_fork();
	show_fork_events(0);
	show_fork_events(O_NONBLOCK);
	show_numbers();
	printf("counts: %d messages\n", atomic_load(messages));
	return verdict();
}
