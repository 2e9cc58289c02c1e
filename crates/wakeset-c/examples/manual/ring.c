#include <err.h>
#include <stdio.h>
#include <wakeset.h>

int main(void)
{
    int set = ws_epoll_create1(EPOLL_CLOEXEC);
    int counter = ws_eventfd(1, EFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = counter};
    /* Its waits take events from a ring of 256 from here on. */
    if (set < 0 || ws_ring_setup(set, 256, 0) != 1)
        err(1, "ws_ring_setup");
    if (ws_epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) != 0)
        err(1, "ws_epoll_ctl");
    printf("%d event\n", ws_epoll_wait(set, &event, 1, -1));
    ws_close(counter);
    ws_close(set);
}
