/* How fast the cpu kernels are at GPT-2 124M shapes: GFLOP/s of the matrix products and of
 * attention, GB/s of what memory bounds, each next to its roof measured in the same rounds: the
 * fastest product for the first, a loop that reads four arrays and writes three for the second.
 * Random data, never from cache: every case walks through more memory than the caches hold. Rounds
 * alternate over all cases, so that a machine whose clock wanders does so under all of them.
 *
 * kernels_bench [workers] [rounds] [rows] [part of a case's name] */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels/kernels.h"

enum { CASES_MAX = 40, ROUNDS_MAX = 101, STAGGER_FLOATS = 68 * 1024 / 4 };

static const uint64_t ARENA_FLOATS = UINT64_C(768) << 20 >> 2;

typedef struct bench_case {
    char name[32];
    sl_op_kind kind; /* SL_OP_COUNT: the plain loop */
    sl_op_attrs attrs;
    uint64_t floats[SL_OPERAND_MAX]; /* of each operand; 0: absent */
    double flops, bytes;             /* of one call */
    double seconds[ROUNDS_MAX];
} bench_case;

static bench_case cases[CASES_MAX];
static int case_count;
static float *arena, *workspace;
static uint64_t next_float;
static sl_workers *workers;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static float *map_floats(uint64_t count)
{
    void *memory = mmap(NULL, count * sizeof(float), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(71);
    }
    madvise(memory, count * sizeof(float), MADV_HUGEPAGE);
    return memory;
}

/* Small positive and negative numbers; a multiplicative generator is random enough here. */
static void fill(float *values, uint64_t count)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (uint64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        values[i] = (float)((int32_t)(state >> 40) - (1 << 23)) * 0x1p-25f;
    }
}

/* The next operand in the arena, round and round; the stagger keeps operands of one call from
 * starting at the same offset modulo a large power of two. */
static float *take(uint64_t floats)
{
    uint64_t room = (floats + 63) / 64 * 64 + STAGGER_FLOATS;
    if (next_float + room > ARENA_FLOATS)
        next_float = 0;
    float *operand = arena + next_float;
    next_float += room;
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

static void call_kernel(const bench_case *bench, sl_kernel_call *call)
{
    sl_status status = sl_kernels_cpu()->run[bench->kind](call);
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
        call.operand[i] = bench->floats[i] ? take(bench->floats[i]) : NULL;
    if (bench->kind == SL_OP_ADAMW)
        call.operand[0] = &control;
    for (int i = 0; i < 4; i++)
        job.array[i] = call.operand[i];
    uint64_t start = now_ns();
    if (bench->kind == SL_OP_COUNT)
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

static void add_linear(const char *name, uint64_t rows, uint64_t in, uint64_t out)
{
    static const struct {
        const char *name;
        sl_op_kind kind;
    } way[] = {{"forward", SL_OP_LINEAR},
               {"input", SL_OP_LINEAR_INPUT_BACKWARD},
               {"weight", SL_OP_LINEAR_WEIGHT_BACKWARD}};
    for (int i = 0; i < 3; i++) {
        char text[32];
        snprintf(text, sizeof text, "%s %s", name, way[i].name);
        sl_op_attrs attrs = {.row_count = rows, .in = in, .out = out};
        bench_case *bench = add_case(text, way[i].kind, attrs);
        const uint64_t forward[] = {rows * in, in * out, out, 0, rows * out};
        const uint64_t input[] = {rows * out, in * out, rows * in};
        const uint64_t weight[] = {rows * in, rows * out, in * out, out};
        memcpy(bench->floats,
               i == 0   ? forward
               : i == 1 ? input
                        : weight,
               i == 0   ? sizeof forward
               : i == 1 ? sizeof input
                        : sizeof weight);
        bench->flops = 2.0 * (double)rows * (double)in * (double)out;
    }
}

static void add_head(uint64_t rows)
{
    const uint64_t in = 768, ids = 3072;
    const sl_op_attrs attrs = {.row_count = rows,
                               .batch = 1,
                               .seq = rows,
                               .in = in,
                               .id_count = ids,
                               .valid_id_count = 50257,
                               .scale = 1.0f};
    const double flops = 2.0 * (double)rows * (double)in * (double)ids;
    bench_case *bench = add_case("head logits", SL_OP_HEAD_LOGITS, attrs);
    bench->flops = flops;
    memcpy(bench->floats, (uint64_t[]){rows * in, ids * in, rows * ids}, 24);
    bench = add_case("head input", SL_OP_HEAD_INPUT_BACKWARD, attrs);
    bench->flops = flops;
    memcpy(bench->floats, (uint64_t[]){rows * ids, ids * in, rows * in}, 24);
    bench = add_case("head weight", SL_OP_HEAD_WEIGHT_BACKWARD, attrs);
    bench->flops = flops;
    memcpy(bench->floats, (uint64_t[]){rows * in, rows * ids, ids * in}, 24);
    bench = add_case("head stats", SL_OP_HEAD_STATS, attrs);
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
    const uint64_t in = 768, heads = 12, rows = batch * seq;
    const sl_op_attrs attrs = {.batch = batch, .seq = seq, .in = in, .heads = heads};
    const double product = (double)(batch * in) * (double)seq * (double)(seq + 1);
    snprintf(text, sizeof text, "attention forward T=%d", (int)seq);
    bench_case *bench = add_case(text, SL_OP_ATTENTION, attrs);
    bench->flops = 2 * product;
    memcpy(bench->floats, (uint64_t[]){rows * 3 * in, rows * in, rows * heads}, 24);
    snprintf(text, sizeof text, "attention backward T=%d", (int)seq);
    bench = add_case(text, SL_OP_ATTENTION_BACKWARD, attrs);
    bench->flops = 5 * product;
    memcpy(bench->floats,
           (uint64_t[]){rows * 3 * in, rows * in, rows * heads, rows * in, rows * 3 * in}, 40);
}

static void add_streams(uint64_t rows)
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

static void print_case(bench_case *bench, int rounds)
{
    qsort(bench->seconds, (size_t)rounds, sizeof(double), compare_doubles);
    const double work = (bench->flops > 0 ? bench->flops : bench->bytes) * 1e-9;
    printf("%-24s %8.2f ms  median %7.1f  p10 %7.1f  p90 %7.1f %s\n", bench->name,
           bench->seconds[rounds / 2] * 1e3, work / bench->seconds[rounds / 2],
           work / bench->seconds[rounds * 9 / 10], work / bench->seconds[rounds / 10],
           bench->flops > 0 ? "GFLOP/s" : "GB/s");
}

static void prepare_case(const bench_case *bench)
{
    if (bench->kind != SL_OP_COUNT &&
        sl_kernels_cpu()->warm_up(bench->kind, &bench->attrs, workers) != SL_OK)
        exit(71);
    run_case(bench);
}

int main(int count, char **arguments)
{
    const uint32_t worker_count = count > 1 ? (uint32_t)strtoul(arguments[1], NULL, 10) : 0;
    int rounds = count > 2 ? (int)strtol(arguments[2], NULL, 10) : 11;
    const uint64_t rows = count > 3 ? strtoull(arguments[3], NULL, 10) : 1024;
    const char *part = count > 4 ? arguments[4] : "";
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    if (sl_workers_open(worker_count ? worker_count : sl_workers_usable_cpu_count(), &workers))
        return 71;
    arena = map_floats(ARENA_FLOATS);
    workspace = map_floats(UINT64_C(16) << 20);
    fill(arena, ARENA_FLOATS);
    add_linear("qkv", rows, 768, 2304);
    add_linear("projection", rows, 768, 768);
    add_linear("mlp up", rows, 768, 3072);
    add_linear("mlp down", rows, 3072, 768);
    add_head(rows);
    add_attention(rows / 256 ? rows / 256 : 1, 256);
    add_attention(rows / 1024 ? rows / 1024 : 1, 1024);
    add_streams(rows);
    printf("%s, %u workers, %llu rows, %d rounds\n", sl_kernels_cpu()->description(),
           sl_workers_count(workers), (unsigned long long)rows, rounds);
    for (int i = 0; i < case_count; i++)
        if (strstr(cases[i].name, part))
            prepare_case(&cases[i]);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < case_count; i++)
            if (strstr(cases[i].name, part))
                cases[i].seconds[round] = run_case(&cases[i]);
    for (int i = 0; i < case_count; i++)
        if (strstr(cases[i].name, part))
            print_case(&cases[i], rounds);
    sl_workers_close(workers);
    return 0;
}
