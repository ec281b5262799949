/* How the files of the room append entries to a program; private to the room. */
#ifndef SL_PROGRAM_BUILD_H
#define SL_PROGRAM_BUILD_H

#include "program/program.h"

/* Appends a copy of `op` after checks of its operands: bytes and row ranges. */
sl_status sl_build_append_op(sl_program *program, const sl_op *op);

/* Attributes of an op on all elements of a value, in the value's type. */
sl_op_attrs sl_build_elementwise_attrs(const sl_value *value);

/* As sl_program_add_tensor, but adds no value. */
sl_status sl_build_append_tensor(sl_program *program, const sl_tensor_spec *spec);

/* Appends an unchanged copy of `segment`, first_op and op_count included. */
sl_status sl_build_append_segment(sl_program *program, const sl_segment *segment);

/* Appends an unchanged copy of `section`. */
sl_status sl_build_append_section(sl_program *program, const sl_section *section);

#endif
