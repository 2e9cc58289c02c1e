/* pthread_cancel(3): a thread that sleeps in the kernel ends there, one that sleeps in an
 * in-process object at its next cancellation point. What it was in works on. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <wakeset.h>

#include "check.h"

static _Atomic pid_t sleeper;
static int cleaned;

static void clean(void *unused)
{
    (void)unused;
    cleaned++;
}

struct call {
    int fd;
    ssize_t (*make)(int fd);
};

static ssize_t make_read(int fd)
{
    uint64_t value;
    return ws_read(fd, &value, sizeof value);
}

static ssize_t make_wait(int fd)
{
    struct epoll_event event;
    return ws_epoll_wait(fd, &event, 1, -1);
}

static ssize_t make_pwait(int fd)
{
    struct epoll_event event;
    return ws_epoll_pwait(fd, &event, 1, 100000, NULL);
}

static void *run(void *argument)
{
    const struct call *call = argument;
    pthread_cleanup_push(clean, NULL);
    atomic_store(&sleeper, gettid());
    call->make(call->fd);
    pthread_testcancel();
    pthread_cleanup_pop(0);
    return NULL;
}

static void await_sleep(void)
{
    for (;;) {
        char path[64], text[256] = "";
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)atomic_load(&sleeper));
        int fd = atomic_load(&sleeper) ? open(path, O_RDONLY) : -1;
        ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
        if (fd >= 0)
            close(fd);
        const char *end = n > 0 ? strrchr(text, ')') : NULL;
        if (end != NULL && end[2] == 'S')
            return;
        usleep(1000);
    }
}

/* Cancels a thread that sleeps in the call; `wake` is what wakes it where a cancellation does not.
 */
static void cancel(ssize_t (*make)(int), int fd, int wake)
{
    struct call call = {fd, make};
    pthread_t thread;
    void *result;
    cleaned = 0;
    atomic_store(&sleeper, 0);
    CHECK(pthread_create(&thread, NULL, run, &call) == 0);
    await_sleep();
    CHECK(pthread_cancel(thread) == 0);
    if (wake >= 0) {
        usleep(20000);
        CHECK(cleaned == 0 && ws_eventfd_write(wake, 1) == 0);
    }
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && cleaned == 1);
}

int main(void)
{
    int set = ws_epoll_create1(0), counter = ws_eventfd(0, EFD_NONBLOCK),
        blocking = ws_eventfd(0, 0), pipes[2];
    struct epoll_event event = {.events = EPOLLIN};
    eventfd_t value;
    CHECK(pipe(pipes) == 0 && ws_epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) == 0);
    cancel(make_read, pipes[0], -1);
    cancel(make_read, blocking, blocking);
    cancel(make_wait, set, counter);
    CHECK(ws_eventfd_read(counter, &value) == 0);
    CHECK(ws_epoll_wait(set, &event, 1, 0) == 0);
    CHECK(ws_release(set) == 0 && ws_release(blocking) == 0);
    cancel(make_wait, set, -1);
    cancel(make_pwait, set, -1);
    cancel(make_read, blocking, -1);
    CHECK(ws_eventfd_write(counter, 1) == 0 && ws_epoll_wait(set, &event, 1, 10000) == 1);
    puts("cancel: ok");
    return 0;
}
