/* One walk over the ops finds the eligible values and their order of first use. In this order the
 * values get homes until the shares are used up. */
#include "activation_homes.h"

#include <stdlib.h>

#include "base/status.h"

static const double share_slack = 1e-9; /* sums of shares may be rounded up by an ulp or two */

typedef struct candidate {
    bool is_seen, is_excluded, is_kept;
    bool is_taken; /* first used by an EXCHANGE between ranks: the phase of its next op decides
                      whether it is excluded */
} candidate;

typedef struct chooser {
    const sl_program *program;
    candidate *candidates; /* [value_count] */
    uint32_t *order;       /* [seen_count] values by first use */
    uint32_t seen_count;
    uint64_t *eligible_bytes; /* [micro_batch_count] */
    uint64_t *given_bytes;    /* [micro_batch_count] */
} chooser;

static bool has_size(const sl_value *value)
{
    return value->kind == SL_VALUE_ACTIVATION && value->bytes >= SL_ACTIVATION_LEAST_BYTES &&
           value->bytes % SL_DIRECT_ALIGNMENT == 0;
}

static void record_operand(chooser *c, const sl_op *op, uint32_t operand_index)
{
    uint32_t v = op->operand[operand_index];
    if (v == SL_NONE || !has_size(&c->program->values[v]))
        return;
    candidate *it = &c->candidates[v];
    bool reads = sl_op_reads(op, operand_index), is_new = !it->is_seen;
    if (is_new || it->is_taken)
        it->is_excluded = (is_new && reads) || op->phase != SL_PHASE_FORWARD;
    it->is_taken = is_new && op->kind == SL_OP_EXCHANGE;
    if (is_new) {
        it->is_seen = true;
        c->order[c->seen_count++] = v;
    }
    if (sl_op_info_of(op->kind)->updates_chunk)
        it->is_excluded = true;
    if (reads && (op->phase == SL_PHASE_BACKWARD || op->phase == SL_PHASE_RECOMPUTE))
        it->is_kept = true;
}

static bool is_eligible(const chooser *c, uint32_t v)
{
    const candidate *it = &c->candidates[v];
    return !it->is_excluded && it->is_kept &&
           c->program->values[v].micro_batch < c->program->micro_batch_count;
}

static void choose_homes(chooser *c, double disk_share, double host_share, uint8_t *out_tier)
{
    const sl_value *values = c->program->values;
    for (uint32_t n = 0; n < c->seen_count; n++)
        if (is_eligible(c, c->order[n]))
            c->eligible_bytes[values[c->order[n]].micro_batch] += values[c->order[n]].bytes;
    for (uint32_t n = 0; n < c->seen_count; n++) {
        uint32_t v = c->order[n];
        if (!is_eligible(c, v))
            continue;
        uint64_t *given = &c->given_bytes[values[v].micro_batch];
        double whole = (double)c->eligible_bytes[values[v].micro_batch];
        double before = (double)*given / whole;
        if (before < disk_share - share_slack)
            out_tier[v] = SL_TIER_DISK;
        else if (before < disk_share + host_share - share_slack)
            out_tier[v] = SL_TIER_HOST;
        *given += values[v].bytes;
    }
}

static sl_status open_chooser(const sl_program *program, chooser *c)
{
    *c = (chooser){.program = program};
    c->candidates = calloc((uint64_t)program->value_count + 1, sizeof *c->candidates);
    c->order = calloc((uint64_t)program->value_count + 1, sizeof *c->order);
    c->eligible_bytes = calloc((uint64_t)program->micro_batch_count + 1, sizeof(uint64_t));
    c->given_bytes = calloc((uint64_t)program->micro_batch_count + 1, sizeof(uint64_t));
    if (!c->candidates || !c->order || !c->eligible_bytes || !c->given_bytes)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to give %u activations homes", program->value_count);
    return SL_OK;
}

static void close_chooser(chooser *c)
{
    free(c->candidates);
    free(c->order);
    free(c->eligible_bytes);
    free(c->given_bytes);
}

sl_status sl_activation_homes_choose(const sl_program *program, double disk_share,
                                     double host_share, uint8_t *out_tier)
{
    bool are_shares =
        disk_share >= 0.0 && host_share >= 0.0 && disk_share + host_share <= 1.0 + share_slack;
    if (!are_shares)
        SL_FAIL(SL_ERROR_USAGE,
                "shares %g on disk and %g on the host of the activations: they must be at least 0 "
                "and together at most 1",
                disk_share, host_share);
    for (uint32_t v = 0; v < program->value_count; v++)
        out_tier[v] = SL_TIER_DEVICE;
    if (disk_share + host_share == 0.0)
        return SL_OK;
    chooser c;
    sl_status status = open_chooser(program, &c);
    if (status == SL_OK) {
        for (uint32_t tick = 0; tick < program->op_count; tick++)
            for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
                record_operand(&c, &program->ops[tick], i);
        choose_homes(&c, disk_share, host_share, out_tier);
    }
    close_chooser(&c);
    return status;
}
