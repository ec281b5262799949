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
#   --limit     for all stages together (530); each has a limit of its own, if all are run
#   --disk-dir  a directory on a drive: the disk tier is measured there too
#   --stage     only these: build tests gpu sanitizer bench memory agreement pair offload largest
#
# A stage that fails or runs out of time does not stop the later ones. The report is written again
# after each stage. Exit code: 0 everything passed; 1 something failed; 77 built, but no GPU opens.
set -u

all_stages='build tests gpu sanitizer bench memory agreement pair offload largest'

# Seconds of a stage at most.
limit_of()
{
    case $1 in
    build) echo 200 ;;
    tests) echo 90 ;;
    gpu) echo 90 ;;
    sanitizer) echo 100 ;;
    bench) echo 60 ;;
    memory) echo 40 ;;
    agreement) echo 110 ;;
    pair) echo 120 ;;
    offload) echo 90 ;;
    largest) echo 60 ;;
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
    inner='' prefix='' out='' build='' commit='' limit=530 disk_dir='' stages=''
fi
while [ $# -gt 0 ]; do
    option=$1
    case $option in
    -h | --help) sed -n 's/^# \{0,1\}//; 2,17p' "$0"; exit 0 ;;
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
    --disk-dir) disk_dir=$(cd "$value" && pwd) || die "--disk-dir $value: no such directory" ;;
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
    add_path /usr/local/nvidia/bin
    python=$(command -v python3) || python=
    if [ -n "$python" ]; then
        add_path "$(dirname "$(readlink -f "$python")")"
        add_path "$(dirname "$python")"
        add_path "$($python -c 'import sysconfig; print(sysconfig.get_path("scripts"))')"
    fi
    export PATH
}

# cuBLASLt and cuDNN are opened when a GPU is; PyTorch brings them where the toolkit's are not
# installed, and cuDNN's headers with it.
find_libraries()
{
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
    nvcc=$(command -v nvcc) || nvcc=
    if [ -n "$nvcc" ]; then
        toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
        add_libraries "$toolkit/lib64"
        add_libraries "$toolkit/targets/x86_64-linux/lib"
    fi
    if [ -n "$python" ]; then
        for folder in $($python -c 'import glob, site
for root in site.getsitepackages():
    print(*{path.rsplit("/", 1)[0] for name in ("cublasLt", "cudnn")
            for path in glob.glob(root + f"/nvidia/*/lib/lib{name}.so*")})'); do
            add_libraries "$folder"
            [ ! -f "${folder%/lib}/include/cudnn_graph.h" ] || CUDNN_PATH=${CUDNN_PATH:-${folder%/lib}}
        done
        export CUDNN_PATH="${CUDNN_PATH:-}"
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

query() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2> /dev/null | head -n 1; }

# fact NAME VALUE: a line of the report's head.
fact() { printf '%s\t%s\n' "$1" "$(echo "$2" | tr '\t\n' '  ')" >> "$work/facts.tsv"; }

write_facts()
{
    : > "$work/facts.tsv"
    fact commit "$commit"
    fact date "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    fact gpu "${gpu:-none}"
    fact driver "$(query driver_version)"
    fact gpu_memory "$(query memory.total)"
    fact architecture "$architecture"
    fact toolkit "$(nvcc --version 2> /dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p')"
    fact processor "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
    fact cores "$(nproc)"
    fact kernel "$(uname -r)"
    fact compiler "$(${CC:-cc} --version 2> /dev/null | head -n 1)"
    fact torch "$([ -z "$python" ] || $python -c 'import torch; print(torch.__version__)' 2> /dev/null)"
    [ -z "$prefix" ] || fact packages "$(cat "$prefix/packages.txt" 2> /dev/null)"
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
    "$build/sluice" --version && "$build/sluice" doctor && SLUICE_ATTENTION=cudnn "$build/sluice" doctor
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

stage_bench()
{
    need_gpu || return
    set -- --device cuda --json --output "$work/machine-cuda.json"
    [ -z "$disk_dir" ] || set -- "$@" --disk-dir "$disk_dir"
    "$build/sluice" bench "$@" > "$work/bench.json"
}

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
        --json "$work/$name.json" "$@"
}

stage_memory() { script memory; }

# Checkpoints are written and compared in memory where there is a place for that.
stage_agreement()
{
    set -- ${disk_dir:+--disk-dir "$disk_dir"}
    [ ! -w /dev/shm ] || set -- "$@" --work-dir /dev/shm
    script agreement "$@"
}

stage_pair() { script pair --bench "$work/bench.json" --seconds $((seconds * 2 / 3)); }

stage_offload()
{
    [ -f "$work/machine-cuda.json" ] || { echo "no rates were measured (stage bench)"; return 77; }
    script offload --bench "$work/bench.json" --machine "$work/machine-cuda.json" \
        --seconds $((seconds * 2 / 3)) ${disk_dir:+--disk-dir "$disk_dir"}
}

stage_largest() { script largest --seconds $((seconds / 3)) ${disk_dir:+--disk-dir "$disk_dir"}; }

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

run_stage()
{
    name=$1 begun=$(date +%s)
    left=$((limit - (begun - started)))
    seconds=$(limit_of "$name")
    [ "$seconds" -le "$left" ] && [ -z "$stages" ] || seconds=$left
    log=$work/log-$name.txt
    if [ "$seconds" -le 0 ]; then
        printf '%s\tskipped\t0\t%s\n' "$name" "no time was left" >> "$work/stages.tsv"
        return 0
    fi
    echo "---- $name (at most $seconds s)"
    export prefix out build commit disk_dir gpu architecture python seconds
    timeout -k 5 "$seconds" "$root/scripts/gpu_check.sh" --inner "$name" > "$log" 2>&1
    code=$?
    took=$(($(date +%s) - begun))
    case $code in
    0) result=pass ;;
    77) result=skipped ;;
    124 | 137) result='timeout' ;;
    *) result=fail ;;
    esac
    note=
    [ $result = pass ] || note=$(grep -v '^ *$' "$log" | tail -n 1 | cut -c 1-200 | tr '\t' ' ')
    printf '%s\t%s\t%s\t%s\n' "$name" "$result" "$took" "$note" >> "$work/stages.tsv"
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
write_facts
: > "$work/stages.tsv"
rm -f "$work"/log-*.txt
[ -n "$gpu" ] || echo "no GPU is found here (nvidia-smi shows none): built and tested without one"
for stage in ${stages:-$all_stages}; do
    run_stage "$stage"
done
write_report
echo "the report is in $out"
if grep -q '	fail	\|	timeout	' "$work/stages.tsv"; then
    exit 1
fi
[ -n "$gpu" ] || exit 77
