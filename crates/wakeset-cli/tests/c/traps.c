/*
 * A sandbox of the kind that asks another process for what a seccomp filter refuses: the filter
 * turns calls into SIGSYS, whose handler makes a socket pair, passes one end on in a message, and
 * waits for the answer. To the program the calls work. It need not know of all calls that are
 * made: some of them are made by libraries, in the middle of something.
 */
#include "show.h"
#include <linux/audit.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* A sixth argument with which the filter lets a call pass. */
#define LET_PASS 0x5afe5afe

static int broker;
static volatile sig_atomic_t trapped;

/* By instruction: the handler of a filter's SIGSYS must not come back here. */
static long let_pass(long number_, const long long *arguments)
{
	long result;
	register long fourth __asm__("r10") = arguments[3];
	register long fifth __asm__("r8") = arguments[4];
	register long sixth __asm__("r9") = LET_PASS;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number_), "D"(arguments[0]), "S"(arguments[1]), "d"(arguments[2]), "r"(fourth),
			   "r"(fifth), "r"(sixth)
			 : "rcx", "r11", "memory");
	return result;
}

/* Asks the other process, as Chromium's SIGSYS handler asks its broker. */
static int ask(char question)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
	struct iovec vector = {&question, 1};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control,
	    .msg_controllen = sizeof control};
	int pair[2];
	char answer = 0;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
		return -1;
	memcpy(CMSG_DATA(&control.head), &pair[1], sizeof(int));
	if (sendmsg(broker, &message, MSG_NOSIGNAL) != 1)
		return -1;
	close(pair[1]);
	if (read(pair[0], &answer, 1) != 1)
		return -1;
	close(pair[0]);
	return answer;
}

static void on_trap(int number_, siginfo_t *info, void *context)
{
	long long *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	long long arguments[6] = {registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
	    registers[REG_R10], registers[REG_R8]};
	int saved = errno;
	(void)number_;
	trapped++;
	registers[REG_RAX] = ask('?') == 'y' ? let_pass(info->si_syscall, arguments) : -EACCES;
	errno = saved;
}

/* The other process: says yes to everything. */
static void answer(int socket)
{
	for (;;) {
		char question, control[CMSG_SPACE(sizeof(int))];
		struct iovec vector = {&question, 1};
		struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control,
		    .msg_controllen = sizeof control};
		int fd;
		if (recvmsg(socket, &message, 0) != 1)
			_exit(0);
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
		if (write(fd, "y", 1) != 1)
			_exit(1);
		close(fd);
	}
}

static void start_broker(void)
{
	int pair[2];
	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
	if (must(fork()) == 0) {
		close(pair[0]);
		answer(pair[1]);
	}
	must(close(pair[1]));
	broker = pair[0];
}

/* From here on a call is trapped. */
static void trap(unsigned number_)
{
	struct sock_filter filter[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number_, 0, 3),
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5])),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, LET_PASS, 1, 0),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

/* In a child, since filters stay: what becomes of objects and watches while a call is trapped. */
static void show_trapped(const char *name, const unsigned *numbers, int is_own)
{
	int status;
	heading(name);
	pid_t child = must(fork());
	if (child == 0) {
		int set = must(epoll_create1(0)), edge = must(eventfd(1, 0)), level = must(eventfd(2, 0)),
		    lines[2], own;
		alarm(20);
		must(pipe(lines));
		must(watch_new(set, edge, EPOLLIN | EPOLLET, 'e'));
		must(watch_new(set, level, EPOLLIN, 'l'));
		must(watch_new(set, lines[0], EPOLLIN, 'p'));
		show("before", "e=IN l=IN", ready(set));
		for (; *numbers; numbers++)
			trap(*numbers);
		int copy = must(dup(level));
		number("the copy", 2, take(copy));
		must(close(must(dup(lines[0]))));
		must(write(lines[1], "x", 1));
		must(close(must(dup(edge))));
		must(add(edge, 1));
		must(add(level, 1));
		/* In whatever order: a migration may change it. */
		const char *found = ready(set);
		yes("after, level", strstr(found, "l=IN") != NULL);
		yes("after, edge", strstr(found, "e=IN") != NULL);
		yes("after, pipe", strstr(found, "p=IN") != NULL);
		number("events", 14, (long long)strlen(found));
		number("edge", 2, take(edge));
		number("level", 1, take(level));
		/* What the program asks for by itself goes through the handler as ever. */
		trapped = 0;
		if (is_own) {
			own = open("/proc/self/stat", O_RDONLY);
			yes("a file of the program's", own >= 0 && trapped == 1);
		}
		exit(verdict());
	}
	must(waitpid(child, &status, 0));
	yes("ends by itself", WIFEXITED(status));
	number("status", 0, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/* Both directions of a pair, and its end. */
static void show_pair(const char *name, const int pair[2])
{
	char letter = 0;
	must(write(pair[1], "x", 1));
	must(read(pair[0], &letter, 1));
	must(close(pair[1]));
	yes(name, letter == 'x' && read(pair[0], &letter, 1) == 0);
}

/*
 * Nor does the handler hear of what a program that only makes, watches and uses its descriptors
 * does not ask.
 */
static void show_unasked(void)
{
	int status;
	heading("questions about descriptors are trapped");
	pid_t child = must(fork());
	if (child == 0) {
		int set = must(epoll_create1(0)), listener = must(socket(AF_UNIX, SOCK_STREAM, 0));
		int early[2], late[2], lines[2];
		struct sockaddr address = {.sa_family = AF_UNIX};
		alarm(20);
		must(bind(listener, &address, sizeof(sa_family_t)));
		must(listen(listener, 1));
		must(socketpair(AF_UNIX, SOCK_STREAM, 0, early));
		must(pipe(lines));
		trap(SYS_getsockopt);
		trap(SYS_fcntl);
		trap(SYS_ioctl);
		trapped = 0;
		must(socketpair(AF_UNIX, SOCK_STREAM, 0, late));
		must(watch_new(set, listener, EPOLLIN | EPOLLEXCLUSIVE, 'l'));
		must(watch_new(set, early[0], EPOLLIN, 'p'));
		show("nothing yet", "none", ready(set));
		show_pair("a pair from before", early);
		show_pair("a pair", late);
		show_pair("a pipe", lines);
		yes("no call of another's", trapped == 0);
		int kind = 0;
		socklen_t len = sizeof kind;
		yes("the program's", getsockopt(broker, SOL_SOCKET, SO_TYPE, &kind, &len) == 0 &&
		    kind == SOCK_SEQPACKET && trapped == 1);
		exit(verdict());
	}
	must(waitpid(child, &status, 0));
	number("status", 0, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER};
	must(sigaction(SIGSYS, &action, NULL));
	start_broker();
	const unsigned files[] = {SYS_open, SYS_openat, SYS_getdents64, 0};
	const unsigned watches[] = {SYS_epoll_ctl, 0};
	show_trapped("opens of files are trapped", files, 1);
	show_trapped("changes of watches are trapped", watches, 0);
	show_unasked();
	return verdict();
}
