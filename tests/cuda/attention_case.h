/* Shapes and error bounds of the attention tests. What is allowed between the CUDA kernel and the
 * cpu's, both of which sum in fp32, with UNIT = 2^-24:
 *
 * - a score is off by (width + 4) * UNIT times the sum of its terms' sizes, so its exponential by
 * as much relative to itself, and again for the lse or maximum that it is set against; this, and n
 *   more roundings of a sum over n keys, on both sides: the factor 2 in what follows;
 * - tensor cores take weights and their gradients rounded to the type: half a unit each, relative
 * to themselves, and half of the least number of fp16, absolutely, where they are tiny;
 * - a result of half precision is rounded once on each side. */
#ifndef SL_TESTS_ATTENTION_CASE_H
#define SL_TESTS_ATTENTION_CASE_H

#include "cuda_case.h"
#include "kernels/cpu/simd.h"
#include "kernels/cuda/library.h"
#include "kernels/cuda/ops.h"
#include "kernels/kernel_reference.h"

static const double UNIT = 0x1p-24;

typedef struct attention_shape {
    uint64_t batch, seq, heads, width;
    uint64_t group; /* heads of q that share a head of k and v; 0: 1 */
} attention_shape;

/* Fibers are many times slower under a sanitizer, which sees in every seventh shape what it would
 * see in the others. */
#ifdef __SANITIZE_ADDRESS__
enum { ATTENTION_SHAPES = 34, ATTENTION_STEP = 7 };
#else
enum { ATTENTION_SHAPES = 34, ATTENTION_STEP = 1 };
#endif

/* Queries and keys around the tiles of 16, 32, 64 and 128; widths of each padded size and of the
 * plain kernels; batches and heads. The first half are the smaller ones. */
static attention_shape attention_shape_of(int round)
{
    static const attention_shape shapes[ATTENTION_SHAPES] = {
        {1, 1, 1, 64},   {1, 1, 3, 5},    {2, 2, 2, 8},    {1, 15, 1, 64},  {1, 16, 2, 16},
        {1, 17, 1, 72},  {2, 31, 1, 64},  {1, 33, 2, 80},  {1, 63, 1, 64},  {1, 64, 1, 64},
        {2, 65, 2, 24},  {1, 65, 1, 128}, {1, 66, 1, 1},   {1, 63, 2, 12},  {1, 70, 1, 33},
        {3, 20, 2, 7},   {1, 67, 1, 66},  {1, 40, 1, 100}, {1, 20, 1, 264}, {1, 33, 1, 256},
        {1, 81, 1, 40},  {1, 128, 1, 64}, {1, 95, 1, 96},  {1, 127, 1, 64}, {2, 18, 3, 64},
        {1, 129, 2, 64}, {1, 130, 1, 80}, {1, 131, 1, 13}, {1, 66, 1, 200}, {1, 161, 1, 32},
        {2, 100, 1, 56}, {1, 193, 1, 64}, {1, 257, 1, 64}, {1, 140, 1, 128}};
    if (round < ATTENTION_SHAPES)
        return shapes[round];
    return (attention_shape){draw_between(1, 2), draw_between(1, 150), draw_between(1, 2),
                             draw_between(1, 130)};
}

/* Small shapes for each kernel in turn: of padded sizes 64, 128 and 256, and of widths that are no
 * multiple of 8, which in fp32 stand for all. */
enum { ATTENTION_KERNELS = 4, ATTENTION_SMALL = ATTENTION_KERNELS * CASE_EACH };

static MAYBE_UNUSED bool is_small_shape_of(int type, int round)
{
    return type != SL_TYPE_FP32 || round % ATTENTION_KERNELS == ATTENTION_KERNELS - 1;
}

static MAYBE_UNUSED attention_shape small_attention_shape_of(int round)
{
    static const uint64_t first[ATTENTION_KERNELS] = {8, 72, 136, 1};
    static const uint64_t step[ATTENTION_KERNELS] = {8, 8, 8, 2};
    static const uint64_t width_count[ATTENTION_KERNELS] = {8, 8, 16, 16};
    const int kernel = round % ATTENTION_KERNELS;
    const uint64_t n = (uint64_t)(round / ATTENTION_KERNELS);
    const uint64_t width = first[kernel] + n % width_count[kernel] * step[kernel];
    return (attention_shape){1 + (n % 8 == 6), 1 + n % 32, 1 + (n % 8 == 7), width};
}

/* Of heads that share keys, joined in a row with the queries or apart: groups beside each padded
 * width and the plain kernels, over one tile of keys and over more. */
enum { GROUPED_SHAPES = 20 };

static MAYBE_UNUSED attention_shape grouped_shape_of(int round)
{
    static const attention_shape shapes[GROUPED_SHAPES] = {
        {1, 1, 2, 64, 2},   {1, 17, 4, 64, 2},   {2, 33, 3, 80, 3},  {1, 70, 4, 64, 4},
        {1, 65, 7, 16, 7},  {1, 20, 8, 96, 8},   {2, 40, 4, 128, 2}, {1, 66, 3, 128, 3},
        {1, 35, 2, 256, 2}, {1, 18, 8, 256, 4},  {1, 130, 2, 64, 2}, {1, 129, 4, 24, 4},
        {2, 19, 6, 5, 3},   {1, 67, 4, 33, 2},   {1, 70, 2, 66, 2},  {1, 64, 14, 8, 7},
        {1, 97, 3, 100, 3}, {1, 15, 16, 128, 8}, {1, 140, 2, 80, 2}, {1, 68, 2, 200, 2}};
    return shapes[round % GROUPED_SHAPES];
}

/* Small ones for each kernel in turn, as small_attention_shape_of. */
static MAYBE_UNUSED attention_shape small_grouped_shape_of(int round)
{
    static const uint64_t groups[] = {2, 3, 4, 7, 8};
    attention_shape s = small_attention_shape_of(round);
    s.group = groups[round / ATTENTION_KERNELS % 5];
    s.heads *= s.group;
    return s;
}

/* What takes part beside causality: nothing else, documents, dropout, both. */
enum { MASK_NONE, MASK_DOCUMENTS, MASK_DROPOUT, MASK_BOTH, MASKS };

/* What is masked takes 32 small shapes of each padded width and of the plain kernels, and the
 * larger ones above. */
enum { MASKED_SMALL = 128, MASKED_SHAPES = MASKED_SMALL + ATTENTION_SHAPES / 3 };

/* What tensor cores do is not of fp32, and a larger shape is taken by one type in three. */
static MAYBE_UNUSED bool masked_takes(int type, int round)
{
    if (round >= MASKED_SMALL)
        return (round + type) % SL_TYPE_COUNT == 0;
    return type != SL_TYPE_FP32 || round % 4 == 3;
}

static MAYBE_UNUSED attention_shape masked_shape_of(int round)
{
    const uint64_t i = (uint64_t)round / 4;
    const uint64_t widths[] = {8 * (1 + i % 8), 72 + 8 * (i % 8), 136 + 8 * (i % 16), 1 + 2 * i};
    if (round >= MASKED_SMALL)
        return attention_shape_of(round - MASKED_SMALL + ATTENTION_SHAPES * 2 / 3);
    return (attention_shape){1 + i % 2, 1 + 7 * i % 48, 1 + i / 8 % 2, widths[round % 4]};
}

static MAYBE_UNUSED void set_shape(cuda_case *c, attention_shape s)
{
    c->attrs.batch = s.batch;
    c->attrs.seq = s.seq;
    c->attrs.heads = s.heads;
    c->attrs.in = s.heads * s.width;
    c->attrs.out = s.group > 1 ? c->attrs.in / s.group : c->attrs.in;
}

static attention_shape shape_of(const cuda_case *c)
{
    return (attention_shape){c->attrs.batch, c->attrs.seq, c->attrs.heads,
                             c->attrs.in / c->attrs.heads, c->attrs.in / c->attrs.out};
}

/* ---- q, k and v, or their gradients: side by side in each row of one operand, or apart ---- */

/* Which operands they are of an op; k and v only where attrs.is_separate. */
typedef struct attention_operands {
    int q, k, v;
} attention_operands;

static MAYBE_UNUSED uint64_t joined_row_of(const cuda_case *c)
{
    return c->attrs.in + 2 * c->attrs.out;
}

/* Where feature `i` of a joined row lies. */
static MAYBE_UNUSED int locate_joined(const cuda_case *c, attention_operands of, uint64_t row,
                                      uint64_t i, uint64_t *out_index)
{
    const uint64_t in = c->attrs.in, out = c->attrs.out;
    if (!c->attrs.is_separate) {
        *out_index = row * joined_row_of(c) + i;
        return of.q;
    }
    *out_index = i < in ? row * in + i : row * out + (i - in) % out;
    return i < in ? of.q : i < in + out ? of.k : of.v;
}

static MAYBE_UNUSED void open_inputs(cuda_case *c, attention_operands of, float scale)
{
    const uint64_t rows = c->attrs.batch * c->attrs.seq;
    case_random(c, of.q, (int)c->type,
                rows * (c->attrs.is_separate ? c->attrs.in : joined_row_of(c)), scale);
    if (!c->attrs.is_separate)
        return;
    case_random(c, of.k, (int)c->type, rows * c->attrs.out, scale);
    case_random(c, of.v, (int)c->type, rows * c->attrs.out, scale);
}

/* The inputs as they stood before the call, joined: [B, T, in + 2 out]. */
static MAYBE_UNUSED double *widen_joined(const cuda_case *c, attention_operands of)
{
    const uint64_t rows = c->attrs.batch * c->attrs.seq, width = joined_row_of(c);
    double *values = calloc(rows * width, sizeof *values);
    assert_non_null(values);
    for (uint64_t i = 0; i < rows * width; i++) {
        uint64_t index;
        const int operand = locate_joined(c, of, i / width, i % width, &index);
        values[i] = case_input(c, operand, index);
    }
    return values;
}

/* Where the key head of a query head begins in a joined row. */
static MAYBE_UNUSED uint64_t joined_key_of(const cuda_case *c, uint64_t head)
{
    const attention_shape s = shape_of(c);
    return c->attrs.in + head / s.group * s.width;
}

/* Behind set_shape. Documents of any length; `operand`: that of positions. */
static MAYBE_UNUSED void set_mask(cuda_case *c, int which, int operand)
{
    const uint64_t seq = c->attrs.seq, rows = c->attrs.batch * seq;
    const uint64_t longest = draw_between(1, seq);
    c->scalars.dropout_seed = draw_below(UINT64_MAX);
    c->scalars.first_row = draw_below(1000000);
    c->attrs.dropout_site = (uint32_t)draw_below(100);
    c->attrs.rank_index = (uint16_t)draw_below(2);
    if (which & MASK_DROPOUT)
        c->attrs.dropout = 0.1f + 0.1f * (float)draw_below(5);
    if (!(which & MASK_DOCUMENTS))
        return;
    int32_t *positions = (int32_t *)case_room(c, operand, CASE_INT32, rows);
    uint64_t left = 0;
    for (uint64_t i = 0; i < rows; i++) {
        const bool begins = i % seq == 0 || left == 0;
        if (begins)
            left = draw_between(1, longest);
        left--;
        positions[i] = begins ? 0 : positions[i - 1] + 1;
    }
}

/* Tells a head of what set_mask did; `drop` stays the caller's. */
static MAYBE_UNUSED void mask_head(const cuda_case *c, int operand, uint64_t head_index,
                                   drop_call *drop, reference_head *head)
{
    const int32_t *positions = (const int32_t *)c->operand[operand].input;
    *drop = (drop_call){&c->attrs, &c->scalars, 0};
    head->row = head_index / c->attrs.heads;
    head->head = head_index % c->attrs.heads;
    head->positions = positions != NULL ? positions + head->row * c->attrs.seq : NULL;
    head->drop = drop;
}

/* The cpu's kernel is the reference by a table that rounds no weights. */
static void choose_exact_table(void)
{
    uint32_t i = 0;
    while (sl_simd_usable(i)->micro_kernel[SL_TYPE_BF16]->terms_per_step > 1)
        i++;
    sl_simd_choose(sl_simd_usable(i));
}

/* Runs before the kernel does: the workspace's size, and more shared memory where it is needed.
 */
static MAYBE_UNUSED void prepare_case(cuda_case *c)
{
    choose_exact_table();
    c->workspace_bytes = sl_cuda_attention_workspace_bytes(c->kind, &c->attrs, 0);
    assert_int_equal(sl_cuda_attention_prepare(c->kind, &c->attrs), SL_OK);
}

/* Whether weights are rounded to the type: see kernels/cuda/attention.cu. */
static bool rounds_weights(const cuda_case *c)
{
    const attention_shape s = shape_of(c);
    return c->type != SL_TYPE_FP32 && s.width % 8 == 0 && s.width <= 256;
}

/* Weights below half of it are zero, for the exponential has no subnormal results; what is dropped
 * may double those that are kept. */
static const double FLUSHED_WEIGHT = 0x1p-125;

/* Half a unit of a rounded weight, relative to it; and of the least weight. */
static double weight_unit(const cuda_case *c)
{
    return rounds_weights(c) ? CASE_HALF_UNIT[c->type] : 0;
}

static double least_weight(const cuda_case *c)
{
    return FLUSHED_WEIGHT + (rounds_weights(c) ? CASE_LEAST[c->type] / 2 : 0);
}

static double *zeros(uint64_t count)
{
    double *values = calloc(count, sizeof *values);
    assert_non_null(values);
    return values;
}

/* An operand as it stood before the call. */
static MAYBE_UNUSED double *widen(const cuda_case *c, int operand)
{
    double *values = zeros(c->operand[operand].count);
    for (uint64_t i = 0; i < c->operand[operand].count; i++)
        values[i] = case_input(c, operand, i);
    return values;
}

/* |cuda - cpu| <= bound + the roundings of the stored type, of one element. */
static void compare_element_within(const cuda_case *c, int operand, uint64_t i, double bound)
{
    const cuda_operand *o = &c->operand[operand];
    const double want = case_load(o->element, o->cpu, i);
    const double got = case_load(o->element, o->cuda, i);
    double allowed = bound + 0x1p-120;
    if (o->element != SL_TYPE_FP32)
        allowed += 2 * CASE_HALF_UNIT[o->element] * (fabs(want) + allowed) + CASE_LEAST[o->element];
    if (!(fabs(got - want) <= allowed))
        fail_msg("%s: operand %d, element %llu: got %.9g, want %.9g within %.3g", case_shape(c),
                 operand, (unsigned long long)i, got, want, allowed);
}

/* Of an operand, element by element. */
static MAYBE_UNUSED void compare_within(const cuda_case *c, int operand, const double *bound)
{
    for (uint64_t i = 0; i < c->operand[operand].count; i++)
        compare_element_within(c, operand, i, bound[i]);
}

/* Of gradients; bounds are those of joined rows. */
static MAYBE_UNUSED void compare_joined_within(const cuda_case *c, attention_operands of,
                                               const double *bound)
{
    const uint64_t rows = c->attrs.batch * c->attrs.seq, width = joined_row_of(c);
    for (uint64_t i = 0; i < rows * width; i++) {
        uint64_t index;
        const int operand = locate_joined(c, of, i / width, i % width, &index);
        compare_element_within(c, operand, index, bound[i]);
    }
}

/* Bounds of y and lse (NULL: none) of query t of a head, where `first` keys stand before query
 * 0.
 */
static MAYBE_UNUSED void bound_query(const cuda_case *c, const reference_head *head, uint64_t t,
                                     double *y_bound, double *lse_bound)
{
    double *y = zeros(head->width), lse, score;
    reference_attend(head, t, y, y_bound, &lse, &score);
    const uint64_t keys = head->first + t + 1;
    const double score_error = (double)(head->width + 4) * UNIT * score;
    const double relative =
        2 * (2 * score_error + UNIT * (2 * (double)keys + 32 + 4 * fabs(lse))) + weight_unit(c);
    for (uint64_t d = 0; d < head->width; d++) {
        double values = 0;
        for (uint64_t key = 0; key < keys; key++)
            values += fabs(head->v[key * head->stride + d]);
        y_bound[d] = relative * y_bound[d] + least_weight(c) * values;
    }
    if (lse_bound != NULL)
        *lse_bound = 2 * (score_error + UNIT * ((double)keys + 16 + 2 * fabs(lse)));
    free(y);
}

#endif
