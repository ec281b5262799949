/* See shares.h. */
#include "shares.h"

#include <stddef.h>

#include "base/log.h"
#include "base/status.h"

/* A share of something away from the device, and the policies that let the user set it. */
typedef struct share {
    const char *name;
    size_t offset; /* of the field in sl_config */
    bool is_on_disk;
    unsigned policies; /* a set of 1 << sl_policy */
    const char *policy_names;
} share;

enum {
    FOR_STATIC = 1 << SL_POLICY_STATIC,
    FOR_DISK = FOR_STATIC | 1 << SL_POLICY_NVME,
    FOR_HOST = FOR_DISK | 1 << SL_POLICY_HOST
};

#define SHARE(name, field, ...)                                                                    \
    {                                                                                              \
        name, offsetof(sl_config, field), __VA_ARGS__                                              \
    }

/* Of each kind the host's share, then the disk's. */
static const share shares[][2] = {
    {SHARE("--offload-params", offload_params, false, FOR_STATIC, "static"),
     SHARE("--nvme-params", nvme_params, true, FOR_DISK, "static or nvme")},
    {SHARE("--offload-grads", offload_grads, false, FOR_STATIC, "static"),
     SHARE("--nvme-grads", nvme_grads, true, FOR_DISK, "static or nvme")},
    {SHARE("--offload-optimizer", offload_optimizer, false, FOR_STATIC, "static"),
     SHARE("--nvme-optimizer", nvme_optimizer, true, FOR_DISK, "static or nvme")},
    {SHARE("--offload-activations", offload_activations, false, FOR_HOST, "host, static or nvme"),
     SHARE("--nvme-activations", nvme_activations, true, FOR_DISK, "static or nvme")},
};

#undef SHARE

enum { SHARE_COUNT = 2 * sizeof shares / sizeof shares[0] };

static double read_share(const sl_config *config, const share *of)
{
    return *(const double *)((const char *)config + of->offset);
}

static sl_status check_share(const sl_config *config, const share *of)
{
    double value = read_share(config, of);
    if (value > 0 && !(1u << config->policy & of->policies))
        SL_FAIL(SL_ERROR_USAGE, "%s is for --policy %s: add it", of->name, of->policy_names);
    if (value > 0 && of->is_on_disk && config->disk_dir.count == 0)
        SL_FAIL(SL_ERROR_USAGE, "%s needs a place on disk: add --disk-dir DIR", of->name);
    return SL_OK;
}

uint32_t sl_shares_drop(sl_config *config)
{
    uint32_t dropped = 0;
    for (uint32_t i = 0; i < SHARE_COUNT; i++) {
        const share *of = &shares[i / 2][i % 2];
        if (1u << config->policy & of->policies)
            continue;
        dropped |= read_share(config, of) > 0 ? 1u << i : 0;
        *(double *)((char *)config + of->offset) = 0;
    }
    return dropped;
}

void sl_shares_warn(uint32_t dropped)
{
    for (uint32_t i = 0; i < SHARE_COUNT; i++)
        if (dropped & 1u << i)
            sl_log_write(SL_LOG_WARNING,
                         "%s is for --policy %s, and no plan of --compare has it: it has no effect",
                         shares[i / 2][i % 2].name, shares[i / 2][i % 2].policy_names);
}

sl_status sl_shares_check(const sl_config *config)
{
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        const share *host = &shares[i][0], *disk = &shares[i][1];
        SL_TRY(check_share(config, host));
        SL_TRY(check_share(config, disk));
        double host_share = read_share(config, host), disk_share = read_share(config, disk);
        if (host_share + disk_share > 1 + 1e-9) /* 0.7 and 0.3 are rounded */
            SL_FAIL(SL_ERROR_USAGE,
                    "%s %g and %s %g are more than all there is: at most 1 together", host->name,
                    host_share, disk->name, disk_share);
    }
    return SL_OK;
}
