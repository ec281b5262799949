/* Every op of op_list.h in plain double precision. See interpreter.h. */
#ifndef SL_TESTS_INTERPRETER_OPS_H
#define SL_TESTS_INTERPRETER_OPS_H

#include <assert.h>
#include <math.h>
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

/* Query, key or value (part 0, 1, 2) of head h at row r of [B * T, 3 * I]. */
static inline double *it_qkv(const it_call *c, double *qkv, uint64_t row, uint64_t part,
                             uint64_t head)
{
    return qkv + row * 3 * c->a->in + part * c->a->in + head * (c->a->in / c->a->heads);
}

static inline double it_dot(const double *a, const double *b, uint64_t n)
{
    double sum = 0.0;
    for (uint64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static inline double it_score(const it_call *c, double *qkv, uint64_t row, uint64_t key_row,
                              uint64_t head)
{
    uint64_t d = c->a->in / c->a->heads;
    return it_dot(it_qkv(c, qkv, row, 0, head), it_qkv(c, qkv, key_row, 1, head), d) /
           sqrt((double)d);
}

/* The first token that the token of a row sees. */
static inline uint64_t it_first_key(const double *positions, uint64_t row, uint64_t t)
{
    return positions ? t - (uint64_t)positions[row] : 0;
}

static inline void it_attend(const it_call *c, uint64_t b, uint64_t t, uint64_t h)
{
    const uint64_t first = it_first_key(c->x[3], b * c->a->seq + t, t);
    uint64_t T = c->a->seq, d = c->a->in / c->a->heads, row = b * T + t;
    double *y = c->x[1] + row * c->a->in + h * d;
    double most = -INFINITY, sum = 0.0;
    for (uint64_t s = first; s <= t; s++)
        most = fmax(most, it_score(c, c->x[0], row, b * T + s, h));
    for (uint64_t s = first; s <= t; s++)
        sum += exp(it_score(c, c->x[0], row, b * T + s, h) - most);
    for (uint64_t i = 0; i < d; i++)
        y[i] = 0.0;
    for (uint64_t s = first; s <= t; s++) {
        double p = exp(it_score(c, c->x[0], row, b * T + s, h) - most) / sum;
        p *= drop_weight_factor(&c->drop, b, h, t, s);
        for (uint64_t i = 0; i < d; i++)
            y[i] += p * it_qkv(c, c->x[0], b * T + s, 2, h)[i];
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
    uint64_t T = c->a->seq, d = c->a->in / c->a->heads, row = b * T + t;
    const double *y = c->x[1] + row * c->a->in + h * d, *dy = c->x[3] + row * c->a->in + h * d;
    double lse = c->x[2][(b * c->a->heads + h) * T + t], mean = it_dot(y, dy, d);
    for (uint64_t s = it_first_key(c->x[5], row, t); s <= t; s++) {
        double p = exp(it_score(c, c->x[0], row, b * T + s, h) - lse);
        double factor = drop_weight_factor(&c->drop, b, h, t, s);
        double dp = factor * it_dot(it_qkv(c, c->x[0], b * T + s, 2, h), dy, d);
        double ds = p * (dp - mean) / sqrt((double)d);
        for (uint64_t i = 0; i < d; i++) {
            it_qkv(c, c->x[4], row, 0, h)[i] += ds * it_qkv(c, c->x[0], b * T + s, 1, h)[i];
            it_qkv(c, c->x[4], b * T + s, 1, h)[i] += ds * it_qkv(c, c->x[0], row, 0, h)[i];
            it_qkv(c, c->x[4], b * T + s, 2, h)[i] += p * factor * dy[i];
        }
    }
}

static inline void it_attention_backward(const it_call *c)
{
    it_start(c, c->x[4], c->a->batch * c->a->seq * 3 * c->a->in);
    for (uint64_t b = 0; b < c->a->batch; b++)
        for (uint64_t h = 0; h < c->a->heads; h++)
            for (uint64_t t = 0; t < c->a->seq; t++)
                it_attend_backward(c, b, t, h);
}

static inline void it_attention_cached(const it_call *c)
{
    uint64_t T = c->a->seq, I = c->a->in, d = I / c->a->heads, rows = c->a->cache_rows;
    uint64_t position = c->machine->scalars.position;
    double *keys = c->x[1], *values = c->x[1] + c->a->batch * rows * I;
    assert(c->a->batch == 1);
    for (uint64_t t = 0; t < T; t++) {
        memcpy(keys + (position + t) * I, c->x[0] + t * 3 * I + I, I * sizeof(double));
        memcpy(values + (position + t) * I, c->x[0] + t * 3 * I + 2 * I, I * sizeof(double));
        for (uint64_t h = 0; h < c->a->heads; h++) {
            const double *q = c->x[0] + t * 3 * I + h * d;
            double *y = c->x[2] + t * I + h * d, sum = 0.0;
            for (uint64_t s = 0; s <= position + t; s++)
                sum += exp(it_dot(q, keys + s * I + h * d, d) / sqrt((double)d));
            for (uint64_t i = 0; i < d; i++)
                y[i] = 0.0;
            for (uint64_t s = 0; s <= position + t; s++) {
                double p = exp(it_dot(q, keys + s * I + h * d, d) / sqrt((double)d)) / sum;
                for (uint64_t i = 0; i < d; i++)
                    y[i] += p * values[s * I + h * d + i];
            }
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
    }
}

static inline void it_head_loss(const it_call *c)
{
    it_start(c, c->x[1], 1);
    for (uint64_t r = 0; r < c->a->row_count; r++) {
        const double *stats = c->x[0] + 4 * r;
        c->x[1][0] += stats[0] + log(stats[1]) - stats[2];
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
            int is_real = c->a->first_id + p < c->a->valid_id_count;
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
    double clip = c->machine->scalars.clip, norm = sqrt(c->x[0][0]);
    c->x[1][0] = norm;
    c->x[1][1] = clip > 0.0 ? fmin(1.0, clip / (norm + 1e-6)) : 1.0;
    c->x[1][1] /= c->machine->scalars.loss_scale;
    c->x[1][2] = !isfinite(norm);
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
#define it_input NULL
    SL_OP_LIST(X)
#undef X
};

#endif
