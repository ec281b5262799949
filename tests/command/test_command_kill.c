/* What could be wrong here: a run that is killed leaves no valid checkpoint, or one that is not
 * what it says, or the run that goes on from it is not the run that was never killed. Killed at
 * random moments over three placements in memory, with tensors of all update rules; how, and how it
 * is judged: command_kill.h. */
#define _GNU_SOURCE
#include "command_kill.h"

/* Rules with two states, one and none, and one that works by directions. */
#define RULES                                                                                      \
    "--rule 'h.*.attn.*=lion' 'wte.*=sgd' 'h.0.ln_1.*=none' 'h.*.mlp.*.weight=muon' "              \
    "--momentum 0.9 "

static void run_when_killed_anywhere_then_ends_as_the_run_in_one_piece(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "--policy device",
        "--policy host",
        "--policy static --offload-params 0.5 --offload-optimizer 0.5",
    };
    run_kill_series(&(kill_series){.model = TINY RULES,
                                   .base = "--policy device",
                                   .ways = ways,
                                   .way_count = sizeof ways / sizeof ways[0],
                                   .quick = 10,
                                   .full = 600});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_when_killed_anywhere_then_ends_as_the_run_in_one_piece),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
