/* What the files of the room share: entries of a program as they stand. */
#ifndef SL_PROGRAM_BUILD_H
#define SL_PROGRAM_BUILD_H

#include <stddef.h>

#include "sluice/program.h"

/* Makes room in an array for one more element of `element_bytes`; capacities double. */
sl_status sl_build_grow(void **array, uint32_t count, uint32_t *capacity, size_t element_bytes);

/* Appends a copy of `op` after the checks of sl_program_add_op. */
sl_status sl_build_append_op(sl_program *program, const sl_op *op);

/* Attributes of an op on all elements of a value, in its type. */
sl_op_attrs sl_build_elementwise_attrs(const sl_value *value);

/* As sl_program_add_tensor, without making a value. */
sl_status sl_build_append_tensor(sl_program *program, const sl_tensor_spec *spec);

/* Copies a segment as it stands, first_op and op_count included. */
sl_status sl_build_append_segment(sl_program *program, const sl_segment *segment);

/* Copies a section as it stands. */
sl_status sl_build_append_section(sl_program *program, const sl_section *section);

#endif
