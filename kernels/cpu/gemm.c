/* How a product is cut, packed and multiplied. What an element of C sums, and in which order,
 * follows from the shape, the types and the micro-kernel alone: only `chain` matters to its bits.
 * The number of workers decides which of the last tiles are halved, and nothing else.
 *
 *   round    the operands packed at a time: a range of A's strips, of B's strips and of chains
 *   chain    terms that are summed in registers; later chains are added to fp32 sums in memory
 *   strip    rows of A or columns of B of one micro-kernel (BLIS: micro-panel)
 *   patch    the elements of C from one strip of A and one of B (BLIS: micro-tile)
 *   tile     strips of A x strips of B of one round that one worker multiplies
 *   packing  some strips of A or of B that one worker packs
 *
 * The loops, from the outermost in, are those of Goto and van de Geijn (2008) and BLIS:
 *
 *   for each round of B's strips, of chains, of A's strips:              sl_gemm_run
 *       pack the strips of A, and those of B if they are new             pack_strips
 *       for each tile of the round:                                      multiply_tile
 *           for each chain, strip of B, strip of A: one patch            multiply_strips
 *           after the last chain: bias, residual, GELU, rounding         apply_epilogue
 *
 * A round is one job of the workers: its packings come first, and a tile waits until all of them
 * are done. The micro-kernel says how large tiles and packings are (sl_gemm_blocking).
 *
 * If A has few rows (decoding: one token of a few texts), packing B would take most of the time.
 * Then B is not packed and is read once: a strip of A is one row, one round has all chains, and
 * each chain of a tile is summed beside C (multiply_few). The sums are the same.
 */
#include "gemm.h"

#include <string.h>

#include "simd.h"
#include "tiles.h"

/* ---- the plan */

/* `count` groups of `size` items; the last group may be smaller. */
typedef struct gemm_cut {
    uint64_t count, size;
} gemm_cut;

typedef struct gemm_plan {
    const sl_micro_kernel *micro;
    uint64_t a_strips, b_strips;
    gemm_cut chain;                     /* of k terms */
    gemm_cut a_round, b_round, k_round; /* of strips, strips and chains */
    gemm_cut a_tile, b_tile;            /* of a whole round's strips */
    uint64_t a_slot, b_slot;            /* packed words of one strip of one chain */
    bool is_few;                        /* B is not packed */
    bool sums_in_c;
    uint64_t sums; /* fp32 sums of one worker */
} gemm_plan;

enum {
    CHAIN_UNIT = 16,        /* terms that packing transposes at a time */
    PACKED_WORDS = 2 << 20, /* 8 MiB of each operand in a round, if a strip allows */
    K_ROUND_WORDS = 1536,   /* of a row's chains, where C itself holds the sums */
    TILE_MIN = 2,           /* a tile of more strips may be halved */
    TILES_WANTED = 16,
    FEW_ROWS = 16,
    FEW_TILE_STRIPS = 12,
    FEW_TILES_UNIT = 4, /* tiles come in fours, or nearly: few workers have equally many */
    LINE_WORDS = 16
};

/* `total` in the fewest groups of at most `most`, equal within one unit. */
static gemm_cut cut_evenly(uint64_t total, uint64_t most, uint64_t unit)
{
    const uint64_t groups = sl_bits_divide_up(total, most > unit ? most : unit);
    const uint64_t size = sl_bits_round_up(sl_bits_divide_up(total, groups), unit);
    return (gemm_cut){sl_bits_divide_up(total, size), size};
}

static uint64_t slot_words(const gemm_plan *plan, uint64_t strip_width)
{
    const uint64_t steps = sl_bits_divide_up(plan->chain.size, plan->micro->terms_per_step);
    const uint64_t words = steps * strip_width * plan->micro->words_per_step;
    return sl_bits_round_up(words + SL_GEMM_SLACK, LINE_WORDS);
}

static uint64_t fitting_strips(const gemm_plan *plan, uint64_t slot)
{
    const uint64_t fitting = PACKED_WORDS / (slot * plan->k_round.size);
    return fitting > 0 ? fitting : 1;
}

/* Halves the tiles while there are too few for many workers. */
static void choose_tiles(gemm_plan *plan)
{
    uint64_t a = plan->micro->blocking.a_tile, b = plan->micro->blocking.b_tile;
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

static void cut_packed(gemm_plan *plan)
{
    const sl_micro_kernel *micro = plan->micro;
    const uint64_t chain_words = (uint64_t)micro->chain_steps * micro->words_per_step;
    plan->k_round = plan->sums_in_c ? cut_evenly(plan->chain.count, K_ROUND_WORDS / chain_words, 1)
                                    : (gemm_cut){1, plan->chain.count};
    plan->a_slot = slot_words(plan, micro->rows);
    plan->b_slot = slot_words(plan, micro->columns);
    plan->a_round = cut_evenly(plan->a_strips, fitting_strips(plan, plan->a_slot), 1);
    plan->b_round = cut_evenly(plan->b_strips, fitting_strips(plan, plan->b_slot), 1);
    choose_tiles(plan);
    if (!plan->sums_in_c)
        plan->sums = plan->a_tile.size * micro->rows * plan->b_tile.size * micro->columns;
}

/* The leading dimension of a chain's sums: a cache line more than a tile's columns. With rows 4 KiB
 * apart the processor takes the sums of one row for those of another (4K aliasing), and waits for
 * their stores. */
static uint64_t few_leading(const gemm_plan *plan)
{
    return plan->b_tile.size * plan->micro->columns + LINE_WORDS;
}

static gemm_cut cut_few_tiles(uint64_t strips)
{
    const uint64_t tiles = sl_bits_divide_up(strips, FEW_TILE_STRIPS);
    return cut_evenly(strips, sl_bits_divide_up(strips, sl_bits_round_up(tiles, FEW_TILES_UNIT)),
                      1);
}

/* Sums of a chain, and sums of all chains so far. */
static void cut_few(gemm_plan *plan)
{
    plan->k_round = (gemm_cut){1, plan->chain.count};
    plan->a_slot = slot_words(plan, 1);
    plan->a_round = plan->a_tile = (gemm_cut){1, plan->a_strips};
    plan->b_round = (gemm_cut){1, plan->b_strips};
    plan->b_tile = cut_few_tiles(plan->b_strips);
    plan->sums = plan->a_strips * few_leading(plan);
    if (!plan->sums_in_c)
        plan->sums += plan->a_strips * plan->b_tile.size * plan->micro->columns;
}

/* True if C is fp32 and can hold the sums. But if chains start from their sums, the micro-kernel
 * returns to the sums often, and rows of C, which may be a multiple of 4 KiB apart, would evict
 * each other from the first cache. Then the sums lie beside C, unless there are so many terms that
 * too few strips fit. */
static bool sums_lie_in_c(const sl_product *product, const sl_micro_kernel *micro)
{
    const uint64_t steps = product->k / micro->terms_per_step;
    const uint64_t strip_words = steps * micro->words_per_step * micro->rows;
    return product->c_type == SL_TYPE_FP32 &&
           (!micro->starts_from_c || strip_words > PACKED_WORDS / micro->blocking.a_tile);
}

static gemm_plan plan_product(const sl_product *product)
{
    const sl_micro_kernel *micro = sl_simd_current()->micro_kernel[product->type];
    const bool is_few = product->m <= FEW_ROWS;
    gemm_plan plan = {.micro = micro,
                      .a_strips = is_few ? product->m : sl_bits_divide_up(product->m, micro->rows),
                      .b_strips = sl_bits_divide_up(product->n, micro->columns),
                      .is_few = is_few,
                      .sums_in_c = sums_lie_in_c(product, micro)};
    const uint64_t terms = micro->terms_per_step;
    plan.chain =
        cut_evenly(product->k, micro->chain_steps * terms, terms > CHAIN_UNIT ? terms : CHAIN_UNIT);
    if (is_few)
        cut_few(&plan);
    else
        cut_packed(&plan);
    return plan;
}

/* Packed operands and sums, in 4-byte words. */
static uint64_t count_words(const gemm_plan *plan, uint32_t worker_count)
{
    const uint64_t packed = plan->a_round.size * plan->a_slot + plan->b_round.size * plan->b_slot;
    return packed * plan->k_round.size + plan->sums * worker_count;
}

/* ---- packing */

enum { PACKING_STRIPS = 4, LINE_BYTES = 64 };

typedef struct gemm_job {
    const sl_product *product;
    gemm_plan plan;
    sl_span a, b, chains; /* of this round: strips and chains */
    uint32_t *packed_a, *packed_b;
    float *sums;                      /* of all workers */
    uint64_t packings_of_a, packings; /* of the round: of A, and of both */
    uint64_t whole_tiles;             /* of the round: the tiles after these are halves */
    sl_workers_gate packed;
} gemm_job;

static const void *element_at(const void *base, sl_type type, uint64_t index)
{
    return (const char *)base + index * sl_type_bytes(type);
}

static sl_span cut_span(uint64_t total, gemm_cut cut, uint64_t index)
{
    return sl_tiles_span(total, cut.size, index);
}

/* Lines first .. first + count of `total`, in strips of `width`: the last strip may be smaller. */
static sl_span lines_of(uint64_t total, uint64_t width, uint64_t first, uint64_t count)
{
    const uint64_t begin = first * width, end = begin + count * width;
    return (sl_span){begin, (end < total ? end : total) - begin};
}

/* Rows of A's strips first .. first + count. */
static sl_span rows_of(const gemm_job *job, uint64_t first, uint64_t count)
{
    const uint64_t m = job->product->m, strips = job->plan.a_strips;
    if (job->plan.micro->blocking.whole_strips && !job->plan.is_few)
        return lines_of(m, job->plan.micro->rows, first, count);
    const uint64_t begin = first * m / strips;
    return (sl_span){begin, (first + count) * m / strips - begin};
}

static sl_span columns_of(const gemm_job *job, uint64_t first, uint64_t count)
{
    return lines_of(job->product->n, job->plan.micro->columns, first, count);
}

/* Where strip `strip` of the round's chain `chain` is packed. */
static uint32_t *slot_a(const gemm_job *job, uint64_t chain, uint64_t strip)
{
    return job->packed_a + (chain * job->plan.a_round.size + strip) * job->plan.a_slot;
}

static uint32_t *slot_b(const gemm_job *job, uint64_t chain, uint64_t strip)
{
    return job->packed_b + (chain * job->plan.b_round.size + strip) * job->plan.b_slot;
}

static bool runs_along_terms(const sl_product *product, bool is_a)
{
    return is_a ? !product->transpose_a : product->transpose_b;
}

/* Packs the terms `terms` of a strip. Rows of the matrix run along the terms, or along the
 * strip. */
static void pack_terms(const gemm_job *job, bool is_a, uint64_t chain, uint64_t strip,
                       sl_span terms)
{
    const sl_product *product = job->product;
    const bool along_terms = runs_along_terms(product, is_a);
    const uint64_t leading = along_terms ? product->k : is_a ? product->m : product->n;
    const sl_span lines =
        is_a ? rows_of(job, job->a.first + strip, 1) : columns_of(job, job->b.first + strip, 1);
    const uint64_t chain_first =
        cut_span(product->k, job->plan.chain, job->chains.first + chain).first;
    const uint64_t term = chain_first + terms.first;
    const uint64_t first =
        along_terms ? lines.first * leading + term : term * leading + lines.first;
    const sl_micro_kernel *micro = job->plan.micro;
    const uint64_t step = terms.first / micro->terms_per_step;
    const uint64_t step_width = !is_a ? micro->columns : job->plan.is_few ? 1 : micro->rows;
    uint32_t *slot = is_a ? slot_a(job, chain, strip) : slot_b(job, chain, strip);
    const sl_gemm_strip all = {.from =
                                   element_at(is_a ? product->a : product->b, product->type, first),
                               .type = product->type,
                               .leading = leading,
                               .transpose = along_terms,
                               .width = lines.count,
                               .term_count = terms.count,
                               .step_width = step_width,
                               .to = slot + step * step_width * micro->words_per_step};
    if (is_a)
        micro->pack_a(&all);
    else
        micro->pack_b(&all);
}

/* Strips of one packing. */
static uint64_t packing_strips(const gemm_job *job, bool is_a)
{
    return runs_along_terms(job->product, is_a) ? PACKING_STRIPS
                                                : job->plan.micro->blocking.turn_strips;
}

static uint64_t count_packings(const gemm_job *job, bool is_a)
{
    const uint64_t strips = is_a ? job->a.count : job->b.count;
    return sl_tiles_count(strips, packing_strips(job, is_a)) * job->chains.count;
}

/* Packs neighbouring strips of one chain, so that the matrix is read in long runs: where its rows
 * are terms, a few terms of all these strips in turn; where its rows run along the terms, a whole
 * chain of each strip. One worker packs a chain of a strip in order, for its stores spill into the
 * next step. */
static void pack_strips(const gemm_job *job, uint64_t index)
{
    const bool is_a = index < job->packings_of_a;
    const uint64_t strips = is_a ? job->a.count : job->b.count, most = packing_strips(job, is_a);
    const uint64_t groups = sl_tiles_count(strips, most);
    index -= is_a ? 0 : job->packings_of_a;
    const sl_span span = sl_tiles_span(strips, most, index % groups);
    const uint64_t chain = index / groups;
    const uint64_t terms =
        cut_span(job->product->k, job->plan.chain, job->chains.first + chain).count;
    const sl_micro_kernel *micro = job->plan.micro;
    const uint64_t turn = runs_along_terms(job->product, is_a)
                              ? terms
                              : (uint64_t)micro->blocking.turn_steps * micro->terms_per_step;
    for (uint64_t first = 0; first < terms; first += turn)
        for (uint64_t strip = span.first; strip < span.first + span.count; strip++)
            pack_terms(job, is_a, chain, strip,
                       (sl_span){first, terms - first < turn ? terms - first : turn});
}

/* ---- multiplying */

typedef struct gemm_tile {
    sl_span a, b; /* strips of the round */
    sl_span rows, columns;
    float *c; /* the sums of the tile's first element */
    uint64_t leading_c;
} gemm_tile;

/* Indices in the round. */
typedef struct strip_place {
    uint64_t chain, a, b;
} strip_place;

static uint64_t tiles_down(const gemm_job *job)
{
    return sl_tiles_count(job->a.count, job->plan.a_tile.size);
}

static uint64_t tiles_across(const gemm_job *job)
{
    return sl_tiles_count(job->b.count, job->plan.b_tile.size);
}

/* The first or the second half of `span`; the second may be empty. */
static sl_span half_of(sl_span span, bool is_second)
{
    const uint64_t half = sl_bits_divide_up(span.count, 2);
    return is_second ? (sl_span){span.first + half, span.count - half}
                     : (sl_span){span.first, half};
}

/* Tiles are numbered down the columns of C, so that tiles that run at the same time share strips of
 * B; or across, so that they share strips of A. */
static gemm_tile locate_tile(const gemm_job *job, uint64_t tile_index, uint32_t worker_index)
{
    const gemm_plan *plan = &job->plan;
    const uint64_t down = tiles_down(job), across = tiles_across(job);
    const uint64_t half = tile_index < job->whole_tiles ? 0 : tile_index - job->whole_tiles;
    const uint64_t at = tile_index - half + half / 2;
    const bool goes_across = plan->micro->blocking.goes_across;
    gemm_tile tile = {
        .a = cut_span(job->a.count, plan->a_tile, goes_across ? at / across : at % down),
        .b = cut_span(job->b.count, plan->b_tile, goes_across ? at % across : at / down)};
    if (tile_index >= job->whole_tiles && tile.a.count > tile.b.count)
        tile.a = half_of(tile.a, half % 2);
    else if (tile_index >= job->whole_tiles)
        tile.b = half_of(tile.b, half % 2);
    if (tile.a.count == 0 || tile.b.count == 0)
        return tile;
    tile.rows = rows_of(job, job->a.first + tile.a.first, tile.a.count);
    tile.columns = columns_of(job, job->b.first + tile.b.first, tile.b.count);
    if (!plan->sums_in_c) {
        tile.c = job->sums + worker_index * plan->sums;
        tile.leading_c = plan->b_tile.size * plan->micro->columns;
    } else {
        tile.c = (float *)job->product->c + tile.rows.first * job->product->n + tile.columns.first;
        tile.leading_c = job->product->n;
    }
    return tile;
}

/* Of A: the next strip, in the patch before its own. A tile's strips of A stay in the second cache,
 * so only the first strip of B has to fetch them. Of B: one part of the next strip in each patch of
 * the current strip. */
static void prefetch_next(const gemm_job *job, const gemm_tile *tile, strip_place at,
                          sl_gemm_patch *patch)
{
    const uint64_t part = (at.a - tile->a.first) * LINE_BYTES * patch->step_count;
    const bool is_last_a = at.a + 1 == tile->a.first + tile->a.count;
    const bool is_last_b = at.b + 1 == tile->b.first + tile->b.count;
    const bool wants_a = at.b == tile->b.first && !is_last_a;
    const bool wants_b = !is_last_b && part < job->plan.b_slot * sizeof(uint32_t);
    const void *here = patch->a;
    patch->next_a = wants_a ? slot_a(job, at.chain, at.a + 1) : here;
    patch->next_a_stride = wants_a ? LINE_BYTES : 0;
    patch->next_b = wants_b ? (const char *)slot_b(job, at.chain, at.b + 1) + part : here;
    patch->next_b_stride = wants_b ? LINE_BYTES : 0;
}

/* True if a chain adds to the sums. */
static bool adds_chain(const gemm_job *job, uint64_t chain)
{
    return chain > 0 || (job->product->add && job->plan.sums_in_c);
}

static float *sums_at(const gemm_tile *tile, sl_span rows, sl_span columns)
{
    return tile->c + (rows.first - tile->rows.first) * tile->leading_c +
           (columns.first - tile->columns.first);
}

/* True if C is more than the rounded sums. */
static bool has_epilogue(const sl_product *product)
{
    return product->bias != NULL || product->residual != NULL || product->gelu_x != NULL;
}

/* Of some rows and columns of a tile whose chains so far are summed. */
static void apply_epilogue(const gemm_job *job, const gemm_tile *tile, uint64_t chain, sl_span rows,
                           sl_span columns)
{
    const sl_product *product = job->product;
    const bool is_last = chain + 1 == job->plan.chain.count;
    if (!is_last || (job->plan.sums_in_c && !has_epilogue(product)))
        return;
    const uint64_t at = rows.first * product->n + columns.first;
    const sl_gemm_epilogue all = {
        .sums = sums_at(tile, rows, columns),
        .leading_sums = tile->leading_c,
        .c = (char *)product->c + at * sl_type_bytes(product->c_type),
        .bias = product->bias ? element_at(product->bias, product->type, columns.first) : NULL,
        .residual = product->residual ? element_at(product->residual, product->type, at) : NULL,
        .gelu_x = product->gelu_x ? element_at(product->gelu_x, product->type, at) : NULL,
        .type = product->c_type, /* the type of bias, residual and gelu_x too, if there are any */
        .leading = product->n,
        .rows = rows.count,
        .columns = columns.count,
        .add = product->add && !job->plan.sums_in_c,
    };
    job->plan.micro->epilogue(&all);
}

static void multiply_strips(const gemm_job *job, const gemm_tile *tile, strip_place at)
{
    const gemm_plan *plan = &job->plan;
    const uint64_t chain = job->chains.first + at.chain;
    const uint64_t terms = cut_span(job->product->k, plan->chain, chain).count;
    const sl_span rows = rows_of(job, job->a.first + at.a, 1);
    const sl_span columns = columns_of(job, job->b.first + at.b, 1);
    sl_gemm_patch patch = {
        .a = slot_a(job, at.chain, at.a),
        .b = slot_b(job, at.chain, at.b),
        .a_row = plan->micro->words_per_step,
        .a_step = (uint64_t)plan->micro->rows * plan->micro->words_per_step,
        .b_row = plan->micro->columns,
        .step_count = sl_bits_divide_up(terms, plan->micro->terms_per_step),
        .c = sums_at(tile, rows, columns),
        .leading_c = tile->leading_c,
        .rows = (uint32_t)rows.count,
        .columns = (uint32_t)columns.count,
        .add = adds_chain(job, chain),
    };
    prefetch_next(job, tile, at, &patch);
    plan->micro->multiply(&patch);
    if (plan->micro->blocking.finishes_patches)
        apply_epilogue(job, tile, chain, rows, columns);
}

static void multiply_packed(const gemm_job *job, const gemm_tile *tile)
{
    job->plan.micro->start();
    for (uint64_t chain = 0; chain < job->chains.count; chain++)
        for (uint64_t b = tile->b.first; b < tile->b.first + tile->b.count; b++)
            for (uint64_t a = tile->a.first; a < tile->a.first + tile->a.count; a++)
                multiply_strips(job, tile, (strip_place){chain, a, b});
    job->plan.micro->stop();
}

/* ---- few rows */

/* Sets the start of a chain's sums: the contents of C, or zero. */
static void start_sums(const gemm_tile *tile, float *sums, uint64_t leading, bool from_c)
{
    memset(sums, 0, tile->rows.count * leading * sizeof *sums);
    for (uint64_t row = 0; row < tile->rows.count && from_c; row++)
        memcpy(sums + row * leading, tile->c + row * tile->leading_c,
               tile->columns.count * sizeof *sums);
}

static void add_sums(const gemm_tile *tile, const float *sums, uint64_t leading, bool add)
{
    for (uint64_t row = 0; row < tile->rows.count; row++, sums += leading) {
        float *c = tile->c + row * tile->leading_c;
        for (uint64_t column = 0; column < tile->columns.count; column++)
            c[column] = (add ? c[column] : 0.0f) + sums[column];
    }
}

static sl_gemm_few describe_few(const gemm_job *job, const gemm_tile *tile, sl_span terms)
{
    const sl_product *product = job->product;
    const uint64_t leading = product->transpose_b ? product->k : product->n;
    const uint64_t first = product->transpose_b ? tile->columns.first * leading + terms.first
                                                : terms.first * leading + tile->columns.first;
    return (sl_gemm_few){.a_stride = job->plan.a_slot,
                         .rows = (uint32_t)tile->rows.count,
                         .b = {.from = element_at(product->b, product->type, first),
                               .type = product->type,
                               .leading = leading,
                               .transpose = product->transpose_b,
                               .width = tile->columns.count,
                               .term_count = terms.count},
                         .leading_sums = few_leading(&job->plan)};
}

/* The sums of a chain lie behind those of the tile. */
static void multiply_few(const gemm_job *job, const gemm_tile *tile, uint32_t worker_index)
{
    const gemm_plan *plan = &job->plan;
    float *sums = job->sums + (worker_index + 1) * plan->sums - plan->a_strips * few_leading(plan);
    for (uint64_t chain = 0; chain < plan->chain.count; chain++) {
        sl_gemm_few few = describe_few(job, tile, cut_span(job->product->k, plan->chain, chain));
        few.a = slot_a(job, chain, 0);
        few.sums = sums;
        const bool adds = adds_chain(job, chain), from_c = adds && plan->micro->starts_from_c;
        start_sums(tile, sums, few.leading_sums, from_c);
        plan->micro->multiply_few(&few);
        add_sums(tile, sums, few.leading_sums, adds && !from_c);
    }
}

/* ---- all tiles */

static void multiply_tile(const gemm_job *job, uint64_t tile_index, uint32_t worker_index)
{
    const gemm_tile tile = locate_tile(job, tile_index, worker_index);
    if (tile.a.count == 0 || tile.b.count == 0)
        return;
    if (job->plan.is_few)
        multiply_few(job, &tile, worker_index);
    else
        multiply_packed(job, &tile);
    if (job->plan.is_few || !job->plan.micro->blocking.finishes_patches)
        apply_epilogue(job, &tile, job->chains.first + job->chains.count - 1, tile.rows,
                       tile.columns);
}

static void run_part(void *argument, uint64_t index, uint32_t worker_index)
{
    gemm_job *job = argument;
    if (index < job->packings) {
        pack_strips(job, index);
        sl_workers_gate_count(&job->packed);
    } else {
        sl_workers_gate_wait(&job->packed, job->packings);
        multiply_tile(job, index - job->packings, worker_index);
    }
}

/* The last tile of each worker is cut into halves, so that the workers end at nearly the same
 * time. */
static void run_round(gemm_job *job, bool packs_b, sl_workers *workers)
{
    const uint64_t tiles = tiles_down(job) * tiles_across(job);
    const uint64_t last = job->plan.is_few ? 0 : sl_workers_count(workers);
    const uint64_t halved = last < tiles ? last : tiles;
    job->packings_of_a = count_packings(job, true);
    job->packings = job->packings_of_a + (packs_b ? count_packings(job, false) : 0);
    job->whole_tiles = tiles - halved;
    sl_workers_gate_close(&job->packed);
    sl_workers_run(workers, job->packings + tiles + halved, run_part, job);
}

static gemm_job plan_job(const sl_product *product, void *workspace)
{
    gemm_job job = {.product = product, .plan = plan_product(product)};
    const gemm_plan *plan = &job.plan;
    job.packed_a = workspace;
    job.packed_b = job.packed_a + plan->a_round.size * plan->k_round.size * plan->a_slot;
    job.sums = (float *)(job.packed_b + plan->b_round.size * plan->k_round.size * plan->b_slot);
    return job;
}

sl_status sl_gemm_run(const sl_product *product, void *workspace, sl_workers *workers)
{
    SL_TRY(sl_product_check(product));
    gemm_job job = plan_job(product, workspace);
    const gemm_plan *plan = &job.plan;
    for (uint64_t b = 0; b < plan->b_round.count; b++) {
        job.b = cut_span(plan->b_strips, plan->b_round, b);
        for (uint64_t chains = 0; chains < plan->k_round.count; chains++) {
            job.chains = cut_span(plan->chain.count, plan->k_round, chains);
            for (uint64_t a = 0; a < plan->a_round.count; a++) {
                job.a = cut_span(plan->a_strips, plan->a_round, a);
                run_round(&job, a == 0 && !plan->is_few, workers);
            }
        }
    }
    return SL_OK;
}

uint64_t sl_gemm_workspace_bytes(const sl_product *product, uint32_t worker_count)
{
    if (product->m == 0 || product->n == 0 || product->k == 0)
        return 0;
    const gemm_plan plan = plan_product(product);
    return count_words(&plan, worker_count) * sizeof(float);
}
