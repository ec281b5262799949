#include "first_use.h"

#include <string.h>

#include "base/log.h"
#include "selftest/first_use.h"

/* The device that the run will choose; false: none that opens, which the run says by itself. */
static bool find_device(const sl_config *config, uint32_t local_rank, sl_device_kind *out_kind,
                        int *out_index)
{
    sl_device_info info;
    const bool is_open = !config->device || strcmp(config->device, "auto") == 0;
    *out_kind = SL_DEVICE_CUDA;
    *out_index = 0;
    if (!is_open && sl_config_parse_device(config->device, out_kind, out_index) != SL_OK)
        return false;
    *out_index += *out_kind == SL_DEVICE_CUDA ? (int)local_rank : 0;
    if (sl_device_query(*out_kind, *out_index, &info) == SL_OK)
        return true;
    *out_kind = SL_DEVICE_CPU;
    *out_index = 0;
    return is_open;
}

sl_status sl_command_prove_device(const sl_config *config, const sl_environment *environment)
{
    const uint32_t mode = config->self_test_mode;
    const uint32_t local_rank = environment ? environment->local_rank : 0;
    const sl_cuda_options cuda = sl_config_cuda(config);
    sl_first_use use = {.is_forced = mode == SL_CONFIG_SELF_TEST_FORCE, .is_quiet = config->quiet};
    sl_device_kind kind;
    sl_proof_record record;
    int index;
    if (mode == SL_CONFIG_SELF_TEST_OFF || (!use.is_forced && !sl_device_ops_of(SL_DEVICE_CUDA)))
        return SL_OK;
    if (local_rank == UINT32_MAX) {
        sl_log_write(SL_LOG_WARNING, "self-test: not tested: the starter of the ranks does not "
                                     "say which of its machine's ranks this one is; sluice doctor "
                                     "--self-test tests all GPUs of a machine");
        return SL_OK;
    }
    if (!find_device(config, local_rank, &kind, &index) ||
        (kind == SL_DEVICE_CPU && !use.is_forced))
        return SL_OK;
    use.test = sl_selftest_defaults(kind, index);
    use.test.cuda = &cuda;
    use.test.ends_at_fault = true;
    use.test.disk_directory = config->disk_dir.count > 0 ? config->disk_dir.items[0] : NULL;
    return sl_first_use_prove(&use, &record);
}
