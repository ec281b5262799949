/* Every op, declared once: what it computes, what it reads and writes, and how large that is.
 *
 * An op is one step of compute or communication. It knows its sizes through sl_op_attrs and its
 * data through a fixed order of operands; it knows nothing of memory. Kernels are written against
 * this file alone; src/program/op_table.c answers questions about the rows, and
 * src/program/backward.c has the backward rules.
 *
 * All tensors are row-major. Sums inside a kernel are fp32 and rounded once (to nearest, ties to
 * even) where they are stored.
 *
 * A row is X(NAME, name, flags, FLOPS of matrix products, operands in order); X(NAME, name, ...)
 * reads the names alone. An operand is OP(mode, name, how, element, dimensions...).
 *
 * mode: READ. WRITE: written whole. UPDATE: read and written. ADD: added to with attrs.adds_output,
 * else written whole. GRADIENT, of a parameter: with attrs.adds_gradient an fp32 sum that is added
 * to, else written whole and stored as attrs.grad_type, rounded once.
 *
 * how: OPTIONAL: may be absent (NULL). SEPARATE: there with attrs.is_separate, else absent.
 * IF_NEEDED: absent (NULL) only if no trained tensor needs it; the op then leaves out the work for
 * it. MASTER: absent in fp32. FROM_MASTER: updated in fp32 and beside a master of low halves;
 * beside one in fp32 written and not read. AT_LEAST: may have more rows. ROW_RANGE: of the B*T rows
 * only the R rows from first_row on; ranges of one value are written in row order, the one at row 0
 * defines the value, and no row is read before a range has written it (sl_plan_verify). LOOKUP: the
 * op touches at most as many bytes of it as its smallest LOOKUP operand has, unless it writes the
 * operand whole. PADDING: of a chunk's E elements only those R that belong to no tensor; each
 * tensor of the chunk is undefined until an op writes all of it (sl_plan_verify).
 *
 * element: TYPE: attrs.type, the compute type of parameters and activations. GRAD:
 * attrs.grad_type, fp32 or attrs.type; an op that reads it rounds each element to attrs.type first,
 * so both ways of storing it give the same bits. F32, I32, F64: fixed types.
 * NORM_SUM, CONTROL: an sl_norm_sum, an sl_step_control. STATE: the states of a rule as
 * attrs.state_type stores them (sl_states_bytes), in whole blocks. FROZEN: of a frozen matrix as
 * attrs.frozen_type stores it (sl_frozen_block_bytes), likewise. KEPT: of a master, as
 * attrs.master_type stores it (sl_master_bytes).
 *
 * dimensions: numbers, or fields of sl_op_attrs: B = batch, T = seq, R = row_count, I = in, O =
 * out, H = heads, P = id_count (token ids of a panel, from first_id on), E = element_count, K =
 * cache_rows, F = row_flops, S = O with attrs.is_separate, else 0, Q = I + 2 (O - S). In FLOPS also
 * N: of five Newton-Schulz steps of a matrix [I, O], each two products of the shorter side squared
 * by the longer one, and one of the shorter side alone.
 *
 * flags: CHEAP: `recompute selective` recomputes what it writes. UPDATES: updates a chunk by its
 * rule (rule.h); reads which rate each block has (sl_rate); may run on the host lane, next to the
 * states.
 * ON_COMM, ON_INPUT: runs on that lane.
 */
#ifndef SL_PROGRAM_OP_LIST_H
#define SL_PROGRAM_OP_LIST_H

#include <stdint.h>

/* clang-format off */
#define SL_OP_LIST(X) \
    /* x[b, t] = wpe[scalars.position + t]; zero if attrs.rank_index > 0 */ \
    X(EMBED_POSITION, embed_position, 0, NO_FLOPS, \
      OP(READ, wpe, AT_LEAST, TYPE, T, I), \
      OP(WRITE, x, 0, TYPE, B, T, I)) \
    /* Adds the panel's rows of the tokens whose ids are in the panel; nothing if */ \
    /* attrs.rank_index > 0. */ \
    X(EMBED_TOKENS, embed_tokens, 0, NO_FLOPS, \
      OP(READ, tokens, 0, I32, B, T), \
      OP(READ, panel, LOOKUP, TYPE, P, I), \
      OP(UPDATE, x, LOOKUP, TYPE, B, T, I)) \
    /* y = (x - mean) / deviation * gamma + beta; stats: mean and 1 / deviation of each row */ \
    X(LAYERNORM, layernorm, CHEAP, NO_FLOPS, \
      OP(READ, x, 0, TYPE, R, I), \
      OP(READ, gamma, 0, TYPE, I), \
      OP(READ, beta, 0, TYPE, I), \
      OP(WRITE, y, 0, TYPE, R, I), \
      OP(WRITE, stats, 0, F32, R, 2)) \
    /* y = x / sqrt(mean(x^2) + attrs.epsilon) * (attrs.gamma_offset + gamma) (Zhang and Sennrich */ \
    /* 2019); stats: 1 / sqrt of each row. A row may be one head of a token: then B counts the */ \
    /* rows of one position on all ranks. */ \
    X(RMSNORM, rmsnorm, CHEAP, NO_FLOPS, \
      OP(READ, x, 0, TYPE, R, I), \
      OP(READ, gamma, 0, TYPE, I), \
      OP(WRITE, y, 0, TYPE, R, I), \
      OP(WRITE, stats, 0, F32, R)) \
    /* y = x * weight + bias + residual */ \
    X(LINEAR, linear, 0, FLOPS(2, R, I, O), \
      OP(READ, x, 0, TYPE, R, I), \
      OP(READ, weight, 0, TYPE, I, O), \
      OP(READ, bias, OPTIONAL, TYPE, O), \
      OP(READ, residual, OPTIONAL, TYPE, R, O), \
      OP(WRITE, y, 0, TYPE, R, O)) \
    /* qkv: q, k and v of a row: I = H * head width features, then twice O, of heads that */ \
    /* share k and v in groups (Ainslie et al. 2023): query head h reads key head h O / I. */ \
    /* Causal, scaled by 1/sqrt(head width), never stores T x T; lse: the log of each row's sum */ \
    /* of exponentials (FlashAttention, Dao et al. 2022). FLOPS: half of each of the two */ \
    /* products is masked. */ \
    /* positions: of each token in its document, from 0; a token sees no token before its */ \
    /* document. attrs.dropout: of the attention weights. attrs.is_separate: qkv is q alone, */ \
    /* and k and v are operands of their own. */ \
    X(ATTENTION, attention, CHEAP, FLOPS(2, B, T, T, I), \
      OP(READ, qkv, 0, TYPE, B, T, Q), \
      OP(WRITE, y, 0, TYPE, B, T, I), \
      OP(WRITE, lse, 0, F32, B, H, T), \
      OP(READ, positions, OPTIONAL, I32, B, T), \
      OP(READ, k, SEPARATE, TYPE, B, T, S), \
      OP(READ, v, SEPARATE, TYPE, B, T, S)) \
    /* The tanh form. */ \
    X(GELU, gelu, CHEAP, NO_FLOPS, \
      OP(READ, x, 0, TYPE, E), \
      OP(WRITE, y, 0, TYPE, E)) \
    /* Rotary positions (Su et al. 2021): of each head of n features the pair x[i], x[i + n/2] is */ \
    /* turned by angle i of the token's position, backward (attrs.negates) the other way. table: */ \
    /* n = O numbers for each position: n/2 cosines, then n/2 sines. positions: of each token; */ \
    /* absent: scalars.position + t. attrs.cache_rows: positions of the table. */ \
    X(ROTARY, rotary, CHEAP, NO_FLOPS, \
      OP(READ, x, 0, TYPE, B, T, I), \
      OP(READ, table, AT_LEAST, F32, T, O), \
      OP(WRITE, y, 0, TYPE, B, T, I), \
      OP(READ, positions, OPTIONAL, I32, B, T)) \
    /* y = gate / (1 + exp(-gate)) * up; with attrs.is_gelu gelu(gate) * up, in the tanh form */ \
    /* (Shazeer 2020) */ \
    X(SWIGLU, swiglu, CHEAP, NO_FLOPS, \
      OP(READ, gate, 0, TYPE, E), \
      OP(READ, up, 0, TYPE, E), \
      OP(WRITE, y, 0, TYPE, E)) \
    /* y = x * attrs.scale */ \
    X(SCALE, scale, 0, NO_FLOPS, \
      OP(READ, x, 0, TYPE, E), \
      OP(WRITE, y, 0, TYPE, E)) \
    /* y = x * f + residual; f of an element is 0 or, if it is kept, 1 / (1 - attrs.dropout). */ \
    /* The B rows of T tokens are rows first_row and following of a micro-batch of R rows (R 0: */ \
    /* of B). */ \
    X(DROPOUT, dropout, 0, NO_FLOPS, \
      OP(READ, x, 0, TYPE, B, T, I), \
      OP(READ, residual, OPTIONAL, TYPE, B, T, I), \
      OP(WRITE, y, 0, TYPE, B, T, I)) \
    /* logits = x * panel, transposed */ \
    X(HEAD_LOGITS, head_logits, 0, FLOPS(2, R, P, I), \
      OP(READ, x, ROW_RANGE, TYPE, B, T, I), \
      OP(READ, panel, 0, TYPE, P, I), \
      OP(WRITE, logits, 0, TYPE, R, P)) \
    /* stats of each row: the largest logit m, the sum of exp(logit - m), the target's logit, */ \
    /* 1 if the target is masked (below 0), else 0. ADD combines them with those of other panels */ \
    /* (Milakov and Gimelshein 2018). Ids >= valid_id_count are padding. */ \
    X(HEAD_STATS, head_stats, 0, NO_FLOPS, \
      OP(READ, logits, 0, TYPE, R, P), \
      OP(READ, targets, ROW_RANGE, I32, B, T), \
      OP(ADD, stats, 0, F32, R, 4)) \
    /* The sum of -log p(target) over the rows whose target is not masked, in row order. counted: */ \
    /* how many these rows are. */ \
    X(HEAD_LOSS, head_loss, 0, NO_FLOPS, \
      OP(READ, stats, 0, F32, R, 4), \
      OP(ADD, loss, 0, F64, 1), \
      OP(ADD, counted, OPTIONAL, F64, 1)) \
    /* In place (softmax - one hot) * attrs.scale * scalars.loss_scale; 0 at ids >= */ \
    /* valid_id_count, and in rows whose target is masked. */ \
    X(HEAD_LOGITS_BACKWARD, head_logits_backward, 0, NO_FLOPS, \
      OP(READ, targets, ROW_RANGE, I32, B, T), \
      OP(READ, stats, 0, F32, R, 4), \
      OP(UPDATE, logits, 0, TYPE, R, P)) \
    /* dx = dlogits * panel */ \
    X(HEAD_INPUT_BACKWARD, head_input_backward, 0, FLOPS(2, R, P, I), \
      OP(READ, dlogits, 0, TYPE, R, P), \
      OP(READ, panel, 0, TYPE, P, I), \
      OP(ADD, dx, ROW_RANGE, F32, B, T, I)) \
    /* dpanel = dlogits, transposed, * x */ \
    X(HEAD_WEIGHT_BACKWARD, head_weight_backward, 0, FLOPS(2, R, P, I), \
      OP(READ, x, ROW_RANGE, TYPE, B, T, I), \
      OP(READ, dlogits, 0, TYPE, R, P), \
      OP(GRADIENT, dpanel, 0, GRAD, P, I)) \
    /* dx = dy * weight, transposed. With gelu_x (not beside attrs.adds_output) dx is */ \
    /* multiplied by gelu'(gelu_x); it is rounded once, or twice where a library computes the */ \
    /* product. */ \
    X(LINEAR_INPUT_BACKWARD, linear_input_backward, 0, FLOPS(2, R, I, O), \
      OP(READ, dy, 0, TYPE, R, O), \
      OP(READ, weight, 0, TYPE, I, O), \
      OP(ADD, dx, 0, TYPE, R, I), \
      OP(READ, gelu_x, OPTIONAL, TYPE, R, I)) \
    /* dweight = x, transposed, * dy; dbias is the sum of dy over rows. For dbias alone x and */ \
    /* dweight are absent, and attrs.in is 0. */ \
    X(LINEAR_WEIGHT_BACKWARD, linear_weight_backward, 0, FLOPS(2, R, I, O), \
      OP(READ, x, IF_NEEDED, TYPE, R, I), \
      OP(READ, dy, 0, TYPE, R, O), \
      OP(GRADIENT, dweight, IF_NEEDED, GRAD, I, O), \
      OP(GRADIENT, dbias, OPTIONAL, GRAD, O)) \
    /* In place d *= gelu'(x). */ \
    X(GELU_BACKWARD, gelu_backward, 0, NO_FLOPS, \
      OP(READ, x, 0, TYPE, E), \
      OP(UPDATE, d, 0, TYPE, E)) \
    /* d: in, the gradient of y; out, that of up. */ \
    X(SWIGLU_BACKWARD, swiglu_backward, 0, NO_FLOPS, \
      OP(READ, gate, 0, TYPE, E), \
      OP(READ, up, 0, TYPE, E), \
      OP(UPDATE, d, 0, TYPE, E), \
      OP(WRITE, dgate, 0, TYPE, E)) \
    /* FLOPS: five products, half of each masked. With attrs.is_separate dqkv is dq alone. */ \
    X(ATTENTION_BACKWARD, attention_backward, 0, FLOPS(5, B, T, T, I), \
      OP(READ, qkv, 0, TYPE, B, T, Q), \
      OP(READ, y, 0, TYPE, B, T, I), \
      OP(READ, lse, 0, F32, B, H, T), \
      OP(READ, dy, 0, TYPE, B, T, I), \
      OP(WRITE, dqkv, 0, TYPE, B, T, Q), \
      OP(READ, positions, OPTIONAL, I32, B, T), \
      OP(READ, k, SEPARATE, TYPE, B, T, S), \
      OP(READ, v, SEPARATE, TYPE, B, T, S), \
      OP(WRITE, dk, SEPARATE, TYPE, B, T, S), \
      OP(WRITE, dv, SEPARATE, TYPE, B, T, S)) \
    /* dgamma and dbeta are sums over rows. */ \
    X(LAYERNORM_BACKWARD, layernorm_backward, 0, NO_FLOPS, \
      OP(READ, x, 0, TYPE, R, I), \
      OP(READ, gamma, 0, TYPE, I), \
      OP(READ, stats, 0, F32, R, 2), \
      OP(READ, dy, 0, TYPE, R, I), \
      OP(ADD, dx, IF_NEEDED, TYPE, R, I), \
      OP(GRADIENT, dgamma, IF_NEEDED, GRAD, I), \
      OP(GRADIENT, dbeta, IF_NEEDED, GRAD, I)) \
    /* dgamma is a sum over rows. */ \
    X(RMSNORM_BACKWARD, rmsnorm_backward, 0, NO_FLOPS, \
      OP(READ, x, 0, TYPE, R, I), \
      OP(READ, gamma, 0, TYPE, I), \
      OP(READ, stats, 0, F32, R), \
      OP(READ, dy, 0, TYPE, R, I), \
      OP(ADD, dx, IF_NEEDED, TYPE, R, I), \
      OP(GRADIENT, dgamma, IF_NEEDED, GRAD, I)) \
    /* The rows of one token are summed in row order, and the sum is added once. */ \
    X(EMBED_TOKENS_BACKWARD, embed_tokens_backward, 0, NO_FLOPS, \
      OP(READ, tokens, 0, I32, B, T), \
      OP(READ, dx, LOOKUP, TYPE, B, T, I), \
      OP(ADD, dpanel, LOOKUP, F32, P, I)) \
    /* The sum over b in order, then added. */ \
    X(EMBED_POSITION_BACKWARD, embed_position_backward, 0, NO_FLOPS, \
      OP(READ, dx, 0, TYPE, B, T, I), \
      OP(UPDATE, dwpe, AT_LEAST, F32, T, I)) \
    /* y += x */ \
    X(ADD, add, 0, NO_FLOPS, \
      OP(READ, x, 0, TYPE, E), \
      OP(UPDATE, y, 0, TYPE, E)) \
    /* y = 0 */ \
    X(CLEAR, clear, 0, NO_FLOPS, \
      OP(WRITE, y, 0, TYPE, E)) \
    /* Of a chunk of gradients: zeros in the elements that belong to no tensor, which BLOCK_NORM and */ \
    /* the updates read with the others. */ \
    X(CLEAR_PADDING, clear_padding, 0, NO_FLOPS, \
      OP(WRITE, gradient, PADDING, TYPE, E)) \
    /* y = x, rounded */ \
    X(ROUND, round, 0, NO_FLOPS, \
      OP(READ, x, 0, F32, E), \
      OP(WRITE, y, 0, TYPE, E)) \
    /* Of a chunk: the sum of squares of each block by a fixed fp32 tree; the block sums are */ \
    /* added exactly. With several ranks only those of the blocks that count on this rank. */ \
    X(BLOCK_NORM, block_norm, 0, NO_FLOPS, \
      OP(READ, gradient, 0, GRAD, E), \
      OP(ADD, norm, 0, NORM_SUM, 1)) \
    /* Makes the control of the updates from the sum of squares. With counted, gradients are */ \
    /* those of a mean over row_count rows, and the norm and the factor of the updates are those */ \
    /* of the mean over the rows that count; if none counts, the control says skip. */ \
    X(NORM_FINISH, norm_finish, 0, NO_FLOPS, \
      OP(READ, norm, 0, NORM_SUM, 1), \
      OP(WRITE, control, 0, CONTROL, 1), \
      OP(READ, counted, OPTIONAL, F64, 1)) \
    /* Of a chunk, with the rates of its blocks; decoupled weight decay (Loshchilov and Hutter */ \
    /* 2019). fp32: updates param. Half precision: updates master and writes param = master, */ \
    /* rounded; if control says skip, only param is written. Of a shard: gradient and param are */ \
    /* the whole chunk, and the shard begins at attrs.first_element. */ \
    X(ADAMW, adamw, UPDATES, NO_FLOPS, \
      OP(READ, control, 0, CONTROL, 1), \
      OP(READ, gradient, AT_LEAST, GRAD, E), \
      OP(UPDATE, moment1, 0, STATE, E), \
      OP(UPDATE, moment2, 0, STATE, E), \
      OP(UPDATE, param, FROM_MASTER | AT_LEAST, TYPE, E), \
      OP(UPDATE, master, MASTER, KEPT, E)) \
    /* The same by stochastic gradient descent, as torch.optim.SGD computes it: weight decay is a */ \
    /* part of the gradient. momentum: the sum that scalars.momentum decays. */ \
    X(SGD, sgd, UPDATES, NO_FLOPS, \
      OP(READ, control, 0, CONTROL, 1), \
      OP(READ, gradient, AT_LEAST, GRAD, E), \
      OP(UPDATE, momentum, OPTIONAL, STATE, E), \
      OP(UPDATE, param, FROM_MASTER | AT_LEAST, TYPE, E), \
      OP(UPDATE, master, MASTER, KEPT, E)) \
    /* The same by Lion (Chen et al. 2023): by the sign of a mean of moment and gradient. */ \
    X(LION, lion, UPDATES, NO_FLOPS, \
      OP(READ, control, 0, CONTROL, 1), \
      OP(READ, gradient, AT_LEAST, GRAD, E), \
      OP(UPDATE, moment, 0, STATE, E), \
      OP(UPDATE, param, FROM_MASTER | AT_LEAST, TYPE, E), \
      OP(UPDATE, master, MASTER, KEPT, E)) \
    /* cache: keys and values of K tokens. Writes T of each at scalars.position; a token */ \
    /* attends to itself and all before it. FLOPS: two products with a full cache. */ \
    X(ATTENTION_CACHED, attention_cached, 0, FLOPS(4, B, T, K, I), \
      OP(READ, qkv, 0, TYPE, B, T, Q), \
      OP(UPDATE, cache, 0, TYPE, 2, B, K, O), \
      OP(WRITE, y, 0, TYPE, B, T, I), \
      OP(READ, k, SEPARATE, TYPE, B, T, S), \
      OP(READ, v, SEPARATE, TYPE, B, T, S)) \
    /* An op of the model's own, attrs.custom of the program's (sluice/custom.h): rows of y from */ \
    /* rows of x and z. */ \
    X(CUSTOM, custom, 0, FLOPS(R, F), \
      OP(READ, x, 0, TYPE, R, I), \
      OP(READ, z, OPTIONAL, TYPE, R, I), \
      OP(READ, weight, OPTIONAL, TYPE, E), \
      OP(WRITE, y, 0, TYPE, R, O)) \
    X(CUSTOM_BACKWARD, custom_backward, 0, FLOPS(2, R, F), \
      OP(READ, x, 0, TYPE, R, I), \
      OP(READ, z, OPTIONAL, TYPE, R, I), \
      OP(READ, weight, OPTIONAL, TYPE, E), \
      OP(READ, dy, 0, TYPE, R, O), \
      OP(WRITE, dx, IF_NEEDED, TYPE, R, I), \
      OP(WRITE, dz, IF_NEEDED, TYPE, R, I), \
      OP(GRADIENT, dweight, IF_NEEDED, GRAD, E)) \
    /* The sum over the tensor-parallel ranks, in rank order and fp32, rounded once. */ \
    X(ALL_REDUCE, all_reduce, ON_COMM, NO_FLOPS, \
      OP(UPDATE, x, 0, TYPE, E)) \
    /* Combines the stats of HEAD_STATS over the tensor-parallel ranks as over panels. */ \
    X(ALL_REDUCE_STATS, all_reduce_stats, ON_COMM, NO_FLOPS, \
      OP(UPDATE, stats, 0, F32, R, 4)) \
    /* Fills an input slot of a micro-batch from the caller's source; the engine does, no */ \
    /* kernel. */ \
    X(INPUT, input, ON_INPUT, NO_FLOPS, \
      OP(WRITE, value, 0, I32, E)) \
    /* norm: the exact sum over all ranks, and the union of their scalars.flags. loss and */ \
    /* counted: the sum over the data-parallel ranks, in rank order, and over the stages. */ \
    X(ALL_REDUCE_NORM, all_reduce_norm, ON_COMM, NO_FLOPS, \
      OP(UPDATE, norm, 0, NORM_SUM, 1), \
      OP(UPDATE, loss, OPTIONAL, F64, 1), \
      OP(UPDATE, counted, OPTIONAL, F64, 1)) \
    /* Of a chunk, the sum over the data-parallel ranks: each element is rounded to TYPE, */ \
    /* whatever its stored type; the sum in rank order and fp32 is rounded to TYPE once. */ \
    X(ALL_REDUCE_GRADIENT, all_reduce_gradient, ON_COMM, NO_FLOPS, \
      OP(UPDATE, gradient, 0, GRAD, E)) \
    /* ALL_REDUCE_GRADIENT of this rank's shard, in place; other elements keep their values. */ \
    X(REDUCE_SCATTER_GRADIENT, reduce_scatter_gradient, ON_COMM, NO_FLOPS, \
      OP(UPDATE, gradient, 0, GRAD, E)) \
    /* Gathers a chunk: each shard from the data-parallel rank that owns the shard. */ \
    X(ALL_GATHER_CHUNK, all_gather_chunk, ON_COMM, NO_FLOPS, \
      OP(UPDATE, chunk, 0, TYPE, E)) \
    /* y: the rows of all tensor-parallel ranks, in rank order; x: this rank's R of the B*T */ \
    /* rows. */ \
    X(GATHER_ROWS, gather_rows, ON_COMM, NO_FLOPS, \
      OP(READ, x, 0, TYPE, R, I), \
      OP(WRITE, y, 0, TYPE, B, T, I)) \
    /* y: this rank's rows of the sum of x over the tensor-parallel ranks, in rank order and */ \
    /* fp32, rounded once. */ \
    X(SCATTER_ROWS, scatter_rows, ON_COMM, NO_FLOPS, \
      OP(READ, x, 0, TYPE, B, T, I), \
      OP(WRITE, y, 0, TYPE, R, I)) \
    /* The sum of a stored gradient over the tensor-parallel ranks: each term and the sum are */ \
    /* rounded to TYPE. attrs.batch: 0, or the ranks of a set: attrs.heads sets of consecutive */ \
    /* ranks have a sum each, and this rank is number attrs.rank_index of its set. */ \
    X(ALL_REDUCE_TENSOR, all_reduce_tensor, ON_COMM, NO_FLOPS, \
      OP(UPDATE, gradient, 0, GRAD, E)) \
    /* y: this tensor-parallel rank's rows of x, which all ranks have. Exchanges nothing. */ \
    X(TAKE_ROWS, take_rows, ON_COMM, NO_FLOPS, \
      OP(READ, x, 0, TYPE, B, T, I), \
      OP(WRITE, y, 0, TYPE, R, I)) \
    /* y: the columns of all tensor-parallel ranks, in rank order; x: this rank's O columns. Of */ \
    /* the columns in x those beyond y's I are padding. */ \
    X(GATHER_COLUMNS, gather_columns, ON_COMM, NO_FLOPS, \
      OP(READ, x, 0, TYPE, R, O), \
      OP(WRITE, y, 0, TYPE, R, I)) \
    /* y: this rank's columns of the sum of x over the tensor-parallel ranks, in rank order and */ \
    /* fp32, rounded to the compute type; padding is zero. */ \
    X(SCATTER_COLUMNS, scatter_columns, ON_COMM, NO_FLOPS, \
      OP(READ, x, 0, TYPE, R, I), \
      OP(GRADIENT, y, 0, GRAD, R, O)) \
    /* y: this rank's columns of x, which all ranks have; padding is zero. Exchanges nothing. */ \
    X(TAKE_COLUMNS, take_columns, ON_COMM, NO_FLOPS, \
      OP(READ, x, 0, TYPE, R, I), \
      OP(WRITE, y, 0, TYPE, R, O)) \
    /* REDUCE_SCATTER_GRADIENT into a shard of R elements that is a value of its own. */ \
    X(REDUCE_SCATTER_SHARD, reduce_scatter_shard, ON_COMM, NO_FLOPS, \
      OP(READ, gradient, 0, GRAD, E), \
      OP(WRITE, shard, 0, GRAD, R)) \
    /* ALL_GATHER_CHUNK from a shard of R elements that is a value of its own. */ \
    X(ALL_GATHER_SHARD, all_gather_shard, ON_COMM, NO_FLOPS, \
      OP(READ, shard, 0, TYPE, R), \
      OP(WRITE, chunk, 0, TYPE, E)) \
    /* Sends to and receives from the pipeline stage attrs.rank_index; at once if both are */ \
    /* present. */ \
    X(EXCHANGE, exchange, ON_COMM, NO_FLOPS, \
      OP(READ, sent, OPTIONAL, TYPE, R, I), \
      OP(WRITE, received, OPTIONAL, TYPE, R, I)) \
    /* Muon's direction (Jordan et al. 2024, as torch.optim.Muon), of a chunk or a shard as ADAMW: */ \
    /* the mean of gradients and, one step ahead, the direction in the gradient's place, times */ \
    /* scalars.loss_scale. If control says skip, nothing is written. */ \
    X(MOMENTUM, momentum, UPDATES, NO_FLOPS, \
      OP(READ, control, 0, CONTROL, 1), \
      OP(UPDATE, gradient, AT_LEAST, GRAD, E), \
      OP(UPDATE, mean, 0, F32, E)) \
    /* In place the nearest matrix with orthogonal rows or columns, by five Newton-Schulz steps, */ \
    /* times attrs.scale. Products in TYPE. */ \
    X(ORTHOGONALISE, orthogonalise, 0, FLOPS(N), \
      OP(UPDATE, matrix, 0, GRAD, I, O)) \
    /* Of a chunk, as ADAMW: by a direction that other ops made. */ \
    X(APPLY, apply, UPDATES, NO_FLOPS, \
      OP(READ, control, 0, CONTROL, 1), \
      OP(READ, direction, AT_LEAST, GRAD, E), \
      OP(UPDATE, param, FROM_MASTER | AT_LEAST, TYPE, E), \
      OP(UPDATE, master, MASTER, KEPT, E)) \
    /* shard: this data-parallel rank's R elements of a chunk that all ranks have. Exchanges */ \
    /* nothing. */ \
    X(TAKE_SHARD, take_shard, ON_COMM, NO_FLOPS, \
      OP(READ, chunk, 0, TYPE, E), \
      OP(WRITE, shard, 0, TYPE, R)) \
    /* chunk: what stands in a chunk of frozen matrices, each number rounded to TYPE once. */ \
    X(DEQUANTIZE, dequantize, 0, NO_FLOPS, \
      OP(READ, stored, 0, FROZEN, E), \
      OP(WRITE, chunk, 0, TYPE, E))
/* clang-format on */

typedef enum sl_op_kind {
#define X(NAME, name, ...) SL_OP_##NAME,
    SL_OP_LIST(X)
#undef X
        SL_OP_COUNT
} sl_op_kind;

enum {
    SL_OPERAND_MAX = 10,     /* operands of one op */
    SL_BLOCK_ELEMENTS = 2048 /* every tensor of a chunk starts on a block; the unit of norms */
};

/* Types of elements, as they are stored. Kernels compute in fp32. */
typedef enum sl_type { SL_TYPE_FP32, SL_TYPE_BF16, SL_TYPE_FP16, SL_TYPE_COUNT } sl_type;

static inline uint64_t sl_type_bytes(sl_type type)
{
    return type == SL_TYPE_FP32 ? 4 : 2;
}

/* How the states of update rules are stored. INT8: a block holds a code of 8 bits for each element
 * and behind them a scale in fp32 for each SL_CODES_GROUP elements (base/dynamic_codes.h). */
typedef enum sl_states {
    SL_STATES_FP32,
    SL_STATES_BF16, /* rounded stochastically (base/stochastic.h) */
    SL_STATES_INT8,
    SL_STATES_COUNT
} sl_states;

/* Bytes of a block. */
static inline uint64_t sl_states_block_bytes(sl_states states)
{
    static const uint16_t bytes[] = {4 * SL_BLOCK_ELEMENTS, 2 * SL_BLOCK_ELEMENTS,
                                     SL_BLOCK_ELEMENTS + SL_BLOCK_ELEMENTS / 256 * 4};
    return bytes[states];
}

/* What is kept of a parameter in half precision, to be updated. LOW: the low halves of numbers
 * whose high halves are the parameters, in bf16 alone (base/low_half.h). */
typedef enum sl_master { SL_MASTER_FP32, SL_MASTER_LOW, SL_MASTER_COUNT } sl_master;

/* Bytes of an element. */
static inline uint64_t sl_master_bytes(sl_master master)
{
    return master == SL_MASTER_LOW ? 2 : 4;
}

/* How frozen matrices are stored: as all parameters, in bf16, or in codes of 8 bits. INT8: a block
 * holds a code for each element and behind them a scale in fp16 for each SL_Q8_GROUP elements
 * (base/q8.h). */
typedef enum sl_frozen { SL_FROZEN_OWN, SL_FROZEN_BF16, SL_FROZEN_INT8, SL_FROZEN_COUNT } sl_frozen;

/* Bytes of a block; OWN has none of its own. */
static inline uint64_t sl_frozen_block_bytes(sl_frozen frozen)
{
    static const uint16_t bytes[] = {0, 2 * SL_BLOCK_ELEMENTS,
                                     SL_BLOCK_ELEMENTS + SL_BLOCK_ELEMENTS / 32 * 2};
    return bytes[frozen];
}

/* Chunks are stored in multiples of this, which direct I/O needs. Only those of INT8 are not of
 * such a length already. */
enum { SL_CHUNK_ALIGNMENT = 4096 };

/* Bytes of a chunk of `blocks` blocks; no overflow where the blocks of all chunks have none. */
static inline uint64_t sl_chunk_bytes(uint64_t blocks, uint64_t block_bytes)
{
    return (blocks * block_bytes + SL_CHUNK_ALIGNMENT - 1) / SL_CHUNK_ALIGNMENT *
           SL_CHUNK_ALIGNMENT;
}

/* The sizes of one op. Only those that its shapes name are set; the rest are 0. */
typedef struct sl_op_attrs { /* no padding: attributes are compared by their bytes */
    uint64_t batch;          /* B: rows of a micro-batch */
    uint64_t seq;            /* T: tokens of a row */
    uint64_t in, out;        /* features read and written a row */
    union {
        uint64_t heads;  /* attention heads of this rank */
        uint64_t custom; /* CUSTOM: which of the program's ops */
    };
    union {
        uint64_t first_row;     /* first of the B*T rows */
        uint64_t first_element; /* update of a shard: where it begins in the chunk */
    };
    uint64_t row_count; /* rows handled; CLEAR_PADDING: elements of padding; NORM_FINISH: rows of
                           the step, with masks */
    uint64_t first_id;  /* first token id of a panel */
    uint64_t id_count;  /* token ids of a panel, padding included */
    union {
        uint64_t valid_id_count; /* token ids of the whole vocabulary, without padding */
        uint64_t row_flops;      /* CUSTOM: of a row, forward */
    };
    uint64_t element_count; /* elements of an elementwise or chunk op; CUSTOM: of the weight */
    uint64_t first_block;   /* updates, CLEAR_PADDING, and BLOCK_NORM with several ranks: index of
                               the chunk's first block, for what is said of blocks */
    uint64_t cache_rows;    /* ATTENTION_CACHED: tokens the cache holds; ROTARY: positions of the
                               table */
    union {
        float scale;          /* SCALE, ORTHOGONALISE; HEAD_LOGITS_BACKWARD: 1 / tokens of the
                                 step */
        float epsilon;        /* RMSNORM */
        uint32_t is_gelu;     /* SWIGLU: the function of the gate */
        uint32_t is_separate; /* attention: q, k and v are three operands */
        uint32_t negates;     /* ROTARY: the angles */
        float row_seconds;    /* CUSTOM: of a row, forward; 0: as fast as its bytes */
    };
    uint32_t adds_output;   /* mode ADD adds instead of writing */
    uint16_t type;          /* an sl_type, of TYPE operands */
    uint16_t grad_type;     /* an sl_type, of GRAD operands */
    uint16_t adds_gradient; /* mode GRADIENT adds instead of writing */
    /* LINEAR: ranks above 0 leave out bias and residual, EMBED_POSITION and EMBED_TOKENS all that
     * they add: the sum over the ranks that follows must hold them once. ATTENTION with dropout:
     * the first head is number rank_index * heads. EXCHANGE: the other stage. ALL_REDUCE_TENSOR:
     * this rank within its set. */
    uint16_t rank_index;
    union {
        /* ATTENTION, DROPOUT: the probability of dropping an element, in [0, 1). Whether an element
         * is dropped depends on scalars.dropout_seed, dropout_site, the element's row among all
         * rows of the run, and its position in the row (kernels/dropout.h). */
        float dropout;
        float gamma_offset;   /* RMSNORM */
        uint32_t master_type; /* updates: an sl_master */
    };
    union {
        uint32_t dropout_site;
        uint32_t state_type;  /* updates: an sl_states */
        uint32_t frozen_type; /* DEQUANTIZE: an sl_frozen */
    };
} sl_op_attrs;

#ifndef __cplusplus
_Static_assert(sizeof(sl_op_attrs) == 128, "sl_op_attrs has padding");
#endif

/* Elements [first, first + count) of a chunk, which belong to no tensor. */
typedef struct sl_padding {
    uint64_t first, count;
} sl_padding;

/* How fast the elements of a block change. An update finds the rate of a block by the block's byte,
 * an index into a table of rates that the model's tensors share. */
typedef struct sl_rate {
    float factor;       /* of scalars.learning_rate */
    float weight_decay; /* SL_RATE_DECAY_OF_STEP: scalars.weight_decay */
} sl_rate;

#define SL_RATE_DECAY_OF_STEP (-1.0f)

enum {
    SL_RATE_PLAIN,  /* factor 1, no weight decay */
    SL_RATE_DECAYS, /* factor 1, the weight decay of the step */
    SL_RATE_FIRST,  /* of those that differ */
    SL_RATES_MAX = 128
};

/* What changes from step to step; passed to every op by value. */
typedef struct sl_step_scalars {
    float learning_rate;
    float weight_decay;
    float beta1, beta2, epsilon; /* ADAMW */
    float bias1;                 /* 1 - beta1^t */
    float bias2_root;            /* sqrt(1 - beta2^t) */
    float lion_beta1, lion_beta2;
    float momentum;       /* SGD */
    float muon_momentum;  /* MOMENTUM: what the mean before weighs */
    uint32_t is_nesterov; /* SGD with momentum: it looks ahead */
    float clip;           /* largest gradient norm; 0: no clipping */
    float loss_scale;     /* 1 without half precision */
    uint32_t position;    /* tokens already in the cache; 0 in training */
    uint64_t dropout_seed;
    uint64_t step;      /* of the run, from 0: stochastic rounding draws by it */
    uint64_t first_row; /* of the step's micro-batch 0, among all rows of the run */
    uint32_t flags;     /* with several ranks: what this one asks of all, such as to stop */
    uint32_t row_gap; /* rows of other data-parallel ranks between two micro-batches of this one */
} sl_step_scalars;

enum { SL_COUNTED_MAX = INT32_MAX }; /* rows of a step with masks */

/* The exact sum of fp32 block sums: a fixed-point number of 384 bits, least word first, whose bit 0
 * is worth 2^-149. A non-finite block sum sets `nonfinite` for good. */
typedef struct sl_norm_sum {
    uint64_t word[6];
    uint32_t nonfinite : 1;
    uint32_t counted : 31; /* of ALL_REDUCE_NORM, while it exchanges: a rank's rows that count in
                              the loss; else 0 */
    uint32_t flags;        /* of ALL_REDUCE_NORM; else 0 */
    uint32_t reserved[2];  /* of ALL_REDUCE_NORM: a rank's loss */
} sl_norm_sum;

/* What the update needs to know of the whole gradient. Gradients are unscaled by loss_scale. */
typedef struct sl_step_control {
    float grad_norm;  /* before clipping, NaN if a gradient is not finite */
    float clip_scale; /* min(1, clip / (grad_norm + 1e-6)) / loss_scale; see NORM_FINISH */
    uint32_t skip;    /* the update must write nothing */
    uint32_t flags;   /* the union of all ranks' scalars.flags; 0 with one rank */
} sl_step_control;

#endif
