/* A model handed to other programs: its parameters, streamed tensor by tensor from where they are
 * into a file or directory of another format, within SL_CONVERT_MEMORY_BYTES of memory and what the
 * names and the vocabulary take, whatever the size of the model.
 *
 *   HF       a Hugging Face directory: config.json, generation_config.json, a chat template if one
 *            is known, model.safetensors, or its shards with an index, and with a vocabulary
 *            vocab.json, merges.txt, tokenizer_config.json and special_tokens_map.json
 *   GGUF     one file for llama.cpp and ggml; vectors, norms and positions stay fp32, and in q8_0 a
 *            tensor whose rows are not whole blocks is fp16, as llama.cpp's own converter has it
 *   LLMC     llm.c's model in fp32 or bf16; with a vocabulary its tokenizer beside it,
 *            NAME_tokenizer.bin
 *   WEIGHTS  one safetensors file under the names of the architecture's published
 *            files, without a prefix
 *   MEGATRON a directory of Megatron-LM's pieces for tp_size x pp_size ranks, under Megatron Core's
 *            names (megatron_model.h)
 *   PEFT     the adapters of the model alone, a directory as PEFT has it (adapter.h)
 *   CHECKPOINT a --save directory with one checkpoint in it, of pieces that have an optimizer's
 *            states: parameters, both moments of AdamW and the step (target_checkpoint.c)
 */
#ifndef SL_FOREIGN_CONVERT_CONVERT_H
#define SL_FOREIGN_CONVERT_CONVERT_H

#include "files/encoding.h"
#include "model_reader.h"
#include "text/vocabulary.h"

typedef enum sl_convert_format {
    SL_CONVERT_HF,
    SL_CONVERT_GGUF,
    SL_CONVERT_LLMC,
    SL_CONVERT_WEIGHTS,
    SL_CONVERT_MEGATRON,
    SL_CONVERT_PEFT,
    SL_CONVERT_CHECKPOINT
} sl_convert_format;

enum {
    SL_CONVERT_BLOCK_ELEMENTS = 1 << 22,
    SL_CONVERT_MEMORY_BYTES = 3 * 4 * SL_CONVERT_BLOCK_ELEMENTS /* 48 MiB */
};

typedef struct sl_convert_args {
    const sl_model_reader *reader;
    const char *to;
    sl_convert_format format;
    sl_encoding encoding;
    uint32_t tp_size, pp_size; /* of MEGATRON; else 1 */
    uint64_t shard_bytes;      /* of HF: so many bytes of tensors a file; 0: one file */
    bool overwrites;
    const sl_vocabulary *vocabulary; /* NULL: none is known */
    /* Called between blocks of some MiB; what it returns but SL_OK ends the conversion. May be
     * NULL. */
    sl_status (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
} sl_convert_args;

enum { SL_CONVERT_BASE_BYTES = 4096 };

typedef struct sl_convert_report {
    uint32_t tensor_count;
    uint64_t parameter_count;
    uint64_t bytes;                   /* of the files of the parameters */
    char base[SL_CONVERT_BASE_BYTES]; /* of PEFT: path or name of the adapters' base; "": their
                                         base has no name, or another format */
} sl_convert_report;

/* Whether a format has an encoding. SL_ERROR_USAGE names those that it has. */
sl_status sl_convert_check(sl_convert_format format, sl_encoding encoding);

/* Converts. On failure nothing has its name, and the temporary is gone. SL_ERROR_USAGE: the format
 * does not go with the encoding, the model has adapters that are neither merged nor all that is
 * written, or it has none for PEFT, there would be more than SL_MODEL_FILES_MAX shards, or what is
 * at `to` may not be replaced. SL_ERROR_FIT: the disk has not the space. SL_ERROR_DATA: names file
 * and tensor. SL_ERROR_IO. */
sl_status sl_convert_run(const sl_convert_args *args, sl_convert_report *out_report);

#endif
