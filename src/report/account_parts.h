/* What the files of an account share: account.c opens one and calls the others in this order. */
#ifndef SL_REPORT_ACCOUNT_PARTS_H
#define SL_REPORT_ACCOUNT_PARTS_H

#include "account.h"

/* The first tick of a column; `column` may be column_count: the tick behind the last. */
static inline uint32_t sl_account_column_tick(const sl_account *account, uint32_t column)
{
    return (uint32_t)((uint64_t)column * account->op_count / account->column_count);
}

/* Bytes by kind, columns, objects, classes and holes of a tier. */
sl_status sl_account_fill_memory(sl_account *account, sl_tier tier);

/* The address map of a tier. */
sl_status sl_account_fill_regions(sl_account *account, sl_tier tier);

/* Where chunks are. */
sl_status sl_account_fill_residency(sl_account *account);

/* Lanes, stalls and ops, by simulation; resources, by rates alone. */
sl_status sl_account_fill_time(sl_account *account);

/* An allocation as an object. */
void sl_account_describe(const sl_account_request *request, const sl_allocation *allocation,
                         sl_account_object *out_object);

#endif
