/* Requests whose descriptors the kernel looks up after the call that submits them. */

static void show_late(void)
{
	/* of its own: one that has left out a completion cannot drain */
	struct ring own, *ring = &own;
	ring_set_up(ring, 8, 0);
	heading("looked up later");
	int ends[2], fd = must(eventfd(0, EFD_NONBLOCK));
	char byte;
	uint64_t value = 0;
	kernel_pipe(ends, 0);
	close(fd);
	next_with(ring, IORING_OP_READ, ends[0], 'p', &byte, 1)->flags = IOSQE_IO_LINK;
	next_with(ring, IORING_OP_READ, fd, 'e', &value, 8);
	CALL("linked, on a number that is closed", "2", submit(ring, 2, 0));
	int made = must(eventfd(3, EFD_NONBLOCK));
	yes("an eventfd gets the number", made == fd);
	must(write(ends[1], "x", 1));
	show("the first ends", "p=1 e=8", completed(ring, 2));
	number("and the second reads", 3, (long long)value);
	close(made);
	next_with(ring, IORING_OP_READ, ends[0], 'p', &byte, 1);
	next_with(ring, IORING_OP_READ, fd, 'e', &value, 8)->flags = IOSQE_IO_DRAIN;
	CALL("the second waits for all", "2", submit(ring, 2, 0));
	made = must(eventfd(4, EFD_NONBLOCK));
	must(write(ends[1], "x", 1));
	show("the first ends", "p=1 e=8", completed(ring, 2));
	number("and the second reads", 4, (long long)value);
	close(made), close(ends[0]), close(ends[1]), close(own.fd);
}
