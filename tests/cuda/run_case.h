/* Whole runs of `train` in this process, on a device of choice, and what came out of them: the last
 * loss, and a digest of every parameter (in fp32) and both moments of every tensor. */
#ifndef SL_TESTS_CUDA_RUN_CASE_H
#define SL_TESTS_CUDA_RUN_CASE_H

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "scratch_case.h"
#include "train/loop.h"
#include "train/preparation.h"

enum { RUN_SETTING_MAX = 28 };

/* A model of 2 layers; wte has several panels of 128 rows, and chunks hold one or two tensors. */
#define RUN_TINY                                                                                   \
    "layers=2", "width=32", "heads=2", "context=16", "vocab=300", "micro-batch=2", "lr=0.01",      \
        "chunk-size=8192", "threads=2", "quiet=true"

typedef struct run_settings {
    const char *text[RUN_SETTING_MAX];
} run_settings;

/* Some settings; later ones replace earlier ones where both say something. */
#define RUN_SETTINGS(...) ((run_settings){{RUN_TINY, __VA_ARGS__}})

typedef struct run_result {
    sl_status status;
    char message[1024]; /* of a failure */
    sl_hash_value digest;
    double first_loss, last_loss;
    sl_end_report end;
    sl_choice choice; /* that was run */
} run_result;

/* Writes "text" into the present directory: what runs learn from. */
static inline void run_write_text(void)
{
    char text[4096];
    uint64_t state = 12345;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)("the lock of a gate\n"[scratch_below(&state, 19)]);
    scratch_write("text", text, sizeof text);
}

/* The set-up of a program whose runs read it. */
static inline int enter_with_text(void **state)
{
    if (enter_scratch(state) != 0)
        return 1;
    run_write_text();
    return 0;
}

static inline sl_status run_digest(const sl_runtime *runtime, sl_hash_value *out_digest)
{
    static const sl_group groups[] = {SL_GROUP_PARAM, SL_GROUP_STATE1, SL_GROUP_STATE2};
    sl_hash_stream *hash = NULL;
    float *data = NULL;
    sl_status status = sl_hash_open(&hash);
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        for (uint32_t t = 0; t < runtime->tensor_count && status == SL_OK; t++) {
            uint64_t count = runtime->tensors[t].element_count;
            float *larger = realloc(data, count * sizeof *data);
            scratch_need(larger != NULL, "memory");
            data = larger;
            status = runtime->io.read(runtime->io.user, groups[g], t, 0, count, data);
            sl_hash_update(hash, data, count * sizeof *data);
        }
    }
    free(data);
    *out_digest = sl_hash_digest(hash);
    sl_hash_close(hash);
    return status;
}

static inline sl_status run_note_step(void *self, const sl_step_report *report)
{
    run_result *result = self;
    if (result->first_loss == 0)
        result->first_loss = report->loss;
    result->last_loss = report->loss;
    return SL_OK;
}

static inline sl_status run_configure(const run_settings *settings, sl_config *config)
{
    SL_TRY(sl_config_assign(config, SL_CONFIG_TRAIN, "data=text"));
    for (int i = 0; i < RUN_SETTING_MAX && settings->text[i]; i++)
        SL_TRY(sl_config_assign(config, SL_CONFIG_TRAIN, settings->text[i]));
    return sl_config_check(config, SL_CONFIG_TRAIN);
}

static inline sl_status run_loop(sl_trainer *trainer, run_result *result)
{
    static const volatile sig_atomic_t never = 0;
    static const sl_sink_ops noting = {.step = run_note_step};
    sl_blueprint *blueprint = NULL;
    sl_refusal refusal;
    SL_TRY(sl_search_find(&trainer->search, &blueprint, &refusal));
    SL_TRY(sl_trainer_open(trainer, blueprint));
    result->choice = trainer->runtime->blueprint->choice;
    sl_sinks_add(&trainer->sinks, &noting, result);
    SL_TRY(sl_loop_run(trainer, &never, &result->end));
    return run_digest(trainer->runtime, &result->digest);
}

/* Trains as `train` does, in the present directory. What was opened is closed, whatever happens. */
static inline run_result run_train(const run_settings *settings)
{
    run_result result = {0};
    sl_config config;
    sl_trainer trainer = {0};
    scratch_need(sl_config_init(&config) == SL_OK, "configuration");
    result.status = run_configure(settings, &config);
    if (result.status == SL_OK)
        result.status = sl_preparation_run(&config, SL_CONFIG_TRAIN, &trainer);
    if (result.status == SL_OK)
        result.status = run_loop(&trainer, &result);
    if (result.status != SL_OK)
        snprintf(result.message, sizeof result.message, "%s", sl_status_message());
    sl_trainer_close(&trainer);
    sl_config_clear(&config);
    return result;
}

static inline bool run_same(const run_result *a, const run_result *b)
{
    return a->status == SL_OK && b->status == SL_OK && a->digest.high == b->digest.high &&
           a->digest.low == b->digest.low && a->last_loss == b->last_loss;
}

#endif
