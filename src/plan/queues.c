#include "plan/queues.h"

#include "base/mem.h"

#include <math.h>

enum { ADAM_BYTES = 26 }; /* host memory read and written a parameter */

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

int mt_queues_add(mt_queues *q, mt_queue queue, double work, int after1, int after2, int after3)
{
    if (q->failed || (q->n == q->cap && !grow(q))) return -1;
    int id = (int)q->n++;
    q->tasks[id] = (mt_task){ .work = work, .after = { after1, after2, after3 }, .next = -1, .end = -1 };
    if (q->last[queue] >= 0)
        q->tasks[q->last[queue]].next = id;
    else
        q->first[queue] = id;
    q->last[queue] = id;
    return id;
}

static bool done(const mt_queues *q, int id) { return id < 0 || q->tasks[id].end >= 0; }

/* Work a second of each queue, given which are busy. */
static void rates_of(double rate[MT_QUEUES], const bool busy[MT_QUEUES], const mt_machine *m)
{
    bool both = busy[MT_Q_IN] && busy[MT_Q_OUT];
    rate[MT_Q_IN] = both ? fmin(m->copy_both, m->copy_in) : m->copy_in;
    rate[MT_Q_OUT] = both ? fmin(m->copy_both, m->copy_out) : m->copy_out;
    rate[MT_Q_COMPUTE] = busy[MT_Q_IN] || busy[MT_Q_OUT] ? 1 - m->copy_toll : 1;
    double copied = busy[MT_Q_IN] * rate[MT_Q_IN] + busy[MT_Q_OUT] * rate[MT_Q_OUT];
    /* Adam never gets less than a third of the memory: there the copies give way. */
    double left = fmax(m->host_bandwidth - copied, m->host_bandwidth / 3);
    rate[MT_Q_ADAM] = fmin(m->adam_host, left / ADAM_BYTES);
    double used = rate[MT_Q_ADAM] * ADAM_BYTES, room = m->host_bandwidth - used;
    if (busy[MT_Q_ADAM] && copied > room)
        for (int i = MT_Q_IN; i <= MT_Q_OUT; i++) rate[i] *= room / copied;
}

bool mt_queues_run(mt_queues *q, const mt_machine *m)
{
    int head[MT_QUEUES];
    double left[MT_QUEUES], rate[MT_QUEUES], now = 0;
    bool busy[MT_QUEUES] = { 0 };
    for (int i = 0; i < MT_QUEUES; i++) head[i] = q->first[i];
    for (;;) {
        bool any = false;
        for (int i = 0; i < MT_QUEUES; i++) {
            if (!busy[i] && head[i] >= 0) {
                const mt_task *t = &q->tasks[head[i]];
                busy[i] = done(q, t->after[0]) && done(q, t->after[1]) && done(q, t->after[2]);
                left[i] = t->work;
            }
            any |= busy[i];
        }
        if (!any) break;
        rates_of(rate, busy, m);
        double step = INFINITY;
        for (int i = 0; i < MT_QUEUES; i++)
            if (busy[i]) step = fmin(step, left[i] / rate[i]);
        now += step;
        for (int i = 0; i < MT_QUEUES; i++) {
            if (!busy[i]) continue;
            left[i] -= step * rate[i];
            if (left[i] > 1e-9 * q->tasks[head[i]].work) continue;
            q->tasks[head[i]].end = now;
            head[i] = q->tasks[head[i]].next;
            busy[i] = false;
        }
    }
    for (int i = 0; i < MT_QUEUES; i++)
        if (head[i] >= 0) return false;
    return !q->failed;
}
