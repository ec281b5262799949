/* What of other programs and libraries is installed, for doctor and --version. */
#ifndef SL_CLI_DOCTOR_INSTALLED_H
#define SL_CLI_DOCTOR_INSTALLED_H

#include <stdbool.h>

typedef enum sl_installed_kind { SL_INSTALLED_NCCL, SL_INSTALLED_MPI } sl_installed_kind;

enum { SL_INSTALLED_PATH_BYTES = 512, SL_INSTALLED_TEXT_BYTES = 64 };

/* A program on PATH, or in `folder`; false: there is none. */
bool sl_installed_find_program(const char *name, const char *folder,
                               char out_path[SL_INSTALLED_PATH_BYTES]);

/* The libraries of a kind that lie where the loader looks, such as "Open MPI, MPICH"; "": none. */
void sl_installed_describe(sl_installed_kind kind, char out_text[SL_INSTALLED_TEXT_BYTES]);

#endif
