#include "plan/queues.h"

#include "base/mem.h"

#include <math.h>

void mt_queues_clear(mt_queues *q)
{
    q->n = 0;
    q->failed = false;
    for (int i = 0; i < MT_QUEUES; i++) q->first[i] = q->last[i] = -1;
}

void mt_queues_free(mt_queues *q)
{
    mt_free(q->tasks);
    *q = (mt_queues){ 0 };
}

/* Apart from mt_queues_add because an mt_err takes longer to clear than a task to add. */
static bool grow(mt_queues *q)
{
    mt_err err = { 0 };
    if (mt_grow(&q->tasks, &q->cap, 2 * q->cap + 256, sizeof *q->tasks, &err)) q->failed = true;
    return !q->failed;
}

_Static_assert(MT_QUEUES - 1 == 8, "mt_queues_add fills in all that a task may come after");

int mt_queues_add(mt_queues *q, mt_queue queue, double work, int after1, int after2, int after3)
{
    if (q->failed || (q->n == q->cap && !grow(q))) return -1;
    int id = (int)q->n++;
    q->tasks[id] = (mt_task){ .work = work, .after = { after1, after2, after3, -1, -1, -1, -1, -1 }, .next = -1, .end = -1 };
    if (q->last[queue] >= 0)
        q->tasks[q->last[queue]].next = id;
    else
        q->first[queue] = id;
    q->last[queue] = id;
    return id;
}

void mt_queues_after(mt_queues *q, int task, int after)
{
    int *at = q->tasks[task].after;
    while (*at >= 0) at++;
    *at = after;
}

static bool is_copy(int i)
{
    return i == MT_Q_IN || i == MT_Q_OUT || i == MT_Q_BACK || i == MT_Q_PIECE_IN || i == MT_Q_PIECE_BACK;
}
static bool runs(unsigned busy, int i) { return busy >> i & 1; }

/* Work a second of each queue, given which are busy. */
static void rates_of(double rate[MT_QUEUES], unsigned busy, const mt_machine *m, mt_state_form form)
{
    double adam_bytes = mt_machine_update_bytes(form), copied = 0;
    bool ins = runs(busy, MT_Q_IN) || runs(busy, MT_Q_PIECE_IN);
    bool outs = runs(busy, MT_Q_OUT) || runs(busy, MT_Q_BACK) || runs(busy, MT_Q_PIECE_BACK);
    rate[MT_Q_IN] = rate[MT_Q_PIECE_IN] = ins && outs ? fmin(m->copy_both, m->copy_in) : m->copy_in;
    rate[MT_Q_OUT] = rate[MT_Q_BACK] = rate[MT_Q_PIECE_BACK] = ins && outs ? fmin(m->copy_both, m->copy_out) : m->copy_out;
    rate[MT_Q_COMPUTE] = ins || outs ? 1 - m->copy_toll : 1;
    rate[MT_Q_PIECE] = 1;
    rate[MT_Q_PEER] = m->peer;
    if (runs(busy, MT_Q_PIECE)) rate[MT_Q_COMPUTE] = 0; /* the device does one or the other */
    for (int i = 0; i < MT_QUEUES; i++)
        if (is_copy(i) && runs(busy, i)) copied += rate[i];
    /* Adam never gets less than a third of the memory: there the copies give way. */
    double left = fmax(m->host_bandwidth - copied, m->host_bandwidth / 3);
    rate[MT_Q_ADAM] = fmin(mt_machine_update_rate(m, form), left / adam_bytes);
    double used = rate[MT_Q_ADAM] * adam_bytes, room = m->host_bandwidth - used;
    for (int i = 0; i < MT_QUEUES && runs(busy, MT_Q_ADAM) && copied > room; i++)
        if (is_copy(i)) rate[i] *= room / copied;
}

/* When the task could begin for all it waits for; negative: not yet. */
static double ready_at(const mt_queues *q, int id)
{
    double at = 0;
    for (const int *after = q->tasks[id].after; after < q->tasks[id].after + MT_QUEUES - 1 && *after >= 0; after++) {
        double end = q->tasks[*after].end;
        if (end < 0) return -1;
        if (end > at) at = end;
    }
    return at;
}

/* The device has one copy engine per direction, which takes copies as they become ready: a gradient waits for all write-backs
 * that were queued before it.  True if queue i's head, ready at this time, must let another copy in its direction go first. */
static bool behind_another(const mt_queues *q, const int head[MT_QUEUES], unsigned busy, int i, double ready)
{
    /* Order of copies that become ready together. */
    static const int ways[2][3] = { { MT_Q_IN, MT_Q_PIECE_IN, -1 }, { MT_Q_BACK, MT_Q_PIECE_BACK, MT_Q_OUT } };
    if (!is_copy(i)) return false;
    const int *way = ways[i != MT_Q_IN && i != MT_Q_PIECE_IN];
    bool before = true; /* in the order of its direction */
    for (int k = 0; k < 3 && way[k] >= 0; k++) {
        int other = way[k];
        if (other == i) {
            before = false;
            continue;
        }
        if (runs(busy, other)) return true;
        double others = head[other] < 0 ? -1 : ready_at(q, head[other]);
        if (others >= 0 && (others < ready || (others == ready && before))) return true;
    }
    return false;
}

/* Queues that have begun the task at their head: one bit each. */
static unsigned begin_tasks(const mt_queues *q, const int head[MT_QUEUES], double left[MT_QUEUES], unsigned busy, int n)
{
    for (int i = 0; i < n; i++) {
        if (runs(busy, i) || head[i] < 0) continue;
        double ready = ready_at(q, head[i]);
        if (ready < 0 || behind_another(q, head, busy, i, ready)) continue;
        left[i] = q->tasks[head[i]].work;
        busy |= 1u << i;
    }
    return busy;
}

bool mt_queues_run(mt_queues *q, const mt_machine *m, mt_state_form form)
{
    int head[MT_QUEUES];
    double left[MT_QUEUES] = { 0 }, rates[1 << MT_QUEUES][MT_QUEUES], now = 0;
    unsigned busy = 0;
    int n = MT_QUEUES; /* those that have tasks: most plans have no pieces */
    while (n > 0 && q->first[n - 1] < 0) n--;
    for (int i = 0; i < 1 << n; i++) rates[i][0] = -1; /* not known yet */
    for (int i = 0; i < MT_QUEUES; i++) head[i] = q->first[i];
    while ((busy = begin_tasks(q, head, left, busy, n))) {
        double *rate = rates[busy], step = INFINITY;
        if (rate[0] < 0) rates_of(rate, busy, m, form);
        for (int i = 0; i < n; i++) {
            double ends = runs(busy, i) ? left[i] / rate[i] : INFINITY;
            step = ends < step ? ends : step;
        }
        now += step;
        for (int i = 0; i < n; i++) {
            if (!runs(busy, i)) continue;
            left[i] -= step * rate[i];
            if (left[i] > 1e-9 * q->tasks[head[i]].work) continue;
            q->tasks[head[i]].end = now;
            head[i] = q->tasks[head[i]].next;
            busy &= ~(1u << i);
        }
    }
    for (int i = 0; i < MT_QUEUES; i++)
        if (head[i] >= 0) return false;
    return !q->failed;
}
