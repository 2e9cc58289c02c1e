/*
 * What proc(5) says of a process and its descriptors.
 */
#ifndef DIFFERENCES_PROC_H
#define DIFFERENCES_PROC_H

#include "../show.h"
#include <dirent.h>

/* The state of a process, as proc(5) gives it. */
static char state_of(pid_t pid)
{
	char path[64], line[256], *end = NULL;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "re");
	if (file && fgets(line, sizeof line, file))
		end = strrchr(line, ')');
	if (file)
		fclose(file);
	return end && end[1] ? end[2] : '?';
}

static int count_numbers(void)
{
	int count = 0;
	DIR *numbers = opendir("/proc/self/fd");
	while (readdir(numbers))
		count++;
	closedir(numbers);
	return count;
}

/* The value after `key` in fdinfo, or how many lines there are with it. */
static const char *fdinfo(int fd, const char *key, int count)
{
	static char found[64];
	char path[64], line[256];
	int lines = 0;
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	FILE *file = fopen(path, "re");
	strcpy(found, "?");
	while (file && fgets(line, sizeof line, file)) {
		if (strncmp(line, key, strlen(key)) == 0) {
			sscanf(line + strlen(key), "%63s", found);
			lines++;
		}
	}
	if (file)
		fclose(file);
	if (count)
		snprintf(found, sizeof found, "%d", lines);
	return found;
}

#endif
