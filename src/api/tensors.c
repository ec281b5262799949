/* Tensors of a session by name: read and written in full, through the chunks of the engine. */
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
    if (index >= session->tensors->count)
        return 0;
    const sl_full_tensor *full = &session->tensors->items[index];
    const sl_tensor_info info = {.name = full->name,
                                 .dim_count = full->dim_count,
                                 .dims = {full->shape[0], full->shape[1]},
                                 .element_count = full->shape[0] * count_columns(full),
                                 .is_trained = full->rule != SL_RULE_NONE};
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
                             uint64_t count, const sl_full_tensor **out_full)
{
    const sl_full_tensors *list = session->tensors;
    uint32_t i = 0;
    SL_TRY(sl_session_check(session));
    while (i < list->count && strcmp(list->items[i].name, name) != 0)
        i++;
    if (i == list->count)
        SL_FAIL(SL_ERROR_USAGE, "the model has no tensor \"%.64s\"; names are like %s", name,
                list->items[0].name);
    const sl_full_tensor *full = &list->items[i];
    const uint64_t all = full->shape[0] * count_columns(full);
    if (count != all)
        SL_FAIL(SL_ERROR_USAGE, "%s has %llu elements, not %llu", full->name,
                (unsigned long long)all, (unsigned long long)count);
    if ((unsigned)state > SL_STATE_MOMENT2 || !sl_rule_stores(full->rule, groups[state]))
        SL_FAIL(SL_ERROR_USAGE, "%s has no state %d", full->name, (int)state);
    SL_TRY(check_spread(session, full));
    *out_full = full;
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
    SL_LOG_ENTER(&session->log);
    SL_TRY(find_tensor(session, tensor, state, count, &full));
    return carry(session, full, groups[state], out_elements, NULL);
}

sl_status sl_session_write(sl_session *session, const char *tensor, sl_tensor_state state,
                           const float *elements, uint64_t count)
{
    const sl_full_tensor *full;
    SL_LOG_ENTER(&session->log);
    SL_TRY(find_tensor(session, tensor, state, count, &full));
    return carry(session, full, groups[state], NULL, elements);
}
