/* sluice launch -n N -- COMMAND: starts ranks on this machine, and ends with them. */
#ifndef SL_CLI_LAUNCH_H
#define SL_CLI_LAUNCH_H

/* argv[0] is "launch". Returns the exit code: the first failing rank's, 75 where that is a
 * signal's, else 0. */
int sl_launch_main(int argc, char **argv);

#endif
