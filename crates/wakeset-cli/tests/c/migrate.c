/*
 * The ways an eventfd or a set gets out of one process's hands, each with a whole world of state
 * that must be as it was afterwards: values, watches, edges already taken, shots already fired,
 * threads asleep. fork(2), vfork(2), clone(2), posix_spawn(3), system(3), popen(3), daemon(3),
 * unix(7) on SCM_RIGHTS, dup(2), splice(2), pidfd_getfd(2), stdio.
 */
#include "show.h"
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "migrate/world.h"
#include "migrate/messages.h"

extern char **environ;

/* ---- the ways out: each returns what it added to the five ---- */

static int stay(void)
{
	return 0;
}

static int by_dup(void)
{
	int copies[] = {dup(full_of_five), dup2(full_of_five, 200), dup3(full_of_five, 201, O_CLOEXEC),
			fcntl(full_of_five, F_DUPFD, 202), fcntl(full_of_five, F_DUPFD_CLOEXEC, 203), dup(set),
			dup2(set, 205)};
	for (int i = 0; i < 5; i++)
		CALL("  through a copy", "8", add(must(copies[i]), 1));
	CALL("  dup3's flag", "1", fcntl(201, F_GETFD));
	CALL("  F_DUPFD_CLOEXEC's flag", "1", fcntl(203, F_GETFD));
	CALL("  dup's", "0", fcntl(copies[0], F_GETFD));
	show("  the set's copies", "a=IN f=IN", sorted(copies[5], 16, 0));
	show("  the set's copies", "a=IN f=IN", sorted(copies[6], 16, 0));
	for (int i = 0; i < 7; i++)
		must(close(copies[i]));
	return 5;
}

static int by_syscall(void)
{
	uint64_t value = 2;
	struct iovec part = {&value, 8};
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 'x'};
	struct timespec no_time = {0, 0};
	struct pollfd polled = {full_of_five, POLLIN, 0};
	CALL("  write", "8", syscall(SYS_write, full_of_five, &value, 8));
	CALL("  writev", "8", syscall(SYS_writev, full_of_five, &part, 1));
	CALL("  read", "8", syscall(SYS_read, full_of_five, &value, 8));
	number("  which took", 9, (long long)value);
	CALL("  write", "8", syscall(SYS_write, full_of_five, &value, 8));
	CALL("  readv", "8", syscall(SYS_readv, full_of_five, &part, 1));
	CALL("  write", "8", syscall(SYS_write, full_of_five, &value, 8));
	long copy = syscall(SYS_dup, full_of_five);
	CALL("  a copy", "-1 EEXIST", syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, full_of_five, &event));
	CALL("  added", "0", syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, copy, &event));
	show("  known apart", "a=IN f=IN x=IN", sorted(set, 16, 0));
	CALL("  removed", "0", syscall(SYS_epoll_ctl, set, EPOLL_CTL_DEL, copy, NULL));
	CALL("  closed", "0", syscall(SYS_close, copy));
	CALL("  closed", "-1 EBADF", syscall(SYS_close, copy));
#ifdef SYS_epoll_wait
	CALL("  wait", "1", syscall(SYS_epoll_wait, set, &event, 1, 0));
#endif
	CALL("  pwait", "1", syscall(SYS_epoll_pwait, set, &event, 1, -1, NULL, 8L));
	CALL("  pwait2", "1", syscall(SYS_epoll_pwait2, set, &event, 1, &no_time, NULL, 8L));
	CALL("  ppoll", "1", syscall(SYS_ppoll, &polled, 1, &no_time, NULL, 8L));
#ifdef SYS_poll
	CALL("  poll", "1", syscall(SYS_poll, &polled, 1, 0));
#endif
	number("  fcntl", O_RDWR | O_NONBLOCK, syscall(SYS_fcntl, full_of_five, F_GETFL));
	CALL("  dup3", "206", syscall(SYS_dup3, full_of_five, 206, O_CLOEXEC));
	CALL("  add through it", "8", add(206, 1));
	CALL("  close_range", "0", syscall(SYS_close_range, 206u, 206u, 0));
	long made = syscall(SYS_eventfd2, 4, EFD_NONBLOCK),
	    made_set = syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
	CALL("  eventfd2 and epoll_create1", "0", watch_new((int)made_set, (int)made, EPOLLIN, 'm'));
	show("  which work", "m=IN", ready((int)made_set));
	number("  with its value", 4, take((int)made));
	must(close((int)made));
	must(close((int)made_set));
	return 5;
}

static int by_fork(void)
{
	pid_t child = fork();
	if (child == 0)
		child_and_exit();
	await(child);
	return 1;
}

static int by_bare_fork(void)
{
	pid_t child = _Fork();
	if (child == 0)
		child_and_exit();
	await(child);
	return 1;
}

static int by_fork_syscall(void)
{
	pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (child == 0)
		child_and_exit();
	await(child);
	return 1;
}

static int start_of_clone(void *unused)
{
	(void)unused;
	child_and_exit();
	return 0;
}

static int by_clone(void)
{
	static char stack[262144] __attribute__((aligned(64)));
	await(clone(start_of_clone, stack + sizeof stack, SIGCHLD, NULL));
	return 1;
}

/* glibc's other name, which its headers do not have. */
extern int __clone(int (*start)(void *), void *stack, int flags, void *argument, ...);

static int by_other_clone(void)
{
	static char stack[262144] __attribute__((aligned(64)));
	await(__clone(start_of_clone, stack + sizeof stack, SIGCHLD, NULL));
	return 1;
}

/* A child that shares the descriptors, though not the memory. */
static int by_clone_files(void)
{
	static char stack[262144] __attribute__((aligned(64)));
	await(clone(start_of_clone, stack + sizeof stack, CLONE_FILES | SIGCHLD, NULL));
	return 1;
}

static int by_fork_where_the_child_wakes(void)
{
	struct waiter own_waiter;
	int counter = must(eventfd(0, EFD_NONBLOCK)), own_set = must(epoll_create1(0));
	must(watch_new(own_set, counter, EPOLLIN | EPOLLET, 'k'));
	start_waiting(&own_waiter, own_set, 4);
	pid_t child = fork();
	if (child == 0) {
		add(counter, 1);
		_exit(0);
	}
	show("  a waiter here is woken by a write there", "k=IN", what_it_saw(&own_waiter));
	await(child);
	/* And the other way about: the child waits, this process writes. */
	child = fork();
	if (child == 0) {
		struct epoll_event event;
		int got = epoll_wait(own_set, &event, 1, -1);
		_exit(got == 1 && event.data.u64 == 'k' ? 0 : 1);
	}
	must(child);
	must(add(counter, 1));
	await(child);
	/* A watch the child adds is in the set for both, by the child's descriptors. */
	must(add(full_of_five, 1));
	child = fork();
	if (child == 0)
		_exit(watch_new(own_set, full_of_five, EPOLLIN, 'n') == 0 ? 0 : 1);
	await(child);
	show("  a watch added there", "n=IN", ready(own_set));
	must(close(counter));
	must(close(own_set));
	return 1;
}

static int by_vfork(void)
{
	char *const *list = arguments(full_of_five);
	pid_t child = vfork();
	if (child == 0) {
		execv("/proc/self/exe", list);
		_exit(127);
	}
	await(child);
	return 1;
}

static int by_vfork_that_fails(void)
{
	char *const *list = arguments(full_of_five);
	pid_t child = vfork();
	if (child == 0) {
		execv("/nonexistent/program", list);
		_exit(0);
	}
	await(child);
	return 0;
}

static int by_exec_that_fails(void)
{
	CALL("  execv", "-1 ENOENT", execv("/nonexistent/program", arguments(full_of_five)));
	CALL("  execve", "-1 EACCES", execve("/", arguments(full_of_five), environ));
	return 0;
}

static int by_spawn(void)
{
	pid_t child;
	must_be_zero(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments(full_of_five), environ));
	await(child);
	must_be_zero(posix_spawnp(&child, "/proc/self/exe", NULL, NULL, arguments(full_of_five), environ));
	await(child);
	return 2;
}

/* Close-on-exec descriptors that an action hands over all the same. */
static int by_spawn_action(void)
{
	pid_t child;
	posix_spawn_file_actions_t actions;
	must(fcntl(full_of_five, F_SETFD, FD_CLOEXEC));
	must_be_zero(posix_spawn_file_actions_init(&actions));
	must_be_zero(posix_spawn_file_actions_adddup2(&actions, full_of_five, 207));
	must_be_zero(posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments(207), environ));
	await(child);
	must_be_zero(posix_spawn_file_actions_destroy(&actions));
	return 1;
}

/* A number that every shell can name; main keeps it free of other uses. */
enum { SHELL_NUMBER = 9 };

/* Whoever is started by a shell sees the kernel's own account of the counter. */
static int by_system(void)
{
	yes("  dup2", dup2(full_of_five, SHELL_NUMBER) == SHELL_NUMBER);
	fflush(stdout);
	number("  system", 0, system("grep eventfd-count /proc/self/fdinfo/9"));
	number("  printf into it", 0, system("printf '\\002\\000\\000\\000\\000\\000\\000\\000' >&9"));
	parent = getpid();
	must(dup2(STDIN_FILENO, SHELL_NUMBER));
	return 2;
}

/* glibc's other name, which its headers do not have. */
extern FILE *_IO_popen(const char *command, const char *mode);

static int by_popen_of(FILE *(*open)(const char *command, const char *mode))
{
	char line[128];
	yes("  dup2", dup2(full_of_five, SHELL_NUMBER) == SHELL_NUMBER);
	FILE *file = open("grep eventfd-count /proc/self/fdinfo/9", "r");
	if (file && fgets(line, sizeof line, file))
		printf("  popen: %s", line);
	number("  pclose", 0, file ? pclose(file) : -1);
	must(dup2(STDIN_FILENO, SHELL_NUMBER));
	return 0;
}

static int by_popen(void)
{
	return by_popen_of(popen);
}

static int by_other_popen(void)
{
	return by_popen_of(_IO_popen);
}

static int by_daemon(void)
{
	int ends[2];
	char word[8] = "";
	must(pipe(ends));
	pid_t child = fork();
	if (child == 0) {
		pid_t middle = getpid();
		until_process_asleep(parent);
		if (daemon(1, 1) == -1)
			_exit(1);
		while (getppid() == middle)
			sleep_ms(1);
		until_process_asleep(parent);
		must(add(full_of_five, 1));
		must(write(ends[1], strcmp(sorted(set, 16, 0), "a=IN f=IN") == 0 ? "good" : "bad", 5));
		_exit(0);
	}
	await(child);
	must(close(ends[1]));
	must(read(ends[0], word, sizeof word));
	show("  what the daemon saw", "good", word);
	must(close(ends[0]));
	return 1;
}

static int by_splice(void)
{
	int ends[2];
	uint64_t value = 1;
	must(pipe2(ends, O_NONBLOCK));
	must(write(ends[1], &value, 8));
	printf("  splice into it: %s\n",
	       outcome(splice(ends[0], NULL, full_of_five, NULL, 8, SPLICE_F_NONBLOCK)));
	printf("  tee into it: %s\n", outcome(tee(ends[0], full_of_five, 8, SPLICE_F_NONBLOCK)));
	printf("  vmsplice into it: %s\n",
	       outcome(vmsplice(full_of_five, &(struct iovec){&value, 8}, 1, 0)));
	printf("  sendfile into it: %s\n", outcome(sendfile(full_of_five, ends[0], NULL, 8)));
	printf("  copy_file_range into it: %s\n",
	       outcome(copy_file_range(ends[0], NULL, full_of_five, NULL, 8, 0)));
	must(read(ends[0], &value, 8));
	/* Out of it: what a splice takes comes back from the pipe and is put back. */
	value = 0;
	ssize_t taken = splice(full_of_five, NULL, ends[1], NULL, 8, SPLICE_F_NONBLOCK);
	printf("  splice out of it: %s\n", outcome(taken));
	if (taken == 8) {
		must(read(ends[0], &value, 8));
		printf("  which took: %lld\n", (long long)value);
		must(add(full_of_five, value));
	}
	must(close(ends[0]));
	must(close(ends[1]));
	return 0;
}

/* Calls that few programs make of an eventfd, if any. */
static int by_odd_calls(void)
{
	uint64_t value = 1;
	struct iovec part = {&value, 8};
	printf("  pwrite: %s\n", outcome(pwrite(full_of_five, &value, 8, 0)));
	printf("  pread: %s\n", outcome(pread(full_of_five, &value, 8, 0)));
	printf("  pwritev2: %s\n", outcome(pwritev2(full_of_five, &part, 1, -1, 0)));
	printf("  preadv2: %s\n", outcome(preadv2(full_of_five, &part, 1, -1, 0)));
	printf("  which took: %lld\n", (long long)value);
	printf("  send: %s\n", outcome(send(full_of_five, &value, 8, 0)));
	printf("  recv: %s\n", outcome(recv(full_of_five, &value, 8, 0)));
	printf("  ftruncate: %s\n", outcome(ftruncate(full_of_five, 0)));
	printf("  fsync: %s\n", outcome(fsync(full_of_five)));
	printf("  mmap: %s\n",
	       mmap(NULL, 8, PROT_READ, MAP_SHARED, full_of_five, 0) == MAP_FAILED ? outcome(-1)
	           : "mapped");
	printf("  what is there now: %lld\n", take(full_of_five));
	must(add(full_of_five, 5));
	return 0;
}

/* A process may take descriptors out of another, or of itself, by their numbers. */
static int by_pidfd(void)
{
	int process = (int)syscall(SYS_pidfd_open, getpid(), 0);
	int copy = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, full_of_five, 0);
	if (copy < 0) {
		printf("  pidfd_getfd: %s\n", outcome(-1));
		return 0;
	}
	CALL("  through what pidfd_getfd gave", "8", add(copy, 1));
	must(close(copy));
	must(close(process));
	return 1;
}

static int by_unshare(void)
{
	CALL("  unshare", "0", unshare(CLONE_FILES));
	return 0;
}

static int by_poll(void)
{
	int ends[2];
	must(pipe(ends));
	struct pollfd polled[] = {{full_of_five, POLLIN, 0}, {set, POLLIN, 0}, {outer, POLLIN, 0},
	                          {ends[0], POLLIN, 0}};
	CALL("  poll", "3", poll(polled, 4, -1));
	CALL("  ppoll", "3", ppoll(polled, 4, NULL, NULL));
	fd_set readable;
	FD_ZERO(&readable);
	FD_SET(full_of_five, &readable);
	FD_SET(set, &readable);
	FD_SET(ends[0], &readable);
	CALL("  select", "2", select(256, &readable, NULL, NULL, NULL));
	CALL("  pselect", "2", pselect(256, &readable, NULL, NULL, NULL, NULL));
	must(close(ends[0]));
	must(close(ends[1]));
	return 0;
}

/* Everything that migrated once may do so again. */
static int by_all_at_once(void)
{
	return by_fork() + by_dup() + by_message() + by_spawn() + by_stdio() + by_fork();
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*leave)(void);
	} ways[] = {
		{"no way out", stay},
		{"dup(2)", by_dup},
		{"poll(2) and select(2)", by_poll},
		{"syscall(2)", by_syscall},
		{"fork(2)", by_fork},
		{"_Fork(3)", by_bare_fork},
		{"the clone system call", by_fork_syscall},
		{"clone(2)", by_clone},
		{"__clone", by_other_clone},
		{"fork(2), and the processes wake each other", by_fork_where_the_child_wakes},
		{"vfork(2) and exec", by_vfork},
		{"vfork(2) and an exec that fails", by_vfork_that_fails},
		{"an exec that fails", by_exec_that_fails},
		{"posix_spawn(3)", by_spawn},
		{"posix_spawn(3) with a file action", by_spawn_action},
		{"system(3)", by_system},
		{"popen(3)", by_popen},
		{"_IO_popen", by_other_popen},
		{"daemon(3)", by_daemon},
		{"SCM_RIGHTS", by_message},
		{"SCM_RIGHTS, and the descriptor is closed in flight", by_message_alone},
		{"stdio", by_stdio},
		{"splice(2) and its like", by_splice},
		{"calls that are seldom made", by_odd_calls},
		{"pidfd_getfd(2)", by_pidfd},
		{"clone(2) with CLONE_FILES", by_clone_files},
		{"unshare(2)", by_unshare},
		{"several ways", by_all_at_once},
	};
	if (argc == 4 && strcmp(argv[1], "child") == 0) {
		be_a_child(atoi(argv[2]), atoi(argv[3]));
		return verdict();
	}
	must(dup2(STDIN_FILENO, SHELL_NUMBER));
	/*
	 * posix_spawn and system block signals in their own thread while they start a child; a SIGCHLD of
	 * that moment goes to another thread and ends its epoll_wait with EINTR, though nobody handles it.
	 * Not here.
	 */
	sigset_t child;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	must_be_zero(pthread_sigmask(SIG_BLOCK, &child, NULL));
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		heading(ways[i].name);
		make_world();
		look_at_world(ways[i].leave());
	}
	return verdict();
}
