/*
 * Sets in sets.
 */
#ifndef SEMANTICS_NESTING_H
#define SEMANTICS_NESTING_H

#include "sets.h"

static void show_nesting(void)
{
	heading("sets in sets, level-triggered");
	int fd = new_counter(0), other = new_counter(0);
	int low = new_set(), middle = new_set(), top = new_set();
	must(watch_new(top, middle, EPOLLIN, 'm'));
	must(watch_new(middle, low, EPOLLIN, 'l'));
	must(watch_new(low, fd, EPOLLIN, 'a'));
	show("empty", "none", ready(top));
	must(add(fd, 1));
	show("a change three levels down", "m=IN", ready(top));
	show("looking takes nothing", "m=IN", ready(top));
	show("from the middle", "l=IN", ready(middle));
	show("from below", "a=IN", ready(low));
	drain(fd);
	show("read: top", "none", ready(top));
	show("read: middle", "none", ready(middle));
	show("read: low", "none", ready(low));
	must(add(fd, 1));
	must(epoll_ctl(low, EPOLL_CTL_DEL, fd, NULL));
	show("removed below", "none", ready(top));
	must(watch_new(low, fd, EPOLLIN, 'a'));
	show("added below while ready", "m=IN", ready(top));
	must(watch(low, EPOLL_CTL_MOD, fd, 0, 'a'));
	show("modified below not to care", "none", ready(top));
	must(watch(low, EPOLL_CTL_MOD, fd, EPOLLIN, 'a'));
	show("modified below to care", "m=IN", ready(top));
	must(watch(top, EPOLL_CTL_MOD, middle, EPOLLOUT, 'm'));
	show("a set is never writable", "none", ready(top));
	must(watch(top, EPOLL_CTL_MOD, middle, EPOLLIN | EPOLLOUT, 'm'));
	show("but readable", "m=IN", ready(top));
	must(close(low));
	show("the lowest set closed", "none", ready(top));
	must(close(middle));
	must(close(top));

	heading("sets in sets, edge-triggered on top");
	low = new_set();
	middle = new_set();
	top = new_set();
	drain(fd);
	must(watch_new(low, fd, EPOLLIN, 'a'));
	must(watch_new(middle, low, EPOLLIN, 'l'));
	must(watch_new(top, middle, EPOLLIN | EPOLLET, 'm'));
	show("empty", "none", ready(top));
	must(add(fd, 1));
	show("written", "m=IN", ready(top));
	show("once", "none", ready(top));
	must(add(fd, 1));
	show("written again", "m=IN", ready(top));
	show("once", "none", ready(top));
	must(watch_new(low, other, EPOLLIN, 'b'));
	must(add(other, 1));
	show("another is written", "m=IN", ready(top));
	show("once", "none", ready(top));
	show("all is there below", "a=IN b=IN", sorted(low, 16, 0));
	drain(fd);
	drain(other);
	must(epoll_ctl(low, EPOLL_CTL_DEL, other, NULL));
	(void)ready(top);

	heading("sets in sets, edge-triggered all the way");
	must(watch(low, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLET, 'a'));
	must(watch(middle, EPOLL_CTL_MOD, low, EPOLLIN | EPOLLET, 'l'));
	show("empty", "none", ready(top));
	must(add(fd, 1));
	show("written: top", "m=IN", ready(top));
	show("top, once", "none", ready(top));
	show("middle", "l=IN", ready(middle));
	show("middle, once", "none", ready(middle));
	show("low", "a=IN", ready(low));
	show("low, once", "none", ready(low));
	must(add(fd, 1));
	show("written again: low", "a=IN", ready(low));
	show("then there is nothing for the top", "none", ready(top));
	must(close(top));

	heading("sets in sets, edge-triggered below");
	top = new_set();
	must(watch_new(top, low, EPOLLIN, 'l'));
	show("empty", "none", ready(top));
	must(add(fd, 1));
	show("written: top", "l=IN", ready(top));
	show("top, still, for nobody took the edge", "l=IN", ready(top));
	show("low takes it", "a=IN", ready(low));
	show("top", "none", ready(top));
	must(close(low));
	must(close(middle));
	must(close(top));

	heading("a set seen by two");
	low = new_set();
	middle = new_set();
	top = new_set();
	must(watch_new(low, fd, EPOLLIN, 'a'));
	must(watch_new(middle, low, EPOLLIN | EPOLLET, 'l'));
	must(watch_new(top, low, EPOLLIN | EPOLLONESHOT, 'l'));
	show("edge-triggered", "l=IN", ready(middle));
	show("edge-triggered, once", "none", ready(middle));
	show("one-shot", "l=IN", ready(top));
	must(add(fd, 1));
	show("edge-triggered, written", "l=IN", ready(middle));
	show("one-shot, written", "none", ready(top));
	must(watch(top, EPOLL_CTL_MOD, low, EPOLLIN | EPOLLONESHOT, 'l'));
	show("one-shot, armed again", "l=IN", ready(top));
	must(close(low));
	must(close(middle));
	must(close(top));
	close_both(fd, other);
}

#endif
