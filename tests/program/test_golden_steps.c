/* Training steps recorded once, derived again: what could be wrong here is a change of how a step
 * is derived that changes the step. golden_steps.txt holds a case and the hash of its step a line;
 * the hash is that of a readable listing, in which values are numbered in the order in which ops
 * mention them. Each case is derived again and has to be equal, op for op and name for name.
 *
 * Cases: the orders of one rank (micro, layer) and of stages (1f1b, gpipe, layer) x numbers of
 * micro-batches x recomputation x types x how ranks share the model x dropout and documents.
 *
 * test_golden_steps --record FILE   records all cases anew
 * test_golden_steps --dump DIR      writes the listing of each case: two of them show, by diff -r,
 *                                   what a change did
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "chunk/chunk.h"
#include "model/architecture.h"

enum { CASES_MIN = 600, NAME_BYTES = 96, LINE_BYTES = 512 };

/* ---- cases ---- */

typedef enum step_order { MICRO, LAYER, EARLY, INTERLEAVED, TWO_LOOPS, STAGES_BY_LAYER } step_order;

static const char *const order_names[] = {
    [MICRO] = "micro",      [LAYER] = "layer",     [EARLY] = "early",
    [INTERLEAVED] = "1f1b", [TWO_LOOPS] = "gpipe", [STAGES_BY_LAYER] = "gpipe-layer",
};
static const char *const recompute_names[] = {
    [SL_RECOMPUTE_NONE] = "none",
    [SL_RECOMPUTE_SELECTIVE] = "selective",
    [SL_RECOMPUTE_FULL] = "full",
};

/* How ranks share the model, and what else the forward program differs by. */
typedef struct variant {
    const char *name;
    uint32_t tp, tp_rank, dp, dp_rank, zero;
    bool by_rows, by_columns, keeps_parts, by_document, has_whole_gradients;
    float dropout;
    uint64_t head_logits;
} variant;

static const variant variants[] = {
    {"one", .tp = 1},
    {"one-documents-dropout", .tp = 1, .by_document = true, .dropout = 0.1F},
    {"one-pieces", .tp = 1, .head_logits = 1200},
    {"tp2r0", .tp = 2},
    {"tp2r1", .tp = 2, .tp_rank = 1, .dropout = 0.1F},
    {"tp2-rows", .tp = 2, .by_rows = true},
    {"tp2-rows-dropout", .tp = 2, .tp_rank = 1, .by_rows = true, .dropout = 0.1F},
    {"tp2-parts", .tp = 2, .keeps_parts = true},
    {"tp2-columns", .tp = 2, .tp_rank = 1, .by_columns = true},
    {"dp2-zero0", .tp = 1, .dp = 2},
    {"dp2-zero1", .tp = 1, .dp = 2, .dp_rank = 1, .zero = 1},
    {"dp2-zero2", .tp = 1, .dp = 2, .zero = 2},
    {"dp2-zero2-whole", .tp = 1, .dp = 2, .zero = 2, .has_whole_gradients = true},
    {"dp2-zero3", .tp = 1, .dp = 2, .dp_rank = 1, .zero = 3},
    {"dp2-tp2-zero3", .tp = 2, .dp = 2, .zero = 3, .by_rows = true},
};
enum { VARIANT_COUNT = sizeof variants / sizeof *variants };

typedef struct step_case {
    const variant *variant;
    step_order order;
    uint32_t micro_batches;
    sl_recompute recompute;
    sl_type type, grad_type;
    uint32_t stage_count, stage;
    char name[NAME_BYTES];
} step_case;

static void name_case(step_case *it)
{
    char stage[24] = "";
    if (it->stage_count > 1)
        snprintf(stage, sizeof stage, "-stage%uof%u", it->stage, it->stage_count);
    snprintf(it->name, sizeof it->name, "%s%s-%s-m%u-%s-%s-%s", it->variant->name, stage,
             order_names[it->order], it->micro_batches, recompute_names[it->recompute],
             sl_type_name(it->type), sl_type_name(it->grad_type));
}

/* Takes each case in turn; returns false to end. */
typedef bool (*case_visitor)(void *context, const step_case *it);

static bool visit_types(case_visitor visit, void *context, step_case it)
{
    static const sl_type types[][2] = {
        {SL_TYPE_FP32, SL_TYPE_FP32}, {SL_TYPE_BF16, SL_TYPE_FP32}, {SL_TYPE_BF16, SL_TYPE_BF16}};
    for (uint32_t t = 0; t < 3; t++) {
        const bool is_narrow = types[t][1] != SL_TYPE_FP32;
        const bool takes_narrow = (it.order == LAYER || it.micro_batches == 1) &&
                                  it.stage_count == 1 && it.variant->tp == 1;
        const bool is_repeated = it.stage_count > 1 && t > 0 && it.variant != variants;
        if ((is_narrow && !takes_narrow) || is_repeated)
            continue;
        it.type = types[t][0];
        it.grad_type = types[t][1];
        name_case(&it);
        if (!visit(context, &it))
            return false;
    }
    return true;
}

static bool visit_counts(case_visitor visit, void *context, step_case it)
{
    static const uint32_t counts[] = {1, 2, 3, 5, 17};
    for (uint32_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int recompute = SL_RECOMPUTE_NONE; recompute <= SL_RECOMPUTE_FULL; recompute++) {
            if (it.stage_count > 1 && recompute == SL_RECOMPUTE_SELECTIVE)
                continue;
            it.micro_batches = counts[c];
            it.recompute = (sl_recompute)recompute;
            if (!visit_types(visit, context, it))
                return false;
        }
    return true;
}

static bool visit_one_stage(case_visitor visit, void *context)
{
    for (uint32_t v = 0; v < VARIANT_COUNT; v++)
        for (int order = MICRO; order <= EARLY; order++) {
            const step_case it = {
                .variant = &variants[v], .order = (step_order)order, .stage_count = 1};
            if (!visit_counts(visit, context, it))
                return false;
        }
    return true;
}

static bool visit_stages(case_visitor visit, void *context)
{
    static const char *const names[] = {"one", "one-documents-dropout", "tp2-rows", "tp2-parts",
                                        "dp2-zero3"};
    for (uint32_t n = 0; n < sizeof names / sizeof *names; n++)
        for (uint32_t v = 0; v < VARIANT_COUNT; v++)
            for (uint32_t stages = 2; stages <= 4; stages++)
                for (uint32_t stage = 0; stage < stages; stage++)
                    for (int order = INTERLEAVED; order <= STAGES_BY_LAYER; order++) {
                        const step_case it = {.variant = &variants[v],
                                              .order = (step_order)order,
                                              .stage_count = stages,
                                              .stage = stage};
                        const bool is_short = stages == 3 && n > 0;
                        if (strcmp(variants[v].name, names[n]) != 0 || is_short)
                            continue;
                        if (!visit_counts(visit, context, it))
                            return false;
                    }
    return true;
}

static bool visit_cases(case_visitor visit, void *context)
{
    return visit_one_stage(visit, context) && visit_stages(visit, context);
}

static sl_status emit_forward(const step_case *it, sl_program **out_forward)
{
    const variant *v = it->variant;
    const sl_model_shape shape = {4, 32, 4, 8, 300};
    const sl_model_options options = {
        .batch = 2,
        .seq = 8,
        .tp_size = v->tp,
        .tp_rank = v->tp_rank,
        .stage_count = it->stage_count,
        .stage_index = it->stage,
        .mode = SL_MODEL_LOSS,
        .type = it->type,
        .grad_type = it->grad_type,
        .head_logits = v->head_logits,
        .by_document = v->by_document,
        .sequence_parallel = v->by_rows,
        .split_layout = v->by_columns ? SL_SPLIT_COLOSSAL : SL_SPLIT_MEGATRON,
        .dropout = v->dropout,
    };
    SL_TRY(sl_model_shape_emit(&shape, &options, out_forward));
    (*out_forward)->dp_size = v->dp;
    (*out_forward)->dp_rank = v->dp_rank;
    (*out_forward)->zero = v->zero;
    (*out_forward)->has_whole_gradients = v->has_whole_gradients;
    return SL_OK;
}

static sl_status gather_chunks(const sl_chunk_map *map, sl_program **program)
{
    const sl_gather_options options = {.most = 3, .ahead = 1};
    sl_program *gathered;
    if (!sl_program_shards_group(*program, SL_GROUP_PARAM))
        return SL_OK;
    SL_TRY(sl_program_gather_chunks(*program, map, &options, &gathered));
    sl_program_close(*program);
    *program = gathered;
    return SL_OK;
}

static sl_status derive_case(const step_case *it, sl_program **out_step)
{
    const bool is_by_layer = it->order == LAYER || it->order == STAGES_BY_LAYER;
    const sl_step_options options = {
        .micro_batch_count = it->micro_batches,
        .accumulation = is_by_layer ? SL_ACCUMULATE_LAYER : SL_ACCUMULATE_MICRO,
        .recompute = it->recompute,
        .update_early = it->order == EARLY,
        .partition_activations = it->variant->keeps_parts,
        .schedule = it->order == INTERLEAVED ? SL_SCHEDULE_1F1B : SL_SCHEDULE_GPIPE,
    };
    sl_program *forward;
    sl_layout *layout = NULL;
    SL_TRY(emit_forward(it, &forward));
    sl_status status = sl_layout_build(forward, 8 * SL_BLOCK_ELEMENTS, &layout);
    if (status == SL_OK) {
        const sl_chunk_map map = sl_layout_chunk_map(layout);
        status = sl_program_derive_step(forward, &map, &options, out_step);
        if (status == SL_OK)
            status = gather_chunks(&map, out_step);
    }
    sl_layout_close(layout);
    sl_program_close(forward);
    return status;
}

/* ---- the listing ---- */

/* Text that grows; `failed` where memory was refused. */
typedef struct listing {
    char *text;
    size_t length, capacity;
    uint32_t *number; /* of each value, SL_NONE: not mentioned yet */
    uint32_t mentioned;
} listing;

static void print(listing *it, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    assert_in_range(length, 0, LINE_BYTES - 1);
    if (it->length + (size_t)length + 1 > it->capacity) {
        it->capacity = 2 * it->capacity + LINE_BYTES;
        it->text = realloc(it->text, it->capacity);
        assert_non_null(it->text);
    }
    memcpy(it->text + it->length, line, (size_t)length + 1);
    it->length += (size_t)length;
}

static void define_value(listing *it, const sl_program *step, uint32_t v)
{
    static const char *const kinds[] = {[SL_VALUE_ACTIVATION] = "activation",
                                        [SL_VALUE_TENSOR] = "tensor",
                                        [SL_VALUE_CHUNK] = "chunk",
                                        [SL_VALUE_INPUT] = "input",
                                        [SL_VALUE_OUTPUT] = "output",
                                        [SL_VALUE_PERSISTENT] = "persistent",
                                        [SL_VALUE_PART] = "part"};
    const sl_value *value = &step->values[v];
    if (it->number[v] != SL_NONE)
        return;
    if (value->kind == SL_VALUE_PART)
        define_value(it, step, value->whole);
    it->number[v] = it->mentioned++;
    print(it, "  v%u %s", it->number[v], kinds[value->kind]);
    if (value->kind != SL_VALUE_ACTIVATION)
        print(it, " %s %u", sl_group_name(value->group), value->index);
    if (value->kind == SL_VALUE_PART)
        print(it, " of v%u", it->number[value->whole]);
    print(it, " \"%s\" %s %" PRIu64 " bytes x %u\n", value->name, sl_type_name(value->type),
          value->bytes, value->instances);
}

static void print_attrs(listing *it, const sl_op_attrs *a)
{
    const uint64_t sizes[] = {
        a->batch,         a->seq,           a->in,         a->out,         a->heads,
        a->first_row,     a->row_count,     a->first_id,   a->id_count,    a->valid_id_count,
        a->element_count, a->first_block,   a->cache_rows, a->adds_output, a->type,
        a->grad_type,     a->adds_gradient, a->rank_index, a->dropout_site};
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] != 0)
            print(it, " %c%" PRIu64, 'a' + (int)i, sizes[i]);
    if (a->scale != 0 || a->dropout != 0)
        print(it, " scale %a dropout %a", (double)a->scale, (double)a->dropout);
}

static void print_op(listing *it, const sl_program *step, const sl_op *op)
{
    enum { PLACES = 7 }; /* printed even where absent; those behind them only where present */
    static const char *const phases[] = {"forward", "recompute", "backward", "update"};
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        if (op->operand[i] != SL_NONE)
            define_value(it, step, op->operand[i]);
    print(it, "%s %s", phases[op->phase], sl_op_info_of(op->kind)->name);
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        if (op->operand[i] != SL_NONE)
            print(it, " v%u", it->number[op->operand[i]]);
        else if (i < PLACES)
            print(it, " -");
    print(it, " segment %d micro-batch %u", (int)op->segment, op->micro_batch);
    print_attrs(it, &op->attrs);
    print(it, "\n");
}

static void print_section(listing *it, const sl_section *section)
{
    print(it, "section from micro-batch %u, %u times, %u each\n", section->first_micro_batch,
          section->repeat, section->micro_batches);
}

static listing list_step(const sl_program *step)
{
    listing it = {.number = malloc(step->value_count * sizeof *it.number + 1)};
    assert_non_null(it.number);
    memset(it.number, 0xFF, step->value_count * sizeof *it.number);
    for (uint32_t s = 0; s < sl_program_section_count(step); s++) {
        const sl_section section = sl_program_section(step, s);
        print_section(&it, &section);
        for (uint32_t o = section.first; o < section.first + section.count; o++)
            print_op(&it, step, &step->ops[o]);
    }
    print(&it, "no op mentions\n");
    for (uint32_t v = 0; v < step->value_count; v++)
        define_value(&it, step, v);
    return it;
}

static void close_listing(listing *it)
{
    free(it->text);
    free(it->number);
}

static uint64_t hash_text(const char *text, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a, 64 bits */
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3;
    return hash;
}

static listing list_case(const step_case *it)
{
    sl_program *step;
    if (derive_case(it, &step) != SL_OK)
        fail_msg("%s: %s", it->name, sl_status_message());
    listing list = list_step(step);
    sl_program_close(step);
    return list;
}

/* ---- recording and comparing ---- */

static bool record_case(void *context, const step_case *it)
{
    listing list = list_case(it);
    fprintf(context, "%016" PRIx64 " %s\n", hash_text(list.text, list.length), it->name);
    close_listing(&list);
    return true;
}

static bool dump_case(void *context, const step_case *it)
{
    char path[1024];
    listing list = list_case(it);
    snprintf(path, sizeof path, "%s/%s.txt", (const char *)context, it->name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(list.text, 1, list.length, file), list.length);
    assert_int_equal(fclose(file), 0);
    close_listing(&list);
    return true;
}

typedef struct comparison {
    FILE *file;
    uint32_t count, differing;
} comparison;

static bool compare_case(void *context, const step_case *it)
{
    comparison *c = context;
    uint64_t recorded;
    char name[NAME_BYTES];
    if (fscanf(c->file, "%16" SCNx64 " %95s", &recorded, name) != 2)
        fail_msg("golden_steps.txt ends before %s", it->name);
    assert_string_equal(name, it->name);
    listing list = list_case(it);
    if (hash_text(list.text, list.length) != recorded && c->differing++ < 10)
        print_error("%s differs: --dump DIR here and at the commit before, then diff -r\n",
                    it->name);
    close_listing(&list);
    c->count++;
    return true;
}

static void steps_when_derived_again_then_equal_those_recorded(void **state)
{
    (void)state;
    comparison c = {.file = fopen(SL_TEST_SOURCE_DIRECTORY "/program/golden_steps.txt", "r")};
    assert_non_null(c.file);
    visit_cases(compare_case, &c);
    fclose(c.file);
    assert_in_range(c.count, CASES_MIN, UINT32_MAX);
    if (c.differing > 0)
        fail_msg("%u of %u steps differ from those recorded", c.differing, c.count);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--record") == 0) {
        FILE *file = fopen(argv[2], "w");
        return file == NULL || !visit_cases(record_case, file) || fclose(file) != 0;
    }
    if (argc == 3 && strcmp(argv[1], "--dump") == 0)
        return !visit_cases(dump_case, argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_when_derived_again_then_equal_those_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
