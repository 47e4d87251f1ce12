#include "fuzz_records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_records("fuzz.arrow", data, size, &(mt_records_options){ .format = "arrow" });
    return 0;
}
