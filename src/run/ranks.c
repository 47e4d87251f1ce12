#include "run/ranks.h"

#include "base/clock.h"
#include "base/disk.h"
#include "base/file.h"
#include "base/outfile.h"
#include "base/rng.h"
#include "plan/host.h"
#include "plan/rates.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* -- turns ----------------------------------------------------------------------------------------- */

/* A record that other ranks may have to wait for, for any time. */
static mt_rc tell_patiently(mt_comm *c, const void *mine, size_t n, void *all, const char *what, mt_err *err)
{
    const double was = c->patience_s;
    c->patience_s = 0;
    mt_rc rc = c->api->tell(c, mine, n, all, what, err);
    c->patience_s = was;
    return rc;
}

static mt_rc meet(mt_comm *c, const char *what, mt_err *err)
{
    char *all = mt_calloc((size_t)c->n_ranks, 1), mine = 1;
    mt_rc rc = all ? tell_patiently(c, &mine, 1, all, what, err) : mt_no_memory(err, "a record");
    mt_free(all);
    return rc;
}

mt_rc mt_ranks_in_turn(mt_comm *c, mt_rc (*work)(void *user, mt_err *err), void *user, const char *what, mt_err *err)
{
    if (c->n_ranks == 1) return work(user, err);
    if (c->rank == 0) MT_TRY(work(user, err));
    MT_TRY(meet(c, what, err));
    return c->rank ? work(user, err) : MT_OK;
}

mt_rc mt_ranks_take_first(mt_comm *c, void *data, size_t n, const char *what, mt_err *err)
{
    if (c->n_ranks == 1 || n == 0) return MT_OK;
    char *all = mt_calloc((size_t)c->n_ranks, n);
    mt_rc rc = all ? tell_patiently(c, data, n, all, what, err) : mt_no_memory(err, "%s", what);
    if (!rc) memcpy(data, all, n);
    mt_free(all);
    return rc;
}

/* -- settings -------------------------------------------------------------------------------------- */

/* Settings that may differ between machines. */
static bool belongs_to_machine(const mt_setting_change *c)
{
    static const char *const own[] = { "model.device",        "model.devices",     "dataset.dataset_dir",
                                       "dataset.path",        "dataset.cache_dir", "dataset.cache_size",
                                       "dataset.num_workers", "save.output_dir",   "run.comm_timeout" };
    static const char *const sections[] = { "memory.", "logging." };
    if (c->cls == MT_CLASS_PLACE) return true;
    for (size_t i = 0; i < MT_COUNT(own); i++)
        if (strcmp(c->key, own[i]) == 0) return true;
    for (size_t i = 0; i < MT_COUNT(sections); i++)
        if (strncmp(c->key, sections[i], strlen(sections[i])) == 0) return c->cls == MT_CLASS_FREE && !strstr(c->key, "sample_");
    return false;
}

static mt_rc differ(const mt_comm *c, const char *what, const char *first, const char *here, mt_err *err)
{
    return mt_fail(err, MT_EINVAL, "%s is %s on rank 0 (%s) and %s on rank %d (%s): every rank of a run needs the same", what,
                   first, c->hosts[0], here, c->rank, c->hosts[c->rank]);
}

static mt_rc compare_with(const mt_comm *c, const mt_settings *first, const mt_settings *here, mt_err *err)
{
    mt_setting_changes changes;
    mt_rc rc = mt_settings_diff(&changes, first, here, err);
    for (size_t i = 0; !rc && i < changes.n; i++)
        if (!belongs_to_machine(&changes.items[i]))
            rc = differ(c, changes.items[i].key, changes.items[i].was, changes.items[i].now, err);
    mt_setting_changes_free(&changes);
    return rc;
}

/* The text of rank 0, of any length. */
static mt_rc take_text(mt_comm *c, mt_str *text, const char *what, mt_err *err)
{
    uint64_t n = text->n;
    MT_TRY(mt_ranks_take_first(c, &n, sizeof n, what, err));
    if (c->rank == 0) return mt_ranks_take_first(c, text->s, text->n, what, err);
    mt_str_clear(text);
    for (uint64_t i = 0; i < n; i++) mt_str_putc(text, ' ');
    return mt_str_ok(text) ? mt_ranks_take_first(c, text->s, n, what, err) : mt_no_memory(err, "%s", what);
}

mt_rc mt_ranks_compare_settings(mt_comm *c, const char *version, const mt_settings *s, mt_err *err)
{
    mt_rank_fact facts[] = { { .what = "megatrain's version" } };
    if (c->n_ranks == 1) return MT_OK;
    snprintf(facts[0].is, sizeof facts[0].is, "%s", version);
    MT_TRY(mt_ranks_compare(c, facts, MT_COUNT(facts), err));
    mt_str text = { 0 };
    mt_settings first;
    mt_settings_write_yaml(s, &text);
    mt_rc rc = mt_str_ok(&text) ? take_text(c, &text, "the settings", err) : mt_no_memory(err, "the settings");
    if (!rc) rc = mt_settings_init(&first, err);
    if (rc) return mt_str_free(&text), rc;
    rc = mt_settings_parse(&first, text.s, text.n, "the settings of rank 0", err);
    if (!rc) rc = compare_with(c, &first, s, err);
    mt_settings_deinit(&first);
    mt_str_free(&text);
    return rc ? rc : meet(c, "the comparison of settings", err);
}

/* -- facts ----------------------------------------------------------------------------------------- */

mt_rc mt_ranks_compare(mt_comm *c, const mt_rank_fact *facts, size_t n, mt_err *err)
{
    if (c->n_ranks == 1) return MT_OK;
    mt_rank_fact *first = mt_calloc(n, sizeof *first);
    if (!first) return mt_no_memory(err, "comparing ranks");
    memcpy(first, facts, n * sizeof *first);
    mt_rc rc = mt_ranks_take_first(c, first, n * sizeof *first, "what ranks compare", err);
    for (size_t i = 0; !rc && i < n; i++)
        if (strcmp(first[i].is, facts[i].is) != 0) rc = differ(c, facts[i].what, first[i].is, facts[i].is, err);
    mt_free(first);
    return rc ? rc : meet(c, "the comparison of ranks", err); /* no rank continues before all have compared equal */
}

/* -- the network ----------------------------------------------------------------------------------- */

/* Parcels that take less than this together need not take turns: on a fast network the time between them counts for more.  Ranks of
 * one machine have no link to share. */
static void set_window(mt_comm *c, double rate)
{
    const double WINDOW_S = 0.005;
    c->window_bytes = c->n_local == c->n_ranks ? INFINITY : WINDOW_S * rate;
}

static void count_moved(void *self, void *mark)
{
    (void)mark;
    --*(int *)self;
}

static mt_rc slowest(mt_comm *c, double *rate, mt_err *err)
{
    double *all = mt_calloc((size_t)c->n_ranks, sizeof *all);
    mt_rc rc = all ? c->api->tell(c, rate, sizeof *rate, all, "the network's rate", err) : mt_no_memory(err, "rates");
    for (int r = 0; !rc && r < c->n_ranks; r++)
        if (all[r] < *rate) *rate = all[r];
    mt_free(all);
    return rc;
}

/* Every rank sends equal parts of these bytes to all others. */
static mt_rc swap_parcels(mt_comm *c, char *out, char *in, size_t bytes, mt_err *err)
{
    const int n = c->n_ranks;
    const size_t each = bytes / (size_t)(n - 1);
    int left = 2 * (n - 1);
    mt_parcel p = { .tag = 0, .bytes = each, .what = "a parcel that is timed", .done = count_moved, .self = &left };
    for (int k = 1; k < n; k++) {
        p.peer = (c->rank + k) % n, p.sends = true, p.data = out + (size_t)(k - 1) * each;
        MT_TRY(c->api->post(c, &p, err));
        p.peer = (c->rank + n - k) % n, p.sends = false, p.in_turn = true, p.data = in + (size_t)(k - 1) * each;
        MT_TRY(c->api->post(c, &p, err));
    }
    while (left > 0) MT_TRY(c->api->advance(c, mt_now_ns() + 100000000, err));
    return MT_OK;
}

/* Bytes per second, each way, while all ranks send to all, as in a step: many senders at one receiver can be much slower than pairs
 * of ranks.  The rate of the slowest rank. */
static mt_rc time_parcels(mt_comm *c, char *out, char *in, size_t bytes, int rounds, double *rate, mt_err *err)
{
    MT_TRY(meet(c, "the measurement of the network", err));
    const double start = mt_now_s();
    for (int i = 0; i < rounds; i++) MT_TRY(swap_parcels(c, out, in, bytes, err));
    *rate = (double)bytes * rounds / (mt_now_s() - start);
    return slowest(c, rate, err);
}

/* A little data makes the connections and shows about how fast they are.  Then a few rounds of a quarter of a second each, because a
 * step, too, waits for every layer's sums; on a fast network they are shorter. */
static mt_rc measure_network(mt_comm *c, double *rate, mt_err *err)
{
    enum { LITTLE = 4 << 20, MUCH = 64 << 20, LEAST = 64 << 10, ROUNDS = 4 };
    const double ROUND_S = 0.25;
    char *out = mt_calloc(1, MUCH), *in = mt_calloc(1, MUCH);
    mt_rc rc = out && in ? MT_OK : mt_no_memory(err, "measuring the network");
    for (int i = 0; !rc && i < 2; i++) rc = time_parcels(c, out, in, LITTLE, 1, rate, err);
    const double bytes = fmin(fmax(ROUND_S * *rate, LEAST), MUCH);
    set_window(c, *rate);
    if (!rc) rc = time_parcels(c, out, in, (size_t)bytes, ROUNDS, rate, err);
    mt_free(out);
    mt_free(in);
    return rc;
}

/* The file that the first rank remembers the rate in: another set of hosts, or of ranks on them, has another one. */
static char *network_path(const mt_comm *c)
{
    mt_str key = { 0 };
    mt_str_printf(&key, "2|%d", c->n_ranks); /* 2: how it is measured */
    for (int r = 0; r < c->n_ranks; r++) mt_str_printf(&key, "|%s", c->hosts[r]);
    char *path = mt_str_ok(&key) ? mt_rates_path("network", key.s) : NULL;
    mt_str_free(&key);
    return path;
}

/* True everywhere if it is true on any rank. */
static mt_rc any_rank(mt_comm *c, bool *is, mt_err *err)
{
    bool *all = mt_calloc((size_t)c->n_ranks, sizeof *all);
    mt_rc rc = all ? c->api->tell(c, is, sizeof *is, all, "the load of the cores", err) : mt_no_memory(err, "a record");
    for (int r = 0; !rc && r < c->n_ranks; r++) *is |= all[r];
    mt_free(all);
    return rc;
}

mt_rc mt_ranks_network(mt_comm *c, double *rate, mt_err *err)
{
    const mt_kept_rate kept = { "network", rate };
    *rate = 0;
    if (c->n_ranks == 1) return MT_OK;
    char *path = c->rank == 0 ? network_path(c) : NULL;
    (void)mt_rates_recall(path, &kept, 1);
    mt_rc rc = mt_ranks_take_first(c, rate, sizeof *rate, "the network's rate", err);
    if (!rc && *rate == 0) {
        const mt_cores_used before = mt_cores_look("");
        rc = measure_network(c, rate, err);
        const mt_cores_used after = mt_cores_look("");
        bool crowded = mt_cores_crowded(&before, &after, 1);
        if (!rc) rc = any_rank(c, &crowded, err);
        if (!rc) mt_rates_remember(path, &kept, 1, !crowded);
    }
    set_window(c, *rate);
    mt_free(path);
    return rc;
}

/* -- one directory --------------------------------------------------------------------------------- */

uint64_t mt_ranks_token(void)
{
    const uint64_t token = mt_rng_u64((uint64_t)mt_now_ns(), (uint64_t)getpid(), (uint64_t)time(NULL));
    return token ? token : 1;
}

enum { TOKEN_BYTES = 32, LOOKS = 50, LOOK_MS = 100 };

/* A network file system may show a new file late. */
static bool token_is_there(const char *path, const char *token)
{
    for (int i = 0; i < LOOKS; i++) {
        mt_err ignored = { 0 };
        char *text = NULL;
        size_t n = 0;
        mt_rc rc = mt_file_read_own(&text, &n, path, TOKEN_BYTES, &ignored);
        const bool same = !rc && n == strlen(token) && memcmp(text, token, n) == 0;
        mt_free(text);
        if (same) return true;
        nanosleep(&(struct timespec){ .tv_nsec = LOOK_MS * 1000000L }, NULL);
    }
    return false;
}

static mt_rc look_for_token(const mt_comm *c, const char *path, const char *token, const char *dir, mt_err *err)
{
    if (token_is_there(path, token)) return MT_OK;
    return mt_fail(
        err, MT_EINVAL,
        "the output directory %s is not the same one on rank %d (%s) as on rank 0 (%s): all ranks of a run write into one "
        "directory.  Choose an --output-dir on a file system that all machines share",
        dir, c->rank, c->hosts[c->rank], c->hosts[0]);
}

mt_rc mt_ranks_share_dir(mt_comm *c, const char *dir, mt_err *err)
{
    char token[TOKEN_BYTES] = "";
    if (c->n_ranks == 1) return MT_OK;
    char *path = mt_path_join(dir, ".ranks");
    if (!path) return mt_no_memory(err, "a name");
    snprintf(token, sizeof token, "%016llx", (unsigned long long)mt_ranks_token());
    mt_rc rc = c->rank ? MT_OK : mt_outfile_save(path, token, strlen(token), err);
    if (!rc) rc = mt_ranks_take_first(c, token, sizeof token, "the token in the output directory", err);
    if (!rc && c->rank) rc = look_for_token(c, path, token, dir, err);
    if (!rc) rc = meet(c, "the token in the output directory", err);
    if (c->rank == 0) (void)mt_disk_remove(path, false); /* if it stays, the next run writes over it */
    mt_free(path);
    return rc;
}
