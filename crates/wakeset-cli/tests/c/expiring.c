/*
 * Timers that expire while a fork migrates them: each is reported by an edge. Threads sleep in a
 * set each for a timer each, and the process forks at about the time at which these expire.
 *
 *     expiring [ROUNDS]
 */
#include "show.h"
#include <sys/timerfd.h>
#include <sys/wait.h>

enum { TIMERS = 6, SPAN = 600000 };

static struct timer {
	int fd, set;
	sem_t begins;
	atomic_int told;
} timers[TIMERS];

static void *wait_on(void *argument)
{
	struct timer *timer = argument;
	struct epoll_event event;
	for (;;) {
		while (sem_wait(&timer->begins) == -1)
			;
		/* It may be set anew between the two calls; then it expires once more. */
		while (epoll_wait(timer->set, &event, 1, -1) != 1 || take(timer->fd) != 1)
			if (errno != EINTR && errno != EAGAIN)
				must(-1);
		atomic_store(&timer->told, 1);
	}
	return NULL;
}

static void begin(struct timer *timer)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	timer->fd = must(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
	timer->set = must(epoll_create1(EPOLL_CLOEXEC));
	must(epoll_ctl(timer->set, EPOLL_CTL_ADD, timer->fd, &event));
	atomic_store(&timer->told, 0);
	sem_post(&timer->begins);
}

/* Everything migrates before such a fork, also what the child does not name. */
static void fork_once(void)
{
	pid_t child = must(_Fork());
	if (child == 0)
		_exit(0);
	while (waitpid(child, NULL, 0) == -1 && errno == EINTR)
		;
}

static void set_all(int least)
{
	for (int i = 0; i < TIMERS; i++) {
		struct itimerspec time = {.it_value.tv_nsec = least + rand() % SPAN};
		must(timerfd_settime(timers[i].fd, 0, &time, NULL));
	}
}

static void one_round(void)
{
	for (int i = 0; i < TIMERS; i++)
		begin(&timers[i]);
	usleep(200);
	/* In half of the rounds they are set to an earlier time before: a thread wakes then, and looks. */
	if (rand() % 2) {
		set_all(100000);
		usleep(20);
	}
	set_all(1);
	for (int64_t when = now() + rand() % SPAN; now() < when;)
		;
	fork_once();
	for (int i = 0; i < TIMERS; i++) {
		if (!in_time(&timers[i].told)) {
			printf("an expiration was not reported (should be)\n");
			give_up();
		}
		must(close(timers[i].fd));
		must(close(timers[i].set));
	}
}

int main(int count, char **arguments)
{
	int rounds = count > 1 ? atoi(arguments[1]) : 300;
	struct thread threads[TIMERS];
	for (int i = 0; i < TIMERS; i++) {
		sem_init(&timers[i].begins, 0, 0);
		start(&threads[i], wait_on, &timers[i]);
	}
	for (int i = 0; i < rounds; i++)
		one_round();
	yes("every expiration was reported", 1);
	return verdict();
}
