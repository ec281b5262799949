/* Opening a group, its memory and kernels, and matrices that ranks divide. */
#include "group.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/rng.h"

enum { ALIGN_BYTES = 256 };

/* ---- an end ---- */

sl_status sl_parallel_open(sl_comm *comm, uint32_t threads, sl_parallel_group **out_group)
{
    sl_parallel_group *group = calloc(1, sizeof *group);
    if (!group)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a group of ranks");
    group->size = comm ? sl_comm_size(comm) : 1;
    group->rank = comm ? sl_comm_rank(comm) : 0;
    group->comm = group->size > 1 ? comm : NULL;
    const sl_status status =
        sl_workers_open(threads > 0 ? threads : sl_workers_usable_cpu_count(), &group->workers);
    if (status != SL_OK)
        free(group);
    else
        *out_group = group;
    return status;
}

void sl_parallel_close(sl_parallel_group *group)
{
    if (!group)
        return;
    sl_workers_close(group->workers);
    for (int i = 0; i < SL_GROUP_SCRATCH_COUNT; i++)
        free(group->scratch[i].memory);
    free(group);
}

sl_group_part sl_group_part_of(const sl_parallel_group *group, uint64_t count, uint32_t rank)
{
    const uint64_t each = count / group->size, more = count % group->size;
    return (sl_group_part){each * rank + sl_bits_min(rank, more), each + (rank < more)};
}

sl_group_part sl_group_own(const sl_parallel_group *group, uint64_t count, bool is_divided)
{
    return is_divided ? sl_group_part_of(group, count, group->rank) : (sl_group_part){0, count};
}

void sl_parallel_part(const sl_parallel_group *group, uint64_t count, uint64_t *out_first,
                      uint64_t *out_count)
{
    const sl_group_part own = sl_group_own(group, count, true);
    *out_first = own.first;
    *out_count = own.count;
}

sl_status sl_group_check_product(uint64_t rows, uint64_t columns, const char *what)
{
    uint64_t count, bytes;
    SL_TRY(sl_bits_multiply(rows, columns, what, &count));
    SL_TRY(sl_bits_multiply(count, sizeof(float), what, &bytes));
    if (count == 0)
        SL_FAIL(SL_ERROR_USAGE, "%s: a size is 0", what);
    return SL_OK;
}

sl_status sl_group_take(sl_parallel_group *group, sl_group_scratch use, uint64_t bytes,
                        void **out_memory)
{
    void *memory = NULL;
    bytes = sl_bits_max(bytes, ALIGN_BYTES); /* no elements have an address, too */
    if (bytes > group->scratch[use].bytes) {
        if (posix_memalign(&memory, ALIGN_BYTES, bytes) != 0)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for %llu bytes of a parallel layer",
                    (unsigned long long)bytes);
        free(group->scratch[use].memory);
        group->scratch[use].memory = memory;
        group->scratch[use].bytes = bytes;
    }
    *out_memory = group->scratch[use].memory;
    return SL_OK;
}

sl_status sl_group_compute(sl_parallel_group *group, sl_op_kind kind, const sl_op_attrs *attrs,
                           const void *const operands[SL_OPERAND_MAX])
{
    const sl_kernel_table *table = sl_kernels_cpu();
    sl_kernel_call call = {
        .attrs = attrs, .workers = group->workers, .scalars = {.loss_scale = 1.0f}};
    sl_kernel kernel;
    SL_TRY(sl_kernels_find(table, kind, &kernel));
    memcpy(call.operand, operands, sizeof call.operand);
    SL_TRY(sl_group_take(
        group, SL_GROUP_WORKSPACE,
        sl_kernels_workspace_bytes(table, kind, attrs, sl_workers_count(group->workers)),
        &call.workspace));
    return kernel(&call);
}

/* ---- columns ---- */

typedef struct columns {
    float *data;
    uint64_t stride;
} columns;

static void copy_columns(uint64_t rows, uint64_t count, columns from, columns to)
{
    for (uint64_t row = 0; row < rows && count > 0; row++)
        memcpy(to.data + row * to.stride, from.data + row * from.stride, count * sizeof(float));
}

static columns columns_at(const float *data, uint64_t first, uint64_t stride)
{
    return (columns){(float *)data + first, stride};
}

/* starts [size + 1]: of pieces of `unit` units for each of `count` items. */
static void find_starts(const sl_parallel_group *group, uint64_t count, uint64_t unit,
                        uint64_t *out_starts)
{
    out_starts[0] = 0;
    for (uint32_t rank = 0; rank < group->size; rank++)
        out_starts[rank + 1] = out_starts[rank] + sl_group_part_of(group, count, rank).count * unit;
}

static void scatter_columns(const sl_parallel_group *group, uint64_t rows, uint64_t features,
                            const float *whole, float *part)
{
    const sl_group_part own = sl_group_own(group, features, true);
    copy_columns(rows, own.count, columns_at(whole, own.first, features),
                 columns_at(part, 0, own.count));
}

/* Between a matrix [rows, features] and its parts one behind the other. */
static void copy_parts(const sl_parallel_group *group, const sl_parallel_matrix *matrix,
                       float *parts, float *whole, bool is_to_parts)
{
    for (uint32_t rank = 0; rank < group->size; rank++) {
        const sl_group_part own = sl_group_part_of(group, matrix->columns, rank);
        const columns inside = columns_at(whole, own.first, matrix->columns),
                      alone = columns_at(parts + matrix->rows * own.first, 0, own.count);
        copy_columns(matrix->rows, own.count, is_to_parts ? inside : alone,
                     is_to_parts ? alone : inside);
    }
}

static sl_status take_parts(sl_parallel_group *group, const sl_parallel_matrix *matrix,
                            float **out_parts)
{
    void *memory;
    SL_TRY(sl_group_take(group, SL_GROUP_PARTS, matrix->rows * matrix->columns * sizeof(float),
                         &memory));
    *out_parts = memory;
    return SL_OK;
}

static sl_status gather_columns(sl_parallel_group *group, uint64_t rows, uint64_t features,
                                const float *part, float *whole)
{
    const sl_parallel_matrix matrix = {rows, features, SL_PARALLEL_COLUMNS};
    uint64_t starts[SL_COMM_RANKS_MAX + 1];
    float *parts;
    SL_TRY(take_parts(group, &matrix, &parts));
    find_starts(group, features, rows * sizeof(float), starts);
    SL_TRY(sl_comm_gather_pieces(group->comm, starts, part, parts));
    copy_parts(group, &matrix, parts, whole, false);
    return SL_OK;
}

/* part: this rank's columns of the sum. */
static sl_status sum_columns(sl_parallel_group *group, uint64_t rows, uint64_t features,
                             const float *term, float *part)
{
    static const sl_comm_types types = {SL_COMM_FP32, SL_COMM_FP32};
    const sl_parallel_matrix matrix = {rows, features, SL_PARALLEL_COLUMNS};
    uint64_t starts[SL_COMM_RANKS_MAX + 1];
    float *parts;
    SL_TRY(take_parts(group, &matrix, &parts));
    find_starts(group, features, rows, starts);
    copy_parts(group, &matrix, parts, (float *)term, true);
    return sl_comm_reduce_scatter_pieces(group->comm, types, starts, parts, part);
}

/* ---- activations: those of one rank are in every form at once ---- */

sl_status sl_group_bring(sl_parallel_group *group, sl_group_scratch use,
                         const sl_group_activation *given, bool needs_split, const float **out_data)
{
    const uint64_t rows = given->rows, features = given->features;
    const sl_group_part own = sl_group_own(group, features, needs_split);
    void *memory;
    *out_data = given->data;
    if (given->is_split == needs_split || group->size == 1)
        return SL_OK;
    SL_TRY(sl_group_take(group, use, rows * own.count * sizeof(float), &memory));
    if (needs_split)
        scatter_columns(group, rows, features, given->data, memory);
    else
        SL_TRY(gather_columns(group, rows, features, given->data, memory));
    *out_data = memory;
    return SL_OK;
}

static bool is_in_place(const sl_parallel_group *group, const sl_group_activation *wanted,
                        sl_group_form form)
{
    return group->size == 1 || wanted->is_split == (form == SL_GROUP_SPLIT);
}

sl_status sl_group_place(sl_parallel_group *group, const sl_group_activation *wanted,
                         sl_group_form form, float **out_place)
{
    void *memory = (void *)wanted->data;
    const sl_group_part own = sl_group_own(group, wanted->features, form == SL_GROUP_SPLIT);
    if (!is_in_place(group, wanted, form))
        SL_TRY(sl_group_take(group, SL_GROUP_OUTPUT, wanted->rows * own.count * sizeof(float),
                             &memory));
    *out_place = memory;
    return SL_OK;
}

sl_status sl_group_give(sl_parallel_group *group, const sl_group_activation *wanted,
                        sl_group_form form, const float *place)
{
    const uint64_t rows = wanted->rows, features = wanted->features;
    float *data = (float *)wanted->data;
    if (group->size == 1)
        return SL_OK;
    if (form == SL_GROUP_PARTIAL && wanted->is_split)
        return sum_columns(group, rows, features, place, data);
    if (form == SL_GROUP_PARTIAL)
        return sl_comm_all_reduce(group->comm, SL_COMM_FP32, rows * features, data);
    if (form == SL_GROUP_SPLIT && !wanted->is_split)
        return gather_columns(group, rows, features, place, data);
    if (form == SL_GROUP_WHOLE && wanted->is_split)
        scatter_columns(group, rows, features, place, data);
    return SL_OK;
}

/* ---- matrices ---- */

static sl_status check_matrix(const sl_parallel_matrix *matrix, const void *from, const void *to)
{
    SL_TRY(sl_group_check_product(matrix->rows, matrix->columns, "a matrix of ranks"));
    if (matrix->split > SL_PARALLEL_ROWS || !from || !to)
        SL_FAIL(SL_ERROR_USAGE, "a matrix of ranks: its split is %u, or an array is missing",
                (unsigned)matrix->split);
    return SL_OK;
}

/* Rows and columns of this rank. */
static void find_own(const sl_parallel_group *group, const sl_parallel_matrix *matrix,
                     sl_group_part *out_rows, sl_group_part *out_columns)
{
    *out_rows = sl_group_own(group, matrix->rows, matrix->split == SL_PARALLEL_ROWS);
    *out_columns = sl_group_own(group, matrix->columns, matrix->split == SL_PARALLEL_COLUMNS);
}

sl_status sl_parallel_scatter(sl_parallel_group *group, const sl_parallel_matrix *matrix,
                              const float *whole, float *part)
{
    sl_group_part rows, own;
    SL_TRY(check_matrix(matrix, whole, part));
    find_own(group, matrix, &rows, &own);
    copy_columns(rows.count, own.count,
                 columns_at(whole, rows.first * matrix->columns + own.first, matrix->columns),
                 columns_at(part, 0, own.count));
    return SL_OK;
}

sl_status sl_parallel_gather(sl_parallel_group *group, const sl_parallel_matrix *matrix,
                             const float *part, float *whole)
{
    uint64_t starts[SL_COMM_RANKS_MAX + 1];
    SL_TRY(check_matrix(matrix, part, whole));
    if (matrix->split == SL_PARALLEL_WHOLE || group->size == 1) {
        memcpy(whole, part, matrix->rows * matrix->columns * sizeof *whole);
        return SL_OK;
    }
    if (matrix->split == SL_PARALLEL_COLUMNS)
        return gather_columns(group, matrix->rows, matrix->columns, part, whole);
    find_starts(group, matrix->rows, matrix->columns * sizeof(float), starts);
    return sl_comm_gather_pieces(group->comm, starts, part, whole);
}

typedef struct draw_job {
    const sl_parallel_matrix *matrix;
    sl_group_part rows, columns; /* of this rank */
    uint64_t seed;
    float deviation, *part;
} draw_job;

static void draw_row(void *argument, uint64_t row, uint32_t worker_index)
{
    (void)worker_index;
    const draw_job *job = argument;
    const uint64_t first = (job->rows.first + row) * job->matrix->columns + job->columns.first;
    float *values = job->part + row * job->columns.count;
    sl_rng_fill_normal(job->seed, 0, first, job->columns.count, values);
    for (uint64_t i = 0; i < job->columns.count; i++)
        values[i] *= job->deviation;
}

sl_status sl_parallel_draw(sl_parallel_group *group, const sl_parallel_matrix *matrix,
                           uint64_t seed, float deviation, float *part)
{
    draw_job job = {.matrix = matrix, .seed = seed, .deviation = deviation, .part = part};
    SL_TRY(check_matrix(matrix, part, part));
    find_own(group, matrix, &job.rows, &job.columns);
    if (job.columns.count > 0)
        sl_workers_run(group->workers, job.rows.count, draw_row, &job);
    return SL_OK;
}
