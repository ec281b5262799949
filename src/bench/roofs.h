/* What the processors can do at most: arithmetic from registers alone, memory by plain loops.
 *
 * Every function runs once and returns seconds or a rate; repeating and summing up is the caller's.
 */
#ifndef SL_BENCH_ROOFS_H
#define SL_BENCH_ROOFS_H

#include "base/workers.h"
#include "memory.h"

/* FLOP/s of multiply-adds from registers on all workers for 3 to 50 ms, by the instruction that
 * computes the products of `type` (sl_kernel_table): for bf16 AMX's tiles or the dot product of
 * pairs where the processor has a fast one, else fp32 vectors. */
double sl_roofs_flops(sl_workers *workers, sl_type type);

typedef enum sl_memory_loop {
    SL_LOOP_READ,   /* a sum */
    SL_LOOP_UPDATE, /* reads four arrays and writes three, as AdamW does */
    SL_LOOP_SCALE,  /* STREAM's: one array is the other times a number */
    SL_LOOP_TRIAD,  /* STREAM's: one array is another plus the third times a number */
    SL_LOOP_COUNT
} sl_memory_loop;

/* Bytes a second, counted as the STREAM benchmark does (what the loop reads and writes, and not
 * what a cache fetches to write it), of a loop over arrays of `bytes` bytes each, on all workers.
 */
sl_status sl_roofs_memory(sl_workers *workers, sl_memory *memory, sl_memory_loop loop,
                          uint64_t bytes, double *out_rate);

#endif
