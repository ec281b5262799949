/* A model while it is built: what the layers share. Private to the room. */
#ifndef SL_MODEL_BUILD_H
#define SL_MODEL_BUILD_H

#include "architecture.h"
#include "base/status.h"

enum { SL_MODEL_NAME_BYTES = 40, SL_MODEL_TABLES_MAX = 4 };

/* What a handle stands for. */
typedef struct sl_model_tensor {
    uint32_t value;                 /* of the program; SL_NONE: it is on another stage */
    uint64_t features;              /* of all ranks together */
    uint64_t local;                 /* of this rank; less than `features`: it has some of them */
    char name[SL_MODEL_NAME_BYTES]; /* of the layer that made it, without that of the block */
    uint32_t gathered;              /* the rows of all ranks, once a layer has read them; SL_NONE */
    bool may_take;                  /* sl_drop_add may take its memory: no gradient reads it */
    bool is_shared; /* several ranks have these features, each for query heads of its own */
    bool is_read;   /* by a layer */
    bool is_taken;  /* its memory holds a sum now */
} sl_model_tensor;

/* A table of token ids. It is divided into panels (runs of rows), so that neither all of it nor all
 * logits are needed at once. */
typedef struct sl_model_table {
    const char *name; /* the embedding's */
    uint64_t ids, width;
    float deviation;
    uint64_t columns;    /* on this rank, padded with zeros if the width does not divide */
    uint64_t padded_ids; /* of all ranks */
    uint64_t local_ids;  /* of this rank */
    uint64_t panel_rows; /* of every panel but the last */
    uint32_t panel_count;
    uint32_t *panels; /* [panel_count] parameter values */
} sl_model_table;

typedef enum sl_model_region { SL_REGION_FIRST, SL_REGION_BLOCK, SL_REGION_LAST } sl_model_region;

struct sl_model {
    const sl_model_options *options;
    sl_program *program;
    sl_status status; /* the first error, and its message */
    char message[SL_STATUS_MESSAGE_BYTES];

    uint64_t rows;        /* B * T */
    uint64_t hidden_rows; /* rows of the hidden states on this rank: all, or B*T / tp_size */
    bool by_columns;      /* ranks hold tables and gathered linears by columns */
    uint64_t head_rows;   /* rows that the head computes on this rank */
    uint64_t cache_rows;  /* tokens that a cache holds; 0: not known yet */

    sl_model_tensor *tensors;
    uint32_t tensor_count, tensor_capacity;
    sl_model_table tables[SL_MODEL_TABLES_MAX];
    uint32_t table_count;

    sl_model_region region;
    bool has_segment; /* a segment was started in this region */
    bool only_counts; /* no layer is on this stage: the blocks are counted */
    uint32_t block;   /* the present one */
    uint32_t block_count;
    uint32_t first_block, block_end; /* of this stage */
    uint32_t received, sent; /* the tensor that came from, and went to, another stage; or SL_NONE */
    bool has_head;
    bool has_copies;                  /* the last stage has its copy of the tied table */
    uint32_t tied_table;              /* whose embedding and head are tied; SL_NONE: none */
    char prefix[SL_MODEL_NAME_BYTES]; /* of names in the block: "h.3." */
    uint32_t site_count;              /* places where elements may be dropped */
    uint32_t slot_count;              /* persistent slots of the program */
    uint32_t constant_values[SL_CONSTANTS_MAX]; /* of the program's constants, in their order */
    uint32_t tokens, targets, positions;        /* inputs; SL_NONE: there is none */
};

/* ---- model.c ---- */

/* sl_model_emit; fills in layers, width, context and vocabulary of *shape, too. */
sl_status sl_model_emit_sizes(sl_build build, const void *user, const sl_model_options *options,
                              sl_model_shape *shape, sl_program **out_forward);

/* True if the present layer belongs to this stage. Any layer asks before it uses its operands. */
bool sl_model_is_here(const sl_model *model);

/* Keeps the first error. */
void sl_model_note(sl_model *model, sl_status status);

/* What a handle stands for, for a layer that reads it: a tensor that crosses the border of a stage
 * is received or sent. */
sl_status sl_model_use(sl_model *model, sl_tensor handle, sl_model_tensor *out_tensor);

/* sl_model_use for a layer that computes head by head: ranks may share the heads. A shared tensor
 * has all rows. */
sl_status sl_model_use_heads(sl_model *model, sl_tensor handle, sl_model_tensor *out_tensor);

/* Starts the region's segment if none was. After the operands are used, before anything is added.
 */
sl_status sl_model_open_segment(sl_model *model);

/* With stages, the last one has a copy of the table that the head shares with the embedding: adds
 * it, once. */
sl_status sl_model_add_copy(sl_model *model);

/* The handle of a layer's output, if all went well. */
sl_tensor sl_model_return(sl_model *model, sl_status status, const sl_model_tensor *made);

/* Features of each rank: a multiple of 8 if `features` is not a multiple of tp_size. */
uint64_t sl_model_share(const sl_model *model, uint64_t features);

/* A place where elements may be dropped: a number that no other place of the model has. */
uint32_t sl_model_number_site(sl_model *model);

/* The next persistent slot of the program. */
uint32_t sl_model_number_slot(sl_model *model);

/* True with sequence parallelism: this rank has only some rows of the hidden states. */
static inline bool sl_model_splits_rows(const sl_model *model)
{
    return model->hidden_rows < model->rows;
}

/* Of initial values; a program that gives none means GPT-2's. */
static inline float sl_model_deviation(float given)
{
    return given != 0 ? given : 0.02f;
}

static inline bool sl_model_has_stages(const sl_model *model)
{
    return model->options->stage_count > 1;
}

static inline bool sl_model_has_targets(const sl_model *model)
{
    return model->options->mode == SL_MODEL_LOSS || model->options->mode == SL_MODEL_STATS;
}

/* ---- values.c: what a program is given ---- */

/* A tensor made by layer `name`, with all features on each rank; its value is not made yet. */
sl_model_tensor sl_layer_describe(const char *name, uint64_t features);

/* For a layer over all features: a rank that has some of them cannot compute it. */
sl_status sl_layer_check_whole(const char *name, const sl_model_tensor *x);

/* For a layer of two inputs, which have the same features and rows on each rank. */
sl_status sl_layer_check_alike(const sl_model *model, const char *name, const sl_model_tensor *x,
                               const sl_model_tensor *z);

/* A parameter tensor of a layer. */
typedef struct sl_layer_tensor {
    const char *layer, *name;           /* "attn.c_attn", "weight" */
    uint64_t rows, columns;             /* on this rank; columns 0: a vector of `rows` */
    uint64_t whole_rows, whole_columns; /* of the whole tensor; 0: as this rank's */
    sl_split split;                     /* with tp_size > 1 */
    uint64_t split_whole;  /* features of the whole split axis (QKV: of q, k and v each) */
    uint32_t replicas;     /* COLUMNS: ranks that store the same part; 0: one */
    float mean, deviation; /* of the initial values */
    float bound;           /* not 0: initial values are uniform in [-bound, bound) */
    bool is_adapter;       /* of LoRA */
} sl_layer_tensor;

sl_status sl_layer_add_tensor(sl_model *model, const sl_layer_tensor *tensor, uint32_t *out_value);

/* Appends an ACTIVATION of `elements` numbers for each row: of the micro-batch (add_activation), or
 * of the hidden states on this rank (add_hidden). `note` stands behind the name; "" for none. */
sl_status sl_layer_add_hidden(sl_model *model, const char *name, const char *note, sl_type type,
                              uint64_t elements, uint32_t *out_value);
sl_status sl_layer_add_activation(sl_model *model, const char *name, const char *note, sl_type type,
                                  uint64_t elements, uint32_t *out_value);

/* Sets the bytes of `value` to `rows` rows of `columns` numbers of its type, and appends it. */
sl_status sl_layer_add_rows(sl_model *model, sl_value *value, uint64_t rows, uint64_t columns,
                            uint32_t *out_value);

/* sl_program_add_op with attrs->type set to the compute type. */
sl_status sl_layer_add_op(sl_model *model, sl_op_kind kind, const sl_op_attrs *attrs,
                          const uint32_t *operands, uint32_t operand_count);

/* Gathers the rows of all ranks of the hidden states; y is x if x has all rows. */
sl_status sl_layer_gather_rows(sl_model *model, const char *name, uint32_t x, uint64_t features,
                               uint32_t *out_y);

/* Rows of x on this rank: those of the micro-batch, or of the hidden states; 0: it is on another
 * stage. */
uint64_t sl_layer_count_rows(const sl_model *model, const sl_model_tensor *x);

/* Appends an ACTIVATION of the compute type with as many rows as x and `elements` numbers a row. */
sl_status sl_layer_add_alike(sl_model *model, const sl_model_tensor *x, const char *name,
                             const char *note, uint64_t elements, uint32_t *out_value);

/* sl_model_use for a layer that reads all rows: if this rank has some of them, those of all ranks
 * are gathered, once. */
sl_status sl_layer_use_rows(sl_model *model, sl_tensor handle, sl_model_tensor *out_tensor);

/* Likewise, of sl_model_use_heads. */
sl_status sl_layer_use_head_rows(sl_model *model, sl_tensor handle, sl_model_tensor *out_tensor);

/* Sums `terms` [B, T, features] over the ranks and writes this rank's rows of the sum. */
sl_status sl_layer_scatter_rows(sl_model *model, const char *name, uint32_t terms,
                                uint64_t features, uint32_t *out_y);

/* Gathers y [B, T, x->features] from x [B, T, x->local] of each rank; y is called x->name and
 * `note`. */
sl_status sl_layer_gather_columns(sl_model *model, const sl_model_tensor *x, const char *note,
                                  uint32_t *out_y);

/* ---- table.c ---- */

/* Notes a table; its panels are not added yet. */
sl_status sl_table_open(sl_model *model, const sl_embedding *embedding, sl_model_table **out_table);

/* NULL: no table has the name. */
sl_model_table *sl_table_find(sl_model *model, const char *name);

/* Adds the table's panels to the program. */
sl_status sl_table_add_panels(sl_model *model, sl_model_table *table);

uint64_t sl_table_first_id(const sl_model *model, const sl_model_table *table, uint32_t panel);
uint64_t sl_table_count_ids(const sl_model_table *table, uint32_t panel);

#endif
