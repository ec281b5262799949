/* The ranks of a run: this process's end of the world, what all of them must have in common, and
 * what they share of a machine. A process that nobody started as a rank is alone, and everything
 * here does nothing.
 *
 * In the order of a run: sl_ranks_open; sl_ranks_listen; once the options are known
 * sl_ranks_agree_on_groups and sl_ranks_divide; sl_ranks_share before a plan is searched;
 * sl_ranks_agree once it is found; the table goes to sl_runtime_open and to the saves;
 * sl_ranks_begin before the first step; sl_ranks_leave, which tells the others of a failure; and
 * sl_ranks_close after the runtime is closed.
 */
#ifndef SL_SESSION_RANKS_H
#define SL_SESSION_RANKS_H

#include <signal.h>
#include <stdatomic.h>

#include "base/hash.h"
#include "base/heartbeat.h"
#include "comm/comm.h"
#include "comm/groups.h"
#include "config/config.h"
#include "engine/engine.h"
#include "gpu_ranks.h"
#include "search/search.h"

struct sl_ranks;

/* One end of a communicator, for a table. The lane `comm` has ends of its own, split off the world:
 * one thread at a time may call one. */
typedef struct sl_ranks_end {
    struct sl_ranks *ranks;
    sl_comm *comm;
} sl_ranks_end;

typedef struct sl_ranks {
    sl_comm *world; /* NULL: this process is alone */
    sl_ranks_end end[SL_COMM_GROUP_COUNT];
    sl_comm_layout layout; /* of the groups, and this rank's place in them: of sl_ranks_divide */
    sl_comm_place place;
    sl_engine_ranks table; /* of the world; size 0: this process is alone */
    /* Of those that tensors are split over, of those with other rows, and of those with other
     * layers; size 0: there are none. */
    sl_engine_ranks tensor, data, stages;
    sl_gpu_ranks *gpus;    /* of --device cuda: these three are of its memory; else NULL */
    _Atomic uint64_t step; /* that is run */
    const volatile sig_atomic_t *asked; /* set: this rank is to end; NULL: nobody asks */
    const volatile sig_atomic_t *stop;  /* the same, as long as it ends long work; else NULL */
    bool is_at_work;                    /* sl_ranks_set_work */
    bool listens;                       /* to the signs of life of a thread */
    sl_heartbeat heard_before;          /* by that thread */
    bool has_stopped;                   /* the vote of sl_ranks_begin ended all ranks */
} sl_ranks;

/* Opens the world that the environment names and waits for its ranks, for `timeout_s` at most as
 * for everything later. SL_ERROR_RANK: one did not come. `out_ranks` is not moved afterwards. */
sl_status sl_ranks_open(double timeout_s, sl_ranks *out_ranks);

/* The same of a world of several ranks that is open already, which is taken over. */
void sl_ranks_adopt(sl_comm *world, sl_ranks *out_ranks);

/* Also of a process that is alone. From now on the signs of life of the calling thread
 * (base/heartbeat.h) count as progress of this rank. Until sl_ranks_begin a set *stop ends the
 * thread's long work with SL_ERROR_STOPPED; with ranks on several machines it only counts as this
 * rank's vote in sl_ranks_begin. `stop` may be NULL; it is borrowed until sl_ranks_begin or
 * sl_ranks_close, whose thread is this one. */
void sl_ranks_listen(sl_ranks *ranks, const volatile sig_atomic_t *stop);

/* For a thread that calls from outside: listens during the call, as sl_ranks_listen does, and no
 * longer. The same thread ends what it began. */
void sl_ranks_hear(sl_ranks *ranks);
void sl_ranks_unhear(sl_ranks *ranks);

/* The vote before the first step: SL_ERROR_STOPPED on all ranks if *stop of sl_ranks_listen is set
 * on one of them. Blocks until all ranks have come. */
sl_status sl_ranks_begin(sl_ranks *ranks);

/* Whether `is_asked` is true on one of the ranks: all ranks call this together, and get the same
 * answer. Blocks until all have come. */
sl_status sl_ranks_vote(const sl_ranks *ranks, bool is_asked, bool *out_is_asked);

/* Waits until all ranks have come, and for a rank that works as long as it makes progress. `op` is
 * what messages of other ranks say that this rank does meanwhile. */
sl_status sl_ranks_meet(const sl_ranks *ranks, const char *op);

/* How long to wait without progress: as long as `timeout_s`, and ten steps. */
double sl_ranks_find_patience(double timeout_s, double step_seconds);

/* From now on others are waited for so long. */
void sl_ranks_set_patience(const sl_ranks *ranks, double seconds);

/* While the thread that listens does work between the steps that may take long, such as a save: the
 * others wait for this rank as long as its process lives, and the work ends when another rank is
 * lost. So it is from sl_ranks_listen to sl_ranks_begin, too. */
void sl_ranks_set_work(sl_ranks *ranks, bool is_at_work);

/* How long a rank's process may give no sign of life. */
void sl_ranks_set_heartbeat(const sl_ranks *ranks, double seconds);

/* What messages of other ranks say of this one from now on. */
void sl_ranks_begin_step(sl_ranks *ranks, uint64_t step);

/* Unless `status` is SL_OK, tells the others that this rank has failed, or ends before the first
 * step (SL_ERROR_STOPPED): all waits end then, also those of exchanges under way. */
void sl_ranks_leave(sl_ranks *ranks, sl_status status);

/* To be called when no exchange is on its way, so when the runtime is closed; by the thread that
 * listens. */
void sl_ranks_close(sl_ranks *ranks);

/* True of rank 0 and of a process that is alone: it tells and writes what all have done. */
static inline bool sl_ranks_is_first(const sl_ranks *ranks)
{
    return ranks->table.rank == 0;
}

/* What ranks exchange through the memory of hosts, whatever their devices are. */
sl_engine_ranks sl_ranks_make_table(sl_ranks_end *end);

/* One of the tables, as the engine takes it; NULL: there are none of this kind. */
static inline const sl_engine_ranks *sl_ranks_others(const sl_engine_ranks *table)
{
    return table->size > 0 ? table : NULL;
}

/* Before groups are formed or chosen: ranks that form others than the rest would exchange what
 * nobody else does. SL_ERROR_USAGE names the option that differs. */
sl_status sl_ranks_agree_on_groups(const sl_ranks *ranks, const sl_config *config);

/* Makes the numbers of the first rank those of all: numbers [count], others in the end. */
sl_status sl_ranks_take_first(const sl_ranks *ranks, uint64_t *numbers, uint32_t count);

/* Forms the groups that the options ask for, and fills in --dp. SL_ERROR_USAGE: they ask for
 * another number of ranks than there are, or of GPUs; other failures: as of gpu_ranks.h. */
sl_status sl_ranks_divide(sl_ranks *ranks, sl_config *config);

/* Closes the groups; sl_ranks_divide may form them anew. To be called when no exchange is under
 * way. */
void sl_ranks_unite(sl_ranks *ranks);

/* Plans for as many ranks as the checked options say, of which none is there: all are to be on this
 * machine. */
void sl_ranks_plan(sl_ranks *ranks, const sl_config *config);

/* Sets --threads, where it was not given, to what each of them would find. */
sl_status sl_ranks_plan_cores(sl_config *config);

/* Sets --threads, where it was not given, to this rank's share of its machine's cores, and which
 * GPU is its; says so where ranks are bound to few cores. */
sl_status sl_ranks_share_cores(const sl_ranks *ranks, sl_config *config);

/* Makes a search that of this rank: its place among the groups; what is free, less the windows of
 * the communicators, is shared among the ranks of a machine, and all plan with what the poorest of
 * them has. */
sl_status sl_ranks_share(const sl_ranks *ranks, sl_search *search);

/* Which rank does something once for all ranks of its machine that give the same key: the first of
 * them. All ranks call it. */
sl_status sl_ranks_choose_one(const sl_ranks *ranks, sl_hash_value key, uint32_t *out_rank);

/* All ranks call it, each with a text of its own or none (0 bytes), and get that of rank `from`;
 * the caller frees it. */
sl_status sl_ranks_give_text(const sl_ranks *ranks, const char *text, uint64_t bytes, uint32_t from,
                             char **out_text, uint64_t *out_bytes);

/* To be called by all ranks after a load, with its status. Returns SL_ERROR_DAMAGED on all ranks if
 * one of them found damage, whose message the others name; else returns `status`. A rank with
 * another failure returns at once, and the others wait until it calls sl_ranks_leave. */
sl_status sl_ranks_agree_on_damage(const sl_ranks *ranks, sl_status status);

/* Likewise of SL_ERROR_FIT, after a plan was searched for or its memory was taken, and of
 * SL_ERROR_USAGE, after settings were read. */
sl_status sl_ranks_agree_on_fit(const sl_ranks *ranks, sl_status status);
sl_status sl_ranks_agree_on_usage(const sl_ranks *ranks, sl_status status);

/* Refuses ranks that differ in one of the facts, naming it: SL_ERROR_USAGE on all of them. Ranks
 * may have other names or another number of facts, if an earlier fact then differs too. */
sl_status sl_ranks_agree_on(const sl_ranks *ranks, const sl_comm_fact *facts, uint32_t count);

/* What sl_ranks_agree compares beside the build and the instruction set. */
typedef struct sl_ranks_work {
    const sl_blueprint *blueprint;
    const sl_config *config;
    sl_config_command command; /* whose options are compared */
    const char *position;      /* where the run begins */
} sl_ranks_work;

/* Refuses ranks of different builds, instruction sets, options or plans, naming what differs. */
sl_status sl_ranks_agree(const sl_ranks *ranks, const sl_ranks_work *work);

#endif
