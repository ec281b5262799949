/* Gathers parameters that ops cannot read as a rank stores them: those of which ranks keep shards
 * (ZeRO stage 3), and frozen matrices of a small type. Copies a program, and gathers each such
 * chunk before an op reads a tensor of the chunk. Ops read other chunks where they are.
 *
 * A gathered chunk is an activation. ALL_GATHER_SHARD writes it, or DEQUANTIZE; of a shard of a
 * small type, DEQUANTIZE writes the shard that ALL_GATHER_SHARD reads. All other ops use PART
 * values inside it; so its home is always the device. A chunk may be gathered several times in a
 * step, each time into a new value.
 *
 * A span is a run of ops of one segment. A gathered chunk becomes idle when a span has passed that
 * does not use it. At most `idle_most` idle chunks stay whole: those with the nearest next use
 * (Belady's rule). The others are dropped, and gathered again for their next use. With no idle
 * chunks, most chunks are sent once for each forward pass and once for each backward pass. With
 * some, the chunks that the forward pass uses last stay for the backward pass, which uses them
 * first. With room for all, each chunk is sent once a step.
 *
 * Between sections all chunks are idle, with one exception. A section is small if it uses at most
 * one chunk more than the largest span, as the sections of layer order do. Between two small
 * sections, a chunk that the second one uses is not idle. A repeated section keeps the chunks that
 * are whole at its start for all its repetitions. The chunks that it gathers live for one
 * repetition. So the same chunks are whole at all its seams.
 *
 * `most` limits the chunks that are whole at once: the chunk with the farthest next use is dropped
 * first (Belady's rule). With a limit of 1, a chunk is dropped before the next op that does not
 * read it.
 *
 * First all gathers are listed, each with the op that needs it. Then the ops are copied. Gather i
 * is put in front of the op that needs gather i - `ahead`, so that it runs beside the ops between,
 * but never before the start of its section.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/bits.h"
#include "base/status.h"
#include "build.h"

enum { NEVER = UINT32_MAX };

/* A chunk that is gathered once. */
typedef struct gather {
    uint32_t chunk_index;
    uint32_t tick;     /* in `from`: the op that needs the chunk */
    uint32_t earliest; /* in `from`: the first op of its section */
    uint32_t value;    /* in `to`: the gathered chunk; SL_NONE: the gather is not put yet */
} gather;

/* The state of a chunk at the present op of a walk over `from`. */
typedef struct gathered_chunk {
    uint32_t stored;    /* in `to`: what this rank stores; SL_NONE: no value yet */
    uint32_t gathered;  /* index of its present gather; SL_NONE: the chunk is not whole */
    uint32_t place;     /* index in `whole`, while the chunk is whole */
    uint32_t last_span; /* the last span that used it */
    uint32_t section;   /* 1 + the last section entered that uses it; measure_spans: a mark */
    uint32_t next_use;  /* index in `uses` */
    bool is_held;       /* the present section took it over, and keeps it to the end */
    bool is_idle;       /* whole for a use that is not near */
} gathered_chunk;

/* Of one tensor: its PART value in `whole`, the gathered chunk that was used last; both in `to`. */
typedef struct gathered_part {
    uint32_t value, whole;
} gathered_part;

typedef struct gatherer {
    const sl_program *from;
    const sl_chunk_map *map;
    sl_program *to;
    gathered_chunk *chunks; /* [chunk_count] */
    gathered_part *parts;   /* [tensor_count] */
    uint32_t *whole;        /* [whole_count]: indices of the chunks that are whole, in no order */
    uint32_t whole_count;
    uint32_t *uses;  /* for each chunk: ticks of the ops that use it, ascending; then NEVER */
    gather *gathers; /* [gather_count], ticks ascending */
    uint32_t gather_count, gather_capacity;
    uint32_t put_count, reached_count; /* gathers that are put; whose op was reached */
    uint32_t most;                     /* chunks whole at once */
    uint32_t idle_most;                /* idle chunks */
    bool is_least;                     /* the limit that the caller asked for is 1 */
    uint32_t ahead;                    /* how many gathers early each one is put */
    uint32_t span;
    uint32_t span_most; /* chunks that the largest span uses */
    sl_section section; /* of `from`: the present one */
    bool is_small;      /* the present section is small (see the head of the file) */
} gatherer;

/* ---- which ops use which chunks ---- */

/* The chunk of operand i that is to be gathered; SL_NONE: there is none. */
static uint32_t find_chunk(const gatherer *g, const sl_op *op, uint32_t i)
{
    const uint32_t v = op->operand[i];
    if (v == SL_NONE)
        return SL_NONE;
    const sl_value *value = &g->from->values[v];
    if (value->kind != SL_VALUE_TENSOR || value->group != SL_GROUP_PARAM)
        return SL_NONE;
    const uint32_t chunk_index = g->map->chunk_of_tensor[value->index];
    return sl_program_gathers(g->from, g->map->chunks[chunk_index].rule) ? chunk_index : SL_NONE;
}

/* True if no operand before operand i is in the chunk. */
static bool is_first_of_chunk(const gatherer *g, const sl_op *op, uint32_t i, uint32_t chunk_index)
{
    for (uint32_t before = 0; before < i; before++)
        if (find_chunk(g, op, before) == chunk_index)
            return false;
    return true;
}

/* Counts the chunks that an op uses, and adds 1 to `count` of each of them. */
static uint32_t count_chunks(const gatherer *g, const sl_op *op, uint32_t *count)
{
    uint32_t chunks = 0;
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
        const uint32_t c = find_chunk(g, op, i);
        if (c == SL_NONE || !is_first_of_chunk(g, op, i, c))
            continue;
        chunks++;
        if (count != NULL)
            count[c]++;
    }
    return chunks;
}

static void list_uses(gatherer *g, uint32_t *count)
{
    uint32_t next = 0;
    for (uint32_t c = 0; c < g->map->chunk_count; c++) {
        const uint32_t uses = count[c];
        g->chunks[c].next_use = count[c] = next;
        next += uses + 1;
        g->uses[next - 1] = NEVER;
    }
    for (uint32_t o = 0; o < g->from->op_count; o++)
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            const uint32_t c = find_chunk(g, &g->from->ops[o], i);
            if (c != SL_NONE && is_first_of_chunk(g, &g->from->ops[o], i, c))
                g->uses[count[c]++] = o;
        }
}

static sl_status find_uses(gatherer *g)
{
    uint64_t total = g->map->chunk_count;
    uint32_t *count = calloc((uint64_t)g->map->chunk_count + 1, sizeof *count), least = 1;
    if (count == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to gather %u chunks", g->map->chunk_count);
    for (uint32_t o = 0; o < g->from->op_count; o++) {
        const uint32_t chunks = count_chunks(g, &g->from->ops[o], count);
        least = chunks > least ? chunks : least;
        total += chunks;
    }
    if (g->most < least)
        g->most = least;
    g->uses = calloc(total + 1, sizeof *g->uses);
    if (g->uses != NULL)
        list_uses(g, count);
    free(count);
    if (g->uses == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to gather %u chunks", g->map->chunk_count);
    return SL_OK;
}

static bool begins_span(const sl_program *program, uint32_t tick, uint32_t *segment)
{
    const uint32_t its = program->ops[tick].segment;
    if (its == SL_NONE || its == *segment)
        return false;
    *segment = its;
    return true;
}

/* Counts the op's chunks that were not counted yet with this `mark`. */
static uint32_t count_new_chunks(gatherer *g, const sl_op *op, uint32_t mark)
{
    uint32_t fresh = 0;
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
        const uint32_t c = find_chunk(g, op, i);
        if (c == SL_NONE || g->chunks[c].section == mark)
            continue;
        g->chunks[c].section = mark;
        fresh++;
    }
    return fresh;
}

static void measure_spans(gatherer *g)
{
    uint32_t segment = SL_NONE, chunks = 0, mark = 1;
    for (uint32_t o = 0; o < g->from->op_count; o++) {
        if (begins_span(g->from, o, &segment)) {
            chunks = 0;
            mark++;
        }
        chunks += count_new_chunks(g, &g->from->ops[o], mark);
        g->span_most = chunks > g->span_most ? chunks : g->span_most;
    }
    for (uint32_t c = 0; c < g->map->chunk_count; c++)
        g->chunks[c].section = 0;
}

/* ---- the list of gathers ---- */

static sl_status add_gather(gatherer *g, uint32_t tick, uint32_t chunk_index)
{
    gathered_chunk *chunk = &g->chunks[chunk_index];
    SL_TRY(SL_ARRAY_GROW(g->gathers, g->gather_count, g->gather_capacity, "a program"));
    chunk->gathered = g->gather_count;
    chunk->place = g->whole_count;
    g->whole[g->whole_count++] = chunk_index;
    g->gathers[g->gather_count++] = (gather){chunk_index, tick, g->section.first, SL_NONE};
    return SL_OK;
}

static void drop_chunk(gatherer *g, uint32_t chunk_index)
{
    gathered_chunk *chunk = &g->chunks[chunk_index];
    const uint32_t last = g->whole[--g->whole_count];
    g->whole[chunk->place] = last;
    g->chunks[last].place = chunk->place;
    chunk->gathered = SL_NONE;
    chunk->is_held = false;
}

static bool is_used_by(const gatherer *g, const sl_op *op, uint32_t chunk_index)
{
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        if (find_chunk(g, op, i) == chunk_index)
            return true;
    return false;
}

/* Tick of the next use; NEVER: there is none. */
static uint32_t find_next_use(const gatherer *g, uint32_t chunk_index)
{
    return g->uses[g->chunks[chunk_index].next_use];
}

/* The chunk with the later next use; `victim` may be SL_NONE. */
static uint32_t find_later(const gatherer *g, uint32_t victim, uint32_t chunk_index)
{
    const bool is_later =
        victim == SL_NONE || find_next_use(g, chunk_index) > find_next_use(g, victim);
    return is_later ? chunk_index : victim;
}

/* Drops chunks, the farthest next use first, until one more is within the limit, or only chunks are
 * left that `user` reads or the section holds. */
static void make_room(gatherer *g, const sl_op *user)
{
    while (g->whole_count >= g->most) {
        uint32_t victim = SL_NONE;
        for (uint32_t w = 0; w < g->whole_count; w++) {
            const uint32_t c = g->whole[w];
            if (!g->chunks[c].is_held && !is_used_by(g, user, c))
                victim = find_later(g, victim, c);
        }
        if (victim == SL_NONE)
            return;
        drop_chunk(g, victim);
    }
}

static void drop_unread(gatherer *g, const sl_op *op)
{
    for (uint32_t w = g->whole_count; w-- > 0;)
        if (!g->chunks[g->whole[w]].is_held && !is_used_by(g, op, g->whole[w]))
            drop_chunk(g, g->whole[w]);
}

/* Drops idle chunks, the farthest next use first, until at most idle_most are left and all of them
 * have a next use. Held chunks stay, but those that are idle count. */
static void drop_idle(gatherer *g)
{
    for (;;) {
        uint32_t idle_count = 0, victim = SL_NONE;
        for (uint32_t w = 0; w < g->whole_count; w++) {
            const uint32_t c = g->whole[w];
            if (!g->chunks[c].is_idle)
                continue;
            idle_count++;
            if (!g->chunks[c].is_held)
                victim = find_later(g, victim, c);
        }
        if (victim == SL_NONE || (idle_count <= g->idle_most && find_next_use(g, victim) != NEVER))
            return;
        drop_chunk(g, victim);
    }
}

/* Notes that op `tick` uses a chunk. Lists a gather for the op if the chunk is not whole. */
static sl_status need_chunk(gatherer *g, uint32_t tick, uint32_t chunk_index)
{
    gathered_chunk *chunk = &g->chunks[chunk_index];
    if (chunk->gathered == SL_NONE) {
        make_room(g, &g->from->ops[tick]);
        SL_TRY(add_gather(g, tick, chunk_index));
    }
    chunk->is_idle = false;
    chunk->last_span = g->span;
    while (g->uses[chunk->next_use] <= tick)
        chunk->next_use++;
    return SL_OK;
}

/* ---- spans and sections ---- */

static void enter_span(gatherer *g)
{
    g->span++;
    for (uint32_t w = 0; w < g->whole_count && !g->is_small; w++) {
        gathered_chunk *chunk = &g->chunks[g->whole[w]];
        chunk->is_idle = chunk->is_idle || chunk->last_span + 1 < g->span;
    }
    drop_idle(g);
}

/* True if the present section is small (see the head of the file), and all its chunks may be whole
 * at once. Sets `section` of the chunks that it uses. */
static bool is_section_small(gatherer *g, uint32_t index)
{
    uint32_t used = 0;
    for (uint32_t o = g->section.first; o < g->section.first + g->section.count; o++)
        used += count_new_chunks(g, &g->from->ops[o], index + 1);
    return g->from->section_count > 1 && used <= (uint64_t)g->span_most + 1 && used <= g->most &&
           !g->is_least;
}

/* Decides which chunks stay whole from the section before into section `index`. */
static void enter_section(gatherer *g, uint32_t index)
{
    const bool was_small = g->is_small, was_repeated = g->section.repeat > 1;
    g->section = sl_program_section(g->from, index);
    g->is_small = is_section_small(g, index);
    for (uint32_t w = g->whole_count; w-- > 0;) {
        gathered_chunk *chunk = &g->chunks[g->whole[w]];
        chunk->is_idle = !was_small || !g->is_small || chunk->section != index + 1;
        if (was_repeated && !chunk->is_held)
            drop_chunk(g, g->whole[w]);
        chunk->is_held = false;
    }
    drop_idle(g);
    for (uint32_t w = 0; w < g->whole_count; w++) {
        gathered_chunk *chunk = &g->chunks[g->whole[w]];
        chunk->is_held = !chunk->is_idle || g->section.repeat > 1;
    }
}

static sl_status need_chunks(gatherer *g, uint32_t tick)
{
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
        const uint32_t c = find_chunk(g, &g->from->ops[tick], i);
        if (c != SL_NONE)
            SL_TRY(need_chunk(g, tick, c));
    }
    return SL_OK;
}

static sl_status list_gathers(gatherer *g)
{
    uint32_t segment = SL_NONE;
    for (uint32_t s = 0; s < sl_program_section_count(g->from); s++) {
        enter_section(g, s);
        for (uint32_t o = g->section.first; o < g->section.first + g->section.count; o++) {
            if (begins_span(g->from, o, &segment))
                enter_span(g);
            if (g->is_least)
                drop_unread(g, &g->from->ops[o]);
            SL_TRY(need_chunks(g, o));
        }
    }
    while (g->whole_count > 0)
        drop_chunk(g, g->whole[0]);
    return SL_OK;
}

/* ---- copying ---- */

/* Elements of a chunk that this rank stores. */
static uint64_t count_stored(const gatherer *g, uint32_t chunk_index)
{
    return g->map->chunks[chunk_index].elements / sl_program_shard_count(g->from, SL_GROUP_PARAM);
}

/* The value of what this rank stores of a chunk. The bytes of all chunks fit 64 bits. */
static sl_status add_stored(gatherer *g, uint32_t chunk_index)
{
    const sl_stored_types types = sl_program_stored_types(g->from);
    const uint64_t block_bytes =
        sl_rule_block_bytes(g->map->chunks[chunk_index].rule, SL_GROUP_PARAM, &types);
    const sl_value value = {
        .kind = SL_VALUE_CHUNK,
        .group = SL_GROUP_PARAM,
        .index = chunk_index,
        .bytes = sl_chunk_bytes(count_stored(g, chunk_index) / SL_BLOCK_ELEMENTS, block_bytes),
        .type = g->from->type,
        .name = "param chunk"};
    return sl_program_add_value(g->to, &value, &g->chunks[chunk_index].stored);
}

static sl_status add_activation(gatherer *g, uint32_t chunk_index, uint64_t elements,
                                const char *what, uint32_t *out_value)
{
    sl_value value = {.kind = SL_VALUE_ACTIVATION,
                      .bytes = elements * sl_type_bytes(g->from->type),
                      .type = g->from->type};
    snprintf(value.name, sizeof value.name, "param chunk %u, %s", chunk_index, what);
    return sl_program_add_value(g->to, &value, out_value);
}

/* Appends an op of the gatherer, in front of the copy of op `tick`. */
static sl_status append_op(gatherer *g, uint32_t tick, sl_op_kind kind, sl_op_attrs attrs,
                           const uint32_t operands[2])
{
    const sl_op *at = &g->from->ops[tick];
    attrs.type = (uint16_t)g->from->type;
    sl_op op = {.kind = kind,
                .attrs = attrs,
                .operand = {operands[0], operands[1]},
                .segment = at->segment,
                .micro_batch = at->micro_batch,
                .phase = at->phase};
    for (uint32_t i = 2; i < SL_OPERAND_MAX; i++)
        op.operand[i] = SL_NONE;
    return sl_build_append_op(g->to, &op);
}

/* What this rank stores of a chunk, in the compute type: a value of its own if ranks keep shards of
 * it, else the gathered chunk. */
static sl_status put_dequantize(gatherer *g, gather *it, uint32_t tick, uint32_t *out_value)
{
    const uint64_t elements = count_stored(g, it->chunk_index);
    const sl_op_attrs attrs = {.element_count = elements, .frozen_type = g->from->frozen};
    if (sl_program_shards_group(g->from, SL_GROUP_PARAM))
        SL_TRY(add_activation(g, it->chunk_index, elements, "shard", out_value));
    else
        *out_value = it->value;
    return append_op(g, tick, SL_OP_DEQUANTIZE, attrs,
                     (uint32_t[]){g->chunks[it->chunk_index].stored, *out_value});
}

/* Appends a gather, in front of the copy of op `tick`. */
static sl_status put_gather(gatherer *g, gather *it, uint32_t tick)
{
    const sl_chunk *chunk = &g->map->chunks[it->chunk_index];
    if (g->chunks[it->chunk_index].stored == SL_NONE)
        SL_TRY(add_stored(g, it->chunk_index));
    uint32_t own = g->chunks[it->chunk_index].stored;
    SL_TRY(add_activation(g, it->chunk_index, chunk->elements, "gathered", &it->value));
    if (chunk->rule == SL_RULE_SMALL)
        SL_TRY(put_dequantize(g, it, tick, &own));
    if (!sl_program_shards_group(g->from, SL_GROUP_PARAM))
        return SL_OK;
    const sl_op_attrs attrs = {.element_count = chunk->elements,
                               .row_count = chunk->elements / g->from->dp_size};
    return append_op(g, tick, SL_OP_ALL_GATHER_SHARD, attrs, (uint32_t[]){own, it->value});
}

/* Tick of the op in front of whose copy gather `index` is put. */
static uint32_t find_place(const gatherer *g, uint32_t index)
{
    const uint32_t tick = index >= g->ahead ? g->gathers[index - g->ahead].tick : 0;
    const uint32_t earliest = g->gathers[index].earliest;
    return tick > earliest ? tick : earliest;
}

static sl_status find_part(gatherer *g, uint32_t value_index, uint32_t *out_value)
{
    sl_value value = g->from->values[value_index];
    gathered_part *part = &g->parts[value.index];
    const uint32_t chunk_index = g->map->chunk_of_tensor[value.index];
    const uint32_t whole = g->gathers[g->chunks[chunk_index].gathered].value;
    if (part->whole != whole) {
        value.kind = SL_VALUE_PART;
        value.whole = part->whole = whole;
        SL_TRY(sl_program_add_value(g->to, &value, &part->value));
    }
    *out_value = part->value;
    return SL_OK;
}

static sl_status copy_op(gatherer *g, uint32_t tick)
{
    sl_op op = g->from->ops[tick];
    for (; g->put_count < g->gather_count && find_place(g, g->put_count) <= tick; g->put_count++)
        SL_TRY(put_gather(g, &g->gathers[g->put_count], tick));
    for (; g->reached_count < g->put_count && g->gathers[g->reached_count].tick <= tick;
         g->reached_count++)
        g->chunks[g->gathers[g->reached_count].chunk_index].gathered = g->reached_count;
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        if (find_chunk(g, &g->from->ops[tick], i) != SL_NONE)
            SL_TRY(find_part(g, op.operand[i], &op.operand[i]));
    return sl_build_append_op(g->to, &op);
}

static sl_status copy_sections(gatherer *g)
{
    for (uint32_t s = 0; s < sl_program_section_count(g->from); s++) {
        sl_section section = sl_program_section(g->from, s);
        const uint32_t first = section.first;
        section.first = g->to->op_count;
        for (uint32_t o = first; o < first + section.count; o++)
            SL_TRY(copy_op(g, o));
        section.count = g->to->op_count - section.first;
        if (g->from->section_count > 0)
            SL_TRY(sl_build_append_section(g->to, &section));
    }
    return SL_OK;
}

/* ---- the whole program ---- */

/* Copies all but ops and sections. */
static sl_status copy_frame(gatherer *g)
{
    const sl_program *from = g->from;
    sl_program *to = g->to;
    *to = *from;
    to->values = NULL;
    to->ops = NULL;
    to->tensors = NULL;
    to->segments = NULL;
    to->sections = NULL;
    to->value_count = to->value_capacity = to->op_count = to->op_capacity = 0;
    to->tensor_count = to->tensor_capacity = to->segment_count = to->segment_capacity = 0;
    to->section_count = to->section_capacity = 0;
    for (uint32_t t = 0; t < from->tensor_count; t++)
        SL_TRY(sl_build_append_tensor(to, &from->tensors[t]));
    for (uint32_t s = 0; s < from->segment_count; s++)
        SL_TRY(sl_build_append_segment(to, &from->segments[s]));
    for (uint32_t v = 0; v < from->value_count; v++) {
        const sl_value *value = &from->values[v];
        uint32_t same;
        SL_TRY(sl_program_add_value(to, value, &same));
        if (value->kind == SL_VALUE_CHUNK && value->group == SL_GROUP_PARAM)
            g->chunks[value->index].stored = same;
    }
    return SL_OK;
}

static sl_status open_arrays(gatherer *g)
{
    g->chunks = calloc((uint64_t)g->map->chunk_count + 1, sizeof *g->chunks);
    g->parts = calloc((uint64_t)g->from->tensor_count + 1, sizeof *g->parts);
    g->whole = calloc((uint64_t)g->map->chunk_count + 1, sizeof *g->whole);
    if (g->chunks == NULL || g->parts == NULL || g->whole == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to gather %u chunks", g->map->chunk_count);
    for (uint32_t c = 0; c < g->map->chunk_count; c++)
        g->chunks[c] = (gathered_chunk){.stored = SL_NONE, .gathered = SL_NONE};
    for (uint32_t t = 0; t < g->from->tensor_count; t++)
        g->parts[t] = (gathered_part){SL_NONE, SL_NONE};
    return SL_OK;
}

sl_status sl_program_gather_chunks(const sl_program *program, const sl_chunk_map *chunks,
                                   const sl_gather_options *options, sl_program **out_program)
{
    gatherer g = {.from = program,
                  .map = chunks,
                  .most = options->most > 0 ? options->most : UINT32_MAX,
                  .idle_most = options->idle_most,
                  .is_least = options->most == 1,
                  .ahead = options->ahead,
                  .section = {.repeat = 1}};
    sl_status status;
    SL_TRY(sl_program_open(&g.to));
    SL_TRY_GOTO(status, open_arrays(&g), free_arrays);
    SL_TRY_GOTO(status, copy_frame(&g), free_arrays);
    SL_TRY_GOTO(status, find_uses(&g), free_arrays);
    measure_spans(&g);
    SL_TRY_GOTO(status, list_gathers(&g), free_arrays);
    status = copy_sections(&g);
free_arrays:
    free(g.chunks);
    free(g.parts);
    free(g.whole);
    free(g.uses);
    free(g.gathers);
    if (status == SL_OK)
        *out_program = g.to;
    else
        sl_program_close(g.to);
    return status;
}
