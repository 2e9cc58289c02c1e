/*
 * Which worker gets the next connection where workers keep connections open (--order least): one
 * that holds more than another steps back, also while connections come and go, while workers die
 * or hang, and while a process writes rubbish over what they share. With --max-connections, a
 * worker that holds so many takes no more while another is free.
 *
 *     shares even | executed | gone | rubbish | burst | ticks | most N
 *
 * With the word `waits` after it, it leaves out workers that block in accept(2), and with `burst`
 * those that are told by edges; `ticks` is for epoll by level.
 */
#define _GNU_SOURCE
#include "listening.h"
#include <dirent.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/select.h>
#include <time.h>

#include "shares/worker.h"
#include "shares/shows.h"

static void show_way(enum way way, const char *what, int most)
{
	for (enum kind of = EXECUTED; of <= SENT && strcmp(what, "executed") == 0; of++) {
		show_even(way, of, 100);
		show_even(way, of, 101);
	}
	for (enum kind threads = PROCESSES; threads <= THREADS; threads++) {
		if (strcmp(what, "even") == 0) {
			show_even(way, threads, 100);
			show_even(way, threads, 101);
		}
		if (strcmp(what, "most") == 0)
			show_most(way, threads, most);
	}
	if (strcmp(what, "gone") == 0) {
		show_gone(way, SIGKILL, 1);
		show_gone(way, SIGKILL, 0);
		show_gone(way, SIGSTOP, 0);
	}
	if (strcmp(what, "burst") == 0 && way != EDGE)
		show_burst(way);
	if (strcmp(what, "ticks") == 0 && (way == LEVEL || way == EXCLUSIVE))
		show_ticks(way);
	if (strcmp(what, "rubbish") == 0)
		for (int rubbish = 0; rubbish < RUBBISHES; rubbish++)
			show_rubbish(way, rubbish);
}

int main(int count, char **arguments)
{
	if (count < 2)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	if (count == 6 && strcmp(arguments[1], "worker") == 0)
		serve_executed(arguments + 1);
	srand(1);
	int waits = count > 2 && strcmp(arguments[2], "waits") == 0;
	for (int way = 0; way < (waits ? ACCEPT : WAYS); way++)
		show_way(way, arguments[1], count > 2 ? atoi(arguments[2]) : 0);
	return verdict();
}
