#include <err.h>
#include <stdio.h>
#include <string.h>
#include <wakeset.h>

int main(void)
{
    int set = ws_epoll_create1(EPOLL_CLOEXEC);
    int counter = ws_eventfd(0, EFD_CLOEXEC);
    struct ws_epoll_ctl_cmd changes[] = {
        {.op = EPOLL_CTL_ADD, .fd = counter, .event.events = EPOLLIN},
        {.op = EPOLL_CTL_DEL, .fd = set}, /* which is not in the set */
    };
    ssize_t made = ws_epoll_ctl_batch(set, WS_BATCH_STOP_AT_ERROR, changes, 2);
    if (made < 0)
        err(1, "ws_epoll_ctl_batch");
    printf("%zd made; the second: %s\n", made, strerror(-changes[1].result));
    ws_close(counter);
    ws_close(set);
}
