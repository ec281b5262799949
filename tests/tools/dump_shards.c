/* A rank that computes layers alone, with sluice's kernels and communicator, for
 * reference/compare_ranks.py; no test of its own. `sluice launch -n N -- dump_shards DIR R I O V`.
 *
 * DIR has raw fp32 numbers: x [R, I], weight [I, O], bias [O], dy [R, O], table [V, I]; and targets
 * [R] in int32. Each rank writes DIR/out-RANK-NAME:
 *
 *   whole-*    the linear layer on every rank: y [R, O], dx [R, I], dweight [I, O], dbias [O]
 *   column-*   its part of the output features; dx is the sum over ranks
 *   row-*      its part of the input features, of x, weight, dx and dweight; y is the sum
 *   loss       fp64: the sum of -log p(target) over ids of which each rank has a part, padded at
 * the end to equal ones; dhidden [R, I] of the mean, dtable of its ids
 *
 * Of F features rank r has F / N, and one more while there are any left.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "kernels/kernels.h"

enum { PATH_BYTES = 4096, ALIGN_BYTES = 256 };

typedef struct tool {
    const char *directory;
    uint64_t rows, in, out, ids;
    uint32_t rank, size;
    sl_comm *world;
    sl_workers *workers;
    float *x, *weight, *bias, *dy, *table;
    int32_t *targets;
} tool;

/* ---- memory and files ---- */

static void give_up(const char *what)
{
    fprintf(stderr, "dump_shards: %s\n", what);
    exit(70);
}

static void need(sl_status status)
{
    if (status != SL_OK)
        give_up(sl_status_message());
}

/* Zeros, with a line more than asked for. */
static void *take(uint64_t bytes)
{
    const uint64_t whole = (bytes / ALIGN_BYTES + 1) * ALIGN_BYTES;
    void *memory = aligned_alloc(ALIGN_BYTES, whole);
    if (!memory)
        give_up("no memory");
    memset(memory, 0, whole);
    return memory;
}

static void *read_numbers(const tool *it, const char *name, uint64_t count)
{
    char path[PATH_BYTES];
    void *numbers = take(count * sizeof(float));
    snprintf(path, sizeof path, "%s/%s", it->directory, name);
    FILE *file = fopen(path, "rb");
    if (!file || fread(numbers, sizeof(float), count, file) != count)
        give_up(path);
    fclose(file);
    return numbers;
}

static void write_numbers(const tool *it, const char *name, const void *numbers, uint64_t bytes)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/out-%u-%s", it->directory, it->rank, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(numbers, 1, bytes, file) != bytes || fclose(file) != 0)
        give_up(path);
}

/* ---- parts ---- */

typedef struct part {
    uint64_t first, count;
} part;

static part share_out(const tool *it, uint64_t count)
{
    const uint64_t each = count / it->size, more = count % it->size;
    return (part){each * it->rank + (it->rank < more ? it->rank : more), each + (it->rank < more)};
}

/* Columns of [rows, columns]. */
static float *cut_columns(const float *whole, uint64_t rows, uint64_t columns, part own)
{
    float *cut = take(rows * own.count * sizeof *cut);
    for (uint64_t r = 0; r < rows; r++)
        memcpy(cut + r * own.count, whole + r * columns + own.first, own.count * sizeof *cut);
    return cut;
}

/* ---- ops ---- */

static void compute(const tool *it, sl_op_kind kind, const sl_op_attrs *attrs,
                    void *const *operands)
{
    const sl_kernel_table *table = sl_kernels_cpu();
    sl_kernel_call call = {.attrs = attrs, .workers = it->workers, .scalars = {.loss_scale = 1.0f}};
    for (int i = 0; i < SL_OPERAND_MAX && operands[i] != it; i++) /* the tool itself ends them */
        call.operand[i] = operands[i];
    call.workspace =
        take(sl_kernels_workspace_bytes(table, kind, attrs, sl_workers_count(it->workers)));
    need(table->row[kind].run(&call));
    free(call.workspace);
}

static void add_up(const tool *it, uint64_t count, float *data)
{
    need(sl_comm_all_reduce(it->world, SL_COMM_FP32, count, data));
}

/* ---- a linear layer ---- */

typedef struct linear {
    const char *name;
    uint64_t in, out; /* of this rank */
    float *x, *weight, *bias, *dy;
    bool sums_y, sums_dx;
} linear;

static void write_as(const tool *it, const linear *layer, const char *what, const float *numbers,
                     uint64_t count)
{
    char name[64];
    snprintf(name, sizeof name, "%s-%s", layer->name, what);
    write_numbers(it, name, numbers, count * sizeof *numbers);
}

/* Of a sum that follows, bias is on the first rank alone. */
static void run_forward(tool *it, const linear *layer)
{
    const uint64_t count = it->rows * layer->out;
    const sl_op_attrs attrs = {.row_count = it->rows,
                               .in = layer->in,
                               .out = layer->out,
                               .rank_index = layer->sums_y ? (uint16_t)it->rank : 0};
    float *y = take(count * sizeof *y);
    compute(it, SL_OP_LINEAR, &attrs,
            (void *[]){layer->x, layer->weight, layer->bias, NULL, y, it});
    if (layer->sums_y)
        add_up(it, count, y);
    write_as(it, layer, "y", y, count);
    free(y);
}

static void run_backward(tool *it, const linear *layer)
{
    const sl_op_attrs attrs = {.row_count = it->rows, .in = layer->in, .out = layer->out};
    const uint64_t dx_count = it->rows * layer->in, weight_count = layer->in * layer->out;
    float *dx = take(dx_count * sizeof *dx), *dweight = take(weight_count * sizeof *dweight);
    float *dbias = take(layer->out * sizeof *dbias);
    compute(it, SL_OP_LINEAR_INPUT_BACKWARD, &attrs,
            (void *[]){layer->dy, layer->weight, dx, NULL, it});
    compute(it, SL_OP_LINEAR_WEIGHT_BACKWARD, &attrs,
            (void *[]){layer->x, layer->dy, dweight, dbias, it});
    if (layer->sums_dx)
        add_up(it, dx_count, dx);
    write_as(it, layer, "dx", dx, dx_count);
    write_as(it, layer, "dweight", dweight, weight_count);
    write_as(it, layer, "dbias", dbias, layer->out);
    free(dx);
    free(dweight);
    free(dbias);
}

static void run_linear(tool *it, const linear *layer)
{
    run_forward(it, layer);
    run_backward(it, layer);
}

static void run_modes(tool *it)
{
    const part in = share_out(it, it->in), out = share_out(it, it->out);
    run_linear(
        it, &(linear){"whole", it->in, it->out, it->x, it->weight, it->bias, it->dy, false, false});
    linear column = {.name = "column", .in = it->in, .out = out.count, .x = it->x, .sums_dx = true};
    column.weight = cut_columns(it->weight, it->in, it->out, out);
    column.bias = cut_columns(it->bias, 1, it->out, out);
    column.dy = cut_columns(it->dy, it->rows, it->out, out);
    run_linear(it, &column);
    linear row = {.name = "row",
                  .in = in.count,
                  .out = it->out,
                  .bias = it->bias,
                  .dy = it->dy,
                  .sums_y = true};
    row.x = cut_columns(it->x, it->rows, it->in, in);
    row.weight = cut_columns(it->weight, 1, it->in * it->out,
                             (part){in.first * it->out, in.count * it->out});
    run_linear(it, &row);
    free(column.weight);
    free(column.bias);
    free(column.dy);
    free(row.x);
    free(row.weight);
}

/* ---- cross-entropy ---- */

/* Statistics of this rank's ids [rows][4] become those of all. */
static void join_stats(tool *it, float *stats)
{
    const uint64_t bytes = it->rows * 4 * sizeof *stats;
    const sl_op_attrs attrs = {.batch = it->size, .row_count = it->rows};
    float *parts = take(it->size * bytes);
    need(sl_comm_all_gather(it->world, bytes, stats, parts));
    const sl_kernel_call call = {
        .attrs = &attrs, .operand = {parts, stats}, .workers = it->workers};
    need(sl_kernels_cpu()->ranks[SL_RANK_STATS](&call));
    free(parts);
}

static void run_head(tool *it)
{
    const uint64_t each = (it->ids + it->size - 1) / it->size, first = each * it->rank;
    const uint64_t left = it->ids > first ? it->ids - first : 0, own = left < each ? left : each;
    const sl_op_attrs attrs = {.batch = 1,
                               .seq = it->rows,
                               .in = it->in,
                               .row_count = it->rows,
                               .first_id = first,
                               .id_count = each,
                               .valid_id_count = it->ids,
                               .scale = 1.0f / (float)it->rows};
    float *panel = take(each * it->in * sizeof *panel),
          *dpanel = take(each * it->in * sizeof *panel);
    float *logits = take(it->rows * each * sizeof *logits),
          *stats = take(it->rows * 4 * sizeof *stats);
    float *dhidden = take(it->rows * it->in * sizeof *dhidden);
    double loss = 0;
    memcpy(panel, it->table + first * it->in * (own > 0), own * it->in * sizeof *panel);
    compute(it, SL_OP_HEAD_LOGITS, &attrs, (void *[]){it->x, panel, logits, it});
    compute(it, SL_OP_HEAD_STATS, &attrs, (void *[]){logits, it->targets, stats, it});
    join_stats(it, stats);
    compute(it, SL_OP_HEAD_LOSS, &attrs, (void *[]){stats, &loss, it});
    compute(it, SL_OP_HEAD_LOGITS_BACKWARD, &attrs, (void *[]){it->targets, stats, logits, it});
    compute(it, SL_OP_HEAD_INPUT_BACKWARD, &attrs, (void *[]){logits, panel, dhidden, it});
    compute(it, SL_OP_HEAD_WEIGHT_BACKWARD, &attrs, (void *[]){it->x, logits, dpanel, it});
    add_up(it, it->rows * it->in, dhidden);
    write_numbers(it, "loss", &loss, sizeof loss);
    write_numbers(it, "dhidden", dhidden, it->rows * it->in * sizeof *dhidden);
    write_numbers(it, "dtable", dpanel, own * it->in * sizeof *dpanel);
    float *const all[] = {panel, dpanel, logits, stats, dhidden};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

int main(int argc, char **argv)
{
    const sl_comm_options options = {.timeout_s = 60};
    tool it = {0};
    if (argc != 6)
        give_up("DIR R I O V");
    it.directory = argv[1];
    uint64_t *const sizes[] = {&it.rows, &it.in, &it.out, &it.ids};
    for (int i = 0; i < 4; i++)
        *sizes[i] = strtoull(argv[2 + i], NULL, 10);
    need(sl_comm_open(&options, &it.world));
    need(sl_workers_open(1, &it.workers));
    it.rank = sl_comm_rank(it.world);
    it.size = sl_comm_size(it.world);
    it.x = read_numbers(&it, "x", it.rows * it.in);
    it.weight = read_numbers(&it, "weight", it.in * it.out);
    it.bias = read_numbers(&it, "bias", it.out);
    it.dy = read_numbers(&it, "dy", it.rows * it.out);
    it.table = read_numbers(&it, "table", it.ids * it.in);
    it.targets = read_numbers(&it, "targets", it.rows);
    run_modes(&it);
    run_head(&it);
    void *const all[] = {it.x, it.weight, it.bias, it.dy, it.table, it.targets};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    sl_workers_close(it.workers);
    sl_comm_close(it.world);
    return 0;
}
