/* Signals that stop a run.
 *
 * The first one asks for an end in good order: the run sees it between steps. What will happen is
 * said at once, by the handler, for a step may take minutes. The second one leaves at once; but
 * never in the middle of a save, which it lets end: only a third one does that. Where there is
 * nothing yet that could be finished or lost, the first one says so and leaves with 0; but a rank
 * of several, which only counts it: they leave together.
 */
#ifndef SL_CLI_SIGNALS_H
#define SL_CLI_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

/* What is said, "" or NULL for nothing: kept. Each is one line, without the name in front and its
 * end. */
typedef struct sl_signal_texts {
    const char *stops;         /* at the first signal, between saves */
    const char *stops_in_save; /* amid one */
    const char *leaves_now;    /* at the second, between saves */
    bool leaves;               /* there is nothing to finish */
} sl_signal_texts;

/* Counts SIGINT, SIGTERM, SIGHUP and SIGUSR1, which is what ranks get, from now on, but none that
 * is ignored now (nohup, a shell's background). A SIGHUP that follows another within seconds is the
 * same one: a terminal that closes sends it twice. May be called again, when something else is to
 * be said. */
const volatile sig_atomic_t *sl_signals_watch(const sl_signal_texts *texts);

/* What `launch` stops a rank by, whom it would end before the rank watches signals: blocked in what
 * `launch` starts, until sl_signals_watch, or until this in a command that does not watch. */
enum { SL_SIGNALS_OF_RANKS = SIGUSR1 };
void sl_signals_release(void);

/* From now on nothing is said at a signal: of several ranks, which all get it, the first one says
 * it.
 */
void sl_signals_mute(void);

/* Lets writes to a pipe that nobody reads fail instead of ending the process: a run that trains
 * must not be lost for its output. */
void sl_signals_ignore_failed_output(void);

/* The same of what goes beyond the limit of a file's size (ulimit -f): in every command it is an
 * error like a full disk, with a message. */
void sl_signals_ignore_full_files(void);

/* Around a save. */
void sl_signals_begin_save(void);
void sl_signals_end_save(void);

/* True if a second signal came in a save: then the process leaves with 130. */
bool sl_signals_must_leave(void);

#endif
