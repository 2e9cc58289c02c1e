/*
 * The ways an eventfd or a set gets out of one process's hands, each with a whole world of state that must be as it was
 * afterwards: values, watches, edges already taken, shots already fired, threads asleep. fork(2), vfork(2), clone(2),
 * posix_spawn(3), system(3), popen(3), daemon(3), unix(7) on SCM_RIGHTS, dup(2), splice(2), pidfd_getfd(2), stdio.
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

extern char **environ;

/* ---- a world, and how it should look ---- */

static int set;   /* watches the counters below */
static int outer; /* watches the set */
static int full_of_five, empty, edge, shot, full;
static int asleep_in_wait, asleep_in_read, wait_set;
static struct waiter waiter;
static struct thread reader;

static void *read_once(void *unused)
{
	(void)unused;
	return (void *)(intptr_t)take(asleep_in_read);
}

/* None of these is closed on exec, for some ways out are that. */
static void make_world(void)
{
	set = must(epoll_create1(0));
	outer = must(epoll_create1(0));
	wait_set = must(epoll_create1(0));
	full_of_five = must(eventfd(5, EFD_NONBLOCK));
	empty = must(eventfd(0, EFD_NONBLOCK));
	edge = must(eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE));
	shot = must(eventfd(1, EFD_NONBLOCK));
	full = must(eventfd(0, EFD_NONBLOCK));
	asleep_in_wait = must(eventfd(0, EFD_NONBLOCK));
	asleep_in_read = must(eventfd(0, 0));
	must(watch_new(outer, set, EPOLLIN, 's'));
	must(watch_new(set, edge, EPOLLIN | EPOLLET, 'e'));
	must(watch_new(set, shot, EPOLLIN | EPOLLONESHOT, 'o'));
	must(add(edge, 3));
	(void)ready(set); /* takes the edge and the shot */
	must(watch_new(set, full_of_five, EPOLLIN, 'a'));
	must(watch_new(set, empty, EPOLLIN, 'b'));
	must(watch_new(set, full, EPOLLIN | EPOLLOUT, 'f'));
	must(add(full, 0xfffffffffffffffe));
	must(watch_new(wait_set, asleep_in_wait, EPOLLIN, 'w'));
	start_waiting(&waiter, wait_set, 4);
	start(&reader, read_once, NULL);
	until_asleep(reader.id);
}

/* What must hold of it when some way out has added `more` to the five. */
static void look_at_world(int more)
{
	show("the set", "a=IN f=IN", sorted(set, 16, 0));
	show("the set above", "s=IN", ready(outer));
	CALL("the five", "8", add(full_of_five, 10));
	number("and ten more, and what others added", 15 + more, take(full_of_five));
	CALL("then none", "-1 EAGAIN", take(full_of_five));
	must(add(empty, 1));
	show("the empty one filled", "b=IN f=IN", sorted(set, 16, 0));
	number("by one", 1, take(empty));
	CALL("the full one is full", "-1 EAGAIN", add(full, 1));
	drain(full);
	show("and drained", "f=OUT", ready(set));
	must(epoll_ctl(set, EPOLL_CTL_DEL, full, NULL));
	show("nothing else is ready", "none", ready(set));
	show("nor above", "none", ready(outer));
	number("the semaphore", 1, take(edge));
	must(add(edge, 1));
	show("its next edge", "e=IN", ready(set));
	show("once", "none", ready(set));
	must(watch(set, EPOLL_CTL_MOD, shot, EPOLLIN | EPOLLONESHOT, 'p'));
	show("the next shot", "p=IN", ready(set));
	CALL("a watch is known", "-1 EEXIST", watch_new(set, empty, EPOLLIN, 'b'));
	must(epoll_ctl(set, EPOLL_CTL_DEL, empty, NULL));
	must(add(asleep_in_wait, 1));
	show("who sleeps in a wait is woken", "w=IN", what_it_saw(&waiter));
	must(add(asleep_in_read, 6));
	number("who sleeps in a read is woken", 6, (intptr_t)finish(&reader));
	const int all[] = {set, outer, wait_set, full_of_five, empty, edge, shot, full, asleep_in_wait, asleep_in_read};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		must(close(all[i]));
}

/* ---- what another process does with it ---- */

static void be_a_child(int counter, int its_set)
{
	show("  child: the set", "a=IN f=IN", sorted(its_set, 16, 0));
	CALL("  child: adds one", "8", add(counter, 1));
	int own = must(epoll_create1(0));
	must(watch_new(own, counter, EPOLLIN, 'c'));
	show("  child: a set of its own", "c=IN", ready(own));
	long long value = take(counter);
	yes("  child: takes all", value > 0);
	must(add(counter, (uint64_t)value));
	show("  child: and gives it back", "c=IN", ready(own));
	must(close(own));
}

static void child_and_exit(void)
{
	surprises = 0; /* the parent's are the parent's */
	be_a_child(full_of_five, set);
	_exit(surprises ? 1 : 0);
}

static void await(pid_t child)
{
	int status = -1;
	must(child);
	while (waitpid(child, &status, 0) == -1 && errno == EINTR)
		;
	number("  the child's status", 0, status);
}

static char numbers[3][16];
static char *const *arguments(int counter)
{
	static char name[] = "escape", mode[] = "child";
	static char *list[] = {name, mode, numbers[0], numbers[1], NULL};
	snprintf(numbers[0], sizeof numbers[0], "%d", counter);
	snprintf(numbers[1], sizeof numbers[1], "%d", set);
	return list;
}

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
	long made = syscall(SYS_eventfd2, 4, EFD_NONBLOCK), made_set = syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
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
	must(dup2(STDIN_FILENO, SHELL_NUMBER));
	return 2;
}

static int by_popen(void)
{
	char line[128];
	yes("  dup2", dup2(full_of_five, SHELL_NUMBER) == SHELL_NUMBER);
	FILE *file = popen("grep eventfd-count /proc/self/fdinfo/9", "r");
	if (file && fgets(line, sizeof line, file))
		printf("  popen: %s", line);
	number("  pclose", 0, file ? pclose(file) : -1);
	must(dup2(STDIN_FILENO, SHELL_NUMBER));
	return 0;
}

static int by_daemon(void)
{
	int ends[2];
	char word[8] = "";
	must(pipe(ends));
	pid_t child = fork();
	if (child == 0) {
		if (daemon(1, 1) == -1)
			_exit(1);
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

static void send_both(int socket, int many)
{
	char byte = 'x';
	struct iovec part = {&byte, 1};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(2 * sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	int both[2] = {full_of_five, set};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof both);
	memcpy(CMSG_DATA(header), both, sizeof both);
	struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}}, {.msg_hdr = message}};
	if (many == 2)
		CALL("  syscall sendmsg", "1", syscall(SYS_sendmsg, socket, &message, 0));
	else if (many)
		CALL("  sendmmsg", "2", sendmmsg(socket, messages, 2, 0));
	else
		CALL("  sendmsg", "1", sendmsg(socket, &message, 0));
}

/* Returns with both descriptors, or with -1 in them if the message has none. */
static void receive_both(int socket, int both[2])
{
	char byte;
	struct iovec part = {&byte, 1};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(2 * sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	both[0] = both[1] = -1;
	must(recvmsg(socket, &message, MSG_CMSG_CLOEXEC));
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(both, CMSG_DATA(header), 2 * sizeof(int));
}

static int by_message(void)
{
	int pair[2], both[2];
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	for (int many = 0; many < 3; many++) {
		send_both(pair[0], many);
		receive_both(pair[1], both);
		if (many == 1) {
			number("  the first message has none", -1, both[0]);
			receive_both(pair[1], both);
		}
		CALL("  received", "8", add(both[0], 1));
		show("  the set received", "a=IN f=IN", sorted(both[1], 16, 0));
		CALL("  what was received is the same description", "0", watch_new(both[1], both[0], EPOLLIN, 'r'));
		show("  by another descriptor", "a=IN f=IN r=IN", sorted(set, 16, 0));
		must(epoll_ctl(set, EPOLL_CTL_DEL, both[0], NULL));
		must(close(both[0]));
		must(close(both[1]));
	}
	must(close(pair[0]));
	must(close(pair[1]));
	return 3;
}

/* In flight only: nobody holds a descriptor of it but the message. */
static int by_message_alone(void)
{
	int pair[2], both[2], counter = full_of_five;
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	full_of_five = must(eventfd(8, EFD_NONBLOCK));
	send_both(pair[0], 0);
	must(close(full_of_five));
	full_of_five = counter;
	receive_both(pair[1], both);
	number("  the value came with it", 8, take(both[0]));
	must(close(both[0]));
	must(close(both[1]));
	must(close(pair[0]));
	must(close(pair[1]));
	return 0;
}

/* stdio writes with calls of libc's own, which nobody outside of it sees. */
static int by_stdio(void)
{
	const char one[8] = {1};
	CALL("  dprintf", "8", dprintf(full_of_five, "%c%c%c%c%c%c%c%c", 1, 0, 0, 0, 0, 0, 0, 0));
	FILE *file = fdopen(must(dup(full_of_five)), "w");
	number("  fwrite", 8, file ? (long long)fwrite(one, 1, 8, file) : -1);
	number("  fflush", 0, fflush(file));
	number("  fclose", 0, fclose(file));
	int other = must(eventfd(7, EFD_NONBLOCK));
	file = fdopen(other, "r");
	char bytes[8] = "";
	number("  fread", 8, file ? (long long)fread(bytes, 1, 8, file) : -1);
	number("  which gives", 7, bytes[0]);
	number("  fclose", 0, fclose(file));
	CALL("  fclose closes it", "-1 EBADF", take(other));
	return 2;
}

static int by_splice(void)
{
	int ends[2];
	uint64_t value = 1;
	must(pipe2(ends, O_NONBLOCK));
	must(write(ends[1], &value, 8));
	printf("  splice into it: %s\n", outcome(splice(ends[0], NULL, full_of_five, NULL, 8, SPLICE_F_NONBLOCK)));
	printf("  tee into it: %s\n", outcome(tee(ends[0], full_of_five, 8, SPLICE_F_NONBLOCK)));
	printf("  vmsplice into it: %s\n", outcome(vmsplice(full_of_five, &(struct iovec){&value, 8}, 1, 0)));
	printf("  sendfile into it: %s\n", outcome(sendfile(full_of_five, ends[0], NULL, 8)));
	printf("  copy_file_range into it: %s\n", outcome(copy_file_range(ends[0], NULL, full_of_five, NULL, 8, 0)));
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
	printf("  mmap: %s\n", mmap(NULL, 8, PROT_READ, MAP_SHARED, full_of_five, 0) == MAP_FAILED ? outcome(-1) : "mapped");
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
	struct pollfd polled[] = {{full_of_five, POLLIN, 0}, {set, POLLIN, 0}, {outer, POLLIN, 0}, {ends[0], POLLIN, 0}};
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

/* Everything that escaped once may do so again. */
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
		{"clone(2) with CLONE_FILES", by_clone_files},
		{"fork(2), and the processes wake each other", by_fork_where_the_child_wakes},
		{"vfork(2) and exec", by_vfork},
		{"vfork(2) and an exec that fails", by_vfork_that_fails},
		{"an exec that fails", by_exec_that_fails},
		{"posix_spawn(3)", by_spawn},
		{"posix_spawn(3) with a file action", by_spawn_action},
		{"system(3)", by_system},
		{"popen(3)", by_popen},
		{"daemon(3)", by_daemon},
		{"SCM_RIGHTS", by_message},
		{"SCM_RIGHTS, and the descriptor is closed in flight", by_message_alone},
		{"stdio", by_stdio},
		{"splice(2) and its like", by_splice},
		{"calls that are seldom made", by_odd_calls},
		{"pidfd_getfd(2)", by_pidfd},
		{"unshare(2)", by_unshare},
		{"several ways", by_all_at_once},
	};
	if (argc == 4 && strcmp(argv[1], "child") == 0) {
		be_a_child(atoi(argv[2]), atoi(argv[3]));
		return verdict();
	}
	must(dup2(STDIN_FILENO, SHELL_NUMBER));
	/*
	 * posix_spawn and system block signals in their own thread while they start a child; a SIGCHLD of that moment goes
	 * to another thread and ends its epoll_wait with EINTR, though nobody handles it. Not here.
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
