/* Cells of global memory: pages that are made when a launch first touches them. */
#ifndef PTX_PAGES_H
#define PTX_PAGES_H

#include <pthread.h>

#include "cells.h"
#include "shadow.h"

enum { PTX_PAGE_BYTES = 1024, PTX_PAGE_CELLS = PTX_PAGE_BYTES / 2 };

/* Pages that ended launches leave to those that come; any number of threads may use it. */
typedef struct ptx_page_pool {
    pthread_mutex_t lock;
    struct ptx_page *first;
    uint64_t count;
} ptx_page_pool;

void ptx_page_pool_open(ptx_page_pool *pool);
void ptx_page_pool_close(ptx_page_pool *pool);

typedef struct ptx_pages ptx_pages;

/* NULL: no memory. `pool` outlives it. */
ptx_pages *ptx_pages_open(ptx_page_pool *pool);
void ptx_pages_close(ptx_pages *pages);

/* The cells from this address on, to the end of its page. False: no memory. */
bool ptx_pages_find(ptx_pages *pages, uint64_t address, ptx_cells *out);

/* Makes all that a block (1 + its index) did be ordered before what it does next. */
void ptx_pages_age(ptx_pages *pages, uint32_t block);

/* Tells of all cells that were touched. False: no memory. */
bool ptx_pages_tell(ptx_pages *pages, ptx_shadow_touch touch, void *context);

#endif
