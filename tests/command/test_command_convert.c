/* What could be wrong here: the command changes a model on its way through other formats, or its
 * text; it takes memory by the size of the model; a bad source, a full disk, a signal or a file
 * that may not grow crash it, leave something half-written or another exit code; a tokenizer that
 * is not the model's goes with it. Every case runs the built command. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "command_run.h"

#include "files/hostile_files.h"
#include "foreign/hostile_models.h"

#define GOOD SL_TEST_SOURCE_DIRECTORY "/reference/bpe"

static void run_shell(const char *command)
{
    if (system(command) != 0)
        fail_msg("%s", command);
}

static void assert_same_files(const char *a, const char *b)
{
    size_t a_bytes, b_bytes;
    char *a_data = scratch_read(a, &a_bytes), *b_data = scratch_read(b, &b_bytes);
    if (a_bytes != b_bytes || memcmp(a_data, b_data, a_bytes) != 0)
        fail_msg("%s and %s differ", a, b);
    free(a_data);
    free(b_data);
}

/* True if a name of the directory has `part` in it. */
static bool is_left(const char *part)
{
    bool found = false;
    DIR *stream = opendir(".");
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;)
        found = found || strstr(entry->d_name, part) != NULL;
    closedir(stream);
    return found;
}

static void train_once(void)
{
    if (access("saved", F_OK) == 0)
        return;
    assert_code(sluice("train " TINY "--vocab 700 --tokenizer '" GOOD "' --data text --steps 3 "
                       "--quiet --save saved"),
                0);
}

/* ---- there and back ---- */

static void model_when_handed_around_then_the_same_text(void **state)
{
    (void)state;
    char before[TEXT_BYTES];
    static const char say[] =
        "--prompt 'the lock' --tokens 20 --temperature 0 --precision fp32 --quiet";
    train_once();
    assert_code(sluice("convert --from saved --to hf"), 0);
    assert_has(output, "hf, fp32: 28 tensors, 4");
    assert_has(output, "parameters of a checkpoint, ");
    assert_has(output, "MB/s: hf\n");
    assert_code(sluice("convert --from hf --to a.bin --format llmc --quiet"), 0);
    assert_string_equal(output, "");
    assert_code(sluice("convert --from a.bin --to again --tokenizer '" GOOD "' --quiet"), 0);
    assert_same_files("hf/model.safetensors", "again/model.safetensors");
    assert_same_files("hf/vocab.json", "again/vocab.json");
    assert_same_files("hf/merges.txt", "again/merges.txt");
    assert_same_files("hf/config.json", "again/config.json");
    run_shell("test $(ls hf | wc -l) = 7 && test -s hf/generation_config.json");
    run_shell("test -s hf/tokenizer_config.json && test -s hf/special_tokens_map.json");
    run_shell("test -s a_tokenizer.bin");
    assert_code(sluice("generate saved %s", say), 0);
    memcpy(before, output, sizeof before);
    assert_code(sluice("generate again %s", say), 0);
    assert_string_equal(output, before);
    assert_code(sluice("convert --from saved/LATEST --to x"), 65);
    assert_code(sluice("convert --from saved/step-00000003 --to b.gguf --format gguf --type bf16"),
                0);
    run_shell("cp hf/config.json . && mkdir w");
    assert_code(sluice("convert --from hf --to w/model.safetensors --format weights --type bf16"),
                0);
    run_shell("cp config.json w");
    assert_code(
        sluice("train --init w --data text --tokenizer '" GOOD "' --steps 1 --seq 8 --quiet"), 0);
}

/* What reads a Hugging Face directory reads its shards. */
static void shards_when_asked_for_then_read_everywhere(void **state)
{
    (void)state;
    char before[TEXT_BYTES];
    static const char say[] =
        "--prompt 'the lock' --tokens 20 --temperature 0 --precision fp32 --quiet";
    train_once();
    assert_code(sluice("convert --from saved --to shards --shard-size 100K --quiet"), 0);
    run_shell("test -s shards/model.safetensors.index.json && test ! -e shards/model.safetensors");
    run_shell("test -s shards/model-00001-of-$(printf %05d $(ls shards | grep -c -- -of-))"
              ".safetensors && test $(ls shards | grep -c -- -of-) -gt 1");
    assert_code(sluice("generate saved %s", say), 0);
    memcpy(before, output, sizeof before);
    assert_code(sluice("generate shards %s", say), 0);
    assert_string_equal(output, before);
    assert_code(sluice("convert --from saved --to plain --quiet"), 0);
    assert_code(sluice("eval --checkpoint plain --data text --seq 8 --precision fp32 --quiet"), 0);
    memcpy(before, output, sizeof before);
    assert_code(sluice("eval --checkpoint shards --data text --seq 8 --precision fp32 --quiet"), 0);
    assert_string_equal(output, before);
    assert_code(sluice("train --init shards --data text --steps 1 --seq 8 --quiet"), 0);
    assert_code(sluice("convert --from shards --to whole --shard-size 0 --quiet"), 0);
    assert_same_files("whole/model.safetensors", "plain/model.safetensors");
    assert_code(sluice("convert --from plain --to shards --overwrite --quiet"), 0);
    run_shell("test -s shards/model.safetensors && ! ls shards | grep -e -of- -e index");
    assert_code(sluice("convert --from saved --to l --format llmc --shard-size 1M"), 64);
    assert_one_complaint("--shard-size is for --format hf");
    assert_false(is_left("tmp"));
}

static void tokenizer_when_known_then_it_goes_with_the_model(void **state)
{
    (void)state;
    train_once();
    assert_code(sluice("train " TINY "--data text --steps 1 --quiet --save bytes"), 0);
    assert_code(sluice("convert --from bytes --to b.gguf --format gguf --overwrite"), 0);
    assert_string_equal(complaint, "");
    run_shell("grep -qa 'tokenizer.ggml.merges' b.gguf && grep -qa '<|endoftext|>' b.gguf");
    assert_code(sluice("convert --from saved --to c --tokenizer byte"), 64);
    assert_one_complaint("is not that of the checkpoint");
    run_shell("rm -rf bare && mkdir bare && cp hf/config.json hf/model.safetensors bare");
    assert_code(sluice("convert --from bare --to c --format gguf"), 0);
    assert_has(complaint, "no vocabulary is known of this model");
    run_shell("grep -qa no_vocab c");
    assert_code(sluice("convert --from bytes --to d --tokenizer '" GOOD "'"), 64);
    run_shell("ln -s nowhere/model link");
    assert_code(sluice("convert --from bytes --to link --format gguf"), 64);
    assert_one_complaint("is a link to a place where nothing is");
    assert_code(sluice("convert --from bytes --to - --format gguf"), 64);
    assert_one_complaint("no text for standard output");
    assert_code(sluice("convert --from bytes --to ./- --format gguf"), 0);
    run_shell("test -f ./- && rm link ./-");
    assert_false(is_left("tmp"));
}

static void format_when_the_name_says_it_then_taken(void **state)
{
    (void)state;
    train_once();
    assert_code(sluice("convert --from saved --to named.gguf"), 0);
    assert_has(output, "gguf, fp32: ");
    assert_has(complaint, "--to ends in .gguf: the model is written as by --format gguf");
    assert_int_equal(system("test -f named.gguf && head -c 4 named.gguf | grep -q GGUF"), 0);
    assert_code(sluice("convert --from saved --to named.safetensors --quiet"), 0);
    assert_int_equal(system("test -f named.safetensors"), 0);
    assert_code(sluice("convert --from saved --to meant.gguf --format hf --quiet"), 0);
    assert_int_equal(system("test -d meant.gguf"), 0);
}

static void configuration_when_a_file_then_taken(void **state)
{
    (void)state;
    train_once();
    FILE *file = fopen("convert.json", "w");
    fputs("{\"tokenize\": {\"format\": \"megatron\"}, \"convert\": {\"from\": \"saved\", "
          "\"format\": \"gguf\", \"type\": \"q8_0\", \"to\": \"q\"}}",
          file);
    fclose(file);
    assert_code(sluice("convert --config convert.json"), 0);
    assert_has(output, "gguf, q8_0: ");
    assert_code(sluice("convert --config convert.json"), 64);
    assert_one_complaint("replace it with --overwrite");
    assert_code(sluice("convert --config convert.json --overwrite"), 0);
    assert_code(sluice("convert --from saved --to saved --overwrite"), 64);
    assert_one_complaint("is what is converted");
    assert_code(sluice("convert --from hf --to ./hf/ --overwrite"), 64);
    assert_code(sluice("convert --from hf --to hf/model.safetensors --format weights --type bf16 "
                       "--overwrite"),
                64);
    assert_one_complaint("is what is converted");
}

/* ---- pieces that nobody converts ---- */

static const char greedy[] = "--prompt 'the lock' --tokens 20 --temperature 0 --precision fp32 "
                             "--tokenizer '" GOOD "' --quiet";
static const char scored[] = "--data text --seq 8 --precision fp32 --tokenizer '" GOOD "' --quiet";

/* Text, score and the first step of a run that starts from a model. */
typedef struct outcome {
    char text[TEXT_BYTES], score[TEXT_BYTES];
} outcome;

static void try_model(const char *model, const char *saved, outcome *out_outcome)
{
    assert_code(sluice("generate %s %s", model, greedy), 0);
    memcpy(out_outcome->text, output, sizeof output);
    assert_code(sluice("eval --checkpoint %s %s", model, scored), 0);
    memcpy(out_outcome->score, output, sizeof output);
    assert_code(sluice("train --init %s --data text --tokenizer '" GOOD "' --steps 1 --seq 8 "
                       "--quiet --save %s --overwrite",
                       model, saved),
                0);
}

/* Pieces of any TP x PP are read as the model that convert makes of them. */
static void pieces_when_read_directly_then_as_converted(void **state)
{
    outcome one, other;
    (void)state;
    train_once();
    assert_code(sluice("train --layers 2 --width 32 --heads 4 --context 32 --micro-batch 2 --vocab "
                       "700 --tokenizer '" GOOD "' --data text --steps 2 --seq 8 --quiet "
                       "--save four"),
                0);
    assert_code(sluice("convert --from four --to one --quiet"), 0);
    try_model("one", "after-one", &one);
    for (int i = 0; i < 6; i++) {
        assert_code(sluice("convert --from one --to direct --format megatron --tp %d --pp %d "
                           "--overwrite --quiet",
                           1 << i / 2, 1 + i % 2),
                    0);
        try_model("direct", "after-pieces", &other);
        assert_string_equal(other.text, one.text);
        assert_string_equal(other.score, one.score);
        assert_same_files("after-one/step-00000001/model.safetensors",
                          "after-pieces/step-00000001/model.safetensors");
    }
}

/* Each rank reads the part that it has, and ranks with other pieces are told apart. */
static void pieces_when_many_ranks_start_then_each_reads_its_part(void **state)
{
    static const char *const ways[] = {"--dp 2 --global-batch 2 --zero 2", "--tp 2", "--pp 2"};
    (void)state;
    assert_code(sluice("convert --from one --to many --format megatron --tp 4 --pp 2 --quiet"), 0);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        static const char *const from[] = {"one", "many"};
        for (int j = 0; j < 2; j++)
            assert_code(sluice("launch -n 2 -- train --init %s %s --data text --tokenizer '" GOOD
                               "' --steps 1 --seq 8 --micro-batch 1 --quiet --save ranks-%s "
                               "--overwrite",
                               from[j], ways[i], from[j]),
                        0);
        assert_same_files("ranks-one/step-00000001/model.safetensors",
                          "ranks-many/step-00000001/model.safetensors");
    }
}

/* `change` makes another of the pieces in "bad"; all three commands say so in a line. */
static void refuse_pieces(const char *change, const char *fragment, int expected)
{
    static const char *const commands[] = {"generate bad --prompt a --tokens 1",
                                           "eval --checkpoint bad --data text",
                                           "train --init bad --data text --steps 1"};
    run_shell("rm -rf bad && cp -r many bad");
    run_shell(change);
    for (int i = 0; i < 3; i++) {
        const int code = sluice("%s --quiet --tokenizer '" GOOD "'", commands[i]);
        if (code != expected || !strstr(complaint, fragment))
            fail_msg("%s, %s: exit code %d: %s", change, commands[i], code, complaint);
        assert_one_complaint(fragment);
    }
}

#define PIECE "bad/release/mp_rank_01_001/model_optim_rng.pt"

static void pieces_when_hostile_then_one_line_and_65(void **state)
{
    (void)state;
    limit_s = 20;
    refuse_pieces("truncate -s 9000 " PIECE, PIECE, 65);
    refuse_pieces("truncate -s 3 " PIECE, "no file of torch.save", 65);
    refuse_pieces("printf 'cos\nsystem\n(S\047touch owned\047\ntR.' > " PIECE, PIECE, 65);
    refuse_pieces("cp bad/release/mp_rank_00_000/model_optim_rng.pt " PIECE, PIECE, 65);
    refuse_pieces("cp bad/release/mp_rank_02_000/model_optim_rng.pt " PIECE, PIECE, 65);
    refuse_pieces("rm -r bad/release/mp_rank_03_00*", "tensor-parallel ranks", 65);
    refuse_pieces("rm " PIECE, PIECE, 66);
    refuse_pieces("rm -r bad/release/mp_rank_0*_001", "pipeline_model_parallel_size", 65);
    refuse_pieces("printf 12x > bad/latest_checkpointed_iteration.txt", "no iteration", 65);
    refuse_pieces("printf 12 > bad/latest_checkpointed_iteration.txt", "iter_0000012", 66);
    refuse_pieces("rm " PIECE " && mkfifo " PIECE, PIECE, 65);
    assert_int_not_equal(access("owned", F_OK), 0);
    limit_s = 250;
}

/* Pieces lie in directories of directories: what holds them, or lies in them, is them. */
static void pieces_when_named_as_their_own_place_then_refused(void **state)
{
    static const char *const places[] = {"pieces", "pieces/release", "pieces/release/mp_rank_00",
                                         "pieces/release/mp_rank_00/model_optim_rng.pt"};
    (void)state;
    train_once();
    assert_code(sluice("convert --from saved --to pieces --format megatron --tp 2 --overwrite"), 0);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char words[256];
        snprintf(words, sizeof words,
                 "convert --from pieces/release --to %s --format %s --overwrite", places[i],
                 i == 3 ? "weights" : "megatron");
        assert_code(sluice("%s", words), 64);
        assert_one_complaint("is what is converted");
    }
    assert_code(sluice("convert --from pieces --to of-pieces.st --format weights"), 0);
    assert_code(sluice("convert --from saved --to of-saved.st --format weights"), 0);
    assert_true(scratch_is_same("of-pieces.st", "of-saved.st"));
    assert_code(sluice("convert --from saved --to other --format gguf --tp 2"), 64);
    assert_one_complaint("--tp is for --format megatron");
}

/* ---- what is bad ---- */

static void assert_refused(const char *what, const char *fragment, int code, int expected)
{
    const char *end = strchr(complaint, '\n');
    if (code != expected || !end || end[1] != '\0' || !strstr(complaint, fragment))
        fail_msg("%s: exit code %d: %s", what, code, complaint);
    assert_string_equal(output, "");
    assert_false(is_left("made"));
}

static void models_when_hostile_then_one_line_and_65(void **state)
{
    (void)state;
    limit_s = 60;
    for (int i = 0; i < HOSTILE_MODEL_COUNT; i++) {
        hostile_model_write(&hostile_models[i], "bad.bin");
        int code = sluice("convert --from bad.bin --to made --quiet");
        assert_refused(hostile_models[i].what, hostile_models[i].fragment, code, 65);
    }
    for (int i = 0; i < HOSTILE_COUNT; i++) {
        const hostile_row *row = &hostile_rows[i];
        if (row->kind != HOSTILE_SAFETENSORS && row->kind != HOSTILE_INDEX)
            continue;
        assert_int_equal(mkdir("model", 0700), 0);
        hostile_write(row, "model");
        int code = sluice("convert --from model --to made --quiet");
        bool is_missing = strcmp(row->fragment, "cannot be opened") == 0;
        assert_refused(row->what, row->fragment, code, is_missing ? 66 : 65);
        run_shell("rm -rf model");
    }
    limit_s = 250;
}

static void checkpoint_when_damaged_then_65(void **state)
{
    (void)state;
    train_once();
    run_shell("rm -rf worse && cp -r saved worse");
    run_shell("printf x | dd of=worse/step-00000003/model.safetensors bs=1 seek=9999 "
              "conv=notrunc 2>dd.log");
    assert_code(sluice("convert --from worse/step-00000003 --to made"), 65);
    assert_one_complaint("checksum is");
    assert_false(is_left("made"));
}

/* Numbers that fp16 lacks are told with their tensor. */
static void numbers_when_too_large_then_65_and_the_tensor(void **state)
{
    (void)state;
    const float large = 1e6f;
    hostile_model_write(&hostile_model_good, "large.bin");
    FILE *file = fopen("large.bin", "r+");
    assert_non_null(file);
    fseek(file, 1024 + 4 * (8 * 4 + 3 * 4), SEEK_SET); /* ln_1.weight of the first layer */
    fwrite(&large, sizeof large, 1, file);
    fclose(file);
    assert_code(sluice("convert --from large.bin --to made --type fp16 --tokenizer byte"), 64);
    assert_code(sluice("convert --from large.bin --to made --type fp16 --quiet"), 65);
    assert_has(complaint, "large.bin: tensor \"h.0.ln_1.weight\": holds 1e+06, which fp16 has no");
    assert_code(sluice("convert --from large.bin --to made --type bf16 --quiet"), 0);
    run_shell("rm -r made");
}

/* ---- what the system refuses ---- */

/* A model of llm.c of so many layers, all zeros, that takes no space. */
static void make_sparse(const char *path, uint64_t layers, uint64_t width)
{
    const int32_t words[8] = {20240326, 3, 64, 1000, (int32_t)layers, 16, (int32_t)width, 1024};
    uint64_t elements =
        (1024 + 64) * width + layers * (12 * width * width + 13 * width) + 2 * width;
    scratch_write(path, words, sizeof words);
    scratch_need(truncate(path, (off_t)(1024 + 4 * elements)) == 0, path);
}

static void model_when_larger_than_the_disk_then_69(void **state)
{
    (void)state;
    make_sparse("huge.bin", 20, 1 << 16); /* 3.8 TiB */
    assert_code(sluice("convert --from huge.bin --to made --quiet"), 69);
    assert_has(complaint, "bytes are needed, but ");
    assert_has(complaint, "are free there");
    assert_false(is_left("made"));
    run_shell("rm huge.bin");
}

static void model_when_larger_than_memory_then_within_what_is_told(void **state)
{
    (void)state;
    struct rusage before, after;
    const long program_kib = 64 << 10; /* the command itself, with its libraries */
    make_sparse("large.bin", 5, 1024); /* 240 MiB */
    getrusage(RUSAGE_CHILDREN, &before);
    assert_code(sluice("convert --from large.bin --to made --format gguf --type q8_0 --quiet"), 0);
    getrusage(RUSAGE_CHILDREN, &after);
    print_message("largest resident set %ld KiB, %ld KiB before\n", after.ru_maxrss,
                  before.ru_maxrss);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (before.ru_maxrss < 100 << 10) /* it is the largest of all so far */
        assert_true(after.ru_maxrss < (48 << 10) + program_kib);
#else
    (void)program_kib;
#endif
    run_shell("rm made");
}

static void file_when_it_may_not_grow_then_74(void **state)
{
    (void)state;
    char command[COMMAND_BYTES];
    make_sparse("large.bin", 1, 1024);
    snprintf(command, sizeof command,
             "ulimit -f 1000; '%s' convert --from large.bin --to made --quiet >out 2>err", binary);
    int status = system(command);
    read_complaint("err");
    assert_true(WIFEXITED(status));
    assert_code(WEXITSTATUS(status), 74);
    assert_has(complaint, "made");
    assert_false(is_left("made"));
}

/* Whether a conversion to a directory has begun with the model's file. */
static bool is_writing_directory(void)
{
    glob_t found = {0};
    const bool is_there = glob("made.tmp-*/model.safetensors", 0, NULL, &found) == 0;
    globfree(&found);
    return is_there;
}

/* Starts a conversion of large.bin and waits until it writes, a file without a name or a directory.
 */
static pid_t start_conversion(const char *format, bool is_directory)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        FILE *none = freopen("err", "w", stderr);
        execl(binary, "sluice", "convert", "--from", "large.bin", "--to", "made", "--type", "bf16",
              "--format", format, "--tokenizer", "byte", "--quiet", NULL);
        _exit(none ? 99 : 98);
    }
    siginfo_t info = {0};
    while (info.si_pid == 0 &&
           !(is_directory ? is_writing_directory() : holds_deleted(pid, "/#"))) {
        usleep(1000);
        waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT);
    }
    return pid;
}

/* A signal amid the work: the process leaves with 130, and nothing of it stays. */
static void conversion_when_a_signal_then_130_and_nothing_is_left(void **state)
{
    (void)state;
    make_sparse("large.bin", 12, 1024); /* 580 MiB */
    for (int is_directory = 0; is_directory < 2; is_directory++) {
        int status;
        pid_t pid = start_conversion(is_directory ? "hf" : "llmc", is_directory);
        kill(pid, SIGINT);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        read_complaint("err");
        assert_true(WIFEXITED(status));
        assert_code(WEXITSTATUS(status), 130);
        assert_has(complaint, "stopping: nothing is written");
        assert_false(is_left("made"));
    }
    run_shell("rm large.bin");
}

/* Of a file nothing is left; of a directory until the next conversion to the same place. */
static void conversion_when_killed_then_nothing_is_left_or_the_next_removes_it(void **state)
{
    (void)state;
    make_sparse("large.bin", 12, 1024);
    for (int is_directory = 0; is_directory < 2; is_directory++) {
        int status;
        pid_t pid = start_conversion(is_directory ? "hf" : "llmc", is_directory);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(is_left("made"), is_directory);
    }
    make_sparse("large.bin", 1, 64);
    assert_code(sluice("convert --from large.bin --to made --format hf --tokenizer byte --quiet"),
                0);
    assert_false(is_left("made.tmp-"));
    run_shell("test -z \"$(ls -A made | grep unfinished)\"");
    run_shell("rm -r large.bin made");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_when_larger_than_memory_then_within_what_is_told),
        cmocka_unit_test(model_when_handed_around_then_the_same_text),
        cmocka_unit_test(shards_when_asked_for_then_read_everywhere),
        cmocka_unit_test(tokenizer_when_known_then_it_goes_with_the_model),
        cmocka_unit_test(format_when_the_name_says_it_then_taken),
        cmocka_unit_test(configuration_when_a_file_then_taken),
        cmocka_unit_test(pieces_when_read_directly_then_as_converted),
        cmocka_unit_test(pieces_when_many_ranks_start_then_each_reads_its_part),
        cmocka_unit_test(pieces_when_hostile_then_one_line_and_65),
        cmocka_unit_test(pieces_when_named_as_their_own_place_then_refused),
        cmocka_unit_test(models_when_hostile_then_one_line_and_65),
        cmocka_unit_test(checkpoint_when_damaged_then_65),
        cmocka_unit_test(numbers_when_too_large_then_65_and_the_tensor),
        cmocka_unit_test(model_when_larger_than_the_disk_then_69),
        cmocka_unit_test(file_when_it_may_not_grow_then_74),
        cmocka_unit_test(conversion_when_a_signal_then_130_and_nothing_is_left),
        cmocka_unit_test(conversion_when_killed_then_nothing_is_left_or_the_next_removes_it),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
