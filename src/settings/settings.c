#include "settings/settings.h"

#include "base/nearest.h"
#include "settings/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

mt_rc mt__setting_default(mt_settings *s, const mt_setting *row, mt_err *err)
{
    s->sources[row - mt__settings] = (mt_setting_source){ MT_ORIGIN_DEFAULT, "", 0 };
    return mt__setting_convert_text(s, row, row->fallback, mt__setting_key(row).s, err);
}

mt_rc mt_settings_init(mt_settings *s, mt_err *err)
{
    memset(s, 0, sizeof *s);
    s->config_path = "";
    for (size_t i = 0; i < mt__n_settings; i++) {
        mt_rc rc = mt__setting_default(s, &mt__settings[i], err);
        if (!rc) continue;
        mt_settings_deinit(s);
        return rc;
    }
    return MT_OK;
}

void mt_settings_deinit(mt_settings *s)
{
    mt_arena_free(&s->arena);
    memset(s, 0, sizeof *s);
}

/* The row of "section.key"; the message suggests the nearest. */
static mt_rc find_row(const mt_setting **out, const char *key, const char *flag, mt_err *err)
{
    mt_nearest search = { .word = key };
    for (size_t i = 0; i < mt__n_settings; i++) {
        mt_flag_text name = mt__setting_key(&mt__settings[i]);
        if (strcmp(name.s, key) == 0) return *out = &mt__settings[i], MT_OK;
        mt_nearest_offer(&search, name.s);
    }
    const char *best = search.best;
    return mt_fail(err, MT_EINVAL, "%s: no setting \"%.80s\"%s%s%s", flag, key, *best ? "; did you mean " : "", best,
                   *best ? "?" : "; write section.key, such as training.batch_size");
}

mt_rc mt_settings_set(mt_settings *s, const char *key, const char *value, const char *flag, mt_err *err)
{
    const mt_setting *row = NULL;
    MT_TRY(find_row(&row, key, flag, err));
    bool is_set = strcmp(flag, "--set") == 0;
    mt_yaml node = { .kind = MT_YAML_SCALAR, .text = value };
    if (is_set && *value && mt_yaml_is_null(&node)) return mt__setting_default(s, row, err);
    const char *source = mt_arena_strndup(&s->arena, flag, strlen(flag));
    char *where = mt_asprintf("%s%s%s", flag, is_set ? " " : "", is_set ? key : "");
    mt_rc rc = source && where ? mt__setting_convert_text(s, row, value, where, err) : mt_no_memory(err, "the value of %s", flag);
    mt_free(where);
    if (!rc) s->sources[row - mt__settings] = (mt_setting_source){ MT_ORIGIN_FLAG, source, 0 };
    return rc;
}

const mt_setting_source *mt__setting_source(const mt_settings *s, const char *section, const char *key)
{
    return &s->sources[mt__setting_find(section, key) - mt__settings];
}

mt_rc mt__settings_notice(mt_settings *s, mt_err *err, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (s->n_notices == MT_NOTICES_MAX || n < 0) return MT_OK;
    char *kept = mt_arena_strndup(&s->arena, text, strlen(text));
    if (!kept) return mt_no_memory(err, "a notice");
    s->notices[s->n_notices++] = kept;
    return MT_OK;
}

const char *mt_settings_model_dir(const mt_settings *s) { return s->model.dir ? s->model.dir : s->model.name; }

mt_rc mt_settings_place_model(mt_settings *s, const char *dir, mt_err *err)
{
    s->model.dir = mt_arena_strndup(&s->arena, dir, strlen(dir));
    return s->model.dir ? MT_OK : mt_no_memory(err, "a path");
}
