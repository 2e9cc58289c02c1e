#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <wakeset.h>

/* Each of the threads that serve the userfaultfd. */
static void *serve(void *pool)
{
    struct uffd_msg message;
    while (ws_fault_pool_next(pool, &message, 1, NULL) == 1) {
        /* Fill the page at message.arg.pagefault.address: UFFDIO_COPY. */
    }
    return NULL; /* ECANCELED: stopped */
}

int main(void)
{
    pthread_t handler;
    struct uffdio_api api = {.api = UFFD_API};
    int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) != 0) {
        warn("skipped: userfaultfd");
        return 0;
    }
    ws_fault_pool *pool = ws_fault_pool_create(uffd, WS_ORDER_FIFO);
    if (!pool || pthread_create(&handler, NULL, serve, pool) != 0)
        err(1, "ws_fault_pool_create");
    ws_fault_pool_stop(pool);
    pthread_join(handler, NULL);
    ws_fault_pool_destroy(pool);
    close(uffd);
    printf("stopped\n");
}
