#define _GNU_SOURCE
#include <err.h>
#include <stdio.h>
#include <unistd.h>
#include <wakeset.h>

int main(void)
{
    int counter = ws_eventfd(2, 0);
    eventfd_t value;
    /* A library that makes its own read(2) finds the count from here on. */
    if (counter < 0 || ws_release(counter) != 0)
        err(1, "ws_release");
    if (read(counter, &value, sizeof value) != sizeof value)
        err(1, "read");
    printf("%llu\n", (unsigned long long)value);

    /* So does a program that inherits a number, and is started after this. */
    int inherited = ws_eventfd(1, 0);
    ws_release_inherited();
    ws_close(inherited);
    ws_close(counter);
}
