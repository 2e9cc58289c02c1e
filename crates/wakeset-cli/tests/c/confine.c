/*
 * confine SURROUNDING… -- PROGRAM ARGS…: runs a program in scarce or hostile surroundings, which
 * may be several. Status 125 and a word on stderr: this machine, or this user, cannot make one.
 *
 * | surrounding | |
 * |---|---|
 * | refuse:NUMBER:ERRNO | a filter with which a system call fails |
 * | kill:NUMBER | one that ends a process that makes the call |
 * | without:ERRNO:N,N,… | one with which these fail, or kill if ERRNO is 0 |
 * | calls | none: prints the numbers of the calls that the program makes, in descriptor 9 |
 * | nofile:N data:N as:N stack:N fsize:N | a limit, see setrlimit(2) |
 * | noproc noshm readonly | no /proc, no /dev/shm, nothing that can be written but /tmp; for root |
 * | nobody | user and group 65534; for root |
 * | nocaps | root without its capabilities |
 * | memory:N | a control group with so many bytes; for root, where there is one to be had |
 * | preload:PATH | for the program alone */
#include "show.h"
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char *preload;

static _Noreturn void cannot(const char *what)
{
	fprintf(stderr, "confine: cannot make %s: %s\n", what, strerror(errno));
	exit(125);
}

#define able(call, what)          \
	do {                      \
		if ((call) < 0)   \
			cannot(what); \
	} while (0)

/* ---- filters ---- */

static void install(struct sock_filter *filter, unsigned short len)
{
	struct sock_fprog program = {len, filter};
	able(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "a filter");
	able(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), "a filter");
}

/* Answers these calls in one way and all others in another. */
static void divide(const int *calls, int count, unsigned these, unsigned others)
{
	struct sock_filter filter[600];
	int len = 0;
	filter[len++] =
		(struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int i = 0; i < count; i++) {
		filter[len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
		filter[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, these);
	}
	filter[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, others);
	install(filter, (unsigned short)len);
}

static unsigned answer(int error)
{
	return error ? SECCOMP_RET_ERRNO | (unsigned)error : SECCOMP_RET_KILL_PROCESS;
}

static int numbers(const char *text, int *calls, int most)
{
	int count = 0;
	for (char *end; *text && count < most; text = *end ? end + 1 : end)
		calls[count++] = (int)strtol(text, &end, 10);
	return count;
}

/* ---- which calls a program makes ---- */

static void follow(pid_t child)
{
	static char made[1024];
	int status, result = 0;
	pid_t pid;
	while ((pid = waitpid(-1, &status, __WALL)) > 0) {
		if (!WIFSTOPPED(status)) {
			if (pid == child)
				result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
			continue;
		}
		int signal = WSTOPSIG(status), event = status >> 16;
		if (event == PTRACE_EVENT_SECCOMP) {
			unsigned long call = 0;
			ptrace(PTRACE_GETEVENTMSG, pid, 0, &call);
			struct __ptrace_syscall_info info;
			if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) > 0 &&
			    info.seccomp.nr < sizeof made)
				made[info.seccomp.nr] = 1;
		}
		if (event || signal == SIGSTOP)
			signal = 0;
		ptrace(PTRACE_CONT, pid, 0, signal);
	}
	for (int call = 0; call < (int)sizeof made; call++)
		if (made[call])
			dprintf(9, "%d\n", call);
	exit(result);
}

static void print_calls(void)
{
	int all[1] = {-1};
	pid_t child = must(fork());
	if (child != 0) {
		must(waitpid(child, &(int){0}, __WALL));
		long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
			       PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
		able(ptrace(PTRACE_SETOPTIONS, child, 0, options), "a tracer");
		ptrace(PTRACE_CONT, child, 0, 0);
		follow(child);
	}
	able(ptrace(PTRACE_TRACEME, 0, 0, 0), "a tracer");
	raise(SIGSTOP);
	divide(all, 1, SECCOMP_RET_ALLOW, SECCOMP_RET_TRACE);
}

/* ---- what is not there ---- */

static void cover(const char *path)
{
	able(unshare(CLONE_NEWNS), path);
	able(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), path);
	able(mount("none", path, "tmpfs", MS_RDONLY, NULL), path);
}

static void write_nowhere(void)
{
	const char *what = "a read-only root";
	able(unshare(CLONE_NEWNS), what);
	able(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), what);
	able(mount("/tmp", "/tmp", NULL, MS_BIND, NULL), what);
	able(mount("/", "/", NULL, MS_BIND | MS_REC, NULL), what);
	able(chdir("/"), what);
	able(mount("/", "/", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), what);
	able(chroot("/"), what);
}

static void be_nobody(void)
{
	able(setgroups(0, NULL), "nobody");
	able(setgid(65534), "nobody");
	able(setuid(65534), "nobody");
}

static void drop_capabilities(void)
{
	for (int capability = 0; capability <= 63; capability++)
		if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0 && errno != EINVAL)
			cannot("a process without capabilities");
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2] = {{0}};
	able(syscall(SYS_capset, &header, none), "a process without capabilities");
}

static void put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (file < 0 || write(file, text, strlen(text)) < 0)
		cannot("a memory cgroup");
	close(file);
}

static void limit_memory(const char *bytes)
{
	char group[128], path[192], own[32];
	snprintf(own, sizeof own, "%d", (int)getpid());
	snprintf(group, sizeof group, "/sys/fs/cgroup/wakeset-%s", own);
	if (access("/sys/fs/cgroup/cgroup.controllers", F_OK) != 0)
		snprintf(group, sizeof group, "/sys/fs/cgroup/memory/wakeset-%s", own);
	able(mkdir(group, 0700), "a memory cgroup");
	snprintf(path, sizeof path, "%s/memory.max", group);
	if (access(path, F_OK) != 0)
		snprintf(path, sizeof path, "%s/memory.limit_in_bytes", group);
	/* A parent stays outside, and takes the group away. */
	int error = 0, status, file = open(path, O_WRONLY | O_CLOEXEC);
	if (file < 0 || write(file, bytes, strlen(bytes)) < 0)
		error = errno;
	pid_t child = error ? -1 : fork();
	if (child == 0) {
		snprintf(own, sizeof own, "%d", (int)getpid());
		snprintf(path, sizeof path, "%s/cgroup.procs", group);
		put(path, own);
		return;
	}
	if (child > 0)
		waitpid(child, &status, 0);
	rmdir(group);
	errno = error;
	if (error)
		cannot("a memory cgroup");
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* ---- limits ---- */

static const struct {
	const char *name;
	int resource;
} limits[] = {{"nofile:", RLIMIT_NOFILE}, {"data:", RLIMIT_DATA}, {"as:", RLIMIT_AS},
	      {"stack:", RLIMIT_STACK},   {"fsize:", RLIMIT_FSIZE}};

static int set_limit(const char *text)
{
	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
		size_t len = strlen(limits[i].name);
		if (strncmp(text, limits[i].name, len) == 0) {
			rlim_t most = strtoul(text + len, NULL, 10);
			able(setrlimit(limits[i].resource, &(struct rlimit){most, most}), text);
			return 1;
		}
	}
	return 0;
}

static void make(char *text)
{
	static int calls[256];
	char *colon = strchr(text, ':'), *second = colon ? strchr(colon + 1, ':') : NULL;
	int first = colon ? (int)strtol(colon + 1, NULL, 10) : 0;
	if (strncmp(text, "refuse:", 7) == 0)
		divide(&first, 1, answer((int)strtol(second + 1, NULL, 10)), SECCOMP_RET_ALLOW);
	else if (strncmp(text, "kill:", 5) == 0)
		divide(&first, 1, answer(0), SECCOMP_RET_ALLOW);
	else if (strncmp(text, "without:", 8) == 0)
		divide(calls, numbers(second + 1, calls, 256), answer(first), SECCOMP_RET_ALLOW);
	else if (strcmp(text, "calls") == 0)
		print_calls();
	else if (strcmp(text, "noproc") == 0)
		cover("/proc");
	else if (strcmp(text, "noshm") == 0)
		cover("/dev/shm");
	else if (strcmp(text, "readonly") == 0)
		write_nowhere();
	else if (strcmp(text, "nobody") == 0)
		be_nobody();
	else if (strcmp(text, "nocaps") == 0)
		drop_capabilities();
	else if (strncmp(text, "memory:", 7) == 0)
		limit_memory(text + 7);
	else if (strncmp(text, "preload:", 8) == 0)
		preload = text + 8;
	else if (!set_limit(text)) {
		errno = EINVAL;
		cannot(text);
	}
}

int main(int count, char **words)
{
	int i = 1;
	for (; i < count && strcmp(words[i], "--") != 0; i++)
		if (strncmp(words[i], "preload:", 8) == 0)
			make(words[i]);
	if (preload)
		setenv("LD_PRELOAD", preload, 1);
	for (i = 1; i < count && strcmp(words[i], "--") != 0; i++)
		if (strncmp(words[i], "preload:", 8) != 0)
			make(words[i]);
	if (i + 1 >= count)
		return 2;
	execvp(words[i + 1], words + i + 1);
	cannot(words[i + 1]);
}
