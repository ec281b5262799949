/* Tables of token ids in panels, and the embedding.
 *
 * Embedding and head share a table, in panels, so that neither all of it nor all logits are needed
 * at once. The ids are split over the tensor-parallel ranks by rows of the table. ColossalAI's
 * layout (its benchmarks of GPT-2) splits the table by columns.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/sized.h"
#include "base/status.h"
#include "build.h"

enum { NAME_BYTES = 32, ID_UNIT = 128, PANEL_UNIT = 128 };

/* The head is computed in pieces: one range of rows times one panel. Each piece adds ops, and a
 * plan takes time and memory for each op; so the number of panels is bounded, however narrow the
 * model is. */
enum { PANELS_MAX = 256 };

/* ---- panels ---- */

/* A panel of 4 * width / tp_size rows is as large as the largest matrix of a block of GPT-2. A
 * narrow model with many ids has taller panels. */
static uint64_t find_panel_rows(const sl_model *model, const sl_model_table *table)
{
    const uint64_t least = sl_bits_divide_up(table->local_ids, PANELS_MAX);
    return sl_bits_round_up(sl_bits_max(sl_model_share(model, 4 * table->width), least),
                            PANEL_UNIT);
}

sl_status sl_table_open(sl_model *model, const sl_embedding *embedding, sl_model_table **out_table)
{
    const uint32_t split = model->by_columns ? 1 : model->options->tp_size;
    sl_model_table *table = &model->tables[model->table_count];
    if (model->table_count == SL_MODEL_TABLES_MAX)
        SL_FAIL(SL_ERROR_USAGE, "%s: a model has at most %d tables", embedding->name,
                SL_MODEL_TABLES_MAX);
    if (strlen(embedding->name) > NAME_BYTES)
        SL_FAIL(SL_ERROR_USAGE, "%s: the name of a table has at most %d bytes", embedding->name,
                NAME_BYTES);
    if (sl_table_find(model, embedding->name) != NULL)
        SL_FAIL(SL_ERROR_USAGE, "two tables are called %s", embedding->name);
    if (embedding->ids == 0 || embedding->width == 0)
        SL_FAIL(SL_ERROR_USAGE, "%s: a table of %llu ids, %llu wide", embedding->name,
                (unsigned long long)embedding->ids, (unsigned long long)embedding->width);
    *table =
        (sl_model_table){.name = embedding->name,
                         .ids = embedding->ids,
                         .width = embedding->width,
                         .deviation = sl_model_deviation(embedding->deviation),
                         .columns = embedding->width,
                         .padded_ids = sl_bits_round_up(embedding->ids, (uint64_t)ID_UNIT * split)};
    if (model->by_columns)
        table->columns = sl_model_share(model, table->width);
    table->local_ids = table->padded_ids / split;
    table->panel_rows = find_panel_rows(model, table);
    table->panel_count = (uint32_t)sl_bits_divide_up(table->local_ids, table->panel_rows);
    table->panels = malloc(table->panel_count * sizeof *table->panels);
    if (table->panels == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u panels", table->panel_count);
    model->table_count++;
    *out_table = table;
    return SL_OK;
}

sl_model_table *sl_table_find(sl_model *model, const char *name)
{
    for (uint32_t t = 0; t < model->table_count; t++)
        if (strcmp(model->tables[t].name, name) == 0)
            return &model->tables[t];
    return NULL;
}

uint64_t sl_table_first_id(const sl_model *model, const sl_model_table *table, uint32_t panel)
{
    const uint64_t first = model->by_columns ? 0 : model->options->tp_rank * table->local_ids;
    return first + panel * table->panel_rows;
}

uint64_t sl_table_count_ids(const sl_model_table *table, uint32_t panel)
{
    const uint64_t rest = table->local_ids - panel * table->panel_rows;
    return rest < table->panel_rows ? rest : table->panel_rows;
}

/* Ids of a panel without padding. */
static uint64_t count_valid_ids(const sl_model *model, const sl_model_table *table, uint32_t panel)
{
    const uint64_t first_id = sl_table_first_id(model, table, panel);
    const uint64_t ids = sl_table_count_ids(table, panel);
    const uint64_t valid = table->ids > first_id ? table->ids - first_id : 0;
    return valid < ids ? valid : ids;
}

/* Sets this rank's columns. */
static void split_columns(const sl_model *model, const sl_model_table *table, sl_tensor_spec *spec)
{
    const uint64_t first = model->options->tp_rank * table->columns;
    spec->split = SL_SPLIT_COLUMNS;
    spec->shape[1] = table->columns;
    spec->first_column = sl_bits_min(first, table->width);
    spec->valid_columns = sl_bits_min(table->width - spec->first_column, table->columns);
}

static sl_status add_panel(sl_model *model, sl_model_table *table, uint32_t panel)
{
    const uint64_t ids = sl_table_count_ids(table, panel);
    sl_tensor_spec spec = {
        .dim_count = 2,
        .shape = {ids, table->width},
        .first_row = sl_table_first_id(model, table, panel),
        .valid_rows = count_valid_ids(model, table, panel),
        .whole_shape = {table->ids, table->width},
        .split = model->options->tp_size > 1 ? SL_SPLIT_ROWS : SL_SPLIT_NONE,
        .decay = true,
        .init_deviation = table->deviation,
        .is_tied = model->tied_table != SL_NONE && table == &model->tables[model->tied_table],
    };
    snprintf(spec.name, sizeof spec.name, "%.32s.weight", table->name);
    if (model->by_columns)
        split_columns(model, table, &spec);
    SL_TRY(sl_bits_multiply(ids, spec.shape[1], spec.name, &spec.element_count));
    return sl_program_add_tensor(model->program, &spec, &table->panels[panel]);
}

sl_status sl_table_add_panels(sl_model *model, sl_model_table *table)
{
    for (uint32_t panel = 0; panel < table->panel_count; panel++)
        SL_TRY(add_panel(model, table, panel));
    return SL_OK;
}

/* ---- the embedding ---- */

/* One embedding under way. */
typedef struct lookup {
    const sl_embedding *embedding;
    sl_model_table *table;
    uint32_t wpe; /* SL_NONE: no positions */
} lookup;

/* The sizes of an embedding op; a rank may hold only some columns. */
static sl_op_attrs lookup_attrs(const sl_model *model, const lookup *it)
{
    return (sl_op_attrs){
        .batch = model->options->batch, .seq = model->options->seq, .in = it->table->columns};
}

static sl_status clear(sl_model *model, const lookup *it, uint32_t x)
{
    const sl_op_attrs attrs = {.element_count = model->rows * it->table->columns};
    return sl_layer_add_op(model, SL_OP_CLEAR, &attrs, &x, 1);
}

/* Positions that differ from row to row are looked up like token ids, with wpe as the table. */
static sl_status embed_position(sl_model *model, const lookup *it, uint32_t x)
{
    sl_op_attrs attrs = lookup_attrs(model, it);
    attrs.rank_index = sl_model_splits_rows(model) ? (uint16_t)model->options->tp_rank : 0;
    if (it->wpe == SL_NONE)
        return clear(model, it, x);
    if (model->positions == SL_NONE)
        return sl_layer_add_op(model, SL_OP_EMBED_POSITION, &attrs, (uint32_t[]){it->wpe, x}, 2);
    attrs.id_count = it->embedding->context;
    SL_TRY(clear(model, it, x));
    return sl_layer_add_op(model, SL_OP_EMBED_TOKENS, &attrs,
                           (uint32_t[]){model->positions, it->wpe, x}, 3);
}

static sl_status embed_tokens(sl_model *model, const lookup *it, uint32_t x)
{
    for (uint32_t panel = 0; panel < it->table->panel_count; panel++) {
        sl_op_attrs attrs = lookup_attrs(model, it);
        attrs.first_id = sl_table_first_id(model, it->table, panel);
        attrs.id_count = sl_table_count_ids(it->table, panel);
        const uint32_t operands[] = {model->tokens, it->table->panels[panel], x};
        SL_TRY(sl_layer_add_op(model, SL_OP_EMBED_TOKENS, &attrs, operands, 3));
    }
    return SL_OK;
}

/* With sequence parallelism: each rank looks up its ids for all rows, and receives its rows of the
 * sum over the ranks. Only rank 0 adds positions. */
static sl_status embed_shared(sl_model *model, const lookup *it, uint32_t *out_x)
{
    uint32_t terms;
    SL_TRY(sl_layer_add_activation(model, "embedding", ".terms", model->program->type,
                                   it->table->width, &terms));
    SL_TRY(embed_position(model, it, terms));
    SL_TRY(embed_tokens(model, it, terms));
    return sl_layer_scatter_rows(model, "embedding", terms, it->table->width, out_x);
}

/* Each rank holds some ids: the sum over the ranks has all tokens; positions are added after it,
 * once. */
static sl_status embed_split(sl_model *model, const lookup *it, uint32_t x)
{
    const sl_op_attrs attrs = {.element_count = model->rows * it->table->width};
    uint32_t position = SL_NONE;
    if (it->wpe != SL_NONE) {
        SL_TRY(sl_layer_add_activation(model, "position", "", model->program->type,
                                       it->table->width, &position));
        SL_TRY(embed_position(model, it, position));
    }
    SL_TRY(clear(model, it, x));
    SL_TRY(embed_tokens(model, it, x));
    SL_TRY(sl_layer_add_op(model, SL_OP_ALL_REDUCE, &attrs, &x, 1));
    if (position == SL_NONE)
        return SL_OK;
    return sl_layer_add_op(model, SL_OP_ADD, &attrs, (uint32_t[]){position, x}, 2);
}

/* Each rank holds some columns of the table: it looks up its columns of all rows, and gathers the
 * rest. */
static sl_status embed_columns(sl_model *model, const lookup *it, uint32_t *out_x)
{
    sl_model_tensor part = {SL_NONE, it->table->width, it->table->columns, "embedding"};
    SL_TRY(sl_layer_add_activation(model, "embedding", ".part", model->program->type,
                                   it->table->columns, &part.value));
    SL_TRY(embed_position(model, it, part.value));
    SL_TRY(embed_tokens(model, it, part.value));
    return sl_layer_gather_columns(model, &part, "", out_x);
}

static sl_status embed(sl_model *model, const lookup *it, uint32_t *out_x)
{
    if (sl_model_splits_rows(model))
        return embed_shared(model, it, out_x);
    if (model->by_columns)
        return embed_columns(model, it, out_x);
    SL_TRY(sl_layer_add_activation(model, "embedding", "", model->program->type, it->table->width,
                                   out_x));
    if (model->options->tp_size > 1)
        return embed_split(model, it, *out_x);
    SL_TRY(embed_position(model, it, *out_x));
    return embed_tokens(model, it, *out_x);
}

/* Panels before positions, so that a short last panel shares the chunk of the positions. */
static sl_status emit_embedding(sl_model *model, lookup *it, sl_model_tensor *made)
{
    const sl_embedding *embedding = it->embedding;
    const sl_layer_tensor wpe = {embedding->positions,
                                 "weight",
                                 .rows = embedding->context,
                                 .columns = it->table->columns,
                                 .whole_columns = embedding->width,
                                 .split = model->by_columns ? SL_SPLIT_COLUMNS : SL_SPLIT_NONE,
                                 .split_whole = embedding->width,
                                 .deviation = sl_model_deviation(embedding->deviation)};
    SL_TRY(sl_model_open_segment(model));
    SL_TRY(sl_table_add_panels(model, it->table));
    if (embedding->positions != NULL)
        SL_TRY(sl_layer_add_tensor(model, &wpe, &it->wpe));
    return embed(model, it, &made->value);
}

static sl_status make_embedding(sl_model *model, const sl_embedding *embedding,
                                sl_model_tensor *made)
{
    lookup it = {.embedding = embedding, .wpe = SL_NONE};
    if (embedding->name == NULL)
        SL_FAIL(SL_ERROR_USAGE, "an embedding without a name");
    if (model->region != SL_REGION_FIRST)
        SL_FAIL(SL_ERROR_USAGE, "%s: an embedding behind the first block", embedding->name);
    if (embedding->positions != NULL && model->options->seq > embedding->context)
        SL_FAIL(SL_ERROR_USAGE, "rows of %u tokens: the model has positions for %llu",
                model->options->seq, (unsigned long long)embedding->context);
    if (model->cache_rows == 0)
        model->cache_rows = embedding->context;
    SL_TRY(sl_table_open(model, embedding, &it.table));
    *made = (sl_model_tensor){SL_NONE, embedding->width, embedding->width};
    snprintf(made->name, sizeof made->name, "%s", embedding->name);
    return sl_model_is_here(model) ? emit_embedding(model, &it, made) : SL_OK;
}

sl_tensor sl_embed_sized(sl_model *model, const sl_embedding *embedding, size_t bytes)
{
    sl_model_tensor made = {.value = SL_NONE};
    sl_embedding known;
    sl_status status = sl_sized_take("sl_embedding", embedding, bytes, &known, sizeof known);
    if (status == SL_OK)
        status = model->status == SL_OK ? make_embedding(model, &known, &made) : model->status;
    return sl_model_return(model, status, &made);
}
