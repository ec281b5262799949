/* Arithmetic of ranks; see groups.h. */
#include "groups.h"

const char *sl_comm_group_name(sl_comm_group group)
{
    static const char *const names[SL_COMM_GROUP_COUNT] = {"world", "tp", "dp", "pp"};
    return names[group];
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
    const uint32_t sizes[SL_COMM_GROUP_COUNT] = {sl_comm_layout_ranks(layout), layout->tensor,
                                                 layout->data, layout->stages};
    return sizes[group];
}

/* How far apart two neighbours of a set are. */
static uint32_t stride_of(const sl_comm_layout *layout, sl_comm_group group)
{
    const uint32_t strides[SL_COMM_GROUP_COUNT] = {1, 1, layout->tensor,
                                                   layout->tensor * layout->data};
    return strides[group];
}

void sl_comm_group_members(const sl_comm_layout *layout, sl_comm_group group, uint32_t rank,
                           uint32_t *out_members)
{
    uint32_t size = sl_comm_group_size(layout, group), stride = stride_of(layout, group);
    uint32_t first = rank - rank / stride % size * stride;
    for (uint32_t i = 0; i < size; i++)
        out_members[i] = first + i * stride;
}
