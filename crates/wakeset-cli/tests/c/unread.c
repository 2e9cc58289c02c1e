/*
 * poll(2) and select(2) of bad pointers, and of sets with less room than numbers, in a process that
 * has made no object: there is nothing to look for in that memory, so nobody but the kernel reads
 * it, which says EFAULT or passes over what lies beyond the table of descriptors. A fault would end
 * the process: before anybody has registered a handler, while SIGSEGV is blocked or ignored, and
 * under a handler that was registered by instruction.
 *
 * With WAKESET_DISABLE=1 the same holds of calls that have time, which "timed" adds.
 */
#include "show.h"
#include "by_instruction.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>

enum { LIMIT = 4096, PAGE = 4096, CALLS = 10, TIMED = 4 };

static const char *const names[CALLS] = {
	"poll", "ppoll", "poll of an end of memory", "poll of far too many", "select", "pselect",
	"poll in time", "ppoll in time", "select in time", "pselect in time"};

/* the page before one that is not there */
static char *page;
static long long early[CALLS];
static int early_errors[CALLS];

/* a number that is ready, in a set with room for 1,024, at the end of the memory */
static fd_set *small_set(void)
{
	fd_set *set = (void *)(page + PAGE - sizeof *set);
	FD_ZERO(set);
	FD_SET(0, set);
	return set;
}

static long long make_call(int which)
{
	struct pollfd *volatile nowhere = (void *)8, *last = (void *)(page + PAGE - sizeof *last);
	fd_set *volatile no_set = (void *)8;
	struct timespec none = {0}, some = {0, 1000};
	struct timeval no_time = {0}, time = {0, 1};
	*last = (struct pollfd){.fd = -1};
	switch (which) {
	case 0: return poll(nowhere, 1, 0);
	case 1: return ppoll(nowhere, 1, &none, NULL);
	case 2: return poll(last, 2, 0);
	case 3: return poll(last, 1 << 20, 0);
	case 4: return select(1 << 20, small_set(), NULL, NULL, &no_time);
	case 5: return pselect(1, no_set, NULL, NULL, &none, NULL);
	case 6: return poll(nowhere, 1, 1);
	case 7: return ppoll(nowhere, 1, &some, NULL);
	case 8: return select(1 << 20, small_set(), NULL, NULL, &time);
	default: return pselect(1, no_set, NULL, NULL, &some, NULL);
	}
}

static const char *wanted(int which)
{
	switch (which) {
	case 3: return "-1 EINVAL";
	case 4:
	case 8: return "1";
	default: return "-1 EFAULT";
	}
}

static void be_early(int count, char **arguments, char **environment)
{
	struct rlimit limit;
	(void)count, (void)arguments, (void)environment;
	/* fewer than the array that is too long has entries */
	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur > LIMIT)
		limit.rlim_cur = LIMIT;
	setrlimit(RLIMIT_NOFILE, &limit);
	page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED || mprotect(page + PAGE, PAGE, PROT_NONE) != 0)
		_exit(2);
	for (int which = 0; which < CALLS; which++) {
		early[which] = make_call(which);
		early_errors[which] = errno;
	}
}

__attribute__((section(".preinit_array"), used)) static void (*first)(int, char **, char **) =
    be_early;

static void show_early(void)
{
	heading("before any constructor");
	for (int which = 0; which < CALLS; which++) {
		errno = early_errors[which];
		show(names[which], wanted(which), outcome(early[which]));
	}
}

static void show_all(int timed)
{
	for (int which = 0; which < (timed ? CALLS : CALLS - TIMED); which++)
		CALL(names[which], wanted(which), make_call(which));
}

static void show_blocked(int timed)
{
	sigset_t fault;
	sigemptyset(&fault);
	sigaddset(&fault, SIGSEGV);
	heading("SIGSEGV blocked");
	must(sigprocmask(SIG_BLOCK, &fault, NULL));
	show_all(timed);
	must(sigprocmask(SIG_UNBLOCK, &fault, NULL));
}

static void end_by_fault(int number_)
{
	(void)number_;
	_exit(42);
}

void return_from_handler(void);
__asm__(".text\nreturn_from_handler: mov $15, %eax\nsyscall");

static void show_unknown_handler(int timed)
{
	const unsigned long restorer = 0x04000000;
	struct {
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		unsigned long mask;
	} action = {end_by_fault, restorer, return_from_handler, 0};
	heading("a handler registered by instruction");
	number("registered", 0,
	       by_instruction(SYS_rt_sigaction, SIGSEGV, (long)&action, 0, sizeof action.mask, 0));
	show_all(timed);
}

int main(int count, char **arguments)
{
	int timed = count > 1 && strcmp(arguments[1], "timed") == 0;
	show_early();
	heading("by itself");
	show_all(1);
	show_blocked(timed);
	heading("SIGSEGV ignored");
	if (signal(SIGSEGV, SIG_IGN) == SIG_ERR)
		must(-1);
	show_all(timed);
	show_unknown_handler(timed);
	return verdict();
}
