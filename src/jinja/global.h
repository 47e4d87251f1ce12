/* global.h - names every template knows: range, dict, namespace, raise_exception, ... */
#ifndef MT_JINJA_GLOBAL_H
#define MT_JINJA_GLOBAL_H

#include "jinja/render.h"

struct jfunc {
    const char *name;
    mt_rc (*call)(jrender *r, const jargs *args, jval *out);
};

jval mt__j_global_named(jval name); /* MISSING if there is none */

#endif
