/* manifest.json: what makes a directory a checkpoint. Counters, shape and configuration of the run,
 * and size and XXH3-128 of every other file.
 *
 * The last entry is the XXH3-128 of all bytes of the text before it, so a damaged manifest is
 * recognised without looking at anything else; that holds for every version to come. Unknown keys
 * are ignored, unknown files refused; a version above SL_MANIFEST_VERSION is refused by name.
 * Version 5 has adapters of LoRA, whose tensors a program that knows none would take for damage; 4
 * has states of rules other than adamw (saved_rules.h), which a program that knows none
 * would take for moments; 3 lists a tokenizer.json, 2 another vocabulary, and 1 none: so a program
 * that knows no vocabulary names the version, and not a file that it takes for damage. 1 with a
 * vocabulary is read too. Keys that came later: without "precision" a run was fp32; without "given"
 * it is not known which options of "config" were given; without "tokenizer" it was "byte" at
 * vocabulary 257, elsewhere it is not known; without "data_sample" the content of the data is not
 * known; without "chat_template", "generation_config" and "example_template" such texts
 * are not known; without "lr_decay_lag" it is 1; without "run" the run has no id; without
 * "block_xxh3_64" the checksums of a file's blocks are made when the file is read and compared with
 * its "xxh3_128".
 */
#ifndef SL_CHECKPOINT_MANIFEST_H
#define SL_CHECKPOINT_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "checkpoint.h"

enum { SL_MANIFEST_VERSION = 5, SL_MANIFEST_BYTES_MAX = 4 << 20 };

#define SL_MANIFEST_NAME "manifest.json"

/* The files that a manifest may list, in the order in which they are written. */
typedef enum sl_manifest_file {
    SL_MANIFEST_CONFIG,
    SL_MANIFEST_MODEL,
    SL_MANIFEST_MOMENT1,
    SL_MANIFEST_MOMENT2,
    SL_MANIFEST_TOKENS, /* the first that holds no group of tensors */
    SL_MANIFEST_MERGES,
    SL_MANIFEST_TOKENIZER,
    SL_MANIFEST_TOKENIZER_CONFIG,
    SL_MANIFEST_FILE_COUNT
} sl_manifest_file;

const char *sl_manifest_file_name(sl_manifest_file file);

/* The group that a file holds; SL_GROUP_COUNT for config.json and a vocabulary. */
sl_group sl_manifest_file_group(sl_manifest_file file);

typedef struct sl_manifest_entry {
    bool is_listed;
    uint64_t bytes;
    sl_hash_value hash;
    /* Checksums of the blocks of a file of tensors, as text (block_sums.h); owned. NULL: an older
     * version wrote the file, or it is no file of tensors. */
    uint64_t block_bytes;
    char *block_sums;
} sl_manifest_entry;

typedef struct sl_manifest {
    sl_checkpoint_info run; /* its texts are owned; path and has_state are not in the file */
    sl_manifest_entry files[SL_MANIFEST_FILE_COUNT];
} sl_manifest;

/* Frees the texts; a zeroed manifest is fine. */
void sl_manifest_free(sl_manifest *manifest);

/* Writes the text of manifest.json; release it with free(). SL_ERROR_USAGE: config_json is not a
 * JSON object, a counter is above 2^63 - 1, the loss scale is not finite. */
sl_status sl_manifest_format(const sl_manifest *manifest, char **out_text);

/* Checks and reads a manifest's text; `path` is for messages. SL_ERROR_DATA names file and rule. */
sl_status sl_manifest_parse(const char *path, const char *text, uint64_t bytes,
                            sl_manifest *out_manifest);

/* The manifest in the open directory `inside`, whose path is for messages. SL_ERROR_DATA: as above;
 * SL_ERROR_MISSING, SL_ERROR_IO: it cannot be opened or read. */
sl_status sl_manifest_read(int inside, const char *path, sl_manifest *out_manifest);

/* True if the manifest in `name`, which sl_manifest_read refuses, is whole and of a version above
 * SL_MANIFEST_VERSION: not damaged, but not to be read by this program. */
bool sl_manifest_is_newer(int directory, const char *path, const char *name);

#endif
