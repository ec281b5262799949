/* See topics.h. The texts are held to the program by tests/command/test_command_help.c: each option
 * that they name exists, each line is taken by its command, each exit code is one. */
#include "topics.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "help.h"
#include "model/architecture.h"
#include "pages.h"

enum { ROW_COLUMN = 20, LINE_INDENT = 2, HEAD_BYTES = 64 };

static const sl_topic_row policy_rows[] = {
    {"device", "everything on the device; nothing moves (its other name: cuda)"},
    {"host", "everything in host memory; a chunk visits the device while an op needs it, and AdamW "
             "runs on the processor (cpu); with --adam shared on both sides at once"},
    {"nvme", "as host, with the optimizer's states on disk; --nvme-params 1 --nvme-grads 1 put the "
             "rest there, too. Needs --disk-dir DIR"},
    {"static", "shares by hand: --offload-optimizer 0.5 puts half of these states on the host, "
               "--nvme-optimizer 0.25 a quarter on disk, the rest stays on the device (const)"},
    {"auto",
     "plans many of these and takes the fastest one that fits, by prediction (the default)"},
    {0}};

static const char *const policy_lines[] = {
    "sluice plan --model gpt2 --device-memory 2G --host-memory 4G --compare device host auto",
    "sluice plan --model gpt2 --device-memory 2G --policy host --explain", NULL};

static const sl_topic_row memory_rows[] = {
    {"param", "the weights: 2 bytes each in bf16 and fp16, 4 in fp32"},
    {"grad",
     "their gradients: as many; 4 bytes each where several micro-batches are added up one by one"},
    {"master",
     "the weights in fp32, which updates change: 4 bytes each, or 2 with --master-type low; "
     "none in fp32"},
    {"moment1, moment2", "what the update rule remembers of the gradients, 4 bytes each: both of "
                         "adamw, the first of lion, of muon and of sgd with --momentum"},
    {"activation", "what the forward pass keeps for the backward pass: grows with --micro-batch "
                   "and --seq"},
    {"workspace", "what ops need while they run"},
    {"staging", "room on the host through which chunks pass to and from a disk"},
    {0}};

static const char *const memory_lines[] = {
    "sluice plan --model gpt2 --micro-batch 1 --accumulate 4 --recompute full",
    "sluice plan --model gpt2 --freeze 'wte.*' 'wpe.*' 'h.[0-8].*'",
    "sluice plan --model gpt2 --report plan.html", "sluice profile --model gpt2", NULL};

static const sl_topic_row budget_rows[] = {
    {"--device-memory", "on a GPU what is free there; on the cpu device, which takes its memory "
                        "from the same machine, what --host-memory leaves"},
    {"--host-memory", "80 % of the memory that is available (of a cgroup: of what it leaves); on "
                      "the cpu device both together are that much"},
    {"--disk-space", "90 % of what is free in --disk-dir; nothing without one"},
    {0}};

static const char *const budget_lines[] = {
    "sluice plan --model gpt2 --device-memory 500M --host-memory 4G", NULL};

static const sl_topic_row precision_rows[] = {
    {"fp32", "4 bytes everywhere; the default on the cpu"},
    {"bf16", "2 bytes, the range of fp32; the default on a GPU"},
    {"fp16", "2 bytes, a small range: the loss is scaled, and a step whose gradient overflows is "
             "skipped (--loss-scale, --nonfinite)"},
    {0}};

static const char *const precision_lines[] = {"sluice plan --model gpt2 --precision bf16", NULL};

static const sl_topic_row data_rows[] = {
    {"text", "each file is a document; each line with --document-per line"},
    {"JSON lines", "a document each, its text under --json-key (text)"},
    {"packed", "either of them as .gz or .zst"},
    {"tokens", "files of llm.c, nanoGPT, Megatron-LM, or of sluice tokenize"},
    {"a directory", "all files below it, in the order of their paths"},
    {"0.7:A 0.3:B", "with a weight on each: rows come from them in these shares"},
    {0}};

static const char *const data_lines[] = {
    "sluice tokenize --learn 8000 --tokenizer vocabulary --data corpus --output tokens.bin",
    "sluice train --model gpt2 --tokenizer vocabulary --data corpus --split 98,1,1 --save "
    "out/first",
    NULL};

static const sl_topic_row tuning_rows[] = {
    {"--init DIR", "the model: a checkpoint, or a directory of Hugging Face"},
    {"--prompt-key K --response-key K", "what of each JSON object is the prompt, and what is to be "
                                        "learned"},
    {"--messages-key K", "in place of both: what holds the messages of a conversation"},
    {"--template FILE", "how prompt and response, or a message, are written as text; the "
                        "checkpoint keeps it for generate and eval"},
    {"--seq N", "room for the longest example: the rest of a row is padding"},
    {"--lora-rank R", "train adapters (LoRA) alone, with --lr 2e-4; for all weights 1e-5"},
    {"--epochs N", "in place of --steps"},
    {0}};

static const char *const tuning_lines[] = {
    "sluice train --init hf-qwen --data pairs.jsonl --prompt-key question --response-key answer "
    "--seq 512 --epochs 3 --lora-rank 16 --lr 2e-4 --save tuned",
    "sluice generate tuned --prompt 'Is it deep?'", NULL};

static const sl_topic_row checkpoint_rows[] = {
    {"--save DIR", "where they go: DIR/step-00001000 and so on, each whole or not there"},
    {"--save-every N", "after every N steps, and after the last one"},
    {"--save-minutes M", "after every M minutes"},
    {"--keep N", "the newest N alone"},
    {"--keep-best", "the one of the best evaluation too, in DIR/best"},
    {"--resume", "go on from the newest whole one with the options that the run had; options given "
                 "beside it win, and what differs is printed"},
    {"--overwrite", "begin anew in a directory that holds checkpoints: they are removed once the "
                    "first new one is complete"},
    {"--init DIR", "the weights alone, as a new run"},
    {0}};

static const char *const checkpoint_lines[] = {
    "sluice train --resume --save out/first", "sluice generate out/first --prompt 'Once'",
    "sluice convert --from out/first --to model-hf", NULL};

static const sl_topic_row rank_rows[] = {
    {"--tp N", "N ranks hold the parts of each tensor, and exchange in every layer"},
    {"--pp N", "N stages hold the layers one after the other; give several micro-batches"},
    {"--dp N", "what is left: each rank, or group of ranks, computes rows of its own"},
    {"--zero 0..3", "data ranks share optimizer (1), gradients (2), parameters (3)"},
    {"--policy ...", "where each rank keeps what it has, as on one rank"},
    {0}};

static const char *const rank_lines[] = {
    "sluice plan --model gpt2 --ranks 4 --tp 2 --zero 1",
    "sluice launch -n 2 -- train --tp 2 --model gpt2 --data corpus --tokenizer vocabulary",
    "sluice launch -n 2 -- profile --tp 2 --model gpt2", NULL};

static const sl_topic_row config_rows[] = {
    {"--config FILE",
     "a JSON object: {\"model\": \"gpt2\", \"micro-batch\": 4}; comments go from // "
     "to the end of a line. One file serves "
     "every command; an object named after a command is for that one alone. The "
     "JSON of DeepSpeed is taken as it is, and explained"},
    {"--set KEY=VALUE", "one of them on the command line"},
    {"--NAME VALUE", "an option beside a file wins; a list ends at the next option"},
    {0}};

static const char *const config_lines[] = {"sluice plan --config run.json --set steps=200", NULL};

/* Of every command; scripts rely on them. */
static const sl_topic_row exit_rows[] = {
    {"0", "done"},
    {"64", "wrong usage or configuration"},
    {"65", "bad input data"},
    {"66", "input is missing"},
    {"69", "it does not fit; the message says by how much, and what would"},
    {"70", "an internal error"},
    {"71", "the system refused memory or a thread, or the device is missing"},
    {"74", "reading or writing failed"},
    {"75", "a rank died or hung"},
    {"76", "a loss or gradient that is not finite, with --nonfinite stop"},
    {"130", "a second signal; in convert and tokenize the first one"},
    {0}};

static const sl_topic_row environment_rows[] = {
    {"XDG_CONFIG_HOME", "where the machine profile lies: sluice/machine.json (~/.config)"},
    {"XDG_CACHE_HOME", "where the ids of text are kept: sluice/tokens-... (~/.cache); --cache-dir "
                       "wins"},
    {"TERM", "dumb: no line that is written over, no colours"},
    {"NO_COLOR", "any value: no colours"},
    {"CLICOLOR, CLICOLOR_FORCE", "0: no colours; FORCE, any value but 0: colours in a pipe too"},
    {"CUDA_VISIBLE_DEVICES", "which GPUs there are, as CUDA has it"},
    {"CUDA_HOME, CUDA_PATH", "where cuBLASLt is looked for, beside VIRTUAL_ENV and CONDA_PREFIX"},
    {"SLUICE_MPI_PLUGIN", "the plug-in of another MPI, for ranks on several machines"},
    {"SLUICE_MACHINE", "the machine that a rank counts as on, for containers"},
    {0}};

static const sl_topic_row file_rows[] = {
    {"DIR/step-NNNNNNNN", "a checkpoint under --save DIR: model.safetensors, config.json and the "
                          "vocabulary, as transformers reads them; moments; manifest.json"},
    {"DIR/LATEST, .lock", "the newest one's name; who saves there now"},
    {"--disk-dir DIR", "the disk tier: a file without a name, which goes with the process"},
    {"~/.config/sluice", "machine.json and machine-cuda.json: what bench measured"},
    {"~/.cache/sluice", "ids of text, one directory for each text and tokenizer; nothing old is "
                        "removed"},
    {"FILE.bin.json", "beside the tokens of tokenize: the tokenizer that made them"},
    {0}};

static void print_models(FILE *stream);

static const sl_topic topics[] = {
    {.name = "policies",
     .summary = "where parameters, gradients and optimizer states live",
     .text = "A policy says where parameters, gradients and optimizer states live, and so what a "
             "step moves and how long it takes. It never changes a loss or a weight: choose by "
             "bytes and time, and change it whenever you like, at --resume too.",
     .rows = policy_rows,
     .lines = policy_lines,
     .page = "docs/choosing.md"},
    {.name = "memory",
     .summary = "what a run takes, and how to take less",
     .text = "About 16 bytes for each parameter, before activations: 124M parameters take 1.9 GiB, "
             "1.5B 23 GiB. plan prints these kinds by tier, to the byte, without taking any.",
     .rows = memory_rows,
     .remark = "Where it does not fit, in this order: a smaller --micro-batch with more "
               "--accumulate, --recompute full, --policy host, --policy nvme. What is refused says "
               "what would fit. Tensors that --freeze names have param alone.",
     .lines = memory_lines,
     .page = "docs/profile.md"},
    {.name = "budgets",
     .summary = "how much of each memory may be taken",
     .text = "A budget is for everything that is placed on a tier, and is never exceeded. A run "
             "that cannot keep it is refused before it begins (exit code 69), with the bytes that "
             "are missing and options that would fit. Left out they are:",
     .rows = budget_rows,
     .remark = "Sizes take K, M, G and T (powers of 1024), with optional iB.",
     .lines = budget_lines,
     .page = "docs/choosing.md"},
    {.name = "precision",
     .summary = "fp32, bf16, fp16",
     .text = "--precision is the type that is computed in. Sums, norms, and master weights "
             "are fp32 always, and moments unless --state-type says otherwise; --master-type low "
             "stores a master in two halves. A checkpoint is fp32 too: a run goes on in another "
             "precision.",
     .rows = precision_rows,
     .lines = precision_lines,
     .page = "docs/numbers.md"},
    {.name = "data",
     .summary = "what --data takes, tokenizers, shares",
     .text = "--data takes files and directories, which are recognised by content:",
     .rows = data_rows,
     .remark = "--tokenizer is byte (257 ids), or the directory of a vocabulary, such as one "
               "that tokenize --learn made. A checkpoint keeps its tokenizer. --split cuts the "
               "documents into training, validation and test.",
     .lines = data_lines,
     .page = "docs/text.md"},
    {.name = "fine-tuning",
     .summary = "from a model and examples to a model that answers",
     .text = "Examples are JSON objects (JSON lines, or one array), each with a prompt and a "
             "response or with a list of messages. The loss is over what the model is to say.",
     .rows = tuning_rows,
     .remark = "sluice init has recipes of whole configurations.",
     .lines = tuning_lines,
     .page = "docs/fine-tuning.md"},
    {.name = "models",
     .summary = "the names that --model takes, and their sizes",
     .print = print_models},
    {.name = "checkpoints",
     .summary = "save, stop, go on, use elsewhere",
     .text = "Without --save nothing is kept. Ctrl-C ends a run after its step, saved; a second "
             "one at once. A checkpoint knows no policy, no ranks and no precision.",
     .rows = checkpoint_rows,
     .lines = checkpoint_lines,
     .page = "docs/checkpoints.md"},
    {.name = "ranks",
     .summary = "several processes or GPUs: --tp, --pp, --dp, --zero",
     .text = "A rank is one process of a run. sluice launch starts them on this machine or, with "
             "--hosts, on several; mpirun and srun do, too. tp x pp x dp ranks share a run:",
     .rows = rank_rows,
     .remark = "If a rank dies the others end, and name it (exit code 75); launch --restarts goes "
               "on from the last checkpoint.",
     .lines = rank_lines,
     .page = "docs/ranks.md"},
    {.name = "config",
     .summary = "options in files",
     .text = "Every option can stand in a file. Defaults, files, then the command line: each wins "
             "over the one before.",
     .rows = config_rows,
     .lines = config_lines,
     .page = "docs/deepspeed.md"},
    {.name = "exit-codes",
     .summary = "what a command ends with",
     .text = "One line on standard error says what happened, to which file, and what to do.",
     .rows = exit_rows},
    {.name = "environment",
     .summary = "variables that are looked at",
     .text = "Nothing has to be set. Brackets have what counts where a variable is not set.",
     .rows = environment_rows},
    {.name = "files",
     .summary = "what is read and written, and where",
     .text = "A run writes what its options name, and in two directories of the user's own.",
     .rows = file_rows,
     .page = "docs/checkpoints.md"},
    {.name = "words", .summary = SL_WORDS_SUMMARY, .print = sl_words_table_print},
};

const sl_topic *sl_topics_at(uint32_t index)
{
    return index < sizeof topics / sizeof topics[0] ? &topics[index] : NULL;
}

const sl_topic *sl_topics_find(const char *name)
{
    const sl_topic *topic;
    for (uint32_t i = 0; (topic = sl_topics_at(i)); i++)
        if (strcmp(topic->name, name) == 0)
            return topic;
    return NULL;
}

static void print_model(const char *name, const sl_model_shape *shape, FILE *stream)
{
    const bool is_llama = sl_model_shape_is_llama(shape);
    fprintf(stream, "  %-12s %13" PRIu64 "  %6u  %5u  %5u  %8u  %5u  %7u\n", name,
            sl_model_shape_parameters(shape), shape->layers, shape->width, shape->heads,
            is_llama ? shape->kv_heads : shape->heads, is_llama ? shape->ffn : 4 * shape->width,
            shape->context);
}

static void print_models(FILE *stream)
{
    sl_model_shape shape;
    sl_help_print_text("--model names a shape, not weights (those come by --init). --layers, "
                       "--width, --heads, --context and --vocab make one by hand, or change one; "
                       "--arch, --kv-heads, --head-size, --ffn, --rope-base, --norm-epsilon and "
                       "--untied too where the architecture has them.",
                       0, 0, stream);
    fputs("\n  name            parameters  layers  width  heads  kv-heads    ffn  context\n",
          stream);
    for (const char *const *name = sl_architecture_names(); *name; name++)
        if (sl_architecture_named(*name, &shape) == SL_OK)
            print_model(*name, &shape, stream);
}

static void print_rows(const sl_topic_row *rows, FILE *stream)
{
    fputc('\n', stream);
    for (; rows->head; rows++) {
        char head[HEAD_BYTES];
        snprintf(head, sizeof head, "  %s", rows->head);
        sl_help_print_row(head, rows->text, ROW_COLUMN, stream);
    }
}

void sl_topics_print(const sl_topic *topic, FILE *stream)
{
    if (topic->print) {
        topic->print(stream);
        return;
    }
    if (topic->text)
        sl_help_print_text(topic->text, 0, 0, stream);
    if (topic->rows)
        print_rows(topic->rows, stream);
    if (topic->remark) {
        fputc('\n', stream);
        sl_help_print_text(topic->remark, 0, 0, stream);
    }
    if (topic->lines)
        fputc('\n', stream);
    for (const char *const *line = topic->lines; line && *line; line++)
        sl_help_print_command_line(*line, LINE_INDENT, stream);
    if (topic->page)
        fprintf(stream, "\nMore: %s\n", topic->page);
}
