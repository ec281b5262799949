/* Fine-tuning by the command. What could be wrong: an option of examples does not reach the rows or
 * the loss; the loss of an evaluation is a mean over other tokens than those that count; a run that
 * stops within an epoch goes on with other rows, another number of steps, or another order; a
 * printed configuration is another run; an empty share ends the run; placement changes
 * a loss on responses; a step in which nothing counts ends the run, or trains; two options say how
 * long a run is; a wrong example does not say where it stands. Every case runs the built command.
 */
#define _GNU_SOURCE
#include "command_run.h"

enum { EXAMPLES = 24 };

#define KEYS "--prompt-key q --response-key a "
static const char common[] = TINY "--data examples.json --seed 5 " KEYS;

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* An array, and the same as lines; of lengths that share rows unevenly. One example is longer than
 * a row of 32 tokens. */
static void write_examples(void)
{
    FILE *array = fopen("examples.json", "w"), *lines = fopen("examples.jsonl", "w");
    assert_non_null(array);
    assert_non_null(lines);
    for (int i = 0; i < EXAMPLES; i++) {
        char line[256];
        snprintf(line, sizeof line, "{\"q\": \"%.*s%d\", \"a\": \"%.*s\"}", 1 + i * 5 % 7,
                 "what is", i, i == 9 ? 40 : 1 + i * 3 % 11,
                 "the gate of the lock, the water and the boat");
        fprintf(array, "%s%s", i ? ",\n  " : "[\n  ", line);
        fprintf(lines, "%s\n", line);
    }
    fputs("\n]\n", array);
    fclose(array);
    fclose(lines);
}

static int set_up_examples(void **state)
{
    const int failed = set_up(state);
    write_examples();
    return failed;
}

static double find_event(const char *log, const char *kind, const char *key)
{
    json_t *events = read_log(log), *event;
    size_t index;
    double value = NAN;
    json_array_foreach(events, index, event) if (strcmp(kind_of(event), kind) == 0) value =
        json_number_value(json_object_get(event, key));
    json_decref(events);
    return value;
}

/* The cut run goes on under other placements, and is given no option of the first part. */
static void resume_when_within_an_epoch_then_goes_on_bit_for_bit(void **state)
{
    (void)state;
    static const char *const packs[] = {"--pack on", "--pack off"};
    static const char *const ways[] = {"--recompute full --accumulation layer --policy host",
                                       "--recompute selective --accumulation micro --threads 1"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(system("rm -rf cut whole went-on.json whole.json"), 0);
        assert_code(sluice("train %s --quiet --accumulate 2 --epochs 4 %s --save whole "
                           "--log-json whole.json",
                           common, packs[i]),
                    0);
        const json_int_t steps = (json_int_t)find_event("whole.json", "end", "step");
        assert_true(steps >= 8);
        assert_code(
            sluice("train %s --quiet --accumulate 2 --epochs 4 %s --save cut --save-every 3",
                   common, packs[i]),
            0);
        assert_int_equal(system("cd cut && ls -d step-* | tail -n +2 | xargs rm -rf"), 0);
        assert_code(sluice("train --save cut --resume --quiet --log-json went-on.json %s", ways[i]),
                    0);
        assert_same_steps("whole.json", "went-on.json", 4, steps);
        assert_int_equal(system("cmp whole/step-*/model.safetensors "
                                "$(ls -d cut/step-* | tail -n 1)/model.safetensors >&2"),
                         0);
    }
}

/* The length is one number, whichever option said it before. */
static void resume_when_another_length_is_given_then_it_holds(void **state)
{
    (void)state;
    assert_code(sluice("train %s --quiet --epochs 1 --save length --log-json one.json", common), 0);
    const double steps = find_event("one.json", "end", "step");
    assert_code(sluice("train --save length --resume --epochs 2 --quiet --log-json two.json"), 0);
    const double twice = find_event("two.json", "end", "step"); /* each rounded up */
    assert_true(twice == 2 * steps || twice == 2 * steps - 1);
    assert_code(
        sluice("train --save length --resume --steps %.0f --quiet --log-json more.json", twice + 3),
        0);
    assert_true(find_event("more.json", "end", "step") == twice + 3);
    assert_code(sluice("train --save length --resume"), 0);
    assert_has(complaint, "nothing is left to train");
}

/* Each row is read as often as before, in steps of other sizes, and the learning rate falls until
 * the new last step: 24 rows an epoch, or 32 rows of 32 tokens. */
static void resume_when_with_another_batch_then_reads_the_rows_that_are_left(void **state)
{
    (void)state;
    static const struct {
        const char *length;
        double first, last; /* steps before the batch grows, and of all */
    } runs[] = {{"--epochs 2", 12, 12 + 24.0 / 4}, {"--tokens 1024", 12, 12 + 8.0 / 4}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        assert_int_equal(system("rm -rf batch"), 0);
        assert_code(sluice("train %s --quiet --pack off %s --save batch --save-every 12 "
                           "--lr-schedule linear --lr 1e-3 --min-lr 1e-4",
                           common, runs[i].length),
                    0);
        assert_int_equal(system("cd batch && ls -d step-* | tail -n +2 | xargs rm -rf"), 0);
        assert_code(sluice("train --save batch --resume --micro-batch 4 --log-json batch.json"), 0);
        assert_has(complaint, " steps of 4 rows from here on");
        assert_true(find_event("batch.json", "end", "step") == runs[i].last);
        assert_true(find_event("batch.json", "step", "lr") < 2.5e-4);
    }
}

/* The order of a run is part of it: a length alone does not change it. */
static void resume_when_the_order_has_no_epochs_then_refused(void **state)
{
    (void)state;
    assert_code(sluice("train " TINY "--data text --quiet --steps 2 --save order"), 0);
    assert_code(sluice("train --save order --resume --epochs 1"), 64);
    assert_one_complaint("order random, which has no epochs");
    assert_code(sluice("train --save order --resume --epochs 1 --data-order shuffle"), 0);
    assert_has(complaint, "--data-order random → shuffle");
}

/* The configuration of the log, as a file of --config. */
static void write_printed(const char *log, const char *path)
{
    json_t *events = read_log(log);
    json_t *config = json_object_get(json_array_get(events, 0), "config");
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(events);
}

static void configuration_when_printed_and_read_then_the_same_run(void **state)
{
    (void)state;
    static const char *const ways[][2] = {{common, "--epochs 2"},
                                          {common, "--tokens 400"},
                                          {common, "--steps 3 --pack off"},
                                          {TINY "--data text", "--epochs 1"},
                                          {TINY "--data text", "--steps 3"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        assert_code(sluice("train %s %s --quiet --log-json printed.json", ways[i][0], ways[i][1]),
                    0);
        write_printed("printed.json", "printed-config.json");
        assert_code(sluice("train --config printed-config.json --log-json read.json"), 0);
        const double steps = find_event("printed.json", "end", "step");
        assert_true(steps == find_event("read.json", "end", "step"));
        assert_same_steps("printed.json", "read.json", 1, (json_int_t)steps);
    }
}

static void lines_when_the_same_objects_then_the_same_run(void **state)
{
    (void)state;
    assert_code(sluice("train %s --quiet --steps 3 --log-json a.json", common), 0);
    assert_code(sluice("train " TINY "--data examples.jsonl --seed 5 --quiet --steps 3 " KEYS
                       "--log-json b.json --policy host"),
                0);
    assert_same_steps("a.json", "b.json", 1, 3);
}

/* Of the pairs below 4 + 1 and 2 + 1 tokens count with their ends of text; of all tokens but the
 * first of each example 7 + 1 + 4 and 2 + 1 + 2. */
static void evaluation_when_of_examples_then_is_the_mean_over_what_counts(void **state)
{
    (void)state;
    write_file("two.jsonl",
               "{\"q\": \"prompts\", \"a\": \"boat\"}\n{\"q\": \"is\", \"a\": \"ok\"}\n");
    const char *const ways[] = {"--pack on", "--pack off", "--pack off --micro-batch 1",
                                "--loss all"};
    const double counted[] = {8, 8, 8, 17};
    double loss[4];
    for (int i = 0; i < 4; i++) {
        assert_code(
            sluice(
                "train %s --quiet --steps 1 --lr 0 --eval-data two.jsonl --log-json eval.json %s",
                common, ways[i]),
            0);
        assert_true(find_event("eval.json", "eval", "tokens") == counted[i]);
        loss[i] = find_event("eval.json", "eval", "loss");
    }
    assert_true(isfinite(loss[0]) && fabs(loss[1] - loss[2]) < 1e-12);
    assert_code(sluice("train %s --steps 1 --lr 0 --eval-data two.jsonl", common), 0);
    assert_has(output, "(8 tokens)");
    assert_code(
        sluice("train %s --steps 1 --lr 0 --eval-data examples.json --eval-iters 1", common), 0);
    assert_has(output, " of ");
}

/* A figure of the JSON object that a command printed. */
static double read_figure(const char *key)
{
    json_t *root = json_loads(output, 0, NULL);
    const double value = json_number_value(json_object_get(root, key));
    assert_true(json_is_number(json_object_get(root, key)));
    json_decref(root);
    return value;
}

/* Kept apart, an example has the same loss in a row of its own and in one with others: the sums
 * differ by the roundings of fp32 alone. */
static void examples_when_they_share_rows_then_none_sees_another(void **state)
{
    (void)state;
    assert_code(sluice("train %s --quiet --steps 30 --lr 1e-2 --save made", common), 0);
    double loss[3];
    const char *const ways[] = {"--pack on", "--pack off", "--pack on --documents join"};
    for (int i = 0; i < 3; i++) {
        assert_code(
            sluice("train %s --quiet --init made --steps 1 --lr 0 --eval-data examples.jsonl "
                   "--log-json eval.json %s",
                   common, ways[i]),
            0);
        loss[i] = find_event("eval.json", "eval", "loss");
        assert_code(sluice("eval made --data examples.jsonl --quiet --json " KEYS "%s", ways[i]),
                    0);
        const double of_eval = read_figure("loss");
        if (!(fabs(of_eval - loss[i]) < 1e-9))
            fail_msg("%s: %.12g by eval, %.12g by train", ways[i], of_eval, loss[i]);
    }
    if (!(fabs(loss[0] - loss[1]) < 2e-6 && fabs(loss[0] - loss[2]) > 1e-4))
        fail_msg("%.9g packed, %.9g alone, %.9g joined", loss[0], loss[1], loss[2]);
}

/* The validation share of the small path is one example whose response is cut away. */
static void split_when_a_path_has_no_example_for_a_share_then_others_are_evaluated(void **state)
{
    (void)state;
    write_file("three.jsonl", "{\"q\": \"a\", \"a\": \"b\"}\n{\"q\": \"c\", \"a\": \"d\"}\n"
                              "{\"q\": \"a prompt that is longer than a row of 32 tokens\", "
                              "\"a\": \"f\"}\n");
    static const char options[] =
        TINY "--data 1:examples.jsonl 1:three.jsonl --quiet --steps 2 " KEYS;
    assert_code(sluice("train %s --split 60,40,0 --log-json split.json", options), 0);
    assert_true(find_event("split.json", "eval", "tokens") > 0);
    assert_code(sluice("train %s --split 60,0,40 --log-json split.json", options), 0);
    write_file("four.jsonl", "{\"q\": \"a prompt that is longer than a row of 32 tokens\", "
                             "\"a\": \"f\"}\n");
    assert_code(sluice("train " TINY "--data 1:examples.jsonl 1:four.jsonl --steps 2 " KEYS), 65);
    assert_one_complaint("has no example to train on");
}

static void run_when_it_starts_then_says_what_became_of_examples(void **state)
{
    (void)state;
    assert_code(sluice("train %s --epochs 2", common), 0);
    assert_has(complaint, "24 examples in ");
    assert_has(complaint, "; the longest has ");
    assert_has(complaint, "1 of 24 examples are longer than a row and are cut; 0 of them");
    assert_has(complaint, "--epochs 2 is ");
    assert_code(sluice("train %s --tokens 400 --log-json tokens.json", common), 0);
    assert_has(complaint, "--tokens 400 is 7 steps of 2 rows");
    assert_true(find_event("tokens.json", "end", "step") == 7);
    assert_code(sluice("train " TINY "--data text --quiet --epochs 1 --log-json epoch.json"), 0);
    assert_true(fabs(find_event("epoch.json", "step", "epoch") - 1) < 0.01);
}

/* The first row has an empty example, of which nothing is left to predict. */
static void step_when_nothing_counts_then_is_skipped(void **state)
{
    (void)state;
    write_file("template", "{prompt}{response}\n");
    write_file("empty.jsonl", "{\"q\": \"\", \"a\": \"\"}\n{\"q\": \"a\", \"a\": \"b\"}\n");
    assert_code(sluice("train " TINY "--micro-batch 1 --data empty.jsonl " KEYS
                       "--template template "
                       "--pack off --data-order sequential --steps 3 --log-json skip.json"),
                0);
    assert_has(complaint, "step 1: no token of its rows counts in the loss");
    json_t *events = read_log("skip.json"), *event;
    size_t index;
    json_array_foreach(events, index, event)
    {
        if (strcmp(kind_of(event), "step") != 0)
            continue;
        const bool is_odd = json_integer_value(json_object_get(event, "step")) % 2 == 1;
        assert_true(json_is_true(json_object_get(event, "skipped")) == is_odd);
        assert_true(json_is_null(json_object_get(event, "loss")) == is_odd);
    }
    json_decref(events);
}

/* Of two ranks, that of the first row of a step has nothing that counts, then both ranks. The
 * mean over one rank's tokens is that of one rank which has both rows. */
static void step_when_a_rank_counts_nothing_then_is_that_of_the_others(void **state)
{
    (void)state;
    write_file("template", "{prompt}{response}\n");
    write_file("ranks.jsonl", "{\"q\": \"\", \"a\": \"\"}\n{\"q\": \"a\", \"a\": \"boat\"}\n"
                              "{\"q\": \"\", \"a\": \"\"}\n{\"q\": \"\", \"a\": \"\"}\n");
    static const char options[] = TINY "--micro-batch 1 --data ranks.jsonl " KEYS
                                       "--template template --pack off --data-order sequential "
                                       "--steps 3 --quiet --threads 1 --seed 5";
    assert_code(sluice("launch -n 2 -- '%s' train %s --log-json two.json", binary, options), 0);
    assert_code(sluice("train %s --accumulate 2 --log-json one.json", options), 0);
    json_t *two = read_log("two.json"), *one = read_log("one.json");
    for (size_t step = 1; step <= 3; step++) {
        const json_t *a = json_array_get(one, step), *b = json_array_get(two, step);
        const bool is_empty = step == 2;
        assert_true(json_is_true(json_object_get(a, "skipped")) == is_empty);
        assert_true(json_is_true(json_object_get(b, "skipped")) == is_empty);
        const double loss = json_number_value(json_object_get(b, "loss"));
        if (is_empty)
            assert_true(json_is_null(json_object_get(b, "loss")));
        else
            assert_true(fabs(loss / json_number_value(json_object_get(a, "loss")) - 1) < 1e-5);
    }
    json_decref(two);
    json_decref(one);
}

/* A step without a loss says nothing of the scale: neither halved, nor nearer to being doubled. */
static void step_when_nothing_counts_then_the_loss_scale_stays(void **state)
{
    (void)state;
    write_file("template", "{prompt}{response}\n");
    write_file("empty.jsonl", "{\"q\": \"\", \"a\": \"\"}\n{\"q\": \"a\", \"a\": \"b\"}\n");
    assert_code(sluice("train " TINY "--micro-batch 1 --data empty.jsonl " KEYS
                       "--template template --pack off --data-order sequential --steps 5 --quiet "
                       "--precision fp16 --loss-scale dynamic --loss-scale-start 64 "
                       "--loss-scale-window 2 --log-json scale.json"),
                0);
    static const double scales[] = {64, 64, 64, 64, 128}; /* after two steps that count */
    json_t *events = read_log("scale.json");
    for (size_t step = 1; step <= 5; step++) {
        const json_t *event = json_array_get(events, step);
        assert_true(json_is_true(json_object_get(event, "skipped")) == (step % 2 == 1));
        assert_true(json_number_value(json_object_get(event, "loss_scale")) == scales[step - 1]);
    }
    json_decref(events);
}

static void options_when_they_contradict_then_refused(void **state)
{
    (void)state;
    static const struct {
        const char *options, *part;
    } rows[] = {
        {"--data examples.json", "--prompt-key"},
        {"--data examples.json --prompt-key q", "--response-key"},
        {"--data examples.json " KEYS "--messages-key m", "--messages-key"},
        {"--data examples.json " KEYS "--json-key body", "--json-key"},
        {"--data text --loss all", "--loss"},
        {"--data text --pack off", "--pack"},
        {"--data examples.json " KEYS "--pack off --documents reset", "--documents"},
        {"--data examples.json " KEYS "--epochs 2 --steps 3", "give one of them"},
        {"--data examples.json " KEYS "--epochs 2 --tokens 3", "give one of them"},
        {"--data text --epochs 2 --data-order random", "--data-order"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int code = sluice("train " TINY "%s", rows[i].options);
        assert_true(code == 64 || (i == 0 && code == 65));
        assert_one_complaint(rows[i].part);
    }
    write_file("wrong.jsonl", "{\"q\": \"1\", \"a\": \"2\"}\n{\"q\": \"1\"}\n");
    assert_code(sluice("train " TINY "--data wrong.jsonl " KEYS), 65);
    assert_one_complaint("wrong.jsonl: line 2: has no key \"a\"");
    assert_code(sluice("train " TINY "--data text " KEYS), 65);
    assert_one_complaint("neither JSON lines nor a JSON array");
    assert_code(sluice("eval made --data examples.json --loss all"), 64);
    assert_one_complaint("--loss");
    assert_code(sluice("eval made --data examples.json " KEYS "--overlap 4"), 64);
    assert_one_complaint("--overlap");
    write_file("bad-template", "{prompt}");
    assert_code(sluice("train " TINY "--data examples.json " KEYS "--template bad-template"), 64);
    assert_one_complaint("{response}");
    FILE *file = fopen("nul-template", "w");
    assert_non_null(file);
    assert_int_equal(fwrite("{prompt}{response}\0more", 1, 23, file), 23);
    fclose(file);
    assert_code(sluice("train " TINY "--data examples.json " KEYS "--template nul-template"), 65);
    assert_one_complaint("NUL byte");
}

/* A template that an editor of Windows wrote makes the tokens of another one. */
static void template_when_its_line_ends_in_two_bytes_then_both_are_dropped(void **state)
{
    (void)state;
    static const char *const ends[] = {"", "\n", "\r\n"};
    for (int i = 0; i < 3; i++) {
        char text[64], log[32];
        snprintf(text, sizeof text, "{prompt}: {response}.%s", ends[i]);
        snprintf(log, sizeof log, "end%d.json", i);
        write_file("template", text);
        assert_code(
            sluice("train %s --quiet --steps 2 --template template --log-json %s", common, log), 0);
    }
    assert_same_steps("end0.json", "end1.json", 1, 2);
    assert_same_steps("end0.json", "end2.json", 1, 2);
}

static double tuned_loss(const char *options)
{
    assert_code(sluice("eval kept --data examples.json --json " KEYS "%s", options), 0);
    return read_figure("loss");
}

/* A model is asked as its examples were written, without being told so again. */
static void checkpoint_when_tuned_then_keeps_the_template(void **state)
{
    (void)state;
    write_file("template", "Q: {prompt}\nA: {response}\n");
    assert_code(sluice("train %s --quiet --steps 2 --template template --save kept", common), 0);
    assert_code(sluice("generate kept --prompt hi --tokens 2"), 0);
    assert_memory_equal(output, "Q: hi\nA: ", 9);
    assert_code(sluice("generate kept --prompt hi --tokens 2 --template none"), 0);
    assert_memory_equal(output, "hi", 2);
    assert_code(sluice("generate kept --tokens 2"), 0);
    assert_null(strstr(output, "Q: "));
    assert_code(sluice("generate kept --prompt hi --tokens 2 --system brief"), 64);
    assert_has(complaint, "a system message needs a template of messages");
    const double known = tuned_loss("");
    assert_true(tuned_loss("--template template") == known);
    assert_true(fabs(tuned_loss("--template none") / known - 1) > 1e-6);
    write_file("template", "{role}> {content}.\n\n");
    assert_code(sluice("generate kept --prompt hi --tokens 2 --template template --system brief"),
                0);
    assert_memory_equal(output, "system> brief.\nuser> hi.\nassistant> ", 36);
}

/* What another program said of a model, and where a text ends, outlives the model's directory. */
static void checkpoint_when_its_base_is_gone_then_its_texts_are_written_again(void **state)
{
    (void)state;
    assert_code(sluice("train %s --quiet --steps 1 --end-of-text 10 --save first", common), 0);
    assert_code(sluice("convert --from first --to hf --quiet"), 0);
    assert_int_equal(system("tr -d ' \\n' <hf/generation_config.json | "
                            "grep -qF '\"eos_token_id\":[10,256]'"),
                     0);
    write_file("hf/chat_template.jinja", "{{ messages }}");
    write_file("hf/generation_config.json", "{\"top_k\": 7, \"eos_token_id\": [9, 10]}");
    assert_code(sluice("train " TINY "--data text --quiet --init hf --steps 1 --save second"), 0);
    assert_int_equal(system("rm -rf hf"), 0);
    assert_code(sluice("train " TINY "--data text --quiet --init second --steps 1 --save third"),
                0);
    assert_code(sluice("convert --from third --to again --quiet"), 0);
    assert_int_equal(system("grep -qF '{{ messages }}' again/chat_template.jinja && "
                            "tr -d ' \\n' <again/generation_config.json | "
                            "grep -qF '{\"top_k\":7,\"eos_token_id\":[256,9,10]'"),
                     0);
    assert_code(sluice("convert --from third --to again --quiet --overwrite"), 0);
    assert_code(sluice("generate third --prompt a --tokens 1 --end-of-text 300"), 64);
}

static const char ended_silent[] = TINY "--vocab 262 --tokenizer ended --data silent.jsonl " KEYS;
static const char ended[] = TINY "--vocab 262 --tokenizer ended --data examples.jsonl " KEYS;

/* A tokenizer of bytes whose own end is another token than that of the run. */
static void write_ended_tokenizer(void)
{
    assert_int_equal(
        system("mkdir -p ended && "
               "python3 -c 'import json; "
               "keep = [*range(33, 127), *range(161, 173), *range(174, 256)]; "
               "lost = [b for b in range(256) if b not in keep]; "
               "of = {b: chr(256 + lost.index(b) if b in lost else b) for b in range(256)}; "
               "json.dump({\"model\": {\"type\": \"BPE\", \"vocab\": {**{of[b]: b for b in of}, "
               "\"th\": 256}, "
               "\"merges\": [\"t h\"]}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
               "\"add_prefix_space\": False, \"use_regex\": True}, \"added_tokens\": [{\"id\": "
               "257 + i, \"content\": t, \"special\": True} for i, t in "
               "enumerate([\"<|own|>\", \"<|turn|>\"])]}, open(\"ended/tokenizer.json\", "
               "\"w\"))' && "
               "echo '{\"eos_token\": \"<|own|>\", \"tokenizer_class\": \"X\"}' "
               ">ended/tokenizer_config.json"),
        0);
}

static double loss_of(const char *model, const char *options)
{
    assert_code(sluice("eval %s --data examples.jsonl --quiet --json " KEYS "%s", model, options),
                0);
    return read_figure("loss");
}

/* The end of text that a run was given is its model's. */
static void checkpoint_when_end_of_text_was_given_then_it_holds(void **state)
{
    (void)state;
    write_ended_tokenizer();
    assert_code(
        sluice("train %s --quiet --steps 20 --lr 1e-2 --end-of-text 258 --save turned", ended), 0);
    const double known = loss_of("turned", "");
    assert_true(loss_of("turned", "--end-of-text 258") == known);
    assert_true(fabs(loss_of("turned", "--end-of-text 257") / known - 1) > 1e-3);
    assert_code(sluice("convert --from turned --to turned-hf --quiet"), 0);
    assert_int_equal(system("grep -q '\"eos_token_id\": 258' turned-hf/config.json && "
                            "tr -d ' \\n' <turned-hf/generation_config.json | "
                            "grep -qF '\"eos_token_id\":[258,257]' && "
                            "grep -qF '\"eos_token\": \"<|turn|>\"' "
                            "turned-hf/tokenizer_config.json && "
                            "grep -qF '\"tokenizer_class\": \"X\"' "
                            "turned-hf/tokenizer_config.json"),
                     0);
    assert_true(fabs(loss_of("turned-hf", "") / known - 1) < 1e-5);
    assert_code(sluice("train " TINY "--init turned --data examples.jsonl " KEYS
                       "--quiet --steps 1 --lr 0 --save turned-on"),
                0);
    assert_true(loss_of("turned-on", "") == known);
    write_file("silent.jsonl", "{\"q\": \"a\", \"a\": \"\"}\n");
    assert_code(sluice("train %s --quiet --steps 30 --lr 1e-2 --end-of-text 258 --save silent",
                       ended_silent),
                0);
    assert_code(sluice("generate silent --prompt a --tokens 6 --temperature 0"), 0);
    assert_has(speed, "generated 0 tokens");
}

/* What is in use is said where the model has a template of its own. */
static void template_when_the_model_has_a_chat_template_then_says_what_is_used(void **state)
{
    (void)state;
    assert_code(sluice("train %s --quiet --steps 1 --save plain", common), 0);
    assert_code(sluice("convert --from plain --to chatty --quiet"), 0);
    write_file("chatty/chat_template.jinja", "{{ messages }}");
    static const char options[] =
        TINY "--init chatty --data examples.jsonl --steps 1 --save told --overwrite " KEYS;
    assert_code(sluice("train %s", options), 0);
    assert_has(complaint, "the model's chat template is not used: without --template FILE an ");
    assert_has(complaint, "docs/fine-tuning.md");
    assert_code(sluice("train %s --template none", options), 0);
    assert_null(strstr(complaint, "chat template"));
    assert_code(sluice("eval chatty --data examples.jsonl " KEYS), 0);
    assert_null(strstr(output, "checkpoint of step"));
    assert_code(sluice("eval plain --data examples.jsonl " KEYS), 0);
    assert_has(output, ", checkpoint of step 1)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resume_when_within_an_epoch_then_goes_on_bit_for_bit),
        cmocka_unit_test(resume_when_another_length_is_given_then_it_holds),
        cmocka_unit_test(resume_when_with_another_batch_then_reads_the_rows_that_are_left),
        cmocka_unit_test(resume_when_the_order_has_no_epochs_then_refused),
        cmocka_unit_test(configuration_when_printed_and_read_then_the_same_run),
        cmocka_unit_test(lines_when_the_same_objects_then_the_same_run),
        cmocka_unit_test(evaluation_when_of_examples_then_is_the_mean_over_what_counts),
        cmocka_unit_test(examples_when_they_share_rows_then_none_sees_another),
        cmocka_unit_test(split_when_a_path_has_no_example_for_a_share_then_others_are_evaluated),
        cmocka_unit_test(run_when_it_starts_then_says_what_became_of_examples),
        cmocka_unit_test(step_when_nothing_counts_then_is_skipped),
        cmocka_unit_test(step_when_a_rank_counts_nothing_then_is_that_of_the_others),
        cmocka_unit_test(step_when_nothing_counts_then_the_loss_scale_stays),
        cmocka_unit_test(options_when_they_contradict_then_refused),
        cmocka_unit_test(checkpoint_when_tuned_then_keeps_the_template),
        cmocka_unit_test(checkpoint_when_its_base_is_gone_then_its_texts_are_written_again),
        cmocka_unit_test(template_when_its_line_ends_in_two_bytes_then_both_are_dropped),
        cmocka_unit_test(checkpoint_when_end_of_text_was_given_then_it_holds),
        cmocka_unit_test(template_when_the_model_has_a_chat_template_then_says_what_is_used),
    };
    return cmocka_run_group_tests(tests, set_up_examples, tear_down);
}
