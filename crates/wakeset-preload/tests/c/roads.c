/*
 * Each call by both roads: through its libc name, and through syscall() by its number. Both have to
 * return the same, leave the same errno and the same bytes behind, and keep the same objects in
 * process.
 *
 * Each call is made on one descriptor of every kind, by each road in a child of its own, whose
 * world is made anew: what migrates for good does so in that child alone. The program compares the
 * two records itself and says where they differ. It is run on the plain kernel too, where a
 * difference is a wrong expectation.
 *
 * `roads rows` prints the row of the table that each entry is about; `tests/table/roads.rs` wants
 * every row that can be called by both roads. `roads objects` says of each call by name, in
 * process, where the object is then that it was made on: i in process, k in the kernel.
 *
 * `roads instructions` makes each call by a system call instruction instead of syscall(). What that
 * leaves behind is read through libc, wherever the objects are then.
 */
#include "world.h"
#include <stdarg.h>

/* Whether calls by number are made by instruction. */
static int by_instruction;

static long by_number(long number, ...)
{
	long argument[6];
	va_list arguments;
	va_start(arguments, number);
	for (int i = 0; i < 6; i++)
		argument[i] = va_arg(arguments, long);
	va_end(arguments);
	if (!by_instruction)
		return syscall(number, argument[0], argument[1], argument[2], argument[3],
			       argument[4], argument[5]);
	register long r10 __asm__("r10") = argument[3];
	register long r8 __asm__("r8") = argument[4];
	register long r9 __asm__("r9") = argument[5];
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(argument[0]), "S"(argument[1]), "d"(argument[2]),
			   "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	if (result >= 0 || result < -4095)
		return result;
	errno = (int)-result;
	return -1;
}
#define syscall by_number

/* ---- the calls ---- */

/* An address that is not there; the compiler must not see that. */
static void *volatile bad = (void *)8;
#define BAD bad

static char buffer[256], other_buffer[64];

static long note_made(enum kind kind, long result, int fd, int in)
{
	if (result >= 0) {
		made_kind = kind;
		made[0] = fd;
		made[1] = in;
	}
	return result;
}

static struct msghdr message(int passed)
{
	static struct iovec part;
	static union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	part = (struct iovec){"m", 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (passed >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof control;
		control.head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.head), &passed, sizeof passed);
	}
	return message;
}

static char page[4096] __attribute__((aligned(4096)));
int __sigsuspend(const sigset_t *);

static struct iovec vectors[2] = {{buffer, 8}, {buffer + 8, 8}};
static struct msghdr received = {.msg_iov = vectors, .msg_iovlen = 1};
static struct mmsghdr several;
static struct itimerspec time_set = {.it_value = {500, 0}}, time_old;
static struct timespec no_time, millisecond = {0, 1000000};
static struct timeval no_timeval;
static struct epoll_event event = {.events = EPOLLOUT, .data.u64 = 9};
static struct pollfd polled[2];
static fd_set readable;
static sigset_t mask;
static int numbers[2], option;
static socklen_t option_len = sizeof option;
static loff_t offset;
static char *nothing[] = {NULL};

static void prepare(int fd)
{
	uint64_t value = 3;
	memset(buffer, 0, sizeof buffer);
	memcpy(buffer, &value, sizeof value);
	memset(other_buffer, 0, sizeof other_buffer);
	polled[0] = (struct pollfd){fd, POLLIN | POLLOUT, 0};
	polled[1] = (struct pollfd){counter, POLLIN, 0};
	FD_ZERO(&readable);
	FD_SET(fd, &readable);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	millisecond = (struct timespec){0, 1000000};
	no_time = (struct timespec){0, 0};
}

static long pidfd(void)
{
	return bare(SYS_pidfd_open, getpid(), 0, 0, 0);
}

/* A descriptor that reports what happens to files. It is not one of fanotify(7), whose
 * fanotify_init(2) asks for a privilege: fanotify_mark(2) fails, after its hook has run. */
static int notifier(void)
{
	return (int)bare(SYS_inotify_init1, 0, 0, 0, 0);
}

/* The mask of pselect6(2), with its size. */
static long masked[2];

/* Puts a name of a descriptor into other_buffer. */
static void name_of(int fd)
{
	snprintf(other_buffer, sizeof other_buffer, "/proc/self/fd/%d", fd);
}

/* glibc's further names, which its headers do not declare, or only for _FORTIFY_SOURCE. */
ssize_t __read(int, void *, size_t);
ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __write(int, const void *, size_t);
ssize_t __pread_chk(int, void *, size_t, off_t, size_t);
ssize_t __pread64(int, void *, size_t, off64_t);
ssize_t __pwrite64(int, const void *, size_t, off64_t);
ssize_t __pread64_chk(int, void *, size_t, off64_t, size_t);
int __pipe(int[2]);
ssize_t __send(int, const void *, size_t, int);
ssize_t __recv(int, void *, size_t, int);
ssize_t __recv_chk(int, void *, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);
int __connect(int, const struct sockaddr *, socklen_t);
int __poll(struct pollfd *, nfds_t, int);
int __poll_chk(struct pollfd *, nfds_t, int, size_t);
int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);
int __select(int, fd_set *, fd_set *, fd_set *, struct timeval *);
int __close(int);
int __dup2(int, int);
int __fcntl(int, int, ...);
int __open(const char *, int, ...);
int __open64(const char *, int, ...);
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);

enum road { NAMED, NUMBERED };

/* `entry` by `road`; -1 in *row for one that does not exist. */
static long make_call(int entry, enum road road, int fd, const char **row, const char **what,
		      int makes)
{
	int n = 0;
#define CALL(row_, what_, named, numbered)                                 \
	if (entry == n++) {                                                \
		*row = (row_);                                             \
		*what = (what_);                                           \
		return !makes ? 0 : road == NAMED ? (long)(named) : (long)(numbered); \
	}
#include "roads_calls.h"
	*row = NULL;
	return 0;
}

/* ---- both roads ---- */

struct record {
	int done;
	long result;
	int error;
	unsigned bytes;
	char residence[32];
};

static unsigned sum(const char *bytes, size_t len)
{
	unsigned sum = 0;
	for (size_t i = 0; i < len; i++)
		sum = sum * 31 + (unsigned char)bytes[i];
	return sum;
}

/* What libc's calls say of all objects. */
static void look_through_libc(char *text, size_t size)
{
	uint64_t values[3] = {0};
	struct epoll_event events[2];
	char out_of_pipe[64] = "", out_of_pair[64] = "";
	struct itimerspec left = {0};
	long got[] = {
		read(counter, &values[0], 8),
		read(watched, &values[1], 8),
		read(expired, &values[2], 8),
		timerfd_gettime(timer, &left),
		epoll_wait(set, events, 2, 0),
		read(ends[0], out_of_pipe, sizeof out_of_pipe),
		recv(pair[0], out_of_pair, sizeof out_of_pair, MSG_DONTWAIT),
	};
	unsigned results = sum((const char *)got, sizeof got);
	snprintf(text, size, "%08x %08x %d", results, sum((const char *)values, sizeof values),
		 left.it_value.tv_sec > 0);
}

static void travel(int entry, enum road road, enum kind kind, struct record *record)
{
	const char *row, *what;
	memset(record, 0, sizeof *record);
	pid_t child = fork();
	if (child == 0) {
		alarm(10);
		make_world();
		int fd = descriptor_of(kind);
		prepare(fd);
		errno = 0;
		record->result = make_call(entry, road, fd, &row, &what, 1);
		record->error = errno;
		record->bytes = sum(buffer, sizeof buffer);
		if (by_instruction)
			look_through_libc(record->residence, sizeof record->residence);
		else
			look(record->residence);
		record->done = 1;
		_exit(0);
	}
	int status;
	while (waitpid(child, &status, 0) == -1 && errno == EINTR)
		;
}

static const char *describe(const struct record *record)
{
	static char texts[2][160];
	static int next;
	char *text = texts[next++ % 2];
	if (record->done)
		snprintf(text, sizeof texts[0], "%ld %s, bytes %08x, objects %s", record->result,
			 record->error ? strerrorname_np(record->error) : "without error",
			 record->bytes, record->residence);
	else
		snprintf(text, sizeof texts[0], "it did not come back");
	return text;
}

/* The object of this kind in the record of where each is; 0 for what never is in process. */
static char residence_of(enum kind kind, const struct record *record)
{
	static const signed char places[KINDS] = {
		[COUNTER] = 1, [TIMER] = 3,   [EXPIRED] = 4, [SET] = 5,
		[PIPE_OUT] = 6, [PIPE_IN] = 6, [PAIR] = 7,
	};
	return places[kind] ? record->residence[places[kind] - 1] : 0;
}

static void say_objects(struct record *record)
{
	const char *row, *what;
	for (int entry = 0; make_call(entry, NAMED, 0, &row, &what, 0), row; entry++) {
		for (int kind = 0; kind < KINDS; kind++) {
			travel(entry, NAMED, (enum kind)kind, record);
			if (record->done && residence_of((enum kind)kind, record))
				printf("%s\t%s, of a %s\t%c\n", row, what, kinds[kind],
				       residence_of((enum kind)kind, record));
		}
	}
}

int main(int argc, char **argv)
{
	int lists_rows = argc > 1 && strcmp(argv[1], "rows") == 0;
	struct record *records = mmap(NULL, 2 * sizeof *records, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const char *row, *what;
	int differences = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	/* O_ASYNC of something that becomes ready. */
	signal(SIGIO, SIG_IGN);
	if (argc > 1 && strcmp(argv[1], "objects") == 0) {
		say_objects(records);
		return 0;
	}
	by_instruction = argc > 1 && strcmp(argv[1], "instructions") == 0;
	for (int entry = 0; make_call(entry, NAMED, 0, &row, &what, 0), row; entry++) {
		if (lists_rows) {
			printf("%s\n", row);
			continue;
		}
		for (int kind = 0; kind < KINDS; kind++) {
			travel(entry, NAMED, (enum kind)kind, &records[0]);
			travel(entry, NUMBERED, (enum kind)kind, &records[1]);
			if (entry == 0 && kind == 0)
				printf("untouched objects: %s\n", records[0].residence);
			/* Two runs of nothing have the same outcome; a call that ends its process has none. */
			if (records[0].done && memcmp(&records[0], &records[1], sizeof *records) == 0)
				continue;
			differences++;
			printf("%s, %s, of a %s:\n  by name:   %s\n", row, what, kinds[kind], describe(&records[0]));
			printf("  by number: %s\n", describe(&records[1]));
		}
	}
	return differences != 0;
}
