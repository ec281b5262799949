/* Hashes of replicated parameters. One hash of all of them travels; only if it differs, one of each
 * tensor, to find which. */
#include "replicas.h"

#include <inttypes.h>
#include <string.h>

#include "base/hash.h"

static bool is_compared(const sl_replicas *it, uint32_t index)
{
    return it->has_split || it->tensors[index].split == SL_SPLIT_NONE;
}

/* Continues `hash` with a tensor, part by part: each part is hashed together with the hash of all
 * before it. */
static sl_status hash_tensor(const sl_replicas *it, uint32_t index, sl_hash_value *hash)
{
    const uint64_t bytes = it->count(it->user, index), part_bytes = it->buffer_bytes / 2;
    unsigned char *part = it->buffer;
    for (uint64_t done = 0; done < bytes; done += part_bytes) {
        const uint64_t count = bytes - done < part_bytes ? bytes - done : part_bytes;
        SL_TRY(it->read(it->user, index, done, count, part));
        memcpy(part + count, hash, sizeof *hash);
        *hash = sl_hash_128(part, count + sizeof *hash);
    }
    return SL_OK;
}

/* 0: all have the same. */
static sl_status find_different(const sl_replicas *it, sl_hash_value hash, uint32_t *out_rank)
{
    sl_hash_value all[SL_COMM_RANKS_MAX];
    *out_rank = 0;
    SL_TRY(sl_comm_all_gather(it->comm, sizeof hash, &hash, all));
    for (uint32_t i = sl_comm_size(it->comm); i-- > 1;)
        if (memcmp(&all[i], &all[0], sizeof all[0]) != 0)
            *out_rank = i;
    return SL_OK;
}

static sl_status name_different(const sl_replicas *it, uint64_t step)
{
    for (uint32_t i = 0; i < it->tensor_count; i++) {
        sl_hash_value hash = {0, 0};
        uint32_t rank = 0;
        if (!is_compared(it, i))
            continue;
        SL_TRY(hash_tensor(it, i, &hash));
        SL_TRY(find_different(it, hash, &rank));
        if (rank > 0)
            SL_FAIL(SL_ERROR_INTERNAL,
                    "after step %" PRIu64 " rank %u holds other values of %s than rank %u, which "
                    "have to be equal: memory or a processor is at fault, or the ranks' kernels "
                    "differ; go on from a checkpoint before it (--resume)",
                    step, sl_comm_member(it->comm, rank), it->tensors[i].name,
                    sl_comm_member(it->comm, 0));
    }
    SL_FAIL(SL_ERROR_INTERNAL, "after step %" PRIu64 " parameters differ between ranks", step);
}

sl_status sl_replicas_compare(const sl_replicas *it, uint64_t step)
{
    sl_hash_value hash = {0, 0};
    uint32_t rank;
    for (uint32_t i = 0; i < it->tensor_count; i++)
        if (is_compared(it, i))
            SL_TRY(hash_tensor(it, i, &hash));
    SL_TRY(find_different(it, hash, &rank));
    return rank == 0 ? SL_OK : name_different(it, step);
}

sl_status sl_replicas_compare_all(const sl_replicas *replicas, sl_comm *data, uint64_t step)
{
    sl_replicas of_world = *replicas, of_data = *replicas;
    of_world.has_split = data && sl_comm_size(data) == sl_comm_size(replicas->comm);
    of_data.has_split = true;
    of_data.comm = data;
    SL_TRY(sl_replicas_compare(&of_world, step));
    return data && !of_world.has_split ? sl_replicas_compare(&of_data, step) : SL_OK;
}
