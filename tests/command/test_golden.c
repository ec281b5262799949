/* What could be wrong with a new version that no test of it alone can see: it reads checkpoints of
 * an older one differently, or goes on from them with other numbers. golden/ holds checkpoints of
 * older versions, in each precision, with several update rules and with adapters, and beside them
 * what that version knew: the counters, a hash of each tensor (by xxhsum), the numbers of the next
 * steps. Here they are loaded, and copies are resumed by the built command under several
 * placements. Planted faults show that each comparison can fail.
 *
 * Tolerances, relative: another instruction set, library or compiler takes sums in another order.
 * (SL_TEST_EXACT=1 allows nothing; it holds with AVX-512 and its bf16, as here when they were
 * made.) Rounding errors of at most 2^-24 of a partial sum add up as a random walk: to sqrt(n)
 * 2^-24 over n terms. The longest sums have 257 terms (a row of logits), and about 84 operations
 * follow each other in a step (12 a layer, two layers and the head, twice as many backwards):
 * sqrt(257) sqrt(84) 2^-24 < 2^-16.8. A weight moves by the rate times a ratio in which a relative
 * error stays what it is, so six steps add six of these; times 4 for safety: 2^-12 in fp32. In half
 * precision an error e of a sum also moves some of what is stored across the border of a rounding:
 * a share e / 2u of the elements by 2u (u is 2^-9 in bf16, 2^-12 in fp16), which is sqrt(2u e) in
 * quadratic mean. With e = 2^-24 sqrt(257) = 2^-20, 84 operations, six steps, and losses and norms
 * that are means over 192 rows: 2^-14 2^3.2 2^1.3 2^-3.8 = 2^-13.3 in bf16, 2^-14.8 in fp16; times
 * 4, with fp32's own, rounded up: 2^-10 and 2^-11. Seen with AVX2, and with fused and reassociated
 * sums: 8e-8, 9e-5 and 3e-5 at most. Adapters have few gradients for roundings to average over:
 * twice bf16's (5e-4 with AVX2). Rules are held to less than fp32's, or they would not be told from
 * Muon with a third of its steps missing, which is off by 1.5e-4: to 2^-14 (1.5e-9 with AVX2). */
#define _GNU_SOURCE
#include "command_run.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdbool.h>

#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "sealed_manifest.h"
#include "tensors/tiny_model.h"

enum { HASH_BYTES = 33, FAULT_BYTES = 512 };

enum { RULES_MAX = 4 };

typedef struct golden {
    const char *name; /* the directory of its checkpoint */
    const char *precision;
    double tolerance;
    const char *options; /* of its run, beside run.json's; make.sh has the same */
    struct {
        const char *pattern; /* of tensors; NULL: adamw updates the rest */
        sl_rule_id rule;
    } rules[RULES_MAX]; /* the first that matches counts */
    json_t *expected;
} golden;

static golden goldens[] = {
    {.name = "fp32", .precision = "fp32", .tolerance = 0x1p-12, .options = ""},
    {.name = "bf16", .precision = "bf16", .tolerance = 0x1p-10, .options = ""},
    {.name = "fp16", .precision = "fp16", .tolerance = 0x1p-11, .options = ""},
    {.name = "rules",
     .precision = "fp32",
     .tolerance = 0x1p-14,
     .options = "--rule 'h.*.attn.*=lion' 'wte.*=sgd' 'h.0.ln_1.*=none' 'h.*.mlp.*.weight=muon' "
                "--momentum 0.9 --lr-of '*.bias=0.5'",
     .rules = {{"h.*.attn.*", SL_RULE_LION},
               {"wte.*", SL_RULE_MOMENTUM},
               {"h.0.ln_1.*", SL_RULE_NONE},
               {"h.*.mlp.*.weight", SL_RULE_MUON}}},
    {.name = "lora",
     .precision = "bf16",
     .tolerance = 0x1p-9,
     .options = "--lora-rank 3 --lora-targets c_attn,mlp.c_proj --state-type int8",
     .rules = {{"*.lora_?.weight", SL_RULE_ADAMW}, {"*", SL_RULE_NONE}}},
    {.name = "halves",
     .precision = "bf16",
     .tolerance = 0x1p-10,
     .options = "--rule 'h.*.attn.*=lion' 'wte.*=sgd' --momentum 0.9 --nesterov --state-type bf16 "
                "--master-type low",
     .rules = {{"h.*.attn.*", SL_RULE_LION}, {"wte.*", SL_RULE_MOMENTUM}}},
    {.name = "codes",
     .precision = "fp32",
     .tolerance = 0x1p-12,
     .options = "--rule 'h.*.attn.*=lion' 'wte.*=sgd' --momentum 0.9 --state-type int8",
     .rules = {{"h.*.attn.*", SL_RULE_LION}, {"wte.*", SL_RULE_MOMENTUM}}},
    {.name = "turned",
     .precision = "bf16",
     .tolerance = 0x1p-10,
     .options = "--rule 'h.*.weight=muon' 'h.*.ln_?.weight=adamw' 'wte.*=sgd' --master-type low",
     .rules = {{"h.*.ln_?.weight", SL_RULE_ADAMW},
               {"h.*.weight", SL_RULE_MUON},
               {"wte.*", SL_RULE_SGD}}}};

enum { FP32, BF16, FP16, RULES, LORA, HALVES, CODES, TURNED };

/* The first three are of a version that kept neither what was given nor checksums of blocks. */
enum { GOLDEN_COUNT = sizeof goldens / sizeof goldens[0], FIRST_COUNT = 3 };

static const struct {
    const char *name;
    sl_group group;
} files[] = {{"model", SL_GROUP_PARAM}, {"moment1", SL_GROUP_STATE1}, {"moment2", SL_GROUP_STATE2}};

enum { FILE_COUNT = sizeof files / sizeof files[0] };

static const char *const ways[] = {
    "",
    "--policy static --offload-params 0.5 --offload-grads 0.5 --offload-optimizer 0.5 "
    "--chunk-size 9000 --accumulation layer",
    "--policy nvme --disk-dir disk --nvme-params 1 --nvme-grads 1 --recompute full --threads 2",
};

enum { WAY_COUNT = sizeof ways / sizeof ways[0] };

static unsigned number_count, exact_count;

/* The first difference that was found. */
static char fault[FAULT_BYTES];

static bool __attribute__((format(printf, 1, 2))) differs(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(fault, sizeof fault, format, list);
    va_end(list);
    return false;
}

static const json_t *find(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        fail_msg("no \"%s\" in what is expected", key);
    return value;
}

/* ---- what a checkpoint holds ---- */

static bool has_counter(const json_t *expected, const char *key, uint64_t value)
{
    uint64_t wanted = (uint64_t)json_integer_value(find(expected, key));
    return value == wanted || differs("%s is %" PRIu64 ", not %" PRIu64, key, value, wanted);
}

static bool has_counters(const sl_checkpoint *checkpoint, const char *precision,
                         const json_t *expected)
{
    const sl_checkpoint_info *info = sl_checkpoint_describe(checkpoint);
    const sl_checkpoint_state *state = &info->state;
    double scale = json_number_value(find(expected, "loss_scale"));
    char seed[32];
    snprintf(seed, sizeof seed, "%" PRIu64, state->seed);
    if (strcmp(seed, json_string_value(find(expected, "seed"))) != 0)
        return differs("seed is %s", seed);
    if (state->loss_scale != scale)
        return differs("loss_scale is %g, not %g", state->loss_scale, scale);
    if (strcmp(sl_type_name(info->precision), precision) != 0)
        return differs("precision is %s", sl_type_name(info->precision));
    return has_counter(expected, "step", state->step) &&
           has_counter(expected, "tokens_total", state->tokens_total) &&
           has_counter(expected, "next_row", state->next_row) &&
           has_counter(expected, "skipped_steps", state->skipped_steps) &&
           has_counter(expected, "loss_scale_good_steps", state->loss_scale_good_steps);
}

static void format_hash(sl_hash_value value, char out_text[HASH_BYTES])
{
    snprintf(out_text, HASH_BYTES, "%016" PRIx64 "%016" PRIx64, value.high, value.low);
}

/* Of the panels from `first` on that are one tensor; returns how many there are. */
static uint32_t hash_tensor(const tiny_model *model, sl_group group, uint32_t first,
                            char out_text[HASH_BYTES])
{
    uint32_t t = first;
    sl_hash_stream *stream = NULL;
    assert_int_equal(sl_hash_open(&stream), SL_OK);
    do {
        const sl_tensor_spec *spec = &model->tensors[t];
        sl_hash_update(stream, model->data[group][t],
                       spec->valid_rows * spec->shape[1] * sizeof(float));
        t++;
    } while (t < model->tensor_count &&
             strcmp(model->tensors[t].name, model->tensors[first].name) == 0);
    format_hash(sl_hash_digest(stream), out_text);
    sl_hash_close(stream);
    return t - first;
}

static bool has_group(const tiny_model *model, sl_group group, const char *file_name,
                      const json_t *expected)
{
    size_t tensor_count = 0;
    for (uint32_t t = 0; t < model->tensor_count;) {
        char hash[HASH_BYTES], name[96];
        if (!sl_rule_stores(model->tensors[t].rule, group)) {
            t++;
            continue;
        }
        tensor_count++;
        snprintf(name, sizeof name, "transformer.%s", model->tensors[t].name);
        t += hash_tensor(model, group, t, hash);
        if (strcmp(hash, json_string_value(find(expected, name))) != 0)
            return differs("%s of %s has other bytes", name, file_name);
    }
    return tensor_count == json_object_size(expected) ||
           differs("%s: %zu tensors", file_name, tensor_count);
}

static void give_rules(const golden *g, tiny_model *model)
{
    for (uint32_t t = 0; t < model->tensor_count; t++)
        for (int i = RULES_MAX - 1; i >= 0; i--)
            if (g->rules[i].pattern && fnmatch(g->rules[i].pattern, model->tensors[t].name, 0) == 0)
                model->tensors[t].rule = g->rules[i].rule;
}

static bool has_tensors(const golden *g, const sl_checkpoint *checkpoint)
{
    const json_t *expected = find(g->expected, "tensors");
    static const bool states[SL_GROUP_COUNT] = {
        [SL_GROUP_PARAM] = true, [SL_GROUP_STATE1] = true, [SL_GROUP_STATE2] = true};
    tiny_model *model = tiny_open(sl_checkpoint_describe(checkpoint)->shape);
    sl_tensor_io io = tiny_io(model);
    give_rules(g, model);
    bool holds =
        sl_checkpoint_load(checkpoint, model->tensors, model->tensor_count, states, &io) == SL_OK ||
        differs("%s", sl_status_message());
    for (int i = 0; i < FILE_COUNT && holds; i++)
        holds = has_group(model, files[i].group, files[i].name, find(expected, files[i].name));
    tiny_close(model);
    return holds;
}

static bool is_as_it_was_saved(const golden *g, const char *path)
{
    sl_checkpoint *checkpoint = NULL;
    if (sl_checkpoint_open(path, &checkpoint) != SL_OK)
        return differs("%s", sl_status_message());
    bool holds = has_counters(checkpoint, g->precision, find(g->expected, "saved")) &&
                 has_tensors(g, checkpoint);
    sl_checkpoint_close(checkpoint);
    return holds;
}

/* ---- what a run makes of it ---- */

static bool is_near(const golden *g, const json_t *expected, const json_t *event, const char *key)
{
    const json_t *wanted = find(expected, key), *got = json_object_get(event, key);
    double left = json_number_value(wanted), right = json_number_value(got);
    double tolerance = getenv("SL_TEST_EXACT") ? 0 : g->tolerance;
    if (!json_is_number(got) || !json_is_number(wanted))
        return json_equal(got, wanted) || differs("%s is there or not", key);
    number_count++;
    exact_count += left == right;
    return fabs(left - right) <= tolerance * fabs(left) ||
           differs("%s is %.17g, not %.17g: off by %.3g, %.3g are allowed", key, right, left,
                   fabs(left - right) / fabs(left), tolerance);
}

static bool is_equal(const json_t *expected, const json_t *event, const char *key)
{
    double left = json_number_value(find(expected, key));
    const json_t *got = json_object_get(event, key);
    return (json_is_number(got) && json_number_value(got) == left) ||
           differs("%s is %.17g, not %.17g", key, json_number_value(got), left);
}

static bool is_same_step(const golden *g, const json_t *expected, const json_t *event)
{
    return is_equal(expected, event, "step") && is_equal(expected, event, "lr") &&
           is_equal(expected, event, "loss_scale") &&
           (json_equal(find(expected, "skipped"), json_object_get(event, "skipped")) ||
            differs("one of the two was skipped")) &&
           is_near(g, expected, event, "loss") && is_near(g, expected, event, "grad_norm");
}

/* The events called step of "log", in order, against those that are expected. */
static bool are_same_steps(const golden *g)
{
    bool holds = true;
    size_t index, step_count = 0;
    json_t *event, *events = read_log("log");
    const json_t *expected = find(g->expected, "steps");
    json_array_foreach(events, index, event)
    {
        if (!holds || strcmp(kind_of(event), "step") != 0)
            continue;
        const json_t *step = json_array_get(expected, step_count++);
        holds = step ? is_same_step(g, step, event) : differs("there are more steps");
    }
    if (holds && step_count != json_array_size(expected))
        holds = differs("there are %zu steps", step_count);
    json_decref(events);
    return holds;
}

/* Goes on from the checkpoint in "cut", to the last step. */
static bool goes_on(const golden *g, const char *way)
{
    if (sluice("train --config run.json --precision %s --save cut --resume --log-json log --quiet "
               "%s %s",
               g->precision, g->options, way) != 0)
        return differs("%s", complaint);
    if (!are_same_steps(g))
        return false;
    sl_checkpoint *checkpoint = NULL;
    if (sl_checkpoint_open("cut/step-00000012", &checkpoint) != SL_OK)
        return differs("%s", sl_status_message());
    bool holds = has_counters(checkpoint, g->precision, find(g->expected, "ended"));
    sl_checkpoint_close(checkpoint);
    return holds;
}

static void copy_golden(const golden *g)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf cut log && cp -r %s cut", g->name);
    assert_int_equal(system(command), 0);
}

/* ---- planting ---- */

#define CUT "cut/step-00000006"

static void hash_bytes(const char *data, size_t bytes, char out_text[HASH_BYTES])
{
    sl_hash_stream *stream = NULL;
    assert_int_equal(sl_hash_open(&stream), SL_OK);
    sl_hash_update(stream, data, bytes);
    format_hash(sl_hash_digest(stream), out_text);
    sl_hash_close(stream);
}

static void edit_manifest(const char *before, const char *after)
{
    sealed_edit(CUT "/manifest.json", before, after);
}

/* Changes the last bit of one element of a file of tensors. */
static void change_byte(const char *file_name, size_t element, bool is_mended)
{
    size_t bytes;
    char path[64], before[HASH_BYTES], after[HASH_BYTES];
    snprintf(path, sizeof path, CUT "/%s.safetensors", file_name);
    char *data = scratch_read(path, &bytes);
    hash_bytes(data, bytes, before);
    data[bytes - sizeof(float) * (element + 1)] ^= 1;
    hash_bytes(data, bytes, after);
    scratch_write(path, data, bytes);
    free(data);
    if (is_mended)
        edit_manifest(before, after);
}

static void assert_noticed(bool holds, const char *part)
{
    assert_false(holds);
    assert_has(fault, part);
}

/* ---- tests ---- */

static void checkpoint_when_loaded_then_is_as_it_was_saved(void **state)
{
    (void)state;
    for (int i = 0; i < GOLDEN_COUNT; i++) {
        copy_golden(&goldens[i]);
        if (!is_as_it_was_saved(&goldens[i], CUT))
            fail_msg("%s: %s", goldens[i].name, fault);
    }
}

static void run_when_resumed_then_goes_on_as_it_did(void **state)
{
    (void)state;
    number_count = exact_count = 0;
    assert_int_equal(system("mkdir -m 700 disk"), 0);
    for (int i = 0; i < GOLDEN_COUNT; i++) {
        for (int way = 0; way < WAY_COUNT; way++) {
            copy_golden(&goldens[i]);
            if (!goes_on(&goldens[i], ways[way]))
                fail_msg("%s %s: %s", goldens[i].name, ways[way], fault);
        }
    }
    print_message("%u of %u numbers are the same bit for bit\n", exact_count, number_count);
}

/* The older version did not keep what was given: what decides the numbers comes back as it was
 * resolved, with the data where they were. */
static void run_when_resumed_without_options_then_goes_on_as_it_did(void **state)
{
    (void)state;
    for (int i = 0; i < GOLDEN_COUNT; i++) {
        copy_golden(&goldens[i]);
        if (sluice("train --save cut --resume --device cpu --log-json log --quiet") != 0)
            fail_msg("%s: %s", goldens[i].name, complaint);
        if (i < FIRST_COUNT || strncmp(complaint, "sluice: --log-json none", 23) != 0)
            assert_string_equal(complaint, "");
        if (!are_same_steps(&goldens[i]))
            fail_msg("%s: %s", goldens[i].name, fault);
    }
}

static double find_expected_loss(const golden *g, size_t index)
{
    const json_t *step = json_array_get(find(g->expected, "steps"), index);
    return json_number_value(find(step, "loss"));
}

/* A checkpoint holds numbers in fp32: another type of states or masters takes them, and says so.
 * The next step computes with the same parameters, but for those that lie between two of bf16; the
 * last one with states that were rounded six times (3e-4 off was seen). */
static void run_when_resumed_with_another_type_then_says_what_changed(void **state)
{
    (void)state;
    static const struct {
        int golden;
        const char *options, *says;
    } rows[] = {{FP32, "--state-type int8", "--state-type fp32 → int8"},
                {BF16, "--state-type bf16", "--state-type fp32 → bf16"},
                {BF16, "--master-type low", "--master-type fp32 → low"},
                {LORA, "--state-type fp32", "--state-type int8 → fp32"},
                {HALVES, "--state-type int8", "--state-type bf16 → int8"},
                {HALVES, "--master-type fp32", "--master-type low → fp32"},
                {CODES, "--state-type bf16", "--state-type int8 → bf16"},
                {TURNED, "--master-type fp32", "--master-type low → fp32"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const golden *g = &goldens[rows[i].golden];
        copy_golden(g);
        assert_code(sluice("train --save cut --resume --device cpu --log-json log --quiet %s",
                           rows[i].options),
                    0);
        assert_has(complaint, rows[i].says);
        json_t *log = read_log("log");
        const double next = find_step(log, 7).loss / find_expected_loss(g, 0);
        const double last = find_step(log, 12).loss / find_expected_loss(g, 5);
        json_decref(log);
        print_message("%s %s: %.1e, %.1e off\n", g->name, rows[i].options, next - 1, last - 1);
        assert_true(fabs(next - 1) <= g->tolerance && fabs(last - 1) <= 0x1p-8);
    }
}

static void byte_when_changed_then_is_noticed(void **state)
{
    (void)state;
    for (int i = 0; i < GOLDEN_COUNT; i++) {
        for (int file = 0; file < FILE_COUNT; file++) {
            copy_golden(&goldens[i]);
            change_byte(files[file].name, 0, false);
            assert_noticed(is_as_it_was_saved(&goldens[i], CUT), "checksum");
            if (i >= FIRST_COUNT) /* checksums of blocks, too, tell that a file is another one */
                continue;
            copy_golden(&goldens[i]);
            change_byte(files[file].name, 1000 + 4000 * (size_t)i, true);
            assert_noticed(is_as_it_was_saved(&goldens[i], CUT), "has other bytes");
            assert_has(fault, files[file].name);
        }
    }
}

static void schedule_when_off_by_one_step_then_is_noticed(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after, *part;
    } edits[] = {{"\"step\": 6", "\"step\": 5", "step is"},
                 {"\"next_row\": 36", "\"next_row\": 30", "loss is"}};
    for (int i = 0; i < GOLDEN_COUNT; i++) {
        for (size_t edit = 0; edit < sizeof edits / sizeof edits[0]; edit++) {
            copy_golden(&goldens[i]);
            edit_manifest(edits[edit].before, edits[edit].after);
            assert_noticed(is_as_it_was_saved(&goldens[i], CUT), " is ");
            if (edit == 0)
                assert_int_equal(rename(CUT, "cut/step-00000005"), 0);
            assert_noticed(goes_on(&goldens[i], ""), edits[edit].part);
        }
        copy_golden(&goldens[i]);
        assert_noticed(goes_on(&goldens[i], "--steps 13"), "lr is");
    }
}

static void loss_scale_when_it_starts_anew_then_is_noticed(void **state)
{
    (void)state;
    static const char good[] = "\"loss_scale_good_steps\": 5",
                      none[] = "\"loss_scale_good_steps\": 0";
    copy_golden(&goldens[FP16]);
    edit_manifest("\"loss_scale\": 32768.0", "\"loss_scale\": 65536.0");
    assert_noticed(is_as_it_was_saved(&goldens[FP16], CUT), "loss_scale is");
    assert_noticed(goes_on(&goldens[FP16], ""), "loss_scale is 65536");
    copy_golden(&goldens[FP16]);
    edit_manifest(good, none);
    assert_noticed(is_as_it_was_saved(&goldens[FP16], CUT), "loss_scale_good_steps is");
    assert_noticed(goes_on(&goldens[FP16], ""), "loss_scale_good_steps is");
}

static int set_up_copies(void **state)
{
    if (set_up(state) != 0 ||
        system("cp -r '" SL_TEST_SOURCE_DIRECTORY "/golden/.' . && chmod -R u+w .") != 0)
        return 1;
    for (int i = 0; i < GOLDEN_COUNT; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.json", goldens[i].name);
        goldens[i].expected = json_load_file(name, JSON_REJECT_DUPLICATES, NULL);
        if (!goldens[i].expected)
            return 1;
    }
    return 0;
}

static int tear_down_copies(void **state)
{
    for (int i = 0; i < GOLDEN_COUNT; i++)
        json_decref(goldens[i].expected);
    return tear_down(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoint_when_loaded_then_is_as_it_was_saved),
        cmocka_unit_test(run_when_resumed_then_goes_on_as_it_did),
        cmocka_unit_test(run_when_resumed_without_options_then_goes_on_as_it_did),
        cmocka_unit_test(run_when_resumed_with_another_type_then_says_what_changed),
        cmocka_unit_test(byte_when_changed_then_is_noticed),
        cmocka_unit_test(schedule_when_off_by_one_step_then_is_noticed),
        cmocka_unit_test(loss_scale_when_it_starts_anew_then_is_noticed),
    };
    return cmocka_run_group_tests(tests, set_up_copies, tear_down_copies);
}
