/*
 * userfaultfd: several threads that read or poll the same one. Each message goes to one of them,
 * whatever the others do meanwhile: are interrupted, run out of time, jump out of a handler, have
 * the descriptor closed under them.
 */
#include "show.h"
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "uffd/servers.h"
#include "uffd/events.h"

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
		struct uffdio_zeropage zero = {.range = {(uintptr_t)memory + (uint64_t)(i * page_size),
		                                         (uint64_t)page_size}};
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
	int found = poller->mask ? ppoll(&wanted, 1, poller->milliseconds < 0 ? NULL : &limit,
	                                 poller->mask)
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
		found = poller->mask ? ppoll(&wanted, 1, &limit, poller->mask)
		    : poll(&wanted, 1, poller->milliseconds);
	while ((found == 0 || (found == -1 && errno == EINTR)) && now() - begin < 4000000000LL);
	poller->took = now() - begin;
	snprintf(poller->saw, sizeof poller->saw, "%s", outcome(found));
	atomic_store(&poller->back, 1);
	return NULL;
}

/*
 * A message is told to somebody who does not read it: others are told of it, too, however short
 * their calls are.
 */
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
		struct poller poller = {.fd = fd, .milliseconds = way ? 20000 : 100,
		                        .mask = way == 1 ? &none : NULL};
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
