#include "exchange_order.h"

#include <stdlib.h>

#include "base/status.h"

/* ---- the list of a program ---- */

static uint64_t count_bytes(const sl_program *step, uint32_t value)
{
    return value == SL_NONE ? 0 : step->values[value].bytes;
}

static bool is_joint(const sl_op *op)
{
    return op->kind == SL_OP_EXCHANGE || op->kind == SL_OP_ALL_REDUCE_NORM;
}

static sl_exchange_order_op describe_op(const sl_program *step, const sl_op *op, uint32_t section)
{
    enum { GIVEN, TAKEN };
    sl_exchange_order_op it = {
        .peer = SL_NONE, .section = section, .repeat = sl_program_section(step, section).repeat};
    if (op->kind != SL_OP_EXCHANGE)
        return it;
    it.peer = op->attrs.rank_index;
    it.given_bytes = count_bytes(step, op->operand[GIVEN]);
    it.taken_bytes = count_bytes(step, op->operand[TAKEN]);
    return it;
}

sl_status sl_exchange_order_find(const sl_program *step, sl_exchange_order_op **out_ops,
                                 uint32_t *out_count)
{
    uint32_t count = 0;
    for (uint32_t o = 0; o < step->op_count; o++)
        count += is_joint(&step->ops[o]);
    sl_exchange_order_op *ops = calloc((uint64_t)count + 1, sizeof *ops);
    if (ops == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to list %u exchanges", count);
    count = 0;
    for (uint32_t s = 0; s < sl_program_section_count(step); s++) {
        const sl_section section = sl_program_section(step, s);
        for (uint32_t o = section.first; o < section.first + section.count; o++)
            if (is_joint(&step->ops[o]))
                ops[count++] = describe_op(step, &step->ops[o], s);
    }
    *out_ops = ops;
    *out_count = count;
    return SL_OK;
}

/* ---- all stages ---- */

typedef struct cursor {
    const sl_exchange_order_list *list;
    uint32_t next;       /* op; the list's count: all are over */
    uint32_t first;      /* op of the section that `next` is in */
    uint32_t repetition; /* of it */
    uint64_t number;     /* of exchanges that are over */
} cursor;

static const sl_exchange_order_op *head_of(const cursor *it)
{
    return it->next < it->list->count ? &it->list->ops[it->next] : NULL;
}

static void pop_head(cursor *it)
{
    const sl_exchange_order_op *op = head_of(it);
    it->next++;
    it->number++;
    if (head_of(it) != NULL && head_of(it)->section == op->section)
        return;
    it->repetition++;
    if (it->repetition < op->repeat) {
        it->next = it->first;
        return;
    }
    it->first = it->next;
    it->repetition = 0;
}

static sl_status refuse_pair(const cursor *stages, uint32_t stage, uint32_t peer)
{
    const sl_exchange_order_op *a = head_of(&stages[stage]), *b = head_of(&stages[peer]);
    SL_FAIL(SL_ERROR_INTERNAL,
            "exchange %llu of stage %u gives %llu bytes to stage %u and takes %llu, exchange %llu "
            "of which takes %llu and gives %llu",
            (unsigned long long)stages[stage].number + 1, stage, (unsigned long long)a->given_bytes,
            peer, (unsigned long long)a->taken_bytes, (unsigned long long)stages[peer].number + 1,
            (unsigned long long)b->taken_bytes, (unsigned long long)b->given_bytes);
}

/* Ends the next exchange of a stage if its peer has come to it, too. */
static sl_status try_pair(cursor *stages, uint32_t stage_count, uint32_t stage, bool *has_moved)
{
    const sl_exchange_order_op *mine = head_of(&stages[stage]);
    if (mine == NULL || mine->peer == SL_NONE)
        return SL_OK;
    if (mine->peer >= stage_count || mine->peer == stage)
        SL_FAIL(SL_ERROR_INTERNAL, "stage %u exchanges with stage %u of %u", stage, mine->peer,
                stage_count);
    const uint32_t peer = mine->peer;
    const sl_exchange_order_op *theirs = head_of(&stages[peer]);
    if (theirs == NULL || theirs->peer != stage)
        return SL_OK;
    if (mine->given_bytes != theirs->taken_bytes || mine->taken_bytes != theirs->given_bytes)
        return refuse_pair(stages, stage, peer);
    pop_head(&stages[stage]);
    pop_head(&stages[peer]);
    *has_moved = true;
    return SL_OK;
}

/* Ends what all stages do together if all have come to it. */
static void try_all(cursor *stages, uint32_t stage_count, bool *has_moved)
{
    for (uint32_t s = 0; s < stage_count; s++)
        if (head_of(&stages[s]) == NULL || head_of(&stages[s])->peer != SL_NONE)
            return;
    for (uint32_t s = 0; s < stage_count; s++)
        pop_head(&stages[s]);
    *has_moved = true;
}

static sl_status check_end(const cursor *stages, uint32_t stage_count)
{
    for (uint32_t s = 0; s < stage_count; s++) {
        const sl_exchange_order_op *op = head_of(&stages[s]);
        if (op == NULL)
            continue;
        if (op->peer == SL_NONE)
            SL_FAIL(SL_ERROR_INTERNAL,
                    "stage %u would wait for ever for all others, in its exchange %llu", s,
                    (unsigned long long)stages[s].number + 1);
        SL_FAIL(SL_ERROR_INTERNAL,
                "stage %u would wait for ever for stage %u, in its exchange %llu", s, op->peer,
                (unsigned long long)stages[s].number + 1);
    }
    return SL_OK;
}

static sl_status walk(cursor *stages, uint32_t stage_count)
{
    for (bool has_moved = true; has_moved;) {
        has_moved = false;
        for (uint32_t s = 0; s < stage_count; s++)
            SL_TRY(try_pair(stages, stage_count, s, &has_moved));
        try_all(stages, stage_count, &has_moved);
    }
    return check_end(stages, stage_count);
}

sl_status sl_exchange_order_check(const sl_exchange_order_list *stages, uint32_t stage_count)
{
    cursor *cursors = calloc((uint64_t)stage_count + 1, sizeof *cursors);
    if (cursors == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to check %u stages", stage_count);
    for (uint32_t s = 0; s < stage_count; s++)
        cursors[s] = (cursor){.list = &stages[s]};
    const sl_status status = walk(cursors, stage_count);
    free(cursors);
    return status;
}
