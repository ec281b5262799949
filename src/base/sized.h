/* Structs of the public headers that grow: a program and the library may have been compiled with
 * different versions of one.
 *
 * Fields are added at the end. The first added one begins behind the old sizeof, never in the
 * padding at its end: those bytes have no value in old programs.
 */
#ifndef SL_BASE_SIZED_H
#define SL_BASE_SIZED_H

#include "sluice/status.h"

#include <stddef.h>

/* Copies a program's struct of `given_bytes` into the library's of `bytes`. Fields that the program
 * does not know become 0. SL_ERROR_USAGE: the program sets a field that the library does not know;
 * the message begins with `name`, the struct's. */
sl_status sl_sized_take(const char *name, const void *given, size_t given_bytes, void *out,
                        size_t bytes);

/* Copies the library's struct of `bytes` into a program's of `out_bytes`, as much as it holds.
 * Fields that the library does not know become 0. */
void sl_sized_give(const void *from, size_t bytes, void *out, size_t out_bytes);

/* Whether a program has set the size in `out`, a struct of type `name` that a call will fill: its
 * first field, a size_t. SL_ERROR_USAGE: it has not. */
sl_status sl_sized_check(const char *name, const void *out);

/* sl_sized_give to such a struct: its size stays, and fields that the library does not know stay,
 * too. */
void sl_sized_fill(const void *from, size_t bytes, void *out);

#endif
