#!/bin/sh
# From a fresh Debian 12 machine to a trained model: installs what is missing, builds, pretrains a
# small GPT-2 on the C files of this checkout with a device budget that does not hold its states, and
# prints a sample. Nothing is downloaded but packages. Can be run again; starts anew.
#
# usage: quickstart.sh [STEPS]
set -eu
cd "$(dirname "$0")/.."
steps=${1:-700}
out=build/quickstart

# has_gpu_driver: whether a GPU can be used here. Compiling for one takes minutes where nvcc is found.
has_gpu_driver()
{
    [ -e /proc/driver/nvidia ] || command -v nvidia-smi > /dev/null ||
        PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2> /dev/null | grep -q 'libcuda\.so\.1'
}

scripts/install_deps.sh
if has_gpu_driver; then
    tree=build/release
    cmake --preset release
else
    echo "No NVIDIA driver here: building without the CUDA backend."
    tree=build/release-cpu
    cmake --preset release -B "$tree" -DSL_CUDA=OFF -DSL_BUILD_TESTS=OFF
fi
cmake --build "$tree" --target sluice_command
sluice=$tree/sluice
rm -rf "$out"
mkdir -p "$out"

# 4 layers of 192: 2.0 M parameters, so 31 MiB of parameters, gradients and moments in fp32.
model='--layers 4 --width 192 --heads 6 --context 128'
budget='--device cpu --policy auto --device-memory 24M'
data=$(git ls-files -- 'src/*.[ch]' 2> /dev/null || find src -name '*.[ch]')

echo
echo "A vocabulary of 1024 tokens is learnt from the C files, and these are written as tokens:"
# shellcheck disable=SC2086 # lists of words on purpose
"$sluice" tokenize --learn 1024 --tokenizer "$out/vocabulary" --data $data --output "$out/tokens.bin"
text="--data $out/tokens.bin --tokenizer $out/vocabulary"

echo
echo "A model of 31 MiB of states, a device of 24 MiB. The plan:"
# shellcheck disable=SC2086
"$sluice" plan $model $budget $text --micro-batch 4

echo
echo "Training $steps steps; the loss starts near ln 1024 = 6.9 and falls:"
# shellcheck disable=SC2086
"$sluice" train $model $budget $text --micro-batch 4 --steps "$steps" \
    --lr 2e-3 --save "$out/checkpoint" --log-json "$out/log.jsonl"

echo
echo "A sample:"
"$sluice" generate --checkpoint "$out/checkpoint" --prompt 'static sl_status ' --tokens 60 --temperature 0.4 --seed 4

echo
echo "Checkpoint: $out/checkpoint"
echo "Report of every step: $out/log.jsonl"
