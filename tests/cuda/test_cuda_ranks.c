/* What could be wrong in what a GPU computes of collectives: a sum in another order than that of
 * ranks, or rounded twice or not at all; an own term that is not rounded as it would have been on
 * its way; elements at the end of a piece, or of pieces that do not begin on sixteen bytes;
 * statistics combined against another maximum, or with other last bits than a host's; a carry, a
 * flag or a loss that a norm loses; columns in another rank's place, padding that is not zero. All
 * of it must be the cpu's bits. */
#include "cuda_case.h"

#include "comm/wire.h"
#include "kernels/cuda/ops.h"
#include "kernels/rank_stats.h"

enum { RANKS_MOST = 8 };

/* The communicators' own sum, as a kernel. */
static sl_status sum_on_cpu(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    const void *terms[RANKS_MOST];
    const sl_comm_types types = {(sl_comm_type)attrs->grad_type, (sl_comm_type)attrs->type};
    for (uint64_t i = 0; i < attrs->batch; i++)
        terms[i] = (const char *)call->operand[0] + i * attrs->out * sl_wire_bytes(types.wire);
    const sl_wire_sum_args args = {.types = types,
                                   .count = attrs->element_count,
                                   .term_count = (uint32_t)attrs->batch,
                                   .own_index = attrs->rank_index,
                                   .terms = terms,
                                   .own = call->operand[1],
                                   .out_wire = call->operand[2],
                                   .out_stored = call->operand[3]};
    sl_wire_sum(&args);
    return SL_OK;
}

static sl_kernel find_cpu(sl_rank_kernel which)
{
    return which == SL_RANK_SUM ? sum_on_cpu : sl_kernels_cpu()->ranks[which];
}

static sl_kernel find_cuda(sl_rank_kernel which)
{
    static const sl_kernel kernels[] = {
#define X(NAME, name) [SL_RANK_##NAME] = sl_cuda_ranks_##name,
        SL_RANK_KERNEL_LIST(X)
#undef X
    };
    return kernels[which];
}

/* Runs both and compares; `written`: a bit an operand. Closes the case. */
static void check(cuda_case *c, sl_rank_kernel which, unsigned written)
{
    c->kind = SL_OP_ADD; /* prepares nothing */
    c->run = find_cuda(which);
    run_kernel(c, find_cpu(which), 0, false);
    run_orders(c);
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        const cuda_operand *o = &c->operand[i];
        if (written >> i & 1)
            case_compare_bits(c, i);
        else if (o->bytes > 0 && memcmp(o->cuda, o->input, o->bytes) != 0)
            fail_msg("%s: operand %d is only read, but has changed", case_shape(c), i);
    }
    case_close(c);
}

/* Counts that packs divide, or, as WIDE says, not; no two alike. */
static uint64_t pick_count(int round, bool is_wide)
{
    return is_wide ? 8 * (uint64_t)(round + 1) * (round % 5 == 4 ? 9 : 1)
                   : 2 * (uint64_t)round * (round % 7 == 6 ? 11 : 1) + 1;
}

static void plant_specials(cuda_case *c, int operand)
{
    static const float special[] = {0.0f,     0x1p-149f, 0x1.fffffcp-127f, 0x1p-126f, 0x1p127f,
                                    INFINITY, NAN,       0x1.fffffep127f};
    cuda_operand *o = &c->operand[operand];
    for (uint64_t i = 0; i < o->count / 16; i++) {
        const float value = special[draw_below(sizeof special / sizeof *special)];
        case_store(o->element, o->input, draw_below(o->count),
                   (double)(draw_below(2) ? -value : value));
    }
}

/* ---- SUM ---- */

static void check_sum(sl_type type, sl_type stored, int round, bool is_wide)
{
    cuda_case c = {.type = type};
    const uint64_t count = pick_count(round, is_wide), ranks = 1 + (uint64_t)round % RANKS_MOST;
    const uint64_t apart = is_wide ? count + 8 * (uint64_t)(round % 3) : count + round % 3;
    c.attrs = (sl_op_attrs){.type = (uint16_t)type,
                            .grad_type = (uint16_t)stored,
                            .element_count = count,
                            .batch = ranks,
                            .out = apart,
                            .rank_index = (uint16_t)draw_below(ranks)};
    case_random(&c, 0, (int)type, ranks * apart, 3.0f);
    case_random(&c, 1, (int)stored, count, 3.0f);
    if (round % 3 != 1)
        case_room(&c, 2, (int)type, count);
    case_room(&c, 3, (int)stored, count);
    plant_specials(&c, 0);
    plant_specials(&c, 1);
    check(&c, SL_RANK_SUM, 1u << 2 | 1u << 3);
}

static void sum_when_run_gives_the_bits_of_communicators(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < 2 * CASE_EACH; round++) {
            check_sum((sl_type)type, SL_TYPE_FP32, round / 2, round % 2);
            if (type != SL_TYPE_FP32)
                check_sum((sl_type)type, (sl_type)type, round / 2, round % 2);
        }
}

/* ---- CONVERT ---- */

static void check_convert(sl_type from, sl_type to, bool adds, int round, bool is_wide)
{
    cuda_case c = {.type = from};
    const uint64_t count = pick_count(round, is_wide);
    c.attrs = (sl_op_attrs){.type = (uint16_t)from,
                            .grad_type = (uint16_t)to,
                            .adds_gradient = adds,
                            .element_count = count};
    case_random(&c, 0, (int)from, count, 100.0f);
    case_random(&c, 1, (int)to, count, 100.0f);
    plant_specials(&c, 0);
    check(&c, SL_RANK_CONVERT, 1u << 1);
}

static void convert_when_run_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < 2 * CASE_EACH; round++) {
            check_convert((sl_type)type, (sl_type)type, false, round / 2, round % 2);
            check_convert((sl_type)type, SL_TYPE_FP32, true, round / 2, round % 2);
            if (type != SL_TYPE_FP32) {
                check_convert((sl_type)type, SL_TYPE_FP32, false, round / 2, round % 2);
                check_convert(SL_TYPE_FP32, (sl_type)type, false, round / 2, round % 2);
            }
        }
}

/* ---- STATS ---- */

/* Of one rank: as HEAD_STATS leaves them. */
static void fill_row(float *row, bool has_ids)
{
    uint64_t state = sl_rng_below(test_seed, 3, draw_count++, UINT64_MAX);
    row[0] = has_ids ? 20.0f * draw_normal(&state) : -INFINITY;
    row[1] = has_ids ? 1.0f + 50.0f * (float)draw_below(1000) / 1000.0f : 0.0f;
    row[2] = draw_below(3) ? 0.0f : 5.0f * draw_normal(&state);
    row[3] = 0.0f;
    if (has_ids && draw_below(20) == 0)
        row[1] = NAN;
    if (has_ids && draw_below(20) == 0)
        row[0] -= 100.0f;
}

static void stats_when_combined_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    for (int round = 0; round < CASE_SHAPES; round++) {
        cuda_case c = {.type = SL_TYPE_FP32};
        const uint64_t rows = case_size(round), ranks = 1 + draw_below(RANKS_MOST);
        c.attrs = (sl_op_attrs){.batch = ranks, .row_count = rows};
        float *parts = case_room(&c, 0, SL_TYPE_FP32, ranks * rows * SL_RANK_STATS_A_ROW);
        for (uint64_t i = 0; i < ranks * rows; i++)
            fill_row(parts + i * SL_RANK_STATS_A_ROW, draw_below(6) != 0);
        case_room(&c, 1, SL_TYPE_FP32, rows * SL_RANK_STATS_A_ROW);
        check(&c, SL_RANK_STATS, 1u << 1);
    }
}

/* Two units in the last place; a subnormal result has fewer of them. */
static void exponential_when_compared_is_as_exact_as_a_library(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        const float x = -110.0f * (float)i / 20000;
        const double exact = exp((double)x), got = (double)sl_rank_exp(x);
        if (!(fabs(got - exact) <= 2 * 0x1p-24 * exact + 0x1p-149))
            fail_msg("exp(%a) is %a, not %a", (double)x, got, exact);
    }
    assert_true(sl_rank_exp(0.0f) == 1.0f);
    assert_true(sl_rank_exp(-INFINITY) == 0.0f);
    assert_true(isnan(sl_rank_exp(NAN)));
}

/* ---- norms ---- */

static void fill_norm(sl_norm_sum *sum)
{
    *sum = (sl_norm_sum){.flags = (uint32_t)draw_below(16), .nonfinite = draw_below(9) == 0};
    const uint64_t full = draw_below(6);
    for (uint64_t i = 0; i < 6; i++)
        sum->word[i] =
            i < full ? UINT64_MAX : sl_rng_below(test_seed, 4, draw_count++, UINT64_MAX) >> 8;
    const double loss = (double)draw_below(100000) / 7;
    memcpy(sum->reserved, &loss, sizeof loss);
    sum->counted = (uint32_t)draw_below(SL_COUNTED_MAX);
}

static void norms_when_merged_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    for (int round = 0; round < CASE_SHAPES; round++) {
        cuda_case c = {.attrs = {.batch = 1 + (uint64_t)round}};
        sl_norm_sum *parts = case_room(&c, 0, CASE_BYTES, c.attrs.batch * sizeof *parts);
        for (uint64_t i = 0; i < c.attrs.batch; i++)
            fill_norm(&parts[i]);
        case_room(&c, 1, CASE_BYTES, sizeof *parts);
        if (round % 2)
            case_room(&c, 2, CASE_BYTES, sizeof(double));
        if (round % 3)
            case_room(&c, 3, CASE_BYTES, sizeof(double));
        check(&c, SL_RANK_NORM_MERGE, 1u << 1 | 1u << 2 | 1u << 3);
    }
}

static void norms_when_prepared_carry_flags_and_the_loss(void **state)
{
    (void)state;
    for (int round = 0; round < CASE_SHAPES; round++) {
        cuda_case c = {.attrs = {.adds_output = round % 2}, .scalars = {.flags = 5 + round}};
        fill_norm(case_room(&c, 0, CASE_BYTES, sizeof(sl_norm_sum)));
        if (round % 3)
            *(double *)case_room(&c, 1, CASE_BYTES, sizeof(double)) = 1.5 * round;
        if (round % 2)
            *(double *)case_room(&c, 2, CASE_BYTES, sizeof(double)) = SL_COUNTED_MAX - round;
        check(&c, SL_RANK_NORM_PREPARE, 1u << 0);
    }
}

/* ---- columns ---- */

static void check_columns(sl_type type, int round, bool is_wide, bool packs)
{
    cuda_case c = {.type = type};
    const uint64_t ranks = 1 + (uint64_t)round % RANKS_MOST, pack = is_wide ? 8 : 1;
    const uint64_t out = pack * draw_between(1, 9), rows = 1 + (uint64_t)round;
    const uint64_t padding = pack * draw_below(out / pack); /* of the last rank */
    const uint64_t in = ranks * out - padding;
    const bool is_one = packs && round % 3 == 0; /* as TAKE_COLUMNS asks */
    c.attrs = (sl_op_attrs){.type = (uint16_t)type,
                            .batch = is_one ? 1 : ranks,
                            .rank_index = (uint16_t)(is_one ? draw_below(ranks) : 0),
                            .row_count = rows,
                            .in = in,
                            .out = out};
    const uint64_t parts = c.attrs.batch * rows * out;
    case_random(&c, 0, (int)type, packs ? rows * in : parts, 1.0f);
    case_room(&c, 1, (int)type, packs ? parts : rows * in);
    check(&c, packs ? SL_RANK_PACK_COLUMNS : SL_RANK_JOIN_COLUMNS, 1u << 1);
}

static void columns_when_moved_are_where_the_cpu_puts_them(void **state)
{
    (void)state;
    for (int round = 0; round < 2 * CASE_EACH; round++)
        for (int type = 0; type < SL_TYPE_COUNT; type++)
            for (int packs = 0; packs < 2; packs++)
                check_columns((sl_type)type, round / 2, round % 2, packs);
}

static void kernels_when_misused_say_so(void **state)
{
    (void)state;
    sl_op_attrs attrs = {.element_count = 8, .type = SL_TYPE_FP32, .grad_type = SL_TYPE_BF16};
    const sl_kernel_call call = {.attrs = &attrs};
    assert_int_equal(sl_cuda_ranks_sum(&call), SL_ERROR_INTERNAL);
    attrs.adds_gradient = 1;
    assert_int_equal(sl_cuda_ranks_convert(&call), SL_ERROR_INTERNAL);
    assert_int_equal(sl_kernels_cpu()->ranks[SL_RANK_CONVERT](&call), SL_ERROR_INTERNAL);
    attrs = (sl_op_attrs){0};
    assert_int_equal(sl_cuda_ranks_sum(&call), SL_OK);
    assert_int_equal(sl_cuda_ranks_convert(&call), SL_OK);
    assert_int_equal(sl_cuda_ranks_stats(&call), SL_OK);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sum_when_run_gives_the_bits_of_communicators),
    cmocka_unit_test(convert_when_run_gives_the_bits_of_the_cpu),
    cmocka_unit_test(stats_when_combined_have_the_bits_of_the_cpu),
    cmocka_unit_test(exponential_when_compared_is_as_exact_as_a_library),
    cmocka_unit_test(norms_when_merged_have_the_bits_of_the_cpu),
    cmocka_unit_test(norms_when_prepared_carry_flags_and_the_loss),
    cmocka_unit_test(columns_when_moved_are_where_the_cpu_puts_them),
    cmocka_unit_test(kernels_when_misused_say_so),
};

CUDA_CASE_MAIN(tests)
