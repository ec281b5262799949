/* Opening a team, its memory and kernels, and matrices that ranks divide. */
#include "team.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/rng.h"

enum { ALIGN_BYTES = 256 };

/* ---- an end ---- */

sl_status sl_parallel_open(sl_comm *comm, uint32_t threads, sl_parallel_team **out_team)
{
    sl_parallel_team *team = calloc(1, sizeof *team);
    if (!team)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a team of ranks");
    team->size = comm ? sl_comm_size(comm) : 1;
    team->rank = comm ? sl_comm_rank(comm) : 0;
    team->comm = team->size > 1 ? comm : NULL;
    const sl_status status =
        sl_workers_open(threads > 0 ? threads : sl_workers_usable_cpu_count(), &team->workers);
    if (status != SL_OK)
        free(team);
    else
        *out_team = team;
    return status;
}

void sl_parallel_close(sl_parallel_team *team)
{
    if (!team)
        return;
    sl_workers_close(team->workers);
    for (int i = 0; i < SL_TEAM_SCRATCH_COUNT; i++)
        free(team->scratch[i].memory);
    free(team);
}

sl_team_part sl_team_part_of(const sl_parallel_team *team, uint64_t count, uint32_t rank)
{
    const uint64_t each = count / team->size, more = count % team->size;
    return (sl_team_part){each * rank + sl_bits_min(rank, more), each + (rank < more)};
}

sl_team_part sl_team_own(const sl_parallel_team *team, uint64_t count, bool is_divided)
{
    return is_divided ? sl_team_part_of(team, count, team->rank) : (sl_team_part){0, count};
}

void sl_parallel_part(const sl_parallel_team *team, uint64_t count, uint64_t *out_first,
                      uint64_t *out_count)
{
    const sl_team_part own = sl_team_own(team, count, true);
    *out_first = own.first;
    *out_count = own.count;
}

sl_status sl_team_check_product(uint64_t rows, uint64_t columns, const char *what)
{
    uint64_t count, bytes;
    SL_TRY(sl_bits_multiply(rows, columns, what, &count));
    SL_TRY(sl_bits_multiply(count, sizeof(float), what, &bytes));
    if (count == 0)
        SL_FAIL(SL_ERROR_USAGE, "%s: a size is 0", what);
    return SL_OK;
}

sl_status sl_team_take(sl_parallel_team *team, sl_team_scratch use, uint64_t bytes,
                       void **out_memory)
{
    void *memory = NULL;
    bytes = sl_bits_max(bytes, ALIGN_BYTES); /* no elements have an address, too */
    if (bytes > team->scratch[use].bytes) {
        if (posix_memalign(&memory, ALIGN_BYTES, bytes) != 0)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for %llu bytes of a parallel layer",
                    (unsigned long long)bytes);
        free(team->scratch[use].memory);
        team->scratch[use].memory = memory;
        team->scratch[use].bytes = bytes;
    }
    *out_memory = team->scratch[use].memory;
    return SL_OK;
}

sl_status sl_team_compute(sl_parallel_team *team, sl_op_kind kind, const sl_op_attrs *attrs,
                          const void *const operands[SL_OPERAND_MAX])
{
    const sl_kernel_table *table = sl_kernels_cpu();
    sl_kernel_call call = {
        .attrs = attrs, .workers = team->workers, .scalars = {.loss_scale = 1.0f}};
    sl_kernel kernel;
    SL_TRY(sl_kernels_find(table, kind, &kernel));
    memcpy(call.operand, operands, sizeof call.operand);
    SL_TRY(sl_team_take(
        team, SL_TEAM_WORKSPACE,
        sl_kernels_workspace_bytes(table, kind, attrs, sl_workers_count(team->workers)),
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
static void find_starts(const sl_parallel_team *team, uint64_t count, uint64_t unit,
                        uint64_t *out_starts)
{
    out_starts[0] = 0;
    for (uint32_t rank = 0; rank < team->size; rank++)
        out_starts[rank + 1] = out_starts[rank] + sl_team_part_of(team, count, rank).count * unit;
}

static void scatter_columns(const sl_parallel_team *team, uint64_t rows, uint64_t features,
                            const float *whole, float *part)
{
    const sl_team_part own = sl_team_own(team, features, true);
    copy_columns(rows, own.count, columns_at(whole, own.first, features),
                 columns_at(part, 0, own.count));
}

/* Between a matrix [rows, features] and its parts one behind the other. */
static void copy_parts(const sl_parallel_team *team, const sl_parallel_matrix *matrix, float *parts,
                       float *whole, bool is_to_parts)
{
    for (uint32_t rank = 0; rank < team->size; rank++) {
        const sl_team_part own = sl_team_part_of(team, matrix->columns, rank);
        const columns inside = columns_at(whole, own.first, matrix->columns),
                      alone = columns_at(parts + matrix->rows * own.first, 0, own.count);
        copy_columns(matrix->rows, own.count, is_to_parts ? inside : alone,
                     is_to_parts ? alone : inside);
    }
}

static sl_status take_parts(sl_parallel_team *team, const sl_parallel_matrix *matrix,
                            float **out_parts)
{
    void *memory;
    SL_TRY(
        sl_team_take(team, SL_TEAM_PARTS, matrix->rows * matrix->columns * sizeof(float), &memory));
    *out_parts = memory;
    return SL_OK;
}

static sl_status gather_columns(sl_parallel_team *team, uint64_t rows, uint64_t features,
                                const float *part, float *whole)
{
    const sl_parallel_matrix matrix = {rows, features, SL_PARALLEL_COLUMNS};
    uint64_t starts[SL_COMM_RANKS_MAX + 1];
    float *parts;
    SL_TRY(take_parts(team, &matrix, &parts));
    find_starts(team, features, rows * sizeof(float), starts);
    SL_TRY(sl_comm_gather_pieces(team->comm, starts, part, parts));
    copy_parts(team, &matrix, parts, whole, false);
    return SL_OK;
}

/* part: this rank's columns of the sum. */
static sl_status sum_columns(sl_parallel_team *team, uint64_t rows, uint64_t features,
                             const float *term, float *part)
{
    static const sl_comm_types types = {SL_COMM_FP32, SL_COMM_FP32};
    const sl_parallel_matrix matrix = {rows, features, SL_PARALLEL_COLUMNS};
    uint64_t starts[SL_COMM_RANKS_MAX + 1];
    float *parts;
    SL_TRY(take_parts(team, &matrix, &parts));
    find_starts(team, features, rows, starts);
    copy_parts(team, &matrix, parts, (float *)term, true);
    return sl_comm_reduce_scatter_pieces(team->comm, types, starts, parts, part);
}

/* ---- activations: those of one rank are in every form at once ---- */

sl_status sl_team_bring(sl_parallel_team *team, sl_team_scratch use,
                        const sl_team_activation *given, bool needs_split, const float **out_data)
{
    const uint64_t rows = given->rows, features = given->features;
    const sl_team_part own = sl_team_own(team, features, needs_split);
    void *memory;
    *out_data = given->data;
    if (given->is_split == needs_split || team->size == 1)
        return SL_OK;
    SL_TRY(sl_team_take(team, use, rows * own.count * sizeof(float), &memory));
    if (needs_split)
        scatter_columns(team, rows, features, given->data, memory);
    else
        SL_TRY(gather_columns(team, rows, features, given->data, memory));
    *out_data = memory;
    return SL_OK;
}

static bool is_in_place(const sl_parallel_team *team, const sl_team_activation *wanted,
                        sl_team_form form)
{
    return team->size == 1 || wanted->is_split == (form == SL_TEAM_SPLIT);
}

sl_status sl_team_place(sl_parallel_team *team, const sl_team_activation *wanted, sl_team_form form,
                        float **out_place)
{
    void *memory = (void *)wanted->data;
    const sl_team_part own = sl_team_own(team, wanted->features, form == SL_TEAM_SPLIT);
    if (!is_in_place(team, wanted, form))
        SL_TRY(
            sl_team_take(team, SL_TEAM_OUTPUT, wanted->rows * own.count * sizeof(float), &memory));
    *out_place = memory;
    return SL_OK;
}

sl_status sl_team_give(sl_parallel_team *team, const sl_team_activation *wanted, sl_team_form form,
                       const float *place)
{
    const uint64_t rows = wanted->rows, features = wanted->features;
    float *data = (float *)wanted->data;
    if (team->size == 1)
        return SL_OK;
    if (form == SL_TEAM_PARTIAL && wanted->is_split)
        return sum_columns(team, rows, features, place, data);
    if (form == SL_TEAM_PARTIAL)
        return sl_comm_all_reduce(team->comm, SL_COMM_FP32, rows * features, data);
    if (form == SL_TEAM_SPLIT && !wanted->is_split)
        return gather_columns(team, rows, features, place, data);
    if (form == SL_TEAM_WHOLE && wanted->is_split)
        scatter_columns(team, rows, features, place, data);
    return SL_OK;
}

/* ---- matrices ---- */

static sl_status check_matrix(const sl_parallel_matrix *matrix, const void *from, const void *to)
{
    SL_TRY(sl_team_check_product(matrix->rows, matrix->columns, "a matrix of ranks"));
    if (matrix->split > SL_PARALLEL_ROWS || !from || !to)
        SL_FAIL(SL_ERROR_USAGE, "a matrix of ranks: its split is %u, or an array is missing",
                (unsigned)matrix->split);
    return SL_OK;
}

/* Rows and columns of this rank. */
static void find_own(const sl_parallel_team *team, const sl_parallel_matrix *matrix,
                     sl_team_part *out_rows, sl_team_part *out_columns)
{
    *out_rows = sl_team_own(team, matrix->rows, matrix->split == SL_PARALLEL_ROWS);
    *out_columns = sl_team_own(team, matrix->columns, matrix->split == SL_PARALLEL_COLUMNS);
}

sl_status sl_parallel_scatter(sl_parallel_team *team, const sl_parallel_matrix *matrix,
                              const float *whole, float *part)
{
    sl_team_part rows, own;
    SL_TRY(check_matrix(matrix, whole, part));
    find_own(team, matrix, &rows, &own);
    copy_columns(rows.count, own.count,
                 columns_at(whole, rows.first * matrix->columns + own.first, matrix->columns),
                 columns_at(part, 0, own.count));
    return SL_OK;
}

sl_status sl_parallel_gather(sl_parallel_team *team, const sl_parallel_matrix *matrix,
                             const float *part, float *whole)
{
    uint64_t starts[SL_COMM_RANKS_MAX + 1];
    SL_TRY(check_matrix(matrix, part, whole));
    if (matrix->split == SL_PARALLEL_WHOLE || team->size == 1) {
        memcpy(whole, part, matrix->rows * matrix->columns * sizeof *whole);
        return SL_OK;
    }
    if (matrix->split == SL_PARALLEL_COLUMNS)
        return gather_columns(team, matrix->rows, matrix->columns, part, whole);
    find_starts(team, matrix->rows, matrix->columns * sizeof(float), starts);
    return sl_comm_gather_pieces(team->comm, starts, part, whole);
}

typedef struct draw_job {
    const sl_parallel_matrix *matrix;
    sl_team_part rows, columns; /* of this rank */
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

sl_status sl_parallel_draw(sl_parallel_team *team, const sl_parallel_matrix *matrix, uint64_t seed,
                           float deviation, float *part)
{
    draw_job job = {.matrix = matrix, .seed = seed, .deviation = deviation, .part = part};
    SL_TRY(check_matrix(matrix, part, part));
    find_own(team, matrix, &job.rows, &job.columns);
    if (job.columns.count > 0)
        sl_workers_run(team->workers, job.rows.count, draw_row, &job);
    return SL_OK;
}
