/* What could be wrong here: among ranks, some combination of a stage of ZeRO, a policy, a chunk
 * size, a budget, a prefetch depth, a recomputation, an order of accumulation and a side for AdamW
 * changes a number, or takes other memory than was planned.
 *
 * Topologies are those whose sums differ: data, tensor and stage ranks, rows that tensor ranks
 * share, columns of wte. Within each, runs that are drawn at random take two steps beside one with
 * everything on the device at stage 0, in the same type and number of micro-batches: bit for bit.
 * 60 of them (a fourth with sanitizers), 300 in full; SL_TEST_SEED=N runs seed N again.
 */
#define _GNU_SOURCE
#define RANK_THREADS_MAX 8
#include "rank_runs.h"
#include "sanitizer_share.h"

static const struct topology {
    uint32_t tp, dp, pp;
    const char *shares; /* how tensor ranks share; NULL: plainly */
} topologies[] = {{1, 2, 1, NULL}, {2, 1, 1, NULL},
                  {3, 1, 1, NULL}, {1, 3, 1, NULL},
                  {2, 2, 1, NULL}, {2, 1, 1, "sequence-parallel=true"},
                  {1, 4, 1, NULL}, {2, 2, 1, "sequence-parallel=true"},
                  {1, 1, 2, NULL}, {2, 1, 1, "split-layout=colossal"},
                  {1, 2, 2, NULL}, {2, 2, 2, NULL}};

enum { TOPOLOGY_COUNT = sizeof topologies / sizeof topologies[0] };

static uint64_t draw(uint64_t seed, uint64_t *at, uint64_t below)
{
    return sl_rng_below(seed, 7, (*at)++, below);
}

/* One of `names`, which NULL ends. */
static const char *pick(uint64_t seed, uint64_t *at, const char *const *names)
{
    uint64_t count = 0;
    while (names[count])
        count++;
    return names[draw(seed, at, count)];
}

/* The settings of one run, in order, and texts that were made for them. */
typedef struct drawn {
    const char *settings[SETTINGS_MAX];
    uint32_t count;
    char budget[48];
} drawn;

static void add(drawn *it, const char *setting)
{
    assert_true(it->count + 1 < SETTINGS_MAX);
    if (setting)
        it->settings[it->count++] = setting;
}

static void add_placement(drawn *it, uint64_t seed, uint64_t *at)
{
    static const char *const policies[] = {"policy=device", "policy=host", "policy=nvme",
                                           "policy=static", NULL};
    static const char *const shares[] = {"nvme-params=0", "nvme-params=1", "nvme-params=0.5", NULL};
    static const char *const sizes[] = {"chunk-size=10240", "chunk-size=16384", "chunk-size=40960",
                                        "chunk-size=auto", NULL};
    static const char *const aheads[] = {"prefetch=0", "prefetch=1", "prefetch=4", "prefetch=auto",
                                         NULL};
    static const char *const sides[] = {"adam=auto", "adam=auto", "adam=host", NULL};
    const char *policy = pick(seed, at, policies);
    const bool has_disk =
        strcmp(policy, "policy=nvme") == 0 || strcmp(policy, "policy=static") == 0;
    add(it, policy);
    add(it, has_disk ? disk_dir : NULL);
    add(it, has_disk ? pick(seed, at, shares) : NULL);
    add(it, pick(seed, at, sizes));
    add(it, pick(seed, at, aheads));
    add(it, strcmp(policy, "policy=device") == 0 ? NULL : pick(seed, at, sides));
}

/* What of all this may change nothing. */
static void draw_settings(const struct topology *topology, uint64_t seed, uint64_t *at, drawn *it)
{
    static const char *const orders[] = {"accumulation=micro", "accumulation=layer", NULL};
    static const char *const recomputes[] = {"recompute=none", "recompute=selective",
                                             "recompute=full", NULL};
    static const char *const zeros[] = {"zero=0", "zero=1", "zero=2", "zero=3", "zero=3", NULL};
    static const char *const threads[] = {"threads=1", "threads=2", NULL};
    const bool can_part = topology->tp > 1 && !topology->shares;
    static const char *const schedules[] = {"schedule=1f1b", "schedule=gpipe", NULL};
    add_placement(it, seed, at);
    add(it, topology->pp > 1 ? pick(seed, at, schedules) : NULL);
    add(it, topology->dp > 1 ? pick(seed, at, zeros) : NULL);
    add(it, topology->pp > 1 ? NULL : pick(seed, at, orders));
    add(it, pick(seed, at, recomputes));
    add(it, pick(seed, at, threads));
    add(it, can_part && draw(seed, at, 3) == 0 ? "partition-activations=true" : NULL);
}

/* A third of the devices has room for no more than a half of what it needs least, more. */
static void draw_budget(const struct topology *topology, uint64_t seed, uint64_t *at, drawn *it)
{
    if (topology->pp > 1 || draw(seed, at, 3) > 0)
        return;
    const uint64_t needed = find_needed_device(topology->tp, topology->dp, it->settings);
    snprintf(it->budget, sizeof it->budget, "device-memory=%llu",
             (unsigned long long)(needed + draw(seed, at, needed / 2)));
    add(it, it->budget);
}

static ranks_run *open_topology(const struct topology *it, const drawn *run)
{
    return open_stages(it->tp, it->dp, it->pp, run->settings, 1, NULL);
}

static void check_random(uint64_t seed)
{
    static const char *const precisions[] = {"precision=fp32", "precision=bf16", "precision=fp16",
                                             NULL};
    static const char *const counts[] = {"accumulate=1", "accumulate=2", "accumulate=3",
                                         "accumulate=5", NULL};
    const struct topology *topology = &topologies[seed % TOPOLOGY_COUNT];
    drawn plain = {.count = 0}, other = {.count = 0};
    uint64_t at = 0;
    const char *const same[] = {pick(seed, &at, precisions), pick(seed, &at, counts),
                                topology->shares};
    for (size_t i = 0; i < 3; i++) {
        add(&plain, same[i]);
        add(&other, same[i]);
    }
    add(&plain, "policy=device");
    add(&plain, topology->dp > 1 ? "zero=0" : NULL);
    draw_settings(topology, seed, &at, &other);
    draw_budget(topology, seed, &at, &other);
    char what[640];
    size_t length =
        (size_t)snprintf(what, sizeof what, "seed %llu, %u x %u x %u", (unsigned long long)seed,
                         topology->tp, topology->dp, topology->pp);
    for (uint32_t i = 0; i < other.count && length < sizeof what; i++)
        length += (size_t)snprintf(what + length, sizeof what - length, " %s", other.settings[i]);
    print_message("%s\n", what);
    compare_same_runs(open_topology(topology, &plain), open_topology(topology, &other), 2, what);
}

static void runs_when_placed_at_random_then_have_the_bits_of_their_topology(void **state)
{
    (void)state;
    const char *given = getenv("SL_TEST_SEED");
    const uint64_t first = given ? strtoull(given, NULL, 10) : 1;
    const uint64_t count = given ? 1 : is_full() ? 300 : sanitizer_share(60);
    for (uint64_t seed = first; seed < first + count; seed++)
        check_random(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_when_placed_at_random_then_have_the_bits_of_their_topology),
    };
    return cmocka_run_group_tests(tests, open_disk, close_disk);
}
