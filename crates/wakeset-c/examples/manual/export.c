#include <err.h>
#include <poll.h>
#include <stdio.h>
#include <wakeset.h>

int main(void)
{
    int set = ws_epoll_create1(EPOLL_CLOEXEC);
    int counter = ws_eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = counter};
    if (set < 0 || counter < 0 || ws_epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) != 0)
        err(1, "set-up");

    /* Another library's loop may watch the number, as this poll(2) does. */
    struct pollfd watched = {.fd = ws_epoll_pollfd(set), .events = POLLIN};
    if (watched.fd < 0 || poll(&watched, 1, -1) != 1)
        err(1, "poll");
    int events = ws_epoll_wait(set, &event, 1, 0);
    printf("%d event\n", events);
    ws_close(counter);
    ws_close(set);
}
