/* test.h - what every test file includes: cmocka, and a few habits. */
#ifndef MT_TEST_H
#define MT_TEST_H

/* cmocka wants these four before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MT_FIXTURE(name) (MT_TESTS_DIR "/fixtures/" name)

/* The call succeeds; otherwise its message is printed and the test fails. */
#define assert_ok(call)                                                                                                          \
    do {                                                                                                                         \
        mt_rc ok_rc_ = (call);                                                                                                   \
        if (ok_rc_) fail_msg("%s: %s: %s", #call, mt_rc_name(ok_rc_), err.msg);                                                  \
    } while (0)

/* The last error's message mentions `text`. */
#define assert_says(text)                                                                                                        \
    do {                                                                                                                         \
        if (!strstr(err.msg, text)) fail_msg("expected \"%s\" in: %s", text, err.msg);                                           \
    } while (0)

/* The machine lacks what the case needs: it ends here, with a word.  scripts/skipped.sh counts these lines. */
#define mt_skip(why)                                                                                                             \
    do {                                                                                                                         \
        print_message("skipped: %s\n", why);                                                                                     \
        skip();                                                                                                                  \
    } while (0)

/* Is the i-th of n cases tried?  All of them are, or MT_DRAWS of them, spread evenly (scripts/test.sh: few under the sanitizers,
 * which look at the code of answers that the release build proves). */
static inline bool test_tries(size_t i, size_t n)
{
    const char *draws = getenv("MT_DRAWS");
    size_t most = draws ? strtoull(draws, NULL, 10) : n;
    return most >= n || i * most / n != (i + 1) * most / n;
}

#define MT_TEST_MAIN(...)                                                                                                        \
    int main(void)                                                                                                               \
    {                                                                                                                            \
        const struct CMUnitTest tests[] = { __VA_ARGS__ };                                                                       \
        return cmocka_run_group_tests(tests, NULL, NULL);                                                                        \
    }

#endif
