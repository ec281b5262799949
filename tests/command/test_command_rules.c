/* What could be wrong with `train --optimizer` and `--rule` as a user has them: a policy gives
 * other numbers, or takes more memory than was planned; files of a checkpoint lack a state or hold
 * one that no rule has; a run that is stopped and goes on has other numbers; one that goes on by
 * another rule takes a state for something else, in silence; a program before there were rules
 * would read such a checkpoint; masters in two halves have other numbers than masters in fp32, or
 * lose them on the way from one to the other; weights of it are not evaluated or begun with;
 * learning rates of patterns are missing in the log. Every case runs the built command and reads
 * the files that it saved. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>

#include "command_run.h"

#include "files/safetensors.h"

#define RUN                                                                                        \
    TINY "--data text --seed 5 --device cpu --threads 1 --device-memory 64M --host-memory 64M "    \
         "--quiet "

/* adamw: ln_f, wpe and vectors of blocks; lion: attention; momentum: wte; frozen: an MLP; muon: the
 * matrices of another. */
#define MIXED                                                                                      \
    "--rule 'h.*.attn.*=lion' 'wte.*=sgd' 'h.1.mlp.*=none' 'h.0.mlp.*.weight=muon' "               \
    "--momentum 0.9 --nesterov "                                                                   \
    "--lr-of 'h.*.attn.*=0.1' 'wte.*=3' --decay-of '*.bias=0.2' "

#define HALVES "--precision bf16 --master-type low "

/* Behind it: rules whose states may be small. */
#define SMALL "--rule 'h.0.mlp.*=lion' "

static void shell(const char *command)
{
    if (system(command) != 0)
        fail_msg("%s", command);
}

static void assert_same_bytes(const char *left, const char *right)
{
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command, "cmp %s %s >&2", left, right);
    shell(command);
}

static void assert_same_files(const char *left, const char *right)
{
    static const char *const names[] = {"model", "moment1", "moment2"};
    for (int i = 0; i < 3; i++) {
        char paths[2][PATH_BYTES];
        snprintf(paths[0], sizeof paths[0], "%s/%s.safetensors", left, names[i]);
        snprintf(paths[1], sizeof paths[1], "%s/%s.safetensors", right, names[i]);
        assert_same_bytes(paths[0], paths[1]);
    }
}

static uint32_t count_tensors(const char *directory, const char *name)
{
    char path[PATH_BYTES];
    sl_safetensors *file = NULL;
    snprintf(path, sizeof path, "%s/%s.safetensors", directory, name);
    if (access(path, F_OK) != 0)
        return 0;
    if (sl_safetensors_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &file) != SL_OK)
        fail_msg("%s", sl_status_message());
    const uint32_t count = file->tensor_count;
    sl_safetensors_close(file);
    return count;
}

static json_t *read_manifest(const char *directory)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/manifest.json", directory);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    return root;
}

static void train_when_placed_elsewhere_then_has_the_same_numbers(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "--policy device", "--policy host --accumulate 2 --micro-batch 1 --recompute full",
        "--policy nvme --disk-dir disk --nvme-params 1 --nvme-grads 1",
        "--policy static --offload-optimizer 0.5 --adam host --chunk-size 8192"};
    shell("mkdir -m 700 -p disk");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        shell("rm -rf way");
        assert_code(
            sluice("train " RUN MIXED "--steps 6 --save way --log-json way.json %s", ways[i]), 0);
        json_t *log = read_log("way.json");
        assert_peaks_as_planned(log);
        json_decref(log);
        if (i != 1) /* two micro-batches are other sums */
            assert_same_files("way/step-00000006", "whole/step-00000006");
    }
    shell("rmdir disk");
}

static void checkpoint_when_rules_have_fewer_states_then_holds_those_alone(void **state)
{
    (void)state;
    const char *const one = "whole/step-00000006";
    json_t *manifest = read_manifest(one);
    const json_t *rules = json_object_get(manifest, "rules");
    assert_int_equal(count_tensors(one, "moment1"), 28 - 4);
    assert_int_equal(count_tensors(one, "moment2"), 28 - 4 - 8 - 1 - 2);
    assert_int_equal(json_integer_value(json_object_get(manifest, "format_version")), 4);
    assert_int_equal(json_object_size(rules), 11);
    assert_string_equal(json_string_value(json_object_get(rules, "wte.weight")), "momentum");
    json_decref(manifest);
    assert_code(sluice("train " RUN "--optimizer sgd --steps 2 --save plain"), 0);
    assert_int_equal(count_tensors("plain/step-00000002", "moment1"), 0);
    assert_code(sluice("train --resume --save plain --steps 3 --quiet"), 0);
    assert_code(sluice("train " RUN "--steps 1 --save adamw"), 0);
    manifest = read_manifest("adamw/step-00000001");
    assert_int_equal(json_integer_value(json_object_get(manifest, "format_version")), 1);
    assert_null(json_object_get(manifest, "rules"));
    json_decref(manifest);
}

static void resume_when_rules_are_mixed_then_goes_on_bit_for_bit(void **state)
{
    (void)state;
    shell("rm -rf cut && mkdir cut && cp -r whole/step-00000003 cut/");
    assert_code(sluice("train --resume --save cut --steps 6 --quiet --log-json rest.json"), 0);
    assert_same_steps("whole.json", "rest.json", 4, 6);
    assert_same_files("whole/step-00000006", "cut/step-00000006");
}

static void resume_when_a_rule_is_another_then_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const ways[][2] = {
        {"--optimizer lion", "\"h.0.ln_1.bias\" was updated by adamw there and is by lion now"},
        {"--rule 'h.*.attn.*=lion' 'wte.*=sgd'",
         "\"h.0.mlp.c_fc.weight\" was updated by muon there and is by adamw now"},
        {"--rule 'h.*.attn.*=lion' 'wte.*=lion' 'h.0.mlp.*.weight=muon' --momentum 0",
         "\"wte.weight\" was updated by momentum there and is by lion now"},
        {"--momentum 0", "\"wte.weight\" was updated by momentum there and is by sgd now"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        shell("rm -rf cut && mkdir cut && cp -r whole/step-00000003 cut/");
        assert_code(sluice("train --resume --save cut --steps 4 --set nesterov=false --quiet %s",
                           ways[i][0]),
                    64);
        assert_has(complaint, ways[i][1]);
        assert_has(complaint, "--init");
    }
    assert_code(sluice("train " RUN "--optimizer lion --init whole/step-00000003 --steps 1"), 0);
    /* What was frozen may begin to be trained, and its states begin at zero. */
    assert_code(sluice("train --resume --save cut --steps 4 --quiet "
                       "--rule 'h.*.attn.*=lion' 'wte.*=sgd' 'h.0.mlp.*.weight=muon'"),
                0);
    assert_int_equal(count_tensors("cut/step-00000004", "moment1"), 28);
}

static void checkpoint_when_of_other_rules_then_is_evaluated(void **state)
{
    (void)state;
    assert_code(sluice("eval whole --data text --device cpu --json"), 0);
    assert_has(output, "\"loss\"");
}

static void log_when_rates_differ_then_names_them(void **state)
{
    (void)state;
    json_t *log = read_log("whole.json");
    const json_t *step = find_last_event(log, "step"), *rates = json_object_get(step, "lr_of");
    const double rate = json_number_value(json_object_get(step, "lr"));
    assert_int_equal(json_object_size(rates), 2);
    const double own = json_number_value(json_object_get(rates, "h.*.attn.*"));
    assert_true(fabs(own / (0.1 * rate) - 1) < 1e-6);
    json_decref(log);
    assert_code(sluice("train " RUN "--steps 1 --log-json alike.json"), 0);
    log = read_log("alike.json");
    assert_null(json_object_get(find_last_event(log, "step"), "lr_of"));
    json_decref(log);
}

/* A factor of all tensors is that of --lr, and a decay of all is --weight-decay, to the bit. */
static void train_when_all_tensors_have_a_rate_then_is_that_of_the_run(void **state)
{
    (void)state;
    static const char *const rules[] = {"adamw", "lion", "sgd --momentum 0.9", "sgd", "muon"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        shell("rm -rf left right");
        assert_code(sluice("train " RUN "--optimizer %s --steps 3 --lr 0.004 --weight-decay 0.25 "
                           "--lr-of '*=0.25' --decay-of '*.weight=0' --save left",
                           rules[i]),
                    0);
        assert_code(sluice("train " RUN "--optimizer %s --steps 3 --lr 0.001 --weight-decay 0 "
                           "--save right",
                           rules[i]),
                    0);
        shell("cmp left/step-00000003/model.safetensors right/step-00000003/model.safetensors >&2");
    }
}

/* Overflows skip some of the first steps: no state may move, and both precisions of a start do. */
static void train_when_steps_are_skipped_then_goes_on_bit_for_bit(void **state)
{
    (void)state;
    shell("rm -rf fp16 cut16");
    assert_code(sluice("train " RUN MIXED "--precision fp16 --loss-scale-start 1e9 --steps 20 "
                       "--save fp16 --save-every 10 --log-json fp16.json"),
                0);
    json_t *log = read_log("fp16.json");
    assert_true(json_integer_value(json_object_get(find_last_event(log, "end"), "skipped_steps")) >
                2);
    json_decref(log);
    shell("mkdir cut16 && cp -r fp16/step-00000010 cut16/");
    assert_code(sluice("train --resume --save cut16 --steps 20 --policy host --quiet"), 0);
    assert_same_files("fp16/step-00000020", "cut16/step-00000020");
}

/* Of states in bf16, whose rounding is drawn, and in codes of 8 bits, whose blocks are of no length
 * that a disk takes. */
static void train_when_states_are_small_then_has_the_same_numbers(void **state)
{
    (void)state;
    static const char *const types[] = {"bf16", "int8"};
    assert_code(sluice("train " RUN MIXED "--state-type bf16 --steps 1"), 64);
    assert_one_complaint("muon stores its mean in fp32 alone");
    shell("mkdir -m 700 -p disk");
    for (int i = 0; i < 2; i++) {
        shell("rm -rf one way cut");
        assert_code(sluice("train " RUN MIXED SMALL
                           "--state-type %s --steps 4 --save one --save-every 2 "
                           "--keep 0 --policy device",
                           types[i]),
                    0);
        assert_code(sluice("train " RUN MIXED SMALL
                           "--state-type %s --steps 4 --save way --policy nvme "
                           "--disk-dir disk --adam device --chunk-size 8192 --log-json way.json",
                           types[i]),
                    0);
        json_t *log = read_log("way.json");
        assert_peaks_as_planned(log);
        json_decref(log);
        assert_same_files("one/step-00000004", "way/step-00000004");
        shell("mkdir cut && cp -r one/step-00000002 cut/");
        assert_code(sluice("train --resume --save cut --steps 4 --quiet --policy host"), 0);
        assert_same_files("one/step-00000004", "cut/step-00000004");
    }
    /* Another type may go on: a checkpoint holds numbers. */
    assert_code(sluice("train --resume --save cut --steps 5 --quiet --state-type fp32"), 0);
    assert_code(sluice("plan --resume --save cut --device cpu"), 0);
    shell("rmdir disk");
}

/* Bytes of a kind of memory that a plan has on the host. */
static json_int_t read_planned(const char *options, const char *kind)
{
    assert_code(sluice("plan " TINY "--seq 16 --device cpu --device-memory 64M --host-memory 64M "
                       "--policy host --precision bf16 --chunk-size 8192 --json %s",
                       options),
                0);
    json_t *object = json_loads(output, 0, NULL);
    const json_t *host = json_object_get(json_object_get(object, "tiers"), "host");
    const json_t *bytes = json_object_get(host, kind);
    assert_true(json_is_integer(bytes));
    const json_int_t count = json_integer_value(bytes);
    json_decref(object);
    return count;
}

static void plan_when_masters_are_halves_then_has_half_the_bytes(void **state)
{
    (void)state;
    const json_int_t fp32 = read_planned("", "master");
    assert_true(fp32 > 0);
    assert_int_equal(2 * read_planned("--master-type low", "master"), fp32);
    assert_int_equal(read_planned("--master-type low", "param"), read_planned("", "param"));
}

/* Masters are the same numbers. A parameter that lies exactly between two of bf16 may be the other
 * one: a unit, of at most 2^-7 of the parameter, in one of 65,536. A loss that changes by as much
 * as one of them, and by more in few steps, has other masters. */
static void train_when_masters_are_halves_then_learns_as_beside_fp32(void **state)
{
    (void)state;
    assert_code(sluice("train " RUN MIXED HALVES "--steps 8 --log-json halves.json"), 0);
    assert_code(sluice("train " RUN MIXED "--precision bf16 --steps 8 --log-json whole16.json"), 0);
    json_t *halves = read_log("halves.json"), *whole = read_log("whole16.json");
    for (json_int_t step = 1; step <= 8; step++) {
        const double loss = find_step(halves, step).loss, expected = find_step(whole, step).loss;
        assert_true(fabs(loss - expected) <= 0x1p-8 * expected);
    }
    assert_true(find_step(halves, 8).loss < find_step(halves, 1).loss);
    json_decref(halves);
    json_decref(whole);
}

/* The master is the number, the parameter what is computed with: both in every placement, in a run
 * that goes on, and beside another type of the master. */
static void train_when_masters_are_halves_then_has_the_same_numbers(void **state)
{
    (void)state;
    shell("rm -rf one way cut && mkdir -m 700 -p disk");
    assert_code(sluice("train " RUN MIXED HALVES "--steps 4 --save one --save-every 2 --keep 0 "
                       "--policy device --log-json one.json"),
                0);
    assert_code(sluice("train " RUN MIXED HALVES "--steps 4 --save way --policy nvme --disk-dir "
                       "disk --nvme-params 1 --adam device --chunk-size 8192 --log-json way.json"),
                0);
    json_t *log = read_log("way.json");
    assert_peaks_as_planned(log);
    json_decref(log);
    assert_same_files("one/step-00000004", "way/step-00000004");
    shell("mkdir cut && cp -r one/step-00000002 cut/");
    assert_code(sluice("train --resume --save cut --steps 4 --quiet --policy host"), 0);
    assert_same_files("one/step-00000004", "cut/step-00000004");
    shell("rmdir disk");
}

/* A checkpoint holds the masters: another type takes them as they are, and gives them back. Steps
 * of a rate of 0 leave them alone. */
static void resume_when_masters_are_of_another_type_then_keeps_the_numbers(void **state)
{
    (void)state;
    static const char *const types[] = {"low", "fp32", "low"};
    shell("rm -rf cut");
    assert_code(sluice("train " RUN MIXED "--precision bf16 --steps 2 --save cut --keep 0"), 0);
    for (int i = 0; i < 3; i++) {
        char next[PATH_BYTES];
        snprintf(next, sizeof next, "cut/step-%08d/model.safetensors", 3 + i);
        assert_code(sluice("train --resume --save cut --keep 0 --steps %d --lr 0 --min-lr 0 "
                           "--master-type %s",
                           3 + i, types[i]),
                    0);
        assert_has(complaint, "--master-type");
        assert_same_bytes("cut/step-00000002/model.safetensors", next);
    }
}

static void train_when_masters_cannot_be_halves_then_refuses_by_name(void **state)
{
    (void)state;
    static const char *const precisions[] = {"fp32", "fp16"};
    for (int i = 0; i < 2; i++) {
        assert_code(
            sluice("train " RUN "--steps 1 --master-type low --precision %s", precisions[i]), 64);
        assert_one_complaint("give --precision bf16, or leave --master-type out");
    }
    assert_code(sluice("train " RUN "--steps 1 --master-type low"), 64); /* on the cpu fp32 */
    assert_code(sluice("plan " TINY "--device cpu --master-type bf16"), 64);
}

/* Six steps that other cases are compared with. */
static int set_up_runs(void **state)
{
    if (set_up(state) != 0)
        return 1;
    assert_code(sluice("train " RUN MIXED "--steps 6 --save whole --save-every 3 --keep 0 "
                       "--log-json whole.json"),
                0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train_when_placed_elsewhere_then_has_the_same_numbers),
        cmocka_unit_test(checkpoint_when_rules_have_fewer_states_then_holds_those_alone),
        cmocka_unit_test(resume_when_rules_are_mixed_then_goes_on_bit_for_bit),
        cmocka_unit_test(resume_when_a_rule_is_another_then_is_refused_by_name),
        cmocka_unit_test(checkpoint_when_of_other_rules_then_is_evaluated),
        cmocka_unit_test(log_when_rates_differ_then_names_them),
        cmocka_unit_test(train_when_steps_are_skipped_then_goes_on_bit_for_bit),
        cmocka_unit_test(train_when_states_are_small_then_has_the_same_numbers),
        cmocka_unit_test(plan_when_masters_are_halves_then_has_half_the_bytes),
        cmocka_unit_test(train_when_masters_are_halves_then_learns_as_beside_fp32),
        cmocka_unit_test(train_when_masters_are_halves_then_has_the_same_numbers),
        cmocka_unit_test(resume_when_masters_are_of_another_type_then_keeps_the_numbers),
        cmocka_unit_test(train_when_masters_cannot_be_halves_then_refuses_by_name),
        cmocka_unit_test(train_when_all_tensors_have_a_rate_then_is_that_of_the_run),
    };
    return cmocka_run_group_tests(tests, set_up_runs, tear_down);
}
