/* Ranges and who touched them. Invariants: ranges do not overlap; one that nobody wrote has a
 * read; no read of a range comes before another one of its reads. */
#include "stream_order_memory.h"

#include <algorithm>
#include <map>

struct segment {
    uintptr_t end;
    bool has_write;
    order_access write;
    std::vector<order_access> reads;
};

typedef std::map<uintptr_t, segment> segment_map;

static segment_map &segments = *new segment_map; /* never destroyed: threads may outlive main */
static uint64_t visits;

/* Makes `at` a border. */
static void cut(uintptr_t at)
{
    segment_map::iterator next = segments.lower_bound(at);
    if (next == segments.begin())
        return;
    segment_map::iterator before = std::prev(next);
    if (before->second.end <= at)
        return;
    segment right = before->second;
    before->second.end = at;
    segments.emplace_hint(next, at, std::move(right));
}

static void note_conflict(const order_access &earlier, uintptr_t first, uintptr_t end,
                          order_conflict *found)
{
    if (!found->is_there) {
        *found = {true, earlier, first, end};
        return;
    }
    const order_access &same = found->earlier;
    if (same.agent == earlier.agent && same.moment == earlier.moment &&
        same.is_written == earlier.is_written && found->end == first)
        found->end = end;
}

static void check(const segment &of, uintptr_t first, bool is_written, const order_times &now,
                  order_conflict *found)
{
    visits++;
    if (of.has_write && !order_is_before(of.write, now))
        note_conflict(of.write, first, of.end, found);
    for (const order_access &read : of.reads)
        if (is_written && !order_is_before(read, now))
            note_conflict(read, first, of.end, found);
}

static void add_read(segment *to, const order_access &read, const order_times &now)
{
    std::vector<order_access> &reads = to->reads;
    reads.erase(std::remove_if(reads.begin(), reads.end(),
                               [&](const order_access &each) {
                                   return each.agent == read.agent || order_is_before(each, now);
                               }),
                reads.end());
    reads.push_back(read);
}

/* All that was there gives way to the write. */
static void write(const order_access &access, uintptr_t first, uintptr_t end,
                  const order_times &now, order_conflict *found)
{
    segment_map::iterator each = segments.lower_bound(first);
    while (each != segments.end() && each->first < end) {
        check(each->second, each->first, true, now, found);
        each = segments.erase(each);
    }
    segments.emplace_hint(each, first, segment{end, true, access, {}});
}

static void read(const order_access &access, uintptr_t first, uintptr_t end, const order_times &now,
                 order_conflict *found)
{
    segment_map::iterator each = segments.lower_bound(first);
    for (uintptr_t at = first; at < end; at = each->second.end, ++each) {
        if (each == segments.end() || each->first > at) {
            const uintptr_t next = each == segments.end() ? end : std::min(each->first, end);
            each = segments.emplace_hint(each, at, segment{next, false, {}, {}});
        }
        check(each->second, at, false, now, found);
        add_read(&each->second, access, now);
    }
}

order_conflict order_memory_touch(const order_access &access, uintptr_t first, uintptr_t end,
                                  const order_times &now)
{
    order_conflict found = {};
    cut(first);
    cut(end);
    (access.is_written ? write : read)(access, first, end, now, &found);
    return found;
}

void order_memory_clear(void)
{
    segments.clear();
}

void order_memory_forget(uintptr_t first, uintptr_t end)
{
    cut(first);
    cut(end);
    segments.erase(segments.lower_bound(first), segments.lower_bound(end));
}

uint64_t order_memory_size(void)
{
    return segments.size();
}

uint64_t order_memory_visits(void)
{
    return visits;
}
