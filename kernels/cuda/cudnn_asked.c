/* Whose attention the environment asks for. */
#include <stdlib.h>
#include <string.h>

#include "cudnn_attention.h"

sl_status sl_cudnn_find_asked(bool *out_is_asked)
{
    const char *name = getenv("SLUICE_ATTENTION");
    const bool is_cudnn = name != NULL && strcmp(name, "cudnn") == 0;
    if (name != NULL && *name != '\0' && !is_cudnn && strcmp(name, "own") != 0)
        SL_FAIL(SL_ERROR_USAGE, "SLUICE_ATTENTION is \"%.40s\": it may be own or cudnn", name);
    *out_is_asked = is_cudnn;
    return SL_OK;
}
