/* A source of the program's own: a bounded queue between threads, without a descriptor, in a set
 * beside a pipe of the kernel's. It is readable while it has something in it, and writable while
 * there is room.
 *
 *     cc source.c $(pkg-config --cflags --libs wakeset) -pthread && ./a.out */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <wakeset.h>

#define ROOM 64
#define ITEMS 200000

/* One producer, one consumer. */
struct queue {
    _Atomic unsigned put, taken;
    int items[ROOM];
    ws_source *source;
};

static uint32_t queue_poll(void *context)
{
    struct queue *queue = context;
    unsigned used = atomic_load(&queue->put) - atomic_load(&queue->taken);
    return (used > 0 ? (uint32_t)EPOLLIN : 0) | (used < ROOM ? (uint32_t)EPOLLOUT : 0);
}

static void queue_close(void *context)
{
    struct queue *queue = context;
    printf("closed after %u items\n", atomic_load(&queue->taken));
    free(queue);
}

static int queue_put(struct queue *queue, int item)
{
    unsigned put = atomic_load(&queue->put);
    if (put - atomic_load(&queue->taken) == ROOM)
        return -1;
    queue->items[put % ROOM] = item;
    atomic_store(&queue->put, put + 1);
    ws_source_wake(queue->source, EPOLLIN);
    return 0;
}

static int queue_take(struct queue *queue, int *item)
{
    unsigned taken = atomic_load(&queue->taken);
    if (taken == atomic_load(&queue->put))
        return -1;
    *item = queue->items[taken % ROOM];
    atomic_store(&queue->taken, taken + 1);
    ws_source_wake(queue->source, EPOLLOUT);
    return 0;
}

static void *produce(void *argument)
{
    struct queue *queue = argument;
    int set = ws_epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLOUT};
    if (set < 0 || ws_epoll_ctl_source(set, EPOLL_CTL_ADD, queue->source, &event) != 0)
        abort();
    for (int item = 0; item < ITEMS; item++)
        while (queue_put(queue, item) != 0)
            if (ws_epoll_wait(set, &event, 1, 20000) == 0)
                abort();
    ws_close(set);
    return NULL;
}

int main(void)
{
    static const struct ws_source_ops ops = {.on_poll = queue_poll, .on_close = queue_close};
    struct queue *queue = calloc(1, sizeof *queue);
    int pipes[2];
    int set = ws_epoll_create1(EPOLL_CLOEXEC);
    if (queue == NULL || set < 0 || pipe(pipes) != 0 ||
        (queue->source = ws_source_create(&ops, queue)) == NULL) {
        perror("set-up");
        return 1;
    }
    struct epoll_event of_queue = {.events = EPOLLIN, .data.u32 = 1};
    struct epoll_event of_pipe = {.events = EPOLLIN, .data.u32 = 2};
    if (ws_epoll_ctl_source(set, EPOLL_CTL_ADD, queue->source, &of_queue) != 0 ||
        ws_epoll_ctl(set, EPOLL_CTL_ADD, pipes[0], &of_pipe) != 0) {
        perror("ws_epoll_ctl");
        return 1;
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, produce, queue) != 0 || write(pipes[1], "x", 1) != 1)
        return 1;

    int expected = 0, from_pipe = 0;
    while (expected < ITEMS || !from_pipe) {
        struct epoll_event events[2];
        int n = ws_epoll_wait(set, events, 2, 20000);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            fprintf(stderr, "lost a wake-up after %d items\n", expected);
            return 1;
        }
        for (int i = 0; i < n; i++) {
            char byte;
            int item;
            if (events[i].data.u32 == 2)
                from_pipe = read(pipes[0], &byte, 1) == 1;
            else
                while (queue_take(queue, &item) == 0)
                    if (item != expected++)
                        return 1;
        }
    }
    pthread_join(thread, NULL);
    ws_source *source = queue->source;
    ws_source_close(source);
    /* It has gone from the set. */
    struct epoll_event event;
    printf("after it: %d events\n", ws_epoll_wait(set, &event, 1, 0));
    ws_close(set);
    return 0;
}
