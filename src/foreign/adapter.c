/* See adapter.h. */
#define _GNU_SOURCE
#include "adapter.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/fields.h"
#include "files/json_file.h"
#include "files/safetensors.h"
#include "tensors/across.h"

enum { CONFIG_BYTES_MAX = 1 << 20 };

struct sl_adapter {
    char *path;
    const sl_model_names *names;
    sl_safetensors *file;
    sl_lora lora;
    bool is_tied;                              /* the model's head reads the table of ids */
    json_t *saved_modules;                     /* what the configuration says of them, or NULL */
    uint32_t saved_count;                      /* tensors that were trained whole */
    const sl_safetensors_tensor *table, *head; /* of them those of a tied model, or NULL */
};

/* ---- adapter_config.json ---- */

typedef struct config {
    char type[SL_SHOWN_BYTES];
    uint32_t rank;
    double alpha;
} config;

static const sl_field config_fields[] = {
    SL_FIELD_AS(CHARS, "peft_type", config, type),
    SL_FIELD("r", config, rank, .low = 1, .high = SL_LORA_RANK_MAX),
    SL_FIELD("lora_alpha", config, alpha, .low = 1e-6, .high = 1e6),
    {0},
};

static bool is_nothing(const json_t *value)
{
    const char *text = json_string_value(value);
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (text != NULL && strcmp(text, "none") == 0);
}

/* Keys by which more is computed than x A B. */
static sl_status refuse_more(const char *path, const json_t *root)
{
    static const char *const keys[] = {"use_dora",
                                       "use_rslora",
                                       "use_qalora",
                                       "use_bdlora",
                                       "bias",
                                       "lora_bias",
                                       "rank_pattern",
                                       "alpha_pattern",
                                       "layer_replication",
                                       "trainable_token_indices",
                                       "target_parameters",
                                       "alora_invocation_tokens",
                                       "arrow_config"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (!is_nothing(json_object_get(root, keys[i])))
            SL_FAIL(SL_ERROR_DATA, "%s: %s is set; adapters are read without it",
                    sl_files_show(path).text, keys[i]);
    return SL_OK;
}

/* Adapters that begin with a part of the base weight, which is then another one. */
static sl_status refuse_other_base(const char *path, const json_t *root)
{
    static const char *const starts[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    const char *start = json_string_value(json_object_get(root, "init_lora_weights"));
    for (size_t i = 0; start != NULL && i < sizeof starts / sizeof starts[0]; i++)
        if (strncasecmp(start, starts[i], strlen(starts[i])) == 0)
            SL_FAIL(SL_ERROR_DATA,
                    "%s: init_lora_weights is \"%s\", which changes the weights of the base model: "
                    "save the adapters as those of the unchanged one",
                    sl_files_show(path).text, sl_files_show(start).text);
    return SL_OK;
}

static sl_status read_root(const char *path, const json_t *root, sl_adapter *adapter)
{
    config read;
    SL_TRY(sl_fields_read(path, root, config_fields, &read));
    if (strcmp(read.type, "LORA") != 0)
        SL_FAIL(SL_ERROR_DATA, "%s: peft_type is \"%s\", but only LORA is read",
                sl_files_show(path).text, read.type);
    SL_TRY(refuse_more(path, root));
    SL_TRY(refuse_other_base(path, root));
    adapter->lora.rank = read.rank;
    adapter->lora.alpha = read.alpha;
    adapter->saved_modules = json_incref(json_object_get(root, "modules_to_save"));
    return SL_OK;
}

static sl_status read_config(int directory, const char *directory_path, sl_adapter *adapter)
{
    json_t *root = NULL;
    char *path = NULL;
    SL_TRY(
        sl_json_file_read(directory, directory_path, SL_ADAPTER_CONFIG, CONFIG_BYTES_MAX, &root));
    sl_status status = sl_files_join_path(directory_path, SL_ADAPTER_CONFIG, &path);
    if (status == SL_OK)
        status = read_root(path, root, adapter);
    free(path);
    json_decref(root);
    return status;
}

/* ---- names ---- */

/* "layers.0.self_attn.q_proj" of "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
 * false: it has another form. */
static bool find_layer(const sl_model_names *names, const char *name, const char *ending,
                       size_t capacity, char *out_layer)
{
    const size_t start = sizeof SL_ADAPTER_NAME_START - 1, prefix = strlen(names->prefix);
    const size_t length = strlen(name), end = strlen(ending);
    if (length <= start + prefix + end + 1 || strncmp(name, SL_ADAPTER_NAME_START, start) != 0 ||
        strncmp(name + start, names->prefix, prefix) != 0 ||
        strcmp(name + length - end, ending) != 0 || name[length - end - 1] != '.')
        return false;
    const size_t bytes = length - end - 1 - start - prefix;
    snprintf(out_layer, capacity, "%.*s", (int)bytes, name + start + prefix);
    return bytes < capacity;
}

/* The part behind "layers.N."; NULL: it is of no layer. */
static const char *skip_block(const sl_model_names *names, const char *layer)
{
    const size_t length = strlen(names->layer);
    if (strncmp(layer, names->layer, length) != 0 || layer[length] != '.')
        return NULL;
    const char *digits = layer + length + 1, *rest = digits + strspn(digits, "0123456789");
    return rest > digits && *rest == '.' && rest[1] != '\0' ? rest + 1 : NULL;
}

static sl_status add_target(const sl_adapter *adapter, const char *target, sl_lora *lora)
{
    sl_lora_target at = {.rest = NULL};
    while (sl_lora_next(lora, &at))
        if (strcmp(at.text, target) == 0)
            return SL_OK;
    const size_t length = strlen(lora->targets);
    const int more = snprintf(lora->targets + length, sizeof lora->targets - length, "%s%s",
                              length > 0 ? "," : "", target);
    if (length + (size_t)more >= sizeof lora->targets)
        SL_FAIL(SL_ERROR_DATA, "%s: adapters of too many different layers",
                sl_files_show(adapter->file->file.path).text);
    return SL_OK;
}

/* ---- what was trained whole ---- */

static const char head_name[] = SL_ADAPTER_NAME_START "lm_head.weight";

typedef struct stored_name {
    char text[SL_ADAPTER_NAME_BYTES];
} stored_name;

/* What PEFT calls a tensor of the model that was trained whole. */
static stored_name make_stored_name(const sl_model_names *names, const char *name)
{
    stored_name stored;
    snprintf(stored.text, sizeof stored.text, SL_ADAPTER_NAME_START "%s",
             sl_weights_whole_name(names, name).text);
    return stored;
}

/* "transformer.ln_f" of "base_model.model.transformer.ln_f.weight"; [*out_length]. */
static const char *find_module(const char *stored, size_t *out_length)
{
    const char *module = stored + sizeof SL_ADAPTER_NAME_START - 1, *end = strrchr(module, '.');
    *out_length = end ? (size_t)(end - module) : 0;
    return module;
}

/* True if the tensor is one of the model's norms, tables or heads. PEFT saves a module whole.
 * SL_ERROR_DATA: another tensor of the module is missing. */
static sl_status find_saved_module(const sl_adapter *adapter, const sl_model_shape *shape,
                                   const char *name, bool *out_is_saved)
{
    size_t length, other_length;
    const char *module = find_module(name, &length);
    bool is_linear = false, is_found = false;
    stored_name missing = {""};
    for (uint32_t i = 0; i < sl_model_tensors_count(shape); i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(shape, i);
        const stored_name stored =
            make_stored_name(adapter->names, sl_model_tensors_name(&tensor).text);
        const char *other = find_module(stored.text, &other_length);
        if (length != other_length || strncmp(module, other, length) != 0)
            continue;
        is_linear = is_linear || tensor.is_linear;
        is_found = is_found || strcmp(stored.text, name) == 0;
        if (!sl_safetensors_find(adapter->file, stored.text))
            missing = stored;
    }
    *out_is_saved = is_found && !is_linear;
    if (*out_is_saved && *missing.text)
        SL_FAIL(SL_ERROR_DATA,
                "%s: tensor \"%s\" is missing: PEFT saves a module with all its tensors",
                sl_files_show(adapter->file->file.path).text, missing.text);
    return SL_OK;
}

/* True if the tensor is a norm, a table or a head that was trained whole. */
static sl_status take_saved(sl_adapter *adapter, const sl_model_shape *shape,
                            const sl_safetensors_tensor *tensor, bool *out_is_saved)
{
    *out_is_saved = false;
    if (strncmp(tensor->name, SL_ADAPTER_NAME_START, sizeof SL_ADAPTER_NAME_START - 1) != 0)
        return SL_OK;
    if (adapter->is_tied && strcmp(tensor->name, head_name) == 0) {
        adapter->head = tensor;
        *out_is_saved = true;
    } else
        SL_TRY(find_saved_module(adapter, shape, tensor->name, out_is_saved));
    adapter->saved_count += *out_is_saved;
    return SL_OK;
}

/* PEFT names a module whole, or by its end. */
static bool has_module(const sl_adapter *adapter, const char *listed)
{
    const size_t listed_length = strlen(listed);
    size_t length;
    for (uint32_t i = 0; i < adapter->file->tensor_count; i++) {
        const char *name = adapter->file->tensors[i].name;
        if (strncmp(name, SL_ADAPTER_NAME_START, sizeof SL_ADAPTER_NAME_START - 1) != 0)
            continue;
        const char *module = find_module(name, &length);
        if (length < listed_length ||
            strncmp(module + length - listed_length, listed, listed_length) != 0)
            continue;
        if (length == listed_length || module[length - listed_length - 1] == '.')
            return true;
    }
    return false;
}

static sl_status check_saved_modules(const sl_adapter *adapter)
{
    for (size_t i = 0; i < json_array_size(adapter->saved_modules); i++) {
        const char *listed = json_string_value(json_array_get(adapter->saved_modules, i));
        if (listed && !has_module(adapter, listed))
            SL_FAIL(SL_ERROR_DATA,
                    "%s: has no tensor of \"%s\", which modules_to_save of " SL_ADAPTER_CONFIG
                    " names",
                    sl_files_show(adapter->file->file.path).text, sl_files_show(listed).text);
    }
    return SL_OK;
}

static sl_status compare_head(const sl_adapter *adapter, bool *out_is_same)
{
    enum { BLOCK = 2048 };
    float table[BLOCK], head[BLOCK];
    const uint64_t count = adapter->table->element_count;
    *out_is_same = count == adapter->head->element_count;
    for (uint64_t done = 0; *out_is_same && done < count; done += BLOCK) {
        const uint64_t part = count - done < BLOCK ? count - done : BLOCK;
        SL_TRY(sl_safetensors_read(adapter->file, adapter->table, done, part, table));
        SL_TRY(sl_safetensors_read(adapter->file, adapter->head, done, part, head));
        *out_is_same = memcmp(table, head, part * sizeof *table) == 0;
    }
    return SL_OK;
}

/* PEFT may train a table and leave the head as it was, or train both apart: then the model is tied
 * no more. */
static sl_status check_tie(sl_adapter *adapter)
{
    const uint32_t kind = sl_model_tensors_find(adapter->names, SL_SIZE_VOCAB);
    const stored_name table = make_stored_name(adapter->names, adapter->names->kinds[kind].name);
    if (adapter->is_tied)
        adapter->table = sl_safetensors_find(adapter->file, table.text);
    bool is_same = !adapter->table && !adapter->head;
    if (adapter->table && adapter->head)
        SL_TRY(compare_head(adapter, &is_same));
    if (!is_same)
        SL_FAIL(SL_ERROR_DATA,
                "%s: the head of this model reads its table of ids, and here they differ: adapters "
                "are read that have both and equal (ensure_weight_tying in PEFT's LoraConfig)",
                sl_files_show(adapter->file->file.path).text);
    return SL_OK;
}

/* ---- opening ---- */

/* Targets, from the names of all tensors. */
static sl_status list_targets(sl_adapter *adapter, const sl_model_shape *shape)
{
    char layer[sizeof((sl_tensor_spec *)NULL)->name];
    for (uint32_t i = 0; i < adapter->file->tensor_count; i++) {
        const char *name = adapter->file->tensors[i].name;
        const bool is_adapter = find_layer(adapter->names, name, SL_LORA_A, sizeof layer, layer) ||
                                find_layer(adapter->names, name, SL_LORA_B, sizeof layer, layer);
        const char *target = is_adapter ? skip_block(adapter->names, layer) : NULL;
        bool is_saved = false;
        if (!is_adapter)
            SL_TRY(take_saved(adapter, shape, &adapter->file->tensors[i], &is_saved));
        if (is_saved)
            continue;
        if (target == NULL)
            SL_FAIL(
                SL_ERROR_DATA,
                "%s: tensor \"%s\" is neither an adapter of a linear layer in a block of this %s "
                "nor of another module of it",
                sl_files_show(adapter->file->file.path).text, sl_files_show(name).text,
                adapter->names->title);
        SL_TRY(add_target(adapter, target, &adapter->lora));
    }
    if (adapter->file->tensor_count == adapter->saved_count)
        SL_FAIL(SL_ERROR_DATA, "%s: holds no adapters",
                sl_files_show(adapter->file->file.path).text);
    SL_TRY(check_saved_modules(adapter));
    return check_tie(adapter);
}

bool sl_adapter_find_layer(const sl_model_shape *shape, const sl_foreign_tensor *tensor,
                           sl_adapter_layer *out_layer)
{
    const sl_foreign_tensor_name name = sl_model_tensors_name(tensor);
    const char *end = strrchr(name.text, '.');
    if (!tensor->is_linear || !sl_model_tensors_is_of_layer(tensor) || shape->lora.rank == 0)
        return false;
    snprintf(out_layer->name, sizeof out_layer->name, "%.*s", (int)(end - name.text), name.text);
    snprintf(out_layer->a, sizeof out_layer->a, "%s%s%s." SL_LORA_A, SL_ADAPTER_NAME_START,
             tensor->names->prefix, out_layer->name);
    snprintf(out_layer->b, sizeof out_layer->b, "%s%s%s." SL_LORA_B, SL_ADAPTER_NAME_START,
             tensor->names->prefix, out_layer->name);
    return sl_lora_adapts(&shape->lora, out_layer->name);
}

/* ---- opening ---- */

static sl_status open_files(sl_adapter *adapter)
{
    int directory;
    SL_TRY(sl_files_open_directory(AT_FDCWD, NULL, adapter->path, SL_LINKS_FOLLOW, &directory));
    sl_status status = read_config(directory, adapter->path, adapter);
    if (status == SL_OK)
        status = sl_safetensors_open(directory, adapter->path, SL_ADAPTER_WEIGHTS, SL_LINKS_FOLLOW,
                                     &adapter->file);
    close(directory);
    return status;
}

sl_status sl_adapter_open(const char *directory, const sl_model_shape *shape,
                          sl_adapter **out_adapter)
{
    const sl_model_names *names = sl_model_names_of(shape);
    if (names == NULL)
        SL_FAIL(SL_ERROR_USAGE, "--adapter: a model of a program's own has other names than PEFT");
    sl_adapter *adapter = calloc(1, sizeof *adapter);
    if (adapter)
        adapter->path = strdup(directory);
    if (!adapter || !adapter->path) {
        free(adapter);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to open adapters");
    }
    adapter->names = names;
    adapter->is_tied = !shape->is_untied;
    sl_status status = open_files(adapter);
    if (status == SL_OK)
        status = list_targets(adapter, shape);
    if (status != SL_OK) {
        sl_adapter_close(adapter);
        return status;
    }
    *out_adapter = adapter;
    return SL_OK;
}

void sl_adapter_close(sl_adapter *adapter)
{
    if (!adapter)
        return;
    sl_safetensors_close(adapter->file);
    json_decref(adapter->saved_modules);
    free(adapter->path);
    free(adapter);
}

const sl_lora *sl_adapter_lora(const sl_adapter *adapter)
{
    return &adapter->lora;
}

const char *sl_adapter_path(const sl_adapter *adapter)
{
    return adapter->path;
}

/* ---- tensors ---- */

sl_status sl_adapter_find(const sl_adapter *adapter, const char *name, uint64_t rows,
                          uint64_t columns, sl_weights_tensor *out_tensor)
{
    const sl_full_tensor wanted = {.name = name, .dim_count = 2, .shape = {rows, columns}};
    *out_tensor = (sl_weights_tensor){adapter->file, sl_safetensors_find(adapter->file, name)};
    if (out_tensor->tensor == NULL)
        SL_FAIL(SL_ERROR_DATA,
                "%s: tensor \"%s\" is missing: if one block has adapters of a layer, all have",
                sl_files_show(adapter->file->file.path).text, name);
    return sl_full_tensors_check(&wanted, adapter->file, out_tensor->tensor);
}

static sl_status read_source(void *user, uint64_t first_element, uint64_t element_count,
                             float *out_data)
{
    const sl_weights_tensor *self = user;
    return sl_safetensors_read(self->file, self->tensor, first_element, element_count, out_data);
}

/* What PEFT calls a tensor of the model. */
static sl_status find_source(const sl_adapter *adapter, const sl_full_tensor *full,
                             sl_weights_tensor *out)
{
    char name[SL_ADAPTER_NAME_BYTES];
    snprintf(name, sizeof name, "%s%s%s", SL_ADAPTER_NAME_START, adapter->names->prefix,
             full->name);
    return sl_adapter_find(adapter, name, full->shape[1], full->shape[0], out);
}

static sl_status import_tensor(const sl_adapter *adapter, const sl_full_tensors *list,
                               const sl_full_tensor *full, sl_across *across,
                               const sl_tensor_io *io)
{
    sl_weights_tensor from;
    SL_TRY(find_source(adapter, full, &from));
    const sl_across_source matrix = {.from = {read_source, &from},
                                     .rows = full->shape[0],
                                     .columns = full->shape[1],
                                     .path = adapter->file->file.path,
                                     .name = full->name};
    const sl_full_reader reader = {sl_across_read, across};
    sl_across_set(across, &matrix);
    return sl_full_tensors_load_from(list, full, &reader, SL_GROUP_PARAM, io);
}

/* All checks come before the first write. */
static sl_status check_tensors(const sl_adapter *adapter, const sl_full_tensors *list,
                               uint64_t *out_largest)
{
    sl_weights_tensor from;
    *out_largest = 1;
    for (uint32_t i = 0; i < list->count; i++) {
        const sl_full_tensor *full = &list->items[i];
        SL_TRY(find_source(adapter, full, &from));
        if (from.tensor->element_count > *out_largest)
            *out_largest = from.tensor->element_count;
    }
    const uint32_t count = adapter->file->tensor_count - adapter->saved_count;
    if (list->count != count)
        SL_FAIL(SL_ERROR_DATA, "%s: holds %u tensors of adapters, but the model has %u",
                sl_files_show(adapter->file->file.path).text, count, list->count);
    return SL_OK;
}

static sl_status import_all(const sl_adapter *adapter, const sl_full_tensors *list,
                            const sl_tensor_io *io)
{
    uint64_t largest;
    sl_across across = {0};
    SL_TRY(check_tensors(adapter, list, &largest));
    SL_TRY(sl_across_open(largest, SL_ACROSS_WINDOW_ELEMENTS, &across));
    sl_status status = SL_OK;
    for (uint32_t i = 0; i < list->count && status == SL_OK; i++)
        status = import_tensor(adapter, list, &list->items[i], &across, io);
    sl_across_close(&across);
    return status;
}

sl_status sl_adapter_import(const sl_adapter *adapter, const sl_tensor_spec *tensors,
                            uint32_t tensor_count, const sl_tensor_io *io)
{
    sl_full_tensors *list;
    SL_TRY(sl_full_tensors_open(tensors, tensor_count, &list));
    const sl_status status = import_all(adapter, list, io);
    sl_full_tensors_close(list);
    return status;
}

/* ---- tensors that were trained whole ---- */

bool sl_adapter_find_saved(const sl_adapter *adapter, const char *name,
                           sl_weights_tensor *out_tensor)
{
    const stored_name stored = make_stored_name(adapter->names, name);
    *out_tensor =
        (sl_weights_tensor){adapter->file, sl_safetensors_find(adapter->file, stored.text)};
    return out_tensor->tensor != NULL;
}

static sl_status import_saved(const sl_adapter *adapter, const sl_full_tensors *list,
                              const sl_tensor_io *io)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const sl_full_tensor *full = &list->items[i];
        sl_weights_tensor from;
        if (!sl_adapter_find_saved(adapter, full->name, &from))
            continue;
        SL_TRY(sl_full_tensors_check(full, from.file, from.tensor));
        SL_TRY(sl_full_tensors_load(list, full, from.file, from.tensor, SL_GROUP_PARAM, io));
    }
    return SL_OK;
}

sl_status sl_adapter_import_saved(const sl_adapter *adapter, const sl_tensor_spec *tensors,
                                  uint32_t tensor_count, const sl_tensor_io *io)
{
    sl_full_tensors *list;
    if (adapter->saved_count == 0)
        return SL_OK;
    SL_TRY(sl_full_tensors_open(tensors, tensor_count, &list));
    const sl_status status = import_saved(adapter, list, io);
    sl_full_tensors_close(list);
    return status;
}

/* ---- writing ---- */

/* Names of layers as PEFT matches them: the part behind the number of the block where all blocks
 * have the layer's adapters, else whole names. */
static bool has_all_blocks(const sl_model_shape *shape, uint32_t kind)
{
    sl_adapter_layer layer;
    for (uint32_t i = 0; i < sl_model_tensors_count(shape); i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(shape, i);
        if (tensor.kind == kind && !sl_adapter_find_layer(shape, &tensor, &layer))
            return false;
    }
    return true;
}

static bool add_module(const sl_model_shape *shape, const sl_foreign_tensor *tensor, json_t *list)
{
    sl_adapter_layer layer;
    char whole[SL_ADAPTER_NAME_BYTES];
    if (!sl_adapter_find_layer(shape, tensor, &layer))
        return true;
    const bool has_all = has_all_blocks(shape, tensor->kind);
    snprintf(whole, sizeof whole, "%s%s", tensor->names->prefix, layer.name);
    if (has_all && tensor->layer > 0)
        return true;
    return json_array_append_new(
               list, json_string(has_all ? skip_block(tensor->names, layer.name) : whole)) == 0;
}

static json_t *list_modules(const sl_model_shape *shape)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list != NULL && i < sl_model_tensors_count(shape); i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(shape, i);
        if (!add_module(shape, &tensor, list)) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

sl_status sl_adapter_format_config(const sl_model_shape *shape, const sl_adapter_facts *facts,
                                   char **out_text)
{
    const sl_model_names *names = sl_model_names_of(shape);
    json_t *modules = list_modules(shape);
    json_t *root =
        json_pack("{s:s, s:s, s:s?, s:I, s:f, s:f, s:o, s:b, s:s, s:b, s:b}", "peft_type", "LORA",
                  "task_type", "CAUSAL_LM", "base_model_name_or_path", facts->base, "r",
                  (json_int_t)shape->lora.rank, "lora_alpha", shape->lora.alpha, "lora_dropout",
                  facts->dropout, "target_modules", modules, "fan_in_fan_out", !names->is_out_in,
                  "bias", "none", "init_lora_weights", 1, "inference_mode", 1);
    const bool is_whole = root && (json_array_size(facts->saved) == 0 ||
                                   json_object_set(root, "modules_to_save", facts->saved) == 0);
    char *text = is_whole ? sl_json_file_dump(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for an " SL_ADAPTER_CONFIG);
    *out_text = text;
    return SL_OK;
}
