/*
 * A service as systemd starts it: it takes the listener that is addressed to it, says that it is
 * ready, with a descriptor to be kept, has a worker say something, answers one connection, and says
 * that it stops. With the argument "nobody" it gives up its rights first.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRST_PASSED = 3, NOBODY = 65534, PATIENCE_MS = 60000 };

static int must(int result)
{
	if (result < 0) {
		perror("activated");
		exit(1);
	}
	return result;
}

/* as sd_listen_fds(3) decides */
static void check_listener(void)
{
	const char *pid = getenv("LISTEN_PID"), *number = getenv("LISTEN_FDS");
	int listens = 0;
	socklen_t length = sizeof listens;
	if (!pid || atol(pid) != (long)getpid() || !number || strcmp(number, "1") != 0) {
		fprintf(stderr, "LISTEN_PID=%s, LISTEN_FDS=%s, and I am %d\n", pid ? pid : "",
			number ? number : "", (int)getpid());
		exit(2);
	}
	must(getsockopt(FIRST_PASSED, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length));
	if (!listens)
		exit(3);
}

/* as sd_pid_notify_with_fds(3) does */
static void tell(const char *text, int passed)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	union {
		char bytes[CMSG_SPACE(sizeof passed)];
		struct cmsghdr align;
	} control = {0};
	const char *path = getenv("NOTIFY_SOCKET");
	if (!path || strlen(path) >= sizeof address.sun_path)
		exit(4);
	memcpy(address.sun_path, path, strlen(path));
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	struct iovec part = {.iov_base = (char *)text, .iov_len = strlen(text)};
	struct msghdr message = {
		.msg_name = &address,
		.msg_namelen = offsetof(struct sockaddr_un, sun_path) + strlen(path),
		.msg_iov = &part,
		.msg_iovlen = 1,
	};
	if (passed >= 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = sizeof control.bytes;
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof passed);
		memcpy(CMSG_DATA(header), &passed, sizeof passed);
	}
	int fd = must(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	must(sendmsg(fd, &message, MSG_NOSIGNAL));
	must(close(fd));
}

/* as sd_notify_barrier(3) does: waits until all that was told before has been looked at */
static void barrier(void)
{
	int ends[2];
	must(pipe2(ends, O_CLOEXEC));
	tell("BARRIER=1", ends[1]);
	must(close(ends[1]));
	struct pollfd closed = {.fd = ends[0]};
	if (must(poll(&closed, 1, PATIENCE_MS)) == 0)
		exit(5);
	must(close(ends[0]));
}

static void tell_ready(void)
{
	char text[64];
	int ends[2];
	must(pipe2(ends, O_CLOEXEC));
	must(write(ends[1], "kept", 4));
	snprintf(text, sizeof text, "READY=1\nMAINPID=%d", (int)getpid());
	tell(text, ends[0]);
	must(close(ends[0]));
	must(close(ends[1]));
	barrier();
}

static void have_a_worker_tell(void)
{
	char text[64];
	int status, worker = must(fork());
	if (worker == 0) {
		snprintf(text, sizeof text, "STATUS=%d", (int)getpid());
		tell(text, -1);
		barrier();
		_exit(0);
	}
	must(waitpid(worker, &status, 0));
	if (status != 0)
		exit(6);
}

int main(int argc, char **argv)
{
	struct epoll_event event = {.events = EPOLLIN};
	check_listener();
	if (argc > 1 && strcmp(argv[1], "nobody") == 0) {
		must(setresgid(NOBODY, NOBODY, NOBODY));
		must(setresuid(NOBODY, NOBODY, NOBODY));
	}
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	must(epoll_ctl(set, EPOLL_CTL_ADD, FIRST_PASSED, &event));
	tell_ready();
	have_a_worker_tell();
	must(epoll_wait(set, &event, 1, PATIENCE_MS));
	int fd = must(accept4(FIRST_PASSED, NULL, NULL, SOCK_CLOEXEC));
	must(write(fd, "x", 1));
	must(close(fd));
	tell("STOPPING=1", -1);
	return 0;
}
