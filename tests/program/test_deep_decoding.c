/* Decoding of very deep models, and of models with rotary positions. What could be wrong: a limit
 * on layers that only the cache has, or caches of different layers in one place; a table of
 * positions that is not filled, or cleared with the caches. A model of 600 layers reads its tokens
 * one by one and all at once, over the same caches, and must say the same; without the tokens
 * before, it must not. So must a model of the layers of Llama, whose caches are narrower than its
 * queries.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/status.h"
#include "engine/engine.h"
#include "llama_model.h"
#include "model/architecture.h"

enum { LAYERS = 600, VOCAB = 16, TOKENS = 4, ONE = 0, ALL = 1, PLANS = 2 };

static const sl_model_shape deep = {LAYERS, 8, 2, 8, VOCAB};
static const sl_engine_target target = {.worker_count = 1};

typedef struct decoder {
    sl_model_shape shape;
    sl_program *programs[PLANS]; /* for one token, for all */
    sl_plan *plans[PLANS];
    sl_layout *layout;
    sl_homes *homes;
    sl_engine *engine;
} decoder;

static void need(sl_status status)
{
    if (status != SL_OK)
        fail_msg("%s", sl_status_message());
}

static void build_plan(decoder *d, uint32_t index)
{
    const sl_machine machine = sl_machine_default(target.worker_count);
    const sl_plan_request request = {.program = d->programs[index],
                                     .layout = d->layout,
                                     .homes = d->homes,
                                     .budget_bytes = {UINT64_MAX, UINT64_MAX, UINT64_MAX},
                                     .prefetch = SL_PREFETCH_AUTO,
                                     .workspace = sl_engine_workspace_bytes,
                                     .workspace_context = &target,
                                     .machine = &machine};
    sl_shortage shortage;
    need(sl_plan_build(&request, &d->plans[index], &shortage));
    need(sl_plan_verify(&request, d->plans[index]));
}

/* Random numbers in all chunks, whatever their tensors are. */
static void write_parameters(decoder *d)
{
    const uint64_t bytes = sl_layout_chunk_bytes(d->layout, SL_GROUP_PARAM, 0); /* of each */
    float *chunk = malloc(bytes);
    assert_non_null(chunk);
    for (uint32_t c = 0; c < d->layout->chunk_count; c++) {
        for (uint64_t i = 0; i < bytes / sizeof *chunk; i++)
            chunk[i] = 0.3f * sl_rng_normal(5, c, i);
        need(sl_engine_write_chunk(d->engine, SL_GROUP_PARAM, c, 0, bytes, chunk));
    }
    free(chunk);
}

static void open_decoder(decoder *d, sl_policy policy)
{
    const sl_policy_options options = {.policy = policy};
    for (uint32_t p = 0; p < PLANS; p++) {
        const sl_model_options emit = {
            .batch = 1, .seq = p == ONE ? 1 : TOKENS, .tp_size = 1, .mode = SL_MODEL_CACHED};
        need(sl_model_shape_emit(&d->shape, &emit, &d->programs[p]));
    }
    need(sl_layout_build(d->programs[ONE], 0, &d->layout));
    need(sl_homes_build(d->programs[ONE], d->layout, &options, &d->homes));
    for (uint32_t p = 0; p < PLANS; p++)
        build_plan(d, p);
    const sl_engine_plan plans[PLANS] = {{d->programs[ONE], d->plans[ONE]},
                                         {d->programs[ALL], d->plans[ALL]}};
    const sl_engine_options engine = {.layout = d->layout,
                                      .homes = d->homes,
                                      .plans = plans,
                                      .plan_count = PLANS,
                                      .target = target};
    need(sl_engine_open(&engine, &d->engine));
    write_parameters(d);
}

static void close_decoder(decoder *d)
{
    sl_engine_close(d->engine);
    for (uint32_t p = 0; p < PLANS; p++) {
        sl_plan_close(d->plans[p]);
        sl_program_close(d->programs[p]);
    }
    sl_homes_close(d->homes);
    sl_layout_close(d->layout);
}

static void decode(decoder *d, uint32_t plan, const int32_t *tokens, uint32_t position,
                   float *out_logits)
{
    const sl_step_scalars scalars = {.position = position, .loss_scale = 1.0f};
    const uint32_t count = plan == ONE ? 1 : TOKENS;
    memcpy(sl_engine_input(d->engine, plan, 0), tokens, count * sizeof *tokens);
    need(sl_engine_step(d->engine, plan, &scalars));
    memcpy(out_logits, sl_engine_output(d->engine, plan, 0), VOCAB * sizeof *out_logits);
}

static double find_distance(const float *a, const float *b)
{
    double distance = 0.0;
    for (int i = 0; i < VOCAB; i++)
        distance = fmax(distance, fabs((double)a[i] - (double)b[i]));
    return distance;
}

/* Products of other heights may be summed in another order: 1e-3 leaves them room, although here
 * the logits are equal. Without the tokens before they are 0.18 apart. */
static void decoding_when_layers_are_six_hundred_then_reads_every_cache(void **state)
{
    (void)state;
    static const int32_t tokens[TOKENS] = {3, 14, 1, 5};
    for (int policy = SL_POLICY_DEVICE; policy <= SL_POLICY_HOST; policy++) {
        decoder d = {.shape = deep};
        float one[VOCAB], all[VOCAB], alone[VOCAB];
        open_decoder(&d, (sl_policy)policy);
        assert_int_equal(d.homes->persistent_count, LAYERS);
        need(sl_engine_clear_persistent(d.engine));
        for (uint32_t t = 0; t < TOKENS; t++)
            decode(&d, ONE, &tokens[t], t, one);
        need(sl_engine_clear_persistent(d.engine));
        decode(&d, ALL, tokens, 0, all);
        need(sl_engine_clear_persistent(d.engine));
        decode(&d, ONE, &tokens[TOKENS - 1], TOKENS - 1, alone);
        print_message("%s: apart %.2g, without the tokens before %.2g\n",
                      policy == SL_POLICY_DEVICE ? "device" : "host", find_distance(one, all),
                      find_distance(one, alone));
        assert_true(find_distance(one, all) < 1e-3);
        assert_true(find_distance(one, alone) > 1e-1);
        close_decoder(&d);
    }
}

/* The same, the logits of the first panel. Its places in the cache are those of the tokens: at
 * another place a token says something else. */
static void decoding_when_positions_are_rotary_then_reads_table_and_caches(void **state)
{
    (void)state;
    static const int32_t tokens[TOKENS] = {3, 14, 1, 5};
    const sl_model_shape llama = {.architecture = SL_ARCHITECTURE_OWN,
                                  .vocab = (uint32_t)llama_tiny.ids,
                                  .build = llama_build,
                                  .user = &llama_tiny};
    for (int policy = SL_POLICY_DEVICE; policy <= SL_POLICY_HOST; policy++) {
        decoder d = {.shape = llama};
        float one[VOCAB], all[VOCAB], shifted[VOCAB], fresh[VOCAB];
        open_decoder(&d, (sl_policy)policy);
        assert_int_equal(d.homes->persistent_count, llama_tiny.layers + 1);
        decode(&d, ALL, tokens, 0, fresh);
        need(sl_engine_clear_persistent(d.engine)); /* the caches, not the table */
        for (uint32_t t = 0; t < TOKENS; t++)
            decode(&d, ONE, &tokens[t], t, one);
        need(sl_engine_clear_persistent(d.engine));
        decode(&d, ALL, tokens, 0, all);
        decode(&d, ONE, &tokens[TOKENS - 1], TOKENS, shifted);
        print_message("%s: apart %.2g, shifted %.2g\n",
                      policy == SL_POLICY_DEVICE ? "device" : "host", find_distance(one, all),
                      find_distance(one, shifted));
        assert_true(find_distance(fresh, all) == 0);
        assert_true(find_distance(one, all) < 1e-4);
        assert_true(find_distance(one, shifted) > 1e-2);
        close_decoder(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_when_layers_are_six_hundred_then_reads_every_cache),
        cmocka_unit_test(decoding_when_positions_are_rotary_then_reads_table_and_caches),
    };
    return cmocka_run_group_tests_name("deep decoding", tests, NULL, NULL);
}
