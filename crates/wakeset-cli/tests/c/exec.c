/*
 * A program that becomes another: execve(2) keeps descriptors that are not closed on exec, and with
 * them a counter's value and a set's watches. The program executes itself again and again, each
 * time by another function of exec(3), and each of its lives adds to the counter and looks at the
 * set.
 */
#include "show.h"
#include <sys/stat.h>

extern char **environ;

static char itself[] = "/proc/self/exe";
static const char *const ways[] = {"execv",  "execve", "execvp", "execvpe",	    "execl",
				   "execle", "execlp", "fexecve", "syscall execve", "syscall execveat", "the last"};

static void go_on(int life, int counter, int set, int gone)
{
	char texts[4][16];
	char *list[] = {itself, texts[0], texts[1], texts[2], texts[3], NULL};
	const int numbers[4] = {life + 1, counter, set, gone};
	for (int i = 0; i < 4; i++)
		snprintf(texts[i], sizeof texts[i], "%d", numbers[i]);
	switch (life) {
	case 0: execv(itself, list); break;
	case 1: execve(itself, list, environ); break;
	case 2: execvp(itself, list); break;
	case 3: execvpe(itself, list, environ); break;
	case 4: execl(itself, itself, texts[0], texts[1], texts[2], texts[3], (char *)NULL); break;
	case 5: execle(itself, itself, texts[0], texts[1], texts[2], texts[3], (char *)NULL, environ);
	    break;
	case 6: execlp(itself, itself, texts[0], texts[1], texts[2], texts[3], (char *)NULL); break;
	case 7: fexecve(must(open(itself, O_RDONLY | O_CLOEXEC)), list, environ); break;
	case 8: syscall(SYS_execve, itself, list, environ); break;
	case 9: syscall(SYS_execveat, AT_FDCWD, itself, list, environ, 0); break;
	}
	printf("%s: %s\n", ways[life], outcome(-1));
	exit(2);
}

static void *sleep_for_good(void *set)
{
	struct epoll_event event;
	epoll_wait(*(int *)set, &event, 1, -1);
	return NULL;
}

int main(int argc, char **argv)
{
	int life = argc == 5 ? atoi(argv[1]) : 0;
	int counter, set, gone;
	if (life == 0) {
		counter = must(eventfd(100, EFD_NONBLOCK));
		set = must(epoll_create1(0));
		must(watch_new(set, counter, EPOLLIN, 'a'));
	} else {
		counter = atoi(argv[2]);
		set = atoi(argv[3]);
		gone = atoi(argv[4]);
		struct stat status;
		CALL("what is closed on exec is closed", "-1 EBADF", fstat(gone, &status));
	}
	heading(ways[life]);
	show("the set", "a=IN", ready(set));
	number("the counter", 100 + life, take(counter));
	show("taken", "none", ready(set));
	CALL("the watch is that of this description", "-1 EEXIST", watch_new(set, counter, EPOLLIN, 'b'));
	must(watch(set, EPOLL_CTL_MOD, counter, EPOLLIN | EPOLLET, 'a'));
	must(add(counter, (uint64_t)(101 + life)));
	show("modified and written", "a=IN", ready(set));
	show("once", "none", ready(set));
	must(watch(set, EPOLL_CTL_MOD, counter, EPOLLIN, 'a'));

	/* Closed by the exec, with its watch, although it was ready. */
	gone = must(eventfd(1, EFD_CLOEXEC));
	must(watch_new(set, gone, EPOLLIN, 'g'));
	show("both", "a=IN g=IN", sorted(set, 16, 0));

	/* Threads end with the exec, wherever they sleep. */
	struct thread sleeper;
	int quiet = must(epoll_create1(EPOLL_CLOEXEC));
	start(&sleeper, sleep_for_good, &quiet);
	until_asleep(sleeper.id);

	if (life < 10)
		go_on(life, counter, set, gone);
	return verdict();
}
