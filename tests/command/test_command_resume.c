/* What could be wrong with a run that is stopped and goes on: in some precision or under some
 * policy a number is not saved, saved rounded or loaded into the wrong place; the loss scale starts
 * anew; what lay on disk is forgotten; a checkpoint of another precision is not taken; after some
 * step something is not at its home yet. A run in one piece is compared, log and files, with ones
 * that were cut after a step under one policy and went on under another: after every step of fifty,
 * for six placements, three types, several rules at once, small states and masters in two
 * halves, in the full run. Every
 * case runs the built command.
 */
#define _GNU_SOURCE
#include "command_run.h"
#include "scratch_dir.h"

static char memory_directory[64];

/* --precision, and what else changes the numbers: three types, rules, small states, masters in two
 * halves. */
static const char *const kinds[] = {
    "fp32",
    "bf16",
    "fp16",
    ("fp32 --rule 'h.*.attn.*=lion' 'wte.*=sgd' 'h.0.mlp.*.weight=muon' 'h.1.ln_2.*=none' "
     "--momentum 0.9 --nesterov --lr-of 'h.*.attn.*=0.1'"),
    "bf16 --rule 'h.0.*=lion' --state-type int8",
    "bf16 --rule 'h.1.mlp.*.weight=muon' 'wpe.*=sgd' --master-type low"};

static const char *const ways[] = {
    "--policy device",
    "--policy nvme --disk-dir disk --nvme-params 1 --nvme-grads 1",
    ("--policy static --disk-dir disk disk2 --nvme-params 0.5 --offload-optimizer 0.3 "
     "--nvme-optimizer 0.4 --chunk-size 9000"),
    "--policy host",
    ("--policy static --offload-params 0.5 --offload-grads 0.4 --offload-optimizer 0.6 "
     "--nvme-params 0 --nvme-optimizer 0"), /* else those of the checkpoint */
    "--policy nvme --disk-dir disk --recompute full --threads 1",
};

enum {
    WAY_COUNT = sizeof ways / sizeof ways[0],
    PRECISION_COUNT = 3,
    KIND_COUNT = sizeof kinds / sizeof kinds[0]
};

static const char common[] = TINY "--data text --quiet --seed 5";

enum { LAST = 12, LONG_LAST = 50 };

static void make_directories(void)
{
    assert_int_equal(system("mkdir -m 700 -p disk disk2"), 0);
}

static void assert_same_files(const char *left, const char *right)
{
    static const char *const names[] = {"model", "moment1", "moment2"};
    for (int i = 0; i < 3; i++) {
        char command[COMMAND_BYTES];
        snprintf(command, sizeof command, "cmp %s/%s.safetensors %s/%s.safetensors >&2", left,
                 names[i], right, names[i]);
        if (system(command) != 0)
            fail_msg("%s of %s and %s differ", names[i], left, right);
    }
}

/* Counters of a manifest that a precise resume needs, as text. */
static void assert_same_counters(const char *left, const char *right)
{
    static const char *const keys[] = {"step",          "tokens_total", "next_row",
                                       "skipped_steps", "loss_scale",   "loss_scale_good_steps",
                                       "precision"};
    const char *const directories[2] = {left, right};
    json_t *root[2];
    for (int i = 0; i < 2; i++) {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s/manifest.json", directories[i]);
        root[i] = json_load_file(path, 0, NULL);
        assert_non_null(root[i]);
    }
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        assert_non_null(json_object_get(root[0], keys[i]));
        if (!json_equal(json_object_get(root[0], keys[i]), json_object_get(root[1], keys[i])))
            fail_msg("%s of %s and %s differ", keys[i], left, right);
    }
    json_decref(root[0]);
    json_decref(root[1]);
}

static json_int_t read_counter(const char *directory, const char *key)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/manifest.json", directory);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    json_int_t value = json_integer_value(json_object_get(root, key));
    json_decref(root);
    return value;
}

/* Leaves the checkpoint made/step-5 of a run under `way`, as if it had been stopped there. */
static void make_cut(const char *kind, const char *way)
{
    assert_int_equal(system("rm -rf made"), 0);
    assert_code(sluice("train %s --steps %d --precision %s %s --save made --save-every 5 --keep 3",
                       common, LAST, kind, way),
                0);
    assert_int_equal(system("rm -rf made/step-00000012 made/step-00000010"), 0);
}

/* Goes on from a copy of `directory`/step-`step` to step `last`. */
static void go_on(const char *directory, int step, int last, const char *kind, const char *way)
{
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command,
             "rm -rf cut went-on.json && mkdir cut && cp -r %s/step-%08d cut/", directory, step);
    assert_int_equal(system(command), 0);
    assert_code(sluice("train %s --steps %d --precision %s %s --save cut --resume "
                       "--log-json went-on.json",
                       common, last, kind, way),
                0);
}

static void assert_as_if_never_cut(int step, int last)
{
    char whole[PATH_BYTES], cut[PATH_BYTES];
    snprintf(whole, sizeof whole, "whole/step-%08d", last);
    snprintf(cut, sizeof cut, "cut/step-%08d", last);
    assert_same_steps("whole.json", "went-on.json", step + 1, last);
    assert_same_files(whole, cut);
    assert_same_counters(whole, cut);
}

/* From one checkpoint of each step of a run under `way`: all of them, or two that are drawn. Each
 * goes on under another placement than the one before. */
static uint64_t resume_after_steps(const char *kind, int way, uint64_t *random)
{
    const uint64_t count = scratch_count(2, LONG_LAST - 1);
    assert_int_equal(system("rm -rf made"), 0);
    assert_code(sluice("train %s --steps %d --precision %s %s --save made --save-every 1", common,
                       LONG_LAST, kind, ways[way]),
                0);
    assert_same_files("whole/step-00000050", "made/step-00000050");
    for (uint64_t i = 1; i <= count; i++) {
        int drawn = 1 + (int)scratch_below(random, LONG_LAST - 1);
        int step = count == LONG_LAST - 1 ? (int)i : drawn;
        go_on("made", step, LONG_LAST, kind, ways[(way + step) % WAY_COUNT]);
        assert_as_if_never_cut(step, LONG_LAST);
    }
    return count;
}

static void resume_when_cut_after_any_step_then_goes_on_bit_for_bit(void **state)
{
    (void)state;
    uint64_t random = scratch_seed("resume", 7) * 2685821657736338717ull + 1, count = 0;
    make_directories();
    for (int i = 0; i < KIND_COUNT; i++) {
        assert_int_equal(system("rm -rf whole whole.json"), 0);
        assert_code(sluice("train %s --steps %d --precision %s --save whole --log-json whole.json",
                           common, LONG_LAST, kinds[i]),
                    0);
        for (int way = 0; way < WAY_COUNT; way++)
            if (way % KIND_COUNT == i || scratch_count(0, 1))
                count += resume_after_steps(kinds[i], way, &random);
    }
    print_message("%llu runs went on\n", (unsigned long long)count);
    assert_int_equal(system("rmdir disk disk2"), 0); /* nothing was left in them */
}

/* At this learning rate the gradients leave fp16 after the first step: steps 2 to 5 are skipped,
 * the next two are not, and all that follow are: no skipped one lowers the rate. */
static void resume_when_steps_were_skipped_then_the_loss_scale_goes_on(void **state)
{
    (void)state;
    make_directories();
    assert_int_equal(system("rm -rf whole whole.json"), 0);
    assert_code(sluice("train %s --steps %d --precision fp16 --lr 3 --save whole --save-every 3 "
                       "--keep 0 --log-json whole.json",
                       common, LAST),
                0);
    assert_int_equal(read_counter("whole/step-00000003", "skipped_steps"), 2);
    assert_int_equal(read_counter("whole/step-00000009", "skipped_steps"), 6);
    for (int step = 3; step < LAST; step += 3) {
        go_on("whole", step, LAST, "fp16 --lr 3", ways[1]);
        assert_as_if_never_cut(step, LAST);
    }
}

/* What was saved is taken as it is (test_checkpoint_types.c); the numbers are the new precision's
 * from there on. */
static void resume_when_in_another_precision_then_goes_on(void **state)
{
    (void)state;
    make_directories();
    for (int from = 0; from < PRECISION_COUNT; from++) {
        make_cut(kinds[from], ways[0]);
        for (int to = 0; to < PRECISION_COUNT; to++) {
            if (to == from)
                continue;
            go_on("made", 5, LAST, kinds[to], ways[1]);
            assert_int_equal(access("cut/step-00000012/manifest.json", F_OK), 0);
        }
    }
}

/* In memory where that can be: saves wait long for a busy disk. */
static int set_up_in_memory(void **state)
{
    char command[COMMAND_BYTES];
    int status = set_up(state);
    if (status != 0 || access("/dev/shm", W_OK) != 0)
        return status;
    snprintf(memory_directory, sizeof memory_directory, "/dev/shm/sluice-command-XXXXXX");
    if (!mkdtemp(memory_directory))
        return 1;
    snprintf(command, sizeof command, "cp text %s/", memory_directory);
    return system(command) == 0 && chdir(memory_directory) == 0 ? 0 : 1;
}

static int tear_down_memory(void **state)
{
    char command[PATH_BYTES];
    snprintf(command, sizeof command, "rm -rf %s", memory_directory);
    if (memory_directory[0] && (chdir("/") != 0 || system(command) != 0))
        return 1;
    return tear_down(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resume_when_cut_after_any_step_then_goes_on_bit_for_bit),
        cmocka_unit_test(resume_when_steps_were_skipped_then_the_loss_scale_goes_on),
        cmocka_unit_test(resume_when_in_another_precision_then_goes_on),
    };
    return cmocka_run_group_tests(tests, set_up_in_memory, tear_down_memory);
}
