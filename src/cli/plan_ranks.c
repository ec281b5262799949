/* What `sluice plan` says of many ranks: which of them belong together, and how each tensor is
 * split. No rank is started for it. */
#include "plan_ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "comm/comm.h"
#include "command.h"
#include "foreign/model_names.h"
#include "terminal.h"
#include "train/plan_account.h"

/* "[0,1] [2,3]": the groups of one kind. */
static sl_status print_groups(const sl_comm_layout *layout, sl_comm_group group)
{
    const uint32_t size = sl_comm_group_size(layout, group), ranks = sl_comm_layout_ranks(layout);
    uint32_t *members = calloc(size, sizeof *members);
    if (!members)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a group of %u ranks", size);
    printf("  %-6s", sl_comm_group_name(group));
    for (uint32_t rank = 0; rank < ranks; rank++) {
        sl_comm_group_members(layout, group, rank, members);
        for (uint32_t i = 0; members[0] == rank && i < size; i++)
            printf("%s%u%s", i == 0 ? " [" : ",", members[i], i + 1 == size ? "]" : "");
    }
    printf("\n");
    free(members);
    return SL_OK;
}

static void print_shape(const char *note, const sl_tensor_spec *spec, const uint64_t shape[2],
                        int width)
{
    char text[48];
    if (spec->dim_count == 1)
        snprintf(text, sizeof text, "[%" PRIu64 "]", shape[0]);
    else
        snprintf(text, sizeof text, "[%" PRIu64 ", %" PRIu64 "]", shape[0], shape[1]);
    printf("%s%-*s", note, width, text);
}

/* One block stands for all, and one panel for all of its tensor: they have the same shapes, but for
 * a last panel that may be lower. */
static bool is_shown(const sl_program *program, uint32_t index, const char *blocks,
                     uint32_t first_layer)
{
    const char *name = program->tensors[index].name;
    char block[32];
    const int length = snprintf(block, sizeof block, "%s%u.", blocks, first_layer);
    for (uint32_t i = 0; i < index; i++)
        if (strcmp(program->tensors[i].name, name) == 0)
            return false;
    return strncmp(name, blocks, strlen(blocks)) != 0 || strncmp(name, block, (size_t)length) == 0;
}

static const char *const split_names[] = {[SL_SPLIT_NONE] = "on every rank",
                                          [SL_SPLIT_COLUMNS] = "columns",
                                          [SL_SPLIT_QKV] = "columns of q, k, v",
                                          [SL_SPLIT_ROWS] = "rows"};

static void print_splits(const sl_program *program, const sl_model_shape *shape,
                         uint32_t first_layer)
{
    char blocks[16];
    snprintf(blocks, sizeof blocks, "%s.", sl_model_names_of(shape)->layer);
    for (uint32_t i = 0; i < program->tensor_count; i++) {
        const sl_tensor_spec *spec = &program->tensors[i];
        const uint64_t local[] = {sl_plan_account_count_rows(program, spec->name), spec->shape[1]};
        if (!is_shown(program, i, blocks, first_layer))
            continue;
        printf("  %-23s ", spec->name);
        print_shape("", spec, spec->whole_shape, 15);
        print_shape(" -> ", spec, local, 14);
        printf(" %s", split_names[spec->split]);
        if (spec->replica_count > 1)
            printf(", the same on %u ranks", spec->replica_count);
        printf("\n");
    }
}

static void print_shards(const sl_program *program)
{
    if (!sl_program_has_shards(program))
        return;
    printf("of each chunk a rank keeps 1/%u:", program->dp_size);
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        if (program->has_state[group] && sl_program_shards_group(program, (sl_group)group))
            printf(" %s", sl_group_name((sl_group)group));
    printf("\n");
    if (program->zero > 1 && program->has_whole_gradients)
        sl_terminal_print(
            stdout, 2,
            "gradients are whole, in fp32, for micro-batches add up in them one after "
            "the other (--accumulation layer keeps shards)");
}

static void add_ranks(sl_terminal_text *line, uint32_t first, uint32_t count)
{
    if (count == 1)
        sl_terminal_add(line, "rank %u", first);
    else
        sl_terminal_add(line, "ranks %u-%u", first, first + count - 1);
}

/* What a step waits for is beside the prediction, which knows one stage. */
static void print_stages(const sl_comm_layout *layout, const sl_plan_stages *stages)
{
    const uint32_t count = layout->tensor * layout->data, last = stages->count - 1;
    if (stages->count == 1)
        return;
    for (uint32_t s = 0; s < stages->count; s++) {
        const sl_plan_stage *it = &stages->items[s];
        sl_terminal_text line = {.used = 0};
        sl_terminal_add(&line, "  stage %u: ", s);
        add_ranks(&line, s * count, count);
        sl_terminal_add(&line, ", layers %u-%u%s", it->first_layer,
                        it->first_layer + it->layer_count - 1,
                        s == 0      ? ", embedding"
                        : s == last ? ", norm and head"
                                    : "");
        sl_terminal_add(&line, "; peak of device %s,",
                        sl_command_format_size(it->peak_bytes[SL_TIER_DEVICE]).text);
        sl_terminal_add(&line, " host %s,",
                        sl_command_format_size(it->peak_bytes[SL_TIER_HOST]).text);
        sl_terminal_add(&line, " disk %s",
                        sl_command_format_size(it->peak_bytes[SL_TIER_DISK]).text);
        sl_terminal_print(stdout, 11, "%s", line.text);
    }
    sl_terminal_print(
        stdout, 2,
        "the plan above and the tensors below are those of stage %u, which takes most memory; "
        "its step is predicted as if it waited for no other stage; that of all, waits included, "
        "takes %.2f ms",
        stages->shown, 1e3 * stages->step_seconds);
}

static sl_status print_layout(const sl_comm_layout *layout)
{
    printf("\n%u ranks: %u tensor x %u data", sl_comm_layout_ranks(layout), layout->tensor,
           layout->data);
    if (layout->stages > 1)
        printf(" x %u stages", layout->stages);
    printf("\n");
    SL_TRY(print_groups(layout, SL_COMM_TENSOR));
    SL_TRY(print_groups(layout, SL_COMM_DATA));
    return layout->stages > 1 ? print_groups(layout, SL_COMM_STAGES) : SL_OK;
}

sl_status sl_plan_ranks_print(const sl_comm_layout *layout, const sl_plan_stages *stages)
{
    const sl_blueprint *blueprint = stages->blueprint;
    const sl_program *program = blueprint->programs[0];
    if (sl_comm_layout_ranks(layout) == 1)
        return SL_OK;
    SL_TRY(print_layout(layout));
    print_stages(layout, stages);
    sl_terminal_print(stdout, 2,
                      "each rank%s holds %" PRIu64 " of %" PRIu64
                      " parameters, padding counted; the bytes above are of one rank",
                      layout->stages > 1 ? " of it" : "",
                      sl_plan_account_count_parameters(blueprint),
                      sl_blueprint_count_parameters(blueprint));
    sl_terminal_print(
        stdout, 2,
        "each computes with %u thread%s, and takes %s more for the windows through which ranks "
        "of one machine exchange",
        blueprint->task.target.worker_count, sl_plural(blueprint->task.target.worker_count),
        sl_command_format_size(blueprint->task.window_bytes).text);
    if (layout->data > 1)
        sl_terminal_print(
            stdout, 2, "each set of rows is computed by %u rank%s: a step has %" PRIu64 " rows",
            layout->tensor, sl_plural(layout->tensor),
            (uint64_t)layout->data * blueprint->choice.accumulate * blueprint->choice.micro_batch);
    print_shards(program);
    print_splits(program, &blueprint->task.shape, stages->items[stages->shown].first_layer);
    return SL_OK;
}
