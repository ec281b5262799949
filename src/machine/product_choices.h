/* Which algorithms matrix products take on a GPU: what bench and `profile --time-products` found to
 * be the fastest, as a text beside the machine profile, products-cuda.txt.
 *
 * A list is that text. Its first line says whose it is: the GPU with its number of multiprocessors,
 * and the library with its version, for both decide what the algorithms are. Behind that stands a
 * line a product (sl_kernel_table.choice). A line that is damaged names no algorithm, and its
 * product takes the library's first. A run keeps the list that it began with in its checkpoints.
 */
#ifndef SL_MACHINE_PRODUCT_CHOICES_H
#define SL_MACHINE_PRODUCT_CHOICES_H

#include "base/status.h"
#include "sluice/device.h"

/* The list for this GPU and library: the file's; or the first line alone, if there is no such file
 * or it is of others. The caller frees. A file that cannot be read is a warning. SL_ERROR_SYSTEM.
 */
sl_status sl_product_choices_load(const sl_device_info *info, char **out_list);

/* Whether a list is of this GPU and this library. */
bool sl_product_choices_is_of(const char *list, const sl_device_info *info);

/* Puts `lines`, each with a line break behind it, into the file for this GPU and library. Other
 * products keep their lines there; those of another GPU or library go. Without a line that names an
 * algorithm nothing is written, and *out_path is NULL; else the caller frees *out_path.
 * SL_ERROR_MISSING: there is no place; SL_ERROR_IO, SL_ERROR_SYSTEM. */
sl_status sl_product_choices_keep(const sl_device_info *info, const char *lines, char **out_path);

#endif
