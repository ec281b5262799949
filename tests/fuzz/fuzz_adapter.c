/* A directory of PEFT's adapters, for a small GPT-2 or Llama. The first byte of an input is a set
 * of the bits below, the rest adapter_config.json or the header of adapter_model.safetensors,
 * beside a good one of the other; zeros follow the header, as many as it says. Of what is accepted,
 * the adapters have a rank, a factor and layers, and what is imported are all elements of the
 * model's adapters, once each. */
#define _GNU_SOURCE
#include <jansson.h>

#include "foreign/adapter.h"
#include "fuzz.h"

enum {
    IS_LLAMA = 1,
    IS_HEADER = 2,
    LENGTH_BYTES = 8,
    DATA_MAX = 1 << 20,     /* bytes of zeros */
    ELEMENTS_MAX = 1 << 18, /* of all adapters that are imported */
    TENSORS_MAX = 64
};

static const sl_model_shape shapes[] = {
    {.layers = 2, .width = 4, .heads = 2, .context = 4, .vocab = 8},
    {.layers = 2,
     .width = 4,
     .heads = 2,
     .context = 4,
     .vocab = 8,
     .architecture = SL_ARCHITECTURE_LLAMA,
     .kv_heads = 1,
     .head = 2,
     .ffn = 6,
     .norm_epsilon = 1e-5,
     .rope = {.base = 1e4}}};

static const char CONFIG[] = "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 2}";

#define TENSOR(name, rows, columns, first, end)                                                    \
    "\"base_model.model." name ".weight\": {\"dtype\": \"F32\", \"shape\": [" rows ", " columns    \
    "], \"data_offsets\": [" first ", " end "]}"

static const char *const headers[] = {
    "{" TENSOR("transformer.h.0.attn.c_proj.lora_A", "1", "4", "0", "16") ", " TENSOR(
        "transformer.h.0.attn.c_proj.lora_B", "4", "1", "16",
        "32") ", " TENSOR("transformer.h.1.attn.c_proj.lora_A", "1", "4", "32",
                          "48") ", " TENSOR("transformer.h.1.attn.c_proj.lora_B", "4", "1", "48",
                                            "64") "}",
    "{" TENSOR("model.layers.0.self_attn.v_proj.lora_A", "1", "4", "0", "16") ", " TENSOR(
        "model.layers.0.self_attn.v_proj.lora_B", "2", "1", "16",
        "24") ", " TENSOR("model.layers.1.self_attn.v_proj.lora_A", "1", "4", "24",
                          "40") ", " TENSOR("model.layers.1.self_attn.v_proj.lora_B", "2", "1",
                                            "40", "48") "}"};

/* ---- the files ---- */

/* Bytes of data that a header promises; 0: none, or too many. */
static uint64_t find_data_bytes(const char *header, size_t bytes)
{
    json_int_t most = 0;
    const char *key;
    json_t *value, *root = json_loadb(header, bytes, 0, NULL);
    json_object_foreach(root, key, value)
    {
        const json_t *end = json_array_get(json_object_get(value, "data_offsets"), 1);
        if (json_integer_value(end) > most)
            most = json_integer_value(end);
    }
    json_decref(root);
    return most <= DATA_MAX ? (uint64_t)most : 0;
}

static void write_weights(const char *header, size_t bytes)
{
    static char file[LENGTH_BYTES + (1 << 16) + DATA_MAX];
    const uint64_t length = bytes < 1 << 16 ? bytes : 1 << 16;
    fuzz_is_running = false; /* what follows is not the reader's memory */
    const uint64_t data = find_data_bytes(header, length);
    fuzz_is_running = true;
    memcpy(file, &length, LENGTH_BYTES);
    memcpy(file + LENGTH_BYTES, header, length);
    memset(file + LENGTH_BYTES + length, 0, data);
    fuzz_allow(data);
    fuzz_write(SL_ADAPTER_WEIGHTS, file, LENGTH_BYTES + length + data);
}

static void write_files(const uint8_t *data, size_t bytes)
{
    const char *text = (const char *)data + 1, *header = headers[data[0] & IS_LLAMA];
    if (data[0] & IS_HEADER) {
        fuzz_write(SL_ADAPTER_CONFIG, CONFIG, sizeof CONFIG - 1);
        write_weights(text, bytes - 1);
    } else {
        fuzz_write(SL_ADAPTER_CONFIG, text, bytes - 1);
        write_weights(header, strlen(header));
    }
}

/* ---- what is imported ---- */

typedef struct import {
    sl_tensor_spec tensors[TENSORS_MAX];
    uint64_t written[TENSORS_MAX];
    uint32_t count;
} import;

static sl_status take(void *user, sl_group group, uint32_t tensor, uint64_t first, uint64_t count,
                      const float *data)
{
    import *self = user;
    FUZZ_NEED(group == SL_GROUP_PARAM && tensor < self->count);
    FUZZ_NEED(first + count <= self->tensors[tensor].element_count);
    for (uint64_t i = 0; i < count; i++)
        FUZZ_NEED(data[i] == 0);
    self->written[tensor] += count;
    return SL_OK;
}

/* The adapters of the model; false: they are too large for a fuzz target. */
static bool list_adapters(const sl_model_shape *shape, import *out)
{
    const sl_model_options options = {.batch = 1, .seq = 1, .tp_size = 1};
    sl_program *program = NULL;
    uint64_t elements = 0;
    fuzz_is_running = false;
    FUZZ_NEED(sl_model_shape_emit(shape, &options, &program) == SL_OK);
    for (uint32_t t = 0; t < program->tensor_count; t++)
        if (program->tensors[t].is_adapter) {
            FUZZ_NEED(out->count < TENSORS_MAX);
            out->tensors[out->count++] = program->tensors[t];
            elements += program->tensors[t].element_count;
        }
    sl_program_close(program);
    fuzz_is_running = true;
    fuzz_allow(16 * elements);
    return elements <= ELEMENTS_MAX;
}

static void import_all(const sl_adapter *adapter, sl_model_shape shape)
{
    static import self;
    const sl_tensor_io io = {.write = take, .user = &self};
    self = (import){.count = 0};
    shape.lora = *sl_adapter_lora(adapter);
    if (!list_adapters(&shape, &self) ||
        !fuzz_accepts(sl_adapter_import(adapter, self.tensors, self.count, &io)))
        return;
    FUZZ_NEED(self.count > 0);
    for (uint32_t t = 0; t < self.count; t++)
        FUZZ_NEED(self.written[t] == self.tensors[t].element_count);
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    sl_adapter *adapter = NULL;
    if (bytes == 0)
        return;
    const sl_model_shape *shape = &shapes[data[0] & IS_LLAMA];
    write_files(data, bytes);
    if (!fuzz_accepts(sl_adapter_open(fuzz_directory(), shape, &adapter)))
        return;
    const sl_lora *lora = sl_adapter_lora(adapter);
    FUZZ_NEED(lora->rank >= 1 && lora->rank <= SL_LORA_RANK_MAX && lora->alpha > 0);
    FUZZ_NEED(*lora->targets && strlen(lora->targets) < sizeof lora->targets);
    import_all(adapter, *shape);
    sl_adapter_close(adapter);
}
