/*
 * Children of all kinds, by the operators of `forks_random.c`.
 */
#ifndef FORKS_RANDOM_CHILDREN_H
#define FORKS_RANDOM_CHILDREN_H

#include "acts.h"

static struct channel *any_channel(void)
{
	return &channels[below(CHANNELS)];
}

/* One that a program can write to which knows nothing of it. */
static struct channel *any_for_programs(void)
{
	for (;;) {
		struct channel *c = any_channel();
		if (is_eventfd(c) || is_stream(c))
			return c;
		if (below(64) == 0)
			return NULL;
	}
}

/* ---- fork ---- */

static void fork_and_exit(void)
{
	pid_t child = fork_one();
	if (child == 0)
		_exit(0);
	await_child(child, "a child that ends", 0);
}

static void fork_and_act(void)
{
	struct channel *c = any_channel();
	enum access access = below(ACCESSES);
	enum end end = below(ENDS);
	claim(c, access);
	pid_t child = fork_one();
	if (child == 0) {
		struct channel mine = *c;
		act(&mine, access);
		end_by(end);
	}
	end_child(child, "a child that acts", end);
	release(c, access);
}

/* A conversation over the channel itself. */
static void fork_and_talk(void)
{
	struct channel *c = any_channel();
	enum end end = below(ENDS);
	unsigned lines = below(4), child_sends = below(2);
	claim(c, BOTH);
	atomic_store(&world->told[me], 0);
	pid_t child = fork_one();
	if (child == 0) {
		if (child_sends)
			send_lines(c, lines);
		else
			take_lines(c);
		end_by(end);
	}
	if (child_sends)
		take_lines(c);
	else
		send_lines(c, lines);
	end_child(child, "a child that talks", end);
	release(c, BOTH);
}

/* A child has a child, which acts, and may outlive it. */
static void fork_and_fork(void)
{
	struct channel *c = any_channel();
	volatile enum access access = below(ACCESSES);
	volatile int by_vfork = below(3) == 0, orphan = !by_vfork && below(2);
	enum end end = below(ENDS);
	claim(c, access);
	pid_t child = fork_one();
	if (child == 0) {
		struct channel mine = *c;
		int status = 0;
		pid_t last = need(by_vfork ? vfork() : fork());
		if (last == 0) {
			alarm(4 * PATIENCE);
			act(&mine, access);
			if (orphan) {
				tell_done();
				nap(below(3000));
			}
			_exit(0);
		}
		if (orphan) {
			while (!atomic_load(&world->done[me]))
				sleep_on_word(&world->done[me], 0, 1000);
		} else if (waitpid(last, &status, 0) != last || status != 0) {
			fail("a child's child ended with %#x", (unsigned)status);
		}
		end_by(end);
	}
	end_child(child, "a child with a child", end);
	release(c, access);
}

/* ---- those that live on ---- */

/* Read-locked by who waits for the last number of something to be closed: no child keeps it. */
static pthread_rwlock_t staying = PTHREAD_RWLOCK_INITIALIZER;

static void fork_and_stay(void)
{
	int place = me * (LINGERERS / OPERATORS) + (int)below(LINGERERS / OPERATORS);
	if (atomic_load(&lingering[place]) != 0)
		return;
	pthread_rwlock_wrlock(&staying);
	pid_t child = fork_one();
	if (child == 0) {
		struct channel mine = *any_channel();
		for (unsigned n = below(4); n > 0; n--)
			do_anything(&mine);
		if (below(4) == 0)
			close_range(3, ~0U, 0);
		for (;;)
			pause();
	}
	pthread_rwlock_unlock(&staying);
	atomic_store(&lingering[place], child);
	atomic_store(&living[me], 0);
}

static void end_lingerer(int place)
{
	pid_t child = atomic_load(&lingering[place]);
	int status = -1;
	if (child == 0)
		return;
	kill(child, SIGTERM);
	begin_wait("a child that stayed", -1);
	while (waitpid(child, &status, 0) == -1)
		if (errno != EINTR)
			need(-1);
	end_wait();
	atomic_store(&lingering[place], 0);
	if (status != SIGTERM)
		fail("a child that stayed ended with %#x", (unsigned)status);
}

/* ---- vfork, clone ---- */

static int act_apart(void *argument)
{
	const struct channel *c = argument;
	begin_child();
	send_one(c);
	_exit(0);
}

static void vfork_and_exit(void)
{
	struct slot *slot = my_slot;
	pid_t child = need(vfork());
	if (child == 0)
		_exit(0);
	my_slot = slot;
	await_child(child, "a vfork child that ends", 0);
}

static void vfork_and_act(void)
{
	struct channel *c = any_channel(), mine = *c;
	volatile enum access access = below(ACCESSES);
	struct slot *slot = my_slot;
	claim(c, access);
	mine = *c;
	begin_wait("a vfork child that acts", c->number);
	pid_t child = need(vfork());
	if (child == 0) {
		begin_child();
		act(&mine, access);
		_exit(0);
	}
	my_slot = slot;
	end_wait();
	await_child(child, "a vfork child that acts", 0);
	release(c, access);
}

static void clone_and_send(void)
{
	static char stacks[OPERATORS][256 << 10] __attribute__((aligned(16)));
	struct channel *c = any_channel();
	struct slot *slot = my_slot;
	claim(c, SEND);
	begin_wait("a cloned child that sends", c->number);
	pid_t child = need(clone(act_apart, stacks[me] + sizeof stacks[me],
				 CLONE_VM | CLONE_VFORK | SIGCHLD, c));
	my_slot = slot;
	end_wait();
	await_child(child, "a cloned child that sends", 0);
	release(c, SEND);
}

/* ---- exec ---- */

static pid_t spawn(const struct command *command)
{
	pid_t child;
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	if (command->from >= 0)
		must_be_zero(
		    posix_spawn_file_actions_adddup2(&actions, command->from, command->number));
	if (below(4) == 0)
		must_be_zero(posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0));
	int other = any_channel()->acknowledge;
	if (other >= 0 && below(2))
		must_be_zero(posix_spawn_file_actions_addclose(&actions, other));
	must_be_zero(posix_spawn(&child, self, &actions, NULL, command->arguments, environ));
	posix_spawn_file_actions_destroy(&actions);
	return child;
}

static void execute_in_child(const struct command *command, const char *what)
{
	pid_t child;
	struct slot *slot = my_slot;
	switch (below(3)) {
	case 0:
		child = fork_one();
		break;
	case 1:
		child = need(vfork());
		break;
	default:
		child = spawn(command);
	}
	if (child == 0)
		execute(command);
	my_slot = slot;
	atomic_store(&living[me], child);
	await_child(child, what, 0);
}

static void execute_and_end(void)
{
	struct command command;
	make_command(&command, "end", -1, -1);
	execute_in_child(&command, "a program that ends");
}

static void execute_and_send(void)
{
	struct command command;
	struct channel *c = any_for_programs();
	if (!c)
		return;
	claim(c, SEND);
	/* Either is inherited: the number itself, or another one made for the program. */
	command_that_sends(&command, c, below(2) ? c->out : 200 + me);
	execute_in_child(&command, "a program that writes");
	if (below(2))
		until_taken(c);
	release(c, SEND);
}

static void execute_without(void)
{
	struct command command;
	struct channel *c = any_channel();
	if (!c->cloexec)
		return;
	/* So that it keeps its number. */
	claim(c, SEND);
	make_command(&command, "gone", below(2) ? c->in : c->out, -1);
	execute_in_child(&command, "a program that has inherited what is close-on-exec");
	release(c, SEND);
}

#endif
