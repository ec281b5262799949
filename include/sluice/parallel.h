/* Parallel layers for a training loop of a program's own: forward and backward, on arrays of the
 * program, over the ranks of a communicator (Shoeybi et al. 2019).
 *
 * A weight is [in, out], and y = x * weight + bias with x [rows, in]. Ranks divide a weight by its
 * columns, by its rows, or not at all:
 *
 * | split               | a rank holds | reads of x       | computes                    |
 * |---------------------|--------------|------------------|-----------------------------|
 * | SL_PARALLEL_WHOLE   | the weight   | all columns      | all columns of y            |
 * | SL_PARALLEL_COLUMNS | some columns | all columns      | the same columns of y       |
 * | SL_PARALLEL_ROWS    | some rows    | the same columns | y, as a sum over the ranks  |
 *
 * A layer takes x and gives y in one of two forms: whole, the same on each rank; or split, this
 * rank's columns. It exchanges what that takes, forward and backward. A gradient has the form of
 * its value. So a layer by columns with y split, an activation, and a layer by rows with x split
 * exchange one sum forward and one backward. The first of them, in a team of one rank:
 *
 *     static float x[32 * 64], weight[64 * 256], y[32 * 256];
 *     const sl_parallel_linear_args up = {.rows = 32,
 *                                         .in = 64,
 *                                         .out = 256,
 *                                         .split = SL_PARALLEL_COLUMNS,
 *                                         .is_y_split = 1,
 *                                         .x = x,
 *                                         .weight = weight,
 *                                         .y = y};
 *     sl_parallel_team *team = NULL;
 *     sl_status status = sl_parallel_open(NULL, 0, &team);
 *     if (status == SL_OK)
 *         status = sl_parallel_linear_forward(team, &up);
 *     if (status != SL_OK)
 *         fprintf(stderr, "%s\n", sl_status_message());
 *     sl_parallel_close(team);
 *
 * Of `count` features each rank has count / size, and the first count % size ranks have one more;
 * sl_parallel_part says which. A rank may have none; its arrays then are any pointers but NULL. The
 * bias of a layer by columns is divided as its columns are, every other bias is whole on each rank.
 *
 * By hand, on activations [rows, features], in the words of Megatron and torchshard; all ranks do
 * the same with gathered features afterwards:
 *
 * | operation | forward             | backward            |
 * |-----------|---------------------|---------------------|
 * | copy      | nothing             | sl_comm_all_reduce  |
 * | reduce    | sl_comm_all_reduce  | nothing             |
 * | scatter   | sl_parallel_scatter | sl_parallel_gather  |
 * | gather    | sl_parallel_gather  | sl_parallel_scatter |
 *
 * Arrays are fp32, row-major, without padding, in host memory, and the program's. An array that a
 * call writes overlaps no other one of the call, except where its comment says so. Kernels and sums
 * are those of the engine: results do not depend on the number of threads, nor on what carries the
 * data. With another number of ranks sums are rounded in another order.
 *
 * Calls: all ranks make the same calls with the same sizes, as sluice/comm.h says, and each call
 * blocks. One thread at a time uses a team.
 *
 * Errors: SL_ERROR_USAGE: a size is 0 or too large, an array is missing, or a struct contradicts
 * itself; nothing was exchanged then. SL_ERROR_SYSTEM: no memory. SL_ERROR_RANK and
 * SL_ERROR_INTERNAL: as of sluice/comm.h. A rank that fails alone calls sl_comm_abort.
 *
 * Later versions add fields behind those of a struct. A function whose name ends in _sized takes
 * the size of the caller's struct as `bytes`, for languages that do not read this header: fields
 * behind it are 0. A field that the library does not know must be 0. Fields that are not set are 0
 * or NULL.
 */
#ifndef SLUICE_PARALLEL_H
#define SLUICE_PARALLEL_H

#include <stddef.h>
#include <stdint.h>

#include "sluice/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ranks that share layers: a communicator, threads that compute, and scratch memory. */
typedef struct sl_parallel_team sl_parallel_team;

/* Opens this rank's end of a team. The communicator stays the caller's and must outlive the team;
 * NULL: this process alone. `threads` compute, the caller's among them; 0: as many as processors
 * may be used, which `sluice launch` divides among its ranks. Scratch memory is taken when a call
 * needs more than calls before, and kept. */
SL_API sl_status sl_parallel_open(sl_comm *comm, uint32_t threads, sl_parallel_team **out_team);

/* Ends the threads and frees the scratch memory. NULL is fine. */
SL_API void sl_parallel_close(sl_parallel_team *team);

/* Which of `count` features, rows or classes are this rank's: out_count of them, from out_first
 * on. */
SL_API void sl_parallel_part(const sl_parallel_team *team, uint64_t count, uint64_t *out_first,
                             uint64_t *out_count);

/* How a matrix is divided among ranks. */
typedef enum sl_parallel_split {
    SL_PARALLEL_WHOLE,   /* each rank holds all of it */
    SL_PARALLEL_COLUMNS, /* each rank holds some columns: [rows, part of columns] */
    SL_PARALLEL_ROWS     /* each rank holds some rows: [part of rows, columns] */
} sl_parallel_split;

/* The sizes of a matrix on all ranks together. No later version adds a field. */
typedef struct sl_parallel_matrix {
    uint64_t rows, columns;
    sl_parallel_split split;
} sl_parallel_matrix;

/* part: this rank's part of `whole` [rows, columns]. Exchanges nothing. The arrays do not
 * overlap. */
SL_API sl_status sl_parallel_scatter(sl_parallel_team *team, const sl_parallel_matrix *matrix,
                                     const float *whole, float *part);

/* whole [rows, columns]: the parts of all ranks, on each rank; from SL_PARALLEL_WHOLE a copy. The
 * arrays do not overlap. */
SL_API sl_status sl_parallel_gather(sl_parallel_team *team, const sl_parallel_matrix *matrix,
                                    const float *part, float *whole);

/* part: this rank's part of a matrix of normal random numbers with mean 0 and the standard
 * deviation `deviation`. The numbers depend on `seed` and on their place in the matrix, so any
 * number of ranks makes the same matrix. Give each weight a seed of its own. */
SL_API sl_status sl_parallel_draw(sl_parallel_team *team, const sl_parallel_matrix *matrix,
                                  uint64_t seed, float deviation, float *part);

/* ---- layers ---- */

/* A linear layer. Of x, y and their gradients a rank has [rows, in] and [rows, out], or with
 * is_x_split and is_y_split its columns of them; of the weight its part of [in, out]. */
typedef struct sl_parallel_linear_args {
    uint64_t rows;           /* samples, or tokens */
    uint64_t in, out;        /* features of x and of y, on all ranks together */
    sl_parallel_split split; /* of the weight */
    int is_x_split;          /* 1: x and dx are this rank's columns; 0: whole */
    int is_y_split;          /* 1: y and dy are this rank's columns; 0: whole */
    int adds_gradients;      /* 1: backward adds to dweight and dbias; 0: it overwrites them */
    const float *x;
    const float *weight;
    const float *bias; /* [out], with SL_PARALLEL_COLUMNS this rank's part of it; NULL: none */
    float *y;          /* forward writes it */
    const float *dy;   /* backward reads it */
    float *dx;         /* backward writes it; NULL: not computed */
    float *dweight;    /* as weight; NULL: not computed */
    float *dbias;      /* as bias; NULL: not computed */
} sl_parallel_linear_args;

/* y = x * weight + bias. Gradients are not read and not written. */
SL_API sl_status sl_parallel_linear_forward_sized(sl_parallel_team *team,
                                                  const sl_parallel_linear_args *args,
                                                  size_t bytes);
static inline sl_status sl_parallel_linear_forward(sl_parallel_team *team,
                                                   const sl_parallel_linear_args *args)
{
    return sl_parallel_linear_forward_sized(team, args, sizeof *args);
}

/* The gradients of x, weight and bias from that of y. x and weight are as they were forward; bias
 * and y are not read. */
SL_API sl_status sl_parallel_linear_backward_sized(sl_parallel_team *team,
                                                   const sl_parallel_linear_args *args,
                                                   size_t bytes);
static inline sl_status sl_parallel_linear_backward(sl_parallel_team *team,
                                                    const sl_parallel_linear_args *args)
{
    return sl_parallel_linear_backward_sized(team, args, sizeof *args);
}

/* An embedding: y [rows, width] are rows of a table [ids, width], of which a rank has its part. */
typedef struct sl_parallel_embedding_args {
    uint64_t rows;           /* tokens */
    uint64_t ids, width;     /* of the table, on all ranks together */
    sl_parallel_split split; /* of the table: by rows, each rank has some ids */
    int is_y_split;          /* 1: y and dy are this rank's columns; 0: whole */
    int adds_gradients;      /* 1: backward adds to dtable; 0: it overwrites dtable */
    const int32_t *tokens;   /* [rows] ids below `ids`, the same on all ranks */
    const float *table;
    float *y;        /* forward writes it */
    const float *dy; /* backward reads it */
    float *dtable;   /* as table; backward writes it */
} sl_parallel_embedding_args;

/* y[row] = table[tokens[row]]. SL_ERROR_DATA: a token that is no id. */
SL_API sl_status sl_parallel_embedding_forward_sized(sl_parallel_team *team,
                                                     const sl_parallel_embedding_args *args,
                                                     size_t bytes);
static inline sl_status sl_parallel_embedding_forward(sl_parallel_team *team,
                                                      const sl_parallel_embedding_args *args)
{
    return sl_parallel_embedding_forward_sized(team, args, sizeof *args);
}

/* The gradient of the table from that of y; rows of one id are added in row order. Reads neither
 * table nor y. SL_ERROR_DATA: a token that is no id. */
SL_API sl_status sl_parallel_embedding_backward_sized(sl_parallel_team *team,
                                                      const sl_parallel_embedding_args *args,
                                                      size_t bytes);
static inline sl_status sl_parallel_embedding_backward(sl_parallel_team *team,
                                                       const sl_parallel_embedding_args *args)
{
    return sl_parallel_embedding_backward_sized(team, args, sizeof *args);
}

/* The cross-entropy of logits whose classes are divided among the ranks. */
typedef struct sl_parallel_cross_entropy_args {
    uint64_t rows;
    uint64_t classes;       /* on all ranks together */
    const int32_t *targets; /* [rows] classes, the same on all ranks */
    const float *logits;    /* [rows, this rank's part of classes] */
    double *loss;           /* the mean over rows of -log softmax(logits)[target], in nats */
    float *dlogits;         /* as logits: the gradient of the loss; may be `logits`, which is then
                               overwritten; NULL: not computed */
} sl_parallel_cross_entropy_args;

/* Computes loss and gradient, and exchanges 16 bytes of each row and rank: the logits stay where
 * they are. SL_ERROR_DATA: a target that is no class. */
SL_API sl_status sl_parallel_cross_entropy_sized(sl_parallel_team *team,
                                                 const sl_parallel_cross_entropy_args *args,
                                                 size_t bytes);
static inline sl_status sl_parallel_cross_entropy(sl_parallel_team *team,
                                                  const sl_parallel_cross_entropy_args *args)
{
    return sl_parallel_cross_entropy_sized(team, args, sizeof *args);
}

#ifdef __cplusplus
}
#endif
#endif
