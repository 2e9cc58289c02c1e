/* Forks by several roads, each child of which makes an eventfd: for the tests of `--stats`.
 *
 *     counted_forks NUMBER     children by fork(2), one after the other, each of which forks none
 *     counted_forks NUMBER ALIVE   the same, so many at one time: the oldest is killed for the next
 *     counted_forks roads      one child by each road; prints the name and process id of each
 *
 * Before that all descriptors but the first three are closed, by system calls. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int child(void *unused) {
    (void)unused;
    _exit(eventfd(0, 0) < 0);
}

static void wait_for(const char *road, pid_t pid) {
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        printf("%s: %d, status %#x (should be 0)\n", road, (int)pid, status);
        exit(1);
    }
    if (road[0] != 0) {
        printf("%s %d\n", road, (int)pid);
    }
}

static int generations(int number, int alive) {
    pid_t pids[256] = {0};
    if (alive < 1 || alive > 256) {
        return 2;
    }
    for (int i = 0; i < number + alive; i++) {
        pid_t *place = &pids[i % alive];
        if (*place > 0 && (kill(*place, SIGKILL) != 0 || waitpid(*place, NULL, 0) != *place)) {
            perror("kill");
            return 1;
        }
        *place = i < number ? fork() : 0;
        if (*place == 0 && i < number) {
            eventfd(0, 0);
            pause();
            _exit(1);
        }
        if (*place < 0) {
            perror("fork");
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    static char stack[64 * 1024] __attribute__((aligned(16)));
    if (argc < 2) {
        return 2;
    }
    int mine = eventfd(0, 0);
    if (mine < 0 || syscall(SYS_close_range, 3, ~0U, 0) != 0) {
        perror("close_range");
        return 1;
    }
    if (argc > 2) {
        return generations(atoi(argv[1]), atoi(argv[2]));
    }
    if (strcmp(argv[1], "roads") != 0) {
        int number = atoi(argv[1]);
        for (int i = 0; i < number; i++) {
            pid_t pid = fork();
            if (pid == 0) {
                child(NULL);
            }
            wait_for("", pid);
        }
        return 0;
    }
    pid_t pid = fork();
    if (pid == 0) {
        child(NULL);
    }
    wait_for("fork", pid);
    pid = _Fork();
    if (pid == 0) {
        child(NULL);
    }
    wait_for("_Fork", pid);
    pid = (pid_t)syscall(SYS_fork);
    if (pid == 0) {
        child(NULL);
    }
    wait_for("SYS_fork", pid);
    pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        child(NULL);
    }
    wait_for("SYS_clone", pid);
    wait_for("clone", clone(child, stack + sizeof stack, SIGCHLD, NULL));
    return 0;
}
