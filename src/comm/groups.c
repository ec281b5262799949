/* Arithmetic of ranks; see groups.h. */
#include "groups.h"

#include "base/bits.h"

const char *sl_comm_group_name(sl_comm_group group)
{
    static const char *const names[SL_COMM_GROUP_COUNT] = {"world", "tp", "dp", "pp"};
    return names[group];
}

sl_status sl_comm_layout_build(uint32_t rank_count, uint32_t tensor, uint32_t stages,
                               sl_comm_layout *out_layout)
{
    uint64_t fixed = (uint64_t)tensor * stages;
    if (rank_count == 0 || fixed == 0)
        SL_FAIL(SL_ERROR_USAGE, "ranks, tensor-parallel ranks and stages count from 1");
    if (rank_count % fixed != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "%u ranks do not divide by --tp %u times --pp %u: start a multiple of %llu ranks",
                rank_count, tensor, stages, (unsigned long long)fixed);
    *out_layout = (sl_comm_layout){tensor, (uint32_t)(rank_count / fixed), stages};
    return SL_OK;
}

uint32_t sl_comm_layout_ranks(const sl_comm_layout *layout)
{
    return layout->tensor * layout->data * layout->stages;
}

sl_comm_place sl_comm_place_of(const sl_comm_layout *layout, uint32_t rank)
{
    uint32_t rest = rank / layout->tensor;
    return (sl_comm_place){rank % layout->tensor, rest % layout->data, rest / layout->data};
}

uint32_t sl_comm_rank_of(const sl_comm_layout *layout, const sl_comm_place *place)
{
    return (place->stage * layout->data + place->data) * layout->tensor + place->tensor;
}

uint32_t sl_comm_group_size(const sl_comm_layout *layout, sl_comm_group group)
{
    switch (group) {
    case SL_COMM_TENSOR:
        return layout->tensor;
    case SL_COMM_DATA:
        return layout->data;
    case SL_COMM_STAGES:
        return layout->stages;
    default:
        return sl_comm_layout_ranks(layout);
    }
}

/* How far apart two neighbours of a set are. */
static uint32_t stride_of(const sl_comm_layout *layout, sl_comm_group group)
{
    switch (group) {
    case SL_COMM_DATA:
        return layout->tensor;
    case SL_COMM_STAGES:
        return layout->tensor * layout->data;
    default:
        return 1;
    }
}

void sl_comm_group_members(const sl_comm_layout *layout, sl_comm_group group, uint32_t rank,
                           uint32_t *out_members)
{
    uint32_t size = sl_comm_group_size(layout, group), stride = stride_of(layout, group);
    uint32_t first = rank - rank / stride % size * stride;
    for (uint32_t i = 0; i < size; i++)
        out_members[i] = first + i * stride;
}
