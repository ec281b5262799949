/* How fast the cpu kernels are at GPT-2 124M shapes: GFLOP/s of the matrix products in every type
 * and of attention, GB/s of what memory bounds, each next to its roof measured in the same rounds:
 * the type's micro-kernel on one block in the first cache, by every worker, for the first; a loop
 * that reads four arrays and writes three for the second.
 * Random data, never from cache: every case walks through more memory than the caches hold. Rounds
 * alternate over all cases, so that a machine whose clock wanders does so under all of them.
 *
 * kernels_bench [workers] [rounds] [rows] [part of a case's name] */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/half.h"
#include "kernels/cpu/simd.h"
#include "kernels/kernels.h"
#include "sluice/program.h"

enum { CASES_MAX = 80, ROUNDS_MAX = 101, STAGGER_BYTES = 68 * 1024 };

static const uint64_t ARENA_BYTES = UINT64_C(768) << 20;

typedef struct bench_case {
    char name[64];
    sl_op_kind kind; /* SL_OP_COUNT: a roof */
    sl_op_attrs attrs;
    uint64_t floats[SL_OPERAND_MAX]; /* elements of each operand; 0: absent */
    uint32_t fp32_operands;          /* bit i: operand i is fp32 in every type */
    double flops, bytes;             /* of one call */
    double seconds[ROUNDS_MAX];
} bench_case;

static bench_case cases[CASES_MAX];
static int case_count;
static void *arena[SL_TYPE_COUNT];
static float *workspace;
static uint64_t next_byte[SL_TYPE_COUNT];
static sl_workers *workers;
static uint64_t rows = 1024; /* of the activations */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *map_bytes(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(71);
    }
    madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

/* Small positive and negative numbers; a multiplicative generator is random enough here. */
static void fill(void *values, sl_type type, uint64_t count)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (uint64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const float value = (float)((int32_t)(state >> 40) - (1 << 23)) * 0x1p-25f;
        if (type == SL_TYPE_FP32)
            ((float *)values)[i] = value;
        else
            ((uint16_t *)values)[i] =
                type == SL_TYPE_BF16 ? sl_half_to_bf16(value) : sl_half_to_fp16(value);
    }
}

/* The next operand in its type's arena, round and round; the stagger keeps operands of one call
 * from starting at the same offset modulo a large power of two. */
static void *take(sl_type type, uint64_t count)
{
    if (arena[type] == NULL) {
        arena[type] = map_bytes(ARENA_BYTES);
        fill(arena[type], type, ARENA_BYTES / sl_type_bytes(type));
    }
    uint64_t room = (count * sl_type_bytes(type) + 255) / 256 * 256 + STAGGER_BYTES;
    if (next_byte[type] + room > ARENA_BYTES)
        next_byte[type] = 0;
    void *operand = (char *)arena[type] + next_byte[type];
    next_byte[type] += room;
    return operand;
}

typedef struct loop_job {
    float *array[4];
    uint64_t count;
} loop_job;

static void run_loop_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const loop_job *job = argument;
    const uint64_t tile = 131072, first = tile_index * tile;
    const uint64_t end = first + tile < job->count ? first + tile : job->count;
    const float *restrict a = job->array[0];
    float *restrict b = job->array[1], *restrict c = job->array[2], *restrict d = job->array[3];
    for (uint64_t i = first; i < end; i++) {
        float x = a[i] + b[i] + c[i] + d[i];
        b[i] = x * 0.25f;
        c[i] = x * 0.125f;
        d[i] = x * 0.0625f;
    }
}

enum { ROOF_STEPS = 256, ROOF_PATCHES = 2000 };

typedef struct roof_job {
    const sl_micro_kernel *micro;
} roof_job;

/* One patch of C from strips that stay in the first cache. */
static void run_roof_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)tile_index;
    (void)worker_index;
    const roof_job *job = argument;
    static _Thread_local _Alignas(64) uint32_t a[ROOF_STEPS * 16], b[ROOF_STEPS * 32];
    static _Thread_local _Alignas(64) float c[16 * 32];
    const sl_gemm_patch patch = {.a = a,
                                 .b = b,
                                 .step_count = ROOF_STEPS,
                                 .c = c,
                                 .leading_c = 32,
                                 .rows = job->micro->rows,
                                 .columns = job->micro->columns,
                                 .next_a = a,
                                 .next_b = b};
    for (int i = 0; i < ROOF_PATCHES; i++)
        job->micro->multiply(&patch);
}

static void call_kernel(const bench_case *bench, sl_kernel_call *call)
{
    sl_status status = sl_kernels_cpu()->row[bench->kind].run(call);
    if (status == SL_OK)
        return;
    fprintf(stderr, "%s: %s\n", bench->name, sl_status_message());
    exit(sl_status_exit_code(status));
}

static double run_case(const bench_case *bench)
{
    static uint8_t flags[1 << 16];
    static sl_step_control control = {.clip_scale = 0.5f};
    sl_kernel_call call = {.attrs = &bench->attrs,
                           .workers = workers,
                           .workspace = workspace,
                           .block_flags = flags,
                           .scalars = {.learning_rate = 1e-4f,
                                       .weight_decay = 0.1f,
                                       .beta1 = 0.9f,
                                       .beta2 = 0.95f,
                                       .epsilon = 1e-8f,
                                       .bias1 = 0.5f,
                                       .bias2_root = 0.5f,
                                       .loss_scale = 1.0f}};
    loop_job job = {.count = bench->attrs.element_count};
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        call.operand[i] =
            bench->floats[i]
                ? take(bench->fp32_operands >> i & 1 ? SL_TYPE_FP32 : (sl_type)bench->attrs.type,
                       bench->floats[i])
                : NULL;
    if (bench->kind == SL_OP_ADAMW)
        call.operand[0] = &control;
    for (int i = 0; i < 4; i++)
        job.array[i] = call.operand[i];
    uint64_t start = now_ns();
    roof_job roof = {sl_simd_current()->micro_kernel[bench->attrs.type]};
    if (bench->kind == SL_OP_COUNT && bench->flops > 0)
        sl_workers_run(workers, sl_workers_count(workers), run_roof_tile, &roof);
    else if (bench->kind == SL_OP_COUNT)
        sl_workers_run(workers, (job.count + 131071) / 131072, run_loop_tile, &job);
    else
        call_kernel(bench, &call);
    return (double)(now_ns() - start) * 1e-9;
}

static bench_case *add_case(const char *name, sl_op_kind kind, sl_op_attrs attrs)
{
    bench_case *bench = &cases[case_count++];
    *bench = (bench_case){.kind = kind, .attrs = attrs};
    snprintf(bench->name, sizeof bench->name, "%s", name);
    return bench;
}

static bench_case *add_product(const char *name, sl_op_kind kind, sl_op_attrs attrs)
{
    char text[64];
    snprintf(text, sizeof text, "%s %s", sl_type_name((sl_type)attrs.type), name);
    bench_case *bench = add_case(text, kind, attrs);
    bench->flops = 2.0 * (double)attrs.row_count * (double)attrs.in *
                   (double)(attrs.out ? attrs.out : attrs.id_count);
    return bench;
}

static void add_linear(const char *name, sl_type type, uint64_t in, uint64_t out)
{
    const sl_op_attrs attrs = {.row_count = rows,
                               .in = in,
                               .out = out,
                               .type = (uint16_t)type,
                               .grad_type = (uint16_t)type};
    char text[32];
    snprintf(text, sizeof text, "%s forward", name);
    bench_case *bench = add_product(text, SL_OP_LINEAR, attrs);
    memcpy(bench->floats, (uint64_t[]){rows * in, in * out, out, 0, rows * out}, 40);
    snprintf(text, sizeof text, "%s input", name);
    bench = add_product(text, SL_OP_LINEAR_INPUT_BACKWARD, attrs);
    memcpy(bench->floats, (uint64_t[]){rows * out, in * out, rows * in}, 24);
    snprintf(text, sizeof text, "%s weight", name);
    bench = add_product(text, SL_OP_LINEAR_WEIGHT_BACKWARD, attrs);
    memcpy(bench->floats, (uint64_t[]){rows * in, rows * out, in * out, out}, 32);
}

static sl_op_attrs describe_head(sl_type type)
{
    return (sl_op_attrs){.row_count = rows,
                         .batch = 1,
                         .seq = rows,
                         .in = 768,
                         .id_count = 3072,
                         .valid_id_count = 50257,
                         .scale = 1.0f,
                         .type = (uint16_t)type};
}

static void add_products(sl_type type)
{
    char text[32];
    const sl_micro_kernel *micro = sl_simd_current()->micro_kernel[type];
    snprintf(text, sizeof text, "%s roof", sl_type_name((sl_type)type));
    bench_case *bench = add_case(text, SL_OP_COUNT, (sl_op_attrs){.type = (uint16_t)type});
    bench->flops = 2.0 * micro->rows * micro->columns * micro->terms_per_step * ROOF_STEPS *
                   ROOF_PATCHES * sl_workers_count(workers);
    add_linear("qkv", type, 768, 2304);
    add_linear("projection", type, 768, 768);
    add_linear("mlp up", type, 768, 3072);
    add_linear("mlp down", type, 3072, 768);
    const sl_op_attrs attrs = describe_head(type);
    const uint64_t in = attrs.in, ids = attrs.id_count;
    bench = add_product("head logits", SL_OP_HEAD_LOGITS, attrs);
    memcpy(bench->floats, (uint64_t[]){rows * in, ids * in, rows * ids}, 24);
    bench = add_product("head input", SL_OP_HEAD_INPUT_BACKWARD, attrs);
    memcpy(bench->floats, (uint64_t[]){rows * ids, ids * in, rows * in}, 24);
    bench->fp32_operands = 1 << 2;
    sl_op_attrs adding = attrs; /* row ranges do, and the embedding */
    adding.adds_gradient = 1;
    bench = add_product("head weight", SL_OP_HEAD_WEIGHT_BACKWARD, adding);
    memcpy(bench->floats, (uint64_t[]){rows * in, rows * ids, ids * in}, 24);
    bench->fp32_operands = 1 << 2;
}

static void add_softmax(void)
{
    const sl_op_attrs attrs = describe_head(SL_TYPE_FP32);
    const uint64_t ids = attrs.id_count;
    bench_case *bench = add_case("head stats", SL_OP_HEAD_STATS, attrs);
    bench->bytes = 4.0 * (double)(rows * ids);
    memcpy(bench->floats, (uint64_t[]){rows * ids, rows, rows * 4}, 24);
    bench = add_case("head softmax backward", SL_OP_HEAD_LOGITS_BACKWARD, attrs);
    bench->bytes = 8.0 * (double)(rows * ids);
    memcpy(bench->floats, (uint64_t[]){rows, rows * 4, rows * ids}, 24);
}

/* FLOPs of the causal half: two products forward, five backward. */
static void add_attention(uint64_t batch, uint64_t seq)
{
    char text[32];
    const uint64_t in = 768, heads = 12, count = batch * seq * in;
    const sl_op_attrs attrs = {.batch = batch, .seq = seq, .in = in, .heads = heads};
    const double product = (double)(batch * in) * (double)seq * (double)(seq + 1);
    snprintf(text, sizeof text, "attention forward T=%d", (int)seq);
    bench_case *bench = add_case(text, SL_OP_ATTENTION, attrs);
    bench->flops = 2 * product;
    memcpy(bench->floats, (uint64_t[]){3 * count, count, batch * seq * heads}, 24);
    snprintf(text, sizeof text, "attention backward T=%d", (int)seq);
    bench = add_case(text, SL_OP_ATTENTION_BACKWARD, attrs);
    bench->flops = 5 * product;
    memcpy(bench->floats, (uint64_t[]){3 * count, count, batch * seq * heads, count, 3 * count},
           40);
}

static void add_streams(void)
{
    const uint64_t in = 768, count = rows * in, chunk = UINT64_C(16) << 20;
    const sl_op_attrs norm = {.row_count = rows, .in = in};
    const sl_op_attrs wide = {.element_count = 4 * count}, whole = {.element_count = chunk};
    bench_case *bench = add_case("layernorm", SL_OP_LAYERNORM, norm);
    bench->bytes = 8.0 * (double)count;
    memcpy(bench->floats, (uint64_t[]){count, in, in, count, rows * 2}, 40);
    bench = add_case("layernorm backward", SL_OP_LAYERNORM_BACKWARD, norm);
    bench->bytes = 12.0 * (double)count;
    memcpy(bench->floats, (uint64_t[]){count, in, rows * 2, count, count, in, in}, 56);
    bench = add_case("gelu", SL_OP_GELU, wide);
    bench->bytes = 32.0 * (double)count;
    memcpy(bench->floats, (uint64_t[]){4 * count, 4 * count}, 16);
    bench = add_case("gelu backward", SL_OP_GELU_BACKWARD, wide);
    bench->bytes = 48.0 * (double)count;
    memcpy(bench->floats, (uint64_t[]){4 * count, 4 * count}, 16);
    bench = add_case("add", SL_OP_ADD, wide);
    bench->bytes = 48.0 * (double)count;
    memcpy(bench->floats, (uint64_t[]){4 * count, 4 * count}, 16);
    bench = add_case("block norm", SL_OP_BLOCK_NORM, whole);
    bench->bytes = 4.0 * (double)chunk;
    memcpy(bench->floats, (uint64_t[]){chunk, 64}, 16);
    bench = add_case("adamw", SL_OP_ADAMW, whole);
    bench->bytes = 28.0 * (double)chunk;
    memcpy(bench->floats, (uint64_t[]){0, chunk, chunk, chunk, chunk}, 40);
    bench = add_case("4 reads 3 writes", SL_OP_COUNT, whole);
    bench->bytes = 28.0 * (double)chunk;
    memcpy(bench->floats, (uint64_t[]){chunk, chunk, chunk, chunk}, 32);
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double work_of(const bench_case *bench)
{
    return (bench->flops > 0 ? bench->flops : bench->bytes) * 1e-9;
}

/* The median of the roof of what bounds the case, sorted already; 0 if it was left out. */
static double find_roof(const bench_case *bench, int rounds)
{
    for (int i = 0; i < case_count; i++)
        if (cases[i].kind == SL_OP_COUNT && (cases[i].flops > 0) == (bench->flops > 0) &&
            cases[i].attrs.type == bench->attrs.type && cases[i].seconds[0] > 0)
            return work_of(&cases[i]) / cases[i].seconds[rounds / 2];
    return 0;
}

static void print_case(const bench_case *bench, int rounds)
{
    const double work = work_of(bench), median = work / bench->seconds[rounds / 2];
    const double roof = find_roof(bench, rounds);
    printf("%-26s %8.2f ms  median %7.1f  p10 %7.1f  p90 %7.1f %s", bench->name,
           bench->seconds[rounds / 2] * 1e3, median, work / bench->seconds[rounds * 9 / 10],
           work / bench->seconds[rounds / 10], bench->flops > 0 ? "GFLOP/s" : "GB/s");
    if (roof > 0)
        printf("  %3.0f %% of the roof", 100 * median / roof);
    printf("\n");
}

static void add_cases(void)
{
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        add_products((sl_type)type);
    add_softmax();
    add_attention(rows / 256 ? rows / 256 : 1, 256);
    add_attention(rows / 1024 ? rows / 1024 : 1, 1024);
    add_streams();
}

static bool is_chosen(const bench_case *bench, const char *part)
{
    return strstr(bench->name, part) != NULL;
}

static void run_rounds(int rounds, const char *part)
{
    for (int i = 0; i < case_count; i++)
        if (is_chosen(&cases[i], part))
            run_case(&cases[i]);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < case_count; i++)
            if (is_chosen(&cases[i], part))
                cases[i].seconds[round] = run_case(&cases[i]);
    for (int i = 0; i < case_count; i++)
        qsort(cases[i].seconds, (size_t)rounds, sizeof(double), compare_doubles);
}

int main(int count, char **arguments)
{
    const uint32_t worker_count = count > 1 ? (uint32_t)strtoul(arguments[1], NULL, 10) : 0;
    int rounds = count > 2 ? (int)strtol(arguments[2], NULL, 10) : 11;
    rows = count > 3 ? strtoull(arguments[3], NULL, 10) : rows;
    const char *part = count > 4 ? arguments[4] : "";
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    if (sl_workers_open(worker_count ? worker_count : sl_workers_usable_cpu_count(), &workers))
        return 71;
    workspace = map_bytes(UINT64_C(64) << 20);
    add_cases();
    printf("%s, %u workers, %llu rows, %d rounds\n", sl_kernels_cpu()->description(),
           sl_workers_count(workers), (unsigned long long)rows, rounds);
    run_rounds(rounds, part);
    for (int i = 0; i < case_count; i++)
        if (is_chosen(&cases[i], part))
            print_case(&cases[i], rounds);
    sl_workers_close(workers);
    return 0;
}
