#include <err.h>
#include <stdio.h>
#include <wakeset.h>

int main(void)
{
    int set = ws_epoll_create1(EPOLL_CLOEXEC);
    int counter = ws_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = counter};
    if (set < 0 || counter < 0 || ws_epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) != 0)
        err(1, "set-up");

    /* Any thread may do this, and any signal handler. */
    if (ws_eventfd_write(counter, 3) != 0)
        err(1, "ws_eventfd_write");

    eventfd_t value;
    if (ws_epoll_wait(set, &event, 1, -1) != 1)
        err(1, "ws_epoll_wait");
    if (ws_eventfd_read(event.data.fd, &value) != 0)
        err(1, "ws_eventfd_read");
    printf("%llu\n", (unsigned long long)value);
    ws_close(counter);
    ws_close(set);
}
