/* CSV, TSV and plain text cut in each way. */
#include "fuzz_records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_records("fuzz.csv", data, size, &(mt_records_options){ .format = "csv" });
    fuzz_records("fuzz.tsv", data, size, &(mt_records_options){ .format = "tsv" });
    for (int by = MT_SAMPLE_LINE; by <= MT_SAMPLE_DOCUMENT; by++)
        fuzz_records("fuzz.txt", data, size, &(mt_records_options){ .format = "text", .sample_by = (mt_sample_by)by });
    return 0;
}
