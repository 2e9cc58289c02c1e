/*
 * A service as systemd starts it: it takes the listener that is addressed to it, says that it is
 * ready, and answers one connection.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_PASSED = 3 };

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

/* as sd_notify(3) does, with the pid in words */
static void notify(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char text[64];
	const char *path = getenv("NOTIFY_SOCKET");
	if (!path || strlen(path) >= sizeof address.sun_path)
		exit(4);
	strcpy(address.sun_path, path);
	snprintf(text, sizeof text, "READY=1 %d", (int)getpid());
	int fd = must(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	must(sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address, sizeof address));
	must(close(fd));
}

int main(void)
{
	struct epoll_event event = {.events = EPOLLIN};
	check_listener();
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	must(epoll_ctl(set, EPOLL_CTL_ADD, FIRST_PASSED, &event));
	notify();
	must(epoll_wait(set, &event, 1, 60000));
	int fd = must(accept4(FIRST_PASSED, NULL, NULL, SOCK_CLOEXEC));
	must(write(fd, "x", 1));
	must(close(fd));
	return 0;
}
