#define _GNU_SOURCE
#include <err.h>
#include <signal.h>
#include <stdio.h>
#include <wakeset.h>

int main(void)
{
    int set = ws_epoll_create(1);
    if (set < 0)
        err(1, "ws_epoll_create");

    /* SIGINT ends the wait only: it is blocked everywhere else. */
    sigset_t blocked, during;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    if (sigprocmask(SIG_BLOCK, &blocked, &during) != 0)
        err(1, "sigprocmask");

    struct epoll_event event;
    struct timespec limit = {.tv_nsec = 1000000};
    int in_milliseconds = ws_epoll_pwait(set, &event, 1, 1, &during);
    int in_nanoseconds = ws_epoll_pwait2(set, &event, 1, &limit, &during);
    if (in_milliseconds < 0 || in_nanoseconds < 0)
        err(1, "wait");
    printf("%d and %d events\n", in_milliseconds, in_nanoseconds);
    ws_close(set);
}
