/*
 * System calls by instruction of the program itself.
 *
 * `instructions refused`: a filter refuses prctl(PR_SET_SYSCALL_USER_DISPATCH).
 * `instructions often`: very many calls by instruction.
 */
#include "by_instruction.h"
#include "instructions/calls.h"
#include "instructions/threads.h"
#include "instructions/signals.h"
#include "instructions/surroundings.h"

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (strcmp(mode, "refused") == 0)
		refuse_dispatch(argv);
	if (strcmp(mode, "often") == 0) {
		often(by_instruction);
		return failures != 0;
	}
	all(by_instruction);
	children_by_instruction(by_instruction);
	return failures != 0;
}
