#include <err.h>
#include <stdatomic.h>
#include <stdio.h>
#include <wakeset.h>

static uint32_t poll_queue(void *context)
{
    return atomic_load((atomic_int *)context) > 0 ? EPOLLIN : 0;
}

int main(void)
{
    atomic_int queued = 0;
    const struct ws_source_ops ops = {.on_poll = poll_queue};
    ws_source *source = ws_source_create(&ops, &queued);
    int set = ws_epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &queued};
    if (!source || set < 0 || ws_epoll_ctl_source(set, EPOLL_CTL_ADD, source, &event) != 0)
        err(1, "set-up");

    atomic_fetch_add(&queued, 1); /* first the change, */
    ws_source_wake(source, EPOLLIN); /* then the wake */
    printf("%d event\n", ws_epoll_wait(set, &event, 1, -1));
    ws_source_close(source);
    ws_close(set);
}
