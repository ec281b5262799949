#define _GNU_SOURCE /* asprintf */
#include "proof_record.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/build_id.h"
#include "files/fields.h"
#include "files/json_file.h"
#include "kernels/kernels.h"
#include "profile.h"

enum { FORMAT = 1, FILE_BYTES_MAX = 1 << 16, GPU_BYTES = 256, DATE_BYTES = 32 };

/* ---- the file ---- */

static const sl_field format_fields[] = {
    {.key = "sluice_self_test", .kind = SL_FIELD_U32, .low = FORMAT, .high = FORMAT},
    {0},
};

static const sl_field part_fields[] = {
    SL_FIELD_AS(CHOICE, "outcome", sl_proof_part, outcome, .names = "not tested|passed|failed"),
    SL_FIELD_AS(CHARS, "text", sl_proof_part, text),
    SL_FIELD("seconds", sl_proof_part, seconds),
    SL_FIELD("done", sl_proof_part, done),
    {0},
};

static const sl_field part = {
    .kind = SL_FIELD_OBJECT, .fields = part_fields, .flags = SL_FIELD_OPTIONAL};

#define PART_NAME(NAME, name) #name "|"

static const sl_field record_fields[] = {
    SL_FIELD_AS(CHARS, "uuid", sl_proof_record, uuid),
    SL_FIELD_AS(CHARS, "gpu", sl_proof_record, gpu),
    SL_FIELD_AS(CHARS, "kernels", sl_proof_record, kernels),
    SL_FIELD_AS(CHARS, "options", sl_proof_record, options),
    SL_FIELD_AS(CHARS, "build", sl_proof_record, build),
    SL_FIELD_AS(CHARS, "date", sl_proof_record, date),
    SL_FIELD_AS(MAP, "parts", sl_proof_record, parts, .names = SL_PROOF_LIST(PART_NAME),
                .stride = sizeof(sl_proof_part), .fields = &part),
    {0},
};

static const sl_field exchange_fields[] = {
    SL_FIELD_AS(CHARS, "gpus", sl_exchange_record, gpus),
    SL_FIELD_AS(CHARS, "gpu", sl_exchange_record, gpu),
    SL_FIELD_AS(CHARS, "nccl", sl_exchange_record, nccl),
    SL_FIELD_AS(CHARS, "build", sl_exchange_record, build),
    SL_FIELD_AS(CHARS, "date", sl_exchange_record, date),
    SL_FIELD_AS(OBJECT, "exchanges", sl_exchange_record, part, .fields = part_fields),
    {0},
};

/* Writes the path of the record of `name` and `options`; release with free(). */
static sl_status find_path(const char *name, const char *options, char **out_path)
{
    char *profile = NULL;
    SL_TRY(sl_profile_find_path(SL_DEVICE_CUDA, 0, &profile));
    *strrchr(profile, '/') = '\0';
    const int length = asprintf(out_path, "%s/self-test-%s%s.json", profile, name, options);
    free(profile);
    if (length < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    return SL_OK;
}

static sl_status read_record(const char *path, const sl_field *fields, void *out_record)
{
    json_t *root = NULL;
    uint32_t format;
    SL_TRY(sl_json_file_read(AT_FDCWD, NULL, path, FILE_BYTES_MAX, &root));
    sl_status status = sl_fields_read(path, root, format_fields, &format);
    if (status == SL_OK)
        status = sl_fields_read(path, root, fields, out_record);
    json_decref(root);
    return status;
}

static sl_status format_record(const sl_field *fields, const void *record, char **out_text)
{
    static const uint32_t format = FORMAT;
    json_t *root = json_object();
    sl_status status = sl_fields_write(format_fields, &format, root);
    if (status == SL_OK)
        status = sl_fields_write(fields, record, root);
    *out_text =
        status == SL_OK ? sl_json_file_dump(root, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(root);
    SL_TRY(status);
    if (!*out_text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the record of a self-test");
    return SL_OK;
}

static sl_status write_record(const char *path, const sl_field *fields, const void *record)
{
    char *text = NULL;
    sl_status status = format_record(fields, record, &text);
    if (status == SL_OK)
        status = sl_profile_save_text(path, text);
    free(text);
    return status;
}

/* Now, in UTC; as it was where the clock is of no use. */
static void write_date(char date[DATE_BYTES])
{
    struct tm parts;
    const time_t now = time(NULL);
    if (gmtime_r(&now, &parts))
        strftime(date, DATE_BYTES, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

/* ---- whose it is ---- */

const char *sl_proof_part_name(sl_proof_kind kind)
{
    static const char *const names[] = {
#define X(NAME, name) #name,
        SL_PROOF_LIST(X)
#undef X
    };
    return names[kind];
}

static void write_gpu(const sl_device_info *info, char out_text[GPU_BYTES])
{
    snprintf(out_text, GPU_BYTES, "%.100s, %.150s", info->name, info->detail);
}

void sl_proof_record_init(const sl_device_info *info, const sl_cuda_options *options,
                          sl_proof_record *out_record)
{
    const sl_kernel_table *kernels = sl_kernels_cuda();
    const sl_cuda_options all = options ? *options : (sl_cuda_options){0};
    *out_record = (sl_proof_record){0};
    snprintf(out_record->uuid, sizeof out_record->uuid, "%s", info->uuid);
    write_gpu(info, out_record->gpu);
    snprintf(out_record->kernels, sizeof out_record->kernels, "%.250s",
             !kernels || all.own_products ? "our own" : kernels->description());
    snprintf(out_record->options, sizeof out_record->options, "%s%s%s",
             all.own_products ? "-own" : "", all.no_epilogue ? "-no-epilogue" : "",
             all.no_wait_value ? "-no-wait-value" : "");
    sl_build_id_read(out_record->build);
}

static bool is_same(const sl_proof_record *a, const sl_proof_record *b)
{
    return strcmp(a->uuid, b->uuid) == 0 && strcmp(a->gpu, b->gpu) == 0 &&
           strcmp(a->kernels, b->kernels) == 0 && strcmp(a->options, b->options) == 0 &&
           strcmp(a->build, b->build) == 0;
}

void sl_proof_record_find(sl_proof_record *record)
{
    char *path = NULL;
    sl_proof_record found = {0};
    if (!*record->uuid || find_path(record->uuid, record->options, &path) != SL_OK)
        return;
    if (read_record(path, record_fields, &found) == SL_OK && is_same(record, &found))
        *record = found;
    free(path);
}

sl_status sl_proof_record_save(sl_proof_record *record)
{
    char *path = NULL;
    if (!*record->uuid)
        SL_FAIL(SL_ERROR_MISSING, "the driver does not tell the GPU's UUID");
    write_date(record->date);
    SL_TRY(find_path(record->uuid, record->options, &path));
    const sl_status status = write_record(path, record_fields, record);
    free(path);
    return status;
}

/* ---- of exchanges ---- */

void sl_exchange_record_init(const sl_device_info *info, const sl_hash_value *gpus, int version,
                             sl_exchange_record *out_record)
{
    *out_record = (sl_exchange_record){0};
    if (gpus)
        snprintf(out_record->gpus, sizeof out_record->gpus, "nccl-%016" PRIx64 "%016" PRIx64,
                 gpus->high, gpus->low);
    write_gpu(info, out_record->gpu);
    snprintf(out_record->nccl, sizeof out_record->nccl, "NCCL %d.%d.%d", version / 10000,
             version / 100 % 100, version % 100);
    sl_build_id_read(out_record->build);
}

void sl_exchange_record_find(sl_exchange_record *record)
{
    char *path = NULL;
    sl_exchange_record found = {0};
    if (!*record->gpus || find_path(record->gpus, "", &path) != SL_OK)
        return;
    if (read_record(path, exchange_fields, &found) == SL_OK &&
        strcmp(record->gpus, found.gpus) == 0 && strcmp(record->gpu, found.gpu) == 0 &&
        strcmp(record->nccl, found.nccl) == 0 && strcmp(record->build, found.build) == 0)
        *record = found;
    free(path);
}

sl_status sl_exchange_record_save(sl_exchange_record *record)
{
    char *path = NULL;
    if (!*record->gpus)
        SL_FAIL(SL_ERROR_MISSING, "the driver does not tell the UUID of each GPU");
    write_date(record->date);
    SL_TRY(find_path(record->gpus, "", &path));
    const sl_status status = write_record(path, exchange_fields, record);
    free(path);
    return status;
}

/* ---- what it says ---- */

const sl_proof_part *sl_proof_record_failure(const sl_proof_record *record, sl_proof_kind *out_kind)
{
    for (int i = 0; i < SL_PROOF_PARTS; i++)
        if (record->parts[i].outcome == SL_PROOF_FAILED) {
            *out_kind = (sl_proof_kind)i;
            return &record->parts[i];
        }
    return NULL;
}

bool sl_proof_record_is_whole(const sl_proof_record *record)
{
    for (int i = 0; i < SL_PROOF_REACH; i++)
        if (record->parts[i].outcome != SL_PROOF_PASSED)
            return false;
    return true;
}

void sl_proof_record_doubt(const sl_device_info *info, const sl_cuda_options *options,
                           char out_text[SL_PROOF_DOUBT_BYTES])
{
    static const char way_out[] =
        "sluice doctor --self-test proves it; --device cpu does without it";
    const sl_device_ops *ops = sl_device_ops_of(SL_DEVICE_CUDA);
    sl_proof_record record;
    sl_proof_kind kind;
    out_text[0] = '\0';
    sl_proof_record_init(info, options, &record);
    sl_proof_record_find(&record);
    const sl_proof_part *it = sl_proof_record_failure(&record, &kind);
    if (it != NULL)
        snprintf(out_text, SL_PROOF_DOUBT_BYTES,
                 "the self-test of this GPU (%s) failed: %s: %s; %s", info->name,
                 sl_proof_part_name(kind), it->text, way_out);
    else if (record.parts[SL_PROOF_KERNELS].outcome != SL_PROOF_PASSED && ops && *ops->doubt)
        snprintf(out_text, SL_PROOF_DOUBT_BYTES, "%s (%s): %s", ops->doubt, info->name, way_out);
}
