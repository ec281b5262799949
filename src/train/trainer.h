/* One run of `train`: data, checkpoints, runtime and sinks, opened in that order.
 *
 * meet     the other ranks, if there are any
 * prepare  files are opened and the model's shape is known; nothing large is taken (preparation.h)
 * open     a blueprint gets its memory, and the states their first values
 * run      the loop (loop.c)
 */
#ifndef SL_TRAIN_TRAINER_H
#define SL_TRAIN_TRAINER_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/model_directory.h"
#include "checkpoint/steps.h"
#include "config/config.h"
#include "files/tokens.h"
#include "layout_choice.h"
#include "logs.h"
#include "outputs.h"
#include "resume.h"
#include "samples.h"
#include "search/search.h"
#include "session/ranks.h"
#include "session/runtime.h"
#include "text/vocabulary.h"
#include "train/data/example_form.h"
#include "train/data/origin.h"
#include "train/evaluate/evaluate.h"
#include "train/loading/common_inputs.h"
#include "train/watch/sink.h"

/* What a program gives that options cannot name; all 0: nothing. */
typedef struct sl_trainer_inputs {
    sl_build build;    /* NULL: the model that the options name */
    const void *model; /* its `user` */
    sl_own_rows rows, eval_rows;
    bool is_alone; /* no rank, whatever the environment says */
} sl_trainer_inputs;

/* Who looks on while the engine works, set before it is opened; all 0: nobody. The engine keeps
 * what `progress` and `rows` say, and not their addresses. */
typedef struct sl_trainer_hooks {
    const sl_engine_progress *progress; /* of repetitions within a step, or NULL */
    const sl_engine_source *rows;       /* of inputs where there are no data, or NULL */
    /* The observer of the commands, in front of `next`, the timeline's (or NULL); NULL: `next`. */
    const sl_engine_observer *(*observe)(void *user, const sl_engine_observer *next);
    void *user;  /* of `observe` */
    bool paints; /* for sl_engine_measure_arena */
} sl_trainer_hooks;

typedef struct sl_trainer {
    sl_trainer_inputs inputs; /* set before the preparation */
    sl_config *config;        /* borrowed; the row length is filled in */
    sl_config_command command;
    sl_ranks ranks; /* alone until sl_trainer_meet_ranks; sl_trainer_leave_ranks tells the others
                       of a failure */
    sl_model_shape shape;
    sl_layout_choice layout_choice; /* of --tp, --pp and --zero, where they are auto */
    sl_search search;
    sl_tokens *tokens, *eval_tokens; /* NULL without --data, --eval-data */
    sl_data_files files, eval_files; /* of which they are */
    sl_examples examples;
    sl_vocabulary *vocabulary;      /* NULL: text is bytes, or how it becomes ids is not known */
    sl_model_texts texts;           /* for checkpoints, owned: what is known of the base, and the
                                       template of the examples */
    sl_origin origin;               /* of the files of tokens among the data */
    sl_resume resume;               /* what was found under --save */
    char *algorithms;               /* owned list of algorithms (session/algorithms.h), or NULL */
    sl_save_lock lock;              /* on --save until the trainer is closed; rank 0 alone */
    char *given_json, *config_json; /* the options for checkpoints: given, and resolved */
    sl_data_identity data;          /* of --data; empty without */
    sl_common_inputs beginning;     /* to compare with other ranks; empty where there are none */
    bool holds_free_memory;         /* search/free_memory.h: from the preparation on, until it is
                                       open or closed; all by one thread */
    bool has_old_checkpoints;       /* --save may hold some that the first new one replaces */
    int32_t end_of_text;            /* the id between documents; -1: not known */
    sl_evaluate_range eval_range, test_range; /* by --eval-iters */
    sl_model_directory source;                /* empty with --init scratch */
    sl_runtime *runtime;
    sl_samples *samples;        /* NULL without --sample-every */
    sl_data_loader loader;      /* the input lane's while a step runs */
    sl_data_loader eval_loader; /* of --eval-data, or the validation share of --split */
    sl_data_loader test_loader; /* of its test share; without data row is NULL */
    sl_run_id run;              /* of the checkpoint, if the run goes on from one that has an id */
    sl_logs logs;               /* where they are written; rank 0 alone */
    sl_sinks sinks;             /* of the options; the caller may add some once it is open */
    sl_drawing drawing;         /* of --timeline */
    sl_trainer_hooks hooks;     /* the caller's */
    sl_checkpoint_state state;  /* after the last step */
    uint64_t saved_step;        /* of the newest checkpoint of this run; UINT64_MAX: none */
    sl_step_verdicts known_steps; /* checkpoints under --save that were written or read */
    uint32_t skips_in_a_row;
    bool has_told_of_data; /* a warning said that the data were written to */
    double step_seconds;   /* predicted, of all ranks together; once it is open */
} sl_trainer;

/* Waits for the other ranks that this process was started with. To be called first or not at all;
 * `trainer` is not moved afterwards. Until sl_ranks_begin, which the same thread calls, setting
 * *stop ends the preparation, that of all ranks: the call that prepares returns SL_ERROR_STOPPED
 * then. */
sl_status sl_trainer_meet_ranks(sl_trainer *trainer, const sl_config *config,
                                const volatile sig_atomic_t *stop);

/* If `status` is a failure, tells the other ranks, which stop waiting for this one. To be called
 * before the trainer is closed. */
void sl_trainer_leave_ranks(sl_trainer *trainer, sl_status status);

/* Takes a trainer that was prepared, and perhaps opened, back to the state before
 * sl_preparation_run: only the ranks stay met. No step was run. All ranks call it. */
void sl_trainer_start_over(sl_trainer *trainer);

/* Takes over a blueprint that was found by trainer->search, also on failure. Of a trainer that was
 * prepared for PROFILE the first values are the seed's, and no log is opened. Of many ranks all
 * have to have found the same. SL_ERROR_DAMAGED, on all of them: the checkpoint from which the
 * first values are loaded is damaged. */
sl_status sl_trainer_open(sl_trainer *trainer, sl_blueprint *blueprint);

/* False: a lane of the engine did not end; then what it may read stays. */
bool sl_trainer_close(sl_trainer *trainer);

/* How long other ranks are waited for in a step, after other work with its own patience. */
void sl_trainer_set_patience(const sl_trainer *trainer);

/* Warns, once a run, if a file of the data was written to since it was opened: then some rows may
 * have the old content and others the new. */
void sl_trainer_look_at_data(sl_trainer *trainer);

/* Writes a checkpoint of the present state under --save, together with the other ranks. Drains the
 * engine. */
sl_status sl_trainer_save(sl_trainer *trainer);

/* Writes one in SL_BEST_NAME below --save, in the place of the one that is there. */
sl_status sl_trainer_save_best(sl_trainer *trainer);

#endif
