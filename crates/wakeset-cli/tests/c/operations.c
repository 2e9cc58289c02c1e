/*
 * Every call that takes a descriptor and is not about events, made on an eventfd, on a semaphore
 * and on a set. What most of them say is no page's business and changes with the kernel's age, so
 * there are no expectations here: it must be the same under `wakeset run`, and so must what is left
 * behind. Each call gets an object of its own, since many of them move it into the kernel.
 */
#include "show.h"
#include <dirent.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>

static enum kind { EVENTFD, SEMAPHORE, SET, KINDS } kind;
static const char *const names[KINDS] = {"an eventfd that holds 5", "a semaphore that holds 5",
                                         "a set of one ready eventfd"};

static int outer, inside;

/* The object, watched by a set; and if it is a set itself, with an edge in it. */
static int make(void)
{
	int fd;
	outer = must(epoll_create1(EPOLL_CLOEXEC));
	inside = must(eventfd(1, EFD_CLOEXEC));
	if (kind == SET) {
		fd = must(epoll_create1(EPOLL_CLOEXEC));
		must(watch_new(fd, inside, EPOLLIN | EPOLLET, 'c'));
	} else {
		fd = must(eventfd(5, EFD_CLOEXEC | EFD_NONBLOCK | (kind == SEMAPHORE ? EFD_SEMAPHORE : 0)));
	}
	must(watch_new(outer, fd, EPOLLIN | EPOLLOUT, 'x'));
	return fd;
}

/* What is left of it. */
static void look(int fd)
{
	printf("    outside %s;", ready(outer));
	if (kind == SET)
		printf(" inside %s;", ready(fd));
	else
		printf(" a read %s;", outcome(take(fd)));
	printf(" outside %s\n", ready(outer));
	must(close(fd));
	must(close(inside));
	must(close(outer));
}

#define TRY(call)                                              \
	do {                                                   \
		int fd = make();                               \
		errno = 0;                                     \
		long long result_ = (call);                    \
		printf("%s: %s\n", #call, outcome(result_));   \
		look(fd);                                      \
	} while (0)

static void *volatile null; /* the compiler warns of what it can see */
static uint64_t values[4];
static char text[256];
static int word;

static void transfer(void)
{
	static struct iovec one = {values, 8}, none = {values, 0}, nowhere = {NULL, 8},
	    endless = {values, SIZE_MAX},
			    two[2] = {{values, 8}, {values + 1, 8}}, half[2] = {{values, 4}, {(char *)values + 4, 4}},
			    second_nowhere[2] = {{values, 8}, {NULL, 8}}, empty_first[2] = {{values, 0}, {values, 8}};
	values[0] = values[1] = 1;
	TRY(pread(fd, values, 8, 0));
	TRY(pread(fd, values, 8, 5));
	TRY(pread(fd, values, 8, -1));
	TRY(pread(fd, values, 7, 0));
	TRY(pwrite(fd, values, 8, 0));
	TRY(pwrite(fd, values, 8, -1));
	TRY(preadv(fd, &one, 1, 0));
	TRY(pwritev(fd, &one, 1, 0));
	TRY(preadv2(fd, &one, 1, 0, 0));
	TRY(preadv2(fd, &one, 1, -1, 0));
	TRY(preadv2(fd, &one, 1, -1, RWF_NOWAIT));
	TRY(preadv2(fd, &one, 1, -1, RWF_HIPRI));
	TRY(preadv2(fd, &one, 1, -1, 0x40000000));
	values[0] = values[1] = 1;
	TRY(pwritev2(fd, &one, 1, -1, 0));
	TRY(pwritev2(fd, &one, 1, -1, RWF_NOWAIT));
	TRY(pwritev2(fd, &one, 1, -1, RWF_APPEND));
	TRY(pwritev2(fd, &one, 1, -1, RWF_DSYNC));
	TRY(pwritev2(fd, two, 2, -1, 0));
	TRY(readv(fd, two, 2));
	TRY(readv(fd, half, 2));
	values[0] = values[1] = 1;
	TRY(writev(fd, two, 2));
	TRY(writev(fd, half, 2));
	TRY(readv(fd, &none, 1));
	TRY(writev(fd, &none, 1));
	TRY(readv(fd, &endless, 1));
	TRY(writev(fd, &endless, 1));
	TRY(readv(fd, &nowhere, 1));
	TRY(writev(fd, &nowhere, 1));
	TRY(readv(fd, second_nowhere, 2));
	TRY(writev(fd, second_nowhere, 2));
	TRY(readv(fd, empty_first, 2));
	values[0] = 1;
	TRY(writev(fd, empty_first, 2));
	TRY(readv(fd, null, 0));
	TRY(readv(fd, null, 1));
	TRY(writev(fd, null, 0));
	TRY(write(fd, values, 9));
	TRY(write(fd, values, 16));
	TRY(read(fd, null, 0));
	TRY(write(fd, null, 0));
	TRY(sendfile(fd, fd, NULL, 8));
	TRY(splice(fd, NULL, fd, NULL, 8, 0));
	TRY(copy_file_range(fd, NULL, fd, NULL, 8, 0));
	TRY(vmsplice(fd, &one, 1, 0));
	TRY(send(fd, values, 8, 0));
	TRY(recv(fd, values, 8, 0));
}

static void position(void)
{
	static struct stat status;
	static struct statfs system;
	TRY(lseek(fd, 0, SEEK_SET));
	TRY(lseek(fd, 7, SEEK_SET));
	TRY(lseek(fd, -7, SEEK_SET));
	TRY(lseek(fd, 0, SEEK_CUR));
	TRY(lseek(fd, 0, SEEK_END));
	TRY(lseek(fd, 0, SEEK_DATA));
	TRY(lseek(fd, 0, 99));
	TRY(ftruncate(fd, 0));
	TRY(ftruncate(fd, -1));
	TRY(fallocate(fd, 0, 0, 8));
	TRY(posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL));
	TRY(readahead(fd, 0, 8));
	TRY(fsync(fd));
	TRY(fdatasync(fd));
	TRY(syncfs(fd));
	TRY(fstat(fd, &status) ? -1 : (long long)status.st_mode);
	TRY(fstat(fd, &status) ? -1 : (long long)(status.st_size + status.st_nlink + status.st_blksize));
	TRY(fstatfs(fd, &system) ? -1 : (long long)system.f_type);
	TRY(fchmod(fd, 0600));
	TRY(fchdir(fd));
	TRY(fgetxattr(fd, "user.x", text, sizeof text));
	TRY(syscall(SYS_getdents64, fd, text, sizeof text));
	TRY(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
	TRY(flock(fd, LOCK_EX | LOCK_NB));
	TRY(isatty(fd));
	TRY(listen(fd, 1));
	TRY(sockatmark(fd));
	TRY(timerfd_gettime(fd, (struct itimerspec *)values));
}

static void control(void)
{
	static struct flock lock = {.l_type = F_WRLCK};
	static struct kcmp_epoll_slot slot;
	static unsigned char parameters[8] = {1, 0, 0, 0, 4, 0, 0, 0}, bad_parameters[8] = {[7] = 1};
	/* EPIOCSPARAMS, EPIOCGPARAMS */
	const unsigned long set_parameters = 0x40088a01, get_parameters = 0x80088a02;
	TRY(fcntl(fd, F_GETFL));
	TRY(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK) ? -1 : fcntl(fd, F_GETFL));
	TRY(fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK) ? -1 : fcntl(fd, F_GETFL));
	TRY(fcntl(fd, F_SETFL, O_DIRECT | O_NONBLOCK) ? -1 : fcntl(fd, F_GETFL));
	TRY(fcntl(fd, F_SETFL, O_WRONLY | O_NONBLOCK) ? -1 : fcntl(fd, F_GETFL));
	TRY(fcntl(fd, F_SETFL, -1) ? -1 : fcntl(fd, F_GETFL));
	TRY(fcntl(fd, F_GETFD));
	TRY(fcntl(fd, F_SETFD, 0) ? -1 : fcntl(fd, F_GETFD));
	TRY(fcntl(fd, F_DUPFD, -1));
	TRY(fcntl(fd, F_DUPFD_CLOEXEC, INT32_MAX));
	TRY(fcntl(fd, F_SETLK, &lock));
	TRY(fcntl(fd, F_GETLK, &lock));
	TRY(fcntl(fd, F_SETOWN, getpid()) ? -1 : fcntl(fd, F_GETOWN) == getpid());
	TRY(fcntl(fd, F_SETSIG, SIGUSR1) ? -1 : fcntl(fd, F_GETSIG));
	TRY(fcntl(fd, F_GETLEASE));
	TRY(fcntl(fd, F_GETPIPE_SZ));
	TRY(fcntl(fd, F_GET_SEALS));
	TRY(fcntl(fd, 12345));
	TRY(ioctl(fd, FIONREAD, &word));
	TRY((word = 1, ioctl(fd, FIOASYNC, &word)));
	TRY((word = 0, ioctl(fd, FIOASYNC, &word)));
	TRY((word = 1, ioctl(fd, FIONBIO, &word)));
	TRY(ioctl(fd, FIONBIO, NULL));
	TRY(ioctl(fd, FIOCLEX));
	TRY(ioctl(fd, FIOQSIZE, text));
	TRY(ioctl(fd, TIOCGWINSZ, text));
	TRY(ioctl(fd, 0));
	TRY(ioctl(fd, set_parameters, parameters));
	TRY(ioctl(fd, set_parameters, bad_parameters));
	TRY(ioctl(fd, set_parameters, NULL));
	TRY(ioctl(fd, get_parameters, text));
	TRY(syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, fd, fd));
	TRY((slot = (struct kcmp_epoll_slot){outer, fd, 0},
	     syscall(SYS_kcmp, getpid(), getpid(), KCMP_EPOLL_TFD, fd, &slot)));
	TRY((slot = (struct kcmp_epoll_slot){outer, fd, 1},
	     syscall(SYS_kcmp, getpid(), getpid(), KCMP_EPOLL_TFD, fd, &slot)));
	TRY((slot = (struct kcmp_epoll_slot){fd, inside, 0},
	     syscall(SYS_kcmp, getpid(), getpid(), KCMP_EPOLL_TFD, inside, &slot)));
	TRY(syscall(SYS_kcmp, getpid(), getpid(), KCMP_EPOLL_TFD, fd, 1));
	TRY(epoll_wait(fd, (struct epoll_event *)text, 0, 0));
	TRY(epoll_ctl(fd, EPOLL_CTL_DEL, outer, NULL));
}

/* What is said of all 32 bits of a mask, on their own and left out of it. */
static void masks(void)
{
	heading("every bit of a mask");
	for (int bit = 0; bit < 32; bit++) {
		int set = must(epoll_create1(0)), fd = must(eventfd(1, 0)), inner = must(epoll_create1(0));
		int watched[2] = {fd, inner};
		must(watch_new(inner, fd, EPOLLIN, 'i'));
		for (int i = 0; i < 2; i++) {
			uint32_t one = 1u << bit, masks[3] = {one, one | EPOLLEXCLUSIVE, ~one};
			for (int j = 0; j < 3; j++) {
				errno = 0;
				printf("%2d %d %d add %s", bit, i, j, outcome(watch_new(set, watched[i], masks[j], 'a')));
				printf(" %s", ready(set));
				errno = 0;
				printf(", modify %s", outcome(watch(set, EPOLL_CTL_MOD, watched[i], masks[j], 'm')));
				printf(" %s", ready(set));
				printf(" then %s\n", ready(set));
				epoll_ctl(set, EPOLL_CTL_DEL, watched[i], NULL);
			}
		}
		must(close(set));
		must(close(inner));
		must(close(fd));
	}
}

enum { WAYS = 7 };

/* How many numbers are a descriptor, asked in several ways. */
static void count_descriptors(int counts[WAYS])
{
	for (int number = 3; number < 1000; number++) {
		int copies[] = {dup(number), fcntl(number, F_DUPFD, 0), (int)syscall(SYS_dup, number),
				(int)syscall(SYS_fcntl, number, F_DUPFD, 0)};
		for (int i = 0; i < 4; i++) {
			counts[i] += copies[i] != -1;
			if (copies[i] != -1)
				must(close(copies[i]));
		}
		counts[4] += fcntl(number, F_GETFD) != -1;
		counts[5] += syscall(SYS_fcntl, number, F_GETFL) != -1;
		counts[6] += syscall(SYS_ioctl, number, FIONCLEX, 0) != -1;
	}
}

/*
 * A closed number stays one also while a set of both kinds, which this would make of a set, takes
 * it for itself.
 */
static void closed_numbers(void)
{
	heading("closed numbers are watched");
	int sets[40], refused = 0, fd = must(eventfd(0, 0));
	for (int i = 0; i < 40; i++) {
		sets[i] = must(epoll_create1(0));
		must(watch_new(sets[i], fd, EPOLLIN, 'e'));
		refused += watch_new(sets[i], 400 + i, EPOLLIN, 'c') == -1 && errno == EBADF;
	}
	number("EBADF, of 40", 40, refused);
	for (int i = 0; i < 40; i++)
		must(close(sets[i]));
	must(close(fd));
}

/* A set of both kinds makes no number answer but those that the program asked for. */
static void descriptors(void)
{
	heading("what numbers are descriptors");
	int ends[2], before[WAYS] = {0}, after[WAYS] = {0};
	count_descriptors(before);
	int set = must(epoll_create1(0)), fd = must(eventfd(1, 0));
	kernel_pipe(ends, 0);
	must(watch_new(set, ends[0], EPOLLIN, 'p'));
	must(watch_new(set, fd, EPOLLIN, 'e'));
	show("a set of a pipe and an eventfd", "e=IN", ready(set));
	count_descriptors(after);
	for (int i = 0; i < WAYS; i++)
		number("more, asked in one way", 4, after[i] - before[i]);
	must(close(set));
	must(close(fd));
	must(close(ends[0]));
	must(close(ends[1]));
}

/* The first system calls of each kind, which libc no longer makes. */
static void old_calls(void)
{
	heading("the calls without flags");
	int set = must(syscall(SYS_epoll_create, 1)), fd = must(syscall(SYS_eventfd, 7));
	CALL("epoll_create of no size", "-1 EINVAL", syscall(SYS_epoll_create, 0));
	number("close-on-exec", 0, fcntl(fd, F_GETFD) | fcntl(set, F_GETFD));
	number("O_NONBLOCK", 0, fcntl(fd, F_GETFL) & O_NONBLOCK);
	must(watch_new(set, fd, EPOLLIN, 'e'));
	show("ready", "e=IN", ready(set));
	number("its value", 7, take(fd));
	must(close(set));
	must(close(fd));
}

/* The example of eventfd(2): the child adds, the parent takes the sum. */
static void example(void)
{
	heading("the page's example");
	static const uint64_t numbers[] = {1, 2, 4, 7, 14};
	int fd = must(eventfd(0, 0)), status;
	pid_t child = must(fork());
	if (child == 0) {
		for (int i = 0; i < 5; i++)
			must(add(fd, numbers[i]));
		_exit(0);
	}
	must(waitpid(child, &status, 0));
	number("the sum", 28, take(fd));
	must(close(fd));
}

int main(void)
{
	signal(SIGIO, SIG_IGN);
	closed_numbers();
	for (kind = EVENTFD; kind < KINDS; kind++) {
		heading(names[kind]);
		transfer();
		position();
		control();
	}
	masks();
	descriptors();
	old_calls();
	example();
	return verdict();
}
