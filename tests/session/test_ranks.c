/* What could be wrong in what ranks share and compare: a core counts for two ranks that may both
 * use it, ranks bound to one core are not told of the others, a quota is given to every rank; a
 * replicated parameter that differs in one bit is passed over, the wrong tensor or rank is named, a
 * split tensor is compared, ranks fall out of step; bytes are counted for the wrong communicator or
 * not as the algorithm's formula says; ranks compute products by different lists of algorithms. */
#include "comm/comm_world.h"
#include "machine/algorithm_list.h"
#include "session/algorithms.h"
#include "session/binding.h"
#include "session/replicas.h"

/* ---- cores ---- */

static sl_binding bind_to(uint64_t machine, uint64_t cores, uint32_t quota, uint32_t starter)
{
    return (sl_binding){
        .machine = machine, .quota = quota, .starter_cores = starter, .cores = {cores}};
}

static void cores_when_nobody_is_bound_are_shared_out(void **state)
{
    (void)state;
    sl_binding all[8];
    for (int i = 0; i < 8; i++)
        all[i] = bind_to(i / 4, 0xffff, 16, 16);
    sl_binding_share share = sl_binding_divide(all, 8, 5);
    assert_int_equal(share.worker_count, 4);
    assert_int_equal(share.rank_count, 4);
    assert_false(sl_binding_wastes(&share));
    for (int i = 0; i < 8; i++)
        all[i].quota = 6; /* of a container */
    assert_int_equal(sl_binding_divide(all, 8, 0).worker_count, 1);
    for (int i = 0; i < 8; i++)
        all[i].quota = 2;
    assert_int_equal(sl_binding_divide(all, 8, 0).worker_count, 1);
}

static void cores_when_ranks_are_bound_are_their_own(void **state)
{
    (void)state;
    const sl_binding apart[] = {bind_to(1, 0x00ff, 16, 16), bind_to(1, 0xff00, 16, 16)};
    assert_int_equal(sl_binding_divide(apart, 2, 1).worker_count, 8);
    const sl_binding partly[] = {bind_to(1, 0x00ff, 16, 16), bind_to(1, 0x0ff0, 16, 16)};
    assert_int_equal(sl_binding_divide(partly, 2, 0).worker_count, 6);
    const sl_binding single[] = {bind_to(1, 1, 16, 16), bind_to(1, 2, 16, 16)};
    sl_binding_share share = sl_binding_divide(single, 2, 0);
    assert_int_equal(share.worker_count, 1);
    assert_int_equal(share.used_cores, 2);
    assert_true(sl_binding_wastes(&share));
    const sl_binding limited[] = {bind_to(1, 1, 16, 2), bind_to(1, 2, 16, 2)};
    share = sl_binding_divide(limited, 2, 0);
    assert_false(sl_binding_wastes(&share)); /* their starter had no more */
}

static void find_share(sl_comm *world, const void *argument, answer *out)
{
    (void)argument;
    sl_binding_share share;
    if (sl_binding_find(world, &share) != SL_OK)
        complain(out, "%s", sl_status_message());
    else if (share.rank_count != sl_comm_size(world) || share.worker_count < 1 ||
             share.used_cores < 1)
        complain(out, "%u workers, %u ranks, %u cores", share.worker_count, share.rank_count,
                 share.used_cores);
}

static void cores_when_asked_for_by_every_carrier_are_found(void **state)
{
    (void)state;
    for (int on = 0; on < CARRIER_COUNT; on++)
        run_right(&carriers[on], 3, find_share, NULL);
}

/* ---- the list of algorithms ---- */

enum { LIST_BYTES = 1024 };

/* The list in the checkpoint of a rank: each rank's has another line, and another length. */
static void write_list(const char *head, uint32_t rank, char out_list[LIST_BYTES])
{
    snprintf(out_list, LIST_BYTES, "%s8x8x8: algorithm %u, %.*s\n", head, rank, (int)(3 * rank + 1),
             "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
}

/* `head` is the first line of a list that is of this GPU and library. */
static void choose_list(sl_comm *world, const void *head, answer *out)
{
    sl_blueprint blueprint = {.task.target.device = SL_DEVICE_CUDA};
    sl_ranks ranks = {.world = world,
                      .table = {.size = sl_comm_size(world), .rank = sl_comm_rank(world)}};
    char mine[LIST_BYTES], first[LIST_BYTES], *list = NULL;
    write_list(head, sl_comm_rank(world), mine);
    write_list(head, 0, first);
    if (sl_algorithms_choose(&ranks, mine, &blueprint, &list) != SL_OK)
        complain(out, "%s", sl_status_message());
    else if (!list || strcmp(list, first) != 0 || blueprint.task.target.cuda.algorithms != list)
        complain(out, "the list is \"%s\", not \"%s\"", list ? list : "", first);
    free(list);
}

static void algorithms_when_ranks_have_lists_of_their_own_are_those_of_the_first(void **state)
{
    (void)state;
    char *head = NULL;
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
    assert_int_equal(sl_algorithm_list_load(&(sl_device_info){0}, &head), SL_OK);
    for (int on = 0; on < CARRIER_COUNT; on++)
        run_right(&carriers[on], 3, choose_list, head);
    free(head);
    unsetenv("XDG_CONFIG_HOME");
}

/* ---- replicated parameters ---- */

enum { ELEMENTS = 10000, BUFFER_BYTES = 32768 }; /* the second part begins at element 4096 */

static const sl_tensor_spec tensors[] = {
    {.name = "wte.weight", .element_count = ELEMENTS, .split = SL_SPLIT_ROWS},
    {.name = "h.0.ln_1.weight", .element_count = ELEMENTS},
    {.name = "h.0.attn.c_attn.weight", .element_count = ELEMENTS, .split = SL_SPLIT_QKV},
    {.name = "h.0.ln_2.weight", .element_count = ELEMENTS},
};

/* One rank's parameters: equal, but for the split ones, and one element of one tensor. */
typedef struct parameters {
    uint32_t rank, tensor_index;
    uint64_t element;
    uint64_t *read_bytes; /* of each tensor, or NULL */
} parameters;

static uint64_t count_parameter(void *user, uint32_t tensor_index)
{
    (void)user;
    return tensors[tensor_index].element_count * sizeof(float);
}

static sl_status read_parameters(void *user, uint32_t tensor_index, uint64_t first_byte,
                                 uint64_t bytes, void *memory)
{
    const parameters *it = user;
    float *data = memory;
    if (it->read_bytes)
        it->read_bytes[tensor_index] += bytes;
    uint64_t first = first_byte / sizeof *data;
    for (uint64_t i = 0; i < bytes / sizeof *data; i++) {
        data[i] = (float)(first + i) + (float)tensor_index;
        if (tensors[tensor_index].split != SL_SPLIT_NONE)
            data[i] += (float)it->rank;
        if (tensor_index == it->tensor_index && first + i == it->element)
            data[i] = nextafterf(data[i], 1e30f);
    }
    return SL_OK;
}

static sl_status compare(sl_comm *world, parameters mine, bool has_split)
{
    unsigned char buffer[BUFFER_BYTES];
    const sl_replicas replicas = {.comm = world,
                                  .tensors = tensors,
                                  .tensor_count = 4,
                                  .count = count_parameter,
                                  .has_split = has_split,
                                  .read = read_parameters,
                                  .user = &mine,
                                  .buffer = buffer,
                                  .buffer_bytes = sizeof buffer};
    mine.rank = sl_comm_rank(world);
    return sl_replicas_compare(&replicas, 300);
}

static void compare_changed(sl_comm *world, const void *argument, answer *out)
{
    parameters mine = *(const parameters *)argument;
    const uint32_t damaged = mine.rank;
    if (sl_comm_rank(world) != damaged)
        mine.tensor_index = UINT32_MAX;
    sl_status status = compare(world, mine, false);
    if (status != SL_ERROR_INTERNAL || !strstr(sl_status_message(), "h.0.ln_2.weight") ||
        !strstr(sl_status_message(), "after step 300 rank 1 holds"))
        complain(out, "%d: %s", status, status == SL_OK ? "no difference" : sl_status_message());
    if (sl_comm_barrier(world) != SL_OK)
        complain(out, "out of step");
}

static void compare_equal(sl_comm *world, const void *argument, answer *out)
{
    if (compare(world, *(const parameters *)argument, false) != SL_OK)
        complain(out, "%s", sl_status_message());
    if (compare(world, *(const parameters *)argument, true) != SL_ERROR_INTERNAL ||
        !strstr(sl_status_message(), "wte.weight")) /* which is split */
        complain(out, "passes over split tensors");
}

static void replicas_when_one_bit_differs_name_tensor_and_rank(void **state)
{
    (void)state;
    const parameters none = {.tensor_index = UINT32_MAX};
    run_right(&carriers[0], 3, compare_equal, &none);
    const uint64_t elements[] = {0, 4096, ELEMENTS - 1};
    for (int i = 0; i < 3; i++) {
        const parameters one = {.rank = 1, .tensor_index = 3, .element = elements[i]};
        run_right(&carriers[i], 3, compare_changed, &one);
    }
    const parameters of_split = {.rank = 1, .tensor_index = 2};
    run_right(&carriers[0], 2, compare_equal, &of_split);
}

/* Of two tensor-parallel ranks with two sets of rows, or of four sets of rows. */
static void compare_whole_runs(sl_comm *world, const void *argument, answer *out)
{
    const uint32_t tp = *(const uint32_t *)argument, size = sl_comm_size(world);
    const sl_comm_layout layout = {tp, size / tp, 1};
    const uint32_t rank = sl_comm_rank(world);
    uint32_t members[RANKS_MAX];
    uint64_t read_bytes[4] = {0};
    unsigned char buffer[BUFFER_BYTES];
    parameters mine = {.rank = rank % tp, .tensor_index = UINT32_MAX, .read_bytes = read_bytes};
    const sl_replicas replicas = {.comm = world,
                                  .tensors = tensors,
                                  .tensor_count = 4,
                                  .count = count_parameter,
                                  .read = read_parameters,
                                  .user = &mine,
                                  .buffer = buffer,
                                  .buffer_bytes = sizeof buffer};
    sl_comm *data = NULL;
    sl_comm_group_members(&layout, SL_COMM_DATA, rank, members);
    if (sl_comm_split(world, "dp", members, size / tp, &data) != SL_OK ||
        sl_replicas_compare_all(&replicas, data, 300) != SL_OK)
        complain(out, "%s", sl_status_message());
    const uint64_t once = ELEMENTS * sizeof(float);
    for (int i = 0; i < 4; i++) {
        const bool is_twice = tp > 1 && tensors[i].split == SL_SPLIT_NONE;
        if (read_bytes[i] != (is_twice ? 2 * once : once))
            complain(out, "tensor %d: %llu bytes are hashed", i, (unsigned long long)read_bytes[i]);
    }
    mine.tensor_index = rank == size - 1 ? 0 : UINT32_MAX; /* split over two, equal over the rows */
    if (sl_replicas_compare_all(&replicas, data, 300) != SL_ERROR_INTERNAL ||
        !strstr(sl_status_message(), "wte.weight")) {
        const bool is_others = tp > 1 && rank % tp == 0; /* whose rows agree */
        if (!is_others)
            complain(out, "passes over a split tensor");
    }
    sl_comm_close(data);
}

static void replicas_when_of_one_tensor_rank_are_hashed_once(void **state)
{
    (void)state;
    for (uint32_t tp = 1; tp <= 2; tp++)
        run_right(&carriers[0], 4, compare_whole_runs, &tp);
}

/* ---- bytes ---- */

static void add_up(void *sum, const void *other)
{
    *(uint64_t *)sum += *(const uint64_t *)other;
}

static uint64_t count_all(sl_comm *world, sl_comm_group group)
{
    uint64_t bytes = sl_comm_sent_bytes(world, group);
    (void)sl_comm_merge(world, sizeof bytes, &bytes, add_up);
    return bytes;
}

/* Over all ranks: 2 (N - 1) B of an all-reduce, (N - 1) B of a reduce-scatter and of a gather. */
static void count_calls(sl_comm *world, const void *argument, answer *out)
{
    enum { COUNT = 300001 };
    static const sl_comm_types types = {SL_COMM_FP32, SL_COMM_BF16};
    static _Thread_local float data[COUNT];
    const uint32_t size = sl_comm_size(world);
    const uint64_t others = size - 1;
    uint32_t members[RANKS_MAX];
    uint64_t starts[RANKS_MAX + 1] = {0};
    sl_comm *comm = NULL;
    (void)argument;
    for (uint32_t i = 0; i < size; i++) {
        members[i] = i;
        starts[i + 1] = starts[i] + 1000 + i;
    }
    if (sl_comm_split(world, "tp", members, size, &comm) != SL_OK ||
        sl_comm_all_reduce(comm, SL_COMM_FP32, COUNT, data) != SL_OK) {
        complain(out, "%s", sl_status_message());
        return;
    }
    uint64_t expected = 2 * others * COUNT * 4;
    if (count_all(world, SL_COMM_TENSOR) != expected || count_all(world, SL_COMM_DATA) != 0)
        complain(out, "an all-reduce sends %llu bytes, not %llu",
                 (unsigned long long)count_all(world, SL_COMM_TENSOR),
                 (unsigned long long)expected);
    (void)sl_comm_reduce_scatter_pieces(comm, types, starts, data,
                                        data + starts[sl_comm_rank(world)]);
    expected += others * starts[size] * 2;
    if (count_all(world, SL_COMM_TENSOR) != expected)
        complain(out, "a reduce-scatter sends other bytes");
    (void)sl_comm_gather_pieces(comm, starts, data, data);
    expected += others * starts[size];
    if (count_all(world, SL_COMM_TENSOR) != expected)
        complain(out, "a gather sends other bytes");
    sl_comm_close(comm);
}

static void bytes_when_counted_are_those_of_the_formulas(void **state)
{
    (void)state;
    for (uint32_t size = 2; size <= 5; size++)
        run_right(&carriers[size % CARRIER_COUNT], size, count_calls, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_when_nobody_is_bound_are_shared_out),
        cmocka_unit_test(cores_when_ranks_are_bound_are_their_own),
        cmocka_unit_test(cores_when_asked_for_by_every_carrier_are_found),
        cmocka_unit_test(algorithms_when_ranks_have_lists_of_their_own_are_those_of_the_first),
        cmocka_unit_test(replicas_when_one_bit_differs_name_tensor_and_rank),
        cmocka_unit_test(replicas_when_of_one_tensor_rank_are_hashed_once),
        cmocka_unit_test(bytes_when_counted_are_those_of_the_formulas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
