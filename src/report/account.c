/* Opens an account and names things; the parts are filled by their own files. */
#include "account_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

static const char *const resource_names[] = {"compute", "update", "h2d",
                                             "d2h",     "disk",   "host memory"};

const char *sl_account_resource_name(sl_account_resource resource)
{
    return resource_names[resource];
}

/* ---- names ---- */

/* What is neither a chunk nor a value. */
static void name_other(const sl_account_request *request, const sl_allocation *allocation,
                       char name[SL_ACCOUNT_NAME_BYTES])
{
    const sl_homes *homes = request->homes;
    const sl_place *place = &allocation->place;
    bool is_bounce = place->tier == SL_TIER_HOST && homes->bounce_bytes > 0 &&
                     place->offset == homes->bounce_offset;
    bool is_flags =
        homes->flags_bytes[place->tier] > 0 && place->offset == homes->flags_offset[place->tier];
    const char *text = allocation->kind == SL_MEMORY_ACTIVATION ? "cache" : "hop of the prologue";
    if (allocation->is_permanent && (is_bounce || is_flags))
        text = is_bounce ? "bounce pieces of the disk" : "block flags";
    if (allocation->kind == SL_MEMORY_WORKSPACE) {
        const sl_op *op = &request->program->ops[allocation->first_tick];
        snprintf(name, SL_ACCOUNT_NAME_BYTES, "workspace of %s", sl_op_info_of(op->kind)->name);
        return;
    }
    snprintf(name, SL_ACCOUNT_NAME_BYTES, "%s", text);
}

void sl_account_describe(const sl_account_request *request, const sl_allocation *allocation,
                         sl_account_object *out_object)
{
    *out_object = (sl_account_object){.kind = allocation->kind,
                                      .offset = allocation->place.offset,
                                      .bytes = sl_place_extent(&allocation->place),
                                      .first_tick = allocation->first_tick,
                                      .last_tick = allocation->last_tick,
                                      .is_permanent = allocation->is_permanent};
    if (allocation->chunk_index != SL_NONE)
        snprintf(out_object->name, sizeof out_object->name, "%s chunk %u (%s)",
                 sl_group_name(allocation->group), allocation->chunk_index,
                 allocation->is_permanent ? "home" : "visit");
    else if (allocation->value != SL_NONE)
        snprintf(out_object->name, sizeof out_object->name, "%.40s",
                 request->program->values[allocation->value].name);
    else
        name_other(request, allocation, out_object->name);
}

/* ---- opening and closing ---- */

static void note_phases(sl_account *account)
{
    const sl_program *program = account->request.program;
    for (uint32_t c = 0; c < account->column_count; c++)
        account->phases[c] = (uint8_t)program->ops[sl_account_column_tick(account, c)].phase;
}

static sl_status fill(sl_account *account)
{
    note_phases(account);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        SL_TRY(sl_account_fill_memory(account, (sl_tier)tier));
        SL_TRY(sl_account_fill_regions(account, (sl_tier)tier));
    }
    SL_TRY(sl_account_fill_residency(account));
    return sl_account_fill_time(account);
}

sl_status sl_account_open(const sl_account_request *request, sl_account **out_account)
{
    uint32_t op_count = request->program->op_count;
    sl_account *account = calloc(1, sizeof *account);
    if (!account)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for an account");
    account->request = *request;
    account->op_count = op_count;
    account->column_count = op_count < SL_ACCOUNT_COLUMNS ? op_count : SL_ACCOUNT_COLUMNS;
    sl_status status = fill(account);
    if (status != SL_OK) {
        sl_account_close(account);
        return status;
    }
    *out_account = account;
    return SL_OK;
}

void sl_account_close(sl_account *account)
{
    if (!account)
        return;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        free(account->tier[tier].columns);
        free(account->tier[tier].objects);
        free(account->tier[tier].classes);
        free(account->tier[tier].holes);
        free(account->tier[tier].regions);
    }
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        free(account->residency[group].cells);
    free(account->spans);
    free(account);
}
