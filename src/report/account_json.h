/* An account as JSON, for pages and scripts. */
#ifndef SL_REPORT_ACCOUNT_JSON_H
#define SL_REPORT_ACCOUNT_JSON_H

#include <jansson.h>

#include "account.h"

/* New objects. SL_ERROR_SYSTEM: no memory. */
sl_status sl_account_json_format(const sl_account *account, json_t **out_object);
sl_status sl_account_json_format_measured(const sl_account *account,
                                          const sl_report_measured *measured, json_t **out_object);

#endif
