/* A configuration of DeepSpeed's, taken apart: the keys of deepspeed_keys.h with their values, and
 * in words what became of each. Knows their kinds, and nothing of options. */
#ifndef SL_FOREIGN_DEEPSPEED_DEEPSPEED_FILE_H
#define SL_FOREIGN_DEEPSPEED_DEEPSPEED_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "deepspeed_keys.h"

enum {
#define X(name, ...) SL_DEEPSPEED_##name,
    SL_DEEPSPEED_KEYS(X)
#undef X
        SL_DEEPSPEED_KEY_COUNT
};

enum { SL_DEEPSPEED_MEANING_BYTES = 160, SL_DEEPSPEED_NUMBER_BYTES = 32 };

typedef struct sl_deepspeed_file {
    const json_t *values[SL_DEEPSPEED_KEY_COUNT]; /* NULL: not in the file, or null; borrowed */
    char meanings[SL_DEEPSPEED_KEY_COUNT][SL_DEEPSPEED_MEANING_BYTES]; /* "": nothing to tell */
} sl_deepspeed_file;

/* Whether an object has a key that no other configuration has. */
bool sl_deepspeed_file_is_recognised(const json_t *object);

/* Finds the values of an object, which has to outlive *out_foreign. SL_ERROR_USAGE: a key is not
 * known, which names the nearest one, or its value is of another kind. */
sl_status sl_deepspeed_file_read(const json_t *object, sl_deepspeed_file *out_foreign);

/* Refuses what would change the numbers, and tells of the keys that have no meaning. Those that
 * become options are left to the caller. SL_ERROR_USAGE. */
sl_status sl_deepspeed_file_pass_over(sl_deepspeed_file *self);

/* "auto": decided here. */
bool sl_deepspeed_file_is_auto(const sl_deepspeed_file *self, uint32_t key);

/* Not there, or "auto". */
bool sl_deepspeed_file_is_open(const sl_deepspeed_file *self, uint32_t key);

bool sl_deepspeed_file_is_on(const sl_deepspeed_file *self, uint32_t key);
bool sl_deepspeed_file_is_off(const sl_deepspeed_file *self, uint32_t key);

/* The value of a key that is not open, else `fallback`. */
double sl_deepspeed_file_number(const sl_deepspeed_file *self, uint32_t key, double fallback);
const char *sl_deepspeed_file_text(const sl_deepspeed_file *self, uint32_t key,
                                   const char *fallback);

const char *sl_deepspeed_file_path(uint32_t key);

/* With as few digits as read back to the same value. */
const char *sl_deepspeed_file_format_number(double number,
                                            char out_text[SL_DEEPSPEED_NUMBER_BYTES]);

/* SL_ERROR_USAGE, with the key, its value, and why. */
sl_status __attribute__((format(printf, 3, 4)))
sl_deepspeed_file_refuse(const sl_deepspeed_file *self, uint32_t key, const char *format, ...);

/* Likewise of what would change the numbers. */
sl_status sl_deepspeed_file_refuse_unequal(const sl_deepspeed_file *self, uint32_t key,
                                           const char *why);

/* Says what became of a key; the last word stays. */
void __attribute__((format(printf, 3, 4)))
sl_deepspeed_file_note(sl_deepspeed_file *self, uint32_t key, const char *format, ...);

/* "no meaning: ...", of a key that is there. */
void sl_deepspeed_file_note_nothing(sl_deepspeed_file *self, uint32_t key, const char *why);

/* Prints what became of the keys of file `path`, a line each. */
void sl_deepspeed_file_print(const sl_deepspeed_file *self, const char *path, FILE *stream);

#endif
