/*
 * What one thread sees of a set of eventfds: the level- and edge-triggered rules, EPOLLONESHOT and
 * the answers to the questions of epoll(7), and the DESCRIPTION of epoll_ctl(2).
 *
 * `semantics shared-numbers` leaves out what takes a thread with descriptor numbers of its own
 * (clone(2) without CLONE_FILES), which valgrind does not have.
 */
#include "show.h"

#include "semantics/sets.h"
#include "semantics/nesting.h"

#define LARGEST 0xfffffffffffffffeu /* the most a counter can hold: it is full then */

static void show_level(void)
{
	heading("level-triggered");
	int set = new_set(), fd = new_counter(0);
	must(watch_new(set, fd, EPOLLIN, 'a'));
	show("empty", "none", ready(set));
	must(add(fd, 1));
	show("written", "a=IN", ready(set));
	show("as long as nobody reads", "a=IN", ready(set));
	drain(fd);
	show("read", "none", ready(set));
	must(add(fd, 1));
	drain(fd);
	show("written and read before anyone looks", "none", ready(set));
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLOUT, 'a'));
	show("writable", "a=OUT", ready(set));
	must(add(fd, 1));
	show("both", "a=IN|OUT", ready(set));
	must(add(fd, LARGEST - 1));
	show("full", "a=IN", ready(set));
	drain(fd);
	show("drained", "a=OUT", ready(set));
	close_both(fd, set);

	set = new_set();
	fd = new_counter(2);
	must(watch_new(set, fd, EPOLLIN, 'a'));
	show("ready when it is added", "a=IN", ready(set));
	must(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL));
	show("removed", "none", ready(set));
	must(add(fd, 1));
	show("written after it was removed", "none", ready(set));
	must(watch_new(set, fd, EPOLLIN, 'b'));
	show("added again", "b=IN", ready(set));
	close_both(fd, set);
}

static void show_edge(void)
{
	heading("edge-triggered");
	int set = new_set(), fd = new_counter(0);
	must(watch_new(set, fd, EPOLLIN | EPOLLET, 'a'));
	show("empty", "none", ready(set));
	must(add(fd, 1));
	show("written", "a=IN", ready(set));
	show("once", "none", ready(set));
	must(add(fd, 1));
	show("written again, undrained", "a=IN", ready(set));
	must(add(fd, 1));
	must(add(fd, 1));
	show("two writes before anyone looks are one event", "a=IN", ready(set));
	show("once", "none", ready(set));
	must(add(fd, 0));
	show("even a write of 0 is an edge", "a=IN", ready(set));
	drain(fd);
	show("a read is none", "none", ready(set));
	must(add(fd, 0));
	show("nor is a write of 0 to an empty one", "none", ready(set));
	must(add(fd, 1));
	drain(fd);
	show("written and read before anyone looks", "none", ready(set));
	close_both(fd, set);

	set = new_set();
	fd = new_counter(1);
	must(watch_new(set, fd, EPOLLIN | EPOLLET, 'a'));
	show("ready when it is added", "a=IN", ready(set));
	show("once", "none", ready(set));
	close_both(fd, set);

	heading("edge-triggered: writing");
	set = new_set();
	fd = new_counter(0);
	must(watch_new(set, fd, EPOLLOUT | EPOLLET, 'a'));
	show("writable when it is added", "a=OUT", ready(set));
	show("once", "none", ready(set));
	must(add(fd, 1));
	show("a write is no edge of it", "none", ready(set));
	drain(fd);
	show("every read is", "a=OUT", ready(set));
	must(add(fd, LARGEST));
	show("full", "none", ready(set));
	drain(fd);
	show("drained", "a=OUT", ready(set));
	must(add(fd, LARGEST));
	drain(fd);
	must(add(fd, LARGEST));
	show("drained and full again before anyone looks", "none", ready(set));
	drain(fd);
	show("drained", "a=OUT", ready(set));
	close_both(fd, set);

	heading("edge-triggered: both");
	set = new_set();
	fd = new_counter(0);
	must(watch_new(set, fd, EPOLLIN | EPOLLOUT | EPOLLET, 'a'));
	show("added", "a=OUT", ready(set));
	show("once", "none", ready(set));
	must(add(fd, 1));
	show("a write reports all that holds", "a=IN|OUT", ready(set));
	drain(fd);
	show("and so does a read", "a=OUT", ready(set));
	must(add(fd, 0));
	show("a write of 0 to an empty one too", "a=OUT", ready(set));
	must(add(fd, LARGEST));
	show("full", "a=IN", ready(set));
	drain(fd);
	show("drained", "a=OUT", ready(set));
	show("once", "none", ready(set));
	close_both(fd, set);

	heading("edge-triggered: reading and writing watched apart");
	set = new_set();
	fd = new_counter(0);
	int copy = must(dup(fd));
	must(watch_new(set, fd, EPOLLIN | EPOLLET, 'r'));
	must(watch_new(set, copy, EPOLLOUT | EPOLLET, 'w'));
	show("added", "w=OUT", ready(set));
	must(add(fd, 1));
	show("a write", "r=IN", ready(set));
	drain(fd);
	show("a read", "w=OUT", ready(set));
	must(add(fd, LARGEST));
	show("full", "r=IN", ready(set));
	drain(fd);
	show("drained", "w=OUT", ready(set));
	must(add(fd, 1));
	drain(fd);
	must(add(fd, 1));
	show("both edges before anyone looks", "r=IN w=OUT", sorted(set, 16, 0));
	show("once", "none", ready(set));
	must(close(copy));
	close_both(fd, set);

	heading("edge-triggered: semaphore");
	set = new_set();
	fd = must(eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE));
	must(watch_new(set, fd, EPOLLIN | EPOLLET, 'a'));
	must(add(fd, 3));
	show("raised by three", "a=IN", ready(set));
	drain(fd);
	show("what is left is no edge", "none", ready(set));
	must(add(fd, 1));
	show("raised again", "a=IN", ready(set));
	close_both(fd, set);
}

static void show_modify(void)
{
	heading("EPOLL_CTL_MOD");
	int set = new_set(), fd = new_counter(1);
	must(watch_new(set, fd, EPOLLIN | EPOLLET, 'a'));
	show("added", "a=IN", ready(set));
	show("once", "none", ready(set));
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLET, 'b'));
	show("reports readiness that is already there", "b=IN", ready(set));
	show("once", "none", ready(set));
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLOUT | EPOLLET, 'c'));
	show("for what is asked now", "c=OUT", ready(set));
	must(watch(set, EPOLL_CTL_MOD, fd, 0, 'd'));
	show("nothing is asked", "none", ready(set));
	must(add(fd, 1));
	show("nothing comes", "none", ready(set));
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN, 'e'));
	show("asked again", "e=IN", ready(set));
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLOUT, 'f'));
	show("level-triggered, other bits", "f=OUT", ready(set));
	must(add(fd, 1));
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLET, 'g'));
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLET, 'h'));
	show("an event waiting is reported with the last data", "h=IN", ready(set));
	show("once", "none", ready(set));
	close_both(fd, set);

	heading("the data");
	set = new_set();
	fd = new_counter(1);
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0xfedcba9876543210};
	must(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	event.data.u64 = 0;
	number("one event", 1, epoll_wait(set, &event, 1, 0));
	yes("all 64 bits come back", event.data.u64 == 0xfedcba9876543210);
	event = (struct epoll_event){.events = EPOLLIN, .data.ptr = &event};
	must(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
	event.data.ptr = NULL;
	number("one event", 1, epoll_wait(set, &event, 1, 0));
	yes("a pointer too", event.data.ptr == &event);
	close_both(fd, set);
}

static void show_oneshot(void)
{
	heading("EPOLLONESHOT");
	int set = new_set(), fd = new_counter(0);
	must(watch_new(set, fd, EPOLLIN | EPOLLONESHOT, 'a'));
	must(add(fd, 1));
	show("written", "a=IN", ready(set));
	must(add(fd, 1));
	show("written again", "none", ready(set));
	drain(fd);
	must(add(fd, 1));
	show("read and written", "none", ready(set));
	CALL("the watch is still there", "-1 EEXIST", watch_new(set, fd, EPOLLIN, 'a'));
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, 'b'));
	show("armed again, reported at once", "b=IN", ready(set));
	show("once", "none", ready(set));
	drain(fd);
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, 'c'));
	show("armed while empty", "none", ready(set));
	must(add(fd, 1));
	show("written", "c=IN", ready(set));
	drain(fd);
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLOUT | EPOLLONESHOT, 'd'));
	show("both asked", "d=OUT", ready(set));
	must(add(fd, 1));
	show("the whole watch is disarmed", "none", ready(set));
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLET | EPOLLONESHOT, 'e'));
	show("with EPOLLET", "e=IN", ready(set));
	must(add(fd, 1));
	show("no edge", "none", ready(set));
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN, 'f'));
	show("modified to level-triggered", "f=IN", ready(set));
	show("for good", "f=IN", ready(set));
	CALL("a disarmed one can be removed", "0",
	     (must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, 'g')), ready(set),
	      epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL)));
	close_both(fd, set);
}

static void show_rotation(void)
{
	heading("maxevents");
	int set = new_set(), fds[5];
	for (int i = 0; i < 5; i++) {
		fds[i] = new_counter(0);
		must(watch_new(set, fds[i], EPOLLIN, (char)('a' + i)));
	}
	must(add(fds[2], 1));
	must(add(fds[0], 1));
	must(add(fds[4], 1));
	show("in the order they became ready", "c=IN a=IN e=IN", ready(set));
	drain(fds[2]);
	drain(fds[0]);
	drain(fds[4]);
	show("none", "none", ready(set));
	for (int i = 0; i < 5; i++)
		must(add(fds[i], 1));
	show("one", "a=IN", ordered(set, 1, 0));
	show("the next", "b=IN", ordered(set, 1, 0));
	show("the next two", "c=IN d=IN", ordered(set, 2, 0));
	show("and round", "e=IN a=IN", ordered(set, 2, 0));
	show("all, from where it stopped", "b=IN c=IN d=IN e=IN a=IN", ready(set));
	drain(fds[3]);
	show("one was read", "b=IN c=IN", ordered(set, 2, 0));
	show("it is passed over", "e=IN a=IN", ordered(set, 2, 0));
	must(add(fds[3], 1));
	show("it comes back at the end", "b=IN c=IN e=IN a=IN d=IN", ready(set));

	for (int i = 0; i < 5; i++)
		must(watch(set, EPOLL_CTL_MOD, fds[i], EPOLLIN | EPOLLET, (char)('a' + i)));
	char seen[6] = "";
	for (int i = 0; i < 5; i++) {
		struct epoll_event event;
		must(epoll_wait(set, &event, 1, 0));
		seen[i] = (char)event.data.u64;
	}
	show("edge-triggered, one at a time", "none", ready(set));
	int each_once = 1;
	for (char letter = 'a'; letter < 'f'; letter++)
		each_once &= strchr(seen, letter) != NULL;
	yes("each was there once", each_once);
	for (int i = 0; i < 5; i++)
		must(close(fds[i]));
	must(close(set));
}

static void show_key(int has_own_numbers)
{
	heading("descriptors and descriptions");
	int set = new_set(), fd = new_counter(1);
	int copy = must(dup(fd)), third = must(dup(fd));
	int number = copy;
	CALL("one description", "0", watch_new(set, fd, EPOLLIN, 'a'));
	CALL("by two descriptors", "0", watch_new(set, copy, EPOLLIN, 'b'));
	CALL("each once", "-1 EEXIST", watch_new(set, copy, EPOLLIN, 'b'));
	CALL("a third is not there", "-1 ENOENT", epoll_ctl(set, EPOLL_CTL_DEL, third, NULL));
	show("both", "a=IN b=IN", sorted(set, 16, 0));
	must(close(copy));
	show("one closed: events continue", "a=IN b=IN", sorted(set, 16, 0));
	drain(fd);
	show("read through the other", "none", ready(set));
	must(add(fd, 1));
	show("written through the other", "a=IN b=IN", sorted(set, 16, 0));
	CALL("the closed number cannot be removed", "-1 EBADF",
	     epoll_ctl(set, EPOLL_CTL_DEL, number, NULL));
	CALL("nor modified", "-1 EBADF", watch(set, EPOLL_CTL_MOD, number, EPOLLIN, 'b'));

	heading("a number used again");
	int stranger = new_counter(0);
	if (stranger != number) {
		must(dup2(stranger, number));
		must(close(stranger));
	}
	CALL("by another description: not watched", "-1 ENOENT",
	     watch(set, EPOLL_CTL_MOD, number, EPOLLIN, 'c'));
	CALL("it can be added", "0", watch_new(set, number, EPOLLIN, 'c'));
	show("and is known apart", "a=IN b=IN", sorted(set, 16, 0));
	must(add(number, 1));
	show("written", "a=IN b=IN c=IN", sorted(set, 16, 0));
	CALL("removed", "0", epoll_ctl(set, EPOLL_CTL_DEL, number, NULL));
	show("the old watch is still there", "a=IN b=IN", sorted(set, 16, 0));
	if (has_own_numbers) {
		must(dup2(fd, number));
		CALL("the number means the old description again", "-1 EEXIST",
		     watch_new(set, number, EPOLLIN, 'd'));
		CALL("so that it can be modified", "0",
		     watch(set, EPOLL_CTL_MOD, number, EPOLLIN, 'd'));
		show("it was", "a=IN d=IN", sorted(set, 16, 0));
	}
	must(close(number));
	must(close(third));
	show("two of three closed", has_own_numbers ? "a=IN d=IN" : "a=IN b=IN",
	     sorted(set, 16, 0));
	must(close(fd));
	show("the last close removes both", "none", ready(set));
	must(close(set));

	heading("a set by two descriptors");
	set = new_set();
	fd = new_counter(1);
	copy = must(dup(set));
	must(watch_new(set, fd, EPOLLIN | EPOLLET, 'a'));
	CALL("is one set", "-1 EEXIST", watch_new(copy, fd, EPOLLIN, 'a'));
	CALL("and not to be added to itself", "-1 EINVAL", watch_new(copy, set, EPOLLIN, 'a'));
	show("the event is there once: the copy", "a=IN", ready(copy));
	show("the event is there once: the first", "none", ready(set));
	must(add(fd, 1));
	must(close(set));
	show("the first closed", "a=IN", ready(copy));
	CALL("removed through the copy", "0", epoll_ctl(copy, EPOLL_CTL_DEL, fd, NULL));
	close_both(copy, fd);

	heading("a counter in two sets");
	set = new_set();
	int other = new_set();
	fd = new_counter(0);
	must(watch_new(set, fd, EPOLLIN | EPOLLET, 'a'));
	must(watch_new(other, fd, EPOLLIN, 'b'));
	must(add(fd, 1));
	show("the first", "a=IN", ready(set));
	show("the second", "b=IN", ready(other));
	must(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL));
	must(add(fd, 1));
	show("removed from the first", "none", ready(set));
	show("the second", "b=IN", ready(other));
	must(close(set));
	must(add(fd, 1));
	show("the first closed", "b=IN", ready(other));
	close_both(other, fd);

	heading("EPOLLEXCLUSIVE in two sets with nobody waiting");
	set = new_set();
	other = new_set();
	int plain = new_set();
	fd = new_counter(0);
	must(watch_new(set, fd, EPOLLIN | EPOLLEXCLUSIVE, 'a'));
	must(watch_new(other, fd, EPOLLIN | EPOLLEXCLUSIVE, 'a'));
	must(watch_new(plain, fd, EPOLLIN, 'p'));
	must(add(fd, 1));
	struct epoll_event events[2];
	yes("at least one has the event",
	    epoll_wait(set, events, 1, 0) + epoll_wait(other, events + 1, 1, 0) >= 1);
	show("who did not ask for it always has", "p=IN", ready(plain));
	drain(fd);
	show("read: the first", "none", ready(set));
	show("read: the second", "none", ready(other));
	must(close(set));
	must(close(other));
	close_both(plain, fd);
}

int main(int argc, char **argv)
{
	show_level();
	show_edge();
	show_modify();
	show_oneshot();
	show_rotation();
	show_nesting();
	show_key(argc < 2 || strcmp(argv[1], "shared-numbers") != 0);
	return verdict();
}
