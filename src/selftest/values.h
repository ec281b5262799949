/* Where the values of a program lie while it runs op by op: all of them in host memory, none shares
 * its place. Private to the room. */
#ifndef SL_SELFTEST_VALUES_H
#define SL_SELFTEST_VALUES_H

#include "chunk/chunk.h"
#include "program/program.h"

typedef struct sl_values {
    const sl_program *program;
    const sl_layout *layout;
    unsigned char **chunks; /* [SL_GROUP_COUNT * chunk_count] */
    unsigned char **own;    /* [value_count]: of values outside of chunks, all instances */
} sl_values;

/* Zeros everywhere, but parameters (and their master copies) are drawn, constants are filled, and
 * input slots hold ids below `vocab`, or positions. Close also after a failure. SL_ERROR_SYSTEM. */
sl_status sl_values_open(const sl_program *program, const sl_layout *layout, uint32_t vocab,
                         uint64_t seed, sl_values *out_values);
void sl_values_close(sl_values *values);

/* The bytes of a value in one repetition of its section. */
void *sl_values_at(const sl_values *values, uint32_t value, uint32_t repetition);

#endif
