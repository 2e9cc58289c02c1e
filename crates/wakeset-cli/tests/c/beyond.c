/*
 * poll(2) and select(2) beside objects, with more entries than a process may have descriptors and
 * with more numbers than a set has room for. Linux says EINVAL to the one before it looks at an
 * entry, and passes over the other's numbers beyond the table of descriptors.
 *
 * What each case would catch:
 *   more than there may be     memory for entries that the call does not look at
 *   sets with less room        a look past the end of a set: SIGSEGV is blocked, so it would end
 *                              the process
 */
#include "show.h"
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>

enum { LIMIT = 4096, PAGE = 4096, TOO_MANY = 8 << 20 };

/* the page before one that is not there */
static char *page;

static struct pollfd *last_entry(int fd)
{
	struct pollfd *entry = (void *)(page + PAGE - sizeof *entry);
	*entry = (struct pollfd){fd, POLLIN, 0};
	return entry;
}

static long most_kilobytes(void)
{
	struct rusage used;
	must(getrusage(RUSAGE_SELF, &used));
	return used.ru_maxrss;
}

static void show_too_many(const char *name, nfds_t entries, int milliseconds)
{
	int counter = must(eventfd(0, EFD_NONBLOCK));
	long before = most_kilobytes();
	CALL(name, "-1 EINVAL", poll(last_entry(counter), entries, milliseconds));
	yes("  with little memory", most_kilobytes() - before < 16 << 10);
	must(add(counter, 1));
	CALL("  the object is as before", "1", poll(last_entry(counter), 1, 0));
	must(close(counter));
}

/* zero and the counter, in a set with room for 1,024, at the end of the memory */
static fd_set *small_set(int counter)
{
	fd_set *set = (void *)(page + PAGE - sizeof *set);
	FD_ZERO(set);
	FD_SET(0, set);
	if (counter >= 0)
		FD_SET(counter, set);
	return set;
}

static void show_small_sets(const char *name, int n)
{
	struct timeval none = {0}, soon = {5, 0};
	struct timespec exact = {5, 0};
	int counter = must(eventfd(1, EFD_NONBLOCK));
	printf("%s\n", name);
	CALL("select", "1", select(n, small_set(-1), NULL, NULL, &none));
	CALL("  in time", "1", select(n, small_set(-1), NULL, NULL, &soon));
	CALL("  pselect", "1", pselect(n, NULL, small_set(-1), NULL, &exact, NULL));
	CALL("  of an object", "2", select(n, small_set(counter), NULL, NULL, &none));
	must(close(counter));
	counter = must(eventfd(1, EFD_NONBLOCK));
	CALL("  of an object, in time", "2", select(n, small_set(counter), NULL, NULL, &soon));
	must(close(counter));
}

int main(void)
{
	struct rlimit limit;
	sigset_t fault;
	must(getrlimit(RLIMIT_NOFILE, &limit));
	if (limit.rlim_cur > LIMIT)
		limit.rlim_cur = LIMIT;
	must(setrlimit(RLIMIT_NOFILE, &limit));
	page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		must(-1);
	must(mprotect(page + PAGE, PAGE, PROT_NONE));
	heading("more than there may be");
	show_too_many("poll", TOO_MANY, 0);
	show_too_many("poll in time", TOO_MANY, 5);
	show_too_many("poll of all that can be said", (nfds_t)-1, 0);
	heading("sets with less room");
	sigemptyset(&fault);
	sigaddset(&fault, SIGSEGV);
	must(sigprocmask(SIG_BLOCK, &fault, NULL));
	show_small_sets("a million numbers", 1 << 20);
	show_small_sets("as many as can be said", INT_MAX);
	return verdict();
}
