/* What could be wrong with tensors of a session: other elements than those that train; a copy that
 * is called a view; a view of what is not there.
 */
#define _GNU_SOURCE
#include "session_case.h"

static void tensors_when_written_are_what_is_read_and_what_trains(void **state)
{
    (void)state;
    static float all[VOCAB * 32], half[VOCAB * 32];
    double losses[STEPS], again[STEPS];
    sl_session *session = NULL, *copy = NULL;
    sl_tensor_info info = {.size = sizeof info};
    uint32_t count = 0;
    uint64_t elements = 0;
    sl_options *options = tiny_options("text");
    must(sl_options_set(options, "data-order", "sequential"));
    must(sl_session_open(options, &session));
    must(sl_options_set(options, "seed", "7")); /* other first values */
    must(sl_session_open(options, &copy));
    for (; sl_session_tensor(session, count, &info); count++) {
        assert_true(info.element_count <= sizeof all / sizeof *all && info.is_trained);
        elements += info.element_count;
        must(sl_session_read(session, info.name, SL_STATE_PARAMETER, all, info.element_count));
        must(sl_session_write(copy, info.name, SL_STATE_PARAMETER, all, info.element_count));
        memset(half, 0, sizeof half);
        must(sl_session_read(copy, info.name, SL_STATE_PARAMETER, half, info.element_count));
        assert_memory_equal(half, all, info.element_count * sizeof *all);
    }
    assert_int_equal(count, 2 * 12 + 4);
    assert_int_equal(elements, 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32 + (VOCAB + 32) * 32);
    train(copy, STEPS, losses);
    must(sl_session_close(copy));
    train(session, STEPS, again);
    must(sl_session_read(session, "ln_f.bias", SL_STATE_MOMENT2, all, 32));
    assert_true(all[0] > 0);
    assert_refused(sl_session_read(session, "ln_f", SL_STATE_PARAMETER, all, 32), SL_ERROR_USAGE,
                   "names are like");
    assert_refused(sl_session_read(session, "ln_f.bias", SL_STATE_PARAMETER, all, 31),
                   SL_ERROR_USAGE, "has 32 elements");
    must(sl_session_close(session));
    sl_options_close(options);
    assert_memory_equal(losses, again, sizeof losses);
}

/* Options of a session for views: where its tensors are, and in which type. */
typedef struct view_case {
    const char *policy, *precision, *frozen;
    sl_element_type frozen_type;
    const char *chunk_size; /* 65536: one chunk has all tensors */
    const char *on_host;    /* share of parameters, of policy static */
} view_case;

static sl_session *open_for_views(const view_case *it)
{
    sl_session *session = NULL;
    sl_options *options = tiny_options("text");
    must(sl_options_set(options, "policy", it->policy));
    must(sl_options_set(options, "precision", it->precision));
    must(sl_options_set(options, "disk-dir", "."));
    must(sl_options_set(options, "disk-space", "64M"));
    must(sl_options_set(options, "chunk-size", it->chunk_size));
    if (it->frozen)
        must(sl_options_set(options, "freeze", it->frozen));
    if (it->on_host)
        must(sl_options_set(options, "offload-params", it->on_host));
    must(sl_session_open(options, &session));
    sl_options_close(options);
    return session;
}

static float widen(const sl_tensor_view *view, uint64_t index)
{
    float value;
    const uint32_t bits = (uint32_t)((const uint16_t *)view->elements)[index] << 16;
    if (view->type == SL_ELEMENT_FP32)
        return ((const float *)view->elements)[index];
    assert_int_equal(view->type, SL_ELEMENT_BF16);
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A view has what a copy has. */
static void compare_view(sl_session *session, const sl_tensor_info *info, sl_tensor_state state,
                         const sl_tensor_view *view)
{
    static float all[VOCAB * 32];
    must(sl_session_read(session, info->name, state, all, info->element_count));
    assert_int_equal(view->element_count, info->element_count);
    for (uint64_t i = 0; i < info->element_count; i++)
        if (widen(view, i) != all[i])
            fail_msg("%s: element %llu is %g, not %g", info->name, (unsigned long long)i,
                     (double)widen(view, i), (double)all[i]);
}

/* Before and after a step, at the same addresses. Returns how many tensors were seen. */
static uint32_t look_at_views(const view_case *it)
{
    sl_session *session = open_for_views(it);
    sl_tensor_info info = {.size = sizeof info};
    sl_step_result step = {.size = sizeof step};
    uint32_t seen = 0;
    for (uint32_t i = 0; sl_session_tensor(session, i, &info); i++)
        for (int s = SL_STATE_PARAMETER; s <= (info.is_trained ? SL_STATE_MOMENT2 : 0); s++) {
            const sl_tensor_state state = (sl_tensor_state)s;
            sl_tensor_view view = {.size = sizeof view}, again = view;
            must(sl_session_view(session, info.name, state, &view));
            assert_int_equal(view.type, info.is_trained ? SL_ELEMENT_FP32 : it->frozen_type);
            compare_view(session, &info, state, &view);
            must(sl_session_step(session, &step));
            must(sl_session_view(session, info.name, state, &again));
            assert_ptr_equal(view.elements, again.elements);
            compare_view(session, &info, state, &view);
            seen++;
        }
    must(sl_session_close(session));
    return seen;
}

static void tensors_when_in_memory_are_seen_without_a_copy(void **state)
{
    (void)state;
    const view_case cases[] = {{"device", "fp32", NULL, SL_ELEMENT_FP32, "65536"},
                               {"host", "fp32", NULL, SL_ELEMENT_FP32, "65536"},
                               {"host", "bf16", "h.0.*", SL_ELEMENT_BF16, "65536"}};
    const uint32_t all = 2 * 12 + 4, of_block = 12;
    assert_int_equal(look_at_views(&cases[0]), 3 * all);
    assert_int_equal(look_at_views(&cases[1]), 3 * all);
    assert_int_equal(look_at_views(&cases[2]), 3 * all - 2 * of_block);
}

static void views_when_they_cannot_be_are_refused_with_the_reason(void **state)
{
    (void)state;
    const view_case on_disk = {"nvme", "fp32", NULL, SL_ELEMENT_FP32, "65536"};
    sl_session *session = open_for_views(&on_disk);
    sl_tensor_view view = {.size = sizeof view};
    assert_refused(sl_session_view(session, "ln_f.bias", SL_STATE_MOMENT1, &view), SL_ERROR_USAGE,
                   "ln_f.bias is on disk: read a copy");
    must(sl_session_view(session, "ln_f.bias", SL_STATE_PARAMETER, &view));
    assert_refused(sl_session_view(session, "ln_f", SL_STATE_PARAMETER, &view), SL_ERROR_USAGE,
                   "names are like");
    must(sl_session_close(session));

    /* Each panel of the table has a chunk, and one of these is not on the host. */
    const view_case in_parts = {"static", "fp32", NULL, SL_ELEMENT_FP32, "5000", "0.9"};
    session = open_for_views(&in_parts);
    assert_refused(sl_session_view(session, "wte.weight", SL_STATE_PARAMETER, &view),
                   SL_ERROR_USAGE, "wte.weight lies in several parts of memory: read a copy");
    must(sl_session_close(session));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_when_written_are_what_is_read_and_what_trains),
        cmocka_unit_test(tensors_when_in_memory_are_seen_without_a_copy),
        cmocka_unit_test(views_when_they_cannot_be_are_refused_with_the_reason),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
