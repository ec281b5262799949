#include "lockstep.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/half.h"
#include "op_on_device.h"
#include "values.h"

/* What results may differ by, as a share of the operand's largest number: some hundred roundings of
 * fp32 to a sum, one rounding to half precision on each side, and half precision inside an op. */
static const double tolerance_of[SL_TYPE_COUNT] = {
    [SL_TYPE_FP32] = 0x1p-15, [SL_TYPE_BF16] = 0x1p-6, [SL_TYPE_FP16] = 0x1p-9};

/* Five Newton-Schulz steps, whose products are in the type, enlarge what the first one rounds. */
static const double orthogonalise_tolerance_of[SL_TYPE_COUNT] = {
    [SL_TYPE_FP32] = 0x1p-11, [SL_TYPE_BF16] = 0x1p-2, [SL_TYPE_FP16] = 0x1p-5};

enum { POISON = 0xff /* NaN in every type */ };

typedef struct lockstep {
    const sl_lockstep_args *args;
    sl_values values;
    sl_op_room room;
    uint8_t *flags;           /* sl_layout_table_bytes: the rate of each block, and maybe its key */
    unsigned char *workspace; /* of the cpu */
    unsigned char *first;     /* what the first of several runs left; NULL: there is one */
    sl_op_stretch stretches[SL_OP_STRETCHES];
    sl_step_scalars scalars;
    sl_fault *fault;
} lockstep;

/* ---- sizes ---- */

static uint64_t operand_bytes(const lockstep *self, const sl_op *op, uint32_t i)
{
    return op->operand[i] == SL_NONE ? 0 : self->args->program->values[op->operand[i]].bytes;
}

static uint64_t flag_bytes(const lockstep *self, const sl_op *op)
{
    return sl_op_info_of(op->kind)->updates_chunk ? sl_layout_table_bytes(self->args->layout) : 0;
}

static uint64_t workspace_bytes(const sl_timed_device *device, const sl_op *op)
{
    return sl_kernels_workspace_bytes(device->kernels, op->kind, &op->attrs, device->worker_count);
}

static void size_stretches(const lockstep *self, const sl_op *op,
                           sl_op_stretch out_stretches[SL_OP_STRETCHES])
{
    memset(out_stretches, 0, SL_OP_STRETCHES * sizeof *out_stretches);
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        out_stretches[i].bytes = operand_bytes(self, op, i);
    out_stretches[SL_OP_FLAGS].bytes = flag_bytes(self, op);
    out_stretches[SL_OP_WORKSPACE].bytes = workspace_bytes(self->args->device, op);
}

/* What the largest op takes, a guard around each stretch included. */
static uint64_t room_bytes(const lockstep *self)
{
    uint64_t most = 0;
    for (uint32_t o = 0; o < self->args->program->op_count; o++) {
        uint64_t bytes = 4096;
        sl_op_stretch stretches[SL_OP_STRETCHES];
        size_stretches(self, &self->args->program->ops[o], stretches);
        for (int i = 0; i < SL_OP_STRETCHES; i++)
            bytes += sl_bits_round_up(stretches[i].bytes, 256) + 512;
        most = sl_bits_max(most, bytes);
    }
    return most;
}

static bool has_kernel(const lockstep *self, const sl_op *op)
{
    return self->args->device->kernels->row[op->kind].run != NULL;
}

/* ---- comparing ---- */

typedef struct number {
    bool is_raw;    /* bytes without elements */
    bool is_double; /* else of `type` */
    sl_type type;
} number;

static number number_of(const lockstep *self, const sl_op *op, uint32_t i)
{
    const char *name = sl_op_info_of(op->kind)->operand[i].name;
    const bool is_codes = op->attrs.state_type == SL_STATES_INT8 && strncmp(name, "mom", 3) == 0;
    const bool is_low = op->attrs.master_type == SL_MASTER_LOW && strcmp(name, "master") == 0;
    return (number){.is_raw = is_codes || is_low || strcmp(name, "norm") == 0 ||
                              strcmp(name, "control") == 0,
                    .is_double = strcmp(name, "loss") == 0 || strcmp(name, "counted") == 0,
                    .type = self->args->program->values[op->operand[i]].type};
}

static double load(const number *kind, const void *from, uint64_t index)
{
    if (kind->is_double)
        return ((const double *)from)[index];
    if (kind->type == SL_TYPE_FP32)
        return ((const float *)from)[index];
    const uint16_t half = ((const uint16_t *)from)[index];
    return kind->type == SL_TYPE_BF16 ? sl_half_from_bf16(half) : sl_half_from_fp16(half);
}

/* Ops that kernels.h promises to be the same on every device. */
static bool is_promised(sl_op_kind kind)
{
    switch ((int)kind) {
    case SL_OP_BLOCK_NORM:
    case SL_OP_NORM_FINISH:
    case SL_OP_ROUND:
    case SL_OP_DEQUANTIZE:
    case SL_OP_ADD:
    case SL_OP_DROPOUT:
    case SL_OP_CLEAR:
    case SL_OP_CLEAR_PADDING:
        return true;
    default:
        return sl_op_info_of(kind)->updates_chunk;
    }
}

static void say(lockstep *self, const sl_op *op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(lockstep *self, const sl_op *op, const char *format, ...)
{
    char what[160];
    va_list words;
    const sl_op_attrs *a = &op->attrs;
    va_start(words, format);
    vsnprintf(what, sizeof what, format, words);
    va_end(words);
    snprintf(self->fault->text, sizeof self->fault->text,
             "%s in %s (batch %llu, seq %llu, rows %llu, in %llu, out %llu, ids %llu, elements "
             "%llu): %s",
             sl_op_info_of(op->kind)->name, sl_type_name((sl_type)a->type),
             (unsigned long long)a->batch, (unsigned long long)a->seq,
             (unsigned long long)a->row_count, (unsigned long long)a->in,
             (unsigned long long)a->out, (unsigned long long)a->id_count,
             (unsigned long long)a->element_count, what);
}

static double share_of(const sl_op *op)
{
    if (is_promised(op->kind))
        return 0;
    return op->kind == SL_OP_ORTHOGONALISE ? orthogonalise_tolerance_of[op->attrs.type]
                                           : tolerance_of[op->attrs.type];
}

static double largest(const number *kind, const void *numbers, uint64_t count)
{
    double most = 0;
    for (uint64_t i = 0; i < count; i++) {
        const double size = fabs(load(kind, numbers, i));
        most = isfinite(size) && size > most ? size : most;
    }
    return most;
}

/* Operand i, as the cpu (`want`) and the device (`got`) left it. */
static void compare(lockstep *self, const sl_op *op, uint32_t i, const void *want, const void *got)
{
    const uint64_t bytes = self->stretches[i].bytes;
    const number kind = number_of(self, op, i);
    const char *name = sl_op_info_of(op->kind)->operand[i].name;
    if (memcmp(want, got, bytes) == 0)
        return;
    if (kind.is_raw) {
        say(self, op, "%s has other bits than on the cpu", name);
        return;
    }
    const uint64_t count = bytes / (kind.is_double ? sizeof(double) : sl_type_bytes(kind.type));
    const double allowed = share_of(op) * largest(&kind, want, count);
    for (uint64_t e = 0; e < count; e++) {
        const double a = load(&kind, want, e), b = load(&kind, got, e);
        if (fabs(a - b) <= allowed || (isnan(a) && isnan(b)) || a == b)
            continue;
        say(self, op, "%s[%llu] is %.9g, and %.9g on the cpu; they may differ by %.2g", name,
            (unsigned long long)e, b, a, allowed);
        return;
    }
}

/* ---- one op ---- */

static sl_kernel_call call_of(lockstep *self, const sl_op *op, uint32_t repetition)
{
    const sl_layout *layout = self->args->layout;
    sl_kernel_call call = {
        .attrs = &op->attrs, .scalars = self->scalars, .micro_batch = op->micro_batch + repetition};
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        if (op->operand[i] != SL_NONE)
            call.operand[i] = sl_values_at(&self->values, op->operand[i], repetition);
    if (sl_op_info_of(op->kind)->updates_chunk) {
        call.block_flags = self->flags;
        if (layout->draws != NULL)
            call.block_keys =
                (const uint64_t *)(const void *)(self->flags + sl_layout_keys_offset(layout));
        call.rates = layout->rate_count > 0 ? layout->rates : NULL;
        call.rate_count = layout->rate_count;
    }
    if (op->kind == SL_OP_CLEAR_PADDING) {
        const uint32_t *first =
            &layout->first_padding[sl_layout_find_chunk(layout, op->attrs.first_block)];
        call.padding = layout->padding + first[0];
        call.padding_count = first[1] - first[0];
    }
    return call;
}

/* An operand that is written whole starts as poison on the device. */
static bool is_poisoned(const lockstep *self, const sl_op *op, uint32_t i)
{
    return sl_op_info_of(op->kind)->operand[i].mode == SL_MODE_WRITE && !sl_op_reads(op, i) &&
           op->kind != SL_OP_CLEAR_PADDING &&
           sl_op_least_bytes(op->kind, &op->attrs, i) == operand_bytes(self, op, i);
}

static void send(lockstep *self, const sl_op *op, const sl_kernel_call *call)
{
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        if (call->operand[i] && !is_poisoned(self, op, i))
            memcpy(self->room.sent + self->stretches[i].offset, call->operand[i],
                   self->stretches[i].bytes);
    if (self->stretches[SL_OP_FLAGS].bytes > 0)
        memcpy(self->room.sent + self->stretches[SL_OP_FLAGS].offset, self->flags,
               self->stretches[SL_OP_FLAGS].bytes);
}

static sl_status run_on_cpu(lockstep *self, const sl_op *op, const sl_kernel_call *call)
{
    sl_kernel run;
    sl_kernel_call own = *call;
    SL_TRY(sl_kernels_find(self->args->cpu->kernels, op->kind, &run));
    own.workspace = self->workspace;
    own.workers = self->args->cpu->workers;
    return run(&own);
}

static void judge(lockstep *self, const sl_op *op, const sl_kernel_call *call)
{
    const uint64_t beside = sl_op_room_find_overrun(&self->room, self->stretches);
    if (beside != UINT64_MAX)
        say(self, op, "a byte beside its operands was written");
    for (uint32_t i = 0; i < SL_OPERAND_MAX && !*self->fault->text; i++) {
        const sl_op_stretch *it = &self->stretches[i];
        if (it->bytes == 0)
            continue;
        if (sl_op_writes(op, i))
            compare(self, op, i, call->operand[i], self->room.came + it->offset);
        else if (memcmp(self->room.sent + it->offset, self->room.came + it->offset, it->bytes) != 0)
            say(self, op, "%s is only read, and has changed",
                sl_op_info_of(op->kind)->operand[i].name);
    }
}

/* The same once more gives the same bits, whatever is copied meanwhile. */
static sl_status repeat_op(lockstep *self, const sl_op *op, const sl_kernel_call *call)
{
    memcpy(self->first, self->room.came, self->room.bytes);
    for (uint32_t r = 1; r < self->args->repeats && !*self->fault->text; r++) {
        SL_TRY(sl_op_room_run_beside_copies(&self->room, op->kind, call, self->stretches));
        for (uint32_t i = 0; i < SL_OPERAND_MAX && !*self->fault->text; i++) {
            const sl_op_stretch *it = &self->stretches[i];
            if (it->bytes > 0 &&
                memcmp(self->first + it->offset, self->room.came + it->offset, it->bytes) != 0)
                say(self, op, "run %u of the same has other bits in %s, while copies run", r + 1,
                    sl_op_info_of(op->kind)->operand[i].name);
        }
    }
    return SL_OK;
}

/* Padding that is to become zero is not zero before. */
static void fill_padding(const sl_op *op, const sl_kernel_call *call)
{
    const uint64_t element = sl_type_bytes((sl_type)op->attrs.type);
    for (uint64_t i = 0; i < call->padding_count; i++)
        memset((char *)call->operand[0] + call->padding[i].first * element, POISON,
               call->padding[i].count * element);
}

static bool is_left_out(const lockstep *self, const sl_op *op)
{
    return self->args->only != NULL && *self->args->only != op->kind;
}

static sl_status run_op(lockstep *self, const sl_op *op, uint32_t repetition)
{
    const sl_kernel_call call = call_of(self, op, repetition);
    if (is_left_out(self, op))
        return run_on_cpu(self, op, &call);
    fill_padding(op, &call);
    size_stretches(self, op, self->stretches);
    SL_TRY(sl_op_room_lay_out(&self->room, self->stretches));
    send(self, op, &call);
    SL_TRY(sl_op_room_run(&self->room, op->kind, &call, self->stretches));
    if (self->first != NULL)
        SL_TRY(repeat_op(self, op, &call));
    SL_TRY(run_on_cpu(self, op, &call));
    if (self->first == NULL)
        judge(self, op, &call);
    return SL_OK;
}

static bool is_late(const lockstep *self)
{
    return self->args->end_ns != 0 && sl_clock_now_ns() > self->args->end_ns;
}

static sl_status run_all(lockstep *self, uint64_t *out_ops)
{
    const sl_program *program = self->args->program;
    for (uint32_t s = 0; s < sl_program_section_count(program); s++) {
        const sl_section section = sl_program_section(program, s);
        for (uint32_t r = 0; r < section.repeat; r++)
            for (uint32_t o = section.first; o < section.first + section.count; o++) {
                if (!has_kernel(self, &program->ops[o]))
                    continue; /* inputs are filled */
                SL_TRY(run_op(self, &program->ops[o], r));
                ++*out_ops;
                if (*self->fault->text || is_late(self))
                    return SL_OK;
            }
    }
    return SL_OK;
}

/* ---- all of it ---- */

static sl_status take_workspace(lockstep *self)
{
    const sl_layout *layout = self->args->layout;
    uint64_t most = 0;
    for (uint32_t o = 0; o < self->args->program->op_count; o++)
        most = sl_bits_max(most, workspace_bytes(self->args->cpu, &self->args->program->ops[o]));
    self->workspace = aligned_alloc(256, sl_bits_round_up(most + 1, 256));
    self->flags = calloc(sl_layout_table_bytes(layout) + 1, 1);
    if (!self->workspace || !self->flags)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a self-test");
    sl_layout_write_flags(layout, SL_BLOCK_RATE, self->flags);
    if (layout->draws != NULL)
        sl_layout_write_keys(layout,
                             (uint64_t *)(void *)(self->flags + sl_layout_keys_offset(layout)));
    return SL_OK;
}

/* Copies run into a room of their own, behind the operands'. */
static sl_status take_room(lockstep *self)
{
    const uint64_t bytes = room_bytes(self);
    SL_TRY(sl_op_room_open(self->args->device, bytes, self->args->repeats > 1, &self->room));
    if (self->args->repeats > 1 && (self->first = malloc(bytes + 1)) == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a self-test");
    return SL_OK;
}

/* Those of some step in the middle of a run, so that nothing is 0 or 1 by chance. */
static const sl_step_scalars middle = {.learning_rate = 3e-3f,
                                       .weight_decay = 0.1f,
                                       .beta1 = 0.9f,
                                       .beta2 = 0.95f,
                                       .epsilon = 1e-8f,
                                       .bias1 = 0.271f,
                                       .bias2_root = 0.3776f,
                                       .lion_beta1 = 0.9f,
                                       .lion_beta2 = 0.99f,
                                       .momentum = 0.9f,
                                       .muon_momentum = 0.95f,
                                       .clip = 1.0f,
                                       .loss_scale = 1.0f,
                                       .dropout_seed = 20,
                                       .first_row = 5};

sl_status sl_lockstep_run(const sl_lockstep_args *args, sl_fault *out_fault, uint64_t *out_ops)
{
    lockstep self = {.args = args, .scalars = middle, .fault = out_fault};
    *out_fault = (sl_fault){0};
    *out_ops = 0;
    sl_status status =
        sl_values_open(args->program, args->layout, args->vocab, args->seed, &self.values);
    if (status == SL_OK)
        status = take_workspace(&self);
    if (status == SL_OK)
        status = take_room(&self);
    if (status == SL_OK)
        status = run_all(&self, out_ops);
    if (self.room.device)
        sl_op_room_close(&self.room);
    sl_values_close(&self.values);
    free(self.first);
    free(self.workspace);
    free(self.flags);
    return status;
}
