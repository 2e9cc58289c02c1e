/*
 * System calls by instruction from memory that becomes executable while the program runs, and from
 * an object that it loads (`instructions_plugin.c`, whose path is the argument). The program has no
 * such instruction of its own.
 *
 * `late`: there is a thread already.
 */
#include "instructions/calls.h"
#include "instructions/threads.h"
#include "instructions/signals.h"
#include "instructions/surroundings.h"

/* mov rax, rdi; mov rdi, rsi; mov rsi, rdx; mov rdx, rcx; mov r10, r8; mov r8, r9; syscall; ret */
static const unsigned char code[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6,
				     0x48, 0x89, 0xca, 0x4d, 0x89, 0xc2, 0x4d, 0x89, 0xc8,
				     0x0f, 0x05, 0xc3};

/* The instruction in memory that is executable once it has been written. */
static raw_call *in_memory(void)
{
	void *place = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(place, code, sizeof code);
	show("mprotect", mprotect(place, 4096, PROT_READ | PROT_EXEC), 0);
	return (raw_call *)place;
}

/* The instruction in memory that can be written and executed at once. */
static raw_call *in_open_memory(void)
{
	int access = PROT_READ | PROT_WRITE | PROT_EXEC;
	void *place = mmap(NULL, 4096, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(place, code, sizeof code);
	return (raw_call *)place;
}

int main(int argc, char **argv)
{
	int is_late = argc > 2 && strcmp(argv[2], "late") == 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* What was made before the code is there must be seen, too. */
	int early = eventfd(7, EFD_NONBLOCK);
	if (is_late)
		begin_thread_that_stays();
	if (strcmp(argv[1], "memory") == 0) {
		raw_call *raw = in_memory();
		show("made before", get(raw, early), 7);
		all(raw);
	} else if (strcmp(argv[1], "open") == 0) {
		raw_call *raw = in_open_memory();
		show("made before", get(raw, early), 7);
		all(raw);
	} else {
		void *plugin = dlopen(argv[1], RTLD_NOW);
		show("loaded", plugin != NULL, 1);
		raw_call *raw;
		*(void **)&raw = dlsym(plugin, "in_plugin");
		show("made before", get(raw, early), 7);
		all(raw);
	}
	return failures != 0;
}
