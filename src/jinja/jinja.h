/* jinja.h - chat templates: Jinja as transformers sets it up, without any access outside the template.
 *
 *     mt_jinja *t;
 *     MT_TRY(mt_jinja_parse(&t, text, n, "chat_template", err));          // once for a model
 *     mt_str out = { 0 };
 *     MT_TRY(mt_jinja_render(t, &context, &options, &out, NULL, err));    // once for a record
 *     mt_jinja_free(t);
 *
 * The environment is the one transformers builds: trim_blocks and lstrip_blocks on, autoescape off, loop controls,
 * the immutable sandbox, its own tojson, and {% generation %} blocks whose place in the output is recorded.
 * A parsed template is never written to again: any number of threads may render it at once, each with its own
 * scratch arena and output.
 *
 * Templates are untrusted.  Depth, steps, memory and output are bounded (MT_ERANGE past a bound).  Other failures: MT_EFORMAT,
 * the template is malformed; MT_EINVAL, it failed on this record (raise_exception included, whose text ends the message word for
 * word); MT_EUNSUPPORTED, it uses a feature that we refuse by name (include, import, extends, block, random).  Messages begin
 * "NAME:LINE:COLUMN: ", counted from 1, columns in characters.
 *
 * Known to differ from jinja2: integers are 64 bits wide (an overflow is an error; longer ones in the
 * context are written exactly and computed with as floats) and powers never complex; the filters pprint,
 * urlize, wordwrap and random, the globals lipsum and self, \N{...} in strings and str.casefold, encode and translate do not
 * exist; striptags knows five entities; a slice of a constant that is not a sequence is an error. */
#ifndef MT_JINJA_JINJA_H
#define MT_JINJA_JINJA_H

#include "base/arena.h"
#include "base/str.h"
#include "base/value.h"

#include <time.h>

typedef struct mt_jinja mt_jinja;

typedef struct mt_jinja_options {
    const struct tm *now;    /* what strftime_now shows; NULL: the local time of the call */
    mt_arena *scratch;       /* reset and used by each render, so that a loop stops allocating; NULL: a private one */
    size_t max_steps;        /* work (render.h); 4 are added for each byte of the context; 0: 20 million */
    size_t max_output_bytes; /* 0: 64 MiB */
    size_t max_memory_bytes; /* of scratch; 0: 256 MiB */
} mt_jinja_options;

/* Byte ranges of the output written by {% generation %} blocks, in the order the blocks ended. */
typedef struct mt_jinja_span {
    size_t begin, end;
} mt_jinja_span;

typedef struct mt_jinja_spans {
    mt_jinja_span *items;
    size_t n, cap;
} mt_jinja_spans;

/* `name` is what messages call the template; text and name are copied. */
mt_rc mt_jinja_parse(mt_jinja **out, const char *text, size_t n, const char *name, mt_err *err);

/* Append the rendering to `out`.  `context` is a map of the template's variables (NULL: none) and is only read.
 * opt may be NULL; `generation` may be NULL.  On failure out and generation are as they were. */
mt_rc mt_jinja_render(const mt_jinja *t, const mt_value *context, const mt_jinja_options *opt, mt_str *out,
                      mt_jinja_spans *generation, mt_err *err);

/* True if the template has a {% generation %} block, so spans can be expected. */
bool mt_jinja_has_generation(const mt_jinja *t);
/* True if the template reads a variable of this name from the context ("tools", "enable_thinking"). */
bool mt_jinja_reads(const mt_jinja *t, const char *name);

void mt_jinja_free(mt_jinja *t);
void mt_jinja_spans_free(mt_jinja_spans *spans);

#endif
