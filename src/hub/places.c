#include "hub/places.h"

#include "base/file.h"

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

static const char *first_true(const char *a, const char *b)
{
    static const char *const yes[] = { "1", "ON", "YES", "TRUE" };
    const char *const names[] = { a, b };
    for (size_t i = 0; i < MT_COUNT(names); i++)
        for (size_t k = 0; names[i] && env(names[i]) && k < MT_COUNT(yes); k++)
            if (strcasecmp(env(names[i]), yes[k]) == 0) return names[i];
    return NULL;
}

/* "~/x" is what people write into environment files. */
static char *expand(const char *path)
{
    const char *home = env("HOME");
    return path[0] == '~' && path[1] == '/' && home ? mt_asprintf("%s%s", home, path + 1) : mt_strdup(path);
}

/* HF_HOME. */
static mt_rc find_home(char **out, mt_err *err)
{
    const char *given = env("HF_HOME"), *xdg = env("XDG_CACHE_HOME"), *home = env("HOME");
    if (!given && !xdg && !home)
        return mt_fail(err, MT_EINVAL,
                       "none of HF_HOME, XDG_CACHE_HOME and HOME is set: set HF_HOME to a folder for downloaded models");
    if (given)
        *out = expand(given);
    else
        *out = xdg ? mt_asprintf("%s/huggingface", xdg) : mt_asprintf("%s/.cache/huggingface", home);
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
    *p = (mt_hub_places){ .offline = first_true("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") };
    p->datasets_offline = p->offline ? p->offline : first_true("HF_DATASETS_OFFLINE", NULL);
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
