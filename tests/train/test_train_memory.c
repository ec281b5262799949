/* Files of the train room when memory is refused: every allocation of every job fails once, and
 * then each one from there on. What could be wrong: a crash, a leak, a lock or descriptor left
 * open, a wrong status, or worst a checkpoint that is quietly incomplete. This program's malloc
 * counts, refuses and keeps the balance; sanitizers bring their own, so under them this test is
 * skipped. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <stdatomic.h>

#include "checkpoint/checkpoint_case.h"
#include "files/json_file.h"
#include "files/tokens.h"
#include "foreign/weights.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

int main(void)
{
    printf("skipped: the sanitizer has its own malloc\n");
    return 77;
}

#else

/* The C library's own, under the names that stay when malloc is replaced. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *data, size_t bytes);
void __libc_free(void *data);

#define EVERYWHERE __attribute__((visibility("default"))) /* the libraries call these too */

static struct {
    int armed;
    uint64_t calls, first;
    int all_after;
    int64_t balance; /* allocations minus releases since armed */
} memory;

static int refuses(void)
{
    if (!memory.armed)
        return 0;
    memory.calls++;
    if (memory.calls != memory.first && !(memory.all_after && memory.calls > memory.first))
        return 0;
    errno = ENOMEM;
    return 1;
}

static void *count(void *data)
{
    memory.balance += memory.armed && data;
    return data;
}

EVERYWHERE void *malloc(size_t bytes)
{
    return refuses() ? NULL : count(__libc_malloc(bytes));
}

EVERYWHERE void *calloc(size_t members, size_t bytes)
{
    return refuses() ? NULL : count(__libc_calloc(members, bytes));
}

EVERYWHERE void *realloc(void *data, size_t bytes)
{
    if (refuses())
        return NULL;
    return data ? __libc_realloc(data, bytes) : count(__libc_realloc(data, bytes));
}

EVERYWHERE void free(void *data)
{
    memory.balance -= memory.armed && data;
    __libc_free(data);
}

/* ---- the jobs ---- */

typedef struct job_place {
    scratch_path root, checkpoints, step, text, shards;
    tiny_model *model;
} job_place;

static sl_status run_tokens(const job_place *place)
{
    const char *paths[] = {place->text.text, place->text.text};
    char fingerprint[SL_TOKENS_FINGERPRINT];
    sl_tokens *tokens;
    sl_status status = sl_tokens_open(paths, 2, 257, &tokens);
    if (status != SL_OK)
        return status;
    status = sl_tokens_fingerprint(tokens, fingerprint);
    sl_tokens_close(tokens);
    return status;
}

static sl_status run_config(const job_place *place)
{
    sl_model_shape shape;
    return sl_weights_read_config(place->step.text, &shape);
}

static sl_status run_import(const job_place *place)
{
    sl_tensor_io io = tiny_io(place->model);
    return sl_weights_import(&place->model->shape, place->step.text, place->model->tensors,
                             place->model->tensor_count, &io);
}

static sl_status run_import_shards(const job_place *place)
{
    sl_tensor_io io = tiny_io(place->model);
    return sl_weights_import(&place->model->shape, place->shards.text, place->model->tensors,
                             place->model->tensor_count, &io);
}

static sl_status run_load(const job_place *place)
{
    sl_tensor_io io = tiny_io(place->model);
    sl_checkpoint *checkpoint;
    sl_status status = sl_checkpoint_find_newest(place->checkpoints.text, &checkpoint);
    if (status != SL_OK)
        return status;
    status = sl_checkpoint_load(checkpoint, place->model->tensors, place->model->tensor_count,
                                case_states, &io);
    sl_checkpoint_close(checkpoint);
    return status;
}

static sl_status run_save(const job_place *place)
{
    return case_save_model(place->checkpoints.text, 7, 1, place->model);
}

static const struct {
    const char *name;
    sl_status (*run)(const job_place *place);
} jobs[] = {
    {"tokens", run_tokens},      {"config", run_config},
    {"import", run_import},      {"import of shards", run_import_shards},
    {"find and load", run_load}, {"save", run_save},
};

static int count_descriptors(void)
{
    return case_count("/proc/self/fd", "");
}

/* Whatever failed: what is visible is whole. */
static void check_visible(const job_place *place)
{
    sl_checkpoint *checkpoint = NULL;
    assert_int_equal(sl_checkpoint_open(place->step.text, &checkpoint), SL_OK);
    assert_true(case_holds(checkpoint, 7, 1));
    sl_checkpoint_close(checkpoint);
}

/* False when the job has fewer allocations than `first`. */
static int run_case(const job_place *place, size_t job, uint64_t first, int all_after)
{
    int descriptors = count_descriptors();
    memory.calls = 0;
    memory.balance = 0;
    memory.first = first;
    memory.all_after = all_after;
    memory.armed = 1;
    sl_status status = jobs[job].run(place);
    memory.armed = 0;
    int reached = memory.calls >= first;
    if (memory.balance != 0 || count_descriptors() != descriptors)
        fail_msg("%s, allocation %llu: %lld blocks and %d descriptors are left", jobs[job].name,
                 (unsigned long long)first, (long long)memory.balance,
                 count_descriptors() - descriptors);
    /* jansson 2.14 drops bytes of a token, and tells nobody, when the buffer for it cannot grow:
     * the text then looks like wrong data, a checkpoint invalid, and a save finds out when it reads
     * back. Jobs without JSON are not excused. */
    int excused = (status == SL_ERROR_DATA || status == SL_ERROR_MISSING ||
                   (jobs[job].run == run_save && strstr(sl_status_message(), "was read back"))) &&
                  jobs[job].run != run_tokens;
    if (status != SL_OK && ((status != SL_ERROR_SYSTEM && !excused) || !reached))
        fail_msg("%s, allocation %llu: status %d, \"%s\"", jobs[job].name,
                 (unsigned long long)first, status, sl_status_message());
    check_visible(place);
    return reached;
}

/* Copies a checkpoint's model file and names it by an index. */
static void make_shards(job_place *place)
{
    static const char start[] = "{\"weight_map\":{";
    size_t bytes;
    char map[4096],
        *model = scratch_read(scratch_join(place->step.text, "model.safetensors").text, &bytes);
    size_t used = (size_t)snprintf(map, sizeof map, "%s", start);
    for (uint32_t i = 0; i < place->model->tensor_count; i++) {
        const sl_tensor_spec *spec = &place->model->tensors[i];
        if (spec->first_row == 0)
            used += (size_t)snprintf(map + used, sizeof map - used,
                                     "%s\"transformer.%s\":\"m.safetensors\"", i ? "," : "",
                                     spec->name);
    }
    used += (size_t)snprintf(map + used, sizeof map - used, "}}");
    scratch_need(used < sizeof map && mkdir(place->shards.text, 0700) == 0, "shards");
    scratch_write(scratch_join(place->shards.text, "m.safetensors").text, model, bytes);
    scratch_write(scratch_join(place->shards.text, "model.safetensors.index.json").text, map, used);
    free(model);
}

static void every_allocation_when_refused_then_error_and_nothing_left(void **state)
{
    (void)state;
    job_place place = {.root = scratch_open(), .model = tiny_open(case_shape)};
    uint64_t cases = 0, stride = scratch_count(3, 1);
    place.checkpoints = scratch_join(place.root.text, "save");
    place.step = scratch_join(place.checkpoints.text, "step-00000007");
    place.text = scratch_join(place.root.text, "a.bin");
    place.shards = scratch_join(place.root.text, "shards");
    scratch_write(place.text.text, "text", 4);
    case_fill(place.model, 1);
    scratch_need(case_save_model(place.checkpoints.text, 7, 0, place.model) == SL_OK, "save");
    make_shards(&place);
    for (size_t job = 0; job < sizeof jobs / sizeof jobs[0]; job++) {
        uint64_t first = 1;
        assert_false(run_case(&place, job, UINT64_MAX, 0)); /* and it works undisturbed */
        for (int all_after = 0; all_after < 2; all_after++)
            for (first = 1; run_case(&place, job, first, all_after); first += stride)
                cases++;
        printf("%s: %llu allocations\n", jobs[job].name, (unsigned long long)memory.calls);
    }
    printf("%llu refusals\n", (unsigned long long)cases);
    assert_true(cases > 300);
    tiny_close(place.model);
    scratch_close(&place.root);
}

int main(void)
{
    sl_json_file_guard_memory(); /* as the command has it */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_when_refused_then_error_and_nothing_left),
    };
    return cmocka_run_group_tests_name("train_memory", tests, NULL, NULL);
}

#endif
