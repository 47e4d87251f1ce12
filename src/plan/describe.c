/* describe.c - describes a plan: in words, and its buffers as JSON. */
#include "base/json_write.h"
#include "base/str.h"
#include "plan/search.h"

#include <stdio.h>

/* "every layer keeps everything", or how many keep what.  Norms and activations are cheap to recompute. */
static void put_kept(mt_str *s, const mt_plan *p)
{
    char mixer[64];
    snprintf(mixer, sizeof mixer, "its input and %s", p->model->kinds[0].mixer_name);
    const char *const keeps[MT_KEEPS] = {
        "nothing", "its input", mixer, "all except norms and activations", "all except activations", "everything"
    };
    const int64_t L = p->model->config->L, lowest = mt_plan_lowest_layer(p), read = L - lowest; /* layers with a backward */
    int64_t n[MT_KEEPS] = { 0 }, on_host = 0, some = 0;
    if (!read) mt_str_puts(s, "no layer keeps anything");
    for (int64_t l = lowest; l < L; l++) {
        n[p->place.layers[l].keep]++;
        on_host += p->place.layers[l].keep != MT_KEEP_NOTHING && p->place.layers[l].place == MT_HOST;
    }
    for (int k = MT_KEEPS - 1; k > MT_KEEP_NOTHING; k--)
        if (n[k] && n[k] == read)
            mt_str_printf(s, "%s keeps %s", lowest ? "every layer with a backward" : "every layer", keeps[k]);
        else if (n[k] && n[k] == read - n[MT_KEEP_NOTHING] && k == MT_KEEP_INPUT)
            mt_str_printf(s, "one in %d layers keeps its input", p->longest_segment);
        else if (n[k])
            mt_str_printf(s, "%s%lld %s", some++ ? ", " : "layers keep: ", (long long)n[k], keeps[k]);
    if (on_host && on_host < read - n[MT_KEEP_NOTHING])
        mt_str_printf(s, " (%lld of them in host memory)", (long long)on_host);
    else if (on_host)
        mt_str_puts(s, " in host memory");
}

void mt_plan_describe_kept(const mt_plan *p, const mt_limits *l, char *out, size_t n)
{
    mt_str s = { 0 };
    const int first = mt_min_int(mt_plan_lowest_layer(p), (int)p->model->config->L - 1);
    bool more = p->longest_segment < mt_limits_longest(l, p->model) || p->place.layers[first].keep > MT_KEEP_INPUT;
    put_kept(&s, p);
    if (l->exact)
        mt_str_printf(&s, ", as set by checkpoint_interval %d (strict_checkpointing)", l->interval);
    else if (more && l->interval > 1)
        mt_str_printf(&s, ", more than checkpoint_interval %d requires, because it fits", l->interval);
    if (p->place.n_slabs)
        mt_str_printf(&s, "; %d gradient slabs of at most %d", p->place.n_slabs, l->n_slabs ? l->n_slabs : p->place.n_slabs);
    snprintf(out, n, "%s", s.s ? s.s : "");
    mt_str_free(&s);
}

void mt_plan_describe(const mt_plan *p, char *out, size_t n)
{
    mt_str s = { 0 };
    int homes = 0, resident = 0, staged = 0;
    int64_t pieces = 0, hosted = 0; /* elements */
    const int64_t parts = mt_plan_by_shares(p) ? mt_arithmetic_parts(&p->arithmetic) : 1,
                  tokens = (p->job.step_tokens + parts - 1) / parts;
    int64_t sweeps =
        (tokens + p->place.sweep_tokens - 1) / p->place.sweep_tokens * (mt_plan_by_shares(p) ? mt_plan_rounds(p) : 1);
    for (int u = 0; u < p->model->n_units; u++) {
        homes += p->place.units[u].home == MT_DEVICE;
        resident += p->place.units[u].resident;
        staged += p->place.units[u].site == MT_SITE_STAGED;
        pieces += p->place.units[u].in_pieces;
        if (p->place.units[u].site == MT_SITE_HOST) hosted += p->model->units[u].layout->n_train;
    }
    if (mt_plan_machines(p) > 1) mt_str_printf(&s, "%d machines; ", mt_plan_machines(p));
    if (mt_plan_lanes(p) > 1)
        mt_str_printf(&s, "%d devices%s; on each ", mt_plan_lanes(p),
                      p->place.gather                  ? ", which add their sums and gather weights between them"
                      : p->place.fold == MT_FOLD_PEERS ? ", which add their sums between them"
                                                       : "");
    mt_str_printf(
        &s, "%lld sweep%s of micro-batches of %lld tokens; %d units: %d resident, %d with their home on the device, %d staged; ",
        (long long)sweeps, sweeps == 1 ? "" : "s", (long long)p->arithmetic.micro_tokens, p->model->n_units, resident, homes,
        staged);
    if (pieces) mt_str_printf(&s, "%.0f%% of the host's updates in pieces; ", 100 * (double)pieces / (double)hosted);
    put_kept(&s, p);
    snprintf(out, n, "%s", s.s ? s.s : "");
    mt_str_free(&s);
}

void mt_plan_put_buffers(mt_json_out *j, const mt_plan *p)
{
    mt_json_list(j, "buffers", MT_JSON_LINES);
    for (const mt_buffer *b = p->buffers; b < p->buffers + p->n_buffers; b++) {
        mt_json_map(j, NULL, MT_JSON_FLAT);
        mt_json_put_str(j, "name", b->name);
        mt_json_put_str(j, "place", b->place == MT_HOST ? "host" : "device");
        mt_json_put_size(j, "bytes", b->bytes);
        mt_json_end(j);
    }
    mt_json_end(j);
}
