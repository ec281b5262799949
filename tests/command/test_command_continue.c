/* What could be wrong here: a run that goes on forgets what it was given, so that learning rate,
 * batch or horizon change without a word; it goes on with other data, or another model; the place
 * or the machine of the first run is forced on the second; two runs mix their checkpoints in one
 * directory, or their logs; a checkpoint from elsewhere has files written where it says;
 * checkpoints that were to be replaced are gone before there is a new one. Every case runs the
 * built command. */
#define _GNU_SOURCE
#include "command_run.h"

static void run_shell(const char *command)
{
    if (system(command) != 0)
        fail_msg("%s failed", command);
}

static json_t *find_config(const char *log)
{
    size_t index;
    json_t *event, *config = NULL, *events = read_log(log);
    json_array_foreach(events, index, event)
    {
        if (strcmp(kind_of(event), "start") == 0)
            config = json_object_get(event, "config"); /* of the last start */
    }
    assert_non_null(config);
    json_incref(config);
    json_decref(events);
    return config;
}

static void assert_option(const char *log, const char *key, const char *value)
{
    json_t *config = find_config(log);
    char *text = json_dumps(json_object_get(config, key), JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    if (!text || strcmp(text, value) != 0)
        fail_msg("%s is %s, not %s", key, text ? text : "missing", value);
    free(text);
    json_decref(config);
}

/* Several lines may stand on standard error: notes. */
static void assert_note(const char *part)
{
    assert_has(complaint, part);
}

static void assert_no_note(const char *part)
{
    if (strstr(complaint, part))
        fail_msg("\"%s\" is in \"%s\"", part, complaint);
}

/* ---- what is taken over ---- */

/* Everything that decides a number is given once, in the first command. */
static void resume_when_nothing_is_given_then_goes_on_as_it_began(void **state)
{
    (void)state;
    static const char common[] =
        "--layers 2 --width 32 --heads 2 --context 32 --seq 16 --micro-batch 3 --accumulate 2 "
        "--data text --data-order sequential --precision bf16 --steps 12 --lr 3e-3 --warmup 2 "
        "--lr-schedule linear --beta2 0.97 --clip 0.5 --seed 17000000000000000001 --quiet";
    assert_code(sluice("train %s --save whole --log-json whole.json", common), 0);
    assert_code(sluice("train %s --save cut --save-every 5 --log-json cut.json", common), 0);
    run_shell("rm -r cut/step-00000012 cut/step-00000010 && mkdir elsewhere");
    assert_int_equal(chdir("elsewhere"), 0); /* relative paths of the first command hold */
    int code = sluice("train --save ../cut --resume --quiet");
    assert_int_equal(chdir(".."), 0);
    assert_code(code, 0);
    assert_string_equal(complaint, "");
    assert_same_steps("whole.json", "cut.json", 6, 12);
    assert_int_equal(access("cut/step-00000010", F_OK), 0); /* --save-every too */
    run_shell("cmp whole/step-00000012/model.safetensors cut/step-00000012/model.safetensors");
}

static void resume_when_options_are_given_too_then_they_win_and_are_told(void **state)
{
    (void)state;
    run_shell("rm -rf cut");
    assert_code(sluice("train " TINY "--data text --steps 4 --lr 3e-3 --save cut --quiet "
                       "--device-memory 64M --policy host"),
                0);
    assert_code(sluice("train --save cut --resume --steps 8 --lr 1e-3 --device-memory 128M "
                       "--weight-decay 0.1 --log-json cut.log"),
                0);
    assert_note("sluice: --steps 4 → 8\n");
    assert_note("sluice: --lr 0.003 → 0.001\n");
    assert_note("sluice: --device-memory 64M → 128M\n");
    assert_no_note("weight-decay"); /* as it was */
    assert_no_note("--policy");
    assert_no_note("--save");
    assert_option("cut.log", "lr", "0.001");
    assert_option("cut.log", "min_lr", "0.0001"); /* not given: a tenth of the new one */
    assert_option("cut.log", "policy", "\"host\"");
    assert_code(sluice("train --save cut --resume --quiet"), 0); /* what was given is kept */
    assert_string_equal(complaint, "sluice: the checkpoint is of step 8 of 8: nothing is left to "
                                   "train; --steps N goes on to step N\n");
    assert_option("cut.log", "lr", "0.001");
}

/* What the first run found by itself, the second finds again. */
static void resume_when_the_place_was_open_then_it_is_chosen_anew(void **state)
{
    (void)state;
    run_shell("rm -rf cut *.log; mkdir -m 700 disk");
    const char *resume = "train --save cut --resume --log-json cut.log --quiet";
    assert_code(sluice("train " TINY "--data text --steps 2 --save cut --quiet"), 0);
    assert_code(sluice("%s --steps 3 --threads 1 --device-memory 700K --host-memory 2M", resume),
                0);
    assert_option("cut.log", "device_memory", "716800");
    assert_option("cut.log", "threads", "1");
    run_shell("rm -rf cut *.log");
    assert_code(sluice("train " TINY "--data text --steps 2 --save cut --quiet --policy static "
                       "--offload-optimizer 1"),
                0);
    assert_code(sluice("%s --steps 3", resume), 0);
    assert_option("cut.log", "policy", "\"static\"");
    assert_option("cut.log", "offload_optimizer", "1.0");
    assert_code(sluice("%s --steps 4 --policy device", resume), 0); /* its shares go with it */
    assert_option("cut.log", "policy", "\"device\"");
    assert_code(sluice("%s --steps 5 --policy nvme --disk-dir disk", resume), 0);
}

static void resume_when_another_name_is_given_for_the_same_then_nothing_changes(void **state)
{
    (void)state;
    run_shell("rm -rf cut *.log");
    assert_code(sluice("train " TINY "--data text --steps 2 --save cut --quiet --policy const "
                       "--offload-optimizer 1"),
                0);
    assert_code(sluice("train --save cut --resume --log-json cut.log --quiet --policy const "
                       "--steps 3"),
                0);
    assert_no_note("--policy");
    assert_option("cut.log", "policy", "\"static\"");
    assert_option("cut.log", "offload_optimizer", "1.0");
}

/* What was not given and follows from another option does so again when that one changes. */
static void resume_when_an_option_changes_then_what_follows_from_it_does_too(void **state)
{
    (void)state;
    run_shell("rm -rf cut *.log");
    const char *resume = "train --save cut --resume --log-json cut.log --quiet";
    assert_code(sluice("train " TINY "--data text --steps 2 --lr 1e-3 --loss-scale dynamic "
                       "--save cut --quiet"),
                0);
    assert_code(sluice("%s --steps 3 --lr 1e-5 --loss-scale 1", resume), 0);
    assert_option("cut.log", "min_lr", "1e-6");
    assert_note("sluice: --min-lr 0.0001 → 1e-06, which follows from --lr\n");
    assert_option("cut.log", "nonfinite", "\"stop\"");
    assert_note("sluice: --nonfinite skip → stop, which follows from --loss-scale\n");
    assert_code(sluice("%s --steps 4 --lr 1e-4 --min-lr 1e-5", resume), 0); /* given: told once */
    assert_note("sluice: --min-lr 1e-06 → 1e-05\n");
    assert_no_note("follows from --lr");
    assert_note("sluice: --lr-decay-steps 3 → 4, which follows from --steps\n");
    assert_code(sluice("%s --steps 5 --lr 1e-3", resume), 0); /* given before: it stays */
    assert_no_note("--min-lr");
}

/* A loss scale that was not given belongs to the precision. */
static void resume_when_the_precision_changes_then_the_loss_scale_follows(void **state)
{
    (void)state;
    run_shell("rm -rf cut *.log");
    const char *resume = "train --save cut --resume --log-json cut.log --quiet";
    assert_code(sluice("train " TINY "--data text --steps 2 --save cut --quiet"), 0);
    assert_code(sluice("%s --steps 3 --precision fp16", resume), 0);
    assert_note("--precision fp32 → fp16");
    assert_note("--loss-scale 1 → dynamic, which follows from --precision\n");
    assert_note("--nonfinite stop → skip, which follows from --loss-scale\n");
    assert_option("cut.log", "loss_scale", "\"dynamic\"");
    assert_option("cut.log", "nonfinite", "\"skip\"");
    assert_code(sluice("%s --steps 4", resume), 0);
    assert_option("cut.log", "precision", "\"fp16\"");
}

static void plan_when_it_resumes_then_plans_the_run_that_goes_on(void **state)
{
    (void)state;
    run_shell("rm -rf cut");
    assert_code(sluice("train " TINY "--data text --steps 2 --save cut --quiet --seq 8"), 0);
    assert_code(sluice("plan --save cut --resume"), 0);
    assert_has(output, "1 x 2 rows of 8 tokens");
    assert_code(sluice("plan " TINY "--save cut"), 0); /* writes nothing, so mixes nothing */
}

/* ---- what is refused ---- */

static void resume_when_the_data_changed_then_refused_unless_given_anew(void **state)
{
    (void)state;
    run_shell("rm -rf cut; cp text grows");
    assert_code(sluice("train " TINY "--data grows --steps 2 --save cut --quiet"), 0);
    run_shell("echo more >>grows");
    assert_code(sluice("train --save cut --resume --steps 3 --quiet"), 65);
    assert_one_complaint("the data changed");
    assert_code(sluice("train --save cut --resume --steps 3 --quiet --data grows"), 0);
    assert_note("warning: the data are not those of the checkpoint");
    run_shell("sed -i 's/more/less/' grows"); /* as long as before */
    assert_code(sluice("train --save cut --resume --steps 4 --quiet"), 65);
    assert_one_complaint("the content of the files");
    assert_code(sluice("train --save cut --resume --steps 4 --quiet --data text"), 0);
    assert_note("/grows → ");
    run_shell("rm text.gone 2>/dev/null; mv text text.gone");
    int code = sluice("train --save cut --resume --steps 5 --quiet");
    run_shell("mv text.gone text");
    assert_code(code, 66);
    assert_one_complaint("/text");
}

static void resume_when_it_would_be_another_run_then_refused(void **state)
{
    (void)state;
    static const struct {
        const char *options, *part;
    } cases[] = {
        {"--width 64", "is not the checkpoint's (width 32 and 64 of"},
        {"--vocab 300", "is not the checkpoint's"},
        {"--model gpt2", "is not the checkpoint's"},
        {"--seed 9", "--seed"},
        {"--init weights", "leave --init out"},
        {"--init scratch --tokenizer " SL_TEST_SOURCE_DIRECTORY "/reference/bpe",
         "is not that of the checkpoint, \"byte\""},
        {"--overwrite", "--overwrite"},
    };
    run_shell("rm -rf cut");
    assert_code(sluice("train " TINY "--data text --steps 2 --save cut --quiet"), 0);
    run_shell("cp -r cut weights");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_code(sluice("train --save cut --resume --steps 3 %s", cases[i].options), 64);
        assert_one_complaint(cases[i].part);
        assert_string_equal(output, "");
    }
    assert_int_equal(access("cut/step-00000003", F_OK), -1);
    assert_code(sluice("train " TINY "--data text --save cut --resume --steps 3 --seed 1 --quiet"),
                0);
}

/* What could not be recorded would be asked for again when the run goes on. */
static void path_when_not_utf8_then_refused_before_anything_is_written(void **state)
{
    (void)state;
    run_shell("cp text 'caf\xe9'");
    assert_code(sluice("train " TINY "--data 'caf\xe9' --steps 1 --save named --quiet"), 64);
    assert_one_complaint("--data ");
    assert_has(complaint, "caf\\xe9: this is not UTF-8");
    assert_int_equal(access("named", F_OK), -1);
    assert_code(sluice("train " TINY "--data text --steps 1 --save 'caf\xe9s' --quiet"), 64);
    assert_one_complaint("--save ");
    assert_code(sluice("train " TINY "--tokenizer none --data 'caf\xe9' --steps 1 --save named"),
                64);
    assert_one_complaint("--data ");
    assert_code(sluice("plan " TINY "--data 'caf\xe9' --json"), 0);
    assert_code(sluice("train " TINY "--data 'caf\xe9' --steps 1 --log-json unsaved.log --quiet"),
                0);
    run_shell("grep -q '\"data\": *\\[null\\]' unsaved.log && rm unsaved.log");
    run_shell("ln -s 'caf\xe9' link && rm -rf linked");
    assert_code(sluice("train " TINY "--data link --steps 1 --save linked --quiet"), 0);
    assert_code(sluice("train --save linked --resume --steps 2 --quiet"), 0);
}

/* ---- a directory that is used ---- */

static void save_when_its_directory_is_used_then_refused(void **state)
{
    (void)state;
    run_shell("rm -rf used *.log");
    assert_code(sluice("train " TINY "--data text --steps 4 --save used --log-json a.log --quiet"),
                0);
    run_shell("cp -r used before && cp a.log b.log");
    assert_code(sluice("train " TINY "--data text --steps 2 --save used --log-json a.log --quiet"),
                64);
    assert_one_complaint("newest of step 4");
    assert_has(complaint, "--resume");
    assert_has(complaint, "--overwrite");
    run_shell("diff -r used before && cmp a.log b.log");
    run_shell("mkdir other && touch other/notes");
    assert_code(sluice("train " TINY "--data text --steps 1 --save other --quiet"), 0);
    assert_code(sluice("train " TINY "--data text --steps 1 --overwrite --quiet"), 64);
    assert_one_complaint("--save");
}

static void overwrite_when_the_first_checkpoint_is_there_then_the_old_ones_go(void **state)
{
    (void)state;
    run_shell("rm -rf used");
    assert_code(sluice("train " TINY "--data text --steps 6 --save used --save-every 2 --quiet"),
                0);
    assert_code(sluice("train " TINY "--data text --steps 5 --save used --save-every 2 --overwrite "
                       "--keep 2 --lr 1e-3 --log-json new.log"),
                0);
    assert_string_equal(complaint, "");
    run_shell("test \"$(ls used | tr '\\n' ' ')\" = 'LATEST step-00000004 step-00000005 '");
    assert_code(sluice("train --save used --resume --steps 7 --quiet --log-json new.log"), 0);
    assert_option("new.log", "lr", "0.001");
}

/* Nothing was saved yet, so nothing may be gone: whatever ends the new run. */
static void overwrite_when_the_run_fails_before_it_saves_then_the_old_ones_stay(void **state)
{
    (void)state;
    run_shell("rm -rf used before");
    assert_code(sluice("train " TINY "--data text --steps 4 --save used --save-every 2 --quiet"),
                0);
    run_shell("cp -r used before");
    assert_code(sluice("train " TINY "--data text --steps 9 --lr 1e30 --save used --overwrite "
                       "--quiet"),
                76);
    assert_code(sluice("train " TINY "--data missing --save used --overwrite --quiet"), 66);
    run_shell("diff -r used before");
}

/* Found before the first step, and with exit code 74, whatever keeps checkpoints from being made.
 */
static void save_when_nothing_can_be_kept_then_told_at_the_start(void **state)
{
    (void)state;
    run_shell("rm -rf used; echo >file");
    assert_code(sluice("train " TINY "--data text --steps 2 --save file/below --log-json n.log"),
                74);
    assert_one_complaint("--save");
    assert_code(sluice("train " TINY "--data text --steps 2 --save /proc/below --log-json n.log"),
                74);
    assert_one_complaint("--save");
    run_shell("mkdir -p used && ln -s ../file used/.lock");
    assert_code(sluice("train " TINY "--data text --steps 2 --save used --log-json n.log"), 74);
    assert_one_complaint("used/.lock");
    assert_string_equal(output, "");
    assert_int_equal(access("n.log", F_OK), -1);
    assert_code(sluice("train " TINY "--data text --steps 2 --save ''"), 64);
    assert_one_complaint("--save: the name of the directory is empty");
    assert_code(sluice("train " TINY "--data text --steps 2 --set save="), 64);
    assert_code(sluice("train " TINY "--data text --steps 2"), 0);
    assert_has(output, "nothing is kept: without --save DIR");
}

/* The directory can be made and locked, but no file in it can grow: only trying a save tells. */
static void save_when_no_file_can_grow_then_told_at_the_start(void **state)
{
    (void)state;
    char command[COMMAND_BYTES];
    run_shell("rm -rf full");
    snprintf(command, sizeof command,
             "{ (ulimit -f 0; exec '%s' train " TINY "--data text --steps 2 --save full); "
             "echo code $?; } 2>&1 </dev/null | cat >said",
             binary);
    run_shell(command);
    read_text("said", output);
    assert_has(output, "sluice: --save: full/step-00000000");
    assert_has(output, "File too large");
    assert_has(output, "code 74\n");
}

/* The lock goes with the process, however that ends. */
static void save_when_another_run_saves_there_then_refused(void **state)
{
    (void)state;
    run_shell("rm -rf used");
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command,
             "'%s' train " TINY "--data text --steps 10000000 --save used --save-every 5 --keep 2 "
             "--quiet >first.out 2>&1 </dev/null & echo $! >pid; "
             "while ! test -e used/LATEST; do sleep 0.05; done",
             binary);
    run_shell(command);
    assert_code(sluice("train --resume --save used --steps 20000000"), 64);
    assert_one_complaint("used: another run saves there now (process ");
    assert_code(sluice("train " TINY "--data text --steps 2 --save used --overwrite"), 64);
    assert_one_complaint("another run saves there now");
    run_shell("kill -9 $(cat pid); while kill -0 $(cat pid) 2>list; do sleep 0.05; done");
    assert_code(sluice("train " TINY "--data text --steps 2 --save used --overwrite --quiet"), 0);
    run_shell("test \"$(ls used | tr '\\n' ' ')\" = 'LATEST step-00000002 '");
}

/* One command serves a job's first start and all later ones. */
static void resume_when_there_is_no_checkpoint_then_said(void **state)
{
    (void)state;
    run_shell("rm -rf checkpoints chekpoints used");
    assert_code(sluice("train " TINY "--data text --steps 1 --quiet --save checkpoints --resume"),
                0);
    assert_note("there is no checkpoint in checkpoints, so this run begins at step 0\n");
    assert_code(sluice("train " TINY "--data text --steps 1 --quiet --save chekpoints --resume"),
                0);
    assert_note("warning: --resume: there is no checkpoint in chekpoints, so this run begins at");
    assert_note("was --save checkpoints meant");
}

/* ---- the log ---- */

static void log_when_a_run_resumes_then_earlier_lines_stay(void **state)
{
    (void)state;
    run_shell("rm -rf logged; echo '{\"event\":\"kept\"}' >kept.log");
    const char *common = "train " TINY "--data text --save logged --resume --quiet";
    assert_code(sluice("%s --steps 2 --log-json kept.log", common), 0); /* nothing to go on from */
    assert_code(sluice("%s --steps 3", common), 0);                     /* the log is kept too */
    json_t *events = read_log("kept.log");
    assert_string_equal(kind_of(json_array_get(events, 0)), "kept");
    assert_int_equal(json_array_size(events), 1 + 4 + 3);
    find_step(events, 1);
    find_step(events, 3);
    json_decref(events);
}

/* ---- paths that a checkpoint alone names ---- */

#define LOGS "--log-json %s/.log --log-csv %s/table --tensorboard %s/board "

/* A run whose options name `place` for everything that is made or written. */
static void train_into(const char *save, const char *place)
{
    char names[256];
    snprintf(names, sizeof names, LOGS, place, place, place);
    assert_code(sluice("train " TINY "--data text --document-per line --steps 2 --quiet --save %s "
                       "--cache-dir '%s/$(touch PWNED)x' %s",
                       save, place, names),
                0);
}

/* Whoever made a checkpoint chose these paths: files of the user's that lie there now stay, and
 * nothing is added to them. */
static void resume_when_a_checkpoint_names_paths_then_nothing_is_written_there(void **state)
{
    (void)state;
    run_shell("rm -rf evil moved place && mkdir place precious && echo mine >precious/notes");
    train_into("evil", "place");
    run_shell("test -d 'place/$(touch PWNED)x' && rm -r place && mkdir place");
    for (int is_moved = 0; is_moved < 2; is_moved++) {
        const char *save = is_moved ? "moved" : "evil";
        assert_code(sluice("train --resume --save %s --steps 4 --quiet", save), 0);
        assert_note("/place/.log");
        assert_note("give --log-json to choose");
        assert_note("give --log-csv to choose");
        assert_note("give --tensorboard to choose");
        assert_note("--cache-dir");
        run_shell("test -z \"$(ls -A place)\"");
        run_shell(is_moved ? "ls moved/log-.log moved/table moved/board/* >list"
                           : "ls evil/log-.log evil/table evil/board/* >list && "
                             "rm -r evil/step-00000004 && mv evil moved && rm -r moved/[!s]*");
    }
    /* Files that are there, and links to files and directories that are. */
    run_shell("rm -rf evil place && mkdir place");
    train_into("evil", "place");
    run_shell("rm -r place && mkdir place && cp text place/.log && cp text place/table && "
              "ln -s ../precious place/board && ln -s ../precious/new evil/log-.log && "
              "ln -s ../precious/notes evil/table && ln -s ../precious evil/board && "
              "cp -a place kept.before");
    assert_code(sluice("train --resume --save evil --steps 4 --quiet"), 0);
    assert_note("there is no --log-json: neither ");
    assert_note("there is no --log-csv: neither ");
    assert_note("there is no --tensorboard: neither ");
    run_shell("diff -r place kept.before && test \"$(ls precious)\" = notes && "
              "test \"$(cat precious/notes)\" = mine && rm -r kept.before");
}

/* A link at the recorded path would lead the run's own log, or another, out of its place. */
static void log_when_a_link_has_its_name_then_not_followed(void **state)
{
    (void)state;
    run_shell("rm -rf linked place && mkdir place");
    train_into("linked", "place");
    run_shell("for i in .log table board; do mv place/$i place/$i.real && ln -s $i.real place/$i; "
              "done; cp -a place kept.before");
    assert_code(sluice("train --resume --save linked --steps 3 --quiet"), 0);
    assert_note("give --log-json to choose");
    run_shell("diff -r --no-dereference place kept.before && rm -r kept.before");
}

static void disk_when_a_checkpoint_names_it_then_asked_for_again(void **state)
{
    (void)state;
    run_shell("rm -rf evil place && mkdir -m 700 place");
    assert_code(sluice("train " TINY "--data text --steps 2 --quiet --save evil --policy nvme "
                       "--disk-dir place"),
                0);
    assert_code(sluice("train --resume --save evil --steps 4 --quiet"), 64);
    assert_note("/place, which is not taken over");
    assert_note("add --disk-dir DIR");
    assert_code(sluice("plan --resume --save evil --steps 4"), 64);
    assert_code(sluice("train --resume --save evil --steps 4 --quiet --disk-dir place"), 0);
    assert_no_note("--disk-dir");
}

/* The original's logs carry the id that the copy has, too. */
static void copy_when_it_goes_on_then_its_logs_lie_beside_it(void **state)
{
    (void)state;
    run_shell("rm -rf first second third logs && mkdir logs");
    train_into("first", "logs");
    run_shell("cp -r first second && cp -r logs kept.before");
    assert_code(sluice("train --resume --save second --steps 4 --quiet"), 0);
    assert_note("--log-json goes on in second/log-.log: the checkpoint names ");
    assert_note("/logs/.log, but was saved in another directory than this;");
    assert_note("--log-csv goes on in second/table: ");
    assert_note("--tensorboard goes on in second/board: ");
    run_shell("diff -r logs kept.before && test $(wc -l <second/table) = 3");
    json_t *events = read_log("second/log-.log");
    find_step(events, 3);
    find_step(events, 4);
    assert_int_equal(json_array_size(events), 4);
    json_decref(events);
    /* Both go on where they are now, unasked. */
    assert_code(sluice("train --resume --save second --steps 5 --quiet"), 0);
    assert_no_note("goes on in");
    run_shell("diff -r logs kept.before && test $(wc -l <second/table) = 4");
    assert_code(sluice("train --resume --save first --steps 3 --quiet"), 0);
    assert_no_note("goes on in");
    run_shell(
        "test $(wc -l <logs/table) = 4 && test $(ls logs/board | wc -l) = 2 && rm -r kept.before");
    /* Logs that were copied too go on there. */
    run_shell("cp -r second third && cp -r second kept.before");
    assert_code(sluice("train --resume --save third --steps 6 --quiet"), 0);
    run_shell("diff -r second kept.before && test $(wc -l <third/table) = 5 && rm -r kept.before");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resume_when_nothing_is_given_then_goes_on_as_it_began),
        cmocka_unit_test(resume_when_options_are_given_too_then_they_win_and_are_told),
        cmocka_unit_test(resume_when_the_place_was_open_then_it_is_chosen_anew),
        cmocka_unit_test(resume_when_another_name_is_given_for_the_same_then_nothing_changes),
        cmocka_unit_test(resume_when_an_option_changes_then_what_follows_from_it_does_too),
        cmocka_unit_test(resume_when_the_precision_changes_then_the_loss_scale_follows),
        cmocka_unit_test(plan_when_it_resumes_then_plans_the_run_that_goes_on),
        cmocka_unit_test(resume_when_the_data_changed_then_refused_unless_given_anew),
        cmocka_unit_test(resume_when_it_would_be_another_run_then_refused),
        cmocka_unit_test(path_when_not_utf8_then_refused_before_anything_is_written),
        cmocka_unit_test(save_when_its_directory_is_used_then_refused),
        cmocka_unit_test(overwrite_when_the_first_checkpoint_is_there_then_the_old_ones_go),
        cmocka_unit_test(overwrite_when_the_run_fails_before_it_saves_then_the_old_ones_stay),
        cmocka_unit_test(save_when_nothing_can_be_kept_then_told_at_the_start),
        cmocka_unit_test(save_when_no_file_can_grow_then_told_at_the_start),
        cmocka_unit_test(save_when_another_run_saves_there_then_refused),
        cmocka_unit_test(resume_when_there_is_no_checkpoint_then_said),
        cmocka_unit_test(log_when_a_run_resumes_then_earlier_lines_stay),
        cmocka_unit_test(resume_when_a_checkpoint_names_paths_then_nothing_is_written_there),
        cmocka_unit_test(log_when_a_link_has_its_name_then_not_followed),
        cmocka_unit_test(disk_when_a_checkpoint_names_it_then_asked_for_again),
        cmocka_unit_test(copy_when_it_goes_on_then_its_logs_lie_beside_it),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
