/* What could be wrong in the command when the system refuses it something: an allocation, a thread,
 * a file, a request of io_uring or a CUDA call that fails and is not looked at, so that a run goes
 * on with wrong numbers or without what it was told to write; a crash or a hang on the way out; a
 * wrong exit code; a checkpoint lost.
 *
 * The command itself is linked into this program. Each workload, a tiny run of it, runs once with
 * every call counted by the place that makes it. Then it runs again and again in a process of its
 * own, with the n-th call of one place failing, or that one and every later call of its class. Each
 * run ends in time, with 0 and the results of the run without failures, or with an exit code that
 * the contract has for it and a line that says what happened; what was saved before can be read.
 *
 * Reduced: a sample by SL_TEST_SEED, of SL_TEST_RUNS runs a workload. Full: every place, up to
 * SL_TEST_CALLS of its calls (as a place of JSON is called a thousand times a run, all of them take
 * hours), in two processes, and a list of the places that no workload came to (list_unreached.py).
 * SL_TEST_WORKLOAD names the only workload to run. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/hash.h"
#include "base/status.h"
#include "base/workers.h"
#include "bench/bench.h"
#include "call_faults.h"
#include "checkpoint/checkpoint.h"
#include "sanitizer_share.h"
#include "scratch_dir.h"

int sluice_command_main(int argc, char **argv); /* main of src/cli/main.c */

enum {
    HANG_S = 60, /* thousands of times what a run takes */
    WORDS_MAX = 64,
    TEXT_BYTES = 1 << 16,
    LINE_BYTES = 1024,
#ifdef SL_TEST_STANDIN
    SAMPLE = 100, /* runs of a workload: more than places */
    AFTER_COUNT = 3,
#else
    SAMPLE = 40,
    AFTER_COUNT = 2, /* ways of the calls after the one that fails */
#endif
    CALLS_OF_PLACE = 64,
    CALLS_OF_SLOW_PLACE = 3,
    SLOW_SHARE = 8, /* of slow workloads, one run of so many */
    ATTEMPTS = 3,
    SHOWN_FAILURES = 10,
    JOBS_MAX = 2,
    STEPS_SAVED = 2
};

/* ---- workloads ---- */

/* What a run leaves, to be compared. */
enum { LOG = 1, PRINTED = 2, NUMBERS_PRINTED = 4, SAVED = 8, RATES = 16, MADE = 32 };

typedef struct workload {
    const char *name;
    const char *arguments;
    unsigned results;
    bool has_saved; /* starts with the checkpoint of one step in "saved" */
    bool is_slow;
} workload;

#ifdef SL_TEST_STANDIN
#define DEVICE "--device cuda --precision bf16 "
#else
#define DEVICE "--device cpu "
#endif
#define MEMORY "--device-memory 64M --host-memory 64M "
#define MODEL "--layers 1 --width 16 --heads 1 --context 8 "
#define TRAIN                                                                                      \
    "train " DEVICE MEMORY MODEL                                                                   \
    "--self-test off --data text --threads 1 --micro-batch 1 --steps 2 --quiet "                   \
    "--warmup 0 --lr-schedule constant --log-json log "
#define HALF "--precision fp16 " /* with a loss scale, which is saved */
#define BF16_INT8 "--precision bf16 --state-type int8 --master-type low "
#define DISK "--disk-dir . --disk-space 64M "
#define RULES                                                                                      \
    "--rule *attn*=lion,wte*=sgd,ln_f*=none,*mlp*ht=muon --momentum 0.5 --lr-of *.bias=0.5 "

#ifndef SL_TEST_STANDIN
/* Between `sluice bench` and the bench (--wrap): ops of a small model instead of GPT-2's. */
sl_status __real_sl_bench_run(const sl_bench_options *options, sl_bench *out_bench);
sl_status __wrap_sl_bench_run(const sl_bench_options *options, sl_bench *out_bench);
sl_status __wrap_sl_bench_run(const sl_bench_options *options, sl_bench *out_bench)
{
    const sl_model_shape shape = {
        .layers = 1, .width = 32, .heads = 1, .context = 16, .vocab = 257};
    sl_bench_options small = *options;
    small.small_shape = &shape;
    return __real_sl_bench_run(&small, out_bench);
}
#endif

static const workload workloads[] = {
#ifdef SL_TEST_STANDIN
    {"cuda", TRAIN "--policy host --accumulate 2 " RULES, LOG, false},
#else
    {"memory", TRAIN "--policy device --threads 2 --eval-data text --config settings", LOG, false},
    {"host", TRAIN "--policy host --accumulate 2 --adam device --timeline line", LOG, false},
    {"logs", TRAIN "--policy device --log-csv table --tensorboard board/run", LOG, false},
    {"disk", TRAIN DISK "--policy nvme --nvme-params 1 --nvme-grads 1 " BF16_INT8, LOG, false},
    {"mix",
     TRAIN DISK "--policy static --offload-params 0.5 --nvme-optimizer 0.5 "
                "--offload-optimizer 0.5 --offload-activations 1 --precision fp16 " RULES,
     LOG, false},
    {"layers",
     TRAIN DISK "--policy nvme --accumulate 3 --accumulation layer --nvme-activations 1 "
                "--recompute none --optimizer lion --state-type bf16",
     LOG, false},
    {"save", TRAIN "--policy device --save saved --save-every 1 --keep 1 " HALF RULES, LOG | SAVED,
     false},
    {"resume", TRAIN DISK "--policy nvme --save saved --resume " HALF, SAVED, true},
    {"init", TRAIN "--policy host --init saved --lora-rank 2", LOG, true},
    {"generate",
     "generate saved --prompt the --tokens 5 --policy device --threads 1 " DEVICE MEMORY, PRINTED,
     true},
    {"eval",
     "eval saved --data text --policy host --threads 1 --micro-batch 4 --json " DEVICE MEMORY,
     NUMBERS_PRINTED, true},
    {"samples",
     "generate saved --prompt-file text --samples 2 --stop zz --repetition-penalty 1.1 --tokens 9 "
     "--policy host --threads 1 " DEVICE MEMORY,
     PRINTED, true},
    {"windows",
     "eval saved --data text --overlap 3 --policy device --threads 1 --json " DEVICE MEMORY,
     NUMBERS_PRINTED, true},
    {"plan", "plan " DEVICE MEMORY DISK MODEL "--policy auto --threads 1 --json", PRINTED, false},
    {"doctor", "doctor --json --disk-dir .", 0, false},
    {"tokenize",
     "tokenize --learn 280 --tokenizer words --data text --document-per line --format megatron "
     "--output ids --threads 2 --quiet",
     PRINTED, false},
    {"convert-hf", "convert --from saved --to made --quiet", MADE, true},
    {"convert-gguf", "convert --from saved --to made --format gguf --type bf16 --quiet", MADE,
     true},
    {"convert-llmc", "convert --from saved --to made --format llmc --quiet", MADE, true},
    {"bench", "bench --quick --threads 1 --disk-dir . --output rates " DEVICE, RATES, false, true},
#endif
};

enum { WORKLOAD_COUNT = sizeof workloads / sizeof workloads[0] };

static scratch_path base; /* text, one/ and two/: checkpoints of one step and of two */
static sl_hash_value saved_tensors[STEPS_SAVED + 1]; /* by step */

/* ---- running the command in a process of its own ---- */

typedef struct outcome {
    int code; /* of exit; -1: ended by a signal */
    int signal;
    char line[LINE_BYTES]; /* the last one on standard error that is no warning */
} outcome;

static void redirect(int fd, const char *path, int flags)
{
    int to = open(path, flags, 0600);
    scratch_need(to >= 0 && dup2(to, fd) == fd, path);
    close(to);
}

static int split_words(char *text, char **out_words)
{
    int count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        scratch_need(count + 1 < WORDS_MAX, "too many words");
        out_words[count++] = word;
    }
    out_words[count] = NULL;
    return count;
}

static void run_in_child(const char *directory, const char *arguments, call_faults *counts)
{
    char text[LINE_BYTES], *words[WORDS_MAX] = {"sluice"};
    snprintf(text, sizeof text, "%s", arguments);
    int count = split_words(text, words + 1);
    scratch_need(chdir(directory) == 0, directory);
    redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
    redirect(STDOUT_FILENO, "out", O_WRONLY | O_CREAT | O_TRUNC);
    redirect(STDERR_FILENO, "err", O_WRONLY | O_CREAT | O_TRUNC);
    setenv("HOME", directory, 1);
    unsetenv("XDG_CONFIG_HOME");
    alarm(HANG_S);
    call_faults_start(counts);
    int code = sluice_command_main(count + 1, words);
    call_faults_start(NULL);
    fflush(NULL);
    _exit(code);
}

/* The last line on standard error that is no warning. */
static void read_last_line(const char *directory, char *out_line)
{
    size_t bytes;
    char *text = scratch_read(scratch_join(directory, "err").text, &bytes), *rest = NULL;
    out_line[0] = '\0';
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (strncmp(line, "sluice: warning: ", 17) != 0)
            snprintf(out_line, LINE_BYTES, "%s", line);
    free(text);
}

static outcome run_command(const char *directory, const char *arguments, call_faults *counts)
{
    outcome result = {.code = -1};
    int status;
    fflush(NULL);
    pid_t child = fork();
    scratch_need(child >= 0, "fork");
    if (child == 0)
        run_in_child(directory, arguments, counts);
    scratch_need(waitpid(child, &status, 0) == child, "waitpid");
    if (WIFEXITED(status))
        result.code = WEXITSTATUS(status);
    else
        result.signal = WTERMSIG(status);
    read_last_line(directory, result.line);
    return result;
}

/* ---- where it runs ---- */

/* A directory of the files of another, which are links: no run writes into an old file. */
static void link_directory(const char *from, const char *to)
{
    DIR *stream = opendir(from);
    scratch_need(stream != NULL && mkdir(to, 0700) == 0, to);
    for (struct dirent *entry = readdir(stream); entry; entry = readdir(stream)) {
        if (entry->d_name[0] == '.')
            continue;
        scratch_path old = scratch_join(from, entry->d_name), new = scratch_join(to, entry->d_name);
        if (link(old.text, new.text) == 0)
            continue;
        link_directory(old.text, new.text);
    }
    closedir(stream);
}

static void enter_fresh(const workload *w, const scratch_path *directory)
{
    scratch_close(directory);
    scratch_need(mkdir(directory->text, 0700) == 0, directory->text);
    static const char *const files[] = {"text", "settings"};
    for (int i = 0; i < 2; i++)
        scratch_need(link(scratch_join(base.text, files[i]).text,
                          scratch_join(directory->text, files[i]).text) == 0,
                     files[i]);
    if (w->has_saved)
        link_directory(scratch_join(base.text, "one").text,
                       scratch_join(directory->text, "saved").text);
}

/* ---- results ---- */

/* Adds what follows "loss": and "grad_norm": in a text, which depends on no time. */
static void hash_numbers(sl_hash_stream *hash, const char *text)
{
    static const char *const keys[] = {"\"loss\":", "\"grad_norm\":"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        for (const char *at = strstr(text, keys[i]); at; at = strstr(at + 1, keys[i]))
            sl_hash_update(hash, at, strcspn(at, ",}\n"));
}

static void hash_file(sl_hash_stream *hash, const char *directory, const char *name,
                      bool numbers_only)
{
    size_t bytes;
    scratch_path path = scratch_join(directory, name);
    if (!scratch_exists(path.text))
        return;
    char *text = scratch_read(path.text, &bytes);
    if (numbers_only)
        hash_numbers(hash, text);
    else
        sl_hash_update(hash, text, bytes);
    free(text);
}

/* Of the tensors of the newest checkpoint; false where it cannot be read. */
static bool read_newest(const char *directory, uint64_t *out_step, sl_hash_value *out_tensors)
{
    sl_checkpoint *checkpoint = NULL;
    sl_hash_stream *hash = NULL;
    if (sl_checkpoint_find_newest(directory, &checkpoint) != SL_OK)
        return false;
    scratch_need(sl_hash_open(&hash) == SL_OK, "memory");
    const sl_checkpoint_info *info = sl_checkpoint_describe(checkpoint);
    *out_step = info->state.step;
    hash_file(hash, info->path, "model.safetensors", false);
    hash_file(hash, info->path, "moment1.safetensors", false);
    hash_file(hash, info->path, "moment2.safetensors", false);
    *out_tensors = sl_hash_digest(hash);
    sl_hash_close(hash);
    sl_checkpoint_close(checkpoint);
    return true;
}

static bool is_same(sl_hash_value a, sl_hash_value b)
{
    return a.high == b.high && a.low == b.low;
}

/* A file, or a Hugging Face directory. */
static void hash_made(sl_hash_stream *hash, const char *directory)
{
    struct stat info;
    scratch_path made = scratch_join(directory, "made");
    bool is_there = stat(made.text, &info) == 0;
    if (is_there && !S_ISDIR(info.st_mode))
        hash_file(hash, directory, "made", false);
    if (!is_there || !S_ISDIR(info.st_mode))
        return;
    hash_file(hash, made.text, "model.safetensors", false);
    hash_file(hash, made.text, "config.json", false);
    hash_file(hash, made.text, "vocab.json", false);
}

static sl_hash_value hash_results(const workload *w, const char *directory)
{
    sl_hash_stream *hash = NULL;
    scratch_need(sl_hash_open(&hash) == SL_OK, "memory");
    if (w->results & LOG)
        hash_file(hash, directory, "log", true);
    if (w->results & PRINTED)
        hash_file(hash, directory, "out", false);
    if (w->results & NUMBERS_PRINTED)
        hash_file(hash, directory, "out", true);
    if (w->results & MADE)
        hash_made(hash, directory);
    if (w->results & SAVED) {
        uint64_t step = 0;
        sl_hash_value tensors = {0};
        (void)read_newest(scratch_join(directory, "saved").text, &step, &tensors);
        sl_hash_update(hash, &step, sizeof step);
        sl_hash_update(hash, &tensors, sizeof tensors);
    }
    sl_hash_value digest = sl_hash_digest(hash);
    sl_hash_close(hash);
    return digest;
}

/* ---- judging ---- */

static bool has_published(const char *directory)
{
    bool found = false;
    DIR *stream = opendir(directory);
    for (struct dirent *entry = stream ? readdir(stream) : NULL; entry; entry = readdir(stream))
        found =
            found || (strncmp(entry->d_name, "step-", 5) == 0 && !strstr(entry->d_name, ".tmp"));
    if (stream)
        closedir(stream);
    return found;
}

/* What was published is there and is right, whatever happened to the run. */
static const char *judge_saved(const workload *w, const char *directory)
{
    uint64_t step = 0;
    sl_hash_value tensors;
    scratch_path saved = scratch_join(directory, "saved");
    if (!w->has_saved && !has_published(saved.text))
        return NULL;
    if (!read_newest(saved.text, &step, &tensors))
        return "no checkpoint can be read";
    if (step < 1 || step > STEPS_SAVED || !is_same(tensors, saved_tensors[step]))
        return "the checkpoint has other numbers";
    return NULL;
}

/* The exit codes of a failure. */
static bool may_end_with(call_class class, int code)
{
    static const int codes[CALL_CLASS_COUNT][4] = {
        [CALL_CLASS_MEMORY] = {71},   [CALL_CLASS_THREADS] = {71},  [CALL_CLASS_FILES] = {74, 71},
        [CALL_CLASS_RING] = {74, 71}, [CALL_CLASS_CUDA] = {71, 69},
    };
    for (int i = 0; i < 4 && codes[class][i]; i++)
        if (codes[class][i] == code)
            return true;
    return false;
}

/* A profile is whole or not there, whatever happened to who measured. */
static const char *judge_rates(const workload *w, const char *directory, int code)
{
    sl_profile profile;
    scratch_path rates = scratch_join(directory, "rates");
    if (!(w->results & RATES))
        return NULL;
    if (!scratch_exists(rates.text))
        return code == 0 ? "exit code 0 without a profile" : NULL;
    return sl_profile_load(rates.text, &profile) == SL_OK ? NULL : "a profile that cannot be read";
}

/* NULL, or what is wrong. */
static const char *judge(const workload *w, const char *directory, const outcome *o,
                         call_class class, sl_hash_value expected)
{
    if (o->signal)
        return o->signal == SIGALRM ? "it hangs" : "it crashes";
    if (o->code == 0 && !is_same(hash_results(w, directory), expected))
        return "exit code 0 with other results";
    if (o->code != 0 && !may_end_with(class, o->code))
        return "not the exit code of such a failure";
    bool says_why = strncmp(o->line, "sluice: ", 8) == 0 && strlen(o->line) > 20;
    if (o->code != 0 && !says_why)
        return "it does not say what happened";
    const char *fault = judge_rates(w, directory, o->code);
    return fault ? fault : judge_saved(w, directory);
}

/* ---- the sweep of a workload ---- */

typedef struct point {
    uint64_t key;
    uint32_t place, call;
    call_after after;
} point;

/* Shared with the processes of a sweep. */
typedef struct sweep_counts {
    _Atomic uint64_t runs, same, ended, missed, failures, calls_failed;
    _Atomic uint32_t codes[256];
    _Atomic uint32_t hit[CALL_PLACES_MAX];   /* by place of the run without failures */
    _Atomic uint64_t after[CALL_PLACES_MAX]; /* keys of places that only failing runs reach */
} sweep_counts;

typedef struct sweep {
    const workload *w;
    uint64_t keys[CALL_PLACES_MAX]; /* of the run without failures */
    uint32_t calls[CALL_PLACES_MAX];
    uint32_t place_count;
    uint64_t call_count;
    sl_hash_value expected;
    point *points;
    uint64_t point_count;
    sweep_counts *counts;
} sweep;

static void *share(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    scratch_need(memory != MAP_FAILED, "shared memory");
    return memory;
}

/* The stand-in's own allocations are not to fail, nor those of the command again. */
static bool is_swept(uint64_t key)
{
#ifdef SL_TEST_STANDIN
    return call_faults_class(key) == CALL_CLASS_CUDA;
#else
    return key != 0;
#endif
}

static void run_without_failures(sweep *s)
{
    call_faults *counts = share(sizeof *counts);
    scratch_path directory = scratch_join(base.text, s->w->name);
    for (int i = 0; i < 2; i++) { /* twice: results depend on nothing else */
        memset(counts, 0, sizeof *counts);
        enter_fresh(s->w, &directory);
        outcome o = run_command(directory.text, s->w->arguments, counts);
        if (o.code != 0)
            fail_msg("%s: exit code %d, signal %d: %s", s->w->name, o.code, o.signal, o.line);
        sl_hash_value found = hash_results(s->w, directory.text);
        if (i == 1 && !is_same(found, s->expected))
            fail_msg("%s: two runs have different results", s->w->name);
        s->expected = found;
    }
    assert_int_equal(atomic_load(&counts->lost), 0);
    for (uint32_t i = 0; i < CALL_PLACES_MAX; i++) {
        if (counts->places[i].key == 0 || !is_swept(counts->places[i].key))
            continue;
        s->keys[s->place_count] = counts->places[i].key;
        s->calls[s->place_count++] = counts->places[i].calls;
        s->call_count += counts->places[i].calls;
    }
    munmap(counts, sizeof *counts);
}

/* Calls of every place, spread from its first to its last, failing once and from then on. */
static void list_points(sweep *s)
{
    const char *text = getenv("SL_TEST_CALLS");
    uint32_t most = text ? (uint32_t)strtoul(text, NULL, 10) : CALLS_OF_PLACE;
    most = s->w->is_slow ? CALLS_OF_SLOW_PLACE : most;
    s->point_count = 0;
    s->points = calloc(AFTER_COUNT * s->call_count, sizeof *s->points);
    scratch_need(s->points != NULL, "memory");
    for (uint32_t i = 0; i < s->place_count; i++) {
        uint32_t count = s->calls[i] < most ? s->calls[i] : most, gaps = count > 1 ? count - 1 : 1;
        for (uint32_t which = 0; which < count; which++) {
            uint32_t call = 1 + (uint32_t)((uint64_t)(s->calls[i] - 1) * which / gaps);
            for (int after = 0; after < AFTER_COUNT; after++)
                s->points[s->point_count++] = (point){s->keys[i], i, call, (call_after)after};
        }
    }
}

static void swap_points(point *a, point *b)
{
    point old = *a;
    *a = *b;
    *b = old;
}

/* Keeps `count` points, of as many places as there are: first one of each, then another one. */
static void draw_points(sweep *s, uint64_t count, uint64_t *draw)
{
    uint64_t kept = 0;
    for (uint64_t i = s->point_count - 1; i > 0; i--)
        swap_points(&s->points[i], &s->points[scratch_below(draw, i + 1)]);
    for (uint32_t round = 0; kept < count && kept < s->point_count; round++) {
        uint32_t rounds[CALL_PLACES_MAX] = {0}; /* points of a place in front, by place */
        for (uint64_t i = 0; i < kept; i++)
            rounds[s->points[i].place]++;
        for (uint64_t i = kept; i < s->point_count && kept < count; i++) {
            if (rounds[s->points[i].place] > round)
                continue;
            rounds[s->points[i].place]++;
            swap_points(&s->points[i], &s->points[kept++]);
        }
    }
    s->point_count = kept;
}

/* Runs of a workload: SL_TEST_RUNS, or a few. */
static uint64_t sample_count(const workload *w)
{
    const char *text = getenv("SL_TEST_RUNS");
    uint64_t count = SAMPLE / SANITIZER_SHARE / (w->is_slow ? SLOW_SHARE : 1);
    return text ? strtoull(text, NULL, 10) : count;
}

static void describe_point(const sweep *s, const point *p, char *out_text)
{
    static const char *const afters[] = {"", " and all after it", ", which breaks the context"};
    snprintf(out_text, LINE_BYTES, "%s: call %u of %s at 0x%llx%s", s->w->name, p->call,
             call_faults_name(p->key), (unsigned long long)call_faults_offset(p->key),
             afters[p->after]);
}

static void note_places(sweep *s, call_faults *counts)
{
    for (uint32_t i = 0; i < CALL_PLACES_MAX; i++) {
        uint64_t key = counts->places[i].key;
        bool is_old = key == 0 || !is_swept(key);
        for (uint32_t j = 0; j < s->place_count && !is_old; j++)
            is_old = s->keys[j] == key;
        for (uint32_t j = 0; j < CALL_PLACES_MAX && !is_old; j++) {
            uint64_t found = 0;
            is_old =
                atomic_compare_exchange_strong(&s->counts->after[j], &found, key) || found == key;
        }
    }
}

static void fail_at(sweep *s, const point *p, const scratch_path *directory, call_faults *counts)
{
    char text[LINE_BYTES];
    outcome o = {0};
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) { /* some calls depend on timing */
        memset(counts, 0, sizeof *counts);
        counts->failing_key = p->key;
        counts->failing_call = p->call;
        counts->after = p->after;
        enter_fresh(s->w, directory);
        o = run_command(directory->text, s->w->arguments, counts);
        if (atomic_load(&counts->hits) > 0 || o.code != 0)
            break;
    }
    const char *fault = judge(s->w, directory->text, &o, call_faults_class(p->key), s->expected);
    note_places(s, counts);
    s->counts->runs++;
    s->counts->calls_failed += atomic_load(&counts->hits);
    s->counts->missed += atomic_load(&counts->hits) == 0;
    s->counts->hit[p->place] += atomic_load(&counts->hits) > 0;
    s->counts->same += o.code == 0;
    s->counts->ended += o.code > 0;
    s->counts->codes[o.code & 255]++;
    if (!fault)
        return;
    describe_point(s, p, text);
    if (s->counts->failures++ < SHOWN_FAILURES || getenv("SL_TEST_FULL") || getenv("SL_TEST_RUNS"))
        fprintf(stderr, "%s: %s (exit code %d, signal %d): %s\n", text, fault, o.code, o.signal,
                o.line);
}

static void run_share(sweep *s, uint64_t first, uint64_t stride)
{
    char name[LINE_BYTES];
    call_faults *counts = share(sizeof *counts);
    snprintf(name, sizeof name, "%s-%d", s->w->name, (int)first);
    scratch_path directory = scratch_join(base.text, name);
    for (uint64_t i = first; i < s->point_count; i += stride)
        fail_at(s, &s->points[i], &directory, counts);
    munmap(counts, sizeof *counts);
}

/* In as many processes as `jobs` says. */
static void run_all(sweep *s, uint64_t jobs)
{
    pid_t children[JOBS_MAX];
    int status;
    fflush(NULL);
    for (uint64_t i = 0; i < jobs; i++) {
        children[i] = fork();
        scratch_need(children[i] >= 0, "fork");
        if (children[i] == 0) {
            run_share(s, i, jobs);
            _exit(0);
        }
    }
    for (uint64_t i = 0; i < jobs; i++) {
        scratch_need(waitpid(children[i], &status, 0) == children[i], "waitpid");
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

/* Every place, in full. */
static void report_places(const sweep *s)
{
    for (uint32_t i = 0; i < s->place_count; i++)
        print_message("%s: 0x%llx %s: %u calls, failed in %u runs\n", s->w->name,
                      (unsigned long long)call_faults_offset(s->keys[i]),
                      call_faults_name(s->keys[i]), s->calls[i], s->counts->hit[i]);
    for (uint32_t i = 0; i < CALL_PLACES_MAX && s->counts->after[i] != 0; i++)
        print_message("%s: 0x%llx %s: only after a failure\n", s->w->name,
                      (unsigned long long)call_faults_offset(s->counts->after[i]),
                      call_faults_name(s->counts->after[i]));
}

/* For the list at the end: offsets, of calls that only failing runs come to as well. */
static void note_reached(const sweep *s)
{
    FILE *file = fopen(scratch_join(base.text, "reached").text, "a");
    scratch_need(file != NULL, "reached");
    for (uint32_t i = 0; i < s->place_count; i++)
        fprintf(file, "%llx\n", (unsigned long long)call_faults_offset(s->keys[i]));
    for (uint32_t i = 0; i < CALL_PLACES_MAX && s->counts->after[i] != 0; i++)
        fprintf(file, "%llx\n", (unsigned long long)call_faults_offset(s->counts->after[i]));
    fclose(file);
}

static void report(const sweep *s)
{
    uint32_t unhit = 0, after = 0;
    const sweep_counts *counts = s->counts;
    for (uint32_t i = 0; i < s->place_count; i++)
        unhit += counts->hit[i] == 0;
    while (after < CALL_PLACES_MAX && counts->after[after] != 0)
        after++;
    print_message("%s: %u places make %llu calls; %llu runs with %llu calls failing: %llu went on, "
                  "%llu ended with an error (",
                  s->w->name, s->place_count, (unsigned long long)s->call_count,
                  (unsigned long long)counts->runs, (unsigned long long)counts->calls_failed,
                  (unsigned long long)counts->same, (unsigned long long)counts->ended);
    for (int code = 1; code < 256; code++)
        if (counts->codes[code])
            print_message(" %u x %d", counts->codes[code], code);
    print_message(" ), %llu never came there; %u places not hit; %u more places after a failure\n",
                  (unsigned long long)counts->missed, unhit, after);
}

/* SL_TEST_WORKLOAD names the only one to run. */
static bool is_chosen(const workload *w)
{
    const char *only = getenv("SL_TEST_WORKLOAD");
    return !only || strcmp(only, w->name) == 0;
}

static void workload_when_a_call_fails_says_so_or_goes_on_with_the_same_results(void **state)
{
    sweep s = {.w = *state};
    bool is_full = getenv("SL_TEST_FULL") != NULL;
    if (!is_chosen(s.w))
        return;
    uint64_t draw = scratch_seed(s.w->name, 12) * 2 + 1;
    s.counts = share(sizeof *s.counts);
    run_without_failures(&s);
    list_points(&s);
    if (!is_full)
        draw_points(&s, sample_count(s.w), &draw);
    run_all(&s, is_full && sl_workers_usable_cpu_count() > 1 ? JOBS_MAX : 1);
    report(&s);
    if (is_full)
        report_places(&s);
    note_reached(&s);
    uint64_t failures = s.counts->failures, missed = s.counts->missed, runs = s.counts->runs;
    for (uint32_t i = 0; is_full && i < s.place_count; i++)
        assert_true(s.counts->hit[i] > 0);
    munmap(s.counts, sizeof *s.counts);
    free(s.points);
    assert_true(runs > 0 && missed < runs / 10 + 2);
    if (failures > 0)
        fail_msg("%llu of %llu runs", (unsigned long long)failures, (unsigned long long)runs);
}

/* In full, what nobody looks at is at least listed; on one core too this takes seconds. */
static void places_when_no_workload_comes_there_are_listed(void **state)
{
    (void)state;
    char program[LINE_BYTES] = "", command[3 * LINE_BYTES];
    if (!getenv("SL_TEST_FULL") || getenv("SL_TEST_WORKLOAD"))
        return;
    assert_true(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    snprintf(command, sizeof command, "python3 '%s/command/list_unreached.py' '%s' '%s'%s",
             SL_TEST_SOURCE_DIRECTORY, program, scratch_join(base.text, "reached").text,
             AFTER_COUNT == 3 ? " --names '^(cu|standin_)'" : "");
    fflush(NULL);
    assert_int_equal(system(command), 0);
}

/* ---- set-up ---- */

static void write_files(void)
{
    char text[2000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "the lock gate rises and falls.\n"[i * i % 31];
    scratch_write(scratch_join(base.text, "text").text, text, sizeof text);
    static const char settings[] = "{\"lr\": 0.002, \"data\": [\"text\"]}";
    scratch_write(scratch_join(base.text, "settings").text, settings, sizeof settings - 1);
}

static void save_steps(const char *name, const char *more)
{
    char arguments[LINE_BYTES];
    const workload plain = {.name = name};
    scratch_path directory = scratch_join(base.text, "maker");
    enter_fresh(&plain, &directory);
    snprintf(arguments, sizeof arguments, TRAIN "--policy device --save saved " HALF RULES "%s",
             more);
    outcome o = run_command(directory.text, arguments, NULL);
    if (o.code != 0)
        fail_msg("%s: exit code %d: %s", arguments, o.code, o.line);
    scratch_path saved = scratch_join(directory.text, "saved");
    scratch_need(rename(saved.text, scratch_join(base.text, name).text) == 0, name);
}

static int open_base(void **state)
{
    (void)state;
    base = scratch_open();
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    write_files();
    static const char *const names[] = {"one", "two"};
    static const char *const steps[] = {"--steps 1", "--steps 2"};
    for (int i = 0; i < STEPS_SAVED; i++) {
        uint64_t step = 0;
        sl_hash_value tensors;
        save_steps(names[i], steps[i]);
        assert_true(read_newest(scratch_join(base.text, names[i]).text, &step, &tensors));
        assert_int_equal(step, i + 1);
        saved_tensors[step] = tensors;
    }
    return 0;
}

static int close_base(void **state)
{
    (void)state;
    scratch_close(&base);
    return 0;
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    puts("skipped: the thread sanitizer does not fork a process with threads");
    return 77;
#endif
    call_faults_prepare();
    struct CMUnitTest tests[WORKLOAD_COUNT + 1];
    for (int i = 0; i < WORKLOAD_COUNT; i++)
        tests[i] = (struct CMUnitTest){
            .name = workloads[i].name,
            .test_func = workload_when_a_call_fails_says_so_or_goes_on_with_the_same_results,
            .initial_state = (void *)(uintptr_t)&workloads[i]};
    tests[WORKLOAD_COUNT] =
        (struct CMUnitTest)cmocka_unit_test(places_when_no_workload_comes_there_are_listed);
    return cmocka_run_group_tests_name("faults of the command", tests, open_base, close_base);
}
