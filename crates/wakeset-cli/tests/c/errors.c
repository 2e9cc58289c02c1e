/*
 * Every error the calls can give, each alone: ERRORS of epoll_create(2), epoll_ctl(2),
 * epoll_wait(2), eventfd(2), and those of read(2), write(2), readv(2) and writev(2) that an eventfd
 * can give.
 */
#include "show.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include "errors/nesting.h"

/* The compiler knows some of these arguments to be wrong; through volatile it does not see them. */
static void *volatile null = NULL;
static void *volatile one = (void *)1;
static void *volatile out_of_space = (void *)-4096L;
static volatile int zero = 0, minus_one = -1, too_many = 0x7fffffff, too_many_parts = 1025;

static void *no_access; /* a page that may be neither read nor written */
static char *last_bytes; /* points to it, and what lies just before it may be */

static void show_create(void)
{
	heading("epoll_create(2)");
	CALL_FD("size 1", "fd", epoll_create(1));
	CALL_FD("size 0", "-1 EINVAL", epoll_create(0));
	CALL_FD("size -1", "-1 EINVAL", epoll_create(-1));
	CALL_FD("no flags", "fd", epoll_create1(0));
	CALL_FD("EPOLL_CLOEXEC", "fd", epoll_create1(EPOLL_CLOEXEC));
	CALL_FD("O_NONBLOCK is no flag of it", "-1 EINVAL", epoll_create1(O_NONBLOCK));
	CALL_FD("all flags", "-1 EINVAL", epoll_create1(-1));

	heading("eventfd(2)");
	CALL_FD("no flags", "fd", eventfd(0, 0));
	CALL_FD("all three flags", "fd", eventfd(7, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE));
	CALL_FD("the largest initial value", "fd", eventfd(0xffffffffu, 0));
	CALL_FD("unknown flag 2", "-1 EINVAL", eventfd(0, 2));
	CALL_FD("unknown flag O_APPEND", "-1 EINVAL", eventfd(0, O_APPEND));
	CALL_FD("all flags", "-1 EINVAL", eventfd(0, -1));
	CALL_FD("syscall eventfd with a flag it does not know", "-1 EINVAL", syscall(SYS_eventfd2, 0, 2));
	CALL_FD("syscall epoll_create1 with a flag it does not know", "-1 EINVAL",
	        syscall(SYS_epoll_create1, 2));

	/* Descriptors are scarce: with one number left, one object can be made and works. */
	struct rlimit old, tight;
	int next = must(dup(0));
	must(close(next));
	must(getrlimit(RLIMIT_NOFILE, &old));
	tight = old;
	tight.rlim_cur = (rlim_t)next;
	must(setrlimit(RLIMIT_NOFILE, &tight));
	CALL_FD("eventfd with no number left", "-1 EMFILE", eventfd(0, 0));
	CALL_FD("epoll_create1 with no number left", "-1 EMFILE", epoll_create1(0));
	tight.rlim_cur = (rlim_t)next + 2;
	must(setrlimit(RLIMIT_NOFILE, &tight));
	int fd = must(eventfd(3, 0)), set = must(epoll_create1(0));
	CALL_FD("dup with no number left", "-1 EMFILE", dup(fd));
	CALL("a watch needs no number", "0", watch_new(set, fd, EPOLLIN, 'a'));
	show("nor does a wait", "a=IN", ready(set));
	CALL("nor a read", "3", take(fd));
	CALL_FD("one more", "-1 EMFILE", eventfd(0, 0));
	must(setrlimit(RLIMIT_NOFILE, &old));
	must(close(set));
	must(close(fd));
}

static void show_ctl(void)
{
	struct epoll_event event = {.events = EPOLLIN};
	int set = must(epoll_create1(EPOLL_CLOEXEC)), other = must(epoll_create1(EPOLL_CLOEXEC));
	int fd = must(eventfd(0, EFD_CLOEXEC)), absent = must(eventfd(0, EFD_CLOEXEC));
	int file = must(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
	int folder = must(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	int ends[2];
	kernel_pipe(ends, O_CLOEXEC);
	int closed = must(dup(fd));
	must(close(closed));

	heading("epoll_ctl(2)");
	CALL("set is -1", "-1 EBADF", epoll_ctl(-1, EPOLL_CTL_ADD, fd, &event));
	CALL("set is closed", "-1 EBADF", epoll_ctl(closed, EPOLL_CTL_ADD, fd, &event));
	CALL("set is far out of range", "-1 EBADF", epoll_ctl(too_many, EPOLL_CTL_ADD, fd, &event));
	CALL("set is an eventfd", "-1 EINVAL", epoll_ctl(absent, EPOLL_CTL_ADD, fd, &event));
	CALL("set is a pipe", "-1 EINVAL", epoll_ctl(ends[0], EPOLL_CTL_ADD, fd, &event));
	CALL("set is a file", "-1 EINVAL", epoll_ctl(file, EPOLL_CTL_ADD, fd, &event));
	CALL("add -1", "-1 EBADF", epoll_ctl(set, EPOLL_CTL_ADD, -1, &event));
	CALL("add a closed number", "-1 EBADF", epoll_ctl(set, EPOLL_CTL_ADD, closed, &event));
	CALL("modify a closed number", "-1 EBADF", epoll_ctl(set, EPOLL_CTL_MOD, closed, &event));
	CALL("remove a closed number", "-1 EBADF", epoll_ctl(set, EPOLL_CTL_DEL, closed, &event));
	CALL("add a regular file", "-1 EPERM", epoll_ctl(set, EPOLL_CTL_ADD, file, &event));
	CALL("modify a regular file", "-1 EPERM", epoll_ctl(set, EPOLL_CTL_MOD, file, &event));
	CALL("remove a regular file", "-1 EPERM", epoll_ctl(set, EPOLL_CTL_DEL, file, &event));
	CALL("add a directory", "-1 EPERM", epoll_ctl(set, EPOLL_CTL_ADD, folder, &event));
	CALL("add the set to itself", "-1 EINVAL", epoll_ctl(set, EPOLL_CTL_ADD, set, &event));
	CALL("modify the set in itself", "-1 EINVAL", epoll_ctl(set, EPOLL_CTL_MOD, set, &event));
	CALL("remove the set from itself", "-1 EINVAL", epoll_ctl(set, EPOLL_CTL_DEL, set, &event));
	CALL("operation 0", "-1 EINVAL", epoll_ctl(set, 0, fd, &event));
	CALL("operation 4", "-1 EINVAL", epoll_ctl(set, 4, fd, &event));
	CALL("operation -1", "-1 EINVAL", epoll_ctl(set, -1, fd, &event));
	CALL("modify what is not there", "-1 ENOENT", epoll_ctl(set, EPOLL_CTL_MOD, absent, &event));
	CALL("remove what is not there", "-1 ENOENT", epoll_ctl(set, EPOLL_CTL_DEL, absent, &event));
	CALL("remove a set that is not there", "-1 ENOENT", epoll_ctl(set, EPOLL_CTL_DEL, other, &event));
	CALL("remove a pipe that is not there", "-1 ENOENT",
	     epoll_ctl(set, EPOLL_CTL_DEL, ends[0], &event));

	CALL("add with no event", "-1 EFAULT", epoll_ctl(set, EPOLL_CTL_ADD, fd, null));
	CALL("add with an event at 1", "-1 EFAULT", epoll_ctl(set, EPOLL_CTL_ADD, fd, one));
	CALL("add with an event out of the address space", "-1 EFAULT",
	     epoll_ctl(set, EPOLL_CTL_ADD, fd, out_of_space));
	CALL("add with an event that may not be read", "-1 EFAULT",
	     epoll_ctl(set, EPOLL_CTL_ADD, fd, no_access));
	CALL("add with half an event readable", "-1 EFAULT",
	     epoll_ctl(set, EPOLL_CTL_ADD, fd, (void *)(last_bytes - 6)));
	memcpy(last_bytes - sizeof event, &event, sizeof event);
	CALL("add with an event on the last bytes of a page", "0",
	     epoll_ctl(set, EPOLL_CTL_ADD, fd, (void *)(last_bytes - sizeof event)));
	CALL("add it twice", "-1 EEXIST", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	CALL("modify with no event", "-1 EFAULT", epoll_ctl(set, EPOLL_CTL_MOD, fd, null));
	CALL("modify with an event that may not be read", "-1 EFAULT",
	     epoll_ctl(set, EPOLL_CTL_MOD, fd, no_access));
	CALL("the event is looked at before the descriptors", "-1 EFAULT",
	     epoll_ctl(-1, EPOLL_CTL_ADD, -1, null));
	CALL("and before the operation", "-1 EFAULT", epoll_ctl(set, 99, fd, null));
	CALL("remove with no event", "0", epoll_ctl(set, EPOLL_CTL_DEL, fd, null));
	CALL("add again", "0", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	CALL("remove with an event that may not be read", "0",
	     epoll_ctl(set, EPOLL_CTL_DEL, fd, no_access));
	CALL("add a pipe with no event", "-1 EFAULT", epoll_ctl(set, EPOLL_CTL_ADD, ends[0], null));
	CALL("add a pipe", "0", epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
	CALL("add it twice", "-1 EEXIST", epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
	CALL("remove it", "0", epoll_ctl(set, EPOLL_CTL_DEL, ends[0], null));

	CALL("EPOLLWAKEUP is accepted", "0", watch_new(set, fd, EPOLLIN | EPOLLWAKEUP, 'a'));
	CALL("an unknown event bit is accepted", "0",
	     watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | (1u << 20), 'a'));
	CALL("no event at all is accepted", "0", watch(set, EPOLL_CTL_MOD, fd, 0, 'a'));
	CALL("and all is as before", "0", epoll_ctl(set, EPOLL_CTL_DEL, fd, null));

	must(close(ends[0]));
	must(close(ends[1]));
	must(close(folder));
	must(close(file));
	must(close(absent));
	must(close(fd));
	must(close(other));
	must(close(set));
}

static void show_exclusive(void)
{
	int set = must(epoll_create1(0)), other = must(epoll_create1(0)), fd = must(eventfd(0, 0));
	int fds[6];
	for (int i = 0; i < 6; i++)
		fds[i] = must(eventfd(0, 0));

	heading("EPOLLEXCLUSIVE");
	CALL("with IN", "0", watch_new(set, fds[0], EPOLLEXCLUSIVE | EPOLLIN, 'a'));
	CALL("with OUT", "0", watch_new(set, fds[1], EPOLLEXCLUSIVE | EPOLLOUT, 'a'));
	CALL("with ET", "0", watch_new(set, fds[2], EPOLLEXCLUSIVE | EPOLLIN | EPOLLET, 'a'));
	CALL("with WAKEUP", "0", watch_new(set, fds[3], EPOLLEXCLUSIVE | EPOLLIN | EPOLLWAKEUP, 'a'));
	CALL("with ERR and HUP", "0", watch_new(set, fds[4], EPOLLEXCLUSIVE | EPOLLERR | EPOLLHUP, 'a'));
	CALL("alone", "0", watch_new(set, fds[5], EPOLLEXCLUSIVE, 'a'));
	CALL("with ONESHOT", "-1 EINVAL",
	     watch_new(set, fd, EPOLLEXCLUSIVE | EPOLLIN | EPOLLONESHOT, 'a'));
	CALL("with RDHUP", "-1 EINVAL", watch_new(set, fd, EPOLLEXCLUSIVE | EPOLLIN | EPOLLRDHUP, 'a'));
	CALL("with PRI", "-1 EINVAL", watch_new(set, fd, EPOLLEXCLUSIVE | EPOLLIN | EPOLLPRI, 'a'));
	CALL("with an unknown bit", "-1 EINVAL",
	     watch_new(set, fd, EPOLLEXCLUSIVE | EPOLLIN | (1u << 20), 'a'));
	CALL("for a set", "-1 EINVAL", watch_new(set, other, EPOLLEXCLUSIVE | EPOLLIN, 'a'));
	CALL("on modify", "-1 EINVAL", watch(set, EPOLL_CTL_MOD, fds[0], EPOLLEXCLUSIVE | EPOLLIN, 'a'));
	CALL("on modify of a plain watch", "-1 EINVAL",
	     (must(watch_new(set, fd, EPOLLIN, 'a')),
	      watch(set, EPOLL_CTL_MOD, fd, EPOLLEXCLUSIVE | EPOLLIN, 'a')));
	CALL("modify of an exclusive watch without it", "-1 EINVAL",
	     watch(set, EPOLL_CTL_MOD, fds[0], EPOLLIN, 'a'));
	CALL("add twice", "-1 EEXIST", watch_new(set, fds[0], EPOLLEXCLUSIVE | EPOLLIN, 'a'));
	CALL("remove", "0", epoll_ctl(set, EPOLL_CTL_DEL, fds[0], NULL));
	for (int i = 0; i < 6; i++)
		must(close(fds[i]));
	must(close(fd));
	must(close(other));
	must(close(set));
}

static void show_wait(void)
{
	struct epoll_event event;
	struct epoll_event *at_the_end = (void *)(last_bytes - sizeof event);
	int set = must(epoll_create1(0)), fd = must(eventfd(0, EFD_NONBLOCK)),
	    second = must(eventfd(0, EFD_NONBLOCK));
	int ends[2];
	kernel_pipe(ends, 0);
	int closed = must(dup(ends[0]));
	must(close(closed));
	must(watch_new(set, fd, EPOLLIN, 'a'));

	heading("epoll_wait(2)");
	CALL("set is -1", "-1 EBADF", epoll_wait(-1, &event, 1, 0));
	CALL("set is closed", "-1 EBADF", epoll_wait(closed, &event, 1, 0));
	CALL("set is an eventfd", "-1 EINVAL", epoll_wait(fd, &event, 1, 0));
	CALL("set is a pipe", "-1 EINVAL", epoll_wait(ends[0], &event, 1, 0));
	CALL("no room", "-1 EINVAL", epoll_wait(set, &event, zero, 0));
	CALL("less than no room", "-1 EINVAL", epoll_wait(set, &event, minus_one, 0));
	CALL("more room than can be", "-1 EINVAL", epoll_wait(set, &event, too_many, 0));
	CALL("a buffer out of the address space", "-1 EFAULT", epoll_wait(set, out_of_space, 1, 0));
	CALL("no buffer, nothing to report", "0", epoll_wait(set, null, 1, 0));
	CALL("a buffer that may not be written, nothing to report", "0", epoll_wait(set, no_access, 1, 0));
	must(add(fd, 1));
	CALL("no buffer", "-1 EFAULT", epoll_wait(set, null, 1, 0));
	CALL("a buffer at 1", "-1 EFAULT", epoll_wait(set, one, 1, 0));
	CALL("a buffer that may not be written", "-1 EFAULT", epoll_wait(set, no_access, 1, 0));
	show("the event is still there", "a=IN", ready(set));
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLET, 'a'));
	CALL("edge-triggered, a buffer that may not be written", "-1 EFAULT",
	     epoll_wait(set, no_access, 1, 0));
	show("the edge is still there", "a=IN", ready(set));
	show("once", "none", ready(set));
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, 'a'));
	CALL("one-shot, a buffer that may not be written", "-1 EFAULT", epoll_wait(set, no_access, 1, 0));
	show("the shot is still there", "a=IN", ready(set));
	show("once", "none", ready(set));
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLET, 'a'));
	must(watch_new(set, second, EPOLLIN | EPOLLET, 'b'));
	must(add(second, 1));
	CALL("two ready, room for one and then a bad page", "1", epoll_wait(set, at_the_end, 2, 0));
	number("it is the first", 'a', (long long)at_the_end->data.u64);
	show("the second is still there", "b=IN", ready(set));
	must(epoll_ctl(set, EPOLL_CTL_DEL, second, NULL));
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN, 'a'));

	heading("epoll_pwait(2)");
	sigset_t none;
	sigemptyset(&none);
	CALL("set is -1", "-1 EBADF", epoll_pwait(-1, &event, 1, 0, &none));
	CALL("set is an eventfd", "-1 EINVAL", epoll_pwait(fd, &event, 1, 0, &none));
	CALL("no room", "-1 EINVAL", epoll_pwait(set, &event, zero, 0, &none));
	CALL("a mask at 1", "-1 EFAULT", epoll_pwait(set, &event, 1, 0, one));
	CALL("a mask of the wrong size", "-1 EINVAL",
	     syscall(SYS_epoll_pwait, set, &event, 1, 0, &none, 4L));
	CALL("a mask of the size of sigset_t", "-1 EINVAL",
	     syscall(SYS_epoll_pwait, set, &event, 1, 0, &none, (long)sizeof none));
	CALL("no mask of the wrong size", "1", syscall(SYS_epoll_pwait, set, &event, 1, 0, NULL, 4L));
	CALL("a mask of the right size", "1", syscall(SYS_epoll_pwait, set, &event, 1, 0, &none, 8L));

	heading("epoll_pwait2(2)");
	struct timespec no_time = {0, 0}, billion = {0, 1000000000}, negative = {0, -1}, past = {-1, 0};
	CALL("good", "1", epoll_pwait2(set, &event, 1, &no_time, NULL));
	CALL("set is -1", "-1 EBADF", epoll_pwait2(-1, &event, 1, &no_time, NULL));
	CALL("set is an eventfd", "-1 EINVAL", epoll_pwait2(fd, &event, 1, &no_time, NULL));
	CALL("no room", "-1 EINVAL", epoll_pwait2(set, &event, zero, &no_time, NULL));
	CALL("a whole second of nanoseconds", "-1 EINVAL", epoll_pwait2(set, &event, 1, &billion, NULL));
	CALL("negative nanoseconds", "-1 EINVAL", epoll_pwait2(set, &event, 1, &negative, NULL));
	CALL("negative seconds", "-1 EINVAL", epoll_pwait2(set, &event, 1, &past, NULL));
	CALL("a time at 1", "-1 EFAULT", epoll_pwait2(set, &event, 1, one, NULL));
	CALL("a time that may not be read", "-1 EFAULT", epoll_pwait2(set, &event, 1, no_access, NULL));
	CALL("a mask that may not be read", "-1 EFAULT",
	     epoll_pwait2(set, &event, 1, &no_time, no_access));
	/* A fault at a blocked SIGSEGV would be the end. */
	sigset_t faults;
	sigemptyset(&faults);
	sigaddset(&faults, SIGSEGV);
	must(sigprocmask(SIG_BLOCK, &faults, NULL));
	CALL("a time that may not be read of no set", "-1 EFAULT",
	     epoll_pwait2(fd, &event, 1, no_access, NULL));
	must(sigprocmask(SIG_UNBLOCK, &faults, NULL));
	CALL("a mask of the wrong size", "-1 EINVAL",
	     syscall(SYS_epoll_pwait2, set, &event, 1, &no_time, &none, 4L));
	must(close(ends[0]));
	must(close(ends[1]));
	must(close(second));
	must(close(fd));
	must(close(set));
}

static void show_transfer(void)
{
	uint64_t value = 1;
	uint64_t *at_the_end = (void *)(last_bytes - sizeof value);
	int fd = must(eventfd(0, EFD_NONBLOCK)), set = must(epoll_create1(0));
	int closed = must(dup(fd));
	must(close(closed));

	heading("read(2) and write(2)");
	CALL("read from -1", "-1 EBADF", read(-1, &value, 8));
	CALL("read from a closed number", "-1 EBADF", read(closed, &value, 8));
	CALL("write to -1", "-1 EBADF", write(-1, &value, 8));
	CALL("write to a closed number", "-1 EBADF", write(closed, &value, 8));
	CALL("read from a set", "-1 EINVAL", read(set, &value, 8));
	CALL("write to a set", "-1 EINVAL", write(set, &value, 8));
	CALL("read nothing there", "-1 EAGAIN", read(fd, &value, 8));
	CALL("read no bytes", "-1 EINVAL", read(fd, &value, 0));
	CALL("read 7 bytes", "-1 EINVAL", read(fd, &value, 7));
	CALL("write no bytes", "-1 EINVAL", write(fd, &value, 0));
	CALL("write 7 bytes", "-1 EINVAL", write(fd, &value, 7));
	CALL("write from null", "-1 EFAULT", write(fd, null, 8));
	CALL("write from 1", "-1 EFAULT", write(fd, one, 8));
	CALL("write from out of the address space", "-1 EFAULT", write(fd, out_of_space, 8));
	CALL("write from a page that may not be read", "-1 EFAULT", write(fd, no_access, 8));
	CALL("write with half the bytes readable", "-1 EFAULT", write(fd, last_bytes - 4, 8));
	CALL("nothing was added", "-1 EAGAIN", take(fd));
	CALL("read nothing there into null", "-1 EAGAIN", read(fd, null, 8));
	*at_the_end = 5;
	CALL("write from the last bytes of a page", "8", write(fd, at_the_end, 8));
	CALL("read into out of the address space", "-1 EFAULT", read(fd, out_of_space, 8));
	*at_the_end = 0;
	CALL("read into the last bytes of a page", "8", read(fd, at_the_end, 8));
	number("which gives", 5, (long long)*at_the_end);
	/* The kernel takes the value before it learns that it cannot hand it over. */
	must(add(fd, 5));
	CALL("read into a page that may not be written", "-1 EFAULT", read(fd, no_access, 8));
	CALL("took the value with it", "-1 EAGAIN", take(fd));
	must(add(fd, 5));
	CALL("read into null", "-1 EFAULT", read(fd, null, 8));
	CALL("took the value with it", "-1 EAGAIN", take(fd));

	heading("readv(2) and writev(2)");
	struct iovec good = {&value, 8}, bad = {no_access, 8}, small = {&value, 7};
	CALL("readv from -1", "-1 EBADF", readv(-1, &good, 1));
	CALL("writev to -1", "-1 EBADF", writev(-1, &good, 1));
	CALL("readv of -1 parts", "-1 EINVAL", readv(fd, &good, minus_one));
	CALL("writev of -1 parts", "-1 EINVAL", writev(fd, &good, minus_one));
	CALL("readv of 1025 parts", "-1 EINVAL", readv(fd, &good, too_many_parts));
	CALL("writev of 1025 parts", "-1 EINVAL", writev(fd, &good, too_many_parts));
	CALL("readv of parts at 1", "-1 EFAULT", readv(fd, one, 1));
	CALL("writev of parts at 1", "-1 EFAULT", writev(fd, one, 1));
	CALL("writev of parts that may not be read", "-1 EFAULT", writev(fd, no_access, 1));
	CALL("writev of a bad part", "-1 EFAULT", writev(fd, &bad, 1));
	CALL("writev of 7 bytes", "-1 EINVAL", writev(fd, &small, 1));
	CALL("readv of 7 bytes", "-1 EINVAL", readv(fd, &small, 1));
	CALL("readv nothing there", "-1 EAGAIN", readv(fd, &good, 1));
	CALL("all is as before", "8", add(fd, 2));
	CALL("and can be taken", "2", take(fd));
	must(close(set));
	must(close(fd));
}

/* errno(3): a call that succeeds need not keep errno, but no call of these is known to touch it. */
static void show_errno(void)
{
	struct epoll_event event = {.events = EPOLLIN};
	uint64_t value = 1;
	heading("errno after success");
	errno = 4711;
	int set = epoll_create1(0), fd = eventfd(0, EFD_NONBLOCK);
	number("made", 4711, errno);
	epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
	number("added", 4711, errno);
	epoll_wait(set, &event, 1, 0);
	number("waited for nothing", 4711, errno);
	epoll_wait(set, &event, 1, 5);
	number("waited a while for nothing", 4711, errno);
	yes("written", write(fd, &value, 8) == 8);
	number("written", 4711, errno);
	epoll_wait(set, &event, 1, -1);
	number("waited for something", 4711, errno);
	yes("read", read(fd, &value, 8) == 8);
	number("read", 4711, errno);
	eventfd_write(fd, 3);
	eventfd_read(fd, &value);
	number("eventfd_write and eventfd_read", 4711, errno);
	struct pollfd polled = {fd, POLLIN, 0};
	poll(&polled, 1, 0);
	number("polled", 4711, errno);
	int copy = dup(fd);
	number("duplicated", 4711, errno);
	fcntl(fd, F_SETFL, 0);
	number("made blocking", 4711, errno);
	epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL);
	number("removed", 4711, errno);
	close(copy);
	close(fd);
	close(set);
	number("closed", 4711, errno);
}

int main(void)
{
	long page = sysconf(_SC_PAGESIZE);
	char *pages = mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
	                   0);
	if (pages == MAP_FAILED)
		return 2;
	last_bytes = pages + page;
	no_access = last_bytes;
	must(mprotect(no_access, (size_t)page, PROT_NONE));

	show_create();
	show_ctl();
	show_exclusive();
	show_wait();
	show_transfer();
	show_nesting();
	show_errno();
	return verdict();
}
