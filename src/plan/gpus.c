#include "plan/gpus.h"

#include "base/mem.h"
#include "base/nearest.h"
#include "base/str.h"

#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The h200's rates are measured (docs/notebook).  The others have the same shares of their published peaks: 0.72 of dense bf16
 * with fp32 sums (desktop cards, which the power limit does not slow down, 0.88; laptops like servers; the l4, slowed down most
 * by its 72 W, 0.5: others measured 55 to 59), 0.83 of memory bandwidth, and attention at 0.53 of products on Hopper, which has
 * its own kernel, and 0.4 elsewhere. */
const mt_gpu mt_gpus[] = {
    /*  name             driver              GiB  TFLOP/s  att  GB/s  link  host  held */
    { "h200", "H200", 139.0, 706, 380, 4000, 55, 400, true },
    { "h100", "H100 80GB HBM3", 78.2, 705, 370, 2780, 55, 400, false },
    { "h100-pcie", "H100 PCIe", 78.2, 500, 270, 1660, 52, 400, false },
    { "h100-nvl", "H100 NVL", 92.2, 560, 300, 3230, 52, 400, false },
    { "gh200", "GH200", 94.0, 705, 370, 3320, 300, 450, false },
    { "b200", "B200", 177.0, 1590, 640, 6640, 55, 450, false },
    { "gb200", "GB200", 183.0, 1770, 710, 6640, 300, 450, false },
    { "a100-40g", "A100 40GB", 38.2, 222, 90, 1290, 25, 190, false },
    { "a100-40g", "A100-SXM4-40GB", 38.2, 222, 90, 1290, 25, 190, false },
    { "a100-40g", "A100-PCIE-40GB", 38.2, 222, 90, 1290, 25, 190, false },
    { "a100-80g", "A100 80GB", 78.2, 222, 90, 1690, 25, 190, false },
    { "a100-80g", "A100-SXM4-80GB", 78.2, 222, 90, 1690, 25, 190, false },
    { "a40", "A40", 43.7, 106, 42, 578, 25, 190, false },
    { "a10g", "A10G", 21.5, 50, 20, 498, 25, 190, false },
    { "l4", "L4", 21.5, 60, 24, 249, 25, 190, false },
    { "l40", "L40", 43.7, 130, 52, 717, 25, 190, false },
    { "l40s", "L40S", 43.7, 257, 103, 717, 25, 190, false },
    { "rtx3060", "RTX 3060", 10.7, 22, 9, 299, 25, 40, false },
    { "rtx3080", "RTX 3080", 8.8, 52, 21, 631, 25, 50, false },
    { "rtx3090", "RTX 3090", 22.5, 62, 25, 777, 25, 50, false },
    { "rtx4060ti-16g", "RTX 4060 Ti", 14.6, 39, 16, 239, 12, 50, false },
    { "rtx4070-laptop", "RTX 4070 Laptop GPU", 6.9, 22, 9, 212, 12, 50, false },
    { "rtx4080", "RTX 4080", 14.6, 86, 34, 595, 25, 60, false },
    { "rtx4090", "RTX 4090", 22.5, 145, 58, 837, 25, 60, false },
    { "rtx5080", "RTX 5080", 14.6, 99, 40, 797, 50, 70, false },
    { "rtx5090", "RTX 5090", 30.2, 184, 74, 1487, 50, 70, false },
    { "rtx-a6000", "RTX A6000", 46.5, 110, 44, 637, 25, 150, false },
    { "rtx6000-ada", "RTX 6000 Ada", 46.5, 258, 103, 797, 25, 150, false },
    { "rtx-pro-6000", "RTX PRO 6000", 93.5, 355, 142, 1487, 50, 190, false },
};
const size_t mt_n_gpus = MT_COUNT(mt_gpus);

/* Lists cards whose name contains the word ("a100", "6000") or begins it ("h100-sxm"): "a100-40g or a100-80g". */
static void put_kin(mt_str *out, const char *word)
{
    char plain[64];
    snprintf(plain, sizeof plain, "%s", word);
    for (char *p = plain; *p; p++) *p = (char)tolower((unsigned char)*p);
    for (size_t i = 0; i < mt_n_gpus; i++) {
        const char *name = mt_gpus[i].name;
        bool kin = strlen(plain) > 2 && (strstr(name, plain) || strncmp(plain, name, strlen(name)) == 0);
        if (kin && (i == 0 || strcmp(name, mt_gpus[i - 1].name))) mt_str_printf(out, "%s%s", out->n ? " or " : "", name);
    }
}

/* "A40" is in "NVIDIA A40" and not in "NVIDIA RTX A4000". */
static bool holds_words(const char *text, const char *words)
{
    size_t n = strlen(words);
    for (const char *at = strstr(text, words); at; at = strstr(at + 1, words))
        if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[n])) return true;
    return false;
}

const mt_gpu *mt_gpu_of_driver(const char *driver_name)
{
    const mt_gpu *best = NULL;
    const bool laptop = holds_words(driver_name, "Laptop"); /* a MIG slice has only a part of the card it is named for */
    for (size_t i = 0; i < mt_n_gpus; i++)
        if (laptop == holds_words(mt_gpus[i].driver, "Laptop") && holds_words(driver_name, mt_gpus[i].driver) &&
            (!best || strlen(mt_gpus[i].driver) > strlen(best->driver)))
            best = &mt_gpus[i];
    return best;
}

/* Only letters and digits, in lower case: "RTX 4090" is rtx4090. */
static void squeeze(const char *name, char *out, size_t n)
{
    size_t at = 0;
    for (; *name && at + 1 < n; name++)
        if (isalnum((unsigned char)*name)) out[at++] = (char)tolower((unsigned char)*name);
    out[at] = '\0';
}

static bool same_name(const char *a, const char *b)
{
    char x[64], y[64];
    squeeze(a, x, sizeof x);
    squeeze(b, y, sizeof y);
    return strcmp(x, y) == 0;
}

/* Finds a card by our name or by the driver's name. */
mt_rc mt_gpu_find(const mt_gpu **out, const char *name, mt_err *err)
{
    mt_nearest near = { .word = name };
    mt_str kin = { 0 };
    *out = NULL;
    for (size_t i = 0; i < mt_n_gpus && !*out; i++) {
        mt_nearest_offer(&near, mt_gpus[i].name);
        if (same_name(mt_gpus[i].name, name)) *out = &mt_gpus[i];
    }
    if (!*out) *out = mt_gpu_of_driver(name);
    if (*out) return MT_OK;
    put_kin(&kin, name);
    const char *meant = kin.n && mt_str_ok(&kin) ? kin.s : near.best;
    mt_rc rc = mt_fail(err, MT_ENOENT,
                       "no GPU \"%s\" in the table%s%s%s megatrain plan --list-gpus lists them all.  For another card "
                       "use the most similar one, with its own --gpu-memory and --link",
                       name, *meant ? "; did you mean " : ";", meant, *meant ? "?" : "");
    mt_str_free(&kin);
    return rc;
}

/* Allows for the error of two seconds of measuring; for cards that were never measured in runs, for the error of the table. */
bool mt_gpu_reaches(const mt_gpu *gpu, double flops) { return flops > (gpu->held ? 0.85 : 0.75) * gpu->tflops * 1e12; }

mt_machine mt_machine_of_gpu(const mt_gpu *gpu, int cores)
{
    mt_machine m = mt_machine_typical();
    m.device_bytes = (size_t)(gpu->gib * 1073741824.0);
    m.flops = gpu->tflops * 1e12;
    m.flops_f32 = m.flops * 0.065;
    m.attention = gpu->attention * 1e12;
    m.cudnn = strstr(gpu->driver, "H100") || strstr(gpu->driver, "H200"); /* GH200's too */
    m.device_bandwidth = gpu->gb_s * 1e9;
    m.copy_in = m.copy_out = gpu->link * 1e9;
    m.copy_both = 0.91 * gpu->link * 1e9;
    mt_machine_set_cores(&m, cores, gpu->host_gb_s * 1e9);
    return m;
}
