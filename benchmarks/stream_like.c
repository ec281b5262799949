/* Scale and triad in the way of the STREAM benchmark (J. McCalpin): doubles, static shares of
 * OpenMP, bytes counted as read and written. A program of its own beside `sluice bench`: it shares
 * no line with it. Prints a line of JSON: the median and the best of the repetitions.
 *
 * cc -O3 -fopenmp stream_like.c -o stream_like && ./stream_like MIB_OF_AN_ARRAY REPETITIONS */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { REPETITIONS_MAX = 1000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double *open_array(size_t bytes)
{
    double *array = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (array == MAP_FAILED)
        exit(1);
    madvise(array, bytes, MADV_HUGEPAGE);
    return array;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 64;
    const size_t bytes = strtoull(argv[1], NULL, 10) << 20;
    const long count = (long)(bytes / sizeof(double)), wanted = strtol(argv[2], NULL, 10);
    const int repetitions = wanted < 1                 ? 1
                            : wanted > REPETITIONS_MAX ? REPETITIONS_MAX
                                                       : (int)wanted;
    static double seconds[2][REPETITIONS_MAX];
    double *restrict a = open_array(bytes), *restrict b = open_array(bytes);
    double *restrict c = open_array(bytes);
#pragma omp parallel for schedule(static)
    for (long i = 0; i < count; i++) {
        a[i] = 1;
        b[i] = 2;
        c[i] = 0.5;
    }
    for (int k = -1; k < repetitions; k++) { /* the first one warms up */
        double start = now();
#pragma omp parallel for schedule(static)
        for (long i = 0; i < count; i++)
            b[i] = 0.5 * c[i];
        double between = now();
#pragma omp parallel for schedule(static)
        for (long i = 0; i < count; i++)
            a[i] = b[i] + 0.5 * c[i];
        seconds[0][k < 0 ? 0 : k] = between - start;
        seconds[1][k < 0 ? 0 : k] = now() - between;
    }
    printf("{\"check\": %g", a[count / 2]);
    for (int loop = 0; loop < 2; loop++) {
        qsort(seconds[loop], (size_t)repetitions, sizeof seconds[0][0], ascending);
        const double moved = (loop == 0 ? 2.0 : 3.0) * (double)bytes;
        printf(", \"%s\": %.0f, \"%s_best\": %.0f", loop == 0 ? "scale" : "triad",
               moved / seconds[loop][repetitions / 2], loop == 0 ? "scale" : "triad",
               moved / seconds[loop][0]);
    }
    puts("}");
    return 0;
}
