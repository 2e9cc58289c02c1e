#include <err.h>
#include <stdio.h>
#include <wakeset.h>

int main(void)
{
    int set = ws_epoll_create1(EPOLL_CLOEXEC);
    int counter = ws_eventfd(0, EFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = counter};
    if (ws_epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) != 0)
        err(1, "ws_epoll_ctl");

    ws_lease_holders *holders;
    int removal = ws_epoll_retire(set, counter, &holders);
    if (removal < 0)
        err(1, "ws_epoll_retire");
    if (removal == WS_REMOVAL_IDLE)
        printf("what the data leads to can be freed\n");
    ws_lease_holders_free(holders);
    ws_close(counter);
    ws_close(set);
}
