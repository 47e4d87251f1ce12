#include "cli/plan_question.h"

#include "base/file.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/units.h"
#include "ckpt/model_files.h"
#include "ckpt/weights.h"
#include "cli/flags.h"
#include "cli/hub_bar.h"
#include "hub/hub.h"
#include "plan/gpus.h"
#include "plan/measure.h"

#include <stdio.h>
#include <string.h>

/* -- the model ------------------------------------------------------------------------------------- */

void mt_subject_close(mt_subject *s)
{
    mt_model_free(s->model);
    mt_config_close(s->config);
    *s = (mt_subject){ 0 };
}

static mt_rc open_shape(mt_subject *s, const mt_shape *shape, const mt_settings *set, mt_err *err)
{
    const mt_model_options o = mt_plan_model_options(set);
    snprintf(s->name, sizeof s->name, "%s", shape->name);
    s->published = true;
    s->untrained = shape->untrained;
    return mt_shape_model(&s->config, &s->model, shape, &o, err);
}

/* What is frozen takes as much as its form in the files: they are opened if they are there.  Otherwise config.json's dtype counts. */
static mt_rc open_model(mt_subject *s, const char *path, const mt_settings *set, mt_err *err)
{
    mt_model_options o = mt_plan_model_options(set);
    mt_shards *files = NULL;
    char notice[256];
    if (set->training.freeze.n && !set->training.from_scratch) {
        mt_rc rc = mt_shards_open(&files, path, err);
        if (rc && rc != MT_ENOENT) return rc;
    }
    o.assume_dtype &= !files;
    mt_rc rc =
        files ? mt_weights_model(&s->model, &s->config, files, &o, notice, err) : mt_model_create(&s->model, s->config, &o, err);
    mt_shards_close(files);
    return rc;
}

/* A model directory or a .gguf file, as train takes them. */
static mt_rc open_files(mt_subject *s, const char *path, const mt_settings *set, mt_err *err)
{
    MT_TRY(mt_refuse_run(path, err));
    MT_TRY(mt_model_files_config(&s->config, path, err));
    MT_TRY(mt_config_assume(&s->config, set->model.family, err));
    return open_model(s, path, set, err);
}

/* A model that is not in our table: download its config.json from the hub. */
static mt_rc open_hub(mt_subject *s, const char *name, const mt_settings *set, mt_err *err)
{
    char *dir;
    MT_TRY(mt_hub_bar_model(name, set->model.revision, MT_HUB_CONFIG, &dir, err));
    mt_rc rc = open_files(s, dir, set, err);
    mt_free(dir);
    return rc;
}

/* DIR/config.json is meant as DIR. */
static mt_rc open_file(mt_subject *s, const char *path, const mt_settings *set, mt_err *err)
{
    const char *base = mt_path_base(path);
    if (mt_file_exists(path) && mt_gguf_is(path)) return open_files(s, path, set, err);
    if (strcmp(base, "config.json"))
        return mt_fail(err, MT_EINVAL,
                       "plan: %s is a file; a model directory, its config.json, a .gguf file or a name is expected", path);
    char *dir = base == path ? mt_strdup(".") : mt_strndup(path, (size_t)(base - path));
    mt_rc rc = dir ? open_files(s, dir, set, err) : mt_no_memory(err, "a path");
    mt_free(dir);
    return rc;
}

mt_rc mt_subject_open(mt_subject *s, const mt_subject_asked *asked, const mt_settings *set, mt_err *err)
{
    const mt_shape *known;
    const char *name = asked->name ? asked->name : set->model.name;
    *s = (mt_subject){ 0 };
    if (asked->own) return open_shape(s, asked->own, set, err);
    if (asked->shape) {
        MT_TRY(mt_misused(mt_shape_find(&known, asked->shape, err), err));
        return open_shape(s, known, set, err);
    }
    if (!*name)
        return mt_fail(
            err, MT_EINVAL,
            "plan: which model?  --shape NAME, a model directory, or FILE.yaml; megatrain plan --list-shapes lists them");
    snprintf(s->name, sizeof s->name, "%s", name);
    if (mt_dir_exists(name)) return open_files(s, name, set, err);
    if (mt_file_exists(name)) return open_file(s, name, set, err);
    mt_rc rc = mt_shape_find(&known, name, err);
    if (!rc) return open_shape(s, known, set, err);
    if (!strchr(name, '/') || !mt_hub_is_name(name)) return rc;
    *err = (mt_err){ 0 };
    return open_hub(s, name, set, err);
}

/* -- the machine ----------------------------------------------------------------------------------- */

static mt_rc open_device(mt_device **out, const mt_set_device *d, mt_err *err)
{
    char word[32] = "auto";
    if (d->kind == MT_SET_DEVICE_CPU) snprintf(word, sizeof word, "cpu");
    if (d->kind == MT_SET_DEVICE_CUDA) snprintf(word, sizeof word, "cuda:%d", d->index);
    return mt_device_open(out, word, NULL, err);
}

/* The smallest of the given values; 0: none was given. */
static uint64_t least(uint64_t a, uint64_t b) { return !a || (b && b < a) ? b : a; }

static void name_device(mt_machine_found *out, mt_device *dev, const char *gpu)
{
    mt_device_info info;
    if (!dev) {
        snprintf(out->device, sizeof out->device, "%s, %s usable", gpu, mt_bytes_text(out->machine.device_bytes).s);
        return;
    }
    dev->api->info(dev, &info);
    snprintf(out->device, sizeof out->device, "%s", info.name);
}

/* 0: all.  More threads than this machine's cores are no faster; --cores may describe a larger machine. */
static int cores_of(const mt_machine_asked *asked, const mt_memory_settings *m, const mt_device *dev)
{
    const int64_t threads = m->optimizer_threads;
    const bool here = dev && !asked->cores;
    return (int)least((uint64_t)asked->cores, (uint64_t)(here ? mt_min_i64(threads, mt_cpu_count()) : threads));
}

static mt_rc find_machine(mt_machine_found *out, mt_device *dev, const mt_machine_asked *asked, const mt_memory_settings *m,
                          mt_err *err)
{
    const mt_machine_given given = { .gpu = asked->gpu,
                                     .ram = (size_t)asked->ram,
                                     .ram_most = (size_t)m->host_memory,
                                     .link = (double)asked->link,
                                     .cores = cores_of(asked, m, dev) };
    if (dev && dev->api->kind == MT_DEVICE_CPU && (asked->gpu_memory || asked->link))
        return mt_fail(err, MT_EINVAL,
                       "--gpu-memory and --link describe a GPU, and this machine has none; name one with --gpu NAME (megatrain "
                       "plan --list-gpus)");
    MT_TRY(mt_machine_here(&out->machine, dev, &given, true, err));
    out->machine.peer = (double)asked->peer;
    if (asked->gpu_memory) { /* of the card, without the driver's share */
        if (asked->gpu_memory <= out->machine.base_device)
            return mt_fail(err, MT_EINVAL, "--gpu-memory %s: the driver and its libraries take %s of it",
                           mt_bytes_text(asked->gpu_memory).s, mt_bytes_text(out->machine.base_device).s);
        out->machine.device_bytes = (size_t)asked->gpu_memory - out->machine.base_device;
    }
    if (m->device_memory && m->device_memory < out->machine.device_bytes) {
        out->device_there = out->machine.device_bytes;
        out->machine.device_bytes = (size_t)m->device_memory;
    }
    MT_TRY(mt_host_read(&out->host, "", err));
    out->here = dev;
    out->cores = dev ? out->host.cores : MT_USUAL_CORES;
    if (given.cores) out->cores = given.cores;
    out->cores_assumed = !dev && !given.cores;
    bool limited = m->host_memory && out->machine.host_bytes == m->host_memory;
    if (limited) out->host_there = given.ram ? given.ram : mt_host_usable(&out->host);
    const char *source = asked->gpu ? "this machine's, because --ram was not given" : out->host.limited_by;
    if (given.ram) source = "as given";
    if (limited) source = "memory.host_memory";
    snprintf(out->ram_source, sizeof out->ram_source, "%s", source);
    return MT_OK;
}

mt_rc mt_plan_machine(mt_machine_found *out, const mt_machine_asked *asked, const mt_settings *set, mt_err *err)
{
    mt_device *dev = NULL;
    *out = (mt_machine_found){ 0 };
    if (asked->gpu) {
        const mt_gpu *known;
        MT_TRY(mt_misused(mt_gpu_find(&known, asked->gpu, err), err));
    } else if (open_device(&dev, &set->model.device, err)) {
        mt_debug("%s", err->msg);
        return mt_fail(err, MT_EINVAL,
                       "plan: this machine has no usable GPU; name one with --gpu h100 --ram 512G (megatrain plan "
                       "--list-gpus).  --device cpu plans for this machine without one, --verbose shows the reason");
    }
    mt_rc rc = find_machine(out, dev, asked, &set->memory, err);
    if (!rc) name_device(out, dev, asked->gpu);
    mt_device_close(dev);
    return rc;
}
