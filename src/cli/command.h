/* The commands of `sluice`: each parses its own options and returns the process exit code. */
#ifndef SL_CLI_COMMAND_H
#define SL_CLI_COMMAND_H

#include <signal.h>
#include <stdio.h>

#include "session/config/config.h"
#include "session/machine/disk.h"
#include "session/search/blueprint.h"

int sl_command_train(int argc, char **argv);
int sl_command_plan(int argc, char **argv);
int sl_command_generate(int argc, char **argv);
int sl_command_eval(int argc, char **argv);
int sl_command_bench(int argc, char **argv);
int sl_command_doctor(int argc, char **argv);

/* Prints "sluice: …" with the message of the last failure; returns the exit code of `status`. */
int sl_command_fail(sl_status status);

/* Prints name, version, git hash, libraries and processor features. */
void sl_command_print_version(FILE *stream);

/* What this processor can do that matters here, such as "avx2 fma avx512f". */
void sl_command_describe_cpu(char *out_text, size_t capacity);

/* "policy static (host: …), recompute …, accumulation …" in one line, for people. */
void sl_command_describe_choice(const sl_choice *choice, char *out_text, size_t capacity);

/* "cuda:0 (NVIDIA H200, sm_90, ...), 1.2 GiB taken by its context" or "cpu". */
void sl_command_describe_device(const sl_task *task, char *out_text, size_t capacity);

/* "1.0 GiB written a step, 2.0 TiB a day; --disk-endurance lasts 0.8 years". */
void sl_command_describe_wear(const sl_wear *wear, char *out_text, size_t capacity);

/* Counts SIGINT and SIGTERM from now on; the second one leaves the process at once with 130. */
const volatile sig_atomic_t *sl_command_watch_signals(void);

#endif
