/* Full names of tensors and pieces; see megatron_tensors.h. */
#include "megatron_tensors.h"

#include <stdio.h>

sl_megatron_name sl_megatron_tensors_name(const sl_foreign_tensor *tensor, const char *front,
                                          const char *name)
{
    sl_megatron_name made;
    if (!sl_megatron_tensors_has_front(tensor))
        snprintf(made.text, sizeof made.text, "%s", name);
    else if (!sl_model_tensors_is_of_layer(tensor))
        snprintf(made.text, sizeof made.text, "%s.%s", front, name);
    else
        snprintf(made.text, sizeof made.text, "%s.layers.%u.%s", front, tensor->layer, name);
    return made;
}

sl_megatron_name sl_megatron_tensors_core_name(const sl_foreign_tensor *tensor)
{
    const char *const *names = sl_model_tensors_kind(tensor)->megatron;
    uint32_t last = 0;
    while (last + 1 < SL_MEGATRON_NAMES_MAX && names[last + 1])
        last++;
    return sl_megatron_tensors_name(tensor, SL_MEGATRON_CORE_FRONT, names[last]);
}

sl_megatron_name sl_megatron_tensors_piece(uint32_t tp_rank, uint32_t pp_rank, bool has_stages)
{
    sl_megatron_name name;
    if (has_stages)
        snprintf(name.text, sizeof name.text, "mp_rank_%02u_%03u", tp_rank, pp_rank);
    else
        snprintf(name.text, sizeof name.text, "mp_rank_%02u", tp_rank);
    return name;
}
