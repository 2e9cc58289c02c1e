/*
 * A poll(2) of a listener and a socket that looks at them, and then gets no processor until its
 * time is up: what comes meanwhile came in time. The parent traces it, ends its sleep, and stops it
 * after its look.
 */
#include "listening.h"
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

enum { LIMIT_MS = 600, PATIENCE_MS = 100 };

static int64_t milliseconds_since(int64_t begin)
{
	return (now() - begin) / 1000000;
}

static int found_in_time(int begins, int listener, int socket)
{
	struct pollfd fds[] = {{listener, POLLIN, 0}, {socket, POLLIN, 0}};
	char byte;
	must(read(begins, &byte, 1));
	return must(poll(fds, 2, LIMIT_MS)) == 1 && fds[1].revents == POLLIN;
}

static long call_of(pid_t child)
{
	struct user_regs_struct registers;
	must(ptrace(PTRACE_GETREGS, child, NULL, &registers));
	return (long)registers.orig_rax;
}

/* Lets the child go on until it has looked, or its call, which a stop has ended, begins anew. */
static void run_to_look(pid_t child)
{
	int status, looks = 0;
	for (;;) {
		must(ptrace(PTRACE_SYSCALL, child, NULL, NULL));
		must(waitpid(child, &status, 0));
		long call = call_of(child);
		looks += call == SYS_poll || call == SYS_ppoll;
		/* At its beginning, and at its end. */
		if (looks == 2 || call == SYS_restart_syscall || !WIFSTOPPED(status))
			return;
	}
}

int main(void)
{
	int begins[2], ends[2], status, listener = listen_on(AF_INET);
	must(pipe(begins));
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
	pid_t child = must(fork());
	if (child == 0)
		_exit(found_in_time(begins[0], listener, ends[0]));
	must(ptrace(PTRACE_SEIZE, child, NULL, (void *)PTRACE_O_TRACESYSGOOD));
	int64_t began = now();
	must(write(begins[1], "x", 1));
	sleep_ms(PATIENCE_MS);
	until_process_asleep(child);
	must(ptrace(PTRACE_INTERRUPT, child, NULL, NULL));
	must(waitpid(child, &status, 0));
	run_to_look(child);
	must(write(ends[1], "x", 1));
	int in_time = milliseconds_since(began) < LIMIT_MS;
	while (milliseconds_since(began) < LIMIT_MS + PATIENCE_MS)
		sleep_ms(10);
	must(ptrace(PTRACE_DETACH, child, NULL, NULL));
	must(waitpid(child, &status, 0));
	int found = WIFEXITED(status) && WEXITSTATUS(status) == 1;
	yes("it finds what came in time", found || !in_time);
	return verdict();
}
