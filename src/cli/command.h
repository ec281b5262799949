/* The commands of `sluice`, and what they have in common. */
#ifndef SL_CLI_COMMAND_H
#define SL_CLI_COMMAND_H

#include <jansson.h>
#include <stdio.h>

#include "config/config.h"
#include "config/units.h"
#include "machine/disk.h"
#include "search/blueprint.h"

/* What a command is for: the heading under which `sluice help` lists it. */
typedef enum sl_command_task {
    SL_COMMAND_TRAIN,
    SL_COMMAND_MODEL,
    SL_COMMAND_DATA,
    SL_COMMAND_MACHINE,
    SL_COMMAND_TASK_COUNT
} sl_command_task;

typedef struct sl_command_entry {
    sl_config_command options; /* whose options it takes */
    sl_command_task task;
    const char *name, *summary;
    const char *arguments; /* what may stand beside the options, or NULL */
    const char *doc;       /* one paragraph of its --help */
    const char *page;      /* of docs/, that has more; NULL: none */
    const struct argp_option
        *words;                    /* instead of `options`, of a command that is no run; or NULL */
    const char *remark;            /* what holds for `words` */
    bool checks_options;           /* `run` does: what --resume takes over comes in between */
    bool takes_ranks;              /* `sluice launch` may start several of it */
    int (*run)(sl_config *config); /* with a checked configuration; returns the exit code; NULL: it
                                      reads its words by itself */
} sl_command_entry;

extern const sl_command_entry sl_command_train, sl_command_plan, sl_command_profile,
    sl_command_generate, sl_command_eval, sl_command_tokenize, sl_command_convert,
    sl_command_doctor, sl_command_bench, sl_command_report, sl_command_init, sl_command_launch;

/* The command of that index from 0; NULL: there are no more. */
const sl_command_entry *sl_command_at(uint32_t index);

/* SL_ERROR_USAGE names the nearest one, among topics of `sluice help` too where `is_topic`. */
sl_status sl_command_find(const char *name, bool is_topic, const sl_command_entry **out_command);

/* A page that `sluice NAME WORD` prints, as --help and completion list it. */
typedef struct sl_command_page {
    const char *name, *summary;
} sl_command_page;

/* The page of that index from 0; NULL: there are no more. */
const sl_command_page *sl_command_page_at(uint32_t index);

/* From here on warnings are printed and notes are not: of many ranks the first one tells. */
void sl_command_keep_notes(void);

/* Returns the exit code of `status`; a failure's message is printed first, as "sluice: …", by a
 * rank of `launch` through it. */
int sl_command_end(sl_status status);

/* Prints an object to standard output, with so many digits of a real number. */
sl_status sl_command_print_json(const json_t *object, int digits);

/* Prints name, version, git hash, libraries and processor features. */
void sl_command_print_version(FILE *stream);

/* ---- in words ---- */

typedef struct sl_command_size {
    char text[SL_UNITS_TEXT_BYTES];
} sl_command_size;

/* "1.50 GiB". */
static inline sl_command_size sl_command_format_size(uint64_t bytes)
{
    sl_command_size size;
    sl_units_format_size(bytes, size.text);
    return size;
}

typedef struct sl_command_duration {
    char text[32];
} sl_command_duration;

/* "0.84 s", "12 minutes", "3.4 hours", "8.1 days". */
sl_command_duration sl_command_format_duration(double seconds);

/* A word as a shell takes it: in quotes where it has other than letters, digits and ./_-+=:,@%.
 * Bytes that a terminal obeys are written as \xNN. */
void sl_command_quote(const char *word, char *out_text, size_t capacity);

/* What this processor can do that matters here, such as "avx2 fma avx512f". */
void sl_command_describe_cpu(char *out_text, size_t capacity);

/* "124439808 parameters", with frozen tensors ", 21263616 of them trained". */
void sl_command_describe_size(const sl_blueprint *blueprint, char *out_text, size_t capacity);

/* "policy static (host: …), recompute …, accumulation …" in one line. */
void sl_command_describe_choice(const sl_choice *choice, char *out_text, size_t capacity);

/* Prints what a foreign --config file means here, if one was read and --quiet and --json were not
 * given. */
void sl_command_explain(const sl_config *config);

/* "cuda:0 (NVIDIA H200, sm_90, ...), 1.2 GiB taken by its context" or "cpu". */
void sl_command_describe_device(const sl_task *task, char *out_text, size_t capacity);

/* "1.0 GiB written a step, 2.0 TiB a day; --disk-endurance lasts 0.8 years". */
void sl_command_describe_wear(const sl_wear *wear, char *out_text, size_t capacity);

#endif
