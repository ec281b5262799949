/* The self-test at the first use of a device: once for each GPU, driver, libraries and build, by
 * the record of machine/proof_record.h. Tells of it by notes and warnings of the log. */
#ifndef SL_SELFTEST_FIRST_USE_H
#define SL_SELFTEST_FIRST_USE_H

#include "selftest.h"

typedef struct sl_first_use {
    sl_selftest_args test;
    bool is_forced; /* all parts, whatever has passed before */
    bool is_quiet;  /* warnings alone */
} sl_first_use;

/* Tests the parts that no record says have passed, and keeps the record; one of several processes
 * that use a GPU tests it, and the others wait for that one. Of the cpu nothing is kept.
 *
 * SL_ERROR_SYSTEM: a part gave a wrong answer; the message names GPU, host, part and the way out.
 * Other failures: the device does not open. Too little memory or time is no failure. Fills in
 * *out_record in either case. */
sl_status sl_first_use_prove(const sl_first_use *args, sl_proof_record *out_record);

#endif
