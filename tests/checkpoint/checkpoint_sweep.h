/* What the tests of failing saves share: a directory of their own, in which checkpoints are
 * already, and the calls of the system under a plan of faults. To be included once in a test
 * program. */
#ifndef SL_TESTS_CHECKPOINT_SWEEP_H
#define SL_TESTS_CHECKPOINT_SWEEP_H

#include "checkpoint_case.h"
#include "faulty_calls.h"
#include "sanitizer_share.h"

static int open_scratch(void **state)
{
    static scratch_path directory;
    directory = scratch_open();
    *state = &directory;
    faults = (fault_plan){0};
    return 0;
}

static int close_scratch(void **state)
{
    faults = (fault_plan){0};
    scratch_close(*state);
    return 0;
}

/* What each case starts from and does. NEW: step 3 is there, step 7 is saved. AGAIN: step 7 is
 * there too and is saved with another content. */
enum { CONTENT_OLD = 1, CONTENT_THERE, CONTENT_NEW, CONTENT_OTHER };

typedef struct sweep_case {
    const char *name;
    int is_again;
    int plain_renames;
} sweep_case;

static const sweep_case sweeps[] = {
    {"new", 0, 0},
    {"again", 1, 0},
    {"new, plain renames", 0, 1},
    {"again, plain renames", 1, 1},
};

enum { SWEEP_COUNT = sizeof sweeps / sizeof sweeps[0] };

/* Sanitizers see one case of so many. */
enum { SHARE = SANITIZER_SHARE > 1 ? 2 : 1 };

static inline void set_up(const sweep_case *sweep, const char *directory)
{
    faults = (fault_plan){.plain_renames = sweep->plain_renames};
    scratch_need(case_save(directory, 3, 0, CONTENT_OLD) == SL_OK, sl_status_message());
    if (sweep->is_again)
        scratch_need(case_save(directory, 7, 0, CONTENT_THERE) == SL_OK, sl_status_message());
}

#endif
