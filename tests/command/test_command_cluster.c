/* What could be wrong in `plan --cluster` as a user gives it: an option that it does not search is
 * taken and forgotten; a way out that cannot be asked for; numbers of ranks and rows that do not
 * divide end without saying what bounds them; ways that are no sharing of the ranks, or are not in
 * the order of their times; the best way is none that `plan --ranks` takes; bytes of a
 * whole plan are others than those of `plan`, with some rule, type of states or adapters. */
#define _GNU_SOURCE
#include "command_run.h"

#define CLUSTER "--cluster '" SL_TEST_SOURCE_DIRECTORY "/../examples/clusters/dgx-a100-80gb.json' "
#define V100 "--cluster '" SL_TEST_SOURCE_DIRECTORY "/../examples/clusters/v100-32gb.json' "
#define ALONE SL_TEST_SOURCE_DIRECTORY "/../examples/machines/rtx-4060-8gb.json"
#define SMALL "--layers 4 --width 256 --heads 4 --context 128 --vocab 1000 "

static json_int_t read_count(const json_t *way, const char *key)
{
    json_t *value = json_object_get(way, key);
    if (!json_is_integer(value))
        fail_msg("\"%s\" is no number", key);
    return json_integer_value(value);
}

static void ways_when_listed_share_all_ranks_and_rows(void **state)
{
    (void)state;
    double before = 0;
    size_t index;
    json_t *way;
    assert_code(sluice("plan " CLUSTER SMALL "--ranks 16 --global-batch 48 --json"), 0);
    json_t *object = json_loads(output, 0, NULL);
    json_t *best = json_object_get(object, "best");
    assert_true(json_array_size(best) == 3);
    json_array_foreach(best, index, way)
    {
        const json_int_t dp = read_count(way, "dp");
        const double step = json_number_value(json_object_get(way, "predicted_step_ms"));
        assert_int_equal(read_count(way, "tp") * dp * read_count(way, "pp"), 16);
        assert_int_equal(read_count(way, "micro_batch") * read_count(way, "accumulate") * dp, 48);
        assert_true(step > 0 && step >= before);
        before = step;
    }
    json_decref(object);
}

static void best_way_when_given_to_plan_is_a_plan(void **state)
{
    (void)state;
    assert_code(sluice("plan " CLUSTER SMALL "--ranks 8 --global-batch 16 --json"), 0);
    json_t *object = json_loads(output, 0, NULL);
    const json_t *way = json_array_get(json_object_get(object, "best"), 0);
    assert_non_null(way);
    assert_code(sluice("plan " SMALL "--ranks 8 --tp %lld --dp %lld --pp %lld --zero %lld "
                       "--micro-batch %lld --global-batch 16 --device cpu --device-memory 4G "
                       "--host-memory 4G --json",
                       (long long)read_count(way, "tp"), (long long)read_count(way, "dp"),
                       (long long)read_count(way, "pp"), (long long)read_count(way, "zero"),
                       (long long)read_count(way, "micro_batch")),
                0);
    json_decref(object);
}

/* A plan that --cluster made as a whole has the bytes that plan has for the same choice. The logits
 * of so few ids are one panel on a GPU and on the cpu. */
static void bytes_when_planned_as_a_whole_are_those_of_plan(void **state)
{
    (void)state;
    static const char *const rules[] = {
        "",
        "--optimizer lion --state-type int8",
        "--optimizer muon",
        "--master-type low --state-type bf16",
        "--rule 'h.*.mlp.*.weight=muon' 'h.*.attn.*=none' 'wte.*=sgd'",
        "--state-type bf16 --freeze 'h.*.mlp.*'",
        "--lora-rank 4 --lora-targets all-linear --state-type int8"};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        assert_code(sluice("plan " CLUSTER SMALL "--ranks 1 --global-batch 8 --micro-batch 2 "
                           "--policy device --recompute full --accumulation micro --json %s",
                           rules[i]),
                    0);
        json_t *object = json_loads(output, 0, NULL);
        json_t *way = json_incref(json_array_get(json_object_get(object, "best"), 0));
        json_decref(object);
        assert_true(json_is_true(json_object_get(way, "drawn")));
        assert_code(sluice("plan " SMALL "--device cpu --threads 1 --device-memory 8G "
                           "--host-memory 8G --precision bf16 --micro-batch 2 --accumulate 4 "
                           "--policy device --recompute full --accumulation micro --json %s",
                           rules[i]),
                    0);
        object = json_loads(output, 0, NULL);
        static const char *const tiers[] = {"device", "host", "disk"};
        for (int tier = 0; tier < 3; tier++) {
            const json_t *plan = json_object_get(json_object_get(object, "tiers"), tiers[tier]);
            assert_int_equal(read_count(json_object_get(way, "peak_bytes"), tiers[tier]),
                             read_count(plan, "peak_bytes"));
        }
        json_decref(object);
        json_decref(way);
    }
}

static void options_when_not_searched_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *words, *says;
        int code;
    } cases[] = {
        {"--ranks 8", "give --global-batch", 64},
        {"--global-batch 8 --ranks 2 --cluster none", "none: ", 66},
        {"--ranks 8 --global-batch 8 --device-memory 8G", "--device-memory is not known", 64},
        {"--ranks 8 --global-batch 8 --dropout 0.1", "--dropout is not known", 64},
        {"--ranks 8 --global-batch 8 --adapter x", "--adapter is not known", 64},
        {"--ranks 8 --global-batch 8 --rule 'h.2.*=lion'",
         "\"h.2.ln_1.weight\" is in another way than in block 0: let patterns match it in every "
         "block, as 'h.*.ln_1.weight'",
         64},
        {"--ranks 8 --global-batch 8 --freeze 'h.0.mlp.*'", "\"h.1.mlp.c_fc.weight\" is in", 64},
        {"--ranks 8 --global-batch 8 --lora-rank 2 --lora-targets h.3.attn.c_attn",
         "\"h.3.attn.c_attn.lora_A.weight\" is in another way", 64},
        {"--ranks 8 --global-batch 8 --lora-rank 2 --lora-targets h.0.attn.c_attn",
         "\"h.0.attn.c_attn.lora_B.weight\" is in another way", 64},
        {"--ranks 8 --global-batch 8 --rule 'g.*=lion'", "--rule: \"g.*\" matches no tensor", 64},
        {"--ranks 8 --global-batch 8 --lora-rank 2 --lora-targets q", "names no linear layer", 64},
        {"--ranks 8 --global-batch 8 --accumulate 2", "--accumulate is not known", 64},
        {"--ranks 8 --global-batch 8 --nvme-params 1", "--nvme-params is not known", 64},
        {"--ranks 8 --global-batch 8 --stages uniform", "--stages is not known", 64},
        {"--ranks 8 --global-batch 8 --seq 256", "beyond the model's context of 128", 64},
        {"--ranks 8 --global-batch 7 --dp 8", "divides with at most 100000 micro-batches", 64},
        {"--ranks 1 --global-batch 10000000", "divides with at most 100000 micro-batches", 64},
        {"--ranks 2 --global-batch 8 --cluster '" ALONE "'", "one machine of one GPU", 64},
        {"--ranks 8 --global-batch 8 --cluster none", "none: ", 66},
        {"--ranks 8 --global-batch 8 --cluster text", "text: ", 65},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_code(sluice("plan " CLUSTER SMALL "%s", cases[i].words), cases[i].code);
        assert_one_complaint(cases[i].says);
    }
}

#define LARGE                                                                                      \
    "--layers 100 --width 12288 --heads 96 --context 2048 --vocab 51200 --policy device "          \
    "--recompute full --zero 1 "

/* A V100 has no bf16: neither by default nor when it is asked for. */
static void type_when_the_gpus_lack_it_is_not_planned(void **state)
{
    (void)state;
    double seconds[2];
    assert_code(sluice("plan " V100 SMALL "--ranks 8 --global-batch 16"), 0);
    assert_has(output, "16 rows of 128 tokens a step, in fp32");
    assert_has(complaint, "have no bf16: planned in fp32; --precision fp16 has 8.0 times its rate");
    for (int half = 0; half < 2; half++) {
        assert_code(sluice("plan " V100 SMALL "--ranks 8 --global-batch 16 --json --precision %s",
                           half ? "fp16" : "fp32"),
                    0);
        json_t *object = json_loads(output, 0, NULL);
        const json_t *gpu = json_object_get(json_object_get(object, "assumed"), "gpu");
        const json_t *best = json_array_get(json_object_get(object, "best"), 0);
        assert_int_equal(json_object_size(json_object_get(gpu, "flop_rate")), 2);
        seconds[half] = json_number_value(json_object_get(best, "predicted_step_ms"));
        json_decref(object);
    }
    assert_true(seconds[1] < seconds[0]);
    assert_code(sluice("plan " V100 SMALL "--ranks 8 --global-batch 16 --precision bf16"), 64);
    assert_one_complaint("have no bf16, by their flop_rate: use fp16 or fp32");
    assert_code(sluice("plan " CLUSTER SMALL "--ranks 8 --global-batch 16"), 0);
    assert_has(output, "tokens a step, in bf16");
    assert_has(output, " combinations of options were considered, ");
    assert_has(output, " were simulated; the fastest of each layout:");
    assert_string_equal(complaint, "");
}

static void model_when_too_large_a_number_of_ranks_that_can_be_asked_for_is_named(void **state)
{
    (void)state;
    assert_code(sluice("plan " CLUSTER LARGE "--ranks 16 --global-batch 256"), 69);
    assert_one_complaint("no way to share it fits");
    const char *found = strstr(complaint, "; --ranks ");
    assert_non_null(found);
    const long ranks = strtol(found + strlen("; --ranks "), NULL, 10);
    assert_true(ranks > 16 && ranks <= 256);
    assert_code(sluice("plan " CLUSTER LARGE "--ranks %ld --global-batch 256", ranks), 0);
    assert_code(sluice("plan " CLUSTER LARGE "--ranks 49152 --tp 1 --pp 1 --global-batch 98304"),
                69);
    assert_one_complaint("no way to share it fits");
    assert_null(strstr(complaint, "; --ranks")); /* twice as many cannot be asked for */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ways_when_listed_share_all_ranks_and_rows),
        cmocka_unit_test(best_way_when_given_to_plan_is_a_plan),
        cmocka_unit_test(type_when_the_gpus_lack_it_is_not_planned),
        cmocka_unit_test(options_when_not_searched_are_refused),
        cmocka_unit_test(bytes_when_planned_as_a_whole_are_those_of_plan),
        cmocka_unit_test(model_when_too_large_a_number_of_ranks_that_can_be_asked_for_is_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
