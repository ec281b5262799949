/* Where the elements that a rank stores stand in the whole tensor: one walk over runs, for initial
 * values, checkpoints and tests. Knows shapes and splits, nothing of memory. */
#include "program/program.h"

/* A vector's only axis is its last one. */
static uint64_t count_row_elements(const sl_tensor_spec *spec)
{
    return spec->dim_count == 1 ? spec->whole_shape[0] : spec->whole_shape[1];
}

sl_run sl_run_of_tensor(const sl_tensor_spec *spec)
{
    const uint64_t width = spec->shape[1], row = count_row_elements(spec);
    const bool is_vector = spec->dim_count == 1;
    sl_run run = {spec->first_column, spec->valid_columns, row, is_vector ? 1 : spec->valid_rows,
                  is_vector ? spec->element_count : width};
    if (!is_vector) /* behind the rows before this panel */
        run.first += spec->first_row * row;
    switch (spec->split) {
    case SL_SPLIT_COLUMNS:
        break;
    case SL_SPLIT_QKV: /* a row holds columns of q, then of k, then of v */
        run.stride /= 3;
        run.count *= 3;
        run.pitch /= 3;
        break;
    case SL_SPLIT_NONE:
    case SL_SPLIT_ROWS: /* all in one */
        run =
            (sl_run){spec->first_row * width, spec->valid_rows * width, 0, 1, spec->element_count};
        break;
    }
    return run;
}

sl_run_piece sl_run_piece_at(const sl_run *run, uint64_t local, uint64_t end)
{
    const uint64_t k = local / run->pitch, within = local % run->pitch;
    const bool is_behind = k >= run->count, is_padding = is_behind || within >= run->length;
    const uint64_t rest =
        is_behind ? end - local : (is_padding ? run->pitch : run->length) - within;
    return (sl_run_piece){.local = local,
                          .whole = is_padding ? 0 : run->first + k * run->stride + within,
                          .count = rest < end - local ? rest : end - local,
                          .is_padding = is_padding};
}

sl_run_piece sl_run_piece_in_whole(const sl_run *run, uint64_t whole, uint64_t end)
{
    uint64_t k = 0, within = 0;
    if (whole > run->first && run->stride > 0) {
        k = (whole - run->first) / run->stride;
        within = (whole - run->first) % run->stride;
    } else if (whole > run->first) {
        within = whole - run->first;
    }
    if (within >= run->length) { /* behind this one: the next begins a stride on */
        k++;
        within = 0;
    }
    const uint64_t at = run->first + k * run->stride + within;
    if (k >= run->count || run->length == 0 || at >= end)
        return (sl_run_piece){.count = 0};
    const uint64_t rest = run->length - within;
    return (sl_run_piece){
        .local = k * run->pitch + within, .whole = at, .count = rest < end - at ? rest : end - at};
}
