/* Finds installed programs and libraries of others, for doctor and --version. */
#ifndef SL_CLI_DOCTOR_INSTALLED_H
#define SL_CLI_DOCTOR_INSTALLED_H

#include <stdbool.h>

typedef enum sl_installed_kind { SL_INSTALLED_NCCL, SL_INSTALLED_MPI } sl_installed_kind;

enum { SL_INSTALLED_PATH_BYTES = 512, SL_INSTALLED_TEXT_BYTES = 64 };

/* Writes the path of a program on PATH, or in `folder`; false: it is in neither. */
bool sl_installed_find_program(const char *name, const char *folder,
                               char out_path[SL_INSTALLED_PATH_BYTES]);

/* Writes the names of the libraries of a kind that the loader would find, such as "Open MPI,
 * MPICH";
 * "": none. */
void sl_installed_describe(sl_installed_kind kind, char out_text[SL_INSTALLED_TEXT_BYTES]);

#endif
