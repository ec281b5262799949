/* The options of a run that goes on from a checkpoint.
 *
 *   given now        wins; what differs from the checkpoint is reported as `was → is`
 *   given before     taken over: a manifest keeps what files and command lines said
 *   numbers          schedule, batch, precision, data and what is frozen: taken over as they were
 *                    resolved, given or not, for a run does not change because a default or a
 *                    machine did
 *   everything else  resolved anew: device, budgets, threads, policy
 *
 * Not taken over: options of one start (`save`, `resume`, `overwrite`, `quiet`, `timeline`,
 * `report`), the seed (the checkpoint's state has it), and an option that was chosen for another
 * one which is given differently now: shares belong to a policy, budgets to a device, a loss scale
 * to a precision, a least learning rate that was not given to the learning rate, a decay to the
 * steps. Nor is a path at which files are made or written (`disk_dir`, `cache_dir`, logs): the
 * checkpoint may come from somebody else, who would choose files on this machine. A log that
 * belongs to the run may be continued all the same: train/logs.h decides that.
 */
#ifndef SL_CONFIG_RESTORE_H
#define SL_CONFIG_RESTORE_H

#include "config.h"

/* What a checkpoint says of the options of its run: texts of JSON objects. */
typedef struct sl_config_record {
    const char *resolved_json;
    const char *given_json; /* NULL: a checkpoint of a version that did not keep them */
} sl_config_record;

/* Fills in a configuration that was set but not checked yet. `*out_changes` says what options given
 * now changed, a line each, "--lr 0.0003 → 0.001"; the caller frees it. Options that this version
 * does not know are logged and passed over. SL_ERROR_DATA: a value of the record is wrong.
 * SL_ERROR_USAGE: --init names other weights than those that the run began with. */
sl_status sl_config_restore(sl_config *config, const sl_config_record *record, char **out_changes);

/* The path that the recorded run was given for the option `row`; NULL: none. The caller frees it.
 * SL_ERROR_DATA, SL_ERROR_SYSTEM. */
sl_status sl_config_recorded_path(const sl_config_record *record, uint32_t row, char **out_path);

/* The number that the recorded run had for the option `row` when all was resolved, 0 or more;
 * SL_CONFIG_UNSET: none. SL_ERROR_DATA, SL_ERROR_SYSTEM. */
sl_status sl_config_recorded_number(const sl_config_record *record, uint32_t row,
                                    uint64_t *out_number);

/* Adds to `*changes` the numbers that nobody gave and that are others than in the checkpoint,
 * because an option changed from which they follow; of a configuration that was restored and then
 * checked, which is where they are found. Statuses as above. */
sl_status sl_config_tell_followers(const sl_config *config, const sl_config_record *record,
                                   char **changes);

#endif
