/* What could be wrong here: a file that is packed, in lines or in JSON gives other documents than
 * it holds; the number of threads changes a file; a format is not what its readers expect; what was
 * tokenized does not come back; bad files crash the command, or leave with another code than 65;
 * a few packed kilobytes take gigabytes of memory;
 * what is learnt is not what was asked for, or takes the place of another vocabulary; a broken run
 * leaves files. Every case runs the built command. */
#define _GNU_SOURCE
#include <stdbool.h>

#include "command_run.h"

#include "hostile_texts.h"
#include "sanitizer_share.h"
#include "skip.h"

#define GOOD SL_TEST_SOURCE_DIRECTORY "/reference/bpe"
#define TO_TEXT "tokenize --decode --tokenizer '" GOOD "' "
#define WITH_GOOD "tokenize --tokenizer '" GOOD "' "

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

static bool has_program(const char *name)
{
    char command[128];
    snprintf(command, sizeof command, "command -v %s >/dev/null", name);
    return system(command) == 0;
}

/* ---- there and back ---- */

static void files_when_tokenized_then_the_ids_of_the_reference(void **state)
{
    (void)state;
    assert_code(sluice(WITH_GOOD "--data '" GOOD "/text.txt' --format nanogpt --output a.bin"), 0);
    assert_has(output, "1 document, ");
    assert_has(output, "tokens of 700, ");
    run_shell("head -c -2 a.bin >front && tail -c 2 a.bin | od -An -tu2 | tr -d ' \\n' >end");
    assert_same_files("front", GOOD "/ids.bin");
    read_text("end", output);
    assert_string_equal(output, "699");
    run_shell("mkdir -p json && cp '" GOOD "/tokenizer.json' json");
    assert_code(sluice("tokenize --tokenizer json --data '" GOOD "/text.txt' --format nanogpt "
                       "--output b.bin --quiet"),
                0);
    assert_string_equal(output, "");
    assert_same_files("a.bin", "b.bin");
}

static void tokens_when_decoded_then_the_text(void **state)
{
    (void)state;
    run_shell("head -c 100000 /dev/urandom >noise && printf 'one\\ntwo' >lines");
    static const char *const formats[] = {"llmc", "nanogpt"};
    for (int i = 0; i < 2; i++) {
        assert_code(sluice(WITH_GOOD "--data noise --format %s --output n.bin", formats[i]), 0);
        assert_code(sluice(TO_TEXT "--data n.bin --output back"), 0);
        assert_same_files("noise", "back");
    }
    assert_code(sluice(WITH_GOOD "--data lines --document-per line --output n.bin"), 0);
    assert_code(sluice(TO_TEXT "--data n.bin"), 0);
    assert_string_equal(output, "one<|endoftext|>two");
    assert_code(sluice("tokenize --tokenizer byte --data lines --output n.bin"), 0);
    assert_code(sluice("tokenize --tokenizer byte --decode --data n.bin"), 0);
    assert_string_equal(output, "one\ntwo");
    assert_code(
        sluice(WITH_GOOD "--data lines --document-per line --end-of-text 65 --output n.bin"), 0);
    assert_code(sluice(TO_TEXT "--data n.bin --end-of-text 65"), 0);
    assert_string_equal(output, "one<|endoftext|>two");
    assert_code(sluice(TO_TEXT "--data lines"), 65);
    assert_one_complaint("there is text among the files");
}

/* ---- documents ---- */

static void documents_when_in_any_wrapping_then_the_same_ids(void **state)
{
    (void)state;
    run_shell("printf 'first one\\nand two\\n\\n  third' >plain");
    run_shell(
        "printf '{\"n\": 123456789012345678901, \"text\": \"first one\"}\\n\\n"
        "{\"text\": \"\"}\\n{\"text\": \"and\\\\u0020two\"}\\n{\"text\": \"  third\"}' >a.jsonl");
    run_shell("sed s/text/body/ a.jsonl >body.txt && gzip -k plain && gzip -k a.jsonl");
    run_shell("(printf 'first one\\n' | gzip; printf 'and two\\n\\n  third' | gzip) >two.gz");
    assert_code(sluice(WITH_GOOD "--data plain --document-per line --output want.bin"), 0);
    assert_has(output, "3 documents, ");
    static const char *const others[] = {"a.jsonl", "a.jsonl.gz", "plain.gz --document-per line",
                                         "two.gz --document-per line", "body.txt --json-key body"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_code(sluice(WITH_GOOD "--output got.bin --data %s", others[i]), 0);
        assert_same_files("want.bin", "got.bin");
    }
    if (has_program("zstd")) {
        run_shell("zstd -q plain && zstd -q a.jsonl");
        assert_code(sluice(WITH_GOOD "--output got.bin --data a.jsonl.zst"), 0);
        assert_same_files("want.bin", "got.bin");
    }
}

static void files_when_named_by_a_pattern_then_all_of_them_in_order(void **state)
{
    (void)state;
    run_shell("mkdir -p many && printf b >many/b.txt && printf a >many/a.txt && "
              "printf c >'many/c[1].txt'");
    assert_code(sluice("tokenize --tokenizer byte --data 'many/*.txt' --output m.bin"), 0);
    assert_code(sluice("tokenize --tokenizer byte --decode --data m.bin"), 0);
    assert_string_equal(output, "a<|endoftext|>b<|endoftext|>c");
    assert_code(sluice("tokenize --tokenizer byte --data 'many/c[1].txt' --output m.bin"), 0);
    assert_code(sluice("tokenize --tokenizer byte --data 'many/*.none' --output m.bin"), 66);
    assert_one_complaint("no file has such a name");
    assert_code(sluice("tokenize --tokenizer byte --data missing --output m.bin"), 66);
}

static void documents_when_cleaned_then_short_and_repeated_ones_are_counted(void **state)
{
    (void)state;
    run_shell("for i in 1 2 3; do printf 'x%0200d' $i; echo; echo short; done >some && "
              "cat some some >doc && cp doc again");
    assert_code(sluice("tokenize --tokenizer byte --data doc --document-per line --clean "
                       "--output c.bin"),
                0);
    assert_has(output, "left out: 6 documents of fewer than 128 tokens, 3 repetitions");
    assert_has(output, "3 documents, 606 tokens of 257, 1.00 bytes a token");
    assert_code(sluice("tokenize --tokenizer byte --data doc again --clean --output c.bin"), 0);
    assert_has(output, "0 documents of fewer than 128 tokens, 1 repetition\n");
    assert_code(sluice("tokenize --tokenizer byte --decode --data c.bin --output back"), 0);
    assert_same_files("doc", "back");
}

static void ids_when_made_by_any_number_of_threads_then_the_same(void **state)
{
    (void)state;
    run_shell("i=0; while [ $i -lt 150 ]; do cat '" GOOD "/text.txt'; i=$((i + 1)); done >large");
    assert_code(sluice(WITH_GOOD "--data large --output one.bin --threads 1"), 0);
    assert_code(sluice(WITH_GOOD "--data large --output three.bin --threads 3"), 0);
    assert_same_files("one.bin", "three.bin");
    for (int threads = 1; threads <= 3; threads += 2)
        assert_code(sluice("tokenize --learn 900 --tokenizer by%d --data large --threads %d",
                           threads, threads),
                    0);
    assert_same_files("by1/merges.txt", "by3/merges.txt");
    assert_same_files("by1/vocab.json", "by3/vocab.json");
}

/* ---- formats ---- */

static void megatron_when_written_then_the_layout_of_its_index(void **state)
{
    (void)state;
    static const unsigned char want[] = {
        'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0, 0, 0, 0, 0,
        0,   0,   3,   0,   0,   0,   0,   0, 0, 0, /* 2 sequences, 3 bounds of documents */
        3,   0,   0,   0,   2,   0,   0,   0,       /* lengths */
        0,   0,   0,   0,   0,   0,   0,   0, 6, 0, 0, 0, 0, 0, 0, 0, /* starts in bytes */
        0,   0,   0,   0,   0,   0,   0,   0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0};
    size_t bytes;
    run_shell("printf 'ab\\nc\\n' >two");
    assert_code(sluice("tokenize --tokenizer byte --data two --document-per line --format megatron "
                       "--output m"),
                0);
    char *index = scratch_read("m.idx", &bytes);
    assert_int_equal(bytes, sizeof want);
    assert_memory_equal(index, want, sizeof want);
    free(index);
    uint16_t *ids = (uint16_t *)scratch_read("m.bin", &bytes);
    const uint16_t want_ids[] = {'a', 'b', 256, 'c', 256};
    assert_int_equal(bytes, sizeof want_ids);
    assert_memory_equal(ids, want_ids, sizeof want_ids);
    free(ids);
}

static void options_when_they_do_not_go_together_then_64(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"--output a", "--data is missing"},
        {"--data two --output a", "--tokenizer is missing"},
        {"--data two --tokenizer byte", "--output is missing"},
        {"--data two --tokenizer byte --learn 300", "byte is no directory"},
        {"--data two --tokenizer v --learn 256", "are 257 tokens already"},
        {"--data two --tokenizer v --learn 300 --decode", "does not go with --decode"},
        {"--data two --tokenizer byte --output a.txt --format nanogpt", "let it end in .bin"},
        {"--data two --tokenizer '" GOOD "' --learn 300", "holds a vocabulary already"},
        {"--data two --tokenizer byte --output a --format hf", "--format"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_code(sluice("tokenize %s", cases[i][0]), 64);
        assert_one_complaint(cases[i][1]);
    }
    assert_code(sluice("tokenize --tokenizer nowhere --data two --output a"), 66);
    assert_one_complaint("holds no vocabulary");
}

/* ---- what is there already ---- */

static void output_when_it_is_the_input_then_64_and_the_input_stays(void **state)
{
    (void)state;
    run_shell(
        "printf 'some text' >in && ln in hard && ln -s in soft && cp in in.idx && cp in kept");
    static const char *const outputs[] = {"in", "./in", "hard", "soft", "hard --learn 300"};
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        bool learns = strstr(outputs[i], "--learn") != NULL;
        assert_code(sluice("tokenize --tokenizer %s --data in --output %s", learns ? "new" : "byte",
                           outputs[i]),
                    64);
        assert_one_complaint("is one of --data: name another file");
        assert_same_files("in", "kept");
    }
    run_shell("ln in pair.idx && mkdir place.bin");
    assert_code(sluice("tokenize --tokenizer byte --data in --output pair --format megatron"), 64);
    assert_one_complaint("pair.idx is one of --data");
    assert_code(sluice("tokenize --tokenizer byte --data in --output place --format megatron"), 64);
    assert_one_complaint("place.bin is there and no regular file");
    run_shell("ln in more_000002.bin && ln in plain_000001");
    assert_code(sluice("tokenize --tokenizer byte --data in --output more.bin"), 64);
    assert_one_complaint("more_000002.bin is one of --data");
    assert_code(sluice("tokenize --tokenizer byte --data in --output plain"), 64);
    assert_one_complaint("plain_000001 is one of --data");
    assert_code(sluice("tokenize --tokenizer byte --data in --output in.bin"), 0);
    run_shell("cp in.bin kept.bin");
    assert_code(sluice("tokenize --tokenizer byte --decode --data in.bin --output in.bin"), 64);
    assert_same_files("in.bin", "kept.bin");
    run_shell("test ! -e new && ! ls *.tmp-* 2>/dev/null");
}

static void text_when_decoding_fails_then_that_of_before(void **state)
{
    (void)state;
    run_shell("printf 'of before' >old && cp old was && ln -s old link");
    assert_code(sluice(WITH_GOOD "--data '" GOOD "/text.txt' --output high.bin"), 0);
    run_shell("rm high.bin.json"); /* which says whose ids they are */
    assert_code(sluice("tokenize --tokenizer byte --decode --data high.bin --output old"), 65);
    assert_same_files("old", "was");
    assert_code(sluice(TO_TEXT "--data high.bin --output link"), 0);
    assert_same_files("old", GOOD "/text.txt");
    assert_code(sluice(TO_TEXT "--data high.bin --output /dev/null"), 0);
    run_shell("test -h link && test -c /dev/null && ! ls *.tmp-* 2>/dev/null");
}

/* The reader has the pipe when the command does: what is asked comes amid the text. */
static void text_when_a_signal_comes_then_130(void **state)
{
    (void)state;
    char command[PATH_BYTES + 512];
    run_shell("head -c 400000 /dev/zero >zeros && mkfifo pipe");
    assert_code(sluice("tokenize --tokenizer byte --data zeros --output zeros.bin"), 0);
    snprintf(command, sizeof command,
             "'%s' tokenize --tokenizer byte --decode --data zeros.bin --output pipe 2>err & "
             "exec 3<pipe; kill -TERM $!; cat <&3 >cut; wait $!; test $? = 130",
             binary);
    run_shell(command);
    read_complaint("err");
    assert_string_equal(complaint, "sluice: stopping: no file of text is written\n"
                                   "sluice: stopped by a signal\n");
}

/* Whenever it is: a file is whole and has its name, or is not there. */
static void tokens_when_the_process_is_killed_then_nothing_is_left(void **state)
{
    (void)state;
    int nameless = open(".", O_TMPFILE | O_RDWR, 0600);
    if (nameless < 0)
        skip_because("the file system makes no file without a name");
    close(nameless);
    setenv("SLUICE", binary, 1);
    run_shell("yes words of a text | head -c 3000000 >killed.txt");
    run_shell("for s in 01 03 1 2 3; do "
              "\"$SLUICE\" tokenize --tokenizer byte --data killed.txt --document-per line --quiet "
              "--format megatron --output killed & sleep 0.$s; kill -9 $! 2>/dev/null; wait $!; "
              "ls killed.*tmp* 2>/dev/null && exit 1; done; true");
}

/* Lines of one letter, which took 120 bytes each of all those in 16 MiB of text. */
static void lines_when_tiny_then_memory_does_not_grow_with_them(void **state)
{
    (void)state;
    char command[PATH_BYTES + 256];
    uint64_t bytes = scratch_count(4, 16) * 1000000;
    snprintf(
        command, sizeof command,
        "yes a | head -c %llu >tiny && ulimit -v 200000; '%s' tokenize --tokenizer byte --data "
        "tiny --document-per line --threads 1 --quiet --output tiny.bin",
        (unsigned long long)bytes, binary);
    if (SANITIZER_SHARE > 1) /* a sanitizer's own memory is beyond any limit */
        skip_because("a sanitizer has the address space");
    run_shell(command);
}

/* Kilobytes that unpack to a line, or a text without a space, of 200 MB. */
static void packed_files_when_they_unpack_to_a_long_line_then_memory_is_bounded(void **state)
{
    (void)state;
    static const char *const files[] = {"spaceless.gz", "long.jsonl.gz"};
    run_shell("yes aaaaaaaaaaaaaaa | tr -d '\\n' | head -c 200000000 | gzip -1 >spaceless.gz && "
              "(printf '{\"text\": \"'; yes words | tr '\\n' ' ' | head -c 200000000; "
              "printf '\"}\\n') | gzip -1 >long.jsonl.gz && "
              "test $(stat -c %s spaceless.gz) -lt 2000000");
    for (int i = 0; i < 2; i++) {
        char command[PATH_BYTES + 256];
        snprintf(command, sizeof command,
                 "(ulimit -v 150000; '%s' tokenize --tokenizer byte --threads 1 --data %s "
                 "--output x.bin; echo $? >code) 2>err",
                 binary, files[i]);
        if (SANITIZER_SHARE > 1)
            snprintf(command, sizeof command,
                     "'%s' tokenize --tokenizer byte --data %s --output x.bin 2>err; echo $? >code",
                     binary, files[i]);
        run_shell(command);
        read_complaint("err");
        read_text("code", output);
        assert_string_equal(output, "65\n");
        assert_one_complaint("for a packed file of this size: unpack it");
    }
}

/* What is refused packed is read unpacked, and a line of ordinary length either way. */
static void lines_when_long_then_read_unpacked(void **state)
{
    (void)state;
    run_shell("(printf '{\"text\": \"'; yes words | tr '\\n' ' ' | head -c 6000000; "
              "printf '\"}\\n') >six.jsonl && gzip -k six.jsonl && "
              "(printf '{\"text\": \"'; yes words | tr '\\n' ' ' | head -c 4000000; "
              "printf '\"}\\n') | gzip >four.jsonl.gz");
    assert_code(sluice("tokenize --tokenizer byte --data six.jsonl.gz --output x.bin"), 65);
    assert_one_complaint("six.jsonl.gz: line 1 ");
    assert_code(sluice("tokenize --tokenizer byte --data six.jsonl --output x.bin"), 0);
    assert_code(sluice("tokenize --tokenizer byte --data four.jsonl.gz --output x.bin"), 0);
    if (!has_program("zstd"))
        return;
    run_shell("yes some words | head -c 200000 | zstd -q --long=27 >wide.zst");
    assert_code(sluice("tokenize --tokenizer byte --data wide.zst --output x.bin"), 65);
    assert_one_complaint("wide.zst: cannot be unpacked: it asks for a window above 2^25 bytes");
}

static void output_when_it_cannot_be_made_then_told_before_the_data_are_read(void **state)
{
    (void)state;
    run_shell("printf '{\"no\": 1}' >bad.jsonl && printf x >file");
    assert_code(sluice("tokenize --learn 300 --tokenizer n1 --data bad.jsonl --output no/a"), 74);
    assert_one_complaint("no/a: cannot be made");
    assert_code(sluice("tokenize --learn 300 --tokenizer file/n --data bad.jsonl"), 74);
    run_shell("test ! -e n1");
}

static void files_of_tokens_when_given_as_text_then_65(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"\\210\\330\\064\\001 more", "llm.c tokens (uint16)"},
        {"\\241\\331\\064\\001 more", "llm.c tokens (uint32)"},
        {"MMIDIDX\\000\\000\\001", "an index of Megatron's tokens"},
    };
    char command[128];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(command, sizeof command, "printf '%s' >t && gzip -fk t", rows[i][0]);
        run_shell(command);
        assert_code(sluice("tokenize --tokenizer byte --data t --output t.out"), 65);
        assert_one_complaint(rows[i][1]);
        assert_code(sluice("tokenize --tokenizer byte --data t.gz --output t.out"), 65);
    }
    run_shell("printf text >a.idx && printf text >raw.bin");
    assert_code(sluice("tokenize --tokenizer byte --data a.idx --output t.out"), 65);
    assert_code(sluice("tokenize --tokenizer byte --data raw.bin --output t.out"), 65);
    assert_one_complaint("raw.bin: is named as a file of tokens");
}

static void json_lines_when_the_first_is_long_then_found(void **state)
{
    (void)state;
    run_shell("(printf '{\"text\": \"'; head -c 2500000 /dev/zero | tr '\\0' a; "
              "printf '\"}\\n{\"text\": \"b\"}\\n') >long && printf '{ is text' >brace");
    assert_code(sluice("tokenize --tokenizer byte --data long --output l.bin"), 0);
    assert_has(output, "2 documents, 2500003 tokens");
    assert_code(sluice("tokenize --tokenizer byte --data long brace --output l.bin"), 0);
    assert_has(output, "3 documents, 2500013 tokens");
}

/* ---- learning ---- */

static void vocabulary_when_of_bytes_alone_then_it_is_read_again(void **state)
{
    (void)state;
    run_shell("printf 'any text' >any");
    assert_code(sluice("tokenize --learn 257 --tokenizer v257 --data any --output v.bin"), 0);
    assert_code(sluice("tokenize --tokenizer v257 --decode --data v.bin"), 0);
    assert_string_equal(output, "any text");
}

static void vocabulary_when_saving_breaks_then_no_part_of_it_stays(void **state)
{
    (void)state;
    run_shell(
        "mkdir -p half/vocabulary.tmp && printf old >half/merges.txt && cp half/merges.txt .");
    assert_code(sluice("tokenize --learn 300 --tokenizer half --data '" GOOD "/text.txt'"), 74);
    run_shell(
        "test ! -e half/vocab.json && rmdir half/vocabulary.tmp && printf old >half/merges.txt");
    assert_code(sluice("tokenize --learn 300 --tokenizer half --data '" GOOD "/text.txt'"), 0);
    run_shell("grep -q '#version' half/merges.txt && test \"$(ls half | wc -l)\" = 2");
    run_shell("mkdir -p lone && cp '" GOOD "/vocab.json' '" GOOD "/tokenizer.json' lone");
    assert_code(sluice("tokenize --tokenizer lone --data any --output lone.bin"), 0);
}

static void vocabulary_when_learnt_then_that_of_the_reference(void **state)
{
    (void)state;
    assert_code(sluice("tokenize --learn 700 --tokenizer learnt/here --data '" GOOD "/corpus.txt' "
                       "--output l.bin"),
                0);
    assert_has(output, "learned 700 tokens of 700");
    assert_same_files("learnt/here/merges.txt", GOOD "/merges.txt");
    assert_code(sluice(WITH_GOOD "--data '" GOOD "/corpus.txt' --output want.bin"), 0);
    assert_same_files("l.bin", "want.bin");
}

/* ---- bad files ---- */

static void assert_bad(const hostile_text *row, int code)
{
    const char *end = strchr(complaint, '\n');
    if (code != 65)
        fail_msg("%s: exit code %d: %s", row->what, code, complaint);
    if (strncmp(complaint, "sluice: ", 8) != 0 || !end || end[1] != '\0')
        fail_msg("%s: not one line: \"%s\"", row->what, complaint);
    if (!strstr(complaint, row->fragment))
        fail_msg("%s: \"%s\" is not in \"%s\"", row->what, row->fragment, complaint);
    for (const char *at = complaint; at < end; at++)
        if ((unsigned char)*at < ' ')
            fail_msg("%s: a control character in \"%s\"", row->what, complaint);
}

static void files_when_hostile_then_one_line_and_65_and_nothing_left(void **state)
{
    (void)state;
    int counts[3] = {0};
    limit_s = 10;
    run_shell("mkdir place");
    for (int i = 0; i < HOSTILE_TEXT_COUNT; i++) {
        const hostile_text *row = &hostile_texts[i];
        run_shell("rm -rf bad && mkdir bad");
        if (row->kind == HOSTILE_DOCUMENTS) {
            uint64_t bytes = row->bytes ? row->bytes : strlen(row->text);
            scratch_write(scratch_join("bad", row->more).text, row->text, bytes);
            assert_bad(row, sluice(WITH_GOOD "--data bad/%s --output place/a.bin", row->more));
        } else {
            hostile_write_vocabulary(row, GOOD, "bad");
            assert_bad(row, sluice("tokenize --tokenizer bad --data text --output place/a.bin"));
        }
        counts[row->kind]++;
    }
    limit_s = 250;
    print_message("%d pairs of vocabulary files, %d tokenizer.json, %d files of documents\n",
                  counts[0], counts[1], counts[2]);
    assert_true(counts[0] >= 20 && counts[1] >= 20 && counts[2] >= 20);
    run_shell("rmdir place"); /* it is empty */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_when_tokenized_then_the_ids_of_the_reference),
        cmocka_unit_test(tokens_when_decoded_then_the_text),
        cmocka_unit_test(documents_when_in_any_wrapping_then_the_same_ids),
        cmocka_unit_test(files_when_named_by_a_pattern_then_all_of_them_in_order),
        cmocka_unit_test(documents_when_cleaned_then_short_and_repeated_ones_are_counted),
        cmocka_unit_test(ids_when_made_by_any_number_of_threads_then_the_same),
        cmocka_unit_test(megatron_when_written_then_the_layout_of_its_index),
        cmocka_unit_test(options_when_they_do_not_go_together_then_64),
        cmocka_unit_test(output_when_it_is_the_input_then_64_and_the_input_stays),
        cmocka_unit_test(text_when_decoding_fails_then_that_of_before),
        cmocka_unit_test(text_when_a_signal_comes_then_130),
        cmocka_unit_test(tokens_when_the_process_is_killed_then_nothing_is_left),
        cmocka_unit_test(lines_when_tiny_then_memory_does_not_grow_with_them),
        cmocka_unit_test(packed_files_when_they_unpack_to_a_long_line_then_memory_is_bounded),
        cmocka_unit_test(lines_when_long_then_read_unpacked),
        cmocka_unit_test(output_when_it_cannot_be_made_then_told_before_the_data_are_read),
        cmocka_unit_test(files_of_tokens_when_given_as_text_then_65),
        cmocka_unit_test(json_lines_when_the_first_is_long_then_found),
        cmocka_unit_test(vocabulary_when_of_bytes_alone_then_it_is_read_again),
        cmocka_unit_test(vocabulary_when_saving_breaks_then_no_part_of_it_stays),
        cmocka_unit_test(vocabulary_when_learnt_then_that_of_the_reference),
        cmocka_unit_test(files_when_hostile_then_one_line_and_65_and_nothing_left),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
