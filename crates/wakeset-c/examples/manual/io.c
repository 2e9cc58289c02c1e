#define _GNU_SOURCE
#include <err.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <wakeset.h>

int main(void)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        err(1, "socketpair");

    /* Any descriptor will do, not only Wakeset's. */
    char in[7], word[] = "one", more[] = "two";
    struct iovec out = {.iov_base = more, .iov_len = 3};
    struct iovec all = {.iov_base = in, .iov_len = 3};
    struct msghdr message = {.msg_iov = &out, .msg_iovlen = 1};
    if (ws_write(ends[0], word, 3) != 3 || ws_writev(ends[0], &out, 1) != 3 ||
        ws_sendmsg(ends[0], &message, 0) != 3)
        err(1, "write");
    if (ws_readv(ends[1], &all, 1) != 3 || ws_read(ends[1], in, 6) != 6)
        err(1, "read");
    printf("%.6s\n", in);
    ws_close(ends[0]);
    ws_close(ends[1]);
}
