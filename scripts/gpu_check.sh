#!/bin/sh
# Builds sluice for the GPU of this machine, tests every kernel on it, and measures it. Needs a CUDA
# toolkit, a C and a C++ compiler, cmake, and python3; everything else may come from --prefix.
#
# usage: gpu_check.sh [--prefix DIR] [--out DIR] [--build DIR] [--commit TEXT] [--limit SECONDS]
#                     [--disk-dir DIR] [--stage NAME]...
#   --prefix    Debian packages unpacked by gpu_packages.sh
#   --out       where report.json, report.md and logs.txt go (build/gpu-check)
#   --build     where it is built (build/gpu)
#   --commit    what is measured, where there is no git (else the file COMMIT, else "unknown")
#   --limit     for all stages together (590)
#   --disk-dir  a directory on a drive, where the disk tier is measured; "none": it is not measured
#               (a directory of its own on the local disk with most room, if that is 50 GiB)
#   --stage     only this one; may be given several times
#
# Stages, in their order: build proof gpu bench memory pair offload agreement largest ranks tests sanitizer.
#
# Each has the seconds of limit_of, and what earlier ones left of theirs; the last three have what
# is left of all. A stage that fails or runs out of time does not stop the later ones. The report is
# written again after each stage; what earlier calls found of the same commit stays in it. Exit code:
# 0 everything passed; 1 something failed; 77 built, but no GPU opens.
set -u

first_stages='build proof gpu bench memory pair offload agreement largest'
last_stages='ranks tests sanitizer'
all_stages="$first_stages $last_stages"
disk_gib=50 # room that a disk found by itself must have
checkpoints_kib=5000000 # of agreement: three of 1.5 GB at once

# Seconds of a stage that no other can take from it: 590 of the first nine together.
limit_of()
{
    case $1 in
    build) echo 140 ;;
    proof) echo 60 ;;
    gpu) echo 60 ;;
    bench) echo 40 ;;
    memory) echo 20 ;;
    pair) echo 90 ;;
    offload) echo 70 ;;
    agreement) echo 50 ;;
    largest) echo 60 ;;
    ranks) echo 40 ;;
    tests) echo 90 ;;
    sanitizer) echo 100 ;;
    *) return 1 ;;
    esac
}

die()
{
    echo "gpu_check.sh: $*" >&2
    exit 64
}

if [ "${1:-}" = --inner ]; then # a stage as a process of its own, started below
    inner=$2
    shift 2
else
    inner='' prefix='' out='' build='' commit='' limit=590 disk_dir='' disk_found='' stages=''
fi
while [ $# -gt 0 ]; do
    option=$1
    case $option in
    -h | --help) sed -n 's/^# \{0,1\}//; 2,24p' "$0"; exit 0 ;;
    --prefix | --out | --build | --commit | --limit | --disk-dir | --stage)
        [ $# -ge 2 ] || die "$option needs a value" ;;
    *) die "unknown option $option" ;;
    esac
    value=$2
    shift 2
    case $option in
    --prefix) prefix=$(cd "$value" && pwd) || die "--prefix $value: no such directory" ;;
    --out) out=$value ;;
    --build) build=$value ;;
    --commit) commit=$value ;;
    --limit) limit=$value ;;
    --disk-dir) disk_dir=none
        [ "$value" = none ] || disk_dir=$(cd "$value" && pwd) || die "--disk-dir $value: no such directory" ;;
    --stage) limit_of "$value" > /dev/null || die "--stage $value: one of $all_stages"
        stages="$stages $value" ;;
    esac
done

[ -n "$inner" ] || caller=$PWD
cd "$(dirname "$0")/.." || exit 1
root=$PWD
absolute() { case $1 in /*) echo "$1" ;; *) echo "$caller/$1" ;; esac; }
if [ -z "$inner" ]; then
    out=$(absolute "${out:-$root/build/gpu-check}")
    build=$(absolute "${build:-$root/build/gpu}")
    mkdir -p "$out" "$build/check" || exit 1
    out=$(cd "$out" && pwd) build=$(cd "$build" && pwd)
fi
work=$build/check
started=$(date +%s)

# ---- what is here ----

add_path()
{
    [ -d "$1" ] || return 0
    case :$PATH: in *":$1:"*) ;; *) PATH=$PATH:$1 ;; esac
}

add_libraries()
{
    [ -d "$1" ] || return 0
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$1
}

# cmake and ninja may be Python packages; the toolkit and the driver's tools lie where they always do.
find_tools()
{
    add_path "${CUDA_HOME:-/usr/local/cuda}/bin"
    add_path /usr/local/nvidia/bin # where containers have the driver's tools
    python=$(command -v python3) || python=
    if [ -n "$python" ]; then
        add_path "$(dirname "$(readlink -f "$python")")"
        add_path "$(dirname "$python")"
        add_path "$($python -c 'import sysconfig; print(sysconfig.get_path("scripts"))')"
    fi
    export PATH
}

# cuBLASLt is opened when a GPU is; PyTorch brings it where the toolkit's is not installed.
find_libraries()
{
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
    add_libraries /usr/local/nvidia/lib64 # libcuda and NVML, beside the tools
    add_libraries /usr/local/nvidia/lib
    nvcc=$(command -v nvcc) || nvcc=
    if [ -n "$nvcc" ]; then
        toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
        add_libraries "$toolkit/lib64"
        add_libraries "$toolkit/targets/x86_64-linux/lib"
    fi
    if [ -n "$python" ]; then
        for folder in $($python -c 'import glob, site
for root in site.getsitepackages():
    print(*{path.rsplit("/", 1)[0] for path in glob.glob(root + "/nvidia/*/lib/libcublasLt.so*")})'); do
            add_libraries "$folder"
        done
    fi
    export LD_LIBRARY_PATH
}

# Packages say that they lie in /usr; copies of their .pc files say where they are.
use_prefix()
{
    [ -n "$prefix" ] || return 0
    mkdir -p "$work/pkgconfig"
    for folder in "$prefix"/usr/lib/*/ "$prefix"/usr/lib/; do
        add_libraries "${folder%/}"
        for file in "$folder"pkgconfig/*.pc; do
            [ -f "$file" ] || continue
            sed "s,\(^\|[=IL ]\)/usr,\1$prefix/usr,g" "$file" > "$work/pkgconfig/${file##*/}"
        done
    done
    PATH=$prefix/usr/bin:$PATH
    PKG_CONFIG_PATH=$work/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
    CMAKE_PREFIX_PATH=$prefix/usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
    export PKG_CONFIG_PATH CMAKE_PREFIX_PATH LD_LIBRARY_PATH PATH
}

find_commit()
{
    [ -z "$commit" ] || return 0
    commit=$(git -C "$root" describe --always --dirty 2> /dev/null) || commit=
    [ -n "$commit" ] || [ ! -f "$root/COMMIT" ] || commit=$(cat "$root/COMMIT")
    commit=${commit:-unknown}
}

# The local disk with most room, as "GiB mount"; no memory, no network.
find_disk()
{
    df -l -P -k -x tmpfs -x devtmpfs -x squashfs 2> /dev/null | sed 1d | sort -k 4 -n -r |
        while read -r _ _ _ free _ place; do
            [ "$place" != / ] || place=/var/tmp
            [ ! -d "$place" ] || [ ! -w "$place" ] || { echo "$((free / 1048576)) $place"; break; }
        done
}

# disk_dir, empty for none, and disk_note, what the report says of it. What is found is tidied away.
choose_disk()
{
    case $disk_dir in
    none) disk_dir='' disk_note='none, as asked' ;;
    ?*) disk_note=$disk_dir ;;
    *)
        found=$(find_disk)
        room=${found%% *}
        if [ "${room:-0}" -lt "$disk_gib" ]; then
            disk_note="none: ${room:-0} GiB free on the local disk with most room, $disk_gib are needed"
            return 0
        fi
        disk_dir=$(mktemp -d "${found#* }/sluice-check-XXXXXX") || { disk_dir='' disk_note=none; return 0; }
        disk_found=yes disk_note="$disk_dir, $room GiB free"
        trap 'rm -rf "$disk_dir"' EXIT
        trap 'exit 1' HUP INT TERM ;;
    esac
}

query() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2> /dev/null | head -n 1; }

# fact NAME VALUE: a line of the report's head.
fact() { printf '%s\t%s\n' "$1" "$(echo "$2" | tr '\t\n' '  ')" >> "$work/facts.tsv"; }

write_facts()
{
    fact commit "$commit"
    fact date "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    fact gpu "${gpu:-none}"
    fact driver "$(query driver_version)"
    fact gpu_memory "$(query memory.total)"
    fact architecture "$architecture"
    fact toolkit "$(nvcc --version 2> /dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p')"
    fact processor "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
    fact cores "$(nproc)"
    fact disk "$disk_note"
    fact kernel "$(uname -r)"
    fact compiler "$(${CC:-cc} --version 2> /dev/null | head -n 1)"
    fact torch "$([ -z "$python" ] || $python -c 'import torch; print(torch.__version__)' 2> /dev/null)"
    [ -z "$prefix" ] || fact packages "$(cat "$prefix/packages.txt" 2> /dev/null)"
}

# Results of other commits and GPUs are no part of this report.
start_report()
{
    was=$(grep '^commit	\|^gpu	' "$work/facts.tsv" 2> /dev/null)
    : > "$work/facts.tsv"
    write_facts
    [ "$was" != "$(grep '^commit	\|^gpu	' "$work/facts.tsv")" ] || return 0
    rm -f "$work"/log-*.txt "$work"/*.json "$work"/*.xml "$work/sanitizer.tsv" "$work/stages.tsv"
}

# ---- stages: each is a function; 77 says skipped, and its last line says why ----

stage_build()
{
    command -v nvcc > /dev/null || { echo "there is no nvcc: install a CUDA toolkit"; return 1; }
    command -v cmake > /dev/null || { echo "there is no cmake"; return 1; }
    generator='Unix Makefiles'
    command -v ninja > /dev/null && generator=Ninja
    cmake -S . -B "$build" -G "$generator" -DCMAKE_BUILD_TYPE=Release \
        -DSL_CUDA_ARCHITECTURES="$architecture" -DSL_COMMIT="$commit" || return 1
    cmake --build "$build" --parallel "$(nproc)" || return 1
    "$build/sluice" --version && "$build/sluice" doctor
}

# run_tests LABEL RESULTS: half as many at once as there are cores, for tests use several threads.
run_tests()
{
    rm -f "$work/$2"
    parallel=$(($(nproc) / 2))
    [ "$1" = quick ] || parallel=2
    ctest --test-dir "$build" --label-regex "^($1)\$" --parallel $((parallel > 1 ? parallel : 1)) \
        --timeout 60 --no-tests=error --output-on-failure --output-junit "$work/$2"
}

stage_tests() { run_tests quick tests.xml; }

need_gpu()
{
    [ -n "$gpu" ] && return 0
    echo "no GPU opens here"
    return 77
}

# The GPU proves itself on small work (doctor --self-test), before minutes go into measuring it.
stage_proof()
{
    need_gpu || return
    set -- doctor --self-test --json ${disk_dir:+--disk-dir "$disk_dir"}
    "$build/sluice" "$@" > "$work/proof.json"
}

# Skipped tests are no failure to ctest; a GPU that the driver shows and no test opened is one here.
stage_gpu()
{
    need_gpu || return
    run_tests gpu gpu.xml || return
    grep -q 'status="run"' "$work/gpu.xml" || { echo "every test was skipped: the GPU did not open"; return 1; }
}

# One tool over every program of kernel tests, in seconds that are left; beside each other.
check_memory()
{
    for program in "$build"/tests/cuda/gpu_*; do
        [ -x "$program" ] || continue
        SL_TEST_SANITIZER=1 SL_TEST_FEW=1 timeout --foreground 60 compute-sanitizer --tool "$1" --error-exitcode 86 \
            --leak-check no "$program" > "$work/sanitizer-$1.log" 2>&1
        code=$?
        case $code in 0) result=pass ;; 77) result=skipped ;; 86) result=fail ;; 124) result='timeout' ;; *) result="code $code" ;; esac
        printf '%s\t%s\t%s\n' "$1" "${program##*/}" "$result" >> "$work/sanitizer.tsv"
        [ $code -eq 0 ] || tail -n 40 "$work/sanitizer-$1.log"
    done
}

stage_sanitizer()
{
    need_gpu || return
    command -v compute-sanitizer > /dev/null || { echo "there is no compute-sanitizer"; return 77; }
    rm -f "$work/sanitizer.tsv"
    for tool in memcheck racecheck initcheck synccheck; do
        check_memory $tool &
    done
    wait
    [ -f "$work/sanitizer.tsv" ] || { echo "there are no programs to check"; return 77; }
    cat "$work/sanitizer.tsv"
    if grep -q "evice not supported" "$work"/sanitizer-*.log; then
        echo "compute-sanitizer does not work on this machine: device not supported"
        return 77
    fi
    grep -q '	pass$\|	fail$' "$work/sanitizer.tsv" || { echo "nothing ran to its end"; return 1; }
    # A program that a tool makes too slow is said in the report; it is no fault of the program.
    ! grep -vq '	pass$\|	skipped$\|	timeout$' "$work/sanitizer.tsv"
}

# bench OPTIONS...: its results take the place of earlier ones once they are whole.
bench()
{
    [ -z "$disk_dir" ] || set -- "$@" --disk-dir "$disk_dir"
    "$build/sluice" bench --device cuda --self-test off --json --output "$work/machine.new" "$@" > "$work/bench.new" ||
        return
    mv "$work/machine.new" "$work/machine-cuda.json" && mv "$work/bench.new" "$work/bench.json"
}

# The quick one first: what comes later needs some rates. Its products are too small to be a roof.
stage_bench()
{
    need_gpu || return
    begun=$(date +%s)
    if ! bench --quick; then
        [ -n "$disk_dir" ] || return
        echo "once more, without $disk_dir"
        disk_dir=''
        bench --quick || return
    fi
    left=$((seconds - ($(date +%s) - begun) - 3))
    [ $left -ge 45 ] || { echo "the quick rates only: $left s were left for all"; return 0; }
    # A process of its own, so that it can be stopped and what the quick one measured stays.
    timeout --foreground -k 2 $left "$root/scripts/gpu_check.sh" --inner rates ||
        echo "the quick rates only: the others were not done within $left s"
}

stage_rates() { bench; }

need_python()
{
    need_gpu || return
    [ -n "$python" ] && return 0
    echo "there is no python3"
    return 77
}

# script NAME OPTIONS...: a benchmark whose result is kept under its name.
script()
{
    need_python || return
    name=$1
    shift
    rm -f "$work/$name.json"
    "$python" "benchmarks/gpu_$name.py" --sluice "$build/sluice" --device cuda \
        --sluice-option=--self-test --sluice-option=off --json "$work/$name.json" "$@"
}

stage_memory() { script memory; }

# True if three checkpoints of 124M (two that are kept and a new one) fit into /dev/shm, which has often 64 MiB in a
# container, and into a quarter of the free memory: the runs need the rest.
has_room_in_memory()
{
    [ -w /dev/shm ] || return 1
    room=$(df -P -k /dev/shm 2> /dev/null | awk 'NR == 2 { print $4 }')
    free=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
    [ "${room:-0}" -ge $checkpoints_kib ] && [ $((${free:-0} / 4)) -ge $checkpoints_kib ]
}

# Checkpoints are written and compared in memory where there is room for that, else on the drive.
stage_agreement()
{
    set -- --seconds $((seconds * 4 / 5)) ${disk_dir:+--disk-dir "$disk_dir"}
    if has_room_in_memory; then
        set -- "$@" --work-dir /dev/shm
    elif [ -n "$disk_dir" ]; then
        set -- "$@" --work-dir "$disk_dir"
    fi
    script agreement "$@"
}

stage_pair() { script pair --bench "$work/bench.json" --seconds $((seconds * 3 / 4)); }

stage_offload()
{
    script offload --bench "$work/bench.json" --machine "$work/machine-cuda.json" \
        --seconds $((seconds * 3 / 4)) ${disk_dir:+--disk-dir "$disk_dir"}
}

# With a disk only where one was asked for: what fits then takes longer to write than there is time.
stage_largest()
{
    [ -z "$disk_found" ] || disk_dir=''
    script largest --seconds $((seconds - 8)) ${disk_dir:+--disk-dir "$disk_dir"}
}

# losses_agree LOG OTHER: the losses of four steps, which differ by the order of sums alone.
losses_agree()
{
    for log in "$1" "$2"; do
        grep '"event":"step"' "$log" | sed 's/.*"loss":\([^,}]*\).*/\1/' > "$log.losses"
    done
    paste "$1.losses" "$2.losses" | awk '
        { off = $1 > $2 ? $1 / $2 - 1 : $2 / $1 - 1; most = off > most ? off : most }
        END {
            printf "%d losses, at most %.2g apart (1e-5)\n", NR, most
            exit !(NR == 4 && most <= 1e-5)
        }'
}

# Two ranks on two GPUs, which NCCL asks for: each way of sharing ends, with the losses of one rank that
# has the same rows. Where there is one GPU nothing of this can run.
stage_ranks()
{
    need_gpu || return
    count=$(nvidia-smi --query-gpu=index --format=csv,noheader 2> /dev/null | wc -l)
    [ "$count" -ge 2 ] || { echo "ranks need a GPU each, and there is one"; return 77; }
    ldconfig -p 2> /dev/null | grep -q 'libnccl\.so\.2' || echo "libnccl.so.2 is not where the loader looks"
    run_ranks "$work/ranks" cuda
}

# run_ranks DIRECTORY DEVICE
run_ranks()
{
    mkdir -p "$1"
    model='--layers 2 --width 128 --heads 4 --context 128 --micro-batch 4 --global-batch 8 --steps 4
           --precision fp32 --threads 2 --self-test off'
    # shellcheck disable=SC2086 # options, here and below
    timeout 60 "$build/sluice" train --data docs/gpu.md --device "$2" $model --log-json "$1/one" || return 1
    for way in '--tp 2' '--tp 2 --sequence-parallel' '--tp 2 --split-layout colossal' \
        '--dp 2 --zero 0' '--dp 2 --zero 1 --policy host' '--dp 2 --zero 2' '--dp 2 --zero 3'; do
        log="$1/two$(echo "$way" | tr -s ' -' '-')" # each way's is kept: a run empties its log
        echo "== $way"
        # shellcheck disable=SC2086
        timeout 60 "$build/sluice" launch -n 2 -- train --data docs/gpu.md --device "$2" $model $way \
            --log-json "$log" || return 1
        losses_agree "$1/one" "$log" || return 1
    done
}

# ---- running them ----

write_report()
{
    for log in "$work"/log-*.txt; do
        [ -f "$log" ] || continue
        echo "==== ${log##*/log-}"
        tail -c 1000000 "$log"
    done > "$out/logs.txt"
    [ -z "$python" ] || "$python" scripts/gpu_report.py "$work" "$out" ||
        echo "gpu_check.sh: the report could not be written" >&2
}

# Seconds that the named stages count on.
sum_limits()
{
    sum=0
    for later in "$@"; do
        sum=$((sum + $(limit_of "$later")))
    done
    echo $sum
}

# tell STAGE RESULT SECONDS NOTE: in the place of what an earlier call said of it.
tell()
{
    touch "$work/stages.tsv"
    sed -i "/^$1	/d" "$work/stages.tsv"
    printf '%s\t%s\t%s\t%s\n' "$@" >> "$work/stages.tsv"
    [ "$2" != fail ] && [ "$2" != 'timeout' ] || is_bad=1
}

# run_stage NAME LATER...: in the seconds of its own, or more if the later ones leave them.
run_stage()
{
    name=$1 begun=$(date +%s)
    shift
    left=$((limit - (begun - started)))
    seconds=$(limit_of "$name")
    spared=$((left - $(sum_limits "$@")))
    [ "$seconds" -ge "$spared" ] || seconds=$spared
    [ "$seconds" -le "$left" ] || seconds=$left
    log=$work/log-$name.txt
    if [ "$seconds" -le 0 ]; then
        tell "$name" skipped 0 "no time was left"
        return 0
    fi
    echo "---- $name (at most $seconds s)"
    export prefix out build commit disk_dir disk_found gpu architecture python seconds
    timeout -k 5 "$seconds" "$root/scripts/gpu_check.sh" --inner "$name" > "$log" 2>&1
    code=$?
    took=$(($(date +%s) - begun))
    case $code in
    0) result=pass ;;
    77) result=skipped ;;
    124 | 137) result='timeout' ;;
    *) result=fail ;;
    esac
    note=$(grep -v '^ *$' "$log" | tail -n 1 | cut -c 1-200 | tr '\t' ' ')
    [ $result != pass ] || case $note in 'the quick rates only'*) ;; *) note= ;; esac
    tell "$name" "$result" "$took" "$note"
    echo "     $name: $result, $took s${note:+: $note}"
    [ $result = pass ] || [ $result = skipped ] || tail -n 30 "$log"
    write_report
}

if [ -n "$inner" ]; then
    "stage_$inner"
    exit
fi
find_tools
find_libraries
use_prefix
find_commit
gpu=$(query name)
architecture=$(query compute_cap | tr -d .)
architecture=${architecture:-90}
choose_disk
start_report
is_bad=0
[ -n "$gpu" ] || echo "no GPU is found here (nvidia-smi shows none): built and tested without one"
# shellcheck disable=SC2086 # names without spaces
set -- ${stages:-$first_stages}
while [ $# -gt 0 ]; do
    run_stage "$@"
    shift
done
for stage in $last_stages; do
    [ -n "$stages" ] || run_stage "$stage"
done
write_report
echo "the report is in $out"
[ $is_bad -eq 0 ] || exit 1
[ -n "$gpu" ] || exit 77
