#include <err.h>
#include <stdio.h>
#include <unistd.h>
#include <wakeset.h>

int main(void)
{
    int set = ws_epoll_create1(EPOLL_CLOEXEC);
    int counter = ws_eventfd(1, EFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
    ws_ring_writer *writer = ws_ring_writer_create(set, 64);
    if (!writer || ws_epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) != 0)
        err(1, "set-up");

    /* The reader is in another process as a rule, which the descriptor is passed on to. */
    ws_ring_reader *reader = ws_ring_reader_open(ws_ring_writer_fd(writer));
    if (!reader)
        err(1, "ws_ring_reader_open");
    if (ws_ring_writer_pump(writer, NULL) != 1)
        err(1, "ws_ring_writer_pump");
    if (ws_ring_reader_take(reader, &event, 1, NULL) != 1)
        err(1, "ws_ring_reader_take");
    printf("data %d\n", (int)event.data.u64);
    ws_ring_reader_destroy(reader);
    ws_ring_writer_destroy(writer);
    ws_close(counter);
    ws_close(set);
}
