/* Arrow files: bytes, and streams made of flat buffers whose numbers are off here and there. */
#include "forge.h"
#include "fuzz_records.h"
#include "harness.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_records("fuzz.arrow", data, size, &(mt_records_options){ .format = "arrow" });
    return 0;
}

void fuzz_generate(fuzz_rng *r, mt_str *out)
{
    static const int types[] = { 1, 2, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 26 };
    forge_arrow a = {
        .n_columns = 1 + fuzz_below(r, 4), .n_batches = fuzz_below(r, 3), .rows = fuzz_below(r, 9), .type = FUZZ_PICK(r, types)
    };
    if (fuzz_once_in(r, 10)) a.shared_name = "shared";
    forge_arrow_schema(out, &a);
    for (size_t i = 0; i < a.n_batches; i++) {
        forge_arrow batch = a;
        if (fuzz_once_in(r, 6)) batch.type = fuzz_once_in(r, 2) ? 1 : 2;
        if (fuzz_once_in(r, 8)) batch.n_columns = fuzz_below(r, 6);
        forge_arrow_batch(out, &batch);
    }
    fuzz_damage(r, out, fuzz_once_in(r, 2) ? 4 : fuzz_once_in(r, 2) ? 2 : 8);
}
