#include "tokenizer/bytes.h"

#include "base/utf8.h"

/* Printable Latin-1 stands for itself; the 68 other bytes, in order, are U+0100 and up. */
static bool is_plain(uint32_t b) { return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff); }

uint32_t mt_byte_to_cp(uint8_t byte)
{
    if (is_plain(byte)) return byte;
    if (byte <= 0x20) return 0x100u + byte;
    if (byte <= 0xa0) return 0x100u + 33 + (byte - 0x7fu);
    return 0x143; /* 0xad */
}

/* And back; -1: no byte has this code point. */
static int byte_from_cp(uint32_t cp)
{
    if (cp < 0x100) return is_plain(cp) ? (int)cp : -1;
    if (cp <= 0x120) return (int)cp - 0x100;
    if (cp <= 0x142) return (int)cp - 0x121 + 0x7f;
    return cp == 0x143 ? 0xad : -1;
}

int64_t mt_bytes_from_alphabet(const char *s, size_t n, char *out)
{
    int64_t used = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = mt_utf8_decode(s + i, n - i, &cp), byte = len ? byte_from_cp(cp) : -1;
        if (byte < 0) return -1;
        out[used++] = (char)byte;
        i += (size_t)len;
    }
    return used;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int mt_byte_from_hex(const char *s, size_t n)
{
    if (n != 6 || s[0] != '<' || s[1] != '0' || s[2] != 'x' || s[5] != '>') return -1;
    int hi = hex_digit(s[3]), lo = hex_digit(s[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+') return 62;
    return c == '/' ? 63 : -1;
}

int64_t mt_base64_decode(const char *s, size_t n, char *out)
{
    while (n && s[n - 1] == '=') n--;
    uint32_t bits = 0;
    int n_bits = 0;
    int64_t used = 0;
    for (size_t i = 0; i < n; i++) {
        int d = base64_digit(s[i]);
        if (d < 0) return -1;
        bits = bits << 6 | (uint32_t)d;
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        out[used++] = (char)(bits >> n_bits);
    }
    return n % 4 == 1 ? -1 : used;
}

/* How many bytes of s form the start of a valid character that then breaks off: the part one U+FFFD replaces. */
static size_t broken_part(const unsigned char *s, size_t n)
{
    unsigned char lead = s[0], lowest = 0x80, highest = 0xbf;
    size_t want = 2 + (lead >= 0xe0) + (lead >= 0xf0), i = 1;
    if (lead < 0xc2 || lead > 0xf4) return 1;
    if (lead == 0xe0) lowest = 0xa0;
    if (lead == 0xed) highest = 0x9f;
    if (lead == 0xf0) lowest = 0x90;
    if (lead == 0xf4) highest = 0x8f;
    for (; i < want && i < n && s[i] >= lowest && s[i] <= highest; i++) lowest = 0x80, highest = 0xbf;
    return i;
}

void mt_str_add_lossy(mt_str *out, const char *s, size_t n)
{
    size_t bad;
    while (n) {
        bool valid = mt_utf8_valid(s, n, &bad);
        mt_str_add(out, s, valid ? n : bad);
        if (valid) return;
        mt_str_puts(out, "\xef\xbf\xbd");
        bad += broken_part((const unsigned char *)s + bad, n - bad);
        s += bad;
        n -= bad;
    }
}
