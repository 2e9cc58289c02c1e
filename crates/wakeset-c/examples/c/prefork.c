/* A prefork server: workers that share a listener are woken one per connection, longest idle first.
 *
 *     cc prefork.c $(pkg-config --cflags --libs wakeset) && ./a.out [fifo|lifo|kernel] */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wakeset.h>

#define WORKERS 4
#define CONNECTIONS 400

static void work(int listener, int order, unsigned char number)
{
    ws_listener_waiter *waiter = ws_listener_join(listener, order);
    if (waiter == NULL)
        _exit(1);
    for (;;) {
        int fd = ws_listener_accept(waiter, NULL, NULL, SOCK_CLOEXEC, NULL);
        if (fd < 0 && errno != EINTR)
            _exit(1);
        if (fd >= 0 && (write(fd, &number, 1) != 1 || close(fd) != 0))
            _exit(1);
    }
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"fifo", "lifo", "kernel"};
    int order = WS_ORDER_FIFO;
    for (int i = 0; argc > 1 && i < 3; i++)
        if (strcmp(argv[1], names[i]) == 0)
            order = i;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, len) != 0 ||
        listen(listener, 128) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &len) != 0) {
        perror("listener");
        return 1;
    }
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        if ((workers[i] = fork()) == 0)
            work(listener, order, (unsigned char)i);

    int served[WORKERS] = {0}, total = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        unsigned char number;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&address, len) != 0 || read(fd, &number, 1) != 1 ||
            number >= WORKERS) {
            perror("connection");
            break;
        }
        served[number]++;
        total++;
        close(fd);
    }
    for (int i = 0; i < WORKERS; i++) {
        kill(workers[i], SIGTERM);
        waitpid(workers[i], NULL, 0);
    }
    printf("%s: %d connections:", names[order], total);
    for (int i = 0; i < WORKERS; i++)
        printf(" %d", served[i]);
    printf("\n");
    return total != CONNECTIONS;
}
