/* The ops of Muon beside its update: the direction of a chunk, and the Newton-Schulz steps of a
 * matrix, which are products with loops over elements around them (kernels/newton_schulz.h). */
#include <math.h>
#include <stddef.h>

#include "gemm.h"
#include "kernels/newton_schulz.h"
#include "ops.h"
#include "simd.h"
#include "tiles.h"

enum { TILE_BLOCKS = 64, TILE_ELEMENTS = 32768 };

/* ---- the direction ---- */

static void make_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const sl_momentum_blocks *all = argument;
    const sl_span span = sl_tiles_span(all->block_count, TILE_BLOCKS, tile_index);
    const uint64_t first = span.first * SL_BLOCK_ELEMENTS;
    sl_momentum_blocks blocks = *all;
    blocks.gradient = sl_simd_gradient_from(&all->gradient, first);
    blocks.direction = (char *)all->direction + first * sl_type_bytes(all->gradient.stored_type);
    blocks.mean += first;
    blocks.block_count = span.count;
    sl_simd_current()->momentum(&blocks);
}

static sl_status check_types(const sl_op_attrs *attrs)
{
    if (attrs->grad_type != SL_TYPE_FP32 && attrs->grad_type != attrs->type)
        SL_FAIL(SL_ERROR_INTERNAL, "a gradient stored as type %u, computed as type %u",
                attrs->grad_type, attrs->type);
    return SL_OK;
}

sl_status sl_cpu_momentum(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    const sl_step_control *control = call->operand[0];
    const float momentum = call->scalars.muon_momentum;
    SL_TRY(check_types(attrs));
    if (attrs->element_count % SL_BLOCK_ELEMENTS != 0)
        SL_FAIL(SL_ERROR_INTERNAL, "directions of %llu elements are not whole blocks",
                (unsigned long long)attrs->element_count);
    if (control->skip)
        return SL_OK;
    sl_momentum_blocks blocks = {
        .gradient = {call->operand[1], (sl_type)attrs->grad_type, (sl_type)attrs->type},
        .direction = call->operand[1],
        .mean = call->operand[2],
        .block_count = attrs->element_count / SL_BLOCK_ELEMENTS,
        .clip_scale = control->clip_scale,
        .momentum = momentum,
        .rest = 1.0f - momentum,
        .loss_scale = call->scalars.loss_scale};
    sl_workers_run(call->workers, sl_tiles_count(blocks.block_count, TILE_BLOCKS), make_tile,
                   &blocks);
    return SL_OK;
}

/* ---- loops over elements ---- */

typedef struct squares_job {
    const void *x;
    sl_type stored_type, type;
    uint64_t element_count;
    float *sums;
} squares_job;

static void sum_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const squares_job *job = argument;
    const sl_span span = sl_tiles_span(job->element_count, SL_NEWTON_SCHULZ_TILE, tile_index);
    const char *x = (const char *)job->x + span.first * sl_type_bytes(job->stored_type);
    sl_simd_current()->squares(x, job->stored_type, job->type, span.count, &job->sums[tile_index]);
}

static void multiply_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    sl_factor_span span = *(const sl_factor_span *)argument;
    const sl_span tile = sl_tiles_span(span.count, TILE_ELEMENTS, tile_index);
    span.x = (const char *)span.x + tile.first * sl_type_bytes(span.x_type);
    span.y = (char *)span.y + tile.first * sl_type_bytes(span.y_type);
    span.count = tile.count;
    sl_simd_current()->factor(&span);
}

static void multiply(const sl_kernel_call *call, sl_factor_span *span)
{
    sl_workers_run(call->workers, sl_tiles_count(span->count, TILE_ELEMENTS), multiply_tile, span);
}

typedef struct quadratic_job {
    void *gram;
    const float *square;
    sl_type type;
    uint64_t element_count;
    sl_newton_schulz_factors factors;
} quadratic_job;

static void add_square_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const quadratic_job *job = argument;
    const sl_span tile = sl_tiles_span(job->element_count, TILE_ELEMENTS, tile_index);
    sl_simd_current()->quadratic((char *)job->gram + tile.first * sl_type_bytes(job->type),
                                 job->type, job->square + tile.first, tile.count,
                                 job->factors.linear, job->factors.square);
}

/* ---- the steps ---- */

/* The first Y. Sums of tiles are added in their order. */
static void normalise(const sl_kernel_call *call, const sl_newton_schulz_room *room)
{
    const sl_op_attrs *attrs = call->attrs;
    const sl_type type = (sl_type)attrs->type, stored = (sl_type)attrs->grad_type;
    squares_job squares = {call->operand[0], stored, type, sl_newton_schulz_elements(attrs),
                           room->sums};
    const uint64_t tiles = sl_newton_schulz_tiles(attrs);
    double sum = 0;
    sl_workers_run(call->workers, tiles, sum_tile, &squares);
    for (uint64_t tile = 0; tile < tiles; tile++)
        sum += (double)room->sums[tile];
    const float norm = (float)sqrt(sum), least = sl_newton_schulz_epsilon();
    sl_factor_span span = {.x = call->operand[0],
                           .y = room->matrix[0],
                           .x_type = stored,
                           .type = type,
                           .y_type = type,
                           .count = squares.element_count,
                           .factor = sl_newton_schulz_first() / (norm < least ? least : norm)};
    multiply(call, &span);
}

static sl_status run_product(const sl_kernel_call *call, const sl_newton_schulz_room *room,
                             sl_product product, const void *a, const void *b, void *c)
{
    product.a = a;
    product.b = b;
    product.c = c;
    return sl_gemm_run(&product, room->product, call->workers);
}

static sl_status run_step(const sl_kernel_call *call, const sl_newton_schulz_room *room,
                          uint32_t step)
{
    const sl_op_attrs *attrs = call->attrs;
    const void *from = room->matrix[step % 2];
    const bool is_wide = sl_newton_schulz_is_wide(attrs);
    const uint64_t side = sl_newton_schulz_side(attrs);
    quadratic_job quadratic = {room->gram, room->square, (sl_type)attrs->type, side * side,
                               sl_newton_schulz_factors_of(step)};
    sl_product last = sl_newton_schulz_step(attrs);
    last.residual = from;
    SL_TRY(run_product(call, room, sl_newton_schulz_gram(attrs), from, from, room->gram));
    SL_TRY(run_product(call, room, sl_newton_schulz_square(attrs), room->gram, room->gram,
                       room->square));
    sl_workers_run(call->workers, sl_tiles_count(quadratic.element_count, TILE_ELEMENTS),
                   add_square_tile, &quadratic);
    return run_product(call, room, last, is_wide ? room->gram : from, is_wide ? from : room->gram,
                       room->matrix[(step + 1) % 2]);
}

static uint64_t count_product_bytes(const sl_op_attrs *attrs, uint32_t worker_count)
{
    const sl_product products[] = {sl_newton_schulz_gram(attrs), sl_newton_schulz_square(attrs),
                                   sl_newton_schulz_step(attrs)};
    uint64_t most = 0;
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++)
        most = sl_bits_max(most, sl_gemm_workspace_bytes(&products[i], worker_count));
    return most;
}

static sl_newton_schulz_layout lay_out(const sl_op_attrs *attrs, uint32_t worker_count)
{
    return sl_newton_schulz_lay_out(attrs, count_product_bytes(attrs, worker_count));
}

uint64_t sl_cpu_orthogonalise_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                              uint32_t worker_count)
{
    (void)kind;
    return sl_newton_schulz_elements(attrs) == 0 ? 0 : lay_out(attrs, worker_count).bytes;
}

sl_status sl_cpu_orthogonalise(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    SL_TRY(check_types(attrs));
    if (sl_newton_schulz_elements(attrs) == 0)
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix of %llu x %llu elements",
                (unsigned long long)attrs->in, (unsigned long long)attrs->out);
    const sl_newton_schulz_layout layout = lay_out(attrs, sl_workers_count(call->workers));
    const sl_newton_schulz_room room =
        sl_newton_schulz_place(attrs, &layout, call->operand[0], call->workspace);
    normalise(call, &room);
    for (uint32_t step = 0; step < SL_NEWTON_SCHULZ_STEPS; step++)
        SL_TRY(run_step(call, &room, step));
    sl_factor_span span = {.x = room.matrix[SL_NEWTON_SCHULZ_STEPS % 2],
                           .y = call->operand[0],
                           .x_type = (sl_type)attrs->type,
                           .type = (sl_type)attrs->type,
                           .y_type = (sl_type)attrs->grad_type,
                           .count = sl_newton_schulz_elements(attrs),
                           .factor = sl_newton_schulz_last(attrs)};
    multiply(call, &span);
    return SL_OK;
}
