/* An echo server on a unix socket, and a client that talks to it: descriptors of the kernel's in a
 * set, and an eventfd that ends the server.
 *
 *     cc echo.c $(pkg-config --cflags --libs wakeset) -pthread && ./a.out */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <wakeset.h>

#define CLIENTS 20
#define LINES 50

struct server {
    int set, listener, stop;
};

static void check(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static void watch(int set, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};
    check(ws_epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "ws_epoll_ctl");
}

static void echo(int fd)
{
    char text[256];
    ssize_t n;
    while ((n = read(fd, text, sizeof text)) > 0)
        check(write(fd, text, (size_t)n) == n, "write");
    if (n == 0 || errno != EAGAIN)
        ws_close(fd);
}

static void *serve(void *argument)
{
    const struct server *server = argument;
    for (;;) {
        struct epoll_event events[16];
        int n = ws_epoll_wait(server->set, events, 16, -1);
        check(n > 0 || errno == EINTR, "ws_epoll_wait");
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == server->stop)
                return NULL;
            if (fd == server->listener) {
                int client = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
                if (client >= 0)
                    watch(server->set, client, EPOLLIN | EPOLLET);
            } else {
                echo(fd);
            }
        }
    }
}

int main(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    /* An address without a file (unix(7), abstract). */
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "wakeset-echo-%ld", (long)getpid());

    struct server server = {
        .set = ws_epoll_create1(EPOLL_CLOEXEC),
        .listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
        .stop = ws_eventfd(0, EFD_CLOEXEC),
    };
    check(server.set >= 0 && server.listener >= 0 && server.stop >= 0, "descriptors");
    check(bind(server.listener, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    check(listen(server.listener, CLIENTS) == 0, "listen");
    watch(server.set, server.listener, EPOLLIN);
    watch(server.set, server.stop, EPOLLIN);

    pthread_t thread;
    check(pthread_create(&thread, NULL, serve, &server) == 0, "pthread_create");
    int echoed = 0;
    for (int client = 0; client < CLIENTS; client++) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        check(connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "connect");
        for (int line = 0; line < LINES; line++) {
            char sent[32] = "", got[sizeof sent] = "";
            snprintf(sent, sizeof sent, "client %d, line %d", client, line);
            check(send(fd, sent, sizeof sent, 0) == sizeof sent, "send");
            check(recv(fd, got, sizeof got, MSG_WAITALL) == sizeof got, "recv");
            echoed += memcmp(sent, got, sizeof sent) == 0;
        }
        close(fd);
    }
    check(ws_eventfd_write(server.stop, 1) == 0, "ws_eventfd_write");
    check(pthread_join(thread, NULL) == 0, "pthread_join");
    ws_close(server.stop);
    ws_close(server.listener);
    ws_close(server.set);
    printf("echoed %d of %d lines\n", echoed, CLIENTS * LINES);
    return echoed != CLIENTS * LINES;
}
