/* Hashes of replicated parameters. One hash of all of them travels; only if it differs, one of each
 * tensor, to find which. */
#include "replicas.h"

#include <inttypes.h>
#include <string.h>

#include "base/hash.h"

enum { PART_ELEMENTS = 4096 };

/* Continues `hash` with the elements of a tensor, part by part. */
static sl_status hash_tensor(const sl_tensor_io *io, const sl_tensor_spec *tensor, uint32_t index,
                             sl_hash_value *hash)
{
    struct {
        sl_hash_value before;
        float elements[PART_ELEMENTS];
    } part;
    for (uint64_t done = 0; done < tensor->element_count; done += PART_ELEMENTS) {
        uint64_t left = tensor->element_count - done;
        uint64_t count = left < PART_ELEMENTS ? left : PART_ELEMENTS;
        part.before = *hash;
        if (io->is_spread)
            SL_TRY(io->read_rounded(io->user, index, done, count, part.elements));
        else
            SL_TRY(io->read(io->user, SL_GROUP_PARAM, index, done, count, part.elements));
        *hash = sl_hash_128(&part, sizeof part.before + count * sizeof(float));
    }
    return SL_OK;
}

static sl_status find_different(sl_comm *world, sl_hash_value hash, uint32_t *out_rank)
{
    sl_hash_value all[SL_COMM_RANKS_MAX];
    *out_rank = 0;
    SL_TRY(sl_comm_all_gather(world, sizeof hash, &hash, all));
    for (uint32_t i = sl_comm_size(world); i-- > 1;)
        if (memcmp(&all[i], &all[0], sizeof all[0]) != 0)
            *out_rank = i;
    return SL_OK;
}

static sl_status name_different(sl_comm *world, const sl_tensor_io *io,
                                const sl_tensor_spec *tensors, uint32_t tensor_count, uint64_t step)
{
    for (uint32_t i = 0; i < tensor_count; i++) {
        sl_hash_value hash = {0, 0};
        uint32_t rank = 0;
        if (tensors[i].split != SL_SPLIT_NONE)
            continue;
        SL_TRY(hash_tensor(io, &tensors[i], i, &hash));
        SL_TRY(find_different(world, hash, &rank));
        if (rank > 0)
            SL_FAIL(
                SL_ERROR_INTERNAL,
                "after step %" PRIu64 " rank %u holds other values of %s than rank 0, which "
                "every rank has to hold alike: memory or a processor is at fault, or the ranks' "
                "kernels differ; go on from a checkpoint before it (--resume)",
                step, rank, tensors[i].name);
    }
    SL_FAIL(SL_ERROR_INTERNAL, "after step %" PRIu64 " parameters differ between ranks", step);
}

sl_status sl_replicas_compare(sl_comm *world, const sl_tensor_io *io, const sl_tensor_spec *tensors,
                              uint32_t tensor_count, uint64_t step)
{
    sl_hash_value hash = {0, 0};
    uint32_t rank;
    for (uint32_t i = 0; i < tensor_count; i++)
        if (tensors[i].split == SL_SPLIT_NONE)
            SL_TRY(hash_tensor(io, &tensors[i], i, &hash));
    SL_TRY(find_different(world, hash, &rank));
    return rank == 0 ? SL_OK : name_different(world, io, tensors, tensor_count, step);
}
