/* A set in someone else's loop: whatever that loop waits with, no event is missed. Producers write
 * to eventfds and wake a source of the program's own while consumers sleep on the set's number
 * without a limit that a lost wake-up would hide behind. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>
#include <wakeset.h>

#include "check.h"

enum { COUNTERS = 3, PATIENCE = 20000 };
static int rounds = 1000;

enum loop { POLL, SELECT, LEVEL, EDGE };
static const char *const loop_names[] = {"poll", "select", "epoll, level", "epoll, edge"};

struct world {
    int set, pipe[2], counters[COUNTERS];
    ws_source *source;
    _Atomic long ready, put, taken, pipe_put;
    long goal;
    enum loop loop;
    int room, stop, outer;
};

static uint32_t on_poll(void *context)
{
    struct world *world = context;
    return atomic_load(&world->ready) > 0 ? EPOLLIN : 0;
}

/* One unit at a time, and most of the time the next one only once a consumer has had it: no later
 * one makes up for a wake-up that was lost. */
static void *produce(void *argument)
{
    struct world *world = argument;
    for (int i = 0; i < rounds; i++) {
        long before = atomic_fetch_add(&world->put, 1);
        switch (i % (COUNTERS + 2)) {
        case COUNTERS:
            atomic_fetch_add(&world->ready, 1);
            ws_source_wake(world->source, EPOLLIN);
            break;
        case COUNTERS + 1:
            CHECK(write(world->pipe[1], "x", 1) == 1);
            break;
        default:
            CHECK(ws_eventfd_write(world->counters[i % (COUNTERS + 2)], 1) == 0);
        }
        if (i % 7)
            while (atomic_load(&world->taken) <= before)
                sched_yield();
    }
    return NULL;
}

static void take(struct world *world, uint64_t which)
{
    char bytes[64];
    eventfd_t value;
    long had = 0;
    ssize_t n;
    if (which < COUNTERS) {
        while (ws_eventfd_read(world->counters[which], &value) == 0)
            had += (long)value;
    } else if (which == COUNTERS) {
        had = atomic_exchange(&world->ready, 0);
    } else if (which == COUNTERS + 1) {
        while ((n = read(world->pipe[0], bytes, sizeof bytes)) > 0)
            had += n;
    }
    atomic_fetch_add(&world->taken, had);
}

/* Sleeps until the loop finds the set or the end readable; 0 when the time is up. */
static int asleep(struct world *world, int outer)
{
    struct pollfd fds[2] = {{world->set, POLLIN, 0}, {world->stop, POLLIN, 0}};
    struct epoll_event event[2];
    fd_set readable;
    struct timeval limit = {PATIENCE / 1000, 0};
    switch (world->loop) {
    case POLL:
        return poll(fds, 2, PATIENCE);
    case SELECT:
        FD_ZERO(&readable);
        FD_SET(world->set, &readable);
        FD_SET(world->stop, &readable);
        return select((world->set > world->stop ? world->set : world->stop) + 1, &readable, NULL,
                      NULL, &limit);
    default:
        return epoll_wait(outer, event, 2, PATIENCE);
    }
}

static void *consume(void *argument)
{
    struct world *world = argument;
    int outer = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event of_set = {.events = EPOLLIN | (world->loop == EDGE ? (uint32_t)EPOLLET : 0)},
                       of_stop = {.events = EPOLLIN};
    CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, world->set, &of_set) == 0);
    CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, world->stop, &of_stop) == 0);
    while (atomic_load(&world->taken) < world->goal) {
        int woken = asleep(world, outer);
        if (woken == 0) {
            fprintf(stderr, "%s: lost a wake-up: %ld of %ld taken, %ld put\n",
                    loop_names[world->loop], atomic_load(&world->taken), world->goal,
                    atomic_load(&world->put));
            abort();
        }
        struct epoll_event events[COUNTERS + 2];
        int n;
        do {
            n = ws_epoll_wait(world->set, events, world->room, 0);
            for (int i = 0; i < n; i++)
                take(world, events[i].data.u64);
        } while (n > 0 && world->loop == EDGE);
    }
    /* The others. */
    CHECK(write(world->stop, &(uint64_t){1}, 8) == 8);
    close(outer);
    return NULL;
}

static void run(enum loop loop, uint32_t flags, int room, int consumers, int producers, int late)
{
    struct world world = {.loop = loop, .room = room};
    struct ws_source_ops ops = {.on_poll = on_poll};
    pthread_t threads[8];
    int started = 0;
    world.goal = (long)producers * rounds;
    world.set = ws_epoll_create1(EPOLL_CLOEXEC);
    world.stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    world.source = ws_source_create(&ops, &world);
    CHECK(world.set >= 0 && world.stop >= 0 && world.source != NULL &&
          pipe2(world.pipe, O_CLOEXEC | O_NONBLOCK) == 0);
    if (!late)
        CHECK(ws_epoll_pollfd(world.set) == world.set);
    for (int i = 0; i < COUNTERS; i++) {
        struct epoll_event event = {.events = EPOLLIN | flags, .data.u64 = (uint64_t)i};
        CHECK((world.counters[i] = ws_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) >= 0);
        CHECK(ws_epoll_ctl(world.set, EPOLL_CTL_ADD, world.counters[i], &event) == 0);
    }
    struct epoll_event of_source = {.events = EPOLLIN | flags, .data.u64 = COUNTERS};
    struct epoll_event of_pipe = {.events = EPOLLIN | flags, .data.u64 = COUNTERS + 1};
    CHECK(ws_epoll_ctl_source(world.set, EPOLL_CTL_ADD, world.source, &of_source) == 0);
    CHECK(ws_epoll_ctl(world.set, EPOLL_CTL_ADD, world.pipe[0], &of_pipe) == 0);
    for (int i = 0; i < producers; i++)
        CHECK(pthread_create(&threads[started++], NULL, produce, &world) == 0);
    if (late)
        CHECK(ws_epoll_pollfd(world.set) == world.set);
    for (int i = 0; i < consumers; i++)
        CHECK(pthread_create(&threads[started++], NULL, consume, &world) == 0);
    for (int i = 0; i < started; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(atomic_load(&world.taken) == world.goal);
    /* Nothing is left, and the number says so after one look. */
    struct epoll_event event;
    struct pollfd fd = {world.set, POLLIN, 0};
    while (ws_epoll_wait(world.set, &event, 1, 0) > 0)
        ;
    CHECK(ws_epoll_wait(world.set, &event, 1, 0) == 0);
    CHECK(poll(&fd, 1, 0) == 0);
    ws_source_close(world.source);
    for (int i = 0; i < COUNTERS; i++)
        ws_close(world.counters[i]);
    ws_close(world.set);
    close(world.pipe[0]);
    close(world.pipe[1]);
    close(world.stop);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        rounds = atoi(argv[1]);
    for (int loop = POLL; loop <= EDGE; loop++) {
        for (int late = 0; late < 2; late++) {
            run((enum loop)loop, 0, COUNTERS + 2, 1, 1, late);
            run((enum loop)loop, EPOLLET, COUNTERS + 2, 1, 2, late);
            run((enum loop)loop, 0, 1, 1, 2, late);
            run((enum loop)loop, EPOLLET, 1, 2, 2, late);
            run((enum loop)loop, 0, 2, 2, 2, late);
        }
        printf("%s: every event came\n", loop_names[loop]);
    }
    return 0;
}
