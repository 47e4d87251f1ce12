#include "hub/places.h"

#include "base/file.h"
#include "base/str.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_TOKEN_FILE = 1 << 16 };

/* A variable's value; NULL when unset or empty. */
static const char *env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static bool is_true(const char *name)
{
    static const char *const yes[] = { "1", "ON", "YES", "TRUE" };
    for (size_t k = 0; env(name) && k < MT_COUNT(yes); k++)
        if (strcasecmp(env(name), yes[k]) == 0) return true;
    return false;
}

/* The variable that forbids the network: HF_HUB_OFFLINE=0 allows it, whatever the older one says. */
static const char *find_offline(void)
{
    const char *name = env("HF_HUB_OFFLINE") ? "HF_HUB_OFFLINE" : "TRANSFORMERS_OFFLINE";
    return is_true(name) ? name : NULL;
}

/* Adds the value of the $NAME or ${NAME} at p, or the '$' alone if there is none, and returns what comes after it. */
static const char *add_variable(mt_str *out, const char *p)
{
    bool braces = p[1] == '{';
    const char *name = p + 1 + braces, *end = name;
    while (isalnum((unsigned char)*end) || *end == '_') end++;
    bool named = end > name && (!braces || *end == '}');
    char *copy = named ? mt_strndup(name, (size_t)(end - name)) : NULL;
    const char *value = copy ? getenv(copy) : NULL;
    if (named && !copy) out->failed = true;
    mt_free(copy);
    if (!value) return mt_str_putc(out, '$'), p + 1;
    mt_str_puts(out, value);
    return end + braces;
}

/* "~/x" and "$SCRATCH/x" are what people write into environment files. */
static char *expand(const char *path)
{
    mt_str s = { 0 };
    char *out = NULL;
    const char *home = env("HOME");
    if (path[0] == '~' && path[1] == '/' && home) mt_str_puts(&s, home), path++;
    while (*path)
        if (*path == '$')
            path = add_variable(&s, path);
        else
            mt_str_putc(&s, *path++);
    return mt_str_done(&s, &out, NULL) ? NULL : out;
}

/* HF_HOME. */
static mt_rc find_home(char **out, mt_err *err)
{
    const char *given = env("HF_HOME"), *xdg = env("XDG_CACHE_HOME"), *home = env("HOME");
    if (!given && !xdg && !home)
        return mt_fail(err, MT_EINVAL,
                       "none of HF_HOME, XDG_CACHE_HOME and HOME is set: set HF_HOME to a folder for downloaded models");
    char *usual = xdg ? mt_asprintf("%s/huggingface", xdg) : mt_asprintf("%s/.cache/huggingface", home ? home : "");
    if (given || usual) *out = expand(given ? given : usual);
    mt_free(usual);
    return *out ? MT_OK : mt_no_memory(err, "a path");
}

/* The folder or file a variable names, else home/otherwise. */
static char *place(const char *variable, const char *older, const char *home, const char *otherwise)
{
    const char *given = env(variable);
    if (!given && older) given = env(older);
    return given ? expand(given) : mt_path_join(home, otherwise);
}

static void trim(char *s)
{
    char *p = s;
    while (isspace((unsigned char)*p)) p++;
    size_t n = strlen(p);
    while (n && isspace((unsigned char)p[n - 1])) n--;
    memmove(s, p, n);
    s[n] = '\0';
}

/* A token becomes a line of a request: a token with a line break is refused. */
static bool is_token(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s <= ' ' || *s == 0x7f) return false;
    return true;
}

static mt_rc find_token(char **out, const char *home, mt_err *err)
{
    const char *given = env("HF_TOKEN") ? env("HF_TOKEN") : env("HUGGING_FACE_HUB_TOKEN");
    char *token = NULL;
    *out = NULL;
    if (is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return MT_OK;
    if (given) {
        if (!(token = mt_strdup(given))) return mt_no_memory(err, "a path");
    } else {
        char *path = place("HF_TOKEN_PATH", NULL, home, "token");
        if (!path) return mt_no_memory(err, "a path");
        mt_rc rc = mt_file_exists(path) ? mt_file_read(&token, NULL, path, MAX_TOKEN_FILE, err) : MT_OK;
        mt_free(path);
        if (rc) return mt_note(err, "reading the hub's token");
        if (!token) return MT_OK;
    }
    trim(token);
    if (!is_token(token)) {
        mt_free(token);
        return mt_fail(err, MT_EINVAL, "the hub's token (%s) has blanks inside; copy it again from the hub's settings page",
                       given ? "HF_TOKEN" : "in the token file");
    }
    if (*token)
        *out = token;
    else
        mt_free(token);
    return MT_OK;
}

static mt_rc find_endpoint(char **out, mt_err *err)
{
    const char *given = env("HF_ENDPOINT") ? env("HF_ENDPOINT") : "https://huggingface.co";
    if (strncmp(given, "https://", 8) != 0 && strncmp(given, "http://", 7) != 0)
        return mt_fail(err, MT_EINVAL, "HF_ENDPOINT is \"%.200s\"; it should begin with https:// (or http://)", given);
    if (!(*out = mt_strdup(given))) return mt_no_memory(err, "a path");
    for (size_t n = strlen(*out); n && (*out)[n - 1] == '/'; n--) (*out)[n - 1] = '\0';
    return MT_OK;
}

mt_rc mt_hub_places_init(mt_hub_places *p, mt_err *err)
{
    char *home = NULL;
    *p = (mt_hub_places){ .offline = find_offline() };
    p->datasets_offline = p->offline ? p->offline : is_true("HF_DATASETS_OFFLINE") ? "HF_DATASETS_OFFLINE" : NULL;
    mt_rc rc = find_home(&home, err);
    if (!rc) rc = find_endpoint(&p->endpoint, err);
    if (!rc) rc = find_token(&p->token, home, err);
    if (!rc) {
        p->cache = place("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", home, "hub");
        p->datasets_cache = place("HF_DATASETS_CACHE", NULL, home, "datasets");
        if (!p->cache || !p->datasets_cache) rc = mt_no_memory(err, "a path");
    }
    mt_free(home);
    if (rc) mt_hub_places_deinit(p);
    return rc;
}

void mt_hub_places_deinit(mt_hub_places *p)
{
    mt_free(p->endpoint);
    mt_free(p->cache);
    mt_free(p->datasets_cache);
    mt_free(p->token);
    *p = (mt_hub_places){ 0 };
}
