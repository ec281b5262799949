/* What `sluice profile` prints. */
#ifndef SL_CLI_PROFILE_TABLE_H
#define SL_CLI_PROFILE_TABLE_H

#include "measure/measured.h"
#include "search/blueprint.h"

/* Prints all of it to standard output. */
void sl_profile_table_print(const sl_measured *measured, const sl_blueprint *blueprint);

#endif
