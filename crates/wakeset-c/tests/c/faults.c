/* A pool of threads that serve one userfaultfd, in each order: every fault is served once, and the
 * calls end when the pool is stopped. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <wakeset.h>

#include "check.h"

/* The library takes the memory for what the kernel's header says. */
_Static_assert(sizeof(struct uffd_msg) == 32, "struct uffd_msg");

enum { PAGES = 256, THREADS = 4 };

static int uffd;
static unsigned long page;
static ws_fault_pool *pool;
static _Atomic int served;

static void *serve(void *unused)
{
    struct uffd_msg message;
    int n;
    while ((n = ws_fault_pool_next(pool, &message, 1, NULL)) > 0) {
        CHECK(n == 1 && message.event == UFFD_EVENT_PAGEFAULT);
        struct uffdio_zeropage zero = {
            .range = {message.arg.pagefault.address & ~(page - 1), page}};
        CHECK(ioctl(uffd, UFFDIO_ZEROPAGE, &zero) == 0);
        atomic_fetch_add(&served, 1);
    }
    CHECK(n == -1 && errno == ECANCELED);
    return unused;
}

static void *touch(void *memory)
{
    for (int i = 0; i < PAGES / THREADS; i++)
        CHECK(((volatile char *)memory)[(size_t)i * page] == 0);
    return memory;
}

static void run(int order)
{
    pthread_t servers[THREADS], users[THREADS];
    char *memory =
        mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register range = {.range = {(unsigned long)memory, PAGES * page},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(memory != MAP_FAILED && ioctl(uffd, UFFDIO_REGISTER, &range) == 0);
    CHECK((pool = ws_fault_pool_create(uffd, order)) != NULL);
    struct uffd_msg message;
    struct timespec soon = {0, 1000000}, wrong = {0, 1000000000};
    CHECK(ws_fault_pool_next(pool, &message, 1, &soon) == -1 && errno == ETIMEDOUT);
    CHECK(ws_fault_pool_next(pool, &message, 1, &wrong) == -1 && errno == EINVAL);
    CHECK(ws_fault_pool_next(pool, &message, 0, NULL) == -1 && errno == EINVAL);
    atomic_store(&served, 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&servers[i], NULL, serve, NULL) == 0);
        CHECK(pthread_create(&users[i], NULL, touch,
                             memory + (size_t)i * (PAGES / THREADS) * page) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(users[i], NULL) == 0);
    ws_fault_pool_stop(pool);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(servers[i], NULL) == 0);
    CHECK(atomic_load(&served) == PAGES);
    ws_fault_pool_destroy(pool);
    munmap(memory, PAGES * page);
}

int main(void)
{
    page = (unsigned long)sysconf(_SC_PAGESIZE);
    uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    if (uffd < 0) {
        puts("skipped: userfaultfd(2) is not permitted");
        return 0;
    }
    struct uffdio_api api = {.api = UFFD_API};
    CHECK(ioctl(uffd, UFFDIO_API, &api) == 0);
    CHECK(ws_fault_pool_create(uffd, 4) == NULL && errno == EINVAL);
    CHECK(ws_fault_pool_create(-1, WS_ORDER_FIFO) == NULL && errno == EBADF);
    run(WS_ORDER_FIFO);
    run(WS_ORDER_LIFO);
    run(WS_ORDER_KERNEL);
    run(WS_ORDER_TURNS);
    ws_fault_pool_destroy(NULL);
    printf("served %d faults in each order\n", PAGES);
    return 0;
}
