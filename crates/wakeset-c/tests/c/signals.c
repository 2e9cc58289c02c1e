/* What the header calls async-signal-safe, from a handler that comes at any moment of the other
 * calls: nothing is lost, nobody waits for himself. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wakeset.h>

#include "check.h"

enum { SIGNALS = 2000, COUNTERS = 3 };

static int counters[COUNTERS];
static ws_source *source;
static _Atomic long written, woken;
static _Atomic uint32_t ready;

static uint32_t on_poll(void *context)
{
    (void)context;
    return atomic_load(&ready);
}

static void handle(int number)
{
    int before = errno;
    (void)number;
    for (int i = 0; i < COUNTERS; i++)
        if (ws_eventfd_write(counters[i], 1) == 0)
            atomic_fetch_add(&written, 1);
    eventfd_t value;
    if (ws_eventfd_read(counters[0], &value) == 0)
        atomic_fetch_sub(&written, (long)value);
    atomic_store(&ready, EPOLLIN);
    ws_source_wake(source, EPOLLIN);
    atomic_fetch_add(&woken, 1);
    errno = before;
}

int main(void)
{
    static const struct ws_source_ops ops = {.on_poll = on_poll};
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    int set = ws_epoll_create1(EPOLL_CLOEXEC), other = ws_epoll_create1(EPOLL_CLOEXEC);
    CHECK(set >= 0 && other >= 0 && (source = ws_source_create(&ops, NULL)) != NULL);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    for (int i = 0; i < COUNTERS; i++) {
        CHECK((counters[i] = ws_eventfd(0, EFD_NONBLOCK)) >= 0);
        CHECK(ws_epoll_ctl(set, EPOLL_CTL_ADD, counters[i], &event) == 0);
    }
    CHECK(ws_epoll_ctl_source(set, EPOLL_CTL_ADD, source, &event) == 0);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    long round = 0, taken = 0;
    while (atomic_load(&woken) < SIGNALS) {
        struct epoll_event events[4];
        eventfd_t value;
        int fd = ws_eventfd(0, EFD_NONBLOCK);
        CHECK(fd >= 0 && ws_epoll_ctl(other, EPOLL_CTL_ADD, fd, &event) == 0);
        CHECK(ws_epoll_wait(set, events, 4, 0) >= 0);
        CHECK(ws_epoll_ctl(set, EPOLL_CTL_MOD, counters[1], &event) == 0);
        if (ws_eventfd_read(counters[1], &value) == 0)
            taken += (long)value;
        switch (round++ % 64) {
        case 7: /* An eventfd that the handler writes to moves into the kernel, and another takes
                   its place. */
            for (int i = 0; i < COUNTERS; i++)
                CHECK(ws_release(counters[i]) == 0);
            break;
        case 15: {
            struct pollfd entry = {fd, POLLIN, 0};
            CHECK(ws_poll(&entry, 1, 0) == 0 || errno == EINTR);
            break;
        }
        case 31: {
            pid_t child = fork();
            if (child == 0)
                _exit(0);
            while (waitpid(child, NULL, 0) != child)
                ;
            break;
        }
        }
        CHECK(ws_close(fd) == 0);
        if (round % 64 == 40) {
            sigset_t alarm, old;
            sigemptyset(&alarm);
            sigaddset(&alarm, SIGALRM);
            CHECK(pthread_sigmask(SIG_BLOCK, &alarm, &old) == 0);
            for (int i = 0; i < COUNTERS; i++) {
                if (ws_eventfd_read(counters[i], &value) == 0)
                    taken += (long)value;
                CHECK(ws_close(counters[i]) == 0 &&
                      (counters[i] = ws_eventfd(0, EFD_NONBLOCK)) >= 0);
                CHECK(ws_epoll_ctl(set, EPOLL_CTL_ADD, counters[i], &event) == 0);
            }
            CHECK(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
        }
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    for (int i = 0; i < COUNTERS; i++) {
        eventfd_t value;
        if (ws_eventfd_read(counters[i], &value) == 0)
            taken += (long)value;
    }
    CHECK(taken == atomic_load(&written));
    printf("%ld rounds, nothing lost\n", round);
    return 0;
}
