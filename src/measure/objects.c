/* Adds up live ranges tick by tick, then gathers what is alive at the largest sum. */
#include "objects.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* ---- the tick ---- */

static void add_live_range(const sl_allocation *allocation, uint32_t op_count, int64_t *difference)
{
    int64_t bytes = (int64_t)sl_place_extent(&allocation->place);
    uint32_t first = allocation->first_tick, last = allocation->last_tick;
    if (allocation->is_permanent || first > last)
        difference[0] += bytes;
    if (allocation->is_permanent)
        return;
    difference[first] += bytes;
    if (last < op_count)
        difference[last + 1] -= bytes;
}

static bool is_alive(const sl_allocation *allocation, uint32_t tick)
{
    uint32_t first = allocation->first_tick, last = allocation->last_tick;
    if (allocation->is_permanent)
        return true;
    return first <= last ? tick >= first && tick <= last : tick >= first || tick <= last;
}

static sl_status find_peak(const sl_program *program, const sl_plan *plan, sl_tier tier,
                           sl_objects *objects)
{
    int64_t *difference = calloc((size_t)program->op_count + 2, sizeof *difference), live = 0;
    if (!difference)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to look at a plan of %u ops", program->op_count);
    for (uint32_t i = 0; i < plan->allocation_count; i++)
        if (plan->allocations[i].place.tier == tier)
            add_live_range(&plan->allocations[i], program->op_count, difference);
    for (uint32_t tick = 0; tick < program->op_count; tick++) {
        live += difference[tick];
        if (live <= (int64_t)objects->live_bytes)
            continue;
        objects->live_bytes = (uint64_t)live;
        objects->tick = tick;
    }
    free(difference);
    return SL_OK;
}

/* ---- the objects ---- */

/* Numbers become stars: layers, panels and rows of one name are one object. */
static void copy_name(const char *from, char *to, size_t capacity)
{
    size_t length = 0;
    while (*from && length + 1 < capacity) {
        bool is_number = isdigit((unsigned char)*from);
        to[length++] = is_number ? '*' : *from++;
        while (is_number && isdigit((unsigned char)*from))
            from++;
    }
    to[length] = '\0';
}

static void name_allocation(const sl_program *program, const sl_allocation *allocation,
                            char name[SL_OBJECTS_NAME_BYTES])
{
    if (allocation->chunk_index != SL_NONE && allocation->kind <= SL_MEMORY_MOMENT2)
        snprintf(name, SL_OBJECTS_NAME_BYTES, "%s chunks, %s", sl_group_name(allocation->group),
                 allocation->is_permanent ? "at home" : "visiting");
    else if (allocation->kind == SL_MEMORY_WORKSPACE)
        snprintf(name, SL_OBJECTS_NAME_BYTES, "workspace");
    else if (allocation->value < program->value_count)
        copy_name(program->values[allocation->value].name, name, SL_OBJECTS_NAME_BYTES);
    else
        snprintf(name, SL_OBJECTS_NAME_BYTES, "flags and buffers");
}

/* The object of that name; where there are too many, the last one takes the others. */
static sl_object *find_object(sl_objects *objects, const sl_allocation *allocation,
                              const char *name)
{
    for (uint32_t i = 0; i < objects->count; i++)
        if (objects->items[i].kind == allocation->kind && strcmp(objects->items[i].name, name) == 0)
            return &objects->items[i];
    sl_object *last = &objects->items[SL_OBJECTS_MAX - 1];
    if (objects->count == SL_OBJECTS_MAX)
        return last;
    sl_object *fresh = &objects->items[objects->count++];
    *fresh = (sl_object){.kind = allocation->kind};
    snprintf(fresh->name, sizeof fresh->name, "%s", fresh == last ? "others" : name);
    return fresh;
}

static int compare_bytes(const void *a, const void *b)
{
    uint64_t left = ((const sl_object *)a)->bytes, right = ((const sl_object *)b)->bytes;
    return left < right ? 1 : left > right ? -1 : 0;
}

sl_status sl_objects_find(const sl_program *program, const sl_plan *plan, sl_tier tier,
                          sl_objects *out_objects)
{
    char name[SL_OBJECTS_NAME_BYTES];
    sl_objects objects = {0};
    SL_TRY(find_peak(program, plan, tier, &objects));
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        const sl_allocation *allocation = &plan->allocations[i];
        if (allocation->place.tier != tier || !is_alive(allocation, objects.tick))
            continue;
        name_allocation(program, allocation, name);
        sl_object *object = find_object(&objects, allocation, name);
        object->bytes += sl_place_extent(&allocation->place);
        object->count++;
    }
    qsort(objects.items, objects.count, sizeof objects.items[0], compare_bytes);
    *out_objects = objects;
    return SL_OK;
}
