/* Every op of op_list.h in plain double precision. See interpreter.h. */
#ifndef SL_TESTS_INTERPRETER_OPS_H
#define SL_TESTS_INTERPRETER_OPS_H

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "interpreter_machine.h"
#include "kernels/custom_reference.h"
#include "kernels/dropout_reference.h"

typedef struct it_call {
    const sl_op_attrs *a;
    double *x[SL_OPERAND_MAX];
    const it_machine *machine;
    drop_call drop;
} it_call;

static inline void it_start(const it_call *c, double *to, uint64_t count)
{
    for (uint64_t i = 0; i < count && to && !c->a->adds_output; i++)
        to[i] = 0.0;
}

static inline void it_gather(const it_call *c, double *to, uint64_t count)
{
    for (uint64_t i = 0; i < count && to && !c->a->adds_gradient; i++)
        to[i] = 0.0;
}

static inline void it_embed_position(const it_call *c)
{
    uint64_t B = c->a->batch, T = c->a->seq, I = c->a->in;
    for (uint64_t b = 0; b < B; b++)
        for (uint64_t t = 0; t < T; t++)
            for (uint64_t i = 0; i < I; i++)
                c->x[1][(b * T + t) * I + i] =
                    c->a->rank_index == 0 ? c->x[0][(c->machine->scalars.position + t) * I + i]
                                          : 0.0;
}

static inline int64_t it_row_in_panel(const it_call *c, double id)
{
    int64_t row = (int64_t)id - (int64_t)c->a->first_id;
    return row >= 0 && row < (int64_t)c->a->id_count ? row : -1;
}

static inline void it_embed_tokens(const it_call *c)
{
    for (uint64_t r = 0; r < c->a->batch * c->a->seq; r++) {
        int64_t row = it_row_in_panel(c, c->x[0][r]);
        for (uint64_t i = 0; i < c->a->in && row >= 0 && c->a->rank_index == 0; i++)
            c->x[2][r * c->a->in + i] += c->x[1][(uint64_t)row * c->a->in + i];
    }
}

static inline void it_layernorm(const it_call *c)
{
    uint64_t I = c->a->in;
    for (uint64_t r = 0; r < c->a->row_count; r++) {
        const double *x = c->x[0] + r * I;
        double mean = 0.0, variance = 0.0;
        for (uint64_t i = 0; i < I; i++)
            mean += x[i] / (double)I;
        for (uint64_t i = 0; i < I; i++)
            variance += (x[i] - mean) * (x[i] - mean) / (double)I;
        double scale = 1.0 / sqrt(variance + 1e-5);
        for (uint64_t i = 0; i < I; i++)
            c->x[3][r * I + i] = (x[i] - mean) * scale * c->x[1][i] + c->x[2][i];
        c->x[4][2 * r] = mean;
        c->x[4][2 * r + 1] = scale;
    }
}

static inline double it_dot(const double *a, const double *b, uint64_t n)
{
    double sum = 0.0;
    for (uint64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static inline void it_rmsnorm(const it_call *c)
{
    uint64_t I = c->a->in;
    for (uint64_t r = 0; r < c->a->row_count; r++) {
        const double *x = c->x[0] + r * I;
        double scale = 1.0 / sqrt(it_dot(x, x, I) / (double)I + (double)c->a->epsilon);
        for (uint64_t i = 0; i < I; i++)
            c->x[2][r * I + i] = x[i] * scale * ((double)c->a->gamma_offset + c->x[1][i]);
        c->x[3][r] = scale;
    }
}

static inline void it_linear(const it_call *c)
{
    uint64_t I = c->a->in, O = c->a->out;
    int adds = c->a->rank_index == 0;
    for (uint64_t r = 0; r < c->a->row_count; r++)
        for (uint64_t o = 0; o < O; o++) {
            double sum = c->x[2] && adds ? c->x[2][o] : 0.0;
            for (uint64_t i = 0; i < I; i++)
                sum += c->x[0][r * I + i] * c->x[1][i * O + o];
            c->x[4][r * O + o] = sum + (c->x[3] && adds ? c->x[3][r * O + o] : 0.0);
        }
}

/* Rows of q, k and v, or of their gradients: in one operand or in three. */
typedef struct it_heads {
    double *q, *k, *v;
    uint64_t q_row, key_row, width, group; /* group: query heads of a key head */
} it_heads;

static inline it_heads it_heads_of(const it_call *c, double *qkv, double *k, double *v)
{
    const sl_op_attrs *a = c->a;
    it_heads it = {qkv, qkv + a->in, qkv + a->in + a->out, .width = a->in / a->heads};
    it.group = a->heads / (a->out / it.width);
    it.q_row = it.key_row = a->in + 2 * a->out;
    if (a->is_separate) {
        it.k = k;
        it.v = v;
        it.q_row = a->in;
        it.key_row = a->out;
    }
    return it;
}

/* Query head h of a row; the key and the value that query head h reads. */
static inline double *it_query(const it_heads *it, uint64_t row, uint64_t h)
{
    return it->q + row * it->q_row + h * it->width;
}

static inline double *it_key(const it_heads *it, uint64_t row, uint64_t h)
{
    return it->k + row * it->key_row + h / it->group * it->width;
}

static inline double *it_value(const it_heads *it, uint64_t row, uint64_t h)
{
    return it->v + row * it->key_row + h / it->group * it->width;
}

static inline double it_score(const it_heads *it, uint64_t row, uint64_t key_row, uint64_t head)
{
    return it_dot(it_query(it, row, head), it_key(it, key_row, head), it->width) /
           sqrt((double)it->width);
}

/* The first token that the token of a row sees. */
static inline uint64_t it_first_key(const double *positions, uint64_t row, uint64_t t)
{
    return positions ? t - (uint64_t)positions[row] : 0;
}

static inline void it_attend(const it_call *c, uint64_t b, uint64_t t, uint64_t h)
{
    const uint64_t first = it_first_key(c->x[3], b * c->a->seq + t, t);
    const it_heads it = it_heads_of(c, c->x[0], c->x[4], c->x[5]);
    uint64_t T = c->a->seq, d = it.width, row = b * T + t;
    double *y = c->x[1] + row * c->a->in + h * d;
    double most = -INFINITY, sum = 0.0;
    for (uint64_t s = first; s <= t; s++)
        most = fmax(most, it_score(&it, row, b * T + s, h));
    for (uint64_t s = first; s <= t; s++)
        sum += exp(it_score(&it, row, b * T + s, h) - most);
    for (uint64_t i = 0; i < d; i++)
        y[i] = 0.0;
    for (uint64_t s = first; s <= t; s++) {
        double p = exp(it_score(&it, row, b * T + s, h) - most) / sum;
        p *= drop_weight_factor(&c->drop, b, h, t, s);
        for (uint64_t i = 0; i < d; i++)
            y[i] += p * it_value(&it, b * T + s, h)[i];
    }
    c->x[2][(b * c->a->heads + h) * T + t] = most + log(sum);
}

static inline void it_attention(const it_call *c)
{
    for (uint64_t b = 0; b < c->a->batch; b++)
        for (uint64_t h = 0; h < c->a->heads; h++)
            for (uint64_t t = 0; t < c->a->seq; t++)
                it_attend(c, b, t, h);
}

static inline void it_attend_backward(const it_call *c, uint64_t b, uint64_t t, uint64_t h)
{
    const it_heads it = it_heads_of(c, c->x[0], c->x[6], c->x[7]);
    const it_heads slope = it_heads_of(c, c->x[4], c->x[8], c->x[9]);
    uint64_t T = c->a->seq, d = it.width, row = b * T + t;
    const double *y = c->x[1] + row * c->a->in + h * d, *dy = c->x[3] + row * c->a->in + h * d;
    double lse = c->x[2][(b * c->a->heads + h) * T + t], mean = it_dot(y, dy, d);
    for (uint64_t s = it_first_key(c->x[5], row, t); s <= t; s++) {
        double p = exp(it_score(&it, row, b * T + s, h) - lse);
        double factor = drop_weight_factor(&c->drop, b, h, t, s);
        double dp = factor * it_dot(it_value(&it, b * T + s, h), dy, d);
        double ds = p * (dp - mean) / sqrt((double)d);
        for (uint64_t i = 0; i < d; i++) {
            it_query(&slope, row, h)[i] += ds * it_key(&it, b * T + s, h)[i];
            it_key(&slope, b * T + s, h)[i] += ds * it_query(&it, row, h)[i];
            it_value(&slope, b * T + s, h)[i] += p * factor * dy[i];
        }
    }
}

static inline void it_attention_backward(const it_call *c)
{
    const uint64_t rows = c->a->batch * c->a->seq, in = c->a->in, out = c->a->out;
    it_start(c, c->x[4], rows * (c->a->is_separate ? in : in + 2 * out));
    it_start(c, c->x[8], rows * out);
    it_start(c, c->x[9], rows * out);
    for (uint64_t b = 0; b < c->a->batch; b++)
        for (uint64_t h = 0; h < c->a->heads; h++)
            for (uint64_t t = 0; t < c->a->seq; t++)
                it_attend_backward(c, b, t, h);
}

static inline void it_attention_cached(const it_call *c)
{
    const it_heads it = it_heads_of(c, c->x[0], c->x[3], c->x[4]);
    uint64_t T = c->a->seq, O = c->a->out, d = it.width, rows = c->a->cache_rows;
    uint64_t position = c->machine->scalars.position;
    it_heads cached = it;
    cached.k = c->x[1];
    cached.v = c->x[1] + c->a->batch * rows * O;
    cached.key_row = O;
    assert(c->a->batch == 1);
    for (uint64_t t = 0; t < T; t++) {
        memcpy(cached.k + (position + t) * O, it.k + t * it.key_row, O * sizeof(double));
        memcpy(cached.v + (position + t) * O, it.v + t * it.key_row, O * sizeof(double));
        for (uint64_t h = 0; h < c->a->heads; h++) {
            double *y = c->x[2] + t * c->a->in + h * d, sum = 0.0;
            for (uint64_t s = 0; s <= position + t; s++)
                sum += exp(it_score(&cached, t, s, h));
            for (uint64_t i = 0; i < d; i++)
                y[i] = 0.0;
            for (uint64_t s = 0; s <= position + t; s++) {
                double p = exp(it_score(&cached, t, s, h)) / sum;
                for (uint64_t i = 0; i < d; i++)
                    y[i] += p * it_value(&cached, s, h)[i];
            }
        }
    }
}

static inline void it_rotary(const it_call *c)
{
    const uint64_t T = c->a->seq, I = c->a->in, n = c->a->out;
    for (uint64_t row = 0; row < c->a->batch * T; row++) {
        const uint64_t position =
            c->x[3] ? (uint64_t)c->x[3][row] : c->machine->scalars.position + row % T;
        const double *table = c->x[1] + position * n;
        for (uint64_t i = 0; i < I; i++) {
            const uint64_t pair = i % n % (n / 2);
            const bool is_low = i % n < n / 2;
            const double other = c->x[0][row * I + (is_low ? i + n / 2 : i - n / 2)];
            const double sine = c->a->negates ? -table[n / 2 + pair] : table[n / 2 + pair];
            c->x[2][row * I + i] =
                c->x[0][row * I + i] * table[pair] + (is_low ? -other : other) * sine;
        }
    }
}

static inline void it_dropout(const it_call *c)
{
    const uint64_t row = c->a->seq * c->a->in;
    for (uint64_t e = 0; e < c->a->batch * row; e++)
        c->x[2][e] = c->x[0][e] * drop_element_factor(&c->drop, e / row, e % row) +
                     (c->x[1] ? c->x[1][e] : 0.0);
}

static const double it_gelu_root = 0.7978845608028653558798921198687; /* sqrt(2 / pi) */

static inline void it_gelu(const it_call *c)
{
    for (uint64_t e = 0; e < c->a->element_count; e++) {
        double x = c->x[0][e];
        c->x[1][e] = 0.5 * x * (1.0 + tanh(it_gelu_root * (x + 0.044715 * x * x * x)));
    }
}

static inline double it_gelu_slope(double x)
{
    double t = tanh(it_gelu_root * (x + 0.044715 * x * x * x));
    double slope = it_gelu_root * (1.0 + 3.0 * 0.044715 * x * x);
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope;
}

static inline void it_gelu_backward(const it_call *c)
{
    for (uint64_t e = 0; e < c->a->element_count; e++)
        c->x[1][e] *= it_gelu_slope(c->x[0][e]);
}

static inline void it_head_logits(const it_call *c)
{
    uint64_t I = c->a->in, P = c->a->id_count;
    for (uint64_t r = 0; r < c->a->row_count; r++)
        for (uint64_t p = 0; p < P; p++)
            c->x[2][r * P + p] = it_dot(c->x[0] + (c->a->first_row + r) * I, c->x[1] + p * I, I);
}

static inline void it_scale(const it_call *c)
{
    for (uint64_t e = 0; e < c->a->element_count; e++)
        c->x[1][e] = c->x[0][e] * (double)c->a->scale;
}

static inline double it_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static inline double it_gate(const it_call *c, double x)
{
    if (c->a->is_gelu)
        return 0.5 * x * (1.0 + tanh(it_gelu_root * (x + 0.044715 * x * x * x)));
    return x * it_sigmoid(x);
}

static inline double it_gate_slope(const it_call *c, double x)
{
    const double s = it_sigmoid(x);
    return c->a->is_gelu ? it_gelu_slope(x) : s * (1.0 + x * (1.0 - s));
}

static inline void it_swiglu(const it_call *c)
{
    for (uint64_t e = 0; e < c->a->element_count; e++)
        c->x[2][e] = it_gate(c, c->x[0][e]) * c->x[1][e];
}

static inline void it_swiglu_backward(const it_call *c)
{
    for (uint64_t e = 0; e < c->a->element_count; e++) {
        double gate = c->x[0][e], dy = c->x[2][e];
        c->x[2][e] = dy * it_gate(c, gate);
        c->x[3][e] = dy * c->x[1][e] * it_gate_slope(c, gate);
    }
}

/* Adds one more set of (max, sum, target logit) to a row of statistics. */
static inline void it_merge_stats(double *stats, double most, double sum, double target)
{
    double joint = fmax(stats[0], most);
    stats[1] = (stats[1] > 0.0 ? stats[1] * exp(stats[0] - joint) : 0.0) +
               (sum > 0.0 ? sum * exp(most - joint) : 0.0);
    stats[0] = joint;
    stats[2] += target;
}

static inline void it_head_stats(const it_call *c)
{
    uint64_t P = c->a->id_count;
    for (uint64_t r = 0; r < c->a->row_count; r++) {
        double *stats = c->x[2] + 4 * r, target = 0.0;
        if (!c->a->adds_output)
            memcpy(stats, (double[4]){-INFINITY, 0.0, 0.0, 0.0}, 4 * sizeof(double));
        for (uint64_t p = 0; p < P && c->a->first_id + p < c->a->valid_id_count; p++)
            it_merge_stats(stats, c->x[0][r * P + p], 1.0, 0.0);
        int64_t row = it_row_in_panel(c, c->x[1][c->a->first_row + r]);
        if (row >= 0)
            target = c->x[0][r * P + (uint64_t)row];
        stats[2] += target;
        stats[3] = c->x[1][c->a->first_row + r] < 0.0;
    }
}

static inline void it_head_loss(const it_call *c)
{
    it_start(c, c->x[1], 1);
    if (c->x[2])
        it_start(c, c->x[2], 1);
    for (uint64_t r = 0; r < c->a->row_count; r++) {
        const double *stats = c->x[0] + 4 * r;
        if (stats[3] != 0.0)
            continue;
        c->x[1][0] += stats[0] + log(stats[1]) - stats[2];
        if (c->x[2])
            c->x[2][0] += 1.0;
    }
}

static inline void it_head_logits_backward(const it_call *c)
{
    uint64_t P = c->a->id_count;
    for (uint64_t r = 0; r < c->a->row_count; r++) {
        int64_t target = it_row_in_panel(c, c->x[0][c->a->first_row + r]);
        const double *stats = c->x[1] + 4 * r;
        for (uint64_t p = 0; p < P; p++) {
            double *logit = &c->x[2][r * P + p];
            double probability = exp(*logit - stats[0]) / stats[1];
            int is_real =
                c->a->first_id + p < c->a->valid_id_count && c->x[0][c->a->first_row + r] >= 0.0;
            *logit = !is_real ? 0.0
                              : (probability - ((int64_t)p == target)) * (double)c->a->scale *
                                    (double)c->machine->scalars.loss_scale;
        }
    }
}

static inline void it_head_input_backward(const it_call *c)
{
    uint64_t I = c->a->in, P = c->a->id_count;
    double *dx = c->x[2] + c->a->first_row * I;
    it_start(c, dx, c->a->row_count * I);
    for (uint64_t r = 0; r < c->a->row_count; r++)
        for (uint64_t i = 0; i < I; i++)
            for (uint64_t p = 0; p < P; p++)
                dx[r * I + i] += c->x[0][r * P + p] * c->x[1][p * I + i];
}

static inline void it_head_weight_backward(const it_call *c)
{
    uint64_t I = c->a->in, P = c->a->id_count;
    it_gather(c, c->x[2], P * I);
    for (uint64_t r = 0; r < c->a->row_count; r++)
        for (uint64_t p = 0; p < P; p++)
            for (uint64_t i = 0; i < I; i++)
                c->x[2][p * I + i] += c->x[1][r * P + p] * c->x[0][(c->a->first_row + r) * I + i];
}

static inline void it_linear_input_backward(const it_call *c)
{
    uint64_t I = c->a->in, O = c->a->out;
    it_start(c, c->x[2], c->a->row_count * I);
    for (uint64_t r = 0; r < c->a->row_count; r++)
        for (uint64_t i = 0; i < I; i++)
            c->x[2][r * I + i] += it_dot(c->x[0] + r * O, c->x[1] + i * O, O);
    for (uint64_t e = 0; c->x[3] && e < c->a->row_count * I; e++)
        c->x[2][e] *= it_gelu_slope(c->x[3][e]);
}

static inline void it_linear_weight_backward(const it_call *c)
{
    uint64_t I = c->a->in, O = c->a->out;
    it_gather(c, c->x[2], I * O);
    it_gather(c, c->x[3], O);
    for (uint64_t r = 0; r < c->a->row_count; r++)
        for (uint64_t o = 0; o < O; o++) {
            double dy = c->x[1][r * O + o];
            for (uint64_t i = 0; i < I; i++)
                c->x[2][i * O + o] += c->x[0][r * I + i] * dy;
            if (c->x[3])
                c->x[3][o] += dy;
        }
}

static inline void it_layernorm_backward(const it_call *c)
{
    uint64_t I = c->a->in;
    it_start(c, c->x[4], c->a->row_count * I);
    it_gather(c, c->x[5], I);
    it_gather(c, c->x[6], I);
    for (uint64_t r = 0; r < c->a->row_count; r++) {
        const double *x = c->x[0] + r * I, *dy = c->x[3] + r * I;
        double mean = c->x[2][2 * r], scale = c->x[2][2 * r + 1], sum = 0.0, dot = 0.0;
        for (uint64_t i = 0; i < I; i++) {
            double normal = (x[i] - mean) * scale, dn = dy[i] * c->x[1][i];
            sum += dn / (double)I;
            dot += dn * normal / (double)I;
            if (c->x[5])
                c->x[5][i] += dy[i] * normal;
            if (c->x[6])
                c->x[6][i] += dy[i];
        }
        for (uint64_t i = 0; i < I && c->x[4]; i++)
            c->x[4][r * I + i] += scale * (dy[i] * c->x[1][i] - sum - (x[i] - mean) * scale * dot);
    }
}

static inline void it_rmsnorm_backward(const it_call *c)
{
    uint64_t I = c->a->in;
    it_start(c, c->x[4], c->a->row_count * I);
    it_gather(c, c->x[5], I);
    for (uint64_t r = 0; r < c->a->row_count; r++) {
        const double *x = c->x[0] + r * I, *dy = c->x[3] + r * I;
        double scale = c->x[2][r], dot = 0.0;
        for (uint64_t i = 0; i < I; i++) {
            dot += dy[i] * ((double)c->a->gamma_offset + c->x[1][i]) * x[i] * scale / (double)I;
            if (c->x[5])
                c->x[5][i] += dy[i] * x[i] * scale;
        }
        for (uint64_t i = 0; i < I && c->x[4]; i++)
            c->x[4][r * I + i] +=
                scale * (dy[i] * ((double)c->a->gamma_offset + c->x[1][i]) - x[i] * scale * dot);
    }
}

static inline void it_embed_tokens_backward(const it_call *c)
{
    uint64_t I = c->a->in;
    it_start(c, c->x[2], c->a->id_count * I);
    for (uint64_t r = 0; r < c->a->batch * c->a->seq; r++) {
        int64_t row = it_row_in_panel(c, c->x[0][r]);
        for (uint64_t i = 0; i < I && row >= 0; i++)
            c->x[2][(uint64_t)row * I + i] += c->x[1][r * I + i];
    }
}

static inline void it_embed_position_backward(const it_call *c)
{
    uint64_t B = c->a->batch, T = c->a->seq, I = c->a->in;
    for (uint64_t e = 0; e < T * I; e++) {
        double sum = 0.0;
        for (uint64_t b = 0; b < B; b++)
            sum += c->x[0][b * T * I + e];
        c->x[1][e] += sum;
    }
}

static inline void it_add(const it_call *c)
{
    for (uint64_t e = 0; e < c->a->element_count; e++)
        c->x[1][e] += c->x[0][e];
}

static inline void it_clear(const it_call *c)
{
    for (uint64_t e = 0; e < c->a->element_count; e++)
        c->x[0][e] = 0.0;
}

/* What tensors hold is undefined until an op writes it. */
static inline void it_clear_padding(const it_call *c)
{
    const it_layout *layout = c->machine->state->layout;
    const sl_program *program = c->machine->program;
    const uint64_t chunk = c->a->first_block * SL_BLOCK_ELEMENTS / layout->chunk_elements;
    for (uint64_t e = 0; e < c->a->element_count; e++)
        c->x[0][e] = 0.0;
    for (uint32_t t = 0; t < program->tensor_count; t++)
        for (uint64_t e = 0; e < program->tensors[t].element_count; e++)
            if (layout->chunk_of_tensor[t] == chunk)
                c->x[0][layout->first_element[t] + e] = NAN;
}

/* Numbers here are doubles, and never rounded. */
static inline void it_round(const it_call *c)
{
    for (uint64_t e = 0; e < c->a->element_count; e++)
        c->x[1][e] = c->x[0][e];
}

/* Nothing is rounded here, frozen matrices no more than others. */
static inline void it_dequantize(const it_call *c)
{
    memcpy(c->x[1], c->x[0], c->a->element_count * sizeof(double));
}

/* Block sums are rounded to multiples of 2^-52 and so added exactly below 2^0: the order of chunks
 * cannot matter, as op_list.h promises. */
static inline void it_block_norm(const it_call *c)
{
    it_start(c, c->x[1], 1);
    const bool is_split = c->machine->program->tp_size > 1;
    const uint8_t *counted = c->machine->state->layout->counted + c->a->first_block;
    for (uint64_t block = 0; block < c->a->element_count; block += SL_BLOCK_ELEMENTS) {
        if (is_split && !counted[block / SL_BLOCK_ELEMENTS])
            continue;
        double sum = it_dot(c->x[0] + block, c->x[0] + block, SL_BLOCK_ELEMENTS);
        c->x[1][0] += ldexp(nearbyint(ldexp(sum, 40)), -40);
    }
}

static inline void it_norm_finish(const it_call *c)
{
    const bool is_empty = c->x[2] && c->x[2][0] == 0.0; /* nothing counts: the step is skipped */
    double share = is_empty ? 0.0 : c->x[2] ? (double)c->a->row_count / c->x[2][0] : 1.0;
    double clip = c->machine->scalars.clip, norm = share * sqrt(c->x[0][0]);
    c->x[1][0] = norm;
    c->x[1][1] = clip > 0.0 ? fmin(1.0, clip / (norm + 1e-6)) : 1.0;
    c->x[1][1] *= share / c->machine->scalars.loss_scale;
    c->x[1][2] = is_empty || !isfinite(norm);
}

static inline void it_adamw(const it_call *c)
{
    const sl_step_scalars *s = &c->machine->scalars;
    const uint8_t *flags = c->machine->state->layout->flags + c->a->first_block;
    double *updated = c->a->type == SL_TYPE_FP32 ? c->x[4] : c->x[5]; /* param, or its master */
    for (uint64_t e = 0; e < c->a->element_count && c->x[0][2] == 0.0; e++) {
        double g = c->x[1][e] * c->x[0][1], *p = &updated[e];
        double *m1 = &c->x[2][e], *m2 = &c->x[3][e];
        *m1 = s->beta1 * *m1 + (1.0 - s->beta1) * g;
        *m2 = s->beta2 * *m2 + (1.0 - s->beta2) * g * g;
        if (flags[e / SL_BLOCK_ELEMENTS])
            *p -= s->learning_rate * s->weight_decay * *p;
        *p -= s->learning_rate * (*m1 / s->bias1) / (sqrt(*m2) / s->bias2_root + s->epsilon);
    }
    if (updated != c->x[4])
        memcpy(c->x[4], updated, c->a->element_count * sizeof(double));
}

/* The weight decay of an element. */
static inline double it_decay(const it_call *c, uint64_t e)
{
    const uint8_t *flags = c->machine->state->layout->flags + c->a->first_block;
    return flags[e / SL_BLOCK_ELEMENTS] ? c->machine->scalars.weight_decay : 0.0;
}

static inline void it_sgd(const it_call *c)
{
    const sl_step_scalars *s = &c->machine->scalars;
    double *updated = c->a->type == SL_TYPE_FP32 ? c->x[3] : c->x[4];
    for (uint64_t e = 0; e < c->a->element_count && c->x[0][2] == 0.0; e++) {
        double g = c->x[1][e] * c->x[0][1] + it_decay(c, e) * updated[e];
        if (c->x[2] != NULL) {
            c->x[2][e] = s->momentum * c->x[2][e] + g;
            g = s->is_nesterov ? g + s->momentum * c->x[2][e] : c->x[2][e];
        }
        updated[e] -= s->learning_rate * g;
    }
    if (updated != c->x[3])
        memcpy(c->x[3], updated, c->a->element_count * sizeof(double));
}

static inline void it_lion(const it_call *c)
{
    const sl_step_scalars *s = &c->machine->scalars;
    double *updated = c->a->type == SL_TYPE_FP32 ? c->x[3] : c->x[4];
    for (uint64_t e = 0; e < c->a->element_count && c->x[0][2] == 0.0; e++) {
        const double g = c->x[1][e] * c->x[0][1];
        const double mean = s->lion_beta1 * c->x[2][e] + (1.0 - s->lion_beta1) * g;
        updated[e] *= 1 - s->learning_rate * it_decay(c, e);
        updated[e] -= s->learning_rate * ((mean > 0) - (mean < 0));
        c->x[2][e] = s->lion_beta2 * c->x[2][e] + (1.0 - s->lion_beta2) * g;
    }
    if (updated != c->x[3])
        memcpy(c->x[3], updated, c->a->element_count * sizeof(double));
}

static inline void it_momentum(const it_call *c)
{
    const double weight = (double)c->machine->scalars.muon_momentum;
    for (uint64_t e = 0; e < c->a->element_count && c->x[0][2] == 0.0; e++) {
        const double g = c->x[1][e] * c->x[0][1];
        c->x[2][e] = weight * c->x[2][e] + (1 - weight) * g;
        c->x[1][e] = weight * c->x[2][e] + (1 - weight) * g;
        c->x[1][e] *= (double)c->machine->scalars.loss_scale;
    }
}

/* c[m, n] += factor * a[m, k] b[k, n]; strides of rows and of columns tell what is transposed. */
static inline void it_multiply(const double *a, const uint64_t *a_stride, const double *b,
                               const uint64_t *b_stride, double *c, const uint64_t *sizes,
                               double factor)
{
    for (uint64_t i = 0; i < sizes[0]; i++)
        for (uint64_t j = 0; j < sizes[1]; j++)
            for (uint64_t k = 0; k < sizes[2]; k++)
                c[i * sizes[1] + j] += factor * a[i * a_stride[0] + k * a_stride[1]] *
                                       b[k * b_stride[0] + j * b_stride[1]];
}

/* X' = a X + (b G + c G G) X with G = X X^T, whatever the shape: the same as from the other side.
 */
static inline void it_orthogonalise(const it_call *c)
{
    const uint64_t m = c->a->in, n = c->a->out, count = m * n;
    const uint64_t x_rows[] = {n, 1}, x_columns[] = {1, n}, square[] = {m, 1};
    double *x = c->x[0], norm = sqrt(it_dot(x, x, count));
    double *g = calloc(2 * m * m + count, sizeof *g), *b = g + m * m, *next = b + m * m;
    for (uint64_t e = 0; e < count; e++)
        x[e] /= fmax(norm, 1e-7);
    for (int step = 0; step < 5 && g; step++) {
        memset(g, 0, (2 * m * m + count) * sizeof *g);
        it_multiply(x, x_rows, x, x_columns, g, (uint64_t[]){m, m, n}, 1);
        for (uint64_t e = 0; e < m * m; e++)
            b[e] = -4.7750 * g[e];
        it_multiply(g, square, g, square, b, (uint64_t[]){m, m, m}, 2.0315);
        for (uint64_t e = 0; e < count; e++)
            next[e] = 3.4445 * x[e];
        it_multiply(b, square, x, x_rows, next, (uint64_t[]){m, n, m}, 1);
        memcpy(x, next, count * sizeof *x);
    }
    for (uint64_t e = 0; e < count; e++)
        x[e] *= (double)c->a->scale;
    free(g);
}

static inline void it_apply(const it_call *c)
{
    const double rate = (double)c->machine->scalars.learning_rate;
    double *updated = c->x[3] ? c->x[3] : c->x[2];
    for (uint64_t e = 0; e < c->a->element_count && c->x[0][2] == 0.0; e++)
        updated[e] = updated[e] * (1 - rate * it_decay(c, e)) - rate * c->x[1][e];
    if (updated != c->x[2])
        memcpy(c->x[2], updated, c->a->element_count * sizeof(double));
}

static inline void it_custom(const it_call *c)
{
    enum { X, Z, WEIGHT, Y };
    const uint64_t sizes[] = {c->a->in, c->a->out, c->a->element_count};
    for (uint64_t r = 0; r < c->a->row_count; r++)
        custom_forward_double(sizes, c->x[X] + r * sizes[0],
                              c->x[Z] ? c->x[Z] + r * sizes[0] : NULL, c->x[WEIGHT],
                              c->x[Y] + r * sizes[1]);
}

static inline void it_custom_backward(const it_call *c)
{
    enum { X, Z, WEIGHT, DY, DX, DZ, DWEIGHT };
    const uint64_t sizes[] = {c->a->in, c->a->out, c->a->element_count};
    it_gather(c, c->x[DWEIGHT], sizes[2]);
    for (uint64_t r = 0; r < c->a->row_count; r++) {
        const uint64_t at = r * sizes[0];
        double *const gradients[] = {c->x[DX] + at, c->x[DZ] ? c->x[DZ] + at : NULL, c->x[DWEIGHT]};
        custom_backward_double(sizes, c->x[X] + at, c->x[Z] ? c->x[Z] + at : NULL, c->x[WEIGHT],
                               c->x[DY] + r * sizes[1], gradients);
    }
}

static void (*const it_table[SL_OP_COUNT])(const it_call *) = {
#define X(NAME, name, ...) [SL_OP_##NAME] = it_##name,
#define it_all_reduce NULL
#define it_all_reduce_stats NULL
#define it_all_reduce_norm NULL
#define it_all_reduce_tensor NULL
#define it_all_reduce_gradient NULL
#define it_reduce_scatter_gradient NULL
#define it_all_gather_chunk NULL
#define it_reduce_scatter_shard NULL
#define it_all_gather_shard NULL
#define it_gather_rows NULL
#define it_scatter_rows NULL
#define it_take_rows NULL
#define it_gather_columns NULL
#define it_scatter_columns NULL
#define it_take_columns NULL
#define it_exchange NULL
#define it_take_shard NULL
#define it_input NULL
    SL_OP_LIST(X)
#undef X
};

#endif
