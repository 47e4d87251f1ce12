/* table.h - the table of settings.h: one row per setting.  Inside src/settings only. */
#ifndef MT_SETTINGS_TABLE_H
#define MT_SETTINGS_TABLE_H

#include "settings/settings.h"
#include "base/yaml.h"

typedef enum mt_setting_type {
    MT_SETTING_STR,    /* const char * */
    MT_SETTING_BOOL,   /* bool */
    MT_SETTING_INT,    /* int64_t */
    MT_SETTING_FLOAT,  /* double */
    MT_SETTING_SHARE,  /* double: a share below 1 or a whole number */
    MT_SETTING_BYTES,  /* uint64_t */
    MT_SETTING_ENUM,   /* an enum whose values index `choices` */
    MT_SETTING_DTYPE,  /* mt_dtype among `choices`; torch's other spellings accepted */
    MT_SETTING_DEVICE, /* mt_set_device */
    MT_SETTING_STRS,   /* mt_strs */
    MT_SETTING_INTS,   /* mt_ints */
    MT_SETTING_FLOATS, /* mt_floats */
    MT_SETTING_MAP,    /* mt_value of type map */
} mt_setting_type;

typedef struct mt_setting {
    const char *section, *key;
    mt_setting_type type;
    mt_setting_class cls;
    size_t offset;              /* of the field in mt_settings */
    const char *fallback;       /* the default, as a file would say it */
    const char *shown_default;  /* when the fallback needs words: "runs/<config name>" */
    const char *old_default;    /* of earlier versions: a checkpoint that has it means what the default means now */
    double min, max;            /* numbers and the items of number lists */
    bool above_min, below_max;  /* the bound itself is not allowed */
    const char *const *choices; /* ENUM and DTYPE: NULL-terminated */
    const char *word;           /* numbers, sizes, dtypes: a word that stands for word_value ("auto") */
    double word_value;
    bool path;        /* STR and STRS: "~/x" is x in the home directory */
    bool memory;      /* BYTES that something is to run in: mt_memory_parse */
    bool split;       /* STRS: "a,b" is two items, unless a file has that name */
    bool common;      /* --help shows it; the others are for --help-all */
    bool flag_only;   /* not in files */
    const char *flag; /* without dashes; NULL: the key with - for _ */
    const char *bare; /* the value when the flag stands alone; NULL: it needs one (BOOL never does) */
    const char *meta; /* the value's name in --help; NULL: from the type */
    const char *help; /* sentences, without the default */
} mt_setting;

#define MT_SETTING_UNCAPPED 1e12 /* bounds from here on are practically unreachable: they are reported only when exceeded */
enum { MT_SETTING_MAP_VALUES = 1000, MT_SETTING_MAP_KEY = 100 }; /* most values of a MAP, most bytes of a key in it */

typedef struct mt_section {
    const char *name, *help;
} mt_section;

extern const mt_setting mt__settings[];
extern const size_t mt__n_settings;
extern const mt_section mt__sections[];
extern const size_t mt__n_sections;

static inline void *mt__setting_field(mt_settings *s, const mt_setting *row) { return (char *)s + row->offset; }
static inline const void *mt__setting_value(const mt_settings *s, const mt_setting *row) { return (const char *)s + row->offset; }

const mt_setting *mt__setting_find(const char *section, const char *key); /* NULL: none */
const mt_setting *mt__setting_by_flag(const char *name, size_t n);        /* "batch-size"; '_' counts as '-' */
/* "--batch-size" into out. */
typedef struct mt_flag_text {
    char s[48];
} mt_flag_text;
mt_flag_text mt__setting_flag(const mt_setting *row);
mt_flag_text mt__setting_key(const mt_setting *row); /* "training.batch_size" */

/* convert.c: a value as written becomes the field.  `where` begins every message. */
mt_rc mt__setting_convert(mt_settings *s, const mt_setting *row, const mt_yaml *node, const char *where, mt_err *err);
/* The value of a row of STRS, INTS or FLOATS. */
typedef union mt__setting_list {
    mt_strs strs;
    mt_ints ints;
    mt_floats floats;
} mt__setting_list;
static inline bool mt__setting_is_list(const mt_setting *row)
{
    return row->type == MT_SETTING_STRS || row->type == MT_SETTING_INTS || row->type == MT_SETTING_FLOATS;
}
mt__setting_list mt__setting_list_of(const mt_settings *s, const mt_setting *row);
/* Puts the items of `before` in front of the row's own. */
mt_rc mt__setting_prepend(mt_settings *s, const mt_setting *row, const mt__setting_list *before, mt_err *err);
/* The same as mt__setting_convert from a word on the command line. */
mt_rc mt__setting_convert_text(mt_settings *s, const mt_setting *row, const char *text, const char *where, mt_err *err);

/* settings.c: the row's default, and that as its source. */
mt_rc mt__setting_default(mt_settings *s, const mt_setting *row, mt_err *err);

/* Where a setting that exists came from; add a sentence to the banner. */
const mt_setting_source *mt__setting_source(const mt_settings *s, const char *section, const char *key);
mt_rc mt__settings_notice(mt_settings *s, mt_err *err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* format.c: the field as YAML in one line; and what a row accepts ("an integer of at least 1, or auto"). */
void mt__setting_format(mt_str *out, const mt_settings *s, const mt_setting *row);
void mt__setting_expected(mt_str *out, const mt_setting *row);

#endif
