/*
 * poll(2), ppoll(2), select(2) and pselect(2) of objects, where more than the call itself has a
 * part: signal handlers that leave the call or make another, forks, cancellation by another
 * thread, dup2(2) over whatever number there is, and what select(2) leaves of its time.
 *
 * What each case would catch:
 *   jumps out of calls          a call left by siglongjmp(3) that keeps its watches or its doorbell
 *   calls within calls          a handler's call that takes what the interrupted one sleeps in
 *   a handler that writes       a call that reports what came after it had been interrupted
 *   a fork under a call         a sleeper that does not hear of what is the kernel's now
 *   dup2 over every number      a doorbell whose number the program wants while a thread sleeps
 *   what is left of the time    a timeout that is not written back, or by ppoll(2)
 */
#include "show.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>

static int counter, other, quiet[2];
static sigjmp_buf back;
static int inner_result;
static enum { NOTHING, JUMP, POLL, WRITE } act;

static void handle(int signal)
{
	(void)signal;
	struct pollfd both[] = {{counter, POLLIN | POLLOUT, 0}, {quiet[0], POLLIN, 0}};
	struct pollfd one = {other, POLLIN, 0};
	switch (act) {
	case NOTHING: break;
	case JUMP: siglongjmp(back, 1);
	case POLL:
		inner_result = poll(both, 2, -1) * 10 + poll(&one, 1, 1);
		break;
	case WRITE: must(add(counter, 1)); break;
	}
}

static void empty(void)
{
	uint64_t value;
	(void)!read(counter, &value, sizeof value);
}

static void handle_signals(void)
{
	struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
	must(sigaction(SIGALRM, &action, NULL));
}

static void alarm_soon(void)
{
	struct itimerval soon = {.it_value = {0, 3000}};
	must(setitimer(ITIMER_REAL, &soon, NULL));
}

enum way { ALONE, MIXED, MASKED, SELECTED, MIXED_SELECT, WAYS };
static const char *const names[] = {"alone", "beside a pipe", "with a mask", "select",
                                    "select beside a pipe"};

/* A call without a limit that finds nothing ready unless the counter is. */
static int block(enum way way)
{
	struct pollfd both[] = {{counter, POLLIN, 0}, {quiet[0], POLLIN, 0}};
	sigset_t none;
	fd_set read;
	sigemptyset(&none);
	FD_ZERO(&read);
	FD_SET(counter, &read);
	int n = counter + 1;
	switch (way) {
	case ALONE: return poll(both, 1, -1);
	case MIXED: return poll(both, 2, -1);
	case MASKED: return ppoll(both, 1, NULL, &none);
	case SELECTED: return select(n, &read, NULL, NULL, NULL);
	default:
		FD_SET(quiet[0], &read);
		return select(n > quiet[0] ? n : quiet[0] + 1, &read, NULL, NULL, NULL);
	}
}

static void show_jumps(void)
{
	heading("jumps out of calls");
	act = JUMP;
	for (enum way way = 0; way < WAYS; way++) {
		for (volatile int i = 0; i < 50; i++) {
			if (sigsetjmp(back, 1) == 0) {
				alarm_soon();
				block(way);
				surprises++;
			}
		}
		must(add(counter, 1));
		CALL(names[way], "1", block(way));
		empty();
	}
	act = NOTHING;
}

static void show_interruptions(void)
{
	for (act = NOTHING; act <= WRITE; act++) {
		if (act == JUMP)
			continue;
		heading(act == NOTHING ? "interrupted" : act == POLL ? "calls within calls"
		                                                     : "a handler that writes");
		for (enum way way = 0; way < WAYS; way++) {
			alarm_soon();
			CALL(names[way], "-1 EINTR", block(way));
			if (act == POLL)
				number("  inside", 10, inner_result);
			empty();
		}
	}
	act = NOTHING;
}

static void *block_in_thread(void *way)
{
	return (void *)(long)block(*(enum way *)way);
}

static void show_forks(void)
{
	heading("a fork under a call");
	for (enum way way = 0; way < WAYS; way++) {
		struct thread thread;
		must(close(counter));
		counter = must(eventfd(0, EFD_NONBLOCK));
		start(&thread, block_in_thread, &way);
		until_asleep(thread.id);
		pid_t child = must(fork());
		if (child == 0)
			_exit(poll(&(struct pollfd){counter, POLLIN | POLLOUT, 0}, 1, -1));
		int status;
		must(waitpid(child, &status, 0));
		number("the child's call", 1, WEXITSTATUS(status));
		must(add(counter, 1));
		number(names[way], 1, (long)finish(&thread));
		empty();
	}
}

/* Whatever number a sleeping thread uses beside those of the program. */
static void show_numbers(void)
{
	heading("dup2 over every number");
	for (enum way way = 0; way < WAYS; way++) {
		struct thread thread;
		must(close(counter));
		counter = must(eventfd(0, EFD_NONBLOCK));
		start(&thread, block_in_thread, &way);
		until_asleep(thread.id);
		for (int fd = 3; fd < 600; fd++) {
			if (fcntl(fd, F_GETFD) == -1) {
				must(dup2(quiet[1], fd));
				must(close(fd));
			}
		}
		until_asleep(thread.id);
		must(add(counter, 1));
		number(names[way], 1, (long)finish(&thread));
		empty();
	}
}

static void show_time(void)
{
	heading("what is left of the time");
	fd_set read;
	FD_ZERO(&read);
	FD_SET(counter, &read);
	struct timeval limit = {0, 3000};
	CALL("select, to the end", "0", select(counter + 1, &read, NULL, NULL, &limit));
	yes("  nothing is left", limit.tv_sec == 0 && limit.tv_usec == 0);
	yes("  nor in the set", !FD_ISSET(counter, &read));
	must(add(counter, 1));
	limit.tv_sec = 1000;
	FD_SET(counter, &read);
	CALL("select, at once", "1", select(counter + 1, &read, NULL, NULL, &limit));
	yes("  most is left", limit.tv_sec >= 999);
	struct timespec exact = {1000, 5};
	struct pollfd one = {counter, POLLIN, 0};
	CALL("ppoll", "1", ppoll(&one, 1, &exact, NULL));
	yes("  leaves its limit", exact.tv_sec == 1000 && exact.tv_nsec == 5);
	CALL("the system call", "1", syscall(SYS_ppoll, &one, 1, &exact, NULL, 8L));
	yes("  does not", exact.tv_sec <= 1000 && exact.tv_nsec != 5);
	CALL("a wrong one", "-1 EINVAL", ppoll(&one, 1, &(struct timespec){0, -1}, NULL));
	CALL("one that is not there", "-1 EFAULT", syscall(SYS_ppoll, &one, 1, 8L, NULL, 8L));
	CALL("a mask of another size", "-1 EINVAL", syscall(SYS_ppoll, &one, 1, NULL, &exact, 4L));
	empty();
}

int main(void)
{
	counter = must(eventfd(0, EFD_NONBLOCK));
	other = must(eventfd(0, EFD_NONBLOCK));
	must(pipe(quiet));
	int moved = must(dup(quiet[0]));
	must(close(moved));
	handle_signals();
	show_time();
	show_interruptions();
	show_jumps();
	show_numbers();
	show_forks();
	return verdict();
}
