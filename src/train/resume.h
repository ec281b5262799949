/* What stands under --save when a run starts: whether it may be there, what the run goes on from,
 * and what it takes over. */
#ifndef SL_TRAIN_RESUME_H
#define SL_TRAIN_RESUME_H

#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "files/tokens.h"

typedef struct sl_resume {
    sl_checkpoint *checkpoint; /* NULL when starting anew */
    char *changes;             /* options that differ from the checkpoint's, a line each, or NULL */
    bool is_data_given;        /* --data was given anew */
    bool is_tokenizer_given;   /* so was --tokenizer */
    bool is_batch_given;       /* so was --micro-batch or --accumulate */
    bool is_accumulate_given;  /* by itself */
    bool is_total_given;       /* so was --global-batch */
    bool is_used;              /* --save holds checkpoints, the newest of this step */
    uint64_t newest_step;
    bool is_in_place; /* the checkpoint was saved in this --save directory: it is no copy */
} sl_resume;

/* Looks under --save of a configuration that is not checked yet, opens the newest valid checkpoint
 * if the run goes on, and takes its options over. SL_ERROR_USAGE: a training run would mix with
 * the checkpoints there, as it has neither --resume nor --overwrite. On failure too the caller
 * closes it. */
sl_status sl_resume_open(sl_config *config, sl_config_command command, sl_resume *out_resume);
void sl_resume_close(sl_resume *resume);

/* The path that the checkpoint's run was given for the option `row`; NULL: none. The caller frees
 * it. SL_ERROR_DATA, SL_ERROR_SYSTEM. */
sl_status sl_resume_recorded_path(const sl_resume *resume, uint32_t row, char **out_path);

/* The number that the checkpoint's run had for the option `row`, given or not; SL_CONFIG_UNSET: it
 * had none. SL_ERROR_DATA, SL_ERROR_SYSTEM. */
sl_status sl_resume_recorded_number(const sl_resume *resume, uint32_t row, uint64_t *out_number);

/* Whether --accumulate follows from --global-batch, where that is known: of a run that goes on,
 * what the checkpoint gives may change. */
bool sl_resume_frees_accumulate(const sl_resume *resume, const sl_config *config);

/* Closes the checkpoint, once its values are loaded: a file that is held open keeps its space when
 * newer checkpoints replace it. */
void sl_resume_let_go(sl_resume *resume);

/* Adds to the changes what follows from them, once the configuration is checked. */
sl_status sl_resume_note_followers(sl_resume *resume, const sl_config *config);

/* Writes the changes to the log. */
void sl_resume_tell(const sl_resume *resume);

/* What is known of the files of the data: names, kinds and sizes, and samples of the content. */
typedef struct sl_data_identity {
    char fingerprint[SL_TOKENS_FINGERPRINT], sample[SL_TOKENS_FINGERPRINT];
} sl_data_identity;

/* Makes the directory --save, locks it for the run, and tries whether checkpoints can be saved
 * there. To be called for a training run with --save, by rank 0 alone. SL_ERROR_USAGE: another run
 * has the lock, or has saved there since sl_resume_open looked. SL_ERROR_IO, SL_ERROR_SYSTEM: a
 * save would fail with it. */
sl_status sl_resume_lock(const sl_resume *resume, const char *directory, sl_save_lock *lock);

/* Compares the data with those of the checkpoint. SL_ERROR_DATA: they changed, and were not given
 * anew. */
sl_status sl_resume_check_data(const sl_resume *resume, const sl_data_identity *data);

/* Removes the checkpoints of other steps under `directory`, which may be missing; what stays is
 * logged. */
void sl_resume_remove_old(const char *directory, uint64_t step);

#endif
