#include <err.h>
#include <stdio.h>
#include <wakeset.h>

int main(void)
{
    /* Threads that answer each other within 100 microseconds seldom sleep now. */
    if (ws_spin_limit(100) != 0)
        err(1, "ws_spin_limit");
    /* As at the start. */
    if (ws_spin_limit(-1) != 0)
        err(1, "ws_spin_limit");
    puts("waits spin where that pays");
}
