#include "base/fault.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int armed_kind = -1; /* -1: nothing armed */
static atomic_bool armed_kill;
static atomic_long left;
static atomic_bool delivered;

static void arm(mt_fault_kind kind, long let_through, bool kill_process)
{
    atomic_store(&delivered, false);
    atomic_store(&left, let_through);
    atomic_store(&armed_kill, kill_process);
    atomic_store(&armed_kind, (int)kind);
}

void mt_fault_arm(mt_fault_kind kind, long let_through) { arm(kind, let_through, false); }
void mt_fault_arm_kill(mt_fault_kind kind, long let_through) { arm(kind, let_through, true); }

bool mt_fault_disarm(void)
{
    atomic_store(&armed_kind, -1);
    return atomic_load(&delivered);
}

bool mt_fault(mt_fault_kind kind)
{
    if (atomic_load_explicit(&armed_kind, memory_order_relaxed) != (int)kind) return false;
    if (atomic_fetch_sub(&left, 1) != 0) return false;
    atomic_store(&delivered, true);
    if (atomic_load(&armed_kill)) kill(getpid(), SIGKILL);
    return true;
}

void mt_fault_from_env(void)
{
    static const char *const names[MT_FAULT_KINDS] = { "alloc", "device", "copy", "queue", "thread", "file" };
    const char *s = getenv("MT_FAULT");
    if (!s) return;
    bool kills = strncmp(s, "kill:", 5) == 0;
    if (kills) s += 5;
    for (int k = 0; k < MT_FAULT_KINDS; k++) {
        size_t n = strlen(names[k]);
        if (strncmp(s, names[k], n) == 0 && s[n] == ':') arm((mt_fault_kind)k, atol(s + n + 1), kills);
    }
}
