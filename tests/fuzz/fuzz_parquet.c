#include "fuzz_records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_records("fuzz.parquet", data, size, &(mt_records_options){ .format = "parquet" });
    return 0;
}
