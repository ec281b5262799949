/* doctor --self-test: a line for each part of the self-test. */
#include <stdio.h>

#include "findings.h"
#include "selftest/first_use.h"

enum { GPUS_MAX = 16, SECONDS = 50 };

static void add_part(sl_findings *all, const char *device, sl_proof_kind kind,
                     const sl_proof_part *part)
{
    char name[SL_FINDING_NAME_BYTES];
    snprintf(name, sizeof name, "%.8s %.14s", device, sl_proof_part_name(kind));
    sl_finding *one = sl_findings_add(all, name, "%s (%.1f s)", part->text, part->seconds);
    if (part->outcome == SL_PROOF_NOT_TESTED)
        sl_finding_cost(one, SL_FINDING_DEGRADED, "not tested");
    if (part->outcome != SL_PROOF_FAILED)
        return;
    sl_finding_cost(one, SL_FINDING_MISSING,
                    "a wrong answer, or a failure: nothing of this device can be trusted");
    sl_finding_mend(one, "--device cpu works without it; please report the line above with "
                         "sluice --version");
}

static sl_status prove(sl_findings *all, sl_device_kind kind, int index, const char *directory)
{
    char device[SL_FINDING_NAME_BYTES] = "cpu";
    sl_proof_record record = {0};
    sl_first_use use = {
        .test = sl_selftest_defaults(kind, index), .is_forced = true, .is_quiet = true};
    use.test.disk_directory = directory;
    use.test.seconds = SECONDS;
    if (kind == SL_DEVICE_CUDA) {
        snprintf(device, sizeof device, "cuda:%d", index);
        use.test.reach_elements = (UINT64_C(1) << 31) + 4096;
    }
    const sl_status status = sl_first_use_prove(&use, &record);
    for (int i = 0; i < SL_PROOF_PARTS; i++)
        if (*record.parts[i].text && (i != SL_PROOF_REACH || kind == SL_DEVICE_CUDA))
            add_part(all, device, (sl_proof_kind)i, &record.parts[i]);
    return status;
}

sl_status sl_findings_add_proofs(sl_findings *all, const sl_config_list *directories)
{
    const char *directory = directories->count > 0 ? directories->items[0] : NULL;
    sl_device_info info;
    sl_status status = SL_OK;
    int gpus = 0;
    for (; gpus < GPUS_MAX && sl_device_query(SL_DEVICE_CUDA, gpus, &info) == SL_OK; gpus++) {
        const sl_status own = prove(all, SL_DEVICE_CUDA, gpus, directory);
        status = status == SL_OK ? own : status;
    }
    return gpus > 0 ? status : prove(all, SL_DEVICE_CPU, 0, directory);
}
