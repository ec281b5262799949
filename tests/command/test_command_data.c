/* Data of a training as a user gives them. What could be wrong here: JSON lines or packed text give
 * a run other ids than the tokens made from them; ids are made again at each start, or those kept
 * are taken though text, vocabulary or what makes documents changed, though they are damaged, or
 * half of them by another run; a run that fails leaves ids behind; shares of documents overlap,
 * are evaluated at the wrong time or under a wrong name; a blend, an epoch or a share is another
 * one after a stop; hostile pairs of Megatron's end in anything but 65. Every case runs the built
 * command. */
#define _GNU_SOURCE
#include "command_run.h"

#include "megatron_pair.h"
#include "skip.h"

#define GOOD SL_TEST_SOURCE_DIRECTORY "/reference/bpe"
#define ORDER "--data-order sequential --steps 3 --quiet "

static void __attribute__((format(printf, 1, 2))) run_shell(const char *format, ...)
{
    char command[COMMAND_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(command, sizeof command, format, list);
    va_end(list);
    if (system(command) != 0)
        fail_msg("%s", command);
}

static void assert_refused(int code, int expected, const char *part)
{
    assert_code(code, expected);
    assert_one_complaint(part);
    assert_string_equal(output, "");
}

/* "lines" are documents in lines, "lines.jsonl" the same as JSON, of 700 tokens' vocabulary. */
static int set_up_data(void **state)
{
    if (set_up(state) != 0)
        return 1;
    setenv("SLUICE", binary, 1);
    run_shell(
        "cp '" GOOD "/corpus.txt' corpus && tr -d '\"\\\\\\\\\\000-\\011\\013-\\037' <corpus | "
        "LC_ALL=C tr -d '\\200-\\377' | grep . | head -n 200 >lines && "
        "sed 's/.*/{\"n\": 1, \"text\": \"&\"}/' lines >lines.jsonl && gzip -k lines.jsonl && "
        "ln -s '" GOOD "' voc");
    assert_code(
        sluice("tokenize --tokenizer voc --data lines --document-per line --output lines.bin "
               "--quiet"),
        0);
    assert_code(
        sluice("tokenize --tokenizer voc --data lines --document-per line --output pair.bin "
               "--format megatron --quiet"),
        0);
    assert_code(
        sluice("train " TINY "--tokenizer voc " ORDER "--data lines.bin --log-json ids.log"), 0);
    return 0;
}

/* ---- the same ids, whatever they come from ---- */

static void data_when_in_any_wrapping_then_the_same_run(void **state)
{
    (void)state;
    static const char *const rows[] = {"pair.bin", "lines --document-per line", "lines.jsonl",
                                       "lines.jsonl.gz"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int code =
            sluice("train " TINY "--tokenizer voc " ORDER "--log-json log --data %s", rows[i]);
        if (strstr(complaint, "which this build does not read"))
            continue;
        assert_code(code, 0);
        assert_string_equal(complaint, "");
        assert_same_steps("ids.log", "log", 1, 3);
    }
    /* Bytes too: the lines of "lines" with an end of text behind each. */
    assert_code(sluice("tokenize --tokenizer byte --data lines --document-per line --output b.bin "
                       "--quiet"),
                0);
    assert_code(sluice("train " TINY "--vocab 257 --tokenizer byte " ORDER
                       "--data b.bin --log-json bytes.log"),
                0);
    assert_code(sluice("train " TINY ORDER "--data lines.jsonl --log-json log"), 0);
    assert_same_steps("bytes.log", "log", 1, 3);
    assert_code(sluice("train " TINY ORDER "--data lines --document-per line --log-json log"), 0);
    assert_same_steps("bytes.log", "log", 1, 3);
    /* The tokenizer says how many ids there are, of a file of tokens too. */
    assert_code(sluice("train " TINY "--tokenizer byte " ORDER "--data b.bin --log-json log"), 0);
    assert_same_steps("bytes.log", "log", 1, 3);
    /* By its first line alone, which has a number beyond 2^63 and a NUL. */
    run_shell("sed 's/\"n\": 1/\"n\": 18446744073709551615, \"s\": \"\\\\u0000\"/' "
              "lines.jsonl >lines.json && grep -q '\\\\u0000' lines.json");
    assert_code(sluice("train " TINY ORDER "--data lines.json --log-json log"), 0);
    assert_same_steps("bytes.log", "log", 1, 3);
}

static void documents_when_another_id_ends_them_then_it_stands_between(void **state)
{
    (void)state;
    assert_code(
        sluice("tokenize --tokenizer voc --data lines.jsonl --output nine.bin --end-of-text 9 "
               "--quiet"),
        0);
    assert_code(
        sluice("train " TINY "--tokenizer voc " ORDER "--data nine.bin --log-json nine.log"), 0);
    assert_code(sluice("train " TINY "--tokenizer voc " ORDER
                       "--data lines.jsonl --end-of-text 9 --log-json log"),
                0);
    assert_same_steps("nine.log", "log", 1, 3);
    assert_refused(
        sluice("train " TINY "--tokenizer voc " ORDER "--data lines.jsonl --end-of-text 700"), 64,
        "--end-of-text 700 is not below the 700");
}

/* The loss that the last command printed. */
static double printed_loss(void)
{
    json_t *report = json_loads(output, 0, NULL);
    double loss = json_number_value(json_object_get(report, "loss"));
    json_decref(report);
    assert_true(loss > 0);
    return loss;
}

static void text_when_evaluated_then_as_its_tokens(void **state)
{
    (void)state;
    assert_code(sluice("train " TINY "--tokenizer voc " ORDER "--data pair.bin --save model"), 0);
    assert_code(sluice("eval model --data pair.bin --json"), 0);
    double of_tokens = printed_loss();
    assert_code(sluice("eval model --data lines.jsonl --json"), 0);
    assert_true(printed_loss() == of_tokens);
    assert_code(sluice("eval model --data lines --document-per line --json"), 0);
    assert_true(printed_loss() == of_tokens);
}

/* llm.c's files go on beyond 2^31 - 1 ids: here the second was made by hand. */
static void file_when_it_goes_on_in_one_that_is_not_given_then_told(void **state)
{
    (void)state;
    run_shell("cp lines.bin many.bin && cp lines.bin many_000001.bin");
    assert_code(sluice("train " TINY "--tokenizer voc " ORDER "--data many.bin"), 0);
    assert_one_complaint("many.bin goes on in many_000001.bin, which is not among the data");
    assert_code(sluice("train " TINY "--tokenizer voc " ORDER "--data many.bin many_000001.bin"),
                0);
    assert_string_equal(complaint, "");
}

/* "a/b.txt" comes before "a0": paths, not names, are in order. */
/* At the same size, in the same file: nothing else would notice. */
static void data_when_written_to_during_a_run_then_told(void **state)
{
    (void)state;
    run_shell("cp text live && rm -f live.log");
    run_shell("\"$SLUICE\" train " TINY "--data live --steps 1000000 --log-json live.log --quiet "
              ">/dev/null 2>err & p=$!; while kill -0 $p && ! grep -q '\"step\":2,' live.log; do "
              "sleep 0.01; done 2>/dev/null; printf X | dd of=live bs=1 seek=9 conv=notrunc "
              "status=none; kill -TERM $p; wait $p");
    read_complaint("err");
    assert_has(complaint, "live was written to while this run reads it");
    run_shell("\"$SLUICE\" train " TINY "--data live --steps 2 --quiet 2>err; ! grep written err");
}

static void directory_when_given_then_its_files_in_order(void **state)
{
    (void)state;
    run_shell("mkdir -p tree/a tree/.hidden empty/.no && split -n l/4 -d lines tree/part && "
              "mv tree/part00 tree/a/b.txt && mv tree/part01 tree/a0 && mv tree/part02 tree/b && "
              "mv tree/part03 tree/c && cp lines tree/.hidden/no && cp lines tree/.no && "
              "ln -s ../lines tree/link && ln -s ../corpus tree/a/dir");
    const char *per_line = "--document-per line";
    assert_code(
        sluice("tokenize --tokenizer voc --data tree %s --output tree.bin --quiet", per_line), 0);
    run_shell("cmp tree.bin lines.bin");
    assert_code(
        sluice("train " TINY "--tokenizer voc " ORDER "--data tree/ %s --log-json log", per_line),
        0);
    assert_same_steps("ids.log", "log", 1, 3);
    /* With a weight it is one part, of text and tokens too; alone it is what it would be without.
     */
    run_shell("mkdir -p mixed && head -n 50 lines >mixed/0 && cp pair.bin pair.idx mixed && "
              "cp lines.bin mixed/z.bin");
    assert_code(sluice("train " TINY "--tokenizer voc " ORDER
                       "--data mixed %s --log-json mixed.log",
                       per_line),
                0);
    assert_code(
        sluice("train " TINY "--tokenizer voc " ORDER "--data 3:mixed %s --log-json log", per_line),
        0);
    assert_same_steps("mixed.log", "log", 1, 3);
    assert_code(sluice("train " TINY "--tokenizer voc " ORDER
                       "--data 3:mixed 1:tree --split 8,1,1 --data-order shuffle %s",
                       per_line),
                0);
    /* What is no text is passed over, and so is what only looks like JSON lines. */
    run_shell("cp -r tree with && : >with/empty && printf 'a\\0b' >with/image && "
              "printf '\\1\\0\\2' >with/key.bin && printf x >with/.k");
    assert_code(
        sluice("tokenize --tokenizer voc --data with %s --output tree.bin --quiet", per_line), 0);
    assert_one_complaint("with: 2 of 7 files are passed over");
    run_shell("cmp tree.bin lines.bin");
    assert_code(
        sluice("train " TINY "--tokenizer voc " ORDER "--data with %s --log-json log", per_line),
        0);
    assert_same_steps("ids.log", "log", 1, 3);
    run_shell("mkdir -p one && printf '{\"name\": 1}\\n' >one/package.json");
    assert_code(sluice("tokenize --tokenizer byte --data one --output one.bin --quiet"), 0);
    assert_code(sluice("tokenize --tokenizer byte --decode --data one.bin"), 0);
    assert_string_equal(output, "{\"name\": 1}\n");
    run_shell("cp one/package.json one/package.jsonl && cat one/package.jsonl >>one/package.json");
    assert_refused(sluice("tokenize --tokenizer byte --data one/package.jsonl --output e.bin"), 65,
                   "line 1: has no text under the key");
    assert_refused(sluice("tokenize --tokenizer byte --data one/package.json --output e.bin"), 65,
                   "line 1: has no text under the key");
    assert_refused(sluice("train " TINY "--tokenizer voc " ORDER "--data empty"), 66,
                   "empty: is a directory without a file");
    assert_refused(sluice("tokenize --tokenizer voc --data empty --output e.bin"), 66, "empty: ");
    run_shell("printf '\\210\\330\\064\\001 binary' >tree/c");
    assert_refused(sluice("tokenize --tokenizer voc --data tree --output e.bin"), 65,
                   "tree/c: is ");
}

/* ---- what is kept ---- */

/* A run on "lines.jsonl" with its ids under `cache`, which gives the numbers of ids.log. */
static void run_with(const char *cache)
{
    assert_code(sluice("train " TINY "--tokenizer voc " ORDER
                       "--data lines.jsonl --log-json log --cache-dir %s",
                       cache),
                0);
    assert_same_steps("ids.log", "log", 1, 3);
}

static void ids_when_kept_then_made_once(void **state)
{
    (void)state;
    run_with("kept");
    run_shell("test $(ls -A kept | wc -l) -eq 1 && ls kept/tokens-*/tokens.bin >/dev/null && "
              "touch -d @1000000000 kept/tokens-*/tokens.bin");
    run_with("kept");
    assert_string_equal(complaint, "");
    run_shell("test $(stat -c %%Y kept/tokens-*/tokens.bin) -eq 1000000000");
    /* Another text under the same name, vocabulary, key and size of documents: new ones. */
    run_shell("cp lines.jsonl same.jsonl && sed '1s/\"text\": \"/&_/' lines.jsonl >other.jsonl");
    static const char *const others[] = {"--data same.jsonl",
                                         "--data other.jsonl",
                                         "--data lines --document-per line",
                                         "--data lines",
                                         "--data lines.jsonl --end-of-text 5",
                                         "--data lines.jsonl same.jsonl"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_code(sluice("train " TINY "--tokenizer voc " ORDER "%s --cache-dir kept", others[i]),
                    0);
        run_shell("test $(ls -A kept | wc -l) -eq %zu", i + 1);
    }
}

static void ids_when_kept_by_another_user_then_left_and_told(void **state)
{
    (void)state;
    const char *command = "train " TINY ORDER "--data lines.jsonl --cache-dir theirs";
    if (geteuid() == 0)
        skip_because("a superuser reads what is others'");
    assert_code(sluice("%s", command), 0);
    run_shell("chmod 0 theirs/tokens-*");
    assert_refused(sluice("%s", command), 74, "kept there by another user");
    run_shell("test $(ls theirs | wc -l) = 1 && chmod 700 theirs/tokens-*");
    assert_code(sluice("%s", command), 0);
}

static void ids_when_kept_are_damaged_then_made_anew(void **state)
{
    (void)state;
    static const char *const damages[] = {
        "printf x | dd of=$E/tokens.bin bs=1 seek=100 conv=notrunc status=none",
        "truncate -s -2 $E/tokens.bin",
        "truncate -s 0 $E/tokens.idx",
        "rm $E/tokens.idx",
        "rm $E/sums",
        "rm -r $E && printf x >$E",
        "printf x >>$E/sums",
        "printf x | dd of=$E/tokens.idx bs=1 seek=17 conv=notrunc status=none",
    };
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        run_shell("rm -rf hurt");
        run_with("hurt");
        run_shell("E=$(ls -d hurt/tokens-*); chmod -R u+w hurt; cp -r $E whole; %s", damages[i]);
        run_with("hurt");
        assert_one_complaint("damaged, and made anew");
        run_shell("E=$(ls -d hurt/tokens-*) && diff -r $E whole && rm -r whole && "
                  "test $(ls -A hurt | wc -l) -eq 1");
    }
}

/* Eight at once with nothing kept, and then with damage: all give the same numbers. */
static void runs_when_at_once_then_all_have_the_ids(void **state)
{
    (void)state;
    for (int damaged = 0; damaged < 2; damaged++) {
        if (damaged)
            run_shell("truncate -s -2 crowd/tokens-*/tokens.bin");
        run_shell(
            "for i in 1 2 3 4; do \"$SLUICE\" train " TINY "--tokenizer voc " ORDER
            "--threads 1 --data lines.jsonl --log-json crowd$i.log --cache-dir crowd 2>/dev/null "
            "& p=\"$p $!\"; done; for i in $p; do wait $i || exit 1; done");
        for (int i = 1; i <= 4; i++) {
            char log[32];
            snprintf(log, sizeof log, "crowd%d.log", i);
            assert_same_steps("ids.log", log, 1, 3);
        }
        run_shell("test $(ls -A crowd | wc -l) -eq 1");
    }
}

/* No run waits for what another one holds: it may be suspended, or on another machine. */
static void ids_when_the_directory_is_locked_then_made_at_once(void **state)
{
    (void)state;
    run_shell("mkdir -p held");
    for (int damaged = 0; damaged < 2; damaged++) {
        if (damaged)
            run_shell("truncate -s -2 held/tokens-*/tokens.bin");
        run_shell("exec 8<held; flock 8; timeout 60 \"$SLUICE\" train " TINY
                  "--tokenizer voc " ORDER
                  "--data lines.jsonl --log-json log --cache-dir held 2>/dev/null 8<&-");
        assert_same_steps("ids.log", "log", 1, 3);
        run_shell("test $(ls -A held | wc -l) -eq 1");
    }
}

/* The directory of a run that died goes with the next one; that of one that lives stays. */
static void remains_when_of_a_dead_run_then_removed(void **state)
{
    (void)state;
    run_shell("mkdir -p old/tokens-1.tmp-aaaaaa old/tokens-2.tmp-bbbbbb old/else.tmp-c && "
              "printf x >old/tokens-1.tmp-aaaaaa/tokens.bin.tmp-7");
    run_shell("exec 8<old/tokens-2.tmp-bbbbbb; flock 8; \"$SLUICE\" train " TINY
              "--tokenizer voc " ORDER "--data lines.jsonl --cache-dir old");
    run_shell("test ! -e old/tokens-1.tmp-aaaaaa && test -d old/tokens-2.tmp-bbbbbb && "
              "test -d old/else.tmp-c && ls old/tokens-*/sums >/dev/null");
}

/* A text that fails half way leaves nothing, and no word of a disk. */
static void text_when_it_fails_then_nothing_is_left(void **state)
{
    (void)state;
    run_shell("cp lines.jsonl broken.jsonl && printf '{\"n\": 1}\\n' >>broken.jsonl");
    assert_refused(
        sluice("train " TINY "--tokenizer voc " ORDER "--data broken.jsonl --cache-dir failed"), 65,
        "broken.jsonl: line 201: has no text under the key \"text\"");
    assert_null(strstr(complaint, "cache-dir"));
    run_shell("test -z \"$(ls -A failed)\"");
}

static void directory_when_there_is_none_then_64(void **state)
{
    (void)state;
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command,
             "env -u XDG_CACHE_HOME -u HOME '%s' train " TINY
             "--tokenizer voc --data lines --steps 1 "
             "2>err; test $? -eq 64",
             binary);
    run_shell("%s", command);
    read_complaint("err");
    assert_one_complaint("name one by --cache-dir");
}

/* ---- shares of documents ---- */

static json_t *find_eval(const json_t *events, const char *set, json_int_t step)
{
    size_t index;
    json_t *event;
    json_array_foreach((json_t *)events, index, event)
    {
        if (strcmp(kind_of(event), "eval") == 0 &&
            strcmp(json_string_value(json_object_get(event, "set")), set) == 0 &&
            json_integer_value(json_object_get(event, "step")) == step)
            return event;
    }
    return NULL;
}

static double loss_of(const json_t *event)
{
    assert_non_null(event);
    return json_number_value(json_object_get(event, "loss"));
}

/* The shares of "lines" by hand: 160, 30 and 10 documents. */
static void shares_when_split_then_those_of_files_cut_by_hand(void **state)
{
    (void)state;
    run_shell("head -n 160 lines >train.txt && tail -n +161 lines | head -n 30 >valid.txt && "
              "tail -n 10 lines >test.txt");
    static const char *const names[] = {"train", "valid", "test"};
    for (int i = 0; i < 3; i++)
        assert_code(
            sluice("tokenize --tokenizer voc --data %s.txt --document-per line --output %s.bin "
                   "--quiet",
                   names[i], names[i]),
            0);
    const char *common = TINY "--tokenizer voc --seq 8 --steps 4 --quiet --log-json log --save s ";
    assert_code(sluice("train %s --overwrite --data train.bin --eval-data valid.bin --eval-every 2",
                       common),
                0);
    json_t *by_hand = read_log("log");
    run_shell("mv log hand.log");
    assert_code(sluice("eval s --data test.bin --seq 8 --micro-batch 2 --json"), 0);
    json_t *test = json_loads(output, 0, NULL);
    static const char *const rows[] = {"lines.bin", "pair.bin", "lines.jsonl",
                                       "lines --document-per line"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_code(sluice("train %s --overwrite --data %s --split 80,15,5 --eval-every 2", common,
                           rows[i]),
                    0);
        json_t *events = read_log("log");
        assert_same_steps("hand.log", "log", 1, 4);
        for (int step = 2; step <= 4; step += 2)
            assert_true(loss_of(find_eval(events, "validation", step)) ==
                        loss_of(find_eval(by_hand, "eval", step)));
        assert_null(find_eval(events, "test", 2));
        assert_true(loss_of(find_eval(events, "test", 4)) == loss_of(test));
        assert_int_equal(
            json_integer_value(json_object_get(find_eval(events, "test", 4), "tokens")),
            json_integer_value(json_object_get(test, "tokens")));
        json_decref(events);
    }
    json_decref(test);
    json_decref(by_hand);
    assert_code(sluice("plan " TINY "--tokenizer voc --data lines.jsonl --split 80,15,5"), 0);
}

static void split_when_wrong_then_64(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"--split 1,2", "--split 1,2: is not three shares"},
        {"--split 1,2,3,4", "is not three shares"},
        {"--split 0,1,1", "the first above 0"},
        {"--split 1,-1,1", "is not three shares"},
        {"--split 1,x,1", "is not three shares"},
        {"--split 1,,1", "is not three shares"},
        {"--split 8,1,1 --eval-data pair.bin", "one too many"},
        {"--split 8,0,1 --eval-every 2", "--eval-every needs --eval-data, or a validation share"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_refused(
            sluice("train " TINY "--tokenizer voc " ORDER "--data pair.bin %s", rows[i][0]), 64,
            rows[i][1]);
    run_shell("cp lines.bin bare.bin"); /* without what stands beside it */
    assert_refused(sluice("train " TINY "--vocab 700 " ORDER "--data bare.bin --split 8,1,1"), 64,
                   "bare.bin: where its documents end is not known");
    assert_code(sluice("train " TINY "--vocab 700 " ORDER
                       "--data bare.bin --end-of-text 699 --split 8,1,1"),
                0);
    assert_code(sluice("train " TINY ORDER "--data lines.bin --split 8,1,1"), 0);
    assert_refused(sluice("train " TINY ORDER "--data text --split 8,1,1"), 65,
                   "of 1 document none is in the");
}

/* ---- blends and epochs ---- */

static void weights_when_wrong_then_64(void **state)
{
    (void)state;
    run_shell("cp pair.bin 3:a.bin && cp pair.idx 3:a.idx");
    static const char *const rows[][2] = {
        {"1:pair.bin lines.bin", "1 of 2 have a weight"},
        {"0:pair.bin", "a weight is above 0"},
        {"1e308:pair.bin 1e308:lines.bin", "the sum of the weights is too large"},
        {"1:pair.bin --eval-data 1:lines.bin", "--eval-data takes no weights"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_refused(sluice("train " TINY "--tokenizer voc " ORDER "--data %s", rows[i][0]), 64,
                       rows[i][1]);
    assert_code(sluice("train " TINY "--tokenizer voc " ORDER "--data ./3:a.bin --log-json log"),
                0);
    assert_same_steps("ids.log", "log", 1, 3);
    assert_code(sluice("train " TINY "--tokenizer voc " ORDER "--data 7:pair.bin --log-json log"),
                0);
    assert_same_steps("ids.log", "log", 1, 3); /* a blend of one file is the file */
}

static double epoch_at(const char *log, size_t index)
{
    json_t *events = read_log(log);
    const json_t *epoch = json_object_get(json_array_get(events, index), "epoch");
    double value = json_is_number(epoch) ? json_number_value(epoch) : -1;
    json_decref(events);
    return value;
}

/* Cut after each of several steps; the blend of text and tokens, its split and its order are taken
 * from the checkpoint. In the middle of a step's rows an epoch ends. */
static void blend_when_a_run_goes_on_then_as_unbroken(void **state)
{
    (void)state;
    const char *common = TINY "--tokenizer voc --seq 8 --quiet --data-order shuffle --seed 3 "
                              "--data 0.6:lines.jsonl 3e-1:pair.bin 0.1:valid.bin --split 9,1,0 "
                              "--warmup 2 --min-lr 0 --lr-schedule constant";
    uint64_t all = scratch_count(3, 11);
    run_shell("head -n 30 lines >valid.txt");
    assert_code(
        sluice("tokenize --tokenizer voc --data valid.txt --document-per line --output valid.bin "
               "--quiet"),
        0);
    assert_code(sluice("train %s --steps 12 --save unbroken --log-json unbroken.log", common), 0);
    assert_true(epoch_at("unbroken.log", 1) > 0);
    for (uint64_t cut = 1; cut <= all; cut++) {
        run_shell("rm -rf cut");
        int step = (int)(all < 11 ? 3 * cut : cut);
        assert_code(sluice("train %s --steps %d --save cut --log-json cut.log", common, step), 0);
        run_shell("mkdir -p away && cd away && \"$SLUICE\" train --resume --save ../cut --steps 12 "
                  "--quiet 2>/dev/null"); /* paths of blends are kept as absolute ones too */
        for (int i = 0; i < 3; i++) {
            static const char *const files[] = {"model", "moment1", "moment2"};
            run_shell("cmp unbroken/step-00000012/%s.safetensors cut/step-00000012/%s.safetensors",
                      files[i], files[i]);
        }
    }
    assert_code(sluice("train --resume --save cut --steps 12 --split 8,2,0"), 0);
    assert_has(complaint, "--split 9,1,0 → 8,2,0");
}

/* 41 rows of 8 tokens, 2 a step: after 20 steps and a half an epoch is over. */
static void epochs_when_rows_are_shuffled_then_counted_in_the_log(void **state)
{
    (void)state;
    run_shell("tail -c +1025 lines.bin | head -c 658 >e.bin"); /* 329 ids without a header */
    assert_code(sluice("train " TINY
                       "--vocab 700 --seq 8 --data e.bin --data-order shuffle --steps 41 "
                       "--quiet --log-json log"),
                0);
    assert_true(fabs(epoch_at("log", 20) - 40.0 / 41) < 1e-12);
    assert_true(epoch_at("log", 41) == 2);
    assert_code(
        sluice("train " TINY "--vocab 700 --seq 8 --data e.bin --steps 1 --quiet --log-json log"),
        0);
    assert_true(epoch_at("log", 1) == -1);
}

/* ---- Megatron's pairs ---- */

static void pairs_when_hostile_then_one_line_and_65(void **state)
{
    (void)state;
    for (int i = 0; i < HOSTILE_PAIR_COUNT; i++) {
        hostile_pair_write(&hostile_pairs[i], ".");
        assert_refused(sluice("train " TINY "--vocab 300 --seq 4 " ORDER "--data bad.bin"), 65,
                       hostile_pairs[i].fragment);
    }
    megatron_write(&megatron_small, ".", "bad");
    assert_code(sluice("train " TINY "--vocab 300 --seq 4 " ORDER "--data bad.bin"), 0);
    assert_refused(sluice("train " TINY "--vocab 14 --seq 4 " ORDER "--data bad.bin"), 65,
                   "not below the vocabulary 14");
}

/* As Megatron's own options name them. */
static void pair_when_named_without_its_ending_then_read(void **state)
{
    (void)state;
    static const char run[] = "train " TINY "--vocab 300 --seq 4 --steps 3 --quiet ";
    megatron_write(&megatron_small, ".", "whole");
    assert_code(sluice("%s--data whole.bin --log-json log", run), 0);
    assert_code(sluice("%s--data whole --log-json other", run), 0);
    assert_same_steps("log", "other", 1, 3);
    assert_code(sluice("%s--data 0.5:whole 0.5:whole.bin", run), 0);
    run_shell("rm whole.idx");
    assert_refused(sluice("%s--data whole", run), 66, "whole: cannot be opened");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_when_in_any_wrapping_then_the_same_run),
        cmocka_unit_test(documents_when_another_id_ends_them_then_it_stands_between),
        cmocka_unit_test(text_when_evaluated_then_as_its_tokens),
        cmocka_unit_test(file_when_it_goes_on_in_one_that_is_not_given_then_told),
        cmocka_unit_test(data_when_written_to_during_a_run_then_told),
        cmocka_unit_test(directory_when_given_then_its_files_in_order),
        cmocka_unit_test(ids_when_kept_then_made_once),
        cmocka_unit_test(ids_when_kept_by_another_user_then_left_and_told),
        cmocka_unit_test(ids_when_kept_are_damaged_then_made_anew),
        cmocka_unit_test(runs_when_at_once_then_all_have_the_ids),
        cmocka_unit_test(ids_when_the_directory_is_locked_then_made_at_once),
        cmocka_unit_test(remains_when_of_a_dead_run_then_removed),
        cmocka_unit_test(text_when_it_fails_then_nothing_is_left),
        cmocka_unit_test(directory_when_there_is_none_then_64),
        cmocka_unit_test(shares_when_split_then_those_of_files_cut_by_hand),
        cmocka_unit_test(split_when_wrong_then_64),
        cmocka_unit_test(weights_when_wrong_then_64),
        cmocka_unit_test(blend_when_a_run_goes_on_then_as_unbroken),
        cmocka_unit_test(epochs_when_rows_are_shuffled_then_counted_in_the_log),
        cmocka_unit_test(pairs_when_hostile_then_one_line_and_65),
        cmocka_unit_test(pair_when_named_without_its_ending_then_read),
    };
    return cmocka_run_group_tests(tests, set_up_data, tear_down);
}
