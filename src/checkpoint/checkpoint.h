/* Checkpoints: directories that are complete and verified, or not visible.
 *
 * DIR/step-00000100/ holds model.safetensors and config.json (a Hugging Face GPT-2 directory; with
 * GPT-2's kind of tokenizer vocab.json and merges.txt too),
 * moment1.safetensors and moment2.safetensors under the same names, and manifest.json with every
 * counter of the run, the size and XXH3-128 of each file, and the XXH3-64 of each block of a file
 * of tensors. A checkpoint knows no policy, layout or topology: tensors are full and unpadded. Nor
 * does it depend on the run's precision: all tensors are F32, parameters being the master weights
 * where there are some; what a run in half precision computes with is those rounded, so any
 * precision goes on from any checkpoint, and the same one exactly.
 *
 * Invariants: a directory called step-N was complete and synced when it got that name; after the
 * first save there is a valid checkpoint at every instant; nothing is deleted that this code did
 * not write; no element is loaded from a block before the checksum of that block was compared, in
 * the memory from which the element is taken. Memory is bounded (8 MiB and a block of a file)
 * whatever the size of the model.
 *
 * To be called in the boundary state (lanes idle). Blocks for as long as the disk needs.
 */
#ifndef SL_CHECKPOINT_CHECKPOINT_H
#define SL_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "files/safetensors.h"
#include "model/architecture.h"
#include "run_id.h"
#include "save_lock.h"
#include "tensors/tensor_io.h"
#include "text/model_texts.h"
#include "text/vocabulary.h"

/* The counters of a run after step `step`: with the tensors, all that an exact resume needs. */
typedef struct sl_checkpoint_state {
    uint64_t step;         /* steps done */
    uint64_t tokens_total; /* tokens trained on, all ranks */
    uint64_t seed;
    uint64_t next_row;      /* data position: the global row that the next step reads first */
    uint64_t skipped_steps; /* steps whose update was left out */
    double loss_scale;
    uint64_t loss_scale_good_steps; /* steps since the last change or overflow */
    uint64_t loss_scale_hysteresis; /* overflows that were forgiven since the scale last doubled */
    uint64_t eval_count; /* evaluations so far, but for those on test data; 0: the others are 0 */
    uint64_t evaluated_step;   /* steps done before the last of them */
    uint64_t evals_since_best; /* behind the one with the least loss; eval_count: none is finite */
    uint64_t best_step;        /* steps done before that one */
    double best_loss;
    uint64_t lr_decay_lag; /* steps by which the decay of the learning rate is late: 1 in runs that
                              began with a version that did so, else 0 */
} sl_checkpoint_state;

typedef struct sl_checkpoint_save_args {
    const char *directory; /* made if missing, with its parents */
    sl_save_lock *lock;    /* the run's, of the directory; NULL: taken for this save alone */
    uint32_t keep;         /* newest whole checkpoints to keep; 0: all */
    bool keeps_best; /* for the space alone: another directory on the same disk has one more */
    const sl_model_shape *shape;
    const sl_tensor_spec *tensors; /* [tensor_count] */
    uint32_t tensor_count;
    const sl_engine_ranks *ranks; /* that tensors are split over; NULL: they are not. Whoever is
                                     not rank 0 gives what it has, and writes nothing */
    const bool *has_state; /* [SL_GROUP_COUNT], as in sl_program; GRAD and MASTER: never saved */
    const sl_tensor_io *io;
    const sl_checkpoint_state *state;
    sl_type precision;               /* compute type of the run */
    const char *config_json;         /* the run's configuration: text of one JSON object */
    const char *given_json;          /* the options that were given, likewise; NULL: not kept */
    const char *tokenizer;           /* how text became the model's ids; NULL: not known */
    const sl_vocabulary *vocabulary; /* its files are kept too; NULL: it has none */
    const sl_model_texts *texts;     /* NULL: none are known */
    const char *gemm;                /* which kernels and algorithms, for people; may be "" */
    const char *algorithms;          /* list of algorithms on a GPU (machine/algorithm_list.h);
                                        NULL: none */
    const char *data_fingerprint;    /* of sl_tokens_fingerprint; may be "" */
    const char *data_sample;         /* of sl_tokens_sample; NULL: not taken */
    sl_run_id run;                   /* zeros: it has none */
    struct sl_step_verdicts *known;  /* from earlier saves of the run; NULL: none, see steps.h */
} sl_checkpoint_save_args;

/* Saves a checkpoint as `directory`/step-N and then removes older ones beyond `keep`. Written under
 * a temporary name, synced, read back from the disk to its last byte, and renamed; an existing
 * step-N is replaced if it was there when the lock was taken, or if this process wrote it. Only
 * steps up to this one count for `keep`: what another run left there with higher numbers stays,
 * with a warning. Nor do damaged ones count: each that would is read once, if others are to go.
 * Remains of dead runs are removed first. SL_ERROR_IO: names file, bytes and the system's reason,
 * or another process's step-N; older checkpoints are untouched and nothing new is visible, unless
 * the message says that step-N is there: then it is whole, but a power failure may take its name,
 * as the directory could not be synced. SL_ERROR_USAGE, SL_ERROR_IO, SL_ERROR_SYSTEM of
 * sl_save_lock_hold too. Of many ranks all call it: one checkpoint comes of it, which does not know
 * how many they were. SL_ERROR_NONFINITE: a parameter or moment is not finite; names the first such
 * tensor, and everything is as before. SL_ERROR_USAGE: config_json is not a JSON object, or a
 * tensor is split over ranks, of which none are given. */
sl_status sl_checkpoint_save(const sl_checkpoint_save_args *args);

/* Compares what `save_count` saves with these arguments will take at once, `keep` and the
 * checkpoints that are there counted (they go after the first save if it overwrites), with the
 * space that is free for `directory` (or for its nearest parent that is there). Removes remains of
 * dead runs first, which take space. What is there is not read for it: a damaged one, which stays
 * beside the `keep` whole ones, counts as one of these. Looks at directory, keep, keeps_best,
 * tensors and has_state alone. SL_ERROR_FIT: says both in bytes and what would fit. */
sl_status sl_checkpoint_check_space(const sl_checkpoint_save_args *args, uint64_t save_count,
                                    bool overwrites);

/* A checkpoint that was found valid as far as it was read, with its files open. */
typedef struct sl_checkpoint sl_checkpoint;

/* Opens one checkpoint directory (…/step-N) and reads all of it once: manifest, sizes, safetensors
 * headers, checksums. SL_ERROR_MISSING: not there. SL_ERROR_DATA: broken; names file and reason.
 * SL_ERROR_IO: it cannot be read, so nothing is known of what is in it. */
sl_status sl_checkpoint_open(const char *path, sl_checkpoint **out_checkpoint);

/* Opens the newest valid checkpoint in `directory`; broken ones are passed over with a warning to
 * the log. SL_ERROR_MISSING: there is no valid one (the message says how many were broken).
 * SL_ERROR_IO: one that is newer than all valid ones cannot be read (a failing disk, permissions):
 * it may be whole, so no older one is taken in its place. SL_ERROR_DATA: likewise, as a later
 * version wrote it. */
sl_status sl_checkpoint_find_newest(const char *directory, sl_checkpoint **out_checkpoint);

/* sl_checkpoint_find_newest for a caller that loads the checkpoint. Without `checks_all` only
 * manifest, sizes, vocabulary and headers are read before a checkpoint is taken: its data are
 * compared while they are loaded, which may return SL_ERROR_DAMAGED. A caller that starts over then
 * with `checks_all` gets the newest whole checkpoint. Checkpoints of older versions have no
 * checksums of blocks and are always read in full. */
sl_status sl_checkpoint_find(const char *directory, bool checks_all,
                             sl_checkpoint **out_checkpoint);

/* The same for a caller that needs only parameters, configuration and vocabulary, from one
 * checkpoint (`is_one`) or a directory of them. The files of optimizer states are neither opened
 * nor read, and may be damaged or gone; sl_checkpoint_load cannot load them then. */
sl_status sl_checkpoint_open_parameters(const char *path, bool is_one, bool checks_all,
                                        sl_checkpoint **out_opened);

/* Whether `directory` holds checkpoints, valid or not, and the newest step of them; one that is not
 * there holds none. SL_ERROR_IO: it cannot be listed. */
sl_status sl_checkpoint_newest_step(const char *directory, bool *out_found, uint64_t *out_step);

/* NULL is fine. */
void sl_checkpoint_close(sl_checkpoint *checkpoint);

/* What the checkpoint holds; all pointers live as long as it is open. */
typedef struct sl_checkpoint_info {
    const char *path;
    sl_checkpoint_state state;
    sl_model_shape shape;
    sl_type precision; /* compute type of the run that saved it */
    const char *config_json;
    const char *given_json; /* the options that were given; NULL: an older version saved it */
    const char *rules_json; /* see saved_rules.h; NULL: all are adamw and none */
    const char *tokenizer;  /* "byte" or a vocabulary's name; NULL: not known */
    sl_model_texts texts;   /* NULL: not known, or an older version saved it */
    const char *gemm;
    const char *algorithms; /* NULL: another device, our own kernels, or an older version */
    const char *data_fingerprint;
    const char *data_sample; /* NULL: an older version saved it */
    sl_run_id run;           /* zeros: likewise */
    bool has_state[SL_GROUP_COUNT];
    uint64_t stateless_count; /* tensors that are not in every file of optimizer states: frozen
                                 ones, and those whose rules have fewer states */
} sl_checkpoint_info;

const sl_checkpoint_info *sl_checkpoint_describe(const sl_checkpoint *checkpoint);

/* Writes the groups that `has_state` asks for (GRAD and MASTER are passed over) through
 * `io->write`, padding rows as zeros; names and shapes are checked before the first write.
 * SL_ERROR_DATA: a group, tensor or shape is not in the checkpoint. SL_ERROR_DAMAGED: a block has
 * another checksum than when it was saved; names file and block, and all elements that were written
 * before are right. SL_ERROR_IO. */
sl_status sl_checkpoint_load(const sl_checkpoint *checkpoint, const sl_tensor_spec *tensors,
                             uint32_t tensor_count, const bool *has_state, const sl_tensor_io *io);

/* The file of the parameters, open as long as the checkpoint is; names, with SL_WEIGHTS_PREFIX, and
 * shapes are those of `tensors`. SL_ERROR_DATA: they are not. */
sl_status sl_checkpoint_parameters(const sl_checkpoint *checkpoint, const sl_tensor_spec *tensors,
                                   uint32_t tensor_count, const sl_safetensors **out_file);

#endif
