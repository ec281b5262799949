/* Python's pickles as values: what was pickled is told, and nothing of it is done. A class stays
 * the name of a class, a call the name of what was to be called and its arguments.
 *
 * Knows the opcodes that pickles of plain data use (protocols 2 to 5, and those of 0 and 1 that
 * they share): constants, containers, memo, names, calls, persistent ids. Any other is refused. Two
 * callables are carried out, since they only make containers: collections.OrderedDict without
 * arguments is an empty dict, and _codecs.encode of latin-1, by which Python 3 writes bytes for
 * Python 2, gives its text.
 *
 * Values are shared where the memo is used, and one may hold itself: walk by keys, never all.
 */
#ifndef SL_FOREIGN_TORCH_PICKLE_H
#define SL_FOREIGN_TORCH_PICKLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum sl_pickle_kind {
    SL_PICKLE_NONE,
    SL_PICKLE_BOOL,    /* `integer` is 0 or 1 */
    SL_PICKLE_INTEGER, /* of at most 64 bits */
    SL_PICKLE_LONG,    /* of more: two's complement, little-endian, in `text` */
    SL_PICKLE_REAL,
    SL_PICKLE_TEXT, /* str or bytes */
    SL_PICKLE_TUPLE,
    SL_PICKLE_LIST,   /* sets too */
    SL_PICKLE_DICT,   /* items are keys and values in turn */
    SL_PICKLE_GLOBAL, /* items: module, name */
    SL_PICKLE_CALL,   /* items: what is called, its arguments; the third, if any, is the state */
    SL_PICKLE_PERSISTENT, /* item: the id of an object that lies elsewhere */
    SL_PICKLE_KIND_COUNT
} sl_pickle_kind;

typedef struct sl_pickle_value {
    sl_pickle_kind kind;
    uint32_t capacity; /* of items */
    uint32_t count;    /* of items, or bytes of text */
    union {
        int64_t integer;
        double real;
        const char *text; /* not ended by a NUL */
        struct sl_pickle_value **items;
    };
} sl_pickle_value;

enum { SL_PICKLE_BYTES_MAX = 16 << 20 }; /* a byte can take 64 of memory */

typedef struct sl_pickle {
    const sl_pickle_value *root;
    uint64_t bytes; /* that it took of those given */
    /* Every persistent id, in the order in which they came; [persistent_count]. */
    const sl_pickle_value **persistents;
    uint32_t persistent_count;
    struct sl_pickle_block *blocks; /* where values lie */
} sl_pickle;

/* Reads the pickle that stands at the start of `data`, which has to outlive it. SL_ERROR_DATA names
 * the byte and the rule; `out_is_cut`, which may be NULL: the data ended before the pickle did, so
 * that more of it may help. SL_ERROR_SYSTEM. */
sl_status sl_pickle_open(const void *data, uint64_t bytes, sl_pickle **out_pickle,
                         bool *out_is_cut);

/* NULL is fine. */
void sl_pickle_close(sl_pickle *pickle);

/* Whether a value is this text. NULL is none. */
bool sl_pickle_is_text(const sl_pickle_value *value, const char *text);

/* Whether a value is this name of this module. */
bool sl_pickle_is_global(const sl_pickle_value *value, const char *module, const char *name);

/* Item `index` of a container, or NULL: another kind, or too few items. */
const sl_pickle_value *sl_pickle_item(const sl_pickle_value *value, sl_pickle_kind kind,
                                      uint32_t index);

/* The value of a key of a dict; the last of equal ones, as in Python. NULL: there is none, or this
 * is no dict. */
const sl_pickle_value *sl_pickle_get(const sl_pickle_value *dict, const char *key);

/* The same of a dotted path, each part of which may be a key of a dict in a dict, or several parts
 * one key: {"a": {"b.c": 1}} has "a.b.c". Where keys of a dict begin alike, the longest that leads
 * on is taken. */
const sl_pickle_value *sl_pickle_find(const sl_pickle_value *dict, const char *path);

/* The attributes of an object that was pickled with a dict of them, as argparse.Namespace; or NULL.
 */
const sl_pickle_value *sl_pickle_attributes(const sl_pickle_value *value);

/* An integer from `low` to `high` inclusive, both >= 0. */
bool sl_pickle_get_u64(const sl_pickle_value *value, uint64_t low, uint64_t high,
                       uint64_t *out_value);

#endif
