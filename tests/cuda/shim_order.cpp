/* The order of threads. Between two barriers each thread has a place, and of those that are ready
 * the one with the first place runs, so some run as far ahead of others as barriers allow.
 * Shuffled, every second time by lot, they keep rounds instead: all that are ready get a turn
 * before any gets another, so that they run as close together as they can. */
#include "shim_order.h"

#include <string.h>

enum { WORD = 64, WORDS = SHIM_THREADS_MOST / WORD };

typedef struct thread_set { /* a bit a place */
    uint64_t word[WORDS];
} thread_set;

static sl_shim_order order_chosen;
static uint64_t seed_chosen, draws, turn_count;
static uint32_t thread_at[SHIM_THREADS_MOST], place_of[SHIM_THREADS_MOST];
static thread_set now, later; /* later: in the next round */
static bool keeps_rounds;

void sl_shim_choose_order(sl_shim_order order, uint64_t seed)
{
    order_chosen = order;
    seed_chosen = seed;
}

uint64_t sl_shim_turn_count(void)
{
    return turn_count;
}

void shim_order_open(void)
{
    draws = seed_chosen;
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(void)
{
    uint64_t z = (draws += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t find_common_factor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Shuffled: by a stride that shares no factor with the count. */
uint64_t shim_order_block(uint64_t step, uint64_t count)
{
    if (order_chosen == SL_SHIM_IN_ORDER)
        return step;
    if (order_chosen == SL_SHIM_REVERSED)
        return count - 1 - step;
    uint64_t stride = count / 3 + seed_chosen % 7 + 1;
    while (find_common_factor(count, stride) != 1)
        stride++;
    return (seed_chosen + step * stride) % count;
}

static void shuffle_places(uint32_t thread_count)
{
    for (uint32_t i = thread_count; i > 1; i--) {
        const uint32_t other = (uint32_t)((draw() >> 32) * i >> 32), kept = thread_at[i - 1];
        thread_at[i - 1] = thread_at[other];
        thread_at[other] = kept;
    }
}

void shim_order_release(uint32_t thread_count)
{
    for (uint32_t i = 0; i < thread_count; i++)
        thread_at[i] = order_chosen == SL_SHIM_REVERSED ? thread_count - 1 - i : i;
    keeps_rounds = order_chosen == SL_SHIM_SHUFFLED && draw() % 2 == 0;
    if (order_chosen == SL_SHIM_SHUFFLED)
        shuffle_places(thread_count);
    memset(&now, 0, sizeof now);
    memset(&later, 0, sizeof later);
    for (uint32_t i = 0; i < thread_count; i++) {
        place_of[thread_at[i]] = i;
        now.word[i / WORD] |= UINT64_C(1) << i % WORD;
    }
}

void shim_order_ready(uint32_t thread)
{
    const uint32_t place = place_of[thread];
    (keeps_rounds ? later : now).word[place / WORD] |= UINT64_C(1) << place % WORD;
}

static bool take_first(uint32_t *out_thread)
{
    for (uint32_t i = 0; i < WORDS; i++)
        if (now.word[i] != 0) {
            *out_thread = thread_at[i * WORD + (uint32_t)__builtin_ctzll(now.word[i])];
            now.word[i] &= now.word[i] - 1;
            return true;
        }
    return false;
}

bool shim_order_next(uint32_t *out_thread)
{
    if (!take_first(out_thread)) {
        now = later;
        memset(&later, 0, sizeof later);
        if (!take_first(out_thread))
            return false;
    }
    turn_count++;
    return true;
}
