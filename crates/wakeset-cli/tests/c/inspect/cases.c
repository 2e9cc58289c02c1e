// What `wakeset inspect` looks at: `cases CASE` sets one thing up, prints "ready" and sleeps until
// its standard input ends.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

static int must(int result, const char *what)
{
    if (result < 0) {
        perror(what);
        exit(1);
    }
    return result;
}

static void ready(void)
{
    puts("ready");
    fflush(stdout);
}

static void watch(int set, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};
    must(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

/* Waits on the set until the test closes our input. What else is reported is left as it is. */
static void wait_on(int set)
{
    struct epoll_event event;
    watch(set, 0, EPOLLIN);
    for (;;) {
        must(epoll_wait(set, &event, 1, -1), "epoll_wait");
        if (event.data.fd == 0)
            exit(0);
        usleep(1000);
    }
}

static int listening(int backlog)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
    must(bind(fd, (struct sockaddr *)&address, sizeof address), "bind");
    must(listen(fd, backlog), "listen");
    return fd;
}

static int connected_to(int listener)
{
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    must(getsockname(listener, (struct sockaddr *)&address, &size), "getsockname");
    int fd = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
    must(connect(fd, (struct sockaddr *)&address, size), "connect");
    return fd;
}

/* A pipe's end is copied, and the watched number is closed: the watch goes on. */
static void stale(void)
{
    int ends[2], set = must(epoll_create1(0), "epoll_create1");
    must(pipe(ends), "pipe");
    watch(set, ends[0], EPOLLIN);
    must(fork() == 0 ? (prctl(PR_SET_PDEATHSIG, SIGKILL), close(0), pause()) : 0, "fork");
    close(ends[0]);
    ready();
    wait_on(set);
}

/* The same with an eventfd, which a message that nobody has taken keeps open. */
static void stale_in_flight(void)
{
    int ends[2], set = must(epoll_create1(0), "epoll_create1");
    int fd = must(eventfd(0, 0), "eventfd");
    /* The number is given out again, to a file of the same inode. */
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
    watch(set, fd, EPOLLIN);
    char room[CMSG_SPACE(sizeof fd)] = {0}, byte = 0;
    struct iovec text = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &text, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    must(sendmsg(ends[0], &message, 0), "sendmsg");
    close(fd);
    must(eventfd(0, 0) - fd, "the same number");
    ready();
    wait_on(set);
}

/* A copy under another number keeps the watch in reach: nothing is wrong. */
static void copied(void)
{
    int set = must(epoll_create1(0), "epoll_create1"), fd = must(eventfd(0, 0), "eventfd");
    watch(set, fd, EPOLLIN);
    must(dup(fd), "dup");
    close(fd);
    ready();
    wait_on(set);
}

static void level(uint32_t flags)
{
    int set = must(epoll_create1(0), "epoll_create1"), listener = listening(5);
    int client = connected_to(listener), server = must(accept(listener, NULL, NULL), "accept");
    must(write(client, "unread bytes", 12), "write");
    watch(set, server, EPOLLIN | flags);
    ready();
    wait_on(set);
}

static void level_unix(void)
{
    int ends[2], set = must(epoll_create1(0), "epoll_create1");
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
    must(write(ends[1], "unread", 6), "write");
    watch(set, ends[0], EPOLLIN);
    ready();
    wait_on(set);
}

static void level_eventfd(void)
{
    int set = must(epoll_create1(0), "epoll_create1");
    watch(set, must(eventfd(7, 0), "eventfd"), EPOLLIN);
    ready();
    wait_on(set);
}

static void unattended(void)
{
    int set = must(epoll_create1(0), "epoll_create1"), byte;
    watch(set, must(eventfd(0, 0), "eventfd"), EPOLLIN);
    ready();
    while (read(0, &byte, 1) > 0)
        ;
}

/* poll(2) of the set is a wait on it. */
static void polled(void)
{
    int set = must(epoll_create1(0), "epoll_create1");
    watch(set, must(eventfd(0, 0), "eventfd"), EPOLLIN);
    struct pollfd both[2] = {{.fd = 0, .events = POLLIN}, {.fd = set, .events = POLLIN}};
    ready();
    must(poll(both, 2, -1), "poll");
}

static void nested(void)
{
    int set = must(epoll_create1(0), "epoll_create1");
    watch(set, must(eventfd(0, 0), "eventfd"), EPOLLIN);
    for (int i = 0; i < 2; i++) {
        int outer = must(epoll_create1(0), "epoll_create1");
        watch(outer, set, EPOLLIN);
        set = outer;
    }
    ready();
    wait_on(set);
}

static void descriptors(void)
{
    struct rlimit limit = {20, 20};
    must(setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
    while (must(dup(1), "dup") < 17)
        ;
    ready();
    wait_on(must(epoll_create1(0), "epoll_create1"));
}

static void full_queue(void)
{
    int listener = listening(4);
    for (int i = 0; i < 4; i++)
        connected_to(listener);
    ready();
    wait_on(must(epoll_create1(0), "epoll_create1"));
}

/* Two workers with a set each, with these flags; the workers take nothing. */
static void workers(uint32_t first, uint32_t second)
{
    int listener = listening(5);
    for (int i = 0; i < 2; i++) {
        if (must(fork(), "fork") > 0)
            continue;
        int set = must(epoll_create1(0), "epoll_create1");
        watch(set, listener, EPOLLIN | (i == 0 ? first : second));
        ready();
        wait_on(set);
    }
    ready();
    while (wait(NULL) > 0)
        ;
}

/* Two workers with one set that both have from their parent. */
static void shared(void)
{
    int set = must(epoll_create1(0), "epoll_create1");
    watch(set, listening(5), EPOLLIN);
    watch(set, 0, EPOLLIN);
    if (must(fork(), "fork") == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct epoll_event event;
    ready();
    must(epoll_wait(set, &event, 1, -1), "epoll_wait");
}

static void *sleep_in_poll(void *listener)
{
    struct pollfd both[2] = {
        {.fd = 0, .events = POLLIN}, {.fd = *(int *)listener, .events = POLLIN}};
    poll(both, 2, -1);
    return NULL;
}

static void *sleep_in_accept(void *listener)
{
    accept(*(int *)listener, NULL, NULL);
    return NULL;
}

/* Two threads in poll(2), and one in accept(2). */
static void threads(void)
{
    int listener = listening(5);
    pthread_t two[2], third;
    for (int i = 0; i < 2; i++)
        pthread_create(&two[i], NULL, sleep_in_poll, &listener);
    pthread_create(&third, NULL, sleep_in_accept, &listener);
    usleep(100000);
    ready();
    pthread_join(two[0], NULL);
}

int main(int count, char **words)
{
    const char *name = count > 1 ? words[1] : "";
    struct { const char *name; void (*run)(void); } cases[] = {
        {"stale", stale}, {"stale_in_flight", stale_in_flight}, {"copied", copied},
        {"level_unix", level_unix}, {"level_eventfd", level_eventfd},
        {"unattended", unattended}, {"polled", polled}, {"nested", nested},
        {"descriptors", descriptors}, {"full_queue", full_queue}, {"shared", shared},
        {"threads", threads},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, name) == 0)
            cases[i].run();
    if (strcmp(name, "level") == 0)
        level(0);
    if (strcmp(name, "edge") == 0)
        level(EPOLLET);
    if (strcmp(name, "herd") == 0)
        workers(0, 0);
    if (strcmp(name, "exclusive") == 0)
        workers(EPOLLEXCLUSIVE, EPOLLEXCLUSIVE);
    if (strcmp(name, "mixed") == 0)
        workers(EPOLLEXCLUSIVE, 0);
    return 0;
}
