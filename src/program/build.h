/* What the files of the room share: sizes of operands, and entries of a program as they stand. */
#ifndef SL_PROGRAM_BUILD_H
#define SL_PROGRAM_BUILD_H

#include "sluice/program.h"

/* The fewest bytes that operand i of an op may have; UINT64_MAX where the product overflows. Equal
 * to sl_op_operand_bytes unless that is 0. */
uint64_t sl_op_least_bytes(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t operand_index);

/* Appends a copy of `op` after the checks of sl_program_add_op. */
sl_status sl_build_append_op(sl_program *program, const sl_op *op);

/* As sl_program_add_tensor, without making a value. */
sl_status sl_build_append_tensor(sl_program *program, const sl_tensor_spec *spec);

/* Copies a segment as it stands, first_op and op_count included. */
sl_status sl_build_append_segment(sl_program *program, const sl_segment *segment);

/* Copies a section as it stands. */
sl_status sl_build_append_section(sl_program *program, const sl_section *section);

#endif
