/* Prints what the kernels of a step do to memory, a line a kernel that a shape below or a step
 * launches, with tabs between:
 *
 *     name (mangled), launches of a step, then over the shapes below:
 *     requests of global memory, 32-byte sectors of them, bytes that their lanes asked for,
 *     passes of shared memory, and the passes if no two words shared a bank
 *
 *     SL_PTX_TRAFFIC=1 tool_ptx_traffic [lines]
 *
 * lines: after them each instruction that takes more sectors than its bytes need, or that has bank
 * conflicts. The rules are those of ptx_traffic (shadow.h); scripts/check_traffic compares the
 * lines with earlier ones.
 *
 * The shapes are those of GPT-2 and Llama in width, with few rows: what a request touches does not
 * depend on how many there are. Values only have to be finite. Products are those of our own
 * kernels. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/gpu_place.h"
#include "cuda/run_case.h"
#include "kernels/cuda/library.h"
#include "program/program.h"
#include "standin_objects.h"
#include "standin_watch.h"

enum { KERNELS_MOST = 512, STEP_LAYERS = 12, STEP_PANELS = 17 };

typedef struct kernel_row {
    const char *name, *file;
    const standin_function *function;
    uint64_t launches; /* of a step */
    uint64_t launched; /* before it */
    ptx_traffic sum;
} kernel_row;

static kernel_row rows[KERNELS_MOST];
static uint32_t row_count;
static sl_kernel_library own; /* without cuBLASLt */

static void need(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "tool_ptx_traffic: %s: %s\n", what, sl_status_message());
        exit(1);
    }
}

/* ---- the shapes ---- */

typedef struct shape {
    sl_op_kind kind;
    sl_op_attrs attrs;
} shape;

#define ROWS .batch = 1, .seq = 128, .row_count = 128
#define FEW .batch = 1, .seq = 16, .row_count = 16
#define HALF .type = SL_TYPE_BF16, .grad_type = SL_TYPE_BF16
#define PANEL .id_count = 2048, .valid_id_count = 2048, .scale = 1.0f
#define HEADS .batch = 1, .seq = 256, HALF
#define ELEMENTS .element_count = UINT64_C(4) * SL_BLOCK_ELEMENTS

static const shape shapes[] = {
    {SL_OP_EMBED_POSITION, {FEW, HALF, .in = 768}},
    {SL_OP_EMBED_TOKENS, {FEW, HALF, PANEL, .in = 768}},
    {SL_OP_LAYERNORM, {FEW, HALF, .in = 768}},
    {SL_OP_LAYERNORM, {FEW, HALF, .in = 1600}},
    {SL_OP_LINEAR, {ROWS, HALF, .in = 768, .out = 256}},
    {SL_OP_LINEAR, {ROWS, .in = 256, .out = 256}},
    {SL_OP_ATTENTION, {.batch = 1, .seq = 256, HALF, .in = 128, .out = 128, .heads = 2}},
    {SL_OP_ATTENTION, {.batch = 1, .seq = 256, HALF, .in = 128, .out = 128, .heads = 1}},
    {SL_OP_GELU, {HALF, ELEMENTS}},
    {SL_OP_RMSNORM, {FEW, HALF, .in = 2048, .epsilon = 1e-5f}},
    {SL_OP_RMSNORM, {HALF, .row_count = 64, .in = 128, .epsilon = 1e-5f}},
    {SL_OP_ROTARY, {HEADS, .in = 512, .out = 128, .heads = 4, .cache_rows = 256}},
    {SL_OP_SWIGLU, {HALF, ELEMENTS}},
    {SL_OP_SWIGLU, {HALF, ELEMENTS, .is_gelu = 1}},
    {SL_OP_SCALE, {HALF, ELEMENTS, .scale = 1.5f}},
    {SL_OP_HEAD_LOGITS, {ROWS, HALF, .in = 768, .id_count = 256}},
    {SL_OP_HEAD_STATS, {FEW, HALF, PANEL}},
    {SL_OP_HEAD_LOSS, {.row_count = 1024}},
    {SL_OP_HEAD_LOGITS_BACKWARD, {FEW, HALF, PANEL}},
    {SL_OP_HEAD_INPUT_BACKWARD, {ROWS, HALF, .in = 768, .id_count = 256}},
    {SL_OP_HEAD_WEIGHT_BACKWARD, {ROWS, HALF, .in = 768, .id_count = 256}},
    {SL_OP_LINEAR_INPUT_BACKWARD, {ROWS, HALF, .in = 256, .out = 768}},
    {SL_OP_LINEAR_WEIGHT_BACKWARD, {ROWS, HALF, .in = 256, .out = 768}},
    {SL_OP_GELU_BACKWARD, {HALF, ELEMENTS}},
    {SL_OP_ATTENTION_BACKWARD, {.batch = 1, .seq = 256, HALF, .in = 128, .out = 128, .heads = 2}},
    {SL_OP_ATTENTION_BACKWARD, {.batch = 1, .seq = 256, HALF, .in = 128, .out = 128, .heads = 1}},
    {SL_OP_ATTENTION_BACKWARD, {HEADS, .in = 512, .out = 128, .heads = 4, .is_separate = 1}},
    {SL_OP_ATTENTION_BACKWARD, {HEADS, .in = 128, .out = 64, .heads = 2, .is_separate = 1}},
    {SL_OP_RMSNORM_BACKWARD, {FEW, HALF, .in = 2048}},
    {SL_OP_RMSNORM_BACKWARD, {FEW, HALF, .in = 4096}},
    {SL_OP_RMSNORM_BACKWARD, {HALF, .row_count = 256, .in = 128}},
    {SL_OP_SWIGLU_BACKWARD, {HALF, ELEMENTS}},
    {SL_OP_SWIGLU_BACKWARD, {HALF, ELEMENTS, .is_gelu = 1}},
    {SL_OP_LAYERNORM_BACKWARD, {FEW, HALF, .in = 768}},
    {SL_OP_LAYERNORM_BACKWARD, {FEW, HALF, .in = 1600}},
    {SL_OP_LAYERNORM_BACKWARD, {FEW, HALF, .in = 2560}},
    {SL_OP_EMBED_TOKENS_BACKWARD, {ROWS, HALF, .in = 768, .id_count = 64}},
    {SL_OP_EMBED_POSITION_BACKWARD, {FEW, HALF, .in = 768}},
    {SL_OP_ADD, {HALF, ELEMENTS}},
    {SL_OP_DEQUANTIZE, {HALF, ELEMENTS, .frozen_type = SL_FROZEN_INT8}},
    {SL_OP_BLOCK_NORM, {HALF, ELEMENTS}},
    {SL_OP_NORM_FINISH, {HALF}},
    {SL_OP_ADAMW, {HALF, ELEMENTS}},
    {SL_OP_SGD, {HALF, ELEMENTS}},
    {SL_OP_LION, {HALF, ELEMENTS}},
    {SL_OP_APPLY, {HALF, ELEMENTS}},
    {SL_OP_MOMENTUM, {HALF, ELEMENTS}},
};

enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Finite positive numbers in any type; ids of the panel, a few of them frequent; one document; no
 * step skipped. */
static void fill(const shape *s, const char *name, void *values, uint64_t bytes)
{
    uint64_t state = 7;
    uint16_t *halves = values;
    int32_t *ids = values;
    if (strcmp(name, "tokens") == 0 || strcmp(name, "targets") == 0)
        for (uint64_t i = 0; i < bytes / sizeof *ids; i++)
            ids[i] = (int32_t)(scratch_below(&state, s->attrs.id_count) / (1 + i % 3));
    else if (strcmp(name, "positions") == 0)
        for (uint64_t i = 0; i < bytes / sizeof *ids; i++)
            ids[i] = (int32_t)(i % s->attrs.seq);
    else if (strcmp(name, "control") == 0)
        memset(values, 0, bytes);
    else
        for (uint64_t i = 0; i < bytes / sizeof *halves; i++)
            halves[i] = (uint16_t)(0x3c00 + scratch_below(&state, 0x200));
}

static void run_shape(const shape *s)
{
    static const uint8_t flags[4] = {1, 0, 1, 1};
    const sl_op_info *info = sl_op_info_of(s->kind);
    const sl_kernel_table *table = sl_kernels_cuda();
    uint64_t bytes[SL_OPERAND_MAX] = {0};
    const uint64_t workspace_bytes = sl_kernels_workspace_bytes(table, s->kind, &s->attrs, 0);
    sl_kernel_call call = {.attrs = &s->attrs,
                           .library = &own,
                           .block_flags = sl_op_info_of(s->kind)->updates_chunk ? flags : NULL,
                           .workspace = calloc(workspace_bytes + 1, 1),
                           .scalars = {.loss_scale = 1.0f, .bias1 = 1.0f, .bias2_root = 1.0f}};
    need(call.workspace != NULL, "memory");
    for (uint32_t i = 0; i < info->operand_count; i++) {
        bytes[i] = sl_op_least_bytes(s->kind, &s->attrs, i);
        call.operand[i] = malloc(bytes[i]);
        need(call.operand[i] != NULL, "memory");
        fill(s, info->operand[i].name, call.operand[i], bytes[i]);
    }
    need(gpu_place_run(s->kind, table->row[s->kind].run, &call, bytes, workspace_bytes, 0) == SL_OK,
         info->name);
    for (uint32_t i = 0; i < info->operand_count; i++)
        free(call.operand[i]);
    free(call.workspace);
}

/* What collectives compute, of four ranks (kernels/ranks.h). */
typedef struct rank_shape {
    sl_rank_kernel which;
    sl_op_attrs attrs;
    uint64_t bytes[4];
} rank_shape;

#define RANKS .batch = 4
#define COLUMNS RANKS, HALF, .row_count = 64, .in = 512, .out = 128

static const rank_shape rank_shapes[] = {
    {SL_RANK_SUM,
     {RANKS, HALF, .element_count = 4096, .out = 4096},
     {UINT64_C(4) * 4096 * 2, UINT64_C(4096) * 2, 0, UINT64_C(4096) * 2}},
    {SL_RANK_CONVERT, {.type = SL_TYPE_BF16, .element_count = 4096}, {8192, 16384}},
    {SL_RANK_CONVERT, {.grad_type = SL_TYPE_BF16, .element_count = 4096}, {16384, 8192}},
    {SL_RANK_CONVERT, {HALF, .element_count = 4096}, {8192, 8192}},
    {SL_RANK_STATS, {RANKS, .row_count = 512}, {UINT64_C(4) * 512 * 16, UINT64_C(512) * 16}},
    {SL_RANK_PACK_COLUMNS, {COLUMNS}, {65536, 65536}},
    {SL_RANK_JOIN_COLUMNS, {COLUMNS}, {65536, 65536}},
};

static void run_rank_shape(const rank_shape *s)
{
    uint64_t bytes[SL_OPERAND_MAX] = {0};
    sl_kernel_call call = {.attrs = &s->attrs, .library = &own};
    for (int i = 0; i < 4; i++) {
        bytes[i] = s->bytes[i];
        call.operand[i] = bytes[i] ? calloc(bytes[i], 1) : NULL;
        need(bytes[i] == 0 || call.operand[i] != NULL, "memory");
    }
    need(gpu_place_run(SL_OP_ADD, sl_kernels_cuda()->ranks[s->which], &call, bytes, 0, 0) == SL_OK,
         "a kernel of ranks");
    for (int i = 0; i < 4; i++)
        free(call.operand[i]);
}

/* ---- what was counted ---- */

static void add_traffic(ptx_traffic *to, const ptx_traffic *from)
{
    to->global_requests += from->global_requests;
    to->global_bytes += from->global_bytes;
    to->sectors += from->sectors;
    to->wavefronts += from->wavefronts;
    to->least += from->least;
}

/* The row of a function, made where it is new. */
static kernel_row *row_of(const char *file, const standin_function *function)
{
    uint32_t i = 0;
    while (i < row_count && rows[i].function != function)
        i++;
    need(i < KERNELS_MOST, "too many kernels");
    if (i == row_count)
        rows[row_count++] =
            (kernel_row){.name = function->name, .file = file, .function = function};
    return &rows[i];
}

static void note_traffic(void *user, const char *file, const standin_function *function)
{
    (void)user;
    kernel_row *row = row_of(file, function);
    row->launched = function->launch_count;
    for (uint32_t i = 0; i < function->facts.instruction_count; i++) {
        const ptx_traffic one = standin_watch_traffic(function->kernel, i);
        add_traffic(&row->sum, &one);
    }
}

/* Launches since the last call. */
static void note_launches(void *user, const char *file, const standin_function *function)
{
    (void)user;
    kernel_row *row = row_of(file, function);
    row->launches = function->launch_count - row->launched;
    row->launched = function->launch_count;
}

/* ---- a step ---- */

/* A whole run of the device policy, of one step or two, with products by our own kernels: what the
 * second step adds is a step's. */
static void run_steps(const char *steps)
{
    const run_settings settings =
        RUN_SETTINGS("device=cuda", "cuda-products=own", "precision=bf16", "policy=device",
                     "context=64", "micro-batch=1", "layers=12", "vocab=2176", steps);
    const run_result result = run_train(&settings);
    need(result.status == SL_OK, result.message);
}

static void count_launches(void)
{
    uint64_t first[KERNELS_MOST];
    const scratch_path directory = scratch_open();
    need(chdir(directory.text) == 0, directory.text);
    run_write_text();
    run_steps("steps=1");
    standin_objects_visit(note_launches, NULL);
    for (uint32_t i = 0; i < row_count; i++)
        first[i] = rows[i].launches;
    const uint32_t first_count = row_count;
    run_steps("steps=2");
    standin_objects_visit(note_launches, NULL);
    for (uint32_t i = 0; i < row_count; i++)
        rows[i].launches -= i < first_count ? first[i] : 0;
    need(chdir("/") == 0, "/");
    scratch_close(&directory);
}

/* ---- telling ---- */

static void print_row(const kernel_row *row)
{
    const ptx_traffic *t = &row->sum;
    if (t->global_requests > 0 || row->launches > 0)
        printf("%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\n",
               row->name, row->launches, t->global_requests, t->sectors, t->global_bytes,
               t->wavefronts, t->least);
}

/* Lanes that share bytes need fewer sectors than this. */
static bool is_wasteful(const ptx_traffic *t)
{
    return 32 * t->sectors > t->global_bytes + 32 * t->global_requests || t->wavefronts > t->least;
}

static void print_lines(const kernel_row *row)
{
    const char *slash = strrchr(row->file, '/');
    for (uint32_t i = 0; i < row->function->facts.instruction_count; i++) {
        const ptx_traffic t = standin_watch_traffic(row->function->kernel, i);
        const ptx_instruction told = ptx_kernel_instruction(row->function->kernel, i);
        if (is_wasteful(&t))
            printf("%s:%" PRIu32 " %s: %" PRIu64 " requests, %" PRIu64 " sectors for %" PRIu64
                   " bytes, %" PRIu64 " passes of at least %" PRIu64 ": %s\n",
                   slash ? slash + 1 : row->file, told.line, row->name, t.requests, t.sectors,
                   t.global_bytes, t.wavefronts, t.least, told.text);
    }
}

int main(int argc, char **argv)
{
    const bool tells_lines = argc == 2 && strcmp(argv[1], "lines") == 0;
    if (getenv("SL_PTX_TRAFFIC") == NULL || argc > 1 + tells_lines) {
        fprintf(stderr, "usage: SL_PTX_TRAFFIC=1 tool_ptx_traffic [lines]\n");
        return 64;
    }
    need(gpu_place_open(), "the stand-in");
    for (int i = 0; i < SHAPES; i++)
        run_shape(&shapes[i]);
    for (size_t i = 0; i < sizeof rank_shapes / sizeof *rank_shapes; i++)
        run_rank_shape(&rank_shapes[i]);
    gpu_place_close();
    standin_objects_visit(note_traffic, NULL);
    const uint32_t measured = row_count;
    for (uint32_t i = 0; tells_lines && i < measured; i++)
        print_lines(&rows[i]);
    if (!tells_lines)
        count_launches();
    for (uint32_t i = 0; !tells_lines && i < row_count; i++)
        print_row(&rows[i]);
    return 0;
}
