/*
 * clone(2) with CLONE_FILES and without CLONE_VM: the child has a copy of the memory and the same
 * descriptors. Neither side sees what the other closes and opens.
 */
#include "show.h"
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum road { FUNCTION, NUMBER, NUMBER_3, ROADS };
static const char *const roads[] = {"clone()", "SYS_clone", "SYS_clone3"};

/* In memory that both sides see. */
struct shared {
	int counter, spare, set, made;
	atomic_int go, done;
};
static struct shared *shared;

/* Replaces a number, closes another, and makes an object of its own. */
static int child_body(void *unused)
{
	(void)unused;
	int file = memfd_create("file", 0);
	close(shared->counter);
	dup2(file, shared->counter);
	close(file);
	shared->made = eventfd(6, EFD_NONBLOCK);
	close(shared->spare);
	atomic_store(&shared->done, 1);
	while (!atomic_load(&shared->go))
		usleep(1000);
	return 0;
}

static pid_t start_child(enum road road)
{
	static char stack[1 << 16] __attribute__((aligned(16)));
	if (road == FUNCTION)
		return clone(child_body, stack + sizeof stack, CLONE_FILES | SIGCHLD, NULL);
	struct clone_args arguments = {.flags = CLONE_FILES, .exit_signal = SIGCHLD};
	long pid = road == NUMBER ? syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0)
				  : syscall(SYS_clone3, &arguments, sizeof arguments);
	if (pid == 0)
		_exit(child_body(NULL));
	return (pid_t)pid;
}

static void show_road(enum road road)
{
	heading(roads[road]);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(shared == MAP_FAILED ? -1 : 0);
	shared->counter = must(eventfd(0, EFD_NONBLOCK));
	shared->spare = must(eventfd(0, EFD_NONBLOCK));
	shared->set = must(epoll_create1(0));
	int kernels[2];
	kernel_pipe(kernels, 0);
	must(watch_new(shared->set, kernels[0], EPOLLIN, 'k'));
	must(watch_new(shared->set, shared->counter, EPOLLIN, 'c'));
	/* A wait that has both to look at. */
	show("a mixed wait", "none", ordered(shared->set, 4, 1));
	pid_t child = must(start_child(road));
	while (!atomic_load(&shared->done))
		usleep(1000);
	/* The number is a file's, for both. */
	uint64_t value = 14;
	CALL("write", "8", write(shared->counter, &value, sizeof value));
	number("in the file", 8, lseek(shared->counter, 0, SEEK_END));
	CALL("the closed one", "-1 EBADF", add(shared->spare, 1));
	number("the child's", 6, take(shared->made));
	CALL("its write", "8", add(shared->made, 2));
	/* What is made now is made for both. */
	int own = must(eventfd(3, EFD_NONBLOCK));
	number("our own", 3, take(own));
	show("the set", "none", ready(shared->set));
	atomic_store(&shared->go, 1);
	int status;
	must(waitpid(child, &status, 0));
	number("the child's status", 0, status);
	for (int fd = 400; fd < 500; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			printf("%d is open\n", fd);
	close(own), close(shared->made), close(shared->set), close(shared->counter);
	close(kernels[0]), close(kernels[1]);
}

int main(int count, char **arguments)
{
	/* One a process: what one of them does is for good. */
	if (count > 1) {
		show_road((enum road)atoi(arguments[1]));
		return verdict();
	}
	for (int road = 0; road < ROADS; road++) {
		pid_t child = must(fork());
		if (child == 0) {
			show_road((enum road)road);
			exit(verdict());
		}
		int status;
		must(waitpid(child, &status, 0));
		number("status", 0, status);
	}
	return verdict();
}
