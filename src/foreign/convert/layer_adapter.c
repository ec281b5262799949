/* See layer_adapter.h. */
#include "layer_adapter.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "tensors/elements.h"

/* One of the two tensors, as a file has it. */
typedef struct part {
    sl_weights_tensor from;
    uint64_t features; /* in, or out */
    bool is_across;    /* [features, rank], else [rank, features] */
} part;

void sl_layer_adapter_close(sl_layer_adapter *self)
{
    free(self->a);
    free(self->b);
    *self = (sl_layer_adapter){0};
}

bool sl_layer_adapter_has(const sl_layer_adapter *self, const sl_foreign_tensor *tensor)
{
    sl_adapter_layer layer;
    return self->shape && sl_adapter_find_layer(self->shape, tensor, &layer);
}

/* ---- reading ---- */

static sl_status find_in_checkpoint(const sl_layer_adapter *self, const sl_adapter_layer *layer,
                                    bool is_a, part *out)
{
    char name[SL_ADAPTER_NAME_BYTES];
    snprintf(name, sizeof name, SL_WEIGHTS_PREFIX "%s.%s", layer->name,
             is_a ? SL_LORA_A : SL_LORA_B);
    out->from = (sl_weights_tensor){self->checkpoint, sl_safetensors_find(self->checkpoint, name)};
    out->is_across = is_a;
    if (out->from.tensor == NULL)
        SL_FAIL(SL_ERROR_INTERNAL, "%s is not in the checkpoint", name);
    return SL_OK;
}

static sl_status find_in_directory(const sl_layer_adapter *self, const sl_adapter_layer *layer,
                                   bool is_a, part *out)
{
    const uint64_t rank = self->shape->lora.rank;
    out->is_across = !is_a;
    return sl_adapter_find(self->adapter, is_a ? layer->a : layer->b, is_a ? rank : out->features,
                           is_a ? out->features : rank, &out->from);
}

static sl_status read_part(const sl_layer_adapter *self, const part *from, float *out_data)
{
    const uint64_t rank = self->shape->lora.rank, count = rank * from->features;
    if (!from->is_across)
        return sl_safetensors_read(from->from.file, from->from.tensor, 0, count, out_data);
    float *data = malloc(count * sizeof *data);
    if (!data)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for an adapter of %llu elements",
                (unsigned long long)count);
    const sl_status status =
        sl_safetensors_read(from->from.file, from->from.tensor, 0, count, data);
    if (status == SL_OK)
        sl_elements_lay_across(data, from->features, rank, from->features, out_data);
    free(data);
    return status;
}

static sl_status take_memory(sl_layer_adapter *self, const sl_foreign_tensor *tensor)
{
    uint64_t a_bytes, b_bytes;
    const uint64_t rank_bytes = self->shape->lora.rank * (uint64_t)sizeof(float);
    free(self->a);
    free(self->b);
    self->a = self->b = NULL;
    SL_TRY(sl_bits_multiply(rank_bytes, tensor->rows, "an adapter", &a_bytes));
    SL_TRY(sl_bits_multiply(rank_bytes, tensor->columns, "an adapter", &b_bytes));
    self->a = malloc(a_bytes);
    self->b = malloc(b_bytes);
    if (!self->a || !self->b)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the adapters of a layer");
    return SL_OK;
}

static sl_status load_part(const sl_layer_adapter *self, const sl_adapter_layer *layer, bool is_a,
                           uint64_t features, float *out_data)
{
    part from = {.features = features};
    SL_TRY((self->adapter ? find_in_directory : find_in_checkpoint)(self, layer, is_a, &from));
    return read_part(self, &from, out_data);
}

sl_status sl_layer_adapter_load(sl_layer_adapter *self, const sl_foreign_tensor *tensor)
{
    sl_adapter_layer layer;
    const uint32_t index = sl_model_tensors_index(self->shape, tensor);
    if (self->a && self->b && self->index == index)
        return SL_OK;
    if (!sl_adapter_find_layer(self->shape, tensor, &layer))
        SL_FAIL(SL_ERROR_INTERNAL, "%s has no adapters", layer.name);
    SL_TRY(take_memory(self, tensor));
    self->index = UINT32_MAX; /* until both are read */
    SL_TRY(load_part(self, &layer, true, tensor->rows, self->a));
    SL_TRY(load_part(self, &layer, false, tensor->columns, self->b));
    self->index = index;
    return SL_OK;
}

/* ---- merging ---- */

/* scale * factors * matrix, for one row of the weight: factors[r * stride], matrix [rank, columns].
 */
typedef struct product {
    const float *factors, *matrix;
    uint64_t stride, columns, rank;
    float scale;
} product;

static void add_product(const product *it, uint64_t first_column, uint64_t count, float *data)
{
    enum { PIECE = 1024 };
    float sums[PIECE];
    for (uint64_t done = 0; done < count; done += PIECE) {
        const uint64_t some = sl_bits_min(count - done, PIECE);
        for (uint64_t c = 0; c < some; c++)
            sums[c] = 0;
        for (uint64_t r = 0; r < it->rank; r++) {
            const float factor = it->factors[r * it->stride];
            const float *row = it->matrix + r * it->columns + first_column + done;
            for (uint64_t c = 0; c < some; c++)
                sums[c] += factor * row[c];
        }
        for (uint64_t c = 0; c < some; c++)
            data[done + c] += it->scale * sums[c];
    }
}

sl_status sl_layer_adapter_merge(sl_layer_adapter *self, const sl_foreign_tensor *tensor,
                                 bool is_out_in, uint64_t first_element, uint64_t element_count,
                                 float *data)
{
    const sl_lora *lora = &self->shape->lora;
    const uint64_t columns = is_out_in ? tensor->rows : tensor->columns;
    SL_TRY(sl_layer_adapter_load(self, tensor));
    if (columns == 0)
        return SL_OK;
    product it = {.matrix = is_out_in ? self->a : self->b,
                  .stride = is_out_in ? tensor->columns : tensor->rows,
                  .columns = columns,
                  .rank = lora->rank,
                  .scale = (float)(lora->alpha / lora->rank)};
    for (uint64_t done = 0; done < element_count;) {
        const uint64_t at = first_element + done, column = at % columns;
        const uint64_t count = sl_bits_min(element_count - done, columns - column);
        it.factors = (is_out_in ? self->b : self->a) + at / columns;
        add_product(&it, column, count, data + done);
        done += count;
    }
    return SL_OK;
}

/* ---- specs ---- */

static sl_tensor_spec specify(const char *layer, const char *note, uint64_t rows, uint64_t columns)
{
    sl_tensor_spec spec = {.dim_count = 2,
                           .shape = {rows, columns},
                           .valid_rows = rows,
                           .whole_shape = {rows, columns},
                           .element_count = rows * columns,
                           .is_adapter = true};
    snprintf(spec.name, sizeof spec.name, "%.33s.%s", layer, note);
    return spec;
}

uint32_t sl_layer_adapter_specify(const sl_model_shape *shape, sl_tensor_spec *out_specs)
{
    const uint64_t rank = shape->lora.rank;
    sl_adapter_layer layer;
    uint32_t count = 0;
    for (uint32_t i = 0; i < sl_model_tensors_count(shape); i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(shape, i);
        if (!sl_adapter_find_layer(shape, &tensor, &layer))
            continue;
        if (out_specs) {
            out_specs[count] = specify(layer.name, SL_LORA_A, tensor.rows, rank);
            out_specs[count + 1] = specify(layer.name, SL_LORA_B, rank, tensor.columns);
        }
        count += 2;
    }
    return count;
}
