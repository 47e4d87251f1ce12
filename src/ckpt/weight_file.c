#include "ckpt/weight_file.h"

#include "base/mem.h"

static mt_rc create(mt_weight_file **out, const mt_weight_format *format, const char *path, mt_err *err)
{
    mt_weight_file *f = mt_calloc(1, format->bytes);
    char *kept = mt_strdup(path);
    *out = NULL;
    if (!f || !kept) {
        mt_free(f);
        mt_free(kept);
        return mt_no_memory(err, "opening %s", path);
    }
    f->format = format;
    f->path = kept;
    *out = f;
    return MT_OK;
}

static mt_rc read_or_close(mt_weight_file **f, mt_rc rc, mt_err *err)
{
    if (!rc) rc = (*f)->format->read(*f, err);
    if (!rc) return MT_OK;
    mt_weight_file_close(*f);
    *f = NULL;
    return rc;
}

mt_rc mt_weight_file_open(mt_weight_file **out, const mt_weight_format *format, const char *path, mt_err *err)
{
    MT_TRY(create(out, format, path, err));
    mt_weight_file *f = *out;
    mt_rc rc = mt_map_open(&f->map, path, err);
    f->bytes = f->map.data;
    f->n_bytes = f->map.size;
    return read_or_close(out, rc, err);
}

mt_rc mt_weight_file_open_memory(mt_weight_file **out, const mt_weight_format *format, const void *bytes, size_t n,
                                 const char *name, mt_err *err)
{
    MT_TRY(create(out, format, name, err));
    (*out)->bytes = bytes;
    (*out)->n_bytes = n;
    return read_or_close(out, MT_OK, err);
}

void mt_weight_file_close(mt_weight_file *f)
{
    if (!f) return;
    f->format->deinit(f);
    mt_map_close(&f->map);
    mt_free(f->path);
    mt_free(f);
}
