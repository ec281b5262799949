/* What could be wrong in the update and the norm on CUDA: a rounding in another place than the
 * cpu's, a carry that the exact sum loses, a block with its neighbour's decay flag, a skipped step
 * that writes, a non-finite gradient that goes unnoticed. All of it must be the cpu's bits, over
 * blocks with zeros, subnormals, the largest numbers, infinities and NaNs among their elements, in
 * all types of parameters and gradients. */
#include "cuda_case.h"

#include "base/dynamic_codes.h"
#include "kernels/cuda/ops.h"

enum { BLOCK = SL_BLOCK_ELEMENTS, FLAGS_MOST = 4096 };

static uint8_t flags[FLAGS_MOST];
static uint64_t keys[FLAGS_MOST];

/* Rates of their own; the last is the last one of a table. */
static const sl_rate own_rates[SL_RATES_MAX] = {
    {1, 0}, {1, SL_RATE_DECAY_OF_STEP}, {0.5f, 0.3f}, {0, 1}, [SL_RATES_MAX - 1] = {1.7f, 0}};

/* Both signs of everything that has a rule of its own. */
static float draw_special(void)
{
    static const float special[] = {0.0f,      0x1p-149f,       0x1.fffffcp-127f,
                                    0x1p-126f, 0x1.000002p-63f, 0x1.fffffep127f,
                                    0x1p64f,   INFINITY,        NAN};
    const float value = special[draw_below(sizeof special / sizeof *special)];
    return draw_below(2) ? -value : value;
}

/* `count` elements in places of their own. */
static void plant(cuda_case *c, int operand, uint64_t count, float (*draw)(void))
{
    cuda_operand *o = &c->operand[operand];
    for (uint64_t i = 0; i < count; i++)
        case_store(o->element, o->input, draw_below(o->count), (double)draw());
}

static float draw_tiny(void)
{
    return sl_bits_to_float((uint32_t)draw_below(0x1000000));
}

/* One to six blocks; once as many as several blocks of threads do, and some over. */
static uint64_t draw_blocks(int round)
{
    return round == 0 ? 67 : draw_between(1, 6);
}

/* ---- the updates of rules ---- */

static void draw_scalars(cuda_case *c)
{
    c->scalars = (sl_step_scalars){.learning_rate = ldexpf(3.0f, -(int)draw_between(4, 14)),
                                   .weight_decay = draw_below(3) ? 0.1f : 0.0f,
                                   .beta1 = 0.9f,
                                   .beta2 = draw_below(2) ? 0.95f : 0.999f,
                                   .epsilon = draw_below(4) ? 1e-8f : 0.0f,
                                   .bias1 = 0.271f,
                                   .bias2_root = 0.3776f,
                                   .lion_beta1 = 0.9f,
                                   .lion_beta2 = draw_below(2) ? 0.99f : 0.98f,
                                   .momentum = draw_below(4) ? 0.9f : 0.0f,
                                   .muon_momentum = 0.9f + (float)draw_below(1000) / 16384,
                                   .is_nesterov = (uint32_t)draw_below(2),
                                   .loss_scale = 1.0f};
}

static void draw_rates(cuda_case *c)
{
    static const uint8_t used[] = {0, 1, 2, 3, SL_RATES_MAX - 1};
    const bool is_own = draw_below(2);
    for (int i = 0; i < FLAGS_MOST; i++)
        flags[i] = used[draw_below(is_own ? sizeof used : 2)];
    c->block_flags = flags;
    c->rates = is_own ? own_rates : NULL;
    c->rate_count = is_own ? SL_RATES_MAX : 0;
}

static void draw_control(cuda_case *c, bool skips)
{
    sl_step_control *control = case_room(c, 0, SL_TYPE_FP32, sizeof *control / 4);
    *control = (sl_step_control){
        .grad_norm = 2.0f, .clip_scale = draw_below(2) ? 0.37f : 1.0f, .skip = skips};
}

static void draw_grad_type(cuda_case *c)
{
    c->attrs.grad_type = (uint16_t)(draw_below(2) ? c->type : SL_TYPE_FP32);
}

static bool is_stateless; /* SGD without momentum: a kernel of its own */

static float draw_of(uint64_t *state, bool is_signed)
{
    const float value = 1e-3f * draw_normal(state);
    return is_signed ? value : fabsf(value);
}

/* Blocks of codes and scales. */
static void draw_codes(cuda_case *c, int operand, uint64_t count, bool is_signed)
{
    const uint64_t block_bytes = sl_states_block_bytes(SL_STATES_INT8), blocks = count / BLOCK;
    uint8_t *stored = case_room(c, operand, CASE_BYTES, blocks * block_bytes);
    uint64_t state = sl_rng_below(test_seed, 3, draw_count++, UINT64_MAX);
    float values[SL_CODES_GROUP];
    for (uint64_t g = 0; g < count / SL_CODES_GROUP; g++) {
        uint8_t *block = stored + g / (BLOCK / SL_CODES_GROUP) * block_bytes;
        const uint64_t in_block = g % (BLOCK / SL_CODES_GROUP);
        for (int i = 0; i < SL_CODES_GROUP; i++)
            values[i] = g % 5 == 3 ? 0.0f : draw_of(&state, is_signed);
        const float scale =
            sl_codes_encode_group(values, is_signed, block + in_block * SL_CODES_GROUP);
        memcpy(block + BLOCK + in_block * sizeof scale, &scale, sizeof scale);
    }
}

static void draw_state(cuda_case *c, int operand, uint64_t count, bool is_signed)
{
    const int type = c->attrs.state_type == SL_STATES_BF16 ? SL_TYPE_BF16 : SL_TYPE_FP32;
    if (c->attrs.state_type == SL_STATES_INT8) {
        draw_codes(c, operand, count, is_signed);
        return;
    }
    uint64_t state = sl_rng_below(test_seed, 3, draw_count++, UINT64_MAX);
    void *values = case_room(c, operand, type, count);
    for (uint64_t i = 0; i < count; i++)
        case_store(type, values, i, (double)draw_of(&state, is_signed));
}

/* Masters of which the parameters are the high halves, or in fp32, which parameters follow from. */
static void draw_masters(cuda_case *c, int operand, uint64_t count)
{
    case_random(c, operand, (int)c->type, count, 1.0f);
    if (c->type == SL_TYPE_FP32)
        return;
    if (c->attrs.master_type == SL_MASTER_FP32) {
        case_random(c, operand + 1, SL_TYPE_FP32, count, 1.0f);
        return;
    }
    uint16_t *low = case_room(c, operand + 1, CASE_BYTES, count * sizeof *low);
    for (uint64_t i = 0; i < count; i++)
        low[i] = (uint16_t)sl_rng_below(test_seed, 6, draw_count++, 65536);
}

/* The states of the op that is drawn. */
static void draw_states(cuda_case *c, uint64_t count)
{
    if (is_stateless) {
        c->attrs.state_type = SL_STATES_FP32;
        return;
    }
    for (int i = 0; i < FLAGS_MOST; i++)
        keys[i] = sl_rng_below(test_seed, 4, draw_count++, UINT64_MAX);
    c->block_keys = keys;
    c->scalars.step = draw_below(1000);
    draw_state(c, 2, count, true);
    if (c->kind == SL_OP_ADAMW)
        draw_state(c, 3, count, false);
}

static void draw_update(cuda_case *c, uint64_t blocks, bool skips)
{
    const uint64_t count = blocks * BLOCK;
    if (c->kind == SL_OP_APPLY || c->kind == SL_OP_MOMENTUM) /* muon's, of which states are fp32 */
        c->attrs.state_type = SL_STATES_FP32;
    const int param = c->kind == SL_OP_ADAMW ? 4 : c->kind == SL_OP_APPLY ? 2 : 3;
    c->attrs.element_count = count;
    c->attrs.first_block = draw_below(5);
    draw_scalars(c);
    draw_control(c, skips);
    case_random(c, 1, c->attrs.grad_type, count, 1e-2f);
    draw_states(c, count);
    if (c->type != SL_TYPE_BF16)
        c->attrs.master_type = SL_MASTER_FP32;
    if (c->kind != SL_OP_MOMENTUM)
        draw_masters(c, param, count);
    for (int operand = 1; operand <= param + 1; operand++) {
        if (c->operand[operand].input == NULL || c->operand[operand].element == CASE_BYTES)
            continue;
        plant(c, operand, 20 * blocks, draw_special);
        plant(c, operand, 20 * blocks, draw_tiny);
    }
    draw_rates(c);
}

static void draw_any(cuda_case *c, int round)
{
    draw_grad_type(c);
    c->attrs.state_type = (uint32_t)draw_below(SL_STATES_COUNT);
    c->attrs.master_type = (uint32_t)draw_below(SL_MASTER_COUNT);
    draw_update(c, draw_blocks(round), round % 5 == 4);
}

static void draw_large(cuda_case *c, int round)
{
    draw_grad_type(c);
    c->attrs.state_type = (uint32_t)round % SL_STATES_COUNT;
    c->attrs.master_type = (uint32_t)draw_below(SL_MASTER_COUNT);
    draw_update(c, 1100, false);
}

/* Gradients of each type in turn. */
static void draw_small(cuda_case *c, int round)
{
    c->attrs.grad_type = (uint16_t)(round % 2 ? c->type : SL_TYPE_FP32);
    c->attrs.state_type = (uint32_t)round / 2 % SL_STATES_COUNT;
    c->attrs.master_type = (uint32_t)round / 2 / SL_STATES_COUNT % SL_MASTER_COUNT;
    draw_update(c, 1 + (uint64_t)round / 2 % 4, round % 10 == 9);
}

static const struct {
    sl_op_kind kind;
    sl_kernel run;
    uint32_t master; /* its operand; 0: it has none */
    bool is_stateless, has_small_states;
} updates[] = {{SL_OP_ADAMW, sl_cuda_adamw, 5, false, true},
               {SL_OP_SGD, sl_cuda_sgd, 4, true, false},
               {SL_OP_SGD, sl_cuda_sgd, 4, false, true},
               {SL_OP_LION, sl_cuda_lion, 4, false, true},
               {SL_OP_APPLY, sl_cuda_apply, 3, true, false},
               {SL_OP_MOMENTUM, sl_cuda_momentum, 0, false, false}};

enum { UPDATES = sizeof updates / sizeof updates[0] };

static void update_when_run_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    for (int i = 0; i < UPDATES; i++) {
        is_stateless = updates[i].is_stateless;
        cuda_op op = {
            .kind = updates[i].kind, .run = updates[i].run, .draw = draw_any, .shapes = 30};
        cuda_op_check(&op);
        op.draw = draw_small; /* gradients of each type, and states of each */
        op.shapes = 2 * CASE_EACH * (updates[i].has_small_states ? SL_STATES_COUNT : 1);
        op.orders = 1;
        cuda_op_check(&op);
    }
}

static void update_when_over_a_thousand_blocks_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    for (int i = 0; i < UPDATES; i++) {
        is_stateless = updates[i].is_stateless;
        cuda_op_check(&(cuda_op){.kind = updates[i].kind,
                                 .run = updates[i].run,
                                 .draw = draw_large,
                                 .shapes = 1,
                                 .orders = 1});
    }
}

static void update_when_misused_says_so(void **state)
{
    (void)state;
    for (int i = 0; i < UPDATES; i++) {
        const sl_kernel run = updates[i].run;
        sl_op_attrs attrs = {.element_count = BLOCK + 1};
        sl_kernel_call call = {.attrs = &attrs};
        assert_int_equal(run(&call), SL_ERROR_INTERNAL);
        attrs = (sl_op_attrs){.element_count = BLOCK, .grad_type = SL_TYPE_BF16};
        assert_int_equal(run(&call), SL_ERROR_INTERNAL);
        assert_int_equal(sl_cuda_block_norm(&call), SL_ERROR_INTERNAL);
        attrs = (sl_op_attrs){.element_count = BLOCK, .type = SL_TYPE_BF16};
        if (updates[i].master > 0) { /* parameters without a master copy */
            call.operand[updates[i].master - 1] = &attrs;
            assert_int_equal(run(&call), SL_ERROR_INTERNAL);
        }
        if (updates[i].master > 0) { /* low halves beside others than bf16 */
            attrs = (sl_op_attrs){.element_count = BLOCK, .type = SL_TYPE_FP16};
            attrs.master_type = SL_MASTER_LOW;
            call.operand[updates[i].master] = &attrs;
            assert_int_equal(run(&call), SL_ERROR_INTERNAL);
            call.operand[updates[i].master] = NULL;
        }
        if (updates[i].kind != SL_OP_MOMENTUM) {
            attrs = (sl_op_attrs){.element_count = BLOCK, .state_type = SL_STATES_BF16};
            assert_int_equal(run(&call), SL_ERROR_INTERNAL); /* without keys */
            attrs.state_type = SL_STATES_COUNT;
            assert_int_equal(run(&call), SL_ERROR_INTERNAL);
        }
        attrs = (sl_op_attrs){.element_count = 0};
        assert_int_equal(run(&call), SL_OK);
    }
}

/* ---- BLOCK_NORM ---- */

/* What a sum may stand at: 0, some bits, or so full that the next number carries through words and
 * perhaps out of the last one. */
static void fill_sum(sl_norm_sum *sum)
{
    memset(sum, 0, sizeof *sum);
    const uint64_t kind = draw_below(4), full = kind == 3 ? draw_between(1, 6) : 0;
    for (uint64_t word = 0; kind > 0 && word < 5; word++)
        sum->word[word] = sl_rng_below(test_seed, 9, draw_count++, UINT64_MAX);
    for (uint64_t word = 0; word < full; word++)
        sum->word[word] = UINT64_MAX;
    sum->nonfinite = draw_below(5) == 0;
    sum->flags = (uint32_t)draw_below(4);
}

static void draw_norm_blocks(cuda_case *c, uint64_t blocks)
{
    const uint64_t count = blocks * BLOCK;
    c->attrs.element_count = count;
    c->attrs.adds_output = (uint32_t)draw_below(2);
    const float scale = ldexpf(1.0f, (int)draw_below(100) - 70);
    case_random(c, 0, c->attrs.grad_type, count, scale);
    fill_sum(case_room(c, 1, CASE_BYTES, sizeof(sl_norm_sum)));
    if (draw_below(2) == 0)
        return;
    c->attrs.first_block = draw_below(5); /* some count on another rank */
    for (int i = 0; i < FLAGS_MOST; i++)
        flags[i] = (uint8_t)draw_below(2);
    c->block_flags = flags;
}

static void plant_some(cuda_case *c, int round)
{
    if (round % 3 == 1)
        plant(c, 0, 200, draw_tiny);
    if (round % 3 == 2)
        plant(c, 0, 1 + draw_below(3), draw_special);
}

static void draw_norm(cuda_case *c, int round)
{
    draw_grad_type(c);
    draw_norm_blocks(c, draw_blocks(round));
    plant_some(c, round);
}

/* Gradients of each type in turn, and as many blocks of every kind of number. */
static void draw_small_norm(cuda_case *c, int round)
{
    c->attrs.grad_type = (uint16_t)(round % 2 ? c->type : SL_TYPE_FP32);
    draw_norm_blocks(c, 1 + (uint64_t)round / 2 % 32);
    plant_some(c, round);
}

/* Exponents of all sizes side by side, so that every digit of the sum gets something. */
static void draw_wide_norm(cuda_case *c, int round)
{
    draw_grad_type(c);
    draw_norm_blocks(c, draw_between(200, 400));
    (void)round;
    cuda_operand *o = &c->operand[0];
    const int least = o->element == SL_TYPE_FP16 ? -24 : -80,
              most = o->element == SL_TYPE_FP16 ? 15 : 57;
    for (uint64_t i = 0; i < o->count; i++)
        case_store(o->element, o->input, i,
                   ldexp(case_load(o->element, o->input, i) == 0.0 ? 0.0 : 1.37,
                         least + (int)(i / BLOCK * 7 % (uint64_t)(most - least))));
}

static void draw_large_norm(cuda_case *c, int round)
{
    (void)round;
    draw_grad_type(c);
    draw_norm_blocks(c, 3001);
}

static void block_norm_when_run_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    cuda_op op = {.kind = SL_OP_BLOCK_NORM,
                  .run = sl_cuda_block_norm,
                  .workspace_bytes = sl_cuda_block_norm_workspace_bytes,
                  .draw = draw_norm};
    cuda_op_check(&op);
    op.draw = draw_wide_norm;
    op.shapes = 2;
    cuda_op_check(&op);
    op.orders = 1;
    op.draw = draw_large_norm;
    op.shapes = 1;
    cuda_op_check(&op);
    op.draw = draw_small_norm;
    op.shapes = 2 * CASE_EACH;
    cuda_op_check(&op);
}

/* ---- NORM_FINISH ---- */

/* A square that stands exactly between two doubles but for one bit far below, and whose root, when
 * it is rounded down, stands exactly between two floats: what is lost of the sum is seen in the
 * norm. The root is an odd number of 25 bits, 1 modulo 4, of which the even float is the lower one;
 * above the root of 2, where a square's step is a root's step too. */
static void plant_tie(sl_norm_sum *sum)
{
    enum { LEAST_ROOT = 23726569, ROOTS = ((1 << 25) - LEAST_ROOT) / 4, HALF_STEP = 4, TOP = 49 };
    const uint64_t root = LEAST_ROOT + 4 * draw_below(ROOTS), square = root * root;
    const uint64_t at = draw_between(16, 64 * 6 - TOP - 1); /* of the square's lowest bit */
    *sum = (sl_norm_sum){0};
    sum->word[at / 64] = square << at % 64;
    if (at % 64 + TOP >= 64)
        sum->word[at / 64 + 1] = square >> (64 - at % 64);
    sum->word[(at - HALF_STEP) / 64] |= UINT64_C(1) << (at - HALF_STEP) % 64;
    const uint64_t rest = draw_below(at - 14); /* below the 64 bits from the top */
    if (draw_below(4))
        sum->word[rest / 64] |= UINT64_C(1) << rest % 64;
}

static void draw_finish(cuda_case *c, int round)
{
    static const float clips[] = {0.0f, 1.0f, 1e30f, 1e-30f};
    sl_norm_sum *sum = case_room(c, 0, CASE_BYTES, sizeof *sum);
    fill_sum(sum);
    if (round % 4 == 0) /* one to three bits anywhere: ties of the rounding to double among them */
        for (int i = 0; i < 6; i++)
            sum->word[i] = 0;
    for (int bits = 0; round % 4 == 0 && bits < round % 3 + 1; bits++)
        sum->word[draw_below(6)] |= UINT64_C(1) << draw_below(64);
    if (round % 8 == 1) /* as a step's gradient: 2^149 is 1 */
        *sum = (sl_norm_sum){.word = {0, 5, draw_below(1u << 22)}};
    if (round % 4 == 2)
        plant_tie(sum);
    c->scalars.clip = clips[draw_below(4)];
    c->scalars.loss_scale = ldexpf(1.0f, (int)draw_below(20));
    case_room(c, 1, SL_TYPE_FP32, sizeof(sl_step_control) / 4);
    if (round % 3 == 0)
        return;
    c->attrs.row_count = draw_between(1, 100000); /* with masks; now and then nothing counts */
    *(double *)case_room(c, 2, CASE_DOUBLE, 1) = (double)draw_below(c->attrs.row_count + 1);
    if (round % 9 == 1)
        *(double *)c->operand[2].input = 0;
}

static void norm_finish_when_run_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){
        .kind = SL_OP_NORM_FINISH, .run = sl_cuda_norm_finish, .draw = draw_finish, .shapes = 200});
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(update_when_run_gives_the_bits_of_the_cpu),
    cmocka_unit_test(update_when_over_a_thousand_blocks_gives_the_bits_of_the_cpu),
    cmocka_unit_test(update_when_misused_says_so),
    cmocka_unit_test(block_norm_when_run_gives_the_bits_of_the_cpu),
    cmocka_unit_test(norm_finish_when_run_gives_the_bits_of_the_cpu),
};

CUDA_CASE_MAIN(tests)
