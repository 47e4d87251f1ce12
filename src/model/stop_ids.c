#include "model/stop_ids.h"

#include "base/json.h"

void mt_stop_ids_add(mt_stop_ids *out, int32_t id)
{
    for (size_t i = 0; i < out->n; i++)
        if (out->ids[i] == id) return;
    if (id >= 0 && out->n < MT_STOP_IDS_MAX) out->ids[out->n++] = id;
}

static mt_rc add_value(mt_stop_ids *out, const mt_value *v, const char *path, mt_err *err)
{
    int64_t id = mt_value_int(v);
    if (!mt_value_has(v, MT_VALUE_INT) || id > INT32_MAX)
        return mt_fail(err, MT_EFORMAT, "%s: eos_token_id must be a token id or a list of them", path);
    mt_stop_ids_add(out, id < 0 ? -1 : (int32_t)id);
    return MT_OK;
}

static mt_rc add_document(mt_stop_ids *out, const mt_value *doc, const char *path, mt_err *err)
{
    const mt_value *eos = mt_value_get(doc, "eos_token_id");
    if (mt_json_missing(eos)) return MT_OK;
    if (!mt_value_has(eos, MT_VALUE_LIST)) return add_value(out, eos, path, err);
    for (size_t i = 0; i < mt_value_items(eos); i++) MT_TRY(add_value(out, mt_value_at(eos, i), path, err));
    return MT_OK;
}

mt_rc mt_stop_ids_parse(mt_stop_ids *out, const char *text, size_t n, const char *what, mt_err *err)
{
    const mt_value *doc;
    MT_TRY(mt_json_parse(&doc, text, n, what, err));
    mt_rc rc = add_document(out, doc, what, err);
    mt_json_free(doc);
    return rc;
}
