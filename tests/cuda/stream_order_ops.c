/* What ops, disk transfers and the engine's own copies touch: calls that know it are wrapped (ld
 * --wrap) and say so before the real one. An op's launches touch its operands, as op_list.h has
 * them, and its workspace; an op of the host lane touches them in the lane's thread. */
#include <pthread.h>
#include <stddef.h>

#include "base/bits.h"
#include "device/cuda_internal.h"
#include "engine/engine_internal.h"
#include "kernels/cuda/ops.h"
#include "program/build.h"
#include "program/program.h"
#include "runtime.h"

#define WRAP(type, name, ...)                                                                      \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

enum { RANGES_MOST = SL_OPERAND_MAX + 2, SOURCES_MOST = 16 };

typedef enum op_side { ON_CPU, ON_CUDA, SIDE_COUNT } op_side;

/* ---- what an op touches ---- */

/* Of an operand that may have more rows, those of the present position. */
static uint64_t operand_bytes(sl_op_kind kind, const sl_kernel_call *call, uint32_t operand)
{
    const uint64_t bytes = sl_op_least_bytes(kind, call->attrs, operand);
    const bool is_positioned = kind == SL_OP_EMBED_POSITION && operand == 0;
    const uint64_t row_count = call->attrs->seq;
    return is_positioned && row_count > 0 ? bytes / row_count * (row_count + call->scalars.position)
                                          : bytes;
}

static uint32_t list_operands(sl_op_kind kind, const sl_kernel_call *call, standin_range *ranges)
{
    const sl_op_info *info = sl_op_info_of(kind);
    const sl_op op = {.kind = kind, .attrs = *call->attrs};
    uint32_t count = 0;
    for (uint32_t i = 0; i < info->operand_count; i++) {
        if (call->operand[i])
            ranges[count++] = (standin_range){call->operand[i], operand_bytes(kind, call, i),
                                              sl_op_writes(&op, i), info->operand[i].name};
    }
    return count;
}

static uint32_t list_ranges(const sl_kernel_table *table, sl_op_kind kind,
                            const sl_kernel_call *call, standin_range *ranges)
{
    const sl_op_attrs *attrs = call->attrs;
    const uint32_t workers = call->workers ? sl_workers_count(call->workers) : 1;
    uint32_t count = list_operands(kind, call, ranges);
    if (call->workspace)
        ranges[count++] = (standin_range){call->workspace,
                                          sl_kernels_workspace_bytes(table, kind, attrs, workers),
                                          true, "workspace"};
    if ((sl_op_info_of(kind)->updates_chunk || kind == SL_OP_BLOCK_NORM) && call->block_flags)
        ranges[count++] = (standin_range){
            call->block_flags + attrs->first_block,
            sl_bits_divide_up(attrs->element_count, SL_BLOCK_ELEMENTS), false, "block_flags"};
    return count;
}

/* ---- kernels ---- */

static sl_kernel real_kernels[SIDE_COUNT][SL_OP_COUNT];

static sl_status run_op(op_side side, sl_op_kind kind, const sl_kernel_call *call)
{
    const sl_kernel kernel = real_kernels[side][kind];
    const sl_kernel_table *table = side == ON_CPU ? sl_kernels_cpu() : sl_kernels_cuda();
    const char *name = sl_op_info_of(kind)->name;
    standin_range ranges[RANGES_MOST];
    if (call->stream == sl_load_only)
        return kernel(call);
    const uint32_t count = list_ranges(table, kind, call, ranges);
    if (side == ON_CPU) {
        standin_touch_on_host(name, ranges, count);
        return kernel(call);
    }
    standin_declare(name, ranges, count);
    const sl_status status = kernel(call);
    standin_declare(NULL, NULL, 0);
    return status;
}

#define X(NAME, ...)                                                                               \
    static sl_status run_cpu_##NAME(const sl_kernel_call *call)                                    \
    {                                                                                              \
        return run_op(ON_CPU, SL_OP_##NAME, call);                                                 \
    }                                                                                              \
    static sl_status run_cuda_##NAME(const sl_kernel_call *call)                                   \
    {                                                                                              \
        return run_op(ON_CUDA, SL_OP_##NAME, call);                                                \
    }
SL_OP_LIST(X)
#undef X

static const sl_kernel own_kernels[SIDE_COUNT][SL_OP_COUNT] = {
#define X(NAME, ...) [SL_OP_##NAME] = run_cpu_##NAME,
    {SL_OP_LIST(X)},
#undef X
#define X(NAME, ...) [SL_OP_##NAME] = run_cuda_##NAME,
    {SL_OP_LIST(X)},
#undef X
};

/* A table of a test's own computes what it likes. */
WRAP(sl_status, sl_kernels_find, const sl_kernel_table *table, sl_op_kind kind,
     sl_kernel *out_kernel)
{
    SL_TRY(__real_sl_kernels_find(table, kind, out_kernel));
    if (table != sl_kernels_cpu() && table != sl_kernels_cuda())
        return SL_OK;
    const op_side side = table == sl_kernels_cpu() ? ON_CPU : ON_CUDA;
    pthread_mutex_lock(&standin.lock);
    real_kernels[side][kind] = *out_kernel;
    pthread_mutex_unlock(&standin.lock);
    *out_kernel = own_kernels[side][kind];
    return SL_OK;
}

/* What a collective queues in a stream of the device: its kernels, and NCCL's. */
WRAP(sl_status, sl_collectives_issue, const sl_repetition *repetition,
     const sl_bound_command *bound, uint64_t tag, const sl_kernel_call *call)
{
    const sl_engine *engine = repetition->engine;
    standin_range ranges[RANGES_MOST];
    if (engine->ops->kind != SL_DEVICE_CUDA)
        return __real_sl_collectives_issue(repetition, bound, tag, call);
    uint32_t count = list_operands(bound->op_kind, call, ranges);
    const uint64_t bytes =
        sl_collectives_workspace_bytes(bound->op_kind, call->attrs, &engine->options.target);
    if (call->workspace && bytes > 0)
        ranges[count++] = (standin_range){call->workspace, bytes, true, "workspace"};
    standin_declare(sl_op_info_of(bound->op_kind)->name, ranges, count);
    const sl_status status = __real_sl_collectives_issue(repetition, bound, tag, call);
    standin_declare(NULL, NULL, 0);
    return status;
}

/* A library is tried on the operands of the op, which may hold anything. */
WRAP(sl_status, sl_library_prepare, sl_kernel_library *library, sl_op_kind kind,
     const sl_kernel_call *call)
{
    standin_range ranges[RANGES_MOST];
    const uint32_t count = list_ranges(sl_kernels_cuda(), kind, call, ranges);
    for (uint32_t i = 0; i < count; i++)
        ranges[i].is_written = true;
    standin_declare(sl_op_info_of(kind)->name, ranges, count);
    const sl_status status = __real_sl_library_prepare(library, kind, call);
    standin_declare(NULL, NULL, 0);
    return status;
}

/* ---- the disk, in the threads of its lanes ---- */

static void touch_disk(const char *what, const sl_store *store, uint64_t offset, const void *data,
                       uint64_t bytes, bool is_read)
{
    const uint64_t number = (uintptr_t)store / 16 % (STANDIN_DISK / STANDIN_DISK_BYTES);
    const uintptr_t at = STANDIN_DISK | number * STANDIN_DISK_BYTES | offset;
    const standin_range ranges[] = {{(const void *)at, bytes, !is_read, "disk"},
                                    {data, bytes, is_read, "memory"}};
    standin_touch_on_host(what, ranges, 2);
}

WRAP(sl_status, sl_store_read, sl_store *store, uint64_t offset, void *data, uint64_t bytes)
{
    touch_disk("reading from disk", store, offset, data, bytes, true);
    return __real_sl_store_read(store, offset, data, bytes);
}

WRAP(sl_status, sl_store_write, sl_store *store, uint64_t offset, const void *data, uint64_t bytes)
{
    touch_disk("writing to disk", store, offset, data, bytes, false);
    return __real_sl_store_write(store, offset, data, bytes);
}

/* ---- inputs and outputs ---- */

/* The callers' own sources, by the engine; the oldest gives way. */
static struct {
    const sl_engine *engine;
    sl_engine_source source;
} sources[SOURCES_MOST];
static uint32_t next_source;

static sl_engine_source find_source(const sl_engine *engine)
{
    sl_engine_source source = {0};
    pthread_mutex_lock(&standin.lock);
    for (uint32_t i = 0; i < SOURCES_MOST; i++) {
        if (sources[i].engine == engine)
            source = sources[i].source;
    }
    pthread_mutex_unlock(&standin.lock);
    return source;
}

static void keep_source(const sl_engine *engine)
{
    pthread_mutex_lock(&standin.lock);
    for (uint32_t i = 0; i < SOURCES_MOST; i++) {
        if (sources[i].engine == engine)
            sources[i].engine = NULL;
    }
    sources[next_source].engine = engine;
    sources[next_source].source = engine->source;
    next_source = (next_source + 1) % SOURCES_MOST;
    pthread_mutex_unlock(&standin.lock);
}

static sl_status fill_input(void *user, const sl_engine_fill *what, void *memory)
{
    const sl_engine_source source = find_source(user);
    const standin_range range = {memory, what->bytes, true, ""};
    standin_touch_on_host("input", &range, 1);
    return source.fill(source.user, what, memory);
}

WRAP(sl_status, sl_inputs_open, sl_engine *engine, const sl_engine_options *options,
     bool *out_has_inputs)
{
    SL_TRY(__real_sl_inputs_open(engine, options, out_has_inputs));
    if (!engine->source.fill)
        return SL_OK;
    keep_source(engine);
    engine->source = (sl_engine_source){fill_input, engine};
    return SL_OK;
}

static void touch_slot(const sl_engine *engine, uint32_t plan_index, sl_value_kind kind,
                       uint32_t slot, const void *memory)
{
    const sl_program *program = engine->plans[plan_index].program;
    const bool is_input = kind == SL_VALUE_INPUT;
    for (uint32_t i = 0; i < program->value_count; i++) {
        const sl_value *value = &program->values[i];
        const standin_range range = {memory, value->bytes, is_input, ""};
        if (value->kind == kind && value->index == slot) {
            standin_touch_on_host(is_input ? "the caller's input" : "the caller's output", &range,
                                  1);
            return;
        }
    }
}

/* Whoever asks for the address writes or reads there next. */
WRAP(void *, sl_engine_input, sl_engine *engine, uint32_t plan_index, uint32_t slot)
{
    void *memory = __real_sl_engine_input(engine, plan_index, slot);
    if (memory)
        touch_slot(engine, plan_index, SL_VALUE_INPUT, slot, memory);
    return memory;
}

WRAP(const void *, sl_engine_output, const sl_engine *engine, uint32_t plan_index, uint32_t slot)
{
    const void *memory = __real_sl_engine_output(engine, plan_index, slot);
    if (memory)
        touch_slot(engine, plan_index, SL_VALUE_OUTPUT, slot, memory);
    return memory;
}

/* ---- the engine's own copies on the host ---- */

static void touch_place(const sl_engine *engine, const sl_place *place, const char *what,
                        bool is_written)
{
    void *address = NULL;
    if (place->tier != SL_TIER_HOST || sl_arena_at(engine, place, &address) != SL_OK)
        return;
    const standin_range range = {address, place->bytes, is_written, ""};
    standin_touch_on_host(what, &range, 1);
}

WRAP(sl_status, sl_arena_read, sl_engine *engine, const sl_place *place, void *data)
{
    touch_place(engine, place, "reading between steps", false);
    return __real_sl_arena_read(engine, place, data);
}

WRAP(sl_status, sl_arena_write, sl_engine *engine, const sl_place *place, const void *data)
{
    touch_place(engine, place, "writing between steps", true);
    return __real_sl_arena_write(engine, place, data);
}

WRAP(sl_status, sl_arena_clear, sl_engine *engine, const sl_place *place)
{
    touch_place(engine, place, "clearing between steps", true);
    return __real_sl_arena_clear(engine, place);
}

/* ---- names ---- */

/* The first call of another file that knows a stream of CUDA's and its lane's name. */
WRAP(sl_status, sl_cuda_times_open, sl_device_stream *stream, const sl_queue_observer *observer,
     sl_cuda_times **out_times)
{
    standin_name_stream(stream->stream, stream->name);
    return __real_sl_cuda_times_open(stream, observer, out_times);
}
