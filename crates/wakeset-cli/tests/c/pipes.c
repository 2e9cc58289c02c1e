/*
 * Pipes and pairs of stream sockets: what is in them, and who is told of it, whichever way they
 * leave the process: by fork, exec, spawn, vfork, a passed descriptor, a name in /proc, a stream,
 * splice. What the two ends do as long as they stay is in crates/wakeset-fd/tests/semantics/pipe.rs
 * and socket.rs.
 *
 * What each case would catch:
 *   sizes                       a pipe that is smaller or larger than the kernel says
 *   signals                     a write without SIGPIPE, a pipe that raises no SIGIO
 *   packets                     a pipe that has been told to keep writes apart, and does not
 *   other programs              bytes that a child, or the parent after it, does not find
 *   names                       a pipe opened by its name in /proc that is another one
 *   reports                     a read or write that inotify(7) does not report
 *   streams, vectors, splices   bytes that these overtake
 *   options                     a socket whose options come too late
 *   by number                   calls by syscall(2) that go another way
 *   the numbers of the …        what libc's own streams do not find in a pipe
 *   small stacks                a call that needs much more of the stack than libc's
 *   a handler that writes       a byte lost or a deadlock between a loop and the handler that
 *                               interrupts it
 *   threads and forks           a byte lost or doubled while the process forks
 */
#include "show.h"
#include <execinfo.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <sys/auxv.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "pipes/ends.h"
#include "pipes/inside.h"

extern char **environ;

static void show_sizes(void)
{
	int ends[2];
	heading("sizes");
	make_pipe(ends, O_NONBLOCK);
	number("size", 65536, fcntl(ends[0], F_GETPIPE_SZ));
	number("holds", 65536, fill(ends[1]));
	number("FIONREAD", 65536, there(ends[0]));
	CALL("too small for what is in it", "-1 EBUSY", fcntl(ends[1], F_SETPIPE_SZ, 4096));
	CALL("twice the size", "131072", fcntl(ends[1], F_SETPIPE_SZ, 131072));
	number("holds as much again", 65536, fill(ends[1]));
	close_both(ends);
	make_pipe(ends, O_NONBLOCK);
	number("some", 3, put(ends[1], "abc"));
	CALL("one page", "4096", fcntl(ends[0], F_SETPIPE_SZ, 1));
	number("holds", 4093, fill(ends[1]));
	number("in order", 'a', taken(ends[0])[0]);
	close_both(ends);
	make_pipe(ends, O_NONBLOCK);
	CALL("FIONREAD to nowhere", "-1 EFAULT", ioctl(ends[0], FIONREAD, (int *)8));
	CALL("no terminal", "-1 ENOTTY", ioctl(ends[0], TIOCSTI, ""));
	CALL("no place in it", "-1 ESPIPE", lseek(ends[0], 0, SEEK_SET));
	close_both(ends);
}

static atomic_int pipes_broken, inputs;

static void note_broken(int signal)
{
	(void)signal;
	atomic_fetch_add(&pipes_broken, 1);
}

static void note_input(int signal)
{
	(void)signal;
	atomic_fetch_add(&inputs, 1);
}

static void show_signals(void)
{
	int ends[2];
	heading("signals");
	signal(SIGPIPE, note_broken);
	make_pipe(ends, 0);
	number("written", 1, put(ends[1], "x"));
	must(close(ends[0]));
	CALL("nobody reads", "-1 EPIPE", write(ends[1], "y", 1));
	number("SIGPIPE", 1, atomic_load(&pipes_broken));
	must(close(ends[1]));
	make_sockets(ends, 0);
	must(close(ends[0]));
	CALL("the same of a socket", "-1 EPIPE", write(ends[1], "y", 1));
	number("SIGPIPE", 2, atomic_load(&pipes_broken));
	CALL("with MSG_NOSIGNAL", "-1 EPIPE", send(ends[1], "y", 1, MSG_NOSIGNAL));
	number("none", 2, atomic_load(&pipes_broken));
	must(close(ends[1]));
	make_sockets(ends, 0);
	number("written", 1, put(ends[0], "x"));
	must(shutdown(ends[1], SHUT_RD));
	CALL("a socket that is shut down", "-1 EPIPE", write(ends[0], "y", 1));
	number("SIGPIPE", 3, atomic_load(&pipes_broken));
	CALL("with MSG_NOSIGNAL", "-1 EPIPE", send(ends[0], "y", 1, MSG_NOSIGNAL));
	number("none", 3, atomic_load(&pipes_broken));
	show("what is left", "x", taken(ends[1]));
	show("the end", "", taken(ends[1]));
	close_both(ends);
	signal(SIGIO, note_input);
	make_pipe(ends, O_NONBLOCK);
	number("written before", 1, put(ends[1], "x"));
	must(fcntl(ends[0], F_SETOWN, getpid()));
	must(fcntl(ends[0], F_SETFL, O_NONBLOCK | O_ASYNC));
	number("written", 1, put(ends[1], "x"));
	yes("SIGIO", in_time(&inputs));
	show("read", "xx", taken(ends[0]));
	close_both(ends);
}

static void show_packets(void)
{
	int ends[2];
	heading("packets");
	make_pipe(ends, O_NONBLOCK | O_DIRECT);
	put(ends[1], "ab");
	put(ends[1], "c");
	show("one packet", "ab", taken(ends[0]));
	show("the next", "c", taken(ends[0]));
	close_both(ends);
	make_pipe(ends, O_NONBLOCK);
	put(ends[1], "ab");
	must(fcntl(ends[1], F_SETFL, O_NONBLOCK | O_DIRECT));
	put(ends[1], "c");
	put(ends[1], "d");
	show("in a page that has been begun", "abcd", taken(ends[0]));
	put(ends[1], "e");
	put(ends[1], "f");
	show("a packet", "e", taken(ends[0]));
	show("the next", "f", taken(ends[0]));
	close_both(ends);
	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends));
	put(ends[1], "ab");
	put(ends[1], "c");
	show("a message", "ab", taken(ends[0]));
	close_both(ends);
}

static void show_fork(void (*make)(int[2], int), const char *what)
{
	int ends[2], set = must(epoll_create1(EPOLL_CLOEXEC));
	printf("by fork, %s\n", what);
	make(ends, O_NONBLOCK);
	must(watch_new(set, ends[0], EPOLLIN, 'a'));
	put(ends[1], "ab");
	put(ends[1], "c");
	show("one taken", "a=IN", ready(set));
	char first;
	number("it is", 1, read(ends[0], &first, 1));
	pid_t child = must(fork());
	if (child == 0) {
		int as_expected = strcmp(taken(ends[0]), "bc") == 0 && there(ends[0]) == 0;
		put(ends[1], "from the child");
		_exit(as_expected ? 7 : 8);
	}
	number("the child finds the rest", 7, finish_child(child));
	show("the parent is told", "a=IN", ready(set));
	show("of what it wrote", "from the child", taken(ends[0]));
	show("and nothing else", "none", ready(set));
	close_both(ends);
	must(close(set));
}

static void show_programs(void)
{
	int in[2], out[2];
	char *copy[] = {"cat", NULL};
	heading("other programs");
	show_fork(make_pipe, "a pipe");
	show_fork(make_sockets, "sockets");
	for (int way = 0; way < 4; way++) {
		static const char *const ways[] = {"fork and exec", "vfork and exec", "posix_spawn",
		                                   "inherited by posix_spawn"};
		pid_t child;
		printf("by %s\n", ways[way]);
		make_pipe(in, 0);
		make_pipe(out, 0);
		put(in[1], "through ");
		if (way < 2) {
			child = way == 0 ? must(fork()) : must(vfork());
			if (child == 0) {
				dup2(in[0], 0);
				dup2(out[1], 1);
				execvp("cat", copy);
				_exit(9);
			}
		} else if (way == 2) {
			posix_spawn_file_actions_t actions;
			must_be_zero(posix_spawn_file_actions_init(&actions));
			must_be_zero(posix_spawn_file_actions_adddup2(&actions, in[0], 0));
			must_be_zero(posix_spawn_file_actions_adddup2(&actions, out[1], 1));
			must_be_zero(posix_spawnp(&child, "cat", &actions, NULL, copy, environ));
			posix_spawn_file_actions_destroy(&actions);
		} else {
			char script[64];
			char *shell[] = {"sh", "-c", script, NULL};
			must(fcntl(in[0], F_SETFD, 0));
			must(fcntl(out[1], F_SETFD, 0));
			snprintf(script, sizeof script, "cat <&%d >&%d", in[0], out[1]);
			must_be_zero(posix_spawnp(&child, "sh", NULL, NULL, shell, environ));
		}
		must(close(in[0]));
		must(close(out[1]));
		put(in[1], "another program");
		must(close(in[1]));
		char text[64];
		size_t used = 0;
		for (ssize_t got; (got = must(read(out[0], text + used, sizeof text - 1 - used))) > 0;)
			used += (size_t)got;
		text[used] = '\0';
		show("came back", "through another program", text);
		number("it ended", 0, finish_child(child));
		must(close(out[0]));
	}
}

static void show_passed(void)
{
	int ends[2], way[2];
	char byte = 'p', control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec vector = {&byte, 1};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control,
	                         .msg_controllen = sizeof control};
	heading("a passed descriptor");
	make_pipe(ends, O_NONBLOCK);
	make_sockets(way, 0);
	put(ends[1], "ab");
	put(way[1], "q");
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &ends[0], sizeof(int));
	number("sent", 1, sendmsg(way[1], &message, 0));
	must(close(ends[0]));
	number("what was sent before", 1, recv(way[0], &byte, 1, 0));
	number("is", 'q', byte);
	number("received", 1, recvmsg(way[0], &message, 0));
	int copy;
	memcpy(&copy, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof copy);
	put(ends[1], "c");
	show("by its new number", "abc", taken(copy));
	must(close(copy));
	must(close(ends[1]));
	close_both(way);
}

/* glibc's other name for open(2), which its headers do not have. */
extern int __open(const char *name, int flags, ...);

static void show_names(void)
{
	int ends[2];
	char name[64];
	static const char *const names[] = {"/proc/self/fd/%d", "/dev/fd/%d",	     "//proc/self//fd/%d",
					    "/./dev///fd/%d",	"/proc/./self/fd/%d", "/dev/./fd/%d"};
	heading("names");
	for (int i = 0; i < 12; i++) {
		make_pipe(ends, O_NONBLOCK);
		put(ends[1], "by ");
		snprintf(name, sizeof name, names[i % 6], ends[1]);
		FILE *file = i < 6 ? NULL : fopen(name, "w");
		int again = file ? fileno(file) : must((i % 2 ? open : __open)(name, O_WRONLY | O_NONBLOCK));
		put(again, "name");
		show("written", "by name", taken(ends[0]));
		must(close(ends[1]));
		show("a writer is left", "-1 EAGAIN", taken(ends[0]));
		if (file)
			fclose(file);
		else
			must(close(again));
		show("none is", "", taken(ends[0]));
		must(close(ends[0]));
	}
}

/* What inotify(7) reports of a file by one of its names while a byte goes through. */
static void show_reports(const char *what, void (*make)(int *, int), long long expected)
{
	int ends[2], notifier = must(inotify_init1(IN_NONBLOCK));
	char name[64];
	struct inotify_event event;
	long long reported = 0;
	make(ends, O_NONBLOCK);
	snprintf(name, sizeof name, "/proc/self/fd/%d", ends[0]);
	must(inotify_add_watch(notifier, name, IN_ACCESS | IN_MODIFY));
	put(ends[1], "seen");
	show("read", "seen", taken(ends[0]));
	while (read(notifier, &event, sizeof event) == sizeof event)
		reported |= event.mask;
	number(what, expected, reported);
	must(close(notifier));
	close_both(ends);
}

/* Not in every libc, nor in its headers. */
__attribute__((weak)) extern int pidfd_getfd(int process, int fd, unsigned flags);

static void show_other_calls(void)
{
	int ends[2], more[2];
	char one[2], two[8];
	heading("streams, vectors, splices");
	make_pipe(ends, O_NONBLOCK);
	struct iovec out[] = {{"ab", 2}, {"cde", 3}}, in[] = {{one, 2}, {two, 8}};
	put(ends[1], "0");
	number("writev", 5, writev(ends[1], out, 2));
	number("readv", 6, readv(ends[0], in, 2));
	number("its first", '0', one[0]);
	number("its last", 'e', two[3]);
	close_both(ends);
	make_pipe(ends, O_NONBLOCK);
	put(ends[1], "line one\nline ");
	FILE *stream = fdopen(ends[0], "r");
	char line[64];
	show("fgets", "line one\n", fgets(line, sizeof line, stream));
	put(ends[1], "two\n");
	show("fgets", "line two\n", fgets(line, sizeof line, stream));
	fclose(stream);
	must(close(ends[1]));
	make_pipe(ends, O_NONBLOCK);
	make_pipe(more, O_NONBLOCK);
	put(ends[1], "abc");
	put(more[1], "0");
	number("tee", 3, tee(ends[0], more[1], 10, 0));
	number("splice", 3, splice(ends[0], NULL, more[1], NULL, 10, 0));
	show("both", "0abcabc", taken(more[0]));
	close_both(ends);
	close_both(more);
	make_sockets(ends, SOCK_NONBLOCK);
	put(ends[1], "x");
	struct pollfd asked[] = {{ends[0], POLLIN | POLLOUT, 0}, {ends[1], POLLIN | POLLOUT, 0}};
	number("poll", 2, poll(asked, 2, 0));
	number("one", POLLIN | POLLOUT, asked[0].revents);
	number("the other", POLLOUT, asked[1].revents);
	close_both(ends);
	make_pipe(ends, O_NONBLOCK);
	put(ends[1], "x");
	fd_set set;
	FD_ZERO(&set);
	FD_SET(ends[0], &set);
	number("select", 1, select(ends[0] + 1, &set, NULL, NULL, &(struct timeval){0, 0}));
	close_both(ends);
	make_pipe(ends, O_NONBLOCK);
	void *callers[1];
	put(ends[1], "first ");
	backtrace_symbols_fd(callers, backtrace(callers, 1), ends[1]);
	put(ends[1], " last");
	const char *trace = taken(ends[0]);
	yes("a backtrace between",
	    strncmp(trace, "first ", 6) == 0 && strlen(trace) > 14 && strstr(trace, "\n last"));
	close_both(ends);
	make_pipe(ends, O_NONBLOCK);
	put(ends[1], "abc");
	int self = must(syscall(SYS_pidfd_open, getpid(), 0));
	int copy = must(pidfd_getfd ? pidfd_getfd(self, ends[0], 0)
	                : syscall(SYS_pidfd_getfd, self, ends[0], 0));
	show("by a copy of pidfd_getfd", "abc", taken(copy));
	must(close(copy));
	must(close(self));
	close_both(ends);
}

static void show_options(void)
{
	int ends[2], on = 1, size = 0;
	int *volatile nowhere = (int *)8;
	socklen_t len = sizeof size;
	char text[16], control[CMSG_SPACE(sizeof(struct ucred))];
	struct iovec vector = {text, sizeof text};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control,
	                         .msg_controllen = sizeof control};
	heading("options");
	make_sockets(ends, SOCK_NONBLOCK);
	put(ends[1], "before");
	must(getsockopt(ends[1], SOL_SOCKET, SO_TYPE, &size, &len));
	number("a stream", SOCK_STREAM, size);
	must(setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
	number("received", 6, recvmsg(ends[0], &message, 0));
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	yes("with credentials", head && head->cmsg_type == SCM_CREDENTIALS);
	number("to whom nothing is addressed", 0, message.msg_namelen);
	close_both(ends);
	make_sockets(ends, SOCK_NONBLOCK);
	must(setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int)));
	yes("fewer fit into less", fill(ends[1]) < 100);
	close_both(ends);
	make_sockets(ends, 0);
	must(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 20000},
	                sizeof(struct timeval)));
	CALL("a limit", "-1 EAGAIN", recv(ends[0], text, 1, 0));
	CALL("with an address", "-1 EISCONN",
	     sendto(ends[0], "x", 1, 0, (struct sockaddr *)&(struct sockaddr){AF_UNIX, ""}, 2));
	CALL("listen", "-1 EINVAL", listen(ends[0], 1));
	close_both(ends);
	make_sockets(ends, SOCK_NONBLOCK);
	put(ends[1], "before");
	CALL("a mark, without one", "0", sockatmark(ends[0]));
	number("urgent", 1, send(ends[1], "!", 1, MSG_OOB));
	CALL("before the mark", "0", sockatmark(ends[0]));
	show("up to the mark", "before", taken(ends[0]));
	CALL("at the mark", "1", sockatmark(ends[0]));
	close_both(ends);
	make_pipe(ends, O_NONBLOCK);
	CALL("send on a pipe", "-1 ENOTSOCK", send(ends[1], "x", 1, 0));
	CALL("shutdown of a pipe", "-1 ENOTSOCK", shutdown(ends[1], SHUT_WR));
	CALL("sockatmark of a pipe", "-1 ENOTTY", sockatmark(ends[0]));
	close_both(ends);
	CALL("not a pair of those", "-1 EOPNOTSUPP", socketpair(AF_INET, SOCK_STREAM, 0, ends));
	CALL("to nowhere", "-1 EFAULT", pipe2(nowhere, 0));
	CALL("to nowhere", "-1 EFAULT", socketpair(AF_UNIX, SOCK_STREAM, 0, nowhere));
}

static void show_by_number(void)
{
	int ends[2], bytes;
	char text[16];
	heading("by number");
	must(syscall(SYS_pipe2, ends, O_NONBLOCK));
	put(ends[1], "a");
	number("write", 1, syscall(SYS_write, ends[1], "b", 1));
	number("FIONREAD", 0, syscall(SYS_ioctl, ends[0], FIONREAD, &bytes));
	number("says", 2, bytes);
	number("read", 2, syscall(SYS_read, ends[0], text, sizeof text));
	number("in order", 'b', text[1]);
	must(syscall(SYS_fcntl, ends[0], F_SETFL, 0));
	put(ends[1], "a");
	number("read", 1, read(ends[0], text, 2));
	must(syscall(SYS_close, ends[1]));
	show("the end", "", taken(ends[0]));
	must(close(ends[0]));
	must(syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends));
	number("sendto", 2, syscall(SYS_sendto, ends[1], "ab", 2, 0, NULL, 0));
	number("recvfrom", 1, syscall(SYS_recvfrom, ends[0], text, 1, 0, NULL, NULL));
	number("a look", 1, syscall(SYS_recvfrom, ends[0], text, 9, MSG_PEEK, NULL, NULL));
	must(syscall(SYS_shutdown, ends[1], SHUT_WR));
	show("what is left", "b", taken(ends[0]));
	show("the end", "", taken(ends[0]));
	close_both(ends);
}

int main(void)
{
	show_sizes();
	show_signals();
	show_packets();
	show_programs();
	show_passed();
	show_names();
	heading("reports");
	show_reports("of a pipe", make_pipe, IN_ACCESS | IN_MODIFY);
	show_reports("of one socket of a pair", make_sockets, IN_ACCESS);
	show_other_calls();
	show_options();
	show_by_number();
	show_streams();
	show_small_stacks();
	show_handler();
	heading("threads and forks");
	show_threads(make_pipe, "a pipe");
	show_threads(make_sockets, "sockets");
	return verdict();
}
