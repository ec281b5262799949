/* Decides where every chunk of every group lives, and lays out the permanent bytes of each tier.
 *
 * In sl_homes_build choose_tiers is the policy, choose_update_tiers decides where updates run, and
 * sl_homes_place gives each home its offset; chunk/plan/settled_homes.c makes homes of a plan.
 * There is no policy `auto` here: the search (src/search) tries the policies of this file and
 * chooses the fractions. The homes of activations are chosen for each plan: activation_homes.c.
 *
 * A tier's permanent bytes, from offset 0: the groups in their order (parameters first, so that
 * programs with and without optimizer states agree on where parameters are), each with its chunks
 * in index order; then the block flags, if some update runs on the tier. On the device follow, with
 * several ranks, the flags of the blocks that count in the norm, then the persistent slots. On the
 * host follow the bounce pieces, if some chunk lives on disk.
 *
 * Every home of a chunk in memory starts on SL_DIRECT_ALIGNMENT, because direct I/O may read or
 * write it; a chunk's length is a multiple of that. On disk a home starts on SL_DISK_ALIGNMENT.
 *
 * Stagger, in memory: the loop of an update reads four groups at once, and arrays at equal offsets
 * modulo large powers of two halve its bandwidth. So the home of chunk 0 of a group (even if it is
 * in another tier) starts at group * 68 KiB modulo 1 MiB. Then, for groups of one type, the homes
 * of chunks of equal index keep this distance even if the policy put different fractions of the
 * groups on this tier.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/status.h"
#include "homes.h"

enum {
    LEAST_ALIGNMENT = 256,
    STAGGER_BYTES = 68 << 10, /* measured: 64 bytes do not help, 68 KiB do */
    STAGGER_PERIOD = 1 << 20,
    STAGGER_FROM_BYTES = 8 << 20, /* smaller groups fit caches, and would be small compared with
                                     the padding */
};

static const double share_slack = 1e-9;
static const char size_name[] = "the permanent part of a tier";

void sl_homes_close(sl_homes *homes)
{
    if (homes == NULL)
        return;
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        free(homes->tier[group]);
        free(homes->offset[group]);
    }
    free(homes->update_tier);
    free(homes->persistent_offset);
    free(homes->persistent_bytes);
    free(homes);
}

sl_status sl_homes_open(const sl_program *program, uint32_t chunk_count, sl_homes **out_homes)
{
    sl_homes *homes = calloc(1, sizeof *homes);
    if (homes == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the homes of %u chunks", chunk_count);
    homes->chunk_count = chunk_count;
    homes->update_tier = calloc(chunk_count, sizeof *homes->update_tier);
    bool complete = homes->update_tier != NULL;
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        if (!program->has_state[group])
            continue;
        homes->tier[group] = calloc(chunk_count, sizeof *homes->tier[group]);
        homes->offset[group] = calloc(chunk_count, sizeof *homes->offset[group]);
        complete = complete && homes->tier[group] != NULL && homes->offset[group] != NULL;
    }
    if (!complete) {
        sl_homes_close(homes);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the homes of %u chunks", chunk_count);
    }
    *out_homes = homes;
    return SL_OK;
}

/* Checks that the fractions of each group, and for STATIC their sum, are between 0 and 1. */
static sl_status check_fractions(const sl_policy_options *options)
{
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        double disk = options->disk_fraction[group], host = options->host_fraction[group];
        if (!(disk >= 0.0 && disk <= 1.0) || !(host >= 0.0 && host <= 1.0))
            SL_FAIL(SL_ERROR_USAGE, "fraction %g of group %s is not between 0 and 1",
                    disk >= 0.0 && disk <= 1.0 ? host : disk, sl_group_name((sl_group)group));
        if (options->policy == SL_POLICY_STATIC && disk + host > 1.0 + share_slack)
            SL_FAIL(SL_ERROR_USAGE,
                    "fractions %g on disk and %g on the host of group %s are more than 1 together",
                    disk, host, sl_group_name((sl_group)group));
    }
    return SL_OK;
}

static sl_status check_request(const sl_program *program, const sl_layout *layout,
                               const sl_policy_options *options)
{
    if (program->tensor_count != layout->tensor_count)
        SL_FAIL(SL_ERROR_INTERNAL, "the layout is of %u tensors, the program has %u",
                layout->tensor_count, program->tensor_count);
    if (options->policy > SL_POLICY_NVME || options->update > SL_UPDATE_SHARED)
        SL_FAIL(SL_ERROR_USAGE, "unknown policy %d or place of updates %d", (int)options->policy,
                (int)options->update);
    if (options->update == SL_UPDATE_SHARED &&
        !(options->host_updates >= 0.0 && options->host_updates <= 1.0))
        SL_FAIL(SL_ERROR_USAGE, "fraction %g of updates on the host is not between 0 and 1",
                options->host_updates);
    if (options->policy == SL_POLICY_STATIC || options->policy == SL_POLICY_NVME)
        return check_fractions(options);
    return SL_OK;
}

/* ---- the policy: tiers ---- */

/* The fewest last chunks whose slots are `share` of the slots of all. Counted like this, half of 18
 * chunks of one rule are 9, whatever each leaves empty. The slack keeps 0.07 of 100 equal chunks at
 * 7: the product may be rounded up by an ulp or two. */
static uint32_t count_share(double share, int group, const sl_layout *layout)
{
    uint64_t all = 0, bytes = 0;
    uint32_t count = 0;
    for (uint32_t c = 0; c < layout->chunk_count; c++)
        all += sl_layout_slot_bytes(layout, (sl_group)group, c);
    const double wanted = (share - share_slack) * (double)all;
    for (; count < layout->chunk_count && (double)bytes < wanted; count++)
        bytes += sl_layout_slot_bytes(layout, (sl_group)group, layout->chunk_count - 1 - count);
    return count;
}

/* Counts the chunks of `group` that live on disk (*out_disk), and those that live on disk or host
 * (*out_away). Both are the last chunks of the group. */
static void count_away(const sl_policy_options *options, int group, const sl_layout *layout,
                       uint32_t *out_disk, uint32_t *out_away)
{
    double disk = options->disk_fraction[group], host = options->host_fraction[group];
    bool has_shares = options->policy == SL_POLICY_STATIC || options->policy == SL_POLICY_NVME;
    *out_disk = has_shares ? count_share(disk, group, layout) : 0;
    *out_away = options->policy == SL_POLICY_DEVICE ? 0 : layout->chunk_count;
    if (options->policy == SL_POLICY_STATIC)
        *out_away = count_share(disk + host, group, layout);
}

static void choose_tiers(const sl_layout *layout, const sl_policy_options *options, sl_homes *homes)
{
    uint32_t chunk_count = homes->chunk_count;
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        if (homes->tier[group] == NULL)
            continue;
        uint32_t disk, away;
        count_away(options, group, layout, &disk, &away);
        memset(homes->tier[group], SL_TIER_DEVICE, chunk_count - away);
        memset(homes->tier[group] + chunk_count - away, SL_TIER_HOST, away - disk);
        memset(homes->tier[group] + chunk_count - disk, SL_TIER_DISK, disk);
        for (uint32_t c = 0; c < chunk_count; c++)
            if (sl_layout_chunk_bytes(layout, (sl_group)group, c) == 0)
                homes->tier[group][c] = SL_TIER_DEVICE;
    }
}

/* The home of a chunk's states, or of its gradient if its rule has no states. */
static sl_tier find_state_tier(const sl_layout *layout, const sl_homes *homes, uint32_t chunk)
{
    static const sl_group groups[] = {SL_GROUP_STATE1, SL_GROUP_STATE2, SL_GROUP_MASTER,
                                      SL_GROUP_GRAD};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (homes->tier[groups[i]] != NULL && sl_layout_chunk_bytes(layout, groups[i], chunk) > 0)
            return (sl_tier)homes->tier[groups[i]][chunk];
    return SL_TIER_DEVICE;
}

/* Elements of a chunk that may be updated on either side; 0: it is frozen, or its states live on
 * the device. */
static uint64_t count_shared_elements(const sl_layout *layout, const sl_homes *homes,
                                      uint32_t chunk)
{
    const bool is_trained = sl_rule_of(layout->chunks[chunk].rule)->update != SL_OP_COUNT;
    return is_trained && find_state_tier(layout, homes, chunk) != SL_TIER_DEVICE
               ? layout->chunks[chunk].elements
               : 0;
}

/* The first chunk that the host updates if updates are shared. The host takes the last chunks,
 * which the next forward pass needs last, so their updates may run beside that pass. Updates on the
 * device run in front of that pass. */
static uint32_t find_first_on_host(const sl_layout *layout, const sl_policy_options *options,
                                   const sl_homes *homes)
{
    uint64_t all = 0, taken = 0;
    uint32_t first = homes->chunk_count;
    for (uint32_t c = 0; c < homes->chunk_count; c++)
        all += count_shared_elements(layout, homes, c);
    const double wanted = (options->host_updates - share_slack) * (double)all;
    for (; first > 0 && (double)taken < wanted; first--)
        taken += count_shared_elements(layout, homes, first - 1);
    return first;
}

static void choose_update_tiers(const sl_layout *layout, const sl_policy_options *options,
                                sl_homes *homes)
{
    const bool is_shared = options->update == SL_UPDATE_SHARED;
    const uint32_t first_on_host = is_shared ? find_first_on_host(layout, options, homes) : 0;
    for (uint32_t chunk = 0; chunk < homes->chunk_count; chunk++) {
        bool is_on_device = options->update == SL_UPDATE_DEVICE;
        if (options->update == SL_UPDATE_AUTO || is_shared)
            is_on_device =
                find_state_tier(layout, homes, chunk) == SL_TIER_DEVICE || chunk < first_on_host;
        homes->update_tier[chunk] = is_on_device ? SL_TIER_DEVICE : SL_TIER_HOST;
    }
}

/* ---- addresses ---- */

/* The least offset >= `offset` that is congruent to `residue` modulo `period`. */
static sl_status advance_to_residue(uint64_t offset, uint64_t residue, uint64_t period,
                                    uint64_t *out_offset)
{
    uint64_t distance = (residue % period + period - offset % period) % period;
    return sl_bits_add(offset, distance, size_name, out_offset);
}

static sl_status align_end(uint64_t alignment, uint64_t *end)
{
    return advance_to_residue(*end, 0, alignment, end);
}

static uint64_t find_home_bytes(const sl_layout *layout, int group, uint32_t chunk_index)
{
    return sl_bits_round_up(sl_layout_chunk_bytes(layout, (sl_group)group, chunk_index),
                            SL_DIRECT_ALIGNMENT);
}

/* Advances `*end` to the offset where the first home of `group` in this memory tier starts.
 * `skipped_bytes`: the homes of the group's chunks before that one; `group_bytes`: the homes of the
 * group in this tier. */
static sl_status advance_to_group(int group, uint64_t skipped_bytes, uint64_t group_bytes,
                                  uint64_t *end)
{
    if (group_bytes < STAGGER_FROM_BYTES)
        return align_end(SL_DIRECT_ALIGNMENT, end);
    uint64_t residue = (uint64_t)group * STAGGER_BYTES + skipped_bytes;
    return advance_to_residue(*end, residue, STAGGER_PERIOD, end);
}

/* Appends the chunks of `group` whose home is `tier`. */
static sl_status place_group(const sl_layout *layout, int group, sl_tier tier, sl_homes *homes,
                             uint64_t *end)
{
    uint64_t skipped_bytes = 0, group_bytes = 0;
    for (uint32_t chunk = 0; chunk < homes->chunk_count; chunk++) {
        const uint64_t home_bytes = find_home_bytes(layout, group, chunk);
        if (homes->tier[group][chunk] == tier)
            group_bytes += home_bytes;
        else if (group_bytes == 0)
            skipped_bytes += home_bytes;
    }
    if (group_bytes == 0)
        return SL_OK;
    if (tier != SL_TIER_DISK)
        SL_TRY(advance_to_group(group, skipped_bytes, group_bytes, end));
    for (uint32_t chunk = 0; chunk < homes->chunk_count; chunk++) {
        if (homes->tier[group][chunk] != tier)
            continue;
        if (tier == SL_TIER_DISK)
            SL_TRY(align_end(SL_DISK_ALIGNMENT, end));
        homes->offset[group][chunk] = *end;
        SL_TRY(sl_bits_add(*end, find_home_bytes(layout, group, chunk), size_name, end));
    }
    return SL_OK;
}

/* True if some chunk is updated on `tier`. */
static bool updates_on(const sl_program *program, const sl_layout *layout, sl_tier tier,
                       const sl_homes *homes)
{
    for (uint32_t c = 0; program->has_state[SL_GROUP_GRAD] && c < layout->chunk_count; c++)
        if (sl_rule_of(layout->chunks[c].rule)->update != SL_OP_COUNT &&
            homes->update_tier[c] == (uint8_t)tier)
            return true;
    return false;
}

/* Appends the block flags if some chunk is updated on `tier`. */
static sl_status place_flags(const sl_program *program, const sl_layout *layout, sl_tier tier,
                             sl_homes *homes, uint64_t *end)
{
    if (!updates_on(program, layout, tier, homes))
        return SL_OK;
    SL_TRY(align_end(LEAST_ALIGNMENT, end));
    homes->flags_offset[tier] = *end;
    homes->flags_bytes[tier] = sl_layout_table_bytes(layout);
    return sl_bits_add(*end, homes->flags_bytes[tier], size_name, end);
}

/* Appends, on the device, the flags of blocks that count in the norm. */
static sl_status place_counted(const sl_program *program, const sl_layout *layout, sl_homes *homes,
                               uint64_t *end)
{
    if (!layout->has_counts || !program->has_state[SL_GROUP_GRAD])
        return SL_OK;
    SL_TRY(align_end(LEAST_ALIGNMENT, end));
    homes->counted_offset = *end;
    homes->counted_bytes = layout->block_count;
    return sl_bits_add(*end, homes->counted_bytes, size_name, end);
}

/* Counts the persistent slots, which are numbered from 0. Each one has a value of its own, so there
 * are no more slots than values. */
static sl_status count_persistent(const sl_program *program, sl_homes *homes)
{
    for (uint32_t index = 0; index < program->value_count; index++) {
        const sl_value *value = &program->values[index];
        if (value->kind != SL_VALUE_PERSISTENT)
            continue;
        if (value->index >= program->value_count)
            SL_FAIL(SL_ERROR_USAGE, "persistent slot %u of value %s, in a program of %u values",
                    value->index, value->name, program->value_count);
        if (value->index >= homes->persistent_count)
            homes->persistent_count = value->index + 1;
    }
    return SL_OK;
}

/* Finds the size of each slot: that of the largest value with the slot's number. */
static sl_status measure_persistent(const sl_program *program, sl_homes *homes)
{
    SL_TRY(count_persistent(program, homes));
    if (homes->persistent_count == 0)
        return SL_OK;
    homes->persistent_offset = calloc(homes->persistent_count, sizeof *homes->persistent_offset);
    homes->persistent_bytes = calloc(homes->persistent_count, sizeof *homes->persistent_bytes);
    if (homes->persistent_offset == NULL || homes->persistent_bytes == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u persistent slots", homes->persistent_count);
    for (uint32_t index = 0; index < program->value_count; index++) {
        const sl_value *value = &program->values[index];
        if (value->kind == SL_VALUE_PERSISTENT &&
            value->bytes > homes->persistent_bytes[value->index])
            homes->persistent_bytes[value->index] = value->bytes;
    }
    return SL_OK;
}

static sl_status place_persistent(sl_homes *homes, uint64_t *end)
{
    for (uint32_t slot = 0; slot < homes->persistent_count; slot++) {
        SL_TRY(align_end(LEAST_ALIGNMENT, end));
        homes->persistent_offset[slot] = *end;
        SL_TRY(sl_bits_add(*end, homes->persistent_bytes[slot], size_name, end));
    }
    return SL_OK;
}

/* Appends the bounce pieces if any chunk lives on disk. */
static sl_status place_bounce(sl_homes *homes, uint64_t *end)
{
    bool has_disk = false;
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        has_disk = has_disk || (homes->tier[group] != NULL &&
                                memchr(homes->tier[group], SL_TIER_DISK, homes->chunk_count));
    if (!has_disk)
        return SL_OK;
    SL_TRY(align_end(SL_DIRECT_ALIGNMENT, end));
    homes->bounce_offset = *end;
    homes->bounce_bytes = SL_BOUNCE_BYTES;
    return sl_bits_add(*end, homes->bounce_bytes, size_name, end);
}

static sl_status place_tier(const sl_program *program, const sl_layout *layout, sl_tier tier,
                            sl_homes *homes)
{
    uint64_t end = 0;
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        if (homes->tier[group] != NULL)
            SL_TRY(place_group(layout, group, tier, homes, &end));
    SL_TRY(place_flags(program, layout, tier, homes, &end));
    if (tier == SL_TIER_DEVICE) {
        SL_TRY(place_counted(program, layout, homes, &end));
        SL_TRY(place_persistent(homes, &end));
    }
    if (tier == SL_TIER_HOST)
        SL_TRY(place_bounce(homes, &end));
    SL_TRY(align_end(LEAST_ALIGNMENT, &end));
    homes->fixed_bytes[tier] = end;
    return SL_OK;
}

sl_status sl_homes_place(const sl_program *program, const sl_layout *layout, sl_homes *homes)
{
    SL_TRY(measure_persistent(program, homes));
    SL_TRY(place_tier(program, layout, SL_TIER_DEVICE, homes));
    SL_TRY(place_tier(program, layout, SL_TIER_HOST, homes));
    return place_tier(program, layout, SL_TIER_DISK, homes);
}

sl_status sl_homes_build(const sl_program *program, const sl_layout *layout,
                         const sl_policy_options *options, sl_homes **out_homes)
{
    sl_homes *homes = NULL;
    SL_TRY(check_request(program, layout, options));
    SL_TRY(sl_homes_open(program, layout->chunk_count, &homes));
    choose_tiers(layout, options, homes);
    choose_update_tiers(layout, options, homes);
    sl_status status = sl_homes_place(program, layout, homes);
    if (status != SL_OK) {
        sl_homes_close(homes);
        return status;
    }
    *out_homes = homes;
    return SL_OK;
}
