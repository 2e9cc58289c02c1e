#define _GNU_SOURCE
#include <err.h>
#include <stdio.h>
#include <time.h>
#include <wakeset.h>

int main(void)
{
    int timer = ws_timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    struct itimerspec every = {.it_value.tv_nsec = 1000000, .it_interval.tv_nsec = 1000000};
    struct itimerspec left;
    if (timer < 0 || ws_timerfd_settime(timer, 0, &every, NULL) != 0)
        err(1, "set-up");

    uint64_t expired;
    if (ws_read(timer, &expired, sizeof expired) != sizeof expired)
        err(1, "ws_read");
    if (ws_timerfd_gettime(timer, &left) != 0)
        err(1, "ws_timerfd_gettime");
    printf("%s, every %ld ns\n", expired >= 1 ? "expired" : "early", left.it_interval.tv_nsec);
    ws_close(timer);
}
