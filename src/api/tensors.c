/* Tensors of a session by name: read and written in full, through the chunks of the engine, or seen
 * where they lie. */
#include "session.h"

#include <string.h>

static const sl_group groups[] = {[SL_STATE_PARAMETER] = SL_GROUP_PARAM,
                                  [SL_STATE_MOMENT1] = SL_GROUP_STATE1,
                                  [SL_STATE_MOMENT2] = SL_GROUP_STATE2};

static uint64_t count_columns(const sl_full_tensor *full)
{
    return full->dim_count < 2 ? 1 : full->shape[1];
}

int sl_session_tensor(const sl_session *session, uint32_t index, sl_tensor_info *out_info)
{
    if (sl_session_check(session) != SL_OK || index >= session->tensors->count ||
        sl_sized_check("sl_tensor_info", out_info) != SL_OK)
        return 0;
    const sl_full_tensor *full = &session->tensors->items[index];
    const sl_tensor_info info = {.name = full->name,
                                 .dim_count = full->dim_count,
                                 .dims = {full->shape[0], full->shape[1]},
                                 .element_count = full->shape[0] * count_columns(full),
                                 .is_trained = !sl_rule_is_frozen(full->rule)};
    sl_sized_fill(&info, sizeof info, out_info);
    return 1;
}

static sl_status check_spread(const sl_session *session, const sl_full_tensor *full)
{
    if (full->is_split || session->trainer.runtime->io.is_spread)
        SL_FAIL(SL_ERROR_USAGE,
                "%s: its elements are spread over ranks: save a checkpoint, which has all of them",
                full->name);
    return SL_OK;
}

static sl_status find_tensor(const sl_session *session, const char *name, sl_tensor_state state,
                             const sl_full_tensor **out_full)
{
    SL_TRY(sl_session_check(session));
    const sl_full_tensors *list = session->tensors;
    uint32_t i = 0;
    while (i < list->count && strcmp(list->items[i].name, name) != 0)
        i++;
    if (i == list->count)
        SL_FAIL(SL_ERROR_USAGE, "the model has no tensor \"%.64s\"; names are like %s", name,
                list->items[0].name);
    const sl_full_tensor *full = &list->items[i];
    if ((unsigned)state > SL_STATE_MOMENT2 || !sl_rule_stores(full->rule, groups[state]))
        SL_FAIL(SL_ERROR_USAGE, "%s has no state %d", full->name, (int)state);
    SL_TRY(check_spread(session, full));
    *out_full = full;
    return SL_OK;
}

/* The same, of a tensor of `count` elements. */
static sl_status find_counted(const sl_session *session, const char *name, sl_tensor_state state,
                              uint64_t count, const sl_full_tensor **out_full)
{
    SL_TRY(find_tensor(session, name, state, out_full));
    const uint64_t all = (*out_full)->shape[0] * count_columns(*out_full);
    if (count != all)
        SL_FAIL(SL_ERROR_USAGE, "%s has %llu elements, not %llu", (*out_full)->name,
                (unsigned long long)all, (unsigned long long)count);
    return SL_OK;
}

/* Reads to `to`, or without it writes from `from`. Panels have padding behind their rows; the
 * tensor has none. */
static sl_status carry(const sl_session *session, const sl_full_tensor *full, sl_group group,
                       float *to, const float *from)
{
    const sl_tensor_io *io = &session->trainer.runtime->io;
    for (uint32_t i = 0; i < full->panel_count; i++) {
        const uint32_t index = full->panels[i];
        const sl_tensor_spec *panel = &session->tensors->tensors[index];
        const uint64_t first = panel->first_row * count_columns(full);
        const uint64_t count = panel->valid_rows * count_columns(full);
        SL_TRY(to ? io->read(io->user, group, index, 0, count, to + first)
                  : io->write(io->user, group, index, 0, count, from + first));
    }
    return SL_OK;
}

sl_status sl_session_read(sl_session *session, const char *tensor, sl_tensor_state state,
                          float *out_elements, uint64_t count)
{
    const sl_full_tensor *full;
    SL_SESSION_ENTER(session);
    SL_TRY(find_counted(session, tensor, state, count, &full));
    return carry(session, full, groups[state], out_elements, NULL);
}

sl_status sl_session_write(sl_session *session, const char *tensor, sl_tensor_state state,
                           const float *elements, uint64_t count)
{
    const sl_full_tensor *full;
    SL_SESSION_ENTER(session);
    SL_TRY(find_counted(session, tensor, state, count, &full));
    return carry(session, full, groups[state], NULL, elements);
}

/* ---- views ---- */

/* Panels are one run if each begins where the one before it ends. */
static sl_status join_panel(const sl_full_tensor *full, const sl_runtime_view *panel,
                            uint64_t bytes_before, sl_runtime_view *all)
{
    if (all->elements == NULL)
        *all = *panel;
    else if ((const char *)all->elements + bytes_before != panel->elements)
        SL_FAIL(SL_ERROR_USAGE, "%s lies in several parts of memory: read a copy", full->name);
    return SL_OK;
}

static sl_status find_view(const sl_session *session, const sl_full_tensor *full, sl_group group,
                           sl_runtime_view *out_view)
{
    sl_runtime *runtime = session->trainer.runtime;
    uint64_t bytes = 0;
    *out_view = (sl_runtime_view){0};
    for (uint32_t i = 0; i < full->panel_count; i++) {
        const sl_tensor_spec *panel = &session->tensors->tensors[full->panels[i]];
        const uint64_t count = panel->valid_rows * count_columns(full);
        sl_runtime_view view = {0};
        const sl_status status =
            sl_runtime_view_elements(runtime, group, full->panels[i], 0, count, &view);
        if (status == SL_ERROR_USAGE)
            SL_FAIL(SL_ERROR_USAGE, "%s %s: read a copy", full->name, sl_status_message());
        SL_TRY(status);
        SL_TRY(join_panel(full, &view, bytes, out_view));
        bytes += count * sl_type_bytes(view.type);
    }
    return SL_OK;
}

sl_status sl_session_view(sl_session *session, const char *tensor, sl_tensor_state state,
                          sl_tensor_view *out_view)
{
    static const sl_element_type types[] = {[SL_TYPE_FP32] = SL_ELEMENT_FP32,
                                            [SL_TYPE_BF16] = SL_ELEMENT_BF16,
                                            [SL_TYPE_FP16] = SL_ELEMENT_FP16};
    const sl_full_tensor *full;
    sl_runtime_view found;
    SL_SESSION_ENTER(session);
    SL_TRY(find_tensor(session, tensor, state, &full));
    SL_TRY(sl_sized_check("sl_tensor_view", out_view));
    SL_TRY(find_view(session, full, groups[state], &found));
    const sl_tensor_view view = {.elements = found.elements,
                                 .type = types[found.type],
                                 .element_count = full->shape[0] * count_columns(full)};
    sl_sized_fill(&view, sizeof view, out_view);
    return SL_OK;
}
