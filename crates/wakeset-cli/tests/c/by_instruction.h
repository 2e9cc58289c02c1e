/* A system call by instruction, in the object that includes this. */
#ifndef BY_INSTRUCTION_H
#define BY_INSTRUCTION_H

static inline long by_instruction(long number, long a, long b, long c, long d, long e)
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

#endif
