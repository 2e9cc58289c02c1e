/* What each of these programs demands: the first demand that does not hold ends it. */
#ifndef WAKESET_TESTS_CHECK_H
#define WAKESET_TESTS_CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what)                                                                      \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
            abort();                                                                     \
        }                                                                                \
    } while (0)

#endif
