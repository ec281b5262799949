/* The list of algorithms: which algorithm of cuBLASLt computes each matrix product on a GPU, where
 * another one than the library's first was the fastest that bench and `profile --time-algorithms`
 * found. It is a text beside the machine profile, algorithms-cuda.txt.
 *
 * Its first line names the GPU with its number of multiprocessors,
 * and the library with its version, because both decide which algorithms there are. Then follows
 * one line for each product (sl_kernel_table.algorithm). A damaged line names no algorithm: its
 * product takes the library's first. A run keeps the list that it began with in its checkpoints.
 */
#ifndef SL_MACHINE_ALGORITHM_LIST_H
#define SL_MACHINE_ALGORITHM_LIST_H

#include "base/status.h"
#include "sluice/device.h"

/* The list of the file; or the first line alone, if there is no file or if it is of another GPU or
 * library. The caller frees *out_list. A file that cannot be read gives a warning and counts as
 * none. SL_ERROR_SYSTEM: no memory. */
sl_status sl_algorithm_list_load(const sl_device_info *info, char **out_list);

/* Whether the first line of a list names this GPU and this library. */
bool sl_algorithm_list_is_of(const char *list, const sl_device_info *info);

/* Whether sl_algorithm_list_keep could write, before minutes go into timing. SL_ERROR_DATA,
 * SL_ERROR_IO: the file is there and no list, or cannot be read. SL_ERROR_MISSING: there is no
 * directory for the file; SL_ERROR_SYSTEM. */
sl_status sl_algorithm_list_check(void);

/* Puts `lines`, each with a line break behind it, into the file. Products that `lines` does not
 * name keep their lines there, unless the file is of another GPU or library: then it is replaced.
 * A file that is no list, or cannot be read, stays as it is. *out_path is the file, which the
 * caller frees; NULL if no line names an algorithm: then nothing is written. Errors: as of
 * sl_algorithm_list_check; SL_ERROR_DATA also if the list would be too large to be read again. */
sl_status sl_algorithm_list_keep(const sl_device_info *info, const char *lines, char **out_path);

#endif
