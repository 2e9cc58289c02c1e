#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <wakeset.h>

int main(void)
{
    int counter = ws_eventfd(1, EFD_CLOEXEC);
    int on = 1;
    if (counter < 0 || ws_ioctl(counter, FIONBIO, &on) != 0)
        err(1, "set-up");

    /* From the first one on, the eventfd is the kernel's. */
    int second = ws_dup(counter);
    int third = ws_dup2(counter, second + 1);
    int fourth = ws_dup3(counter, second + 2, O_CLOEXEC);
    if (second < 0 || third < 0 || fourth < 0)
        err(1, "dup");
    int flags = ws_fcntl(fourth, F_GETFL);
    printf("%s\n", flags & O_NONBLOCK ? "all do not block" : "they block");
    if (ws_close_range((unsigned)second, (unsigned)fourth, 0) != 0)
        err(1, "ws_close_range");
    ws_close(counter);
}
