/*
 * The counter itself, with no set around it: all of eventfd(2)'s DESCRIPTION, plus what read(2),
 * readv(2), fcntl(2), ioctl(2) and fstat(2) say of such a descriptor.
 */
#include "show.h"
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define LARGEST 0xfffffffffffffffeu /* the most a counter can hold */

/* a size the compiler does not know, so that the fortified calls check it */
static volatile size_t eight = 8;

static void show_value(const char *name, uint64_t want, int fd)
{
	uint64_t value = 0;
	char wanted[48], gotten[48];
	snprintf(wanted, sizeof wanted, "%llu", (unsigned long long)want);
	if (read(fd, &value, eight) == 8)
		snprintf(gotten, sizeof gotten, "%llu", (unsigned long long)value);
	else
		snprintf(gotten, sizeof gotten, "%s", outcome(-1));
	show(name, wanted, gotten);
}

static const char *polled(int fd)
{
	static char text[64];
	struct pollfd one = {fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, 0};
	must(poll(&one, 1, 0));
	name_bits(text, sizeof text, (uint32_t)one.revents); /* the bits of poll and epoll are the same */
	return *text ? text : "none";
}

static void show_modes(void)
{
	heading("a counter");
	int fd = must(eventfd(7, EFD_NONBLOCK));
	show_value("the initial value", 7, fd);
	CALL("then nothing", "-1 EAGAIN", take(fd));
	CALL("add 1", "8", add(fd, 1));
	CALL("add 2", "8", add(fd, 2));
	CALL("add 0", "8", add(fd, 0));
	show_value("one read takes all", 3, fd);
	CALL("then nothing", "-1 EAGAIN", take(fd));
	CALL("add 0 to nothing", "8", add(fd, 0));
	CALL("still nothing", "-1 EAGAIN", take(fd));
	must(close(fd));
	fd = must(eventfd(0xffffffffu, EFD_NONBLOCK));
	show_value("the initial value is unsigned", 0xffffffffu, fd);
	must(close(fd));

	heading("a semaphore");
	fd = must(eventfd(2, EFD_NONBLOCK | EFD_SEMAPHORE));
	show_value("one read takes one", 1, fd);
	must(add(fd, 1));
	show_value("and one", 1, fd);
	show("one is left", "IN|OUT", polled(fd));
	show_value("and one", 1, fd);
	CALL("then nothing", "-1 EAGAIN", take(fd));
	CALL("add as much as there can be", "8", add(fd, LARGEST));
	show_value("still one at a time", 1, fd);
	CALL("which leaves room for one", "8", add(fd, 1));
	CALL("and no more", "-1 EAGAIN", add(fd, 1));
	must(close(fd));
}

static void show_limits(void)
{
	heading("overflow");
	int fd = must(eventfd(0, EFD_NONBLOCK));
	show("empty", "OUT", polled(fd));
	CALL("add 2^64-1", "-1 EINVAL", add(fd, UINT64_MAX));
	CALL("add 2^64-2", "8", add(fd, LARGEST));
	show("full", "IN", polled(fd));
	CALL("add 1 to a full one", "-1 EAGAIN", add(fd, 1));
	CALL("add 0 to a full one", "8", add(fd, 0));
	CALL("add 2^64-1 to a full one", "-1 EINVAL", add(fd, UINT64_MAX));
	show_value("nothing was lost", LARGEST, fd);
	must(add(fd, LARGEST - 1));
	show("room for one", "IN|OUT", polled(fd));
	CALL("add 2", "-1 EAGAIN", add(fd, 2));
	show("a refused write changes nothing", "IN|OUT", polled(fd));
	CALL("add 1", "8", add(fd, 1));
	show_value("full again", LARGEST, fd);
	must(close(fd));

	heading("sizes");
	uint64_t values[3] = {4, 5, 6};
	fd = must(eventfd(0, EFD_NONBLOCK));
	CALL("write 7 bytes", "-1 EINVAL", write(fd, values, eight - 1));
	/*
	 * The man page asks for "at least" 8 bytes of a read; more than 8 in a write are taken or not by
	 * the kernel's age.
	 */
	printf("write 16 bytes: %s\n", outcome(write(fd, values, eight * 2)));
	printf("write 9 bytes: %s\n", outcome(write(fd, values, eight + 1)));
	printf("of which is there: %lld\n", take(fd));
	must(add(fd, 9));
	values[1] = 5;
	CALL("read 7 bytes", "-1 EINVAL", read(fd, values, eight - 1));
	CALL("read 24 bytes", "8", read(fd, values, eight * 3));
	number("the value", 9, (long long)values[0]);
	number("what lies behind is left alone", 5, (long long)values[1]);
	char bytes[17] = {0};
	must(add(fd, 0x0102030405060708));
	CALL("read into an odd address", "8", read(fd, bytes + 1, eight));
	memcpy(values, bytes + 1, 8);
	yes("the value", values[0] == 0x0102030405060708);
	CALL("write from an odd address", "8", write(fd, bytes + 1, eight));
	show_value("the value", 0x0102030405060708, fd);
	must(close(fd));
}

static void show_parts(void)
{
	heading("readv(2) and writev(2)");
	uint64_t values[3] = {4, 5, 6};
	uint32_t halves[2] = {0, 0};
	int fd = must(eventfd(0, EFD_NONBLOCK));
	struct iovec one = {values, 8};
	struct iovec three[3] = {{values, 8}, {values + 1, 8}, {values + 2, 8}};
	struct iovec split[2] = {{halves, 4}, {halves + 1, 4}};
	struct iovec gap[3] = {{values, 0}, {values + 1, 8}, {values, 0}};
	struct iovec too_short[2] = {{halves, 4}, {halves + 1, 3}};

	CALL("writev of no parts", "0", writev(fd, &one, 0));
	CALL("writev of one part", "8", writev(fd, &one, 1));
	values[0] = 0;
	CALL("readv of one part", "8", readv(fd, &one, 1));
	number("the value", 4, (long long)values[0]);
	/* Each part of a writev is a write of its own... */
	CALL("writev of three parts", "24", writev(fd, three, 3));
	show_value("all three were added", 15, fd);
	halves[0] = 7;
	CALL("writev of two halves", "-1 EINVAL", writev(fd, split, 2));
	CALL("nothing was added", "-1 EAGAIN", take(fd));
	/* ...and the parts of a readv are one buffer. */
	must(add(fd, 0x0000000200000001));
	CALL("readv of two halves", "8", readv(fd, split, 2));
	number("the low half", 1, halves[0]);
	number("the high half", 2, halves[1]);
	must(add(fd, 3));
	CALL("readv of 7 bytes in two parts", "-1 EINVAL", readv(fd, too_short, 2));
	CALL("readv of three parts", "8", readv(fd, three, 3));
	number("only the first is filled", 3, (long long)values[0]);
	number("the second is as before", 5, (long long)values[1]);
	must(add(fd, 6));
	CALL("readv with empty parts around", "8", readv(fd, gap, 3));
	number("the value", 6, (long long)values[1]);
	printf("writev with empty parts around: %s\n", outcome(writev(fd, gap, 3)));
	printf("of which is there: %lld\n", take(fd));
	values[0] = LARGEST;
	values[1] = 1;
	CALL("writev whose second part has no room", "8", writev(fd, three, 2));
	show_value("the first was added", LARGEST, fd);
	values[0] = 1;
	values[1] = UINT64_MAX;
	CALL("writev whose second part is wrong", "8", writev(fd, three, 2));
	show_value("the first was added", 1, fd);
	CALL("readv of nothing there", "-1 EAGAIN", readv(fd, three, 3));
	printf("readv of no parts: %s\n", outcome(readv(fd, &one, 0)));
	must(close(fd));

	heading("parts of no length and of too much");
	fd = must(eventfd(0, EFD_NONBLOCK));
	static uint64_t cell; /* far from the end of memory, where the stack is */
	struct iovec none = {&cell, 0}, endless = {&cell, SIZE_MAX}, too_much = {&cell, (size_t)1 << 46};
	CALL("readv of nothing from nothing", "0", readv(fd, &none, 1));
	CALL("writev of nothing", "0", writev(fd, &none, 1));
	must(add(fd, 9));
	CALL("readv of nothing from something", "0", readv(fd, &none, 1));
	CALL("readv of a negative length", "-1 EINVAL", readv(fd, &endless, 1));
	CALL("writev of a negative length", "-1 EINVAL", writev(fd, &endless, 1));
	/* What is too long for one call is shortened first, so that it fits into memory. */
	CALL("readv of more than memory", "8", readv(fd, &too_much, 1));
	number("the value", 9, (long long)cell);
	must(add(fd, 9));
	/* For read, all of it has to be there. (A fortified one would not even ask.) */
	CALL("read of more than memory", "-1 EFAULT", syscall(SYS_read, fd, &cell, too_much.iov_len * 2));
#if !__USE_FORTIFY_LEVEL
	CALL("by libc's function", "-1 EFAULT", read(fd, &cell, too_much.iov_len * 2));
#endif
	CALL("took nothing", "9", take(fd));
	must(close(fd));

	heading("eventfd_read(3) and eventfd_write(3)");
	fd = must(eventfd(0, EFD_NONBLOCK));
	eventfd_t value = 0;
	CALL("read nothing", "-1 EAGAIN", eventfd_read(fd, &value));
	CALL("write", "0", eventfd_write(fd, 12));
	CALL("read", "0", eventfd_read(fd, &value));
	number("the value", 12, (long long)value);
	CALL("write 2^64-1", "-1 EINVAL", eventfd_write(fd, UINT64_MAX));
	CALL("write 2^64-2", "0", eventfd_write(fd, LARGEST));
	CALL("write 1 more", "-1 EAGAIN", eventfd_write(fd, 1));
	CALL("write to -1", "-1 EBADF", eventfd_write(-1, 1));
	CALL("read from -1", "-1 EBADF", eventfd_read(-1, &value));
	must(close(fd));
}

static void show_flags(void)
{
	heading("fcntl(2) and ioctl(2)");
	int on = 1, off = 0;
	int fd = must(eventfd(0, 0));
	CALL("no flags: F_GETFD", "0", fcntl(fd, F_GETFD));
	number("no flags: F_GETFL", O_RDWR, fcntl(fd, F_GETFL));
	CALL("set O_NONBLOCK", "0", fcntl(fd, F_SETFL, O_NONBLOCK));
	number("F_GETFL", O_RDWR | O_NONBLOCK, fcntl(fd, F_GETFL));
	CALL("a read does not wait", "-1 EAGAIN", take(fd));
	CALL("clear FIONBIO", "0", ioctl(fd, FIONBIO, &off));
	number("F_GETFL", O_RDWR, fcntl(fd, F_GETFL));
	CALL("set FIONBIO", "0", ioctl(fd, FIONBIO, &on));
	number("F_GETFL", O_RDWR | O_NONBLOCK, fcntl(fd, F_GETFL));
	CALL("a read does not wait", "-1 EAGAIN", take(fd));
	CALL("FIONBIO with no argument", "-1 EFAULT", ioctl(fd, FIONBIO, NULL));
	int copy = must(dup(fd));
	CALL("O_NONBLOCK is the description's: clear it", "0", fcntl(copy, F_SETFL, 0));
	number("F_GETFL of the other", O_RDWR, fcntl(fd, F_GETFL));
	CALL("set it", "0", fcntl(fd, F_SETFL, O_NONBLOCK));
	CALL("a read of the other does not wait", "-1 EAGAIN", take(copy));
	CALL("FIOCLEX", "0", ioctl(fd, FIOCLEX));
	CALL("F_GETFD", "1", fcntl(fd, F_GETFD));
	CALL("close-on-exec is the descriptor's: F_GETFD of the other", "0", fcntl(copy, F_GETFD));
	CALL("FIONCLEX", "0", ioctl(fd, FIONCLEX));
	CALL("F_GETFD", "0", fcntl(fd, F_GETFD));
	CALL("F_SETFD", "0", fcntl(fd, F_SETFD, FD_CLOEXEC));
	CALL("F_GETFD", "1", fcntl(fd, F_GETFD));
	int count;
	printf("FIONREAD: %s\n", outcome(ioctl(fd, FIONREAD, &count)));
	printf("an ioctl nobody knows: %s\n", outcome(ioctl(fd, 0x12345678, &count)));
	CALL("still there", "8", add(fd, 1));
	show_value("after all that", 1, fd);
	must(close(copy));
	must(close(fd));

	fd = must(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	CALL("EFD_CLOEXEC: F_GETFD", "1", fcntl(fd, F_GETFD));
	number("EFD_NONBLOCK: F_GETFL", O_RDWR | O_NONBLOCK, fcntl(fd, F_GETFL));
	must(close(fd));

	heading("fstat(2) and /proc");
	struct stat status;
	char path[64], target[64] = "";
	fd = must(eventfd(3, EFD_NONBLOCK));
	CALL("fstat", "0", fstat(fd, &status));
	printf("mode: %o, size: %lld\n", (unsigned)status.st_mode, (long long)status.st_size);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	ssize_t length = readlink(path, target, sizeof target - 1);
	yes("readlink", length > 0);
	show("its name", "anon_inode:[eventfd]", target);
	CALL("seek", "0", lseek(fd, 0, SEEK_SET));
	CALL("isatty", "0", isatty(fd));
	show_value("nothing of that took the value", 3, fd);
	must(close(fd));
}

static void *add_five(void *argument)
{
	int *fd = argument;
	add(*fd, 5);
	return NULL;
}

struct blocked {
	int fd;
	int writes;
	uint64_t value;
	ssize_t result;
};

static void *transfer(void *argument)
{
	struct blocked *blocked = argument;
	if (blocked->writes)
		blocked->result = write(blocked->fd, &blocked->value, eight);
	else
		blocked->result = read(blocked->fd, &blocked->value, eight);
	return NULL;
}

static void show_blocking(void)
{
	struct thread thread;
	struct blocked blocked;
	uint64_t parts[2] = {1, 2};
	struct iovec two[2] = {{parts, 8}, {parts + 1, 8}};

	heading("blocking");
	int fd = must(eventfd(0, 0));
	blocked = (struct blocked){.fd = fd};
	start(&thread, transfer, &blocked);
	until_asleep(thread.id);
	must(add(fd, 0)); /* wakes nobody for good: there is still nothing */
	until_asleep(thread.id);
	must(add(fd, 4));
	finish(&thread);
	number("a read waits for a write", 8, blocked.result);
	number("and takes its value", 4, (long long)blocked.value);

	start(&thread, add_five, &fd);
	show_value("a read in this thread", 5, fd);
	finish(&thread);

	must(add(fd, LARGEST));
	blocked = (struct blocked){.fd = fd, .writes = 1, .value = 3};
	start(&thread, transfer, &blocked);
	until_asleep(thread.id);
	show_value("a write waits for a read", LARGEST, fd);
	finish(&thread);
	number("and then succeeds", 8, blocked.result);
	show_value("with its value", 3, fd);

	must(add(fd, LARGEST - 1));
	blocked = (struct blocked){.fd = fd, .writes = 1, .value = 2};
	start(&thread, transfer, &blocked);
	until_asleep(thread.id);
	CALL("a smaller write passes it", "8", add(fd, 1));
	show_value("a read makes room", LARGEST, fd);
	finish(&thread);
	show_value("for the larger", 2, fd);

	start(&thread, add_five, &fd);
	CALL("readv waits too", "8", readv(fd, two, 2));
	finish(&thread);
	number("and takes its value", 5, (long long)parts[0]);
	must(close(fd));
	fd = must(eventfd(0, 0));

	/* The mode is looked at when the call is made: a change does not reach one that waits already. */
	blocked = (struct blocked){.fd = fd};
	start(&thread, transfer, &blocked);
	until_asleep(thread.id);
	must(fcntl(fd, F_SETFL, O_NONBLOCK));
	CALL("O_NONBLOCK set while a read waits: another does not wait", "-1 EAGAIN", take(fd));
	must(add(fd, 0)); /* wakes the first, which finds nothing */
	until_asleep(thread.id);
	must(add(fd, 6));
	finish(&thread);
	number("the first goes on waiting", 8, blocked.result);
	number("and takes the value", 6, (long long)blocked.value);
	must(close(fd));

	fd = must(eventfd(0, EFD_SEMAPHORE));
	struct thread threads[3];
	struct blocked takers[3];
	for (int i = 0; i < 3; i++) {
		takers[i] = (struct blocked){.fd = fd};
		start(&threads[i], transfer, &takers[i]);
		until_asleep(threads[i].id);
	}
	must(add(fd, 3));
	uint64_t sum = 0;
	for (int i = 0; i < 3; i++) {
		finish(&threads[i]);
		sum += takers[i].value;
	}
	number("a semaphore raised by three lets three readers go", 3, (long long)sum);
	must(fcntl(fd, F_SETFL, O_NONBLOCK));
	CALL("and is down", "-1 EAGAIN", take(fd));
	must(close(fd));
}

static void show_polling(void)
{
	fd_set readable, writable, exceptional;
	struct timeval no_time = {0, 0};
	heading("poll(2) and select(2)");
	int fd = must(eventfd(0, EFD_NONBLOCK));
	for (int value = 0; value < 2; value++) {
		FD_ZERO(&readable);
		FD_SET(fd, &readable);
		writable = exceptional = readable;
		number("select's count", value + 1, select(fd + 1, &readable, &writable, &exceptional, &no_time));
		number("readable", value, FD_ISSET(fd, &readable) != 0);
		number("writable", 1, FD_ISSET(fd, &writable) != 0);
		number("exceptional", 0, FD_ISSET(fd, &exceptional) != 0);
		show("poll", value ? "IN|OUT" : "OUT", polled(fd));
		must(add(fd, 1));
	}
	must(close(fd));
}

int main(void)
{
	show_modes();
	show_limits();
	show_parts();
	show_flags();
	show_blocking();
	show_polling();
	return verdict();
}
