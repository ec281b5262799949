#include "pages.h"

#include <stdlib.h>
#include <string.h>

enum { RECENT = 64, FIRST_PLACES = 256, POOL_MOST = 8192 };

typedef struct ptx_page {
    struct ptx_page *next; /* in the pool */
    uint64_t number;       /* its address / PTX_PAGE_BYTES */
    uint32_t write[PTX_PAGE_CELLS], read[PTX_PAGE_CELLS];
    uint32_t write_block[PTX_PAGE_CELLS], read_block[PTX_PAGE_CELLS];
} page;

struct ptx_pages {
    ptx_page_pool *pool;
    uint64_t recent_number[RECENT]; /* beside the page, which is far away */
    page *recent[RECENT];
    page **place; /* a hash table, half of it free at least */
    uint64_t place_count, page_count;
};

/* ---- the pool ---- */

void ptx_page_pool_open(ptx_page_pool *pool)
{
    *pool = (ptx_page_pool){.count = 0};
    pthread_mutex_init(&pool->lock, NULL);
}

void ptx_page_pool_close(ptx_page_pool *pool)
{
    while (pool->first) {
        page *p = pool->first;
        pool->first = p->next;
        free(p);
    }
    pthread_mutex_destroy(&pool->lock);
}

/* An empty page; NULL: no memory. */
static page *take_page(ptx_page_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    page *p = pool->first;
    if (p) {
        pool->first = p->next;
        pool->count--;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!p)
        return calloc(1, sizeof *p);
    memset(p, 0, sizeof *p);
    return p;
}

static void give_page(ptx_page_pool *pool, page *p)
{
    pthread_mutex_lock(&pool->lock);
    const bool is_kept = pool->count < POOL_MOST;
    if (is_kept) {
        p->next = pool->first;
        pool->first = p;
        pool->count++;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!is_kept)
        free(p);
}

/* ---- pages of a launch ---- */

ptx_pages *ptx_pages_open(ptx_page_pool *pool)
{
    ptx_pages *pages = calloc(1, sizeof *pages);
    if (!pages)
        return NULL;
    pages->pool = pool;
    pages->place_count = FIRST_PLACES;
    pages->place = calloc(FIRST_PLACES, sizeof(page *));
    if (!pages->place) {
        free(pages);
        return NULL;
    }
    return pages;
}

void ptx_pages_close(ptx_pages *pages)
{
    if (!pages)
        return;
    for (uint64_t i = 0; i < pages->place_count; i++)
        if (pages->place[i])
            give_page(pages->pool, pages->place[i]);
    free(pages->place);
    free(pages);
}

static page **find_place(page **place, uint64_t place_count, uint64_t number)
{
    uint64_t at = number * UINT64_C(0x9e3779b97f4a7c15) >> 20 & (place_count - 1);
    while (place[at] && place[at]->number != number)
        at = (at + 1) & (place_count - 1);
    return &place[at];
}

static bool grow(ptx_pages *pages)
{
    const uint64_t count = 2 * pages->place_count;
    page **place = calloc(count, sizeof(page *));
    if (!place)
        return false;
    for (uint64_t i = 0; i < pages->place_count; i++)
        if (pages->place[i])
            *find_place(place, count, pages->place[i]->number) = pages->place[i];
    free(pages->place);
    pages->place = place;
    pages->place_count = count;
    return true;
}

static page *find_page(ptx_pages *pages, uint64_t number)
{
    if (2 * pages->page_count >= pages->place_count && !grow(pages))
        return NULL;
    page **place = find_place(pages->place, pages->place_count, number);
    if (!*place) {
        *place = take_page(pages->pool);
        if (!*place)
            return NULL;
        (*place)->number = number;
        pages->page_count++;
    }
    return *place;
}

bool ptx_pages_find(ptx_pages *pages, uint64_t address, ptx_cells *out)
{
    const uint64_t number = address / PTX_PAGE_BYTES, cell = address % PTX_PAGE_BYTES / 2;
    page *found = pages->recent[number % RECENT];
    if (!found || pages->recent_number[number % RECENT] != number) {
        found = find_page(pages, number);
        pages->recent[number % RECENT] = found;
        pages->recent_number[number % RECENT] = number;
    }
    if (!found)
        return false;
    out->write = found->write + cell;
    out->read = found->read + cell;
    out->write_block = found->write_block + cell;
    out->read_block = found->read_block + cell;
    return true;
}

void ptx_pages_age(ptx_pages *pages, uint32_t block)
{
    for (uint64_t i = 0; i < pages->place_count; i++)
        for (uint32_t cell = 0; pages->place[i] && cell < PTX_PAGE_CELLS; cell++) {
            page *p = pages->place[i];
            p->write[cell] = p->write_block[cell] == block ? 0 : p->write[cell];
            p->read[cell] = p->read_block[cell] == block ? 0 : p->read[cell];
        }
}

/* ---- what was touched ---- */

typedef struct teller {
    ptx_shadow_touch touch;
    void *context;
    uint64_t start, end; /* a piece that may go on */
    bool is_write;
} teller;

static void tell_piece(teller *t)
{
    if (t->end > t->start)
        t->touch(t->context, t->start, t->end - t->start, t->is_write);
    t->start = t->end = 0;
}

static void tell_whole_page(teller *t, const page *p)
{
    const uint64_t start = p->number * PTX_PAGE_BYTES;
    if (start != t->end) {
        tell_piece(t);
        t->start = start;
    }
    t->end = start + PTX_PAGE_BYTES;
}

static void tell_page(teller *t, const page *p)
{
    const uint32_t *block = t->is_write ? p->write_block : p->read_block;
    uint32_t untouched = 0;
    for (uint32_t cell = 0; cell < PTX_PAGE_CELLS; cell++)
        untouched += block[cell] == 0;
    if (untouched == PTX_PAGE_CELLS)
        return;
    if (untouched == 0) {
        tell_whole_page(t, p);
        return;
    }
    for (uint32_t cell = 0; cell < PTX_PAGE_CELLS; cell++) {
        const uint64_t address = p->number * PTX_PAGE_BYTES + 2 * cell;
        if (block[cell] == 0)
            continue;
        if (address != t->end) {
            tell_piece(t);
            t->start = address;
        }
        t->end = address + 2;
    }
}

static int compare_pages(const void *a, const void *b)
{
    const uint64_t x = (*(page *const *)a)->number, y = (*(page *const *)b)->number;
    return (x > y) - (x < y);
}

bool ptx_pages_tell(ptx_pages *pages, ptx_shadow_touch touch, void *context)
{
    page **sorted = calloc(pages->page_count + 1, sizeof(page *));
    if (!sorted)
        return false;
    uint64_t count = 0;
    for (uint64_t i = 0; i < pages->place_count; i++)
        if (pages->place[i])
            sorted[count++] = pages->place[i];
    qsort(sorted, count, sizeof(page *), compare_pages);
    for (int is_write = 0; is_write < 2; is_write++) {
        teller t = {.touch = touch, .context = context, .is_write = is_write != 0};
        for (uint64_t i = 0; i < count; i++)
            tell_page(&t, sorted[i]);
        tell_piece(&t);
    }
    free(sorted);
    return true;
}
