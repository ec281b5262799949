/* A line is a loop: sections that do the same for one micro-batch after the other. Loops that do
 * the same for one segment after the other share a line, as in layer order. A section of several
 * micro-batches, as in 1f1b, is a line that names them; its length does not depend on how many
 * there are. */
#include "schedule_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/plural.h"

typedef enum direction { FORWARD, LOSS, BACKWARD, DIRECTION_COUNT } direction;

static const char *const direction_names[DIRECTION_COUNT] = {"forward", "loss", "backward"};

/* Ops of one direction and micro-batch that follow each other. */
typedef struct stretch {
    direction direction;
    uint32_t micro_batch, first_segment, last_segment; /* in the order in which they run */
} stretch;

typedef struct loop {
    char text[SL_SCHEDULE_BYTES]; /* directions, with segments or micro-batches */
    uint32_t first_micro_batch;
    uint32_t micro_batch_count; /* 0: the text names the micro-batches */
    bool is_single;             /* the loop has one stretch: `only` */
    stretch only;
    uint32_t site_count; /* segments that the loop is run for, one after the other */
} loop;

static __attribute__((format(printf, 2, 3))) void append(char text[SL_SCHEDULE_BYTES],
                                                         const char *format, ...)
{
    const size_t length = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + length, SL_SCHEDULE_BYTES - length, format, arguments);
    va_end(arguments);
}

static void append_segments(char text[SL_SCHEDULE_BYTES], const stretch *it)
{
    append(text, " %u", it->first_segment);
    if (it->last_segment != it->first_segment)
        append(text, "-%u", it->last_segment);
}

/* An EXCHANGE that gives and takes belongs to two micro-batches. */
static bool is_of_two(const sl_op *op)
{
    return op->kind == SL_OP_EXCHANGE && op->operand[0] != SL_NONE && op->operand[1] != SL_NONE;
}

/* False for an op that says nothing about the order. */
static bool find_direction(const sl_program *step, const sl_op *op, direction *out_direction)
{
    if (op->segment == SL_NONE || op->phase == SL_PHASE_UPDATE || is_of_two(op))
        return false;
    *out_direction = op->phase == SL_PHASE_FORWARD ? FORWARD : BACKWARD;
    if (step->segments[op->segment].is_terminal)
        *out_direction = LOSS;
    return true;
}

/* The stretch that begins with op *at of a section that ends before `end`; moves *at behind it.
 * False: no stretch is left. */
static bool take_stretch(const sl_program *step, uint32_t *at, uint32_t end, stretch *out)
{
    bool has_begun = false;
    direction its;
    for (; *at < end; ++*at) {
        const sl_op *op = &step->ops[*at];
        if (!find_direction(step, op, &its))
            continue;
        if (has_begun && (its != out->direction || op->micro_batch != out->micro_batch))
            return true;
        if (!has_begun)
            *out = (stretch){its, op->micro_batch, op->segment, op->segment};
        has_begun = true;
        out->last_segment = op->segment;
    }
    return has_begun;
}

/* ---- sections of several micro-batches ---- */

/* At most one stretch of each direction, in the order of the directions. */
typedef struct cycle {
    bool has[DIRECTION_COUNT];
    uint32_t micro_batch[DIRECTION_COUNT];
} cycle;

/* As take_stretch. */
static bool take_cycle(const sl_program *step, uint32_t *at, uint32_t end, cycle *out)
{
    stretch next;
    int expected = FORWARD; /* the first direction that may follow */
    *out = (cycle){.has = {false}};
    for (uint32_t ahead = *at; take_stretch(step, &ahead, end, &next); *at = ahead) {
        if ((int)next.direction < expected)
            break;
        out->has[next.direction] = true;
        out->micro_batch[next.direction] = next.micro_batch;
        expected = (int)next.direction + 1;
    }
    return expected != FORWARD;
}

/* True if `next` is what `it` is, `distance` micro-batches further on. */
static bool is_shifted(const cycle *it, const cycle *next, uint32_t distance)
{
    for (int d = 0; d < DIRECTION_COUNT; d++)
        if (it->has[d] != next->has[d] ||
            (it->has[d] && it->micro_batch[d] + distance != next->micro_batch[d]))
            return false;
    return true;
}

/* `count` cycles, each one micro-batch further on. */
static void append_cycles(char text[SL_SCHEDULE_BYTES], const cycle *first, uint32_t count)
{
    const char *between = *text == '\0' ? "" : ", then ";
    for (int d = 0; d < DIRECTION_COUNT; d++) {
        if (!first->has[d])
            continue;
        append(text, "%s%s of %u", between, direction_names[d], first->micro_batch[d]);
        if (count > 1)
            append(text, "-%u", first->micro_batch[d] + count - 1);
        between = count > 1 ? " by turns with " : ", ";
    }
}

static loop describe_cycles(const sl_program *step, const sl_section *section)
{
    loop it = {.micro_batch_count = 0}; /* the text names them */
    uint32_t at = section->first, count = 0;
    cycle first = {.has = {false}}, next;
    while (take_cycle(step, &at, section->first + section->count, &next)) {
        if (count > 0 && is_shifted(&first, &next, count)) {
            count++;
            continue;
        }
        if (count > 0)
            append_cycles(it.text, &first, count);
        first = next;
        count = 1;
    }
    if (count > 0)
        append_cycles(it.text, &first, count);
    if (section->repeat > 1)
        append(it.text, "; %u times, each time %u further on", section->repeat,
               sl_section_micro_batches(section, 1));
    return it;
}

/* ---- sections of one micro-batch ---- */

static bool has_one_micro_batch(const sl_program *step, const sl_section *section)
{
    for (uint32_t o = section->first; o < section->first + section->count; o++)
        if (step->ops[o].segment != SL_NONE && !is_of_two(&step->ops[o]) &&
            step->ops[o].micro_batch != section->first_micro_batch)
            return false;
    return true;
}

static loop describe_section(const sl_program *step, const sl_section *section)
{
    if (!has_one_micro_batch(step, section))
        return describe_cycles(step, section);
    loop it = {.first_micro_batch = section->first_micro_batch,
               .micro_batch_count = sl_section_micro_batches(section, section->repeat),
               .site_count = 1};
    uint32_t at = section->first, stretches = 0;
    stretch next;
    while (take_stretch(step, &at, section->first + section->count, &next)) {
        append(it.text, "%s%s", stretches > 0 ? ", " : "", direction_names[next.direction]);
        append_segments(it.text, &next);
        it.only = next;
        stretches++;
    }
    it.is_single = stretches == 1;
    return it;
}

/* ---- lines ---- */

/* The same for the micro-batches that follow. */
static bool goes_on(const loop *it, const loop *next)
{
    return it->site_count == 1 && it->micro_batch_count > 0 && next->micro_batch_count > 0 &&
           next->first_micro_batch == it->first_micro_batch + it->micro_batch_count &&
           strcmp(it->text, next->text) == 0;
}

/* The same for a neighbouring segment, or for the next op of the segment. */
static bool moves_on(const loop *it, const loop *next)
{
    const uint32_t from = it->only.last_segment, to = next->only.first_segment;
    return it->is_single && next->is_single && it->only.direction == next->only.direction &&
           it->first_micro_batch == next->first_micro_batch &&
           it->micro_batch_count == next->micro_batch_count &&
           (from == to || from == to + 1 || to == from + 1);
}

static void print_loop(const loop *it, sl_schedule_text *to)
{
    if (to->count == SL_SCHEDULE_LINES)
        return;
    char *line = to->lines[to->count++];
    *line = '\0';
    if (it->micro_batch_count == 0) {
        append(line, "%s", it->text);
        return;
    }
    const uint32_t first = it->first_micro_batch, last = first + it->micro_batch_count - 1;
    if (it->site_count > 1) {
        append(line, "each of segments %u-%u in turn: %s", it->only.first_segment,
               it->only.last_segment, direction_names[it->only.direction]);
    } else {
        append(line, "%s", it->text);
    }
    append(line, it->micro_batch_count > 1 ? ", for micro-batches %u-%u" : ", for micro-batch %u",
           first, last);
}

/* Keeps the loop before the present one, until it is known whether both share a line. */
typedef struct pending {
    loop whole, open; /* loops that are over, the one whose micro-batches may go on */
    bool has_whole, has_open;
} pending;

static void close_open(pending *it, sl_schedule_text *to)
{
    if (!it->has_open)
        return;
    if (it->has_whole && moves_on(&it->whole, &it->open)) {
        it->whole.only.last_segment = it->open.only.last_segment;
        it->whole.site_count++;
    } else {
        if (it->has_whole)
            print_loop(&it->whole, to);
        it->whole = it->open;
    }
    it->has_whole = true;
    it->has_open = false;
}

static void describe_update(const sl_program *step, sl_schedule_text *to)
{
    uint32_t updates = 0;
    bool is_early = false, has_update = false;
    for (uint32_t o = 0; o < step->op_count; o++) {
        has_update = has_update || sl_op_info_of(step->ops[o].kind)->updates_chunk;
        updates += sl_op_info_of(step->ops[o].kind)->updates_chunk;
        is_early = is_early || (has_update && step->ops[o].segment != SL_NONE);
    }
    if (to->count < SL_SCHEDULE_LINES)
        snprintf(to->lines[to->count++], SL_SCHEDULE_BYTES, "update of %u chunk%s, %s", updates,
                 sl_plural(updates),
                 is_early ? "each as soon as its gradient is complete"
                          : "when the norm of all gradients is known");
}

void sl_schedule_describe(const sl_program *step, sl_schedule_text *out_text)
{
    pending it = {.has_whole = false};
    out_text->count = 0;
    for (uint32_t s = 0; s < sl_program_section_count(step); s++) {
        const sl_section section = sl_program_section(step, s);
        const loop next = describe_section(step, &section);
        if (it.has_open && goes_on(&it.open, &next)) {
            it.open.micro_batch_count += next.micro_batch_count;
            continue;
        }
        close_open(&it, out_text);
        it.open = next;
        it.has_open = true;
    }
    close_open(&it, out_text);
    if (it.has_whole)
        print_loop(&it.whole, out_text);
    describe_update(step, out_text);
}
