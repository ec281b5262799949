/* Agents, their clocks, and the work that is checked by them. Invariants: an agent's own entry of
 * its clock is the moment of its work at present; it moves on before work that comes after a clock
 * was taken, so that who joined that clock is not taken to come after this work. The number of a
 * closed agent is given to one that comes after all of its work. */
#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>

extern "C" {
#include "runtime.h"
}
#include "stream_order_clock.h"
#include "stream_order_memory.h"

enum { SIDE_BYTES = 160, PLACE_BYTES = 128, TEXT_BYTES = 512, NAME_BYTES = 32 };

struct order_clock {
    uint32_t users;
    order_times times;
};

struct order_agent {
    const char *name;
    uint32_t number;
    order_clock *clock;
    order_clock *told; /* the last one that was taken for it; NULL: none */
    bool is_taken;     /* the clock was, since the last work */
    order_agent *next_closed, *next_begun;
};

struct order_work {
    const char *name, *op;
    order_clock *issued;
    std::vector<standin_range> ranges;
    bool is_declared;
};

struct order_word {
    uint32_t value;
    order_clock *clock;
};

/* Record n stands in clocks[n - 1]; NULL: not reached yet. */
struct order_mark {
    std::vector<order_clock *> clocks;
    const void *word;
};

/* Never destroyed: threads may outlive main. */
static std::map<const void *, order_agent *> &agents_by_key =
    *new std::map<const void *, order_agent *>;
static std::map<const void *, std::vector<order_word>> &words =
    *new std::map<const void *, std::vector<order_word>>; /* as the word takes them */
static std::map<const void *, order_mark> &marks = *new std::map<const void *, order_mark>;
static std::set<std::string> &names = *new std::set<std::string>; /* that accesses refer to */

static order_agent *closed_agents, *begun_agents;
static uint32_t agent_count;

static struct {
    standin_order_counts counts;
    uint64_t visits_before;
    uint64_t edges[STANDIN_EDGE_COUNT];
    standin_edge ignored;
    uint64_t ignored_nth;
    bool is_stopped;
    uint64_t faults;
    char first_fault[TEXT_BYTES];
} found = {{}, 0, {}, STANDIN_EDGE_COUNT, 0, false, 0, ""};

static thread_local order_agent *own_agent;
static thread_local const order_work *running;
static thread_local const char *declared_op;
static thread_local std::vector<standin_range> declared;

/* ---- clocks ---- */

static order_clock *share(order_clock *clock)
{
    clock->users++;
    return clock;
}

void order_clock_drop(order_clock *clock)
{
    if (clock && --clock->users == 0)
        delete clock;
}

static order_times &times_to_change(order_agent *agent)
{
    if (agent->clock->users > 1) {
        order_clock *own = new order_clock{1, agent->clock->times};
        order_clock_drop(agent->clock);
        agent->clock = own;
    }
    return agent->clock->times;
}

order_clock *order_clock_take(order_agent *agent)
{
    agent->is_taken = true;
    return share(agent->clock);
}

bool order_clock_is_known(const order_agent *agent, const order_clock *clock)
{
    if (!clock || clock == agent->clock)
        return true;
    const order_times &mine = agent->clock->times;
    for (size_t i = 0; i < clock->times.size(); i++)
        if (clock->times[i] > (i < mine.size() ? mine[i] : 0))
            return false;
    return true;
}

static void merge(order_agent *agent, const order_clock *clock)
{
    order_times &mine = times_to_change(agent);
    if (mine.size() < clock->times.size())
        mine.resize(clock->times.size());
    for (size_t i = 0; i < clock->times.size(); i++)
        mine[i] = std::max(mine[i], clock->times[i]);
}

static bool is_ignored(standin_edge edge)
{
    if (edge == STANDIN_EDGE_COUNT)
        return false;
    found.edges[edge]++;
    if (edge != found.ignored)
        return false;
    if (found.ignored_nth == 0)
        return true;
    if (--found.ignored_nth > 0)
        return false;
    found.ignored = STANDIN_EDGE_COUNT;
    return true;
}

void order_clock_join(order_agent *agent, const order_clock *clock, standin_edge edge)
{
    if (!order_clock_is_known(agent, clock) && !is_ignored(edge))
        merge(agent, clock);
}

/* ---- agents ---- */

static const char *keep_name(const char *name)
{
    return names.insert(name).first->c_str();
}

/* A closed agent, all of whose work comes before what has this clock; NULL: none. */
static order_agent *find_closed(const order_clock *clock)
{
    for (order_agent **link = &closed_agents; *link; link = &(*link)->next_closed) {
        order_agent *each = *link;
        const uint32_t number = each->number;
        if (number < clock->times.size() && clock->times[number] >= each->clock->times[number]) {
            *link = each->next_closed;
            return each;
        }
    }
    return NULL;
}

/* `clock` becomes the agent's, which goes on where the last one of its number ended. */
static order_agent *begin_agent(const char *name, order_clock *clock)
{
    order_agent *agent = find_closed(clock);
    uint32_t moment = 1;
    if (agent) {
        moment = agent->clock->times[agent->number] + 1;
        order_clock_drop(agent->clock);
    } else {
        agent = new order_agent{};
        agent->number = agent_count++;
        /* A thread that ends takes its own along: this keeps it for the leak sanitizer. */
        agent->next_begun = begun_agents;
        begun_agents = agent;
    }
    agent->name = keep_name(name);
    agent->clock = clock;
    agent->is_taken = false;
    order_clock_drop(agent->told);
    agent->told = NULL;
    order_times &times = times_to_change(agent);
    times.resize(std::max<size_t>(times.size(), agent->number + 1));
    times[agent->number] = moment;
    return agent;
}

order_agent *order_agent_of_thread(void)
{
    char name[NAME_BYTES] = "";
    if (!own_agent) {
        pthread_getname_np(pthread_self(), name, sizeof name);
        own_agent = begin_agent(name, new order_clock{1, {}});
    }
    return own_agent;
}

order_agent *order_agent_open(const char *name)
{
    return begin_agent(name, order_clock_take(order_agent_of_thread()));
}

void order_agent_close(order_agent *agent)
{
    agent->next_closed = closed_agents;
    closed_agents = agent;
}

void order_agent_rename(order_agent *agent, const char *name)
{
    agent->name = keep_name(name);
}

void order_agent_adopt(order_agent *agent)
{
    own_agent = agent;
}

order_agent *order_agent_find(const void *key)
{
    const auto at = agents_by_key.find(key);
    return at == agents_by_key.end() ? NULL : at->second;
}

void order_agent_keep(const void *key, order_agent *agent)
{
    agents_by_key[key] = agent;
}

void order_agent_lose(const void *key)
{
    agents_by_key.erase(key);
}

order_clock *order_clock_take_news(order_agent *to)
{
    order_clock *clock = order_clock_take(order_agent_of_thread());
    if (clock == to->told) {
        order_clock_drop(clock);
        return NULL;
    }
    order_clock_drop(to->told);
    to->told = share(clock);
    return clock;
}

/* ---- touching ---- */

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

/* "h2d (cudaMemcpyAsync, to) writes"; of an op, "compute (linear.weight, multiply) reads". */
static void describe(const order_access &access, char *out_text)
{
    const bool has_op = access.op != NULL;
    snprintf(out_text, SIDE_BYTES, "%s (%s%s%s%s%s) %s", access.agent_name,
             has_op ? access.op : access.name,
             !has_op && *or_empty(access.operand) ? ", "
             : has_op                             ? "."
                                                  : "",
             or_empty(access.operand), has_op ? ", " : "", has_op ? access.name : "",
             access.is_written ? "writes" : "reads");
}

static void report(const order_access &access, const order_conflict &conflict)
{
    char side[SIDE_BYTES], earlier[SIDE_BYTES], place[PLACE_BYTES];
    if (found.faults++ > 0)
        return;
    describe(access, side);
    describe(conflict.earlier, earlier);
    standin_describe_place((const void *)conflict.first, place, sizeof place);
    snprintf(found.first_fault, sizeof found.first_fault,
             "no order: %s %llu bytes, %s, which %s; neither waits for the other", side,
             (unsigned long long)(conflict.end - conflict.first), place, earlier);
}

static void touch(order_agent *agent, const char *op, const char *name, const standin_range &range)
{
    if (range.bytes == 0 || found.is_stopped)
        return;
    if (agent->is_taken)
        times_to_change(agent)[agent->number]++;
    agent->is_taken = false;
    const order_times &now = agent->clock->times;
    const order_access access = {
        agent->number, now[agent->number], range.is_written, agent->name, op, name, range.name};
    const uintptr_t first = (uintptr_t)range.first;
    const order_conflict conflict = order_memory_touch(access, first, first + range.bytes, now);
    found.counts.ranges++;
    found.counts.kept_most = std::max(found.counts.kept_most, order_memory_size());
    if (conflict.is_there)
        report(access, conflict);
}

void order_touch(const char *what, const standin_range *range)
{
    touch(order_agent_of_thread(), NULL, what, *range);
}

void order_forget(const void *first, uint64_t bytes)
{
    order_memory_forget((uintptr_t)first, (uintptr_t)first + bytes);
}

void standin_touch_on_host(const char *what, const standin_range *ranges, uint32_t count)
{
    pthread_mutex_lock(&standin.lock);
    for (uint32_t i = 0; i < count; i++)
        order_touch(what, &ranges[i]);
    pthread_mutex_unlock(&standin.lock);
}

/* ---- work ---- */

void standin_declare(const char *op, const standin_range *ranges, uint32_t count)
{
    declared_op = op;
    declared.assign(ranges, ranges + count);
}

order_work *order_work_issue_point(void)
{
    return new order_work{"", NULL, order_clock_take(order_agent_of_thread()), {}, true};
}

order_work *order_work_issue(const char *name, const standin_range *ranges, uint32_t count)
{
    order_work *work = order_work_issue_point();
    work->name = name;
    if (ranges) {
        work->ranges.assign(ranges, ranges + count);
        return work;
    }
    work->op = declared_op;
    work->ranges = declared;
    work->is_declared = declared_op != NULL;
    found.counts.undeclared += !work->is_declared;
    return work;
}

void order_work_begin(order_agent *agent, order_work *work, bool is_run)
{
    own_agent = agent;
    running = work;
    order_clock_join(agent, work->issued, STANDIN_EDGE_COUNT);
    for (const standin_range &range : work->ranges)
        if (is_run)
            touch(agent, work->op, work->name, range);
}

void order_work_end(order_work *work)
{
    if (!work)
        return;
    running = NULL;
    order_clock_drop(work->issued);
    delete work;
}

/* The end of the bytes from `first` on that were declared, for writing if they are written. Reads
 * are recorded in pairs of bytes (tests/ptx/pages.h), so one of a single byte has another beside
 * it. */
static const char *declared_end(const order_work *work, const char *first, bool is_written)
{
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (const standin_range &each : work->ranges) {
            const char *start = (const char *)each.first, *end = start + each.bytes;
            if (!is_written) {
                start -= (uintptr_t)start % 2;
                end += (uintptr_t)end % 2;
            }
            if (first < start || first >= end || (is_written && !each.is_written))
                continue;
            first = end;
            goes_on = true;
        }
    }
    return first;
}

static void check_touched(const order_work *work, const standin_range &range)
{
    char place[PLACE_BYTES];
    const char *first = (const char *)range.first;
    const char *end = declared_end(work, first, range.is_written);
    if (end >= first + range.bytes)
        return;
    standin_describe_place(end, place, sizeof place);
    standin_fault_locked("%s, %s: %s %s, which is not an operand of it%s", or_empty(work->op),
                         work->name, range.is_written ? "writes" : "reads", place,
                         range.is_written ? " that it may write" : "");
}

void standin_touched(const standin_range *ranges, uint32_t count)
{
    const order_work *work = running;
    pthread_mutex_lock(&standin.lock);
    for (uint32_t i = 0; i < count; i++) {
        if (work && work->is_declared)
            check_touched(work, ranges[i]);
        else
            touch(order_agent_of_thread(), NULL, work ? work->name : "a thread", ranges[i]);
    }
    pthread_mutex_unlock(&standin.lock);
}

/* ---- words ---- */

static void drop_word(std::vector<order_word> &values)
{
    for (const order_word &each : values)
        order_clock_drop(each.clock);
    values.clear();
}

static void write_word(const void *word, uint32_t value)
{
    words[word].push_back({value, order_clock_take(order_agent_of_thread())});
}

void standin_write_word(const void *word, uint32_t value)
{
    pthread_mutex_lock(&standin.lock);
    write_word(word, value);
    pthread_mutex_unlock(&standin.lock);
}

/* The first value that lets the stream go on counts, whichever was there when it looked. */
void order_word_join(order_agent *agent, const void *word, uint32_t value)
{
    const auto at = words.find(word);
    if (at == words.end())
        return; /* nobody tells of this word, so it makes no order */
    const std::vector<order_word> &values = at->second;
    size_t first = values.size();
    while (first > 0 && (int32_t)(values[first - 1].value - value) >= 0)
        first--;
    if (first == values.size())
        standin_fault_locked("%s goes on by a word for %u, which nobody wrote there", agent->name,
                             value);
    else
        order_clock_join(agent, values[first].clock, STANDIN_EDGE_WORD);
}

void order_words_end(const void *first, uint64_t bytes)
{
    const auto from = words.lower_bound(first);
    const auto to = words.lower_bound((const char *)first + bytes);
    for (auto each = from; each != to; ++each)
        drop_word(each->second);
    words.erase(from, to);
}

/* ---- marks ---- */

uint32_t order_mark_issue(const void *mark)
{
    std::vector<order_clock *> &clocks = marks[mark].clocks;
    clocks.push_back(NULL);
    return (uint32_t)clocks.size();
}

uint32_t order_mark_issued(const void *mark)
{
    const auto at = marks.find(mark);
    return at == marks.end() ? 0 : (uint32_t)at->second.clocks.size();
}

/* Queues that share a mark tell of its records in any order; the word takes its numbers in turn. */
static void write_record(std::vector<order_word> &values, uint32_t number)
{
    auto at = values.end();
    while (at != values.begin() && (int32_t)(at[-1].value - number) > 0)
        at--;
    values.insert(at, {number, order_clock_take(order_agent_of_thread())});
}

void order_mark_publish(const void *mark, const void *word)
{
    marks[mark].word = word;
    drop_word(words[word]);
}

void order_mark_reach(const void *mark, uint32_t number)
{
    order_mark &which = marks[mark];
    which.clocks[number - 1] = order_clock_take(order_agent_of_thread());
    if (which.word)
        write_record(words[which.word], number);
}

const order_clock *order_mark_clock(const void *mark, uint32_t number)
{
    return number > 0 ? marks[mark].clocks[number - 1] : NULL;
}

void order_mark_close(const void *mark)
{
    const auto at = marks.find(mark);
    if (at == marks.end())
        return;
    for (order_clock *each : at->second.clocks)
        order_clock_drop(each);
    if (at->second.word)
        order_words_end(at->second.word, 1);
    marks.erase(at);
}

/* ---- as a whole ---- */

/* Of what was touched before nothing is kept: the calling thread may come after all of it. */
void order_reset(void)
{
    order_agent *agent = order_agent_of_thread();
    order_memory_clear();
    for (const order_agent *each = closed_agents; each; each = each->next_closed)
        order_clock_join(agent, each->clock, STANDIN_EDGE_COUNT);
    found = {{}, order_memory_visits(), {}, STANDIN_EDGE_COUNT, 0, false, 0, ""};
}

void order_stop(void)
{
    found.is_stopped = true;
}

uint64_t standin_order_faults(const char **out_first)
{
    if (out_first)
        *out_first = found.first_fault;
    return found.faults;
}

void standin_forget_order_faults(void)
{
    pthread_mutex_lock(&standin.lock);
    found.faults = 0;
    pthread_mutex_unlock(&standin.lock);
}

standin_order_counts standin_count_order(void)
{
    pthread_mutex_lock(&standin.lock);
    standin_order_counts now = found.counts;
    now.kept = order_memory_size();
    now.visits = order_memory_visits() - found.visits_before;
    pthread_mutex_unlock(&standin.lock);
    return now;
}

void standin_ignore_edge(standin_edge edge, uint64_t nth)
{
    pthread_mutex_lock(&standin.lock);
    found.ignored = edge;
    found.ignored_nth = nth;
    pthread_mutex_unlock(&standin.lock);
}

uint64_t standin_count_edges(standin_edge edge)
{
    pthread_mutex_lock(&standin.lock);
    const uint64_t count = found.edges[edge];
    pthread_mutex_unlock(&standin.lock);
    return count;
}
