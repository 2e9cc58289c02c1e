/* An object that makes system calls by instruction. */
#include "by_instruction.h"

long in_plugin(long number, long a, long b, long c, long d, long e);

long in_plugin(long number, long a, long b, long c, long d, long e)
{
	return by_instruction(number, a, b, c, d, e);
}

