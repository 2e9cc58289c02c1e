/*
 * Random forks, vforks, spawns, execs and duplicates beside traffic: every count and every byte is
 * exact, every wait ends, and no descriptor, thread, child and memory is left over.
 *
 *     forks_random [OPERATIONS [SEED [NAME]]]
 *
 * Producers and consumers signal each other through channels of all kinds: eventfds, timerfds,
 * pipes, pairs and messages, for which they wait by read(2), poll(2), select(2) and sets of all
 * kinds. Operators make children of all kinds, which produce and consume in their stead, and they
 * duplicate, renumber, make and close objects. After some operations all channels end, are checked,
 * and others begin, as what has migrated for good would stay in the kernel. In half of these rounds
 * a handler of SIGCHLD tells a thread of each, through a pair. With a name, operators make only
 * what is called so.
 */
#include "forks_random/returns.h"
#include <dirent.h>
#include <sys/prctl.h>

/* What an operator does, and how often. */
static struct operation {
	const char *name;
	void (*act)(void);
	unsigned weight;
} operations[] = {
	{"forks that end", fork_and_exit, 20},
	{"forks that act", fork_and_act, 20},
	{"forks that talk", fork_and_talk, 6},
	{"forks that fork", fork_and_fork, 5},
	{"forks that stay", fork_and_stay, 1},
	{"vforks that end", vfork_and_exit, 6},
	{"vforks that act", vfork_and_act, 6},
	{"clones that send", clone_and_send, 2},
	{"programs that end", execute_and_end, 2},
	{"programs that write", execute_and_send, 4},
	{"programs without", execute_without, 2},
	{"duplicates to send", send_by_duplicate, 5},
	{"duplicates to take", take_by_duplicate, 5},
	{"other numbers", change_number, 3},
	{"duplicates of private objects", duplicate_private, 8},
	{"objects opened and closed", open_and_close, 4},
	{"private objects that are shared", share_private, 8},
	{"private pairs that come back", return_private_ends, 6},
	{"private timers that come back", return_private_timer, 3},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static atomic_llong how_often[OPERATIONS], left_in_round;

static void make_only(const char *name)
{
	for (int i = 0; i < OPERATIONS; i++)
		if (strcmp(operations[i].name, name) != 0)
			operations[i].weight = 0;
}

static void operate_once(void)
{
	unsigned sum = 0, which = 0;
	for (int i = 0; i < OPERATIONS; i++)
		sum += operations[i].weight;
	for (unsigned dot = below(sum); dot >= operations[which].weight; which++)
		dot -= operations[which].weight;
	operations[which].act();
	atomic_fetch_add(&how_often[which], 1);
}

static void *operate(void *argument)
{
	struct traffic *role = argument;
	take_role(role);
	me = (int)role->who;
	while (atomic_fetch_sub(&left_in_round, 1) > 0)
		operate_once();
	return NULL;
}

/* ---- a handler of SIGCHLD that signals a thread ---- */

static int told_by[2];
static atomic_llong told, heard;
static pthread_t listener;

/* As event loops do. A full pair has said enough. */
static void tell(int number_)
{
	int error = errno;
	(void)number_;
	if (getpid() == world->pid && write(told_by[1], "c", 1) == 1)
		atomic_fetch_add(&told, 1);
	errno = error;
}

static void *listen_for_children(void *unused)
{
	char bytes[64];
	ssize_t count;
	int set = set_of(told_by[0], EPOLLIN, EPOLL_CLOEXEC);
	my_slot = NULL;
	do {
		wait_by_set(set);
		while ((count = read(told_by[0], bytes, sizeof bytes)) > 0)
			atomic_fetch_add(&heard, count);
	} while (count != 0);
	need(close(set));
	return unused;
}

static void start_listening(void)
{
	need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, told_by));
	must_be_zero(pthread_create(&listener, NULL, listen_for_children, NULL));
}

/* Some rounds have a handler, and some have none. */
static void handle_children(int handled)
{
	struct sigaction action = {.sa_handler = handled ? tell : SIG_DFL,
				   .sa_flags = SA_RESTART | SA_NOCLDSTOP};
	need(sigaction(SIGCHLD, &action, NULL));
}

/* The end comes after what was written before it. */
static void stop_listening(void)
{
	handle_children(0);
	need(shutdown(told_by[1], SHUT_WR));
	must_be_zero(pthread_join(listener, NULL));
	need(close(told_by[0]));
	need(close(told_by[1]));
	/* A handler counts after its write. */
	for (int i = 0; i < 100 && atomic_load(&told) < atomic_load(&heard); i++)
		sleep_ms(10);
	yes("ends of children were told of", atomic_load(&told) > 0);
	yes("a thread heard of each", atomic_load(&told) == atomic_load(&heard));
}

/* Those whose parent has gone come to us. */
static void reap(int options)
{
	int status;
	begin_wait("children of children", -1);
	for (;;) {
		pid_t child = waitpid(-1, &status, options);
		if (child == -1 && errno == EINTR)
			continue;
		if (child <= 0)
			break;
		if (status != 0)
			fail("a child's child ended with %#x", (unsigned)status);
	}
	end_wait();
}

/* Ends what children may have, if the end of a pipe is to be found, or the program ends. */
static void end_round(int last)
{
	int by_close = below(8) == 0;
	if (by_close || last) {
		for (int i = 0; i < LINGERERS; i++)
			end_lingerer(i);
		reap(0);
		for (int i = 0; i < CHANNELS; i++)
			channels[i].ends_by_close = channels[i].kind >= PIPE && below(2);
	} else {
		if (below(8) == 0)
			end_lingerer((int)below(LINGERERS));
	}
	end_traffic();
}

static void make_round(long long count, int last)
{
	struct traffic operators[OPERATORS];
	atomic_store(&left_in_round, count);
	handle_children(below(2));
	start_traffic();
	for (unsigned i = 0; i < OPERATORS; i++) {
		operators[i] = (struct traffic){NULL, i, (uint64_t)below(INT_MAX), &world->slots[1 + i], 0};
		must_be_zero(pthread_create(&operators[i].thread, NULL, operate, &operators[i]));
	}
	for (int i = 0; i < OPERATORS; i++)
		must_be_zero(pthread_join(operators[i].thread, NULL));
	end_round(last);
}

/* ---- what may be left over ---- */

struct leftovers {
	int visible, files, threads;
	long pages;
};

static int count_names(const char *path)
{
	int count = 0;
	DIR *names = opendir(path);
	while (names && readdir(names))
		count++;
	closedir(names);
	return count;
}

static long resident(void)
{
	long size = 0, pages = 0;
	FILE *file = fopen("/proc/self/statm", "re");
	if (!file || fscanf(file, "%ld %ld", &size, &pages) != 2)
		must(-1);
	fclose(file);
	return pages;
}

static struct leftovers look(void)
{
	struct leftovers all = {0};
	for (int fd = 0; fd < 4096; fd++)
		all.visible += fcntl(fd, F_GETFD) != -1;
	all.files = count_names("/proc/self/fd");
	all.threads = count_names("/proc/self/task");
	all.pages = resident();
	return all;
}

/* What serves children ends a second after the last one. */
static struct leftovers look_when_settled(int threads)
{
	struct leftovers all = look();
	for (int i = 0; i < 100 && all.threads != threads; i++) {
		sleep_ms(50);
		all = look();
	}
	return all;
}

int main(int count, char **arguments)
{
	if (count > 1 && strspn(arguments[1], "0123456789") == 0)
		return be_executed(count, arguments);
	long long wanted = count > 1 ? atoll(arguments[1]) : 1000, done = 0;
	uint64_t seed = count > 2 ? strtoull(arguments[2], NULL, 0) : 1;
	atomic_int stop = 0;
	pthread_t watcher;
	make_world();
	seed_dice(seed);
	if (count > 3)
		make_only(arguments[3]);
	signal(SIGPIPE, SIG_IGN);
	must(prctl(PR_SET_CHILD_SUBREAPER, 1));
	for (int i = 0; i < CHANNELS; i++)
		for (int j = 0; j <= CONSUMERS; j++)
			pthread_mutex_init(&gates[i][j].lock, NULL);
	must_be_zero(pthread_create(&watcher, NULL, watch_over, &stop));
	struct leftovers first = look(), early = first, late;
	start_listening();
	while (done < wanted) {
		long long round = 20 + below(200);
		if (round > wanted - done)
			round = wanted - done;
		int begins = done < wanted / 10 && done + round >= wanted / 10;
		make_round(round, begins || done + round == wanted);
		done += round;
		if (begins)
			early = look_when_settled(first.threads + 1);
	}
	stop_listening();
	late = look_when_settled(first.threads);
	number("descriptors", first.visible, late.visible);
	number("threads", first.threads, late.threads);
	yes("no child is left", waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
	/* Wakeset keeps a doorbell for each of the threads that have been in poll(2) at a time. */
	yes("no open file is left", late.files <= early.files + 8);
	yes("no memory is left", late.pages <= early.pages + 512);
	printf("counts: seed %llu, files %d, %d, %d, pages %ld, %ld, %ld\n", (unsigned long long)seed,
	       first.files, early.files, late.files, first.pages, early.pages, late.pages);
	for (int i = 0; i < OPERATIONS; i++)
		printf("counts: %s %lld\n", operations[i].name, (long long)atomic_load(&how_often[i]));
	atomic_store(&stop, 1);
	must_be_zero(pthread_join(watcher, NULL));
	return verdict();
}
