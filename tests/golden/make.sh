#!/bin/sh
# Makes the checkpoints of this directory and what is expected of them, with the command of a commit
# that is to be remembered. README.md says why they are not made again. Needs jq and xxhsum.
#
# usage: make.sh SLUICE COMMIT NAME...    the built command, the commit that it was built from, and
#                                         what is made: fp32, bf16, fp16, rules, lora, halves,
#                                         codes, turned
set -eu

[ $# -gt 2 ] || { sed -n 's/^# \{0,1\}//; 2,7p' "$0" >&2; exit 64; }
sluice=$(realpath "$1")
commit=$2
shift 2
cd "$(dirname "$0")"

counters='{step, tokens_total, next_row, skipped_steps, loss_scale, loss_scale_good_steps, seed}'

# Half of the letters are an a, which makes gradients large: fp16 has to lower its loss scale.
make_words()
{
    awk 'BEGIN {
        count = split("aah aaaah baa baaa ma maaa la laaa haaa a aaa na naaa aaaaa ta taaaa", words)
        draw = 1
        for (i = 1; i <= 600; i++) {
            draw = (draw * 1664525 + 1013904223) % 4294967296
            printf "%s%s", words[int(draw / 65536) % count + 1], i % 16 ? " " : "\n"
        }
        print ""
    }'
}

# hash_tensors FILE: one JSON object, XXH3-128 of the bytes of each tensor by name.
hash_tensors()
{
    size=$(od -A n -t u8 -N 8 "$1" | tr -d ' ')
    tail -c +9 "$1" | head -c "$size" |
        jq -r 'del(.__metadata__) | to_entries[] | "\(.key) \(.value.data_offsets | join(" "))"' |
        while read -r name first end; do
            hash=$(tail -c "+$((9 + size + first))" "$1" | head -c $((end - first)) | xxhsum -H2 -)
            echo "$name ${hash%% *}"
        done | jq -R 'split(" ") | {(.[0]): .[1]}' | jq -s add
}

# run NAME OPTION...: the run of run.json, saved in NAME.
run()
{
    name=$1
    shift
    case $name in
    rules)
        set -- --rule 'h.*.attn.*=lion' 'wte.*=sgd' 'h.0.ln_1.*=none' 'h.*.mlp.*.weight=muon' \
            --momentum 0.9 --lr-of '*.bias=0.5' "$@"
        precision=fp32
        ;;
    lora)
        set -- --lora-rank 3 --lora-targets c_attn,mlp.c_proj --state-type int8 "$@"
        precision=bf16
        ;;
    halves)
        set -- --rule 'h.*.attn.*=lion' 'wte.*=sgd' --momentum 0.9 --nesterov --state-type bf16 \
            --master-type low "$@"
        precision=bf16
        ;;
    codes)
        set -- --rule 'h.*.attn.*=lion' 'wte.*=sgd' --momentum 0.9 --state-type int8 "$@"
        precision=fp32
        ;;
    turned)
        set -- --rule 'h.*.weight=muon' 'h.*.ln_?.weight=adamw' 'wte.*=sgd' --master-type low "$@"
        precision=bf16
        ;;
    *) precision=$name ;;
    esac
    "$sluice" train --config run.json --precision "$precision" --threads 1 --quiet \
        --save "$name" "$@"
}

# expect NAME: what is expected of a run of this name that goes on, into NAME.json.
expect()
{
    middle=$1/step-00000006
    jq -n --arg precision "$precision" --arg commit "$commit" \
        --argjson saved "$(jq "$counters" "$middle/manifest.json")" \
        --argjson ended "$(jq "$counters" "$1/step-00000012/manifest.json")" \
        --argjson model "$(hash_tensors "$middle/model.safetensors")" \
        --argjson moment1 "$(hash_tensors "$middle/moment1.safetensors")" \
        --argjson moment2 "$(hash_tensors "$middle/moment2.safetensors")" \
        --argjson steps "$(jq -s '[.[] | select(.event == "step") |
            {step, loss, grad_norm, lr, loss_scale, skipped}]' log)" \
        '{$precision, $commit, $saved, $ended, $steps, tensors: {$model, $moment1, $moment2}}' \
        > "$1.json"
}

# forget_directory FILE: the data of a manifest are seen from where it is used, not from here; it is
# sealed again (XXH3-128 of what stands before its checksum).
forget_directory()
{
    sed -i "s|\"$PWD/|\"|" "$1"
    seal=$(grep -b -o '^  "checksum": "' "$1" | cut -d : -f 1)
    hash=$(head -c $((seal - 2)) "$1" | xxhsum -H2 -)
    sed -i "s|^  \"checksum\": \".*\"|  \"checksum\": \"${hash%% *}\"|" "$1"
}

make_words > words.txt
for name in "$@"; do
    rm -rf "$name" log
    run "$name" --save-every 6
    rm -r "$name/step-00000012"
    echo step-00000006 > "$name/LATEST"
    run "$name" --resume --log-json log
    expect "$name"
    rm -r "$name/step-00000012" log "$name/.lock"
    echo step-00000006 > "$name/LATEST"
    forget_directory "$name/step-00000006/manifest.json"
done
