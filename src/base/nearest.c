#include "base/nearest.h"

#include "base/mem.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = 63 };

static int letter(char c) { return c == '-' ? '_' : tolower((unsigned char)c); }

static int smallest(int a, int b, int c)
{
    int m = a < b ? a : b;
    return m < c ? m : c;
}

/* Three rows of the usual table: the row before last is needed for swaps. */
int mt_edit_distance(const char *a, const char *b)
{
    int rows[3][LONGEST + 1];
    int na = (int)strnlen(a, LONGEST), nb = (int)strnlen(b, LONGEST);
    for (int j = 0; j <= nb; j++) rows[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= nb; j++) {
            int same = letter(a[i - 1]) == letter(b[j - 1]);
            now[j] = smallest(last[j] + 1, now[j - 1] + 1, last[j - 1] + !same);
            if (i > 1 && j > 1 && letter(a[i - 1]) == letter(b[j - 2]) && letter(a[i - 2]) == letter(b[j - 1]))
                now[j] = smallest(now[j], before[j - 2] + 1, now[j]);
        }
    }
    return rows[na % 3][nb];
}

void mt_nearest_offer(mt_nearest *search, const char *candidate)
{
    int d = mt_edit_distance(search->word, candidate);
    int longer = (int)mt_max_i64((int64_t)strlen(search->word), (int64_t)strlen(candidate));
    if (d > (longer + 2) / 3 || (*search->best && d >= search->distance)) return;
    snprintf(search->best, sizeof search->best, "%s", candidate);
    search->distance = d;
}

void mt_nearest_path(char best[MT_NEAREST_PATH], const char *path)
{
    char whole[MT_NEAREST_PATH - sizeof((mt_nearest *)0)->best];
    *best = '\0';
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    if (n == 0 || n >= sizeof whole) return;
    snprintf(whole, sizeof whole, "%.*s", (int)n, path);
    const char *slash = strrchr(whole, '/');
    const char *name = slash ? slash + 1 : whole;
    char folder[sizeof whole] = ".";
    if (slash) snprintf(folder, sizeof folder, "%.*s", slash == whole ? 1 : (int)(slash - whole), whole);

    mt_nearest near = { .word = name };
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));) {
        const bool itself = strcmp(e->d_name, name) == 0; /* a link to a file that is gone */
        if (!itself && e->d_name[0] != '.' && strlen(e->d_name) < sizeof near.best) mt_nearest_offer(&near, e->d_name);
    }
    if (d) closedir(d);
    /* Equal extensions make names look closer than they are: train.json is not test.json. */
    if (*near.best && near.distance <= ((int)strcspn(name, ".") + 2) / 3)
        snprintf(best, MT_NEAREST_PATH, "%.*s%s", (int)(name - whole), whole, near.best);
}
