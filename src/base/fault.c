#include "base/fault.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef enum mode { FAIL_ONCE, FAIL_FROM_THEN_ON, KILL } mode;

static atomic_int armed_kind = -1; /* -1: nothing armed */
static atomic_int armed_mode;
static atomic_long left, slow_us;
static atomic_bool delivered;

static void arm(mt_fault_kind kind, long let_through, mode how)
{
    atomic_store(&delivered, false);
    atomic_store(&left, let_through);
    atomic_store(&armed_mode, (int)how);
    atomic_store(&armed_kind, (int)kind);
}

void mt_fault_arm(mt_fault_kind kind, long let_through) { arm(kind, let_through, FAIL_ONCE); }
void mt_fault_arm_kill(mt_fault_kind kind, long let_through) { arm(kind, let_through, KILL); }

bool mt_fault_disarm(void)
{
    atomic_store(&armed_kind, -1);
    return atomic_load(&delivered);
}

bool mt_fault(mt_fault_kind kind)
{
    if (atomic_load_explicit(&armed_kind, memory_order_relaxed) != (int)kind) return false;
    long us = atomic_load(&slow_us), before = atomic_fetch_sub(&left, 1);
    if (us) nanosleep(&(struct timespec){ us / 1000000, us % 1000000 * 1000 }, NULL);
    if (before > 0 || (before < 0 && atomic_load(&armed_mode) != FAIL_FROM_THEN_ON)) return false;
    atomic_store(&delivered, true);
    if (atomic_load(&armed_mode) == KILL) kill(getpid(), SIGKILL);
    return true;
}

static bool skip_word(const char **s, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(*s, word, n) != 0) return false;
    *s += n;
    return true;
}

void mt_fault_from_env(void)
{
    static const char *const names[MT_FAULT_KINDS] = { "alloc:", "device:", "copy:", "queue:", "thread:", "file:", "parcel:" };
    const char *s = getenv("MT_FAULT");
    if (!s) return;
    if (skip_word(&s, "slow:")) {
        char *end;
        atomic_store(&slow_us, strtol(s, &end, 10));
        s = *end == ':' ? end + 1 : end;
    }
    mode how = FAIL_ONCE;
    if (skip_word(&s, "kill:"))
        how = KILL;
    else if (skip_word(&s, "full:"))
        how = FAIL_FROM_THEN_ON;
    for (int k = 0; k < MT_FAULT_KINDS; k++)
        if (skip_word(&s, names[k])) arm((mt_fault_kind)k, strtol(s, NULL, 10), how);
}
