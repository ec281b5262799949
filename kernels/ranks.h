/* The computations of a collective on its own rank: in memory of the device, in the order of ranks,
 * with the same bits in every table. Each is called like the kernel of an op, but is in no program:
 * its sizes and operands are as listed here, in the notation of op_list.h, and attrs.batch is N,
 * the number of ranks. None has a workspace.
 *
 *   SUM           terms [N][O] TYPE, own [E] GRAD; writes wire [E] TYPE or NULL, stored [E] GRAD:
 *                 of each element the sum over the N terms in order, in fp32, rounded to TYPE once.
 *                 Term number rank_index is `own`, rounded to TYPE; `stored` may be `own`, and
 *                 `wire` may be that term. E <= O.
 *   CONVERT       x [E] TYPE; writes y [E] GRAD, or, with adds_gradient, adds to it in fp32, which
 *                 GRAD then is. Equal types: the same bytes.
 *   STATS         parts [N][R][4]; writes stats [R][4]: HEAD_STATS of the ranks, combined.
 *   NORM_PREPARE  norm, loss or NULL, counted or NULL; a norm ready to be gathered: with
 *                 adds_output its flags stay, else they become scalars.flags; loss and counted lie
 *                 in fields of its own.
 *   NORM_MERGE    parts [N] of such norms; writes norm: the exact sum with the union of flags, and
 *                 loss and counted, unless NULL: the sums in the order of ranks.
 *   PACK_COLUMNS  x [R, I]; writes parts [N][R, O]: columns of ranks rank_index and following;
 *                 those beyond I are zero.
 *   JOIN_COLUMNS  parts [N][R, O]; writes y [R, I]: the reverse. N * O >= I.
 */
#ifndef SL_KERNELS_RANKS_H
#define SL_KERNELS_RANKS_H

#define SL_RANK_KERNEL_LIST(X)                                                                     \
    X(SUM, sum)                                                                                    \
    X(CONVERT, convert)                                                                            \
    X(STATS, stats)                                                                                \
    X(NORM_PREPARE, norm_prepare)                                                                  \
    X(NORM_MERGE, norm_merge)                                                                      \
    X(PACK_COLUMNS, pack_columns)                                                                  \
    X(JOIN_COLUMNS, join_columns)

typedef enum sl_rank_kernel {
#define X(NAME, name) SL_RANK_##NAME,
    SL_RANK_KERNEL_LIST(X)
#undef X
        SL_RANK_KERNEL_COUNT
} sl_rank_kernel;

#endif
