/* json_write.h - JSON text, value by value, into a string.
 *
 *     mt_str text = { 0 };
 *     mt_json_out j = { .to = &text };
 *     mt_json_map(&j, NULL, MT_JSON_LINES);                  {
 *     mt_json_put_str(&j, "name", "demo");                     "name": "demo",
 *     mt_json_put_num(&j, "loss", "%.4f", loss);               "loss": 2.3026,
 *     mt_json_list(&j, "steps", MT_JSON_FLAT);                 "steps": [
 *     for (int i = 0; i < n; i++)
 *         mt_json_put_int(&j, NULL, steps[i]);                   10, 20
 *     mt_json_end(&j);                                         ]
 *     mt_json_end(&j);                                       }
 *     MT_TRY(mt_json_done(&j, "the steps", err));
 *
 * A value in a map has a key, a value in a list and the document itself have none (NULL).  Commas, quotes, escapes and indentation
 * are the writer's.  A call that JSON does not allow writes nothing; it is remembered, like a lack of memory, and done() reports
 * it.  The writer never looks back at the text: the caller may put other text before a document, and may take the text so far out
 * of the string and clear it, so that a long document goes to a file in pieces. */
#ifndef MT_BASE_JSON_WRITE_H
#define MT_BASE_JSON_WRITE_H

#include "base/value.h"

enum { MT_JSON_DEPTH = 1024 }; /* readers accept 512, and what they read may be put into something else */

/* How the items of a map or list are laid out.  Items inside FLAT are FLAT and items inside TIGHT are TIGHT, whatever they
 * request. */
typedef enum mt_json_layout {
    MT_JSON_LINES, /* each on its own line, indented by two spaces a level */
    MT_JSON_FLAT,  /* {"a": 1, "b": [1, 2]} */
    MT_JSON_TIGHT, /* {"a":1,"b":[1,2]} */
} mt_json_layout;

typedef struct mt_json_out {
    mt_str *to; /* borrowed; set it and leave the rest zero */
    int depth;  /* open maps and lists */
    bool keyed; /* a key waits for its value */
    bool complete, misused;
    struct {
        uint8_t map, layout, used; /* used: has an item */
    } levels[MT_JSON_DEPTH];
} mt_json_out;

void mt_json_map(mt_json_out *j, const char *key, mt_json_layout layout);
void mt_json_list(mt_json_out *j, const char *key, mt_json_layout layout);
void mt_json_end(mt_json_out *j); /* of the innermost map or list */
/* A key that is not a C string; the value that follows has none. */
void mt_json_key(mt_json_out *j, const char *key, size_t n);

void mt_json_put_str(mt_json_out *j, const char *key, const char *text); /* NULL: null */
void mt_json_put_bytes(mt_json_out *j, const char *key, const char *text, size_t n);
/* A string made as by printf. */
void mt_json_put_strf(mt_json_out *j, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
void mt_json_put_int(mt_json_out *j, const char *key, int64_t i);
void mt_json_put_size(mt_json_out *j, const char *key, size_t n);
/* A number made as by printf.  What JSON has no number for (NaN, infinity) becomes null. */
void mt_json_put_num(mt_json_out *j, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
void mt_json_put_bool(mt_json_out *j, const char *key, bool b);
void mt_json_put_null(mt_json_out *j, const char *key);
/* A value and all that it holds; its numbers as Python writes them, NaN and Infinity too, so that what was read is written again. */
void mt_json_put_value(mt_json_out *j, const char *key, const mt_value *v, mt_json_layout layout);
/* Text that is JSON already. */
void mt_json_put_raw(mt_json_out *j, const char *key, const char *json);

/* True if one whole document was written. */
bool mt_json_ok(const mt_json_out *j);
/* The same; `what` names the document in the message. */
mt_rc mt_json_done(const mt_json_out *j, const char *what, mt_err *err);

#endif
