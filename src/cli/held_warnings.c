/* Warnings are compared by the hashes of their texts; see held_warnings.h. */
#include "held_warnings.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "terminal.h"

enum { HELD_MAX = 8, LINE_BYTES = 1024 };

typedef struct warning_hashes {
    uint64_t items[HELD_MAX]; /* 0 behind the last */
} warning_hashes;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool compares; /* the ranks will compare */
static bool holds;    /* this rank is not the first */
static uint32_t own_rank, count;
static char lines[HELD_MAX][LINE_BYTES];
static warning_hashes own; /* of all warnings, on rank 0 of those that it has printed */

void sl_held_warnings_start(const sl_environment *environment)
{
    compares = environment->kind == SL_COMM_MPI;
    own_rank = environment->rank;
    holds = compares && own_rank > 0;
}

bool sl_held_warnings_take(const char *line)
{
    pthread_mutex_lock(&lock);
    const bool has_room = compares && count < HELD_MAX;
    if (has_room) {
        snprintf(lines[count], LINE_BYTES, "%s", line);
        own.items[count] = sl_hash_64(lines[count], strlen(lines[count]));
        count++;
    }
    pthread_mutex_unlock(&lock);
    return has_room && holds;
}

/* Whether one of the first `rank_count` ranks has the warning. */
static bool is_among(const warning_hashes *all, uint32_t rank_count, uint64_t hash)
{
    for (uint32_t rank = 0; rank < rank_count; rank++)
        for (uint32_t i = 0; i < HELD_MAX; i++)
            if (all[rank].items[i] == hash)
                return true;
    return false;
}

/* Prints those that no lower rank has, and holds no more. */
static void say_held(const warning_hashes *all, uint32_t lower_count)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; holds && i < count; i++)
        if (!is_among(all, lower_count, own.items[i]))
            sl_terminal_say(SL_TERMINAL_WARNING, "rank %u: %s", own_rank, lines[i]);
    compares = holds = false;
    pthread_mutex_unlock(&lock);
}

sl_status sl_held_warnings_compare(sl_comm *world)
{
    static warning_hashes all[SL_COMM_RANKS_MAX];
    if (!world || !compares)
        return SL_OK;
    pthread_mutex_lock(&lock);
    const warning_hashes mine = own; /* one that comes during the exchange is printed */
    pthread_mutex_unlock(&lock);
    SL_TRY(sl_comm_all_gather(world, sizeof mine, &mine, all));
    say_held(all, own_rank);
    return SL_OK;
}

void sl_held_warnings_say(void)
{
    say_held(NULL, 0);
}
