/* Every option of every command, declared once: the command line, the JSON configuration, --set,
 * --help and the printed configuration are walks over this list.
 *
 * X(KIND, field, name, initial, hint, low, high, commands, group, first, help)
 *   KIND     TEXT, LIST, COUNT, ELEMENTS (a count with K, M, G or T behind it), STEPS (a count, or
 *            below 1 a share of --steps), REAL, SIZE, SWITCH or CHOICE; decides the field's type
 *   initial  the default, as a user would write it; "auto" makes "auto" a value (unset); "" is none
 *   hint     what --help shows as the value; for a CHOICE also its names, in the enum's order. One
 *            with DIR, FILE or PATH in it makes the value a path, but for words before a "|"; with
 *            "|auto" at its end, "auto" is a value of a number whose default is another
 *   low,high the range of a COUNT, ELEMENTS, STEPS or REAL, both ends included
 *   commands the commands that take it: T train, plan and profile, P plan alone, R profile alone,
 *            G generate, E eval, D doctor, B bench, K tokenize, V convert, O report, I init; what
 *            train takes, init takes too
 *   group    the heading under which --help shows it; sl_config_group has their order
 *   first    those of `commands` whose short --help shows it; the others' has it in --help-all
 *
 * This is what names (commands) and values (KIND, hint, low, high) are checked against; config.h
 * says in which steps, and where combinations of options are.
 */
#ifndef SL_CONFIG_CONFIG_LIST_H
#define SL_CONFIG_CONFIG_LIST_H

#include "model/architecture.h"

/* arch: from SL_CONFIG_ARCH_FIRST on sl_architecture_kind. */
#define SL_CONFIG_ARCH_CHOICE(KIND, name) "|" #name
#define SL_CONFIG_ARCH_CHOICES "auto" SL_ARCHITECTURES(SL_CONFIG_ARCH_CHOICE)

#define SL_CONFIG_LIST_MODEL(X)                                                                    \
    X(TEXT, recipe, "recipe", "", "NAME", 0, 0, I, MODEL, I,                                       \
      "what to begin with: a model with its batch, rates and data (none: the recipes are listed)") \
    X(TEXT, model, "model", "", "NAME", 0, 0, T, MODEL, T,                                         \
      "a built-in shape, such as gpt2, gpt2-xl, llama-3.2-1b or qwen3-0.6b (sluice help models)")  \
    X(COUNT, layers, "layers", "auto", "N", 1, 1e5, T, MODEL, T, "transformer blocks")             \
    X(COUNT, width, "width", "auto", "N", 1, 1e6, T, MODEL, T, "features of a token")              \
    X(COUNT, heads, "heads", "auto", "N", 1, 1e5, TV, MODEL, T,                                    \
      "attention heads; of pieces of weights, where those have no number")                         \
    X(CHOICE, arch, "arch", "auto", SL_CONFIG_ARCH_CHOICES, 0, 0, T, MODEL, 0,                     \
      "the architecture of a shape by hand (the model's, or gpt2); --kv-heads to --untied are "    \
      "for all but gpt2")                                                                          \
    X(COUNT, kv_heads, "kv-heads", "auto", "N", 1, 1e5, T, MODEL, 0,                               \
      "heads of keys and values, each for as many query heads (as --heads)")                       \
    X(COUNT, head_size, "head-size", "auto", "N", 2, 1e5, T, MODEL, 0,                             \
      "features of a head, an even number (--width / --heads)")                                    \
    X(COUNT, ffn, "ffn", "auto", "N", 1, 1e7, T, MODEL, 0,                                         \
      "features inside the MLP (8/3 of --width, rounded up to 256)")                               \
    X(REAL, norm_epsilon, "norm-epsilon", "auto", "X", 1e-12, 0.1, T, MODEL, 0,                    \
      "epsilon of the norms (1e-5; of qwen2, qwen3 and olmo2 1e-6)")                               \
    X(REAL, rope_base, "rope-base", "auto", "X", 1.01, 1e12, T, MODEL, 0,                          \
      "base of the rotary angles (1e4; of qwen2 and qwen3 1e6, of olmo2 5e5)")                     \
    X(SWITCH, untied, "untied", "false", NULL, 0, 0, T, MODEL, 0,                                  \
      "the head has a table of its own, not the embedding's (the model's)")                        \
    X(COUNT, context, "context", "auto", "N", 1, 1e7, T, MODEL, T,                                 \
      "most tokens of a row (the model's; 1024 for a shape by hand)")                              \
    X(COUNT, vocab, "vocab", "auto", "N", 1, 1e8, T, MODEL, 0,                                     \
      "token ids, unpadded (the model's; by hand the tokenizer's, 257 of bytes, or 50257)")        \
    X(TEXT, init, "init", "scratch", "scratch|DIR", 0, 0, T, MODEL, T | I,                         \
      "random numbers, a checkpoint, a Hugging Face directory, or pieces of another program; "     \
      "that is Megatron, torch (FSDP) or DeepSpeed")                                               \
    X(TEXT, adapter, "adapter", "", "DIR", 0, 0, TGEV, MODEL, GE,                                  \
      "adapters of LoRA for the model: a directory as PEFT saves it")                              \
    X(REAL, dropout, "dropout", "0", "P", 0, 0.9999, T, LEARNING, 0,                               \
      "probability of dropping an element of attention's weights, of what a branch adds and of "   \
      "the embedding; in training alone, and the same ones however the work is placed")

#define SL_CONFIG_LIST_DATA(X)                                                                     \
    X(LIST, data, "data", "", "[WEIGHT:]PATH...", 0, 0, TEK, DATA, TEK | I,                        \
      "text, JSON lines, token files, or directories of them: recognised by content (token files " \
      "are llm.c's, nanoGPT's, or Megatron's .bin with .idx), joined in this order; a directory "  \
      "stands for the files below it, in order of their paths; with a weight on each, rows come "  \
      "from them in these shares (0.7:web 0.3:books.bin)")                                         \
    X(TEXT, tokenizer, "tokenizer", "auto", "byte|DIR", 0, 0, TGEKV, DATA, TGEKV | I,              \
      "how text becomes tokens (the checkpoint's; byte for a new model): byte is 256 bytes and "   \
      "end of text, 257 ids: further ids of the model idle; DIR holds tokenizer.json of byte-"     \
      "level BPE (GPT-2, Llama 3, Qwen), or vocab.json and merges.txt")                            \
    X(TEXT, json_key, "json-key", "text", "KEY", 0, 0, TEK, DATA, 0,                               \
      "what holds the text in the objects of JSON lines")                                          \
    X(TEXT, prompt_key, "prompt-key", "", "KEY", 0, 0, TE, DATA, 0,                                \
      "to fine-tune on objects (JSON lines, or a JSON array): what holds the prompt in each")      \
    X(TEXT, response_key, "response-key", "", "KEY", 0, 0, TE, DATA, 0,                            \
      "what holds the response to it")                                                             \
    X(TEXT, messages_key, "messages-key", "", "KEY", 0, 0, TE, DATA, 0,                            \
      "to fine-tune on conversations: what holds the list of messages, each with role and "        \
      "content")                                                                                   \
    X(TEXT, template_file, "template", "", "none|FILE", 0, 0, TGE, DATA, 0,                        \
      "how an example is written: a text with the marks {prompt} and {response}, or, for each "    \
      "message, {role} and {content} (train: a line of each; eval: the checkpoint's). Of "         \
      "generate: what a prompt is put into (the checkpoint's); none: it stays as it is")           \
    X(TEXT, system, "system", "", "TEXT", 0, 0, G, DATA, G,                                        \
      "a message of the role system in front of the prompt, for a template of messages")           \
    X(CHOICE, loss, "loss", "response", "response|all", 0, 0, TE, DATA, 0,                         \
      "of examples: the loss is the mean over responses and the ends of text behind them, or "     \
      "over all tokens")                                                                           \
    X(CHOICE, pack, "pack", "on", "on|off", 0, 0, TE, DATA, 0,                                     \
      "of examples: whole examples share a row while they fit, or each has a row of its own")      \
    X(CHOICE, document_per, "document-per", "file", "file|line", 0, 0, TEK, DATA, K,               \
      "what is a document in plain text")                                                          \
    X(COUNT, end_of_text, "end-of-text", "auto", "ID", 0, 1e8, TGE | K, DATA, 0,                   \
      "the id behind each document (the tokenizer's); files of tokens without an index say by "    \
      "it alone where documents end; of generate: it ends a text, too")                            \
    X(TEXT, cache_dir, "cache-dir", "", "DIR", 0, 0, TE, DATA, 0,                                  \
      "where the ids of text are kept for the next run (sluice in $XDG_CACHE_HOME or ~/.cache)")   \
    X(SWITCH, clean, "clean", "false", NULL, 0, 0, K, DATA, K,                                     \
      "leave out documents of fewer than 128 tokens, and exact repetitions")                       \
    X(COUNT, learn, "learn", "0", "N", 0, 16777216, K, DATA, K,                                    \
      "learn a vocabulary of N tokens from the data first, into --tokenizer DIR; 0: do not")       \
    X(SWITCH, decode, "decode", "false", NULL, 0, 0, K, DATA, K,                                   \
      "from files of tokens to text (standard output, or --output)")                               \
    X(CHOICE, data_order, "data-order", "random", "random|sequential|shuffle", 0, 0, T, DATA, 0,   \
      "where rows start: anywhere, one behind the other, or so in a new order each epoch, in "     \
      "which every row comes once")                                                                \
    X(CHOICE, documents, "documents", "join", "join|reset", 0, 0, TE, DATA, 0,                     \
      "what a token sees where several documents (or examples) share a row: join, all that is "    \
      "before it in the row; reset, its own document alone, with positions counted from 0. A "     \
      "document begins behind each end of text")                                                   \
    X(TEXT, split, "split", "", "A,B,C", 0, 0, TE, DATA, TE,                                       \
      "shares of the documents of --data for training, validation and test, such as 98,1,1 (all "  \
      "for training): in order; validation is at --eval-every and the end, test at the end")       \
    X(CHOICE, share, "share", "test", "training|validation|test", 0, 0, E, DATA, E,                \
      "which share of --split is evaluated: with the split that train had, test is text that the " \
      "model has not seen")                                                                        \
    X(LIST, eval_data, "eval-data", "", "PATH...", 0, 0, T, WATCHING, 0, "files to evaluate on")   \
    X(COUNT, overlap, "overlap", "0", "N", 0, 1e7, E, DATA, E,                                     \
      "tokens that each window of --seq tokens reads again from the one before, as context that "  \
      "is not counted: every token but the first is counted once, with N tokens before it or "     \
      "more; 0: rows side by side, each beginning without context")                                \
    X(SWITCH, last_word, "last-word", "false", NULL, 0, 0, E, DATA, E,                             \
      "accuracy of the last word of each document of JSON lines, as in LAMBADA: is it the "        \
      "likeliest one, token by token?")                                                            \
    X(COUNT, eval_every, "eval-every", "0", "N", 0, 1e12, T, WATCHING, T,                          \
      "evaluate after every N steps (0: after the last one)")                                      \
    X(COUNT, eval_iters, "eval-iters", "auto", "N", 1, 1e12, TE, WATCHING, E,                      \
      "micro-batches, each of --micro-batch rows (not single rows), that an evaluation covers, "   \
      "from the first on (all of its data)")                                                       \
    X(COUNT, sample_every, "sample-every", "0", "N", 0, 1e12, T, WATCHING, 0,                      \
      "write a text after every N steps, as generate would from their model (0: never)")           \
    X(TEXT, sample_prompt, "sample-prompt", "", "TEXT", 0, 0, T, WATCHING, 0,                      \
      "what that text goes on from (the end of another text)")                                     \
    X(COUNT, sample_tokens, "sample-tokens", "64", "N", 1, 1e5, T, WATCHING, 0,                    \
      "tokens of that text; each takes a pass over a row of --seq tokens")                         \
    X(COUNT, patience, "patience", "0", "N", 0, 1e6, T, WATCHING, 0,                               \
      "end the run when N evaluations in a row were no better than the best one (0: never)")

#define SL_CONFIG_LIST_TRAINING(X)                                                                 \
    X(COUNT, micro_batch, "micro-batch", "4", "N", 1, 1e6, TE, BATCH, TE, "rows of a micro-batch") \
    X(COUNT, seq, "seq", "auto", "N", 1, 1e7, TE, BATCH, TE,                                       \
      "tokens of a row (the context; rotary: 4096)")                                               \
    X(COUNT, accumulate, "accumulate", "1", "N", 1, SL_CONFIG_ACCUMULATE_MAX, T, BATCH, T,         \
      "micro-batches of a step")                                                                   \
    X(COUNT, global_batch, "global-batch", "auto", "N|auto", 1, 1e12, T, BATCH, 0,                 \
      "rows of a step over all ranks: gives --accumulate where that is left out, and is checked "  \
      "where it is not")                                                                           \
    X(COUNT, steps, "steps", "100", "N", 0, 1e12, T, BATCH, T,                                     \
      "steps to train, all runs together")                                                         \
    X(COUNT, epochs, "epochs", "auto", "N", 1, 1e6, T, BATCH, 0,                                   \
      "in place of --steps: as many as read every row N times")                                    \
    X(COUNT, train_tokens, "tokens", "auto", "N", 1, 1e18, T, BATCH, 0,                            \
      "in place of --steps: as many as read N tokens")                                             \
    X(CHOICE, accumulation, "accumulation", "auto", "micro|layer|auto", 0, 0, T, BATCH, 0,         \
      "order of the work over micro-batches")                                                      \
    X(REAL, lr, "lr", "3e-4", "X", 0, 1e38, T, LEARNING, T, "peak learning rate")                  \
    X(REAL, min_lr, "min-lr", "auto", "X", 0, 1e38, T, LEARNING, 0,                                \
      "last learning rate (10% of lr)")                                                            \
    X(STEPS, warmup, "warmup", "auto", "N|F", 0, 1e12, T, LEARNING, T,                             \
      "steps of warm-up (1% of --steps); below 1, a share of --steps")                             \
    X(CHOICE, lr_schedule, "lr-schedule", "cosine",                                                \
      "cosine|linear|constant|WarmupLR|WarmupDecayLR|WarmupCosineLR", 0, 0, T, LEARNING, 0,        \
      "how the learning rate falls; the last three are computed as DeepSpeed does")                \
    X(CHOICE, warmup_type, "warmup-type", "linear", "linear|log", 0, 0, T, ADVANCED, 0,            \
      "how a schedule of DeepSpeed's warms up: by the step, or by its logarithm")                  \
    X(REAL, warmup_lr, "warmup-lr", "0", "X", 0, 1e38, T, ADVANCED, 0,                             \
      "where the warm-up of a schedule of DeepSpeed's begins (and WarmupDecayLR ends)")            \
    X(COUNT, lr_decay_steps, "lr-decay-steps", "auto", "N", 1, 1e12, T, LEARNING, 0,               \
      "step at which the learning rate has fallen to --min-lr, warm-up included (steps)")          \
    X(CHOICE, lr_skips, "lr-skips", "hold", "hold|count", 0, 0, T, ADVANCED, 0,                    \
      "what a skipped step does to the learning rate: hold, it does not advance the schedule; "    \
      "count, it does")                                                                            \
    X(CHOICE, optimizer, "optimizer", "adamw", "adamw|sgd|lion|muon", 0, 0, T, LEARNING, T & ~P,   \
      "how tensors are updated; muon: matrices of blocks, the others by adamw")                    \
    X(REAL, weight_decay, "weight-decay", "0.1", "X", 0, 1e6, T, LEARNING, T,                      \
      "decay of tensors of two dimensions")                                                        \
    X(REAL, beta1, "beta1", "0.9", "X", 0, 0.9999999, T, LEARNING, 0,                              \
      "of adamw the decay of the first moment, of lion what its moment weighs in an update")       \
    X(REAL, beta2, "beta2", "auto", "X", 0, 0.9999999, T, LEARNING, 0,                             \
      "of adamw the decay of the second moment (0.95), of lion that of its moment (0.99)")         \
    X(REAL, momentum, "momentum", "auto", "X", 0, 0.9999999, T, LEARNING, 0,                       \
      "of sgd: the decay of the sum of gradients by which it updates (0: by the gradient alone, "  \
      "without a state); of muon: that of its mean of gradients (0.95)")                           \
    X(SWITCH, nesterov, "nesterov", "false", NULL, 0, 0, T, LEARNING, 0,                           \
      "of sgd with momentum: update by the next sum, as far as it is known")                       \
    X(CHOICE, muon_scale, "muon-scale", "match-rms", "match-rms|original", 0, 0, T, LEARNING, 0,   \
      "of muon: how large the update of a matrix is; match-rms: as adamw's, so that one --lr "     \
      "serves both; original: the square root of columns / rows, at least 1")                      \
    X(CHOICE, state_type, "state-type", "fp32", "fp32|bf16|int8", 0, 0, T, LEARNING, T & ~P,       \
      "how states of the optimizer are stored: bf16 takes half, int8 a quarter")                   \
    X(CHOICE, master_type, "master-type", "fp32", "fp32|low", 0, 0, T, LEARNING, 0,                \
      "what is kept beside a parameter in bf16 to be updated: the number in fp32, or its low 16 "  \
      "bits, half as much")                                                                        \
    X(LIST, rule, "rule", "", "PATTERN=RULE...", 0, 0, T, LEARNING, 0,                             \
      "another rule for tensors, by names as --freeze has them: 'h.*.attn.*=lion' 'wte.*=sgd'; "   \
      "none freezes; the last that matches decides")                                               \
    X(LIST, lr_of, "lr-of", "", "PATTERN=FACTOR...", 0, 0, T, LEARNING, 0,                         \
      "a factor on the learning rate of tensors, at every step: 'h.[0-3].*=0.5'")                  \
    X(LIST, decay_of, "decay-of", "", "PATTERN=X...", 0, 0, T, LEARNING, 0,                        \
      "the weight decay of tensors, in the place of --weight-decay; also of vectors: "             \
      "'*.bias=0.1'")                                                                              \
    X(REAL, eps, "eps", "1e-8", "X", 1e-30, 1, T, ADVANCED, 0,                                     \
      "keeps AdamW from dividing by zero")                                                         \
    X(REAL, clip, "clip", "1.0", "X", 0, 1e30, T, LEARNING, 0, "largest gradient norm; 0: off")    \
    X(TEXT, loss_scale, "loss-scale", "auto", "N|dynamic", 0, 0, T, ADVANCED, 0,                   \
      "factor on the loss (dynamic for fp16, else 1)")                                             \
    X(REAL, loss_scale_start, "loss-scale-start", "65536", "X", 0x1p-32, 0x1p64, T, ADVANCED, 0,   \
      "first dynamic loss scale; above 2^24, also the largest")                                    \
    X(COUNT, loss_scale_window, "loss-scale-window", "1000", "N", 1, 1e12, T, ADVANCED, 0,         \
      "finite steps in a row after which a dynamic loss scale doubles")                            \
    X(COUNT, loss_scale_hysteresis, "loss-scale-hysteresis", "1", "N", 1, 1e6, T, ADVANCED, 0,     \
      "the overflow that halves a dynamic loss scale first: those before it are forgiven, until "  \
      "the scale doubles; each one after it halves")                                               \
    X(REAL, loss_scale_min, "loss-scale-min", "1", "X", 0x1p-32, 0x1p64, T, ADVANCED, 0,           \
      "smallest dynamic loss scale: an overflow there ends the run")                               \
    X(CHOICE, nonfinite, "nonfinite", "stop", "stop|skip", 0, 0, T, ADVANCED, 0,                   \
      "what a gradient that is not finite does (skip in fp16 or with a dynamic scale)")            \
    X(LIST, freeze, "freeze", "", "PATTERN...", 0, 0, T, LEARNING, 0,                              \
      "tensors that keep their values, by names with *, ? and [0-8]: 'wte.*' 'h.[0-8].*'; they "   \
      "take no gradients and no states; a pattern after ! trains what it matches, and the last "   \
      "that matches decides: '*' '!h.11.*'")                                                       \
    X(CHOICE, frozen_type, "frozen-type", "own", "own|bf16|int8", 0, 0, T, LEARNING, 0,            \
      "how frozen matrices are stored: as the others (own), or in fewer bytes, from which an op "  \
      "makes what is read while it is read; bf16 beside --precision fp32; int8: 8.5 bits an "      \
      "element, codes of 8 bits with a scale for each 32")                                         \
    X(COUNT, lora_rank, "lora-rank", "0", "N", 0, SL_LORA_RANK_MAX, T, LEARNING, 0,                \
      "train adapters of so many features beside linear layers, all else frozen (LoRA); 0: none; " \
      "a model with adapters keeps its own")                                                       \
    X(REAL, lora_alpha, "lora-alpha", "auto", "X", 1e-6, 1e6, T, LEARNING, 0,                      \
      "adapters are scaled by X / --lora-rank (as --lora-rank, so by 1)")                          \
    X(LIST, lora_targets, "lora-targets", "", "NAME...", 0, 0, T, LEARNING, 0,                     \
      "the layers that have them, by names as PEFT has them (q_proj v_proj), by patterns "         \
      "('layers.[0-7].mlp.*'), or all-linear (those of attention)")                                \
    X(REAL, lora_dropout, "lora-dropout", "0", "P", 0, 0.9999, T, LEARNING, 0,                     \
      "probability of dropping an element of what adapters read; in training alone")               \
    X(COUNT, seed, "seed", "1", "N", 0, 1.8e19, TG, ADVANCED, G, "of every random number")

#define SL_CONFIG_LIST_MEMORY(X)                                                                   \
    X(TEXT, device, "device", "auto", "cpu|cuda[:N]", 0, 0, TGEB, MEMORY, TGEB | I,                \
      "where the work runs (a GPU if one opens, else the cpu)")                                    \
    X(CHOICE, policy, "policy", "auto", "device|host|static|nvme|auto|cuda|cpu|const", 0, 0, TGE,  \
      MEMORY, TGE,                                                                                 \
      "where parameters, gradients and optimizer states live (sluice help policies); cuda, cpu "   \
      "and const are other names of device, host and static")                                      \
    X(SIZE, device_memory, "device-memory", "auto", "SIZE", 0, 0, TGE, MEMORY, TGE,                \
      "budget on the device for everything placed there (sluice help budgets)")                    \
    X(SIZE, host_memory, "host-memory", "auto", "SIZE", 0, 0, TGE, MEMORY, TGE,                    \
      "budget on the host")                                                                        \
    X(SIZE, disk_space, "disk-space", "auto", "SIZE", 0, 0, TGE, MEMORY, 0,                        \
      "budget on the disks (90% of what is free in --disk-dir)")                                   \
    X(LIST, disk_dir, "disk-dir", "", "DIR...", 0, 0, TGEDB, MEMORY, TGEDB | I,                    \
      "where the disk tier lives; several share the work")                                         \
    X(CHOICE, precision, "precision", "auto", "fp32|bf16|fp16|auto", 0, 0, TGE, MEMORY, TGE,       \
      "compute type (bf16 on a GPU, else fp32); masters, the fp32 numbers behind it that updates " \
      "change, and moments are fp32")                                                              \
    X(CHOICE, recompute, "recompute", "auto", "none|selective|full|auto", 0, 0, T, MEMORY, T,      \
      "activations computed again in the backward pass")                                           \
    X(SIZE, disk_endurance, "disk-endurance", "0", "SIZE", 0, 0, T, MEMORY, 0,                     \
      "bytes that the disks are rated to have written, for the report of wear; 0: not known")      \
    X(REAL, offload_params, "offload-params", "0", "F", 0, 1, TGE, MEMORY, 0,                      \
      "share of the parameters on the host, for static")                                           \
    X(REAL, offload_grads, "offload-grads", "0", "F", 0, 1, T, MEMORY, 0,                          \
      "share of the gradients on the host, for static")                                            \
    X(REAL, offload_optimizer, "offload-optimizer", "0", "F", 0, 1, T, MEMORY, 0,                  \
      "share of the optimizer states on the host, for static")                                     \
    X(REAL, offload_activations, "offload-activations", "0", "F", 0, 1, T, MEMORY, 0,              \
      "share of the activations on the host, for host, static and nvme")                           \
    X(REAL, nvme_params, "nvme-params", "0", "F", 0, 1, TGE, MEMORY, 0,                            \
      "share of the parameters on disk, for static and nvme")                                      \
    X(REAL, nvme_grads, "nvme-grads", "0", "F", 0, 1, T, MEMORY, 0,                                \
      "share of the gradients on disk, for static and nvme")                                       \
    X(REAL, nvme_optimizer, "nvme-optimizer", "0", "F", 0, 1, T, MEMORY, 0,                        \
      "share of the optimizer states on disk (nvme: all)")                                         \
    X(REAL, nvme_activations, "nvme-activations", "0", "F", 0, 1, T, MEMORY, 0,                    \
      "share of the activations on disk, for static and nvme")                                     \
    X(CHOICE, adam, "adam", "auto", "auto|device|host|shared", 0, 0, T, MEMORY, 0,                 \
      "where updates run; shared: on both sides at once")                                          \
    X(REAL, offload_updates, "offload-updates", "0", "F", 0, 1, T, MEMORY, 0,                      \
      "share of the updates on the host, of states that are off the device, for --adam shared")    \
    X(ELEMENTS, chunk_size, "chunk-size", "auto", "N|auto", 1, 1e12, TGE, ADVANCED, 0,             \
      "elements of a chunk; K, M and G (1024) may stand behind the number")                        \
    X(COUNT, prefetch, "prefetch", "auto", "N|auto", 0, 1e6, TGE, ADVANCED, 0,                     \
      "chunks fetched ahead")

#define SL_CONFIG_LIST_MACHINE(X)                                                                  \
    X(COUNT, tp, "tp", "1", "N|auto", 1, 1e5, TGEV, RANKS, TGEV,                                   \
      "tensor-parallel ranks: each holds its heads, features and ids; sluice launch starts them; " \
      "auto: chosen for these ranks; of convert: pieces of --format megatron")                     \
    X(COUNT, dp, "dp", "auto", "N|auto", 1, 1e5, TGE, RANKS, 0,                                    \
      "data-parallel ranks: each computes rows of its own, and their gradients are added up "      \
      "(what --tp leaves of the ranks)")                                                           \
    X(COUNT, ranks, "ranks", "auto", "N|auto", 1, 65536, P, RANKS, P,                              \
      "plan for so many ranks, without starting any: auto is --tp times --pp times --dp, at most " \
      "1024, or with --cluster as many GPUs as the run is worth")                                  \
    X(TEXT, cluster, "cluster", "", "FILE", 0, 0, P, RANKS, P,                                     \
      "a cluster described in JSON: finds how --ranks of its GPUs do a step of --global-batch "    \
      "rows fastest, over all of --tp, --pp, --dp, --zero, --micro-batch, --policy, "              \
      "--recompute and --accumulation that are not given")                                         \
    X(COUNT, pp, "pp", "1", "N|auto", 1, 1e5, TGEV, RANKS, TGEV,                                   \
      "pipeline stages, a rank each; auto and of convert as --tp")                                 \
    X(CHOICE, schedule, "schedule", "1f1b", "1f1b|gpipe", 0, 0, T, RANKS, 0,                       \
      "the order of a stage's micro-batches: 1f1b, a backward pass after each forward one, keeps " \
      "as many as there are stages behind it; gpipe, all forward and then all backward, keeps "    \
      "all "                                                                                       \
      "of them")                                                                                   \
    X(TEXT, stages, "stages", "uniform", "uniform|cost|LIST", 0, 0, T, RANKS, 0,                   \
      "layers of each pipeline stage: uniform, as many on each as on any other or one more; "      \
      "cost, "                                                                                     \
      "so that predicted time is even, embedding and head included; or numbers, as in 6,7,-1, "    \
      "where -1 is what the others leave")                                                         \
    X(COUNT, zero, "zero", "1", "0..3|auto", 0, 3, TGE, RANKS, TGE,                                \
      "ZeRO stage over data-parallel ranks: 0 all have all optimizer states, 1 each updates its "  \
      "share of every chunk, 2 keeps that share of gradients, too, 3 and of parameters; auto as "  \
      "--tp")                                                                                      \
    X(SWITCH, sequence_parallel, "sequence-parallel", "false", NULL, 0, 0, T, RANKS, 0,            \
      "between attention and MLP each tensor-parallel rank has its share of the rows, so norms, "  \
      "residuals and dropout take 1/N of the time and memory; as much is exchanged as without")    \
    X(CHOICE, split_layout, "split-layout", "megatron", "megatron|colossal", 0, 0, T, RANKS, 0,    \
      "how tensor-parallel ranks split the parameters: megatron exchanges least; colossal holds "  \
      "embeddings and attention's last product by columns, so that ids need no padding, and "      \
      "gathers them")                                                                              \
    X(SWITCH, partition_activations, "partition-activations", "false", NULL, 0, 0, T, RANKS, 0,    \
      "the input of each block is kept for the backward pass by the tensor-parallel ranks "        \
      "together, a part each, and gathered there: less memory for a tenth more exchange; no bit "  \
      "changes")                                                                                   \
    X(REAL, rank_timeout, "rank-timeout", "600", "S", 0.1, 1e6, TGE, RANKS, 0,                     \
      "seconds without progress after which a rank that does not come to an exchange counts as "   \
      "lost, or one whose lanes do not get on (a GPU that hangs): the run ends, and says which "   \
      "rank on which machine, or which op, it was; at least ten predicted steps")                  \
    X(REAL, heartbeat_timeout, "heartbeat-timeout", "60", "S", 1, 1e6, T, RANKS, 0,                \
      "seconds after which a rank whose process does not run (stopped, or its machine is gone) "   \
      "counts as lost; a rank that works for long, as in a save, lives")                           \
    X(TEXT, machine, "machine", "", "FILE", 0, 0, T, ADVANCED, 0,                                  \
      "machine profile of sluice bench, or a described GPU (examples/machines/)")                  \
    X(COUNT, threads, "threads", "auto", "N", 1, 4096, TGEBK, ADVANCED, K,                         \
      "compute workers (all cores this process may use, as far as a cgroup gives time)")           \
    X(CHOICE, cuda_products, "cuda-products", "auto", "auto|own", 0, 0, TGEB, ADVANCED, 0,         \
      "matrix products on a GPU: by cuBLASLt, which must be there, or by our own slower kernels")  \
    X(CHOICE, cuda_epilogue, "cuda-epilogue", "on", "on|off", 0, 0, TGEB, ADVANCED, 0,             \
      "a GELU's gradient in the epilogue of cuBLASLt's product, where it can")                     \
    X(CHOICE, cuda_wait_value, "cuda-wait-value", "on", "on|off", 0, 0, TGEB, ADVANCED, 0,         \
      "streams of a GPU wait for host threads by a word in memory")                                \
    X(CHOICE, self_test_mode, "self-test", "auto", "auto|off|force", 0, 0, TB, ADVANCED, 0,        \
      "a GPU proves itself before it is used, within 20 s: once with each driver, cuBLASLt and "   \
      "build (auto); always, also the cpu device (force); never (off). So do GPUs of ranks "       \
      "with what they exchange over NCCL. plan only takes the option")

#define SL_CONFIG_LIST_OUTPUT(X)                                                                   \
    X(TEXT, save, "save", "", "DIR", 0, 0, T, SAVING, T, "where checkpoints go")                   \
    X(COUNT, save_every, "save-every", "0", "N", 0, 1e12, T, SAVING, T,                            \
      "save after every N steps (0: after the last one)")                                          \
    X(REAL, save_minutes, "save-minutes", "0", "M", 0, 1e6, T, SAVING, 0,                          \
      "save when M minutes have passed since the last save (0: by steps alone)")                   \
    X(COUNT, keep, "keep", "0", "N", 0, 1e6, T, SAVING, T, "newest checkpoints to keep (0: all)")  \
    X(SWITCH, keep_best, "keep-best", "false", NULL, 0, 0, T, SAVING, 0,                           \
      "keep the checkpoint of the best evaluation in best, below --save, whatever --keep says")    \
    X(SWITCH, resume, "resume", "false", NULL, 0, 0, T, SAVING, T,                                 \
      "go on from the newest valid checkpoint under --save, if there is one, with its options; "   \
      "options given beside it win")                                                               \
    X(SWITCH, overwrite, "overwrite", "false", NULL, 0, 0, TV, SAVING, V | I,                      \
      "replace what is there once the new is whole: the checkpoints under --save, or --to")        \
    X(TEXT, log_json, "log-json", "", "FILE", 0, 0, T, WATCHING, T, "one JSON object a line")      \
    X(TEXT, log_csv, "log-csv", "", "FILE", 0, 0, T, WATCHING, 0,                                  \
      "the numbers of each step as a table: a line of names, then a line a step")                  \
    X(TEXT, tensorboard, "tensorboard", "", "DIR", 0, 0, T, WATCHING, 0,                           \
      "event files for TensorBoard: one directory a run")                                          \
    X(COUNT, log_every, "log-every", "auto", "N", 1, 1e12, T, WATCHING, 0,                         \
      "steps between lines where there is no terminal (a line about every ten seconds)")           \
    X(TEXT, timeline, "timeline", "", "FILE", 0, 0, T, WATCHING, 0, "Chrome trace of the lanes")   \
    X(TEXT, report, "report", "", "FILE", 0, 0, TB, WATCHING, TB,                                  \
      "one HTML file with pictures: memory by kind over a step, what its peak is made of, "        \
      "lanes, stalls, addresses; of plan also where it does not fit, of profile with what was "    \
      "measured, of train with the loss too, renewed at each evaluation; of bench, its rates as "  \
      "bars")                                                                                      \
    X(SWITCH, explain, "explain", "false", NULL, 0, 0, P, OUTPUT, P,                               \
      "say in a few lines why the plan is as it is, what binds it, and what rules of thumb say")   \
    X(LIST, compare, "compare", "", "POLICY|SIZE|NAME=VALUE...", 0, 0, P, OUTPUT, P,               \
      "plan each of these beside the other options, in one table: a policy, a size of device "     \
      "memory, or settings such as policy=host+device-memory=2G")                                  \
    X(TEXT, write_config, "write-config", "", "FILE", 0, 0, P, OUTPUT, P,                          \
      "file for train --config: the options, and what the plan chose")                             \
    X(SWITCH, quiet, "quiet", "false", NULL, 0, 0, TGEBKV, WATCHING, K | V, "no progress")         \
    X(SWITCH, json, "json", "false", NULL, 0, 0, PEDB, OUTPUT, PEDB, "print one JSON object")      \
    X(SWITCH, self_test, "self-test", "false", NULL, 0, 0, D, OUTPUT, D,                           \
      "each GPU proves itself: its order of work, its copies, each kernel beside the cpu's, and "  \
      "a training under three policies; half a minute, 0.5 GiB of its memory; without a GPU the "  \
      "cpu device")                                                                                \
    X(TEXT, profile_json, "json", "", "FILE", 0, 0, R, OUTPUT, R,                                  \
      "all that was measured, as one JSON object, into a file; - is standard output, where the "   \
      "tables are left out then; docs/profile.md has its keys")                                    \
    X(COUNT, profile_steps, "profile-steps", "3", "N", 1, 1e6, R, OUTPUT, R,                       \
      "steps that are measured, after one that warms up")                                          \
    X(SWITCH, time_algorithms, "time-algorithms", "false", NULL, 0, 0, R, OUTPUT, R,               \
      "on a GPU: time up to eight algorithms of cuBLASLt for each matrix product, and put the "    \
      "fastest into the list of algorithms, beside the machine profile, for later runs")           \
    X(SWITCH, verbose, "verbose", "false", NULL, 0, 0, B, OUTPUT, B,                               \
      "print every row that was measured before the summary")                                      \
    X(SWITCH, quick, "quick", "false", NULL, 0, 0, B, OUTPUT, B, "seconds instead of a minute")    \
    X(LIST, only, "only", "", "FIGURE,...", 0, 0, B, OUTPUT, B,                                    \
      "figures to measure alone, of gemm, adamw, op, memory, copy, comm, disk and numa; the "      \
      "other rates of the profile stay as they were measured before. Two more are no part of a "   \
      "profile: product and attention, the kernels of known models, one row each")                 \
    X(LIST, match, "match", "", "WORD...", 0, 0, B, OUTPUT, 0,                                     \
      "of product and attention only rows that have each of these words in type or name, such "    \
      "as bf16, llama-3-8b, mlp-up, 1024, T=256 or forward")                                       \
    X(TEXT, against, "against", "", "FILE", 0, 0, B, OUTPUT, B,                                    \
      "hold each rate against an earlier run, what --json printed or a profile: its ratio, and "   \
      "what changed by more than the spread of both")                                              \
    X(LIST, runs, "runs", "", "FILE...", 0, 0, O, OUTPUT, O,                                       \
      "the logs to draw, as --log-json writes them, one a run; the option's name may be left out") \
    X(TEXT, output, "output", "", "FILE", 0, 0, BKOI, OUTPUT, BKOI,                                \
      "file of what is made: of bench, the profile (else where plan and train find it by "         \
      "themselves); of tokenize, the tokens, or with --decode the text; of report, the page; of "  \
      "init, the configuration (RECIPE.json)")                                                     \
    X(CHOICE, format, "format", "llmc", "llmc|nanogpt|megatron", 0, 0, K, OUTPUT, K,               \
      "of the file of tokens; megatron: FILE.bin and FILE.idx")                                    \
    X(TEXT, from, "from", "", "PATH", 0, 0, V, OUTPUT, V,                                          \
      "what is converted: a --save directory, one step of it, a Hugging Face directory, pieces "   \
      "of Megatron, torch (.metadata) or DeepSpeed (zero), or a model of llm.c (.bin)")            \
    X(TEXT, to, "to", "", "PATH", 0, 0, V, OUTPUT, V,                                              \
      "where it goes: hf, megatron, peft and checkpoint make a directory, the others a file")      \
    X(CHOICE, convert_format, "format", "hf", "hf|gguf|llmc|weights|megatron|peft|checkpoint", 0,  \
      0, V, OUTPUT, V,                                                                             \
      "hf: a directory for transformers, tokenizer included; gguf: for llama.cpp; llmc: for "      \
      "llm.c; weights: one safetensors file; megatron: pieces for --tp x --pp ranks (where --to "  \
      "ends in .gguf or .safetensors: gguf, weights); peft: the adapters alone; checkpoint: with " \
      "the optimizer's states of pieces, for train --resume")                                      \
    X(SWITCH, merge, "merge", "false", NULL, 0, 0, V, OUTPUT, V,                                   \
      "add the adapters of the model, or of --adapter, to its weights")                            \
    X(CHOICE, convert_type, "type", "fp32", "fp32|bf16|fp16|q8_0", 0, 0, V, OUTPUT, V,             \
      "of the weights that are written, rounded to nearest; fp32 keeps every bit, q8_0 is for "    \
      "gguf")                                                                                      \
    X(SIZE, shard_size, "shard-size", "5e9", "SIZE", 0, 0, V, OUTPUT, V,                           \
      "of hf: weights beyond it go into several files with an index, each of at most so many "     \
      "bytes of tensors (one that is larger is alone); 0: one file")

#define SL_CONFIG_LIST_GENERATE(X)                                                                 \
    X(TEXT, checkpoint, "checkpoint", "", "DIR", 0, 0, GE, MODEL, GE,                              \
      "a --save directory, one step of it, a Hugging Face directory, or pieces of Megatron, "      \
      "torch or DeepSpeed")                                                                        \
    X(CHOICE, weights, "weights", "own", "own|bf16|int8", 0, 0, GE, MEMORY, GE,                    \
      "how matrices are stored, as --frozen-type of train: less memory, and slower, because they " \
      "are decoded for each token or batch")                                                       \
    X(TEXT, prompt, "prompt", "", "TEXT", 0, 0, G, SAMPLING, G,                                    \
      "text to continue; \"-\", or none where standard input is no terminal: what stands there")   \
    X(TEXT, prompt_file, "prompt-file", "", "FILE", 0, 0, G, SAMPLING, G,                          \
      "file with the text to continue; a line end at its end is not part of it, as on standard "   \
      "input")                                                                                     \
    X(SWITCH, interactive, "interactive", "false", NULL, 0, 0, G, SAMPLING, G,                     \
      "each line of standard input is a prompt, an empty one goes on with the text so far; the "   \
      "line \"stop\", or the end of input, ends it")                                               \
    X(COUNT, tokens, "tokens", "128", "N", 1, 1e7, G, SAMPLING, G,                                 \
      "tokens to generate, of each sample; beyond the model's context the text slides: as much "   \
      "of its end as leaves room for what is still wanted, at least half of the context, is read " \
      "again as if it began there")                                                                \
    X(COUNT, samples, "samples", "1", "N", 1, 65535, G, SAMPLING, G,                               \
      "continuations, computed together: the weights are read once for all of them; each has "     \
      "random numbers of its own, so the first ones do not change where N does")                   \
    X(LIST, stop, "stop", "", "TEXT...", 0, 0, G, SAMPLING, G,                                     \
      "end a sample where one of these texts comes, in however many tokens; it is not printed")    \
    X(REAL, repetition_penalty, "repetition-penalty", "1.0", "X", 1e-3, 1e3, G, SAMPLING, 0,       \
      "divides the logits of tokens that are in the text by X (multiplies those below 0), as "     \
      "transformers does; above 1: repeats less; 1: off")                                          \
    X(REAL, temperature, "temperature", "1.0", "X", 0, 1e6, G, SAMPLING, G,                        \
      "flattens or sharpens the choice; 0: always the likeliest")                                  \
    X(COUNT, top_k, "top-k", "0", "N", 0, 1e8, G, SAMPLING, G, "only the N likeliest (0: off)")    \
    X(REAL, top_p, "top-p", "1.0", "P", 1e-9, 1, G, SAMPLING, G,                                   \
      "only the likeliest whose probabilities reach P; 1: off")

#define SL_CONFIG_LIST(X)                                                                          \
    SL_CONFIG_LIST_MODEL(X)                                                                        \
    SL_CONFIG_LIST_DATA(X)                                                                         \
    SL_CONFIG_LIST_TRAINING(X)                                                                     \
    SL_CONFIG_LIST_MEMORY(X)                                                                       \
    SL_CONFIG_LIST_MACHINE(X)                                                                      \
    SL_CONFIG_LIST_OUTPUT(X)                                                                       \
    SL_CONFIG_LIST_GENERATE(X)

#endif
