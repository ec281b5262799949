/* How near the interpreter's products of matrices are to the exact ones. */
#ifndef PTX_MMA_H
#define PTX_MMA_H

/* |d - (c + sum of a b)| <= PTX_MMA_ERROR (|c| + sum of |a b|) + PTX_MMA_SMALLEST for each element
 * of one mma, whichever way it sums, where nothing overflows:
 *
 *   in order    16 sums, each rounded by 2^-24 of what is at most the sum of sizes: 16 x 2^-24
 *   truncated   twice: 9 terms cut by less than 2^-23 of the largest, and a sum cut by less than
 *               2^-23 of itself: 2 x 10 x 2^-23
 *
 * and a little for the errors of errors. */
#define PTX_MMA_ERROR (21 * 0x1p-23)
#define PTX_MMA_SMALLEST 0x1p-144

#endif
