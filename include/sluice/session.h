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
 * "host-memory"). A session without them plans with the memory that is free when it is opened; such
 * sessions are opened one after the other, so no two plan the same bytes. One thread at a time
 * calls the functions of a session, but for sl_session_stop; threads may call those of several
 * sessions side by side.
 *
 * Nothing of the process is touched: no signal handler, no allocator, no standard stream. What the
 * command prints as notes and warnings goes to the callback of sluice/log.h.
 *
 * With ranks (`sluice launch -n 2 -- my_program`) each process opens one session, and all of them
 * make the same calls in the same order.
 */
#ifndef SLUICE_SESSION_H
#define SLUICE_SESSION_H

#include <stddef.h>

#include "sluice/options.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_session sl_session;

/* Checks the options, opens the data, plans, verifies the plan, takes memory, and sets the first
 * values: random ones, or those of "init", or with "resume" all that a checkpoint holds. The
 * options may be closed afterwards. SL_ERROR_FIT: the budgets are too small; the message says what
 * would fit. SL_ERROR_USAGE, SL_ERROR_DATA, SL_ERROR_MISSING, SL_ERROR_IO, SL_ERROR_SYSTEM,
 * SL_ERROR_RANK: as of the command. */
SL_API sl_status sl_session_open(const sl_options *options, sl_session **out_session);

/* Ends what runs and frees all memory. What was not saved is gone. NULL is fine. SL_ERROR_SYSTEM: a
 * thread of the engine did not end; then the memory stays taken, and what the options borrowed must
 * stay, too. */
SL_API sl_status sl_session_close(sl_session *session);

/* One step: set `size` to sizeof(sl_step_result) before the call. Later versions add fields behind
 * these, and fill in as many as `size` holds. */
typedef struct sl_step_result {
    size_t size;
    uint64_t step;         /* from 1; a resumed session goes on from its checkpoint */
    uint64_t tokens;       /* of this step, on all ranks */
    uint64_t tokens_total; /* since step 1 */
    double loss;           /* mean over the tokens, before the update */
    double grad_norm;      /* before clipping */
    double learning_rate;
    double loss_scale;       /* 1 where there is none */
    double seconds;          /* that the step took */
    uint64_t peak_bytes[3];  /* device, host, disk: measured so far */
    uint64_t moved_bytes[4]; /* of this step: host to device, device to host, read from disk,
                                written to disk */
    int is_skipped;          /* gradients were not finite, and nothing was updated */
} sl_step_result;

/* Trains one step. Steps behind the option "steps" are trained, too, with the smallest learning
 * rate. `out_step` may be NULL. SL_ERROR_STOPPED: sl_session_stop was called; no step
 * was made. SL_ERROR_NONFINITE: see --nonfinite. After another failure the session can only be
 * closed. */
SL_API sl_status sl_session_step(sl_session *session, sl_step_result *out_step);

/* Mean loss of a token over "eval-data", the validation share of "split", or the rows of
 * sl_options_set_eval_rows. SL_ERROR_USAGE: the options named none. SL_ERROR_STOPPED: it was
 * stopped before the end. */
SL_API sl_status sl_session_evaluate(sl_session *session, double *out_loss);

/* Writes a checkpoint under "save", whole or not at all; `sluice generate`, `eval`, `convert` and
 * "resume" read it. SL_ERROR_USAGE: there is no "save". */
SL_API sl_status sl_session_save(sl_session *session);

/* Bytes of the text of a sample, as they are certain: whole characters of valid UTF-8. A failure
 * ends the call; sl_status_set makes its message. */
typedef sl_status (*sl_text)(void *user, uint32_t sample, const char *bytes, uint64_t byte_count);

/* Continues a prompt with tokens sampled from the model as it is now. `settings` are options of
 * `sluice generate`, as in sl_options_set_all, such as "tokens", "temperature" and "seed"; NULL:
 * all defaults. Device, threads and precision are the session's unless they are given. The text is
 * that of `sluice generate` from a checkpoint saved now. The call takes memory of its own for a
 * copy of the parameters, under "device-memory" and "host-memory" of `settings`, and frees it.
 * SL_ERROR_USAGE: a wrong setting, a model of the program's own, parameters spread over ranks, or a
 * tokenizer that is not known. SL_ERROR_FIT. A set stop ends the text early. */
SL_API sl_status sl_session_generate(sl_session *session, const char *const *settings,
                                     const char *prompt, sl_text text, void *user);

/* The same of a checkpoint or another model that `sluice generate` reads: the setting "checkpoint"
 * names its directory. Statuses as above, and those of reading it. */
SL_API sl_status sl_generate(const char *const *settings, const char *prompt, sl_text text,
                             void *user);

/* Asks the session to stop: a call under way ends with its step, token, checkpoint or
 * micro-batch of an evaluation, and no further one begins. From any thread, and from a signal
 * handler. */
SL_API void sl_session_stop(sl_session *session);

/* A tensor of the model, as checkpoints have it: row-major, without padding. Set `size` to
 * sizeof(sl_tensor_info) before the call. */
typedef struct sl_tensor_info {
    size_t size;
    const char *name; /* of the session */
    uint32_t dim_count;
    uint64_t dims[2];
    uint64_t element_count;
    int is_trained; /* false: "freeze" */
} sl_tensor_info;

/* The tensor of that index from 0, in the order of names. False: there are no more. */
SL_API int sl_session_tensor(const sl_session *session, uint32_t index, sl_tensor_info *out_info);

/* What is kept of a tensor. */
typedef enum sl_tensor_state {
    SL_STATE_PARAMETER, /* in half precision its fp32 master */
    SL_STATE_MOMENT1,   /* of AdamW */
    SL_STATE_MOMENT2
} sl_tensor_state;

/* Copies all elements of a tensor, `count` of them, as fp32. SL_ERROR_USAGE: no such tensor,
 * another count, a state that it does not have; or its elements are spread over ranks. */
SL_API sl_status sl_session_read(sl_session *session, const char *tensor, sl_tensor_state state,
                                 float *out_elements, uint64_t count);

/* The other way; in half precision the parameter is the rounded element. */
SL_API sl_status sl_session_write(sl_session *session, const char *tensor, sl_tensor_state state,
                                  const float *elements, uint64_t count);

/* Steps that are done; those of the checkpoint that a session resumed are among them. */
SL_API uint64_t sl_session_step_count(const sl_session *session);

/* Which rank this process is, and of how many; 0 and 1 without others. */
SL_API uint32_t sl_session_rank(const sl_session *session);
SL_API uint32_t sl_session_rank_count(const sl_session *session);

/* The plan of the session as the JSON text that `sluice plan --json` prints: what is placed where,
 * peaks and traffic in bytes, the predicted time of a step. The text is the session's.
 * SL_ERROR_SYSTEM: no memory. */
SL_API sl_status sl_session_account(sl_session *session, const char **out_text);

/* The same of options, without taking memory for the model: what sl_session_open would plan. The
 * caller frees the text with free(). SL_ERROR_FIT and others: as sl_session_open. */
SL_API sl_status sl_session_plan(const sl_options *options, char **out_text);

/* The options of the session, all of them resolved, as JSON text: what a checkpoint records. The
 * session's. */
SL_API const char *sl_session_options(const sl_session *session);

#ifdef __cplusplus
}
#endif
#endif
