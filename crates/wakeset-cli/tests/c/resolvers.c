/*
 * A resolver of an IFUNC in the program itself. The dynamic loader relocates the program after its
 * libraries and after preloaded ones, so the resolver may make any call: what it makes, and the
 * object that it leaves for main, are as if main had made them. Built with and without
 * `-z now`, which makes the loader call it before anything of the program's has run.
 */
#include "show.h"

static int kept = -1, taken_early = -1, closed_early = -1, piped_early = -1;

static int resolved(void)
{
	return 7;
}

static int (*resolve(void))(void)
{
	uint64_t four = 4, value = 0;
	int pair[2];
	char bytes[8];
	int counter = eventfd(3, EFD_CLOEXEC | EFD_NONBLOCK);
	if (write(counter, &four, sizeof four) == sizeof four &&
	    read(counter, &value, sizeof value) == sizeof value)
		taken_early = (int)value;
	closed_early = close(counter);
	if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) == 0 && write(pair[1], "abc", 3) == 3)
		piped_early = (int)read(pair[0], bytes, sizeof bytes);
	close(pair[0]);
	close(pair[1]);
	kept = eventfd(5, EFD_CLOEXEC | EFD_NONBLOCK);
	return resolved;
}

int call_it(void) __attribute__((ifunc("resolve")));

int main(void)
{
	heading("a resolver of an IFUNC in the program");
	number("what it resolves to", 7, call_it());
	number("what its eventfd held", 7, taken_early);
	number("closing that", 0, closed_early);
	number("what its pipe held", 3, piped_early);
	int set = epoll_create1(EPOLL_CLOEXEC);
	watch_new(set, kept, EPOLLIN, 'k');
	show("the eventfd it left", "k=IN", ready(set));
	number("its count", 5, take(kept));
	show("after that", "none", ready(set));
	return verdict();
}
