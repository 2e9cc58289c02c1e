/*
 * Roads to libc's functions that pass no name which a preload can take over. The lines it prints
 * are the same plain and under Wakeset; those that begin with "place:" say where objects are.
 *
 * program CASE [LIBRARY]
 */
#include "../world.h"
#include <dlfcn.h>

typedef ssize_t (*Read)(int, void *, size_t);
typedef ssize_t (*Write)(int, const void *, size_t);
typedef int (*Close)(int);
typedef int (*Eventfd)(unsigned);
typedef int (*Wait)(int, struct epoll_event *, int, int);
typedef void *(*Find)(const char *);

/* One way to each call. */
struct road {
	Read read;
	Write write;
	Close close;
	Wait wait;
};
static const struct road plain = {read, write, close, epoll_wait};

static void *found(void *function, const char *name)
{
	if (!function) {
		printf("%s is not found: %s\n", name, dlerror());
		exit(1);
	}
	return function;
}

static void *load(const char *library, int flags)
{
	return found(dlopen(library, flags), library);
}

/* The functions of a library, by names that begin so. */
static struct road road_of(void *handle, const char *prefix)
{
	char names[4][40];
	const char *calls[] = {"read", "write", "close", "epoll_wait"};
	void *functions[4];
	for (int i = 0; i < 4; i++) {
		snprintf(names[i], sizeof names[i], "%s%s", prefix, calls[i]);
		functions[i] = found(dlsym(handle, names[i]), names[i]);
	}
	return (struct road){functions[0], functions[1], functions[2], functions[3]};
}

static char file_name[] = "/tmp/wakeset-loader-XXXXXX";
static char file_bytes[64];

/* A regular file that is there for this process alone. */
static int new_file(void)
{
	strcpy(file_name, "/tmp/wakeset-loader-XXXXXX");
	close(must(mkstemp(file_name)));
	int fd = must(open(file_name, O_RDWR));
	unlink(file_name);
	return fd;
}

static const char *bytes_of(int file)
{
	ssize_t n = bare(SYS_pread64, file, (long)file_bytes, sizeof file_bytes - 1, 0);
	file_bytes[n < 0 ? 0 : n] = '\0';
	return file_bytes;
}

/* Both roads see the same objects. */
static void share(const char *name, struct road other)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 5};
	uint64_t value = 7;
	char bytes[16] = "";
	int ends[2], pair[2], set = must(epoll_create1(0)), counter = must(eventfd(0, EFD_NONBLOCK));
	must(pipe2(ends, O_NONBLOCK));
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
	must(epoll_ctl(set, EPOLL_CTL_ADD, counter, &event));
	printf("%s: eventfd %zd", name, other.write(counter, &value, 8));
	printf(", waits %d", plain.wait(set, &event, 1, 0));
	printf(" and %d", other.wait(set, &event, 1, 0));
	value = 0;
	printf(", read %zd", plain.read(counter, &value, 8));
	printf(" of %d", (int)value);
	value = 9;
	printf(", and back %zd", plain.write(counter, &value, 8));
	value = 0;
	printf(" %zd", other.read(counter, &value, 8));
	printf(" of %d\n", (int)value);
	printf("%s: pipe %zd", name, other.write(ends[1], "pipe", 5));
	printf(" %zd %s", plain.read(ends[0], bytes, sizeof bytes), bytes);
	printf(", pair %zd", plain.write(pair[0], "pair", 5));
	printf(" %zd %s\n", other.read(pair[1], bytes, sizeof bytes), bytes);
	/* Their numbers come to stand for regular files. */
	int fds[] = {counter, ends[0], ends[1], pair[0], pair[1], set}, files[6];
	for (int i = 0; i < 6; i++) {
		printf("%s: close %d", name, other.close(fds[i]));
		files[i] = new_file();
		printf(", the same number %d", files[i] == fds[i]);
		printf(", written %zd", plain.write(files[i], "fourteen bytes", 14));
		printf(", in the file \"%s\"\n", bytes_of(files[i]));
	}
	for (int i = 0; i < 6; i++)
		close(files[i]);
}

static void say_place(void)
{
	printf("place: %c\n", where(COUNTER, must(eventfd(0, EFD_NONBLOCK)), -1));
}

static void deepbind(const char *library, int flags)
{
	char number[16];
	uint64_t value = 1;
	int counter = must(eventfd(0, EFD_NONBLOCK));
	snprintf(number, sizeof number, "%d", counter);
	setenv("PLUGIN_EVENTFD", number, 1);
	void *plugin = load(library, flags | RTLD_DEEPBIND);
	ssize_t n = read(counter, &value, 8);
	/* The plugin's own, and that of the library that it needs. */
	printf("constructors: read %zd of %d\n", n, (int)value);
	unsetenv("PLUGIN_EVENTFD");
	share("plugin", road_of(plugin, "plugin_"));
	share("needed", road_of(plugin, "needed_"));
	Eventfd make = found(dlsym(plugin, "plugin_eventfd"), "plugin_eventfd");
	int made = make(3);
	n = read(made, &value, 8);
	printf("made there: read %zd of %d\n", n, (int)value);
	Find by_default = found(dlsym(plugin, "plugin_default"), "plugin_default");
	struct road road = {by_default("read"), by_default("write"), by_default("close"),
			    by_default("epoll_wait")};
	share("RTLD_DEFAULT in the plugin", road);
	say_place();
}

static void handles(const char *library)
{
	void *libc = load("libc.so.6", RTLD_NOW);
	void *plugin = load(library, RTLD_NOW);
	Find next = found(dlsym(plugin, "plugin_next"), "plugin_next");
	say_place();
	share("libc's handle", road_of(libc, ""));
	share("libc's other names", (struct road){
		found(dlsym(libc, "__read"), "__read"), found(dlsym(libc, "__write"), "__write"),
		found(dlsym(libc, "__close"), "__close"), epoll_wait});
	share("dlvsym", (struct road){
		found(dlvsym(libc, "read", "GLIBC_2.2.5"), "read"),
		found(dlvsym(libc, "write", "GLIBC_2.2.5"), "write"),
		found(dlvsym(libc, "close", "GLIBC_2.2.5"), "close"),
		found(dlvsym(libc, "epoll_wait", "GLIBC_2.3.2"), "epoll_wait")});
	share("a plugin's handle", road_of(plugin, ""));
	share("RTLD_DEFAULT", road_of(RTLD_DEFAULT, ""));
	share("RTLD_NEXT", road_of(RTLD_NEXT, ""));
	share("RTLD_NEXT in a plugin", (struct road){next("read"), next("write"), next("close"),
						     next("epoll_wait")});
	void *(*find)(void *, const char *) = found(dlsym(libc, "dlsym"), "dlsym");
	share("libc's dlsym", (struct road){find(libc, "read"), find(libc, "write"),
					    find(libc, "close"), find(libc, "epoll_wait")});
	printf("a version that is not: %d\n", dlvsym(libc, "write", "GLIBC_2.99") != NULL);
	printf("a name that is not: %d\n", dlsym(libc, "wakeset_no_such_name") != NULL);
	printf("one function: %d\n", dlsym(libc, "write") == dlsym(RTLD_DEFAULT, "write"));
	say_place();
}

static void name_space(const char *library)
{
	uint64_t value = 0;
	char number[16];
	int counter = must(eventfd(0, EFD_NONBLOCK));
	snprintf(number, sizeof number, "%d", counter);
	setenv("PLUGIN_EVENTFD", number, 1);
	say_place();
	void *plugin = found(dlmopen(LM_ID_NEWLM, library, RTLD_NOW), library);
	ssize_t n = read(counter, &value, 8);
	printf("constructors: read %zd of %d\n", n, (int)value);
	unsetenv("PLUGIN_EVENTFD");
	share("plugin", road_of(plugin, "plugin_"));
	say_place();
}

static void same_name_space(const char *library)
{
	void *plugin = found(dlmopen(LM_ID_BASE, library, RTLD_NOW | RTLD_DEEPBIND), library);
	share("plugin", road_of(plugin, "plugin_"));
	say_place();
}

/* A second read end of a pipe, by a name and by libc's own open(2). */
static void opened_by_handle(void)
{
	char name[40], bytes[16] = "";
	int ends[2];
	void *libc = load("libc.so.6", RTLD_NOW);
	int (*open_file)(const char *, int, ...) = found(dlsym(libc, "open"), "open");
	must(pipe2(ends, O_NONBLOCK));
	must(write(ends[1], "in the pipe", 12));
	snprintf(name, sizeof name, "/proc/self/fd/%d", ends[0]);
	int second = must(open_file(name, O_RDONLY | O_NONBLOCK));
	ssize_t n = read(second, bytes, sizeof bytes);
	printf("read %zd %s\n", n, bytes);
	say_place();
}

static void wrapped(int by_name_only)
{
	struct sigaction action = {.sa_handler = SIG_IGN};
	int *counts = dlsym(RTLD_DEFAULT, "wrap_counts"), before[8];
	found(counts, "wrap_counts");
	memcpy(before, counts, sizeof before);
	share("by name", plain);
	if (!by_name_only)
		share("libc's handle", road_of(load("libc.so.6", RTLD_NOW), ""));
	printf("sigaction %d\n", sigaction(SIGUSR1, &action, NULL));
	for (int i = 0; i < 8; i++)
		printf("counted %d\n", counts[i] - before[i]);
	say_place();
}

int main(int argc, char **argv)
{
	const char *library = argc > 2 ? argv[2] : "";
	const char *which = argc > 1 ? argv[1] : "";
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	alarm(20);
	if (strcmp(which, "deepbind") == 0)
		deepbind(library, RTLD_NOW);
	else if (strcmp(which, "deepbind-lazy") == 0)
		deepbind(library, RTLD_LAZY);
	else if (strcmp(which, "handles") == 0)
		handles(library);
	else if (strcmp(which, "name-space") == 0)
		name_space(library);
	else if (strcmp(which, "same-name-space") == 0)
		same_name_space(library);
	else if (strcmp(which, "wrapped") == 0)
		wrapped(0);
	else if (strcmp(which, "wrapped-by-name") == 0)
		wrapped(1);
	else if (strcmp(which, "opened-by-handle") == 0)
		opened_by_handle();
	else
		return 2;
	return 0;
}
