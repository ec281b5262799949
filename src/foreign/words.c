/* See words.h. A lookup walks the whole table: it happens once, when a run is refused. */
#include "words.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const struct tool {
    const char *name;
    char separator; /* between the words of an option or key */
} tools[] = {{"Megatron-LM", '-'},
             {"Megatron-DeepSpeed", '-'},
             {"DeepSpeed", '_'},
             {"Hugging Face", '_'},
             {"nanoGPT", '_'},
             {"llm.c", '_'},
             {"torchrun", '_'},
             {"accelerate", '_'},
             {"PyTorch Lightning", '_'},
             {"ColossalAI", '_'},
             {"LiBai", '_'}};

enum { TOOL_COUNT = sizeof tools / sizeof tools[0] };

enum {
    M = 1 << 0, /* in the order of `tools` */
    MD = 1 << 1,
    D = 1 << 2,
    H = 1 << 3,
    N = 1 << 4,
    C = 1 << 5,
    T = 1 << 6,
    A = 1 << 7,
    P = 1 << 8,
    G = 1 << 9,
    L = 1 << 10,
};

/* The first three fields of a row, by its kind. */
#define OPTION(of) SL_WORD_OPTION, of, NULL
#define KEY(of) SL_WORD_KEY, of, NULL
#define VALUE(of, option) SL_WORD_VALUE, of, option
#define MODEL(of) SL_WORD_MODEL, of, NULL
#define COMMAND(of) SL_WORD_COMMAND, of, NULL
#define NO_EQUAL NULL

/* Spellings are those of Megatron-LM's megatron/training/arguments.py and config classes and their
 * forks, DeepSpeed's launcher, transformers' TrainingArguments, GPT2Config and run_clm.py,
 * nanoGPT's train.py and sample.py, llm.c's train_gpt2.cu, torch.distributed.run, accelerate
 * launch, Lightning's Trainer, ColossalAI's GeminiPlugin and GPT example, LiBai's configs/common.
 */
static const sl_word words[] = {
    /* ---- the model ---- */
    {OPTION(M), "num-layers", "--layers N", NULL},
    {OPTION(N | H), "n_layer", "--layers N", NULL},
    {KEY(H), "num_hidden_layers", "--layers N", NULL},
    {KEY(L), "hidden_layers", "--layers N", NULL},
    {KEY(L), "pipeline_num_layers", "--layers N", NULL},
    {OPTION(M | H | L), "hidden-size", "--width N", NULL},
    {OPTION(N | H), "n_embd", "--width N", NULL},
    {OPTION(M | H | L), "num-attention-heads", "--heads N", NULL},
    {OPTION(N | H), "n_head", "--heads N", NULL},
    {OPTION(M | H), "max-position-embeddings", "--context N", NULL},
    {OPTION(H), "n_positions", "--context N", NULL},
    {OPTION(H), "n_ctx", "--context N", NULL},
    {OPTION(M), "seq-length", "--seq N", NULL},
    {OPTION(M), "encoder-seq-length", "--seq N", NULL},
    {OPTION(H | L), "max_seq_length", "--seq N", NULL},
    {OPTION(N), "block_size", "--context N", "rows have as many tokens unless --seq says less"},
    {OPTION(H), "block_size", "--seq N", NULL},
    {OPTION(M | N | H | L), "vocab-size", "--vocab N", NULL},
    {OPTION(M), "make-vocab-size-divisible-by", NO_EQUAL, "ids are padded inside"},
    {OPTION(M | L), "ffn-hidden-size", "--ffn N", "GPT-2's MLP is 4 times as wide as --width"},
    {KEY(H), "intermediate_size", "--ffn N", NULL},
    {OPTION(H), "n_inner", NO_EQUAL, "GPT-2's MLP is 4 times as wide as --width"},
    {OPTION(M), "kv-channels", "--head-size N", "a head of GPT-2 is --width / --heads wide"},
    {KEY(H), "head_dim", "--head-size N", NULL},
    {OPTION(M), "num-query-groups", "--kv-heads N", NULL},
    {KEY(H), "num_key_value_heads", "--kv-heads N", NULL},
    {OPTION(M), "rotary-base", "--rope-base X", NULL},
    {KEY(H), "rope_theta", "--rope-base X", NULL},
    {KEY(H), "rms_norm_eps", "--norm-epsilon X", NULL},
    {OPTION(M), "swiglu", "--arch llama", "GPT-2's MLP has a GELU"},
    {OPTION(M), "openai-gelu", NO_EQUAL, "GPT-2's GELU by tanh is what is computed"},
    {OPTION(H), "activation_function", NO_EQUAL, "GPT-2's GELU by tanh is what is computed"},
    {OPTION(M), "normalization", "--arch NAME", "GPT-2 has layer norms, the others RMSNorm"},
    {OPTION(M), "group-query-attention", "--kv-heads N", "each head of GPT-2 has its own keys"},
    {OPTION(M), "use-rotary-position-embeddings", "--arch NAME", "positions of GPT-2 are learned"},
    {OPTION(M), "position-embedding-type", "--arch NAME", "positions of GPT-2 are learned"},
    {OPTION(M), "rotary-percent", NO_EQUAL,
     "positions of GPT-2 are learned; others turn all of a head"},
    {OPTION(M), "untie-embeddings-and-output-weights", "--untied", "GPT-2's head is its embedding"},
    {OPTION(H), "tie_word_embeddings", "--untied", "where it is false; GPT-2's is tied always"},
    {OPTION(M), "disable-bias-linear", "--arch NAME", "GPT-2 has biases"},
    {OPTION(N), "bias", NO_EQUAL, "GPT-2 has biases always"},
    {OPTION(M | L), "layernorm-epsilon", "--norm-epsilon X", "GPT-2's is 1e-5 always"},
    {OPTION(H), "layer_norm_epsilon", NO_EQUAL, "GPT-2's is 1e-5 always"},
    {OPTION(M), "init-method-std", NO_EQUAL, "first values are drawn as GPT-2's, with 0.02"},
    {OPTION(H | L), "initializer_range", NO_EQUAL, "first values are drawn as GPT-2's, with 0.02"},
    {OPTION(M), "num-experts", NO_EQUAL, "there are no experts"},
    {OPTION(M), "hidden-dropout", "--dropout P", "one probability for every place"},
    {OPTION(M), "attention-dropout", "--dropout P", "one probability for every place"},
    {OPTION(H), "resid_pdrop", "--dropout P", "one probability for every place"},
    {OPTION(H), "embd_pdrop", "--dropout P", "one probability for every place"},
    {OPTION(H), "attn_pdrop", "--dropout P", "one probability for every place"},
    {KEY(L), "embedding_dropout_prob", "--dropout P", "one probability for every place"},
    {KEY(L), "attention_dropout_prob", "--dropout P", "one probability for every place"},
    {KEY(L), "output_dropout_prob", "--dropout P", "one probability for every place"},
    {OPTION(H), "model_name_or_path", "--init DIR", "--model NAME is a shape without weights"},
    {OPTION(H), "config_name", "--model NAME", NULL},
    {OPTION(G), "model_type", "--model NAME", NULL},
    {KEY(H), "model_type", NO_EQUAL, "--init takes the directory of such a config.json"},
    {KEY(H), "architectures", NO_EQUAL, "--init takes the directory of such a config.json"},
    {OPTION(N), "init_from", "--init DIR", "resume is --resume"},
    {OPTION(C), "-e", "--model NAME", "d12 is gpt2; weights of a .bin by sluice convert"},
    {KEY(L), "load_weight", "--init DIR", NULL},
    {OPTION(M), "finetune", "--init DIR", "it takes weights alone, and begins at step 1"},
    {OPTION(M), "use-cpu-initialization", NO_EQUAL, "first values are the same on any device"},

    /* ---- data ---- */
    {OPTION(M), "data-path", "--data PATH...", "the .bin itself; weights as 0.3:PATH"},
    {OPTION(M), "train-data-path", "--data PATH...", "the .bin itself; weights as 0.3:PATH"},
    {OPTION(M), "valid-data-path", "--eval-data PATH...", NULL},
    {OPTION(M), "test-data-path", "sluice eval --data PATH...", NULL},
    {OPTION(H), "train_file", "--data PATH...", NULL},
    {OPTION(H), "validation_file", "--eval-data PATH...", NULL},
    {OPTION(H), "dataset_name", "--data PATH...", "nothing is downloaded"},
    {OPTION(N), "dataset", "--data PATH...", "data/NAME/train.bin"},
    {OPTION(C), "-i", "--data PATH...", NULL},
    {OPTION(C), "-j", "--eval-data PATH...", NULL},
    {OPTION(M), "data-cache-path", "--cache-dir DIR", NULL},
    {OPTION(M), "vocab-file", "--tokenizer DIR", "the directory of vocab.json and merges.txt"},
    {OPTION(M), "merge-file", "--tokenizer DIR", "the directory of vocab.json and merges.txt"},
    {OPTION(M), "tokenizer-type", "--tokenizer DIR", "GPT2BPETokenizer; or byte"},
    {OPTION(M), "tokenizer-model", "--tokenizer DIR", "the directory of tokenizer.json"},
    {OPTION(H), "tokenizer_name", "--tokenizer DIR", "the directory of tokenizer.json"},
    {OPTION(M), "reset-position-ids", "--documents reset", NULL},
    {OPTION(M), "reset-attention-mask", "--documents reset", NULL},
    {OPTION(M), "eod-mask-loss", NO_EQUAL, "the loss counts every token"},
    {OPTION(M), "num-workers", NO_EQUAL, "rows are read ahead by themselves"},
    {OPTION(H), "dataloader_num_workers", NO_EQUAL, "rows are read ahead by themselves"},
    {OPTION(H), "preprocessing_num_workers", "--threads N", NULL},
    {OPTION(M), "input", "--data PATH...", "of sluice tokenize"},
    {OPTION(M), "output-prefix", "sluice tokenize --output FILE", NULL},
    {OPTION(M), "json-keys", "--json-key KEY", "one key"},
    {OPTION(M), "append-eod", NO_EQUAL, "an end of text follows each document always"},
    {OPTION(M), "workers", "sluice tokenize --threads N", NULL},

    /* ---- rows, steps and the schedule ---- */
    {OPTION(M), "micro-batch-size", "--micro-batch N", NULL},
    {OPTION(M | N | G), "batch-size", "--micro-batch N", "rows of one rank and one micro-batch"},
    {OPTION(H), "per_device_train_batch_size", "--micro-batch N", NULL},
    {OPTION(H), "per_device_eval_batch_size", "--micro-batch N", "the same as in training"},
    {OPTION(H), "per_gpu_train_batch_size", "--micro-batch N", NULL},
    {KEY(L), "train_micro_batch_size", "--micro-batch N", NULL},
    {KEY(L), "test_micro_batch_size", "--micro-batch N", "the same as in training"},
    {KEY(G), "microbatch_size", "--micro-batch N", NULL},
    {OPTION(C), "-b", "--micro-batch N", NULL},
    {OPTION(C), "-t", "--seq N", NULL},
    {OPTION(M | L), "global-batch-size", "--global-batch N", NULL},
    {OPTION(C), "-d", "--global-batch N", "rows: divide llm.c's tokens by --seq"},
    {OPTION(M), "rampup-batch-size", NO_EQUAL, "every step has as many rows"},
    {OPTION(H | A), "gradient_accumulation_steps", "--accumulate N", NULL},
    {OPTION(N), "gradient_accumulation_steps", "--accumulate N", "of one data-parallel rank"},
    {OPTION(P), "accumulate_grad_batches", "--accumulate N", NULL},
    {OPTION(A), "megatron_lm_num_micro_batches", "--accumulate N", NULL},
    {KEY(G), "num_microbatches", "--accumulate N", NULL},
    {KEY(L), "num_accumulation_steps", "--accumulate N", NULL},
    {OPTION(M), "train-iters", "--steps N", NULL},
    {OPTION(N), "max_iters", "--steps N", NULL},
    {OPTION(H | P), "max_steps", "--steps N", NULL},
    {OPTION(G), "train_step", "--steps N", NULL},
    {KEY(L), "train_iter", "--steps N", NULL},
    {OPTION(C), "-x", "--steps N", NULL},
    {OPTION(M | L), "train-samples", "--steps N", "the samples / --global-batch"},
    {OPTION(MD), "train-tokens", "--tokens N", NULL},
    {OPTION(H), "num_train_epochs", "--epochs N", "every row of --data N times"},
    {OPTION(P), "max_epochs", "--epochs N", "every row of --data N times"},
    {OPTION(G), "num_epochs", "--epochs N", "every row of --data N times"},
    {KEY(L), "train_epoch", "--epochs N", "every row of --data N times"},
    {OPTION(H | N), "learning-rate", "--lr X", NULL},
    {OPTION(C), "-l", "--lr X", NULL},
    {OPTION(C), "-q", "--min-lr X", "a learning rate, not a part of --lr"},
    {OPTION(M), "lr-decay-style", "--lr-schedule NAME", "cosine, linear or constant"},
    {OPTION(H), "lr_scheduler_type", "--lr-schedule NAME", "cosine, linear or constant"},
    {OPTION(C), "-k", "--lr-schedule NAME", "cosine, linear or constant"},
    {OPTION(N), "decay_lr", "--lr-schedule NAME", "True is cosine, False constant"},
    {OPTION(M | N), "lr-decay-iters", "--lr-decay-steps N", NULL},
    {OPTION(M), "lr-decay-samples", "--lr-decay-steps N", "the samples / --global-batch"},
    {OPTION(M), "lr-warmup-iters", "--warmup N", NULL},
    {OPTION(M), "lr-warmup-samples", "--warmup N", "the samples / --global-batch"},
    {OPTION(M), "lr-warmup-fraction", "--warmup F", "below 1: of --steps"},
    {OPTION(H | L), "warmup_ratio", "--warmup F", "below 1: of --steps"},
    {OPTION(H), "warmup_steps", "--warmup N", NULL},
    {OPTION(N), "warmup_iters", "--warmup N", NULL},
    {OPTION(C), "-u", "--warmup N", NULL},

    /* ---- the optimizer and types ---- */
    {OPTION(H), "optim", "--optimizer NAME", "adamw_torch is adamw, lion_32bit is lion"},
    {OPTION(M), "sgd-momentum", "--momentum X", NULL},
    {VALUE(M | H, "optimizer"), "adam", "--optimizer adamw", "with decoupled weight decay"},
    {VALUE(H, "optimizer"), "adamw_torch", "--optimizer adamw", NULL},
    {VALUE(H, "optimizer"), "adamw_torch_fused", "--optimizer adamw", NULL},
    {VALUE(H, "optimizer"), "lion_32bit", "--optimizer lion", NULL},
    {OPTION(M | H), "adam-beta1", "--beta1 X", NULL},
    {OPTION(M | H), "adam-beta2", "--beta2 X", NULL},
    {OPTION(M), "adam-eps", "--eps X", NULL},
    {OPTION(H), "adam_epsilon", "--eps X", NULL},
    {OPTION(C), "-c", "--weight-decay X", NULL},
    {OPTION(M), "clip-grad", "--clip X", NULL},
    {OPTION(N), "grad_clip", "--clip X", NULL},
    {OPTION(H), "max_grad_norm", "--clip X", NULL},
    {OPTION(A), "gradient_clipping", "--clip X", NULL},
    {OPTION(P), "gradient_clip_val", "--clip X", NULL},
    {KEY(G), "max_norm", "--clip X", NULL},
    {OPTION(M | H), "fp16", "--precision fp16", NULL},
    {OPTION(M | H), "bf16", "--precision bf16", NULL},
    {OPTION(N), "dtype", "--precision NAME", "float32 is fp32, bfloat16 bf16, float16 fp16"},
    {OPTION(H), "torch_dtype", "--precision NAME", "float32 is fp32, bfloat16 bf16, float16 fp16"},
    {OPTION(A), "mixed_precision", "--precision NAME", "no is fp32"},
    {KEY(L), "amp", "--precision fp16", NULL},
    {OPTION(H), "tf32", NO_EQUAL, "products of fp32 are computed in fp32"},
    {OPTION(C), "-f", NO_EQUAL, "products of fp32 are computed in fp32"},
    {OPTION(C), "-w", NO_EQUAL, "master weights are fp32 always"},
    {OPTION(M), "initial-loss-scale", "--loss-scale-start X", NULL},
    {OPTION(M), "min-loss-scale", "--loss-scale-min X", NULL},
    {OPTION(M), "hysteresis", "--loss-scale-hysteresis N", NULL},
    {KEY(G), "initial_scale", "--loss-scale-start X", NULL},
    {KEY(G), "min_scale", "--loss-scale-min X", NULL},
    {KEY(G), "growth_interval", "--loss-scale-window N", NULL},
    {KEY(G), "growth_factor", NO_EQUAL, "a dynamic loss scale doubles"},
    {KEY(G), "backoff_factor", NO_EQUAL, "an overflow halves a dynamic loss scale"},
    {OPTION(M), "accumulate-allreduce-grads-in-fp32", NO_EQUAL, "gradients are added in fp32"},
    {OPTION(M), "fp32-residual-connection", NO_EQUAL, "residuals have the compute type"},
    {OPTION(M), "attention-softmax-in-fp32", NO_EQUAL, "softmax is computed in fp32 always"},
    {OPTION(H), "label_smoothing_factor", NO_EQUAL, "the loss is the plain cross-entropy"},
    {OPTION(C), "-sl", NO_EQUAL, "no step is skipped for its loss"},
    {OPTION(C), "-sg", NO_EQUAL, "no step is skipped for its norm; --clip bounds it"},
    {OPTION(C), "-a", NO_EQUAL, "rows are drawn from all of --data"},

    /* ---- recomputation and kernels ---- */
    {OPTION(M), "recompute-activations", "--recompute selective", NULL},
    {OPTION(M), "recompute-granularity", "--recompute NAME", "full or selective"},
    {OPTION(M), "recompute-method", NO_EQUAL, "--recompute full keeps the input of each block"},
    {OPTION(M), "recompute-num-layers", NO_EQUAL, "--recompute full keeps the input of each block"},
    {OPTION(M), "checkpoint-activations", "--recompute full", NULL},
    {OPTION(MD), "checkpoint-num-layers", NO_EQUAL, "--recompute full is of every block"},
    {OPTION(MD), "deepspeed-activation-checkpointing", "--recompute full", NULL},
    {OPTION(H), "gradient_checkpointing", "--recompute full", NULL},
    {OPTION(A), "fsdp_activation_checkpointing", "--recompute full", NULL},
    {OPTION(A), "megatron_lm_recompute_activations", "--recompute selective", NULL},
    {OPTION(G), "grad_checkpoint", "--recompute full", NULL},
    {KEY(L), "activation_checkpoint", "--recompute full", NULL},
    {OPTION(C), "-r", "--recompute NAME", "0 is none, 1 and 2 are near selective"},
    {OPTION(M), "distribute-saved-activations", "--partition-activations", NULL},
    {OPTION(M), "distribute-checkpointed-activations", "--partition-activations", NULL},
    {OPTION(M), "use-flash-attn", NO_EQUAL, "attention keeps no scores, always"},
    {KEY(G), "enable_flash_attention", NO_EQUAL, "attention keeps no scores, always"},
    {OPTION(N), "compile", NO_EQUAL, "the whole step is planned before it runs"},
    {OPTION(H), "torch_compile", NO_EQUAL, "the whole step is planned before it runs"},
    {OPTION(A), "dynamo_backend", NO_EQUAL, "the whole step is planned before it runs"},
    {OPTION(C), "-ge", "--cuda-epilogue on", "or off"},

    /* ---- ranks ---- */
    {OPTION(M), "tensor-model-parallel-size", "--tp N", NULL},
    {OPTION(M), "model-parallel-size", "--tp N", NULL},
    {OPTION(A), "megatron_lm_tp_degree", "--tp N", NULL},
    {OPTION(G), "tp_degree", "--tp N", NULL},
    {KEY(G), "tp_size", "--tp N", NULL},
    {KEY(L), "tensor_parallel_size", "--tp N", NULL},
    {OPTION(M), "pipeline-model-parallel-size", "--pp N", NULL},
    {OPTION(A), "megatron_lm_pp_degree", "--pp N", NULL},
    {KEY(G), "pp_size", "--pp N", NULL},
    {KEY(L), "pipeline_parallel_size", "--pp N", NULL},
    {KEY(L), "data_parallel_size", "--dp N", NULL},
    {KEY(L), "custom_pipeline_stage_id", "--stages LIST", "how many layers each stage has"},
    {OPTION(M), "decoder-first-pipeline-num-layers", "--stages LIST", "as in 6,-1,-1,7"},
    {OPTION(M), "decoder-last-pipeline-num-layers", "--stages LIST", "as in 6,-1,-1,7"},
    {OPTION(M), "num-layers-per-virtual-pipeline-stage", NO_EQUAL, "a stage is one run of layers"},
    {OPTION(MD), "no-pipeline-parallel", "--pp 1", NULL},
    {OPTION(M), "context-parallel-size", NO_EQUAL, "attention is not split along the row"},
    {OPTION(MD), "ds-sequence-parallel-size", NO_EQUAL, "attention is not split along the row"},
    {KEY(G), "sp_size", NO_EQUAL, "attention is not split along the row"},
    {OPTION(M), "expert-model-parallel-size", NO_EQUAL, "there are no experts"},
    {OPTION(A), "megatron_lm_sequence_parallelism", "--sequence-parallel", NULL},
    {KEY(G), "enable_sequence_parallelism", "--sequence-parallel", NULL},
    {OPTION(M), "use-distributed-optimizer", "--zero 1", NULL},
    {OPTION(A), "megatron_lm_use_distributed_optimizer", "--zero 1", NULL},
    {OPTION(M), "data-parallel-sharding-strategy", "--zero N", "optim 1, optim_grads 2, all 3"},
    {OPTION(MD | A | G), "zero-stage", "--zero N", NULL},
    {OPTION(C), "-z", "--zero N", NULL},
    {OPTION(H), "fsdp", "--zero N", "full_shard is 3, shard_grad_op 2"},
    {OPTION(A), "use_fsdp", "--zero 3", NULL},
    {OPTION(A), "fsdp_sharding_strategy", "--zero N", "FULL_SHARD is 3, SHARD_GRAD_OP 2"},
    {OPTION(P), "strategy", "--zero N", "ddp is 0, deepspeed_stage_2 2, fsdp 3"},
    {KEY(L), "zero_optimization", "--zero N", "its stage"},
    {OPTION(A), "use_megatron_lm", "--tp N", NULL},
    {OPTION(M), "overlap-grad-reduce", NO_EQUAL, "exchanges overlap the work always"},
    {OPTION(M), "overlap-param-gather", NO_EQUAL, "exchanges overlap the work always"},
    {KEY(L), "nccl_fusion_threshold_mb", NO_EQUAL, "chunks are what is exchanged"},
    {KEY(L), "rdma_enabled", NO_EQUAL, "NCCL and MPI choose their own ways"},
    {OPTION(M), "distributed-backend", NO_EQUAL, "GPUs exchange by NCCL, cores by shared memory"},
    {OPTION(N), "backend", NO_EQUAL, "GPUs exchange by NCCL, cores by shared memory"},
    {OPTION(H), "ddp_backend", NO_EQUAL, "GPUs exchange by NCCL, cores by shared memory"},
    {OPTION(M), "distributed-timeout-minutes", "--rank-timeout S", "in seconds"},
    {OPTION(M | D | H), "local_rank", NO_EQUAL, "sluice launch numbers its ranks itself"},

    /* ---- starting ranks ---- */
    {OPTION(T), "nproc_per_node", "sluice launch -n N -- train", NULL},
    {OPTION(T), "nnodes", "sluice launch --hosts FILE -- train", NULL},
    {OPTION(T), "node_rank", NO_EQUAL, "one sluice launch --hosts FILE starts every machine"},
    {OPTION(T | D), "master_addr", NO_EQUAL, "ranks find each other by themselves"},
    {OPTION(T | D), "master_port", NO_EQUAL, "ranks find each other by themselves"},
    {OPTION(T | A), "rdzv_backend", NO_EQUAL, "ranks find each other by themselves"},
    {OPTION(T), "rdzv_endpoint", NO_EQUAL, "ranks find each other by themselves"},
    {OPTION(T), "rdzv_id", NO_EQUAL, "ranks find each other by themselves"},
    {OPTION(T), "standalone", NO_EQUAL, "sluice launch is of this machine without --hosts"},
    {OPTION(T | A), "max_restarts", "sluice launch --restarts R -- train", NULL},
    {OPTION(A), "num_processes", "sluice launch -n N -- train", NULL},
    {OPTION(A), "num_machines", "sluice launch --hosts FILE -- train", NULL},
    {OPTION(A), "machine_rank", NO_EQUAL, "one sluice launch --hosts FILE starts every machine"},
    {OPTION(A), "main_process_ip", NO_EQUAL, "ranks find each other by themselves"},
    {OPTION(A), "main_process_port", NO_EQUAL, "ranks find each other by themselves"},
    {OPTION(A), "multi_gpu", "sluice launch -n N -- train", NULL},
    {OPTION(A), "gpu_ids", NO_EQUAL, "CUDA_VISIBLE_DEVICES says which GPUs there are"},
    {OPTION(A), "num_cpu_threads_per_process", "--threads N", NULL},
    {OPTION(A), "config_file", NO_EQUAL, "accelerate's YAML is not read; --config FILE takes JSON"},
    {OPTION(A), "mpirun_hostfile", "sluice launch --hosts FILE -- train", NULL},
    {OPTION(D), "num_gpus", "sluice launch -n N -- train", NULL},
    {OPTION(D | P), "num_nodes", "sluice launch --hosts FILE -- train", NULL},
    {OPTION(D), "hostfile", "sluice launch --hosts FILE -- train", NULL},
    {OPTION(D), "include", NO_EQUAL, "CUDA_VISIBLE_DEVICES says which GPUs there are"},
    {OPTION(D), "exclude", NO_EQUAL, "CUDA_VISIBLE_DEVICES says which GPUs there are"},
    {OPTION(D), "launcher", NO_EQUAL, "sluice launch starts its ranks; --hosts by mpirun"},
    {OPTION(P), "gpus", "sluice launch -n N -- train", NULL},
    {OPTION(P), "devices", "sluice launch -n N -- train", NULL},
    {OPTION(P), "accelerator", "--device cuda", "or cpu"},
    {OPTION(C), "-pn", "sluice launch -n N -- train", NULL},
    {OPTION(C), "-pr", NO_EQUAL, "sluice launch numbers its ranks itself"},
    {OPTION(C), "-pg", NO_EQUAL, "sluice launch --hosts FILE says how many each machine has"},
    {OPTION(C), "-pm", NO_EQUAL, "ranks find each other by themselves"},

    /* ---- places ---- */
    {OPTION(D | H), "deepspeed", "--config FILE", "DeepSpeed's JSON is read as it is"},
    {OPTION(D), "deepspeed_config", "--config FILE", "DeepSpeed's JSON is read as it is"},
    {OPTION(A), "deepspeed_config_file", "--config FILE", "DeepSpeed's JSON is read as it is"},
    {OPTION(A), "use_deepspeed", "--config FILE", "DeepSpeed's JSON is read as it is"},
    {OPTION(D), "autotuning", "--policy auto", NULL},
    {OPTION(G), "placement_policy", "--policy NAME", "cuda, cpu, const and auto are names of it"},
    {OPTION(G), "placement", "--policy NAME", "cuda, cpu, const and auto are names of it"},
    {OPTION(G), "plugin", "--policy NAME", "gemini is static, gemini_auto auto"},
    {OPTION(G), "distplan", "--policy NAME", "CAI_Gemini is static; CAI_ZeRO2 --zero 2"},
    {KEY(G), "shard_param_frac", "--zero 3", "of 0: --zero 2"},
    {KEY(G), "offload_optim_frac", "--policy static --offload-optimizer F", NULL},
    {KEY(G), "offload_param_frac", "--policy static --offload-params F", NULL},
    {KEY(G), "steady_cuda_cap_ratio", "--device-memory SIZE", NULL},
    {KEY(G), "gpu_margin_mem_ratio", "--device-memory SIZE", NULL},
    {KEY(G), "warmup_non_model_data_ratio", NO_EQUAL, "the plan knows all bytes before a step"},
    {KEY(G), "search_range_m", "--chunk-size auto", "the range is chosen"},
    {KEY(G), "min_chunk_size_m", "--chunk-size N", "elements"},
    {KEY(G), "hidden_dim", "--chunk-size auto", "found from the model's own width"},
    {KEY(G), "pin_memory", NO_EQUAL, "host memory is pinned always"},
    {KEY(G), "nvme_offload_fraction", "--policy static --nvme-optimizer F", NULL},
    {KEY(G), "nvme_offload_dir", "--disk-dir DIR", NULL},
    {KEY(G), "cpu_offload", "--policy host", NULL},
    {OPTION(M), "optimizer-cpu-offload", "--policy static --offload-optimizer 1", NULL},
    {OPTION(M), "optimizer-offload-fraction", "--policy static --offload-optimizer F", NULL},
    {OPTION(MD), "cpu-optimizer", "--policy static --offload-optimizer 1", NULL},
    {OPTION(MD), "remote-device", "--policy NAME", "cpu is host"},
    {OPTION(MD), "checkpoint-in-cpu", "--policy host --offload-activations 1", NULL},
    {OPTION(A), "offload_optimizer_device", "--policy NAME", "cpu is host"},
    {OPTION(A), "offload_param_device", "--policy NAME", "cpu is host"},
    {OPTION(A), "offload_optimizer_nvme_path", "--disk-dir DIR", NULL},
    {OPTION(A), "offload_param_nvme_path", "--disk-dir DIR", NULL},
    {OPTION(A), "fsdp_offload_params", "--policy host", NULL},
    {OPTION(A), "cpu", "--device cpu", NULL},
    {OPTION(H), "use_cpu", "--device cpu", NULL},
    {OPTION(H), "no_cuda", "--device cpu", NULL},
    {KEY(L), "input_placement_device", NO_EQUAL, "rows go where the first layer is"},
    {OPTION(H), "auto_find_batch_size", "sluice plan", "it says what fits, and what would"},

    /* ---- saving, evaluating and watching ---- */
    {OPTION(M), "load", "--save DIR --resume", "to take weights alone: --init DIR"},
    {OPTION(H), "resume_from_checkpoint", "--save DIR --resume", NULL},
    {OPTION(C), "-y", "--resume", "0 is --overwrite"},
    {KEY(L), "start_iter", "--resume", NULL},
    {OPTION(M), "use-checkpoint-args", "--resume", "it takes all options from the checkpoint"},
    {OPTION(M), "no-load-optim", "--init DIR", "it takes weights alone"},
    {OPTION(M), "no-load-rng", "--init DIR", "it takes weights alone"},
    {OPTION(M), "no-save-optim", NO_EQUAL, "a checkpoint is whole; sluice convert writes weights"},
    {OPTION(M), "no-save-rng", NO_EQUAL, "a checkpoint is whole; sluice convert writes weights"},
    {OPTION(M), "ckpt-format", NO_EQUAL,
     "checkpoints know no topology; sluice convert writes others"},
    {OPTION(H | L), "output_dir", "--save DIR", NULL},
    {OPTION(N), "out_dir", "--save DIR", NULL},
    {OPTION(C), "-o", "--save DIR", NULL},
    {OPTION(H), "overwrite_output_dir", "--overwrite", NULL},
    {OPTION(M), "save-interval", "--save-every N", NULL},
    {OPTION(H), "save_steps", "--save-every N", NULL},
    {OPTION(H), "save_strategy", "--save-every N", NULL},
    {OPTION(N), "always_save_checkpoint", "--save-every N", "False is --keep-best"},
    {KEY(L), "checkpointer", "--save-every N", "--keep N is max_to_keep"},
    {KEY(L), "period", "--save-every N", NULL},
    {OPTION(C), "-n", "--save-every N", NULL},
    {OPTION(H), "save_total_limit", "--keep N", NULL},
    {OPTION(H), "load_best_model_at_end", "--keep-best", "in best, below --save"},
    {OPTION(H), "early_stopping_patience", "--patience N", NULL},
    {OPTION(H), "early_stopping_threshold", NO_EQUAL, "any better loss counts"},
    {KEY(L), "max_to_keep", "--keep N", NULL},
    {OPTION(C), "-nk", "--keep N", NULL},
    {OPTION(C), "-nm", NO_EQUAL, "every checkpoint counts for --keep"},
    {OPTION(M | N), "eval-interval", "--eval-every N", NULL},
    {OPTION(H), "eval_steps", "--eval-every N", NULL},
    {OPTION(H), "eval_strategy", "--eval-every N", NULL},
    {OPTION(H), "evaluation_strategy", "--eval-every N", NULL},
    {KEY(L), "eval_period", "--eval-every N", NULL},
    {KEY(L), "evaluation", "--eval-every N", NULL},
    {OPTION(C), "-v", "--eval-every N", NULL},
    {KEY(L), "eval_iter", "--eval-iters N", NULL},
    {OPTION(C), "-m", "--eval-iters N", NULL},
    {OPTION(N), "eval_only", "sluice eval", NULL},
    {OPTION(H), "do_eval", "sluice eval", NULL},
    {OPTION(H), "do_train", "sluice train", NULL},
    {OPTION(M | N), "log-interval", "--log-every N", NULL},
    {OPTION(H), "logging_steps", "--log-every N", NULL},
    {KEY(L), "log_period", "--log-every N", NULL},
    {OPTION(C), "-lg", NO_EQUAL, "sluice profile measures a step"},
    {OPTION(M), "tensorboard-dir", "--tensorboard DIR", NULL},
    {OPTION(H), "logging_dir", "--tensorboard DIR", NULL},
    {OPTION(H), "report_to", "--tensorboard DIR", NULL},
    {OPTION(M), "wandb-project", NO_EQUAL, "--tensorboard, --log-csv, --log-json write files"},
    {OPTION(N), "wandb_log", NO_EQUAL, "--tensorboard, --log-csv, --log-json write files"},
    {OPTION(M), "timing-log-level", "sluice profile", NULL},
    {OPTION(MD), "profile-backward", "sluice profile", NULL},
    {OPTION(M), "log-throughput", NO_EQUAL, "every line has tokens a second"},
    {OPTION(M), "exit-interval", "--steps N", "--lr-decay-steps keeps the longer schedule"},
    {OPTION(M), "exit-duration-in-mins", NO_EQUAL,
     "a signal ends a run: timeout -s INT 60m sluice"},
    {OPTION(M), "exit-signal-handler", NO_EQUAL, "a signal ends a run after its step always"},

    /* ---- sampling ---- */
    {OPTION(N), "start", "sluice generate --prompt TEXT", NULL},
    {OPTION(N | H), "max_new_tokens", "sluice generate --tokens N", NULL},
    {OPTION(M), "out-seq-length", "sluice generate --tokens N", NULL},
    {OPTION(C), "-g", "--sample-tokens N", NULL},
    {OPTION(C), "-s", "--sample-every N", NULL},
    {OPTION(N | M), "num-samples", "sluice generate --samples N", NULL},
    {OPTION(H), "num_return_sequences", "sluice generate --samples N", NULL},
    {OPTION(M), "sample-input-file", "sluice generate --prompt-file FILE", NULL},
    {OPTION(M), "greedy", "sluice generate --temperature 0", NULL},
    {OPTION(H), "do_sample", "sluice generate --temperature X", "0 is greedy"},
    {OPTION(H), "num_beams", NO_EQUAL, "one continuation is followed; --samples N are independent"},

    /* ---- values, beside the option here ---- */
    {VALUE(N | H, "precision"), "float32", "--precision fp32", NULL},
    {VALUE(P, "precision"), "32-true", "--precision fp32", NULL},
    {VALUE(A, "precision"), "no", "--precision fp32", NULL},
    {VALUE(N | H, "precision"), "float16", "--precision fp16", NULL},
    {VALUE(N | H, "precision"), "half", "--precision fp16", NULL},
    {VALUE(P, "precision"), "16-mixed", "--precision fp16", NULL},
    {VALUE(N | H, "precision"), "bfloat16", "--precision bf16", NULL},
    {VALUE(P, "precision"), "bf16-mixed", "--precision bf16", NULL},
    {VALUE(H, "precision"), "tf32", "--precision fp32", "products are computed in fp32"},
    {VALUE(M | A, "precision"), "fp8", NO_EQUAL, "bf16 and fp16 are the narrowest"},
    {VALUE(N | P, "device"), "gpu", "--device cuda", NULL},
    {VALUE(N | P, "device"), "mps", NO_EQUAL, "GPUs are CUDA's"},
    {VALUE(M, "recompute"), "uniform", "--recompute full", NULL},
    {VALUE(M, "recompute"), "block", "--recompute full", NULL},
    {VALUE(H, "recompute"), "true", "--recompute full", NULL},
    {VALUE(H, "recompute"), "false", "--recompute none", NULL},
    {VALUE(H, "lr-schedule"), "constant_with_warmup", "--lr-schedule constant", "--warmup N"},
    {VALUE(H, "lr-schedule"), "cosine_with_min_lr", "--lr-schedule cosine", "--min-lr X"},
    {VALUE(H, "lr-schedule"), "cosine_with_restarts", NO_EQUAL, "a schedule falls once"},
    {VALUE(H, "lr-schedule"), "polynomial", NO_EQUAL, "linear is its power 1"},
    {VALUE(H, "lr-schedule"), "inverse_sqrt", NO_EQUAL, "cosine, linear, constant are known"},
    {VALUE(M, "lr-schedule"), "inverse-square-root", NO_EQUAL,
     "cosine, linear, constant are known"},
    {VALUE(M | C, "lr-schedule"), "WSD", NO_EQUAL, "cosine, linear, constant are known"},
    {VALUE(G, "policy"), "gemini", "--policy static", NULL},
    {VALUE(G, "policy"), "gemini_auto", "--policy auto", NULL},
    {VALUE(D, "policy"), "none", "--policy device", NULL},
    {VALUE(D | H, "policy"), "disk", "--policy nvme", NULL},
    {VALUE(P, "policy"), "gpu", "--policy device", NULL},
    {VALUE(G, "schedule"), "interleaved", NO_EQUAL, "a stage is one run of layers"},
    {VALUE(H | A, "zero"), "FULL_SHARD", "--zero 3", NULL},
    {VALUE(H | A, "zero"), "SHARD_GRAD_OP", "--zero 2", NULL},
    {VALUE(M | H | A, "zero"), "NO_SHARD", "--zero 0", NULL},
    {VALUE(M, "zero"), "optim", "--zero 1", NULL},
    {VALUE(M, "zero"), "optim_grads", "--zero 2", NULL},
    {VALUE(M, "zero"), "optim_grads_params", "--zero 3", NULL},
    {VALUE(M | H, "format"), "huggingface", "sluice convert --format hf", NULL},
    {VALUE(H, "format"), "transformers", "sluice convert --format hf", NULL},
    {VALUE(H, "format"), "safetensors", "sluice convert --format weights", "hf writes them too"},
    {VALUE(M, "top-p"), "0", "--top-p 1", "off"},
    {VALUE(H, "top-p"), "0", "--temperature 0", "always the likeliest"},

    /* ---- models ---- */
    {MODEL(H), "gpt2-small", "--model gpt2", NULL},
    {MODEL(H), "openai-community/gpt2", "--model gpt2", "weights: --init DIR"},
    {MODEL(H), "openai-community/gpt2-medium", "--model gpt2-medium", "weights: --init DIR"},
    {MODEL(H), "openai-community/gpt2-large", "--model gpt2-large", "weights: --init DIR"},
    {MODEL(H), "openai-community/gpt2-xl", "--model gpt2-xl", "weights: --init DIR"},
    {MODEL(H), "meta-llama/Llama-3.2-1B", "--model llama-3.2-1b", "weights: --init DIR"},
    {MODEL(H), "meta-llama/Llama-3.2-3B", "--model llama-3.2-3b", "weights: --init DIR"},
    {MODEL(H), "meta-llama/Llama-3.1-8B", "--model llama-3.1-8b", "weights: --init DIR"},
    {MODEL(H), "Qwen/Qwen2.5-0.5B", "--model qwen2.5-0.5b", "weights: --init DIR"},
    {MODEL(H), "Qwen/Qwen2.5-1.5B", "--model qwen2.5-1.5b", "weights: --init DIR"},
    {MODEL(H), "Qwen/Qwen2.5-3B", "--model qwen2.5-3b", "weights: --init DIR"},
    {MODEL(H), "Qwen/Qwen2.5-7B", "--model qwen2.5-7b", "weights: --init DIR"},
    {MODEL(H), "Qwen/Qwen2.5-14B", "--model qwen2.5-14b", "weights: --init DIR"},
    {MODEL(H), "Qwen/Qwen3-0.6B", "--model qwen3-0.6b", "weights: --init DIR"},
    {MODEL(H), "Qwen/Qwen3-1.7B", "--model qwen3-1.7b", "weights: --init DIR"},
    {MODEL(H), "Qwen/Qwen3-4B", "--model qwen3-4b", "weights: --init DIR"},
    {MODEL(H), "Qwen/Qwen3-8B", "--model qwen3-8b", "weights: --init DIR"},
    {MODEL(H), "Qwen/Qwen3-14B", "--model qwen3-14b", "weights: --init DIR"},
    {MODEL(H), "allenai/OLMo-2-0425-1B", "--model olmo2-1b", "weights: --init DIR"},
    {MODEL(H), "allenai/OLMo-2-1124-7B", "--model olmo2-7b", "weights: --init DIR"},
    {MODEL(H), "allenai/OLMo-2-1124-13B", "--model olmo2-13b", "weights: --init DIR"},
    {MODEL(H), "distilgpt2", "--layers 6 --width 768 --heads 12", "weights: --init DIR"},
    {MODEL(H), "gpt2-117m", "--model gpt2", NULL},
    {MODEL(H | C), "gpt2-124m", "--model gpt2", NULL},
    {MODEL(C), "gpt2:d12", "--model gpt2", NULL},
    {MODEL(C), "gpt2:d24", "--model gpt2-medium", NULL},
    {MODEL(C), "gpt2:d36", "--model gpt2-large", NULL},
    {MODEL(C), "gpt2:d48", "--model gpt2-xl", NULL},
    {MODEL(C), "d12", "--model gpt2", NULL},
    {MODEL(C), "d24", "--model gpt2-medium", NULL},
    {MODEL(C), "d36", "--model gpt2-large", NULL},
    {MODEL(C), "d48", "--model gpt2-xl", NULL},
    {MODEL(M), "gpt2-345m", "--model gpt2-medium", "24 layers, 1024 wide, 16 heads"},
    {MODEL(H | C), "gpt2-350m", "--model gpt2-medium", NULL},
    {MODEL(H | C), "gpt2-355m", "--model gpt2-medium", NULL},
    {MODEL(H | C), "gpt2-774m", "--model gpt2-large", NULL},
    {MODEL(H | C), "gpt2-1558m", "--model gpt2-xl", NULL},
    {MODEL(H | C), "gpt2-1.5b", "--model gpt2-xl", NULL},
    {MODEL(M), "gpt2-1.2b", "--layers 40 --width 1536 --heads 16", NULL},
    {MODEL(M), "gpt2-2.5b", "--layers 54 --width 1920 --heads 20", NULL},
    {MODEL(M), "gpt2-4.2b", "--layers 64 --width 2304 --heads 24", NULL},
    {MODEL(M), "gpt2-8.3b", "--layers 72 --width 3072 --heads 32", NULL},
    {MODEL(M), "gpt3-125m", "--model gpt2 --context 2048", NULL},
    {MODEL(M), "gpt3-350m", "--model gpt2-medium --context 2048", NULL},
    {MODEL(M), "gpt3-760m", "--layers 24 --width 1536 --heads 16 --context 2048", NULL},
    {MODEL(M), "gpt3-1.3b", "--layers 24 --width 2048 --heads 16 --context 2048", NULL},
    {MODEL(M), "gpt3-2.7b", "--layers 32 --width 2560 --heads 32 --context 2048", NULL},
    {MODEL(M), "gpt3-6.7b", "--layers 32 --width 4096 --heads 32 --context 2048", NULL},
    {MODEL(M), "gpt3-13b", "--layers 40 --width 5120 --heads 40 --context 2048", NULL},

    /* ---- commands and scripts ---- */
    {COMMAND(T), "torchrun", "sluice launch -n N -- train", NULL},
    {COMMAND(D), "deepspeed", "sluice launch -n N -- train", NULL},
    {COMMAND(A), "accelerate", "sluice launch -n N -- train", NULL},
    {COMMAND(G), "colossalai", "sluice launch -n N -- train", NULL},
    {COMMAND(M), "pretrain_gpt.py", "sluice train", NULL},
    {COMMAND(M), "pretrain", "sluice train", NULL},
    {COMMAND(M), "finetune", "sluice train --init DIR", NULL},
    {COMMAND(M), "preprocess_data.py", "sluice tokenize", NULL},
    {COMMAND(H), "run_clm.py", "sluice train", NULL},
    {COMMAND(N), "train.py", "sluice train", NULL},
    {COMMAND(N), "sample.py", "sluice generate", NULL},
    {COMMAND(N), "sample", "sluice generate", NULL},
    {COMMAND(N), "prepare.py", "sluice tokenize", NULL},
    {COMMAND(H), "evaluate", "sluice eval", NULL},
    {COMMAND(D), "ds_report", "sluice doctor", NULL},
    {COMMAND(A), "env", "sluice doctor", NULL},
    {COMMAND(A), "estimate-memory", "sluice plan", NULL},
};

enum { WORD_COUNT = sizeof words / sizeof words[0] };

const sl_word *sl_words_at(size_t index)
{
    return index < WORD_COUNT ? &words[index] : NULL;
}

const char *sl_words_tool(size_t index)
{
    return index < TOOL_COUNT ? tools[index].name : NULL;
}

/* Users may type a key as an option and an option as a key, so both are looked up alike. */
static bool is_name(const sl_word *word)
{
    return word->kind == SL_WORD_OPTION || word->kind == SL_WORD_KEY;
}

void sl_words_spell(const sl_word *word, size_t tool, char out_text[SL_WORDS_NAME_BYTES])
{
    snprintf(out_text, SL_WORDS_NAME_BYTES, "%s", word->name);
    for (size_t i = 1; *out_text && out_text[i]; i++)
        if (is_name(word) && (out_text[i] == '-' || out_text[i] == '_'))
            out_text[i] = tools[tool].separator;
}

static char fold(char letter)
{
    return (char)(letter == '_' ? '-' : tolower((unsigned char)letter));
}

bool sl_words_match(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (fold(*a) != fold(*b))
            return false;
    return *a == *b;
}

static bool has_kind(const sl_word *word, sl_word_kind kind)
{
    const bool is_either = kind == SL_WORD_OPTION || kind == SL_WORD_KEY;
    return is_either ? is_name(word) : word->kind == kind;
}

static bool is_meant(const sl_word *word, sl_word_kind kind, const char *option, const char *name)
{
    return has_kind(word, kind) && (!option || strcmp(word->option, option) == 0) &&
           sl_words_match(word->name, name);
}

static void add_text(char *text, const char *more)
{
    const size_t used = strlen(text);
    snprintf(text + used, SL_WORDS_TEXT_BYTES - used, "%s", more);
}

/* "nanoGPT, Hugging Face and accelerate" */
static void add_tools(char *text, unsigned set)
{
    const char *before = "";
    for (size_t i = 0; i < TOOL_COUNT; i++) {
        if (!(set & 1u << i))
            continue;
        set &= ~(1u << i);
        add_text(text, before);
        add_text(text, tools[i].name);
        before = set & (set - 1) ? ", " : " and ";
    }
}

static void add_meaning(char *text, const sl_word *word)
{
    add_text(text, *text ? "; of " : ": a word of ");
    add_tools(text, word->tools);
    add_text(text, !word->here                   ? " without an equal here: "
                   : word->kind == SL_WORD_VALUE ? ": write "
                                                 : " for ");
    add_text(text, word->here ? word->here : word->note);
    if (word->here && word->note) {
        add_text(text, " (");
        add_text(text, word->note);
        add_text(text, ")");
    }
}

bool sl_words_explain(sl_word_kind kind, const char *option, const char *name,
                      char out_text[SL_WORDS_TEXT_BYTES])
{
    out_text[0] = '\0';
    for (size_t i = 0; i < WORD_COUNT; i++)
        if (is_meant(&words[i], kind, option, name))
            add_meaning(out_text, &words[i]);
    return *out_text != '\0';
}

void sl_words_suggest(sl_word_kind kind, const sl_nearest *nearest, const char *prefix,
                      char out_text[SL_WORDS_TEXT_BYTES])
{
    if (!sl_words_explain(kind, NULL, nearest->name, out_text))
        sl_nearest_format(nearest, prefix, out_text, SL_WORDS_TEXT_BYTES);
}
