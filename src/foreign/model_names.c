/* The table of rows; see model_names.h. */
#include "model_names.h"

#include <stdio.h>
#include <string.h>

#define ROW(KIND, name) [SL_ARCHITECTURE_##KIND] = &sl_##name##_model_names,
static const sl_model_names *const rows[SL_ARCHITECTURE_COUNT] = {SL_ARCHITECTURES(ROW)};
#undef ROW

const sl_model_names *sl_model_names_of(const sl_model_shape *shape)
{
    return rows[shape->architecture];
}

uint32_t sl_model_names_count(const sl_model_names *names, const sl_model_shape *shape)
{
    return names->kind_count - (names->has_head && !shape->is_untied);
}

static bool is_called(const sl_model_names *names, const char *type)
{
    return names && (strcmp(names->model_type, type) == 0 ||
                     (names->other_type && strcmp(names->other_type, type) == 0));
}

sl_architecture_kind sl_model_names_find(const char *model_type)
{
    int kind = 0;
    while (kind < SL_ARCHITECTURE_COUNT && !is_called(rows[kind], model_type))
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

sl_gguf_key sl_model_names_gguf_key(const sl_model_shape *shape, const char *key)
{
    sl_gguf_key made;
    snprintf(made.text, sizeof made.text, "%s.%s", sl_model_names_of(shape)->gguf_architecture,
             key);
    return made;
}

static void add_name(const char *name, size_t capacity, char *text)
{
    const size_t used = strlen(text);
    snprintf(text + used, capacity - used, "%s\"%s\"", used ? ", " : "", name);
}

void sl_model_names_list(size_t capacity, char *out_text)
{
    out_text[0] = '\0';
    for (int kind = 0; kind < SL_ARCHITECTURE_COUNT; kind++) {
        if (!rows[kind])
            continue;
        add_name(rows[kind]->model_type, capacity, out_text);
        if (rows[kind]->other_type)
            add_name(rows[kind]->other_type, capacity, out_text);
    }
}
