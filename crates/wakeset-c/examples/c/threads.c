/* Signalling from thread to thread: producers add to eventfds, a consumer waits for them in a set.
 * None of it makes a system call, except to wake who sleeps.
 *
 *     cc threads.c $(pkg-config --cflags --libs wakeset) -pthread && ./a.out */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <wakeset.h>

#define PRODUCERS 4
#define EACH 100000

static void *produce(void *argument)
{
    const int *fd = argument;
    for (int i = 0; i < EACH; i++)
        if (ws_eventfd_write(*fd, 1) != 0)
            abort();
    return NULL;
}

int main(void)
{
    pthread_t threads[PRODUCERS];
    int fds[PRODUCERS];
    int set = ws_epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < PRODUCERS; i++) {
        fds[i] = ws_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = (uint64_t)i};
        if (set < 0 || fds[i] < 0 || ws_epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &event) != 0) {
            perror("set-up");
            return 1;
        }
    }
    for (int i = 0; i < PRODUCERS; i++)
        if (pthread_create(&threads[i], NULL, produce, &fds[i]) != 0)
            return 1;

    uint64_t total = 0;
    while (total < (uint64_t)PRODUCERS * EACH) {
        struct epoll_event events[PRODUCERS];
        int n = ws_epoll_wait(set, events, PRODUCERS, 20000);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            fprintf(stderr, "lost a wake-up after %llu units\n", (unsigned long long)total);
            return 1;
        }
        for (int i = 0; i < n; i++) {
            eventfd_t value;
            if (ws_eventfd_read(fds[events[i].data.u64], &value) == 0)
                total += value;
        }
    }
    for (int i = 0; i < PRODUCERS; i++) {
        pthread_join(threads[i], NULL);
        ws_close(fds[i]);
    }
    ws_close(set);
    printf("consumed %llu units of %d producers\n", (unsigned long long)total, PRODUCERS);
    return 0;
}
