/*
 * Waits on listening sockets, alone and beside other descriptors: what select(2), poll(2), epoll(7)
 * and accept(2) say has to be the same whoever is woken for a connection.
 */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* siginterrupt */
#include "listening.h"
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "listeners/deed.h"
#include "listeners/calls.h"
#include "listeners/sets.h"
#include "listeners/waiters.h"
#include "listeners/numbers.h"
#include "listeners/late.h"
#include "listeners/parts.h"

/*
 * With an argument it does not stop itself: a supervisor would stop with it. With "threads" it
 * shows those and nothing else; with "part" and a number, that of the parts.
 */
int main(int count, char **arguments)
{
	signal(SIGPIPE, SIG_IGN);
	if (count > 1 && strcmp(arguments[1], "threads") == 0) {
		show_threads(0, POLL);
		show_threads(0, EPOLL);
		return verdict();
	}
	if (count > 2 && strcmp(arguments[1], "part") == 0) {
		const struct part *part = &parts[atoi(arguments[2]) % PARTS];
		part->run(part->argument);
		return verdict();
	}
	begin_parts(count == 1);
	for (int family = 0; family < 3; family++) {
		show_poll(family);
		show_select(family);
	}
	show_several();
	show_numbers();
	show_shared_set();
	show_told_again();
	show_no_memory(ENOSPC);
	show_no_memory(ENOMEM);
	show_twins();
	show_client();
	show_last_number(0);
	show_last_number(1);
	show_left();
	show_late_listener(1, 1);
	show_late_listener(MOST_LATE, 1);
	show_late_listener(MOST_LATE, 3);
	show_accepts();
	show_successors();
	for (int family = 0; family < 3; family++)
		for (int way = 0; way < WAYS; way++) {
			show_threads(family, way);
			if (way != BLOCKING) {
				show_processes(family, way, 0);
				show_processes(family, way, 1);
			}
		}
	end_parts();
	/* It takes all there is of two processors. */
	show_masked();
	return verdict();
}
