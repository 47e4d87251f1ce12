/* diff.c - which settings differ between two runs. */
#include "settings/table.h"

#include <string.h>

const char *mt_setting_class_name(mt_setting_class cls)
{
    static const char *const names[] = { [MT_CLASS_FREE] = "free",   [MT_CLASS_ARITHMETIC] = "arithmetic",
                                         [MT_CLASS_PLACE] = "place", [MT_CLASS_STATE] = "state",
                                         [MT_CLASS_DATA] = "data",   [MT_CLASS_MODEL] = "model" };
    return names[cls];
}

static mt_rc add_change(mt_setting_changes *out, const mt_setting *row, const mt_str *was, const mt_str *now)
{
    mt_flag_text key = mt__setting_key(row);
    mt_setting_change c = {
        .key = mt_arena_strndup(&out->arena, key.s, strlen(key.s)),
        .cls = row->cls,
        .was = mt_arena_strndup(&out->arena, was->s, was->n),
        .now = mt_arena_strndup(&out->arena, now->s, now->n),
    };
    if (!c.key || !c.was || !c.now) return MT_ENOMEM;
    out->items[out->n++] = c;
    return MT_OK;
}

/* Neither run has said anything about it: a checkpoint has the default of its day. */
static bool only_the_default_changed(const mt_setting *row, const mt_str *was, const mt_settings *now)
{
    if (!row->old_default || row->type != MT_SETTING_STR || strcmp(was->s, row->old_default) != 0) return false;
    return strcmp(*(const char *const *)mt__setting_value(now, row), row->fallback) == 0;
}

mt_rc mt_settings_diff(mt_setting_changes *out, const mt_settings *was, const mt_settings *now, mt_err *err)
{
    *out = (mt_setting_changes){ 0 };
    mt_str a = { 0 }, b = { 0 };
    mt_rc rc = MT_OK;
    for (size_t i = 0; i < mt__n_settings && !rc; i++) {
        const mt_setting *row = &mt__settings[i];
        if (row->flag_only) continue;
        mt_str_clear(&a);
        mt_str_clear(&b);
        mt__setting_format(&a, was, row);
        mt__setting_format(&b, now, row);
        if (a.failed || b.failed)
            rc = MT_ENOMEM;
        else if (strcmp(a.s, b.s) != 0 && !only_the_default_changed(row, &a, now))
            rc = add_change(out, row, &a, &b);
    }
    mt_str_free(&a);
    mt_str_free(&b);
    if (!rc) return MT_OK;
    mt_setting_changes_free(out);
    return mt_no_memory(err, "comparing settings");
}

void mt_setting_changes_free(mt_setting_changes *changes)
{
    mt_arena_free(&changes->arena);
    changes->n = 0;
}
