#include "cli/complete.h"

#include "model/family.h"
#include "plan/gpus.h"
#include "plan/shapes.h"
#include "settings/settings.h"

#include <stdio.h>
#include <string.h>

static void put_families(mt_str *out)
{
    for (const mt_family *const *f = mt_families; *f; f++) mt_str_printf(out, "%s\n", (*f)->name);
}

/* A card with several memories has a row for each. */
static void put_gpus(mt_str *out)
{
    for (size_t i = 0; i < mt_n_gpus; i++)
        if (i == 0 || strcmp(mt_gpus[i].name, mt_gpus[i - 1].name) != 0) mt_str_printf(out, "%s\n", mt_gpus[i].name);
}

static void put_shapes(mt_str *out)
{
    for (size_t i = 0; i < mt_n_shapes; i++) mt_str_printf(out, "%s\n", mt_shapes[i].name);
}

/* Flags whose values come from other tables; the remaining ones are settings. */
static const struct {
    const char *flag;
    void (*put)(mt_str *out);
} lists[] = { { "--assume", put_families }, { "--gpu", put_gpus }, { "--shape", put_shapes } };

int mt_complete(const char *flag)
{
    mt_str out = { 0 };
    for (size_t i = 0; i < MT_COUNT(lists); i++)
        if (strcmp(lists[i].flag, flag) == 0) lists[i].put(&out);
    if (!out.n) mt_settings_values(&out, flag);
    if (mt_str_ok(&out) && out.s) fputs(out.s, stdout);
    mt_str_free(&out);
    return 0;
}
