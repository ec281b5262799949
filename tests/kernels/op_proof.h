/* Proves what is claimed of the operands of one case of an op, on the kernel itself.
 *
 * A claim is what the op table says of an operand: its bytes, whether it is read, whether it is
 * written. The kernel runs with each operand in pages of its own, exactly that long. Then:
 *
 *   not written    it is mapped read only while the kernel runs
 *   not read       what was there before, NaNs or not, cannot be seen in any result
 *   written whole  its result is the same whatever was there, byte by byte
 *   read           other content at its first and at its last element is seen in a result
 *   written        its last element has changed, where it is also read
 *   workspace      exactly as long as the query says; its content cannot be seen in any result
 *
 * The first three and the last find a claim of too little, by the guards and by bytes that differ
 * between runs; the others find a claim of too much, an element too many included. */
#ifndef SL_TESTS_OP_PROOF_H
#define SL_TESTS_OP_PROOF_H

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/half.h"
#include "base/rng.h"
#include "custom_reference.h"
#include "kernels/kernels.h"
#include "op_cases.h"
#include "op_region.h"

enum { PROOF_WORKSPACE = SL_OPERAND_MAX, PROOF_FLAGS, PROOF_REGIONS, PROOF_WORKERS_MOST = 3 };

typedef struct op_claim {
    bool is_there, reads, writes;
    uint64_t bytes;
} op_claim;

typedef struct op_proof {
    const op_case *c;
    op_claim claims[SL_OPERAND_MAX];
    uint8_t *content[SL_OPERAND_MAX]; /* as it stands before the kernel runs */
    uint8_t *result[SL_OPERAND_MAX];  /* of the first run */
    uint8_t *latest[SL_OPERAND_MAX];  /* of the latest */
    sl_workers *one, *several;        /* workers; several is NULL where one is to do */
    char fault[320];                  /* what does not hold; empty: nothing */
} op_proof;

typedef struct op_run {
    region_end end;
    uint8_t pattern;    /* in whatever the kernel must not read */
    bool takes_several; /* workers */
} op_run;

/* NaNs of every type, and ordinary numbers; they differ in every byte. */
static const op_run proof_runs[] = {
    {REGION_AT_START, 0xff, false}, {REGION_AT_END, 0x5a, false}, {REGION_FLUSH, 0xff, true}};

static inline sl_workers *proof_workers(const op_proof *self, const op_run *run)
{
    return run->takes_several && self->several != NULL ? self->several : self->one;
}

static inline op_claim proof_table_claim(const op_case *c, uint32_t i)
{
    const sl_op_attrs *attrs = &c->op.attrs;
    if (c->op.operand[i] == SL_NONE || i >= sl_op_info_of(c->op.kind)->operand_count)
        return (op_claim){0};
    op_claim claim = {true, sl_op_reads(&c->op, i), sl_op_writes(&c->op, i), 0};
    claim.bytes = sl_op_operand_bytes(c->op.kind, attrs, i);
    if (claim.bytes == 0) { /* open: there may be positions before and behind */
        const uint64_t row = c->op.kind == SL_OP_ROTARY ? attrs->out : attrs->in;
        claim.bytes = sl_op_least_bytes(c->op.kind, attrs, i) +
                      (c->position + c->rows_left) * row * case_element_bytes(c, i);
    }
    return claim;
}

__attribute__((format(printf, 2, 3))) static inline bool proof_fail(op_proof *self,
                                                                    const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(self->fault, sizeof self->fault, format, arguments);
    va_end(arguments);
    return false;
}

static inline const char *proof_name(const op_proof *self, uint32_t i)
{
    return sl_op_info_of(self->c->op.kind)->operand[i].name;
}

/* ---- content ---- */

/* Ids around the panel; those of the first and the last row are its first and its last that exist.
 */
static inline void proof_fill_ids(const op_proof *self, int32_t *ids, uint64_t count)
{
    enum { AROUND = 3 };
    const sl_op_attrs *attrs = &self->c->op.attrs;
    const bool is_head = attrs->valid_id_count > attrs->first_id &&
                         self->c->op.kind != SL_OP_EMBED_TOKENS &&
                         self->c->op.kind != SL_OP_EMBED_TOKENS_BACKWARD;
    const uint64_t end = is_head ? attrs->valid_id_count : attrs->first_id + attrs->id_count;
    for (uint64_t i = 0; i < count; i++)
        ids[i] = (int32_t)(attrs->first_id + sl_rng_below(9, 1, i, attrs->id_count + AROUND)) - 1;
    const uint64_t last = is_head ? attrs->first_row + attrs->row_count : count;
    ids[is_head ? attrs->first_row : 0] = (int32_t)attrs->first_id;
    if (last >= 1 && last <= count)
        ids[last - 1] = (int32_t)(end - 1);
}

/* Of documents of some length, the last of a row shorter. */
static inline void proof_fill_positions(const op_proof *self, int32_t *positions, uint64_t count)
{
    enum { DOCUMENT = 29 };
    for (uint64_t i = 0; i < count; i++)
        positions[i] = (int32_t)(i % self->c->op.attrs.seq % DOCUMENT);
}

/* In [-2, 2), not 0. */
static inline float proof_draw(uint64_t index)
{
    const uint64_t bits = (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return (float)(((bits ^ bits >> 29) * UINT64_C(0xbf58476d1ce4e5b9) >> 41) * 2 + 1) * 0x1p-22f -
           2.0f;
}

static inline void proof_fill_numbers(const op_proof *self, uint32_t i, uint64_t count)
{
    const char *name = proof_name(self, i);
    const sl_type type = walk_type_of(&self->c->op, i);
    const bool is_positive = !strcmp(name, "stats") || !strcmp(name, "moment2");
    const bool is_lse = !strcmp(name, "lse"); /* no probability far above 1 */
    for (uint64_t k = 0; k < count; k++) {
        float value = proof_draw(k * SL_OPERAND_MAX + i);
        if (is_positive || is_lse)
            value = fabsf(value) + (is_lse ? 5.0f : 0.5f);
        if (self->c->op.kind == SL_OP_HEAD_LOSS && k % 4 == 3)
            value = 0.0f; /* not masked: a masked row is not read further */
        if (type == SL_TYPE_FP32) {
            ((float *)(void *)self->content[i])[k] = value;
            continue;
        }
        ((uint16_t *)(void *)self->content[i])[k] =
            type == SL_TYPE_BF16 ? sl_half_to_bf16(value) : sl_half_to_fp16(value);
    }
}

/* Blocks of bf16, or of codes with their scales behind them; no code is all ones. */
static inline void proof_fill_stored(const op_proof *self, uint32_t i, uint64_t blocks)
{
    const bool has_codes = self->c->op.attrs.frozen_type == SL_FROZEN_INT8;
    const uint64_t codes = has_codes ? SL_BLOCK_ELEMENTS : 0;
    const uint64_t halves = has_codes ? SL_BLOCK_ELEMENTS / 32 : SL_BLOCK_ELEMENTS;
    uint8_t *at = self->content[i];
    for (uint64_t b = 0; b < blocks; b++) {
        for (uint64_t k = 0; k < codes; k++)
            *at++ = (uint8_t)(1 + (b + 7 * k) % 250);
        for (uint64_t k = 0; k < halves; k++, at += sizeof(uint16_t)) {
            const float value = proof_draw(b * SL_BLOCK_ELEMENTS + k);
            const uint16_t half = has_codes ? sl_half_to_fp16(value) : sl_half_to_bf16(value);
            memcpy(at, &half, sizeof half);
        }
    }
}

static inline void proof_fill_operand(const op_proof *self, uint32_t i)
{
    const char *name = proof_name(self, i);
    const uint64_t bytes = self->claims[i].bytes, element = case_element_bytes(self->c, i);
    const sl_step_control control = {1.0f, 0.37f, self->c->choice[AXIS_SKIP], 0};
    const sl_norm_sum norm = {.word = {1000}, .nonfinite = self->c->choice[AXIS_FINITE]};
    const double loss = 3.7;
    const void *given = NULL;
    uint64_t given_bytes = 0;
    if (!strcmp(name, "control")) {
        given = &control;
        given_bytes = sizeof control;
    } else if (!strcmp(name, "norm")) {
        given = &norm;
        given_bytes = sizeof norm;
    } else if (!strcmp(name, "loss") || !strcmp(name, "counted")) {
        given = &loss;
        given_bytes = sizeof loss;
    }
    if (given != NULL)
        memcpy(self->content[i], given, bytes < given_bytes ? bytes : given_bytes);
    else if (case_is_stored(self->c, i))
        proof_fill_stored(self, i, self->c->op.attrs.element_count / SL_BLOCK_ELEMENTS);
    else if (!strcmp(name, "positions"))
        proof_fill_positions(self, (void *)self->content[i], bytes / sizeof(int32_t));
    else if (!strcmp(name, "tokens") || !strcmp(name, "targets"))
        proof_fill_ids(self, (void *)self->content[i], bytes / sizeof(int32_t));
    else
        proof_fill_numbers(self, i, bytes / element);
}

/* ---- one run ---- */

static inline uint64_t proof_touched_end(const op_proof *self, uint32_t i)
{
    const op_span span = case_span(self->c, i);
    const uint64_t bytes = self->claims[i].bytes;
    return bytes > span.back + span.front ? bytes - span.back : span.front;
}

static inline bool proof_open_operand(op_proof *self, uint32_t i, const op_run *run, region *out)
{
    const op_claim *claim = &self->claims[i];
    if (!claim->is_there)
        return true;
    if (!region_open(out, proof_name(self, i), claim->bytes, run->end, run->pattern))
        return proof_fail(self, "no memory");
    const uint64_t front = case_span(self->c, i).front, end = proof_touched_end(self, i);
    if (claim->reads && end <= claim->bytes)
        memcpy(out->at + front, self->content[i] + front, end - front);
    return claim->writes || region_make_read_only(out) || proof_fail(self, "no protection");
}

/* Flags of one block in two, behind those of other chunks. */
static inline bool proof_open_flags(op_proof *self, const op_run *run, region *out)
{
    const sl_op_attrs *attrs = &self->c->op.attrs;
    const uint64_t first = attrs->first_block, count = attrs->element_count / SL_BLOCK_ELEMENTS;
    if (!sl_op_info_of(self->c->op.kind)->updates_chunk)
        return true;
    if (!region_open(out, "block flags", first + count, run->end, run->pattern))
        return proof_fail(self, "no memory");
    for (uint64_t i = 0; i < count; i++)
        out->at[first + i] = (uint8_t)(i % 2 == 0);
    return region_make_read_only(out) || proof_fail(self, "no protection");
}

static inline bool proof_open_regions(op_proof *self, const op_run *run, region *regions)
{
    const sl_op *op = &self->c->op;
    const uint64_t workspace = sl_kernels_workspace_bytes(
        sl_kernels_cpu(), op->kind, &op->attrs, sl_workers_count(proof_workers(self, run)));
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        if (!proof_open_operand(self, i, run, &regions[i]))
            return false;
    if (workspace > 0 &&
        !region_open(&regions[PROOF_WORKSPACE], "workspace", workspace, run->end, run->pattern))
        return proof_fail(self, "no memory");
    return proof_open_flags(self, run, &regions[PROOF_FLAGS]);
}

static inline bool proof_call(op_proof *self, const op_run *run, const region *regions)
{
    const sl_op *op = &self->c->op;
    sl_kernel_call call = {.attrs = &op->attrs,
                           .scalars = self->c->scalars,
                           .workspace = regions[PROOF_WORKSPACE].at,
                           .block_flags = regions[PROOF_FLAGS].at,
                           .padding = &self->c->padding,
                           .padding_count = 1,
                           .workers = proof_workers(self, run)};
    const sl_custom_op custom = custom_op(&op->attrs.element_count);
    if (sl_op_is_custom(op->kind))
        call.custom = &custom;
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        call.operand[i] = regions[i].at;
    region_watch.regions = regions;
    region_watch.count = PROOF_REGIONS;
    const sl_status status = sl_kernels_cpu()->row[op->kind].run(&call);
    region_watch.count = 0;
    return status == SL_OK || proof_fail(self, "the kernel refuses: %s", sl_status_message());
}

/* Nothing but the touched part of operands has changed. */
static inline bool proof_check_rest(op_proof *self, const region *regions)
{
    for (uint32_t r = 0; r < PROOF_REGIONS; r++)
        if (regions[r].map != NULL && !region_margins_hold(&regions[r]))
            return proof_fail(self, "%s, %llu bytes: written before or behind it", regions[r].name,
                              (unsigned long long)regions[r].bytes);
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
        const region *one = &regions[i];
        if (one->map == NULL)
            continue;
        const uint64_t at = (uint64_t)(one->at - one->pages);
        if (!region_holds_pattern(one, at, at + case_span(self->c, i).front) ||
            !region_holds_pattern(one, at + proof_touched_end(self, i), at + one->bytes))
            return proof_fail(self, "%s: a part is written that the op must leave", one->name);
    }
    return true;
}

static inline bool proof_run(op_proof *self, const op_run *run)
{
    region regions[PROOF_REGIONS] = {{0}};
    const bool holds = proof_open_regions(self, run, regions) && proof_call(self, run, regions) &&
                       proof_check_rest(self, regions);
    for (uint32_t i = 0; i < SL_OPERAND_MAX && holds; i++)
        if (self->claims[i].is_there)
            memcpy(self->latest[i], regions[i].at, self->claims[i].bytes);
    for (uint32_t r = 0; r < PROOF_REGIONS; r++)
        region_close(&regions[r]);
    return holds;
}

/* ---- what must hold ---- */

/* The first written operand whose touched part differs from the first run's, or SL_OPERAND_MAX. */
static inline uint32_t proof_find_difference(const op_proof *self)
{
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
        const uint64_t front = case_span(self->c, i).front, end = proof_touched_end(self, i);
        if (self->claims[i].writes &&
            memcmp(self->result[i] + front, self->latest[i] + front, end - front) != 0)
            return i;
    }
    return SL_OPERAND_MAX;
}

static inline bool proof_check_runs(op_proof *self)
{
    for (size_t r = 0; r < sizeof proof_runs / sizeof *proof_runs; r++) {
        if (!proof_run(self, &proof_runs[r]))
            return false;
        for (uint32_t i = 0; i < SL_OPERAND_MAX && r == 0; i++)
            if (self->claims[i].is_there)
                memcpy(self->result[i], self->latest[i], self->claims[i].bytes);
        const uint32_t other = proof_find_difference(self);
        if (other < SL_OPERAND_MAX)
            return proof_fail(self,
                              "%s: its result depends on what is said not to be read, on the "
                              "workspace, on the place or on the workers",
                              proof_name(self, other));
    }
    return true;
}

/* What is said to be written and not read is touched whole, but for the rows of the first range. */
static inline bool proof_check_whole(op_proof *self, uint32_t i)
{
    const op_span span = case_span(self->c, i);
    const bool is_first_range = case_is_row_range(self->c, i) && self->c->op.attrs.first_row == 0;
    if (span.front + span.back == 0 || is_first_range)
        return true;
    return proof_fail(self, "%s: said to be written whole, and is not", proof_name(self, i));
}

/* An update has changed its last element, or nothing at all where the step is skipped. */
static inline bool proof_check_changed(op_proof *self, uint32_t i)
{
    const uint64_t front = case_span(self->c, i).front, end = proof_touched_end(self, i);
    const uint64_t element = case_element_bytes(self->c, i);
    const uint8_t *before = self->content[i], *after = self->result[i];
    const bool is_norm = !strcmp(proof_name(self, i), "norm"); /* not all of its words change */
    const uint64_t first = is_norm ? front : end - element;
    if (end < front + element)
        return proof_fail(self, "%s: nothing of it is touched", proof_name(self, i));
    if (self->c->choice[AXIS_SKIP])
        return memcmp(before + front, after + front, end - front) == 0 ||
               proof_fail(self, "%s: changed by a step that is skipped", proof_name(self, i));
    return memcmp(before + first, after + first, end - first) != 0 ||
           proof_fail(self, "%s: said to be written, and its last element is not",
                      proof_name(self, i));
}

/* Other content at `byte` of operand i is seen in some result. */
static inline bool proof_check_seen(op_proof *self, uint32_t i, uint64_t byte)
{
    uint8_t kept[sizeof(double)];
    const uint64_t element = case_element_bytes(self->c, i);
    memcpy(kept, self->content[i] + byte, element);
    memset(self->content[i] + byte, 0xff, element); /* a NaN, no token, a flag that is set */
    const bool runs = proof_run(self, &proof_runs[0]);
    memcpy(self->content[i] + byte, kept, element);
    if (!runs)
        return false;
    return proof_find_difference(self) < SL_OPERAND_MAX ||
           proof_fail(self, "%s: said to be read, and byte %llu of %llu is not",
                      proof_name(self, i), (unsigned long long)byte,
                      (unsigned long long)self->claims[i].bytes);
}

static inline bool proof_check_read(op_proof *self, uint32_t i)
{
    const op_span span = case_span(self->c, i);
    const uint64_t end = proof_touched_end(self, i), element = case_element_bytes(self->c, i);
    if (end < span.front + span.unread + element)
        return proof_fail(self, "%s: nothing of it is read", proof_name(self, i));
    return proof_check_seen(self, i, span.front) &&
           proof_check_seen(self, i, end - span.unread - element);
}

static inline bool proof_check_operand(op_proof *self, uint32_t i)
{
    const op_claim *claim = &self->claims[i];
    if (!claim->is_there)
        return true;
    if (claim->writes && !claim->reads && !proof_check_whole(self, i))
        return false;
    if (claim->writes && claim->reads && !proof_check_changed(self, i))
        return false;
    return !claim->reads || !case_shows_reads(self->c, i) || proof_check_read(self, i);
}

/* Whether all that self->claims say of self->c holds; else self->fault says what does not. */
static inline bool proof_holds(op_proof *self)
{
    bool holds = true;
    for (uint32_t i = 0; i < SL_OPERAND_MAX && holds; i++) {
        if (!self->claims[i].is_there)
            continue;
        const uint64_t room = self->claims[i].bytes + sizeof(double);
        self->content[i] = calloc(1, room);
        self->result[i] = calloc(1, room);
        self->latest[i] = calloc(1, room);
        holds = self->content[i] && self->result[i] && self->latest[i];
        if (holds)
            proof_fill_operand(self, i);
        else
            proof_fail(self, "no memory");
    }
    holds = holds && proof_check_runs(self);
    for (uint32_t i = 0; i < SL_OPERAND_MAX && holds; i++)
        holds = proof_check_operand(self, i);
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
        free(self->content[i]);
        free(self->result[i]);
        free(self->latest[i]);
        self->content[i] = self->result[i] = self->latest[i] = NULL;
    }
    return holds;
}

#endif
