/* Sizes of operands where the shapes leave them open; private to the room. */
#ifndef SL_PROGRAM_OP_SHAPE_H
#define SL_PROGRAM_OP_SHAPE_H

#include "sluice/program.h"

/* The fewest bytes that operand i of an op may have; UINT64_MAX where the product overflows. Equal
 * to sl_op_operand_bytes unless that is 0. */
uint64_t sl_op_shape_least_bytes(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t operand_index);

#endif
