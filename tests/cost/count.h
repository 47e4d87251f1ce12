/* count.h - what a call costs, counted instead of timed: basic blocks of our own code that ran, bytes that the C library's
 * functions on memory and strings went over, and the most memory that was allocated at once.
 *
 * The folders that hold them are compiled once more for this (tests/CMakeLists.txt), with a call at every basic block
 * (-fsanitize-coverage=trace-pc); memcpy and its like are wrapped by the linker, malloc and its like are replaced.
 * Other libraries' work is not counted, their memory is.  One thread at a time. */
#ifndef MT_TEST_COUNT_H
#define MT_TEST_COUNT_H

#include <stddef.h>
#include <stdint.h>

typedef struct cost {
    uint64_t steps; /* basic blocks, and 1 for every 16 bytes gone over */
    size_t peak;    /* bytes allocated at once, beyond what there was at the start */
} cost;

void cost_begin(void);
cost cost_end(void);

#endif
