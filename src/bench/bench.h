/* Measures this machine: ops by type and shape, copies, memory, disk, each beside its roof, and
 * makes its profile of that.
 *
 * Rounds alternate over all cases and roofs, so that a machine that changes its speed does so
 * under all of them. Nothing is printed; what was measured comes back as rows.
 */
#ifndef SL_BENCH_BENCH_H
#define SL_BENCH_BENCH_H

#include "device/device.h"
#include "machine/profile.h"
#include "model/architecture.h"
#include "samples.h"

/* What can be measured alone: the groups of rows. */
typedef enum sl_bench_figure {
    SL_BENCH_GEMM,
    SL_BENCH_ADAMW, /* also that of the host beside a GPU */
    SL_BENCH_OP,
    SL_BENCH_MEMORY,
    SL_BENCH_COPY,
    SL_BENCH_COMM,
    SL_BENCH_DISK,
    SL_BENCH_NUMA,
    SL_BENCH_PROFILE_COUNT, /* those before are of a machine profile, those behind are not */
    SL_BENCH_PRODUCT = SL_BENCH_PROFILE_COUNT, /* of known models, one by one */
    SL_BENCH_ATTENTION,
    SL_BENCH_FIGURE_COUNT
} sl_bench_figure;

typedef struct sl_bench_options {
    sl_device_kind device; /* whose ops and copies */
    int device_index;
    sl_cuda_options cuda;
    const char *const *disk_directories;
    uint32_t disk_directory_count; /* 0: the disk stays a guess */
    uint32_t thread_count;
    uint32_t figures;         /* a set of 1 << sl_bench_figure; 0: all of a machine profile */
    const char *const *match; /* PRODUCT, ATTENTION: words of which a row has each in its name */
    uint32_t match_count;
    const sl_machine *base; /* rates of what is not measured; NULL: a guess */
    bool is_quick; /* seconds instead of a minute: fewer shapes and rounds, less of the disk */
    const sl_model_shape *small_shape; /* tests: of one short step instead of GPT-2's; NULL: none */
    void (*progress)(void *user, const char *line); /* or NULL */
    void *user;
} sl_bench_options;

/* A row beside the same of an earlier run. */
typedef enum sl_bench_verdict {
    SL_BENCH_SAME, /* as far as both rows' spread tells */
    SL_BENCH_WORSE,
    SL_BENCH_BETTER
} sl_bench_verdict;

/* A product of `in` and `out` features, or attention. */
typedef struct sl_bench_kernel {
    const char *model;     /* "gpt2" */
    const char *part;      /* "qkv", "mlp-up", ..., "attention" */
    const char *direction; /* "forward", "input", "weight"; "forward", "backward", "cached" */
    uint64_t batch, rows;  /* attention: T; cached: T in the cache and one token */
    uint64_t in, out, heads, key_heads, head_width;
} sl_bench_kernel;

typedef struct sl_bench_row {
    const char *group;   /* a figure's name, or "host_adamw" */
    const char *type;    /* "fp32", ..., or "" */
    char name[64];       /* "linear 768x2304, 256 rows" */
    sl_percentiles rate; /* of work a second; p10 is the slow end */
    double seconds;      /* median of one piece of work */
    double fit_seconds;  /* of an op: what the profile will say of it; else 0 */
    double roof;         /* in the same unit; 0: the row is a roof itself */
    bool is_flops;       /* FLOP/s, else bytes/s */
    sl_percentiles old;  /* of the run that this one is held against; all 0: it has no such row */
    sl_bench_verdict verdict;
    sl_bench_kernel kernel; /* of product and attention; else all 0 */
} sl_bench_row;

typedef struct sl_bench {
    sl_bench_row *rows;
    uint32_t row_count, row_capacity;
    sl_profile profile;
    char disk_note[SL_PROFILE_TEXT_BYTES]; /* how the disk was reached */
    char fio_note[SL_PROFILE_TEXT_BYTES];  /* why there are no rows of fio; "": there are */
    char numa_note[SL_PROFILE_TEXT_BYTES]; /* why there are no rows of NUMA nodes; "": there are */
    char old_note[SL_PROFILE_NOTE_BYTES];  /* what this run is held against; "": nothing */
    double old_ratio;                      /* the middle of the rows' ratios to it */
    uint32_t worse_count, better_count;
    char *algorithms; /* owned: the fastest of a GPU's products, a line each; NULL: not timed */
} sl_bench;

/* "gemm", "adamw", ... */
const char *sl_bench_figure_name(sl_bench_figure figure);

/* Runs everything; blocks for about a minute. Release with sl_bench_close. */
sl_status sl_bench_run(const sl_bench_options *options, sl_bench *out_bench);

/* A zeroed one is fine. */
void sl_bench_close(sl_bench *bench);

/* Appends a copy of a row. For the other files of this room. */
sl_status sl_bench_add(sl_bench *bench, const sl_bench_row *row);

/* Warns if other work disturbs what is measured next, unless nobody looks at the progress. For the
 * other files of this room. */
void sl_bench_warn_of_load(const sl_bench_options *options);

/* Finds each row in the report of an earlier run at `path`, the output of --json or a machine
 * profile, and says which changed by more than the spread of both. SL_ERROR_MISSING,
 * SL_ERROR_DATA (names the key), SL_ERROR_IO, SL_ERROR_SYSTEM. */
sl_status sl_bench_compare(sl_bench *bench, const char *path);

/* Rows and identity as one JSON object; the caller drops the reference. */
sl_status sl_bench_format(const sl_bench *bench, json_t **out_object);

#endif
