/* Tensors that other programs divided: each lies as rectangles of elements, its parts, in archives
 * of torch.save (torch/torch_file.h), one or more of them in a file.
 *
 * Knows no names of models and no layout of a directory: a reader of one adds files, archives,
 * places, tensors and their parts, and ends with sl_parts_finish. A tensor is a matrix here: one of
 * a dimension is a column, one of three has the rows of all its matrices one after the other.
 *
 * Invariants once it is finished: names are unique; the parts of a tensor cover each of its
 * elements once. Archives are opened when they are asked for, and a few are kept open. Each time
 * that an archive is opened, its tensors are compared with the type and size that were said; its
 * checksum is compared when it is read.
 */
#ifndef SL_FOREIGN_PIECES_PARTS_H
#define SL_FOREIGN_PIECES_PARTS_H

#include "foreign/torch/torch_file.h"

enum {
    SL_PARTS_DIMS_MAX = 3,
    SL_PARTS_OPEN_MAX = 64, /* archives that are open at once, beside those that stay */
    SL_PARTS_FILES_MAX = 1 << 16
};

/* Tensors of this many dimensions and sizes. */
typedef struct sl_parts_shape {
    uint32_t dim_count;
    uint64_t sizes[SL_PARTS_DIMS_MAX];
} sl_parts_shape;

/* A tensor of an archive. */
typedef struct sl_parts_place {
    uint32_t archive;
    bool is_found;
    sl_torch_tensor tensor; /* once it is found */
    sl_parts_shape shape;   /* that it has to have */
    sl_encoding encoding;   /* likewise */
    bool has_shape;         /* else it may have any so far, and keeps the first */
} sl_parts_place;

typedef struct sl_parts_archive {
    uint32_t file;
    uint64_t first_byte, bytes; /* in the file */
    uint32_t place;             /* its one tensor; of an archive that stays SL_NONE */
    sl_torch_file *open;        /* NULL: it is not open */
    uint64_t turn;              /* when it was used last */
} sl_parts_archive;

/* A rectangle of a tensor's matrix. */
typedef struct sl_part {
    uint64_t first_row, row_count, first_column, column_count;
    uint32_t place;
    uint64_t first_element; /* in the tensor of that place, where its rows follow each other */
} sl_part;

typedef struct sl_parted {
    char *name; /* owned */
    sl_parts_shape shape;
    uint64_t rows, columns; /* as a matrix */
    sl_part *parts;         /* owned: [part_count], by row and column */
    uint32_t part_count, part_capacity;
    bool are_bands; /* each part has all columns */
} sl_parted;

/* One thread at a time. */
typedef struct sl_parts {
    sl_file **files; /* [file_count], at addresses that stay: archives borrow them */
    sl_parts_archive *archives;
    sl_parts_place *places;
    sl_parted *tensors; /* by name, once finished */
    uint32_t file_count, archive_count, place_count, tensor_count;
    uint32_t file_capacity, archive_capacity, place_capacity, tensor_capacity;
    uint32_t open_count; /* archives that are open and do not stay */
    uint64_t turn;
    float *room;       /* rows of a part that has some columns */
    bool is_unchecked; /* an archive that was opened has no checksums */
} sl_parts;

/* A zeroed one is empty, and fine to close. */
void sl_parts_close(sl_parts *parts);

/* Opens a file of a directory. SL_ERROR_DATA: it is a symbolic link, or there are too many. */
sl_status sl_parts_add_file(sl_parts *parts, const char *directory, const char *name,
                            uint32_t *out_file);

/* Where an archive with one tensor lies. */
typedef struct sl_parts_range {
    uint32_t file;
    uint64_t first_byte, bytes; /* of the file */
} sl_parts_range;

/* An archive with one tensor, to be opened when it is asked for; of any size where `shape` is NULL.
 * SL_ERROR_DATA: the file ends before. */
sl_status sl_parts_add_archive(sl_parts *parts, sl_parts_range range, const sl_parts_shape *shape,
                               sl_encoding encoding, uint32_t *out_place);

/* A tensor of this name that is all of one file of a directory, or the value of its key "param"; of
 * any size and type that the file says. SL_ERROR_DATA, SL_ERROR_MISSING, SL_ERROR_IO. */
sl_status sl_parts_add_whole(sl_parts *parts, const char *directory, const char *file_name,
                             const char *name);

/* An archive of many tensors, all of a file: it is open with its tree, and stays open. The places
 * of its tensors are found with sl_parts_add_place; then sl_torch_file_drop_tree is for the tree.
 */
sl_status sl_parts_open_archive(sl_parts *parts, uint32_t file, uint32_t *out_archive);
sl_status sl_parts_add_place(sl_parts *parts, uint32_t archive, const sl_torch_tensor *tensor,
                             uint32_t *out_place);

/* A tensor without parts so far. SL_ERROR_DATA: a product of its sizes overflows. */
sl_status sl_parts_add_tensor(sl_parts *parts, const char *name, uint32_t name_bytes,
                              const sl_parts_shape *shape, uint32_t *out_tensor);

/* A part of it. SL_ERROR_DATA: it is not within the tensor. */
sl_status sl_parts_add_part(sl_parts *parts, uint32_t tensor, const sl_part *part);

/* Sorts, and checks names and that each tensor is covered. The message starts with the name of a
 * tensor. */
sl_status sl_parts_finish(sl_parts *parts);

/* NULL: there is none of this name. */
const sl_parted *sl_parts_find(const sl_parts *parts, const char *name);

/* Opens the archives of a tensor and compares what they hold with what was said of them; their
 * elements are not read. */
sl_status sl_parts_check(sl_parts *parts, const sl_parted *tensor);

/* Reads elements, row-major, as fp32. SL_ERROR_DATA: an archive is not what was said of it, or
 * damaged. SL_ERROR_IO. */
sl_status sl_parts_read(sl_parts *parts, const sl_parted *tensor, uint64_t first_element,
                        uint64_t element_count, float *out_data);

#endif
