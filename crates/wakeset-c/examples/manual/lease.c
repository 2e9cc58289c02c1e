#include <err.h>
#include <stdio.h>
#include <wakeset.h>

int main(void)
{
    int set = ws_epoll_create1(EPOLL_CLOEXEC);
    int counter = ws_eventfd(1, EFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = counter};
    ws_lease *worker = ws_lease_create(set);
    ws_lease *other = ws_lease_create(set);
    if (!worker || !other || ws_epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) != 0)
        err(1, "set-up");

    /* A worker takes the event, arms the watch again, and takes the next one. */
    if (ws_lease_wait(worker, &event, 1, -1) != 1)
        err(1, "ws_lease_wait");
    event.events = EPOLLIN | EPOLLONESHOT;
    if (ws_lease_mod(worker, counter, &event) != 0 || ws_lease_wait(worker, &event, 1, -1) != 1)
        err(1, "ws_lease_mod");

    /* Another thread removes the watch, and learns that the worker is not done with it. */
    ws_lease_holders *holders;
    int removal = ws_lease_retire(other, counter, &holders);
    printf("%s\n", removal == WS_REMOVAL_IN_USE ? "in use" : "idle");
    ws_lease_release(worker);
    if (removal == WS_REMOVAL_IN_USE && ws_lease_holders_wait(holders, NULL) == 1)
        printf("not any more\n");
    ws_lease_holders_free(holders);
    ws_lease_destroy(other);
    ws_lease_destroy(worker);
    ws_close(counter);
    ws_close(set);
}
