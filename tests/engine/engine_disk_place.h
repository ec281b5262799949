/* Where the disk tier of the engine's tests lives: a directory that must be empty again when a test
 * ends, and which transport reaches it. Include after <cmocka.h>. */
#ifndef TESTS_ENGINE_DISK_PLACE_H
#define TESTS_ENGINE_DISK_PLACE_H

#include "engine_disk_world.h"
#include "offload/store_double.h"
#include "scratch_dir.h"

static scratch_path directory;

static inline int open_scratch(void **state)
{
    (void)state;
    directory = scratch_open();
    store_double_arm((store_double_plan){.seed = 1, .reorders = 1, .delay_us = 100});
    return 0;
}

/* Nothing may be left in the directory, whatever happened. */
static inline int close_scratch(void **state)
{
    (void)state;
    bool is_empty = rmdir(directory.text) == 0;
    if (!is_empty)
        scratch_close(&directory);
    return is_empty ? 0 : -1;
}

/* The double, or what the store chooses itself. */
static inline const sl_transport_ops *choose_transport(uint32_t round)
{
    return round % 2 == 0 ? &store_double_ops : NULL;
}

#endif
