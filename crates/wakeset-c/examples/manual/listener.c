#define _GNU_SOURCE
#include <err.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <wakeset.h>

int main(void)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 64) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0)
        err(1, "listen");

    /* Each worker, be it a thread or a process, joins for itself. */
    ws_listener_waiter *worker = ws_listener_join(listener, WS_ORDER_FIFO);
    if (!worker || connect(client, (struct sockaddr *)&address, length) != 0)
        err(1, "set-up");
    if (ws_listener_wait(worker, NULL) != 1)
        err(1, "ws_listener_wait");
    int connection = ws_listener_accept(worker, NULL, NULL, SOCK_CLOEXEC, NULL);
    if (connection < 0)
        err(1, "ws_listener_accept");
    printf("one connection\n");
    ws_listener_leave(worker);
    ws_close(connection);
    ws_close(client);
    ws_close(listener);
}
