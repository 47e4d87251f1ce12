#include "hub/names.h"

#include "hub/hub.h"

#include <ctype.h>
#include <string.h>

enum { MAX_PART = 96, MAX_PATH = 1024, MAX_FILE_NAME = 200 }; /* 200: leaves room for our endings below a file system's 255 */

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static bool is_part(const char *s, size_t n)
{
    if (n == 0 || n > MAX_PART || !is_word(s[0]) || !is_word(s[n - 1])) return false;
    for (size_t i = 0; i < n; i++)
        if (!is_word(s[i]) && s[i] != '-' && s[i] != '.') return false;
    return true;
}

/* Letters, digits, '-', '_', '.'; no "--" or ".." inside. */
bool mt_hub_is_name(const char *text)
{
    size_t n = strlen(text), first = strcspn(text, "/");
    if (strstr(text, "--") || strstr(text, "..") || (n > 4 && strcmp(text + n - 4, ".git") == 0)) return false;
    return is_part(text, first) && (!text[first] || is_part(text + first + 1, n - first - 1));
}

static bool is_safe_step(const char *s, size_t n)
{
    bool dots = (n == 1 && s[0] == '.') || (n == 2 && s[0] == '.' && s[1] == '.');
    if (n == 0 || n > MAX_FILE_NAME || dots) return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f || s[i] == '\\') return false;
    return true;
}

bool mt__hub_safe_path(const char *path)
{
    if (strlen(path) > MAX_PATH) return false;
    for (const char *p = path;; p++) {
        size_t n = strcspn(p, "/");
        if (!is_safe_step(p, n)) return false;
        p += n;
        if (!*p) return true;
    }
}

static bool is_hex(const char *text, size_t n) { return strlen(text) == n && strspn(text, "0123456789abcdef") == n; }
bool mt__hub_is_commit(const char *text) { return is_hex(text, 40); }
bool mt__hub_is_hash(const char *text) { return is_hex(text, 40) || is_hex(text, 64); }

char *mt__hub_folder(const char *name, bool dataset)
{
    mt_str s = { 0 };
    mt_str_puts(&s, dataset ? "datasets--" : "models--");
    for (const char *p = name; *p; p++)
        if (*p == '/')
            mt_str_puts(&s, "--");
        else
            mt_str_putc(&s, *p);
    char *out = NULL;
    return mt_str_done(&s, &out, NULL) ? NULL : out;
}

void mt__hub_escape(mt_str *out, const char *text, const char *keep)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (isalnum(*p) || strchr("-._~", *p) || strchr(keep, *p))
            mt_str_putc(out, (char)*p);
        else
            mt_str_printf(out, "%%%02X", *p);
}
