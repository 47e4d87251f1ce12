/* batch_json.c - a batch from {"input_ids": [[...], ...], "labels": [[...], ...], "weight": [...]}, rows of any length, labels and
 * weight optional. */
#include "base/json.h"
#include "data/batch.h"

#include <limits.h>

static mt_rc read_row(const mt_value *row, int32_t *out, const char *path, const char *key, size_t index, mt_err *err)
{
    for (size_t i = 0; i < mt_value_items(row); i++) {
        const mt_value *v = mt_value_at(row, i);
        int64_t n = mt_value_int(v);
        if (!mt_value_has(v, MT_VALUE_INT) || n < INT_MIN || n > INT_MAX)
            return mt_fail(err, MT_EFORMAT, "%s: \"%s\", row %zu, position %zu: an integer was expected", path, key, index, i);
        out[i] = (int32_t)n;
    }
    return MT_OK;
}

static mt_rc add_row(mt_batch *b, const mt_value *ids, const mt_value *labels, size_t index, int64_t vocab, const char *path,
                     mt_err *err)
{
    size_t n = mt_value_items(ids);
    if (!mt_value_has(ids, MT_VALUE_LIST))
        return mt_fail(err, MT_EFORMAT, "%s: \"input_ids\", row %zu: a list was expected", path, index);
    if (labels && (!mt_value_has(labels, MT_VALUE_LIST) || mt_value_items(labels) != n))
        return mt_fail(err, MT_EFORMAT, "%s: \"labels\", row %zu: a list of %zu, as long as its ids, was expected", path, index,
                       n);
    int32_t *row = mt_calloc(2 * n, sizeof *row);
    if (!row) return mt_no_memory(err, "a row of %zu tokens", n);
    mt_rc rc = read_row(ids, row, path, "input_ids", index, err);
    if (!rc && labels) rc = read_row(labels, row + n, path, "labels", index, err);
    if (!rc) rc = mt_batch_add(b, row, labels ? row + n : NULL, (int64_t)n, vocab, err);
    if (rc == MT_ERANGE || rc == MT_EINVAL) mt_note(err, "%s: row %zu", path, index);
    mt_free(row);
    return rc;
}

static mt_rc set_weight(mt_batch *b, const mt_value *weights, size_t index, const char *path, mt_err *err)
{
    const mt_value *v = mt_value_at(weights, index);
    if (!mt_value_is_number(v)) return mt_fail(err, MT_EFORMAT, "%s: \"weight\", row %zu: a number was expected", path, index);
    const float weight = (float)mt_value_number(v);
    mt_rc rc = mt_batch_set(b, MT_COLUMN_WEIGHT, &weight, err);
    return rc ? mt_note(err, "%s: row %zu", path, index) : MT_OK;
}

static mt_rc add_rows(mt_batch *b, const mt_value *doc, int64_t vocab, const char *path, mt_err *err)
{
    const mt_value *ids = mt_value_get(doc, "input_ids"), *labels = mt_value_get(doc, "labels"),
                   *weights = mt_value_get(doc, mt_columns[MT_COLUMN_WEIGHT].name);
    if (!mt_value_has(ids, MT_VALUE_LIST) || mt_value_items(ids) == 0)
        return mt_fail(err, MT_EFORMAT, "%s: {\"input_ids\": [[...], ...]} with at least one row was expected", path);
    if (mt_json_missing(labels)) labels = NULL;
    if (labels && (!mt_value_has(labels, MT_VALUE_LIST) || mt_value_items(labels) != mt_value_items(ids)))
        return mt_fail(err, MT_EFORMAT, "%s: \"labels\" should have one row for each of the %zu of \"input_ids\"", path,
                       mt_value_items(ids));
    if (mt_json_missing(weights)) weights = NULL;
    if (weights && (!mt_value_has(weights, MT_VALUE_LIST) || mt_value_items(weights) != mt_value_items(ids)))
        return mt_fail(err, MT_EFORMAT, "%s: \"weight\" should have one number for each of the %zu rows of \"input_ids\"", path,
                       mt_value_items(ids));
    if (weights) mt_batch_ask(b, MT_COLUMN_BIT(MT_COLUMN_WEIGHT));
    for (size_t i = 0; i < mt_value_items(ids); i++) {
        MT_TRY(add_row(b, mt_value_at(ids, i), labels ? mt_value_at(labels, i) : NULL, i, vocab, path, err));
        if (weights) MT_TRY(set_weight(b, weights, i, path, err));
    }
    return MT_OK;
}

mt_rc mt_batch_read_json(mt_batch *b, const char *path, int64_t vocab, mt_err *err)
{
    const mt_value *doc;
    MT_TRY(mt_json_read(&doc, path, err));
    mt_rc rc = add_rows(b, doc, vocab, path, err);
    mt_json_free(doc);
    return rc;
}
