/* What each tier holds: by kind at every column, and object by object at the peak. */
#include "account_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/status.h"

/* ---- objects alive at a tick ---- */

static bool is_alive(const sl_allocation *allocation, uint32_t tick)
{
    uint32_t first = allocation->first_tick, last = allocation->last_tick;
    if (allocation->is_permanent)
        return true;
    return first > last ? tick >= first || tick <= last : tick >= first && tick <= last;
}

static int compare_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_bytes(const void *left, const void *right)
{
    const sl_account_object *a = left, *b = right;
    int order = compare_u64(b->bytes, a->bytes);
    return order ? order : compare_u64(a->offset, b->offset);
}

static int by_offset(const void *left, const void *right)
{
    const sl_account_object *a = left, *b = right;
    return compare_u64(a->offset, b->offset);
}

static int by_name(const void *left, const void *right)
{
    const sl_account_class *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    return order ? order : (int)a->kind - (int)b->kind;
}

static int by_class_bytes(const void *left, const void *right)
{
    const sl_account_class *a = left, *b = right;
    int order = compare_u64(b->bytes, a->bytes);
    return order ? order : strcmp(a->name, b->name);
}

static int by_hole_bytes(const void *left, const void *right)
{
    const sl_account_hole *a = left, *b = right;
    int order = compare_u64(b->bytes, a->bytes);
    return order ? order : compare_u64(a->offset, b->offset);
}

sl_status sl_account_list_objects(const sl_account_request *request, sl_tier tier, uint32_t tick,
                                  sl_account_object **out_objects, uint32_t *out_count)
{
    const sl_plan *plan = request->plan;
    uint32_t count = 0;
    sl_account_object *objects = calloc((uint64_t)plan->allocation_count + 1, sizeof *objects);
    if (!objects)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to list %u objects", plan->allocation_count);
    for (uint32_t a = 0; a < plan->allocation_count; a++)
        if (plan->allocations[a].place.tier == tier && is_alive(&plan->allocations[a], tick))
            sl_account_describe(request, &plan->allocations[a], &objects[count++]);
    qsort(objects, count, sizeof *objects, by_bytes);
    *out_objects = objects;
    *out_count = count;
    return SL_OK;
}

/* ---- lists ---- */

/* A copy of the first `limit` of `count` items. */
static sl_status keep_first(const void *items, uint32_t count, uint32_t limit, size_t item_bytes,
                            void **out_items)
{
    uint64_t kept = count < limit ? count : limit;
    void *copy = calloc(kept + 1, item_bytes);
    if (!copy)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for an account");
    if (kept > 0)
        memcpy(copy, items, kept * item_bytes);
    *out_items = copy;
    return SL_OK;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "h.12.qkv" becomes "h.*.qkv", "moment1 chunk 3 (home)" "moment1 chunk * (home)": numbers that
 * stand behind a dot or a space. */
static void generalise(const char *name, char out_name[SL_ACCOUNT_NAME_BYTES])
{
    size_t length = 0;
    char before = '.';
    while (*name && length + 1 < SL_ACCOUNT_NAME_BYTES) {
        bool is_number = is_digit(*name) && (before == '.' || before == ' ');
        before = *name++;
        out_name[length++] = (char)(is_number ? '*' : before);
        while (is_number && is_digit(*name))
            name++;
    }
    out_name[length] = '\0';
}

/* Merges equal neighbours of a sorted array; returns how many are left. */
static uint32_t merge_classes(sl_account_class *classes, uint32_t count)
{
    uint32_t merged = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (merged > 0 && by_name(&classes[merged - 1], &classes[i]) == 0) {
            classes[merged - 1].count += classes[i].count;
            classes[merged - 1].bytes += classes[i].bytes;
        } else {
            classes[merged++] = classes[i];
        }
    }
    return merged;
}

static sl_status list_classes(const sl_account_object *objects, uint32_t count,
                              sl_account_tier *tier)
{
    sl_account_class *classes = calloc((uint64_t)count + 1, sizeof *classes);
    if (!classes)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to class %u objects", count);
    for (uint32_t i = 0; i < count; i++) {
        classes[i] =
            (sl_account_class){.kind = objects[i].kind, .count = 1, .bytes = objects[i].bytes};
        generalise(objects[i].name, classes[i].name);
    }
    qsort(classes, count, sizeof *classes, by_name);
    tier->all_classes = merge_classes(classes, count);
    tier->class_count = sl_bits_min(tier->all_classes, SL_ACCOUNT_CLASSES);
    qsort(classes, tier->all_classes, sizeof *classes, by_class_bytes);
    sl_status status = keep_first(classes, tier->all_classes, SL_ACCOUNT_CLASSES, sizeof *classes,
                                  (void **)&tier->classes);
    free(classes);
    return status;
}

/* Sorts the objects by address on the way. */
static sl_status list_holes(sl_account_object *objects, uint32_t count, sl_account_tier *tier)
{
    uint64_t end = 0;
    sl_account_hole *holes = calloc((uint64_t)count + 2, sizeof *holes);
    if (!holes)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to list the holes of %u objects", count);
    qsort(objects, count, sizeof *objects, by_offset);
    for (uint32_t i = 0; i <= count; i++) {
        uint64_t start = i < count ? objects[i].offset : tier->arena_bytes;
        if (start > end)
            holes[tier->all_holes++] = (sl_account_hole){end, start - end};
        if (i < count && objects[i].offset + objects[i].bytes > end)
            end = objects[i].offset + objects[i].bytes;
    }
    qsort(holes, tier->all_holes, sizeof *holes, by_hole_bytes);
    tier->hole_count = sl_bits_min(tier->all_holes, SL_ACCOUNT_HOLES);
    sl_status status =
        keep_first(holes, tier->all_holes, SL_ACCOUNT_HOLES, sizeof *holes, (void **)&tier->holes);
    free(holes);
    return status;
}

static sl_status list_peak(const sl_account *account, sl_tier index, sl_account_tier *tier)
{
    sl_account_object *objects = NULL;
    SL_TRY(sl_account_list_objects(&account->request, index, tier->peak_tick, &objects,
                                   &tier->all_objects));
    tier->object_count = sl_bits_min(tier->all_objects, SL_ACCOUNT_OBJECTS);
    sl_status status = keep_first(objects, tier->all_objects, SL_ACCOUNT_OBJECTS, sizeof *objects,
                                  (void **)&tier->objects);
    if (status == SL_OK)
        status = list_classes(objects, tier->all_objects, tier);
    if (status == SL_OK)
        status = list_holes(objects, tier->all_objects, tier);
    free(objects);
    return status;
}

/* ---- over the ticks ---- */

static uint64_t add_kinds(const uint64_t kind_bytes[SL_MEMORY_KIND_COUNT])
{
    uint64_t sum = 0;
    for (int kind = 0; kind < SL_MEMORY_KIND_COUNT; kind++)
        sum += kind_bytes[kind];
    return sum;
}

static uint32_t find_fullest(const uint64_t *live, uint32_t first, uint32_t end)
{
    uint32_t fullest = first;
    uint64_t most = 0;
    for (uint32_t tick = first; tick < end; tick++) {
        uint64_t bytes = add_kinds(live + (uint64_t)tick * SL_MEMORY_KIND_COUNT);
        if (bytes > most)
            fullest = tick;
        most = bytes > most ? bytes : most;
    }
    return fullest;
}

static void fill_columns(const sl_account *account, const uint64_t *live, sl_account_tier *tier)
{
    for (uint32_t c = 0; c < account->column_count; c++) {
        sl_account_column *column = &tier->columns[c];
        column->tick = find_fullest(live, sl_account_column_tick(account, c),
                                    sl_account_column_tick(account, c + 1));
        memcpy(column->kind_bytes, live + (uint64_t)column->tick * SL_MEMORY_KIND_COUNT,
               sizeof column->kind_bytes);
    }
    tier->peak_tick = find_fullest(live, 0, account->op_count);
    memcpy(tier->kind_bytes, live + (uint64_t)tier->peak_tick * SL_MEMORY_KIND_COUNT,
           sizeof tier->kind_bytes);
}

sl_status sl_account_fill_memory(sl_account *account, sl_tier index)
{
    const sl_plan *plan = account->request.plan;
    sl_account_tier *tier = &account->tier[index];
    uint64_t *live = calloc((uint64_t)account->op_count * SL_MEMORY_KIND_COUNT + 1, sizeof *live);
    tier->columns = calloc((uint64_t)account->column_count + 1, sizeof *tier->columns);
    if (!live || !tier->columns) {
        free(live);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for an account of %u ops", account->op_count);
    }
    sl_plan_live_bytes(plan, index, account->op_count, live);
    fill_columns(account, live, tier);
    free(live);
    tier->budget_bytes = account->request.budget_bytes[index];
    tier->arena_bytes = plan->peak_bytes[index];
    tier->live_peak_bytes = add_kinds(tier->kind_bytes);
    if (tier->live_peak_bytes > tier->arena_bytes)
        SL_FAIL(SL_ERROR_INTERNAL, "more is alive in the %s than its arena holds",
                sl_tier_name(index));
    tier->hole_bytes = tier->arena_bytes - tier->live_peak_bytes;
    if (tier->arena_bytes > tier->budget_bytes)
        tier->overflow_bytes = tier->arena_bytes - tier->budget_bytes;
    return list_peak(account, index, tier);
}
