/* No number is left for a doorbell: a set with a source of the program's own goes without, and
 * loses nothing. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>
#include <wakeset.h>

#include "check.h"

static _Atomic uint32_t ready;

static uint32_t on_poll(void *unused)
{
    (void)unused;
    return atomic_load(&ready);
}

static void *wait_for_one(void *set)
{
    struct epoll_event event;
    CHECK(ws_epoll_wait(*(int *)set, &event, 1, 20000) == 1);
    return NULL;
}

int main(void)
{
    static const struct ws_source_ops ops = {.on_poll = on_poll};
    ws_source *source = ws_source_create(&ops, NULL), *other = ws_source_create(&ops, NULL);
    int set = ws_epoll_create1(0), mixed = ws_epoll_create1(0),
        counter = ws_eventfd(0, EFD_NONBLOCK), pipes[2];
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = 1}, got;
    eventfd_t value;
    CHECK(source != NULL && other != NULL && pipe(pipes) == 0);
    CHECK(ws_epoll_ctl(mixed, EPOLL_CTL_ADD, pipes[0], &event) == 0);
    struct rlimit limit = {(rlim_t)pipes[1] + 1, (rlim_t)pipes[1] + 1};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);

    /* The source comes first: the set may have descriptors of the kernel's all the same. */
    CHECK(ws_epoll_ctl_source(set, EPOLL_CTL_ADD, source, &event) == 0);
    CHECK(ws_epoll_ctl(set, EPOLL_CTL_ADD, pipes[0], &event) == 0);
    CHECK(ws_epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) == 0);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, wait_for_one, &set) == 0);
        usleep(20000);
        if (i == 0) {
            atomic_store(&ready, EPOLLIN);
            ws_source_wake(source, EPOLLIN);
        } else if (i == 1) {
            CHECK(ws_eventfd_write(counter, 1) == 0);
        } else {
            CHECK(write(pipes[1], "x", 1) == 1);
        }
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(ws_epoll_wait(set, &got, 1, 0) == 0);
    }
    CHECK(ws_eventfd_read(counter, &value) == 0 && value == 1);
    /* It comes second: that is refused, as is a number for others, and nothing else changes. */
    errno = 0;
    CHECK(ws_epoll_ctl_source(mixed, EPOLL_CTL_ADD, other, &event) == -1 && errno == EMFILE);
    errno = 0;
    CHECK(ws_epoll_pollfd(set) == -1 && errno == EMFILE);
    errno = 0;
    CHECK(ws_epoll_pollfd(mixed) == -1 && errno == EMFILE);
    CHECK(ws_epoll_wait(mixed, &got, 1, 0) == 1 && got.data.u64 == 1);
    CHECK(ws_epoll_wait(set, &got, 1, 0) == 0);
    ws_source_wake(source, EPOLLIN);
    CHECK(ws_epoll_wait(set, &got, 1, 0) == 1);

    ws_close(counter);
    CHECK(ws_epoll_pollfd(set) == set);
    CHECK(ws_epoll_ctl_source(mixed, EPOLL_CTL_DEL, other, NULL) == -1 && errno == ENOENT);
    ws_source_close(source);
    ws_source_close(other);
    puts("limits: ok");
    return 0;
}
