// Threads make what needs numbers of Wakeset's own, from 400 on, while others put files of theirs
// under just those numbers, and close them. To the program the numbers are its own: each has the
// file that was put there until it is closed, nothing else is closed or written to, and every call
// comes back.
//
// births SECONDS [forks|closes]: prints what was counted; 0 if nothing was wrong. With `forks`
// processes are forked meanwhile, with `closes` numbers are closed that have no file, which is not
// exact (docs/design/hidden-numbers.md).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FIRST = 400, NUMBERS = 60, TAKERS = 2, MAKERS = 2, LISTED = 10 };

static atomic_bool ends;
static atomic_long taken, made, replaced, lost, opened, odd, listed;
static int forks, closes;

static void wrong(atomic_long *count, const char *what, long number, long found) {
    atomic_fetch_add(count, 1);
    if (atomic_fetch_add(&listed, 1) < LISTED)
        fprintf(stderr, "%s: %ld, %ld\n", what, number, found);
}

static void need(int holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(2);
    }
}

// What a call of a maker's returns, which uses nothing but its own numbers.
static void expect(int holds, const char *what, int number) {
    if (!holds)
        wrong(&odd, what, number, errno);
}

static unsigned next(unsigned *state) {
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

static int is_file(int number, const struct stat *file) {
    struct stat found;
    return fstat(number, &found) == 0 && found.st_ino == file->st_ino &&
           found.st_dev == file->st_dev;
}

// Puts a file under numbers that are this thread's alone.
static void *take(void *argument) {
    unsigned own = (unsigned)(uintptr_t)argument, state = own + 1;
    int file = memfd_create("file", MFD_CLOEXEC);
    struct stat of_file;
    need(file >= 0 && fstat(file, &of_file) == 0, "memfd_create");
    while (!atomic_load(&ends)) {
        int number = FIRST + (int)(next(&state) % (NUMBERS / TAKERS)) * TAKERS + (int)own;
        unsigned kind = next(&state) % 8;
        if (closes && kind == 0) {
            if (close(number) == 0 || errno != EBADF)
                wrong(&opened, "closed without a file", number, errno);
            continue;
        }
        int result = kind == 1 ? dup3(file, number, O_CLOEXEC) : dup2(file, number);
        atomic_fetch_add(&taken, 1);
        if (result != number) {
            wrong(&odd, "dup2", number, errno);
            continue;
        }
        for (unsigned looks = next(&state) % 4 + 1; looks > 0; looks--)
            if (!is_file(number, &of_file))
                wrong(&replaced, "another file", number, errno);
        if (close(number) != 0)
            wrong(&lost, "close", number, errno);
        else if (fcntl(number, F_GETFD) != -1)
            wrong(&opened, "open after its close", number, 0);
    }
    struct stat now;
    need(fstat(file, &now) == 0, "fstat");
    if (now.st_size != 0 || lseek(file, 0, SEEK_CUR) != 0)
        wrong(&odd, "written to", file, now.st_size);
    return NULL;
}

static void *ring(void *argument) {
    uint64_t one = 1;
    usleep(200);
    if (write((int)(intptr_t)argument, &one, 8) != 8)
        wrong(&odd, "write", (intptr_t)argument, errno);
    return NULL;
}

// A set with an eventfd and a pipe of the kernel's, for which it needs a doorbell.
static void wait_mixed(const int *pipe_ends, unsigned rounds) {
    int set = epoll_create1(EPOLL_CLOEXEC), event = eventfd(0, EFD_CLOEXEC);
    need(set >= 0 && event >= 0, "epoll_create1, eventfd");
    struct epoll_event watch = {.events = EPOLLIN, .data.u64 = 1}, found = {0};
    expect(epoll_ctl(set, EPOLL_CTL_ADD, event, &watch) == 0, "epoll_ctl", event);
    watch.data.u64 = 2;
    expect(epoll_ctl(set, EPOLL_CTL_ADD, pipe_ends[0], &watch) == 0, "epoll_ctl", pipe_ends[0]);
    pthread_t thread;
    need(pthread_create(&thread, NULL, ring, (void *)(intptr_t)event) == 0, "pthread_create");
    int result = epoll_wait(set, &found, 1, 5000);
    if (result != 1 || found.data.u64 != 1)
        wrong(&odd, "epoll_wait", set, result);
    pthread_join(thread, NULL);
    if (rounds % 2) {
        // It has several numbers.
        int other = dup(set);
        if (epoll_wait(other, &found, 1, 0) != 1)
            wrong(&odd, "epoll_wait by another number", other, errno);
        expect(close(other) == 0, "close", other);
    }
    expect(close(set) == 0 && close(event) == 0, "close", set);
}

// An eventfd with several numbers, whose handle is hidden.
static void duplicate(unsigned rounds) {
    int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), other = dup(event);
    need(event >= 0 && other >= 0, "eventfd, dup");
    uint64_t three = 3, found = 0;
    if (write(other, &three, 8) != 8 || read(event, &found, 8) != 8 || found != 3)
        wrong(&odd, "eventfd", event, (long)found);
    struct pollfd polled = {.fd = event, .events = POLLIN | POLLOUT};
    if (poll(&polled, 1, 0) != 1 || polled.revents != POLLOUT)
        wrong(&odd, "poll", event, polled.revents);
    if (forks && rounds % 64 == 0) {
        pid_t child = fork();
        if (child == 0)
            _exit(write(event, &three, 8) == 8 ? 0 : 1);
        int status = -1;
        if (waitpid(child, &status, 0) != child || status != 0)
            wrong(&odd, "child", child, status);
        if (read(other, &found, 8) != 8 || found != 3)
            wrong(&odd, "read of a child's", other, errno);
    }
    expect(close(event) == 0, "close", event);
    if (write(other, &three, 8) != 8 || read(other, &found, 8) != 8 || found != 3)
        wrong(&odd, "the other number", other, (long)found);
    expect(close(other) == 0, "close", other);
}

static void *make(void *argument) {
    unsigned state = (unsigned)(uintptr_t)argument + 77;
    int pipe_ends[2];
    // The kernel's: a FIFO's ends are.
    char name[] = "/tmp/births.XXXXXX", path[64];
    need(mkdtemp(name) != NULL, "mkdtemp");
    snprintf(path, sizeof path, "%s/fifo", name);
    need(mkfifo(path, 0600) == 0, "mkfifo");
    pipe_ends[0] = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    need(pipe_ends[0] >= 0, "open");
    need(unlink(path) == 0 && rmdir(name) == 0, "unlink");
    for (unsigned rounds = 0; !atomic_load(&ends); rounds++) {
        if (next(&state) % 8 == 0)
            wait_mixed(pipe_ends, rounds);
        else
            duplicate(rounds);
        atomic_fetch_add(&made, 1);
    }
    return NULL;
}

static void hang(int signal) {
    (void)signal;
    static const char text[] = "hang\n";
    ssize_t ignored = write(1, text, sizeof text - 1);
    (void)ignored;
    _exit(3);
}

int main(int argc, char **argv) {
    unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    forks = argc > 2 && strcmp(argv[2], "forks") == 0;
    closes = argc > 2 && strcmp(argv[2], "closes") == 0;
    signal(SIGALRM, hang);
    alarm(seconds + 20);
    pthread_t threads[TAKERS + MAKERS];
    for (int i = 0; i < TAKERS + MAKERS; i++) {
        void *own = (void *)(uintptr_t)(i < TAKERS ? i : i - TAKERS);
        need(pthread_create(&threads[i], NULL, i < TAKERS ? take : make, own) == 0, "thread");
    }
    sleep(seconds);
    atomic_store(&ends, true);
    for (int i = 0; i < TAKERS + MAKERS; i++)
        pthread_join(threads[i], NULL);
    long all = replaced + lost + opened + odd;
    printf("counts: taken %ld made %ld: another file %ld, lost %ld, open %ld, odd %ld\n", taken,
           made, replaced, lost, opened, odd);
    return all ? 1 : 0;
}
