/* A set's events in another process: threads of the producer count into memory that both processes
 * have, and signal it by eventfds in a set; the consumer takes the set's events from a ring whose
 * descriptor came over a socket. While there is something to take neither makes a system call.
 *
 *     cc shared.c $(pkg-config --cflags --libs wakeset) -pthread && ./a.out */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wakeset.h>

#define CHANNELS 4
#define EACH 25000

static atomic_ulong *units; /* of each channel: not consumed yet */

static void check(int right, const char *what)
{
    if (!right) {
        perror(what);
        exit(1);
    }
}

union passed {
    char space[CMSG_SPACE(sizeof(int))];
    struct cmsghdr aligned;
};

static void send_descriptor(int to, int fd)
{
    union passed passed;
    char byte = 0;
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = passed.space,
                             .msg_controllen = sizeof passed.space};
    memset(&passed, 0, sizeof passed);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    check(ws_sendmsg(to, &message, 0) == 1, "sendmsg");
}

static int receive_descriptor(int from)
{
    union passed passed;
    char byte;
    int fd;
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = passed.space,
                             .msg_controllen = sizeof passed.space};
    check(recvmsg(from, &message, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&message) != NULL,
          "recvmsg");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static int consume(int from)
{
    int fd = receive_descriptor(from);
    ws_ring_reader *ring = ws_ring_reader_open(fd);
    check(ring != NULL, "ws_ring_reader_open");
    close(fd);
    unsigned long seen = 0;
    while (seen < CHANNELS * EACH) {
        struct epoll_event events[16];
        struct timespec limit = {.tv_sec = 20};
        int n = ws_ring_reader_take(ring, events, 16, &limit);
        check(n > 0, n == 0 ? "the producer is gone" : "ws_ring_reader_take");
        /* What comes from the other process is checked, as from a socket. */
        for (int i = 0; i < n; i++)
            if (events[i].data.u64 < CHANNELS)
                seen += atomic_exchange(&units[events[i].data.u64], 0);
    }
    printf("%lu units seen in another process\n", seen);
    ws_ring_reader_destroy(ring);
    return 0;
}

struct channel {
    int number;
    int eventfd;
};

static void *produce(void *argument)
{
    const struct channel *channel = argument;
    for (int i = 0; i < EACH; i++) {
        atomic_fetch_add(&units[channel->number], 1);
        check(ws_eventfd_write(channel->eventfd, 1) == 0, "ws_eventfd_write");
    }
    return NULL;
}

int main(void)
{
    int pair[2];
    units = mmap(NULL, CHANNELS * sizeof *units, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                 -1, 0);
    check(units != MAP_FAILED && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0,
          "set-up");
    /* Before there is a set: a fork leaves those that there are to the kernel. */
    pid_t consumer = fork();
    check(consumer >= 0, "fork");
    if (consumer == 0)
        return consume(pair[1]);
    close(pair[1]);

    struct channel channels[CHANNELS];
    pthread_t threads[CHANNELS];
    int set = ws_epoll_create1(EPOLL_CLOEXEC);
    ws_ring_writer *ring = ws_ring_writer_create(set, 64);
    check(ring != NULL, "ws_ring_writer_create");
    for (int i = 0; i < CHANNELS; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = (uint64_t)i};
        channels[i] =
            (struct channel){.number = i, .eventfd = ws_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
        check(ws_epoll_ctl(set, EPOLL_CTL_ADD, channels[i].eventfd, &event) == 0, "ws_epoll_ctl");
    }
    send_descriptor(pair[0], ws_ring_writer_fd(ring));
    for (int i = 0; i < CHANNELS; i++)
        check(pthread_create(&threads[i], NULL, produce, &channels[i]) == 0, "pthread_create");

    /* A consumer that has crashed takes nothing more: look for it now and then. */
    int status = 0;
    while (waitpid(consumer, &status, WNOHANG) == 0) {
        struct timespec limit = {.tv_nsec = 20000000};
        if (ws_ring_writer_pump(ring, &limit) < 0 && errno != EINTR)
            check(0, "ws_ring_writer_pump");
    }
    for (int i = 0; i < CHANNELS; i++) {
        pthread_join(threads[i], NULL);
        ws_close(channels[i].eventfd);
    }
    ws_ring_writer_destroy(ring);
    ws_close(set);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
