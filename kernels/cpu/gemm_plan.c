/* The cuts of a product; see gemm_plan.h for their words. */
#include "gemm_plan.h"

#include "tiles.h"

enum {
    CHAIN_STEPS = 768,      /* a strip of B of them is 96 KiB: it streams from the L2 */
    CHAIN_UNIT = 16,        /* what packing transposes at a time */
    PACKED_WORDS = 2 << 20, /* 8 MiB of each operand in a round, if a strip allows */
    K_ROUND_CHAINS = 2,     /* where C itself holds the sums */
    A_TILE_STRIPS = 16,     /* 224 rows: 672 KiB of A in the L2 */
    B_TILE_STRIPS = 6,
    TILE_MIN = 2,
    TILES_WANTED = 16,
    LINE_WORDS = 16
};

/* `total` in the fewest groups of at most `most`, equal within one unit. */
static sl_gemm_cut cut_evenly(uint64_t total, uint64_t most, uint64_t unit)
{
    const uint64_t groups = sl_bits_divide_up(total, most > unit ? most : unit);
    const uint64_t size = sl_bits_round_up(sl_bits_divide_up(total, groups), unit);
    return (sl_gemm_cut){sl_bits_divide_up(total, size), size};
}

static uint64_t slot_words(const sl_gemm_plan *plan, uint64_t strip_width)
{
    const uint64_t steps = sl_bits_divide_up(plan->chain.size, plan->micro->terms_per_step);
    return sl_bits_round_up(steps * strip_width + SL_GEMM_SLACK, LINE_WORDS);
}

static uint64_t fitting_strips(const sl_gemm_plan *plan, uint64_t slot)
{
    const uint64_t fitting = PACKED_WORDS / (slot * plan->k_round.size);
    return fitting > 0 ? fitting : 1;
}

/* Halved while there are too few for many workers. */
static void choose_tiles(sl_gemm_plan *plan)
{
    uint64_t a = A_TILE_STRIPS, b = B_TILE_STRIPS;
    while (sl_bits_divide_up(plan->a_round.size, a) * sl_bits_divide_up(plan->b_round.size, b) <
           TILES_WANTED) {
        if (b > a && b > TILE_MIN)
            b /= 2;
        else if (a > TILE_MIN)
            a /= 2;
        else
            break;
    }
    plan->a_tile = cut_evenly(plan->a_round.size, a, 1);
    plan->b_tile = cut_evenly(plan->b_round.size, b, 1);
}

sl_gemm_plan sl_gemm_plan_of(const sl_gemm *gemm, const sl_gemm_micro *micro)
{
    const bool sums_in_c = gemm->c_type == SL_TYPE_FP32;
    sl_gemm_plan plan = {.micro = micro,
                         .a_strips = sl_bits_divide_up(gemm->m, micro->rows),
                         .b_strips = sl_bits_divide_up(gemm->n, micro->columns)};
    plan.chain = cut_evenly(gemm->k, CHAIN_STEPS * micro->terms_per_step, CHAIN_UNIT);
    plan.k_round = sums_in_c ? cut_evenly(plan.chain.count, K_ROUND_CHAINS, 1)
                             : (sl_gemm_cut){1, plan.chain.count};
    plan.a_slot = slot_words(&plan, micro->rows);
    plan.b_slot = slot_words(&plan, micro->columns);
    plan.a_round = cut_evenly(plan.a_strips, fitting_strips(&plan, plan.a_slot), 1);
    plan.b_round = cut_evenly(plan.b_strips, fitting_strips(&plan, plan.b_slot), 1);
    choose_tiles(&plan);
    if (!sums_in_c)
        plan.sums = plan.a_tile.size * micro->rows * plan.b_tile.size * micro->columns;
    return plan;
}

uint64_t sl_gemm_plan_words(const sl_gemm_plan *plan, uint32_t worker_count)
{
    const uint64_t packed = plan->a_round.size * plan->a_slot + plan->b_round.size * plan->b_slot;
    return packed * plan->k_round.size + plan->sums * worker_count;
}
