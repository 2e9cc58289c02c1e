/* Batches, removals that tell, and timers. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <wakeset.h>
#include <wakeset/timerfd.h>

#include "check.h"

enum { MANY = 700 };

static struct ws_epoll_ctl_cmd command(int op, int fd, uint32_t events, uint64_t data)
{
    struct ws_epoll_ctl_cmd cmd = {
        .op = op, .fd = fd, .event = {.events = events, .data.u64 = data}, .result = 1};
    return cmd;
}

/* Both kinds of descriptors, more of the kernel's than make a ring worth it, and one command that
 * fails. */
static void show_batch(void)
{
    static struct ws_epoll_ctl_cmd cmds[2 * MANY + 1];
    static int ends[MANY][2], counters[MANY];
    static struct epoll_event events[2 * MANY];
    int set = ws_epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < MANY; i++) {
        CHECK(pipe(ends[i]) == 0 && (counters[i] = ws_eventfd(1, EFD_NONBLOCK)) >= 0);
        cmds[2 * i] = command(EPOLL_CTL_ADD, ends[i][1], EPOLLOUT, (uint64_t)i);
        cmds[2 * i + 1] = command(EPOLL_CTL_ADD, counters[i], EPOLLIN, (uint64_t)(MANY + i));
    }
    cmds[2 * MANY] = command(EPOLL_CTL_ADD, counters[0], EPOLLIN, 0);
    CHECK(ws_epoll_ctl_batch(set, 4, cmds, 1) == -1 && errno == EINVAL);
    CHECK(ws_epoll_ctl_batch(set, 0, NULL, 1) == -1 && errno == EFAULT);
    CHECK(ws_epoll_ctl_batch(set, 0, NULL, 0) == 0);
    CHECK(ws_epoll_ctl_batch(set, 0, cmds, 2 * MANY + 1) == 2 * MANY);
    for (int i = 0; i < 2 * MANY; i++)
        CHECK(cmds[i].result == 0);
    CHECK(cmds[2 * MANY].result == -EEXIST);
    static char seen[2 * MANY];
    int left = 2 * MANY;
    for (int tries = 0; left > 0 && tries < 100; tries++) {
        int found = ws_epoll_wait(set, events, 2 * MANY, 0);
        CHECK(found > 0);
        for (int i = 0; i < found; i++) {
            left -= !seen[events[i].data.u64];
            seen[events[i].data.u64] = 1;
        }
    }
    CHECK(left == 0);

    struct ws_epoll_ctl_cmd three[3] = {command(EPOLL_CTL_DEL, counters[0], 0, 0),
                                        command(EPOLL_CTL_DEL, counters[0], 0, 0),
                                        command(EPOLL_CTL_DEL, counters[1], 0, 0)};
    CHECK(ws_epoll_ctl_batch(set, WS_BATCH_STOP_AT_ERROR, three, 3) == 1);
    CHECK(three[0].result == 0 && three[1].result == -ENOENT && three[2].result == -ECANCELED);
    CHECK(ws_epoll_ctl_batch(-1, WS_BATCH_SINGLE_CALLS, three, 1) == 0 &&
          three[0].result == -EBADF);
    for (int i = 0; i < MANY; i++) {
        cmds[i] = command(EPOLL_CTL_DEL, ends[i][1], 0, 0);
        if (i > 0)
            cmds[MANY + i - 1] = command(EPOLL_CTL_DEL, counters[i], 0, 0);
    }
    CHECK(ws_epoll_ctl_batch(set, 0, cmds, 2 * MANY - 1) == 2 * MANY - 1);
    for (int i = 0; i < MANY; i++)
        CHECK(close(ends[i][0]) == 0 && close(ends[i][1]) == 0 && close(counters[i]) == 0);
    /* The same numbers again: nothing is left of what was removed. */
    for (int i = 0; i < MANY; i++)
        CHECK(pipe(ends[i]) == 0);
    CHECK(ws_epoll_wait(set, events, 2 * MANY, 0) == 0);
    for (int i = 0; i < MANY; i++)
        CHECK(close(ends[i][0]) == 0 && close(ends[i][1]) == 0);
    CHECK(ws_close(set) == 0);
}

struct user {
    int counter;
    atomic_int alive;
    atomic_int uses;
};

static int set;
static atomic_int stop;

/* Uses what its events lead to for a while. */
static void *serve(void *unused)
{
    ws_lease *lease = ws_lease_create(set);
    CHECK(lease != NULL);
    while (!atomic_load(&stop)) {
        struct epoll_event event;
        if (ws_lease_wait(lease, &event, 1, 10) == 1 && event.data.ptr != NULL) {
            struct user *user = event.data.ptr;
            for (int i = 0; i < 50; i++) {
                CHECK(atomic_load(&user->alive) == 1);
                atomic_fetch_add(&user->uses, 1);
            }
        }
    }
    ws_lease_destroy(lease);
    return unused;
}

static void show_leases(void)
{
    set = ws_epoll_create1(0);
    CHECK(ws_lease_create(-1) == NULL && errno == EBADF);
    CHECK(ws_lease_create(0) == NULL && errno == EOPNOTSUPP);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, serve, NULL) == 0);
    int in_use = 0;
    for (int round = 0; round < 3000; round++) {
        struct user *user = calloc(1, sizeof *user);
        CHECK(user != NULL && (user->counter = ws_eventfd(1, EFD_NONBLOCK)) >= 0);
        atomic_store(&user->alive, 1);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = user};
        CHECK(ws_epoll_ctl(set, EPOLL_CTL_ADD, user->counter, &event) == 0);
        for (int i = 0; i < 100 && atomic_load(&user->uses) == 0; i++)
            usleep(10);
        ws_lease_holders *holders;
        int removal = ws_epoll_retire(set, user->counter, &holders);
        CHECK(removal == WS_REMOVAL_IDLE || removal == WS_REMOVAL_IN_USE);
        CHECK((removal == WS_REMOVAL_IN_USE) == (holders != NULL));
        if (removal == WS_REMOVAL_IN_USE) {
            in_use++;
            CHECK(ws_lease_holders_wait(holders, NULL) == 1);
        }
        ws_lease_holders_free(holders);
        atomic_store(&user->alive, 0);
        CHECK(ws_close(user->counter) == 0);
        memset((void *)user, 0x5a, sizeof *user);
        free(user);
    }
    CHECK(in_use > 0);
    atomic_store(&stop, 1);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);

    /* By the thread that has leased it: its own lease does not count. */
    ws_lease *lease = ws_lease_create(set);
    int counter = ws_eventfd(1, EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 7};
    CHECK(lease != NULL && ws_epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) == 0);
    CHECK(ws_lease_wait(lease, &event, 1, 0) == 1 && event.data.u64 == 7);
    event.events = EPOLLIN | EPOLLONESHOT;
    CHECK(ws_lease_mod(lease, counter, &event) == 0);
    CHECK(ws_lease_wait(lease, &event, 1, 0) == 1);
    ws_lease_holders *holders;
    CHECK(ws_lease_retire(lease, counter, &holders) == WS_REMOVAL_IDLE && holders == NULL);
    CHECK(ws_lease_retire(lease, counter, &holders) == -1 && errno == ENOENT);
    CHECK(ws_epoll_retire(set, counter, NULL) == -1 && errno == EFAULT);
    ws_lease_release(lease);
    ws_lease_destroy(lease);
    ws_lease_destroy(NULL);
    ws_lease_holders_free(NULL);
    CHECK(ws_close(counter) == 0 && ws_close(set) == 0);
}

static void show_timers(int exported)
{
    int epfd = ws_epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 3};
    struct itimerspec soon = {.it_value = {0, 20000000}}, left;
    uint64_t count = 0;
    CHECK(timerfd_create(12345, 0) == -1 && errno == EINVAL);
    CHECK(ws_epoll_ctl(epfd, EPOLL_CTL_ADD, timer, &event) == 0);
    if (exported)
        CHECK(ws_epoll_pollfd(epfd) == epfd);
    CHECK(timerfd_settime(timer, 0, &soon, &left) == 0 && left.it_value.tv_sec == 0 &&
          left.it_value.tv_nsec == 0);
    CHECK(timerfd_gettime(timer, &left) == 0 && left.it_value.tv_nsec > 0 &&
          left.it_value.tv_nsec <= 20000000);
    CHECK(read(timer, &count, 8) == -1 && errno == EAGAIN);
    if (exported) {
        /* Somebody else's loop knows nothing of when the timer expires. */
        struct pollfd entry = {.fd = epfd, .events = POLLIN};
#undef poll
        CHECK(poll(&entry, 1, 10000) == 1);
    }
    CHECK(ws_epoll_wait(epfd, &event, 1, 10000) == 1 && event.data.u64 == 3);
    CHECK(read(timer, &count, 8) == 8 && count == 1);
    CHECK(timerfd_settime(-1, 0, &soon, NULL) == -1 && errno == EBADF);
    CHECK(close(timer) == 0 && close(epfd) == 0);
}

int main(void)
{
    struct rlimit limit = {4096, 4096};
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    show_batch();
    show_leases();
    show_timers(0);
    show_timers(1);
    /* One that was made afterwards. */
    show_timers(1);
    return 0;
}
