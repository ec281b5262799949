#!/bin/sh
# From a fresh Debian 12 machine to a trained model: installs what is missing, builds, pretrains a
# small GPT-2 on the text files of this checkout with a device budget that does not hold its states,
# and prints a sample. Nothing is downloaded but packages. Can be run again; goes on where it ended.
#
# usage: quickstart.sh [STEPS]
set -eu
cd "$(dirname "$0")/.."
steps=${1:-300}
out=build/quickstart

scripts/install_deps.sh
cmake --preset release
cmake --build --preset release --target sluice_command
sluice=build/release/sluice
mkdir -p "$out"

# 5 layers of 256: 4 M parameters, so 64 MiB of parameters, gradients and moments in fp32.
model='--layers 5 --width 256 --heads 8 --context 128 --vocab 257'
budget='--device cpu --policy auto --device-memory 40M'
data=$(git ls-files -- '*.md' '*.c' '*.h' 2> /dev/null || find . -name '*.md' -o -name '*.[ch]')

echo
echo "A model of 64 MiB of states, a device of 40 MiB. The plan:"
# shellcheck disable=SC2086 # lists of words on purpose
"$sluice" plan $model $budget --data $data --tokenizer byte --micro-batch 8

echo
echo "Training $steps steps; the loss starts near ln 257 = 5.5 and falls:"
# shellcheck disable=SC2086
"$sluice" train $model $budget --data $data --tokenizer byte --micro-batch 8 --steps "$steps" \
    --lr 1e-3 --save "$out/checkpoint" --resume --log-json "$out/log.jsonl"

echo
echo "A sample:"
"$sluice" generate --init "$out/checkpoint" --prompt '/* ' --tokens 200 --temperature 0.8 --seed 1

echo
echo "Checkpoint: $out/checkpoint"
echo "Report of every step: $out/log.jsonl"
