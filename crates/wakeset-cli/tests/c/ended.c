/*
 * Threads that have waited for a listener and have ended, in every way in which a thread can end:
 * what they had open for their waits is closed, and what others wait with is not.
 */
#include "listening.h"
#include <dirent.h>
#include <sys/wait.h>

static int listener;

/* How many descriptors are open; the one it looks with among them. */
static int count_open(void)
{
	int open = 0;
	DIR *numbers = opendir("/proc/self/fd");
	must(numbers ? 0 : -1);
	while (readdir(numbers))
		open++;
	closedir(numbers);
	return open;
}

static int look(int milliseconds)
{
	struct pollfd one = {listener, POLLIN, 0};
	return poll(&one, 1, milliseconds);
}

static void *returns(void *argument)
{
	(void)argument;
	return look(20) == 0 ? NULL : &listener;
}

static void *exits(void *argument)
{
	(void)argument;
	pthread_exit(look(20) == 0 ? NULL : &listener);
}

/* Ends without the library's knowing. */
static void *leaves(void *argument)
{
	(void)argument;
	look(20);
	syscall(SYS_exit, 0);
	return NULL;
}

/* All at once, or one after the other; how many saw something that was not there. */
static int crowd(int count, int at_once, void *(*body)(void *))
{
	pthread_t threads[64];
	int wrong = 0;
	for (int begun = 0; begun < count; begun += at_once) {
		for (int i = 0; i < at_once; i++)
			must_be_zero(pthread_create(&threads[i], NULL, body, NULL));
		for (int i = 0; i < at_once; i++) {
			void *result;
			must_be_zero(pthread_join(threads[i], &result));
			wrong += body != leaves && result != NULL;
		}
	}
	return wrong;
}

static void show_crowds(void)
{
	heading("threads that have waited, and have ended");
	int before = count_open();
	number("forty at once: wrong", 0, crowd(40, 40, returns));
	number("descriptors more", 0, count_open() - before);
	number("three hundred by fours: wrong", 0, crowd(300, 4, exits));
	number("descriptors more", 0, count_open() - before);
	crowd(20, 1, leaves);
	number("after some that left by a system call, one more: wrong", 0, crowd(1, 1, returns));
	number("descriptors more", 0, count_open() - before);
}

/* ---- destructors of the program's own ---- */

static pthread_key_t key;
static int looks_left;

static void last_words(void *value)
{
	look(5);
	if (--looks_left > 0)
		must_be_zero(pthread_setspecific(key, value));
}

static void *with_last_words(void *argument)
{
	(void)argument;
	must_be_zero(pthread_setspecific(key, &key));
	return look(5) == 0 ? NULL : &listener;
}

static void show_last_words(void)
{
	heading("threads that wait in a destructor");
	int before = count_open();
	must_be_zero(pthread_key_create(&key, last_words));
	for (int looks = 1; looks <= 2; looks++) {
		looks_left = looks;
		number("wrong", 0, crowd(1, 1, with_last_words));
		number("looks left", 0, looks_left);
		number("descriptors more", 0, count_open() - before);
	}
	must_be_zero(pthread_key_delete(key));
}

/* ---- forks ---- */

static void *fork_and_end(void *argument)
{
	(void)argument;
	look(1);
	pid_t child = must(fork());
	if (child == 0) {
		/* The only thread of the child ends, and the process with it. */
		look(1);
		pthread_exit(NULL);
	}
	int status;
	must(waitpid(child, &status, 0));
	number("the child's status", 0, status);
	return look(1) == 0 ? NULL : &listener;
}

static void show_forks(void)
{
	heading("a thread that forks, and whose copy ends");
	int before = count_open();
	number("wrong", 0, crowd(3, 1, fork_and_end));
	number("descriptors more", 0, count_open() - before);
}

/* ---- connections ---- */

enum { CLIENTS = 300, SERVERS = 3 };
static atomic_int served;

static void *serve_one(void *argument)
{
	(void)argument;
	while (atomic_load(&served) < CLIENTS) {
		if (look(50) == 1 && take_one(listener)) {
			atomic_fetch_add(&served, 1);
			break;
		}
	}
	return NULL;
}

/* Starts a thread for each that has ended. */
static void *keep_serving(void *argument)
{
	while (atomic_load(&served) < CLIENTS) {
		pthread_t server;
		must_be_zero(pthread_create(&server, NULL, serve_one, NULL));
		must_be_zero(pthread_join(server, NULL));
	}
	return argument;
}

static void show_connections(void)
{
	heading("threads that end after one connection each");
	struct thread servers[SERVERS];
	int before = count_open();
	for (int i = 0; i < SERVERS; i++)
		start(&servers[i], keep_serving, NULL);
	for (int i = 0; i < CLIENTS; i++) {
		int client = connect_to(listener);
		char byte;
		number("the end, from the server", 0, must((int)read(client, &byte, 1)));
		must(close(client));
	}
	for (int i = 0; i < SERVERS; i++)
		finish(&servers[i]);
	number("served", CLIENTS, atomic_load(&served));
	number("descriptors more", 0, count_open() - before);
}

int main(void)
{
	listener = listen_on(AF_INET);
	show_crowds();
	show_last_words();
	show_forks();
	show_connections();
	return verdict();
}
