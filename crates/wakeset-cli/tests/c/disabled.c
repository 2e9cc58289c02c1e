/*
 * What a program can see of a library between it and libc: the objects as the kernel has them, the
 * handlers as the kernel has them, descriptors, mappings, and where functions come from. With
 * WAKESET_DISABLE=1 it prints what it prints without the library.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

static int must(int result)
{
	if (result < 0) {
		perror("disabled");
		exit(1);
	}
	return result;
}

/* the lines of a file below /proc/self that contain a word */
static int lines_with(const char *path, const char *word, int prints)
{
	char line[512];
	int found = 0;
	FILE *file = fopen(path, "r");
	if (!file)
		must(-1);
	while (fgets(line, sizeof line, file))
		if (strstr(line, word)) {
			found++;
			if (prints)
				printf("  %s", line);
		}
	fclose(file);
	return found;
}

static void show_descriptor(int fd, const char *word)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	lines_with(path, word, 1);
}

static int descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static void show_objects(const char *who)
{
	printf("objects of %s\n", who);
	int counter = must(eventfd(0, EFD_NONBLOCK)), set = must(epoll_create1(0));
	uint64_t three = 3;
	must(write(counter, &three, sizeof three));
	struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = 77}, got;
	must(epoll_ctl(set, EPOLL_CTL_ADD, counter, &event));
	show_descriptor(counter, "eventfd-count");
	show_descriptor(set, "data:");
	printf("  %d event\n", must(epoll_wait(set, &got, 1, 0)));

	int timer = must(timerfd_create(CLOCK_MONOTONIC, 0)), ends[2], pair[2], bytes = -1;
	struct itimerspec hour = {.it_interval = {.tv_sec = 3600}, .it_value = {.tv_sec = 3600}};
	must(timerfd_settime(timer, 0, &hour, NULL));
	show_descriptor(timer, "it_interval");
	must(pipe(ends));
	must(write(ends[1], "abc", 3));
	must(syscall(SYS_ioctl, ends[0], FIONREAD, &bytes));
	printf("  %d bytes in the pipe\n", bytes);
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	must(write(pair[1], "abcd", 4));
	must(syscall(SYS_ioctl, pair[0], FIONREAD, &bytes));
	printf("  %d bytes in the pair\n", bytes);
	int all[] = {counter, set, timer, ends[0], ends[1], pair[0], pair[1]};
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		must(close(all[i]));
}

static volatile sig_atomic_t handled;

static void handle(int signal)
{
	handled += signal;
}

/* as the kernel has it */
struct kernel_action {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	unsigned long mask;
};

static void show_handlers(void)
{
	printf("handlers\n");
	lines_with("/proc/self/status", "SigCgt", 1);
	struct sigaction action = {.sa_handler = handle};
	must(sigaction(SIGUSR1, &action, NULL));
	must(sigaction(SIGSEGV, &action, NULL));
	if (signal(SIGUSR2, handle) == SIG_ERR)
		must(-1);
	for (int signal = 1; signal < 32; signal++) {
		struct kernel_action now;
		must(syscall(SYS_rt_sigaction, signal, NULL, &now, 8));
		if (now.handler)
			printf("  %d: %s, flags %lx\n", signal, now.handler == handle ? "ours" : "not ours",
			       now.flags);
	}
	raise(SIGUSR1);
	raise(SIGUSR2);
	printf("  %d\n", (int)handled);
}

static void show_listener(void)
{
	printf("a listener\n");
	int listener = must(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	must(bind(listener, (struct sockaddr *)&address, sizeof address));
	must(listen(listener, 8));
	must(getsockname(listener, (struct sockaddr *)&address, &length));
	int client = must(socket(AF_INET, SOCK_STREAM, 0));
	must(connect(client, (struct sockaddr *)&address, sizeof address));
	struct pollfd one = {.fd = listener, .events = POLLIN};
	printf("  poll says %d\n", must(poll(&one, 1, 1000)));
	fd_set set;
	FD_ZERO(&set);
	FD_SET(listener, &set);
	struct timeval second = {.tv_sec = 1};
	printf("  select says %d\n", must(select(listener + 1, &set, NULL, NULL, &second)));
	must(accept(listener, NULL, NULL));
	printf("  %d descriptors\n", descriptors());
}

static void show_origin(const char *name)
{
	Dl_info info = {0};
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), *function = dlsym(libc, name);
	if (!function || !dladdr(function, &info))
		must(-1);
	const char *slash = strrchr(info.dli_fname, '/');
	printf("%s is of %s\n", name, slash ? slash + 1 : info.dli_fname);
}

int main(void)
{
	show_objects("the program");
	fflush(stdout);
	pid_t child = must(fork());
	if (child == 0) {
		show_objects("a child");
		fflush(stdout);
		_exit(3);
	}
	int status;
	must(waitpid(child, &status, 0));
	printf("the child ended with %d\n", WEXITSTATUS(status));
	show_handlers();
	show_listener();
	show_origin("epoll_wait");
	show_origin("sigaction");
	printf("%d mappings of counts\n", lines_with("/proc/self/maps", "/run-", 0));
	printf("%d mappings for counts\n", lines_with("/proc/self/maps", "wakeset-stats", 0));
	return 0;
}
