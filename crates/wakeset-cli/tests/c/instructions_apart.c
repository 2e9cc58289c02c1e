/*
 * System calls by instruction in a program that does something special, which the argument names.
 */
#include "instructions/calls.h"
#include <linux/audit.h>
#include <ucontext.h>

__attribute__((noinline, noclone))
static long in_program(long number, long a, long b, long c, long d, long e)
{
	long result;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	__asm__ volatile("syscall\n\t.globl after_call\nafter_call:"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return result;
}

extern const char after_call[];
static int made_early;

/* Runs before any constructor: before Wakeset's own start. */
static void before_all(int argc, char **argv)
{
	if (argc < 2 || strcmp(argv[1], "early") != 0)
		return;
	made_early = eventfd(31, EFD_NONBLOCK);
	show("before any constructor", get(in_program, made_early), 31);
	close(made_early);
	made_early = eventfd(32, EFD_NONBLOCK);
}

__attribute__((section(".preinit_array"), used)) static void (*const preinit)(int, char **) =
	before_all;

static void early(void)
{
	heading("made before any constructor");
	show("in main", get(in_program, made_early), 32);
}

static volatile long in_handler;
static int handlers_fd;

static void handler(int signal)
{
	(void)signal;
	in_handler = get(in_program, handlers_fd);
}

/* Registered before there is an object, and so before anything is caught. */
static void handler_that_blocks_all(void)
{
	struct sigaction action = {.sa_handler = handler}, old;
	heading("handlers that were registered before the first object");
	sigfillset(&action.sa_mask);
	sigaction(SIGUSR1, &action, NULL);
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGSEGV, &action, NULL);
	for (int i = 0; i < 2; i++) {
		handlers_fd = eventfd(33, EFD_NONBLOCK);
		raise(i ? SIGSEGV : SIGUSR1);
		show("in the handler", in_handler, 33);
		close(handlers_fd);
	}
	sigaction(SIGUSR1, NULL, &old);
	show("the handler", old.sa_handler == handler, 1);
	show("its mask", sigismember(&old.sa_mask, SIGUSR2), 1);
}

static void *thread(void *unused)
{
	return unused;
}

/* Dispatch is on for the first thread's sake; the child's objects are its first ones. */
static void child_with_the_first_object(void)
{
	pthread_t id;
	heading("a child that makes the first object");
	pthread_create(&id, NULL, thread, NULL);
	pthread_join(id, NULL);
	for (int i = 0; i < 2; i++) {
		int status;
		pid_t child = i ? in_program(SYS_fork, 0, 0, 0, 0, 0) : fork();
		if (child == 0) {
			int fd = eventfd(34, EFD_NONBLOCK);
			_exit(get(in_program, fd) != 34);
		}
		waitpid(child, &status, 0);
		show("it ends well", status, 0);
	}
}

static int clones_fd;

static int in_clone(void *unused)
{
	(void)unused;
	return (int)get(in_program, clones_fd);
}

/* A thread that no function of libc's for threads has made: nobody can turn dispatch on in it. */
static void thread_by_clone(void)
{
	static char stack[65536] __attribute__((aligned(16)));
	int flags = CLONE_VM | CLONE_FILES | CLONE_FS | CLONE_SIGHAND | SIGCHLD, status;
	heading("a thread by clone(2)");
	clones_fd = eventfd(35, EFD_NONBLOCK);
	pid_t child = clone(in_clone, stack + sizeof stack, flags, NULL);
	waitpid(child, &status, 0);
	show("in it", WEXITSTATUS(status), 35);
	close(clones_fd);
}

static volatile long trapped;

static void on_trap(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	trapped = info->si_code;
	/* Lets it pass: this instruction is the one that the filter allows. */
	registers[REG_RAX] = in_program(registers[REG_RAX], registers[REG_RDI],
					registers[REG_RSI], registers[REG_RDX], 0, 0);
}

/* A sandbox of the kind whose filter lets pass what one instruction of its own asks for. */
static void filter_by_address(void)
{
	uintptr_t from = (uintptr_t)after_call;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, instruction_pointer)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)from, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
	heading("a filter that looks at addresses");
	int fd = eventfd(36, EFD_NONBLOCK);
	show("by instruction", get(in_program, fd), 36);
	sigaction(SIGSYS, &action, NULL);
	show("no new privileges", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	show("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
	pid_t parent = in_program(SYS_getppid, 0, 0, 0, 0, 0);
	show("not trapped", trapped, 0);
	show("through libc", getppid() == parent, 1);
	show("trapped", trapped, 1);
	uint64_t two = 2;
	show("written", write(fd, &two, 8), 8);
	show("by instruction", get(in_program, fd), 2);
	close(fd);
}

static volatile char selector;

static void on_dispatch(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	selector = 0;
	trapped = info->si_code;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 77;
}

/* An emulator: it has the kernel report its calls to itself. */
static void own_dispatch(void)
{
	struct sigaction action = {.sa_sigaction = on_dispatch, .sa_flags = SA_SIGINFO};
	heading("Syscall User Dispatch of the program's own");
	int fd = eventfd(37, EFD_NONBLOCK);
	show("by instruction", get(in_program, fd), 37);
	sigaction(SIGSYS, &action, NULL);
	show("prctl", prctl(59, 1, 0, 0, &selector), 0);
	trapped = 0;
	show("it lets pass", in_program(SYS_getpid, 0, 0, 0, 0, 0) == getpid(), 1);
	selector = 1;
	long got = in_program(SYS_getpid, 0, 0, 0, 0, 0);
	show("it catches", got, 77);
	show("the program's handler", trapped, 2);
	selector = 1;
	got = getppid();
	show("through libc", got, 77);
	uint64_t two = 2;
	show("written", write(fd, &two, 8), 8);
	show("by instruction", get(in_program, fd), 2);
	show("off", prctl(59, 0, 0, 0, 0), 0);
	close(fd);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (strcmp(mode, "early") == 0)
		early();
	if (strcmp(mode, "handler") == 0)
		handler_that_blocks_all();
	if (strcmp(mode, "child") == 0)
		child_with_the_first_object();
	if (strcmp(mode, "clone") == 0)
		thread_by_clone();
	if (strcmp(mode, "filter") == 0)
		filter_by_address();
	if (strcmp(mode, "dispatch") == 0)
		own_dispatch();
	return failures != 0;
}
