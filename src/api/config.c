/* config.c - errors, notices and configurations.
 *
 * A configuration is a list of files read and keys set.  It is applied in order to fresh settings whenever they are needed,
 * because settings can be checked only once and a caller may use a configuration several times. */
#include "api/api.h"
#include "base/file.h"
#include "base/log.h"
#include "base/yaml.h"
#include "hub/hub.h"

#include <stdio.h>
#include <string.h>

/* -- errors and notices ---------------------------------------------------------------------------- */

/* The public and internal statuses have the same values. */
#define API_SAME(name, text) _Static_assert((int)MEGATRAIN_##name == (int)MT_##name, "megatrain.h and err.h differ in " #name);
MT_RC_LIST(API_SAME)
_Static_assert((int)MEGATRAIN_DEBUG == (int)MT_LOG_DEBUG && (int)MEGATRAIN_INFO == (int)MT_LOG_INFO &&
                   (int)MEGATRAIN_WARNING == (int)MT_LOG_WARN,
               "megatrain.h and log.h differ");

static const char *const status_names[] = {
#define API_NAME(name, text) "MEGATRAIN_" #name,
    MT_RC_LIST(API_NAME)
};

const char *megatrain_version(void) { return MT_VERSION; }

const char *megatrain_status_name(megatrain_status status)
{
    return (size_t)status < MT_COUNT(status_names) ? status_names[status] : "an unknown status";
}

mt__api_call mt__api_begin(void) { return (mt__api_call){ .own = mt_locale_enter() }; }

megatrain_status mt__api_end(mt__api_call *call, megatrain_error *error, mt_rc rc)
{
    mt_locale_leave(call->own);
    if (error) {
        error->status = (megatrain_status)rc;
        snprintf(error->message, sizeof error->message, "%s", rc ? call->err.msg : "");
    }
    return (megatrain_status)rc;
}

mt_rc mt__api_need(const void *pointer, const char *name, mt_err *err)
{
    return pointer ? MT_OK : mt_fail(err, MT_EINVAL, "%s is NULL", name);
}

/* The sink is called under the log's lock, and setting it takes that lock, so the pair is always consistent. */
static struct {
    void (*receive)(void *user, megatrain_level level, const char *text);
    void *user;
} notices;

static void pass_notice(void *user, mt_log_level level, const char *text)
{
    (void)user;
    notices.receive(notices.user, (megatrain_level)level, text);
}

void megatrain_set_notices(void (*receive)(void *user, megatrain_level level, const char *text), void *user)
{
    mt_log_set_sink(NULL, NULL); /* nothing reads the pair while it changes */
    notices.receive = receive;
    notices.user = user;
    if (receive) mt_log_set_sink(pass_notice, NULL);
}

/* -- the hub --------------------------------------------------------------------------------------- */

static bool api_is_here(const char *name) { return mt_dir_exists(name) || mt_file_exists(name); }

static mt_rc api_find_model(const char *name, const char *revision, int needs, char **dir, mt_err *err)
{
    mt_hub *hub;
    *dir = NULL;
    if (api_is_here(name)) return (*dir = mt_strdup(name)) ? MT_OK : mt_no_memory(err, "a path");
    MT_TRY(mt_hub_open(&hub, &(mt_hub_options){ 0 }, err));
    mt_rc rc = mt_hub_model(hub, name, revision, needs, dir, err);
    mt_hub_close(hub);
    return rc;
}

static mt_rc api_find_dataset(const mt_hub_query *q, mt_hub_dataset *out, mt_err *err)
{
    mt_hub *hub;
    MT_TRY(mt_hub_open(&hub, &(mt_hub_options){ 0 }, err));
    mt_rc rc = mt_hub_dataset_open(hub, q, out, err);
    mt_hub_close(hub);
    return rc;
}

const mt_finder mt__api_finder = { .is_here = api_is_here, .model = api_find_model, .dataset = api_find_dataset };

/* -- configurations -------------------------------------------------------------------------------- */

/* A file and its text, or a key and its value. */
typedef struct config_entry {
    char *name, *text;
    size_t n;
    bool file;
} config_entry;

struct megatrain_config {
    config_entry *items;
    size_t n, cap;
};

static mt_rc apply_entry(mt_settings *s, const config_entry *e, mt_err *err)
{
    return e->file ? mt_settings_parse(s, e->text, e->n, e->name, err) : mt_settings_set(s, e->name, e->text, e->name, err);
}

static mt_rc apply_entries(mt_settings *s, const megatrain_config *c, mt_err *err)
{
    for (size_t i = 0; i < c->n; i++) MT_TRY(apply_entry(s, &c->items[i], err));
    return MT_OK;
}

mt_rc mt__api_settings(mt_settings *out, const megatrain_config *c, int needs, mt_err *err)
{
    memset(out, 0, sizeof *out);
    MT_TRY(mt__api_need(c, "config", err));
    MT_TRY(mt_settings_init(out, err));
    MT_TRY(apply_entries(out, c, err));
    MT_TRY(mt_settings_check(out, needs, err));
    for (size_t i = 0; i < out->n_notices; i++) mt_info("%s", out->notices[i]);
    return MT_OK;
}

/* Adds the entry if it can be applied after the existing ones. */
static mt_rc add_entry(megatrain_config *c, config_entry *e, mt_err *err)
{
    mt_settings s;
    if (!e->name || !e->text) return mt_no_memory(err, "the configuration");
    MT_TRY(mt_settings_init(&s, err));
    mt_rc rc = apply_entries(&s, c, err);
    if (!rc) rc = apply_entry(&s, e, err);
    mt_settings_deinit(&s);
    if (!rc) rc = mt_grow(&c->items, &c->cap, c->n + 1, sizeof *c->items, err);
    if (rc) return rc;
    c->items[c->n++] = *e;
    *e = (config_entry){ 0 };
    return MT_OK;
}

static void entry_free(config_entry *e)
{
    mt_free(e->name);
    mt_free(e->text);
}

static mt_rc config_read(megatrain_config *c, const char *path, mt_err *err)
{
    MT_TRY(mt__api_need(c, "config", err));
    MT_TRY(mt__api_need(path, "path", err));
    config_entry e = { .name = mt_strdup(path), .file = true };
    mt_rc rc = mt_file_read(&e.text, &e.n, path, MT_YAML_MAX_BYTES, err);
    if (!rc) rc = add_entry(c, &e, err);
    entry_free(&e);
    return rc;
}

static mt_rc config_set(megatrain_config *c, const char *key, const char *value, mt_err *err)
{
    MT_TRY(mt__api_need(c, "config", err));
    MT_TRY(mt__api_need(key, "key", err));
    MT_TRY(mt__api_need(value, "value", err));
    config_entry e = { .name = mt_strdup(key), .text = mt_strdup(value) };
    mt_rc rc = add_entry(c, &e, err);
    entry_free(&e);
    return rc;
}

static mt_rc config_create(megatrain_config **out, mt_err *err)
{
    MT_TRY(mt__api_need(out, "out", err));
    *out = mt_calloc(1, sizeof **out);
    return *out ? MT_OK : mt_no_memory(err, "the configuration");
}

megatrain_status megatrain_config_create(megatrain_config **out, megatrain_error *error)
{
    mt__api_call call = mt__api_begin();
    return mt__api_end(&call, error, config_create(out, &call.err));
}

megatrain_status megatrain_config_read(megatrain_config *config, const char *path, megatrain_error *error)
{
    mt__api_call call = mt__api_begin();
    return mt__api_end(&call, error, config_read(config, path, &call.err));
}

megatrain_status megatrain_config_set(megatrain_config *config, const char *key, const char *value, megatrain_error *error)
{
    mt__api_call call = mt__api_begin();
    return mt__api_end(&call, error, config_set(config, key, value, &call.err));
}

void megatrain_config_free(megatrain_config *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n; i++) entry_free(&c->items[i]);
    mt_free(c->items);
    mt_free(c);
}
