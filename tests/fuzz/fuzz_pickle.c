/* Any bytes are a list of tensors whose every number can be read, or an error.  Nothing is ever called. */
#include "ckpt/pickle.h"
#include "forge.h"
#include "harness.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mt_err err = { 0 };
    mt_pickle *p;
    if (mt_pickle_open_memory(&p, data, size, "fuzz.bin", &err)) return err.msg[0] ? 0 : (abort(), 0);
    for (size_t i = 0; i < mt_pickle_count(p); i++) {
        const mt_st_tensor *t = mt_pickle_at(p, i);
        float x[64];
        if (!mt_st_is_float(t)) continue;
        for (size_t at = 0; at < t->n && at < 4096; at += 64) mt_st_read(t, at, t->n - at < 64 ? t->n - at : 64, x);
        if (t->n) mt_st_read(t, t->n - 1, 1, x);
        (void)mt_st_same(t, mt_pickle_at(p, 0));
    }
    mt_pickle_close(p);
    return 0;
}

/* Opcodes in an order that mostly makes sense: values go up the stack, and what takes them away comes when there are some. */
static void put_value(fuzz_rng *r, mt_str *s, int depth);

static void put_tensor(fuzz_rng *r, mt_str *s)
{
    int64_t shape[4], stride[4];
    int n_dims = (int)fuzz_below(r, 4);
    char key[4] = { (char)('0' + fuzz_below(r, 3)), 0 };
    for (int i = n_dims; i-- > 0;) {
        shape[i] = (int64_t)fuzz_odd(r, 1 + fuzz_below(r, 4));
        stride[i] = (int64_t)fuzz_odd(r, i + 1 == n_dims ? 1 : (uint64_t)shape[i + 1] * (uint64_t)stride[i + 1]);
        if (fuzz_once_in(r, 6)) stride[i] = 0;
    }
    forge_pk_tensor(s, key, (int64_t)fuzz_odd(r, 64), n_dims, shape, stride);
}

static void put_list(fuzz_rng *r, mt_str *s, int depth, const char *open, const char *close)
{
    mt_str_puts(s, open);
    for (size_t n = fuzz_below(r, 5); n; n--) put_value(r, s, depth + 1), put_value(r, s, depth + 1);
    mt_str_puts(s, close);
}

static void put_value(fuzz_rng *r, mt_str *s, int depth)
{
    static const char *const words[] = { "w", "model", "state_dict", "a.weight", "b.bias", "storage", "cpu" };
    if (depth > 6) return mt_str_putc(s, 'N');
    switch (fuzz_below(r, 16)) {
    case 0: mt_str_putc(s, 'N'); break;
    case 1: mt_str_putc(s, fuzz_once_in(r, 2) ? '\x88' : '\x89'); break;
    case 2: forge_pk_int(s, (int64_t)fuzz_odd(r, fuzz_below(r, 100))); break;
    case 3: mt_str_putc(s, 'G'), forge_le(s, fuzz_u64(r), 8); break;
    case 4:
    case 5: forge_pk_text(s, FUZZ_PICK(r, words)); break;
    case 6: put_list(r, s, depth, "(", "t"); break;
    case 7: put_list(r, s, depth, "](", "e"); break;
    case 8: put_list(r, s, depth, "}(", "u"); break;
    case 9: mt_str_puts(s, "ccollections\nOrderedDict\n"), put_list(r, s, depth, "](", "e\x85R"); break;
    case 10: put_value(r, s, depth + 1), mt_str_puts(s, "q\x01"); break;
    case 11: mt_str_puts(s, "h\x01"); break;
    case 12: put_value(r, s, depth + 1), mt_str_putc(s, '\x94'); break;
    default: put_tensor(r, s);
    }
}

void fuzz_generate(fuzz_rng *r, mt_str *out)
{
    mt_str list = { 0 };
    mt_str_puts(&list, "\x80\x02}(");
    for (size_t n = 1 + fuzz_below(r, 6); n; n--) {
        forge_pk_text(&list, n % 2 ? "w" : "v");
        if (fuzz_once_in(r, 3))
            put_value(r, &list, 0);
        else
            put_tensor(r, &list);
    }
    mt_str_puts(&list, "u.");
    if (fuzz_once_in(r, 3)) fuzz_damage(r, &list, 1);
    forge_zip z = { .out = out };
    char numbers[256], name[] = "a/data/0";
    for (size_t i = 0; i < sizeof numbers; i++) numbers[i] = (char)fuzz_below(r, 256);
    forge_entry(&z, "a/data.pkl", list.s, list.n);
    for (; name[7] < '3'; name[7]++) forge_entry(&z, name, numbers, fuzz_once_in(r, 6) ? fuzz_below(r, 256) : 256);
    forge_zip_end(&z);
    mt_str_free(&list);
    if (fuzz_once_in(r, 4)) fuzz_damage(r, out, 2);
}
