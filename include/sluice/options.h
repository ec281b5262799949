/* Options of a run: those of `sluice train`, by name, and what only a program can give.
 *
 * `sluice train --help-all` explains every option. A value is text, as on the command line;
 * sizes are bytes, or have a unit of K, M, G or T, powers of 1024:
 *
 *     sl_options_set(options, "policy", "host");
 *     sl_options_set(options, "device-memory", "2G");
 *
 * Options that were not set have the command's defaults. What they mean together is checked by
 * sl_session_open, which copies them. Every text given to a call is copied. One thread at a time
 * may use an sl_options; sl_options_stop is the exception.
 */
#ifndef SLUICE_OPTIONS_H
#define SLUICE_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "sluice/log.h"
#include "sluice/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The options of one run or of several. sl_options_open makes them, sl_options_close frees them. */
typedef struct sl_options sl_options;

/* Makes options that all have their defaults. SL_ERROR_SYSTEM: no memory. */
SL_API sl_status sl_options_open(sl_options **out_options);

/* Frees the options. Sessions that were opened with them stay open. NULL is fine. */
SL_API void sl_options_close(sl_options *options);

/* Sets an option from its text; "-" and "_" in names are the same. The last call wins. A list
 * ("data") becomes this one item, or empty if `value` is "". A flag is "true" or "false".
 * SL_ERROR_USAGE: there is no such option (the message names the nearest one), or no such value;
 * the option keeps its earlier value. */
SL_API sl_status sl_options_set(sl_options *options, const char *name, const char *value);

/* Sets several options: name, value, name, value ... up to a NULL. Options before a failure are
 * set. Errors as of sl_options_set; SL_ERROR_USAGE also for a last name without a value. */
SL_API sl_status sl_options_set_all(sl_options *options, const char *const *settings);

/* Undoes what a file or a call set: the option has its default again, and counts as not given.
 * SL_ERROR_USAGE: there is no such option. */
SL_API sl_status sl_options_unset(sl_options *options, const char *name);

/* An option, as `sluice train --help-all` explains it: set `size` to sizeof(sl_option_info) before
 * the call. Texts are the library's, and valid for ever. */
typedef struct sl_option_info {
    size_t size;
    const char *name;    /* "device-memory" */
    const char *initial; /* its default, as text; "": none, or it follows from other options */
    const char *values;  /* what it takes, such as "SIZE" or "fp32|bf16|fp16|auto"; NULL: a flag */
    const char *help;
    int is_list;
} sl_option_info;

/* The option of that index from 0. False: there are no more, or `size` is not set. */
SL_API int sl_options_at(uint32_t index, sl_option_info *out_info);

/* What happens in a call of a session, for people and progress bars. */
typedef enum sl_event_kind {
    SL_EVENT_IN_STEP,       /* micro-batches of the step have begun: `done` of `total` */
    SL_EVENT_STEP,          /* a step is done; `value` is its loss */
    SL_EVENT_IN_EVALUATION, /* `done` of `total` tokens are evaluated; `value` is the loss so
                               far, 0 while none is counted */
    SL_EVENT_EVALUATION,    /* an evaluation is done; `value` is its loss */
    SL_EVENT_SAVING,        /* a checkpoint is begun */
    SL_EVENT_SAVED,         /* and written */
    SL_EVENT_SAMPLE         /* a text of "sample-every" is written: `text` */
} sl_event_kind;

/* One thing that happened. */
typedef struct sl_event {
    size_t size; /* sizeof(sl_event) of the library: later versions add fields behind these */
    sl_event_kind kind;
    uint64_t step; /* the last one that is done */
    uint64_t done, total;
    double value;
    const char *text; /* SAMPLE: what the model wrote behind "sample-prompt", in valid UTF-8, valid
                         in the call; else NULL */
} sl_event;

/* Called by the thread that called the session, in that call; it may call sl_session_stop and no
 * other function of the session. */
typedef void (*sl_event_callback)(void *user, const sl_event *event);

/* Tells `callback` of the events of a session; `user` is borrowed, as below. NULL: of none. */
SL_API void sl_options_set_events(sl_options *options, sl_event_callback callback, void *user);

/* Tells `callback` of the notes and warnings of a session, and of the calls that take these
 * options, instead of the callback of the process (sluice/log.h). It is called by the thread that
 * called the session, and by threads of the session; by one thread of the process at a time. `user`
 * is borrowed for as long as a session of these options is open. NULL: the callback of the process
 * again. */
SL_API void sl_options_set_log(sl_options *options, sl_log_callback callback, void *user);

/* Asks the calls that open or plan with these options to stop, for good: sl_session_open,
 * sl_session_plan and sl_profile return SL_ERROR_STOPPED. A call that is under way first ends the
 * piece of a file, the plan or the step that it works on. A session that is open already goes on:
 * sl_session_stop stops it. From any thread, and from a signal handler; the options must not be
 * closed meanwhile. With ranks it is enough to ask one, once all have come: while others are
 * awaited, nobody looks. Ranks of several machines end when all of them have opened. */
SL_API void sl_options_stop(sl_options *options);

/* Adds one item to a list, such as "data". SL_ERROR_USAGE: there is no such option, or it is not a
 * list. */
SL_API sl_status sl_options_add(sl_options *options, const char *name, const char *item);

/* Sets the options that a configuration file of at most 1 MiB names, as --config does. The file
 * holds one JSON object: names and values of options, or the configuration of DeepSpeed.
 * SL_ERROR_MISSING: there is no such file. SL_ERROR_DATA: it is not JSON. SL_ERROR_USAGE: an option
 * or a value of it is wrong. SL_ERROR_IO. */
SL_API sl_status sl_options_read(sl_options *options, const char *path);

/* Trains a model of the program's own. `user` is passed to `build`; it is borrowed for as long as a
 * session of these options is open. Several sessions may call the build function at the same time.
 * The model has its sizes from `build`: sl_session_open refuses "model", "arch" and every option of
 * a size then. `build` NULL: the model that the options name. */
SL_API void sl_options_set_model(sl_options *options, sl_build build, const void *user);

/* Writes rows [first_row, first_row + row_count) of the data: `out_tokens` is
 * [row_count, token_count], row-major. Rows count from 0. `row_count` is at most "micro-batch".
 * `token_count` is "seq" plus 1: targets are the tokens one later. Ids are at least 0 and less than
 * the vocabulary of the model; others end the step with SL_ERROR_DATA. The same row must always be
 * the same tokens: a row may be asked for more than once, rows of a step in any order, and a
 * resumed run asks for the rows that come next. Each rank asks for the rows that it trains on. One
 * thread of a session calls at a time, not always the same. A failure ends the step with the same
 * status; sl_status_set makes its message. */
typedef sl_status (*sl_rows)(void *user, uint64_t first_row, uint32_t row_count,
                             uint32_t token_count, int32_t *out_tokens);

/* Takes training rows from the program instead of from "data". `user` is passed to `rows`; it is
 * borrowed for as long as a session of these options is open. `rows` NULL: "data" again. */
SL_API void sl_options_set_rows(sl_options *options, sl_rows rows, void *user);

/* Takes the rows of sl_session_evaluate from the program instead of from "eval-data": rows 0 to
 * row_count - 1. `user` and NULL as above. */
SL_API void sl_options_set_eval_rows(sl_options *options, sl_rows rows, void *user,
                                     uint64_t row_count);

#ifdef __cplusplus
}
#endif
#endif
