/* Reading the environment of a rank: that of `sluice launch`, of Open MPI (and of Slurm with PMIx),
 * and of MPICH and its relatives. */
#include "environment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The names by which each starter tells rank, size, and of the ranks on this machine how many there
 * are and which this one is. */
typedef struct starter {
    const char *rank, *size, *local_size, *local_rank;
    sl_comm_kind kind;
    const char *library;
} starter;

static const starter starters[] = {
    {SL_ENVIRONMENT_RANK, SL_ENVIRONMENT_SIZE, SL_ENVIRONMENT_SIZE, SL_ENVIRONMENT_RANK,
     SL_COMM_LOCAL, NULL},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", SL_COMM_MPI, "openmpi"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "MPI_LOCALRANKID", SL_COMM_MPI, "mpich"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_LOCALID",
     SL_COMM_MPI, "openmpi"}, /* --mpi=pmix; with pmi2 the row above is met first */
};

static sl_status read_number(const char *name, uint32_t least, uint32_t most, uint32_t *out_number)
{
    const char *text = getenv(name);
    char *end = NULL;
    errno = 0;
    unsigned long number = text && *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
    if (!end || *end || errno != 0 || number < least || number > most)
        SL_FAIL(SL_ERROR_USAGE, "the environment's %s is \"%s\", not a number from %u to %u", name,
                text ? text : "", least, most);
    *out_number = (uint32_t)number;
    return SL_OK;
}

/* Slurm's of several machines, "2(x3)" or "2,1", is no number, and not needed. */
static sl_status read_machine(const starter *it, sl_environment *environment)
{
    const char *local = getenv(it->local_size);
    environment->library = it->library;
    environment->machine = getenv(SL_ENVIRONMENT_MACHINE);
    environment->local_size = environment->size;
    if (environment->machine || (local && strpbrk(local, "(,")))
        environment->local_size = 0;
    else if (local)
        return read_number(it->local_size, 1, environment->size, &environment->local_size);
    return SL_OK;
}

static sl_status read_starter(const starter *it, sl_environment *environment)
{
    uint32_t file;
    SL_TRY(read_number(it->size, 1, SL_COMM_RANKS_MAX, &environment->size));
    SL_TRY(read_number(it->rank, 0, environment->size - 1, &environment->rank));
    environment->local_rank = UINT32_MAX;
    if (getenv(it->local_rank) && !getenv(SL_ENVIRONMENT_MACHINE))
        SL_TRY(read_number(it->local_rank, 0, environment->size - 1, &environment->local_rank));
    environment->kind = it->kind;
    if (it->kind == SL_COMM_MPI)
        return read_machine(it, environment);
    environment->local_size = environment->size;
    SL_TRY(read_number(SL_ENVIRONMENT_FILE, 0, INT32_MAX, &file));
    environment->file = (int)file;
    environment->input = getenv(SL_ENVIRONMENT_INPUT);
    return SL_OK;
}

sl_status sl_environment_read(sl_environment *out_environment)
{
    sl_environment environment = {.kind = SL_COMM_SELF, .size = 1, .local_size = 1, .file = -1};
    for (size_t i = 0; i < sizeof starters / sizeof starters[0]; i++) {
        if (!getenv(starters[i].rank) || !getenv(starters[i].size))
            continue;
        SL_TRY(read_starter(&starters[i], &environment));
        if (environment.kind == SL_COMM_MPI && environment.size == 1)
            environment.kind = SL_COMM_SELF;
        break;
    }
    *out_environment = environment;
    return SL_OK;
}
