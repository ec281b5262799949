/* How libFuzzer changes inputs of readers of JSON: every other time as bytes, else as JSON, so that
 * what is changed is still read to the end. FUZZ_JSON_BEFORE bytes stand in front of the JSON of an
 * input; with FUZZ_JSON_IS_COUNTED the last eight of them are its length, which is put right. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef FUZZ_JSON_BEFORE
#define FUZZ_JSON_BEFORE 0
#endif
#ifndef FUZZ_JSON_IS_COUNTED
#define FUZZ_JSON_IS_COUNTED 0
#endif

enum { LENGTH_BYTES = 8, SHORT_BYTES = 64, COPIES_MAX = 12, CHANGES_MAX = 3, KEY_BYTES = 128 };

/* libFuzzer's, and what it calls. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed);

static uint64_t state;

/* xorshift64* */
static uint64_t draw(uint64_t below)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * UINT64_C(0x2545F4914F6CDD1D) >> 33) % below;
}

/* ---- a value of the tree ---- */

typedef struct spot {
    json_t *parent, *value; /* borrowed */
    size_t index;           /* in an array */
    char key[KEY_BYTES];    /* in an object */
} spot;

static size_t count_children(const json_t *value)
{
    return json_is_array(value) ? json_array_size(value) : json_object_size(value);
}

static void step_down(spot *at, size_t index)
{
    json_t *parent = at->value;
    at->parent = parent;
    at->index = index;
    at->key[0] = '\0';
    if (json_is_array(parent)) {
        at->value = json_array_get(parent, index);
        return;
    }
    void *entry = json_object_iter(parent);
    while (index-- > 0)
        entry = json_object_iter_next(parent, entry);
    strncat(at->key, json_object_iter_key(entry), KEY_BYTES - 2);
    at->value = json_object_iter_value(entry);
}

/* Below the root, if it has anything. */
static spot find_spot(json_t *root)
{
    spot at = {.value = root};
    while (count_children(at.value) > 0 && (!at.parent || draw(4) > 0))
        step_down(&at, draw(count_children(at.value)));
    return at;
}

/* ---- changes; each takes over the new value ---- */

static void replace(const spot *at, json_t *value)
{
    if (json_is_array(at->parent))
        json_array_set_new(at->parent, at->index, value);
    else
        json_object_set_new(at->parent, at->key, value);
}

static json_t *make_number(void)
{
    static const json_int_t numbers[] = {0,   1,     2,         -1,         9,         255,
                                         256, 65536, INT32_MAX, UINT32_MAX, INT64_MAX, INT64_MIN};
    return json_integer(numbers[draw(sizeof numbers / sizeof numbers[0])]);
}

static json_t *make_value(void)
{
    switch (draw(9)) {
    case 0:
        return json_null();
    case 1:
        return json_boolean((int)draw(2));
    case 2:
        return json_real(draw(2) ? 1.5 : -1e308);
    case 3:
        return json_string(draw(2) ? "" : "x");
    case 4:
        return json_array();
    case 5:
        return json_object();
    default:
        return make_number();
    }
}

/* A near one, or one of those that are on a border. */
static json_t *change_number(json_t *value)
{
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number > INT32_MAX || number < -INT32_MAX || draw(3) == 0)
        return make_number();
    return json_integer(draw(2) ? number + 1 - 2 * (json_int_t)draw(2) : number * 2);
}

static void repeat(const spot *at)
{
    char key[KEY_BYTES + 1];
    uint64_t copies = 1 + draw(COPIES_MAX);
    if (json_is_object(at->parent)) {
        snprintf(key, sizeof key, "%s%c", at->key, (char)('a' + draw(26)));
        json_object_set_new(at->parent, key, json_deep_copy(at->value));
        return;
    }
    for (uint64_t i = 0; i < copies; i++)
        json_array_insert_new(at->parent, at->index, json_deep_copy(at->value));
}

static void leave_out(const spot *at)
{
    if (json_is_array(at->parent))
        json_array_remove(at->parent, at->index);
    else
        json_object_del(at->parent, at->key);
}

static json_t *wrap(json_t *value)
{
    json_t *array = json_array();
    json_array_append_new(array, json_deep_copy(value));
    return array;
}

/* Leaves out all behind the first children of a value: what has to be there often stands in front.
 */
static void shorten(json_t *value)
{
    size_t left = count_children(value) > 0 ? draw(count_children(value)) : 0;
    for (size_t count = count_children(value); count > left; count--) {
        spot last = {.value = value};
        step_down(&last, count - 1);
        leave_out(&last);
    }
}

static void change(json_t *root)
{
    spot at = find_spot(root);
    if (!at.parent)
        return;
    switch (draw(8)) {
    case 0:
        replace(&at, make_value());
        break;
    case 1:
        repeat(&at);
        break;
    case 2:
        leave_out(&at);
        break;
    case 3: /* as something else in the tree */
        replace(&at, json_deep_copy(find_spot(root).value));
        break;
    case 4:
        replace(&at, wrap(at.value));
        break;
    case 5:
        shorten(draw(2) ? root : at.value);
        break;
    default:
        replace(&at, json_is_number(at.value) ? change_number(at.value) : make_value());
    }
}

/* ---- inputs ---- */

/* The input with other JSON in it; 0 if that is too long. */
static size_t put_back(uint8_t *data, size_t bytes, size_t most, size_t json_bytes,
                       const char *text)
{
    size_t length = strlen(text), behind = bytes - FUZZ_JSON_BEFORE - json_bytes;
    if (FUZZ_JSON_BEFORE + length + behind > most)
        return 0;
    memmove(data + FUZZ_JSON_BEFORE + length, data + FUZZ_JSON_BEFORE + json_bytes, behind);
    memcpy(data + FUZZ_JSON_BEFORE, text, length);
    uint64_t counted = length;
    if (FUZZ_JSON_IS_COUNTED)
        memcpy(data + (FUZZ_JSON_BEFORE > LENGTH_BYTES ? FUZZ_JSON_BEFORE - LENGTH_BYTES : 0),
               &counted, sizeof counted);
    return FUZZ_JSON_BEFORE + length + behind;
}

/* 0: there is no JSON in it, or what came out is too long. */
static size_t change_json(uint8_t *data, size_t bytes, size_t most)
{
    json_error_t error;
    size_t flags = JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY;
    if (bytes <= FUZZ_JSON_BEFORE)
        return 0;
    json_t *root =
        json_loadb((const char *)data + FUZZ_JSON_BEFORE, bytes - FUZZ_JSON_BEFORE, flags, &error);
    if (!root)
        return 0;
    size_t json_bytes = (size_t)error.position, changed = 0;
    for (uint64_t changes = 1 + draw(CHANGES_MAX); changes > 0; changes--)
        change(root);
    char *text = json_dumps(root, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    if (text)
        changed = put_back(data, bytes, most, json_bytes, text);
    free(text);
    json_decref(root);
    return changed;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed)
{
    state = seed * UINT64_C(0x9E3779B97F4A7C15) | 1;
    if (bytes > 1 && draw(32) == 0) /* short ones, which bytes that are left out one by one miss */
        return 1 + draw(bytes < SHORT_BYTES ? bytes : SHORT_BYTES);
    size_t changed = draw(2) ? change_json(data, bytes, most) : 0;
    return changed > 0 ? changed : LLVMFuzzerMutate(data, bytes, most);
}
