/* What torch.save writes: a tree of Python values with tensors in it, whose elements lie behind.
 *
 *   zip     since PyTorch 1.6: members "NAME/data.pkl" (the pickle) and "NAME/data/KEY" (a storage
 *           each), stored and not packed
 *   before  one pickle each of a magic number, the version 1001, sizes of the system's types, the
 *           tree, and the keys of all storages; then each storage, its element count in front
 *
 * Nothing of a pickle is executed (pickle.h). Tensors are read from their storages in runs, and
 * only those that are asked for; they have to be contiguous there, of fp32, bf16 or fp16. Every
 * offset and count is held to the file before it is used.
 *
 * Checksums: an archive has a CRC-32 of each member. data.pkl and byteorder are compared when the
 * file is opened, a storage when the first of its elements are read: all of the storage is then
 * read once, by blocks whose own sums are kept, and later reads are held to those (block_sums.h).
 * So what is given out is what was checked. Not checked are members that were written without a
 * checksum (torch.serialization.set_crc32_options(False) leaves 0 there), and files of before
 * archives, which have none.
 */
#ifndef SL_FOREIGN_TORCH_TORCH_FILE_H
#define SL_FOREIGN_TORCH_TORCH_FILE_H

#include "files/block_sums.h"
#include "files/encoding.h"
#include "files/files.h"
#include "pickle.h"

enum { SL_TORCH_DIMS_MAX = 8 };

typedef struct sl_torch_tensor {
    sl_encoding encoding;
    uint32_t dim_count;
    uint64_t shape[SL_TORCH_DIMS_MAX];
    uint64_t element_count;
    uint64_t first_byte;    /* in the file */
    uint32_t storage_index; /* of its storage */
} sl_torch_tensor;

/* Elements of one type that tensors look into. */
typedef struct sl_torch_storage {
    const sl_pickle_value *key;
    const char *type; /* "FloatStorage"; not ended by a NUL */
    uint32_t type_bytes;
    uint64_t element_count;
    uint64_t first_byte; /* in the file */
} sl_torch_storage;

/* What an archive says of the bytes of a storage; kept when the tree is gone. */
typedef struct sl_torch_member {
    char *name; /* "data/KEY"; owned */
    uint64_t first_byte, bytes;
    uint32_t checksum; /* CRC-32; 0: none */
    bool is_checked;
} sl_torch_member;

/* One thread at a time. */
typedef struct sl_torch_file {
    sl_file file;
    const sl_pickle_value *root;
    sl_pickle *pickle;
    void *text;                 /* what the pickle points into */
    sl_torch_storage *storages; /* [storage_count], by key */
    uint32_t storage_count;
    sl_torch_member *members; /* [member_count], one a storage; NULL: before archives */
    uint32_t member_count;
    bool is_unchecked;       /* some of what is read has no checksum */
    sl_block_reader *blocks; /* of the storages that were checked; NULL: of none yet */
} sl_torch_file;

/* Opens a file and reads its tree. SL_ERROR_DATA names the file and the rule that it breaks; see
 * sl_files_open for the other statuses. */
sl_status sl_torch_file_open(const char *path, sl_torch_file *out_file);

/* The same of what torch.save wrote into a part of a larger file, as torch's distributed
 * checkpoints have it. `whole` is borrowed and has to outlive it. */
sl_status sl_torch_file_open_part(const sl_file *whole, uint64_t first_byte, uint64_t bytes,
                                  sl_torch_file *out_file);

/* Frees the tree and keeps the file, whose tensors can be read on. */
void sl_torch_file_drop_tree(sl_torch_file *file);

/* A zeroed one is fine. */
void sl_torch_file_close(sl_torch_file *file);

/* Where the tensor (or parameter) lies that a value of the tree is. SL_ERROR_DATA: it is none, or
 * none that is read; the message starts as a sentence about it. */
sl_status sl_torch_file_find(const sl_torch_file *file, const sl_pickle_value *value,
                             sl_torch_tensor *out_tensor);

/* Reads elements as fp32. SL_ERROR_DATA: the file was cut, or the storage is not the one that its
 * checksum was made of. SL_ERROR_IO. */
sl_status sl_torch_file_read(sl_torch_file *file, const sl_torch_tensor *tensor,
                             uint64_t first_element, uint64_t element_count, float *out_data);

#endif
