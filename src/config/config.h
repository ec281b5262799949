/* The checked configuration of one run.
 *
 * A config is filled in layers: the list's defaults, then JSON files, then single settings; each
 * setting replaces the one before. A run that goes on from a checkpoint takes what none of these
 * said from there (restore.h). Every setting, from whatever place, is checked in three steps:
 *
 *   1. its name       sl_config_find    against the rows of config_list.h that the command takes
 *   2. its value      sl_config_set     against its row: kind, range, names
 *   3. combinations   sl_config_check   options that contradict each other, or that this version
 *                                       cannot do; fills in what follows from other options
 *
 * All three are in config.c; everything after them reads plain fields. (The words of a command line
 * go through argp, which src/cli/options.c gives the same rows: there step 1 happens.)
 */
#ifndef SL_CONFIG_CONFIG_H
#define SL_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "chunk/chunk.h"
#include "config_list.h"
#include "device/cuda_options.h"
#include "model/architecture.h"
#include "sluice/device.h"

#define SL_CONFIG_UNSET UINT64_MAX /* "auto" in a COUNT, ELEMENTS, STEPS, SIZE; in a REAL: NaN */

typedef struct sl_config_list {
    char **items;
    uint32_t count;
} sl_config_list;

enum { SL_CONFIG_RANDOM, SL_CONFIG_SEQUENTIAL, SL_CONFIG_SHUFFLE }; /* data_order */
enum { SL_CONFIG_JOIN, SL_CONFIG_RESET };                           /* documents */
enum { SL_CONFIG_PER_FILE, SL_CONFIG_PER_LINE };                    /* document_per */
enum { SL_CONFIG_ACCUMULATION_AUTO = 2 };                           /* others: sl_accumulation */
enum { SL_CONFIG_ARCH_AUTO, SL_CONFIG_ARCH_FIRST }; /* arch; from FIRST on sl_architecture_kind */
enum { SL_CONFIG_FP32, SL_CONFIG_BF16, SL_CONFIG_FP16 };         /* precision: an sl_type */
enum { SL_CONFIG_PRECISION_AUTO = 3 };                           /* until checked */
enum { SL_CONFIG_COSINE, SL_CONFIG_LINEAR, SL_CONFIG_CONSTANT }; /* lr_schedule: our own */
enum { SL_CONFIG_WARMUP_LR = 3, SL_CONFIG_WARMUP_DECAY_LR, SL_CONFIG_WARMUP_COSINE_LR };
enum { SL_CONFIG_WARMUP_LINEAR, SL_CONFIG_WARMUP_LOG };                  /* warmup_type */
enum { SL_CONFIG_HOLD, SL_CONFIG_COUNT_SKIPS };                          /* lr_skips */
enum { SL_CONFIG_STOP, SL_CONFIG_SKIP };                                 /* nonfinite */
enum { SL_CONFIG_ADAMW, SL_CONFIG_SGD, SL_CONFIG_LION, SL_CONFIG_MUON }; /* optimizer */
enum { SL_CONFIG_MATCH_RMS, SL_CONFIG_ORIGINAL };                        /* muon_scale */
enum { SL_CONFIG_CUBLAS, SL_CONFIG_OWN };                                /* cuda_products */
enum { SL_CONFIG_SELF_TEST_AUTO, SL_CONFIG_SELF_TEST_OFF, SL_CONFIG_SELF_TEST_FORCE };
enum { SL_CONFIG_ON, SL_CONFIG_OFF };                           /* cuda_epilogue, pack, ... */
enum { SL_CONFIG_LOSS_RESPONSE, SL_CONFIG_LOSS_ALL };           /* loss */
enum { SL_CONFIG_RECOMPUTE_AUTO = 3 };                          /* others: sl_recompute */
enum { SL_CONFIG_POLICY_AUTO = 4, SL_CONFIG_POLICY_COUNT = 5 }; /* others: sl_policy */
enum { SL_CONFIG_ACCUMULATE_MAX = 100000 };                     /* micro-batches of a step */

/* A number of steps, or a share of --steps until that is known. */
typedef struct sl_config_steps {
    uint64_t count;
    double share; /* of --steps, below 1; 0: `count` is the number */
} sl_config_steps;

typedef enum sl_config_kind {
    SL_CONFIG_TEXT,
    SL_CONFIG_LIST_OF,
    SL_CONFIG_COUNT,
    SL_CONFIG_ELEMENTS,
    SL_CONFIG_STEPS,
    SL_CONFIG_REAL,
    SL_CONFIG_SIZE,
    SL_CONFIG_SWITCH,
    SL_CONFIG_CHOICE
} sl_config_kind;

/* In the order in which a user decides: what is trained, where its memory goes, how, and how it is
 * kept and watched; last what most runs leave alone. */
typedef enum sl_config_group {
    SL_CONFIG_GROUP_MODEL,
    SL_CONFIG_GROUP_DATA,
    SL_CONFIG_GROUP_SAMPLING,
    SL_CONFIG_GROUP_MEMORY,
    SL_CONFIG_GROUP_BATCH,
    SL_CONFIG_GROUP_LEARNING,
    SL_CONFIG_GROUP_SAVING,
    SL_CONFIG_GROUP_WATCHING,
    SL_CONFIG_GROUP_OUTPUT,
    SL_CONFIG_GROUP_RANKS,
    SL_CONFIG_GROUP_ADVANCED,
    SL_CONFIG_GROUP_COUNT
} sl_config_group;

/* Sets of commands; an option belongs to a set, a command line to one member. */
typedef enum sl_config_command {
    SL_CONFIG_TRAIN = 1,
    SL_CONFIG_PLAN = 2,
    SL_CONFIG_GENERATE = 4,
    SL_CONFIG_EVAL = 8,
    SL_CONFIG_DOCTOR = 16,
    SL_CONFIG_BENCH = 32,
    SL_CONFIG_TOKENIZE = 64,
    SL_CONFIG_CONVERT = 128,
    SL_CONFIG_PROFILE = 256,
    SL_CONFIG_REPORT = 512,
    SL_CONFIG_INIT = 1024, /* takes all that TRAIN takes */
    SL_CONFIG_ANY = 2047   /* the set of all */
} sl_config_command;

typedef char *sl_config_type_TEXT; /* NULL: none */
typedef sl_config_list sl_config_type_LIST;
typedef uint64_t sl_config_type_COUNT;
typedef uint64_t sl_config_type_ELEMENTS;
typedef sl_config_steps sl_config_type_STEPS;
typedef double sl_config_type_REAL;
typedef uint64_t sl_config_type_SIZE; /* bytes */
typedef bool sl_config_type_SWITCH;
typedef uint32_t sl_config_type_CHOICE;

/* The position of each option in the list: SL_CONFIG_ROW_model, ... */
enum {
#define X(kind, field, ...) SL_CONFIG_ROW_##field,
    SL_CONFIG_LIST(X)
#undef X
        SL_CONFIG_ROW_COUNT
};

typedef struct sl_config {
#define X(kind, field, ...) sl_config_type_##kind field;
    SL_CONFIG_LIST(X)
#undef X
    bool given[SL_CONFIG_ROW_COUNT]; /* set by a file or on the command line */
    /* Was given as "auto", and a value was chosen since, which a checkpoint does not take for
     * given. */
    bool was_auto[SL_CONFIG_ROW_COUNT];
    bool solves_micro_batch; /* of a foreign file: it follows from --global-batch, unless given */
    bool checks_checkpoints; /* compares all sums of a checkpoint before it is chosen: another one
                                was found to be damaged while it was loaded */
    bool is_restored;        /* a checkpoint's options are in it: the run goes on */
    bool has_own_rows;       /* a program gives the rows to train on: no --data */
    bool has_own_eval_rows;  /* and those to evaluate on: no --eval-data */
    char *explanation;       /* what foreign files mean here, as lines; NULL: none was read */
    uint32_t local_rank;    /* which of the ranks of its machine this process is: --device cuda:N is
                               its GPU number N + local_rank */
    uint32_t machine_ranks; /* ranks of its machine, this one included; 0: one */
} sl_config;

typedef struct sl_config_row {
    sl_config_kind kind;
    size_t offset; /* of the field in sl_config */
    const char *name, *initial, *hint;
    double low, high;
    unsigned commands; /* a set of sl_config_command */
    sl_config_group group;
    unsigned first; /* those of `commands` whose short help shows it */
    const char *help;
} sl_config_row;

/* All rows, [SL_CONFIG_ROW_COUNT]. */
const sl_config_row *sl_config_rows(void);

/* Writes the defaults; sl_config_clear frees what a config owns. */
sl_status sl_config_init(sl_config *config);
void sl_config_clear(sl_config *config);

/* The row called `name` ("-" and "_" are the same) that `command` takes. SL_ERROR_USAGE names the
 * nearest one otherwise. */
sl_status sl_config_find(sl_config_command command, const char *name, uint32_t *out_row);

/* Sets an option from its text. A list is replaced by one item, or none if `text` is empty. An
 * empty `text` sets a TEXT to its default; --save refuses it, because nothing would be saved.
 * SL_ERROR_USAGE: a wrong value; the message says which values are right. */
sl_status sl_config_set(sl_config *config, uint32_t row, const char *text);

/* Sets an option to its default; it counts as given by the user. */
sl_status sl_config_set_default(sl_config *config, uint32_t row);

/* Sets an option to its default, and it no longer counts as given. */
sl_status sl_config_unset(sl_config *config, uint32_t row);

/* sl_config_set for a value that follows from others: whether the user gave one stays as it is. */
sl_status sl_config_resolve(sl_config *config, uint32_t row, const char *text);

/* Appends one item to a list. */
sl_status sl_config_append(sl_config *config, uint32_t row, const char *text);

/* "key=value", as --set takes it. */
sl_status sl_config_assign(sl_config *config, sl_config_command command, const char *assignment);

/* Gives the device ("cuda:0" for "cuda") and the policy ("static" for "const") the names that they
 * have when resolved; "auto" stays. SL_ERROR_USAGE: there is no such device. */
sl_status sl_config_use_one_spelling(sl_config *config);

/* Refuses what this version cannot do (saying what to use instead) and options that contradict each
 * other, and fills in what follows: device and precision, policy aliases, thread count, warm-up,
 * decay, smallest learning rate. SL_ERROR_USAGE; SL_ERROR_SYSTEM: the device of a command that
 * computes does not open. Sizes that depend on the model wait for sl_config_fit_model. */
sl_status sl_config_check(sl_config *config, sl_config_command command);

/* "cpu", "cuda" or "cuda:N". SL_ERROR_USAGE. */
sl_status sl_config_parse_device(const char *text, sl_device_kind *out_kind, int *out_index);

/* The --cuda-... options, as the device and its kernels take them. */
sl_cuda_options sl_config_cuda(const sl_config *config);

/* Asks the device of a resolved configuration. SL_ERROR_SYSTEM names the option and what is
 * missing. */
sl_status sl_config_query_device(const sl_config *config, sl_device_info *out_info);

/* The path of an item of --data, and its weight: 0 where it has none, as in "web:1.txt". A weight
 * is a number in front of the first colon; "./1:a" is a path. */
const char *sl_config_weigh(const char *item, double *out_weight);

enum {
    SL_CONFIG_TRAINING_SHARE,
    SL_CONFIG_VALIDATION_SHARE,
    SL_CONFIG_TEST_SHARE,
    SL_CONFIG_SHARES
};

/* The shares of --split, which add up to 1: without it all is for training. SL_ERROR_USAGE. */
sl_status sl_config_split(const sl_config *config, double out_shares[SL_CONFIG_SHARES]);

/* Writes the shape that --model and the sizes by hand name. `base` (or NULL) is the shape of a
 * checkpoint, used where neither says anything; `vocab` is that of a shape by hand without one. */
sl_status sl_config_shape(const sl_config *config, const sl_model_shape *base, uint32_t vocab,
                          sl_model_shape *out_shape);

/* True of the rows of options that say which model it is: its name, architecture and sizes. */
bool sl_config_is_of_shape(uint32_t row);

/* The name of the first of these options that was given; NULL: none was. */
const char *sl_config_shape_option(const sl_config *config);

/* The sizes of the shape that was made, as options; an own model's are none. */
void sl_config_record_shape(sl_config *config, const sl_model_shape *shape);

/* Tokens of a row where no option says so: the context, but of rotary positions, which cost
 * nothing, 4096 at most. */
uint64_t sl_config_default_seq(const sl_model_shape *shape);

/* True if the data are examples to fine-tune on, whose tokens may be masked: not every
 * one of them counts in the loss. */
bool sl_config_has_examples(const sl_config *config);

/* False while the tokenizer is "auto". */
bool sl_config_names_tokenizer(const sl_config *config);

/* True if the loss scale follows overflows; the configuration was checked. */
bool sl_config_scales_dynamically(const sl_config *config);

/* Fills in the row length from the shape and refuses one beyond its context. */
sl_status sl_config_fit_model(sl_config *config, const sl_model_shape *shape);

#endif
