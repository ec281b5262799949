/* Puts a page together: a head, the style and the script of page.css and page.js, which the build
 * turns into arrays, and the numbers. The page names no other file, and forbids itself to load any.
 */
#define _GNU_SOURCE /* getline */
#include "page.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "account_json.h"
#include "base/status.h"
#include "explain.h"
#include "files/json_file.h"
#include "files/output_file.h"
#include "report_page.h"
#include "session/search/plan_json.h"
#include "sluice/version.h"

enum { LOSS_POINTS = 2000 };

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
    "<title>sluice: memory and time of a step</title>\n<style>\n";
static const char middle[] = "</style>\n</head>\n<body>\n<main>\n<noscript>The pictures of this "
                             "report are drawn by its script; its numbers stand in the element "
                             "sluice-data as JSON.</noscript>\n</main>\n"
                             "<script type=\"application/json\" id=\"sluice-data\">\n";
static const char before_script[] = "\n</script>\n<script>\n";
static const char tail[] = "</script>\n</body>\n</html>\n";

/* ---- losses of a log ---- */

/* At most LOSS_POINTS of a run's losses: when they are full every second one goes. */
typedef struct loss_list {
    json_int_t steps[LOSS_POINTS];
    double losses[LOSS_POINTS];
    uint32_t count;
    uint64_t stride, seen;
} loss_list;

static void add_loss(loss_list *list, json_int_t step, double loss)
{
    if (list->seen++ % list->stride != 0)
        return;
    if (list->count == LOSS_POINTS) {
        for (uint32_t i = 0; i < LOSS_POINTS / 2; i++) {
            list->steps[i] = list->steps[2 * (size_t)i];
            list->losses[i] = list->losses[2 * (size_t)i];
        }
        list->count = LOSS_POINTS / 2;
        list->stride *= 2;
    }
    list->steps[list->count] = step;
    list->losses[list->count++] = loss;
}

static sl_status read_line(const char *path, const char *line, uint64_t bytes, loss_list *list)
{
    json_t *object = NULL;
    if (sl_json_file_parse(path, line, bytes, &object) != SL_OK)
        return SL_OK; /* a line that somebody else wrote does not cost the report */
    const char *event = json_string_value(json_object_get(object, "event"));
    const json_t *loss = json_object_get(object, "loss");
    if (event && strcmp(event, "step") == 0 && json_is_number(loss))
        add_loss(list, json_integer_value(json_object_get(object, "step")),
                 json_number_value(loss));
    json_decref(object);
    return SL_OK;
}

static sl_status read_lines(const char *path, loss_list *list)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    sl_status status = SL_OK;
    FILE *file = fopen(path, "re");
    if (!file)
        SL_FAIL(SL_ERROR_IO, "%s: %s", path, strerror(errno));
    while (status == SL_OK && (length = getline(&line, &capacity, file)) > 0)
        status = read_line(path, line, (uint64_t)length, list);
    free(line);
    fclose(file);
    return status;
}

static sl_status put_log(const char *path, json_t *root)
{
    bool has_failed = false;
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return SL_OK; /* what went down a pipe cannot be read again */
    loss_list *list = calloc(1, sizeof *list);
    json_t *array = json_array();
    sl_status status = list && array ? SL_OK : SL_ERROR_SYSTEM;
    if (status == SL_OK) {
        list->stride = 1;
        status = read_lines(path, list);
    }
    for (uint32_t i = 0; status == SL_OK && i < list->count; i++)
        has_failed |=
            json_array_append_new(array, json_pack("[If]", list->steps[i], list->losses[i])) != 0;
    free(list);
    has_failed |= json_object_set_new(root, "log", array) != 0;
    SL_TRY(status);
    if (has_failed)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report");
    return SL_OK;
}

/* ---- what the page says beside the numbers ---- */

static void describe(const sl_blueprint *blueprint, char title[160], char subtitle[256])
{
    const sl_choice *choice = &blueprint->choice;
    const sl_task *task = &blueprint->task;
    snprintf(title, 160, "GPT-2 of %.1f M parameters, policy %s",
             1e-6 * (double)sl_gpt2_parameter_count(&task->shape),
             sl_search_policy_name(choice->placement.policy));
    snprintf(subtitle, 256,
             "%u layers, %u wide; a step of %u × %u rows of %u tokens in %s on %s; recompute %s, "
             "accumulation %s; %u chunks of %" PRIu64 " elements",
             task->shape.layers, task->shape.width, choice->accumulate, choice->micro_batch,
             task->seq, sl_type_name(task->type),
             task->target.device == SL_DEVICE_CPU ? "cpu" : "cuda",
             sl_search_recompute_name(choice->recompute),
             sl_search_accumulation_name(choice->accumulation), blueprint->layout->chunk_count,
             blueprint->layout->chunk_elements);
}

static json_t *make_explanation(const sl_blueprint *blueprint, const sl_account *account)
{
    sl_explanation explanation;
    json_t *array = json_array();
    sl_explain_plan(blueprint, account, &explanation);
    for (uint32_t i = 0; i < explanation.count; i++)
        if (json_array_append_new(array, json_string(explanation.lines[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *make_thumbs(const sl_blueprint *blueprint, const sl_account *account)
{
    sl_thumb thumbs[SL_EXPLAIN_THUMBS];
    json_t *array = json_array();
    sl_explain_thumbs(blueprint, account, thumbs);
    for (int i = 0; i < SL_EXPLAIN_THUMBS; i++)
        if (json_array_append_new(array,
                                  json_pack("[s,I,I,s]", thumbs[i].rule, (json_int_t)thumbs[i].says,
                                            (json_int_t)thumbs[i].planned,
                                            thumbs[i].is_bytes ? "bytes" : "number")) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static sl_status put_words(const sl_report_args *args, const sl_account *account, json_t *root)
{
    char title[160], subtitle[256], version[128];
    describe(args->blueprint, title, subtitle);
    snprintf(version, sizeof version, "sluice %s (%s)", sl_version_text(), sl_version_commit());
    int failed = json_object_set_new(root, "title", json_string(title));
    failed |= json_object_set_new(root, "subtitle", json_string(subtitle));
    failed |= json_object_set_new(root, "version", json_string(version));
    failed |=
        json_object_set_new(root, "machine", sl_json_file_text(args->blueprint->machine.name));
    failed |= json_object_set_new(root, "refusal",
                                  args->refusal ? sl_json_file_text(args->refusal) : json_null());
    failed |= json_object_set_new(root, "explain", make_explanation(args->blueprint, account));
    failed |= json_object_set_new(root, "thumb", make_thumbs(args->blueprint, account));
    if (failed)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report");
    return SL_OK;
}

static sl_status put_new(json_t *root, const char *key, json_t *value)
{
    if (json_object_set_new(root, key, value) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report");
    return SL_OK;
}

static sl_status fill_data(const sl_report_args *args, const sl_account *account, json_t *root)
{
    json_t *plan = NULL, *of_account = NULL, *measured = json_null();
    SL_TRY(put_words(args, account, root));
    SL_TRY(sl_plan_json_format(args->blueprint, &plan));
    SL_TRY(put_new(root, "plan", plan));
    SL_TRY(sl_account_json_format(account, &of_account));
    SL_TRY(put_new(root, "account", of_account));
    if (args->measured)
        SL_TRY(sl_account_json_format_measured(account, args->measured, &measured));
    SL_TRY(put_new(root, "measured", measured));
    return args->log_path ? put_log(args->log_path, root) : SL_OK;
}

/* ---- the file ---- */

static void print_bytes(FILE *page, const unsigned char *bytes, size_t count)
{
    fwrite(bytes, 1, count, page);
}

/* No markup can begin inside of the JSON: a "<" stands only in strings, where \u003c is the same.
 */
static void print_json(FILE *page, const char *json)
{
    for (; *json; json++) {
        if (*json == '<')
            fputs("\\u003c", page);
        else
            fputc(*json, page);
    }
}

static void print_script(FILE *page, sl_page_kind kind)
{
    if (kind == SL_PAGE_BENCH)
        print_bytes(page, sl_report_bench_js, sizeof sl_report_bench_js);
    else if (kind == SL_PAGE_CLUSTER)
        print_bytes(page, sl_report_cluster_js, sizeof sl_report_cluster_js);
    else
        print_bytes(page, sl_report_page_js, sizeof sl_report_page_js);
}

static sl_status print_page(const json_t *root, sl_page_kind kind, char **out_text)
{
    size_t bytes;
    char *json = sl_json_file_dump(root, JSON_COMPACT | JSON_REAL_PRECISION(17));
    FILE *page = json ? open_memstream(out_text, &bytes) : NULL;
    if (!page) {
        free(json);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report");
    }
    fputs(head, page);
    print_bytes(page, sl_report_page_css, sizeof sl_report_page_css);
    fputs(middle, page);
    print_json(page, json);
    fputs(before_script, page);
    print_script(page, kind);
    fputs(tail, page);
    free(json);
    bool has_failed = ferror(page) != 0;
    if (fclose(page) != 0 || has_failed) {
        free(*out_text);
        *out_text = NULL;
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report");
    }
    return SL_OK;
}

static const sl_output_file_kind report_kind = {
    .option = "--report", .noun = "report", .start = head};

sl_status sl_report_check(const char *path)
{
    return sl_output_file_check(&report_kind, path);
}

sl_account_request sl_report_request(const sl_blueprint *blueprint)
{
    const sl_gpt2_shape *shape = &blueprint->task.shape;
    const sl_choice *choice = &blueprint->choice;
    sl_account_request request = {.program = blueprint->programs[0],
                                  .layout = blueprint->layout,
                                  .homes = blueprint->homes,
                                  .plan = blueprint->plans[0],
                                  .machine = &blueprint->machine};
    double parameters = (double)sl_gpt2_parameter_count(shape);
    double attention = (double)shape->layers * shape->width * blueprint->task.seq;
    request.tokens = (uint64_t)choice->micro_batch * choice->accumulate * blueprint->task.seq;
    request.model_flops = 6 * (parameters + attention) * (double)request.tokens;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        request.budget_bytes[tier] = blueprint->budget_bytes[tier];
    return request;
}

sl_status sl_report_write(const char *path, const sl_report_args *args)
{
    char *text = NULL;
    sl_account *account = NULL;
    sl_status status;
    json_t *root = json_object();
    sl_account_request request = sl_report_request(args->blueprint);
    for (int tier = 0; args->asked_budget_bytes && tier < SL_TIER_COUNT; tier++)
        request.budget_bytes[tier] = args->asked_budget_bytes[tier];
    status = sl_account_open(&request, &account);
    if (status == SL_OK)
        status = fill_data(args, account, root);
    sl_account_close(account);
    if (status == SL_OK)
        status = print_page(root, SL_PAGE_PLAN, &text);
    if (status == SL_OK)
        status = sl_output_file_write_text(&report_kind, path, text);
    free(text);
    json_decref(root);
    return status;
}

sl_status sl_report_write_page(const char *path, const json_t *root, sl_page_kind kind)
{
    char *text = NULL;
    SL_TRY(print_page(root, kind, &text));
    sl_status status = sl_output_file_write_text(&report_kind, path, text);
    free(text);
    return status;
}

sl_status sl_report_write_bench(const char *path, const json_t *bench)
{
    char version[128];
    snprintf(version, sizeof version, "sluice %s (%s)", sl_version_text(), sl_version_commit());
    json_t *root = json_pack("{s:s, s:o}", "version", version, "bench", json_deep_copy(bench));
    if (!root)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report");
    sl_status status = sl_report_write_page(path, root, SL_PAGE_BENCH);
    json_decref(root);
    return status;
}
