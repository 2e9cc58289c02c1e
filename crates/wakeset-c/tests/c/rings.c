/* Event rings: of a set, and shared with another process. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wakeset.h>

#include "check.h"

static const struct timespec now = {0, 0}, millisecond = {0, 1000000}, long_enough = {20, 0};

static int watched(int set, uint32_t events, uint64_t data, unsigned value)
{
    int counter = ws_eventfd(value, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = events, .data.u64 = data};
    CHECK(counter >= 0 && ws_epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) == 0);
    return counter;
}

/* As many as it has slots in one wait, and all in turn. */
static void show_setup(void)
{
    enum { MANY = 20 };
    struct epoll_event events[MANY];
    int set = ws_epoll_create1(EPOLL_CLOEXEC), counters[MANY], times[MANY] = {0}, ends[2];
    CHECK(ws_ring_setup(set, 0, 0) == -1 && errno == EINVAL);
    CHECK(ws_ring_setup(set, ((size_t)1 << 20) + 1, 0) == -1 && errno == EINVAL);
    CHECK(ws_ring_setup(-1, 8, 0) == -1 && errno == EBADF);
    CHECK(ws_ring_setup(set, 8, WS_RING_HINTS) == -1 && errno == EINVAL);
    CHECK(ws_ring_setup(set, 8, 4) == -1 && errno == EINVAL);
    for (int i = 0; i < MANY; i++)
        counters[i] = watched(set, EPOLLIN, (uint64_t)i, 1);
    CHECK(ws_ring_setup(counters[0], 8, 0) == -1 && errno == EINVAL);
    CHECK(ws_ring_setup(set, 7, 0) == 1 && ws_ring_setup(set, 3, 0) == 1);
    for (int i = 0; i < MANY; i++) {
        CHECK(ws_epoll_wait(set, events, MANY, 0) == 8);
        for (int j = 0; j < 8; j++)
            times[events[j].data.u64]++;
    }
    for (int i = 0; i < MANY; i++) {
        CHECK(times[i] == 8);
        CHECK(ws_close(counters[i]) == 0);
    }
    CHECK(ws_epoll_wait(set, events, MANY, 0) == 0);
    /* The kernel's. */
    CHECK(pipe(ends) == 0 && ws_ring_setup(ends[0], 8, 0) == 0);
    CHECK(ws_release(set) == 0 && ws_ring_setup(set, 8, 0) == 0);
    CHECK(ws_close(set) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

/* Sockets, watched through an io_uring where there is one. Who reads what there is hears the same
 * of hints. */
static void show_sockets(int flags)
{
    enum { MANY = 40 };
    struct epoll_event events[MANY];
    int set = ws_epoll_create1(EPOLL_CLOEXEC), ends[MANY][2];
    char byte = 'x';
    CHECK(ws_ring_setup(set, 64, flags) == 1);
    for (int i = 0; i < MANY; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = (uint64_t)i};
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends[i]) == 0);
        CHECK(ws_epoll_ctl(set, EPOLL_CTL_ADD, ends[i][0], &event) == 0);
    }
    CHECK(ws_epoll_wait(set, events, MANY, 0) == 0);
    for (int round = 0; round < 3; round++) {
        int times[MANY] = {0};
        for (int i = 0; i < MANY; i++)
            CHECK(write(ends[i][1], &byte, 1) == 1);
        CHECK(ws_epoll_wait(set, events, MANY, -1) == MANY);
        for (int i = 0; i < MANY; i++) {
            CHECK(events[i].events == EPOLLIN);
            times[events[i].data.u64]++;
        }
        for (int i = 0; i < MANY; i++)
            CHECK(times[i] == 1 && read(ends[i][0], &byte, 1) == 1);
        CHECK(ws_epoll_wait(set, events, MANY, 0) == 0);
    }
    for (int i = 0; i < MANY; i++) {
        /* The connection ends, though it was watched. */
        CHECK(ws_close(ends[i][0]) == 0 && read(ends[i][1], &byte, 1) == 0 &&
              close(ends[i][1]) == 0);
    }
    CHECK(ws_close(set) == 0);
}

static void show_levels_and_edges(void)
{
    struct epoll_event events[8];
    uint64_t value;
    int set = ws_epoll_create1(EPOLL_CLOEXEC);
    ws_ring_writer *writer = ws_ring_writer_create(set, 3);
    CHECK(writer != NULL);
    ws_ring_reader *reader = ws_ring_reader_open(ws_ring_writer_fd(writer));
    CHECK(reader != NULL);
    CHECK(ws_ring_writer_pump(writer, &now) == 0 && ws_ring_writer_pump(writer, &millisecond) == 0);
    CHECK(ws_ring_reader_take(reader, events, 8, &now) == 0 &&
          ws_ring_reader_take(reader, events, 8, &millisecond) == 0);
    int level = watched(set, EPOLLIN, 1, 1), edge = watched(set, EPOLLIN | EPOLLET, 2, 1);
    int shot = watched(set, EPOLLIN | EPOLLONESHOT, 3, 1);
    CHECK(ws_ring_writer_pump(writer, NULL) == 3 && ws_ring_writer_pump(writer, &now) == 0);
    CHECK(ws_ring_reader_take(reader, events, 2, NULL) == 2 &&
          ws_ring_reader_take(reader, events + 2, 6, NULL) == 1);
    for (uint64_t i = 0; i < 3; i++)
        CHECK(events[i].data.u64 == i + 1 && events[i].events == EPOLLIN);
    /* The level still holds. */
    CHECK(ws_ring_writer_pump(writer, &now) == 1 &&
          ws_ring_reader_take(reader, events, 8, &now) == 1 && events[0].data.u64 == 1);
    CHECK(ws_eventfd_read(level, &value) == 0);
    CHECK(ws_eventfd_write(edge, 1) == 0 && ws_eventfd_write(shot, 1) == 0);
    CHECK(ws_ring_writer_pump(writer, &now) == 1 &&
          ws_ring_reader_take(reader, events, 8, &now) == 1 && events[0].data.u64 == 2);
    /* Four slots. */
    for (uint64_t i = 0; i < 6; i++)
        (void)watched(set, EPOLLIN | EPOLLET, i + 10, 1);
    CHECK(ws_ring_writer_pump(writer, &now) == 4 && ws_ring_writer_pump(writer, &millisecond) == 0);
    CHECK(ws_ring_reader_take(reader, events, 8, &now) == 4 &&
          ws_ring_writer_pump(writer, NULL) == 2);
    CHECK(ws_ring_reader_take(reader, events + 4, 8, &now) == 2);
    for (uint64_t i = 0; i < 6; i++)
        CHECK(events[i].data.u64 == i + 10);
    ws_ring_reader_destroy(reader);
    ws_ring_writer_destroy(writer);
    CHECK(ws_close(set) == 0);
}

static void show_errors(void)
{
    struct epoll_event event;
    const struct timespec no_time = {0, -1};
    CHECK(ws_ring_writer_create(-1, 8) == NULL && errno == EBADF);
    CHECK(ws_ring_writer_create(0, 8) == NULL && errno == EOPNOTSUPP);
    CHECK(ws_ring_writer_fd(NULL) == -1 && errno == EINVAL);
    CHECK(ws_ring_writer_pump(NULL, NULL) == -1 && errno == EINVAL);
    CHECK(ws_ring_reader_take(NULL, &event, 1, NULL) == -1 && errno == EINVAL);
    ws_ring_writer_destroy(NULL);
    ws_ring_reader_destroy(NULL);
    CHECK(ws_ring_reader_open(-1) == NULL && errno == EBADF);
    CHECK(ws_ring_reader_open(0) == NULL && errno == EINVAL);
    int set = ws_epoll_create1(EPOLL_CLOEXEC);
    CHECK(ws_ring_writer_create(set, 0) == NULL && errno == EINVAL);
    ws_ring_writer *writer = ws_ring_writer_create(set, 1);
    ws_ring_reader *reader = ws_ring_reader_open(ws_ring_writer_fd(writer));
    CHECK(ws_ring_writer_pump(writer, &no_time) == -1 && errno == EINVAL);
    CHECK(ws_ring_reader_take(reader, &event, 1, &no_time) == -1 && errno == EINVAL);
    CHECK(ws_ring_reader_take(reader, NULL, 1, NULL) == -1 && errno == EINVAL);
    CHECK(ws_ring_reader_take(reader, &event, 0, NULL) == -1 && errno == EINVAL);

    /* A peer that lies. */
    struct stat size;
    CHECK(fstat(ws_ring_writer_fd(writer), &size) == 0 &&
          ftruncate(ws_ring_writer_fd(writer), 0) == -1 && errno == EPERM);
    uint32_t *words = mmap(NULL, (size_t)size.st_size, PROT_READ | PROT_WRITE, MAP_SHARED,
                           ws_ring_writer_fd(writer), 0);
    CHECK(words != MAP_FAILED);
    words[0] = 1000;
    CHECK(ws_ring_reader_take(reader, &event, 1, NULL) == -1 && errno == EPROTO);
    words[32] = 1000;
    CHECK(ws_ring_writer_pump(writer, NULL) == -1 && errno == EPROTO);
    CHECK(munmap(words, (size_t)size.st_size) == 0);
    ws_ring_reader_destroy(reader);
    CHECK(ws_close(set) == 0);
    CHECK(ws_ring_writer_pump(writer, NULL) == -1 && errno == EBADF);
    ws_ring_writer_destroy(writer);
}

static void *pump(void *writer)
{
    while (ws_ring_writer_pump(writer, &long_enough) > 0)
        ;
    CHECK(errno == EPROTO);
    return NULL;
}

/* A child reads, the parent writes, both asleep in between. The fork has left the set to the
 * kernel; a second ring is of one made afterwards. */
static void show_processes(int made_after)
{
    enum { ROUNDS = 2000 };
    int link[2], back[2];
    CHECK(pipe(link) == 0 && pipe(back) == 0);
    int set = ws_epoll_create1(EPOLL_CLOEXEC);
    int counter = watched(set, EPOLLIN, 7, 0);
    ws_ring_writer *writer = ws_ring_writer_create(set, 1);
    ws_ring_reader *reader = ws_ring_reader_open(ws_ring_writer_fd(writer));
    pid_t child = fork();
    if (child == 0) {
        /* Not the child's. */
        CHECK(ws_ring_writer_pump(writer, &now) == -1 && errno == EBADF);
        ws_ring_writer_destroy(writer);
        for (int i = 0; i < ROUNDS; i++) {
            struct epoll_event event;
            CHECK(ws_ring_reader_take(reader, &event, 1, &long_enough) == 1);
            CHECK(event.data.u64 == 7 && event.events == EPOLLIN);
            /* A level comes until it is read; the parent does that. */
            CHECK(write(back[1], "x", 1) == 1);
            char byte;
            CHECK(read(link[0], &byte, 1) == 1);
            while (ws_ring_reader_take(reader, &event, 1, &now) > 0)
                ;
        }
        _exit(0);
    }
    if (made_after) {
        CHECK(ws_close(counter) == 0);
        counter = watched(set, EPOLLIN, 7, 0);
    }
    pthread_t thread;
    CHECK(child > 0 && pthread_create(&thread, NULL, pump, writer) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        char byte;
        uint64_t value;
        CHECK(ws_eventfd_write(counter, 1) == 0);
        CHECK(read(back[0], &byte, 1) == 1);
        CHECK(ws_eventfd_read(counter, &value) == 0 && write(link[1], "x", 1) == 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    /* Its end of the memory is ours now: the writer is told nonsense, wakes, and stops. */
    uint32_t *words =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ws_ring_writer_fd(writer), 0);
    CHECK(words != MAP_FAILED);
    words[32] += 1000;
    CHECK(ws_eventfd_write(counter, 1) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(munmap(words, 4096) == 0);
    ws_ring_reader_destroy(reader);
    ws_ring_writer_destroy(writer);
    CHECK(ws_close(set) == 0 && ws_close(counter) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(close(link[i]) == 0 && close(back[i]) == 0);
}

int main(void)
{
    show_setup();
    show_sockets(WS_RING_POLL);
    show_sockets(WS_RING_POLL | WS_RING_HINTS);
    show_levels_and_edges();
    show_errors();
    show_processes(0);
    show_processes(1);
    return 0;
}
