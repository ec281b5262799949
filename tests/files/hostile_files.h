/* Bad input files, made by hand: each breaks one rule, and names a piece of the message that must
 * come out. Used by the tests of the readers and by that of the command.
 *
 * kind         hostile_write(row, directory) makes          meant for
 * SAFETENSORS  directory/model.safetensors (+ config.json)   sl_safetensors_open, --init
 * INDEX        directory/model.safetensors.index.json,       sl_weights_import, --init
 *              shards, traps beside and above it
 * CONFIG       directory/config.json                         sl_weights_read_config, --init
 * TOKENS       directory/`file_name`                         sl_tokens_open, --data
 * MANIFEST     changes directory/manifest.json of a good     sl_checkpoint_open, --resume
 *              checkpoint of step 7, loss scale 1
 */
#ifndef SL_TESTS_HOSTILE_FILES_H
#define SL_TESTS_HOSTILE_FILES_H

#include "base/hash.h"
#include "scratch_dir.h"

typedef enum hostile_kind {
    HOSTILE_SAFETENSORS,
    HOSTILE_INDEX,
    HOSTILE_CONFIG,
    HOSTILE_TOKENS,
    HOSTILE_MANIFEST
} hostile_kind;

typedef struct hostile_row {
    hostile_kind kind;
    const char *what;     /* the rule that is broken */
    const char *fragment; /* of the message */
    const char *text;     /* header, JSON, or literal bytes; MANIFEST: what is looked for */
    size_t text_bytes;
    const char *replacement; /* MANIFEST: put in its place */
    int keep_seal;           /* MANIFEST: leave the checksum as it was */
    uint64_t length;         /* SAFETENSORS: declared header length, 0: the true one */
    uint64_t data_bytes;     /* SAFETENSORS, TOKENS: zero bytes behind the text */
    const char *file_name;   /* TOKENS */
    int32_t words[3];        /* TOKENS: llm.c's header, if words[0] != 0 */
} hostile_row;

#define HOSTILE_TEXT(literal) .text = (literal), .text_bytes = sizeof(literal) - 1

/* clang-format off */
#define S(what_, fragment_, header_, ...) \
    {.kind = HOSTILE_SAFETENSORS, .what = (what_), .fragment = (fragment_), HOSTILE_TEXT(header_), __VA_ARGS__}
#define ONE(dtype_, shape_, offsets_) \
    "{\"a\":{\"dtype\":\"" dtype_ "\",\"shape\":" shape_ ",\"data_offsets\":" offsets_ "}}"
#define TWO(first_, second_) \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" first_ "}," \
    "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" second_ "}}"
#define I(what_, fragment_, json_) \
    {.kind = HOSTILE_INDEX, .what = (what_), .fragment = (fragment_), HOSTILE_TEXT(json_)}
#define MAP(shard_) "{\"weight_map\":{\"a\":" shard_ ",\"b\":\"model-00002-of-00002.safetensors\"}}"
#define C(what_, fragment_, json_) \
    {.kind = HOSTILE_CONFIG, .what = (what_), .fragment = (fragment_), HOSTILE_TEXT(json_)}
#define GPT2(more_) "{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_head\":4," more_ "}"
#define T(what_, fragment_, name_, ...) \
    {.kind = HOSTILE_TOKENS, .what = (what_), .fragment = (fragment_), .file_name = (name_), __VA_ARGS__}
#define M(what_, fragment_, find_, replacement_, ...) \
    {.kind = HOSTILE_MANIFEST, .what = (what_), .fragment = (fragment_), HOSTILE_TEXT(find_), \
     .replacement = (replacement_), __VA_ARGS__}

static const hostile_row hostile_rows[] = {
    /* sizes and the length in front */
    S("length beyond the file", "beyond the end of the file", "{}", .length = 100),
    S("length of 2^63", "beyond the end of the file", "{}", .length = 1ull << 63),
    S("length of 2^64 - 1", "beyond the end of the file", "{}", .length = UINT64_MAX),
    S("length of 2^64 - 8, whose sum wraps", "beyond the end of the file", "{}", .length = UINT64_MAX - 7),
    S("length above the cap", "above the limit", "{}", .length = 100000001, .data_bytes = 100000001),
    S("no header", "does not start with '{'", "", .data_bytes = 8),
    S("length one short", "not strict JSON", "{\"__metadata__\":{}}", .length = 18),
    /* the JSON */
    S("array as header", "does not start with '{'", "[]"),
    S("blank in front", "does not start with '{'", " {}"),
    S("byte order mark in front", "does not start with '{'", "\xef\xbb\xbf{}"),
    S("line end behind", "does not end with '}'", "{}\n"),
    S("NUL behind", "does not end with '}'", "{}\0"),
    S("tab behind", "does not end with '}'", "{}\t"),
    S("bytes behind", "does not end with '}'", "{}x"),
    S("second object behind", "not strict JSON", "{}{}"),
    S("not closed", "not strict JSON", "{\"a\":{}"),
    S("trailing comma", "not strict JSON", "{\"a\":{},}"),
    S("single quotes", "not strict JSON", "{'a':{}}"),
    S("comment", "not strict JSON", "{/* */}"),
    S("NaN literal", "not strict JSON", "{\"a\":NaN}"),
    S("bad UTF-8", "not strict JSON", "{\"\xff\xfe\":{}}"),
    S("overlong UTF-8", "not strict JSON", "{\"\xc0\xaf\":{}}"),
    S("lone surrogate", "not strict JSON", "{\"\\ud800\":{}}"),
    S("NUL in a name", "not strict JSON", "{\"a\\u0000b\":{}}"),
    S("NUL behind a number", "holds a NUL byte", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1\0],\"data_offsets\":[0,4]}}", .data_bytes = 4),
    S("raw control byte in a name", "not strict JSON", "{\"a\x1b[31m\":{}}"),
    S("one tensor twice", "duplicate", "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
      "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", .data_bytes = 4),
    S("key of an entry twice", "duplicate", "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", .data_bytes = 4),
    S("integer above 2^63", "not strict JSON", ONE("U8", "[9223372036854775808]", "[0,4]"), .data_bytes = 4),
    S("metadata is a list", "__metadata__ is not an object", "{\"__metadata__\":[]}"),
    S("metadata holds a number", "is not a string", "{\"__metadata__\":{\"a\":1}}"),
    S("metadata holds an object", "is not a string", "{\"__metadata__\":{\"a\":{}}}"),
    /* the entries */
    S("entry is a number", "its entry is not an object", "{\"a\":1}"),
    S("entry is null", "its entry is not an object", "{\"a\":null}"),
    S("entry without dtype", "exactly the keys", "{\"a\":{\"shape\":[],\"data_offsets\":[0,0]}}"),
    S("entry without shape", "exactly the keys", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,0]}}"),
    S("entry without offsets", "exactly the keys", "{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}"),
    S("entry with a fourth key", "exactly the keys", "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],\"x\":1}}", .data_bytes = 4),
    S("escape sequence in a name is shown escaped", "tensor \"\\x1b[31mred\"", "{\"\\u001b[31mred\":1}"),
    S("unknown dtype", "dtype \"F31\" is unknown", ONE("F31", "[1]", "[0,4]"), .data_bytes = 4),
    S("dtype in small letters", "dtype \"f32\" is unknown", ONE("f32", "[1]", "[0,4]"), .data_bytes = 4),
    S("dtype is a number", "dtype is not a string", "{\"a\":{\"dtype\":1,\"shape\":[],\"data_offsets\":[0,4]}}", .data_bytes = 4),
    S("shape is a number", "shape is not an array", ONE("F32", "1", "[0,4]"), .data_bytes = 4),
    S("negative dimension", "not an integer from 0 on", ONE("F32", "[-1]", "[0,4]"), .data_bytes = 4),
    S("real dimension", "not an integer from 0 on", ONE("F32", "[1.0]", "[0,4]"), .data_bytes = 4),
    S("minus zero as dimension", "holds the number -0", ONE("F32", "[-0]", "[0,0]")),
    S("string as dimension", "not an integer from 0 on", ONE("F32", "[\"1\"]", "[0,4]"), .data_bytes = 4),
    S("nine dimensions", "more than 8", ONE("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), .data_bytes = 4),
    S("2^32 x 2^32 elements", "overflows 64 bits", ONE("F32", "[4294967296,4294967296]", "[0,0]")),
    S("2^62 elements of 32 bits", "overflows 64 bits", ONE("F32", "[4611686018427387904]", "[0,0]")),
    S("overflow hidden by a zero behind", "overflows 64 bits", ONE("F32", "[4294967296,4294967296,0]", "[0,0]")),
    S("half a byte", "not whole bytes", ONE("F4", "[1]", "[0,1]"), .data_bytes = 1),
    S("one offset", "not an array of two", ONE("F32", "[1]", "[0]"), .data_bytes = 4),
    S("three offsets", "not an array of two", ONE("F32", "[1]", "[0,4,8]"), .data_bytes = 4),
    S("offsets are an object", "not an array of two", ONE("F32", "[1]", "{}"), .data_bytes = 4),
    S("negative offset", "data_offsets[0] is not an integer", ONE("F32", "[1]", "[-4,0]"), .data_bytes = 4),
    S("real offset", "data_offsets[1] is not an integer", ONE("F32", "[1]", "[0,4e0]"), .data_bytes = 4),
    S("ends before it begins", "ends before it begins", ONE("F32", "[1]", "[4,0]"), .data_bytes = 4),
    S("offsets too wide for the shape", "span 8 bytes", ONE("F32", "[1]", "[0,8]"), .data_bytes = 8),
    S("offsets too narrow for the shape", "span 4 bytes", ONE("F32", "[2]", "[0,4]"), .data_bytes = 4),
    S("empty tensor with data", "span 4 bytes", ONE("F32", "[0]", "[0,4]"), .data_bytes = 4),
    /* the cover */
    S("first tensor not at 0", "leaving a hole", ONE("F32", "[1]", "[4,8]"), .data_bytes = 8),
    S("hole between tensors", "leaving a hole", TWO("[0,4]", "[8,12]"), .data_bytes = 12),
    S("overlap of two tensors", "overlapping", TWO("[0,4]", "[2,6]"), .data_bytes = 6),
    S("two tensors at one place", "overlapping", TWO("[0,4]", "[0,4]"), .data_bytes = 4),
    S("data shorter than the tensors", "the file has 3", ONE("F32", "[1]", "[0,4]"), .data_bytes = 3),
    S("data longer than the tensors", "the file has 5", ONE("F32", "[1]", "[0,4]"), .data_bytes = 5),
    S("data without tensors", "the file has 1", "{}", .data_bytes = 1),
    S("offset far behind the file", "leaving a hole", ONE("F32", "[1]", "[9223372036854775800,9223372036854775804]"), .data_bytes = 4),

    /* shard indices; a is in shard 1, b in shard 2 */
    I("index is a list", "not a JSON object", "[]"),
    I("index is cut", "not strict JSON", "{\"weight_map\":{"),
    I("index names a tensor twice", "duplicate", "{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}"),
    I("index without a map", "weight_map is not an object", "{}"),
    I("index with an empty map", "weight_map is not an object", "{\"weight_map\":{}}"),
    I("shard is a number", "is not a string", MAP("1")),
    I("shard in the parent", "not a plain file name", MAP("\"../outside.safetensors\"")),
    I("shard by absolute path", "not a plain file name", MAP("\"/tmp/outside.safetensors\"")),
    I("shard in a subdirectory", "not a plain file name", MAP("\"sub/model.safetensors\"")),
    I("shard with a backslash", "not a plain file name", MAP("\"..\\\\outside.safetensors\"")),
    I("shard is ..", "not a plain file name", MAP("\"..\"")),
    I("shard is hidden", "not a plain file name", MAP("\".safetensors\"")),
    I("shard is empty", "does not end in .safetensors", MAP("\"\"")),
    I("shard is another kind of file", "does not end in .safetensors", MAP("\"config.json\"")),
    I("shard with a NUL", "not strict JSON", MAP("\"x\\u0000.safetensors\"")),
    I("shard is a symbolic link", "symbolic link", MAP("\"link.safetensors\"")),
    I("shard is a FIFO", "is a FIFO", MAP("\"pipe.safetensors\"")),
    I("shard is a directory", "is a directory", MAP("\"folder.safetensors\"")),
    I("shard is not there", "cannot be opened", MAP("\"model-00003-of-00002.safetensors\"")),
    I("shard is not safetensors", "too few for a safetensors file", MAP("\"short.safetensors\"")),
    I("tensor mapped to the wrong shard", "but mapped to", "{\"weight_map\":{\"a\":\"model-00002-of-00002.safetensors\",\"b\":\"model-00001-of-00002.safetensors\"}}"),
    I("tensor mapped, but nowhere", "but is not there", "{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\",\"b\":\"model-00002-of-00002.safetensors\",\"c\":\"model-00001-of-00002.safetensors\"}}"),
    I("tensor in a shard, but not mapped", "mapped to \"none\"", "{\"weight_map\":{\"c\":\"model-00001-of-00002.safetensors\"}}"),

    /* configurations */
    C("config is empty", "not strict JSON", ""),
    C("config is a list", "not a JSON object", "[]"),
    C("config with a key twice", "duplicate", GPT2("\"n_layer\":1,\"n_layer\":2")),
    C("config with a NUL behind a number", "holds a NUL byte", "{\"model_type\":\"gpt2\",\"n_layer\":2\0}"),
    C("no model_type", "\"model_type\" is missing", "{}"),
    C("another model", "model_type is \"mamba\"", "{\"model_type\":\"mamba\"}"),
    C("another model, with an escape sequence", "\\x1b[2J", "{\"model_type\":\"\\u001b[2J\"}"),
    C("no layers", "\"n_layer\" is not an integer from 1", GPT2("\"n_layer\":0")),
    C("negative vocabulary", "\"vocab_size\" is not an integer from 1", GPT2("\"vocab_size\":-1")),
    C("real width", "\"n_layer\" is not an integer from 1", GPT2("\"n_layer\":2.5")),
    C("context of 2^40", "\"n_positions\" is not an integer from 1", GPT2("\"n_positions\":1099511627776")),
    C("width that heads do not divide", "not a multiple of n_head", "{\"model_type\":\"gpt2\",\"n_embd\":65,\"n_head\":4}"),
    C("other inner width", "n_inner", GPT2("\"n_inner\":100")),
    C("inner width as text", "n_inner", GPT2("\"n_inner\":\"256\"")),
    C("exact GELU", "activation_function is \"gelu\"", GPT2("\"activation_function\":\"gelu\"")),
    C("ReLU", "activation_function is \"relu\"", GPT2("\"activation_function\":\"relu\"")),
    C("other epsilon", "layer_norm_epsilon", GPT2("\"layer_norm_epsilon\":1e-6")),
    C("scaling by layer", "scale_attn_by_inverse_layer_idx", GPT2("\"scale_attn_by_inverse_layer_idx\":true")),
    C("upcast attention", "reorder_and_upcast_attn", GPT2("\"reorder_and_upcast_attn\":true")),
    C("unscaled attention", "scale_attn_weights", GPT2("\"scale_attn_weights\":false")),
    C("untied head", "tie_word_embeddings", GPT2("\"tie_word_embeddings\":false")),
    C("cross attention", "add_cross_attention", GPT2("\"add_cross_attention\":true")),
    C("switch as number", "not true or false", GPT2("\"tie_word_embeddings\":1")),

    /* token files */
    T("empty text", "is empty", "empty.txt", .text = ""),
    T("empty tokens", "is empty", "empty.bin", .text = ""),
    T("odd nanoGPT file", "not whole uint16 tokens", "odd.bin", HOSTILE_TEXT("abc")),
    T("one byte of tokens", "not whole uint16 tokens", "one.bin", HOSTILE_TEXT("a")),
    T("llm.c without its header", "is cut inside", "cut.bin", HOSTILE_TEXT("\x88\xd8\x34\x01\x01\0\0\0")),
    T("llm.c of another version", "of version 2", "version.bin", .words = {20240520, 2, 4}, .data_bytes = 8),
    T("llm.c without tokens", "counts 0 tokens", "none.bin", .words = {20240520, 1, 0}),
    T("llm.c with negative count", "counts -1 tokens", "negative.bin", .words = {20240520, 1, -1}, .data_bytes = 8),
    T("llm.c with largest count", "which is 4294968318 bytes", "many.bin", .words = {20240520, 1, INT32_MAX}, .data_bytes = 8),
    T("llm.c one byte short", "but the file has 1031", "short.bin", .words = {20240520, 1, 4}, .data_bytes = 7),
    T("llm.c one byte long", "but the file has 1033", "long.bin", .words = {20240520, 1, 4}, .data_bytes = 9),
    T("llm.c uint32 of version 1", "of version 1", "wide.bin", .words = {20240801, 1, 4}, .data_bytes = 16),
    T("llm.c uint32 with uint16 data", "which is 1040 bytes", "narrow.bin", .words = {20240801, 7, 4}, .data_bytes = 8),
    T("llm.c evaluation file", "an llm.c evaluation file", "eval.bin", .words = {20240522, 1, 4}),
    T("llm.c model", "an llm.c model", "model.bin", .words = {20240326, 3, 4}),
    T("llm.c optimizer state", "an llm.c optimizer state", "state.bin", .words = {20240527, 1, 4}),
    T("llm.c tokenizer", "an llm.c tokenizer", "tokenizer.bin", .words = {20240328, 2, 4}),
    T("Megatron index", "give the .bin beside it", "data.idx", HOSTILE_TEXT("MMIDIDX\0\0\1\0\0\0\0\0\0\0")),

    /* manifests: a change to that of a good checkpoint */
    M("manifest is cut", "not strict JSON", "\"format\"", "", .keep_seal = 1),
    M("counter changed afterwards", "its checksum does not match", "\"step\": 7", "\"step\": 8", .keep_seal = 1),
    M("checksum changed", "does not end in its checksum", "\"checksum\"", "\"checksun\"", .keep_seal = 1),
    M("bytes behind the checksum changed", "does not end in its checksum", "\"\n}\n", "\"\n}\t", .keep_seal = 1),
    M("another format", "not \"sluice-checkpoint\"", "sluice-checkpoint", "other-checkpoint"),
    M("no format", "\"format\" is missing", "\"format\":", "\"form\":"),
    M("later version", "is newer than this program", "\"format_version\": 1", "\"format_version\": 6"),
    M("late by two steps", "\"lr_decay_lag\" is not an integer from 0", "\"lr_decay_lag\": 0", "\"lr_decay_lag\": 2"),
    M("version 0", "\"format_version\" is not an integer from 1", "\"format_version\": 1", "\"format_version\": 0"),
    M("key twice", "duplicate", "\"tokens_total\":", "\"step\":"),
    M("no step", "\"step\" is missing", "\"step\":", "\"stop\":"),
    M("negative step", "\"step\" is not an integer", "\"step\": 7", "\"step\": -7"),
    M("seed is no number", "\"seed\" is not a number", "\"seed\": \"", "\"seed\": \"x"),
    M("seed above 64 bits", "\"seed\" is not a number", "\"seed\": \"", "\"seed\": \"99999999999999999999"),
    M("loss scale is text", "\"loss_scale\" is not a number", "\"loss_scale\": 1.0", "\"loss_scale\": \"1.0\""),
    M("no shape", "\"model\" is missing", "\"model\":", "\"modem\":"),
    M("width 0", "\"width\" is not an integer from 1", "\"width\": ", "\"width\": 0, \"was\": "),
    M("no configuration", "\"config\" is missing", "\"config\":", "\"conf\":"),
    M("no GEMM", "\"gemm\" is missing", "\"gemm\":", "\"gem\":"),
    M("no data", "\"data\" is missing", "\"data\": \"", "\"date\": \""),
    M("no files", "\"files\" is missing", "\"files\":", "\"filed\":"),
    M("file in the parent", "\"../moment1.safetensors\" is unknown", "\"moment1.safetensors\"", "\"../moment1.safetensors\""),
    M("file by another name", "\"\\x1b.safetensors\" is unknown", "\"moment1.safetensors\"", "\"\\u001b.safetensors\""),
    M("no model file", "does not list model.safetensors", "\"files\": {", "\"files\": {}, \"other\": {"),
    M("unknown precision", "none of fp32|bf16|fp16", "\"precision\": \"fp", "\"precision\": \"xp"),
    M("precision is a number", "precision", "\"precision\": \"", "\"precision\": 16, \"x\": \""),
    M("other size", "but the manifest says 1", "\"bytes\": ", "\"bytes\": 1, \"was\": "),
    M("negative size", "\"bytes\" is not an integer", "\"bytes\": ", "\"bytes\": -"),
    M("other checksum of a file", "but the manifest says 0000000000000000", "\"xxh3_128\": \"", "\"xxh3_128\": \"00000000000000000000000000000000\", \"was\": \""),
    M("checksum with capitals", "not 32 hexadecimal digits", "\"xxh3_128\": \"", "\"xxh3_128\": \"A0000000000000000000000000000000\", \"was\": \""),
    M("short checksum", "not 32 hexadecimal digits", "\"xxh3_128\": \"", "\"xxh3_128\": \"00\", \"was\": \""),
};

#undef S
#undef ONE
#undef TWO
#undef I
#undef MAP
#undef C
#undef GPT2
#undef T
#undef M
/* clang-format on */

enum { HOSTILE_COUNT = sizeof hostile_rows / sizeof hostile_rows[0] };

static inline void hostile_write_safetensors(const hostile_row *row, const char *path)
{
    FILE *file = fopen(path, "wb");
    scratch_need(file != NULL, path);
    uint64_t length = row->length ? row->length : row->text_bytes;
    scratch_need(fwrite(&length, sizeof length, 1, file) == 1, path);
    fwrite(row->text, 1, row->text_bytes, file);
    fflush(file);
    uint64_t bytes = sizeof length + row->text_bytes + row->data_bytes;
    scratch_need(ftruncate(fileno(file), (off_t)bytes) == 0, path);
    fclose(file);
}

/* A good shard with one F32 element called `name`. */
static inline void hostile_write_shard(const char *path, const char *name)
{
    char header[128];
    int bytes = snprintf(header, sizeof header,
                         "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", name);
    hostile_row row = {.text = header, .text_bytes = (size_t)bytes, .data_bytes = 4};
    hostile_write_safetensors(&row, path);
}

static inline void hostile_write_index(const hostile_row *row, const char *directory)
{
    scratch_write(scratch_join(directory, "model.safetensors.index.json").text, row->text,
                  row->text_bytes);
    hostile_write_shard(scratch_join(directory, "model-00001-of-00002.safetensors").text, "a");
    hostile_write_shard(scratch_join(directory, "model-00002-of-00002.safetensors").text, "b");
    scratch_write(scratch_join(directory, "short.safetensors").text, "short", 5);
    scratch_path link = scratch_join(directory, "link.safetensors");
    unlink(link.text);
    scratch_need(symlink("model-00001-of-00002.safetensors", link.text) == 0, link.text);
    mkfifo(scratch_join(directory, "pipe.safetensors").text, 0600);
    mkdir(scratch_join(directory, "folder.safetensors").text, 0700);
}

static inline void hostile_write_tokens(const hostile_row *row, const char *path)
{
    enum { HEADER_BYTES = 1024 };
    char start[HEADER_BYTES] = {0};
    size_t bytes = row->words[0] ? HEADER_BYTES : row->text_bytes;
    memcpy(start, row->words[0] ? (const void *)row->words : row->text,
           row->words[0] ? sizeof row->words : row->text_bytes);
    scratch_write(path, start, bytes);
    scratch_need(truncate(path, (off_t)(bytes + row->data_bytes)) == 0, path);
}

/* Puts the right checksum at the end of a changed manifest, as a malicious writer would. */
static inline void hostile_seal(char *text)
{
    char *tail = strstr(text, ",\n  \"checksum\": \"");
    sl_hash_stream *stream = NULL;
    scratch_need(tail != NULL && sl_hash_open(&stream) == SL_OK, "manifest");
    sl_hash_update(stream, text, (uint64_t)(tail - text));
    sl_hash_value hash = sl_hash_digest(stream);
    sl_hash_close(stream);
    snprintf(tail, strlen(tail) + 1, ",\n  \"checksum\": \"%016llx%016llx\"\n}\n",
             (unsigned long long)hash.high, (unsigned long long)hash.low);
}

static inline void hostile_change_manifest(const hostile_row *row, const char *path)
{
    size_t bytes;
    char *old = scratch_read(path, &bytes);
    size_t room = bytes + strlen(row->replacement) + 1;
    char *fresh = calloc(room, 1);
    char *found = strstr(old, row->text);
    scratch_need(fresh != NULL && found != NULL, row->what);
    snprintf(fresh, room, "%.*s%s%s", (int)(found - old), old, row->replacement,
             found + row->text_bytes);
    if (!row->keep_seal)
        hostile_seal(fresh);
    scratch_write(path, fresh, strlen(fresh));
    free(old);
    free(fresh);
}

/* Makes the files of a row in an existing directory; see the table at the top. */
static inline void hostile_write(const hostile_row *row, const char *directory)
{
    static const char good_config[] = "{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_head\":4}";
    if (row->kind == HOSTILE_SAFETENSORS || row->kind == HOSTILE_INDEX)
        scratch_write(scratch_join(directory, "config.json").text, good_config,
                      sizeof good_config - 1);
    switch (row->kind) {
    case HOSTILE_SAFETENSORS:
        hostile_write_safetensors(row, scratch_join(directory, "model.safetensors").text);
        break;
    case HOSTILE_INDEX:
        hostile_write_index(row, directory);
        break;
    case HOSTILE_CONFIG:
        scratch_write(scratch_join(directory, "config.json").text, row->text, row->text_bytes);
        break;
    case HOSTILE_TOKENS:
        hostile_write_tokens(row, scratch_join(directory, row->file_name).text);
        break;
    case HOSTILE_MANIFEST:
        hostile_change_manifest(row, scratch_join(directory, "manifest.json").text);
        break;
    }
}

#endif
