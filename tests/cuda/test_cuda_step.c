/* What a step of GPT-2 launches on a GPU. Wrong could be: an op that launches more kernels than it
 * did, a step with more ops, a table of the model of a step (scripts/step_model) that is of another
 * step. Steps are planned as `train` would plan them on a GPU of 80 GiB; each op of the program
 * goes to its kernel, whose launches are checked, counted and not run. A product counts as one
 * launch: so it is by our own kernels, and by cuBLASLt where no algorithm splits the terms.
 *
 *     test_cuda_step --print   the ops of all steps below, as scripts/step_model reads them; of the
 *                              first one also their order, as places among its lines
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/include/shim_control.h"
#include "cuda/standin.h"
#include "kernels/cuda/library.h"
#include "scratch_case.h"
#include "train/preparation.h"

enum { NAMES_BYTES = 512, ADDRESS = 4096, GIB_BITS = 30, LAUNCHES_OF_124M = 550 };

typedef struct planned_step {
    const char *name, *model, *rows;
} planned_step;

static sl_kernel_library own; /* without cuBLASLt */

static const planned_step steps[] = {
    {"124M, B = 8", "model=gpt2", "micro-batch=8"},
    {"124M, B = 64", "model=gpt2", "micro-batch=64"},
    {"1.5B, B = 16", "model=gpt2-xl", "micro-batch=16"},
};

enum { STEPS = sizeof steps / sizeof *steps };

static void need(sl_status status, const char *what)
{
    if (status == SL_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, sl_status_message());
    exit(1);
}

static void configure(const planned_step *step, sl_config *config)
{
    const char *const text[] = {"device=cuda",  "precision=bf16", "accumulate=1",
                                "context=1024", step->model,      step->rows};
    need(sl_config_init(config), "configuration");
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        need(sl_config_assign(config, SL_CONFIG_PLAN, text[i]), text[i]);
    need(sl_config_check(config, SL_CONFIG_PLAN), "configuration");
}

/* ---- the ops of a step ---- */

/* Ops that do the same: how many, and what one launches. */
typedef struct op_row {
    sl_op_kind kind;
    sl_op_attrs attrs; /* without where its part of a value begins */
    uint32_t present;  /* a set of operands */
    uint64_t count, launches;
    char kernels[NAMES_BYTES];
} op_row;

typedef struct op_list {
    op_row *rows;
    uint32_t count;
    uint32_t *order;             /* the row of each op */
    uint64_t op_count, launches; /* of the step */
} op_list;

static void note_kernel(void *user, const char *kernel)
{
    op_row *row = user;
    const size_t used = strlen(row->kernels);
    snprintf(row->kernels + used, sizeof row->kernels - used, "%s%s", used > 0 ? "; " : "", kernel);
    row->launches++;
}

/* Hands the op to its kernel, with operands where it has some. */
static void run_op(const sl_blueprint *blueprint, const sl_op *op, op_row *row)
{
    static uint8_t flags[1];
    static char stream[1];
    const sl_layout *layout = blueprint->layout;
    sl_kernel_call call = {
        .attrs = &op->attrs, .workspace = (void *)ADDRESS, .stream = stream, .library = &own};
    sl_kernel run;
    need(sl_kernels_find(sl_kernels_cuda(), op->kind, &run), sl_op_info_of(op->kind)->name);
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        call.operand[i] = op->operand[i] != SL_NONE ? (void *)ADDRESS : NULL;
    if (sl_op_info_of(op->kind)->updates_chunk)
        call.block_flags = flags;
    if (op->kind == SL_OP_CLEAR_PADDING) {
        const uint32_t chunk = sl_layout_find_chunk(layout, op->attrs.first_block);
        const uint32_t *first = &layout->first_padding[chunk];
        call.padding = layout->padding + first[0];
        call.padding_count = first[1] - first[0];
    }
    const sl_kernel_call shapes = {.attrs = &op->attrs};
    need(sl_library_prepare(&own, op->kind, &shapes), sl_op_info_of(op->kind)->name);
    sl_shim_tell_launches(note_kernel, row);
    need(run(&call), sl_op_info_of(op->kind)->name);
    sl_shim_tell_launches(NULL, NULL);
}

static uint32_t find_present(const sl_op *op)
{
    uint32_t present = 0;
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        present |= (uint32_t)(op->operand[i] != SL_NONE) << i;
    return present;
}

/* The row of an op, made where none is like it. */
static op_row *find_row(op_list *list, const op_row *like)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->rows[i].kind == like->kind && list->rows[i].present == like->present &&
            list->rows[i].launches == like->launches &&
            memcmp(&list->rows[i].attrs, &like->attrs, sizeof like->attrs) == 0)
            return &list->rows[i];
    list->rows = realloc(list->rows, (list->count + 1) * sizeof *list->rows);
    need(list->rows ? SL_OK : SL_ERROR_SYSTEM, "memory");
    list->rows[list->count] = *like;
    return &list->rows[list->count++];
}

/* A section that is repeated has few ops: whether it comes op by op or in turn matters little. */
static void add_to_order(op_list *list, uint32_t row, uint32_t repeat)
{
    list->order = realloc(list->order, (list->op_count + repeat) * sizeof *list->order);
    need(list->order ? SL_OK : SL_ERROR_SYSTEM, "memory");
    for (uint32_t i = 0; i < repeat; i++)
        list->order[list->op_count++] = row;
}

static void add_op(const sl_blueprint *blueprint, const sl_op *op, uint32_t repeat, op_list *list)
{
    op_row row = {.kind = op->kind, .attrs = op->attrs, .present = find_present(op)};
    if (op->kind == SL_OP_INPUT || sl_op_info_of(op->kind)->is_collective)
        return;
    run_op(blueprint, op, &row);
    row.attrs.first_row = row.attrs.first_id = row.attrs.first_block = 0;
    list->launches += repeat * row.launches;
    op_row *found = find_row(list, &row);
    found->count += repeat;
    add_to_order(list, (uint32_t)(found - list->rows), repeat);
}

static void list_program(const sl_blueprint *blueprint, op_list *list)
{
    const sl_program *program = blueprint->programs[0];
    for (uint32_t s = 0; s < sl_program_section_count(program); s++) {
        const sl_section section = sl_program_section(program, s);
        for (uint32_t o = section.first; o < section.first + section.count; o++)
            add_op(blueprint, &program->ops[o], section.repeat, list);
    }
}

/* The list is to be freed. */
static op_list list_step(const planned_step *step)
{
    op_list list = {0};
    sl_config config;
    sl_trainer trainer = {0};
    sl_blueprint *blueprint = NULL;
    sl_refusal refusal;
    configure(step, &config);
    need(sl_preparation_run(&config, SL_CONFIG_PLAN, &trainer), step->name);
    need(sl_search_find(&trainer.search, &blueprint, &refusal), step->name);
    list_program(blueprint, &list);
    sl_blueprint_close(blueprint);
    sl_trainer_close(&trainer);
    sl_config_clear(&config);
    return list;
}

static void open_gpu(void)
{
    standin_machine machine = standin_default();
    machine.device_bytes = UINT64_C(80) << GIB_BITS;
    machine.multiprocessor_count = 132;
    standin_reset(&machine);
}

static void close_list(op_list *list)
{
    free(list->rows);
    free(list->order);
}

/* ---- telling ---- */

static void print_step(const planned_step *step)
{
    op_list list = list_step(step);
    for (uint32_t i = 0; i < list.count; i++) {
        const op_row *row = &list.rows[i];
        const sl_op_attrs *a = &row->attrs;
        printf("%s\t%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64
               "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%s\n",
               step->name, sl_op_info_of(row->kind)->name, row->count, a->batch * a->seq,
               a->row_count, a->in, a->out, a->id_count, a->element_count,
               sl_op_flops(row->kind, a), sl_op_traffic_bytes(row->kind, a), row->launches,
               row->kernels);
    }
    if (step == steps) {
        printf("order\t%s\t", step->name);
        for (uint64_t i = 0; i < list.op_count; i++)
            printf("%s%" PRIu32, i > 0 ? " " : "", list.order[i]);
        printf("\n");
    }
    close_list(&list);
}

static void print_steps(void)
{
    open_gpu();
    printf("step\top\tcount\ttokens\trows\tin\tout\tids\telements\tflops\tbytes\tlaunches\t"
           "kernels\n");
    for (int i = 0; i < STEPS; i++)
        print_step(&steps[i]);
}

/* ---- the bound ---- */

static void launches_when_124m_has_eight_rows_then_stay_below_their_bound(void **state)
{
    (void)state;
    open_gpu();
    op_list list = list_step(&steps[0]);
    close_list(&list);
    print_message("%s: %" PRIu64 " launches\n", steps[0].name, list.launches);
    assert_true(list.launches <= LAUNCHES_OF_124M);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_when_124m_has_eight_rows_then_stay_below_their_bound),
    };
    if (argc == 2 && strcmp(argv[1], "--print") == 0) {
        print_steps();
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
