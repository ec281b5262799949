/* Sessions: options in, a trained model out.
 *
 * A session is planned when it is opened: it takes the memory of its plan and no more, and its
 * numbers do not depend on where the plan places what. This is what `sluice train` runs.
 *
 *     sl_options *options;
 *     sl_session *session;
 *     sl_options_open(&options);
 *     sl_options_set(options, "model", "gpt2");
 *     sl_options_set(options, "data", "book.txt");
 *     sl_options_set(options, "policy", "host");
 *     if (sl_session_open(options, &session) != SL_OK)
 *         fprintf(stderr, "%s\n", sl_status_message());
 *
 * Several sessions may be open in a process, each with its own memory budgets ("device-memory",
 * "host-memory"). A session without both budgets plans with the memory that is free when it is
 * opened; such sessions are opened one after the other, so no two plan the same bytes.
 *
 * Threads: at most one thread at a time may call the functions of one session. sl_session_stop is
 * the exception; sl_options_stop ends sl_session_open. Different threads may call functions of
 * different sessions at the same time. All calls block until their work is done.
 *
 * Errors: sl_status_message explains the failure of a call, in the thread that made it. After a
 * failed step or evaluation, other than by SL_ERROR_STOPPED or a wrong call, the session can only
 * be closed: other calls return the same status again. A session that is NULL is refused with
 * SL_ERROR_USAGE; calls that return no status give 0 or NULL then, and one rank. With ranks that
 * also holds for a failed save.
 *
 * Nothing of the process is touched: no signal handler, no allocator, no standard stream. What the
 * command prints as notes and warnings goes to the callback of sl_options_set_log, or of
 * sluice/log.h.
 *
 * With ranks (`sluice launch -n 2 -- my_program`) each process opens a session, and all of them
 * make the same calls in the same order. The numbers of a step are those of all ranks. Ranks call
 * sl_evaluate, sl_generate and sl_profile together, too: they share the work, and each gets the
 * result. If ranks are on several machines, a process opens one session or makes one of these three
 * calls in its life.
 */
#ifndef SLUICE_SESSION_H
#define SLUICE_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "sluice/options.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An open session. sl_session_open makes it, sl_session_close frees it. */
typedef struct sl_session sl_session;

/* Checks the options, opens the data, plans, verifies the plan, takes memory, and sets the first
 * values: random ones, or those of "init", or with "resume" all that a checkpoint holds. The caller
 * closes the session. The options are copied and may be closed or changed afterwards.
 * SL_ERROR_FIT: the budgets are too small; the message says what would fit. SL_ERROR_USAGE: an
 * option is wrong or missing, options contradict each other, or a layer of the model is wrong.
 * SL_ERROR_STOPPED: sl_options_stop was called. SL_ERROR_DATA, SL_ERROR_MISSING, SL_ERROR_DAMAGED,
 * SL_ERROR_IO, SL_ERROR_SYSTEM, SL_ERROR_RANK: as of the command. */
SL_API sl_status sl_session_open(const sl_options *options, sl_session **out_session);

/* Waits for the work under way, ends the logs, and frees the session and its memory, also when it
 * returns a failure. What was not saved is lost. NULL is fine. SL_ERROR_SYSTEM with the message "a
 * thread of the engine did not end": the memory stays taken, and what the options borrowed must
 * stay valid until the process ends. Other failures: a log could not be written, or work that was
 * still under way failed. */
SL_API sl_status sl_session_close(sl_session *session);

/* What a step did. Set `size` to sizeof(sl_step_result) before the call. Later versions add fields
 * behind these, and fill in as many as `size` holds. */
typedef struct sl_step_result {
    size_t size;             /* bytes of this struct, set by the caller */
    uint64_t step;           /* from 1; a resumed session goes on from its checkpoint */
    uint64_t tokens;         /* of this step, on all ranks */
    uint64_t tokens_total;   /* since step 1, before a resume too */
    double loss;             /* mean cross-entropy of a token in nats, before the update */
    double grad_norm;        /* L2 norm of all gradients, before clipping */
    double learning_rate;    /* of this step */
    double loss_scale;       /* 1 where there is none */
    double seconds;          /* wall time of the step */
    uint64_t peak_bytes[3];  /* device, host, disk: the most used since the session was opened; with
                                ranks the largest of a rank */
    uint64_t moved_bytes[4]; /* of this step: host to device, device to host, read from disk,
                                written to disk; with ranks the sum */
    int is_skipped;          /* 1: a gradient was not finite, and nothing was updated; else 0 */
} sl_step_result;

/* Trains one step: "accumulate" micro-batches, then the update. `out_step` may be NULL. A session
 * may take more steps than "steps", which only shapes the learning rate. SL_ERROR_STOPPED:
 * sl_session_stop was called, and no step was made. SL_ERROR_NONFINITE: the loss or a gradient was
 * not finite, with "nonfinite" stop, or in 50 steps in a row with skip. SL_ERROR_DATA: a token id
 * outside of the vocabulary. SL_ERROR_USAGE: `size` is not set, and no step was made. SL_ERROR_IO,
 * SL_ERROR_SYSTEM, SL_ERROR_RANK; or the status of the function of sl_options_set_rows. */
SL_API sl_status sl_session_step(sl_session *session, sl_step_result *out_step);

/* Trains as `sluice train` does, to "steps": saves, evaluates and writes texts where "save-every",
 * "save-minutes", "eval-every" and "sample-every" say, keeps the best evaluation with "keep-best",
 * ends by "patience", and evaluates and saves at the end. *out_reason, which may be NULL, becomes
 * "done", "patience", or "signal" after sl_session_stop, with which a last checkpoint is saved,
 * too. Failures: as of sl_session_step, sl_session_evaluate and sl_session_save. */
SL_API sl_status sl_session_train(sl_session *session, const char **out_reason);

/* Mean cross-entropy of a token, in nats, over "eval-data", the validation share of "split", or the
 * rows of sl_options_set_eval_rows. Trains nothing. With "keep-best" the best evaluation so far is
 * saved. SL_ERROR_USAGE: the options name no such data.
 * SL_ERROR_STOPPED: sl_session_stop ended it before its last row. Other failures: as of
 * sl_session_step. */
SL_API sl_status sl_session_evaluate(sl_session *session, double *out_loss);

/* Writes a checkpoint of the last step into a new folder of the directory "save", whole or not at
 * all; `sluice generate`, `eval`, `convert` and "resume" read it. A checkpoint of the same step is
 * replaced. A stopped session can be saved, too. SL_ERROR_USAGE: the option "save" is not set.
 * SL_ERROR_IO: writing failed, or the disk is full; earlier checkpoints are untouched, and the
 * session goes on. */
SL_API sl_status sl_session_save(sl_session *session);

/* Receives the next bytes of the text of sample `sample`, counted from 0: whole characters of valid
 * UTF-8, without a zero byte at their end, valid during the call. A failure ends
 * sl_session_generate with the same status; sl_status_set makes its message. Must not call
 * functions of the session but sl_session_stop. */
typedef sl_status (*sl_text)(void *user, uint32_t sample, const char *bytes, uint64_t byte_count);

/* Continues `prompt`, a string, with tokens sampled from the model as it is now. `text` receives
 * what follows the prompt, in the thread of the caller, and `user` as its first argument.
 * `settings` are options of `sluice generate`, as in sl_options_set_all, such as "tokens",
 * "temperature" and "seed"; a list, "stop", has one item more with each of its values; NULL: all
 * defaults. Device, threads and precision are the session's unless they are given. As in the
 * command, a prompt is put into the template of the examples that the model was tuned on, if there
 * is one; "template" "none" takes the prompt as it is. The text is that of `sluice generate` from a
 * checkpoint saved now. The call takes memory of its own for a copy of the parameters, under
 * "device-memory" and "host-memory" of `settings`, and frees it. sl_session_stop ends the text
 * early, with SL_OK; after it a call returns SL_ERROR_STOPPED. Several ranks make the call
 * together; each holds its part of the copy, as "tp", "pp", "dp" and "zero" of the session say, and
 * `text` of each gets the whole text. SL_ERROR_USAGE: a wrong setting, a model of the program's
 * own, or a tokenizer that is not known. SL_ERROR_FIT: the copy does not fit. A failure leaves the
 * session usable; on several ranks only these two failures do, and after another one the session
 * can only be closed. SL_ERROR_RANK: another rank is lost. */
SL_API sl_status sl_session_generate(sl_session *session, const char *const *settings,
                                     const char *prompt, sl_text text, void *user);

/* The same of a checkpoint or another model that `sluice generate` reads: the setting "checkpoint"
 * names its directory. Several ranks make the call together, and `text` of each gets the whole
 * text; the settings "tp", "pp", "dp" and "zero" divide the model as in the command. Statuses as
 * above, and those of reading the checkpoint. SL_ERROR_RANK: another rank is lost. */
SL_API sl_status sl_generate(const char *const *settings, const char *prompt, sl_text text,
                             void *user);

/* Asks the session to stop, for good: there is no call that undoes it. A call under way ends with
 * its step, token, checkpoint or micro-batch of an evaluation. Later steps, evaluations and texts
 * are refused with SL_ERROR_STOPPED; sl_session_train returns SL_OK and trains nothing. The session
 * can still be read, saved and closed. From any thread, and from a
 * signal handler. With ranks it is enough to stop one: all of them make one more step and then
 * stop, and an evaluation goes on to its end. */
SL_API void sl_session_stop(sl_session *session);

/* A tensor of the model, as checkpoints have it: row-major, without padding. Set `size` to
 * sizeof(sl_tensor_info) before the call. */
typedef struct sl_tensor_info {
    size_t size;            /* bytes of this struct, set by the caller */
    const char *name;       /* as "h.0.mlp.c_fc.weight"; valid until the session is closed */
    uint32_t dim_count;     /* 1 or 2 */
    uint64_t dims[2];       /* the first dim_count are valid */
    uint64_t element_count; /* on all ranks together */
    int is_trained;         /* 0: "freeze" keeps its values; else 1 */
} sl_tensor_info;

/* Describes tensor `index`, from 0, in the order of names. Returns 1; or 0, and writes nothing, if
 * there is no tensor `index`, or `size` is not set. */
SL_API int sl_session_tensor(const sl_session *session, uint32_t index, sl_tensor_info *out_info);

/* What is kept of a tensor. */
typedef enum sl_tensor_state {
    SL_STATE_PARAMETER, /* in half precision its fp32 master */
    SL_STATE_MOMENT1,   /* adamw, muon: mean of gradients; lion: its moment; sgd: momentum, if there
                           is some; a frozen tensor has none */
    SL_STATE_MOMENT2    /* adamw: mean of squared gradients; of no other rule */
} sl_tensor_state;

/* Copies all elements of the tensor of name `tensor` as fp32, row-major. `count` is the number of
 * floats that `out_elements` holds, and must be the tensor's element_count. SL_ERROR_USAGE: no such
 * tensor, another count, a state that the tensor does not have, or its elements are spread over
 * ranks: save a checkpoint then. SL_ERROR_IO: the disk tier failed, and `out_elements` may be
 * written in part. */
SL_API sl_status sl_session_read(sl_session *session, const char *tensor, sl_tensor_state state,
                                 float *out_elements, uint64_t count);

/* Replaces all elements of a tensor. The next step uses them. Errors as of sl_session_read. In half
 * precision the master is the element, and the parameter is the element rounded. */
SL_API sl_status sl_session_write(sl_session *session, const char *tensor, sl_tensor_state state,
                                  const float *elements, uint64_t count);

/* How an element is stored. */
typedef enum sl_element_type {
    SL_ELEMENT_FP32,
    SL_ELEMENT_BF16, /* the upper half of an fp32 */
    SL_ELEMENT_FP16
} sl_element_type;

/* A tensor where it lies. Set `size` to sizeof(sl_tensor_view) before the call. */
typedef struct sl_tensor_view {
    size_t size;            /* bytes of this struct, set by the caller */
    const void *elements;   /* row-major, without padding */
    sl_element_type type;   /* of each element */
    uint64_t element_count; /* of the tensor */
} sl_tensor_view;

/* Shows a tensor without copying it, and waits for updates under way. The memory is the session's,
 * and valid until the session is closed. It is for reading alone. Its elements stay the same until
 * the next call that trains or writes. A step returns while updates still run: after one, its
 * elements are undefined until the tensor is viewed again, which gives the same address.
 * SL_ERROR_USAGE: no such tensor or state; or the tensor does not lie in one piece in memory that
 * the processor reads, but on disk, on a GPU, in several parts, in two halves, or spread over
 * ranks. The message says which, and sl_session_read reads a copy.
 */
SL_API sl_status sl_session_view(sl_session *session, const char *tensor, sl_tensor_state state,
                                 sl_tensor_view *out_view);

/* Steps that are done; those of the checkpoint that a session resumed are among them. */
SL_API uint64_t sl_session_step_count(const sl_session *session);

/* Which rank this process is, from 0, and how many ranks there are; 0 and 1 without others. */
SL_API uint32_t sl_session_rank(const sl_session *session);
SL_API uint32_t sl_session_rank_count(const sl_session *session);

/* The plan of the session as the JSON text that `sluice plan --json` prints: what is placed where,
 * peaks and traffic in bytes, the predicted time of a step; with ranks of this one. The text is the
 * session's. SL_ERROR_SYSTEM: no memory. */
SL_API sl_status sl_session_account(sl_session *session, const char **out_text);

/* The same of options, without taking memory for the model: what sl_session_open would plan, with
 * all that `sluice plan --json` prints: of a policy that is left open also the best choices that
 * were compared ("auto"), of several ranks what each of them takes ("ranks"). No rank is needed for
 * it. The caller frees the text with free(). SL_ERROR_FIT and others: as sl_session_open. */
SL_API sl_status sl_session_plan(const sl_options *options, char **out_text);

/* What planned bytes are for: the index into sl_planned_bytes.kinds. */
typedef enum sl_bytes_kind {
    SL_BYTES_PARAMETERS,
    SL_BYTES_GRADIENTS,
    SL_BYTES_MASTERS, /* the fp32 numbers behind parameters in half precision, which are updated */
    SL_BYTES_MOMENT1,
    SL_BYTES_MOMENT2,
    SL_BYTES_ACTIVATIONS,
    SL_BYTES_WORKSPACE, /* of ops, while they run */
    SL_BYTES_STAGING,   /* buffers between host and device or disk */
    SL_BYTES_KIND_COUNT
} sl_bytes_kind;

/* The bytes of a plan. The last index of each array is the tier: 0 device, 1 host, 2 disk. Set
 * `size` to sizeof(sl_planned_bytes) before the call. */
typedef struct sl_planned_bytes {
    size_t size;            /* bytes of this struct, set by the caller */
    uint64_t peaks[3];      /* what the session takes, to the byte */
    uint64_t live_peaks[3]; /* most bytes in use at one moment: a lower bound of the peak */
    uint64_t budgets[3];    /* what the plan may take; UINT64_MAX: no limit */
    uint64_t kinds[SL_BYTES_KIND_COUNT][3]; /* of a training step, at its moment with most bytes in
                                               use: [sl_bytes_kind][tier] */
} sl_planned_bytes;

/* The bytes of the session's plan; of this rank's, where there are several. SL_ERROR_USAGE: no
 * size is set. */
SL_API sl_status sl_session_bytes(const sl_session *session, sl_planned_bytes *out_bytes);

/* The same of options, as sl_session_plan: nothing is opened. Of several pipeline stages the bytes
 * are those of the stage that takes most. Statuses as of sl_session_plan. */
SL_API sl_status sl_plan_bytes(const sl_options *options, sl_planned_bytes *out_bytes);

/* Runs one step and then `step_count` >= 1 measured ones, and tells where memory and time went, as
 * the JSON text of `sluice profile --json`: peaks in bytes, time of lanes and ops in ms, what
 * binds. Without data tokens are random. Nothing is saved or logged, and a checkpoint of "resume"
 * gives its options alone. Takes the memory of the plan and frees it. Other threads of the process
 * that work meanwhile are measured, too. Several ranks make the call together, and each gets what
 * all of them measured. The caller frees the text with free(). SL_ERROR_USAGE: step_count is 0.
 * Other errors: as sl_session_open and sl_session_step. */
SL_API sl_status sl_profile(const sl_options *options, uint32_t step_count, char **out_text);

/* The loss of a checkpoint over files, as the JSON text that `sluice eval --json` prints: "loss" in
 * nats a token, "perplexity", "tokens" and others; with the setting "last-word" the "accuracy" of
 * last words. `settings` are options of `sluice eval`, as in sl_options_set_all: "checkpoint" and
 * "data" at least. A list such as "data" has one item more with each of its values. Takes memory
 * for the parameters and frees it. Several ranks make the call together and get the same figures;
 * the settings "tp", "pp", "dp" and "zero" divide the model as in the command. The caller frees the
 * text with free(). SL_ERROR_USAGE: a wrong setting. SL_ERROR_FIT: the budgets are too small.
 * SL_ERROR_MISSING, SL_ERROR_DATA, SL_ERROR_DAMAGED, SL_ERROR_IO, SL_ERROR_SYSTEM: of reading the
 * checkpoint or the data. SL_ERROR_RANK: another rank is lost. */
SL_API sl_status sl_evaluate(const char *const *settings, char **out_text);

/* The options of the session, all of them resolved, as JSON text: what a checkpoint records. Owned
 * by the session, valid until it is closed. */
SL_API const char *sl_session_options(const sl_session *session);

#ifdef __cplusplus
}
#endif
#endif
