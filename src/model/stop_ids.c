#include "model/stop_ids.h"

#include "base/file.h"
#include "base/json.h"

void mt_stop_ids_add(mt_stop_ids *out, int32_t id)
{
    for (size_t i = 0; i < out->n; i++)
        if (out->ids[i] == id) return;
    if (id >= 0 && out->n < MT_STOP_IDS_MAX) out->ids[out->n++] = id;
}

static mt_rc add_value(mt_stop_ids *out, const json_t *v, const char *path, mt_err *err)
{
    json_int_t id = json_integer_value(v);
    if (!json_is_integer(v) || id > INT32_MAX) return mt_fail(err, MT_EFORMAT, "%s: eos_token_id must be a token id or a list of them", path);
    mt_stop_ids_add(out, id < 0 ? -1 : (int32_t)id);
    return MT_OK;
}

static mt_rc add_document(mt_stop_ids *out, const json_t *doc, const char *path, mt_err *err)
{
    const json_t *eos = json_object_get(doc, "eos_token_id");
    if (mt_json_missing(eos)) return MT_OK;
    if (!json_is_array(eos)) return add_value(out, eos, path, err);
    for (size_t i = 0; i < json_array_size(eos); i++) MT_TRY(add_value(out, json_array_get(eos, i), path, err));
    return MT_OK;
}

static mt_rc read_file(mt_stop_ids *out, const char *path, mt_err *err)
{
    json_t *doc;
    if (!mt_file_exists(path)) return MT_OK;
    MT_TRY(mt_json_read(&doc, path, err));
    mt_rc rc = add_document(out, doc, path, err);
    json_decref(doc);
    return rc;
}

mt_rc mt_stop_ids_read(mt_stop_ids *out, const char *dir, mt_err *err)
{
    static const char *const files[] = { "generation_config.json", "config.json" };
    mt_rc rc = MT_OK;
    for (size_t i = 0; !rc && i < MT_COUNT(files); i++) {
        char *path = mt_path_join(dir, files[i]);
        rc = path ? read_file(out, path, err) : mt_fail(err, MT_ENOMEM, "no host memory for a path");
        mt_free(path);
    }
    return rc;
}
