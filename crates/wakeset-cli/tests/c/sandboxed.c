/*
 * A program that makes objects and then installs a filter which knows nothing of the calls that
 * somebody else might make: each of these ends the process. What it does afterwards it does as
 * before.
 */
#include "show.h"
#include <linux/audit.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

static void forbid(int call, int by_prctl)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, call, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	if (by_prctl)
		must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
	else
		must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

static void work(int call, int by_prctl)
{
	int set = must(epoll_create1(0)), edge = must(eventfd(1, 0)), level = must(eventfd(2, 0)),
	    timer = must(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK)), pair[2], lines[2];
	char text[8] = "";
	struct itimerspec soon = {.it_value.tv_nsec = 1};
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	must(pipe(lines));
	must(write(pair[1], "ab", 2));
	must(write(lines[1], "c", 1));
	must(watch_new(set, edge, EPOLLIN | EPOLLET, 'e'));
	must(watch_new(set, level, EPOLLIN, 'l'));
	must(watch_new(set, timer, EPOLLIN, 't'));
	must(watch_new(set, pair[0], EPOLLIN, 'p'));
	must(timerfd_settime(timer, 0, &soon, NULL));
	sleep_ms(2);
	show("before", "e=IN l=IN p=IN t=IN", sorted(set, 16, 0));
	forbid(call, by_prctl);
	show("after", "l=IN p=IN t=IN", sorted(set, 16, 0));
	int copy = must(dup(level)), others = must(dup(pair[0])), third = must(dup(lines[0]));
	number("a copy", 2, take(copy));
	number("bytes", 2, read(others, text, sizeof text));
	number("more", 1, read(third, text, sizeof text));
	number("the timer", 1, take(timer));
	show("nothing", "none", sorted(set, 16, 2));
	must(add(edge, 1));
	show("an edge", "e=IN", sorted(set, 16, 1000));
	must(close(lines[1]));
	must(close(pair[1]));
	number("the end", 0, read(third, text, sizeof text));
}

int main(void)
{
	static const struct {
		const char *name;
		int call;
	} calls[] = {
		{"open", SYS_open}, {"getdents64", SYS_getdents64}, {"sendto", SYS_sendto},
		{"recvfrom", SYS_recvfrom}, {"kcmp", SYS_kcmp}, {"sched_yield", SYS_sched_yield},
		{"fstat", SYS_fstat}, {"epoll_pwait", SYS_epoll_pwait}, {"epoll_pwait2", SYS_epoll_pwait2},
		{"poll", SYS_poll}, {"ppoll", SYS_ppoll}, {"dup3", SYS_dup3}, {"eventfd2", SYS_eventfd2},
		{"gettid", SYS_gettid}, {"tgkill", SYS_tgkill}, {"futex", SYS_futex},
		{"getsockopt", SYS_getsockopt}, {"madvise", SYS_madvise},
	};
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		heading(calls[i].name);
		pid_t child = must(fork());
		if (child == 0) {
			work(calls[i].call, i % 2);
			_exit(surprises ? 1 : 0);
		}
		int status;
		must(waitpid(child, &status, 0));
		number("status", 0, status);
	}
	return verdict();
}
