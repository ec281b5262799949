/* Who touched which bytes last: of each, the last write and the reads since that no later one comes
 * after. Ranges of addresses in their order (std::map), cut at the borders of what is touched. */
#ifndef SL_TESTS_CUDA_STREAM_ORDER_MEMORY_H
#define SL_TESTS_CUDA_STREAM_ORDER_MEMORY_H

#include <cstdint>
#include <vector>

/* One touch; `moment` counts the work of its agent. */
struct order_access {
    uint32_t agent, moment;
    bool is_written;
    const char *agent_name, *op, *name, *operand; /* op, operand: may be NULL */
};

/* An earlier touch that does not come before this one, and the bytes that both touch. */
struct order_conflict {
    bool is_there;
    order_access earlier;
    uintptr_t first, end;
};

/* How much of each agent's work comes before. */
typedef std::vector<uint32_t> order_times;

static inline bool order_is_before(const order_access &access, const order_times &now)
{
    return access.agent < now.size() && access.moment <= now[access.agent];
}

/* Notes a touch of [first, end) by one who comes after `now`. */
order_conflict order_memory_touch(const order_access &access, uintptr_t first, uintptr_t end,
                                  const order_times &now);

/* Nobody touched anything. */
void order_memory_clear(void);

/* Nobody touched [first, end). */
void order_memory_forget(uintptr_t first, uintptr_t end);

/* Ranges that are kept; visits to one, ever. */
uint64_t order_memory_size(void);
uint64_t order_memory_visits(void);

#endif
