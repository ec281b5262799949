/* Puts panels together and moves their rows; see full_tensors.h. */
#define _GNU_SOURCE
#include "full_tensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/heartbeat.h"

/* ---- finding the panels ---- */

static int compare_panels(const void *a, const void *b, void *tensors)
{
    const sl_tensor_spec *all = tensors;
    const sl_tensor_spec *x = &all[*(const uint32_t *)a], *y = &all[*(const uint32_t *)b];
    int order = strcmp(x->name, y->name);
    if (order != 0)
        return order;
    if (x->first_row != y->first_row)
        return x->first_row < y->first_row ? -1 : 1;
    return x->valid_rows < y->valid_rows ? -1 : x->valid_rows > y->valid_rows;
}

/* One panel on its own: it continues at row `next_row` of its tensor and is as wide as that. */
static sl_status check_panel(const sl_full_tensor *full, const sl_tensor_spec *spec,
                             uint64_t next_row)
{
    bool fits = spec->dim_count == full->dim_count && spec->whole_shape[0] == full->shape[0] &&
                spec->whole_shape[1] == full->shape[1] && spec->shape[1] == full->shape[1] &&
                spec->valid_rows <= spec->shape[0] && spec->valid_rows <= full->shape[0] - next_row;
    /* A panel of padding alone has no row outside; where it says it starts does not matter. */
    if (!fits || (spec->valid_rows > 0 && spec->first_row != next_row))
        SL_FAIL(SL_ERROR_USAGE, "tensor \"%s\": its panels do not make up the tensor",
                sl_files_show(full->name).text);
    return SL_OK;
}

/* What a rank has of a split tensor lies within it; what others have is not known here. */
static sl_status check_split_panel(const sl_full_tensor *full, const sl_tensor_spec *spec)
{
    const sl_run run = sl_run_of_tensor(spec);
    const uint64_t columns = full->dim_count < 2 ? 1 : full->shape[1];
    uint64_t whole, last, end;
    bool fits = spec->dim_count == full->dim_count && spec->whole_shape[0] == full->shape[0] &&
                spec->whole_shape[1] == full->shape[1] && run.length <= run.pitch &&
                !__builtin_mul_overflow(full->shape[0], columns, &whole) &&
                !__builtin_mul_overflow(run.count > 0 ? run.count - 1 : 0, run.stride, &last) &&
                !__builtin_add_overflow(run.first, run.length, &end) &&
                !__builtin_add_overflow(last, end, &end) &&
                (run.length == 0 || run.count == 0 || end <= whole);
    if (!fits)
        SL_FAIL(SL_ERROR_USAGE, "tensor \"%s\": this rank's part is not in the tensor",
                sl_files_show(full->name).text);
    return SL_OK;
}

static sl_status check_split_panels(const sl_full_tensor *full, const sl_tensor_spec *tensors)
{
    for (uint32_t i = 0; i < full->panel_count; i++)
        SL_TRY(check_split_panel(full, &tensors[full->panels[i]]));
    return SL_OK;
}

static sl_status check_panels(const sl_full_tensor *full, const sl_tensor_spec *tensors)
{
    uint64_t next_row = 0;
    if (full->is_split)
        return check_split_panels(full, tensors);
    for (uint32_t i = 0; i < full->panel_count; i++) {
        const sl_tensor_spec *spec = &tensors[full->panels[i]];
        SL_TRY(check_panel(full, spec, next_row));
        next_row += spec->valid_rows;
    }
    if (next_row != full->shape[0])
        SL_FAIL(SL_ERROR_USAGE, "tensor \"%s\": its panels hold %llu of %llu rows",
                sl_files_show(full->name).text, (unsigned long long)next_row,
                (unsigned long long)full->shape[0]);
    return SL_OK;
}

static sl_status group_panels(sl_full_tensors *list, uint32_t tensor_count)
{
    const sl_tensor_spec *tensors = list->tensors;
    assert(list->order && list->items);
    for (uint32_t i = 0; i < tensor_count; i++)
        list->order[i] = i;
    if (tensor_count > 0)
        qsort_r(list->order, tensor_count, sizeof list->order[0], compare_panels, (void *)tensors);
    for (uint32_t i = 0; i < tensor_count; i++) {
        const sl_tensor_spec *spec = &tensors[list->order[i]];
        if (i == 0 || strcmp(spec->name, list->items[list->count - 1].name) != 0)
            list->items[list->count++] = (sl_full_tensor){
                .name = spec->name,
                .dim_count = spec->dim_count,
                .shape = {spec->whole_shape[0], spec->whole_shape[1]},
                .panels = list->order + i,
                .is_split = spec->split != SL_SPLIT_NONE,
                .rule = spec->rule,
            };
        list->items[list->count - 1].panel_count++;
    }
    for (uint32_t i = 0; i < list->count; i++)
        SL_TRY(check_panels(&list->items[i], tensors));
    return SL_OK;
}

static uint64_t count_buffer_elements(const sl_tensor_spec *tensors, uint32_t tensor_count)
{
    uint64_t largest = 1;
    for (uint32_t i = 0; i < tensor_count; i++)
        if (tensors[i].element_count > largest)
            largest = tensors[i].element_count;
    return sl_bits_min(largest, SL_FULL_TENSORS_BUFFER_ELEMENTS);
}

sl_status sl_full_tensors_open(const sl_tensor_spec *tensors, uint32_t tensor_count,
                               sl_full_tensors **out_list)
{
    sl_full_tensors *list = calloc(1, sizeof *list);
    if (!list)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of tensors");
    size_t room = (size_t)tensor_count + 1; /* calloc(0) may be NULL */
    list->tensors = tensors;
    list->items = calloc(room, sizeof list->items[0]);
    list->order = calloc(room, sizeof list->order[0]);
    list->buffer_elements = count_buffer_elements(tensors, tensor_count);
    list->buffer = malloc(list->buffer_elements * sizeof list->buffer[0]);
    sl_status status = SL_OK;
    if (!list->items || !list->order || !list->buffer)
        status =
            sl_status_fail(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", tensor_count);
    if (status == SL_OK)
        status = group_panels(list, tensor_count);
    if (status != SL_OK) {
        sl_full_tensors_close(list);
        return status;
    }
    *out_list = list;
    return SL_OK;
}

void sl_full_tensors_close(sl_full_tensors *list)
{
    if (!list)
        return;
    free(list->items);
    free(list->order);
    free(list->buffer);
    free(list);
}

/* ---- carrying ---- */

sl_status sl_full_tensors_check(const sl_full_tensor *full, const sl_safetensors *file,
                                const sl_safetensors_tensor *tensor)
{
    sl_shown path = sl_files_show(file->file.path), name = sl_files_show(tensor->name);
    bool same = tensor->dim_count == full->dim_count && tensor->shape[0] == full->shape[0] &&
                (full->dim_count < 2 || tensor->shape[1] == full->shape[1]);
    if (!same)
        SL_FAIL(SL_ERROR_DATA,
                "%s: tensor \"%s\" has %u dimensions and shape [%llu, %llu], but the model needs "
                "%u dimensions and shape [%llu, %llu]",
                path.text, name.text, tensor->dim_count, (unsigned long long)tensor->shape[0],
                (unsigned long long)tensor->shape[1], full->dim_count,
                (unsigned long long)full->shape[0],
                (unsigned long long)(full->dim_count < 2 ? 0 : full->shape[1]));
    if (tensor->dtype != SL_DTYPE_F32 && tensor->dtype != SL_DTYPE_F16 &&
        tensor->dtype != SL_DTYPE_BF16)
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is %s; only F32, F16 and BF16 are read",
                path.text, name.text, sl_safetensors_dtype_name(tensor->dtype));
    return SL_OK;
}

static sl_status load_piece(const sl_full_reader *reader, const sl_run_piece *piece, float *data)
{
    if (!piece->is_padding)
        return reader->read(reader->user, piece->whole, piece->count, data);
    memset(data, 0, piece->count * sizeof *data);
    return SL_OK;
}

static sl_status load_panel(const sl_full_tensors *list, uint32_t tensor_index,
                            const sl_full_reader *reader, sl_group group, const sl_tensor_io *io)
{
    const sl_tensor_spec *spec = &list->tensors[tensor_index];
    const sl_run run = sl_run_of_tensor(spec);
    for (uint64_t done = 0; done < spec->element_count; done += list->buffer_elements) {
        const uint64_t part = sl_bits_min(spec->element_count - done, list->buffer_elements);
        for (uint64_t at = done; at < done + part;) {
            const sl_run_piece piece = sl_run_piece_at(&run, at, done + part);
            SL_TRY(load_piece(reader, &piece, list->buffer + (at - done)));
            at += piece.count;
        }
        SL_TRY(io->write(io->user, group, tensor_index, done, part, list->buffer));
        SL_TRY(sl_heartbeat_give());
    }
    return SL_OK;
}

sl_status sl_full_tensors_load_from(const sl_full_tensors *list, const sl_full_tensor *full,
                                    const sl_full_reader *reader, sl_group group,
                                    const sl_tensor_io *io)
{
    for (uint32_t i = 0; i < full->panel_count; i++)
        SL_TRY(load_panel(list, full->panels[i], reader, group, io));
    return SL_OK;
}

typedef struct file_tensor {
    const sl_safetensors *file;
    const sl_safetensors_tensor *tensor;
} file_tensor;

static sl_status read_file(void *user, uint64_t first_element, uint64_t element_count,
                           float *out_data)
{
    const file_tensor *self = user;
    return sl_safetensors_read(self->file, self->tensor, first_element, element_count, out_data);
}

sl_status sl_full_tensors_load(const sl_full_tensors *list, const sl_full_tensor *full,
                               const sl_safetensors *file, const sl_safetensors_tensor *tensor,
                               sl_group group, const sl_tensor_io *io)
{
    file_tensor user = {file, tensor};
    const sl_full_reader reader = {read_file, &user};
    return sl_full_tensors_load_from(list, full, &reader, group, io);
}

/* Infinities and NaNs have an exponent of all ones. Without a branch the loop is vectorised. */
static bool is_finite(const float *data, uint64_t count)
{
    const uint32_t exponent = 0x7f800000u;
    uint32_t any = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &data[i], sizeof bits);
        any |= (bits & exponent) == exponent;
    }
    return any == 0;
}

/* A checkpoint with such values is useless, and would make --keep remove a good one. */
static sl_status append_finite(const char *name, const float *data, uint64_t count,
                               sl_safetensors_writer *writer)
{
    if (!is_finite(data, count))
        SL_FAIL(SL_ERROR_NONFINITE,
                "tensor \"%s\" holds a value that is not finite: it is not saved, and the "
                "earlier checkpoints stay: go on from the newest one with a lower --lr",
                sl_files_show(name).text);
    return sl_safetensors_writer_append(writer, data, count);
}

static sl_status save_panel(const sl_full_tensors *list, uint32_t tensor_index, sl_group group,
                            const sl_tensor_io *io, sl_safetensors_writer *writer)
{
    const sl_tensor_spec *spec = &list->tensors[tensor_index];
    uint64_t count = spec->valid_rows * spec->shape[1];
    for (uint64_t done = 0; done < count; done += list->buffer_elements) {
        uint64_t part = sl_bits_min(count - done, list->buffer_elements);
        SL_TRY(io->read(io->user, group, tensor_index, done, part, list->buffer));
        SL_TRY(append_finite(spec->name, list->buffer, part, writer));
    }
    return SL_OK;
}

sl_status sl_full_tensors_save(const sl_full_tensors *list, const sl_full_tensor *full,
                               sl_group group, const sl_tensor_io *io,
                               sl_safetensors_writer *writer)
{
    if (full->is_split)
        SL_FAIL(SL_ERROR_USAGE, "tensor \"%s\" is split over ranks, and one alone writes it",
                sl_files_show(full->name).text);
    for (uint32_t i = 0; i < full->panel_count; i++)
        SL_TRY(save_panel(list, full->panels[i], group, io, writer));
    return SL_OK;
}

/* ---- what all ranks give together ---- */

/* Elements [first, first + count) of the whole tensor. What a rank has of them stands in `own`; the
 * rest of it is 0. What they have together is in parts[0]; without `ranks` it is in `own`. */
typedef struct gathered {
    const sl_full_tensors *list;
    const sl_full_tensor *full;
    sl_group group;
    const sl_tensor_io *io;
    const sl_engine_ranks *ranks;
    const sl_full_tensors *to; /* of the program that takes all; NULL: a file does */
    const sl_tensor_io *to_io;
    uint64_t first, count;
    uint64_t part_elements; /* that are gathered at once, at most */
    uint32_t *own, *parts;  /* [part_elements]; of each rank; NULL: nothing is shared */
    uint64_t own_count;     /* elements that this rank gave, of all parts so far */
} gathered;

/* `piece`: of the panel. */
static sl_status read_own_piece(gathered *it, uint32_t tensor_index, const sl_run_piece *piece)
{
    const sl_tensor_io *io = it->io;
    const uint64_t end = piece->local + piece->count;
    float *data = (float *)it->own + (piece->whole - it->first);
    uint64_t first = piece->local, count = piece->count;
    for (uint64_t at = piece->local; at < end; at = first + count) {
        if (io->find_own)
            count = io->find_own(io->user, it->group, tensor_index, at, end - at, &first);
        if (count == 0)
            break;
        SL_TRY(io->read(io->user, it->group, tensor_index, first, count,
                        data + (first - piece->local)));
        it->own_count += count;
    }
    return SL_OK;
}

static sl_status read_own_panel(gathered *it, uint32_t tensor_index)
{
    const sl_run run = sl_run_of_tensor(&it->list->tensors[tensor_index]);
    const uint64_t end = it->first + it->count;
    for (uint64_t at = it->first; at < end;) {
        const sl_run_piece piece = sl_run_piece_in_whole(&run, at, end);
        if (piece.count == 0)
            break;
        SL_TRY(read_own_piece(it, tensor_index, &piece));
        at = piece.whole + piece.count;
    }
    return SL_OK;
}

/* Bits, not sums: a zero keeps its sign. */
static void join_parts(gathered *it)
{
    for (uint32_t rank = 1; rank < it->ranks->size; rank++)
        for (uint64_t e = 0; e < it->count; e++)
            it->parts[e] |= it->parts[rank * it->count + e];
}

static sl_status gather_part(gathered *it)
{
    assert(it->own);
    memset(it->own, 0, it->count * sizeof *it->own);
    for (uint32_t i = 0; i < it->full->panel_count; i++)
        SL_TRY(read_own_panel(it, it->full->panels[i]));
    if (!it->ranks)
        return SL_OK;
    return it->ranks->all_gather(it->ranks->user, it->count * sizeof *it->own, it->own, it->parts);
}

static sl_status save_part(gathered *it, sl_safetensors_writer *writer)
{
    SL_TRY(gather_part(it));
    if (!writer)
        return SL_OK;
    join_parts(it);
    return append_finite(it->full->name, (const float *)it->parts, it->count, writer);
}

/* Every element is one rank's: together they gave as many as the tensor has. */
static sl_status check_cover(gathered *it, uint64_t element_count)
{
    uint64_t *counts = (uint64_t *)it->parts, total = it->ranks ? 0 : it->own_count;
    assert(!it->ranks || counts);
    if (it->ranks)
        SL_TRY(
            it->ranks->all_gather(it->ranks->user, sizeof it->own_count, &it->own_count, counts));
    for (uint32_t rank = 0; it->ranks && rank < it->ranks->size; rank++)
        total += counts[rank];
    if (total != element_count)
        SL_FAIL(SL_ERROR_INTERNAL, "tensor \"%s\": the ranks have %llu of its %llu elements",
                it->full->name, (unsigned long long)total, (unsigned long long)element_count);
    return SL_OK;
}

static uint64_t count_elements(const sl_full_tensor *full)
{
    return full->shape[0] * (full->dim_count < 2 ? 1 : full->shape[1]);
}

static sl_status save_shared(const gathered *what, const sl_full_tensor *full,
                             sl_safetensors_writer *writer)
{
    const uint64_t element_count = count_elements(full);
    gathered it = *what;
    it.full = full;
    for (; it.first < element_count; it.first += it.count) {
        it.count = sl_bits_min(element_count - it.first, it.part_elements);
        SL_TRY(save_part(&it, writer));
    }
    return check_cover(&it, element_count);
}

/* A program that takes tensors gets all of them in parts: no code needs to know which rank stores
 * which part. */
static bool is_shared(const gathered *it, const sl_full_tensor *full)
{
    return it->to || (it->ranks && (full->is_split || it->io->is_spread));
}

/* Buffers for all tensors of a group: a model has hundreds, and most are small. */
static sl_status open_parts(gathered *it)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < it->list->count; i++)
        if (is_shared(it, &it->list->items[i]) && count_elements(&it->list->items[i]) > largest)
            largest = count_elements(&it->list->items[i]);
    if (largest == 0)
        return SL_OK;
    it->part_elements = sl_bits_min(largest, SL_FULL_TENSORS_PART_ELEMENTS);
    it->part_elements += it->part_elements == 1; /* check_cover's counts take two each */
    it->own = calloc(it->part_elements, sizeof *it->own);
    if (it->ranks)
        it->parts = calloc(it->ranks->size, it->part_elements * sizeof *it->parts);
    if (!it->own || (it->ranks && !it->parts))
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to gather tensors");
    return SL_OK;
}

static sl_status save_all(const gathered *it, sl_safetensors_writer *writer)
{
    uint32_t saved = 0;
    for (uint32_t i = 0; i < it->list->count; i++) {
        const sl_full_tensor *full = &it->list->items[i];
        if (!sl_rule_stores(full->rule, it->group))
            continue;
        const uint32_t index = writer ? sl_safetensors_writer_order(writer, saved) : saved;
        if (index != saved++)
            SL_FAIL(SL_ERROR_INTERNAL, "tensor \"%s\" is not in the order of names", full->name);
        if (is_shared(it, full))
            SL_TRY(save_shared(it, full, writer));
        else if (writer)
            SL_TRY(sl_full_tensors_save(it->list, full, it->group, it->io, writer));
    }
    return SL_OK;
}

sl_status sl_full_tensors_save_group(const sl_full_tensors *list, sl_group group,
                                     const sl_tensor_io *io, const sl_engine_ranks *ranks,
                                     sl_safetensors_writer *writer)
{
    gathered it = {.list = list, .group = group, .io = io, .ranks = ranks};
    sl_status status = open_parts(&it);
    if (status == SL_OK)
        status = save_all(&it, writer);
    free(it.own);
    free(it.parts);
    return status;
}

/* ---- from one program to another ---- */

static sl_status write_pieces(const gathered *it, uint32_t tensor_index, const sl_run_piece *joined)
{
    if (joined->count == 0)
        return SL_OK;
    return it->to_io->write(it->to_io->user, it->group, tensor_index, joined->local, joined->count,
                            it->to->buffer);
}

/* What the other program stores of the part. Pieces that follow each other there are written at
 * once: rows of a matrix that is split by columns are short. */
static sl_status give_panel(const gathered *it, uint32_t tensor_index, const float *data)
{
    const sl_run run = sl_run_of_tensor(&it->to->tensors[tensor_index]);
    const uint64_t end = it->first + it->count;
    sl_run_piece joined = {0};
    for (uint64_t at = it->first; at < end;) {
        const sl_run_piece piece = sl_run_piece_in_whole(&run, at, end);
        if (piece.count == 0)
            break;
        if (piece.local != joined.local + joined.count) {
            SL_TRY(write_pieces(it, tensor_index, &joined));
            joined = (sl_run_piece){.local = piece.local};
        }
        assert(joined.count + piece.count <= it->to->buffer_elements); /* a panel, or less */
        memcpy(it->to->buffer + joined.count, data + (piece.whole - it->first),
               piece.count * sizeof *data);
        joined.count += piece.count;
        at = piece.whole + piece.count;
    }
    return write_pieces(it, tensor_index, &joined);
}

static sl_status copy_part(gathered *it, const sl_full_tensor *to)
{
    SL_TRY(gather_part(it));
    if (it->ranks)
        join_parts(it);
    const float *data = (const float *)(it->ranks ? it->parts : it->own);
    for (uint32_t i = 0; i < to->panel_count; i++)
        SL_TRY(give_panel(it, to->panels[i], data));
    return sl_heartbeat_give();
}

static sl_status copy_tensor(const gathered *what, uint32_t index)
{
    const sl_full_tensor *to = &what->to->items[index];
    gathered it = *what;
    it.full = &what->list->items[index];
    const uint64_t element_count = count_elements(it.full);
    if (strcmp(it.full->name, to->name) != 0 || element_count != count_elements(to))
        SL_FAIL(SL_ERROR_INTERNAL, "tensor \"%s\" is not \"%s\"", it.full->name, to->name);
    for (; it.first < element_count; it.first += it.count) {
        it.count = sl_bits_min(element_count - it.first, it.part_elements);
        SL_TRY(copy_part(&it, to));
    }
    return check_cover(&it, element_count);
}

sl_status sl_full_tensors_copy(const sl_full_tensors_copy_args *args)
{
    gathered it = {.list = args->from,
                   .group = SL_GROUP_PARAM,
                   .io = args->from_io,
                   .ranks = args->ranks,
                   .to = args->to,
                   .to_io = args->to_io};
    if (it.list->count != it.to->count)
        SL_FAIL(SL_ERROR_INTERNAL, "%u tensors of %u", it.list->count, it.to->count);
    sl_status status = open_parts(&it);
    for (uint32_t i = 0; i < it.list->count && status == SL_OK; i++)
        status = copy_tensor(&it, i);
    free(it.own);
    free(it.parts);
    return status;
}
