/*
 * The ways out by a message and by libc's streams.
 */
#ifndef MIGRATE_MESSAGES_H
#define MIGRATE_MESSAGES_H

#include "world.h"
#include <sys/socket.h>
#include <sys/uio.h>

static void send_both(int socket, int many)
{
	char byte = 'x';
	struct iovec part = {&byte, 1};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(2 * sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
	                         .msg_controllen = sizeof control};
	int both[2] = {full_of_five, set};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof both);
	memcpy(CMSG_DATA(header), both, sizeof both);
	struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}},
	                              {.msg_hdr = message}};
	if (many == 2)
		CALL("  syscall sendmsg", "1", syscall(SYS_sendmsg, socket, &message, 0));
	else if (many)
		CALL("  sendmmsg", "2", sendmmsg(socket, messages, 2, 0));
	else
		CALL("  sendmsg", "1", sendmsg(socket, &message, 0));
}

/* Returns with both descriptors, or with -1 in them if the message has none. */
static void receive_both(int socket, int both[2])
{
	char byte;
	struct iovec part = {&byte, 1};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(2 * sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
	                         .msg_controllen = sizeof control};
	both[0] = both[1] = -1;
	must(recvmsg(socket, &message, MSG_CMSG_CLOEXEC));
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(both, CMSG_DATA(header), 2 * sizeof(int));
}

static int by_message(void)
{
	int pair[2], both[2];
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	for (int many = 0; many < 3; many++) {
		send_both(pair[0], many);
		receive_both(pair[1], both);
		if (many == 1) {
			number("  the first message has none", -1, both[0]);
			receive_both(pair[1], both);
		}
		CALL("  received", "8", add(both[0], 1));
		show("  the set received", "a=IN f=IN", sorted(both[1], 16, 0));
		CALL("  what was received is the same description", "0",
		     watch_new(both[1], both[0], EPOLLIN, 'r'));
		show("  by another descriptor", "a=IN f=IN r=IN", sorted(set, 16, 0));
		must(epoll_ctl(set, EPOLL_CTL_DEL, both[0], NULL));
		must(close(both[0]));
		must(close(both[1]));
	}
	must(close(pair[0]));
	must(close(pair[1]));
	return 3;
}

/* In flight only: nobody holds a descriptor of it but the message. */
static int by_message_alone(void)
{
	int pair[2], both[2], counter = full_of_five;
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	full_of_five = must(eventfd(8, EFD_NONBLOCK));
	send_both(pair[0], 0);
	must(close(full_of_five));
	full_of_five = counter;
	receive_both(pair[1], both);
	number("  the value came with it", 8, take(both[0]));
	must(close(both[0]));
	must(close(both[1]));
	must(close(pair[0]));
	must(close(pair[1]));
	return 0;
}

/* stdio writes with calls of libc's own, which nobody outside of it sees. */
static int by_stdio(void)
{
	const char one[8] = {1};
	CALL("  dprintf", "8", dprintf(full_of_five, "%c%c%c%c%c%c%c%c", 1, 0, 0, 0, 0, 0, 0, 0));
	FILE *file = fdopen(must(dup(full_of_five)), "w");
	number("  fwrite", 8, file ? (long long)fwrite(one, 1, 8, file) : -1);
	number("  fflush", 0, fflush(file));
	number("  fclose", 0, fclose(file));
	int other = must(eventfd(7, EFD_NONBLOCK));
	file = fdopen(other, "r");
	char bytes[8] = "";
	number("  fread", 8, file ? (long long)fread(bytes, 1, 8, file) : -1);
	number("  which gives", 7, bytes[0]);
	number("  fclose", 0, fclose(file));
	CALL("  fclose closes it", "-1 EBADF", take(other));
	return 2;
}

#endif
