/* Writing notes and warnings; include/sluice/log.h and sl_options_set_log say who receives them. */
#ifndef SL_BASE_LOG_H
#define SL_BASE_LOG_H

#include "sluice/log.h"

void sl_log_write(sl_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Who receives the lines of a thread, instead of the callback of the process. */
typedef struct sl_log_receiver {
    sl_log_callback callback; /* NULL: that of the process */
    void *user;
} sl_log_receiver;

/* Sets the receiver of the calling thread, which is borrowed until the next call; NULL: none.
 * Returns the one before. A thread that an engine starts takes over the receiver of its starter. */
const sl_log_receiver *sl_log_enter(const sl_log_receiver *receiver);

const sl_log_receiver *sl_log_entered(void);

static inline void sl_log_leave(const sl_log_receiver *const *before)
{
    (void)sl_log_enter(*before);
}

/* To the end of the block, lines of this thread go to `receiver`. */
#define SL_LOG_ENTER(receiver)                                                                     \
    const sl_log_receiver *const log_before __attribute__((cleanup(sl_log_leave), unused)) =       \
        sl_log_enter(receiver)

#endif
