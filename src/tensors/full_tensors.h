/* Full tensors: the panels of a program's tensors put together again.
 *
 * Files hold each tensor in full and unpadded; a program may hold it as panels with padding behind,
 * and of one that is split over ranks its own part (sl_run). This finds the panels of each tensor,
 * checks that they cover it, and carries elements between a safetensors file and an sl_tensor_io
 * through a buffer of bounded size.
 *
 * Invariants: the tensors are sorted by name (strcmp), the order of the files that are written; the
 * panels of one are sorted by row and, where it is not split, cover its rows exactly.
 */
#ifndef SL_TENSORS_FULL_TENSORS_H
#define SL_TENSORS_FULL_TENSORS_H

#include <stdint.h>

#include "engine/engine.h"
#include "files/safetensors.h"
#include "tensor_io.h"

/* 4 MiB: the most that is in memory of a tensor, and 1 MiB of one that ranks gather. */
enum { SL_FULL_TENSORS_BUFFER_ELEMENTS = 1 << 20, SL_FULL_TENSORS_PART_ELEMENTS = 1 << 18 };

typedef struct sl_full_tensor {
    const char *name; /* of the program, without prefix */
    uint32_t dim_count;
    uint64_t shape[2];
    const uint32_t *panels; /* [panel_count], tensor indices of the program, by first row */
    uint32_t panel_count;
    bool is_split;   /* over ranks */
    sl_rule_id rule; /* of all panels */
} sl_full_tensor;

typedef struct sl_full_tensors {
    sl_full_tensor *items; /* [count] */
    uint32_t count;
    const sl_tensor_spec *tensors; /* borrowed */
    uint32_t *order;               /* what the panels point into */
    uint64_t buffer_elements; /* SL_FULL_TENSORS_BUFFER_ELEMENTS, or the largest panel if smaller */
    float *buffer;            /* [buffer_elements] */
} sl_full_tensors;

/* Builds the list; `tensors` is borrowed. SL_ERROR_USAGE: the panels of a tensor do not make up a
 * full one. */
sl_status sl_full_tensors_open(const sl_tensor_spec *tensors, uint32_t tensor_count,
                               sl_full_tensors **out_list);

/* NULL is fine. */
void sl_full_tensors_close(sl_full_tensors *list);

/* SL_ERROR_DATA unless `tensor` of `file` has the same shape and a type that can be read. */
sl_status sl_full_tensors_check(const sl_full_tensor *full, const sl_safetensors *file,
                                const sl_safetensors_tensor *tensor);

/* Copies what is here of a checked tensor of a file through io->write, and zeros to the padding. */
sl_status sl_full_tensors_load(const sl_full_tensors *list, const sl_full_tensor *full,
                               const sl_safetensors *file, const sl_safetensors_tensor *tensor,
                               sl_group group, const sl_tensor_io *io);

/* Where else the elements of a full tensor are read from, row-major and without padding. */
typedef struct sl_full_reader {
    sl_status (*read)(void *user, uint64_t first_element, uint64_t element_count, float *out_data);
    void *user;
} sl_full_reader;

/* The same from any reader of a tensor of this shape. */
sl_status sl_full_tensors_load_from(const sl_full_tensors *list, const sl_full_tensor *full,
                                    const sl_full_reader *reader, sl_group group,
                                    const sl_tensor_io *io);

/* Appends the full tensor to a file through io->read; padding is left out. SL_ERROR_USAGE: it is
 * split over ranks. SL_ERROR_NONFINITE: it holds a value that is not finite; names the
 * tensor. */
sl_status sl_full_tensors_save(const sl_full_tensors *list, const sl_full_tensor *full,
                               sl_group group, const sl_tensor_io *io,
                               sl_safetensors_writer *writer);

/* Appends all tensors of which the group stores something, in the order of the file. With `ranks`,
 * all of them call it: each gives what it has of the split tensors, through buffers of
 * SL_FULL_TENSORS_PART_ELEMENTS a rank, and rank 0 appends; on the others `writer` is NULL.
 * SL_ERROR_NONFINITE: as above. SL_ERROR_INTERNAL: the ranks' parts do not cover a tensor. */
sl_status sl_full_tensors_save_group(const sl_full_tensors *list, sl_group group,
                                     const sl_tensor_io *io, const sl_engine_ranks *ranks,
                                     sl_safetensors_writer *writer);

/* Two programs of one model: their tensors have the same names, and may be divided otherwise. */
typedef struct sl_full_tensors_copy_args {
    const sl_full_tensors *from, *to;
    const sl_tensor_io *from_io, *to_io;
    const sl_engine_ranks *ranks; /* that hold both together; NULL: this process alone does */
} sl_full_tensors_copy_args;

/* Copies the parameters of one program to the other, through a buffer as sl_full_tensors_save_group
 * has; padding stays as it is. All ranks call it. SL_ERROR_INTERNAL: the names differ, or the
 * ranks' parts do not cover a tensor. */
sl_status sl_full_tensors_copy(const sl_full_tensors_copy_args *args);

#endif
