#include "placements.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/options.h"
#include "base/hash.h"
#include "base/rng.h"
#include "sluice/session.h"

enum { STEPS = 2, VOCAB = 257, NAME_BYTES = 32 };

static sl_status give_rows(void *user, uint64_t first_row, uint32_t row_count, uint32_t token_count,
                           int32_t *out_tokens)
{
    (void)user;
    for (uint64_t i = 0; i < (uint64_t)row_count * token_count; i++)
        out_tokens[i] = (int32_t)sl_rng_below(3, 1, first_row * token_count + i, VOCAB);
    return SL_OK;
}

/* The training is no run: what it notes and warns of is no news. */
static void drop_line(void *user, sl_log_level level, const char *line)
{
    (void)level, (void)line, (void)user;
}

static sl_status set_options(sl_options *options, const char *device, const char *policy,
                             const char *disk_directory)
{
    const char *const settings[] = {
        "layers",        "2",    "width",       "64",   "heads",       "4", "context", "32",
        "vocab",         "257",  "seq",         "32",   "micro-batch", "2", "steps",   "2",
        "device",        device, "precision",   "bf16", "accumulate",  "2", "policy",  policy,
        "seed",          "4",    "warmup",      "0",    "clip",        "1", "quiet",   "true",
        "device-memory", "64M",  "host-memory", "64M",  NULL};
    SL_TRY(sl_options_set_all(options, settings));
    sl_options_set_rows(options, give_rows, NULL);
    sl_options_set_log(options, drop_line, NULL);
    options->inputs.is_alone = true;
    return disk_directory ? sl_options_set(options, "disk-dir", disk_directory) : SL_OK;
}

/* A hash of all parameters, as fp32. */
static sl_status hash_parameters(sl_session *session, sl_hash_value *out_hash)
{
    sl_hash_stream *stream;
    sl_tensor_info info = {.size = sizeof info};
    sl_status status = SL_OK;
    SL_TRY(sl_hash_open(&stream));
    for (uint32_t t = 0; status == SL_OK && sl_session_tensor(session, t, &info); t++) {
        float *elements = calloc(info.element_count, sizeof *elements);
        status = elements ? sl_session_read(session, info.name, SL_STATE_PARAMETER, elements,
                                            info.element_count)
                          : sl_status_fail(SL_ERROR_SYSTEM, "no memory for a self-test");
        if (status == SL_OK)
            sl_hash_update(stream, elements, info.element_count * sizeof *elements);
        free(elements);
    }
    *out_hash = sl_hash_digest(stream);
    sl_hash_close(stream);
    return status;
}

static sl_status train(const sl_options *options, sl_hash_value *out_hash)
{
    sl_session *session = NULL;
    SL_TRY(sl_session_open(options, &session));
    sl_status status = SL_OK;
    for (int step = 0; step < STEPS && status == SL_OK; step++) {
        sl_step_result result = {.size = sizeof result};
        status = sl_session_step(session, &result);
    }
    if (status == SL_OK)
        status = hash_parameters(session, out_hash);
    const sl_status closed = sl_session_close(session);
    return status == SL_OK ? closed : status;
}

static sl_status run(const char *device, const char *policy, const char *disk_directory,
                     sl_hash_value *out_hash)
{
    sl_options *options = NULL;
    SL_TRY(sl_options_open(&options));
    sl_status status = set_options(options, device, policy, disk_directory);
    if (status == SL_OK)
        status = train(options, out_hash);
    sl_options_close(options);
    return status;
}

sl_status sl_placements_prove(sl_device_kind kind, int index, const char *disk_directory,
                              sl_fault *out_fault)
{
    static const char *const policies[] = {"device", "host", "nvme"};
    char device[NAME_BYTES] = "cpu";
    sl_hash_value first = {0}, other = {0};
    *out_fault = (sl_fault){0};
    if (kind == SL_DEVICE_CUDA)
        snprintf(device, sizeof device, "cuda:%d", index);
    for (int p = 0; p < (disk_directory ? 3 : 2) && !*out_fault->text; p++) {
        SL_TRY(run(device, policies[p], p == 2 ? disk_directory : NULL, p ? &other : &first));
        if (p > 0 && (first.low != other.low || first.high != other.high))
            snprintf(out_fault->text, sizeof out_fault->text,
                     "two steps under --policy %s end in other bits than under "
                     "--policy device",
                     policies[p]);
    }
    return SL_OK;
}
