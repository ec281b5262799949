/* Which ranks belong together: rank = (stage * data + its data rank) * tensor + its tensor rank.
 * Knows no communicator and no memory. */
#ifndef SL_COMM_GROUPS_H
#define SL_COMM_GROUPS_H

#include <stdint.h>

/* How many ranks share the work each way; their product is the world. */
typedef struct sl_comm_layout {
    uint32_t tensor, data, stages;
} sl_comm_layout;

/* Where one rank stands. */
typedef struct sl_comm_place {
    uint32_t tensor, data, stage;
} sl_comm_place;

typedef enum sl_comm_group {
    SL_COMM_WORLD,
    SL_COMM_TENSOR,
    SL_COMM_DATA,
    SL_COMM_STAGES,
    SL_COMM_GROUP_COUNT
} sl_comm_group;

/* "world", "tp", "dp", "pp". */
const char *sl_comm_group_name(sl_comm_group group);

uint32_t sl_comm_layout_ranks(const sl_comm_layout *layout);
sl_comm_place sl_comm_place_of(const sl_comm_layout *layout, uint32_t rank);
uint32_t sl_comm_rank_of(const sl_comm_layout *layout, const sl_comm_place *place);

uint32_t sl_comm_group_size(const sl_comm_layout *layout, sl_comm_group group);

/* out_members [group size], ascending: the set of that kind which `rank` belongs to. */
void sl_comm_group_members(const sl_comm_layout *layout, sl_comm_group group, uint32_t rank,
                           uint32_t *out_members);

#endif
