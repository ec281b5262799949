#!/bin/sh
#SBATCH --job-name=sluice
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
# A GPT-2 over many nodes under Slurm: the two ranks of a node hold the halves of each tensor, the nodes
# train on rows of their own, with gradients and optimizer states in shards.
#
# usage: sbatch slurm.sh SAVE_DIR DATA [OPTION...]
#        sbatch --nodes=N --ntasks-per-node=M slurm.sh SAVE_DIR --config FILE [OPTION...]
#   SAVE_DIR  checkpoints, on a file system that all nodes see
#   DATA      text or tokens, likewise
#   FILE      of `sluice plan --cluster ... --write-config FILE`, which prints N and M
#   OPTION    further ones for `sluice train`: --model gpt2-xl, --policy nvme --disk-dir /scratch, ...
#
# Five minutes before its time is over Slurm sends USR1 to the ranks: they end their step, save and
# leave with 0. Then, and when ranks were lost (75, or 128 and a signal), the job queues up again and
# goes on from there, on other nodes if need be, also fewer or more of them: --global-batch holds the
# rows of a step. Where there is no Slurm the same ranks start on this machine, as many as RANKS says
# (2).
#
# STEPS (those of FILE, else 1000) and SLUICE, another command than sluice, may be set. srun starts
# Open MPI's ranks by PMIx; for MPICH set MPI=pmi2.
set -eu
sluice=${SLUICE:-sluice}
[ $# -ge 2 ] || { sed -n 's/^# \{0,1\}//; 10,27p' "$0"; exit 64; }
save=$1
if [ "$2" = --config ]; then
    steps=$(sed -n 's/^ *"steps": *\([0-9]*\),*$/\1/p' "$3")
    shift
else
    data=$2
    shift 2
    set -- --tp 2 --zero 2 --data "$data" --micro-batch 1 --global-batch 64 "$@"
fi
steps=${STEPS:-${steps:-1000}}
set -- --steps "$steps" --save "$save" --save-every 100 --resume "$@"

# The newest step that is saved; 0: none.
saved_step()
{
    newest=$(find "$save" -maxdepth 1 -name 'step-[0-9]*' 2> /dev/null | sort | tail -1)
    newest=${newest##*step-}
    echo "${newest:-0}" | sed 's/^0*\([0-9]\)/\1/'
}

code=0
if [ -n "${SLURM_JOB_ID:-}" ]; then
    srun --mpi="${MPI:-pmix}" --kill-on-bad-exit=0 "$sluice" train "$@" || code=$?
else
    echo "slurm.sh: this is no job of Slurm's: ranks of this machine alone" >&2
    "$sluice" launch -n "${RANKS:-2}" -- train "$@" || code=$?
fi
echo "slurm.sh: step $(saved_step) of $steps is saved; the ranks left with $code"
case $code in
0 | 75 | 13[4-9] | 14[0-3]) ;;
*) exit "$code" ;;
esac
[ "$(saved_step)" -lt "$steps" ] || exit 0
[ -z "${SLURM_JOB_ID:-}" ] || scontrol requeue "$SLURM_JOB_ID"
exit "$code"
