/*
 * The known differences of SEMANTICS.md that a program can see: what Linux does, and what happens
 * under `wakeset run`. The first argument says which of the two this run is. A difference that is
 * no longer there fails here too: the page has to change with it. Each has a name, in its heading,
 * by which the page refers to it.
 */
#include "show.h"
#include <sys/socket.h>
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "differences/loader.h"
#include "differences/proc.h"
#include "differences/threads.h"

static int wakeset;

/* What comes out on Linux, under Wakeset, and here. */
static void differs(const char *name, const char *on_linux, const char *under_wakeset,
                    const char *got)
{
	show(name, wakeset ? under_wakeset : on_linux, got);
}

/* Sends an eventfd to the kernel: no eventfd can be spliced, which is for the kernel to say. */
static void migrate(int fd)
{
	if (splice(fd, NULL, fd, NULL, 1, 0) >= 0)
		abort();
}

static void order_across_halves(void)
{
	heading("order_across_halves");
	int set = must(epoll_create1(0)), fd = must(eventfd(0, EFD_NONBLOCK)), ends[2];
	kernel_pipe(ends, 0);
	must(watch_new(set, fd, EPOLLIN, 'e'));
	must(watch_new(set, ends[0], EPOLLIN, 'p'));
	must(write(ends[1], "x", 1));
	must(add(fd, 1));
	differs("a pipe, and then an eventfd", "p=IN e=IN", "e=IN p=IN", ready(set));
	must(close(set));

	set = must(epoll_create1(0));
	must(take(fd));
	must(watch_new(set, ends[0], EPOLLIN, 'p'));
	must(watch_new(set, fd, EPOLLIN, 'e'));
	must(add(fd, 1));
	differs("room for one", "p=IN", "e=IN", ordered(set, 1, 0));
	must(close(set));
	must(close(fd));
	must(close(ends[0]));
	must(close(ends[1]));
}

enum { MANY = 40 };

static void order_of_many_watches(void)
{
	struct epoll_event events[MANY];
	int sets[MANY], newest_first = 1;
	heading("order_of_many_watches");
	int outer = must(epoll_create1(0)), fd = must(eventfd(0, 0));
	for (int i = 0; i < MANY; i++) {
		sets[i] = must(epoll_create1(0));
		must(watch_new(sets[i], fd, EPOLLIN, 'e'));
		must(watch_new(outer, sets[i], EPOLLIN, (char)i));
	}
	must(add(fd, 1));
	number("all are told", MANY, epoll_wait(outer, events, MANY, 0));
	for (int i = 0; i < MANY; i++)
		newest_first &= events[i].data.u64 == (uint64_t)(MANY - 1 - i);
	differs("the newest first", "yes", "no", newest_first ? "yes" : "no");
	for (int i = 0; i < MANY; i++)
		must(close(sets[i]));
	must(close(outer));
	must(close(fd));
}

static void who_is_woken(void)
{
	struct waiter waiters[3];
	char who[2] = "?";
	heading("who_is_woken");
	int set = must(epoll_create1(0)), fd = must(eventfd(0, EFD_NONBLOCK));
	must(watch_new(set, fd, EPOLLIN | EPOLLET, 'e'));
	for (int i = 0; i < 3; i++)
		start_waiting(&waiters[i], set, 1);
	must(add(fd, 1));
	number("one is", 1, count_back(waiters, 3));
	for (int i = 0; i < 3; i++)
		if (atomic_load(&waiters[i].back))
			who[0] = (char)('1' + i);
	differs("of three who came one after the other", "3", "1", who);
	must(add(fd, 1));
	number("one more", 2, count_back(waiters, 3));
	must(add(fd, 1));
	for (int i = 0; i < 3; i++)
		what_it_saw(&waiters[i]);
	must(close(set));
	must(close(fd));
}

static void second_edge_at_a_move(void)
{
	struct thread runner;
	heading("second_edge_at_a_move");
	int set = must(epoll_create1(0)), fd = must(eventfd(1, 0));
	must(watch_new(set, fd, EPOLLIN | EPOLLET, 'e'));
	show("an edge", "e=IN", ready(set));
	show("and no more", "none", ready(set));
	atomic_store(&stop, 0);
	start(&runner, run_on, NULL);
	migrate(fd);
	differs("the eventfd migrates, while another thread runs", "none", "e=IN", ready(set));
	atomic_store(&stop, 1);
	finish(&runner);
	must(close(fd));
	must(close(set));
	set = must(epoll_create1(0));
	fd = must(eventfd(1, 0));
	must(watch_new(set, fd, EPOLLIN | EPOLLET, 'e'));
	show("an edge", "e=IN", ready(set));
	migrate(fd);
	show("it migrates, while no other runs", "none", ready(set));
	must(close(set));
	must(close(fd));
}

static void stop_and_continue(void)
{
	int status;
	heading("stop_and_continue");
	pid_t child = must(fork());
	if (child == 0) {
		struct epoll_event event;
		int set = must(epoll_create1(0)), fd = must(eventfd(0, 0));
		must(watch_new(set, fd, EPOLLIN, 'e'));
		int result = epoll_wait(set, &event, 1, 1500);
		_exit(result == 0 ? 1 : errno == EINTR ? 2 : 3);
	}
	for (int in_a_row = 0; in_a_row < 10; sleep_ms(5))
		in_a_row = state_of(child) == 'S' ? in_a_row + 1 : 0;
	must(kill(child, SIGSTOP));
	must(waitpid(child, &status, WUNTRACED));
	yes("it stops", WIFSTOPPED(status));
	must(kill(child, SIGCONT));
	must(waitpid(child, &status, 0));
	const char *const ends[] = {"?", "time is up", "EINTR", "?"};
	differs("a wait, stopped and continued", "EINTR", "time is up",
	        WIFEXITED(status) ? ends[WEXITSTATUS(status) & 3] : "killed");
}

static void caught_faults(void)
{
	char line[256];
	unsigned long long caught = 0;
	int status;
	heading("caught_faults");
	FILE *file = fopen("/proc/self/status", "re");
	while (file && fgets(line, sizeof line, file))
		sscanf(line, "SigCgt: %llx", &caught);
	if (file)
		fclose(file);
	differs("SIGSEGV shows as caught", "no", "yes", caught >> (SIGSEGV - 1) & 1 ? "yes" : "no");

	pid_t child = must(fork());
	if (child == 0) {
		sigset_t all;
		void *volatile nowhere = (void *)8;
		int set = must(epoll_create1(0)), fd = must(eventfd(0, 0));
		sigfillset(&all);
		sigprocmask(SIG_SETMASK, &all, NULL);
		_exit(epoll_ctl(set, EPOLL_CTL_ADD, fd, nowhere) == -1 && errno == EFAULT ? 0 : 1);
	}
	must(waitpid(child, &status, 0));
	differs("a bad pointer while SIGSEGV is blocked", "EFAULT", "killed",
		WIFSIGNALED(status) ? "killed" : WEXITSTATUS(status) == 0 ? "EFAULT" : "?");
}

static void left_by_a_jump(void)
{
	struct thread leaver;
	struct waiter other;
	heading("left_by_a_jump");
	signal(SIGUSR1, leave);
	int first = must(epoll_create1(0)), second = must(epoll_create1(0)),
	    fd = must(eventfd(0, EFD_NONBLOCK)), kernels = must(socket(AF_INET, SOCK_DGRAM, 0));
	must(watch_new(first, fd, EPOLLIN | EPOLLEXCLUSIVE, '1'));
	must(watch_new(first, kernels, EPOLLIN, '3')); /* so it sleeps in the kernel half */
	must(watch_new(second, fd, EPOLLIN | EPOLLEXCLUSIVE, '2'));
	start(&leaver, wait_and_leave, &first);
	until_asleep(leaver.id);
	pthread_kill(leaver.handle, SIGUSR1);
	finish(&leaver);
	start_waiting(&other, second, 1);
	must(add(fd, 1));
	differs("nobody waits in the first set: the second is told", "1", "0",
	        count_back(&other, 1) ? "1" : "0");
	if (!atomic_load(&other.back))
		must(add(fd, 1)); /* not taken again, so it ends the wait */
	what_it_saw(&other);
	signal(SIGUSR1, SIG_DFL);
	must(close(kernels));
	must(close(first));
	must(close(second));
	must(close(fd));
}

static void closed_under_a_read(void)
{
	struct thread thread;
	struct reader reader = {.fd = must(eventfd(0, 0))};
	struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
	heading("closed_under_a_read");
	must(sigaction(SIGUSR1, &action, NULL));
	start(&thread, read_once, &reader);
	until_asleep(thread.id);
	must(close(reader.fd));
	until_asleep(thread.id);
	pthread_kill(thread.handle, SIGUSR1);
	finish(&thread);
	differs("a restarting handler", "EBADF", "EINTR", reader.result);
	signal(SIGUSR1, SIG_DFL);
}

static void not_blocking_meanwhile(void)
{
	struct thread thread;
	struct reader reader = {.fd = must(eventfd(0, 0))};
	heading("not_blocking_meanwhile");
	start(&thread, read_once, &reader);
	until_asleep(thread.id);
	must(fcntl(reader.fd, F_SETFL, O_NONBLOCK));
	migrate(reader.fd);
	/* Or until it has ended. */
	until_asleep(thread.id);
	must(add(reader.fd, 1));
	finish(&thread);
	differs("a read that slept when it was set", "a value", "EAGAIN", reader.result);
	must(close(reader.fd));
}

static void hidden_descriptors(void)
{
	char more[16];
	int ends[2];
	heading("hidden_descriptors");
	int before = count_numbers();
	/* Several, since a bell may be left from an earlier set. */
	int sets[8], fd = must(eventfd(0, 0));
	kernel_pipe(ends, 0);
	for (int i = 0; i < 8; i++) {
		sets[i] = must(epoll_create1(0));
		must(watch_new(sets[i], ends[0], EPOLLIN, 'p'));
		must(watch_new(sets[i], fd, EPOLLIN, 'e'));
	}
	snprintf(more, sizeof more, "%s", count_numbers() - before == 11 ? "none" : "some");
	differs("in /proc/self/fd, beside the program's own", "none", "some", more);
	for (int i = 0; i < 8; i++)
		must(close(sets[i]));
	must(close(fd));
	must(close(ends[0]));
	must(close(ends[1]));
}

static void in_proc(void)
{
	heading("in_proc");
	int set = must(epoll_create1(0)), fd = must(eventfd(5, 0));
	must(watch_new(set, fd, EPOLLIN, 'e'));
	differs("an eventfd's count", "5", "0", fdinfo(fd, "eventfd-count:", 0));
	differs("a set's watches", "1", "0", fdinfo(set, "tfd:", 1));
	number("the value", 5, take(fd));
	must(close(set));
	must(close(fd));
}

static void what_a_sleeper_does(void)
{
	struct waiter waiter;
	char path[64], line[256] = "";
	heading("what_a_sleeper_does");
	int set = must(epoll_create1(0)), fd = must(eventfd(0, 0));
	must(watch_new(set, fd, EPOLLIN, 'e'));
	start_waiting(&waiter, set, 1);
	snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)waiter.thread.id);
	FILE *file = fopen(path, "re");
	if (file && fgets(line, sizeof line, file)) {
		long call = strtol(line, NULL, 10);
		differs("its system call", "epoll_wait", "futex",
			call == SYS_futex ? "futex" : call == SYS_epoll_wait || call == SYS_epoll_pwait ? "epoll_wait"
			    : line);
	} else {
		printf("its system call is not to be seen here\n");
	}
	if (file)
		fclose(file);
	must(add(fd, 1));
	what_it_saw(&waiter);
	must(close(set));
	must(close(fd));
}

static void taken_by_another_process(void)
{
	int to_child[2], fd, status;
	heading("taken_by_another_process");
	kernel_pipe(to_child, 0);
	pid_t child = must(fork());
	if (child == 0) {
		uint64_t value = 0;
		if (read(to_child[0], &fd, sizeof fd) != sizeof fd)
			_exit(4);
		int parent = (int)syscall(SYS_pidfd_open, getppid(), 0);
		int copy = (int)syscall(SYS_pidfd_getfd, parent, fd, 0);
		if (copy < 0)
			_exit(3);
		_exit(read(copy, &value, 8) == 8 ? (value == 5 ? 1 : 4) : errno == EAGAIN ? 2 : 4);
	}
	prctl(PR_SET_PTRACER, child);
	fd = must(eventfd(5, EFD_NONBLOCK));
	must(write(to_child[1], &fd, sizeof fd));
	must(waitpid(child, &status, 0));
	if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
		printf("pidfd_getfd is not allowed here\n");
	else
		differs("an eventfd that holds 5", "5", "EAGAIN",
			!WIFEXITED(status) ? "killed" : WEXITSTATUS(status) == 1 ? "5" : WEXITSTATUS(status) == 2
			    ? "EAGAIN" : "?");
	must(close(fd));
	must(close(to_child[0]));
	must(close(to_child[1]));
}

static void closed_under_a_wait(void)
{
	struct thread thread;
	struct timed_waiter waiter = {.set = must(epoll_create1(0))};
	heading("closed_under_a_wait");
	int fd = must(eventfd(0, 0));
	must(watch_new(waiter.set, fd, EPOLLIN, 'e'));
	start(&thread, wait_a_second, &waiter);
	until_asleep(thread.id);
	must(close(waiter.set));
	migrate(fd);
	must(add(fd, 1));
	finish(&thread);
	differs("a set closed, then its eventfd migrated, then written", "e=IN", "none", waiter.saw);
	must(close(fd));
}

/* In a child: the kernel refuses watches from here on. */
static void refused_in_a_move(void)
{
	int status = -1;
	heading("refused_in_a_move");
	pid_t child = must(fork());
	if (child == 0) {
		char line[200] = "";
		int set = must(epoll_create1(0)), lines[2];
		int a = must(eventfd(0, EFD_NONBLOCK)), b = must(eventfd(0, EFD_NONBLOCK)),
		    c = must(eventfd(1, 0));
		must(watch_new(set, a, EPOLLIN, 'a'));
		must(watch_new(set, b, EPOLLIN, 'b'));
		kernel_pipe(lines, O_NONBLOCK);
		must(dup2(lines[1], 2));
		must(add(a, 2));
		refuse(SYS_epoll_ctl, EPOLL_CTL_ADD, ENOSPC);
		differs("one more eventfd", "-1 ENOSPC", "0", outcome(watch_new(set, c, EPOLLIN, 'c')));
		epoll_ctl(set, EPOLL_CTL_DEL, c, NULL);
		show("all as it was", "a=IN", ready(set));
		migrate(a);
		differs("one migrated", "a=IN", "none", ready(set));
		differs("its watch changed", "0", "-1 ENOENT",
		        outcome(watch(set, EPOLL_CTL_MOD, a, EPOLLIN, 'a')));
		differs("said on stderr", "no", "yes",
		        read(lines[0], line, sizeof line - 1) > 0 && strstr(line, "lost") ? "yes" : "no");
		number("what it holds", 2, take(a));
		must(add(b, 1));
		show("the other one", "b=IN", ready(set));
		exit(verdict());
	}
	must(waitpid(child, &status, 0));
	number("status", 0, status);
}

static void polled_listener(void)
{
	struct poll_of poll_of = {.fd = must(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0))};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char more[16];
	heading("polled_listener");
	must(bind(poll_of.fd, (struct sockaddr *)&address, sizeof(sa_family_t)));
	must(listen(poll_of.fd, 1));
	int before = count_numbers();
	start(&poll_of.thread, poll_once, &poll_of);
	until_asleep(poll_of.thread.id);
	snprintf(more, sizeof more, "%d", count_numbers() - before);
	differs("in /proc/self/fd, beside the program's own", "0", "1", more);
	must(close(poll_of.fd));
	finish(&poll_of.thread);
	differs("closed by another thread", "1 NVAL, late", "1 NVAL, early", poll_of.result);
}

static void where_functions_are(void)
{
	void *libc = dlopen("libc.so.6", RTLD_NOW);
	heading("where_functions_are");
	differs("write", "libc.so.6", "libwakeset_preload.so", object_of(dlsym(libc, "write")));
	show("strlen", "libc.so.6", object_of(dlsym(libc, "strlen")));
	number("one function", 1, dlsym(libc, "write") == dlsym(RTLD_DEFAULT, "write"));
}

int main(int argc, char **argv)
{
	wakeset = argc > 1 && strcmp(argv[1], "wakeset") == 0;
	order_across_halves();
	order_of_many_watches();
	who_is_woken();
	second_edge_at_a_move();
	stop_and_continue();
	caught_faults();
	left_by_a_jump();
	closed_under_a_read();
	not_blocking_meanwhile();
	hidden_descriptors();
	in_proc();
	what_a_sleeper_does();
	taken_by_another_process();
	closed_under_a_wait();
	refused_in_a_move();
	polled_listener();
	where_functions_are();
	return verdict();
}
