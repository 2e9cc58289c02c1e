/*
 * All that is shown, and surroundings in which it is.
 */
#ifndef SURROUNDINGS_H
#define SURROUNDINGS_H

#include "calls.h"
#include "signals.h"
#include "threads.h"

/* Without a filter, as libseccomp asks which flags the kernel has: nothing is installed. */
static inline void probes(void)
{
	heading("no filter");
	errno = 0;
	show("by seccomp",
	     syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, NULL), -1);
	show("why", errno, EFAULT);
	show("by prctl", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL), -1);
	show("why", errno, EFAULT);
}

static void all(raw_call *raw)
{
	probes();
	counts(raw);
	sets(raw);
	polls(raw);
	closes(raw);
	threads(raw);
	children(raw);
	masks(raw);
	handlers(raw);
	sigsys(raw);
}

/* Has a filter refuse what dispatch is turned on with, and begins again. */
static inline void refuse_dispatch(char **argv)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 59, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	show("no new privileges", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	show("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
	argv[1] = NULL;
	execv("/proc/self/exe", argv);
}

/* So many that looking at each is given up. */
static inline void often(raw_call *raw)
{
	heading("very many");
	int fd = eventfd(0, EFD_NONBLOCK);
	uint64_t sum = 0;
	for (int i = 1; i <= 20000; i++) {
		uint64_t n = 1;
		if (i % 100 == 0) {
			close(fd);
			fd = eventfd(0, EFD_NONBLOCK);
		}
		if (i & 1 ? put(raw, fd, 1) != 8 : write(fd, &n, 8) != 8)
			break;
		sum += i & 2 ? get(raw, fd) : get_by_libc(fd);
	}
	show("sum", (long)sum, 20000);
	close(fd);
}

#endif
