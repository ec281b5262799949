/* Percentiles by sorting; the rate of an op by least squares with terms that may not be negative:
 * with three terms there are seven sets of those that are not zero, so each is solved and the best
 * that has no negative one is taken.
 *
 * Errors are relative: each sample's equation is divided by its time, so a small op counts as much
 * as a large one. Terms are scaled by their largest value, which keeps the equations well
 * conditioned; a set whose terms depend on each other (one shape alone) is passed over.
 */
#include "samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TERMS = 3, SETS = 1 << TERMS };

/* ---- percentiles ---- */

void sl_samples_add(sl_samples *samples, double value)
{
    if (samples->count < SL_SAMPLES_MAX)
        samples->values[samples->count++] = value;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

sl_percentiles sl_samples_percentiles(const sl_samples *samples)
{
    sl_samples sorted = *samples;
    const uint32_t count = sorted.count, tenth = count ? (count - 1) / 10 : 0;
    if (count == 0)
        return (sl_percentiles){0};
    qsort(sorted.values, count, sizeof sorted.values[0], compare_doubles);
    return (sl_percentiles){.median = sorted.values[count / 2],
                            .p10 = sorted.values[tenth],
                            .p90 = sorted.values[count - 1 - tenth]};
}

double sl_samples_median(const sl_samples *samples)
{
    return sl_samples_percentiles(samples).median;
}

sl_percentiles sl_samples_rate(const sl_samples *seconds, double work)
{
    sl_percentiles p = sl_samples_percentiles(seconds);
    return (sl_percentiles){.median = work / p.median, .p10 = work / p.p90, .p90 = work / p.p10};
}

/* ---- the rate of an op ---- */

typedef struct equations {
    double a[TERMS][TERMS + 1]; /* normal equations, right-hand side last */
    int terms[TERMS];           /* that they are over */
    int count;
} equations;

static double read_term(const sl_op_sample *sample, int term)
{
    return term == 0 ? 1.0 : term == 1 ? sample->flops : sample->traffic_bytes;
}

static equations build_equations(const sl_op_sample *samples, uint32_t count, int set,
                                 const double scale[TERMS])
{
    equations s = {.count = 0};
    for (int term = 0; term < TERMS; term++)
        if (set >> term & 1 && scale[term] > 0)
            s.terms[s.count++] = term;
    for (uint32_t i = 0; i < count; i++)
        for (int row = 0; row < s.count; row++) {
            double left = read_term(&samples[i], s.terms[row]) / scale[s.terms[row]];
            left /= samples[i].seconds;
            for (int column = 0; column < s.count; column++)
                s.a[row][column] += left * read_term(&samples[i], s.terms[column]) /
                                    scale[s.terms[column]] / samples[i].seconds;
            s.a[row][s.count] += left;
        }
    return s;
}

/* Gauss with the largest pivot first; false if the terms are not independent. */
static bool solve_equations(equations *s)
{
    for (int column = 0; column < s->count; column++) {
        int pivot = column;
        double diagonal = fabs(s->a[column][column]);
        for (int row = column + 1; row < s->count; row++)
            if (fabs(s->a[row][column]) > fabs(s->a[pivot][column]))
                pivot = row;
        if (!(fabs(s->a[pivot][column]) > 1e-9 * (diagonal + 1e-300)) ||
            !(fabs(s->a[pivot][column]) > 1e-12))
            return false;
        double swapped[TERMS + 1];
        memcpy(swapped, s->a[column], sizeof swapped);
        memcpy(s->a[column], s->a[pivot], sizeof swapped);
        memcpy(s->a[pivot], swapped, sizeof swapped);
        for (int row = 0; row < s->count; row++) {
            double factor = row == column ? 0 : s->a[row][column] / s->a[column][column];
            for (int k = column; k <= s->count; k++)
                s->a[row][k] -= factor * s->a[column][k];
        }
    }
    return true;
}

static double sum_errors(const sl_op_sample *samples, uint32_t count, const double cost[TERMS])
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        double seconds = 0;
        for (int term = 0; term < TERMS; term++)
            seconds += cost[term] * read_term(&samples[i], term);
        double error = seconds / samples[i].seconds - 1;
        sum += error * error;
    }
    return sum;
}

/* Whether the samples have at least three different sizes. */
static bool has_three_sizes(const sl_op_sample *samples, uint32_t count)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count && found < 3; i++) {
        bool is_new = true;
        for (uint32_t j = 0; j < i && is_new; j++)
            is_new = samples[i].flops != samples[j].flops ||
                     samples[i].traffic_bytes != samples[j].traffic_bytes;
        found += is_new;
    }
    return found == 3;
}

sl_op_rate sl_samples_fit(const sl_op_sample *samples, uint32_t count, bool with_constant)
{
    double scale[TERMS] = {0}, best[TERMS] = {samples[0].seconds}, least = HUGE_VAL;
    for (int term = 1; term < TERMS; term++)
        for (uint32_t i = 0; i < count; i++)
            scale[term] = fmax(scale[term], read_term(&samples[i], term));
    if ((scale[1] <= 0 && scale[2] <= 0) || (with_constant && has_three_sizes(samples, count)))
        scale[0] = 1;
    if (!with_constant && scale[1] > 0)
        scale[2] = 0;
    for (int set = 1; set < SETS; set++) {
        equations s = build_equations(samples, count, set, scale);
        double cost[TERMS] = {0};
        bool holds = s.count > 0 && solve_equations(&s);
        for (int i = 0; i < s.count && holds; i++) {
            cost[s.terms[i]] = s.a[i][s.count] / s.a[i][i] / scale[s.terms[i]];
            holds = cost[s.terms[i]] >= 0;
        }
        double error = holds ? sum_errors(samples, count, cost) : HUGE_VAL;
        if (error < least * (1 - 1e-9) - 1e-15) { /* fewer terms where both are as good */
            least = error;
            memcpy(best, cost, sizeof best);
        }
    }
    return (sl_op_rate){.flop_rate = best[1] > 0 ? 1 / best[1] : 0,
                        .byte_rate = best[2] > 0 ? 1 / best[2] : 0,
                        .seconds = best[0]};
}
