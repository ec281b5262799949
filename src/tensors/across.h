/* A matrix that is stored the other way round: files of other programs hold a linear weight as
 * [out, in], a program asks for runs of elements of [in, out].
 *
 * A row here is a column there, so rows are made in windows: as many as fit the memory, each read
 * once. A window of all rows reads the file as it lies, one of some rows reads a part of each row
 * of the file. Whoever asks by rising places, as an import does, has each element read once.
 */
#ifndef SL_TENSORS_ACROSS_H
#define SL_TENSORS_ACROSS_H

#include "full_tensors.h"

/* What is in memory: the rows that are laid across, 64 MiB, and what is read at once, a sixteenth
 * of it; less of a smaller matrix. */
enum { SL_ACROSS_WINDOW_ELEMENTS = 1 << 24, SL_ACROSS_BANDS = 16 };

/* The matrix that is read. */
typedef struct sl_across_source {
    sl_full_reader from;     /* of [columns, rows], row-major */
    uint64_t rows, columns;  /* of the matrix as it is asked for */
    const char *path, *name; /* for messages; borrowed */
} sl_across_source;

typedef struct sl_across {
    sl_across_source source;
    uint64_t first_row, row_count;
    float *data; /* [row_count, columns] */
    float *band; /* [columns of the band, row_count] */
    uint64_t data_elements, band_elements;
} sl_across;

/* Takes memory for matrices of at most `largest` elements. SL_ERROR_SYSTEM. */
sl_status sl_across_open(uint64_t largest, uint64_t window_elements, sl_across *out_across);

/* A zeroed one is fine. */
void sl_across_close(sl_across *across);

/* What is read next. */
void sl_across_set(sl_across *across, const sl_across_source *source);

/* Reads elements of [rows, columns]; a sl_full_reader's, with the sl_across as its user.
 * SL_ERROR_DATA: a row is longer than the window. Else what the source returns. */
sl_status sl_across_read(void *across, uint64_t first_element, uint64_t element_count,
                         float *out_data);

#endif
