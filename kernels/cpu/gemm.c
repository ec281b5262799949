/* The rounds of a product: pack, multiply, finish. */
#include "gemm.h"

#include "gemm_plan.h"
#include "simd.h"
#include "tiles.h"

/* A worker packs a few neighbouring strips in turns of a few terms each: then the rows of the
 * matrix are read in runs longer than a strip is wide. */
enum { PACKING_STRIPS = 4, TURN_TERMS = 32, LINE_BYTES = 64 };

typedef struct gemm_job {
    const sl_gemm *gemm;
    sl_gemm_plan plan;
    sl_span a, b, chains; /* of this round: strips and chains */
    uint32_t *packed_a, *packed_b;
    float *sums;            /* of all workers */
    uint64_t packings_of_a; /* tiles of the packing run that are A's */
} gemm_job;

static const void *element_at(const void *base, sl_type type, uint64_t index)
{
    return (const char *)base + index * sl_type_bytes(type);
}

static sl_span cut_span(uint64_t total, sl_gemm_cut cut, uint64_t index)
{
    return sl_tiles_span(total, cut.size, index);
}

/* Rows of A's strips first .. first + count: the strips are equally high, within one. */
static sl_span rows_of(const gemm_job *job, uint64_t first, uint64_t count)
{
    const uint64_t m = job->gemm->m, strips = job->plan.a_strips;
    const uint64_t begin = first * m / strips;
    return (sl_span){begin, (first + count) * m / strips - begin};
}

static sl_span columns_of(const gemm_job *job, uint64_t first, uint64_t count)
{
    const uint64_t width = job->plan.micro->columns, begin = first * width;
    const uint64_t end = begin + count * width;
    return (sl_span){begin, (end < job->gemm->n ? end : job->gemm->n) - begin};
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

/* Terms `part` of the chain. */
static void pack_a(const gemm_job *job, uint64_t chain, uint64_t strip, sl_span part)
{
    const sl_gemm *gemm = job->gemm;
    const sl_span rows = rows_of(job, job->a.first + strip, 1);
    sl_span terms = cut_span(gemm->k, job->plan.chain, job->chains.first + chain);
    terms = (sl_span){terms.first + part.first, part.count};
    const uint64_t step = part.first / job->plan.micro->terms_per_step;
    const uint64_t leading = gemm->transpose_a ? gemm->m : gemm->k;
    const uint64_t first =
        gemm->transpose_a ? terms.first * leading + rows.first : rows.first * leading + terms.first;
    const sl_gemm_strip all = {.from = element_at(gemm->a, gemm->type, first),
                               .type = gemm->type,
                               .leading = leading,
                               .transpose = !gemm->transpose_a,
                               .width = rows.count,
                               .term_count = terms.count,
                               .step_width = rows.count,
                               .to = slot_a(job, chain, strip) + step * rows.count};
    job->plan.micro->pack(&all);
}

static void pack_b(const gemm_job *job, uint64_t chain, uint64_t strip, sl_span part)
{
    const sl_gemm *gemm = job->gemm;
    const sl_span columns = columns_of(job, job->b.first + strip, 1);
    sl_span terms = cut_span(gemm->k, job->plan.chain, job->chains.first + chain);
    terms = (sl_span){terms.first + part.first, part.count};
    const uint64_t step = part.first / job->plan.micro->terms_per_step;
    const uint64_t leading = gemm->transpose_b ? gemm->k : gemm->n;
    const uint64_t first = gemm->transpose_b ? columns.first * leading + terms.first
                                             : terms.first * leading + columns.first;
    const sl_gemm_strip all = {.from = element_at(gemm->b, gemm->type, first),
                               .type = gemm->type,
                               .leading = leading,
                               .transpose = gemm->transpose_b,
                               .width = columns.count,
                               .term_count = terms.count,
                               .step_width = job->plan.micro->columns,
                               .to = slot_b(job, chain, strip) + step * job->plan.micro->columns};
    job->plan.micro->pack(&all);
}

/* Neighbouring strips of one chain. */
static void pack_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const gemm_job *job = argument;
    const bool is_a = tile_index < job->packings_of_a;
    const uint64_t index = is_a ? tile_index : tile_index - job->packings_of_a;
    const uint64_t strips = is_a ? job->a.count : job->b.count;
    const uint64_t groups = sl_tiles_count(strips, PACKING_STRIPS);
    const sl_span span = sl_tiles_span(strips, PACKING_STRIPS, index % groups);
    const uint64_t chain = index / groups;
    const uint64_t terms = cut_span(job->gemm->k, job->plan.chain, job->chains.first + chain).count;
    for (uint64_t first = 0; first < terms; first += TURN_TERMS)
        for (uint64_t strip = span.first; strip < span.first + span.count; strip++) {
            const sl_span part = {first, terms - first < TURN_TERMS ? terms - first : TURN_TERMS};
            if (is_a)
                pack_a(job, chain, strip, part);
            else
                pack_b(job, chain, strip, part);
        }
}

typedef struct gemm_tile {
    sl_span a, b; /* strips of the round */
    sl_span rows, columns;
    float *c; /* the sums of the tile's first element */
    uint64_t leading_c;
} gemm_tile;

/* Of the round. */
typedef struct strip_place {
    uint64_t chain, a, b;
} strip_place;

static gemm_tile find_tile(const gemm_job *job, uint64_t tile_index, uint32_t worker_index)
{
    const sl_gemm_plan *plan = &job->plan;
    const uint64_t down = sl_tiles_count(job->a.count, plan->a_tile.size);
    gemm_tile tile = {.a = cut_span(job->a.count, plan->a_tile, tile_index % down),
                      .b = cut_span(job->b.count, plan->b_tile, tile_index / down)};
    tile.rows = rows_of(job, job->a.first + tile.a.first, tile.a.count);
    tile.columns = columns_of(job, job->b.first + tile.b.first, tile.b.count);
    if (plan->sums > 0) {
        tile.c = job->sums + worker_index * plan->sums;
        tile.leading_c = plan->b_tile.size * plan->micro->columns;
    } else {
        tile.c = (float *)job->gemm->c + tile.rows.first * job->gemm->n + tile.columns.first;
        tile.leading_c = job->gemm->n;
    }
    return tile;
}

/* While a tile's first strip of B is used, the strips of A come in, each during the patch before
 * its own; a strip of B comes in, part after part, during the patches of the strip before it. */
static void fetch_next(const gemm_job *job, const gemm_tile *tile, strip_place at,
                       sl_gemm_patch *patch)
{
    const uint64_t lines = LINE_BYTES * patch->step_count;
    const uint64_t part = (at.a - tile->a.first) * lines;
    const bool wants_a = at.b == tile->b.first && at.a + 1 < tile->a.first + tile->a.count;
    const bool wants_b =
        at.b + 1 < tile->b.first + tile->b.count && part < job->plan.b_slot * sizeof(uint32_t);
    const void *here = patch->a;
    patch->next_a = wants_a ? slot_a(job, at.chain, at.a + 1) : here;
    patch->next_a_stride = wants_a ? LINE_BYTES : 0;
    patch->next_b = wants_b ? (const char *)slot_b(job, at.chain, at.b + 1) + part : here;
    patch->next_b_stride = wants_b ? LINE_BYTES : 0;
}

static void multiply_strips(const gemm_job *job, const gemm_tile *tile, strip_place at)
{
    const sl_gemm_plan *plan = &job->plan;
    const uint64_t chain = job->chains.first + at.chain;
    const uint64_t terms = cut_span(job->gemm->k, plan->chain, chain).count;
    const sl_span rows = rows_of(job, job->a.first + at.a, 1);
    const sl_span columns = columns_of(job, job->b.first + at.b, 1);
    sl_gemm_patch patch = {
        .a = slot_a(job, at.chain, at.a),
        .b = slot_b(job, at.chain, at.b),
        .step_count = sl_bits_divide_up(terms, plan->micro->terms_per_step),
        .c = tile->c + (rows.first - tile->rows.first) * tile->leading_c +
             (columns.first - tile->columns.first),
        .leading_c = tile->leading_c,
        .rows = (uint32_t)rows.count,
        .columns = (uint32_t)columns.count,
        .add = chain > 0 || (job->gemm->add && plan->sums == 0),
    };
    fetch_next(job, tile, at, &patch);
    plan->micro->multiply(&patch);
}

/* There is more to an element of C than its sum. */
static bool is_finished_apart(const sl_gemm *gemm)
{
    return gemm->bias != NULL || gemm->residual != NULL || gemm->gelu_x != NULL;
}

/* While the tile is still in cache. */
static void finish_tile(const gemm_job *job, const gemm_tile *tile)
{
    const sl_gemm *gemm = job->gemm;
    const bool is_last = job->chains.first + job->chains.count == job->plan.chain.count;
    if (!is_last || (job->plan.sums == 0 && !is_finished_apart(gemm)))
        return;
    const uint64_t at = tile->rows.first * gemm->n + tile->columns.first;
    const sl_gemm_finish all = {
        .sums = tile->c,
        .leading_sums = tile->leading_c,
        .c = (char *)gemm->c + at * sl_type_bytes(gemm->type),
        .bias = gemm->bias ? element_at(gemm->bias, gemm->type, tile->columns.first) : NULL,
        .residual = gemm->residual ? element_at(gemm->residual, gemm->type, at) : NULL,
        .gelu_x = gemm->gelu_x ? element_at(gemm->gelu_x, gemm->type, at) : NULL,
        .type = gemm->type,
        .leading = gemm->n,
        .rows = tile->rows.count,
        .columns = tile->columns.count,
        .add = gemm->add && job->plan.sums > 0,
    };
    job->plan.micro->finish(&all);
}

/* Tiles are numbered down the columns of C: neighbours in time share strips of B. */
static void multiply_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    const gemm_job *job = argument;
    const gemm_tile tile = find_tile(job, tile_index, worker_index);
    for (uint64_t chain = 0; chain < job->chains.count; chain++)
        for (uint64_t b = tile.b.first; b < tile.b.first + tile.b.count; b++)
            for (uint64_t a = tile.a.first; a < tile.a.first + tile.a.count; a++)
                multiply_strips(job, &tile, (strip_place){chain, a, b});
    finish_tile(job, &tile);
}

static void run_round(gemm_job *job, bool packs_b, sl_workers *workers)
{
    const sl_gemm_plan *plan = &job->plan;
    const uint64_t of_b = sl_tiles_count(job->b.count, PACKING_STRIPS) * job->chains.count;
    job->packings_of_a = sl_tiles_count(job->a.count, PACKING_STRIPS) * job->chains.count;
    sl_workers_run(workers, job->packings_of_a + (packs_b ? of_b : 0), pack_tile, job);
    sl_workers_run(workers,
                   sl_tiles_count(job->a.count, plan->a_tile.size) *
                       sl_tiles_count(job->b.count, plan->b_tile.size),
                   multiply_tile, job);
}

static gemm_job prepare(const sl_gemm *gemm)
{
    gemm_job job = {.gemm = gemm,
                    .plan = sl_gemm_plan_of(gemm, sl_simd_current()->gemm[gemm->type])};
    const sl_gemm_plan *plan = &job.plan;
    job.packed_a = gemm->workspace;
    job.packed_b = job.packed_a + plan->a_round.size * plan->k_round.size * plan->a_slot;
    job.sums = (float *)(job.packed_b + plan->b_round.size * plan->k_round.size * plan->b_slot);
    return job;
}

static sl_status check(const sl_gemm *gemm)
{
    if (gemm->m == 0 || gemm->n == 0 || gemm->k == 0)
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix product without rows, columns or terms");
    const bool is_finished = is_finished_apart(gemm);
    if (gemm->c_type != gemm->type && (gemm->c_type != SL_TYPE_FP32 || is_finished))
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix product of type %d into type %d%s", (int)gemm->type,
                (int)gemm->c_type, is_finished ? ", with bias, residual or GELU" : "");
    if (gemm->add && gemm->gelu_x != NULL)
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix product that adds to C and passes a GELU");
    return SL_OK;
}

sl_status sl_gemm_run(const sl_gemm *gemm, sl_workers *workers)
{
    SL_TRY(check(gemm));
    gemm_job job = prepare(gemm);
    const sl_gemm_plan *plan = &job.plan;
    for (uint64_t b = 0; b < plan->b_round.count; b++) {
        job.b = cut_span(plan->b_strips, plan->b_round, b);
        for (uint64_t chains = 0; chains < plan->k_round.count; chains++) {
            job.chains = cut_span(plan->chain.count, plan->k_round, chains);
            for (uint64_t a = 0; a < plan->a_round.count; a++) {
                job.a = cut_span(plan->a_strips, plan->a_round, a);
                run_round(&job, a == 0, workers);
            }
        }
    }
    return SL_OK;
}

uint64_t sl_gemm_workspace_bytes(const sl_gemm *gemm, uint32_t worker_count)
{
    if (gemm->m == 0 || gemm->n == 0 || gemm->k == 0)
        return 0;
    const sl_gemm_plan plan = sl_gemm_plan_of(gemm, sl_simd_current()->gemm[gemm->type]);
    return sl_gemm_plan_words(&plan, worker_count) * sizeof(float);
}
