/* Custom ops: a program's own function computes a few rows at a time, with operands in fp32. Half
 * precision is widened before and rounded behind, once. What the function writes and nobody needs
 * goes to scratch memory, so it never meets an absent operand. Backward, each tile of rows has a
 * gradient of the weight of its own; those are added in the order of the tiles. */
#include <string.h>

#include "ops.h"
#include "partials.h"
#include "simd.h"
#include "sluice/custom.h"

enum { ROWS = 16, WIDENED = 32768 };          /* of one call of the function; elements of a tile */
static const uint64_t partials_max = 1 << 24; /* floats of the gradients of tiles, if one fits */

typedef struct custom_job {
    const sl_kernel_call *call;
    sl_type type;
    uint64_t row_count, tile_rows, in, out, weight_count;
    const float *weight; /* in fp32; NULL: none */
    float *scratch;      /* [workers][scratch_floats] */
    float *partials;     /* backward: [tiles][weight_count] */
} custom_job;

/* ---- memory ---- */

/* Backward a tile costs as much memory as the weight: a large one has few. */
static uint64_t find_tile_rows(sl_op_kind kind, const sl_op_attrs *attrs)
{
    if (kind == SL_OP_CUSTOM)
        return ROWS;
    const uint64_t rows = sl_partials_rows(attrs->row_count);
    const uint64_t fitting = partials_max / sl_bits_max(attrs->element_count, 1);
    return sl_bits_max(rows, sl_bits_divide_up(attrs->row_count, sl_bits_max(fitting, 1)));
}

static uint64_t count_scratch_floats(const sl_op_attrs *attrs)
{
    return ROWS * (4 * attrs->in + attrs->out); /* x, z, dx, dz; y or dy */
}

static uint64_t count_partials(sl_op_kind kind, const sl_op_attrs *attrs)
{
    const uint64_t tiles = sl_tiles_count(attrs->row_count, find_tile_rows(kind, attrs));
    return kind == SL_OP_CUSTOM ? 0 : tiles * attrs->element_count;
}

uint64_t sl_cpu_custom_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                       uint32_t worker_count)
{
    const uint64_t floats = attrs->element_count + count_partials(kind, attrs) +
                            worker_count * count_scratch_floats(attrs);
    return floats * sizeof(float);
}

/* Some elements of the weight, to the front of the workspace. */
static void widen_weight(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const custom_job *job = argument;
    const sl_span span = sl_tiles_span(job->weight_count, WIDENED, tile_index);
    const char *from = job->call->operand[2];
    sl_simd_current()->widen(from + span.first * sl_type_bytes(job->type), job->type,
                             (float *)job->call->workspace + span.first, span.count);
}

static custom_job start_job(const sl_kernel_call *call, sl_op_kind kind)
{
    const sl_op_attrs *attrs = call->attrs;
    float *memory = call->workspace;
    custom_job job = {.call = call,
                      .type = (sl_type)attrs->type,
                      .row_count = attrs->row_count,
                      .tile_rows = find_tile_rows(kind, attrs),
                      .in = attrs->in,
                      .out = attrs->out,
                      .weight_count = attrs->element_count,
                      .weight = call->operand[2],
                      .partials = memory + attrs->element_count};
    job.scratch = job.partials + count_partials(kind, attrs);
    if (job.weight != NULL && job.type != SL_TYPE_FP32) {
        sl_workers_run(call->workers, sl_tiles_count(job.weight_count, WIDENED), widen_weight,
                       &job);
        job.weight = memory;
    }
    return job;
}

/* ---- operands of some rows ---- */

/* The rows of an operand, as they are or widened into *scratch, which moves on. */
static const float *read_rows(const custom_job *job, uint32_t operand, sl_span span,
                              uint64_t features, float **scratch)
{
    const char *rows = job->call->operand[operand];
    float *widened = *scratch;
    *scratch += ROWS * features;
    if (rows == NULL)
        return NULL;
    rows += span.first * features * sl_type_bytes(job->type);
    if (job->type == SL_TYPE_FP32)
        return (const float *)(const void *)rows;
    sl_simd_current()->widen(rows, job->type, widened, span.count * features);
    return widened;
}

/* Where the rows of an operand are computed: in place, or in *scratch. */
static float *find_rows(const custom_job *job, uint32_t operand, sl_span span, uint64_t features,
                        float **scratch)
{
    float *rows = job->call->operand[operand];
    float *beside = *scratch;
    *scratch += ROWS * features;
    return rows != NULL && job->type == SL_TYPE_FP32 ? rows + span.first * features : beside;
}

static void write_rows(const custom_job *job, uint32_t operand, sl_span span, uint64_t features,
                       const float *computed)
{
    char *rows = job->call->operand[operand];
    if (rows == NULL || job->type == SL_TYPE_FP32)
        return;
    sl_simd_current()->round(computed, rows + span.first * features * sl_type_bytes(job->type),
                             job->type, span.count * features);
}

static sl_custom_rows describe_rows(const custom_job *job, sl_span span)
{
    return (sl_custom_rows){.row_count = span.count,
                            .in = job->in,
                            .out = job->out,
                            .weight = job->weight,
                            .user = job->call->custom->user};
}

static float *find_scratch(const custom_job *job, uint32_t worker_index)
{
    return job->scratch + worker_index * count_scratch_floats(job->call->attrs);
}

/* ---- forward ---- */

static void compute_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    enum { X, Z, WEIGHT, Y };
    const custom_job *job = argument;
    const sl_span span = sl_tiles_span(job->row_count, job->tile_rows, tile_index);
    float *scratch = find_scratch(job, worker_index);
    sl_custom_rows rows = describe_rows(job, span);
    rows.x = read_rows(job, X, span, job->in, &scratch);
    rows.z = read_rows(job, Z, span, job->in, &scratch);
    rows.y = find_rows(job, Y, span, job->out, &scratch);
    job->call->custom->forward(&rows);
    write_rows(job, Y, span, job->out, rows.y);
}

sl_status sl_cpu_custom(const sl_kernel_call *call)
{
    custom_job job = start_job(call, SL_OP_CUSTOM);
    sl_workers_run(call->workers, sl_tiles_count(job.row_count, job.tile_rows), compute_tile, &job);
    return SL_OK;
}

/* ---- backward ---- */

enum { X, Z, WEIGHT, DY, DX, DZ, DWEIGHT };

static void differentiate_rows(const custom_job *job, sl_span span, float *scratch, float *dweight)
{
    sl_custom_rows rows = describe_rows(job, span);
    rows.x = read_rows(job, X, span, job->in, &scratch);
    rows.z = read_rows(job, Z, span, job->in, &scratch);
    rows.dy = read_rows(job, DY, span, job->out, &scratch);
    rows.dx = find_rows(job, DX, span, job->in, &scratch);
    if (rows.z != NULL)
        rows.dz = find_rows(job, DZ, span, job->in, &scratch);
    rows.dweight = dweight;
    job->call->custom->backward(&rows);
    write_rows(job, DX, span, job->in, rows.dx);
    write_rows(job, DZ, span, job->in, rows.dz);
}

static void differentiate_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    const custom_job *job = argument;
    const sl_span tile = sl_tiles_span(job->row_count, job->tile_rows, tile_index);
    float *dweight = job->weight ? job->partials + tile_index * job->weight_count : NULL;
    if (dweight != NULL)
        memset(dweight, 0, job->weight_count * sizeof *dweight);
    for (uint64_t i = 0; i < sl_tiles_count(tile.count, ROWS); i++) {
        sl_span span = sl_tiles_span(tile.count, ROWS, i);
        span.first += tile.first;
        differentiate_rows(job, span, find_scratch(job, worker_index), dweight);
    }
}

sl_status sl_cpu_custom_backward(const sl_kernel_call *call)
{
    custom_job job = start_job(call, SL_OP_CUSTOM_BACKWARD);
    const uint64_t tiles = sl_tiles_count(job.row_count, job.tile_rows);
    const sl_partials sums = {.partials = job.partials,
                              .count = tiles,
                              .stride = job.weight_count,
                              .width = job.weight_count,
                              .out = call->operand[DWEIGHT],
                              .type = (sl_type)call->attrs->grad_type,
                              .add = call->attrs->adds_gradient};
    sl_workers_run(call->workers, tiles, differentiate_tile, &job);
    if (call->operand[DWEIGHT] != NULL)
        sl_partials_add(call->workers, &sums);
    return SL_OK;
}
