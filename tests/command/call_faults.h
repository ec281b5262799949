/* Calls of the C library, of liburing and of the CUDA stand-in made to fail, one at a time. A
 * program is linked with --wrap for each name of call_faults_list.h and with call_faults.c; it then
 * counts every call by the place that makes it, and lets the n-th call of one place fail.
 *
 * A place is the address behind the call, so that two calls of a line are two places. Only calls
 * that are linked into the program count: what a shared library calls for itself does not, but for
 * jansson, whose allocations are those of the place that called jansson.
 *
 * Counts live in memory that the caller shares with the process that is to fail. */
#ifndef SL_TESTS_CALL_FAULTS_H
#define SL_TESTS_CALL_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum call_class {
    CALL_CLASS_MEMORY,
    CALL_CLASS_THREADS,
    CALL_CLASS_FILES,
    CALL_CLASS_RING,
    CALL_CLASS_CUDA,
    CALL_CLASS_COUNT
} call_class;

/* BROKEN, of CUDA alone: they fail, and what is queued does not run any more. */
typedef enum call_after { CALL_AFTER_WORKS, CALL_AFTER_FAILS, CALL_AFTER_IS_BROKEN } call_after;

enum { CALL_PLACES_MAX = 4096 };

typedef struct call_place {
    _Atomic uint64_t key; /* 0: free. Which function, in the upper 16 bits, and the address */
    _Atomic uint32_t calls;
} call_place;

typedef struct call_faults {
    call_place places[CALL_PLACES_MAX];
    uint64_t failing_key;  /* 0: none fails */
    uint32_t failing_call; /* from 1, of that place */
    call_after after;      /* what becomes of the later calls of its class, of any place */
    _Atomic bool is_after;
    _Atomic uint32_t hits; /* calls that failed */
    _Atomic uint32_t lost; /* calls of places that found no room */
} call_faults;

/* Once, before anything else. */
void call_faults_prepare(void);

/* Counts into `faults` and fails as it says; NULL: no longer. */
void call_faults_start(call_faults *faults);

const char *call_faults_name(uint64_t key);
call_class call_faults_class(uint64_t key);

/* The address of the call, less that of the program's start: what addr2line takes. */
uint64_t call_faults_offset(uint64_t key);

#endif
