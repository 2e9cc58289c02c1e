// A handler leaves poll(2) or select(2) by siglongjmp(3), again and again, while the object is the
// kernel's for a child that writes to it. When the child has ended the object comes home, as if
// each call had returned. (What a process of one thread has left to a child does not.)
#include "show.h"
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/select.h>
#include <sys/wait.h>

enum { CALLS = 20000, LATER_CALLS = 2000 };

static sigjmp_buf before_call;
static volatile sig_atomic_t is_calling;
static atomic_bool ends;
static pthread_t caller;

static void leave(int signal) {
    (void)signal;
    if (is_calling) {
        is_calling = 0;
        siglongjmp(before_call, 1);
    }
}

static void *disturb(void *argument) {
    (void)argument;
    while (!atomic_load(&ends)) {
        if (is_calling)
            pthread_kill(caller, SIGUSR1);
        for (volatile int i = 0; i < 500; i++) {
        }
    }
    return NULL;
}

static int look(int event, bool by_select) {
    if (!by_select) {
        struct pollfd polled = {.fd = event, .events = POLLIN};
        return poll(&polled, 1, 0);
    }
    fd_set set;
    FD_ZERO(&set);
    FD_SET(event, &set);
    struct timeval no_time = {0};
    return select(event + 1, &set, NULL, NULL, &no_time);
}

int main(int argc, char **argv) {
    bool by_select = argc > 1 && strcmp(argv[1], "select") == 0;
    int event = eventfd(0, EFD_NONBLOCK);
    uint64_t one = 1;
    signal(SIGUSR1, leave);
    caller = pthread_self();
    pthread_t disturber;
    pthread_create(&disturber, NULL, disturb, NULL);
    pid_t child = fork();
    if (child == 0) {
        ssize_t written = write(event, &one, 8);
        usleep(200000);
        _exit(written == 8 ? 0 : 1);
    }
    while (look(event, by_select) == 0)
        usleep(100);
    volatile int wrong = 0, jumps = 0;
    // On a busy machine the disturber may not come for a while.
    for (volatile int i = 0; i < CALLS || jumps == 0; i++) {
        if (sigsetjmp(before_call, 1) != 0) {
            jumps++;
            continue;
        }
        is_calling = 1;
        int found = look(event, by_select);
        is_calling = 0;
        wrong += found != 1;
    }
    atomic_store(&ends, true);
    pthread_join(disturber, NULL);
    int status = -1;
    waitpid(child, &status, 0);
    printf("wrong: %d, child: %d\n", wrong, status);
    usleep(20000);
    for (int i = 0; i < LATER_CALLS; i++)
        wrong += read(event, &one, 8) != 8 || look(event, by_select) != 0 ||
                 write(event, &one, 8) != 8 || look(event, by_select) != 1;
    printf("wrong: %d\n", wrong);
    return 0;
}
