/* --version: what this binary is made of. */
#include <string.h>

#include "command.h"
#include "doctor/installed.h"
#include "kernels/kernels.h"
#include "offload/store.h"
#include "sluice/version.h"

#ifndef SL_CUDA_VERSION
#define SL_CUDA_VERSION "no"
#endif

#if defined(__x86_64__)
#include <cpuid.h>

enum { AMX_BF16 = 1 << 22 };

/* __builtin_cpu_supports takes literals only. */
#define ADD_FEATURE(name)                                                                          \
    if (__builtin_cpu_supports(name))                                                              \
    append_word(out_text, capacity, name)
#endif

static void append_word(char *text, size_t capacity, const char *word)
{
    size_t length = strlen(text);
    if (length < capacity)
        snprintf(text + length, capacity - length, "%s%s", length ? " " : "", word);
}

void sl_command_describe_cpu(char *out_text, size_t capacity)
{
    out_text[0] = '\0';
#if defined(__x86_64__)
    unsigned eax, ebx, ecx, edx;
    __builtin_cpu_init();
    ADD_FEATURE("avx2");
    ADD_FEATURE("fma");
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0)
        append_word(out_text, capacity, "f16c"); /* not every compiler knows it by name */
    ADD_FEATURE("avx512f");
    ADD_FEATURE("avx512dq");
    ADD_FEATURE("avx512bw");
    ADD_FEATURE("avx512vl");
    ADD_FEATURE("avx512bf16");
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & AMX_BF16) != 0)
        append_word(out_text, capacity, "amx_bf16");
#endif
    if (!*out_text)
        append_word(out_text, capacity, "none that is used");
}

void sl_command_print_version(FILE *stream)
{
    char features[256], nccl[SL_INSTALLED_TEXT_BYTES], mpi[SL_INSTALLED_TEXT_BYTES];
    sl_command_describe_cpu(features, sizeof features);
    fprintf(stream, "sluice %s (git %s)\n", sl_version_text(), sl_version_commit());
    fprintf(stream, "compiler: %s\n", __VERSION__);
    fprintf(stream, "cpu kernels: %s\n", sl_kernels_cpu()->description());
    fprintf(stream, "cpu features: %s\n", features);
    fprintf(stream, "jansson: %s\n", JANSSON_VERSION);
    fprintf(stream, "disk tier: %s\n", sl_store_probe());
    fprintf(stream, "cuda: %s\n", SL_CUDA_VERSION);
    if (sl_kernels_cuda())
        fprintf(stream, "cuda kernels: %s\n", sl_kernels_cuda()->description());
    sl_installed_describe(SL_INSTALLED_NCCL, nccl);
    sl_installed_describe(SL_INSTALLED_MPI, mpi);
    fprintf(stream, "nccl: %s\n", *nccl ? "yes" : "no");
    fprintf(stream, "mpi: %s\n", *mpi ? mpi : "no");
}
