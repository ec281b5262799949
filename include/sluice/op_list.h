/* Every op, declared once.
 *
 * An op is one step of compute or communication. It knows its sizes through sl_op_attrs and its
 * data through a fixed order of operands; it knows nothing of memory. Kernels are written against
 * this file alone; src/program/op_table.c adds names, bytes, FLOPs and the backward rules.
 *
 * Shapes below use B = batch, T = seq, R = row_count rows starting at row first_row of the B*T
 * rows, I = in, O = out, H = heads, P = id_count token ids starting at first_id, C = in. All
 * tensors are row-major; tokens and targets are int32 [B, T].
 *
 * Element types: parameters and activations are of attrs.type, the compute type; sums inside a
 * kernel are fp32 and rounded once (to nearest, ties to even) where they are stored. "f" marks an
 * operand that is fp32 whatever the compute type: statistics, and the accumulators of parameter
 * gradients. "g" marks a gradient chunk, stored as attrs.grad_type (fp32 or attrs.type): each
 * element is rounded to attrs.type when it is read, so both ways of storing it give the same bits.
 *
 * Operand modes: R read, W written whole, U updated (read and written), A added to when
 * attrs.adds_output is set, else written whole. G is the gradient of a parameter: with
 * attrs.adds_gradient an fp32 sum that is added to, else written whole and stored as
 * attrs.grad_type, rounded once. "?" marks an operand that may be absent (NULL).
 */
#ifndef SLUICE_OP_LIST_H
#define SLUICE_OP_LIST_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, name): the enumerator and the kernel of an op. */
#define SL_OP_LIST(X)                                                                              \
    /* wpe R [>=position+T, I], x W [B, T, I]: x[b, t] = wpe[scalars.position + t] */              \
    X(EMBED_POSITION, embed_position)                                                              \
    /* tokens R, panel R [P, I], x U [B, T, I]: adds the rows of tokens inside the panel */        \
    X(EMBED_TOKENS, embed_tokens)                                                                  \
    /* x R [R, I], gamma R [I], beta R [I], y W [R, I], stats W f [R, 2] (mean, 1/deviation) */    \
    X(LAYERNORM, layernorm)                                                                        \
    /* x R [R, I], weight R [I, O], bias R? [O], residual R? [R, O], y W [R, O] */                 \
    X(LINEAR, linear)                                                                              \
    /* qkv R [B, T, 3*I] (q, k, v; I = H * head width), y W [B, T, I], lse W f [B, H, T] (log */   \
    /* of the sum of exponentials); causal, scaled by 1/sqrt(head width), never stores T x T */    \
    X(ATTENTION, attention)                                                                        \
    /* x R, y W, element_count elements; the tanh form */                                          \
    X(GELU, gelu)                                                                                  \
    /* x R [B*T, I] (rows first_row.. only), panel R [P, I], logits W [R, P] */                    \
    X(HEAD_LOGITS, head_logits)                                                                    \
    /* logits R [R, P], targets R (rows first_row..), stats A f [R, 4] (max, sum of exponentials   \
     */                                                                                            \
    /* against max, logit of the target, 0); ids >= valid_id_count do not exist */                 \
    X(HEAD_STATS, head_stats)                                                                      \
    /* stats R f [R, 4], loss A double[1]: the sum over rows of -log p(target), in row order */    \
    X(HEAD_LOSS, head_loss)                                                                        \
    /* targets R, stats R f [R, 4], logits U [R, P]: in place (softmax - one hot) * scale, with */ \
    /* scale = attrs.scale * scalars.loss_scale; zero at ids >= valid_id_count */                  \
    X(HEAD_LOGITS_BACKWARD, head_logits_backward)                                                  \
    /* dlogits R [R, P], panel R [P, I], dx A f [B*T, I] (rows first_row.. only) */                \
    X(HEAD_INPUT_BACKWARD, head_input_backward)                                                    \
    /* x R [B*T, I] (rows first_row.. only), dlogits R [R, P], dpanel G [P, I] */                  \
    X(HEAD_WEIGHT_BACKWARD, head_weight_backward)                                                  \
    /* dy R [R, O], weight R [I, O], dx A [R, I], gelu_x R? [R, I]: with gelu_x, which excludes */ \
    /* attrs.adds_output, dx is that of GELU(gelu_x) times gelu'(gelu_x); rounded once, or, where  \
     */                                                                                            \
    /* a library computes the product, also before it is multiplied */                             \
    X(LINEAR_INPUT_BACKWARD, linear_input_backward)                                                \
    /* x R [R, I], dy R [R, O], dweight G [I, O], dbias G? [O] */                                  \
    X(LINEAR_WEIGHT_BACKWARD, linear_weight_backward)                                              \
    /* x R, d U: in place d *= gelu'(x), element_count elements */                                 \
    X(GELU_BACKWARD, gelu_backward)                                                                \
    /* qkv R [B, T, 3*I], y R [B, T, I], lse R f [B, H, T], dy R [B, T, I], dqkv W [B, T, 3*I] */  \
    X(ATTENTION_BACKWARD, attention_backward)                                                      \
    /* x R [R, I], gamma R [I], stats R f [R, 2], dy R [R, I], dx A [R, I], dgamma G [I], */       \
    /* dbeta G [I] */                                                                              \
    X(LAYERNORM_BACKWARD, layernorm_backward)                                                      \
    /* tokens R, dx R [B, T, I], dpanel A f [P, I]: rows of a token are added in row order */      \
    X(EMBED_TOKENS_BACKWARD, embed_tokens_backward)                                                \
    /* dx R [B, T, I], dwpe U f [>=T, I]: the sum over b in order, then added */                   \
    X(EMBED_POSITION_BACKWARD, embed_position_backward)                                            \
    /* x R, y U: y += x, element_count elements */                                                 \
    X(ADD, add)                                                                                    \
    /* y W: zero, element_count elements */                                                        \
    X(CLEAR, clear)                                                                                \
    /* x R f, y W: x rounded to attrs.type, element_count elements */                              \
    X(ROUND, round)                                                                                \
    /* gradient R g [element_count] (a chunk), norm A (sl_norm_sum): per block a fixed fp32 */     \
    /* tree, block sums added exactly */                                                           \
    X(BLOCK_NORM, block_norm)                                                                      \
    /* norm R (sl_norm_sum), control W (sl_step_control) */                                        \
    X(NORM_FINISH, norm_finish)                                                                    \
    /* control R, gradient R g, moment1 U f, moment2 U f, param U or W, master U? f: a chunk of */ \
    /* element_count; decoupled weight decay on blocks whose flag is set. fp32: updates param; */  \
    /* half precision: updates master and writes param = master, rounded, which is also all */     \
    /* that is written if control skips */                                                         \
    X(ADAMW, adamw)                                                                                \
    /* qkv R [B, T, 3*I], cache U [2, B, cache_rows, I] (keys, values), y W [B, T, I]: adds T */   \
    /* keys and values at scalars.position and attends to all rows up to each one's own */         \
    X(ATTENTION_CACHED, attention_cached)                                                          \
    /* x U: the sum over the ranks of the tensor-parallel group, element_count elements; with */   \
    /* row_count set, x is [R, 4] of HEAD_STATS and is combined as panels are */                   \
    X(ALL_REDUCE, all_reduce)                                                                      \
    /* value W f, element_count elements (int32): an input slot of a micro-batch; the engine */    \
    /* asks the caller's source for it, there is no kernel */                                      \
    X(INPUT, input)

typedef enum sl_op_kind {
#define X(NAME, name) SL_OP_##NAME,
    SL_OP_LIST(X)
#undef X
        SL_OP_COUNT
} sl_op_kind;

enum {
    SL_OPERAND_MAX = 7,      /* operands of one op */
    SL_BLOCK_ELEMENTS = 2048 /* every tensor of a chunk starts on a block; the unit of norms */
};

/* Types of elements, as they are stored. Kernels compute in fp32. */
typedef enum sl_type { SL_TYPE_FP32, SL_TYPE_BF16, SL_TYPE_FP16, SL_TYPE_COUNT } sl_type;

static inline uint64_t sl_type_bytes(sl_type type)
{
    return type == SL_TYPE_FP32 ? 4 : 2;
}

/* The sizes of one op. Only those that its shapes name are set; the rest are 0. */
typedef struct sl_op_attrs { /* no padding: its bytes compare */
    uint64_t batch;          /* B: rows of a micro-batch */
    uint64_t seq;            /* T: tokens of a row */
    uint64_t in, out;        /* features read and written a row */
    uint64_t heads;          /* attention heads of this rank */
    uint64_t first_row;      /* first of the B*T rows */
    uint64_t row_count;      /* rows handled */
    uint64_t first_id;       /* first token id of a panel */
    uint64_t id_count;       /* token ids of a panel, padding included */
    uint64_t valid_id_count; /* token ids of the whole vocabulary, without padding */
    uint64_t element_count;  /* elements of an elementwise or chunk op */
    uint64_t first_block;    /* ADAMW: the chunk's first block, the index of its first block flag */
    uint64_t cache_rows;     /* ATTENTION_CACHED: tokens the cache holds */
    float scale;             /* HEAD_LOGITS_BACKWARD: 1 / tokens of the step */
    uint32_t adds_output;    /* mode A adds instead of writing */
    uint16_t type;           /* an sl_type, of all operands not marked otherwise */
    uint16_t grad_type;      /* BLOCK_NORM, ADAMW, mode G: an sl_type */
    uint16_t adds_gradient;  /* mode G adds instead of writing */
    uint16_t rank_index; /* LINEAR: ranks above 0 leave out bias and residual, for the sum over */
                         /* the ranks that follows has them once; 0 without tensor parallelism */
} sl_op_attrs;

#ifndef __cplusplus
_Static_assert(sizeof(sl_op_attrs) == 120, "sl_op_attrs has padding");
#endif

/* What changes from step to step; passed to every op by value. */
typedef struct sl_step_scalars {
    float learning_rate;
    float weight_decay;
    float beta1, beta2, epsilon;
    float bias1;       /* 1 - beta1^t */
    float bias2_root;  /* sqrt(1 - beta2^t) */
    float clip;        /* largest gradient norm; 0: no clipping */
    float loss_scale;  /* 1 without half precision */
    uint32_t position; /* tokens already in the cache; 0 in training */
} sl_step_scalars;

/* The exact sum of fp32 block sums: a fixed-point number of 384 bits, least word first, whose bit 0
 * is worth 2^-149. A non-finite block sum sets `nonfinite` for good. */
typedef struct sl_norm_sum {
    uint64_t word[6];
    uint32_t nonfinite;
    uint32_t reserved[3];
} sl_norm_sum;

/* What the update needs to know of the whole gradient. Gradients are unscaled by loss_scale. */
typedef struct sl_step_control {
    float grad_norm;  /* before clipping, NaN if a gradient is not finite */
    float clip_scale; /* min(1, clip / (grad_norm + 1e-6)) / loss_scale */
    uint32_t skip;    /* the update must write nothing */
    uint32_t reserved;
} sl_step_control;

#ifdef __cplusplus
}
#endif
#endif
