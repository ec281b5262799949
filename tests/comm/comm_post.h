/* A transport (src/comm/mail.h) between threads of one process, for tests: what ranks of
 * different machines send each other goes through its boxes. Small messages are copied when they
 * are sent, as an MPI does; large ones stay with the sender until they are received, so that memory
 * which is given back too early is noticed. With `delays` a poll finds nothing now and then. */
#ifndef SL_TESTS_COMM_POST_H
#define SL_TESTS_COMM_POST_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/mail.h"

/* Notes of failures are copied: who sent one may have ended when it is read. */
enum { POST_RANKS = 8, POST_EAGER_BYTES = 2000 };

/* One message, either way. */
typedef struct post_item {
    struct post_item *next;
    uint32_t slot, peer, tag; /* sent: who sent it, and its slot there */
    void *data;
    uint64_t bytes;
    bool is_copied;
} post_item;

typedef struct post_list {
    post_item *first, **end; /* NULL: empty */
} post_list;

typedef struct post_box {
    struct post_office *office;
    uint32_t rank;
    bool delays;
    uint32_t poll_count;
    post_list letters, receives; /* that came, and that are awaited, in order */
    sl_mail_event *events;       /* [slot_count] not yet told */
    uint32_t event_count;
} post_box;

/* What this rank sends is lost from now on, as if its machine had stopped; no rank at first. */
static _Atomic uint32_t post_lost_rank = UINT32_MAX;

typedef struct post_office {
    pthread_mutex_t lock;
    uint32_t size, closed_count;
    post_box *boxes[POST_RANKS];
} post_office;

static inline void post_append(post_list *list, post_item item)
{
    post_item *place = malloc(sizeof *place);
    if (!place)
        abort();
    *place = item;
    place->next = NULL;
    *(list->end ? list->end : &list->first) = place;
    list->end = &place->next;
}

static inline void post_remove(post_list *list, post_item **link)
{
    post_item *gone = *link;
    *link = gone->next;
    if (!*link)
        list->end = link == &list->first ? NULL : link;
    free(gone);
}

static inline void post_tell(post_box *box, uint32_t slot, bool has_failed, uint64_t bytes)
{
    box->events[box->event_count++] = (sl_mail_event){slot, has_failed, bytes};
}

static inline bool post_open(void *self, uint32_t slot_count, uint32_t *out_rank,
                             uint32_t *out_size, char *error)
{
    post_box *box = self;
    sl_mail_event *events = calloc(slot_count, sizeof *events);
    if (!events) {
        snprintf(error, SL_MAIL_ERROR_BYTES, "no memory");
        return false;
    }
    pthread_mutex_lock(&box->office->lock);
    box->events = events;
    pthread_mutex_unlock(&box->office->lock);
    *out_rank = box->rank;
    *out_size = box->office->size;
    return true;
}

static inline bool post_send(void *self, uint32_t slot, const sl_mail_letter *letter, char *error)
{
    post_box *box = self;
    const uint32_t to = letter->peer;
    const uint64_t bytes = letter->bytes;
    (void)error;
    if (post_lost_rank == box->rank) {
        pthread_mutex_lock(&box->office->lock);
        post_tell(box, slot, false, bytes);
        pthread_mutex_unlock(&box->office->lock);
        return true;
    }
    post_item item = {.slot = slot,
                      .peer = box->rank,
                      .tag = letter->tag,
                      .data = letter->data,
                      .bytes = bytes,
                      .is_copied = bytes <= POST_EAGER_BYTES};
    if (item.is_copied) {
        item.data = malloc(bytes + 1);
        if (!item.data)
            abort();
        memcpy(item.data, letter->data, bytes);
    }
    pthread_mutex_lock(&box->office->lock);
    post_append(&box->office->boxes[to]->letters, item);
    if (item.is_copied)
        post_tell(box, slot, false, bytes);
    pthread_mutex_unlock(&box->office->lock);
    return true;
}

static inline bool post_receive(void *self, uint32_t slot, const sl_mail_letter *letter,
                                char *error)
{
    post_box *box = self;
    (void)error;
    pthread_mutex_lock(&box->office->lock);
    post_append(&box->receives, (post_item){.slot = slot,
                                            .peer = letter->peer,
                                            .tag = letter->tag,
                                            .data = letter->data,
                                            .bytes = letter->bytes});
    pthread_mutex_unlock(&box->office->lock);
    return true;
}

/* The first letter of that name, or the end of the list. */
static inline post_item **post_find(post_box *box, const post_item *receive)
{
    post_item **link = &box->letters.first;
    while (*link && ((*link)->tag != receive->tag ||
                     (receive->peer != SL_MAIL_ANYBODY && (*link)->peer != receive->peer)))
        link = &(*link)->next;
    return link;
}

static inline void post_deliver(post_box *box, const post_item *receive, post_item *letter)
{
    bool fits = letter->bytes <= receive->bytes;
    if (fits && letter->bytes > 0)
        memcpy(receive->data, letter->data, letter->bytes);
    post_tell(box, receive->slot, !fits, letter->bytes);
    if (letter->is_copied)
        free(letter->data);
    else
        post_tell(box->office->boxes[letter->peer], letter->slot, false, letter->bytes);
}

static inline bool post_poll(void *self, sl_mail_event *out_events, uint32_t capacity,
                             uint32_t *out_count, char *error)
{
    post_box *box = self;
    (void)capacity;
    (void)error;
    *out_count = 0;
    if (box->delays && box->poll_count++ % 3 != 0)
        return true;
    pthread_mutex_lock(&box->office->lock);
    for (post_item **link = &box->receives.first; *link;) {
        post_item **letter = post_find(box, *link);
        if (!*letter) {
            link = &(*link)->next;
            continue;
        }
        post_deliver(box, *link, *letter);
        post_remove(&box->letters, letter);
        post_remove(&box->receives, link);
    }
    memcpy(out_events, box->events, box->event_count * sizeof *out_events);
    *out_count = box->event_count;
    box->event_count = 0;
    pthread_mutex_unlock(&box->office->lock);
    return true;
}

/* Waits for all, as MPI_Finalize does, but some seconds at most: in a run that failed some do not
 * come, and what hangs here would use the office when it is gone. */
static inline void post_close(void *self)
{
    post_box *box = self;
    const struct timespec pause = {0, 1000000};
    bool is_over = false;
    pthread_mutex_lock(&box->office->lock);
    box->office->closed_count++;
    pthread_mutex_unlock(&box->office->lock);
    for (int i = 0; i < 2000 && !is_over; i++) {
        pthread_mutex_lock(&box->office->lock);
        is_over = box->office->closed_count == box->office->size;
        pthread_mutex_unlock(&box->office->lock);
        nanosleep(&pause, NULL);
    }
}

/* What is left of a box, when no thread uses the office any more. */
static inline void post_empty(post_box *box)
{
    while (box->letters.first) {
        if (box->letters.first->is_copied)
            free(box->letters.first->data);
        post_remove(&box->letters, &box->letters.first);
    }
    while (box->receives.first)
        post_remove(&box->receives, &box->receives.first);
    free(box->events);
}

/* No abort: these are no processes. */
static const sl_mail_ops post_ops = {SL_MAIL_VERSION, post_open,  post_send, post_receive,
                                     post_poll,       post_close, NULL};

#endif
