/* What could be wrong in the update and the norm on CUDA: a rounding in another place than the
 * cpu's, a carry that the exact sum loses, a block with its neighbour's decay flag, a skipped step
 * that writes, a non-finite gradient that goes unnoticed. All of it must be the cpu's bits, over
 * blocks with zeros, subnormals, the largest numbers, infinities and NaNs among their elements, in
 * all types of parameters and gradients. */
#include "cuda_case.h"

#include "kernels/cuda/ops.h"

enum { BLOCK = SL_BLOCK_ELEMENTS, FLAGS_MOST = 4096 };

static uint8_t flags[FLAGS_MOST];

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

/* ---- ADAMW ---- */

static void draw_scalars(cuda_case *c)
{
    c->scalars = (sl_step_scalars){.learning_rate = ldexpf(3.0f, -(int)draw_between(4, 14)),
                                   .weight_decay = draw_below(3) ? 0.1f : 0.0f,
                                   .beta1 = 0.9f,
                                   .beta2 = draw_below(2) ? 0.95f : 0.999f,
                                   .epsilon = draw_below(4) ? 1e-8f : 0.0f,
                                   .bias1 = 0.271f,
                                   .bias2_root = 0.3776f,
                                   .loss_scale = 1.0f};
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

static void draw_update(cuda_case *c, uint64_t blocks, bool skips)
{
    const uint64_t count = blocks * BLOCK;
    const bool half = c->type != SL_TYPE_FP32;
    c->attrs.element_count = count;
    c->attrs.first_block = draw_below(5);
    draw_scalars(c);
    draw_control(c, skips);
    case_random(c, 1, c->attrs.grad_type, count, 1e-2f);
    case_random(c, 2, SL_TYPE_FP32, count, 1e-3f);
    float *moment2 = case_random(c, 3, SL_TYPE_FP32, count, 1e-4f);
    for (uint64_t i = 0; i < count; i++)
        moment2[i] = fabsf(moment2[i]);
    case_random(c, 4, (int)c->type, count, 1.0f);
    if (half)
        case_random(c, 5, SL_TYPE_FP32, count, 1.0f);
    for (int operand = 1; operand <= (half ? 5 : 4); operand++) {
        plant(c, operand, 20 * blocks, draw_special);
        plant(c, operand, 20 * blocks, draw_tiny);
    }
    for (int i = 0; i < FLAGS_MOST; i++)
        flags[i] = (uint8_t)draw_below(2);
    c->block_flags = flags;
}

static void draw_adamw(cuda_case *c, int round)
{
    draw_grad_type(c);
    draw_update(c, draw_blocks(round), round % 5 == 4);
}

static void draw_large_adamw(cuda_case *c, int round)
{
    (void)round;
    draw_grad_type(c);
    draw_update(c, 1100, false);
}

/* Gradients of each type in turn. */
static void draw_small_adamw(cuda_case *c, int round)
{
    c->attrs.grad_type = (uint16_t)(round % 2 ? c->type : SL_TYPE_FP32);
    draw_update(c, 1 + (uint64_t)round / 2 % 4, round % 10 == 9);
}

static void adamw_when_run_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    cuda_op op = {.kind = SL_OP_ADAMW, .run = sl_cuda_adamw, .draw = draw_adamw, .shapes = 30};
    cuda_op_check(&op);
    op.draw = draw_small_adamw;
    op.shapes = 2 * CASE_EACH;
    op.orders = 1;
    cuda_op_check(&op);
}

static void adamw_when_over_a_thousand_blocks_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_ADAMW,
                             .run = sl_cuda_adamw,
                             .draw = draw_large_adamw,
                             .shapes = 1,
                             .orders = 1});
}

static void adamw_when_misused_says_so(void **state)
{
    (void)state;
    sl_op_attrs attrs = {.element_count = BLOCK + 1};
    sl_kernel_call call = {.attrs = &attrs};
    assert_int_equal(sl_cuda_adamw(&call), SL_ERROR_INTERNAL);
    attrs = (sl_op_attrs){.element_count = BLOCK, .grad_type = SL_TYPE_BF16};
    assert_int_equal(sl_cuda_adamw(&call), SL_ERROR_INTERNAL);
    assert_int_equal(sl_cuda_block_norm(&call), SL_ERROR_INTERNAL);
    attrs = (sl_op_attrs){.element_count = BLOCK, .type = SL_TYPE_BF16};
    assert_int_equal(sl_cuda_adamw(&call), SL_ERROR_INTERNAL);
    attrs = (sl_op_attrs){.element_count = 0};
    assert_int_equal(sl_cuda_adamw(&call), SL_OK);
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
}

static void norm_finish_when_run_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){
        .kind = SL_OP_NORM_FINISH, .run = sl_cuda_norm_finish, .draw = draw_finish, .shapes = 200});
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(adamw_when_run_gives_the_bits_of_the_cpu),
    cmocka_unit_test(adamw_when_over_a_thousand_blocks_gives_the_bits_of_the_cpu),
    cmocka_unit_test(adamw_when_misused_says_so),
    cmocka_unit_test(block_norm_when_run_gives_the_bits_of_the_cpu),
    cmocka_unit_test(norm_finish_when_run_gives_the_bits_of_the_cpu),
};

CUDA_CASE_MAIN(tests)
