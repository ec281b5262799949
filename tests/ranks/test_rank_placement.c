/* What could be wrong here: for some model, a combination of a stage of ZeRO, a policy, a chunk
 * size, a budget, a prefetch depth, a recomputation, an order of accumulation, a number of pipeline
 * stages and a side for AdamW changes a number, or takes other memory than was planned; or tensor
 * ranks compute another gradient than one rank does.
 *
 * Topologies are those whose sums differ: data and tensor ranks, rows that tensor ranks share,
 * columns of the table. Stages have the bits of the run without stages. Within each topology, runs
 * that are drawn at random take two steps beside one with everything on the device at stage 0 of
 * ZeRO, of the same model, type and number of micro-batches: bit for bit. Models of each
 * architecture are drawn, too: key heads, sizes of heads, tables that are tied or not, scalings of
 * positions; what defines a loss: masked targets, documents, dropout; and what updates: AdamW,
 * Lion, SGD, Muon, mixtures of them beside frozen tensors, and states of each type. A third of the
 * runs is saved behind a step and goes on from the checkpoint in another placement.
 *
 * Gradients on two, four and eight tensor ranks are compared with those of one rank, within the
 * bounds of rank_runs.h for the type.
 *
 * 64 seeds (a fourth with sanitizers), 560 in full: seven with each pair of a topology and an
 * architecture, so 448 of Llama, Qwen and OLMo 2. SL_TEST_SEED=N runs seed N again.
 */
#define _GNU_SOURCE
#define RANK_THREADS_MAX 8
#define RANK_RUNS_CHOOSES_SHAPE
#define RANK_RUNS_DOCUMENT 7 /* tokens of a document */
#include "kernels/cpu/simd.h"
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
                  {1, 2, 2, NULL}, {2, 2, 2, NULL},
                  {1, 1, 1, NULL}, {4, 1, 1, NULL},
                  {1, 1, 3, NULL}, {8, 1, 1, NULL}};

static const sl_architecture_kind architectures[] = {SL_ARCHITECTURE_GPT2, SL_ARCHITECTURE_LLAMA,
                                                     SL_ARCHITECTURE_QWEN2, SL_ARCHITECTURE_QWEN3,
                                                     SL_ARCHITECTURE_OLMO2};

enum {
    TOPOLOGY_COUNT = sizeof topologies / sizeof topologies[0],
    ARCHITECTURE_COUNT = sizeof architectures / sizeof architectures[0]
};

/* Where draws of their own begin: of rules, and of what a run goes on with. */
enum { RULE_DRAWS = 5000, MOVE_DRAWS = 6000 };

/* One run of so many is saved behind a step and goes on in another placement. */
enum { MOVED_EACH = 3 };

/* Of each architecture, the runs that were compared: by bits, and by gradients. */
static struct {
    uint32_t bits[ARCHITECTURE_COUNT], gradients[ARCHITECTURE_COUNT];
} compared;

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

/* ---- the model ---- */

static sl_model_rope draw_rope(uint64_t seed, uint64_t *at)
{
    sl_model_rope rope = {.base = draw(seed, at, 2) ? 100 : 10000};
    rope.scaling = (uint32_t)draw(seed, at, 3);
    if (rope.scaling != SL_ROTARY_PLAIN)
        rope.factor = 3;
    if (rope.scaling == SL_ROTARY_LLAMA3) {
        rope.low_frequency_factor = 1;
        rope.high_frequency_factor = 4;
        rope.original_context = 12;
    }
    return rope;
}

/* Each tensor rank has a key head or two, or several ranks share one. */
static void draw_heads(uint32_t tp, uint64_t seed, uint64_t *at, sl_model_shape *it)
{
    it->kv_heads = tp * (1 + (uint32_t)draw(seed, at, 2));
    if (tp > 1 && draw(seed, at, 2) == 0)
        it->kv_heads = tp % 2 == 0 && draw(seed, at, 2) == 0 ? tp / 2 : 1;
    it->heads = (it->kv_heads > tp ? it->kv_heads : tp) * (1 + (uint32_t)draw(seed, at, 3));
}

static sl_model_shape draw_shape(sl_architecture_kind kind, uint32_t tp, uint64_t seed,
                                 uint64_t *at)
{
    sl_model_shape it = {.layers = 3, /* one on each of the stages */
                         .width = 40,
                         .heads = tp > 5 ? 8 : 5,
                         .context = 24,
                         .vocab = 300 + 300 * (uint32_t)draw(seed, at, 2),
                         .architecture = kind};
    if (kind == SL_ARCHITECTURE_GPT2)
        return it;
    it.width = 36 + 4 * (uint32_t)draw(seed, at, 3);
    draw_heads(tp, seed, at, &it);
    it.head = 4 + 2 * (uint32_t)draw(seed, at, 4);
    it.ffn = 50 + 10 * (uint32_t)draw(seed, at, 5);
    it.is_untied = draw(seed, at, 2) == 0;
    it.rope = draw_rope(seed, at);
    sl_model_shape_complete(&it);
    return it;
}

/* Seeds in a row have all architectures, and with each topology every one in turn. */
static uint32_t architecture_of(uint64_t seed)
{
    return (uint32_t)((seed + seed / TOPOLOGY_COUNT) % ARCHITECTURE_COUNT);
}

static void choose_model(uint64_t seed, uint32_t tp, uint64_t *at)
{
    shape = draw_shape(architectures[architecture_of(seed)], tp, seed, at);
    print_message("%s, %u layers of %u, %u heads on %u of %u, %s: ",
                  sl_architecture_name(shape.architecture), shape.layers, shape.width, shape.heads,
                  shape.kv_heads, shape.head, shape.is_untied ? "untied" : "tied");
}

/* OLMo 2 refuses rows that tensor ranks share: they divide it plainly. */
static const char *shares_of(const char *shares)
{
    const bool shares_rows = shares && strcmp(shares, "sequence-parallel=true") == 0;
    return shares_rows && shape.architecture == SL_ARCHITECTURE_OLMO2 ? "sequence-parallel=false"
                                                                      : shares;
}

/* ---- settings ---- */

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
    static const char *const sizes[] = {"chunk-size=12288", "chunk-size=16384", "chunk-size=40960",
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

/* By patterns that match in each architecture. Muon's states are fp32, and it updates no columns
 * that several tensor ranks have, as those of key heads may be. Draws of their own leave the others
 * to seeds as they were. */
static void draw_rules(uint64_t seed, const char *precision, drawn *it)
{
    static const char *const rules[] = {"optimizer=adamw",
                                        "optimizer=lion",
                                        "optimizer=sgd",
                                        "optimizer=muon",
                                        "rule=*.mlp.*.weight=muon,*attn.*=none,*.2.mlp.*=lion",
                                        "rule=*.mlp.*=lion,*.1.*=sgd,*.0.mlp.*=none",
                                        NULL};
    static const char *const types[] = {"state-type=fp32", "state-type=bf16", "state-type=int8",
                                        NULL};
    uint64_t at = RULE_DRAWS;
    const char *rule = pick(seed, &at, rules), *type = pick(seed, &at, types);
    const bool has_keys = shape.architecture != SL_ARCHITECTURE_GPT2;
    const bool has_momentum = strstr(rule, "sgd") && draw(seed, &at, 2) == 0;
    add(it, rule);
    add(it, has_momentum ? "momentum=0.9" : NULL);
    add(it,
        has_keys && strcmp(rule, "optimizer=muon") == 0 ? "rule=*.[kv]_proj.weight=adamw" : NULL);
    add(it, strstr(rule, "muon") ? NULL : type);
    add(it, strstr(precision, "bf16") && draw(seed, &at, 2) ? "master-type=low" : NULL);
}

/* What defines the numbers, apart from the model. */
static void draw_numbers(uint64_t seed, uint64_t *at, drawn *it)
{
    static const char *const precisions[] = {"precision=fp32", "precision=bf16", "precision=fp16",
                                             NULL};
    static const char *const counts[] = {"accumulate=1", "accumulate=2", "accumulate=3",
                                         "accumulate=5", NULL};
    const char *precision = pick(seed, at, precisions);
    add(it, precision);
    add(it, pick(seed, at, counts));
    if (draw(seed, at, 3) == 0) {
        add(it, "prompt-key=p");
        add(it, "response-key=r");
    }
    add(it, draw(seed, at, 3) == 0 ? "documents=reset" : NULL);
    add(it, draw(seed, at, 4) == 0 ? "dropout=0.2" : NULL);
    draw_rules(seed, precision, it);
}

/* Saves a run, and goes on from the checkpoint in one that is placed in another way. */
static ranks_run *move(ranks_run *run, const struct topology *topology, const drawn *numbers,
                       uint64_t seed)
{
    drawn other = *numbers;
    uint64_t at = MOVE_DRAWS;
    const scratch_path directory = scratch_open();
    draw_settings(topology, seed, &at, &other);
    print_message("  goes on with");
    for (uint32_t i = numbers->count; i < other.count; i++)
        print_message(" %s", other.settings[i]);
    print_message("\n");
    save_run(run, directory.text);
    close_run(run);
    run = open_topology(topology, &other);
    load_run(run, directory.text);
    scratch_close(&directory);
    return run;
}

static void check_random(uint64_t seed)
{
    const struct topology *topology = &topologies[seed % TOPOLOGY_COUNT];
    struct topology without_stages = *topology;
    drawn plain = {.count = 0}, other, numbers;
    uint64_t at = 0;
    without_stages.pp = 1;
    choose_model(seed, topology->tp, &at);
    draw_numbers(seed, &at, &plain);
    add(&plain, shares_of(topology->shares));
    numbers = other = plain;
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
    ranks_run *one = open_topology(&without_stages, &plain);
    ranks_run *many = open_topology(topology, &other);
    const bool is_moved = seed % MOVED_EACH == 0;
    if (is_moved) {
        take_same_steps(one, many, 1, what);
        many = move(many, topology, &numbers, seed);
    }
    compare_same_runs(one, many, is_moved ? 1 : 2, what);
    compared.bits[architecture_of(seed)]++;
}

static void print_compared(const char *what, const uint32_t counts[ARCHITECTURE_COUNT])
{
    for (int i = 0; i < ARCHITECTURE_COUNT; i++)
        print_message("%s of %s: %u\n", what, sl_architecture_name(architectures[i]), counts[i]);
}

static void runs_when_placed_at_random_then_have_the_bits_of_their_topology(void **state)
{
    (void)state;
    const char *given = getenv("SL_TEST_SEED");
    const uint64_t first = given ? strtoull(given, NULL, 10) : 1;
    const uint64_t count = given ? 1 : is_full() ? 560 : sanitizer_share(64);
    for (uint64_t seed = first; seed < first + count; seed++)
        check_random(seed);
    print_compared("equal bits", compared.bits);
}

/* ---- tensor ranks beside one rank ---- */

/* Times bf16_bound, which is for tensors of 40 elements and more, over which roundings average. The
 * norm of a head has from 4 elements on, over which a quadratic mean deviates by 1 / sqrt(8), and
 * its gradient is a sum over rows of both signs: three times was chosen, and twice was the most of
 * seeds 1 to 96. A bias of keys has as few elements, and what positions leave of a gradient that is
 * zero without them, for a softmax does not see what all keys have: 5.5 times was the most. */
enum { HEAD_NORMS = 3, KEY_BIASES = 8 };

static double find_bound(bool is_bf16, const char *name)
{
    const bool is_of_keys = strstr(name, "k_proj.bias") != NULL;
    return is_bf16 ? (is_of_keys ? KEY_BIASES : HEAD_NORMS) * bf16_bound : fp32_bound;
}

/* Rounding is another in each order of accumulation, so both runs have one. */
static void check_tensor_ranks(uint64_t seed)
{
    static const char *const shares[] = {"sequence-parallel=false", "sequence-parallel=true",
                                         "split-layout=colossal", NULL};
    static const char *const precisions[] = {"precision=fp32", "precision=bf16", NULL};
    static const char *const recomputes[] = {"recompute=none", "recompute=selective",
                                             "recompute=full", NULL};
    static const char *const policies[] = {"policy=device", "policy=host", NULL};
    const uint32_t tp = 2u << seed / ARCHITECTURE_COUNT % 3;
    uint64_t at = 1000;
    const char *name = "";
    drawn it = {.count = 0};
    choose_model(seed, tp, &at);
    add(&it, pick(seed, &at, precisions));
    const bool is_bf16 = strcmp(it.settings[0], "precision=bf16") == 0;
    add(&it, "accumulate=2");
    add(&it, "accumulation=micro");
    add(&it, shares_of(pick(seed, &at, shares)));
    add(&it, pick(seed, &at, policies));
    add(&it, pick(seed, &at, recomputes));
    add(&it, draw(seed, &at, 3) == 0 ? "documents=reset" : NULL);
    if (draw(seed, &at, 3) == 0) {
        add(&it, "prompt-key=p");
        add(&it, "response-key=r");
    }
    const double off =
        compare_runs(open_run(1, it.settings, NULL), open_run(tp, it.settings, NULL), NULL, &name);
    print_message("seed %llu, %u ranks, %s %s: %s is off by %.2g\n", (unsigned long long)seed, tp,
                  it.settings[0], it.settings[3], name, off);
    if (!(off <= find_bound(is_bf16, name)))
        fail_msg("seed %llu: %s is off by %g", (unsigned long long)seed, name, off);
    compared.gradients[architecture_of(seed)]++;
}

static void gradients_when_on_two_to_eight_tensor_ranks_then_are_those_of_one(void **state)
{
    (void)state;
    const char *given = getenv("SL_TEST_SEED");
    const uint64_t first = given ? strtoull(given, NULL, 10) : 1;
    const uint64_t count = given ? 1 : is_full() ? 96 : sanitizer_share(16);
    for (uint64_t seed = first; seed < first + count; seed++)
        check_tensor_ranks(seed);
    print_compared("gradients", compared.gradients);
}

int main(void)
{
    if (SANITIZES_THREADS) /* it sees the plain loops alone */
        sl_simd_choose(sl_simd_usable(sl_simd_usable_count() - 1));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_when_placed_at_random_then_have_the_bits_of_their_topology),
        cmocka_unit_test(gradients_when_on_two_to_eight_tensor_ranks_then_are_those_of_one),
    };
    return cmocka_run_group_tests(tests, open_disk, close_disk);
}
