/* The ops in double, as plainly as they can be written; each also gives the magnitude that its
 * rounding errors are relative to: the sum of the absolute values of the terms. A sum of n terms in
 * fp32, in any order, is off by at most n * UNIT * magnitude. */
#ifndef SL_TESTS_KERNEL_REFERENCE_H
#define SL_TESTS_KERNEL_REFERENCE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "dropout_reference.h"

static inline double reference_gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static inline double reference_gelu_slope(double x)
{
    double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

static inline double reference_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* One row; `stats` one number. */
static inline void reference_rms(const double *x, const double *gamma, uint64_t width,
                                 double epsilon, double *y, double *stats)
{
    double square = 0;
    for (uint64_t i = 0; i < width; i++)
        square += x[i] * x[i] / (double)width;
    *stats = 1 / sqrt(square + epsilon);
    for (uint64_t i = 0; i < width; i++)
        y[i] = x[i] * *stats * gamma[i];
}

/* One row; adds to dx and dgamma. */
static inline void reference_rms_backward(const double *x, const double *gamma, double stats,
                                          const double *dy, uint64_t width, double *dx,
                                          double *dgamma)
{
    double crossed = 0;
    for (uint64_t i = 0; i < width; i++)
        crossed += dy[i] * gamma[i] * x[i] * stats / (double)width;
    for (uint64_t i = 0; i < width; i++) {
        dx[i] += stats * (dy[i] * gamma[i] - x[i] * stats * crossed);
        dgamma[i] += dy[i] * x[i] * stats;
    }
}

/* One row. */
static inline void reference_norm(const double *x, const double *gamma, const double *beta,
                                  uint64_t width, double *y, double *stats)
{
    double mean = 0, variance = 0;
    for (uint64_t i = 0; i < width; i++)
        mean += x[i] / (double)width;
    for (uint64_t i = 0; i < width; i++)
        variance += (x[i] - mean) * (x[i] - mean) / (double)width;
    stats[0] = mean;
    stats[1] = 1 / sqrt(variance + 1e-5);
    for (uint64_t i = 0; i < width; i++)
        y[i] = (x[i] - mean) * stats[1] * gamma[i] + beta[i];
}

/* One row; adds to dx, dgamma and dbeta. */
static inline void reference_norm_backward(const double *x, const double *gamma, const double *dy,
                                           uint64_t width, double *dx, double *dgamma,
                                           double *dbeta)
{
    double mean = 0, variance = 0, plain = 0, crossed = 0;
    for (uint64_t i = 0; i < width; i++)
        mean += x[i] / (double)width;
    for (uint64_t i = 0; i < width; i++)
        variance += (x[i] - mean) * (x[i] - mean) / (double)width;
    double inverse = 1 / sqrt(variance + 1e-5);
    for (uint64_t i = 0; i < width; i++) {
        plain += dy[i] * gamma[i] / (double)width;
        crossed += dy[i] * gamma[i] * (x[i] - mean) * inverse / (double)width;
    }
    for (uint64_t i = 0; i < width; i++) {
        double normal = (x[i] - mean) * inverse;
        dx[i] += inverse * (dy[i] * gamma[i] - plain - normal * crossed);
        dgamma[i] += dy[i] * normal;
        dbeta[i] += dy[i];
    }
}

/* One head: q, k, v are [rows, width] with stride `stride`; query i sees keys 0 .. first + i, of
 * its document where there are positions; `drop` NULL: no weight is dropped. */
typedef struct reference_head {
    const double *q, *k, *v;
    uint64_t stride, queries, first, width;
    const int32_t *positions; /* of the row */
    const drop_call *drop;
    uint64_t row, head;
} reference_head;

static inline uint64_t reference_first_key(const reference_head *h, uint64_t query)
{
    return h->positions != NULL ? query - (uint64_t)h->positions[query] : 0;
}

/* Of one weight: 0 if it is dropped. */
static inline double reference_factor(const reference_head *h, uint64_t query, uint64_t key)
{
    return h->drop != NULL ? drop_weight_factor(h->drop, h->row, h->head, query, key) : 1;
}

static inline double reference_score(const reference_head *h, uint64_t query, uint64_t key,
                                     double *magnitude)
{
    double sum = 0;
    *magnitude = 0;
    for (uint64_t d = 0; d < h->width; d++) {
        double term = h->q[query * h->stride + d] * h->k[key * h->stride + d];
        sum += term;
        *magnitude += fabs(term);
    }
    *magnitude /= sqrt((double)h->width);
    return sum / sqrt((double)h->width);
}

/* y[width] of one query, the magnitude of each, its lse and the largest score magnitude. */
static inline void reference_attend(const reference_head *h, uint64_t query, double *y,
                                    double *y_magnitude, double *lse, double *score_magnitude)
{
    const uint64_t first_key = reference_first_key(h, query);
    double max = -INFINITY, sum = 0, magnitude;
    *score_magnitude = 0;
    for (uint64_t key = first_key; key <= h->first + query; key++) {
        max = fmax(max, reference_score(h, query, key, &magnitude));
        *score_magnitude = fmax(*score_magnitude, magnitude);
    }
    for (uint64_t key = first_key; key <= h->first + query; key++)
        sum += exp(reference_score(h, query, key, &magnitude) - max);
    *lse = max + log(sum);
    for (uint64_t d = 0; d < h->width; d++)
        y[d] = y_magnitude[d] = 0;
    for (uint64_t key = first_key; key <= h->first + query; key++) {
        double p = exp(reference_score(h, query, key, &magnitude) - *lse);
        p *= reference_factor(h, query, key);
        for (uint64_t d = 0; d < h->width; d++) {
            y[d] += p * h->v[key * h->stride + d];
            y_magnitude[d] += p * fabs(h->v[key * h->stride + d]);
        }
    }
}

#endif
