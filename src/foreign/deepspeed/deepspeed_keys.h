/* The keys of a DeepSpeed configuration, and what each means here. deepspeed.c walks this list: a
 * key that is not in it is refused, and the nearest one is named. Names and defaults are those of
 * DeepSpeed's runtime/config.py, runtime/zero/config.py, runtime/precision_config.py and of its
 * page "DeepSpeed Configuration JSON". Of the optimizers of runtime/config.py
 * (DEEPSPEED_OPTIMIZERS) Adam, AdamW, Lion and Muon have an equal here, and SGD of those that it
 * takes from torch.optim. No type of either stores states in 8 bits.
 *
 * X(name, path, KIND, USE, text)
 *   KIND  what the value has to be: OBJECT, BOOL, WHOLE (also 5e8), REAL, TEXT, ANY. null is as if
 *         the key were not there, and "auto" may stand for all but an object
 *   USE   INSIDE   an object whose keys are rows of their own
 *         TAKEN    becomes options: by a function of deepspeed.c
 *         NOTHING  has no meaning here; the text says why that is harmless
 *         REFUSED  would change the numbers, unless it is false, 0 or empty; the text says how
 *         ENABLED  an object: REFUSED if its "enabled" is true, else NOTHING, whatever it holds
 */
#ifndef SL_FOREIGN_DEEPSPEED_DEEPSPEED_KEYS_H
#define SL_FOREIGN_DEEPSPEED_DEEPSPEED_KEYS_H

/* clang-format off */
#define SL_DEEPSPEED_BATCH_KEYS(X) \
    X(TRAIN_BATCH, "train_batch_size", WHOLE, TAKEN, "") \
    X(MICRO_BATCH, "train_micro_batch_size_per_gpu", WHOLE, TAKEN, "") \
    X(ACCUMULATION, "gradient_accumulation_steps", WHOLE, TAKEN, "") \
    X(MANAGED, "managed_gradient_accumulation", BOOL, NOTHING, "an update follows on every --accumulate micro-batches")

#define SL_DEEPSPEED_OPTIMIZER_KEYS(X) \
    X(OPTIMIZER, "optimizer", OBJECT, INSIDE, "") \
    X(OPTIMIZER_TYPE, "optimizer.type", TEXT, TAKEN, "") \
    X(LEGACY_FUSION, "optimizer.legacy_fusion", BOOL, NOTHING, "of a GPU's launches") \
    X(OPTIMIZER_PARAMS, "optimizer.params", OBJECT, INSIDE, "") \
    X(LR, "optimizer.params.lr", REAL, TAKEN, "") \
    X(MUON_LR, "optimizer.params.muon_lr", REAL, REFUSED, "matrices would have a rate of their own: give lr, and --lr-of for some") \
    X(ADAM_LR, "optimizer.params.adam_lr", REAL, REFUSED, "what is no matrix would have a rate of its own: give lr, and --lr-of for some") \
    X(NS_METHOD, "optimizer.params.ns_method", TEXT, NOTHING, "another order of the same products") \
    X(BETAS, "optimizer.params.betas", ANY, TAKEN, "") \
    X(EPS, "optimizer.params.eps", REAL, TAKEN, "") \
    X(MOMENTUM, "optimizer.params.momentum", REAL, TAKEN, "") \
    X(NESTEROV, "optimizer.params.nesterov", BOOL, TAKEN, "") \
    X(DAMPENING, "optimizer.params.dampening", REAL, REFUSED, "gradients would weigh less in the sum") \
    X(WEIGHT_DECAY, "optimizer.params.weight_decay", REAL, TAKEN, "") \
    X(TORCH_ADAM, "optimizer.params.torch_adam", BOOL, TAKEN, "") \
    X(ADAM_W_MODE, "optimizer.params.adam_w_mode", BOOL, TAKEN, "") \
    X(BIAS_CORRECTION, "optimizer.params.bias_correction", BOOL, TAKEN, "") \
    X(AMSGRAD, "optimizer.params.amsgrad", BOOL, REFUSED, "AMSGrad keeps the largest second moment") \
    X(MAXIMIZE, "optimizer.params.maximize", BOOL, REFUSED, "the loss would be maximized") \
    X(FP32_STATES, "optimizer.params.fp32_optimizer_states", BOOL, TAKEN, "") \
    X(MAX_GRAD_NORM, "optimizer.params.max_grad_norm", REAL, REFUSED, "DeepSpeed takes it from \"gradient_clipping\" alone") \
    X(SET_GRAD_NONE, "optimizer.params.set_grad_none", BOOL, NOTHING, "of PyTorch's memory") \
    X(FOREACH, "optimizer.params.foreach", BOOL, NOTHING, "of PyTorch's launches") \
    X(FUSED, "optimizer.params.fused", BOOL, NOTHING, "an update is one pass over its chunk") \
    X(CAPTURABLE, "optimizer.params.capturable", BOOL, NOTHING, "of CUDA graphs") \
    X(DIFFERENTIABLE, "optimizer.params.differentiable", BOOL, NOTHING, "nothing is derived from an update") \
    X(UNTESTED, "zero_allow_untested_optimizer", BOOL, NOTHING, "every update rule works with every stage") \
    X(FORCE_CPU, "zero_force_ds_cpu_optimizer", BOOL, NOTHING, "updates on the host and the device give the same bits")

#define SL_DEEPSPEED_SCHEDULER_KEYS(X) \
    X(SCHEDULER, "scheduler", OBJECT, INSIDE, "") \
    X(SCHEDULER_TYPE, "scheduler.type", TEXT, TAKEN, "") \
    X(SCHEDULER_PARAMS, "scheduler.params", OBJECT, INSIDE, "") \
    X(WARMUP_MIN_LR, "scheduler.params.warmup_min_lr", REAL, TAKEN, "") \
    X(WARMUP_MAX_LR, "scheduler.params.warmup_max_lr", REAL, TAKEN, "") \
    X(WARMUP_STEPS, "scheduler.params.warmup_num_steps", WHOLE, TAKEN, "") \
    X(WARMUP_TYPE, "scheduler.params.warmup_type", TEXT, TAKEN, "") \
    X(TOTAL_STEPS, "scheduler.params.total_num_steps", WHOLE, TAKEN, "") \
    X(WARMUP_MIN_RATIO, "scheduler.params.warmup_min_ratio", REAL, TAKEN, "") \
    X(COS_MIN_RATIO, "scheduler.params.cos_min_ratio", REAL, TAKEN, "") \
    X(LAST_ITERATION, "scheduler.params.last_batch_iteration", WHOLE, TAKEN, "")

#define SL_DEEPSPEED_PRECISION_KEYS(X) \
    X(FP16, "fp16", OBJECT, INSIDE, "") \
    X(FP16_ENABLED, "fp16.enabled", BOOL, TAKEN, "") \
    X(AUTO_CAST, "fp16.auto_cast", BOOL, NOTHING, "inputs are token ids") \
    X(LOSS_SCALE, "fp16.loss_scale", REAL, TAKEN, "") \
    X(SCALE_POWER, "fp16.initial_scale_power", WHOLE, TAKEN, "") \
    X(SCALE_WINDOW, "fp16.loss_scale_window", WHOLE, TAKEN, "") \
    X(HYSTERESIS, "fp16.hysteresis", WHOLE, TAKEN, "") \
    X(CONSECUTIVE, "fp16.consecutive_hysteresis", BOOL, TAKEN, "") \
    X(MIN_SCALE, "fp16.min_loss_scale", REAL, TAKEN, "") \
    X(FP16_MASTER, "fp16.fp16_master_weights_and_grads", BOOL, REFUSED, "master weights would be fp16; here they are fp32") \
    X(BF16, "bf16", OBJECT, INSIDE, "") \
    X(BF16_ENABLED, "bf16.enabled", BOOL, TAKEN, "") \
    X(BF16_CHECK, "bf16.check_grad_overflow", BOOL, TAKEN, "") \
    X(BF16_IMMEDIATE, "bf16.immediate_grad_update", BOOL, NOTHING, "the order of updates is the plan's") \
    X(BF16_MASTER, "bf16.bf16_master_weights_and_grads", BOOL, REFUSED, "master weights would be bf16; here they are fp32") \
    X(BF16_STATES, "bf16.bf16_optimizer_states", BOOL, REFUSED, "moments would be rounded to the nearest bf16; --state-type bf16 rounds them stochastically") \
    X(AMP, "amp", OBJECT, ENABLED, "Apex chooses a type for each op") \
    X(AUTOCAST, "torch_autocast", OBJECT, ENABLED, "PyTorch chooses a type for each op") \
    X(DATA_TYPES, "data_types", OBJECT, INSIDE, "") \
    X(GRAD_DTYPE, "data_types.grad_accum_dtype", TEXT, TAKEN, "") \
    X(PARAM_DTYPE, "data_types.param_dtype", TEXT, TAKEN, "") \
    X(BUFFER_DTYPE, "data_types.buffer_dtype", TEXT, NOTHING, "the model has no buffers") \
    X(CLIPPING, "gradient_clipping", REAL, TAKEN, "")

#define SL_DEEPSPEED_ZERO_KEYS(X) \
    X(ZERO, "zero_optimization", OBJECT, INSIDE, "") \
    X(STAGE, "zero_optimization.stage", WHOLE, TAKEN, "") \
    X(OFFLOAD_PARAM, "zero_optimization.offload_param", OBJECT, INSIDE, "") \
    X(PARAM_DEVICE, "zero_optimization.offload_param.device", TEXT, TAKEN, "") \
    X(PARAM_PATH, "zero_optimization.offload_param.nvme_path", TEXT, TAKEN, "") \
    X(PARAM_BUFFERS, "zero_optimization.offload_param.buffer_count", WHOLE, NOTHING, "the plan has its own ring of staging buffers") \
    X(PARAM_BUFFER, "zero_optimization.offload_param.buffer_size", WHOLE, NOTHING, "the plan has its own ring of staging buffers") \
    X(PARAM_IN_CPU, "zero_optimization.offload_param.max_in_cpu", WHOLE, NOTHING, "--host-memory is the budget") \
    X(PARAM_PIN, "zero_optimization.offload_param.pin_memory", BOOL, NOTHING, "host memory is pinned always") \
    X(OFFLOAD_OPTIMIZER, "zero_optimization.offload_optimizer", OBJECT, INSIDE, "") \
    X(STATE_DEVICE, "zero_optimization.offload_optimizer.device", TEXT, TAKEN, "") \
    X(STATE_PATH, "zero_optimization.offload_optimizer.nvme_path", TEXT, TAKEN, "") \
    X(STATE_RATIO, "zero_optimization.offload_optimizer.ratio", REAL, TAKEN, "") \
    X(STATE_BUFFERS, "zero_optimization.offload_optimizer.buffer_count", WHOLE, NOTHING, "the plan has its own ring of staging buffers") \
    X(STATE_BUFFER, "zero_optimization.offload_optimizer.buffer_size", WHOLE, NOTHING, "the plan has its own ring of staging buffers") \
    X(STATE_PIN, "zero_optimization.offload_optimizer.pin_memory", BOOL, NOTHING, "host memory is pinned always") \
    X(PIPELINE_READ, "zero_optimization.offload_optimizer.pipeline_read", BOOL, NOTHING, "reads overlap always") \
    X(PIPELINE_WRITE, "zero_optimization.offload_optimizer.pipeline_write", BOOL, NOTHING, "writes overlap always") \
    X(STATE_PIPELINE, "zero_optimization.offload_optimizer.pipeline", BOOL, NOTHING, "reads and writes overlap always") \
    X(FAST_INIT, "zero_optimization.offload_optimizer.fast_init", BOOL, NOTHING, "first values are written once, in order") \
    X(SUPER_OFFLOAD, "zero_optimization.offload_optimizer.super_offload", BOOL, NOTHING, "updates overlap always, without staleness") \
    X(ADAM_CORES, "zero_optimization.offload_optimizer.cpuadam_cores_perc", REAL, NOTHING, "--threads says how many cores work") \
    X(CPU_OFFLOAD, "zero_optimization.cpu_offload", BOOL, TAKEN, "") \
    X(CPU_OFFLOAD_PARAM, "zero_optimization.cpu_offload_param", BOOL, TAKEN, "") \
    X(CPU_OFFLOAD_PARAMS, "zero_optimization.cpu_offload_params", BOOL, TAKEN, "") \
    X(CPU_OFFLOAD_PIN, "zero_optimization.cpu_offload_use_pin_memory", BOOL, NOTHING, "host memory is pinned always") \
    X(CONTIGUOUS, "zero_optimization.contiguous_gradients", BOOL, NOTHING, "chunks are contiguous") \
    X(REDUCE_SCATTER, "zero_optimization.reduce_scatter", BOOL, NOTHING, "--zero says what is summed where") \
    X(REDUCE_BUCKET, "zero_optimization.reduce_bucket_size", WHOLE, NOTHING, "chunks are what is exchanged") \
    X(MULTI_RANK_BUCKET, "zero_optimization.use_multi_rank_bucket_allreduce", BOOL, NOTHING, "chunks are what is exchanged") \
    X(ALLGATHER_PARTITIONS, "zero_optimization.allgather_partitions", BOOL, NOTHING, "--zero says what is gathered") \
    X(ALLGATHER_BUCKET, "zero_optimization.allgather_bucket_size", WHOLE, NOTHING, "chunks are what is exchanged") \
    X(OVERLAP_COMM, "zero_optimization.overlap_comm", BOOL, NOTHING, "copies overlap always") \
    X(LOAD_FP32, "zero_optimization.load_from_fp32_weights", BOOL, NOTHING, "checkpoints hold fp32 weights") \
    X(ELASTIC_CHECKPOINT, "zero_optimization.elastic_checkpoint", BOOL, NOTHING, "checkpoints know no topology") \
    X(GRAD_HOOKS, "zero_optimization.grad_hooks", BOOL, NOTHING, "the plan has the order of the work") \
    X(SUB_GROUP, "zero_optimization.sub_group_size", WHOLE, NOTHING, "--chunk-size is the unit of updates") \
    X(PREFETCH_BUCKET, "zero_optimization.stage3_prefetch_bucket_size", WHOLE, NOTHING, "the plan prefetches as early as room and link allow") \
    X(PARAM_PERSISTENCE, "zero_optimization.stage3_param_persistence_threshold", WHOLE, NOTHING, "the plan chooses what stays on the device") \
    X(MODEL_PERSISTENCE, "zero_optimization.stage3_model_persistence_threshold", WHOLE, NOTHING, "the plan chooses what stays on the device") \
    X(MAX_LIVE, "zero_optimization.stage3_max_live_parameters", WHOLE, NOTHING, "--device-memory is the budget") \
    X(MAX_REUSE, "zero_optimization.stage3_max_reuse_distance", WHOLE, NOTHING, "the plan keeps what is used again soonest") \
    X(GATHER_16BIT, "zero_optimization.stage3_gather_16bit_weights_on_model_save", BOOL, NOTHING, "checkpoints hold whole weights") \
    X(GATHER_FP16, "zero_optimization.stage3_gather_fp16_weights_on_model_save", BOOL, NOTHING, "checkpoints hold whole weights") \
    X(GRANULARITY, "zero_optimization.stage3_module_granularity_threshold", WHOLE, NOTHING, "chunks are the unit of movement") \
    X(FETCH_ALL_REDUCE, "zero_optimization.stage3_use_all_reduce_for_fetch_params", BOOL, NOTHING, "parameters are gathered") \
    X(ALLGATHER_SEQUENTIAL, "zero_optimization.stage3_allgather_sequential", BOOL, NOTHING, "gathers come in the order of the plan") \
    X(IGNORE_UNUSED, "zero_optimization.ignore_unused_parameters", BOOL, NOTHING, "every parameter is used") \
    X(LEGACY_STAGE1, "zero_optimization.legacy_stage1", BOOL, NOTHING, "--zero 1 has one way") \
    X(ROUND_ROBIN, "zero_optimization.round_robin_gradients", BOOL, NOTHING, "every chunk is shared out evenly") \
    X(HPZ, "zero_optimization.zero_hpz_partition_size", WHOLE, NOTHING, "shards are over all data-parallel ranks") \
    X(QUANTIZED_WEIGHTS, "zero_optimization.zero_quantized_weights", BOOL, REFUSED, "weights would be rounded to 8 bits on their way") \
    X(QUANTIZED_OTHERS, "zero_optimization.zero_quantized_nontrainable_weights", BOOL, REFUSED, "weights would be rounded to 8 bits on their way") \
    X(QUANTIZED_GRADIENTS, "zero_optimization.zero_quantized_gradients", BOOL, REFUSED, "gradients would be rounded to 4 bits on their way") \
    X(LOCO, "zero_optimization.zeropp_loco_param", OBJECT, REFUSED, "gradients would be rounded, and their errors fed back") \
    X(MICS, "zero_optimization.mics_shard_size", WHOLE, NOTHING, "shards are over all data-parallel ranks") \
    X(MICS_GATHER, "zero_optimization.mics_hierarchical_params_gather", BOOL, NOTHING, "shards are over all data-parallel ranks") \
    X(MEMORY_LINEAR, "zero_optimization.memory_efficient_linear", BOOL, NOTHING, "products keep their inputs alone") \
    X(PIPELINE_LOADING, "zero_optimization.pipeline_loading_checkpoint", BOOL, NOTHING, "checkpoints are streamed") \
    X(OVERRIDE_APPLY, "zero_optimization.override_module_apply", BOOL, NOTHING, "of PyTorch's modules") \
    X(LEAF_MODULE, "zero_optimization.leaf_module", OBJECT, NOTHING, "of PyTorch's modules") \
    X(TRACE_WARNINGS, "zero_optimization.log_trace_cache_warnings", BOOL, NOTHING, "nothing is traced: the plan is made before") \
    X(SANITY_CHECKS, "zero_optimization.enable_sanity_checks", BOOL, NOTHING, "every plan is verified") \
    X(MUON_MEMORY, "zero_optimization.save_muon_momentum_buffer_in_memory", BOOL, NOTHING, "--policy says where states live") \
    X(ZENFLOW, "zero_optimization.zenflow", OBJECT, REFUSED, "updates would be late for most gradients") \
    X(ZERO_AIO, "zero_optimization.aio", OBJECT, NOTHING, "the disk tier has a queue of its own") \
    X(AIO, "aio", OBJECT, INSIDE, "") \
    X(AIO_BLOCK, "aio.block_size", WHOLE, NOTHING, "a transfer is a chunk") \
    X(AIO_DEPTH, "aio.queue_depth", WHOLE, NOTHING, "the disk tier has a queue of its own") \
    X(AIO_THREADS, "aio.thread_count", WHOLE, NOTHING, "io_uring needs one thread") \
    X(AIO_PARALLELISM, "aio.intra_op_parallelism", WHOLE, NOTHING, "several --disk-dir share the work") \
    X(AIO_SINGLE, "aio.single_submit", BOOL, NOTHING, "transfers are submitted together") \
    X(AIO_OVERLAP, "aio.overlap_events", BOOL, NOTHING, "transfers overlap always") \
    X(AIO_GDS, "aio.use_gds", BOOL, NOTHING, "the disk's way to a GPU is through the host") \
    X(ACTIVATIONS, "activation_checkpointing", OBJECT, INSIDE, "") \
    X(CPU_ACTIVATIONS, "activation_checkpointing.cpu_checkpointing", BOOL, TAKEN, "") \
    X(PARTITION_ACTIVATIONS, "activation_checkpointing.partition_activations", BOOL, TAKEN, "") \
    X(CONTIGUOUS_ACTIVATIONS, "activation_checkpointing.contiguous_memory_optimization", BOOL, NOTHING, "addresses are planned") \
    X(NUMBER_CHECKPOINTS, "activation_checkpointing.number_checkpoints", WHOLE, NOTHING, "--recompute says what is kept") \
    X(SYNC_CHECKPOINTS, "activation_checkpointing.synchronize_checkpoint_boundary", BOOL, NOTHING, "the plan has the order of the work") \
    X(PROFILE_CHECKPOINTS, "activation_checkpointing.profile", BOOL, NOTHING, "--log-json has the times of every step")

#define SL_DEEPSPEED_WATCH_KEYS(X) \
    X(STEPS_PER_PRINT, "steps_per_print", WHOLE, TAKEN, "") \
    X(WALL_CLOCK, "wall_clock_breakdown", BOOL, NOTHING, "--log-json has the times of every step") \
    X(MEMORY_BREAKDOWN, "memory_breakdown", BOOL, NOTHING, "sluice plan has the bytes by kind and tier") \
    X(DUMP_STATE, "dump_state", BOOL, NOTHING, "--log-json begins with the whole configuration") \
    X(LOG_LEVEL, "log_level", TEXT, NOTHING, "of DeepSpeed's own log") \
    X(TENSORBOARD, "tensorboard", OBJECT, INSIDE, "") \
    X(TENSORBOARD_ENABLED, "tensorboard.enabled", BOOL, TAKEN, "") \
    X(TENSORBOARD_PATH, "tensorboard.output_path", TEXT, TAKEN, "") \
    X(TENSORBOARD_JOB, "tensorboard.job_name", TEXT, TAKEN, "") \
    X(CSV, "csv_monitor", OBJECT, INSIDE, "") \
    X(CSV_ENABLED, "csv_monitor.enabled", BOOL, TAKEN, "") \
    X(CSV_PATH, "csv_monitor.output_path", TEXT, TAKEN, "") \
    X(CSV_JOB, "csv_monitor.job_name", TEXT, TAKEN, "") \
    X(WANDB, "wandb", OBJECT, NOTHING, "nothing is sent anywhere: --log-json or --tensorboard") \
    X(COMET, "comet", OBJECT, NOTHING, "nothing is sent anywhere: --log-json or --tensorboard") \
    X(FLOPS_PROFILER, "flops_profiler", OBJECT, NOTHING, "--log-json has the FLOPs of every step") \
    X(COMMS_LOGGER, "comms_logger", OBJECT, NOTHING, "comm_bytes of --log-json says what was exchanged") \
    X(TIMERS, "timers", OBJECT, NOTHING, "--log-json has the times of every step") \
    X(EIGENVALUE, "eigenvalue", OBJECT, NOTHING, "only told of, but for quantized training") \
    X(AUTOTUNING, "autotuning", OBJECT, NOTHING, "sluice plan and --policy auto search without runs")

#define SL_DEEPSPEED_OTHER_KEYS(X) \
    X(COMM_DTYPE, "communication_data_type", TEXT, NOTHING, "ranks exchange the compute type, and add in fp32") \
    X(SEQ_COMM_DTYPE, "seq_parallel_communication_data_type", TEXT, NOTHING, "ranks exchange the compute type, and add in fp32") \
    X(PRESCALE, "prescale_gradients", BOOL, NOTHING, "the loss is the mean over all rows of a step, of any ranks") \
    X(PREDIVIDE, "gradient_predivide_factor", REAL, NOTHING, "the loss is the mean over all rows of a step, of any ranks") \
    X(ALLREDUCE_OP, "gradient_allreduce_op", TEXT, TAKEN, "") \
    X(SPARSE_GRADIENTS, "sparse_gradients", BOOL, NOTHING, "gradients are dense") \
    X(DISABLE_ALLGATHER, "disable_allgather", BOOL, NOTHING, "--zero says what is gathered") \
    X(SEQUENCE_PARALLEL, "sequence_parallel_size", WHOLE, TAKEN, "") \
    X(TENSOR_PARALLEL, "tensor_parallel", OBJECT, INSIDE, "") \
    X(AUTOTP, "tensor_parallel.autotp_size", WHOLE, TAKEN, "") \
    X(PIPELINE, "pipeline", OBJECT, NOTHING, "of how DeepSpeed sends between stages: --pp says how many there are") \
    X(EXPERT_PARALLEL, "expert_parallel", OBJECT, NOTHING, "GPT-2 has no experts") \
    X(EXPERT_ORDER, "use_data_before_expert_parallelism", BOOL, NOTHING, "GPT-2 has no experts") \
    X(DROP_LAST, "dataloader_drop_last", BOOL, NOTHING, "every batch is whole") \
    X(VOCABULARY, "vocabulary_size", WHOLE, NOTHING, "only a warning there; --vocab is padded inside") \
    X(CHECKPOINT, "checkpoint", OBJECT, NOTHING, "--save has its own format, for any topology") \
    X(NEBULA, "nebula", OBJECT, NOTHING, "checkpoints go to --save") \
    X(DATASTATES, "datastates_ckpt", OBJECT, NOTHING, "checkpoints go to --save") \
    X(COMPILE, "compile", OBJECT, NOTHING, "the whole step is planned always") \
    X(GRAPHS, "graph_harvesting", BOOL, NOTHING, "of CUDA graphs") \
    X(HYBRID, "hybrid_engine", OBJECT, NOTHING, "sluice generate samples from a checkpoint") \
    X(ELASTICITY, "elasticity", OBJECT, ENABLED, "the batch would follow from the ranks") \
    X(CURRICULUM, "curriculum_learning", OBJECT, ENABLED, "rows would grow during the run") \
    X(DATA_EFFICIENCY, "data_efficiency", OBJECT, ENABLED, "rows would be chosen and tokens dropped") \
    X(LAYER_DROP, "progressive_layer_drop", OBJECT, ENABLED, "layers would be left out at random") \
    X(QUANTIZE, "quantize_training", OBJECT, REFUSED, "weights would be rounded to few bits") \
    X(COMPRESSION, "compression_training", OBJECT, REFUSED, "weights would be rounded or pruned") \
    X(WEIGHT_QUANTIZATION, "weight_quantization", OBJECT, REFUSED, "weights would be rounded to few bits") \
    X(SPARSE_ATTENTION, "sparse_attention", OBJECT, REFUSED, "attention would leave positions out")

#define SL_DEEPSPEED_KEYS(X) \
    SL_DEEPSPEED_BATCH_KEYS(X) \
    SL_DEEPSPEED_OPTIMIZER_KEYS(X) \
    SL_DEEPSPEED_SCHEDULER_KEYS(X) \
    SL_DEEPSPEED_PRECISION_KEYS(X) \
    SL_DEEPSPEED_ZERO_KEYS(X) \
    SL_DEEPSPEED_WATCH_KEYS(X) \
    SL_DEEPSPEED_OTHER_KEYS(X)
/* clang-format on */

#endif
