/* What could be wrong here: a rate that is written and not read back, or read into another op or
 * lane; a damaged file, or one of another machine, that plans are made with; a sound one that is
 * not found; a file that is torn when a process dies while it writes; a description whose rates are
 * taken for others. Every number of a profile is
 * set to another value and compared after a round trip; files are damaged one key at a time. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/workers.h"
#include "machine/profile.h"
#include "scratch_case.h"

enum { WORKERS = 3 };

static const sl_profile_subject here = {.worker_count = WORKERS};

/* Rates that are all different and have nine digits or fewer, as the file keeps them. */
static void fill_machine(sl_machine *machine)
{
    double next = 1001;
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        for (int kind = 0; kind < SL_OP_COUNT; kind++, next += 3)
            machine->op[kind][type] = (sl_op_rate){next, next + 1, next + 2};
        machine->host_update[type] = (sl_op_rate){next, next + 1, next + 2};
        next += 3;
    }
    sl_adding_rates *adding = &machine->adding_op[SL_OP_LINEAR_WEIGHT_BACKWARD];
    adding->is_measured = true;
    for (int type = 0; type < SL_TYPE_COUNT; type++, next += 3)
        adding->rate[type] = (sl_op_rate){next, next + 1, next + 2};
    for (int master = 0; master < SL_MASTER_COUNT; master++) {
        sl_update_rates *update = &machine->update[master][SL_OP_LION];
        update->is_measured = true;
        for (int states = 0; states < SL_STATES_COUNT; states++)
            for (int type = 0; type < SL_TYPE_COUNT; type++) {
                update->device[states][type] = next++;
                update->host[states][type] = next++;
            }
    }
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        if (!sl_lane_copies((sl_lane)lane))
            continue;
        machine->copy_rate[lane] = next++;
        machine->copy_seconds[lane] = next++;
        machine->copy_cores[lane] = next++;
    }
    machine->mixed_disk_rate = next++;
    machine->op_seconds = next++;
    machine->host_memory_rate = next++;
}

static void profile_when_saved_then_every_number_comes_back(void **state)
{
    (void)state;
    sl_profile saved, loaded;
    sl_profile_init(&saved, &here);
    fill_machine(&saved.machine);
    snprintf(saved.disk, sizeof saved.disk, "/some/where");
    assert_int_equal(sl_profile_save(&saved, "deep/er/machine.json", NULL), SL_OK);
    assert_int_equal(sl_profile_load("deep/er/machine.json", &loaded), SL_OK);
    const sl_machine *a = &saved.machine, *b = &loaded.machine;
    assert_memory_equal(a->op, b->op, sizeof a->op);
    for (int kind = 0; kind < SL_OP_COUNT; kind++) {
        assert_int_equal(a->adding_op[kind].is_measured, b->adding_op[kind].is_measured);
        assert_memory_equal(a->adding_op[kind].rate, b->adding_op[kind].rate,
                            sizeof a->adding_op[kind].rate);
        for (int master = 0; master < SL_MASTER_COUNT; master++) {
            const sl_update_rates *left = &a->update[master][kind];
            const sl_update_rates *right = &b->update[master][kind];
            assert_int_equal(left->is_measured, right->is_measured);
            assert_memory_equal(left->device, right->device, sizeof left->device);
            assert_memory_equal(left->host, right->host, sizeof left->host);
        }
    }
    assert_memory_equal(a->host_update, b->host_update, sizeof a->host_update);
    assert_memory_equal(a->copy_rate, b->copy_rate, sizeof a->copy_rate);
    assert_memory_equal(a->copy_seconds, b->copy_seconds, sizeof a->copy_seconds);
    assert_memory_equal(a->copy_cores, b->copy_cores, sizeof a->copy_cores);
    assert_true(a->mixed_disk_rate == b->mixed_disk_rate && a->op_seconds == b->op_seconds);
    assert_true(a->host_memory_rate == b->host_memory_rate);
    assert_true(b->is_measured && b->shares_cores && b->worker_count == WORKERS);
    assert_true(b->core_count == fmax(WORKERS, saved.core_count)); /* a busy core is not slowed */
    assert_string_equal(saved.host, loaded.host);
    assert_string_equal(saved.cpu, loaded.cpu);
    assert_string_equal(saved.kernels, loaded.kernels);
    assert_string_equal(saved.date, loaded.date);
    assert_string_equal(saved.disk, loaded.disk);
    assert_int_equal(sl_profile_check(&loaded, &here), SL_OK);
}

/* An old profile knows AdamW alone, and a rule may be measured with states of some types. */
static void update_when_not_measured_then_is_as_fast_as_adamw(void **state)
{
    (void)state;
    sl_profile profile, loaded;
    const sl_op_attrs attrs = {
        .element_count = 1 << 20, .type = SL_TYPE_BF16, .state_type = SL_STATES_INT8};
    const double bytes = (double)sl_op_traffic_bytes(SL_OP_LION, &attrs);
    sl_profile_init(&profile, &here);
    profile.machine.op_seconds = 3;
    profile.machine.op[SL_OP_ADAMW][SL_TYPE_BF16] = (sl_op_rate){.byte_rate = 1e6};
    profile.machine.host_update[SL_TYPE_BF16] = (sl_op_rate){.byte_rate = 2e6};
    for (int is_measured = 0; is_measured < 2; is_measured++) {
        sl_update_rates *rates = &profile.machine.update[SL_MASTER_FP32][SL_OP_LION];
        rates->is_measured = is_measured;
        rates->device[SL_STATES_INT8][SL_TYPE_BF16] = 4e5;
        rates->device[SL_STATES_FP32][SL_TYPE_BF16] = 7e5;
        assert_int_equal(sl_profile_save(&profile, "rates.json", NULL), SL_OK);
        assert_int_equal(sl_profile_load("rates.json", &loaded), SL_OK);
        const sl_machine *machine = &loaded.machine;
        assert_true(fabs(sl_machine_op_seconds(machine, SL_OP_LION, &attrs, false) -
                         (3 + bytes / (is_measured ? 4e5 : 1e6))) < 1e-9);
        assert_true(fabs(sl_machine_op_seconds(machine, SL_OP_LION, &attrs, true) -
                         (3 + bytes / 2e6)) < 1e-9);
    }
}

/* A profile of an older version knows masters in fp32 alone. */
static void update_when_of_halves_then_has_its_rate_or_that_beside_fp32(void **state)
{
    (void)state;
    static const struct {
        bool has_fp32, has_low;
        double rate; /* that counts */
    } rows[] = {{false, false, 1e6}, {true, false, 4e5}, {true, true, 3e5}, {false, true, 3e5}};
    const sl_op_attrs attrs = {.element_count = 1 << 20,
                               .type = SL_TYPE_BF16,
                               .state_type = SL_STATES_INT8,
                               .master_type = SL_MASTER_LOW};
    const double bytes = (double)sl_op_traffic_bytes(SL_OP_LION, &attrs);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_profile profile, loaded;
        sl_profile_init(&profile, &here);
        sl_machine *machine = &profile.machine;
        sl_update_rates *fp32 = &machine->update[SL_MASTER_FP32][SL_OP_LION];
        sl_update_rates *low = &machine->update[SL_MASTER_LOW][SL_OP_LION];
        machine->op_seconds = 3;
        machine->op[SL_OP_ADAMW][SL_TYPE_BF16] = (sl_op_rate){.byte_rate = 1e6};
        fp32->is_measured = rows[i].has_fp32;
        fp32->device[SL_STATES_INT8][SL_TYPE_BF16] = 4e5;
        low->is_measured = rows[i].has_low;
        low->device[SL_STATES_INT8][SL_TYPE_BF16] = 3e5;
        assert_int_equal(sl_profile_save(&profile, "halves.json", NULL), SL_OK);
        assert_int_equal(sl_profile_load("halves.json", &loaded), SL_OK);
        assert_true(fabs(sl_machine_op_seconds(&loaded.machine, SL_OP_LION, &attrs, false) -
                         (3 + bytes / rows[i].rate)) < 1e-9);
    }
}

/* By each core where arithmetic bounds it, as far as memory lets AdamW go. */
static void update_when_scaled_then_memory_bounds_it_at_last(void **state)
{
    (void)state;
    static const struct {
        uint32_t workers;
        double measured, scaled; /* bytes a second; AdamW's: 100 by each of at most 4 workers */
    } rows[] = {{2, 20, 40}, {4, 20, 80}, {16, 20, 320}, {16, 50, 400}, {16, 95, 380}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_machine machine = sl_machine_default(1);
        machine.worker_count = 1;
        machine.core_count = 16;
        machine.op[SL_OP_ADAMW][SL_TYPE_FP32].byte_rate = 100;
        machine.host_update[SL_TYPE_FP32].byte_rate = 100;
        for (int master = 0; master < SL_MASTER_COUNT; master++) {
            sl_update_rates *rates = &machine.update[master][SL_OP_LION];
            rates->device[SL_STATES_BF16][SL_TYPE_FP32] = rows[i].measured;
            rates->host[SL_STATES_BF16][SL_TYPE_FP32] = rows[i].measured;
        }
        sl_machine_scale(&machine, rows[i].workers, 1);
        for (int master = 0; master < SL_MASTER_COUNT; master++) {
            const sl_update_rates *found = &machine.update[master][SL_OP_LION];
            assert_true(fabs(found->device[SL_STATES_BF16][SL_TYPE_FP32] - rows[i].scaled) < 1e-9);
            assert_true(fabs(found->host[SL_STATES_BF16][SL_TYPE_FP32] - rows[i].scaled) < 1e-9);
        }
    }
}

static void profile_when_saved_again_then_replaced_and_nothing_left_behind(void **state)
{
    (void)state;
    sl_profile profile, loaded;
    sl_profile_init(&profile, &here);
    assert_int_equal(sl_profile_save(&profile, "again/machine.json", NULL), SL_OK);
    profile.machine.op_seconds = 0.125;
    assert_int_equal(sl_profile_save(&profile, "again/machine.json", NULL), SL_OK);
    assert_int_equal(sl_profile_load("again/machine.json", &loaded), SL_OK);
    assert_true(loaded.machine.op_seconds == 0.125);
    assert_int_equal(unlink("again/machine.json"), 0);
    assert_int_equal(rmdir("again"), 0); /* empty: no temporary file */
    assert_int_not_equal(sl_profile_save(&profile, "/proc/no/machine.json", NULL), SL_OK);
}

static void disk_when_not_measured_again_then_kept_of_the_same_machine_only(void **state)
{
    (void)state;
    sl_profile old, fresh;
    sl_profile_init(&old, &here);
    old.machine.copy_rate[SL_LANE_READ] = 5;
    old.machine.mixed_disk_rate = 7;
    snprintf(old.disk, sizeof old.disk, "/some/where");
    assert_int_equal(sl_profile_save(&old, "old.json", NULL), SL_OK);
    sl_profile_init(&fresh, &here);
    double copy = fresh.machine.copy_rate[SL_LANE_H2D];
    sl_profile_keep_disk(&fresh, "missing.json");
    assert_string_equal(fresh.disk, "");
    sl_profile_keep_disk(&fresh, "old.json");
    assert_string_equal(fresh.disk, "/some/where");
    assert_true(fresh.machine.copy_rate[SL_LANE_READ] == 5);
    assert_true(fresh.machine.mixed_disk_rate == 7);
    assert_true(fresh.machine.copy_rate[SL_LANE_H2D] == copy);
    fresh.machine.mixed_disk_rate = 9; /* has a disk now: stays */
    sl_profile_keep_disk(&fresh, "old.json");
    assert_true(fresh.machine.mixed_disk_rate == 9);
    sl_profile_init(&fresh, &here);
    snprintf(fresh.host, sizeof fresh.host, "another");
    sl_profile_keep_disk(&fresh, "old.json");
    assert_string_equal(fresh.disk, "");
}

/* ---- damage ---- */

typedef struct damage {
    const char *path[4]; /* keys down to the one that is changed */
    const char *value;   /* JSON in an array; NULL: the key is left out */
    const char *said;    /* part of the message */
} damage;

static const damage damages[] = {
    {{"sluice_machine"}, "[2]", "sluice_machine"},
    {{"sluice_machine"}, NULL, "sluice_machine"},
    {{"thread_count"}, "[0]", "thread_count"},
    {{"thread_count"}, "[\"two\"]", "thread_count"},
    {{"cpu"}, "[7]", "cpu"},
    {{"kernels"}, NULL, "kernels"},
    {{"device"}, "[\"tpu\"]", "tpu"},
    {{"gpu"}, NULL, "gpu"},
    {{"op_seconds"}, "[-1]", "op_seconds"},
    {{"mixed_disk_rate"}, "[0]", "mixed_disk_rate"},
    {{"host_memory_rate"}, "[-1]", "host_memory_rate"},
    {{"copies"}, NULL, "\"copies\" is missing"},
    {{"copies", "read", "byte_rate"}, "[0.5]", "byte_rate"},
    {{"copies", "write", "seconds"}, "[null]", "write"},
    {{"ops", "linear", "bf16"}, NULL, "linear"},
    {{"ops", "linear", "fp32", "flop_rate"}, "[-3]", "flop_rate"},
    {{"ops", "linaer"}, "[{}]", "linaer"},
    {{"adding_ops", "linear_weight_backward", "rates"}, NULL, "linear_weight_backward"},
    {{"adding_ops", "linear_weight_backward", "rates", "bf16"}, "[7]", "linear_weight_backward"},
    {{"adding_ops", "linaer"}, "[{}]", "linaer"},
    {{"updates", "lion", "device", "int8"}, "[7]", "lion"},
    {{"updates", "lion", "host"}, NULL, "lion"},
    {{"updates", "loin"}, "[{}]", "loin"},
    {{"host_adamw"}, NULL, "host_adamw"},
    {{"host_adamw", "fp16", "seconds"}, "[[]]", "host_adamw"},
};

static void plant(const damage *planted, const char *name)
{
    json_t *root = json_load_file("sound.json", 0, NULL), *object = root;
    int depth = 0;
    assert_non_null(root);
    for (; depth < 3 && planted->path[depth + 1]; depth++)
        object = json_object_get(object, planted->path[depth]);
    json_t *wrapped = planted->value ? json_loads(planted->value, 0, NULL) : NULL;
    if (wrapped)
        json_object_set(object, planted->path[depth], json_array_get(wrapped, 0));
    else
        assert_int_equal(json_object_del(object, planted->path[depth]), 0);
    assert_int_equal(json_dump_file(root, name, 0), 0);
    json_decref(wrapped);
    json_decref(root);
}

static void file_when_damaged_then_refused_by_key_and_not_used(void **state)
{
    (void)state;
    sl_profile profile;
    sl_machine machine;
    char note[SL_PROFILE_NOTE_BYTES];
    sl_profile_init(&profile, &here);
    profile.machine.adding_op[SL_OP_LINEAR_WEIGHT_BACKWARD].is_measured = true;
    profile.machine.update[SL_MASTER_FP32][SL_OP_LION].is_measured = true;
    assert_int_equal(sl_profile_save(&profile, "sound.json", NULL), SL_OK);
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        plant(&damages[i], "damaged.json");
        memset(&profile, 7, sizeof profile);
        sl_profile untouched = profile;
        assert_int_equal(sl_profile_load("damaged.json", &profile), SL_ERROR_DATA);
        if (!strstr(sl_status_message(), damages[i].said))
            fail_msg("damage %d: \"%s\" does not name %s", (int)i, sl_status_message(),
                     damages[i].said);
        assert_memory_equal(&profile, &untouched, sizeof profile);
        assert_int_equal(sl_profile_find_machine("damaged.json", &here, &machine, note),
                         SL_ERROR_DATA);
    }
    assert_int_equal(truncate("sound.json", 1000), 0);
    assert_int_equal(sl_profile_load("sound.json", &profile), SL_ERROR_DATA);
    assert_int_equal(sl_profile_load("nowhere.json", &profile), SL_ERROR_MISSING);
}

/* ---- found by itself ---- */

static void save_default(const sl_profile *profile)
{
    char *path = NULL;
    assert_int_equal(sl_profile_find_path(SL_DEVICE_CPU, 0, &path), SL_OK);
    assert_int_equal(sl_profile_save(profile, path, NULL), SL_OK);
    free(path);
}

static void default_profile_when_of_this_machine_then_used_else_a_guess_with_a_reason(void **state)
{
    (void)state;
    sl_machine found;
    char note[SL_PROFILE_NOTE_BYTES], directory[4096];
    assert_non_null(getcwd(directory, sizeof directory));
    setenv("XDG_CONFIG_HOME", directory, 1);
    assert_int_equal(sl_profile_find_machine(NULL, &here, &found, note), SL_OK);
    assert_false(found.is_measured);
    assert_non_null(strstr(found.name, "a guess"));
    assert_string_equal(sl_machine_basis(&found), "a guess");
    assert_string_equal(note, "");

    sl_profile profile;
    sl_profile_init(&profile, &here);
    profile.machine.op_seconds = 0.5;
    save_default(&profile);
    assert_int_equal(sl_profile_find_machine("", &here, &found, note), SL_OK);
    assert_true(found.is_measured && found.op_seconds == 0.5);
    assert_string_equal(note, "");

    snprintf(profile.cpu, sizeof profile.cpu, "Z80");
    save_default(&profile);
    assert_int_equal(sl_profile_find_machine(NULL, &here, &found, note), SL_OK);
    assert_false(found.is_measured);
    assert_non_null(strstr(note, "Z80"));

    FILE *file = fopen("sluice/machine.json", "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(sl_profile_find_machine(NULL, &here, &found, note), SL_OK);
    assert_false(found.is_measured);
    assert_non_null(strstr(note, "JSON"));
}

/* Rates of 4 workers on 4 cores, without the ops that have none. */
static void save_four(double flops, double bytes)
{
    sl_profile profile;
    sl_profile_init(&profile, &(sl_profile_subject){.worker_count = 4});
    profile.core_count = 4;
    profile.machine.op[SL_OP_LINEAR][SL_TYPE_FP32] = (sl_op_rate){flops, bytes, 1e-6};
    profile.machine.host_update[SL_TYPE_FP32] = (sl_op_rate){flops, bytes, 0};
    profile.machine.op[SL_OP_ALL_REDUCE][SL_TYPE_FP32] = (sl_op_rate){0, 7e9, 0};
    profile.machine.copy_rate[SL_LANE_READ] = 4e9;
    profile.machine.mixed_disk_rate = 2e9;
    save_default(&profile);
}

/* What a rank has, and what fewer workers have, comes from the rates that were measured: never from
 * a guess, and never in silence. */
static void profile_when_of_other_workers_or_ranks_then_scaled_and_named_so(void **state)
{
    (void)state;
    static const struct {
        sl_profile_subject subject;
        double flops, bytes, disk;
        const char *name;
    } cases[] = {
        {{.worker_count = 4}, 1, 1, 1, "cpu, 4 workers, measured"},
        {{.worker_count = 2}, 0.5, 0.5, 1, "cpu, 2 workers, scaled from 4, measured"},
        {{.worker_count = 2, .rank_count = 2}, 0.5, 0.5, 0.5, "cpu, 2 workers in each of 2 ranks"},
        /* more workers than a rank's part of the cores find no more of them */
        {{.worker_count = 4, .rank_count = 4}, 0.25, 0.25, 0.25, "in each of 4 ranks"},
    };
    char note[SL_PROFILE_NOTE_BYTES], directory[4096];
    sl_machine found;
    assert_non_null(getcwd(directory, sizeof directory));
    setenv("XDG_CONFIG_HOME", directory, 1);
    save_four(1e12, 1e11);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(sl_profile_find_machine(NULL, &cases[i].subject, &found, note), SL_OK);
        const sl_op_rate *linear = &found.op[SL_OP_LINEAR][SL_TYPE_FP32];
        assert_true(found.is_measured && found.is_scaled == (i > 0));
        assert_true(fabs(linear->flop_rate / (cases[i].flops * 1e12) - 1) < 1e-12);
        assert_true(fabs(linear->byte_rate / (cases[i].bytes * 1e11) - 1) < 1e-12);
        assert_true(linear->seconds == 1e-6);
        assert_true(found.host_update[SL_TYPE_FP32].byte_rate == linear->byte_rate);
        assert_true(found.op[SL_OP_ALL_REDUCE][SL_TYPE_FP32].byte_rate == 7e9);
        assert_true(found.copy_rate[SL_LANE_READ] == cases[i].disk * 4e9);
        assert_true(found.mixed_disk_rate == cases[i].disk * 2e9);
        assert_non_null(strstr(found.name, cases[i].name));
        assert_string_equal(note, "");
    }
    assert_int_equal(unlink("sluice/machine.json"), 0);
}

static void profile_when_kept_for_this_number_of_workers_then_preferred(void **state)
{
    (void)state;
    const sl_profile_subject five = {.worker_count = 5};
    char note[SL_PROFILE_NOTE_BYTES], directory[4096], *path = NULL;
    sl_machine found;
    sl_profile own;
    assert_non_null(getcwd(directory, sizeof directory));
    setenv("XDG_CONFIG_HOME", directory, 1);
    save_four(1e12, 1e11);
    sl_profile_init(&own, &five);
    own.machine.op_seconds = 0.125;
    own.is_quick = true;
    assert_int_equal(sl_profile_find_path(SL_DEVICE_CPU, sl_workers_usable_cpu_count(), &path),
                     SL_OK);
    assert_non_null(strstr(path, "/sluice/machine.json"));
    free(path);
    assert_int_equal(sl_profile_find_path(SL_DEVICE_CPU, 5, &path), SL_OK);
    assert_non_null(strstr(path, "/sluice/machine-5.json"));
    assert_int_equal(sl_profile_save(&own, path, NULL), SL_OK);
    assert_int_equal(sl_profile_find_machine(NULL, &five, &found, note), SL_OK);
    assert_true(found.op_seconds == 0.125 && !found.is_scaled && found.is_quick);
    assert_non_null(strstr(found.name, "cpu, 5 workers, quick bench"));
    assert_string_equal(sl_machine_basis(&found), "a quick bench");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink("sluice/machine.json"), 0);
    free(path);
}

static void profile_when_named_and_foreign_then_used_and_noted(void **state)
{
    (void)state;
    sl_profile profile;
    sl_machine found;
    char note[SL_PROFILE_NOTE_BYTES];
    sl_profile_init(&profile, &(sl_profile_subject){.worker_count = 64});
    snprintf(profile.cpu, sizeof profile.cpu, "Z80");
    assert_int_equal(sl_profile_save(&profile, "big.json", NULL), SL_OK);
    assert_int_equal(sl_profile_find_machine("big.json", &here, &found, note), SL_OK);
    assert_true(found.is_measured && found.core_count == 64);
    assert_non_null(strstr(note, "another processor (Z80"));
}

/* ---- of a GPU ---- */

static const sl_device_info gpu = {.name = "Some GPU", .multiprocessor_count = 66};
static const sl_profile_subject there = {SL_DEVICE_CUDA, WORKERS, &gpu};

static void gpu_when_saved_then_comes_back_with_its_name_and_shares_no_cores(void **state)
{
    (void)state;
    sl_profile saved, loaded;
    sl_profile_init(&saved, &there);
    assert_false(saved.machine.shares_cores);
    fill_machine(&saved.machine);
    assert_int_equal(sl_profile_save(&saved, "gpu.json", NULL), SL_OK);
    assert_int_equal(sl_profile_load("gpu.json", &loaded), SL_OK);
    assert_int_equal(loaded.device, SL_DEVICE_CUDA);
    assert_string_equal(loaded.gpu, "Some GPU");
    assert_false(loaded.machine.shares_cores);
    assert_memory_equal(saved.machine.op, loaded.machine.op, sizeof saved.machine.op);
    assert_non_null(strstr(loaded.machine.name, "Some GPU, measured"));
    assert_int_equal(sl_profile_check(&loaded, &there), SL_OK);
}

static void profile_when_of_another_kind_of_device_then_never_used(void **state)
{
    (void)state;
    sl_profile cpu, cuda;
    sl_machine found;
    char note[SL_PROFILE_NOTE_BYTES], directory[4096], *path = NULL;
    assert_non_null(getcwd(directory, sizeof directory));
    setenv("XDG_CONFIG_HOME", directory, 1);
    sl_profile_init(&cpu, &here);
    save_default(&cpu);
    assert_int_equal(sl_profile_find_machine(NULL, &there, &found, note), SL_OK);
    assert_false(found.is_measured);
    assert_int_equal(sl_profile_find_machine("sluice/machine.json", &there, &found, note),
                     SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "device cpu, not cuda"));

    sl_profile_init(&cuda, &there);
    assert_int_equal(sl_profile_find_path(SL_DEVICE_CUDA, 0, &path), SL_OK);
    assert_non_null(strstr(path, "/sluice/machine-cuda.json"));
    assert_int_equal(sl_profile_save(&cuda, path, NULL), SL_OK);
    free(path);
    assert_int_equal(sl_profile_find_machine(NULL, &there, &found, note), SL_OK);
    assert_true(found.is_measured && !found.shares_cores);
    assert_int_equal(sl_profile_find_machine(NULL, &here, &found, note), SL_OK);
    assert_true(found.is_measured && found.shares_cores);
}

static void gpu_when_another_one_or_none_is_here_then_a_guess_with_a_reason(void **state)
{
    (void)state;
    sl_profile profile;
    sl_machine found;
    char note[SL_PROFILE_NOTE_BYTES];
    const sl_device_info other = {.name = "Other GPU", .multiprocessor_count = 33};
    const sl_profile_subject elsewhere = {SL_DEVICE_CUDA, WORKERS, &other};
    const sl_profile_subject nowhere = {SL_DEVICE_CUDA, WORKERS, NULL};
    sl_profile_init(&profile, &there); /* the default file is of Some GPU */
    assert_int_equal(sl_profile_find_machine(NULL, &elsewhere, &found, note), SL_OK);
    assert_false(found.is_measured);
    assert_non_null(strstr(note, "Some GPU; here is Other GPU"));
    assert_true(2 * found.op[SL_OP_LINEAR][SL_TYPE_BF16].flop_rate ==
                profile.machine.op[SL_OP_LINEAR][SL_TYPE_BF16].flop_rate);
    assert_int_equal(sl_profile_find_machine(NULL, &nowhere, &found, note), SL_OK);
    assert_false(found.is_measured);
    assert_int_equal(sl_profile_find_machine("gpu.json", &nowhere, &found, note), SL_OK);
    assert_true(found.is_measured);
    assert_non_null(strstr(note, "here is none"));
}

/* However few workers a rank has: host memory is the machine's. */
static void host_memory_when_guessed_then_shared_among_the_ranks_of_a_machine(void **state)
{
    (void)state;
    sl_machine alone, shared;
    char note[SL_PROFILE_NOTE_BYTES];
    const sl_profile_subject one = {.device = SL_DEVICE_CUDA, .worker_count = 4};
    const sl_profile_subject four = {.device = SL_DEVICE_CUDA, .worker_count = 4, .rank_count = 4};
    setenv("XDG_CONFIG_HOME", "/nowhere", 1);
    assert_int_equal(sl_profile_find_machine(NULL, &one, &alone, note), SL_OK);
    assert_int_equal(sl_profile_find_machine(NULL, &four, &shared, note), SL_OK);
    assert_true(alone.host_memory_rate > 0);
    assert_true(shared.host_memory_rate == alone.host_memory_rate / 4);
}

/* A description has its own names for rates: each has to arrive where plans look for it. */
static void description_when_named_then_plans_go_by_its_rates(void **state)
{
    (void)state;
    static const char path[] = SL_TEST_SOURCE_DIRECTORY "/../examples/machines/rtx-4090-24gb.json";
    const sl_profile_subject beside = {.device = SL_DEVICE_CUDA, .worker_count = 4};
    sl_machine found;
    char note[SL_PROFILE_NOTE_BYTES];
    assert_int_equal(sl_profile_find_machine(path, &beside, &found, note), SL_OK);
    const sl_op_rate *product = &found.op[SL_OP_LINEAR][SL_TYPE_BF16];
    assert_true(fabs(product->flop_rate / (165.15e12 * 0.541) - 1) < 1e-12);
    assert_true(fabs(product->byte_rate / (1008e9 * 0.8) - 1) < 1e-12);
    assert_true(fabs(found.copy_rate[SL_LANE_H2D] / (31.5e9 * 0.8) - 1) < 1e-12);
    assert_true(fabs(found.host_update[SL_TYPE_BF16].byte_rate / (83.2e9 * 0.75) - 1) < 1e-12);
    assert_true(found.copy_rate[SL_LANE_READ] == 7.46e9 && found.copy_rate[SL_LANE_WRITE] == 1.5e9);
    assert_true(found.core_count == 16 && !found.shares_cores && !found.is_measured);
    assert_false(sl_machine_is_guess(&found));
    assert_string_equal(sl_machine_basis(&found), "described rates");
    assert_string_equal(found.name, "RTX 4090, 24 GB, in a desktop, described");
    assert_string_equal(note, "");
    assert_int_equal(sl_profile_find_machine(path, &here, &found, note), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "--device cuda"));
    json_t *root = json_load_file(path, 0, NULL);
    assert_int_equal(json_object_del(root, "gpu"), 0);
    assert_int_equal(json_dump_file(root, "described.json", 0), 0);
    json_decref(root);
    assert_int_equal(sl_profile_find_machine("described.json", &beside, &found, note),
                     SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "\"gpu\" is missing"));
}

static void path_when_no_directory_is_absolute_then_missing(void **state)
{
    (void)state;
    char *path = NULL;
    setenv("XDG_CONFIG_HOME", "relative", 1);
    setenv("HOME", "/home/of", 1);
    assert_int_equal(sl_profile_find_path(SL_DEVICE_CPU, 0, &path), SL_OK);
    assert_string_equal(path, "/home/of/.config/sluice/machine.json");
    free(path);
    unsetenv("HOME");
    assert_int_equal(sl_profile_find_path(SL_DEVICE_CPU, 0, &path), SL_ERROR_MISSING);
}

/* ---- set-up: a directory of its own to stand in ---- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profile_when_saved_then_every_number_comes_back),
        cmocka_unit_test(update_when_not_measured_then_is_as_fast_as_adamw),
        cmocka_unit_test(update_when_of_halves_then_has_its_rate_or_that_beside_fp32),
        cmocka_unit_test(update_when_scaled_then_memory_bounds_it_at_last),
        cmocka_unit_test(profile_when_saved_again_then_replaced_and_nothing_left_behind),
        cmocka_unit_test(disk_when_not_measured_again_then_kept_of_the_same_machine_only),
        cmocka_unit_test(file_when_damaged_then_refused_by_key_and_not_used),
        cmocka_unit_test(default_profile_when_of_this_machine_then_used_else_a_guess_with_a_reason),
        cmocka_unit_test(profile_when_of_other_workers_or_ranks_then_scaled_and_named_so),
        cmocka_unit_test(profile_when_kept_for_this_number_of_workers_then_preferred),
        cmocka_unit_test(profile_when_named_and_foreign_then_used_and_noted),
        cmocka_unit_test(gpu_when_saved_then_comes_back_with_its_name_and_shares_no_cores),
        cmocka_unit_test(profile_when_of_another_kind_of_device_then_never_used),
        cmocka_unit_test(gpu_when_another_one_or_none_is_here_then_a_guess_with_a_reason),
        cmocka_unit_test(host_memory_when_guessed_then_shared_among_the_ranks_of_a_machine),
        cmocka_unit_test(description_when_named_then_plans_go_by_its_rates),
        cmocka_unit_test(path_when_no_directory_is_absolute_then_missing),
    };
    return cmocka_run_group_tests_name("profile", tests, enter_scratch, leave_scratch);
}
