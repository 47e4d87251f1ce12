/* names.h - names that come from people and from the network, and what of them may become a path.
 *
 * A repository is ORG/NAME (or NAME alone, the oldest ones).  Its folder in the cache is models--ORG--NAME or
 * datasets--ORG--NAME.  Nothing a server says becomes a path before mt__hub_safe_path has agreed. */
#ifndef MT_HUB_NAMES_H
#define MT_HUB_NAMES_H

#include "base/str.h"

/* A relative path that stays below where it starts: no "..", no empty or hidden-in-plain-sight parts (backslashes, control
 * characters), nothing too long for a file system. */
bool mt__hub_safe_path(const char *path);

/* 40 lower-case hexadecimal digits. */
bool mt__hub_is_commit(const char *text);
/* 40 (git) or 64 (sha256) of them: what a blob may be called. */
bool mt__hub_is_hash(const char *text);

/* "models--Qwen--Qwen3-8B", newly allocated; NULL: no memory. */
char *mt__hub_folder(const char *name, bool dataset);

/* Append text with everything but letters, digits and "-._~" as %XX; `keep` lists more to leave alone. */
void mt__hub_escape(mt_str *out, const char *text, const char *keep);

#endif
