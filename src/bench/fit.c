/* Least squares with terms that may not be negative: with three terms there are seven sets of those
 * that are not zero, so each is solved and the best that has no negative one is taken.
 *
 * Errors are relative: each sample's equation is divided by its time, so a small op counts as much
 * as a large one. Terms are scaled by their largest value, which keeps the equations well
 * conditioned; a set whose terms depend on each other (one shape alone) is passed over.
 */
#include "fit.h"

#include <math.h>
#include <string.h>

enum { TERMS = 3, SETS = 1 << TERMS };

typedef struct system {
    double a[TERMS][TERMS + 1]; /* normal equations, right-hand side last */
    int terms[TERMS];           /* that they are over */
    int count;
} system;

static double take_term(const sl_fit_sample *sample, int term)
{
    return term == 0 ? 1.0 : term == 1 ? sample->flops : sample->traffic_bytes;
}

static system build_system(const sl_fit_sample *samples, uint32_t count, int set,
                           const double scale[TERMS])
{
    system s = {.count = 0};
    for (int term = 0; term < TERMS; term++)
        if (set >> term & 1 && scale[term] > 0)
            s.terms[s.count++] = term;
    for (uint32_t i = 0; i < count; i++)
        for (int row = 0; row < s.count; row++) {
            double left = take_term(&samples[i], s.terms[row]) / scale[s.terms[row]];
            left /= samples[i].seconds;
            for (int column = 0; column < s.count; column++)
                s.a[row][column] += left * take_term(&samples[i], s.terms[column]) /
                                    scale[s.terms[column]] / samples[i].seconds;
            s.a[row][s.count] += left;
        }
    return s;
}

/* Gauss with the largest pivot first; false if the terms are not independent. */
static bool solve_system(system *s)
{
    for (int column = 0; column < s->count; column++) {
        int pivot = column;
        double whole = fabs(s->a[column][column]);
        for (int row = column + 1; row < s->count; row++)
            if (fabs(s->a[row][column]) > fabs(s->a[pivot][column]))
                pivot = row;
        if (!(fabs(s->a[pivot][column]) > 1e-9 * (whole + 1e-300)) ||
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

static double sum_errors(const sl_fit_sample *samples, uint32_t count, const double cost[TERMS])
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        double seconds = 0;
        for (int term = 0; term < TERMS; term++)
            seconds += cost[term] * take_term(&samples[i], term);
        double error = seconds / samples[i].seconds - 1;
        sum += error * error;
    }
    return sum;
}

sl_op_rate sl_fit_rate(const sl_fit_sample *samples, uint32_t count)
{
    double scale[TERMS] = {0}, best[TERMS] = {samples[0].seconds}, least = HUGE_VAL;
    for (int term = 0; term < TERMS; term++)
        for (uint32_t i = 0; i < count; i++)
            scale[term] = fmax(scale[term], take_term(&samples[i], term));
    for (int set = 1; set < SETS; set++) {
        system s = build_system(samples, count, set, scale);
        double cost[TERMS] = {0};
        bool holds = s.count > 0 && solve_system(&s);
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
