/* Puts a page together: a head, the style and the script of page.css and page.js, which the build
 * turns into arrays, and the numbers. The page names no other file, and forbids itself to load any.
 */
#define _GNU_SOURCE /* open_memstream */
#include "page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "account_json.h"
#include "base/plural.h"
#include "base/status.h"
#include "explain.h"
#include "files/json_file.h"
#include "files/output_file.h"
#include "files/page_file.h"
#include "report_page.h"
#include "search/plan_json.h"
#include "sluice/version.h"

static const char middle[] = "</style>\n</head>\n<body>\n<main>\n<noscript>The pictures of this "
                             "report are drawn by its script; its numbers stand in the element "
                             "sluice-data as JSON.</noscript>\n</main>\n"
                             "<script type=\"application/json\" id=\"sluice-data\">\n";
static const char before_script[] = "\n</script>\n<script>\n";
static const char tail[] = "</script>\n</body>\n</html>\n";

/* ---- what the page says beside the numbers ---- */

static void describe(const sl_blueprint *blueprint, char title[160], char subtitle[256])
{
    const sl_choice *choice = &blueprint->choice;
    const sl_task *task = &blueprint->task;
    snprintf(title, 160, "GPT-2 of %.1f M parameters, policy %s",
             1e-6 * (double)sl_blueprint_count_parameters(blueprint),
             sl_search_policy_name(choice->placement.policy));
    snprintf(subtitle, 256,
             "%u layer%s, %u wide; a step of %u × %u row%s of %u tokens in %s on %s; recompute %s, "
             "accumulation %s; %u chunk%s of at most %" PRIu64 " elements",
             task->shape.layers, sl_plural(task->shape.layers), task->shape.width,
             choice->accumulate, choice->micro_batch, sl_plural(choice->micro_batch), task->seq,
             sl_type_name(task->type), task->target.device == SL_DEVICE_CPU ? "cpu" : "cuda",
             sl_search_recompute_name(choice->recompute),
             sl_search_accumulation_name(choice->accumulation), blueprint->layout->chunk_count,
             sl_plural(blueprint->layout->chunk_count), blueprint->layout->largest_elements);
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
    const int count = sl_explain_thumbs(blueprint, account, thumbs);
    for (int i = 0; i < count; i++)
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
    failed |= json_object_set_new(root, "basis",
                                  sl_json_file_text(sl_machine_basis(&args->blueprint->machine)));
    failed |= json_object_set_new(root, "is_measured",
                                  json_boolean(args->blueprint->machine.is_measured));
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
    json_t *plan = NULL, *of_account = NULL;
    SL_TRY(put_words(args, account, root));
    SL_TRY(sl_plan_json_format(args->blueprint, &plan));
    SL_TRY(put_new(root, "plan", plan));
    SL_TRY(sl_account_json_format(account, &of_account));
    return put_new(root, "account", of_account);
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

#define SCRIPT(name)                                                                               \
    {                                                                                              \
        name, sizeof name                                                                          \
    }

/* What each kind of page is made of, in order; a NULL script ends the list. */
static const struct page_kind {
    const char *title;
    struct script {
        const unsigned char *bytes;
        size_t count;
    } scripts[4];
} page_kinds[] = {
    [SL_PAGE_PLAN] = {"memory and time of a step",
                      {SCRIPT(sl_report_common_js), SCRIPT(sl_report_curves_js),
                       SCRIPT(sl_report_page_js)}},
    [SL_PAGE_RUNS] = {"runs",
                      {SCRIPT(sl_report_common_js), SCRIPT(sl_report_curves_js),
                       SCRIPT(sl_report_runs_js)}},
    [SL_PAGE_BENCH] = {"a measured machine",
                       {SCRIPT(sl_report_common_js), SCRIPT(sl_report_bench_js)}},
    [SL_PAGE_CLUSTER] = {"a planned cluster",
                         {SCRIPT(sl_report_common_js), SCRIPT(sl_report_cluster_js)}},
};

/* `run`: the id of the run that a page is of, or NULL. */
static sl_status print_page(const json_t *root, sl_page_kind kind, const char *run, char **out_text)
{
    const struct page_kind *made_of = &page_kinds[kind];
    size_t bytes;
    char *json = sl_json_file_dump(root, JSON_COMPACT | JSON_REAL_PRECISION(17));
    FILE *page = json ? open_memstream(out_text, &bytes) : NULL;
    if (!page) {
        free(json);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report");
    }
    sl_page_file_print_head(page, made_of->title, run);
    print_bytes(page, sl_report_page_css, sizeof sl_report_page_css);
    fputs(middle, page);
    print_json(page, json);
    fputs(before_script, page);
    for (const struct script *script = made_of->scripts; script->bytes; script++)
        print_bytes(page, script->bytes, script->count);
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

/* Each command names its page by --report, but for the command report. */
static const sl_output_file_kind *output_kind(sl_page_kind kind)
{
    static const sl_output_file_kind by_report = {.option = "--report",
                                                  .noun = "report",
                                                  .start = sl_page_file_start},
                                     by_output = {.option = "--output",
                                                  .noun = "report",
                                                  .start = sl_page_file_start};
    return kind == SL_PAGE_RUNS ? &by_output : &by_report;
}

sl_status sl_report_check(const char *path, sl_page_kind kind)
{
    return sl_output_file_check(output_kind(kind), path);
}

sl_account_request sl_report_request(const sl_blueprint *blueprint)
{
    const sl_choice *choice = &blueprint->choice;
    sl_account_request request = {.program = blueprint->programs[0],
                                  .layout = blueprint->layout,
                                  .homes = blueprint->homes,
                                  .plan = blueprint->plans[0],
                                  .machine = &blueprint->machine};
    request.tokens = (uint64_t)choice->micro_batch * choice->accumulate * blueprint->task.seq;
    request.model_flops = blueprint->token_flops * (double)request.tokens;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        request.budget_bytes[tier] = blueprint->budget_bytes[tier];
    return request;
}

/* The numbers that stay, and the account by which measured ones are named. */
struct sl_report_draft {
    sl_account *account;
    json_t *root;
};

sl_status sl_report_draft_open(const sl_report_args *args, sl_report_draft **out_draft)
{
    sl_account_request request = sl_report_request(args->blueprint);
    for (int tier = 0; args->asked_budget_bytes && tier < SL_TIER_COUNT; tier++)
        request.budget_bytes[tier] = args->asked_budget_bytes[tier];
    sl_report_draft *draft = calloc(1, sizeof *draft);
    if (!draft)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report");
    draft->root = json_object();
    sl_status status = sl_account_open(&request, &draft->account);
    if (status == SL_OK)
        status = fill_data(args, draft->account, draft->root);
    if (status != SL_OK) {
        sl_report_draft_close(draft);
        return status;
    }
    *out_draft = draft;
    return SL_OK;
}

void sl_report_draft_close(sl_report_draft *draft)
{
    if (!draft)
        return;
    sl_account_close(draft->account);
    json_decref(draft->root);
    free(draft);
}

static sl_status put_measured(sl_report_draft *draft, const sl_report_measured *from)
{
    json_t *measured = json_null();
    if (from)
        SL_TRY(sl_account_json_format_measured(draft->account, from, &measured));
    return put_new(draft->root, "measured", measured);
}

static sl_status put_run(sl_report_draft *draft, const sl_history *run)
{
    json_t *object = NULL;
    if (!run)
        return SL_OK;
    SL_TRY(sl_history_format(run, "this run", &object));
    return put_new(draft->root, "runs", json_pack("[o]", object));
}

sl_status sl_report_draft_write(sl_report_draft *draft, const char *path,
                                const sl_report_measured *measured, const sl_history *run)
{
    char *text = NULL;
    SL_TRY(put_measured(draft, measured));
    SL_TRY(put_run(draft, run));
    SL_TRY(print_page(draft->root, SL_PAGE_PLAN, run ? run->id : NULL, &text));
    sl_status status = sl_output_file_write_text(output_kind(SL_PAGE_PLAN), path, text);
    free(text);
    return status;
}

sl_status sl_report_write(const char *path, const sl_report_args *args,
                          const sl_report_measured *measured)
{
    sl_report_draft *draft = NULL;
    SL_TRY(sl_report_draft_open(args, &draft));
    sl_status status = sl_report_draft_write(draft, path, measured, NULL);
    sl_report_draft_close(draft);
    return status;
}

sl_status sl_report_write_page(const char *path, const json_t *root, sl_page_kind kind)
{
    char *text = NULL;
    SL_TRY(print_page(root, kind, NULL, &text));
    sl_status status = sl_output_file_write_text(output_kind(kind), path, text);
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
