/* nearest.h - "did you mean": the known word closest to the one that was typed. */
#ifndef MT_BASE_NEAREST_H
#define MT_BASE_NEAREST_H

#include <stddef.h>

/* Letters to insert, delete, replace or swap with a neighbor to turn a into b; '-' equals '_', case is
 * ignored.  Words longer than 63 bytes are compared by their first 63. */
int mt_edit_distance(const char *a, const char *b);

/* Keeps the best candidate so far; start with { .word = typed }. */
typedef struct mt_nearest {
    const char *word;
    char best[64]; /* "": nothing close enough to be worth suggesting */
    int distance;  /* of best */
} mt_nearest;

void mt_nearest_offer(mt_nearest *search, const char *candidate);

enum { MT_NEAREST_PATH = 400 };

/* For a path that does not exist: the entry of its folder with the closest name, as a path.  "": none is close. */
void mt_nearest_path(char best[MT_NEAREST_PATH], const char *path);

#endif
