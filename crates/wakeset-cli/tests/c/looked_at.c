/*
 * For `wakeset stats`: three waits on a set that report two events each, an eventfd that a
 * splice(2) sends to the kernel, and then nothing until the end of the input. Makes the file that
 * its argument names when it has come so far.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int set = epoll_create1(EPOLL_CLOEXEC), counters[2];
    struct epoll_event events[2] = {{.events = EPOLLIN}};
    for (int i = 0; i < 2; i++) {
        counters[i] = eventfd(1, EFD_CLOEXEC);
        if (epoll_ctl(set, EPOLL_CTL_ADD, counters[i], &events[0]))
            return 1;
    }
    /* By level: each wait reports both. */
    for (int i = 0; i < 3; i++)
        if (epoll_wait(set, events, 2, -1) != 2)
            return 2;
    int other = eventfd(0, EFD_CLOEXEC);
    if (argc < 2 || splice(other, NULL, other, NULL, 1, 0) >= 0 ||
        open(argv[1], O_CREAT | O_WRONLY, 0600) < 0)
        return 3;
    char byte;
    return read(0, &byte, 1) != 0;
}
