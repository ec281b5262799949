/* Checkpoints and power failures. What could be wrong: something is renamed, named by LATEST or
 * deleted before what it stands on is durable; then nothing goes wrong until the power does. Saves
 * are recorded (crash_model.h), and at every prefix of the calls the states that the disk may hold
 * are made and judged:
 *
 *   whatever is called step-N is whole, and one of the checkpoints that were saved;
 *   the newest that is found is not older than the last save that said that all was well;
 *   LATEST, if it is there, names one that is whole;
 *   and (of some) the next save works, is found, and leaves nothing behind.
 *
 * That the judge would notice: broken protocols, made by changing the trace, are each found. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sys/wait.h>

#include "checkpoint_case.h"
#include "crash_model.h"
#include "sanitizer_share.h"
#include "sluice/log.h"

enum { MANIFESTS_MAX = 16, MANIFEST_BYTES = 4096, SEEN_SLOTS = 1 << 18, RECOVERS_EVERY = 16 };

static crash_trace *trace, *broken;
static crash_state state_now;
static scratch_path work;
static uint64_t draws;

/* ---- recording ---- */

static uint32_t saves; /* recorded so far */

/* One save below the recorded directory, as save number `saves`. */
static sl_status record_save(uint64_t step, uint32_t keep)
{
    scratch_path directory = scratch_join(work.text, "made/checkpoints");
    saves++;
    crash_add(CRASH_BEGIN, 0)->target = saves;
    faults.calls = 0;
    faults.listen = crash_listen;
    faults.armed = 1;
    sl_status status = case_save(directory.text, step, keep, saves);
    faults.armed = 0;
    if (status == SL_OK)
        crash_add(CRASH_RETURN, 0)->target = saves;
    return status;
}

/* A save whose process is killed before call number `call`; 0: where `faults` says. */
static void record_killed_save(uint64_t step, uint32_t keep, uint64_t call)
{
    int result;
    pid_t child = fork();
    scratch_need(child >= 0, "fork");
    if (child == 0) {
        faults.first = call;
        faults.kind = FAULT_DIE;
        record_save(step, keep);
        _exit(0);
    }
    scratch_need(waitpid(child, &result, 0) == child, "waitpid");
    saves++;
}

/* A save in which one call fails. */
static void record_failed_save(uint64_t step, uint32_t keep, uint64_t call)
{
    faults.first = call;
    faults.kind = EIO;
    record_save(step, keep);
    faults.first = 0;
}

static void must_save(uint64_t step, uint32_t keep)
{
    if (record_save(step, keep) != SL_OK)
        fail_msg("%s", sl_status_message());
}

static void record_first(uint64_t draw)
{
    (void)draw;
    must_save(3, 1);
}

static void record_new(uint64_t draw)
{
    (void)draw;
    must_save(3, 1);
    must_save(7, 1);
}

static void record_again(uint64_t draw)
{
    (void)draw;
    must_save(7, 1);
    must_save(7, 1);
}

static void record_again_in_two(uint64_t draw)
{
    faults.plain_renames = 1;
    record_again(draw);
    must_save(8, 1);
}

static void record_kept(uint64_t draw)
{
    (void)draw;
    for (uint64_t step = 1; step <= 5; step++)
        must_save(step, 2);
}

enum { CALLS_OF_A_SAVE = 170 }; /* about; later ones are not reached */

static void record_after_kill(uint64_t draw)
{
    must_save(3, 1);
    record_killed_save(7, 1, 1 + draw % CALLS_OF_A_SAVE);
    must_save(draw / CALLS_OF_A_SAVE % 2 ? 7 : 8, 1);
}

static void record_after_kill_in_two(uint64_t draw)
{
    faults.plain_renames = 1;
    must_save(7, 1);
    record_killed_save(7, 1, 1 + draw % CALLS_OF_A_SAVE);
    must_save(draw / CALLS_OF_A_SAVE % 2 ? 7 : 8, 1);
}

static void record_after_kill_of_first(uint64_t draw)
{
    record_killed_save(3, 1, 1 + draw % CALLS_OF_A_SAVE);
    must_save(7, 1);
}

/* Between the making of the directory of checkpoints and its sync into its parent. */
static void record_after_kill_at_start(uint64_t draw)
{
    record_killed_save(3, 1, 2 + draw % 2);
    must_save(7, 1);
}

/* Between the two renames that replace a step where names cannot be exchanged. */
static void record_after_kill_of_exchange(uint64_t draw)
{
    faults.plain_renames = 1;
    must_save(7, 1);
    faults.die_after = ".old-";
    record_killed_save(7, 1, 0);
    faults.die_after = NULL;
    must_save(7 + draw % 2, 1);
}

static void record_after_failure(uint64_t draw)
{
    must_save(7, 1);
    record_failed_save(7, 1, 1 + draw % CALLS_OF_A_SAVE);
    must_save(8, 1);
}

typedef struct crash_scenario {
    const char *name;
    void (*record)(uint64_t draw);
    int is_drawn; /* differs from draw to draw */
} crash_scenario;

static const crash_scenario scenarios[] = {
    {"first", record_first, 0},
    {"new", record_new, 0},
    {"again", record_again, 0},
    {"again, plain renames", record_again_in_two, 0},
    {"two are kept", record_kept, 0},
    {"after a kill", record_after_kill, 1},
    {"after a kill, plain renames", record_after_kill_in_two, 1},
    {"after a kill of the first", record_after_kill_of_first, 1},
    {"after a kill at the start", record_after_kill_at_start, 0},
    {"after a kill between two renames", record_after_kill_of_exchange, 0},
    {"after a failure", record_after_failure, 1},
};

enum { SCENARIO_COUNT = sizeof scenarios / sizeof scenarios[0] };

static void record(const crash_scenario *scenario, uint64_t draw)
{
    scratch_path made = scratch_join(work.text, "made");
    faults = (fault_plan){0};
    saves = 0;
    scratch_need(mkdir(made.text, 0700) == 0, made.text);
    crash_record(trace, made.text);
    scenario->record(draw);
    faults = (fault_plan){0};
    scratch_close(&made);
}

/* ---- judging ---- */

/* The manifests that were written, and by which save. */
static struct {
    char text[MANIFEST_BYTES];
    uint32_t save;
} manifests[MANIFESTS_MAX];
static uint32_t manifest_count;

static void list_manifests(void)
{
    static crash_choice all[CRASH_OPS_MAX];
    static unsigned char text[CRASH_FILE_BYTES];
    uint32_t save = 0;
    manifest_count = 0;
    for (uint32_t i = 0; i < trace->op_count; i++)
        all[i] = (crash_choice){.fate = CRASH_KEPT};
    for (uint32_t i = 0; i < trace->op_count; i++) {
        const crash_op *op = &trace->ops[i];
        if (op->kind == CRASH_BEGIN)
            save = op->target;
        if (op->kind != CRASH_BIND || strcmp(op->name, "manifest.json") != 0)
            continue;
        uint64_t bytes = crash_read_file(trace, trace->op_count, all, op->target, text);
        scratch_need(manifest_count < MANIFESTS_MAX && bytes < MANIFEST_BYTES, "manifests");
        manifests[manifest_count].save = save;
        memcpy(manifests[manifest_count].text, text, bytes);
        manifests[manifest_count++].text[bytes] = '\0';
    }
}

/* The save whose content an open, so checked, checkpoint is; 0: no save's. */
static uint32_t find_save(const sl_checkpoint *checkpoint)
{
    size_t bytes;
    scratch_path path = scratch_join(sl_checkpoint_describe(checkpoint)->path, "manifest.json");
    char *text = scratch_read(path.text, &bytes);
    uint32_t found = 0;
    for (uint32_t i = 0; i < manifest_count; i++)
        if (strcmp(manifests[i].text, text) == 0)
            found = manifests[i].save;
    free(text);
    return found;
}

/* The number of the last save that had returned before `end`. */
static uint32_t find_returned(const crash_trace *of, uint32_t end)
{
    uint32_t save = 0;
    for (uint32_t i = 0; i < end; i++)
        if (of->ops[i].kind == CRASH_RETURN)
            save = of->ops[i].target;
    return save;
}

static bool is_whole(const char *directory, const char *name)
{
    sl_checkpoint *checkpoint = NULL;
    if (sl_checkpoint_open(scratch_join(directory, name).text, &checkpoint) != SL_OK)
        return false;
    bool is_known = find_save(checkpoint) > 0;
    sl_checkpoint_close(checkpoint);
    return is_known;
}

static bool are_all_whole(const char *directory)
{
    bool all = true;
    DIR *stream = opendir(directory);
    if (!stream)
        return true;
    for (struct dirent *entry; all && (entry = readdir(stream)) != NULL;)
        if (strncmp(entry->d_name, "step-", 5) == 0 &&
            strspn(entry->d_name + 5, "0123456789") == 8 && entry->d_name[13] == '\0')
            all = is_whole(directory, entry->d_name);
    closedir(stream);
    return all;
}

/* Also where names cannot be exchanged and another one stands for it for a moment. */
static bool is_named_whole(const char *directory, const char *name)
{
    bool found = scratch_exists(scratch_join(directory, name).text) && is_whole(directory, name);
    DIR *stream = opendir(directory);
    for (struct dirent *entry; !found && (entry = readdir(stream)) != NULL;)
        found = strncmp(entry->d_name, name, 13) == 0 &&
                strncmp(entry->d_name + 13, ".old-", 5) == 0 && is_whole(directory, entry->d_name);
    closedir(stream);
    return found;
}

static bool is_latest_right(const char *directory)
{
    size_t bytes;
    scratch_path path = scratch_join(directory, "LATEST");
    if (!scratch_exists(path.text))
        return true;
    char *line = scratch_read(path.text, &bytes);
    bool is_right = bytes == 14 && line[13] == '\n';
    line[is_right ? 13 : 0] = '\0';
    is_right = is_right && is_named_whole(directory, line);
    free(line);
    return is_right;
}

/* The next save works and leaves itself and LATEST alone. */
static bool is_recovered(const char *directory)
{
    static const uint64_t contents[] = {99};
    return case_save(directory, 50, 1, 99) == SL_OK && case_newest(directory, contents, 1) == 50 &&
           case_count(directory, "") == 2;
}

/* What is wrong with the state that was made, or NULL. */
static const char *judge(const char *directory, uint32_t returned, bool recovers)
{
    sl_checkpoint *checkpoint = NULL;
    sl_status status = sl_checkpoint_find_newest(directory, &checkpoint);
    uint32_t found = status == SL_OK ? find_save(checkpoint) : 0;
    if (status == SL_OK)
        sl_checkpoint_close(checkpoint);
    if (status != SL_OK && status != SL_ERROR_MISSING)
        return "reading fails";
    if (status == SL_OK && found == 0)
        return "the newest was never saved";
    if (found < returned)
        return found ? "the newest is too old" : "there is none";
    if (!are_all_whole(directory))
        return "one of that name is not whole";
    if (!is_latest_right(directory))
        return "LATEST names what is not there";
    return recovers && !is_recovered(directory) ? "the next save fails or leaves remains" : NULL;
}

/* ---- states ---- */

static uint64_t seen[SEEN_SLOTS];
static uint64_t seen_count;

static bool add_seen(uint64_t hash)
{
    uint64_t slot = hash % SEEN_SLOTS;
    hash |= 1;
    scratch_need(seen_count < SEEN_SLOTS / 2, "too many states");
    while (seen[slot] != 0 && seen[slot] != hash)
        slot = (slot + 1) % SEEN_SLOTS;
    if (seen[slot] == hash)
        return false;
    seen[slot] = hash;
    seen_count++;
    return true;
}

static void forget_seen(void)
{
    memset(seen, 0, sizeof seen);
    seen_count = 0;
}

static crash_choice tear(void)
{
    return (crash_choice){.fate = scratch_below(&draws, 2) ? CRASH_TORN_TAIL : CRASH_TORN_HOLES,
                          .unit = scratch_below(&draws, 2) ? 512 : 4096,
                          .draw = scratch_draw(&draws) >> 8};
}

enum { SUBSETS_OF_MAX = 6 };

/* Of few unsynced calls every subset is tried, of many these: all lost, none lost, and drawn. */
static uint64_t count_tries(const crash_trace *of, uint32_t end, uint64_t variants)
{
    static uint32_t unsynced[CRASH_OPS_MAX];
    uint32_t count = crash_list_unsynced(of, end, unsynced);
    uint64_t subsets = count <= SUBSETS_OF_MAX ? 1ull << count : 0;
    return subsets > variants ? subsets : variants;
}

/* Drawn: one lost, one kept, the first ones kept and the next torn, or each by a share. */
static void choose(const crash_trace *of, uint32_t end, uint64_t variant, crash_choice *choices)
{
    static uint32_t unsynced[CRASH_OPS_MAX];
    uint32_t count = crash_list_unsynced(of, end, unsynced);
    bool is_subset = count <= SUBSETS_OF_MAX && variant < 1ull << count;
    uint64_t way = is_subset ? 6 : variant < 2 ? variant : 2 + scratch_below(&draws, 4);
    uint32_t one = count ? (uint32_t)scratch_below(&draws, count) : 0;
    uint64_t share = 1 + scratch_below(&draws, 9);
    for (uint32_t i = 0; i < end; i++)
        choices[i] = (crash_choice){.fate = CRASH_KEPT};
    for (uint32_t i = 0; i < count; i++) {
        crash_choice *choice = &choices[unsynced[i]];
        bool is_kept = way == 1 || (way == 2 && i != one) || (way == 3 && i == one) ||
                       (way == 4 && i < one) || (way == 5 && scratch_below(&draws, 10) < share) ||
                       (way == 6 && (variant >> i & 1));
        choice->fate = is_kept ? CRASH_KEPT : CRASH_DROPPED;
        bool may_tear = of->ops[unsynced[i]].kind == CRASH_WRITE;
        if (may_tear && ((way == 4 && i == one) || (way == 5 && scratch_below(&draws, 4) == 0)))
            *choice = tear();
    }
}

/* Makes one state of the disk and judges it; NULL also if it was seen before. */
static const char *try_state(const crash_trace *of, uint32_t end, uint64_t variant)
{
    static crash_choice choices[CRASH_OPS_MAX];
    uint32_t returned = find_returned(of, end);
    choose(of, end, variant, choices);
    crash_build(of, end, choices, &state_now);
    if (!add_seen(crash_hash(&state_now) + 2 * returned))
        return NULL;
    scratch_path disk = scratch_join(work.text, "disk");
    scratch_need(mkdir(disk.text, 0700) == 0, disk.text);
    crash_write(&state_now, disk.text);
    const char *wrong = judge(scratch_join(disk.text, "checkpoints").text, returned,
                              seen_count % RECOVERS_EVERY == 0);
    scratch_close(&disk);
    return wrong;
}

/* All prefixes, `variants` tries or more at each; the first state that is wrong, or NULL. */
static const char *try_prefixes(const crash_trace *of, uint64_t variants, uint32_t *out_end)
{
    const char *wrong = NULL;
    for (uint32_t end = 0; !wrong && end <= of->op_count; end++) {
        uint64_t tries = count_tries(of, end, variants);
        for (uint64_t variant = 0; !wrong && variant < tries; variant++)
            wrong = try_state(of, end, variant);
        *out_end = end;
    }
    return wrong;
}

/* ---- tests ---- */

static void states_when_power_fails_anywhere_then_newest_is_whole(void **state)
{
    (void)state;
    draws = scratch_seed("power", 12) * 2685821657736338717ull + 1;
    const uint64_t goal = scratch_count(sanitizer_share(2000), 50000),
                   variants = scratch_count(2, 24);
    uint64_t prefixes = 0, states = 0;
    for (uint64_t round = 0; states < goal; round++) {
        for (int i = 0; i < SCENARIO_COUNT; i++) {
            uint32_t end = 0;
            uint64_t draw = scratch_draw(&draws) >> 16;
            if (round > 0 && !scenarios[i].is_drawn)
                continue;
            record(&scenarios[i], draw);
            list_manifests();
            const char *wrong = try_prefixes(trace, variants, &end);
            if (wrong)
                fail_msg("%s, draw %llu, after %u of %u calls: %s", scenarios[i].name,
                         (unsigned long long)draw, end, trace->op_count, wrong);
            prefixes += trace->op_count + 1;
            states += seen_count;
            forget_seen();
        }
    }
    printf("%llu states after %llu prefixes of calls\n", (unsigned long long)states,
           (unsigned long long)prefixes);
}

/* ---- broken protocols ---- */

static uint32_t find_op(uint32_t from, crash_kind kind, const char *name)
{
    for (uint32_t i = from; i < broken->op_count; i++) {
        const crash_op *op = &broken->ops[i];
        const char *is_called = kind == CRASH_RENAME ? op->to : op->name;
        if (op->kind == kind && strncmp(is_called, name, strlen(name)) == 0)
            return i;
    }
    fail_msg("the trace has no %s", name);
    return 0;
}

static uint32_t find_sync(uint32_t from, uint32_t node)
{
    while (from < broken->op_count &&
           (broken->ops[from].kind != CRASH_SYNC || broken->ops[from].node != node))
        from++;
    assert_true(from < broken->op_count);
    return from;
}

static void drop_op(uint32_t index)
{
    memmove(&broken->ops[index], &broken->ops[index + 1],
            (--broken->op_count - index) * sizeof broken->ops[0]);
}

static void move_op(uint32_t from, uint32_t to)
{
    crash_op moved = broken->ops[from];
    drop_op(from);
    memmove(&broken->ops[to + 1], &broken->ops[to],
            (broken->op_count++ - to) * sizeof broken->ops[0]);
    broken->ops[to] = moved;
}

/* Of the last save: where it begins and publishes, and the directory of its checkpoints. */
static uint32_t begin, published, parent;

static void drop_syncs(uint32_t from, uint32_t node)
{
    for (uint32_t i = from; i < broken->op_count; i++)
        if (broken->ops[i].kind == CRASH_SYNC && broken->ops[i].node == node)
            drop_op(i--);
}

static void drop_syncs_of_file(const char *name)
{
    drop_syncs(begin, broken->ops[find_op(begin, CRASH_BIND, name)].target);
}

static void break_tensors_unsynced(void)
{
    drop_syncs_of_file("moment1.safetensors");
}

static void break_manifest_unsynced(void)
{
    drop_syncs_of_file("manifest.json");
}

static void break_temporary_unsynced(void)
{
    drop_syncs_of_file("step-00000007.tmp-");
}

static void break_latest_before_sync(void)
{
    drop_op(find_sync(published, parent));
}

static void break_parent_unsynced(void)
{
    drop_syncs(published, parent);
}

static void break_checkpoints_unsynced(void)
{
    drop_syncs(0, 0);
}

static void break_latest_first(void)
{
    uint32_t first = find_op(published, CRASH_BIND, "LATEST.tmp");
    uint32_t last = find_op(first, CRASH_RENAME, "LATEST");
    for (uint32_t i = 0; i <= last - first; i++)
        move_op(first + i, published + i);
}

static void break_latest_in_place(void)
{
    uint32_t first = find_op(published, CRASH_BIND, "LATEST.tmp");
    uint32_t old = broken->ops[find_op(0, CRASH_BIND, "LATEST.tmp")].target;
    uint32_t fresh = broken->ops[first].target;
    drop_op(find_op(first, CRASH_RENAME, "LATEST"));
    broken->ops[first] = (crash_op){.kind = CRASH_CUT, .node = old};
    for (uint32_t i = first; i < broken->op_count; i++)
        if (broken->ops[i].node == fresh)
            broken->ops[i].node = old;
}

static void break_old_deleted_early(void)
{
    uint32_t first = find_op(published, CRASH_RENAME, ".trash-");
    uint32_t last = find_op(first, CRASH_UNBIND, ".trash-");
    for (uint32_t i = 0; i <= last - first; i++)
        move_op(first + i, published + i);
}

static void break_old_deleted_before_sync(void)
{
    uint32_t first = find_op(published, CRASH_RENAME, ".trash-");
    uint32_t last = find_op(first, CRASH_UNBIND, ".trash-");
    for (uint32_t i = 0; i <= last - first; i++)
        move_op(first + i, published + 1 + i);
}

static void break_old_deleted_under_its_name(void)
{
    drop_op(find_op(published, CRASH_RENAME, ".trash-"));
}

static void break_trash_unsynced(void)
{
    drop_op(find_sync(find_op(published, CRASH_RENAME, ".trash-"), parent));
}

static void break_renamed_before_synced(void)
{
    uint32_t files = find_op(begin, CRASH_BIND, "config.json");
    move_op(published, find_sync(files, broken->ops[files].target));
}

/* No temporary name, and the manifest is there before the tensors. */
static void break_in_place(void)
{
    uint32_t made = find_op(begin, CRASH_BIND, "step-00000007.tmp-");
    uint32_t manifest = find_op(begin, CRASH_BIND, "manifest.json");
    uint32_t node = broken->ops[manifest].target, to = made + 1;
    drop_op(published);
    snprintf(broken->ops[made].name, CRASH_NAME_BYTES, "step-00000007");
    for (uint32_t i = to; i < broken->op_count; i++)
        if (broken->ops[i].node == node || i == manifest)
            move_op(i, to++);
}

static const struct {
    const char *name;
    int scenario;
    void (*break_it)(void);
} protocols[] = {
    {"tensors are not synced", 1, break_tensors_unsynced},
    {"the manifest is not synced", 1, break_manifest_unsynced},
    {"the new directory is not synced", 1, break_temporary_unsynced},
    {"LATEST is replaced before the new name is durable", 1, break_latest_before_sync},
    {"the new name is never synced", 1, break_parent_unsynced},
    {"the directory of checkpoints is not synced into its parent", 0, break_checkpoints_unsynced},
    {"LATEST first", 1, break_latest_first},
    {"LATEST is written in place", 1, break_latest_in_place},
    {"the old one is deleted before the new one is there", 1, break_old_deleted_early},
    {"the old one is deleted before the new name is durable", 1, break_old_deleted_before_sync},
    {"the old one is deleted under its name", 1, break_old_deleted_under_its_name},
    {"files go before the name of the old one", 1, break_trash_unsynced},
    {"renamed before the files are synced", 1, break_renamed_before_synced},
    {"written in place, the manifest first", 1, break_in_place},
};

static void protocol_when_broken_then_found_out(void **state)
{
    (void)state;
    draws = scratch_seed("broken protocols", 13) * 2685821657736338717ull + 1;
    for (size_t i = 0; i < sizeof protocols / sizeof protocols[0]; i++) {
        uint32_t end = 0;
        record(&scenarios[protocols[i].scenario], 0);
        list_manifests();
        memcpy(broken, trace, sizeof *broken);
        for (uint32_t k = 0; k < broken->op_count; k++)
            begin = broken->ops[k].kind == CRASH_BEGIN ? k : begin;
        published = find_op(begin, CRASH_RENAME, "step-");
        parent = broken->ops[published].node;
        protocols[i].break_it();
        forget_seen();
        const char *wrong = try_prefixes(broken, scratch_count(8, 24), &end);
        printf("%s: after %u of %u calls, %s\n", protocols[i].name, end, broken->op_count,
               wrong ? wrong : "not found");
        assert_non_null(wrong);
    }
}

static void keep_quiet(void *user, sl_log_level level, const char *line)
{
    (void)level, (void)line, (void)user;
}

static int open_scratch(void **state)
{
    (void)state;
    work = scratch_open();
    trace = crash_open();
    broken = crash_open();
    sl_log_set_callback(keep_quiet, NULL);
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    sl_log_set_callback(NULL, NULL);
    crash_close(trace);
    crash_close(broken);
    forget_seen();
    faults = (fault_plan){0};
    scratch_close(&work);
    return 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scratch, close_scratch)
    const struct CMUnitTest tests[] = {
        TEST(states_when_power_fails_anywhere_then_newest_is_whole),
        TEST(protocol_when_broken_then_found_out),
    };
    return cmocka_run_group_tests_name("checkpoint_power", tests, NULL, NULL);
}
