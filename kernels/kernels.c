/* Finds the kernels of a device kind, their workspaces and their algorithms. */
#define _GNU_SOURCE /* open_memstream */
#include "kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

const sl_kernel_table *sl_kernels_of(sl_device_kind kind)
{
    return kind == SL_DEVICE_CPU    ? sl_kernels_cpu()
           : kind == SL_DEVICE_CUDA ? sl_kernels_cuda()
                                    : NULL;
}

sl_status sl_kernels_find(const sl_kernel_table *table, sl_op_kind kind, sl_kernel *out_kernel)
{
    static const char *const names[SL_OP_COUNT] = {
#define X(NAME, name, ...) [SL_OP_##NAME] = #name,
        SL_OP_LIST(X)
#undef X
    };
    const bool is_op = (unsigned)kind < SL_OP_COUNT;
    if (!is_op || table->row[kind].run == NULL)
        SL_FAIL(SL_ERROR_INTERNAL, "this kind of device has no kernel for the op %s",
                is_op ? names[kind] : "(unknown)");
    *out_kernel = table->row[kind].run;
    return SL_OK;
}

uint64_t sl_kernels_workspace_bytes(const sl_kernel_table *table, sl_op_kind kind,
                                    const sl_op_attrs *attrs, uint32_t worker_count)
{
    const sl_kernel_row *row = &table->row[kind];
    return row->workspace_bytes ? row->workspace_bytes(kind, attrs, worker_count) : 0;
}

sl_status sl_kernels_list_algorithms(const sl_kernel_table *table, const sl_kernel_library *library,
                                     const char *before, const char *behind, char **out_text)
{
    size_t bytes = 0;
    const char *algorithm;
    char *text = NULL;
    FILE *stream = open_memstream(&text, &bytes);
    for (uint64_t i = 0; stream && (algorithm = table->algorithm(library, i)) != NULL; i++)
        fprintf(stream, "%s%s%s", before, algorithm, behind);
    if (!stream || fclose(stream) != 0) {
        free(text);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the list of algorithms");
    }
    *out_text = text;
    return SL_OK;
}
