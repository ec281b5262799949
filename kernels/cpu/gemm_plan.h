/* How a product is cut. Everything here follows from the shape, the types and the micro-kernel, so
 * that a result depends on nothing else; only `chain` matters to its bits.
 *
 *   round    what is packed at a time: a range of A's strips, one of B's and one of the chains
 *   chain    terms that are summed in registers; further ones are added to fp32 sums in memory
 *   strip    rows of A or columns of B of one micro-kernel; A's are equally high, within one
 *   patch    what one strip of A and one of B give of C
 *   tile     strips of A x strips of B of one round that one worker multiplies
 */
#ifndef SL_KERNELS_CPU_GEMM_PLAN_H
#define SL_KERNELS_CPU_GEMM_PLAN_H

#include "gemm.h"
#include "gemm_micro.h"

/* `count` items in groups of `size`; the last one may be smaller. */
typedef struct sl_gemm_cut {
    uint64_t count, size;
} sl_gemm_cut;

typedef struct sl_gemm_plan {
    const sl_gemm_micro *micro;
    uint64_t a_strips, b_strips;
    sl_gemm_cut chain;                     /* of k terms */
    sl_gemm_cut a_round, b_round, k_round; /* of strips, strips and chains */
    sl_gemm_cut a_tile, b_tile;            /* of a whole round's strips */
    uint64_t a_slot, b_slot;               /* packed elements of one strip of one chain */
    uint64_t sums;                         /* fp32 sums of one worker; 0: they are summed in C */
} sl_gemm_plan;

sl_gemm_plan sl_gemm_plan_of(const sl_gemm *gemm, const sl_gemm_micro *micro);

/* Packed elements and sums, in 4-byte words. */
uint64_t sl_gemm_plan_words(const sl_gemm_plan *plan, uint32_t worker_count);

#endif
