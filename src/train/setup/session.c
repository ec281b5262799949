/* Opens the engine, clears the chunks, and finds tensors in them. */
#include "session.h"

#include <stdlib.h>

enum { PIECE_BYTES = 1 << 20 };

static sl_status find_element(const sl_session *session, uint32_t tensor_index, uint64_t first,
                              uint64_t count, uint64_t *out_first_byte)
{
    const sl_layout *layout = session->blueprint->layout;
    if (tensor_index >= layout->tensor_count)
        SL_FAIL(SL_ERROR_INTERNAL, "tensor %u of %u", tensor_index, layout->tensor_count);
    const sl_tensor_spec *tensor = &session->tensors[tensor_index];
    if (first > tensor->element_count || count > tensor->element_count - first)
        SL_FAIL(SL_ERROR_INTERNAL, "%s: elements %llu + %llu of %llu", tensor->name,
                (unsigned long long)first, (unsigned long long)count,
                (unsigned long long)tensor->element_count);
    *out_first_byte = (layout->tensors[tensor_index].first_element + first) * sizeof(float);
    return SL_OK;
}

static sl_status read_elements(void *user, sl_group group, uint32_t tensor_index,
                               uint64_t first_element, uint64_t element_count, float *data)
{
    const sl_session *session = user;
    uint64_t first_byte;
    SL_TRY(find_element(session, tensor_index, first_element, element_count, &first_byte));
    return sl_engine_read_chunk(session->engine, group,
                                session->blueprint->layout->tensors[tensor_index].chunk_index,
                                first_byte, element_count * sizeof(float), data);
}

static sl_status write_elements(void *user, sl_group group, uint32_t tensor_index,
                                uint64_t first_element, uint64_t element_count, const float *data)
{
    const sl_session *session = user;
    uint64_t first_byte;
    SL_TRY(find_element(session, tensor_index, first_element, element_count, &first_byte));
    return sl_engine_write_chunk(session->engine, group,
                                 session->blueprint->layout->tensors[tensor_index].chunk_index,
                                 first_byte, element_count * sizeof(float), data);
}

static sl_status clear_chunk(sl_session *session, sl_group group, uint32_t chunk_index,
                             const void *zeros)
{
    uint64_t chunk_bytes = sl_layout_chunk_bytes(session->blueprint->layout, group);
    for (uint64_t first = 0; first < chunk_bytes; first += PIECE_BYTES) {
        uint64_t left = chunk_bytes - first;
        uint64_t bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
        SL_TRY(sl_engine_write_chunk(session->engine, group, chunk_index, first, bytes, zeros));
    }
    return SL_OK;
}

/* Padding between tensors takes part in every AdamW and every norm: it must be zero, not garbage.
 */
static sl_status clear_states(sl_session *session)
{
    void *zeros = calloc(1, PIECE_BYTES);
    if (!zeros)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to clear states");
    sl_status status = SL_OK;
    for (int group = 0; group < SL_GROUP_COUNT && status == SL_OK; group++) {
        if (!session->has_state[group])
            continue;
        for (uint32_t i = 0; i < session->blueprint->layout->chunk_count && status == SL_OK; i++)
            status = clear_chunk(session, (sl_group)group, i, zeros);
    }
    free(zeros);
    return status;
}

static sl_status open_engine(sl_session *session)
{
    const sl_blueprint *blueprint = session->blueprint;
    sl_engine_plan plans[SL_BLUEPRINT_PROGRAM_MAX];
    for (uint32_t i = 0; i < blueprint->program_count; i++)
        plans[i] = (sl_engine_plan){blueprint->programs[i], blueprint->plans[i]};
    sl_engine_options options = {.layout = blueprint->layout,
                                 .homes = blueprint->homes,
                                 .plans = plans,
                                 .plan_count = blueprint->program_count,
                                 .worker_count = blueprint->task.worker_count};
    return sl_engine_open(&options, &session->engine);
}

sl_status sl_session_open(sl_blueprint *blueprint, sl_session **out_session)
{
    sl_session *session = calloc(1, sizeof *session);
    if (!session) {
        sl_blueprint_close(blueprint);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a session");
    }
    session->blueprint = blueprint;
    session->io = (sl_tensor_io){read_elements, write_elements, session};
    session->tensors = blueprint->programs[0]->tensors;
    session->tensor_count = blueprint->programs[0]->tensor_count;
    session->has_state = blueprint->programs[0]->has_state;
    sl_status status;
    SL_TRY_GOTO(status, open_engine(session), close_session);
    SL_TRY_GOTO(status, clear_states(session), close_session);
    *out_session = session;
    return SL_OK;
close_session:
    sl_session_close(session);
    return status;
}

void sl_session_close(sl_session *session)
{
    if (!session)
        return;
    sl_engine_close(session->engine);
    sl_blueprint_close(session->blueprint);
    free(session);
}
