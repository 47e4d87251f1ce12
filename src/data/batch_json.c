/* batch_json.c - a batch from {"input_ids": [[...], ...], "labels": [[...], ...]}, rows of any length, labels optional. */
#include "base/json.h"
#include "data/batch.h"

#include <limits.h>

static mt_rc read_row(const json_t *row, int32_t *out, const char *path, const char *key, size_t index, mt_err *err)
{
    for (size_t i = 0; i < json_array_size(row); i++) {
        const json_t *v = json_array_get(row, i);
        json_int_t n = json_integer_value(v);
        if (!json_is_integer(v) || n < INT_MIN || n > INT_MAX)
            return mt_fail(err, MT_EFORMAT, "%s: \"%s\", row %zu, position %zu: an integer was expected", path, key, index, i);
        out[i] = (int32_t)n;
    }
    return MT_OK;
}

static mt_rc add_row(mt_batch *b, const json_t *ids, const json_t *labels, size_t index, int64_t vocab, const char *path, mt_err *err)
{
    size_t n = json_array_size(ids);
    if (!json_is_array(ids)) return mt_fail(err, MT_EFORMAT, "%s: \"input_ids\", row %zu: a list was expected", path, index);
    if (labels && (!json_is_array(labels) || json_array_size(labels) != n))
        return mt_fail(err, MT_EFORMAT, "%s: \"labels\", row %zu: a list of %zu, as long as its ids, was expected", path, index, n);
    int32_t *row = mt_calloc(2 * n, sizeof *row);
    if (!row) return mt_no_memory(err, "a row of %zu tokens", n);
    mt_rc rc = read_row(ids, row, path, "input_ids", index, err);
    if (!rc && labels) rc = read_row(labels, row + n, path, "labels", index, err);
    if (!rc) rc = mt_batch_add(b, row, labels ? row + n : NULL, (int64_t)n, vocab, err);
    if (rc == MT_ERANGE || rc == MT_EINVAL) mt_note(err, "%s: row %zu", path, index);
    mt_free(row);
    return rc;
}

static mt_rc add_rows(mt_batch *b, const json_t *doc, int64_t vocab, const char *path, mt_err *err)
{
    const json_t *ids = json_object_get(doc, "input_ids"), *labels = json_object_get(doc, "labels");
    if (!json_is_array(ids) || json_array_size(ids) == 0)
        return mt_fail(err, MT_EFORMAT, "%s: {\"input_ids\": [[...], ...]} with at least one row was expected", path);
    if (mt_json_missing(labels)) labels = NULL;
    if (labels && (!json_is_array(labels) || json_array_size(labels) != json_array_size(ids)))
        return mt_fail(err, MT_EFORMAT, "%s: \"labels\" should have one row for each of the %zu of \"input_ids\"", path, json_array_size(ids));
    for (size_t i = 0; i < json_array_size(ids); i++)
        MT_TRY(add_row(b, json_array_get(ids, i), labels ? json_array_get(labels, i) : NULL, i, vocab, path, err));
    return MT_OK;
}

mt_rc mt_batch_read_json(mt_batch *b, const char *path, int64_t vocab, mt_err *err)
{
    json_t *doc;
    MT_TRY(mt_json_read(&doc, path, err));
    mt_rc rc = add_rows(b, doc, vocab, path, err);
    json_decref(doc);
    return rc;
}
