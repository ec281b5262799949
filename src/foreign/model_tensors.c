/* Walks over the kinds of a row; see model_tensors.h. */
#include "model_tensors.h"

#include <stdio.h>
#include <string.h>

static uint32_t count_of_layer(const sl_model_names *names)
{
    return names->behind_layers - names->first_of_layer;
}

static uint64_t find_size(const sl_model_names *names, const sl_model_shape *shape,
                          sl_model_size size)
{
    switch (size) {
    case SL_SIZE_ONE:
        return 1;
    case SL_SIZE_VOCAB:
        return shape->vocab;
    case SL_SIZE_CONTEXT:
        return shape->context;
    case SL_SIZE_WIDTH:
        return shape->width;
    default:
        return names->size(shape, size);
    }
}

static sl_foreign_tensor make_tensor(const sl_model_shape *shape, uint32_t kind, uint32_t layer)
{
    const sl_model_names *names = sl_model_names_of(shape);
    const sl_tensor_kind *of = &names->kinds[kind];
    return (sl_foreign_tensor){.names = names,
                               .kind = kind,
                               .layer = layer,
                               .dim_count = of->columns == SL_SIZE_ONE ? 1 : 2,
                               .rows = find_size(names, shape, of->rows),
                               .columns = find_size(names, shape, of->columns),
                               .is_linear = of->is_linear};
}

uint32_t sl_model_tensors_count(const sl_model_shape *shape)
{
    const sl_model_names *names = sl_model_names_of(shape);
    return sl_model_names_count(names, shape) + (shape->layers - 1) * count_of_layer(names);
}

sl_foreign_tensor sl_model_tensors_nth(const sl_model_shape *shape, uint32_t index)
{
    const sl_model_names *names = sl_model_names_of(shape);
    const uint32_t kinds = count_of_layer(names);
    if (index < names->first_of_layer)
        return make_tensor(shape, index, 0);
    const uint32_t within = index - names->first_of_layer, layer = within / kinds;
    if (layer < shape->layers)
        return make_tensor(shape, names->first_of_layer + within % kinds, layer);
    return make_tensor(shape, names->behind_layers + within - shape->layers * kinds, 0);
}

sl_foreign_tensor sl_model_tensors_nth_by_kind(const sl_model_shape *shape, uint32_t index)
{
    const sl_model_names *names = sl_model_names_of(shape);
    const uint32_t kinds = count_of_layer(names);
    if (index < names->first_of_layer)
        return make_tensor(shape, index, 0);
    const uint32_t within = index - names->first_of_layer, kind = within / shape->layers;
    if (kind < kinds)
        return make_tensor(shape, names->first_of_layer + kind, within % shape->layers);
    return make_tensor(shape, names->behind_layers + within - shape->layers * kinds, 0);
}

uint32_t sl_model_tensors_index(const sl_model_shape *shape, const sl_foreign_tensor *tensor)
{
    const uint32_t kinds = count_of_layer(tensor->names);
    if (tensor->kind < tensor->names->first_of_layer)
        return tensor->kind;
    if (sl_model_tensors_is_of_layer(tensor))
        return tensor->layer * kinds + tensor->kind;
    return tensor->kind + (shape->layers - 1) * kinds;
}

const sl_tensor_kind *sl_model_tensors_named(const sl_model_names *names, const char *name)
{
    const size_t length = strlen(names->layer);
    const bool is_of_layer = strncmp(name, names->layer, length) == 0 && name[length] == '.';
    const char *rest = name;
    if (is_of_layer) {
        rest += length + 1;
        rest += strspn(rest, "0123456789");
        rest += *rest == '.';
    }
    for (uint32_t kind = 0; kind < names->kind_count; kind++)
        if (strcmp(names->kinds[kind].name, rest) == 0)
            return &names->kinds[kind];
    return NULL;
}

uint64_t sl_model_tensors_largest_linear(const sl_model_shape *shape)
{
    const sl_model_names *names = sl_model_names_of(shape);
    uint64_t largest = 1;
    for (uint32_t kind = 0; kind < sl_model_names_count(names, shape); kind++) {
        const sl_foreign_tensor tensor = make_tensor(shape, kind, 0);
        if (tensor.is_linear && tensor.rows * tensor.columns > largest)
            largest = tensor.rows * tensor.columns;
    }
    return largest;
}

uint32_t sl_model_tensors_find(const sl_model_names *names, sl_model_size rows)
{
    uint32_t kind = 0;
    while (kind + 1 < names->kind_count && names->kinds[kind].rows != rows)
        kind++;
    return kind;
}

static sl_foreign_tensor_name make_name(const sl_foreign_tensor *tensor, const char *front,
                                        const char *name)
{
    sl_foreign_tensor_name made;
    if (sl_model_tensors_is_of_layer(tensor))
        snprintf(made.text, sizeof made.text, "%s.%u.%s", front, tensor->layer, name);
    else
        snprintf(made.text, sizeof made.text, "%s", name);
    return made;
}

sl_foreign_tensor_name sl_model_tensors_name(const sl_foreign_tensor *tensor)
{
    return make_name(tensor, tensor->names->layer, sl_model_tensors_kind(tensor)->name);
}

sl_foreign_tensor_name sl_model_tensors_gguf_name(const sl_foreign_tensor *tensor)
{
    return make_name(tensor, "blk", sl_model_tensors_kind(tensor)->gguf);
}

void sl_model_tensors_specify(const sl_model_shape *shape, sl_tensor_spec *out_specs)
{
    for (uint32_t i = 0; i < sl_model_tensors_count(shape); i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(shape, i);
        out_specs[i] = (sl_tensor_spec){.dim_count = tensor.dim_count,
                                        .shape = {tensor.rows, tensor.columns},
                                        .valid_rows = tensor.rows,
                                        .whole_shape = {tensor.rows, tensor.columns},
                                        .element_count = tensor.rows * tensor.columns};
        snprintf(out_specs[i].name, sizeof out_specs[i].name, "%.47s",
                 sl_model_tensors_name(&tensor).text);
    }
}

sl_llmc_shape sl_model_tensors_llmc(const sl_model_shape *shape)
{
    uint32_t padding = SL_LLMC_PADDING;
    return (sl_llmc_shape){.context = shape->context,
                           .vocab = shape->vocab,
                           .layers = shape->layers,
                           .heads = shape->heads,
                           .width = shape->width,
                           .padded_vocab = (shape->vocab + padding - 1) / padding * padding};
}
