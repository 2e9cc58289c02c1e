/*
 * Processes and threads that are stopped or killed at any moment, and what the others still do.
 *
 * usage: kills [ACTIONS [PERCENT_KILLED [SEED]]]
 *
 * A supervisor makes four eventfds and then processes that share them: producers write to them from
 * two threads each; waiters have an epoll set each, in which two threads wait for the shared
 * eventfds (the kernel's, since there was a fork), for one that two threads of their own write to,
 * and for others that come, move and go. At random moments a random process is killed and replaced
 * (SIGKILL), or stopped (SIGSTOP), or one of its threads is stopped (ptrace). After each action,
 * while what is stopped stands still:
 *
 * - what the shared eventfds hold is read by those who are left: as many reads are counted from
 *   here on as there were events;
 * - so are the events of every waiter's own eventfd, if it runs. If one of its threads is stopped,
 *   and that is one that writes, then too: who is stopped in a write keeps nobody from waiting.
 *
 * Every now and then the producers pause until nothing is left, and the sums are compared: what was
 * read is what was written, but for one event for each thread that was killed between a call and
 * its note of it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SOURCES = 4, PRODUCERS = 3, WAITERS = 3, MEMBERS = PRODUCERS + WAITERS, THREADS = 5,
      ROUND = 50 };

/* Patience in milliseconds: only a failing run waits so long. */
enum { PATIENCE = 20000 };

/* About how many events may be unread before writers wait for readers. */
enum { BACKLOG = 64 };

/* A waiter's threads: two wait, two write, one makes and ends eventfds. A producer's: two write. */
enum { FIRST_WRITER = 2, CHURNER = 4 };

/* The data of a waiter's events, behind the sources. */
enum { OWN = SOURCES, STOP, CHURNED };

struct thread {
    _Atomic int tid;
    /* The source that it is writing to or reading from, plus one. */
    _Atomic int writing, reading;
};

struct member {
    pid_t pid;
    struct thread threads[THREADS];
    _Atomic uint64_t own_written, own_read, churned, churn_read;
};

static struct shared {
    _Atomic uint64_t written[SOURCES], read[SOURCES];
    _Atomic int paused;
    struct member members[MEMBERS];
} *shared;

static int sources[SOURCES], stop;
static uint64_t random_state;

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static unsigned pick(unsigned n)
{
    return next_random(&random_state) % n;
}

static void nap(long microseconds)
{
    struct timespec time = { microseconds / 1000000, microseconds % 1000000 * 1000 };
    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        ;
}

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* The end of the whole run, in whatever process. */
static void fail(const char *what, long a, long b)
{
    printf("FAILED: %s (%ld, %ld)\n", what, a, b);
    fflush(stdout);
    kill(0, SIGKILL);
}

/* What a member's threads do. */

static struct member *self;
static int set, own;

static void *write_sources(void *argument)
{
    struct thread *me = argument;
    uint64_t state = (uint64_t)syscall(SYS_gettid) * 0x9e3779b97f4a7c15 | 1, one = 1;
    me->tid = syscall(SYS_gettid);
    for (;;) {
        for (int n = next_random(&state) % 4; n > 0; n--) {
            int i = next_random(&state) % SOURCES;
            /* First, so that who pauses sees who is past the question. */
            me->writing = i + 1;
            if (shared->paused || (int64_t)(shared->written[i] - shared->read[i]) > BACKLOG) {
                me->writing = 0;
                break;
            }
            if (write(sources[i], &one, 8) != 8)
                fail("a write to a shared eventfd", i, errno);
            shared->written[i]++;
            me->writing = 0;
        }
        nap(200 + next_random(&state) % 1000);
    }
    return NULL;
}

static void *write_own(void *argument)
{
    struct thread *me = argument;
    uint64_t state = (uint64_t)syscall(SYS_gettid) * 0x9e3779b97f4a7c15 | 1, one = 1;
    me->tid = syscall(SYS_gettid);
    for (;;) {
        for (int n = next_random(&state) % 16; n > 0; n--) {
            self->own_written++;
            if (write(own, &one, 8) != 8)
                fail("a write to an eventfd of its own", n, errno);
        }
        nap(100 + next_random(&state) % 1000);
    }
    return NULL;
}

static void watch(int fd, unsigned events, uint64_t data)
{
    struct epoll_event event = { .events = events, .data.u64 = data };
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0)
        fail("an add", (long)data, errno);
}

/*
 * Makes an eventfd, writes to it, duplicates it at times (so that it moves into the kernel), and
 * closes it when all has been read.
 */
static void *churn(void *argument)
{
    struct thread *me = argument;
    uint64_t state = (uint64_t)syscall(SYS_gettid) * 0x9e3779b97f4a7c15 | 1, one = 1;
    me->tid = syscall(SYS_gettid);
    for (;;) {
        int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (fd < 0)
            fail("an eventfd", fd, errno);
        if (next_random(&state) % 8 == 0)
            close(dup(fd));
        watch(fd, next_random(&state) % 2 ? EPOLLIN : EPOLLIN | EPOLLET,
              CHURNED | (uint64_t)fd << 32);
        for (int n = 1 + next_random(&state) % 8; n > 0; n--) {
            self->churned++;
            if (write(fd, &one, 8) != 8)
                fail("a write to one that comes and goes", n, errno);
            /*
             * Seldom: the move of what is watched reads /proc/self/task, and the kernel takes long
             * to reap a process that has.
             */
            if (next_random(&state) % 2048 == 0)
                close(dup(fd));
        }
        while (self->churn_read != self->churned)
            nap(100);
        close(fd);
        nap(next_random(&state) % 1000);
    }
    return NULL;
}

static void *work(void *argument)
{
    struct thread *me = argument;
    struct epoll_event events[8];
    me->tid = syscall(SYS_gettid);
    for (;;) {
        int n = epoll_wait(set, events, 8, -1);
        if (n < 0 && errno != EINTR)
            fail("a wait", n, errno);
        for (int i = 0; i < n; i++) {
            uint64_t value, data = events[i].data.u64;
            if (data < SOURCES) {
                me->reading = (int)data + 1;
                for (int most = 8; most > 0 && read(sources[data], &value, 8) == 8; most--)
                    shared->read[data] += value;
                me->reading = 0;
            } else if (data == OWN) {
                if (read(own, &value, 8) == 8)
                    self->own_read += value;
            } else if (data == STOP) {
                return NULL;
            } else if (read((int)(data >> 32), &value, 8) == 8) {
                self->churn_read += value;
            }
        }
    }
}

static void be(int number)
{
    pthread_t threads[THREADS];
    int is_waiter = number >= PRODUCERS;
    self = &shared->members[number];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!is_waiter) {
        for (int i = 0; i < 2; i++)
            pthread_create(&threads[i], NULL, write_sources, &self->threads[i]);
        pthread_join(threads[0], NULL);
    }
    set = epoll_create1(EPOLL_CLOEXEC);
    own = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    for (int i = 0; i < SOURCES; i++)
        watch(sources[i], EPOLLIN, i);
    watch(own, EPOLLIN, OWN);
    watch(stop, EPOLLIN, STOP);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, i < FIRST_WRITER ? work : i < CHURNER ? write_own : churn,
                       &self->threads[i]);
    for (int i = 0; i < FIRST_WRITER; i++)
        pthread_join(threads[i], NULL);
    _exit(0);
}

/* What the supervisor does. */

static uint64_t may_be_written[SOURCES], may_be_read[SOURCES];

static void start(int number)
{
    struct member *member = &shared->members[number];
    memset(member, 0, sizeof *member);
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        fail("a fork", pid, errno);
    if (pid == 0)
        be(number);
    member->pid = pid;
}

static void kill_and_replace(int number)
{
    struct member *member = &shared->members[number];
    kill(member->pid, SIGKILL);
    if (waitpid(member->pid, NULL, 0) != member->pid)
        fail("a wait for a killed process", member->pid, errno);
    for (int i = 0; i < THREADS; i++) {
        if (member->threads[i].writing)
            may_be_written[member->threads[i].writing - 1]++;
        if (member->threads[i].reading)
            may_be_read[member->threads[i].reading - 1]++;
    }
    start(number);
}

/* How many events an eventfd holds. */
static uint64_t held(int fd)
{
    char path[64], line[128];
    unsigned long long count = ULLONG_MAX;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *info = fopen(path, "re");
    while (info && fgets(line, sizeof line, info))
        if (sscanf(line, "eventfd-count: %llx", &count) == 1)
            break;
    if (info)
        fclose(info);
    if (count == ULLONG_MAX)
        fail("no count in fdinfo", fd, errno);
    return count;
}

static void await(_Atomic uint64_t *counter, uint64_t target, const char *what)
{
    long end = now() + PATIENCE;
    while ((int64_t)(*counter - target) < 0) {
        if (now() > end)
            fail(what, (long)*counter, (long)target);
        nap(50);
    }
}

/* All that is there is consumed by those who are left; of `without` nothing is expected. */
static void expect_progress(int without, int but_its_writes)
{
    uint64_t due[SOURCES], own_due[MEMBERS];
    for (int i = 0; i < SOURCES; i++) {
        uint64_t before = shared->read[i];
        due[i] = before + held(sources[i]);
    }
    for (int i = PRODUCERS; i < MEMBERS; i++)
        own_due[i] = shared->members[i].own_written;
    for (int i = 0; i < SOURCES; i++)
        await(&shared->read[i], due[i], "what was written to a shared eventfd was not read");
    for (int i = PRODUCERS; i < MEMBERS; i++)
        if (i != without || but_its_writes) {
            /* A thread that stands still has counted one event that it may not have written. */
            uint64_t open = i == without ? 1 : 0;
            await(&shared->members[i].own_read, own_due[i] - open,
                  "a process does not hear of its own eventfd");
        }
}

/* Stops a thread, anywhere; whether it could be done. */
static int stop_thread(int number, int thread)
{
    pid_t tid = shared->members[number].threads[thread].tid;
    if (tid == 0 || ptrace(PTRACE_SEIZE, tid, NULL, NULL) != 0)
        return 0;
    int status;
    if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) != 0 || waitpid(tid, &status, __WALL) != tid ||
        !WIFSTOPPED(status))
        fail("a thread could not be stopped", tid, errno);
    expect_progress(number, thread >= FIRST_WRITER && thread < CHURNER);
    if (ptrace(PTRACE_DETACH, tid, NULL, NULL) != 0)
        fail("a thread could not be let go", tid, errno);
    return 1;
}

static void compare_sums(void)
{
    long end = now() + PATIENCE;
    shared->paused = 1;
    for (int i = 0; i < SOURCES; i++) {
        /* Nothing there, and nobody between a call and its note of it. */
        for (int busy = 1; busy;) {
            busy = held(sources[i]) != 0;
            for (int m = 0; m < MEMBERS; m++)
                for (int t = 0; t < THREADS; t++)
                    busy |= shared->members[m].threads[t].writing ||
                        shared->members[m].threads[t].reading;
            if (now() > end)
                fail("a shared eventfd is not read empty", i, (long)held(sources[i]));
            nap(50);
        }
    }
    for (int i = 0; i < SOURCES; i++) {
        int64_t more_read = (int64_t)(shared->read[i] - shared->written[i]);
        if (more_read > (int64_t)may_be_written[i] || -more_read > (int64_t)may_be_read[i])
            fail("the sums differ", (long)more_read, (long)(may_be_written[i] + may_be_read[i]));
        shared->written[i] = shared->read[i] = 0;
        may_be_written[i] = may_be_read[i] = 0;
    }
    /* With nothing from others that would wake a waiter too. */
    expect_progress(-1, 0);
    shared->paused = 0;
}

int main(int argc, char **argv)
{
    int actions = argc > 1 ? atoi(argv[1]) : 200;
    unsigned percent_killed = argc > 2 ? atoi(argv[2]) : 50;
    random_state = argc > 3 ? strtoull(argv[3], NULL, 0) : 1;
    random_state = random_state * 0x9e3779b97f4a7c15 | 1;
    int killed = 0, stopped = 0, threads = 0, refused = 0;
    setpgid(0, 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < SOURCES; i++)
        sources[i] = eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE | EFD_CLOEXEC);
    stop = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    for (int i = 0; i < MEMBERS; i++)
        start(i);
    for (int done = 0; done < actions; done++) {
        int number = pick(MEMBERS);
        nap(pick(4000));
        if (pick(100) < percent_killed) {
            kill_and_replace(number);
            killed++;
            expect_progress(number, 0);
        } else if (pick(2)) {
            kill(shared->members[number].pid, SIGSTOP);
            stopped++;
            expect_progress(number, 0);
            kill(shared->members[number].pid, SIGCONT);
        } else if (stop_thread(number, pick(number < PRODUCERS ? 2 : THREADS))) {
            threads++;
        } else {
            /* It may not have begun. */
            refused++;
        }
        if (refused > threads + 20)
            fail("ptrace(2) cannot stop threads here", refused, threads);
        if (done % ROUND == ROUND - 1)
            compare_sums();
    }
    compare_sums();
    expect_progress(-1, 0);
    printf("counts: %d processes killed, %d stopped, %d threads stopped, %d refused\n", killed,
           stopped, threads, refused);
    fflush(stdout);
    /* Those who are left end by themselves when they hear that they should. */
    uint64_t one = 1;
    if (write(stop, &one, 8) != 8)
        fail("the last write", 0, errno);
    for (int i = PRODUCERS; i < MEMBERS; i++) {
        int status;
        long end = now() + PATIENCE;
        while (waitpid(shared->members[i].pid, &status, WNOHANG) == 0) {
            if (now() > end)
                fail("a waiter does not end", i, 0);
            nap(100);
        }
        if (status != 0)
            fail("a waiter ended with a status", i, status);
    }
    for (int i = 0; i < PRODUCERS; i++) {
        kill(shared->members[i].pid, SIGKILL);
        waitpid(shared->members[i].pid, NULL, 0);
    }
    printf("nothing lost\n");
    return 0;
}
