/* See examples.h. The names of files are the same everywhere: corpus is a directory of text,
 * vocabulary a tokenizer, out/first a --save directory, /mnt/nvme a directory of a fast disk. */
#include "examples.h"

#include <stddef.h>

static const sl_example examples[] = {
    {"doctor", "what this machine has, and what is missing", "sluice doctor", true},
    {"doctor", "try the disk tier in a directory", "sluice doctor --disk-dir /mnt/nvme", false},
    {"bench", "measure the machine once, so that times can be predicted (a minute)",
     "sluice bench --disk-dir /mnt/nvme", true},
    {"bench", "seconds instead of a minute, in a file of its own",
     "sluice bench --quick --output trial.json", false},
    {"bench", "how fast the kernels are for known models, beside what registers allow",
     "sluice bench --only product,attention --match bf16 llama-3.2-1b", false},
    {"bench", "hold it against an earlier run, and draw it",
     "sluice bench --against before.json --report bench.html", false},
    {"tokenize", "learn a vocabulary of 8000 tokens, then write the tokens",
     "sluice tokenize --learn 8000 --tokenizer vocabulary --data corpus --output tokens.bin", true},
    {"tokenize", "JSON lines, without short and repeated documents",
     "sluice tokenize --tokenizer vocabulary --data web.jsonl --clean --output web.bin", false},
    {"tokenize", "back to text",
     "sluice tokenize --decode --tokenizer vocabulary --data tokens.bin --output back.txt", false},
    {"plan", "what would a run take, before it takes anything?",
     "sluice plan --model gpt2 --policy host --device-memory 2G", true},
    {"plan", "which policy is fastest within two budgets?",
     "sluice plan --model gpt2 --device-memory 2G --host-memory 4G --compare device host auto",
     false},
    {"plan", "why is it so, in words and as a picture?",
     "sluice plan --model gpt2 --policy host --device-memory 2G --explain --report plan.html",
     false},
    {"plan", "four ranks, without starting any",
     "sluice plan --model gpt2 --ranks 4 --tp 2 --zero 1", false},
    {"train", "a small model on a directory of text, read byte by byte",
     "sluice train --layers 4 --width 256 --heads 4 --context 256 --data corpus --steps 500 --save "
     "out/first",
     false},
    {"train", "GPT-2 124M, with half a gigabyte of device memory; the rest on the host",
     "sluice train --model gpt2 --tokenizer vocabulary --data corpus --micro-batch 4 --seq 256 "
     "--policy host --device-memory 500M --save out/first --save-every 1000",
     true},
    {"train", "GPT-2 1.5B, all its state on a disk",
     "sluice train --model gpt2-xl --tokenizer vocabulary --data corpus --precision bf16 "
     "--micro-batch 1 --seq 256 --recompute full --policy nvme --nvme-params 1 --nvme-grads 1 "
     "--device-memory 3G --host-memory 3G --disk-dir /mnt/nvme --save out/first",
     false},
    {"train", "go on after an interruption, as it began", "sluice train --resume --save out/first",
     true},
    {"train", "begin from the weights of a run, or of a Hugging Face model",
     "sluice train --init out/first --data corpus --lr 1e-4 --steps 200 --save out/tuned", false},
    {"profile", "where memory and time go, measured; needs no data",
     "sluice profile --model gpt2 --policy host --device-memory 2G", false},
    {"profile", "one page with pictures",
     "sluice profile --model gpt2 --seq 256 --profile-steps 5 --report profile.html", false},
    {"launch", "two ranks, each with half of every tensor",
     "sluice launch -n 2 -- train --tp 2 --model gpt2 --data corpus --tokenizer vocabulary", false},
    {"launch", "four ranks that share rows and optimizer, started again after a death",
     "sluice launch -n 4 --restarts 5 -- train --zero 1 --model gpt2 --data corpus --tokenizer "
     "vocabulary --save out/first --save-every 100",
     false},
    {"generate", "let the model speak",
     "sluice generate out/first --prompt 'Once upon a time' --tokens 100", true},
    {"generate", "three samples of the likelier words",
     "sluice generate out/first --prompt 'The ' --samples 3 --temperature 0.8 --top-k 40", false},
    {"generate", "line by line, with a prompt from the keyboard",
     "sluice generate out/first --interactive", false},
    {"eval", "loss and perplexity on text that the model has not seen",
     "sluice eval out/first --data held-out.txt", true},
    {"eval", "every token with context in front of it",
     "sluice eval out/first --data held-out.txt --overlap 16", false},
    {"eval", "the test share of the data that train was given",
     "sluice eval out/first --data corpus --split 90,5,5 --share test", false},
    {"report", "draw a run from its log", "sluice report run.jsonl --output run.html", true},
    {"report", "lay three runs over each other",
     "sluice report small.jsonl large.jsonl tuned.jsonl --output runs.html", false},
    {"convert", "a directory for transformers, tokenizer included",
     "sluice convert --from out/first --to model-hf", true},
    {"convert", "one file for llama.cpp, 8 bits a weight",
     "sluice convert --from out/first --to model.gguf --type q8_0", false},
    {"convert", "pieces for two tensor-parallel ranks of Megatron-LM",
     "sluice convert --from out/first --to pieces --format megatron --tp 2", false},
};

const sl_example *sl_examples_at(uint32_t index)
{
    return index < sizeof examples / sizeof examples[0] ? &examples[index] : NULL;
}
