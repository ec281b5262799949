/* A model that is not GPT-2, on sluice's engine: a byte-level language model of residual MLP
 * blocks.
 *
 * It shows the whole way with public headers alone: build the model from layers, lay the tensors
 * out in chunks, derive the training step, choose homes, plan within a device budget, verify, run.
 * Backward ops, updates and every move come from the library.
 *
 *   own_model FILE [STEPS]     trains on the bytes of FILE, states on the host
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "sluice/engine.h"
#include "sluice/model.h"

enum { BATCH = 8, SEQ = 64, ROWS = BATCH * SEQ, WIDTH = 128, HIDDEN = 512, BLOCKS = 4, IDS = 256 };

static const sl_engine_target target = {.device = SL_DEVICE_CPU, .worker_count = 2};

/* ---- the model ---- */

/* x + W2 gelu(W1 norm(x)) */
static sl_tensor build_block(sl_model *model, sl_tensor x)
{
    const sl_linear_spec up = {.out = HIDDEN, .parallel = SL_COLUMNS, .deviation = 0.05f};
    const sl_linear_spec down = {.out = WIDTH, .parallel = SL_ROWS, .deviation = 0.05f};
    sl_tensor y = sl_norm(model, "norm", x);
    y = sl_gelu(model, "gelu", sl_linear(model, "up", y, &up));
    return sl_drop_add(model, "drop", sl_linear(model, "down", y, &down), x);
}

static sl_status build(sl_model *model, const void *user)
{
    const sl_embedding bytes = {.name = "bytes", .ids = IDS, .width = WIDTH, .deviation = 0.05f};
    sl_tensor x = sl_embed(model, &bytes);
    (void)user;
    for (uint32_t block = 0; block < BLOCKS; block++) {
        sl_block(model, "block", block);
        x = build_block(model, x);
        sl_block_end(model);
    }
    sl_head(model, "bytes", sl_norm(model, "last", x));
    return SL_OK;
}

/* ---- from the model to a plan ---- */

typedef struct setup {
    sl_program *forward, *step;
    sl_layout *layout;
    sl_homes *homes;
    sl_plan *plan;
    sl_engine *engine;
    const unsigned char *text; /* and where each row of the step starts in it */
    long length, start[BATCH];
} setup;

/* The engine asks for the tokens of a step when it wants them; targets are one token later. */
static sl_status fill_rows(void *user, const sl_engine_fill *what, void *memory)
{
    const setup *s = user;
    int32_t *tokens = memory;
    for (int b = 0; b < BATCH; b++)
        for (int t = 0; t < SEQ; t++)
            tokens[b * SEQ + t] = s->text[s->start[b] + t + (what->slot == SL_INPUT_TARGETS)];
    return SL_OK;
}

static sl_status make_plan(setup *s)
{
    sl_policy_options policy = {.policy = SL_POLICY_HOST};
    sl_machine machine = sl_machine_default(target.worker_count);
    sl_shortage shortage;
    sl_status status = sl_homes_build(s->step, s->layout, &policy, &s->homes);
    if (status != SL_OK)
        return status;
    sl_plan_request request = {.program = s->step,
                               .layout = s->layout,
                               .homes = s->homes,
                               .budget_bytes = {6u << 20, 64u << 20, 0},
                               .prefetch = SL_PREFETCH_AUTO,
                               .workspace = sl_engine_workspace_bytes,
                               .workspace_context = &target,
                               .machine = &machine};
    status = sl_plan_build(&request, &s->plan, &shortage);
    if (status == SL_ERROR_FIT)
        fprintf(stderr, "a budget of %llu bytes would do\n",
                (unsigned long long)shortage.needed_bytes);
    return status == SL_OK ? sl_plan_verify(&request, s->plan) : status;
}

static sl_status open_setup(setup *s)
{
    const sl_model_options model = {.batch = BATCH, .seq = SEQ, .tp_size = 1};
    const sl_step_options options = {.micro_batch_count = 1, .recompute = SL_RECOMPUTE_FULL};
    sl_status status = sl_model_emit(build, NULL, &model, &s->forward);
    if (status == SL_OK)
        status = sl_layout_build(s->forward, 0, &s->layout);
    if (status != SL_OK)
        return status;
    sl_chunk_map chunks = sl_layout_chunk_map(s->layout);
    status = sl_program_derive_step(s->forward, &chunks, &options, &s->step);
    if (status == SL_OK)
        status = make_plan(s);
    if (status != SL_OK)
        return status;
    sl_engine_plan plan = {s->step, s->plan};
    sl_engine_source source = {fill_rows, s};
    sl_engine_options engine = {.layout = s->layout,
                                .homes = s->homes,
                                .plans = &plan,
                                .plan_count = 1,
                                .source = &source,
                                .target = target};
    return sl_engine_open(&engine, &s->engine);
}

static void close_setup(setup *s)
{
    sl_engine_close(s->engine);
    sl_plan_close(s->plan);
    sl_homes_close(s->homes);
    sl_layout_close(s->layout);
    sl_program_close(s->step);
    sl_program_close(s->forward);
}

/* ---- training ---- */

static float draw(void) /* roughly normal */
{
    float sum = 0.0f;
    for (int i = 0; i < 12; i++)
        sum += (float)rand() / (float)RAND_MAX;
    return sum - 6.0f;
}

static sl_status initialise(setup *s)
{
    for (uint32_t t = 0; t < s->step->tensor_count; t++) {
        const sl_tensor_spec *spec = &s->step->tensors[t];
        uint32_t chunk_index = s->layout->chunk_of_tensor[t];
        for (uint64_t i = 0; i < spec->element_count; i++) {
            float value = spec->init_mean + spec->init_deviation * draw();
            sl_status status = sl_engine_write_chunk(
                s->engine, SL_GROUP_PARAM, chunk_index,
                (s->layout->first_element[t] + i) * sizeof value, sizeof value, &value);
            if (status != SL_OK)
                return status;
        }
    }
    return SL_OK;
}

static void draw_rows(setup *s)
{
    for (int b = 0; b < BATCH; b++)
        s->start[b] = rand() % (s->length - SEQ);
}

static sl_status train(setup *s, int step_count)
{
    sl_status status = initialise(s);
    for (int step = 1; status == SL_OK && step <= step_count; step++) {
        sl_step_scalars scalars = {.learning_rate = 1e-3f,
                                   .weight_decay = 0.1f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.95f,
                                   .epsilon = 1e-8f,
                                   .bias1 = 1.0f - powf(0.9f, (float)step),
                                   .bias2_root = sqrtf(1.0f - powf(0.95f, (float)step)),
                                   .clip = 1.0f,
                                   .loss_scale = 1.0f};
        draw_rows(s);
        status = sl_engine_step(s->engine, 0, &scalars);
        const double *loss = sl_engine_output(s->engine, 0, SL_OUTPUT_LOSS);
        if (status == SL_OK && (step == 1 || step % 20 == 0))
            printf("step %d  loss %.4f\n", step, *loss / ROWS);
    }
    return status;
}

static unsigned char *read_text(const char *path, long *out_length)
{
    FILE *file = fopen(path, "rb");
    unsigned char *text = NULL;
    if (!file)
        return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (*out_length = ftell(file)) > SEQ + 1) {
        rewind(file);
        text = malloc((size_t)*out_length);
        if (text && fread(text, 1, (size_t)*out_length, file) != (size_t)*out_length) {
            free(text);
            text = NULL;
        }
    }
    fclose(file);
    return text;
}

int main(int argc, char **argv)
{
    setup s = {0};
    long length = 0;
    unsigned char *text = argc > 1 ? read_text(argv[1], &length) : NULL;
    if (!text) {
        fprintf(stderr, "usage: own_model FILE [STEPS]   (FILE: more than %d bytes)\n", SEQ + 1);
        return 64;
    }
    s.text = text;
    s.length = length;
    sl_status status = open_setup(&s);
    if (status == SL_OK) {
        printf("device %llu bytes, host %llu bytes, moved %llu bytes a step\n",
               (unsigned long long)s.plan->peak_bytes[SL_TIER_DEVICE],
               (unsigned long long)s.plan->peak_bytes[SL_TIER_HOST],
               (unsigned long long)(s.plan->moved_bytes[SL_LANE_H2D] +
                                    s.plan->moved_bytes[SL_LANE_D2H]));
        status = train(&s, argc > 2 ? (int)strtol(argv[2], NULL, 10) : 100);
    }
    if (status != SL_OK)
        fprintf(stderr, "own_model: %s\n", sl_status_message());
    close_setup(&s);
    free(text);
    return sl_status_exit_code(status);
}
