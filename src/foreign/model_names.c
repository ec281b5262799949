/* The table of rows; see model_names.h. */
#include "model_names.h"

#include <stdio.h>
#include <string.h>

#include "gpt2.h"

static const sl_model_names *const rows[SL_ARCHITECTURE_COUNT] = {
    [SL_ARCHITECTURE_GPT2] = &sl_gpt2_model_names,
};

const sl_model_names *sl_model_names_of(const sl_model_shape *shape)
{
    return rows[shape->architecture];
}

sl_architecture_kind sl_model_names_find(const char *model_type)
{
    int kind = 0;
    while (kind < SL_ARCHITECTURE_COUNT &&
           (!rows[kind] || strcmp(rows[kind]->model_type, model_type) != 0))
        kind++;
    return (sl_architecture_kind)kind;
}

sl_architecture_kind sl_model_names_in_llmc(void)
{
    int kind = 0;
    while (kind < SL_ARCHITECTURE_COUNT && (!rows[kind] || !rows[kind]->is_in_llmc))
        kind++;
    return (sl_architecture_kind)kind;
}

sl_architecture_kind sl_model_names_in_megatron(void)
{
    int kind = 0;
    while (kind < SL_ARCHITECTURE_COUNT && (!rows[kind] || !rows[kind]->megatron_arguments))
        kind++;
    return (sl_architecture_kind)kind;
}

void sl_model_names_list(size_t capacity, char *out_text)
{
    size_t used = 0;
    out_text[0] = '\0';
    for (int kind = 0; kind < SL_ARCHITECTURE_COUNT; kind++)
        if (rows[kind] && used < capacity)
            used += (size_t)snprintf(out_text + used, capacity - used, "%s\"%s\"",
                                     used ? " and " : "", rows[kind]->model_type);
}
