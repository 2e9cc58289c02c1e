/*
 * What a fork costs a process that has nothing of ours: pages that are copied, or mapped anew in
 * the child. Unlike the time these are the same in each run.
 */
#include "show.h"
#include <sys/resource.h>
#include <sys/wait.h>

static long faults(void)
{
	struct rusage own, children;
	must(getrusage(RUSAGE_SELF, &own));
	must(getrusage(RUSAGE_CHILDREN, &children));
	return own.ru_minflt + children.ru_minflt;
}

int main(void)
{
	enum { FORKS = 200 };
	long before = 0;
	/* The first few find their way to libc's functions. */
	for (int i = -10; i < FORKS; i++) {
		int status;
		if (i == 0)
			before = faults();
		pid_t child = must(fork());
		if (child == 0)
			_exit(0);
		must(waitpid(child, &status, 0));
	}
	printf("faults of a fork: %.2f\n", (double)(faults() - before) / FORKS);
	return verdict();
}
