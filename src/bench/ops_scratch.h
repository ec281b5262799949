/* What measured ops need beside numbers: tokens, control words, flags, a workspace. */
#ifndef SL_BENCH_OPS_SCRATCH_H
#define SL_BENCH_OPS_SCRATCH_H

#include "ops.h"

enum { SL_OPS_TOKENS = 16384 }; /* rows of the largest case */

/* The calls of a sample, and in the rig's memory the specials, `flag_count` flags and the largest
 * workspace of any case. */
sl_status sl_ops_take_scratch(sl_ops *ops, uint64_t flag_count);
void sl_ops_give_scratch(sl_ops *ops);

/* The operand of that name if it holds no plain numbers, else NULL. */
void *sl_ops_special(const sl_ops *ops, const char *operand_name);

/* True if all operands of a case have room in `memory`. */
bool sl_ops_fits(sl_memory *memory, const sl_ops_case *one);

#endif
