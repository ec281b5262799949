/* A stack machine without effects; see pickle.h. Opcodes as Python's pickletools lists them. */
#include "pickle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum { BLOCK_VALUES = 512, FIRST_CAPACITY = 4, LONG_BYTES_MAX = 64 };

typedef struct sl_pickle_block {
    struct sl_pickle_block *next;
    uint32_t count;
    sl_pickle_value values[BLOCK_VALUES];
} sl_pickle_block;

/* A growing list of values, or of places in the stack where a mark is. */
typedef struct value_list {
    sl_pickle_value **items;
    uint64_t count, capacity;
} value_list;

typedef struct machine {
    const unsigned char *start, *at, *end;
    sl_pickle *pickle;
    value_list stack, memo, persistents;
    value_list marks; /* each the stack's count, kept as a pointer's worth of integer */
    bool is_cut, is_done;
} machine;

static uint64_t find_place(const machine *self)
{
    return (uint64_t)(self->at - self->start);
}

static const char WHAT[] = "what a pickle holds";

static sl_status refuse_memory(void)
{
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for %s", WHAT);
}

/* ---- bytes ---- */

static sl_status take(machine *self, uint64_t bytes, const unsigned char **out_data)
{
    if (bytes > (uint64_t)(self->end - self->at)) {
        self->is_cut = true;
        SL_FAIL(SL_ERROR_DATA, "the pickle ends in the middle, at byte %" PRIu64,
                (uint64_t)(self->end - self->start));
    }
    *out_data = self->at;
    self->at += bytes;
    return SL_OK;
}

/* A little-endian integer of up to 8 bytes. */
static sl_status take_number(machine *self, uint32_t bytes, uint64_t *out_number)
{
    const unsigned char *data;
    SL_TRY(take(self, bytes, &data));
    *out_number = 0;
    for (uint32_t i = 0; i < bytes; i++)
        *out_number |= (uint64_t)data[i] << (8 * i);
    return SL_OK;
}

/* Up to a line feed, which is passed over. */
static sl_status take_line(machine *self, const char **out_text, uint32_t *out_bytes)
{
    const unsigned char *data = self->at, *end = NULL;
    if (data < self->end)
        end = memchr(data, '\n', (size_t)(self->end - data));
    uint64_t bytes = (uint64_t)((end ? end : self->end) - data);
    if (bytes > UINT32_MAX)
        SL_FAIL(SL_ERROR_DATA, "a line of %" PRIu64 " bytes in a pickle", bytes);
    SL_TRY(take(self, bytes + 1, &data));
    *out_text = (const char *)data;
    *out_bytes = (uint32_t)bytes;
    return SL_OK;
}

/* ---- values ---- */

static sl_status add_to_list(value_list *list, sl_pickle_value *value)
{
    SL_TRY(SL_ARRAY_RESERVE(list->items, list->count + 1, list->capacity, WHAT));
    list->items[list->count++] = value;
    return SL_OK;
}

static sl_status make(machine *self, sl_pickle_kind kind, sl_pickle_value **out_value)
{
    sl_pickle_block *block = self->pickle->blocks;
    *out_value = NULL;
    if (!block || block->count == BLOCK_VALUES) {
        block = malloc(sizeof *block);
        if (!block)
            return refuse_memory();
        block->next = self->pickle->blocks;
        block->count = 0;
        self->pickle->blocks = block;
    }
    *out_value = &block->values[block->count++];
    **out_value = (sl_pickle_value){.kind = kind};
    return SL_OK;
}

static sl_status push_new(machine *self, sl_pickle_kind kind, sl_pickle_value **out_value)
{
    SL_TRY(make(self, kind, out_value));
    return add_to_list(&self->stack, *out_value);
}

static sl_status push_integer(machine *self, sl_pickle_kind kind, int64_t integer)
{
    sl_pickle_value *value;
    SL_TRY(push_new(self, kind, &value));
    value->integer = integer;
    return SL_OK;
}

static sl_status push_text(machine *self, sl_pickle_kind kind, uint64_t bytes)
{
    const unsigned char *data;
    sl_pickle_value *value;
    SL_TRY(take(self, bytes, &data));
    if (bytes > UINT32_MAX)
        SL_FAIL(SL_ERROR_DATA, "a text of %" PRIu64 " bytes in a pickle", bytes);
    SL_TRY(push_new(self, kind, &value));
    value->text = (const char *)data;
    value->count = (uint32_t)bytes;
    return SL_OK;
}

static bool has_items(const sl_pickle_value *value)
{
    return value->kind >= SL_PICKLE_TUPLE;
}

static sl_status reserve(sl_pickle_value *value, uint64_t more)
{
    uint64_t needed = value->count + more, capacity = value->capacity;
    if (needed <= capacity)
        return SL_OK;
    if (needed > UINT32_MAX / 2)
        SL_FAIL(SL_ERROR_DATA, "a container of %" PRIu64 " values in a pickle", needed);
    if (capacity > 0 || more == 1) /* it grows one by one */
        capacity = 2 * capacity > FIRST_CAPACITY ? 2 * capacity : FIRST_CAPACITY;
    capacity = needed > capacity ? needed : capacity;
    sl_pickle_value **items = realloc(value->items, capacity * sizeof(sl_pickle_value *));
    if (!items)
        return refuse_memory();
    value->items = items;
    value->capacity = (uint32_t)capacity;
    return SL_OK;
}

static sl_status add_items(sl_pickle_value *value, sl_pickle_value *const *items, uint64_t count)
{
    if (count == 0)
        return SL_OK;
    SL_TRY(reserve(value, count));
    memcpy(value->items + value->count, items, count * sizeof(sl_pickle_value *));
    value->count += (uint32_t)count;
    return SL_OK;
}

/* ---- the stack ---- */

static uint64_t get_mark(const machine *self)
{
    return self->marks.count ? (uint64_t)(uintptr_t)self->marks.items[self->marks.count - 1] : 0;
}

/* Needs so many values above the last mark. */
static sl_status need(const machine *self, uint64_t count)
{
    if (self->stack.count - get_mark(self) >= count)
        return SL_OK;
    SL_FAIL(SL_ERROR_DATA, "the pickle takes more than it put down, before byte %" PRIu64,
            find_place(self));
}

static sl_pickle_value **top(const machine *self, uint64_t count)
{
    return self->stack.items + self->stack.count - count;
}

/* Forgets the last mark; what stands above it. */
static sl_status pop_mark(machine *self, sl_pickle_value ***out_items, uint64_t *out_count)
{
    if (self->marks.count == 0)
        SL_FAIL(SL_ERROR_DATA, "the pickle has no mark where it needs one, before byte %" PRIu64,
                find_place(self));
    uint64_t mark = get_mark(self);
    self->marks.count--;
    *out_items = self->stack.items + mark;
    *out_count = self->stack.count - mark;
    self->stack.count = mark;
    return SL_OK;
}

static sl_status push_mark(machine *self)
{
    return add_to_list(&self->marks, (sl_pickle_value *)(uintptr_t)self->stack.count);
}

/* ---- containers ---- */

static sl_status replace_top(machine *self, uint64_t count, sl_pickle_kind kind)
{
    sl_pickle_value *value;
    SL_TRY(need(self, count));
    SL_TRY(make(self, kind, &value));
    SL_TRY(add_items(value, top(self, count), count));
    self->stack.count -= count;
    return add_to_list(&self->stack, value);
}

static sl_status make_from_mark(machine *self, sl_pickle_kind kind)
{
    sl_pickle_value **items, *value;
    uint64_t count;
    SL_TRY(pop_mark(self, &items, &count));
    if (kind == SL_PICKLE_DICT && count % 2 != 0)
        SL_FAIL(SL_ERROR_DATA, "a dict with a key and no value in the pickle");
    SL_TRY(make(self, kind, &value));
    SL_TRY(add_items(value, items, count));
    return add_to_list(&self->stack, value);
}

/* Adds what was popped to the container under it. An object of an unknown class may be filled so
 * too: what goes into it is passed over. */
static sl_status fill(machine *self, sl_pickle_value *const *items, uint64_t count,
                      sl_pickle_kind kind)
{
    SL_TRY(need(self, 1));
    sl_pickle_value *container = *top(self, 1);
    if (container->kind == SL_PICKLE_CALL)
        return SL_OK;
    if (container->kind != kind || (kind == SL_PICKLE_DICT && count % 2 != 0))
        SL_FAIL(SL_ERROR_DATA, "the pickle fills what is no %s, before byte %" PRIu64,
                kind == SL_PICKLE_DICT ? "dict with pairs" : "list", find_place(self));
    return add_items(container, items, count);
}

static sl_status fill_from_mark(machine *self, sl_pickle_kind kind)
{
    sl_pickle_value **items;
    uint64_t count;
    SL_TRY(pop_mark(self, &items, &count));
    return fill(self, items, count, kind); /* the items stand above the stack's end still */
}

static sl_status fill_from_top(machine *self, uint64_t count, sl_pickle_kind kind)
{
    SL_TRY(need(self, count + 1));
    sl_pickle_value *const *items = top(self, count);
    self->stack.count -= count;
    return fill(self, items, count, kind);
}

/* ---- names, calls, memo ---- */

static sl_status push_global(machine *self)
{
    for (int i = 0; i < 2; i++) {
        const char *text;
        uint32_t bytes;
        sl_pickle_value *value;
        SL_TRY(take_line(self, &text, &bytes));
        SL_TRY(push_new(self, SL_PICKLE_TEXT, &value));
        value->text = text;
        value->count = bytes;
    }
    return replace_top(self, 2, SL_PICKLE_GLOBAL);
}

static sl_status name_top(machine *self)
{
    SL_TRY(need(self, 2));
    if (top(self, 2)[0]->kind != SL_PICKLE_TEXT || top(self, 2)[1]->kind != SL_PICKLE_TEXT)
        SL_FAIL(SL_ERROR_DATA, "a name in the pickle is no text, before byte %" PRIu64,
                find_place(self));
    return replace_top(self, 2, SL_PICKLE_GLOBAL);
}

static sl_status call(machine *self)
{
    SL_TRY(need(self, 2));
    const sl_pickle_value *callable = top(self, 2)[0];
    sl_pickle_value *arguments = top(self, 2)[1];
    if (arguments->kind != SL_PICKLE_TUPLE)
        SL_FAIL(SL_ERROR_DATA, "a call in the pickle has no arguments, before byte %" PRIu64,
                find_place(self));
    if (arguments->count == 0 && sl_pickle_is_global(callable, "collections", "OrderedDict")) {
        sl_pickle_value *dict;
        self->stack.count -= 2;
        return push_new(self, SL_PICKLE_DICT, &dict);
    }
    if (arguments->count == 2 && arguments->items[0]->kind == SL_PICKLE_TEXT &&
        sl_pickle_is_global(callable, "_codecs", "encode")) {
        self->stack.count -= 2;
        return add_to_list(&self->stack, arguments->items[0]);
    }
    return replace_top(self, 2, SL_PICKLE_CALL);
}

/* The state of an object. A dict, as OrderedDict is here, has attributes that nobody asks for. */
static sl_status build(machine *self)
{
    SL_TRY(need(self, 2));
    sl_pickle_value *object = top(self, 2)[0], *state = top(self, 2)[1];
    self->stack.count--;
    if (object->kind == SL_PICKLE_DICT)
        return SL_OK;
    if (object->kind != SL_PICKLE_CALL || object->count > 2)
        SL_FAIL(SL_ERROR_DATA, "the pickle gives a state to what has none, before byte %" PRIu64,
                find_place(self));
    return add_items(object, &state, 1);
}

static sl_status refer(machine *self)
{
    SL_TRY(replace_top(self, 1, SL_PICKLE_PERSISTENT));
    return add_to_list(&self->persistents, *top(self, 1));
}

/* Python numbers from 0 on, one by one. */
static sl_status remember(machine *self, uint64_t index)
{
    SL_TRY(need(self, 1));
    if (index > self->memo.count)
        SL_FAIL(SL_ERROR_DATA, "memo %" PRIu64 " comes before its turn, before byte %" PRIu64,
                index, find_place(self));
    if (index == self->memo.count)
        return add_to_list(&self->memo, *top(self, 1));
    self->memo.items[index] = *top(self, 1);
    return SL_OK;
}

static sl_status recall(machine *self, uint64_t index)
{
    if (index >= self->memo.count)
        SL_FAIL(SL_ERROR_DATA, "memo %" PRIu64 " is asked for and not there, before byte %" PRIu64,
                index, find_place(self));
    return add_to_list(&self->stack, self->memo.items[index]);
}

/* ---- opcodes ---- */

static sl_status push_long(machine *self)
{
    uint64_t bytes;
    sl_pickle_value *value;
    SL_TRY(take_number(self, 1, &bytes));
    if (bytes > LONG_BYTES_MAX)
        SL_FAIL(SL_ERROR_DATA, "an integer of %" PRIu64 " bytes in the pickle", bytes);
    SL_TRY(push_text(self, SL_PICKLE_LONG, bytes));
    value = *top(self, 1);
    if (bytes > sizeof value->integer)
        return SL_OK;
    const unsigned char *data = self->at - bytes;
    uint64_t integer = bytes > 0 && (data[bytes - 1] & 0x80) ? UINT64_MAX : 0; /* its sign */
    for (uint64_t i = bytes; i-- > 0;)
        integer = integer << 8 | data[i];
    *value = (sl_pickle_value){.kind = SL_PICKLE_INTEGER, .integer = (int64_t)integer};
    return SL_OK;
}

static sl_status push_real(machine *self)
{
    const unsigned char *data;
    sl_pickle_value *value;
    uint64_t bits = 0;
    SL_TRY(take(self, sizeof bits, &data));
    for (size_t i = 0; i < sizeof bits; i++) /* the only big-endian one */
        bits = bits << 8 | data[i];
    SL_TRY(push_new(self, SL_PICKLE_REAL, &value));
    memcpy(&value->real, &bits, sizeof bits);
    return SL_OK;
}

static sl_status pop(machine *self)
{
    if (self->stack.count > get_mark(self)) {
        self->stack.count--;
        return SL_OK;
    }
    sl_pickle_value **items;
    uint64_t count;
    return pop_mark(self, &items, &count);
}

static sl_status stop(machine *self)
{
    if (self->stack.count != 1 || self->marks.count != 0)
        SL_FAIL(SL_ERROR_DATA, "the pickle ends with %" PRIu64 " values, not with one",
                self->stack.count);
    self->is_done = true;
    return SL_OK;
}

/* What an opcode does. */
typedef enum action {
    REFUSE,
    PASS,   /* `width` bytes over */
    CHECK,  /* a protocol of at most 5 */
    SIGNED, /* an integer of `width` bytes with a sign, or without */
    UNSIGNED,
    TEXT,     /* its length in `width` bytes in front */
    CONSTANT, /* of `kind`, the integer being `width` */
    LONG,
    REAL,
    EMPTY,     /* a container of `kind` */
    FROM_MARK, /* the same of what stands above the mark */
    FROM_TOP,  /* of `width` values */
    FILL_MARK,
    FILL_TOP,
    MARK,
    POP,
    POP_MARK,
    DUPLICATE,
    NAME_LINES,
    NAME_TOP,
    CALL,
    BUILD,
    REFER,
    PUT, /* the index in `width` bytes */
    GET,
    MEMOIZE,
    STOP
} action;

typedef struct opcode {
    action action;
    uint8_t width;
    sl_pickle_kind kind;
} opcode;

static const opcode opcodes[256] = {
    [0x80] = {CHECK, 1, 0},
    [0x95] = {PASS, 8, 0},
    ['N'] = {CONSTANT, 0, SL_PICKLE_NONE},
    [0x88] = {CONSTANT, 1, SL_PICKLE_BOOL},
    [0x89] = {CONSTANT, 0, SL_PICKLE_BOOL},
    ['J'] = {SIGNED, 4, 0},
    ['K'] = {UNSIGNED, 1, 0},
    ['M'] = {UNSIGNED, 2, 0},
    [0x8a] = {LONG, 0, 0},
    ['G'] = {REAL, 0, 0},
    ['X'] = {TEXT, 4, 0},
    ['T'] = {TEXT, 4, 0},
    ['B'] = {TEXT, 4, 0},
    ['U'] = {TEXT, 1, 0},
    ['C'] = {TEXT, 1, 0},
    [0x8c] = {TEXT, 1, 0},
    [0x8d] = {TEXT, 8, 0},
    [0x8e] = {TEXT, 8, 0},
    [')'] = {EMPTY, 0, SL_PICKLE_TUPLE},
    [']'] = {EMPTY, 0, SL_PICKLE_LIST},
    [0x8f] = {EMPTY, 0, SL_PICKLE_LIST},
    ['}'] = {EMPTY, 0, SL_PICKLE_DICT},
    ['t'] = {FROM_MARK, 0, SL_PICKLE_TUPLE},
    ['l'] = {FROM_MARK, 0, SL_PICKLE_LIST},
    [0x91] = {FROM_MARK, 0, SL_PICKLE_LIST},
    ['d'] = {FROM_MARK, 0, SL_PICKLE_DICT},
    [0x85] = {FROM_TOP, 1, SL_PICKLE_TUPLE},
    [0x86] = {FROM_TOP, 2, SL_PICKLE_TUPLE},
    [0x87] = {FROM_TOP, 3, SL_PICKLE_TUPLE},
    [0x81] = {CALL, 0, 0},
    ['R'] = {CALL, 0, 0},
    ['e'] = {FILL_MARK, 0, SL_PICKLE_LIST},
    [0x90] = {FILL_MARK, 0, SL_PICKLE_LIST},
    ['u'] = {FILL_MARK, 0, SL_PICKLE_DICT},
    ['a'] = {FILL_TOP, 1, SL_PICKLE_LIST},
    ['s'] = {FILL_TOP, 2, SL_PICKLE_DICT},
    ['('] = {MARK, 0, 0},
    ['0'] = {POP, 0, 0},
    ['1'] = {POP_MARK, 0, 0},
    ['2'] = {DUPLICATE, 0, 0},
    ['c'] = {NAME_LINES, 0, 0},
    [0x93] = {NAME_TOP, 0, 0},
    ['b'] = {BUILD, 0, 0},
    ['Q'] = {REFER, 0, 0},
    ['q'] = {PUT, 1, 0},
    ['r'] = {PUT, 4, 0},
    ['h'] = {GET, 1, 0},
    ['j'] = {GET, 4, 0},
    [0x94] = {MEMOIZE, 0, 0},
    ['.'] = {STOP, 0, 0},
};

static sl_status check_protocol(uint64_t protocol)
{
    if (protocol <= 5)
        return SL_OK;
    SL_FAIL(SL_ERROR_DATA, "the pickle is of protocol %" PRIu64 "; up to 5 are read", protocol);
}

/* Those that read a number behind the opcode. */
static sl_status run_with_number(machine *self, const opcode *code, uint64_t number)
{
    switch (code->action) {
    case CHECK:
        return check_protocol(number);
    case SIGNED:
        return push_integer(self, SL_PICKLE_INTEGER, (int32_t)(uint32_t)number);
    case UNSIGNED:
        return push_integer(self, SL_PICKLE_INTEGER, (int64_t)number);
    case TEXT:
        return push_text(self, SL_PICKLE_TEXT, number);
    case PUT:
        return remember(self, number);
    case GET:
        return recall(self, number);
    default:
        return SL_OK; /* PASS */
    }
}

static bool has_number(const opcode *code)
{
    switch (code->action) {
    case CHECK:
    case SIGNED:
    case UNSIGNED:
    case TEXT:
    case PUT:
    case GET:
    case PASS:
        return true;
    default:
        return false;
    }
}

/* Those that make or fill a container. */
static sl_status run_container(machine *self, const opcode *code)
{
    switch (code->action) {
    case FROM_MARK:
        return make_from_mark(self, code->kind);
    case FROM_TOP:
        return replace_top(self, code->width, code->kind);
    case FILL_MARK:
        return fill_from_mark(self, code->kind);
    case FILL_TOP:
        return fill_from_top(self, code->width, code->kind);
    default:
        return replace_top(self, 0, code->kind); /* EMPTY */
    }
}

static sl_status run_other(machine *self, const opcode *code)
{
    sl_pickle_value **items;
    uint64_t count;
    switch (code->action) {
    case CONSTANT:
        return push_integer(self, code->kind, code->width);
    case LONG:
        return push_long(self);
    case REAL:
        return push_real(self);
    case MARK:
        return push_mark(self);
    case POP:
        return pop(self);
    case POP_MARK:
        return pop_mark(self, &items, &count);
    case DUPLICATE:
        SL_TRY(need(self, 1));
        return add_to_list(&self->stack, *top(self, 1));
    case NAME_LINES:
        return push_global(self);
    case NAME_TOP:
        return name_top(self);
    case CALL:
        return call(self);
    case BUILD:
        return build(self);
    case REFER:
        return refer(self);
    case MEMOIZE:
        return remember(self, self->memo.count);
    case STOP:
        return stop(self);
    default:
        return run_container(self, code);
    }
}

static sl_status run_next(machine *self)
{
    const unsigned char *data;
    uint64_t number;
    SL_TRY(take(self, 1, &data));
    const opcode *code = &opcodes[*data];
    if (code->action == REFUSE)
        SL_FAIL(SL_ERROR_DATA,
                "the pickle has the opcode 0x%02x at byte %" PRIu64
                ", which plain data do not need: it is not read",
                *data, find_place(self) - 1);
    if (!has_number(code))
        return run_other(self, code);
    SL_TRY(take_number(self, code->width, &number));
    return run_with_number(self, code, number);
}

static sl_status run(machine *self)
{
    while (!self->is_done)
        SL_TRY(run_next(self));
    self->pickle->root = self->stack.items[0];
    self->pickle->bytes = find_place(self);
    self->pickle->persistents = (const sl_pickle_value **)self->persistents.items;
    self->pickle->persistent_count = (uint32_t)self->persistents.count;
    self->persistents.items = NULL;
    return SL_OK;
}

sl_status sl_pickle_open(const void *data, uint64_t bytes, sl_pickle **out_pickle, bool *out_is_cut)
{
    if (out_is_cut)
        *out_is_cut = false;
    if (bytes > SL_PICKLE_BYTES_MAX)
        SL_FAIL(SL_ERROR_DATA, "a pickle of %" PRIu64 " bytes; at most %d are read", bytes,
                SL_PICKLE_BYTES_MAX);
    machine self = {.start = data, .at = data, .pickle = calloc(1, sizeof *self.pickle)};
    if (!self.pickle)
        return refuse_memory();
    self.end = self.start + bytes;
    sl_status status = /* so that it has a top from the start */
        SL_ARRAY_RESERVE(self.stack.items, BLOCK_VALUES, self.stack.capacity, WHAT);
    if (status == SL_OK)
        status = run(&self);
    free(self.stack.items);
    free(self.memo.items);
    free(self.marks.items);
    free(self.persistents.items);
    if (out_is_cut)
        *out_is_cut = self.is_cut;
    if (status == SL_OK)
        *out_pickle = self.pickle;
    else
        sl_pickle_close(self.pickle);
    return status;
}

void sl_pickle_close(sl_pickle *pickle)
{
    if (!pickle)
        return;
    for (sl_pickle_block *block = pickle->blocks; block;) {
        sl_pickle_block *next = block->next;
        for (uint32_t i = 0; i < block->count; i++)
            if (has_items(&block->values[i]))
                free(block->values[i].items);
        free(block);
        block = next;
    }
    free(pickle->persistents);
    free(pickle);
}

/* ---- looking ---- */

bool sl_pickle_is_text(const sl_pickle_value *value, const char *text)
{
    return value && value->kind == SL_PICKLE_TEXT && value->count == strlen(text) &&
           memcmp(value->text, text, value->count) == 0;
}

bool sl_pickle_is_global(const sl_pickle_value *value, const char *module, const char *name)
{
    return value && value->kind == SL_PICKLE_GLOBAL && sl_pickle_is_text(value->items[0], module) &&
           sl_pickle_is_text(value->items[1], name);
}

const sl_pickle_value *sl_pickle_item(const sl_pickle_value *value, sl_pickle_kind kind,
                                      uint32_t index)
{
    if (!value || value->kind != kind || !has_items(value) || index >= value->count)
        return NULL;
    return value->items[index];
}

const sl_pickle_value *sl_pickle_get(const sl_pickle_value *dict, const char *key)
{
    if (!dict || dict->kind != SL_PICKLE_DICT)
        return NULL;
    for (uint32_t i = dict->count; i >= 2; i -= 2)
        if (sl_pickle_is_text(dict->items[i - 2], key))
            return dict->items[i - 1];
    return NULL;
}

/* The dict that the longest key leads to which stands at the start of the path, before a dot. */
static const sl_pickle_value *step_down(const sl_pickle_value *dict, const char **path)
{
    const sl_pickle_value *found = NULL;
    uint32_t longest = 0;
    for (uint32_t i = 0; i + 1 < dict->count; i += 2) {
        const sl_pickle_value *key = dict->items[i];
        if (key->kind == SL_PICKLE_TEXT && key->count >= longest && key->count < strlen(*path) &&
            memcmp(key->text, *path, key->count) == 0 && (*path)[key->count] == '.' &&
            dict->items[i + 1]->kind == SL_PICKLE_DICT) {
            longest = key->count;
            found = dict->items[i + 1];
        }
    }
    *path += found ? longest + 1 : 0;
    return found;
}

const sl_pickle_value *sl_pickle_find(const sl_pickle_value *dict, const char *path)
{
    while (dict && dict->kind == SL_PICKLE_DICT) { /* each step takes a byte of the path at least */
        const sl_pickle_value *value = sl_pickle_get(dict, path);
        if (value)
            return value;
        dict = step_down(dict, &path);
    }
    return NULL;
}

const sl_pickle_value *sl_pickle_attributes(const sl_pickle_value *value)
{
    const sl_pickle_value *state = sl_pickle_item(value, SL_PICKLE_CALL, 2);
    return state && state->kind == SL_PICKLE_DICT ? state : NULL;
}

bool sl_pickle_get_u64(const sl_pickle_value *value, uint64_t low, uint64_t high,
                       uint64_t *out_value)
{
    if (!value || value->kind != SL_PICKLE_INTEGER || value->integer < 0 ||
        (uint64_t)value->integer < low || (uint64_t)value->integer > high)
        return false;
    *out_value = (uint64_t)value->integer;
    return true;
}
