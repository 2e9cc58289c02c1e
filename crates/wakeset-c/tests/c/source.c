/* Sources of the program's own, and the sets that have them: what epoll_ctl(2) and epoll_wait(2)
 * say of any file, and what becomes of such a set when others move into the kernel. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wakeset.h>

#include "check.h"

#define FAILS(call, error) CHECK((errno = 0, (call) == -1) && errno == (error))

enum { PATIENCE = 20000 };

struct thing {
    _Atomic uint32_t now;
    _Atomic int closed;
    ws_source *source;
};

static uint32_t on_poll(void *context)
{
    return atomic_load(&((struct thing *)context)->now);
}

static void on_close(void *context)
{
    atomic_fetch_add(&((struct thing *)context)->closed, 1);
}

static const struct ws_source_ops ops = {.on_poll = on_poll, .on_close = on_close};

static void make(struct thing *thing)
{
    memset(thing, 0, sizeof *thing);
    CHECK((thing->source = ws_source_create(&ops, thing)) != NULL);
}

static void set_to(struct thing *thing, uint32_t now)
{
    atomic_store(&thing->now, now);
    ws_source_wake(thing->source, now);
}

static int control(int set, int op, struct thing *thing, uint32_t events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    return ws_epoll_ctl_source(set, op, thing->source, &event);
}

static int watch(int set, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    return ws_epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}

/* The bits reported under `data`, 0 for none; there is no other event. */
static uint32_t reported(int set, uint64_t data, int timeout)
{
    struct epoll_event events[4];
    int n = ws_epoll_wait(set, events, 4, timeout);
    CHECK(n == 0 || (n == 1 && events[0].data.u64 == data));
    return n ? events[0].events : 0;
}

static int readable(int fd)
{
    struct pollfd entry = {fd, POLLIN, 0};
    return poll(&entry, 1, 0) == 1 && entry.revents == POLLIN;
}

static int new_set(void)
{
    int set = ws_epoll_create1(EPOLL_CLOEXEC);
    CHECK(set >= 0);
    return set;
}

static void show_control(void)
{
    struct thing thing;
    int set = new_set(), counter = ws_eventfd(0, 0);
    make(&thing);
    CHECK(control(set, EPOLL_CTL_ADD, &thing, EPOLLIN, 1) == 0);
    FAILS(control(set, EPOLL_CTL_ADD, &thing, EPOLLIN, 1), EEXIST);
    CHECK(reported(set, 1, 0) == 0);
    set_to(&thing, EPOLLIN | EPOLLOUT);
    CHECK(reported(set, 1, 0) == EPOLLIN);
    CHECK(reported(set, 1, 0) == EPOLLIN);
    CHECK(control(set, EPOLL_CTL_MOD, &thing, EPOLLIN | EPOLLOUT | EPOLLET, 2) == 0);
    CHECK(reported(set, 2, 0) == (EPOLLIN | EPOLLOUT));
    CHECK(reported(set, 2, 0) == 0);
    ws_source_wake(thing.source, EPOLLOUT);
    CHECK(reported(set, 2, 0) == (EPOLLIN | EPOLLOUT));
    CHECK(control(set, EPOLL_CTL_MOD, &thing, EPOLLIN | EPOLLONESHOT, 3) == 0);
    CHECK(reported(set, 3, 0) == EPOLLIN);
    ws_source_wake(thing.source, EPOLLIN);
    CHECK(reported(set, 3, 0) == 0);
    CHECK(control(set, EPOLL_CTL_MOD, &thing, EPOLLPRI, 4) == 0);
    CHECK(reported(set, 4, 0) == 0);
    /* Reported whether asked for or not. */
    set_to(&thing, EPOLLERR | EPOLLHUP);
    CHECK(reported(set, 4, 0) == (EPOLLERR | EPOLLHUP));
    CHECK(control(set, EPOLL_CTL_DEL, &thing, 0, 0) == 0);
    CHECK(reported(set, 4, 0) == 0);
    FAILS(control(set, EPOLL_CTL_DEL, &thing, 0, 0), ENOENT);
    FAILS(control(set, EPOLL_CTL_MOD, &thing, 0, 0), ENOENT);
    FAILS(control(set, 99, &thing, 0, 0), EINVAL);
    FAILS(control(-1, EPOLL_CTL_ADD, &thing, 0, 0), EBADF);
    FAILS(control(-1, EPOLL_CTL_DEL, &thing, 0, 0), EBADF);
    FAILS(control(counter, EPOLL_CTL_ADD, &thing, 0, 0), EINVAL);
    FAILS(control(0, EPOLL_CTL_ADD, &thing, 0, 0), EINVAL);
    FAILS(ws_epoll_ctl_source(set, EPOLL_CTL_ADD, thing.source, NULL), EFAULT);
    FAILS(ws_epoll_ctl_source(set, EPOLL_CTL_ADD, NULL, NULL), EINVAL);
    CHECK((errno = 0, ws_source_create(NULL, NULL) == NULL && errno == EINVAL));
    CHECK((errno = 0,
           ws_source_create(&(struct ws_source_ops){NULL, NULL}, NULL) == NULL && errno == EINVAL));
    CHECK(control(set, EPOLL_CTL_ADD, &thing, EPOLLIN, 1) == 0);
    set_to(&thing, EPOLLIN);
    CHECK(reported(set, 1, 0) == EPOLLIN);
    ws_source_close(thing.source);
    CHECK(thing.closed == 1);
    CHECK(reported(set, 1, 0) == 0);
    ws_source_close(NULL);
    /* A set may go before its sources. */
    make(&thing);
    CHECK(control(set, EPOLL_CTL_ADD, &thing, EPOLLIN, 1) == 0);
    CHECK(ws_close(set) == 0);
    set_to(&thing, EPOLLIN);
    ws_source_close(thing.source);
    ws_close(counter);
    puts("control: ok");
}

/* One of two sets that ask for it exclusively. */
static void show_exclusive(void)
{
    struct thing thing;
    int sets[2] = {new_set(), new_set()};
    make(&thing);
    for (int i = 0; i < 2; i++)
        CHECK(control(sets[i], EPOLL_CTL_ADD, &thing, EPOLLIN | EPOLLET | EPOLLEXCLUSIVE, 1) == 0);
    FAILS(control(sets[0], EPOLL_CTL_ADD, &thing, EPOLLIN | EPOLLEXCLUSIVE, 1), EEXIST);
    FAILS(control(sets[0], EPOLL_CTL_MOD, &thing, EPOLLIN, 1), EINVAL);
    ws_source_close(thing.source);
    ws_close(sets[0]);
    ws_close(sets[1]);
    puts("exclusive: ok");
}

struct waiter {
    int set, timeout;
    uint32_t got;
    _Atomic pid_t tid;
};

static void *wait_for_one(void *argument)
{
    struct waiter *waiter = argument;
    atomic_store(&waiter->tid, gettid());
    waiter->got = reported(waiter->set, 7, waiter->timeout);
    return NULL;
}

/* Until the thread is asleep in the kernel. */
static void await_sleep(struct waiter *waiter)
{
    for (;;) {
        char path[64], text[256] = "";
        pid_t tid = atomic_load(&waiter->tid);
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
        int fd = tid ? open(path, O_RDONLY) : -1;
        ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
        if (fd >= 0)
            close(fd);
        const char *end = n > 0 ? strrchr(text, ')') : NULL;
        if (end != NULL && end[2] == 'S')
            return;
        usleep(1000);
    }
}

static void wake_a_sleeper(int set, struct thing *thing, int timeout)
{
    struct waiter waiter = {.set = set, .timeout = timeout};
    pthread_t thread;
    atomic_store(&thing->now, 0);
    CHECK(pthread_create(&thread, NULL, wait_for_one, &waiter) == 0);
    await_sleep(&waiter);
    set_to(thing, EPOLLIN);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(waiter.got == EPOLLIN);
    atomic_store(&thing->now, 0);
    CHECK(reported(set, 7, 0) == 0);
}

static void show_sleepers(void)
{
    struct thing thing;
    int set = new_set(), pipes[2];
    CHECK(pipe2(pipes, O_CLOEXEC) == 0);
    make(&thing);
    CHECK(control(set, EPOLL_CTL_ADD, &thing, EPOLLIN, 7) == 0);
    wake_a_sleeper(set, &thing, PATIENCE);
    CHECK(watch(set, pipes[0], EPOLLIN, 8) == 0);
    wake_a_sleeper(set, &thing, PATIENCE);
    CHECK(ws_epoll_pollfd(set) == set);
    wake_a_sleeper(set, &thing, -1);
    ws_source_close(thing.source);
    ws_close(set);
    close(pipes[0]);
    close(pipes[1]);
    puts("sleepers: ok");
}

static void show_pollfd(void)
{
    struct thing thing;
    int set = new_set(), counter = ws_eventfd(0, EFD_NONBLOCK), pipes[2], outer = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    eventfd_t value;
    make(&thing);
    CHECK(watch(set, counter, EPOLLIN, 1) == 0 && ws_eventfd_write(counter, 1) == 0);
    CHECK(!readable(set));
    /* What is there already shows. */
    CHECK(ws_epoll_pollfd(set) == set && readable(set));
    CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, set, &event) == 0);
    CHECK(epoll_wait(outer, &event, 1, 0) == 1);
    CHECK(reported(set, 1, 0) == EPOLLIN && readable(set));
    CHECK(ws_eventfd_read(counter, &value) == 0 && value == 1);
    CHECK(reported(set, 1, 0) == 0);
    CHECK(!readable(set) && epoll_wait(outer, &event, 1, 0) == 0);
    /* What comes later too, from all that it watches. */
    CHECK(ws_eventfd_write(counter, 1) == 0 && readable(set));
    CHECK(reported(set, 1, 0) == EPOLLIN && ws_eventfd_read(counter, &value) == 0);
    CHECK(reported(set, 1, 0) == 0 && !readable(set));
    CHECK(control(set, EPOLL_CTL_ADD, &thing, EPOLLIN | EPOLLET, 2) == 0 && !readable(set));
    set_to(&thing, EPOLLIN);
    CHECK(readable(set) && reported(set, 2, 0) == EPOLLIN && !readable(set));
    CHECK(pipe2(pipes, O_CLOEXEC) == 0 && watch(set, pipes[0], EPOLLIN, 3) == 0 && !readable(set));
    CHECK(write(pipes[1], "x", 1) == 1 && readable(set) && reported(set, 3, 0) == EPOLLIN);
    char byte;
    CHECK(read(pipes[0], &byte, 1) == 1 && !readable(set));
    /* Again, and of a set of the kernel's. */
    CHECK(ws_epoll_pollfd(set) == set && ws_epoll_pollfd(outer) == outer);
    FAILS(ws_epoll_pollfd(counter), EINVAL);
    FAILS(ws_epoll_pollfd(pipes[0]), EINVAL);
    FAILS(ws_epoll_pollfd(-1), EBADF);
    ws_source_close(thing.source);
    ws_close(set);
    /* The number's next set begins anew. */
    int next = new_set();
    CHECK(next == set && watch(next, counter, EPOLLIN, 1) == 0 &&
          ws_eventfd_write(counter, 1) == 0);
    CHECK(!readable(next) && reported(next, 1, 0) == EPOLLIN);
    ws_close(next);
    ws_close(counter);
    close(outer);
    close(pipes[0]);
    close(pipes[1]);
    puts("pollfd: ok");
}

/* A set with a source inside other sets, of all kinds and in every order. */
static void show_nesting(void)
{
    for (int kind = 0; kind < 6; kind++) {
        struct thing thing;
        int inner = new_set(), outer = new_set(), pipes[2], counter = ws_eventfd(0, EFD_NONBLOCK);
        eventfd_t value;
        CHECK(pipe2(pipes, O_CLOEXEC) == 0);
        make(&thing);
        CHECK(watch(inner, counter, EPOLLIN, 7) == 0);
        CHECK(control(inner, EPOLL_CTL_ADD, &thing, EPOLLIN, 7) == 0);
        if (kind == 1) /* A mixed outer set. */
            CHECK(watch(outer, pipes[0], EPOLLIN, 8) == 0);
        if (kind == 2) /* A mixed inner one. */
            CHECK(watch(inner, pipes[0], EPOLLIN, 8) == 0);
        if (kind == 3) /* An outer one of the kernel's. */
            CHECK(ws_release(outer) == 0);
        CHECK(watch(outer, inner, EPOLLIN, 9) == 0);
        if (kind == 4) /* The inner one gets a kernel half when it is watched. */
            CHECK(watch(inner, pipes[0], EPOLLIN, 8) == 0);
        if (kind == 5) /* The outer one moves. */
            CHECK(ws_release(outer) == 0);
        CHECK(reported(outer, 9, 0) == 0);
        for (int i = 0; i < 2; i++) {
            set_to(&thing, EPOLLIN);
            CHECK(reported(outer, 9, PATIENCE) == EPOLLIN && reported(inner, 7, 0) == EPOLLIN);
            atomic_store(&thing.now, 0);
            CHECK(reported(inner, 7, 0) == 0 && reported(outer, 9, 0) == 0);
            CHECK(ws_eventfd_write(counter, 1) == 0);
            CHECK(reported(outer, 9, PATIENCE) == EPOLLIN && reported(inner, 7, 0) == EPOLLIN);
            CHECK(ws_eventfd_read(counter, &value) == 0);
            CHECK(reported(inner, 7, 0) == 0 && reported(outer, 9, 0) == 0);
        }
        struct epoll_event event = {.events = EPOLLOUT, .data.u64 = 10};
        CHECK(ws_epoll_ctl(outer, EPOLL_CTL_MOD, inner, &event) == 0);
        set_to(&thing, EPOLLIN);
        CHECK(reported(outer, 10, 0) == 0);
        FAILS(watch(outer, inner, EPOLLIN, 9), EEXIST);
        CHECK(ws_epoll_ctl(outer, EPOLL_CTL_DEL, inner, &event) == 0);
        FAILS(ws_epoll_ctl(outer, EPOLL_CTL_DEL, inner, &event), ENOENT);
        ws_source_close(thing.source);
        ws_close(inner);
        ws_close(outer);
        ws_close(counter);
        close(pipes[0]);
        close(pipes[1]);
    }
    puts("nesting: ok");
}

static void show_fork(void)
{
    struct thing thing;
    int set = new_set(), counter = ws_eventfd(0, EFD_NONBLOCK), before = new_set(), status;
    eventfd_t value;
    make(&thing);
    CHECK(watch(before, counter, EPOLLIN, 7) == 0);
    CHECK(watch(set, counter, EPOLLIN, 7) == 0 &&
          control(set, EPOLL_CTL_ADD, &thing, EPOLLIN, 7) == 0);
    struct waiter waiter = {.set = set, .timeout = -1};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_for_one, &waiter) == 0);
    await_sleep(&waiter);
    pid_t child = fork();
    if (child == 0) {
        /* What the child may do with it. */
        ws_source_wake(thing.source, EPOLLIN);
        FAILS(control(set, EPOLL_CTL_ADD, &thing, EPOLLIN, 7), EBADF);
        ws_source_close(thing.source);
        CHECK(thing.closed == 1 && ws_close(set) == 0);
        /* And what it makes itself works. */
        set = new_set();
        make(&thing);
        CHECK(control(set, EPOLL_CTL_ADD, &thing, EPOLLIN, 7) == 0);
        set_to(&thing, EPOLLIN);
        CHECK(reported(set, 7, 0) == EPOLLIN);
        CHECK(ws_eventfd_write(counter, 1) == 0);
        fflush(NULL);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    /* The child has written to what they share. */
    CHECK(pthread_join(thread, NULL) == 0 && waiter.got == EPOLLIN);
    CHECK(reported(before, 7, 0) == EPOLLIN);
    CHECK(ws_eventfd_read(counter, &value) == 0 && value == 1);
    CHECK(reported(set, 7, 0) == 0);
    wake_a_sleeper(set, &thing, PATIENCE);
    CHECK(ws_eventfd_write(counter, 1) == 0 && reported(set, 7, PATIENCE) == EPOLLIN);
    CHECK(ws_eventfd_read(counter, &value) == 0);
    /* A set that the fork has left to the kernel takes a source, also while somebody is asleep in
     * it. */
    struct thing late;
    make(&late);
    waiter = (struct waiter){.set = before, .timeout = -1};
    CHECK(pthread_create(&thread, NULL, wait_for_one, &waiter) == 0);
    await_sleep(&waiter);
    CHECK(control(before, EPOLL_CTL_ADD, &late, EPOLLIN, 7) == 0);
    usleep(2000);
    set_to(&late, EPOLLIN);
    CHECK(pthread_join(thread, NULL) == 0 && waiter.got == EPOLLIN);
    atomic_store(&late.now, 0);
    CHECK(reported(before, 7, 0) == 0);
    CHECK(ws_eventfd_write(counter, 1) == 0 && reported(before, 7, PATIENCE) == EPOLLIN);
    ws_source_close(late.source);
    ws_source_close(thing.source);
    ws_close(before);
    ws_close(set);
    ws_close(counter);
    puts("fork: ok");
}

static void show_numbers(void)
{
    struct thing thing;
    int set = new_set(), other = dup(0);
    make(&thing);
    CHECK(control(set, EPOLL_CTL_ADD, &thing, EPOLLIN, 7) == 0);
    FAILS(ws_dup(set), EBUSY);
    FAILS(ws_dup2(set, other), EBUSY);
    FAILS(ws_dup3(set, other, O_CLOEXEC), EBUSY);
    FAILS(ws_fcntl(set, F_DUPFD_CLOEXEC, 0), EBUSY);
    FAILS(ws_release(set), EBUSY);
    set_to(&thing, EPOLLIN);
    struct pollfd entry = {set, POLLIN, 0};
    CHECK(ws_poll(&entry, 1, PATIENCE) == 1 && entry.revents == POLLIN);
    CHECK(reported(set, 7, 0) == EPOLLIN);
    /* Its number is taken by another file: that closes it. */
    CHECK(ws_dup2(other, set) == set);
    struct epoll_event event;
    FAILS(ws_epoll_wait(set, &event, 1, 0), EINVAL);
    ws_close(set);
    set = new_set();
    CHECK(ws_release(set) == 0 && control(set, EPOLL_CTL_ADD, &thing, EPOLLIN, 7) == 0);
    CHECK(reported(set, 7, 0) == EPOLLIN);
    ws_source_close(thing.source);
    ws_close(set);
    close(other);
    puts("numbers: ok");
}

/* Wakes, changes of the watch, waits and a close, all at once. */
static struct thing shared;
static _Atomic int over;

static void *keep_waking(void *unused)
{
    while (!atomic_load(&over))
        set_to(&shared, EPOLLIN);
    return unused;
}

static void *keep_waiting(void *set)
{
    struct epoll_event event;
    while (!atomic_load(&over))
        CHECK(ws_epoll_wait(*(int *)set, &event, 1, 1) >= 0);
    return set;
}

static void show_races(int rounds)
{
    for (int round = 0; round < rounds; round++) {
        int set = new_set();
        pthread_t threads[3];
        make(&shared);
        atomic_store(&over, 0);
        CHECK(control(set, EPOLL_CTL_ADD, &shared, EPOLLIN, 7) == 0);
        CHECK(pthread_create(&threads[0], NULL, keep_waking, NULL) == 0);
        CHECK(pthread_create(&threads[1], NULL, keep_waiting, &set) == 0);
        CHECK(pthread_create(&threads[2], NULL, keep_waiting, &set) == 0);
        for (int i = 0; i < 50; i++) {
            CHECK(control(set, EPOLL_CTL_MOD, &shared, EPOLLIN | (i % 2 ? (uint32_t)EPOLLET : 0),
                          7) == 0);
            CHECK(control(set, EPOLL_CTL_DEL, &shared, 0, 0) == 0);
            CHECK(control(set, EPOLL_CTL_ADD, &shared,
                          EPOLLIN | (i % 3 ? 0 : (uint32_t)EPOLLONESHOT), 7) == 0);
        }
        atomic_store(&over, 1);
        CHECK(pthread_join(threads[0], NULL) == 0);
        /* Others may still wait in the set. */
        ws_source_close(shared.source);
        CHECK(shared.closed == 1);
        CHECK(pthread_join(threads[1], NULL) == 0 && pthread_join(threads[2], NULL) == 0);
        ws_close(set);
    }
    puts("races: ok");
}

/* The argument, if there is one: how many rounds of races. */
int main(int argc, char **argv)
{
    show_control();
    show_exclusive();
    show_sleepers();
    show_pollfd();
    show_nesting();
    show_fork();
    show_numbers();
    show_races(argc > 1 ? atoi(argv[1]) : 50);
    return 0;
}
