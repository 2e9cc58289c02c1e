/*
 * A virtual machine, a native library that knows nothing of it, and between them a library that
 * replaces sigaction(2), as OpenJDK's libjsig does: while the machine registers its handlers, they
 * are installed, and what was there before is kept for it; what others register afterwards is only
 * kept. So the machine sees each of its faults first, and passes on what is not its own.
 *
 * Built with -DLIBRARY this is that library. The program is linked with it.
 */
#ifdef LIBRARY

#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>

static struct sigaction kept[65];
static int installed[65], installing;

void begin_installing(void)
{
	installing = 1;
}

void end_installing(void)
{
	installing = 0;
}

struct sigaction *kept_for(int number)
{
	return &kept[number];
}

int sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
	int (*libcs)(int, const struct sigaction *, struct sigaction *) =
	    (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
	struct sigaction before;
	if (installed[number] && !installing) {
		if (old != NULL)
			*old = kept[number];
		if (action != NULL)
			kept[number] = *action;
		return 0;
	}
	int result = libcs(number, action, &before);
	if (old != NULL)
		*old = before;
	if (installing) {
		kept[number] = before;
		installed[number] = 1;
	}
	return result;
}

#else

#include "show.h"
#include <setjmp.h>
#include <signal.h>

void begin_installing(void);
void end_installing(void);
struct sigaction *kept_for(int number);

static sigjmp_buf back;
static volatile sig_atomic_t nulls, passed_on, sent;

static void of_machine(int number_, siginfo_t *info, void *context)
{
	struct sigaction *other = kept_for(number_);
	if (info->si_code > 0 && info->si_addr == (void *)8) {
		nulls++;
		siglongjmp(back, 1);
	}
	if (other->sa_flags & SA_SIGINFO)
		other->sa_sigaction(number_, info, context);
}

static void of_library(int number_, siginfo_t *info, void *context)
{
	(void)number_, (void)context;
	if (info->si_code > 0) {
		passed_on++;
		siglongjmp(back, 1);
	}
	sent++;
}

static void fault_at(long address)
{
	int *volatile nowhere = (int *)address;
	if (sigsetjmp(back, 1) == 0)
		*nowhere = 1;
}

static void show_chain(int number_, const char *name)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER}, old;
	heading(name);
	begin_installing();
	action.sa_sigaction = of_machine;
	must(sigaction(number_, &action, &old));
	end_installing();
	yes("nothing before the machine", old.sa_handler == SIG_DFL);
	yes("kept for it", kept_for(number_)->sa_handler == SIG_DFL);
	action.sa_sigaction = of_library;
	must(sigaction(number_, &action, &old));
	yes("the library finds what the machine found", old.sa_handler == SIG_DFL);
	yes("and is kept", kept_for(number_)->sa_sigaction == of_library);
	raise(number_);
	number("passed on to it", 1, sent);
	sent = 0;
}

int main(void)
{
	char *nowhere = (char *)16;
	show_chain(SIGSEGV, "SIGSEGV");
	for (int i = 0; i < 1000; i++)
		fault_at(8);
	number("null checks", 1000, nulls);
	fault_at(16);
	number("another fault", 1, passed_on);
	int set = must(epoll_create1(0)), fd = must(eventfd(0, 0));
	CALL("a bad pointer", "-1 EFAULT", epoll_ctl(set, EPOLL_CTL_ADD, fd, (void *)nowhere));
	show_chain(SIGUSR1, "SIGUSR1");
	return verdict();
}

#endif
