/*
 * System calls by instruction of the program itself.
 *
 * `instructions refused`: a filter refuses prctl(PR_SET_SYSCALL_USER_DISPATCH).
 * `instructions often`: very many calls by instruction.
 */
#include "instructions/calls.h"
#include "instructions/threads.h"
#include "instructions/signals.h"
#include "instructions/surroundings.h"

static long in_program(long number, long a, long b, long c, long d, long e)
{
	long result;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return result;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (strcmp(mode, "refused") == 0)
		refuse_dispatch(argv);
	if (strcmp(mode, "often") == 0) {
		often(in_program);
		return failures != 0;
	}
	all(in_program);
	children_by_instruction(in_program);
	return failures != 0;
}
