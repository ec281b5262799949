/* What a format does with the tensors of a conversion. The walk over them is in convert.c. */
#ifndef SL_FOREIGN_CONVERT_TARGET_H
#define SL_FOREIGN_CONVERT_TARGET_H

#include "convert.h"
#include "foreign/gguf.h"
#include "output.h"

/* Rows and columns of a tensor as the target has it: all of them, or what one file gets. */
typedef struct sl_target_part {
    uint64_t first_row, row_count;
    uint64_t first_column, column_count;
} sl_target_part;

typedef struct sl_target_item {
    sl_foreign_tensor tensor;
    sl_encoding encoding;
    sl_target_part part;
    uint64_t padding_elements; /* zeros behind it */
    uint64_t pair_rows;  /* rows of a head, whose halves are written in turns; 0: as they are */
    const float *values; /* [part.row_count]: of a tensor that the source lacks; else NULL */
} sl_target_item;

typedef struct sl_target {
    const sl_convert_args *args;
    sl_target_item *items; /* [item_count], in the order of the data */
    uint32_t item_count;
    bool is_out_in;           /* linear weights are [out, in] */
    uint64_t total_bytes;     /* of the files of the parameters */
    uint64_t other_bytes;     /* that stand beside, where they grow with the model */
    sl_output output, beside; /* of the parameters, and of llm.c's tokenizer */
    /* Of one format or the other; closed by sl_target_close. */
    sl_foreign_tensor_name *names; /* [item_count] */
    sl_safetensors_plan *plans;    /* [item_count] */
    sl_safetensors_writer *safetensors;
    struct sl_weight_shards *shards;
    sl_gguf *gguf;
    float *rotary_divisors;
    sl_file file;
    uint64_t pushed_bytes;
    struct sl_megatron_pieces *pieces;
    struct sl_peft_tensors *peft;
    uint32_t tensor_count;            /* of PEFT; else 0: those of the model */
    uint64_t parameter_count;         /* likewise */
    char base[SL_CONVERT_BASE_BYTES]; /* of PEFT; see sl_convert_report */
} sl_target;

/* A format. All entries are there but `close`; each is called once, but `append`. */
typedef struct sl_target_ops {
    bool is_directory;
    /* Fills in items, is_out_in and bytes; makes nothing. */
    sl_status (*plan)(sl_target *target);
    /* Makes the file, and writes what stands before the data. */
    sl_status (*start)(sl_target *target);
    sl_status (*append)(sl_target *target, const void *stored, uint64_t bytes);
    /* Syncs the file and makes those beside it. */
    sl_status (*finish)(sl_target *target);
    void (*close)(sl_target *target); /* what is the format's own; NULL: nothing */
} sl_target_ops;

extern const sl_target_ops sl_target_hf, sl_target_weights, sl_target_gguf, sl_target_llmc,
    sl_target_megatron, sl_target_peft;

/* The format that is no walk over items: a checkpoint, which has a writer of its own. Statuses of
 * sl_convert_run. */
sl_status sl_target_save_checkpoint(const sl_convert_args *args, sl_convert_report *out_report);

/* Takes memory for the items, and for one more, and puts all tensors there in the model's order, in
 * the encoding of the arguments. */
sl_status sl_target_list(sl_target *target);

/* All of a tensor. */
sl_target_part sl_target_whole(const sl_target *target, const sl_foreign_tensor *tensor);

/* The id of the end of text: what the run's --end-of-text named, or the vocabulary's, else the last
 * one, as in GPT-2. */
uint32_t sl_target_end_of_text(const sl_target *target);

#endif
