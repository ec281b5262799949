/* MPI_Allreduce of fp32 numbers, in place, as `sluice bench --only comm` times its own: a barrier,
 * one call (of less than 16 MiB as many as make 16 MiB), the slowest rank's time; ROUNDS times,
 * after one call that is not timed.
 *
 * usage: mpirun -n N mpi_pair ROUNDS BYTES...; rank 0 prints a line "BYTES SECONDS" for each round.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE_BYTES = 16 << 20, CALLS_MOST = 64 };

static double time_calls(float *data, size_t bytes, int calls)
{
    double own, slowest;
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < calls; i++)
        MPI_Allreduce(MPI_IN_PLACE, data, (int)(bytes / sizeof *data), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
    own = (MPI_Wtime() - start) / calls;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static void measure(size_t bytes, int rounds, int rank)
{
    const size_t fitting = bytes < SAMPLE_BYTES ? SAMPLE_BYTES / bytes : 1;
    float *data = malloc(bytes);
    if (!data)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(data, 1, bytes); /* tiny numbers */
    (void)time_calls(data, bytes, 1);
    for (int round = 0; round < rounds; round++) {
        const double seconds =
            time_calls(data, bytes, fitting < CALLS_MOST ? (int)fitting : CALLS_MOST);
        if (rank == 0)
            printf("%zu %.9f\n", bytes, seconds);
    }
    free(data);
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 2; i < argc; i++)
        measure((size_t)strtoull(argv[i], NULL, 10), (int)strtol(argv[1], NULL, 10), rank);
    MPI_Finalize();
    return 0;
}
