/*
 * io_urings of the program's own, by system calls alone: what they submit about eventfds, timerfds,
 * pipes, pairs and sets, and what does not concern those.
 *
 * `uring instruction`: the calls of io_urings are made by instruction.
 * `uring commands`: epoll_ctl(2) as requests, and nothing else about the objects.
 * `uring beside`: one object is named, and others stay.
 * `uring sqpoll`: a thread of the kernel's takes the entries.
 */
#include "show.h"
#include "by_instruction.h"
#include "uring/ring.h"
#include "uring/commands.h"
#include "uring/objects.h"
#include "uring/late.h"
#include "uring/registered.h"

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	struct ring ring;
	if (strcmp(mode, "instruction") == 0)
		by = by_instruction_6;
	if (strcmp(mode, "sqpoll") == 0) {
		show_polled_queue();
		return verdict();
	}
	if (strcmp(mode, "beside") == 0) {
		show_beside();
		return verdict();
	}
	/* calls by instruction are caught from the first object on */
	close(must(eventfd(0, 0)));
	ring_set_up(&ring, 16, 0);
	show_commands(&ring);
	show_events_of_commands(&ring);
	show_order(&ring);
	if (strcmp(mode, "commands") == 0)
		return verdict();
	show_bad_commands(&ring);
	show_linked_commands(&ring);
	show_eventfd(&ring);
	show_bytes(&ring);
	show_polled(&ring);
	show_closed(&ring);
	show_passed(&ring);
	show_late();
	show_registered(&ring);
	show_fork(&ring);
	show_other_setups();
	return verdict();
}
