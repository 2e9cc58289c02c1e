/*
 * What a program can see of it that its system calls by instruction are caught: SIGSYS cannot be
 * blocked. The first argument says whether this run is plain or under `wakeset run`.
 */
#include "by_instruction.h"
#include "show.h"
#include <signal.h>

int main(int argc, char **argv)
{
	int wakeset = argc > 1 && strcmp(argv[1], "wakeset") == 0;
	sigset_t set, now;
	heading("sigsys_is_not_blocked");
	sigemptyset(&set);
	sigaddset(&set, SIGSYS);
	must(sigprocmask(SIG_BLOCK, &set, NULL));
	must(sigprocmask(SIG_BLOCK, NULL, &now));
	number("SIGSYS is blocked, before the first object", 1, sigismember(&now, SIGSYS));
	int fd = must(eventfd(0, 0));
	yes("a call by instruction", by_instruction(SYS_getpid, 0, 0, 0, 0, 0) == getpid());
	must(sigprocmask(SIG_BLOCK, NULL, &now));
	number("SIGSYS is blocked, after it", !wakeset, sigismember(&now, SIGSYS));
	must(sigprocmask(SIG_BLOCK, &set, NULL));
	must(sigprocmask(SIG_BLOCK, NULL, &now));
	number("and when it is to be", !wakeset, sigismember(&now, SIGSYS));
	yes("and another call", by_instruction(SYS_getpid, 0, 0, 0, 0, 0) == getpid());
	must(close(fd));
	return verdict();
}
