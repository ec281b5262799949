/* Lays windows of a matrix across; see across.h. */
#include "across.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "elements.h"

sl_status sl_across_open(uint64_t largest, uint64_t window_elements, sl_across *out_across)
{
    sl_across self = {.data_elements = sl_bits_min(largest, window_elements),
                      .band_elements = sl_bits_min(largest, 1 + window_elements / SL_ACROSS_BANDS)};
    self.data = malloc(self.data_elements * sizeof *self.data);
    self.band = malloc(self.band_elements * sizeof *self.band);
    if (!self.data || !self.band) {
        sl_across_close(&self);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %llu elements of a weight",
                (unsigned long long)sl_bits_min(largest, window_elements));
    }
    *out_across = self;
    return SL_OK;
}

void sl_across_close(sl_across *across)
{
    free(across->data);
    free(across->band);
    *across = (sl_across){0};
}

void sl_across_set(sl_across *across, const sl_across_source *source)
{
    across->source = *source;
    across->row_count = 0;
}

/* Elements of some columns, which are rows of the file: all of them, or a part of each. */
static sl_status read_band(const sl_across *self, uint64_t first_column, uint64_t column_count)
{
    const sl_full_reader *from = &self->source.from;
    const uint64_t rows = self->source.rows, first = first_column * rows + self->first_row;
    if (self->row_count == rows)
        return from->read(from->user, first, column_count * rows, self->band);
    for (uint64_t i = 0; i < column_count; i++)
        SL_TRY(from->read(from->user, first + i * rows, self->row_count,
                          self->band + i * self->row_count));
    return SL_OK;
}

static sl_status fill_window(sl_across *self, uint64_t first_row)
{
    const uint64_t columns = self->source.columns;
    const uint64_t most = sl_bits_min(self->data_elements / columns, self->band_elements);
    if (most == 0)
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" has rows of %llu elements: at most %llu are read",
                sl_files_show(self->source.path).text, sl_files_show(self->source.name).text,
                (unsigned long long)columns, (unsigned long long)self->data_elements);
    if (first_row >= self->source.rows)
        SL_FAIL(SL_ERROR_INTERNAL, "row %llu of %llu", (unsigned long long)first_row,
                (unsigned long long)self->source.rows);
    self->first_row = first_row;
    self->row_count = sl_bits_min(self->source.rows - first_row, most);
    for (uint64_t column = 0; column < columns;) {
        const uint64_t count = sl_bits_min(columns - column, self->band_elements / self->row_count);
        SL_TRY(read_band(self, column, count));
        sl_elements_lay_across(self->band, count, self->row_count, columns, self->data + column);
        column += count;
    }
    return SL_OK;
}

sl_status sl_across_read(void *across, uint64_t first_element, uint64_t element_count,
                         float *out_data)
{
    sl_across *self = across;
    const uint64_t columns = self->source.columns;
    uint64_t first = first_element;
    for (uint64_t left = element_count; left > 0;) {
        const uint64_t row = first / columns;
        if (row < self->first_row || row >= self->first_row + self->row_count)
            SL_TRY(fill_window(self, row));
        const uint64_t at = first - self->first_row * columns;
        const uint64_t part = sl_bits_min(left, self->row_count * columns - at);
        memcpy(out_data, self->data + at, part * sizeof *out_data);
        first += part;
        left -= part;
        out_data += part;
    }
    return SL_OK;
}
