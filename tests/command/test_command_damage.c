/* What could be wrong where a checkpoint is damaged: bytes are loaded that are not those that were
 * compared with a checksum, so that a run has other numbers and nobody is told; damage that is
 * found only while loading ends a run that has a whole checkpoint to go on from, or changes what an
 * older one gives; of several ranks some go on from one checkpoint and the rest from another.
 *
 * A library that is loaded before the command changes one bit of one read (flipping_reads.c): of
 * each read of the checkpoint in turn, in a run that goes on, one that starts with the weights, one
 * that generates, one that evaluates and one that converts, with a checkpoint of today's manifest
 * and with one of an older version's, without checksums of blocks. Each run ends with the results
 * of a run without, or with 65 and the file's name. Damage on the disk is made here, in the block
 * of a file that only loading reads. Reduced: every third read, from a seed.
 */
#define _GNU_SOURCE
#include <stdbool.h>

#include "command_run.h"
#include "scratch_dir.h"
#include "sealed_manifest.h"
#include "skip.h"

/* Files of tensors of four blocks each. */
#define MODEL                                                                                      \
    "--device cpu --layers 1 --width 128 --heads 2 --context 32 --vocab 257 --seq 16 "             \
    "--micro-batch 1 --threads 1 --data text --seed 3 --lr-schedule constant --quiet "

typedef struct command_case {
    const char *name, *arguments;
    const char *results; /* what is compared, by the shell */
} command_case;

enum { RESUME, INIT, GENERATE, EVAL, CONVERT, CONVERT_HF, CASE_COUNT };

static const command_case cases[CASE_COUNT] = {
    {"resume", "train --resume --save now --quiet --steps 6 --log-json log",
     "grep -o '\"step\":6,\"loss\":[^,]*,\"grad_norm\":[^,]*' log && "
     "cat now/step-00000006/*.safetensors"},
    {"init", "train " MODEL "--init saved/step-00000004 --steps 1 --log-json log",
     "grep -o '\"loss\":[^,]*' log"},
    {"generate", "generate saved --device cpu --threads 1 --prompt the --tokens 20 --quiet",
     "cat out"},
    {"eval", "eval saved --device cpu --threads 1 --data little --json", "cat out"},
    {"convert", "convert --from saved --to made --format gguf --type fp32 --quiet", "cat made"},
    {"convert to Hugging Face's", "convert --from saved --to made --type bf16 --quiet",
     "cat made/*.safetensors"},
};

static void need_preloading(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip_because("a sanitizer's runtime has to be loaded before all others");
#endif
}

static void shell(const char *command)
{
    if (system(command) != 0)
        fail_msg("%s", command);
}

/* Runs a case with read number `at` changed (0: none) and returns its exit code; `*out_count` are
 * its reads of checkpoints. */
static int run_case(const command_case *it, long at, long *out_count)
{
    char text[TEXT_BYTES], number[32];
    shell("rm -rf now made log && echo 0 >reads && cp -r saved now");
    snprintf(number, sizeof number, "%ld", at);
    setenv("FLIP_AT", number, 1);
    setenv("LD_PRELOAD", FLIPPING_READS, 1);
    int code = sluice("%s", it->arguments);
    unsetenv("LD_PRELOAD");
    read_text("reads", text);
    *out_count = strtol(text, NULL, 10);
    return code;
}

static void keep_results(const command_case *it, const char *name)
{
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command, "(%s) >%s 2>&1", it->results, name);
    shell(command);
}

/* The same results; those of the checkpoint before where the newest is said to be passed over; or a
 * refusal that names what it read. What a save reads is its own. */
static void judge(const command_case *it, int code, long at)
{
    char changed[TEXT_BYTES];
    read_text("reads", changed);
    if (code == 0) {
        keep_results(it, "found");
        const bool is_older = strstr(complaint, "a checkpoint is passed over: ") != NULL;
        if (system(is_older ? "cmp -s older found" : "cmp -s expected found") != 0)
            fail_msg("%s: read %ld: %swas accepted, and the results are others: %s", it->name, at,
                     changed, complaint);
    } else if (!(code == 65 && strstr(complaint, "step-0000000")) &&
               !(code == 74 && strstr(complaint, "read back just after"))) {
        fail_msg("%s: read %ld: %scode %d: %s", it->name, at, changed, code, complaint);
    }
}

/* What the case gives without a change, of both checkpoints and of the older one alone. */
static void keep_expected(const command_case *it, long *out_count)
{
    long ignored;
    shell("rm -rf aside older && mv saved/step-00000004 aside");
    if (run_case(it, 0, &ignored) == 0)
        keep_results(it, "older");
    shell("mv aside saved/step-00000004");
    assert_code(run_case(it, 0, out_count), 0);
    keep_results(it, "expected");
}

/* What one rank of several reads as the others do not may also end the run: they do not begin with
 * the same checkpoint. */
static void judge_rank(const command_case *it, int code, long at)
{
    if (code != 64 || !strstr(complaint, "manifest.json"))
        judge(it, code, at);
}

static void flip_each_read(const command_case *it, uint64_t *seed)
{
    long count, ignored;
    const long stride = (long)scratch_count(3, 1);
    keep_expected(it, &count);
    assert_true(count >= 6); /* manifest, texts, header and blocks */
    int refused = 0;
    for (long at = 1 + (long)scratch_below(seed, (uint64_t)stride); at <= count; at += stride) {
        int code = run_case(it, at, &ignored);
        judge(it, code, at);
        refused += code != 0 || strstr(complaint, "checksum") || strstr(complaint, "passed over");
    }
    printf("%s: %ld reads, of those changed %d were noticed\n", it->name, count, refused);
}

static void read_when_bit_differs_then_refused_or_same_results(void **state)
{
    uint64_t seed = scratch_seed("damage", 11);
    (void)state;
    need_preloading();
    for (size_t i = 0; i < CASE_COUNT; i++)
        flip_each_read(&cases[i], &seed);
}

/* A manifest of an older version: its checksums of blocks have a name that nobody knows. */
static void make_old(const char *directory)
{
    for (int i = 0; i < 3; i++)
        sealed_edit(scratch_join(directory, "manifest.json").text, "\"block_xxh3_64\": \"",
                    "\"later_xxh3_64\": \"");
}

static void old_version_when_bit_differs_then_refused_or_same_results(void **state)
{
    uint64_t seed = scratch_seed("old damage", 12);
    (void)state;
    need_preloading();
    shell("cp -r saved kept");
    make_old("saved/step-00000002");
    make_old("saved/step-00000004");
    for (size_t i = 0; i < CASE_COUNT; i++)
        flip_each_read(&cases[i], &seed);
    shell("rm -rf saved && mv kept saved");
}

/* ---- damage on the disk, in a block that only loading reads ---- */

static void damage(const char *path)
{
    enum { OFFSET = 700000 };
    FILE *file = fopen(path, "r+b");
    assert_true(file && fseek(file, OFFSET, SEEK_SET) == 0);
    int byte = fgetc(file);
    assert_true(byte != EOF && fseek(file, OFFSET, SEEK_SET) == 0);
    fputc(byte ^ 4, file);
    assert_int_equal(fclose(file), 0);
}

/* With a file of the newest checkpoint damaged a case gives what it gives of the one before. */
static void expect_older(const command_case *it, const char *file)
{
    char path[PATH_BYTES];
    long count;
    keep_expected(it, &count);
    shell("rm -rf kept && cp -r saved kept");
    snprintf(path, sizeof path, "saved/step-00000004/%s", file);
    damage(path);
    int code = run_case(it, 0, &count);
    shell("rm -rf saved && mv kept saved");
    assert_code(code, 0);
    keep_results(it, "found");
    if (system("cmp -s older found") != 0)
        fail_msg("%s: not the results of the checkpoint before: %s", it->name, complaint);
    assert_has(complaint, "bytes at offset 524288, but ");
    assert_has(complaint, "starting over: checkpoints are read in full before one is taken");
    assert_has(complaint, "a checkpoint is passed over: ");
}

static void newest_when_damage_is_found_in_loading_then_the_one_before(void **state)
{
    (void)state;
    need_preloading();
    expect_older(&cases[RESUME], "moment2.safetensors");
    for (size_t i = GENERATE; i < CASE_COUNT; i++)
        expect_older(&cases[i], "model.safetensors");
}

static void only_one_when_damaged_then_refused_by_name(void **state)
{
    (void)state;
    shell("rm -rf one && cp -r saved one && rm -rf one/step-00000002");
    damage("one/step-00000004/moment1.safetensors");
    assert_code(sluice("train --resume --save one --steps 6"), 66);
    assert_has(complaint, "moment1.safetensors: checksum is");
    assert_has(complaint, "one: holds no valid checkpoint (1 invalid)");
    assert_code(sluice("train " MODEL "--init one --steps 1"), 0); /* its weights are whole */
    damage("one/step-00000004/model.safetensors");
    assert_code(sluice("train " MODEL "--init one/step-00000004 --steps 1"), 65);
    assert_has(complaint, "model.safetensors: checksum is");
}

/* ---- values that are not finite ---- */

/* One step makes them of finite ones, and no loss or gradient is computed with them. */
static void weights_when_not_finite_then_not_saved_and_the_last_ones_stay(void **state)
{
    (void)state;
    shell("rm -rf now && cp -r saved now && rm -rf now/step-00000002");
    assert_code(sluice("train --resume --save now --keep 1 --steps 5 --quiet --lr 1e38 "
                       "--weight-decay 1e6 --clip 0"),
                76);
    assert_has(complaint, "holds a value that is not finite: it is not saved");
    shell("test ! -e now/step-00000005 && cmp now/step-00000004/manifest.json "
          "saved/step-00000004/manifest.json");
    assert_code(sluice("train --resume --save now --keep 1 --steps 5 --quiet"), 0);
}

/* ---- of several ranks ---- */

static const command_case of_ranks[] = {
    {"two tensor ranks",
     "launch -n 2 -- train --resume --save now --quiet --steps 6 --tp 2 --log-json log",
     "grep -o '\"step\":6,\"loss\":[^,]*,\"grad_norm\":[^,]*' log && "
     "cat now/step-00000006/*.safetensors"},
    {"two data ranks",
     "launch -n 2 -- train --resume --save now --quiet --steps 6 --zero 3 --micro-batch 1 "
     "--accumulate 1 --log-json log",
     "grep -o '\"step\":6,\"loss\":[^,]*,\"grad_norm\":[^,]*' log && "
     "cat now/step-00000006/*.safetensors"},
};

/* What one rank reads otherwise ends with the same start of all. */
static void flip_in_one(const command_case *it, uint64_t *seed)
{
    enum { DRAWS = 4 };
    long count, ignored;
    keep_expected(it, &count);
    setenv("FLIP_RANK", "1", 1);
    assert_code(run_case(it, 0, &count), 0);
    for (int i = 0; i < DRAWS; i++) {
        const long at = 1 + (long)scratch_below(seed, (uint64_t)count);
        judge_rank(it, run_case(it, at, &ignored), at);
    }
    unsetenv("FLIP_RANK");
}

static void ranks_when_one_finds_damage_then_all_start_over(void **state)
{
    uint64_t seed = scratch_seed("damage of ranks", 13);
    (void)state;
    need_preloading();
    for (size_t i = 0; i < sizeof of_ranks / sizeof of_ranks[0]; i++) {
        expect_older(&of_ranks[i], "moment1.safetensors");
        flip_in_one(&of_ranks[i], &seed);
    }
}

static int begin(void **state)
{
    if (set_up(state) != 0)
        return -1;
    shell("head -c 500 text >little");
    return sluice("train " MODEL "--steps 4 --save-every 2 --save saved");
}

int main(void)
{
    setenv("FLIP_PATH", "step-0000000", 1);
    setenv("FLIP_COUNT", "reads", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_when_bit_differs_then_refused_or_same_results),
        cmocka_unit_test(old_version_when_bit_differs_then_refused_or_same_results),
        cmocka_unit_test(newest_when_damage_is_found_in_loading_then_the_one_before),
        cmocka_unit_test(only_one_when_damaged_then_refused_by_name),
        cmocka_unit_test(weights_when_not_finite_then_not_saved_and_the_last_ones_stay),
        cmocka_unit_test(ranks_when_one_finds_damage_then_all_start_over),
    };
    return cmocka_run_group_tests(tests, begin, tear_down);
}
