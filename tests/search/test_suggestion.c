/* What could be wrong here: what cannot fit is not refused, or only after memory was taken; the
 * refusal suggests nothing, or options that do not fit, or its search plans without a bound.
 * Suggestions are taken from their text, as a user would copy them, and planned again behind the
 * options that were refused. The linker puts functions of this program between the search and the
 * planner (--wrap): they see what bounds the plans of each search for suggestions. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "allocation_counter.h"
#include "sanitizer_share.h"
#include "scratch_dir.h"
#include "search/search.h"

enum { SETTING_BYTES = 64, SETTING_MAX = 32 };

/* ---- what bounds the plans ---- */

enum {
    KINDS_MAX = 5
}; /* of changes: micro-batch, homes, disk, budget, budget beyond the machine */

static const uint64_t work_of_a_kind = 1 << 20; /* ops and uses that plans may visit */

/* Of one search for suggestions. */
static struct {
    bool is_running;
    uint32_t plans, unbounded_plans;
    uint32_t kinds; /* how often a plan had the whole work left, and the plan before it had not */
    uint64_t latest_left;
} bounds;

sl_status __real_sl_plan_build(const sl_plan_request *request, sl_plan **out_plan,
                               sl_shortage *out_shortage);
sl_status __wrap_sl_plan_build(const sl_plan_request *request, sl_plan **out_plan,
                               sl_shortage *out_shortage);
sl_status __wrap_sl_plan_build(const sl_plan_request *request, sl_plan **out_plan,
                               sl_shortage *out_shortage)
{
    if (bounds.is_running) {
        const uint64_t left = request->work_left ? *request->work_left : UINT64_MAX;
        bounds.plans++;
        bounds.unbounded_plans += left > work_of_a_kind;
        bounds.kinds += left == work_of_a_kind && bounds.latest_left != work_of_a_kind;
        bounds.latest_left = left;
    }
    const sl_status status = __real_sl_plan_build(request, out_plan, out_shortage);
    if (bounds.is_running && request->work_left)
        bounds.latest_left = *request->work_left;
    return status;
}

sl_status __real_sl_search_suggest(const sl_search *search, sl_refusal *refusal);
sl_status __wrap_sl_search_suggest(const sl_search *search, sl_refusal *refusal);
sl_status __wrap_sl_search_suggest(const sl_search *search, sl_refusal *refusal)
{
    memset(&bounds, 0, sizeof bounds);
    bounds.is_running = true;
    const sl_status status = __real_sl_search_suggest(search, refusal);
    bounds.is_running = false;
    return status;
}

/* All plans of a kind take from one number, which is filled once a kind. */
static void check_bounds(void)
{
    assert_true(bounds.plans > 0);
    assert_int_equal(bounds.unbounded_plans, 0);
    assert_in_range(bounds.kinds, 1, KINDS_MAX);
}

/* ---- what is refused ---- */

/* Settings as --set takes them; later ones win. */
typedef struct settings {
    char text[SETTING_MAX][SETTING_BYTES];
    uint32_t count;
} settings;

static void __attribute__((format(printf, 2, 3))) add(settings *list, const char *format, ...)
{
    assert_true(list->count < SETTING_MAX);
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(list->text[list->count++], SETTING_BYTES, format, arguments);
    va_end(arguments);
    assert_true(length > 0 && length < SETTING_BYTES);
}

static void print_settings(const settings *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        print_message(" %s", list->text[i]);
    print_message("\n");
}

static sl_status find(const sl_model_shape *shape, const settings *list,
                      sl_blueprint **out_blueprint, sl_refusal *out_refusal)
{
    sl_config config;
    sl_search search;
    assert_int_equal(sl_config_init(&config), SL_OK);
    assert_int_equal(sl_config_assign(&config, SL_CONFIG_TRAIN, "data=x"), SL_OK);
    assert_int_equal(sl_config_assign(&config, SL_CONFIG_TRAIN, "device=cpu"), SL_OK);
    for (uint32_t i = 0; i < list->count; i++)
        if (sl_config_assign(&config, SL_CONFIG_TRAIN, list->text[i]) != SL_OK)
            fail_msg("%s: %s", list->text[i], sl_status_message());
    if (sl_config_check(&config, SL_CONFIG_TRAIN) != SL_OK)
        fail_msg("%s", sl_status_message());
    assert_int_equal(sl_config_fit_model(&config, shape), SL_OK);
    assert_int_equal(sl_search_init(&config, SL_WORK_TRAIN, shape, &search), SL_OK);
    sl_config_clear(&config);
    return sl_search_find(&search, out_blueprint, out_refusal);
}

/* Options of a command line, "--name value ...", behind the settings of `list`. */
static void follow(settings *list, const char *options)
{
    char text[SL_SEARCH_SUGGESTION_BYTES], *rest = NULL;
    snprintf(text, sizeof text, "%s", options);
    for (char *name = strtok_r(text, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
        char *value = strtok_r(NULL, " ", &rest);
        if (strncmp(name, "--", 2) != 0 || !value)
            fail_msg("\"%s\" is not a list of options with values", options);
        add(list, "%s=%s", name + 2, value);
    }
}

/* It fits behind the options that were refused; those that keep the budgets come first, the fastest
 * before the others, and none of them is beyond the machine. */
static void check_suggestion(const sl_model_shape *shape, const settings *list,
                             const sl_refusal *refusal, uint32_t index)
{
    const sl_suggestion *suggestion = &refusal->suggestions[index];
    settings followed = *list;
    sl_blueprint *blueprint = NULL;
    sl_refusal ignored;
    follow(&followed, suggestion->options);
    if (find(shape, &followed, &blueprint, &ignored) != SL_OK)
        fail_msg("%s does not fit: %s", suggestion->options, sl_status_message());
    sl_blueprint_close(blueprint);
    const bool is_budget = isinf(suggestion->seconds);
    assert_true(is_budget || !suggestion->is_beyond_machine);
    assert_true(!suggestion->is_beyond_machine || refusal->suggestion_count == 1);
    assert_true(index == 0 || suggestion->seconds >= suggestion[-1].seconds);
}

/* True if it was refused; then everything about the refusal was checked. */
static bool refuse(const sl_model_shape *shape, const settings *list)
{
    sl_blueprint *blueprint = NULL;
    sl_refusal refusal = {0};
    allocation_counter_start();
    sl_status status = find(shape, list, &blueprint, &refusal);
    allocation_counter_stop();
    sl_blueprint_close(blueprint);
    if (status == SL_OK)
        return false;
    if (status != SL_ERROR_FIT || refusal.suggestion_count == 0)
        fail_msg("status %d: %s", status, sl_status_message());
    check_bounds();
    assert_true(refusal.suggestion_count <= SL_SEARCH_SUGGESTIONS);
    for (uint32_t i = 0; i < refusal.suggestion_count; i++)
        assert_non_null(strstr(sl_status_message(), refusal.suggestions[i].options));
    assert_true(refusal.failure.shortage.missing_bytes > 0);
    /* Nothing as large as the states was taken; a plan's own lists stay below a MiB here. */
    uint64_t state_bytes = 4 * sizeof(float) * sl_model_shape_parameters(shape);
    assert_true(allocation_counter_largest < (state_bytes > 1 << 20 ? state_bytes : 1 << 20));
    for (uint32_t i = 0; i < refusal.suggestion_count; i++)
        check_suggestion(shape, list, &refusal, i);
    return true;
}

static void suggestions_when_followed_then_fit(void **state)
{
    (void)state;
    static const sl_model_shape shape = {2, 48, 4, 32, 1000};
    static const settings cases[] = {
        {{"device-memory=300K", "host-memory=1G"}, 2},
        {{"device-memory=450K", "host-memory=1G", "recompute=none"}, 3},
        {{"device-memory=2M", "host-memory=1G", "policy=device"}, 3},
        {{"device-memory=1M", "host-memory=500K"}, 2},
        {{"device-memory=1G", "host-memory=1"}, 2},
        {{"device-memory=1M", "host-memory=100K", "policy=host", "recompute=full"}, 4},
        {{"device-memory=2M", "host-memory=1G", "policy=device", "accumulate=4"}, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (!refuse(&shape, &cases[i]))
            fail_msg("case %zu fits: it tests nothing", i);
}

static bool has_suggestion(const sl_refusal *refusal, const char *options)
{
    for (uint32_t i = 0; i < refusal->suggestion_count; i++)
        if (strncmp(refusal->suggestions[i].options, options, strlen(options)) == 0)
            return true;
    return false;
}

/* The bytes at which recomputation helps lie beyond the workspaces of the head, which depend on the
 * instruction set: some budget between too small and large enough must have the suggestion. */
static void suggestions_when_recomputation_helps_then_name_it(void **state)
{
    (void)state;
    static const sl_model_shape shape = {2, 48, 4, 32, 1000};
    bool is_refused = true, is_named = false;
    for (uint32_t kib = 600; is_refused && !is_named; kib += 100) {
        settings list = {{"micro-batch=4", "policy=host", "recompute=none"}, 3};
        sl_blueprint *blueprint = NULL;
        sl_refusal refusal = {.suggestion_count = 0};
        char budget[32];
        snprintf(budget, sizeof budget, "--device-memory %uK", kib);
        follow(&list, budget);
        is_refused = find(&shape, &list, &blueprint, &refusal) == SL_ERROR_FIT;
        is_named = is_refused && has_suggestion(&refusal, "--recompute full");
        sl_blueprint_close(blueprint);
        if (is_named)
            assert_true(refuse(&shape, &list));
    }
    assert_true(is_named);
}

/* What keeps the budget: as many rows of a step in smaller pieces, other homes, a disk. */
static void suggestions_when_something_helps_then_keep_the_budgets(void **state)
{
    (void)state;
    static const sl_model_shape shape = {2, 48, 4, 32, 1000};
    static const struct {
        settings settings;
        const char *options;
    } cases[] = {
        {{{"micro-batch=8", "device-memory=600K"}, 2}, "--micro-batch 1 --accumulate 8"},
        {{{"micro-batch=6", "accumulate=5", "device-memory=500K"}, 3},
         "--micro-batch 1 --accumulate 30"},
        {{{"micro-batch=4", "device-memory=2M", "policy=device"}, 3}, "--policy host"},
        {{{"micro-batch=4", "device-memory=2M", "policy=device"}, 3},
         "--policy nvme --nvme-optimizer 1 --disk-dir ."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_blueprint *blueprint = NULL;
        sl_refusal refusal = {.suggestion_count = 0};
        assert_int_equal(find(&shape, &cases[i].settings, &blueprint, &refusal), SL_ERROR_FIT);
        if (!has_suggestion(&refusal, cases[i].options))
            fail_msg("case %zu lacks %s: %s", i, cases[i].options, sl_status_message());
        assert_true(refuse(&shape, &cases[i].settings));
    }
}

/* GPT-2 with rows far beyond the memory: that it does not fit is known from the values alone, and
 * hardly a plan is tried. */
static void search_when_nothing_can_fit_then_plans_little(void **state)
{
    (void)state;
    static const sl_model_shape shape = {12, 768, 12, 1024, 50257};
    sl_config config;
    sl_search search;
    sl_blueprint *blueprint = NULL;
    sl_fit_failure failure;
    uint64_t work_left = UINT64_MAX;
    assert_int_equal(sl_config_init(&config), SL_OK);
    assert_int_equal(sl_config_assign(&config, SL_CONFIG_TRAIN, "data=x"), SL_OK);
    assert_int_equal(sl_config_assign(&config, SL_CONFIG_TRAIN, "device=cpu"), SL_OK);
    assert_int_equal(sl_config_assign(&config, SL_CONFIG_TRAIN, "micro-batch=500"), SL_OK);
    assert_int_equal(sl_config_check(&config, SL_CONFIG_TRAIN), SL_OK);
    assert_int_equal(sl_config_fit_model(&config, &shape), SL_OK);
    assert_int_equal(sl_search_init(&config, SL_WORK_TRAIN, &shape, &search), SL_OK);
    sl_config_clear(&config);
    search.task.shared_bytes = UINT64_C(18) << 30;
    search.task.work_left = &work_left;
    assert_int_equal(sl_search_try(&search, &blueprint, &failure), SL_ERROR_FIT);
    assert_int_equal(failure.shortage.tier, SL_TIER_DEVICE);
    assert_true(UINT64_MAX - work_left < 1 << 20);
}

/* ---- random configurations ---- */

static sl_model_shape draw_shape(uint64_t *random)
{
    static const uint32_t head_widths[] = {16, 32, 64};
    uint32_t heads = 1 + (uint32_t)scratch_below(random, 8);
    return (sl_model_shape){.layers = 1 + (uint32_t)scratch_below(random, 6),
                            .width = heads * head_widths[scratch_below(random, 3)] * 2,
                            .heads = heads,
                            .context = 16u << scratch_below(random, 5),
                            .vocab = 1000 + (uint32_t)scratch_below(random, 50000)};
}

static const char *draw_word(uint64_t *random, const char *const *words, uint64_t count)
{
    return words[scratch_below(random, count)];
}

static void draw_placement(uint64_t *random, settings *list)
{
    static const char *const policies[] = {"auto", "device", "host", "static", "nvme"};
    static const char *const adams[] = {"auto", "device", "host"};
    bool has_disk = scratch_below(random, 2);
    const char *policy = draw_word(random, policies, has_disk ? 5 : 4);
    add(list, "policy=%s", policy);
    if (has_disk)
        add(list, "disk-dir=/tmp");
    if (has_disk && scratch_below(random, 4) == 0)
        add(list, "disk-space=%lluK", (unsigned long long)scratch_below(random, 20000));
    if (strcmp(policy, "auto") != 0 && strcmp(policy, "device") != 0) /* elsewhere it is refused */
        add(list, "adam=%s", draw_word(random, adams, 3));
    if (strcmp(policy, "nvme") == 0 && scratch_below(random, 2))
        add(list, "nvme-params=0.%u", (unsigned)scratch_below(random, 10));
    if (strcmp(policy, "static") != 0)
        return;
    add(list, "offload-params=0.%u", (unsigned)scratch_below(random, 10));
    add(list, "offload-grads=0.%u", (unsigned)scratch_below(random, 10));
    add(list, "offload-optimizer=0.%u", (unsigned)scratch_below(random, 10));
}

static void draw_work(uint64_t *random, settings *list)
{
    static const char *const recomputes[] = {"auto", "none", "selective", "full"};
    static const char *const accumulations[] = {"auto", "micro", "layer"};
    add(list, "threads=%u", 1 + (unsigned)scratch_below(random, 3));
    add(list, "micro-batch=%u", 1 + (unsigned)scratch_below(random, 8));
    add(list, "accumulate=%u", 1 + (unsigned)scratch_below(random, 4));
    add(list, "accumulation=%s", draw_word(random, accumulations, 3));
    add(list, "recompute=%s", draw_word(random, recomputes, 4));
    if (scratch_below(random, 2))
        add(list, "clip=0");
    if (scratch_below(random, 4) == 0)
        add(list, "prefetch=%u", (unsigned)scratch_below(random, 4));
}

/* From a thousandth of the training state to all of it, evenly in the logarithm. */
static uint64_t draw_budget(uint64_t *random, uint64_t state_bytes)
{
    uint64_t upper = state_bytes >> scratch_below(random, 10);
    return upper / 2 + scratch_below(random, upper / 2);
}

static void draw_budgets(uint64_t *random, uint64_t state_bytes, settings *list)
{
    uint64_t which = 1 + scratch_below(random, 3);
    if (which & 1)
        add(list, "device-memory=%llu", (unsigned long long)draw_budget(random, state_bytes));
    if (which & 2)
        add(list, "host-memory=%llu", (unsigned long long)draw_budget(random, state_bytes));
}

static void random_cases_when_refused_then_the_suggestion_fits(void **state)
{
    (void)state;
    uint64_t random = scratch_seed("random cases", 1) * 2685821657736338717ull + 1;
    uint64_t goal = scratch_count(sanitizer_share(15), 1000), refused = 0, tried = 0;
    for (; refused < goal; tried++) {
        settings list = {.count = 0};
        sl_model_shape shape = draw_shape(&random);
        uint64_t state_bytes = 16 * sl_model_shape_parameters(&shape);
        draw_placement(&random, &list);
        draw_work(&random, &list);
        draw_budgets(&random, state_bytes, &list);
        assert_true(tried < 20 * goal);
        if (getenv("SL_TEST_VERBOSE")) {
            print_message("%u layers, %u wide, %u heads, context %u, vocab %u:", shape.layers,
                          shape.width, shape.heads, shape.context, shape.vocab);
            print_settings(&list);
        }
        refused += refuse(&shape, &list);
    }
    print_message("%llu configurations, %llu refused\n", (unsigned long long)tried,
                  (unsigned long long)refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(suggestions_when_followed_then_fit),
        cmocka_unit_test(suggestions_when_something_helps_then_keep_the_budgets),
        cmocka_unit_test(suggestions_when_recomputation_helps_then_name_it),
        cmocka_unit_test(search_when_nothing_can_fit_then_plans_little),
        cmocka_unit_test(random_cases_when_refused_then_the_suggestion_fits),
    };
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1); /* no profile that this machine may have */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
