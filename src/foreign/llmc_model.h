/* llm.c's checkpoints of a model (its train_gpt2.py and train_gpt2.cu): 256 int32 words in front,
 * then all parameters, each of one kind for all layers before the next kind.
 *
 *   words    20240326; version 3 (fp32) or 5 (bf16); context, vocabulary, layers, heads, width,
 *            vocabulary with padding; zeros
 *   weights  of linear layers are [out, in], as torch.nn.Linear has them; the rows of wte are
 *            padded with zeros
 *
 * Knows the layout alone, and holds a file to it: its size is exactly what the words need.
 */
#ifndef SL_FOREIGN_LLMC_MODEL_H
#define SL_FOREIGN_LLMC_MODEL_H

#include <stdint.h>

#include "files/encoding.h"
#include "files/files.h"

enum { SL_LLMC_HEADER_WORDS = 256, SL_LLMC_PADDING = 128 /* what the padded vocabulary divides */ };

/* The kinds of tensors in the order of the file, with their sizes in units of the width, or by
 * name: X(name, rows, columns, of each layer). A vector has one column. */
#define SL_LLMC_KINDS(X)                                                                           \
    X(WTE, PADDED_VOCAB, 1, false)                                                                 \
    X(WPE, CONTEXT, 1, false)                                                                      \
    X(LN_1_WEIGHT, 1, 0, true)                                                                     \
    X(LN_1_BIAS, 1, 0, true)                                                                       \
    X(QKV_WEIGHT, 3, 1, true)                                                                      \
    X(QKV_BIAS, 3, 0, true)                                                                        \
    X(ATTENTION_OUT_WEIGHT, 1, 1, true)                                                            \
    X(ATTENTION_OUT_BIAS, 1, 0, true)                                                              \
    X(LN_2_WEIGHT, 1, 0, true)                                                                     \
    X(LN_2_BIAS, 1, 0, true)                                                                       \
    X(MLP_IN_WEIGHT, 4, 1, true)                                                                   \
    X(MLP_IN_BIAS, 4, 0, true)                                                                     \
    X(MLP_OUT_WEIGHT, 1, 4, true)                                                                  \
    X(MLP_OUT_BIAS, 1, 0, true)                                                                    \
    X(LN_F_WEIGHT, 1, 0, false)                                                                    \
    X(LN_F_BIAS, 1, 0, false)

typedef enum sl_llmc_kind {
#define SL_LLMC_ENUM(name, rows, columns, of_layer) SL_LLMC_##name,
    SL_LLMC_KINDS(SL_LLMC_ENUM)
#undef SL_LLMC_ENUM
        SL_LLMC_KIND_COUNT
} sl_llmc_kind;

typedef struct sl_llmc_shape {
    uint32_t context, vocab, layers, heads, width, padded_vocab;
} sl_llmc_shape;

/* Where one tensor is. */
typedef struct sl_llmc_place {
    uint64_t rows, columns;
    uint64_t first_element; /* behind the words */
    bool is_of_layer;
} sl_llmc_place;

/* The place of a tensor of a checked shape; `layer` counts where there is one of each. */
sl_llmc_place sl_llmc_find(const sl_llmc_shape *shape, sl_llmc_kind kind, uint32_t layer);

/* Checks a shape and counts the elements of all tensors. SL_ERROR_DATA: a size is 0, above 2^30 or
 * does not go with another, or the count overflows. */
sl_status sl_llmc_check(const sl_llmc_shape *shape, uint64_t *out_element_count);

/* Writes the words in front of a model; FP32 or BF16. */
void sl_llmc_format_header(const sl_llmc_shape *shape, sl_encoding encoding,
                           int32_t out_words[SL_LLMC_HEADER_WORDS]);

/* An open file. */
typedef struct sl_llmc_model {
    sl_file file;
    sl_llmc_shape shape;
    sl_encoding encoding;
} sl_llmc_model;

/* Opens and checks; see sl_files_open for the arguments and the statuses of opening. SL_ERROR_DATA
 * names the file and the rule that it breaks. */
sl_status sl_llmc_model_open(int directory, const char *directory_path, const char *name,
                             sl_llmc_model **out_model);

/* NULL is fine. */
void sl_llmc_model_close(sl_llmc_model *model);

/* Reads elements of the file, counted behind its words, as fp32. SL_ERROR_USAGE: beyond the end.
 * SL_ERROR_DATA: the file was cut. SL_ERROR_IO. */
sl_status sl_llmc_model_read(const sl_llmc_model *model, uint64_t first_element,
                             uint64_t element_count, float *out_data);

#endif
