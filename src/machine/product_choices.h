/* Which algorithms matrix products take on a GPU: those that bench and `profile --time-products`
 * found to be the fastest, as a text beside the machine profile, products-cuda.txt.
 *
 * A list is the text of that file. Its first line names the GPU with its number of multiprocessors,
 * and the library with its version, because both decide which algorithms there are. Then follows
 * one line for each product (sl_kernel_table.choice). A damaged line names no algorithm: its
 * product takes the library's first. A run keeps the list that it began with in its checkpoints.
 */
#ifndef SL_MACHINE_PRODUCT_CHOICES_H
#define SL_MACHINE_PRODUCT_CHOICES_H

#include "base/status.h"
#include "sluice/device.h"

/* The list of the file; or the first line alone, if there is no file or if it is of another GPU or
 * library. The caller frees *out_list. A file that cannot be read gives a warning and counts as
 * none. SL_ERROR_SYSTEM: no memory. */
sl_status sl_product_choices_load(const sl_device_info *info, char **out_list);

/* Whether the first line of a list names this GPU and this library. */
bool sl_product_choices_is_of(const char *list, const sl_device_info *info);

/* Puts `lines`, each with a line break behind it, into the file. Products that `lines` does not
 * name keep their lines there, unless the file is of another GPU or library: then it is replaced.
 * *out_path is the file, which the caller frees; NULL if no line names an algorithm: then nothing
 * is written. SL_ERROR_MISSING: there is no directory for the file; SL_ERROR_IO, SL_ERROR_SYSTEM.
 */
sl_status sl_product_choices_keep(const sl_device_info *info, const char *lines, char **out_path);

#endif
