/* What a session holds. Private to the room. */
#ifndef SL_API_SESSION_H
#define SL_API_SESSION_H

#include "base/log.h"
#include "base/sized.h"
#include "base/status.h"
#include "sluice/session.h"
#include "tensors/full_tensors.h"
#include "train/training.h"

struct sl_session {
    sl_config config;
    sl_trainer trainer; /* not moved: ranks and the engine point into it */
    sl_training training;
    volatile sig_atomic_t stop;
    sl_event_callback event;
    void *event_user;
    sl_log_receiver log;      /* of all threads of the session */
    bool has_begun;           /* the sinks know of the start */
    sl_first_failure failure; /* after which the session can only be closed */
    sl_full_tensors *tensors; /* of the model, by name */
    char *account;            /* NULL: not asked for yet */
};

/* Events of a session that has a callback: of records, as a sink of the trainer; within a step. */
void sl_session_add_sink(sl_session *session);
sl_engine_progress sl_session_progress(sl_session *session);

/* A call between opening and closing, from any thread: to the end of the block lines of this thread
 * go to the session's receiver, and other ranks hear of its signs of life. A session of NULL is
 * left to sl_session_check. */
static inline sl_ranks *sl_session_enter(sl_session *session)
{
    sl_ranks *ranks = session && session->trainer.ranks.world ? &session->trainer.ranks : NULL;
    if (ranks)
        sl_ranks_hear(ranks);
    return ranks;
}

static inline void sl_session_leave(sl_ranks *const *ranks)
{
    if (*ranks)
        sl_ranks_unhear(*ranks);
}

#define SL_SESSION_ENTER(session)                                                                  \
    SL_LOG_ENTER((session) ? &(session)->log : NULL);                                              \
    sl_ranks *const ranks_heard __attribute__((cleanup(sl_session_leave), unused)) =               \
        sl_session_enter(session)

/* SL_OK, or the failure after which nothing more is done. SL_ERROR_USAGE: the session is NULL. */
sl_status sl_session_check(const sl_session *session);

/* The same of a session that is to compute. SL_ERROR_STOPPED: it was stopped. */
sl_status sl_session_check_running(const sl_session *session);

/* Returns `status`, if it is a failure after it was kept, in *also too, which may be NULL: the
 * session can only be closed, and the other ranks are told at once. */
sl_status sl_session_note(sl_session *session, sl_status status, sl_first_failure *also);

#endif
