/* The tables, and the one way to print a record that is a walk over them. */
#include "columns.h"

#include <stdio.h>
#include <string.h>

#define STEP(name, member, tag_, meaning_, ...)                                                    \
    {                                                                                              \
        .field = SL_FIELD(name, sl_step_report, member, __VA_ARGS__), .tag = tag_,                 \
        .meaning = meaning_                                                                        \
    }

#define STALL(name, lane, meaning_)                                                                \
    {                                                                                              \
        .field = SL_FIELD(name, sl_step_report, stall_ms[lane], .digits = 6), .group = "stall_ms", \
        .tag = "stall/" name "_ms", .meaning = meaning_                                            \
    }

#define SENT(name, index, meaning_)                                                                \
    {                                                                                              \
        .field = SL_FIELD(name, sl_step_report, comm_bytes[index]), .group = "comm_bytes",         \
        .tag = "traffic/comm_" name "_bytes", .meaning = meaning_                                  \
    }

#define TIMED(name, member, meaning_) STEP(name, member, "time/" name, meaning_, .digits = 6)

/* clang-format off */
static const sl_column step_columns[] = {
    STEP("step", step, NULL, "from 1"),
    STEP("loss", loss, "train/loss",
         "mean over the step's tokens, of examples over those that count, before the update"),
    STEP("grad_norm", grad_norm, "train/grad_norm", "of all gradients, before clipping"),
    STEP("lr", learning_rate, "train/lr", "learning rate of this step"),
    STEP("tokens", tokens, NULL, "of this step"),
    STEP("tokens_total", tokens_total, "train/tokens_total", "of all steps so far"),
    STEP("step_ms", step_ms, "time/step_ms", "wall time of the step"),
    STEP("tokens_per_s", tokens_per_s, "speed/tokens_per_s", "of this step"),
    STEP("flops", flops, NULL, "of the model, in this step"),
    STEP("device_bytes", peak_bytes[SL_TIER_DEVICE], "memory/device_bytes",
         "peak on the device so far"),
    STEP("host_bytes", peak_bytes[SL_TIER_HOST], "memory/host_bytes", "peak on the host so far"),
    STEP("disk_bytes", peak_bytes[SL_TIER_DISK], "memory/disk_bytes", "peak on the disks so far"),
    STEP("h2d_bytes", moved_bytes[SL_LANE_H2D], "traffic/h2d_bytes",
         "copied from the host to the device"),
    STEP("d2h_bytes", moved_bytes[SL_LANE_D2H], "traffic/d2h_bytes",
         "copied from the device to the host"),
    STEP("disk_read_bytes", moved_bytes[SL_LANE_READ], "traffic/disk_read_bytes",
         "read from the disks"),
    STEP("disk_written_bytes", moved_bytes[SL_LANE_WRITE], "traffic/disk_written_bytes",
         "written to the disks"),
    STALL("h2d", SL_LANE_H2D, "the computation waited for copies to the device"),
    STALL("d2h", SL_LANE_D2H, "the computation waited for copies from the device"),
    STALL("host", SL_LANE_HOST, "the computation waited for updates on the host"),
    STALL("read", SL_LANE_READ, "the computation waited for reads of the disks"),
    STALL("write", SL_LANE_WRITE, "the computation waited for writes to the disks"),
    STALL("comm", SL_LANE_COMM, "the computation waited for other ranks"),
    STEP("input_wait_ms", stall_ms[SL_LANE_INPUT], "time/input_wait_ms",
         "the computation waited for data"),
    STEP("skipped", skipped, "train/skipped", "the update was left out: not finite"),
    STEP("loss_scale", loss_scale, "train/loss_scale", "factor on the loss in this step"),
    TIMED("forward_ms", phase_ms[SL_PHASE_FORWARD], "forward ops on the compute lane"),
    TIMED("backward_ms", phase_ms[SL_PHASE_BACKWARD],
          "backward ops and recomputation on the compute lane"),
    TIMED("update_ms", phase_ms[SL_PHASE_UPDATE],
          "gradient norm and AdamW, on the compute lane and on the host beside it"),
    TIMED("checkpoint_ms", checkpoint_ms, "saves since the step before"),
    STEP("epoch", epoch, "train/epoch", "passes over the data so far", .flags = SL_FIELD_OPTIONAL),
    {{0}},
};

static const sl_column rank_columns[] = {
    SENT("world", 0, "handed to other ranks through the communicator of all"),
    SENT("tp", 1, "handed to the ranks that tensors are split over"),
    SENT("dp", 2, "handed to the ranks that see other data"),
    SENT("pp", 3, "handed to other stages"),
    {{0}},
};

static const sl_column eval_columns[] = {
    {.field = SL_FIELD("step", sl_eval_report, step), .meaning = "steps trained before"},
    {.field = SL_FIELD("set", sl_eval_report, set), .meaning = "eval, validation or test"},
    {.field = SL_FIELD("loss", sl_eval_report, loss), .tag = "loss",
     .meaning = "mean over all tokens evaluated"},
    {.field = SL_FIELD("perplexity", sl_eval_report, perplexity), .tag = "perplexity",
     .meaning = "exp of the loss"},
    {.field = SL_FIELD("tokens", sl_eval_report, tokens), .meaning = "that were evaluated"},
    {.field = SL_FIELD("data_tokens", sl_eval_report, data_tokens),
     .meaning = "that the data have, but for the first"},
    {{0}},
};
/* clang-format on */

const sl_column *sl_columns_of_step(void)
{
    return step_columns;
}

const sl_column *sl_columns_of_ranks(void)
{
    return rank_columns;
}

const sl_column *sl_columns_of_eval(void)
{
    return eval_columns;
}

static bool is_same_group(const sl_column *a, const sl_column *b)
{
    return a->group && b->group && strcmp(a->group, b->group) == 0;
}

size_t sl_columns_print(const sl_column *columns, const void *report, char *out_text,
                        size_t capacity)
{
    size_t used = 0;
    for (const sl_column *column = columns; column->field.key && used + 1 < capacity; column++) {
        bool goes_on = column > columns && is_same_group(column - 1, column);
        const char *comma = column > columns ? "," : "";
        const char *group = goes_on || !column->group ? "" : column->group;
        used +=
            (size_t)snprintf(out_text + used, capacity - used, "%s%s%s%s\"%s\":", comma,
                             *group ? "\"" : "", group, *group ? "\":{" : "", column->field.key);
        if (used + 1 >= capacity)
            break;
        used += sl_fields_print_value(&column->field, report, out_text + used, capacity - used);
        bool ends = column->group && !is_same_group(column, column + 1);
        if (ends && used + 1 < capacity)
            out_text[used++] = '}';
    }
    used = used < capacity ? used : capacity - 1;
    out_text[used] = '\0';
    return used;
}

/* A pattern is the user's text: what JSON has to escape is escaped. */
static size_t print_pattern(const char *pattern, char *out_text, size_t capacity)
{
    size_t used = 0;
    for (; *pattern && used + 7 < capacity; pattern++) {
        const unsigned char letter = (unsigned char)*pattern;
        if (letter < ' ') {
            used += (size_t)snprintf(out_text + used, capacity - used, "\\u%04x", letter);
            continue;
        }
        if (letter == '"' || letter == '\\')
            out_text[used++] = '\\';
        out_text[used++] = (char)letter;
    }
    out_text[used] = '\0';
    return used;
}

size_t sl_columns_print_rates(const sl_step_report *report, char *out_text, size_t capacity)
{
    size_t used = 0;
    for (uint32_t i = 0; i < report->rate_count; i++) {
        char pattern[6 * sizeof report->rates[i].pattern];
        print_pattern(report->rates[i].pattern, pattern, sizeof pattern);
        const int bytes =
            snprintf(out_text + used, capacity - used, "%s\"%s\":%.9g", i > 0 ? "," : "\"lr_of\":{",
                     pattern, (double)(report->learning_rate * report->rates[i].factor));
        if (bytes < 0 || used + (size_t)bytes + 2 > capacity)
            break;
        used += (size_t)bytes;
    }
    if (used > 0)
        out_text[used++] = '}';
    return used;
}

void sl_columns_name(const sl_column *column, char out_name[SL_COLUMN_NAME_BYTES])
{
    snprintf(out_name, SL_COLUMN_NAME_BYTES, "%s%s%s", column->group ? column->group : "",
             column->group ? "_" : "", column->field.key);
}
