/*
 * What children of `forks_random.c` do with a channel, what an executed program does, and how a
 * child ends.
 */
#ifndef FORKS_RANDOM_ACTS_H
#define FORKS_RANDOM_ACTS_H

#include "traffic.h"
#include <sched.h>
#include <spawn.h>

extern char **environ;

static const char *self = "/proc/self/exe";

/* ---- an executed program ---- */

/* `add FD VALUE`, `send FD OFFSET LENGTH`, `gone FD`, `end` */
static int be_executed(int count, char **arguments)
{
	const char *what = arguments[1];
	int fd = count > 2 ? atoi(arguments[2]) : -1;
	if (strcmp(what, "end") == 0)
		return 0;
	if (strcmp(what, "gone") == 0)
		return !(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
	struct pollfd room = {fd, POLLOUT, 0};
	if (strcmp(what, "add") == 0) {
		uint64_t value = strtoull(arguments[3], NULL, 0);
		while (write(fd, &value, 8) != 8)
			if (errno != EAGAIN || poll(&room, 1, -1) != 1)
				return 3;
		return 0;
	}
	uint64_t offset = strtoull(arguments[3], NULL, 0), end = offset + strtoull(arguments[4], NULL, 0);
	while (offset < end) {
		unsigned char data[256];
		size_t length = end - offset < sizeof data ? end - offset : sizeof data;
		for (size_t i = 0; i < length; i++)
			data[i] = byte_at(offset + i);
		ssize_t written = write(fd, data, length);
		if (written > 0)
			offset += (uint64_t)written;
		else if (errno != EAGAIN || poll(&room, 1, -1) != 1)
			return 4;
	}
	return 0;
}

/* Made before the fork, because a child of vfork(2) has its parent's memory. */
struct command {
	char *arguments[6];
	char fd[16], first[24], second[24];
	/* The number that the program is to have open, and what stands for it here. */
	int number, from;
};

static void make_command(struct command *command, const char *what, int number, int from)
{
	memset(command, 0, sizeof *command);
	command->arguments[0] = "forks_random";
	command->arguments[1] = (char *)what;
	command->number = number;
	command->from = from;
	if (number >= 0) {
		snprintf(command->fd, sizeof command->fd, "%d", number);
		command->arguments[2] = command->fd;
	}
}

/* Counted here, since the program has nothing to count by. Of a channel claimed to send. */
static void command_that_sends(struct command *command, const struct channel *c, int number)
{
	uint64_t amount = c->kind == SEMAPHORE ? 1 + below(3) : 1 + below(2000);
	uint64_t offset = atomic_fetch_add(&c->counts->sent, amount);
	make_command(command, is_eventfd(c) ? "add" : "send", number, c->out);
	command->arguments[3] = command->first;
	snprintf(command->first, sizeof command->first, "%llu",
		 (unsigned long long)(is_eventfd(c) ? amount : offset));
	if (!is_eventfd(c)) {
		command->arguments[4] = command->second;
		snprintf(command->second, sizeof command->second, "%llu", (unsigned long long)amount);
	}
}

/* In a child: passes the number on, and executes. */
static _Noreturn void execute(const struct command *command)
{
	if (command->from >= 0 && command->from != command->number)
		dup2(command->from, command->number);
	else if (command->from >= 0)
		fcntl(command->from, F_SETFD, 0);
	execv(self, command->arguments);
	_exit(98);
}

/* ---- a child's ends ---- */

enum end { BY_EXIT, BY_EXEC, BY_TERM, BY_KILL, ENDS };

static void tell_done(void)
{
	atomic_store(&world->done[me], 1);
	wake_word(&world->done[me]);
}

static _Noreturn void end_by(enum end end)
{
	struct command command;
	tell_done();
	if (end == BY_EXIT)
		_exit(0);
	make_command(&command, "end", -1, -1);
	if (end == BY_EXEC)
		execute(&command);
	for (;;)
		pause();
}

/* In the child, first of all. */
static void begin_child(void)
{
	my_slot = &world->slots[1 + OPERATORS + me];
	alarm(4 * PATIENCE);
}

static pid_t fork_one(void)
{
	atomic_store(&world->done[me], 0);
	pid_t child = need(fork());
	if (child == 0) {
		begin_child();
		dice ^= 0x5555;
	} else {
		atomic_store(&living[me], child);
	}
	return child;
}

static void until_done(void)
{
	begin_wait("a child to be done", -1);
	while (!atomic_load(&world->done[me])) {
		siginfo_t info = {0};
		sleep_on_word(&world->done[me], 0, 200);
		/* It may have ended instead. */
		if (waitid(P_PID, (id_t)living[me], &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid)
			break;
	}
	end_wait();
}

static void await_child(pid_t child, const char *what, int wanted)
{
	int status = -1;
	begin_wait(what, -1);
	while (waitpid(child, &status, 0) == -1)
		if (errno != EINTR)
			need(-1);
	end_wait();
	atomic_store(&living[me], 0);
	atomic_store(&world->slots[1 + OPERATORS + me].since, 0);
	if (status != wanted)
		fail("%s ended with %#x (should be %#x)", what, (unsigned)status, (unsigned)wanted);
}

/* After its act, of which it has told. */
static void end_child(pid_t child, const char *what, enum end end)
{
	int wanted = end == BY_TERM ? SIGTERM : end == BY_KILL ? SIGKILL : 0;
	if (wanted) {
		until_done();
		if (below(2))
			nap(below(500));
		kill(child, wanted);
	}
	await_child(child, what, wanted);
}

/* ---- acts ---- */

static int duplicate(int fd, int flags)
{
	int other;
	switch (below(6)) {
	case 0: return need(dup(fd));
	case 1: return need(fcntl(fd, F_DUPFD, 100));
	case 2: return need(fcntl(fd, F_DUPFD_CLOEXEC, 0));
	case 3: return need((int)syscall(SYS_dup, fd));
	case 4:
		other = need(open("/dev/null", O_RDONLY | O_CLOEXEC));
		return need(dup2(fd, other));
	default:
		other = need(eventfd(7, O_CLOEXEC));
		return need(dup3(fd, other, flags));
	}
}

/* In a child that has made no number yet. */
static void close_others(const struct channel *mine)
{
	for (int i = 0; i < CHANNELS; i++) {
		const struct channel *c = &channels[i];
		int all[] = {c->in, c->out, c->sets[0], c->sets[1], c->inner, c->room,
			     c->acknowledge, c->acknowledge_set};
		for (size_t j = 0; c != &channels[mine->number] && j < sizeof all / sizeof *all; j++)
			if (all[j] >= 0)
				close(all[j]);
	}
}

/* Its own eventfd is in its parent's set for a while. */
static void put_into(int set)
{
	int own = need(eventfd(below(2), O_CLOEXEC | O_NONBLOCK));
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = ANOTHERS};
	need(epoll_ctl(set, EPOLL_CTL_ADD, own, &event));
	add(own, 1);
	nap(below(100));
	if (below(2))
		need(epoll_ctl(set, EPOLL_CTL_DEL, own, NULL));
	need(close(own));
}

/* What leaves each count as it is. */
static void do_anything(struct channel *c)
{
	struct pollfd both[2] = {{c->in, POLLIN, 0}, {c->out, POLLOUT, 0}};
	struct epoll_event event;
	switch (below(8)) {
	case 0: look_at(both, 2); break;
	case 1: nap(below(1000)); break;
	case 2: need(close(duplicate(c->out, O_CLOEXEC))); break;
	case 3: c->out = duplicate(c->out, 0); break;
	case 4: need(fcntl(c->in, F_GETFL)); break;
	case 5:
		if (c->way == LEVEL)
			need(epoll_wait(c->sets[0], &event, 1, 0));
		break;
	case 6:
		if (c->way == LEVEL)
			put_into(c->sets[0]);
		break;
	default:
		/* The watches of its sets stay under the other number. */
		if (c->way != ONESHOT) {
			int copy = duplicate(c->in, O_CLOEXEC);
			if (c->in != c->out)
				need(close(c->in));
			c->in = copy;
		}
	}
}

/* What a child may do with a channel that its parent has claimed for it, alone. */
static void act(struct channel *c, enum access access)
{
	if (below(8) == 0)
		close_others(c);
	for (unsigned n = below(3); n > 0; n--)
		do_anything(c);
	for (unsigned n = 1 + below(3); n > 0; n--) {
		if (access == TAKE)
			consume(c, below(c->consumers));
		else
			send_one(c);
		if (access == BOTH)
			while (atomic_load(&c->counts->taken) != atomic_load(&c->counts->sent))
				consume(c, below(c->consumers));
	}
	if (access == SEND && below(2))
		until_taken(c);
	for (unsigned n = below(2); n > 0; n--)
		do_anything(c);
}

/*
 * Parent and child have both ends: the one sends, and the other takes it. Whoever takes ends
 * with what comes after it was told, or before; a consumer takes what is left.
 */
static void send_lines(const struct channel *c, unsigned lines)
{
	for (; lines > 0; lines--) {
		send_one(c);
		until_taken(c);
	}
	atomic_store(&world->told[me], 1);
	send_one(c);
}

static void take_lines(const struct channel *c)
{
	do
		consume(c, 0);
	while (!atomic_load(&world->told[me]));
}

#endif
