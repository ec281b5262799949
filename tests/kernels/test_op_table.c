/* The op table, proven on the kernels: planner and verifier both believe it, so a wrong row passes
 * them both. What could be wrong: an operand that is said to be only read is written, one that is
 * said to be written whole keeps or needs what was there, one of a byte too little, or, at the cost
 * of memory and copies, one that is said to be read and is not, or is too long.
 *
 * Every op runs with every type, in every mode of its attributes, on each instruction set; op_cases
 * says which those are, op_proof what is held against the table. The cases of an op and a type are
 * one process's work, for a wrong row may end it. Wrong claims are planted for every operand, and
 * each has to be found.
 *
 * Two things are beyond the table, and are asked of derived steps: the first row range of the head
 * stands for all of dx, and sums are in fp32. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "chunk/chunk.h"
#include "kernels/cpu/simd.h"
#include "model/architecture.h"
#include "op_proof.h"
#include "sanitizer_share.h"

/* Claims that are wrong, where they are. */
typedef enum plant {
    PLANT_NONE,
    PLANT_READ_ONLY,     /* READ for any other mode */
    PLANT_WRITTEN_WHOLE, /* WRITE for READ, UPDATE, or ADD or GRADIENT that add */
    PLANT_UPDATED,       /* UPDATE for READ, WRITE, or ADD or GRADIENT that write */
    PLANT_TOO_SMALL,     /* by one element */
    PLANT_TOO_LARGE,
    PLANTS
} plant;

static const char *const plant_names[PLANTS] = {
    "", "only read", "written whole", "updated", "an element smaller", "an element larger"};

/* What a child process does. */
typedef struct work {
    sl_op_kind kind;
    sl_type type;
    plant plant; /* in the claim of `operand` */
    uint32_t operand;
    uint32_t faults, fitting; /* cases: that fail, that the plant makes a difference to */
    op_proof proof;
} work;

/* Makes the claim of work->operand wrong; false where it would stay right. One that is too small
 * lacks an element that the op touches. */
static bool plant_claim(const work *w, const op_case *c, op_claim *claim)
{
    const op_claim right = *claim;
    const char *name = sl_op_info_of(c->op.kind)->operand[w->operand].name;
    const bool is_words = !strcmp(name, "norm") || !strcmp(name, "loss"); /* aligned to 8 bytes */
    const uint64_t element = is_words ? sizeof(uint64_t) : case_element_bytes(c, w->operand);
    const uint64_t lacking = element + (right.writes ? 0 : case_span(c, w->operand).unread);
    switch (w->plant) {
    case PLANT_READ_ONLY:
        claim->reads = true;
        claim->writes = false;
        break;
    case PLANT_WRITTEN_WHOLE:
        claim->reads = false;
        claim->writes = true;
        break;
    case PLANT_UPDATED:
        claim->reads = claim->writes = true;
        break;
    case PLANT_TOO_SMALL:
        claim->bytes -= claim->bytes > lacking ? lacking : 0;
        break;
    case PLANT_TOO_LARGE:
        claim->bytes += element;
        break;
    default:
        break;
    }
    return right.is_there && (claim->reads != right.reads || claim->writes != right.writes ||
                              claim->bytes != right.bytes);
}

/* One case; goes on unless a planted claim was found. */
static bool prove_case(const op_case *c, void *context)
{
    work *w = context;
    op_proof *proof = &w->proof;
    proof->c = c;
    proof->fault[0] = 0;
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        proof->claims[i] = proof_table_claim(c, i);
    const bool is_long = c->choice[AXIS_SHAPE] == 2; /* finds nothing that the short ones do not */
    if (w->plant != PLANT_NONE && (is_long || !plant_claim(w, c, &proof->claims[w->operand])))
        return true;
    w->fitting++;
    case_describe(c, region_watch.what, sizeof region_watch.what);
    if (proof_holds(proof))
        return true;
    w->faults++;
    if (w->plant == PLANT_NONE)
        fprintf(stderr, "%s: %s\n", region_watch.what, proof->fault);
    return w->plant == PLANT_NONE;
}

enum { CODE_HOLDS, CODE_FAULT, CODE_NOTHING = 4 };

/* Walks all cases of an op and a type in a child; returns its exit code. */
static int work_in_child(work w)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        region_catch_faults();
        region_watch.is_quiet = w.plant != PLANT_NONE;
        if (sl_workers_open(1, &w.proof.one) != SL_OK ||
            (w.plant == PLANT_NONE &&
             sl_workers_open(PROOF_WORKERS_MOST, &w.proof.several) != SL_OK))
            _exit(CODE_FAULT);
        case_visit_all(w.kind, w.type, prove_case, &w);
        _exit(w.faults > 0 ? CODE_FAULT : w.fitting > 0 ? CODE_HOLDS : CODE_NOTHING);
    }
    int status = 0;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : CODE_FAULT;
}

/* ---- the proof ---- */

static void op_list_when_walked_then_every_op_has_cases(void **state)
{
    (void)state;
    for (int kind = 0; kind < SL_OP_COUNT; kind++) {
        const sl_op_info *info = sl_op_info_of((sl_op_kind)kind);
        if (info->is_collective || info->is_input)
            print_message("left out, for no cpu kernel computes it: %s\n", info->name);
        else if (op_axes[kind] == 0)
            fail_msg("%s has no case here", info->name);
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
            if (info->operand[i].is_optional != (op_optional[kind] >> i & 1))
                fail_msg("%s: operand %u is optional in op_list.h or in the table, not in both",
                         info->name, i);
    }
}

static bool count_case(const op_case *c, void *context)
{
    (void)c;
    (void)context;
    return true;
}

static void op_table_when_kernels_run_then_says_what_they_touch(void **state)
{
    (void)state;
    uint32_t op_count = 0, case_count = 0, faults = 0;
    for (int kind = 0; kind < SL_OP_COUNT; kind++) {
        if (op_axes[kind] == 0)
            continue;
        op_count++;
        for (int type = 0; type < SL_TYPE_COUNT; type++) {
            const work w = {.kind = (sl_op_kind)kind, .type = (sl_type)type};
            case_count += case_visit_all(w.kind, w.type, count_case, NULL);
            faults += work_in_child(w) != CODE_HOLDS;
        }
    }
    print_message("%s: %u ops x %d types x modes and shapes: %u cases\n", sl_simd_current()->isa,
                  op_count, SL_TYPE_COUNT, case_count);
    assert_int_equal(faults, 0);
}

/* Returns the plants that make a difference to some case; all of them must be found. */
static uint32_t plant_in_op(sl_op_kind kind, sl_type type, uint32_t *missed)
{
    const sl_op_info *info = sl_op_info_of(kind);
    uint32_t planted = 0;
    for (uint32_t i = 0; i < info->operand_count; i++)
        for (int p = PLANT_NONE + 1; p < PLANTS; p++) {
            const work w = {.kind = kind, .type = type, .plant = (plant)p, .operand = i};
            const int code = work_in_child(w);
            planted += code != CODE_NOTHING;
            if (code != CODE_HOLDS)
                continue;
            (*missed)++;
            print_error("%s of %s: %s may be said to be %s\n", info->name, sl_type_name(type),
                        info->operand[i].name, plant_names[p]);
        }
    return planted;
}

/* fp32 and bf16, of every op; processes are slow to start with a sanitizer. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { QUICK_PLANT_TYPES = 1 };
#else
enum { QUICK_PLANT_TYPES = 2 };
#endif

static void op_table_when_a_claim_is_wrong_then_it_is_found(void **state)
{
    (void)state;
    const int types = getenv("SL_TEST_FULL") ? SL_TYPE_COUNT : QUICK_PLANT_TYPES;
    uint32_t planted = 0, missed = 0;
    for (int kind = 0; kind < SL_OP_COUNT; kind += SANITIZER_SHARE)
        for (int type = 0; type < types && op_axes[kind] != 0; type++)
            planted += plant_in_op((sl_op_kind)kind, (sl_type)type, &missed);
    print_message("%u wrong claims, %u missed\n", planted, missed);
    assert_true(planted > 0);
    assert_int_equal(missed, 0);
}

/* ---- what the table cannot say ---- */

static sl_program *derive_step(sl_type type, const sl_step_options *options)
{
    const sl_model_shape shape = {2, 64, 4, 64, 257};
    const bool is_stored_half = options->accumulation == SL_ACCUMULATE_LAYER;
    const sl_model_options emit = {.batch = 5, /* 320 rows: groups of 128, 128 and 64 */
                                   .seq = 64,
                                   .tp_size = 1,
                                   .mode = SL_MODEL_LOSS,
                                   .type = type,
                                   .grad_type = is_stored_half ? type : SL_TYPE_FP32,
                                   .head_logits = 1};
    sl_program *forward = NULL, *step = NULL;
    sl_layout *layout = NULL;
    assert_int_equal(sl_model_shape_emit(&shape, &emit, &forward), SL_OK);
    assert_int_equal(sl_layout_build(forward, 0, &layout), SL_OK);
    const sl_chunk_map map = sl_layout_chunk_map(layout);
    assert_int_equal(sl_program_derive_step(forward, &map, options, &step), SL_OK);
    sl_layout_close(layout);
    sl_program_close(forward);
    return step;
}

/* The first row range is said to write dx whole, and writes its rows: so the others must follow, in
 * row order, before anyone else meets dx. Returns how many ranges. */
static uint32_t check_row_ranges(const sl_program *step)
{
    uint64_t *end_row = calloc(step->value_count, sizeof *end_row); /* 0: no dx of the head */
    uint32_t ranges = 0;
    for (uint32_t tick = 0; tick < step->op_count; tick++) {
        const sl_op *op = &step->ops[tick];
        const sl_op_attrs *attrs = &op->attrs;
        for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++) {
            const uint32_t v = op->operand[i];
            if (v == SL_NONE)
                continue;
            if (op->kind != SL_OP_HEAD_INPUT_BACKWARD || i != 2) {
                if (end_row[v] != 0)
                    assert_int_equal(end_row[v] * 64 * sizeof(float), step->values[v].bytes);
                continue;
            }
            assert_int_equal(step->values[v].bytes, attrs->batch * attrs->seq * attrs->in * 4);
            if (attrs->adds_output) {
                assert_true(attrs->first_row + attrs->row_count <= end_row[v]);
                continue;
            }
            assert_int_equal(attrs->first_row, end_row[v]);
            end_row[v] += attrs->row_count;
            ranges++;
        }
    }
    free(end_row);
    return ranges;
}

/* Sums are in fp32: kernels take no other type with attrs.adds_gradient. */
static void check_sums(const sl_program *step)
{
    for (uint32_t tick = 0; tick < step->op_count; tick++)
        if (step->ops[tick].attrs.adds_gradient)
            assert_int_equal(step->ops[tick].attrs.grad_type, SL_TYPE_FP32);
}

static void steps_when_derived_then_hold_what_the_table_cannot_say(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int by_layer = 0; by_layer < 2; by_layer++)
            for (uint32_t batches = 1; batches <= 3; batches++) {
                const sl_step_options options = {batches, (sl_accumulation)by_layer,
                                                 (sl_recompute)(batches - 1), false};
                sl_program *step = derive_step((sl_type)type, &options);
                assert_int_equal(check_row_ranges(step), 3 * batches);
                check_sums(step);
                sl_program_close(step);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(op_list_when_walked_then_every_op_has_cases),
        cmocka_unit_test(op_table_when_a_claim_is_wrong_then_it_is_found),
        cmocka_unit_test(steps_when_derived_then_hold_what_the_table_cannot_say),
    };
    const struct CMUnitTest proofs[] = {
        cmocka_unit_test(op_table_when_kernels_run_then_says_what_they_touch),
    };
    int failures = cmocka_run_group_tests_name("op table", tests, NULL, NULL);
    /* What sanitizers see of the others, other programs show them: test_kernels*. */
    const uint32_t isa_count = SANITIZER_SHARE > 1 ? 1 : sl_simd_usable_count();
    for (uint32_t i = 0; i < isa_count; i++) {
        sl_simd_choose(sl_simd_usable(i));
        failures += cmocka_run_group_tests_name("op table on kernels", proofs, NULL, NULL);
    }
    return failures;
}
