#include "first_use.h"

#include <stdio.h>
#include <unistd.h>

#include "base/log.h"

enum { WAIT_S = 120, NAME_BYTES = 64, HOST_BYTES = 128 };

/* "cuda:0 (NVIDIA H200)", or "the cpu device". */
static void name_device(const sl_selftest_args *test, const sl_device_info *info,
                        char out_text[HOST_BYTES])
{
    if (test->kind == SL_DEVICE_CPU)
        snprintf(out_text, HOST_BYTES, "the cpu device");
    else
        snprintf(out_text, HOST_BYTES, "cuda:%d (%.100s)", test->index, info->name);
}

static double sum_seconds(const sl_proof_record *record)
{
    double sum = 0;
    for (int i = 0; i < SL_PROOF_PARTS; i++)
        sum += record->parts[i].seconds;
    return sum;
}

static sl_status fail(const sl_proof_record *record, const char *device)
{
    char host[HOST_BYTES] = "";
    sl_proof_kind kind;
    const sl_proof_part *part = sl_proof_record_failure(record, &kind);
    if (part == NULL)
        return SL_OK;
    (void)gethostname(host, sizeof host - 1);
    SL_FAIL(SL_ERROR_SYSTEM,
            "the self-test of %s%s%s on %s failed: %s: %s; --device cpu works without it, and "
            "--self-test off goes on all the same",
            device, *record->uuid ? ", " : "", record->uuid, host, sl_proof_part_name(kind),
            part->text);
}

static void tell(const sl_first_use *args, const sl_proof_record *record, const char *device)
{
    for (int i = 0; i < SL_PROOF_PARTS; i++)
        if (record->parts[i].outcome == SL_PROOF_NOT_TESTED &&
            (i != SL_PROOF_REACH || args->test.reach_elements > 0))
            sl_log_write(SL_LOG_WARNING,
                         "self-test of %s: %s not tested: %s; tried again next time", device,
                         sl_proof_part_name((sl_proof_kind)i), record->parts[i].text);
    if (!args->is_quiet)
        sl_log_write(SL_LOG_NOTE, "self-test of %s: no wrong answer, in %.1f s", device,
                     sum_seconds(record));
}

/* Runs what is wanted, under the lock. */
static sl_status run(const sl_first_use *args, const char *device, sl_proof_record *record)
{
    const bool is_kept = args->test.kind != SL_DEVICE_CPU;
    if (is_kept && !args->is_forced)
        sl_proof_record_find(record);
    if (is_kept && sl_proof_record_is_whole(record) && args->test.reach_elements == 0)
        return SL_OK;
    for (int i = 0; i < SL_PROOF_PARTS; i++)
        record->parts[i].seconds = 0;
    if (!args->is_quiet)
        sl_log_write(SL_LOG_NOTE,
                     "self-test of %s, %s: at most %.0f s (--self-test off leaves it out)", device,
                     args->is_forced ? "as asked for"
                                     : "not tested yet with this driver and this build",
                     args->test.seconds);
    SL_TRY(sl_selftest_run(&args->test, record->parts));
    if (is_kept && sl_proof_record_save(record) != SL_OK)
        sl_log_write(SL_LOG_WARNING,
                     "the result of the self-test is not kept, so each process tests again: %s",
                     sl_status_message());
    SL_TRY(fail(record, device));
    tell(args, record, device);
    return SL_OK;
}

sl_status sl_first_use_prove(const sl_first_use *args, sl_proof_record *out_record)
{
    sl_device_info info;
    char device[HOST_BYTES], name[NAME_BYTES];
    SL_TRY(sl_device_query(args->test.kind, args->test.index, &info));
    sl_proof_record_init(&info, args->test.cuda, out_record);
    name_device(&args->test, &info, device);
    snprintf(name, sizeof name, "test-%s", info.uuid);
    sl_host_lock lock =
        sl_host_lock_open(name, WAIT_S, "another process tests this GPU: waiting for its result");
    const sl_status status = run(args, device, out_record);
    sl_host_lock_close(&lock);
    return status;
}
