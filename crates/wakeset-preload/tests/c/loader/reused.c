/*
 * Numbers that are closed by a system call instruction, which no hook sees, and given out again: by
 * each call that makes a descriptor, and by an instruction before a fork. What is then under the
 * number is the new file, and nothing else.
 */
#include "../world.h"
#include <dirent.h>
#include <pthread.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>

static void show(const char *what, long result)
{
	if (result < 0)
		printf("  %s: %ld %s\n", what, result, strerrorname_np(errno));
	else
		printf("  %s: %ld\n", what, result);
}

/* ---- each call that gives out a number ---- */

static int passed_by;
static int sender;

static int received_number(void)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
				 .msg_controllen = sizeof control};
	must(recvmsg(passed_by, &message, 0));
	int fd;
	memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
	return fd;
}

/* A message with standard input, sent before the number is free. */
static void pass(void)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	int zero = 0;
	struct iovec part = {"m", 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
				 .msg_controllen = sizeof control};
	control.head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(&control.head), &zero, sizeof zero);
	must(sendmsg(sender, &message, 0));
}

static char template[32];
static int listening, kernel_file;
static sigset_t signals;

static int a_pair(int type)
{
	int ends[2];
	return socketpair(AF_UNIX, type, 0, ends) == 0 ? ends[0] : -1;
}

enum { CALLS = 23 };
static int by_call(int call, const char **name)
{
	int ends[2];
	FILE *stream;
	DIR *directory;
#define CALL(n, text, expression) \
	case n:                   \
		*name = text;     \
		return (expression)
	switch (call) {
	CALL(0, "open", open("/dev/null", O_RDWR));
	CALL(1, "openat", openat(AT_FDCWD, "/dev/null", O_RDWR));
	CALL(2, "creat", creat(template, 0600));
	CALL(3, "fopen", (stream = fopen("/dev/null", "r+")) ? fileno(stream) : -1);
	CALL(4, "creat64", creat64(template, 0600));
	CALL(5, "tmpfile", (stream = tmpfile()) ? fileno(stream) : -1);
	CALL(6, "opendir", (directory = opendir("/")) ? dirfd(directory) : -1);
	CALL(7, "mkstemp", mkstemp(template));
	CALL(8, "socket", socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	CALL(9, "memfd_create", memfd_create("m", 0));
	CALL(10, "inotify_init1", inotify_init1(IN_NONBLOCK));
	CALL(11, "signalfd", signalfd(-1, &signals, SFD_NONBLOCK));
	CALL(12, "accept4", accept4(listening, NULL, NULL, SOCK_NONBLOCK));
	CALL(13, "dup", dup(kernel_file));
	CALL(14, "F_DUPFD", fcntl(kernel_file, F_DUPFD, 0));
	CALL(15, "recvmsg", received_number());
	CALL(16, "pidfd_open", pidfd_open(getpid(), 0));
	CALL(17, "eventfd", eventfd(0, EFD_NONBLOCK));
	CALL(18, "timerfd_create", timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	CALL(19, "epoll_create1", epoll_create1(0));
	CALL(20, "pipe2", pipe2(ends, O_NONBLOCK) == 0 ? ends[0] : -1);
	CALL(21, "socketpair", a_pair(SOCK_STREAM | SOCK_NONBLOCK));
	CALL(22, "socketpair of datagrams", a_pair(SOCK_DGRAM | SOCK_NONBLOCK));
	}
#undef CALL
	return -1;
}

static const enum kind closed[] = {COUNTER, TIMER, SET, PIPE_OUT, PIPE_IN, PAIR};

static void reuse(int call, enum kind kind)
{
	const char *name = NULL;
	char bytes[40] = "";
	struct epoll_event event = {.events = EPOLLIN};
	make_world();
	strcpy(template, "/tmp/wakeset-reused-XXXXXX");
	kernel_file = must(open("/dev/null", O_RDWR));
	must(fcntl(kernel_file, F_SETFD, FD_CLOEXEC));
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends + 0));
	sender = ends[0];
	passed_by = ends[1];
	must(pipe2(ends, O_NONBLOCK));
	must(write(ends[1], "left", 4));
	listening = listener;
	pass();
	int fd = descriptor_of(kind);
	int outer = must(epoll_create1(0));
	event.data.u64 = 3;
	must(epoll_ctl(outer, EPOLL_CTL_ADD, fd, &event));
	bare(SYS_close, fd, 0, 0, 0);
	int made = by_call(call, &name);
	printf("%s after a closed %s\n", name, kinds[kind]);
	show("the same number", made == fd);
	show("watched", epoll_wait(outer, &event, 1, 0));
	show("write", write(made, "12345678", 8));
	show("read", read(made, bytes, 8));
	show("add", epoll_ctl(outer, EPOLL_CTL_ADD, made, &event));
	if (kind == PIPE_IN) {
		show("the other end", read(ends[0], bytes, sizeof bytes));
		show("and its end", read(ends[0], bytes, sizeof bytes));
	}
	if (kind == PIPE_OUT)
		show("the other end", write(ends[1], "x", 1));
	if (kind == PAIR)
		show("the other end", write(pair[1], "x", 1));
	unlink(template);
}

static void each_call(void)
{
	for (int call = 0; call < CALLS; call++) {
		for (int i = 0; i < 6; i++) {
			int status;
			pid_t child = fork();
			if (child == 0) {
				alarm(10);
				reuse(call, closed[i]);
				exit(0);
			}
			waitpid(child, &status, 0);
			if (status != 0)
				printf("status %x\n", (unsigned)status);
		}
	}
}

/* ---- an instruction gives it out, and then everything migrates ---- */

static void then_fork(enum kind kind)
{
	char bytes[64] = "";
	make_world();
	int fd = descriptor_of(kind);
	bare(SYS_close, fd, 0, 0, 0);
	int made = (int)bare(SYS_open, (long)"/tmp", O_RDWR | O_TMPFILE, 0600, 0);
	printf("a fork after a closed %s: the same number %d\n", kinds[kind], made == fd);
	int status;
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	waitpid(child, &status, 0);
	show("in the file", bare(SYS_pread64, made, (long)bytes, sizeof bytes, 0));
	show("write", write(made, "fourteen bytes", 14));
	show("in the file", bare(SYS_pread64, made, (long)bytes, sizeof bytes, 0));
	if (kind == PIPE_IN) {
		show("the other end", read(ends[0], bytes, sizeof bytes));
		show("and its end", read(ends[0], bytes, sizeof bytes));
	}
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	each_call();
	for (int i = 0; i < 6; i++) {
		int status;
		pid_t child = fork();
		if (child == 0) {
			alarm(10);
			then_fork(closed[i]);
			exit(0);
		}
		waitpid(child, &status, 0);
		printf("status %d\n", status);
	}
	return 0;
}
