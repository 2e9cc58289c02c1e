/*
 * Listening sockets of every family, and clients for them.
 */
#ifndef LISTENING_H
#define LISTENING_H

#include "show.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static const int families[] = {AF_INET, AF_INET6, AF_UNIX};
static const char *const family_names[] = {"AF_INET", "AF_INET6", "AF_UNIX"};

/* Every address is chosen by the kernel, a unix one in the abstract name space. */
static inline int bind_on(int family)
{
	int fd = must(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	if (family == AF_INET6) {
		struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
		must(bind(fd, (struct sockaddr *)&address, sizeof address));
	} else if (family == AF_INET) {
		struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		must(bind(fd, (struct sockaddr *)&address, sizeof address));
	} else {
		struct sockaddr_un address = {.sun_family = AF_UNIX};
		must(bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)));
	}
	return fd;
}

static inline int listen_on(int family)
{
	int fd = bind_on(family);
	must(listen(fd, 100));
	return fd;
}

static inline int connect_to(int listener)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof address;
	must(getsockname(listener, (struct sockaddr *)&address, &length));
	int fd = must(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
	must(connect(fd, (struct sockaddr *)&address, length));
	return fd;
}

/* Accepts one and closes it: whether there was one. */
static inline int take_one(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd == -1)
		return 0;
	must(close(fd));
	return 1;
}

/* Connects, sends a byte, and says whether the answer is an x. */
static inline int ask(int listener, char byte)
{
	char answer = 0;
	int client = connect_to(listener);
	/* The server may have answered and closed already. */
	if (write(client, &byte, 1) == -1 && errno != EPIPE)
		must(-1);
	if (read(client, &answer, 1) == -1 && errno != ECONNRESET)
		must(-1);
	must(close(client));
	return answer == 'x';
}

/* They are killed and waited for. */
static inline void kill_workers(const pid_t *children, int n)
{
	for (int i = 0; i < n; i++) {
		must(kill(children[i], SIGKILL));
		must(waitpid(children[i], NULL, 0));
	}
}

static inline void close_both(const int *ends)
{
	must(close(ends[0]));
	must(close(ends[1]));
}

static inline int set_blocking(int fd)
{
	return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

static inline int pass(int to, int fd)
{
	char byte = 'f', space[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space,
	                         .msg_controllen = sizeof space};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(head), &fd, sizeof fd);
	return (int)sendmsg(to, &message, 0);
}

static inline int receive(int from)
{
	char byte, space[CMSG_SPACE(sizeof(int))];
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space,
	                         .msg_controllen = sizeof space};
	must(recvmsg(from, &message, MSG_CMSG_CLOEXEC));
	int fd;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

#endif
