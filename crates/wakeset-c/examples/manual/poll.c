#define _GNU_SOURCE
#include <err.h>
#include <poll.h>
#include <stdio.h>
#include <sys/select.h>
#include <wakeset.h>

int main(void)
{
    int counter = ws_eventfd(1, EFD_CLOEXEC);
    struct pollfd entry = {.fd = counter, .events = POLLIN};
    struct timespec limit = {.tv_sec = 1};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(counter, &set);
    int found = ws_poll(&entry, 1, 1000);
    found += ws_ppoll(&entry, 1, &limit, NULL);
    found += ws_select(counter + 1, &set, NULL, NULL, NULL);
    found += ws_pselect(counter + 1, &set, NULL, NULL, &limit, NULL);
    if (found != 4)
        err(1, "not ready");
    printf("ready four times\n");
    ws_close(counter);
}
