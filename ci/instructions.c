/* The program that ci/instructions counts: each call in a function of its own, a thousand times.
 *
 *     instructions CALL     CALL: a name of the table at the end
 *
 * It uses libc alone. Under the preload library the objects are in process, except those of the
 * calls named pass_*, which the kernel answers on both sides. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TIMES = 1000 };

static int set, counter, null;
static const uint64_t one = 1;
static uint64_t value;
static struct epoll_event event = {.events = EPOLLIN};
/* A UDP socket: the kernel's. */
static struct pollfd polled = {.events = POLLIN};
static fd_set selected;
static struct timeval no_time;

static void check(int good) {
    if (!good) {
        perror("instructions");
        exit(1);
    }
}

/* A write that finds the counter watched and not yet queued, then what takes it off again. */
__attribute__((noinline)) void counted_wake(void) {
    check(write(counter, &one, 8) == 8);
}

__attribute__((noinline)) void counted_harvest(void) {
    check(epoll_wait(set, &event, 1, 0) == 1);
}

__attribute__((noinline)) void counted_read(void) {
    check(read(counter, &value, 8) == 8);
}

__attribute__((noinline)) void counted_add(void) {
    check(epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) == 0);
}

__attribute__((noinline)) void counted_modify(void) {
    check(epoll_ctl(set, EPOLL_CTL_MOD, counter, &event) == 0);
}

__attribute__((noinline)) void counted_remove(void) {
    check(epoll_ctl(set, EPOLL_CTL_DEL, counter, NULL) == 0);
}

__attribute__((noinline)) void counted_pass_write(void) {
    check(write(null, &one, 8) == 8);
}

__attribute__((noinline)) void counted_pass_read(void) {
    check(read(null, &value, 8) == 0);
}

__attribute__((noinline)) void counted_poll(void) {
    check(poll(&polled, 1, 0) == 0);
}

__attribute__((noinline)) void counted_poll_in_time(void) {
    polled.events = POLLIN | POLLOUT;
    check(poll(&polled, 1, -1) == 1);
    polled.events = POLLIN;
}

__attribute__((noinline)) void counted_select(void) {
    fd_set set = selected;
    check(select(polled.fd + 1, &set, NULL, NULL, &no_time) == 0);
}

__attribute__((noinline)) void counted_mixed_poll(void) {
    struct pollfd both[] = {polled, {.fd = counter, .events = POLLIN}};
    check(poll(both, 2, 0) == 0);
}

static void add(void) {
    event = (struct epoll_event){.events = EPOLLIN | EPOLLET};
    counted_add();
}

static void round_trip(void) {
    counted_wake();
    counted_harvest();
    counted_read();
}

static void change(void) {
    add();
    counted_modify();
    counted_remove();
}

static void unwatched(void) {
    counted_wake();
    counted_read();
}

static void pass(void) {
    counted_pass_write();
    counted_pass_read();
}

static void polls(void) {
    counted_poll();
    counted_poll_in_time();
    counted_select();
    counted_mixed_poll();
}

static void open_socket(void) {
    check((polled.fd = socket(AF_INET, SOCK_DGRAM, 0)) >= 0);
    FD_SET(polled.fd, &selected);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*before)(void);
        void (*run)(void);
    } calls[] = {
        {"watched", add, round_trip},
        {"changes", NULL, change},
        {"unwatched", NULL, unwatched},
        {"pass", NULL, pass},
        {"polls", open_socket, polls},
    };
    check((set = epoll_create1(0)) >= 0);
    check((counter = eventfd(0, EFD_NONBLOCK)) >= 0);
    check((null = open("/dev/null", O_RDWR)) >= 0);
    for (size_t i = 0; argc == 2 && i < sizeof calls / sizeof *calls; i++) {
        if (strcmp(argv[1], calls[i].name) != 0)
            continue;
        if (calls[i].before)
            calls[i].before();
        for (int n = 0; n < TIMES; n++)
            calls[i].run();
        return 0;
    }
    fprintf(stderr, "usage: instructions watched|changes|unwatched|pass|polls\n");
    return 2;
}
