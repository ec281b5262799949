/* What the stand-in's own files need of stream_order.h: agents, clocks and work on its way. The
 * lock is held in every call where nothing is said. */
#ifndef SL_TESTS_CUDA_STREAM_ORDER_CLOCK_H
#define SL_TESTS_CUDA_STREAM_ORDER_CLOCK_H

#include "stream_order.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct order_agent order_agent;
typedef struct order_clock order_clock; /* what came before one moment; counted, never changed */
typedef struct order_work order_work;   /* an item on its way through a stream */

/* ---- agents ---- */

/* It comes after all that the calling thread knows. Closed, its number is used again by one that
 * comes after all of its work. */
order_agent *order_agent_open(const char *name);
void order_agent_close(order_agent *agent);
void order_agent_rename(order_agent *agent, const char *name);

/* The calling thread's. */
order_agent *order_agent_of_thread(void);

/* The calling thread works as `agent` from now on. */
void order_agent_adopt(order_agent *agent);

/* ---- clocks; NULL is one before everything ---- */

/* What comes before the agent's next work; to be dropped. */
order_clock *order_clock_take(order_agent *agent);
/* The calling thread's, for an agent that does not have it yet; NULL: it was given this one. */
order_clock *order_clock_take_news(order_agent *to);
void order_clock_drop(order_clock *clock);

/* The agent's next work comes after it; `edge` STANDIN_EDGE_COUNT: that cannot be ignored. */
void order_clock_join(order_agent *agent, const order_clock *clock, standin_edge edge);

/* True if it does already. */
bool order_clock_is_known(const order_agent *agent, const order_clock *clock);

/* ---- work ---- */

/* The calling thread issues an item that touches `ranges`; NULL: what it declared. */
order_work *order_work_issue(const char *name, const standin_range *ranges, uint32_t count);

/* An item that touches nothing: a record, a wait. */
order_work *order_work_issue_point(void);

/* It is its turn: in the stream's thread, which works as `agent` until order_work_end. With
 * `is_run` it touches its ranges. */
void order_work_begin(order_agent *agent, order_work *work, bool is_run);
void order_work_end(order_work *work); /* frees it; NULL is fine */

/* The calling thread touches a range; `what` is borrowed. */
void order_touch(const char *what, const standin_range *range);

/* The bytes are other memory than was there before: the system gives an address to one after the
 * other, which orders their work. */
void order_forget(const void *first, uint64_t bytes);

/* ---- words ---- */

/* A stream went on because *word is `value` or after it. */
void order_word_join(order_agent *agent, const void *word, uint32_t value);

/* Words there are no more. */
void order_words_end(const void *first, uint64_t bytes);

/* ---- marks of queues: `mark` is an address, never followed ---- */

uint32_t order_mark_issue(const void *mark);
uint32_t order_mark_issued(const void *mark); /* 0: never */
void order_mark_publish(const void *mark, const void *word);
/* The calling thread is about to reach record `number`. */
void order_mark_reach(const void *mark, uint32_t number);
/* The clock of a record; borrowed until the mark closes. */
const order_clock *order_mark_clock(const void *mark, uint32_t number);
void order_mark_close(const void *mark);

/* ---- agents by address: of queues ---- */

order_agent *order_agent_find(const void *key); /* NULL: none */
void order_agent_keep(const void *key, order_agent *agent);
void order_agent_lose(const void *key);

/* ---- places ---- */

/* Bytes of a disk have addresses, too, where no memory is: this bit, a number of the disk, and the
 * byte. */
#define STANDIN_DISK (UINT64_C(1) << 63)
#define STANDIN_DISK_BYTES (UINT64_C(1) << 48)

/* runtime_memory.c: "from byte 4096 of an allocation of 700416 on". */
void standin_describe_place(const void *pointer, char *out_text, uint64_t text_bytes);

/* ---- as a whole ---- */

/* Nothing was touched, found or counted yet. */
void order_reset(void);

/* What should have made order has failed: what comes after it in a run that is lost is no fault,
 * and until the next reset nothing is looked at. */
void order_stop(void);

#ifdef __cplusplus
}
#endif
#endif
