/* Tokens and targets of a row are the same T + 1 tokens, read for each. */
#include "data_loader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/plural.h"
#include "base/rng.h"
#include "base/status.h"

static const uint64_t BLEND_STREAM = 0x626c656e64000000; /* of the phases of parts; "blend" */
static const uint64_t PART_STEP = 0x9e3779b97f4a7c15;    /* between the seeds of parts: odd */

/* Own rows that were read together: tokens and targets of a micro-batch are asked for one after the
 * other. */
struct sl_own_batch {
    sl_row_range rows; /* count 0: nothing is read */
    int32_t tokens[];  /* [own_batch, T + 1] */
};

static uint64_t count_rows(const sl_data_loader *loader, uint32_t part)
{
    const sl_data_loader_args *args = &loader->args;
    const uint64_t tokens = args->parts.items[part].token_count;
    if (loader->examples)
        return loader->examples[part].row_count;
    return tokens > 0 ? (tokens - 1) / args->seq : 0;
}

/* The start of a row of a part, in tokens; of examples which row it is: an order of rows is one of
 * starts in rows of one token. */
static sl_status order_row(const sl_data_loader *loader, uint32_t part, uint64_t row,
                           uint64_t *out_start)
{
    const sl_data_loader_args *args = &loader->args;
    const uint64_t seed = args->seed + part * PART_STEP;
    if (loader->examples)
        return sl_tokens_row_start(args->order, seed, row, 1, count_rows(loader, part) + 1,
                                   out_start);
    return sl_tokens_row_start(args->order, seed, row, args->seq,
                               args->parts.items[part].token_count, out_start);
}

/* ---- opening ---- */

/* Rows to evaluate on are joined, so that a part of them may have none; to train on, each part that
 * has a weight is read. */
static sl_status check_examples(const sl_data_loader *loader)
{
    uint64_t row_count = 0, dropped_count = 0;
    bool has_empty = false;
    for (uint32_t i = 0; i < loader->args.parts.count; i++) {
        const sl_example_rows *rows = &loader->examples[i];
        row_count += rows->row_count;
        dropped_count += rows->dropped_count;
        has_empty = has_empty || rows->row_count == 0;
    }
    if (row_count > 0 && (loader->args.joins || !has_empty))
        return SL_OK;
    if (row_count > 0)
        SL_FAIL(SL_ERROR_DATA, "a path of --data has no example to train on, and has a weight: "
                               "leave the path out, or give it more examples");
    if (dropped_count == 0)
        SL_FAIL(SL_ERROR_DATA, "there is no example");
    SL_FAIL(SL_ERROR_DATA,
            "of %llu example%s none has a response within the first %u tokens: use longer rows "
            "(--seq)",
            (unsigned long long)dropped_count, sl_plural(dropped_count), loader->seq + 1);
}

static sl_status check_parts(const sl_data_loader *loader)
{
    const sl_data_loader_args *args = &loader->args;
    uint64_t start, row_count = 0, token_count = 0;
    for (uint32_t i = 0; i < args->parts.count; i++) {
        token_count += args->parts.items[i].token_count;
        row_count += args->seq > 0 ? count_rows(loader, i) : 0;
        if (!args->joins)
            SL_TRY(order_row(loader, i, 0, &start));
    }
    if (row_count > 0)
        return SL_OK;
    token_count = token_count < args->seq ? token_count : args->seq; /* parts without a row each */
    return sl_tokens_row_start(args->order, args->seed, 0, args->seq, token_count, &start);
}

static sl_status open_examples(sl_data_loader *loader)
{
    const sl_data_loader_args *args = &loader->args;
    if (args->seq == 0)
        SL_FAIL(SL_ERROR_USAGE, "rows of 0 tokens");
    loader->examples = calloc(args->parts.count, sizeof *loader->examples);
    if (!loader->examples)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the rows of examples");
    for (uint32_t i = 0; i < args->parts.count; i++) {
        const sl_example_rows_args of = {args->tokens, &args->parts.items[i], args->seq,
                                         args->packs};
        SL_TRY(sl_example_rows_make(&of, &loader->examples[i]));
    }
    return check_examples(loader);
}

static sl_status open_parts(sl_data_loader *loader)
{
    return loader->args.has_examples ? open_examples(loader) : check_parts(loader);
}

static sl_status open_own(sl_data_loader *loader)
{
    const sl_data_loader_args *args = &loader->args;
    uint64_t bytes;
    if (args->own.count == 0)
        SL_FAIL(SL_ERROR_USAGE, "the program gives no rows to evaluate on");
    SL_TRY(sl_bits_multiply((uint64_t)args->seq + 1, args->own_batch * sizeof(int32_t),
                            "rows of tokens", &bytes));
    loader->own_read = malloc(sizeof *loader->own_read + bytes);
    if (!loader->own_read)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u rows of tokens", args->own_batch);
    loader->own_read->rows.count = 0;
    return SL_OK;
}

static sl_status check_documents(const sl_data_loader_args *args)
{
    if (args->by_document && args->end_of_text < 0)
        SL_FAIL(SL_ERROR_USAGE, "--documents reset: which token ends a document is not known: add "
                                "--end-of-text ID, or --tokenizer DIR");
    if (args->has_examples && args->end_of_text < 0)
        SL_FAIL(SL_ERROR_USAGE, "which token ends an example, and pads its row, is not known: add "
                                "--end-of-text ID, or --tokenizer DIR");
    return SL_OK;
}

sl_status sl_data_loader_open(const sl_data_loader_args *args, sl_data_loader *out_loader)
{
    sl_data_loader loader = {.args = *args, .seq = args->seq};
    sl_status status = check_documents(args);
    if (status == SL_OK)
        status = args->own.call ? open_own(&loader) : open_parts(&loader);
    if (status == SL_OK) {
        loader.row = malloc(((size_t)args->seq + 1) * sizeof *loader.row);
        if (!loader.row)
            status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for a row of tokens");
    }
    if (status != SL_OK) {
        sl_data_loader_close(&loader);
        return status;
    }
    *out_loader = loader;
    return SL_OK;
}

void sl_data_loader_close(sl_data_loader *loader)
{
    for (uint32_t i = 0; loader->examples && i < loader->args.parts.count; i++)
        sl_example_rows_free(&loader->examples[i]);
    free(loader->examples);
    free(loader->own_read);
    free(loader->row);
    free(loader->args.parts.items);
    *loader = (sl_data_loader){0};
}

/* ---- which row ---- */

/* Of the first `rows` rows that reach a part, those that it takes. */
static uint64_t count_taken(const sl_data_loader_args *args, uint32_t part, uint64_t rows)
{
    if (part + 1 == args->parts.count)
        return rows;
    uint64_t phase = sl_rng_below(args->seed, BLEND_STREAM, part, UINT64_C(1) << 32);
    return (uint64_t)(((unsigned __int128)rows * args->parts.items[part].share + phase) >> 32);
}

static uint32_t find_blended(const sl_data_loader_args *args, uint64_t row, uint64_t *out_row)
{
    for (uint32_t part = 0;; part++) {
        uint64_t taken = count_taken(args, part, row);
        if (part + 1 == args->parts.count || count_taken(args, part, row + 1) > taken) {
            *out_row = taken;
            return part;
        }
        row -= taken;
    }
}

static uint32_t find_joined(const sl_data_loader *loader, uint64_t row, uint64_t *out_row)
{
    uint32_t part = 0;
    while (part + 1 < loader->args.parts.count && row >= count_rows(loader, part))
        row -= count_rows(loader, part++);
    *out_row = row;
    return part;
}

uint32_t sl_data_loader_find_part(const sl_data_loader *loader, uint64_t global_row,
                                  uint64_t *out_row)
{
    return loader->args.joins ? find_joined(loader, global_row, out_row)
                              : find_blended(&loader->args, global_row, out_row);
}

/* A random start is drawn by the global row, another order counts the rows of the part. */
static sl_status find_start(const sl_data_loader *loader, uint64_t global_row, uint32_t *out_part,
                            uint64_t *out_start)
{
    uint64_t row;
    *out_part = sl_data_loader_find_part(loader, global_row, &row);
    if (loader->args.order == SL_DATA_RANDOM)
        row = global_row;
    return order_row(loader, *out_part, row, out_start);
}

uint64_t sl_data_loader_row_count(const sl_data_loader *loader)
{
    uint64_t row_count = loader->args.own.count;
    for (uint32_t i = 0; i < loader->args.parts.count; i++)
        row_count += count_rows(loader, i);
    return row_count;
}

uint64_t sl_data_loader_token_count(const sl_data_loader *loader)
{
    uint64_t token_count = loader->args.own.count * loader->seq;
    for (uint32_t i = 0; i < loader->args.parts.count; i++) {
        uint64_t tokens = loader->args.parts.items[i].token_count;
        if (loader->examples)
            token_count += count_rows(loader, i) * loader->seq;
        else
            token_count += tokens > 0 ? tokens - 1 : 0;
    }
    return token_count;
}

double sl_data_loader_epoch(const sl_data_loader *loader, uint64_t row_count)
{
    double most = NAN;
    const sl_data_loader_args *args = &loader->args;
    for (uint32_t i = 0; i < args->parts.count && args->order == SL_DATA_SHUFFLE; i++) {
        uint64_t taken = count_taken(args, i, row_count);
        most = fmax(most, (double)taken / (double)count_rows(loader, i));
        row_count -= taken;
    }
    return most;
}

/* ---- reading ---- */

static int32_t take_target(int32_t id)
{
    return id < 0 ? -1 : id;
}

static sl_status read_example_slot(const sl_data_loader *loader, const sl_example_rows *rows,
                                   uint64_t row, uint32_t slot, int32_t *out)
{
    const uint32_t seq = loader->seq, padding = (uint32_t)loader->args.end_of_text;
    if (slot == SL_INPUT_POSITIONS) {
        sl_example_rows_positions(rows, row, seq, out);
        return SL_OK;
    }
    SL_TRY(sl_example_rows_read(rows, loader->args.tokens, row, seq, padding, loader->row));
    for (uint32_t t = 0; t < seq; t++)
        out[t] = slot == SL_INPUT_TARGETS ? take_target(loader->row[t + 1])
                                          : (int32_t)sl_tokens_unmark((uint32_t)loader->row[t]);
    return SL_OK;
}

/* What an input slot has of a row that was read, [T + 1]. */
static void write_slot(const sl_data_loader *loader, const int32_t *row, uint32_t slot,
                       int32_t *out)
{
    int32_t position = 0;
    if (slot != SL_INPUT_POSITIONS) {
        memcpy(out, row + (slot == SL_INPUT_TARGETS), loader->seq * sizeof *out);
        return;
    }
    for (uint32_t t = 0; t < loader->seq; t++) {
        out[t] = position;
        position = row[t] == loader->args.end_of_text ? 0 : position + 1;
    }
}

/* What a program gives is not trusted: an id beyond the vocabulary would be read as one. */
static sl_status check_own(const sl_data_loader *loader, sl_row_range rows)
{
    const uint64_t length = (uint64_t)loader->seq + 1;
    for (uint64_t i = 0; i < rows.count * length; i++) {
        const int32_t id = loader->own_read->tokens[i];
        if (id < 0 || (uint32_t)id >= loader->args.vocab)
            SL_FAIL(SL_ERROR_DATA, "token %llu of row %llu is id %d: the model has ids 0 to %u",
                    (unsigned long long)(i % length), (unsigned long long)(rows.first + i / length),
                    id, loader->args.vocab - 1);
    }
    return SL_OK;
}

static sl_status call_own(const sl_data_loader *loader, sl_row_range rows)
{
    const sl_own_rows *own = &loader->args.own;
    struct sl_own_batch *read = loader->own_read;
    if (rows.count > loader->args.own_batch)
        SL_FAIL(SL_ERROR_INTERNAL, "%u rows at once of %u", rows.count, loader->args.own_batch);
    read->rows.count = 0;
    sl_status_guard guard;
    sl_status_guard_begin(&guard);
    const sl_status status = sl_status_guard_end(
        &guard, own->call(own->user, rows.first, rows.count, loader->seq + 1, read->tokens),
        "the function that gives rows");
    if (status != SL_OK)
        return sl_status_prefix(status, "rows %llu to %llu", (unsigned long long)rows.first,
                                (unsigned long long)(rows.first + rows.count - 1));
    SL_TRY(check_own(loader, rows));
    read->rows = rows;
    return SL_OK;
}

static sl_status read_own(const sl_data_loader *loader, sl_row_range rows, uint32_t slot,
                          int32_t *out_tokens)
{
    const struct sl_own_batch *read = loader->own_read;
    if (read->rows.count != rows.count || read->rows.first != rows.first)
        SL_TRY(call_own(loader, rows));
    for (uint32_t i = 0; i < rows.count; i++)
        write_slot(loader, read->tokens + i * ((size_t)loader->seq + 1), slot,
                   out_tokens + (size_t)i * loader->seq);
    return SL_OK;
}

sl_status sl_data_loader_read(const sl_data_loader *loader, sl_row_range rows, uint32_t slot,
                              int32_t *out_tokens)
{
    if (loader->args.own.call)
        return read_own(loader, rows, slot, out_tokens);
    for (uint32_t i = 0; i < rows.count; i++) {
        int32_t *out = out_tokens + (size_t)i * loader->seq;
        uint32_t part;
        uint64_t start;
        SL_TRY(find_start(loader, rows.first + i, &part, &start));
        if (loader->examples) {
            SL_TRY(read_example_slot(loader, &loader->examples[part], start, slot, out));
            continue;
        }
        SL_TRY(sl_tokens_read(loader->args.tokens,
                              loader->args.parts.items[part].first_token + start,
                              (uint64_t)loader->seq + 1, loader->row));
        write_slot(loader, loader->row, slot, out);
    }
    return SL_OK;
}

sl_status sl_data_loader_fill(const sl_data_loader *loader, sl_engine *engine, uint32_t plan_index,
                              sl_row_range rows)
{
    for (uint32_t slot = 0; slot < SL_INPUT_COUNT; slot++) {
        int32_t *input = sl_engine_input(engine, plan_index, slot);
        if (input != NULL) /* positions are asked for where documents are kept apart */
            SL_TRY(sl_data_loader_read(loader, rows, slot, input));
    }
    return SL_OK;
}
