/* Tensors as files see them: a pair of calls that copy runs of elements, wherever they are kept.
 *
 * Readers and writers of files know names and shapes; where a tensor's elements are (which chunk,
 * which tier) is known behind these calls only. Elements are counted from the start of tensor
 * `tensor_index` of the program, padding rows included, row-major. Numbers are fp32 here, whatever
 * type they are stored in. Of what a rank stores a shard of, it reads the rest as 0 and writes
 * nothing of it. Group PARAM is the parameter as exactly as it is kept (its master weight
 * where there is one), so there is nothing to carry for group MASTER.
 */
#ifndef SL_TENSORS_TENSOR_IO_H
#define SL_TENSORS_TENSOR_IO_H

#include <stdint.h>

#include "program/program.h"

typedef struct sl_tensor_io {
    /* Copies elements [first_element, first_element + element_count) of a tensor to `data`. */
    sl_status (*read)(void *user, sl_group group, uint32_t tensor_index, uint64_t first_element,
                      uint64_t element_count, float *data);
    /* The other way. Each element of each tensor is written once by an import or a load. */
    sl_status (*write)(void *user, sl_group group, uint32_t tensor_index, uint64_t first_element,
                       uint64_t element_count, const float *data);
    void *user;
    /* The first elements that follow each other in [first_element, first_element + element_count)
     * and that this rank answers for: of those that several have, one of them does. Returns how
     * many (0: none), and where they begin. NULL: all of them. */
    uint64_t (*find_own)(void *user, sl_group group, uint32_t tensor_index, uint64_t first_element,
                         uint64_t element_count, uint64_t *out_first);
    bool is_spread; /* data-parallel ranks answer for shards: no rank has all of a tensor */
} sl_tensor_io;

#endif
