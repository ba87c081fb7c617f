#!/bin/sh
# A SLURM array, whose tasks are three variants with three seeds each. From the
# checkout:
#
#   sbatch examples/array.sh
#
# SLURM sends SIGTERM to this shell two minutes before the time limit. The run then
# saves a checkpoint, and the task is queued again to continue from it.
#SBATCH --array=0-8
#SBATCH --gpus=1
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
set -eu
. examples/signals.sh # SLURM runs a copy of this file
: "${DEVICE:=--device=gpu}" "${SIZE:=base}"
export DEVICE
seed=$((SLURM_ARRAY_TASK_ID % 3))
set -- vanilla random random_vanilla
shift $((SLURM_ARRAY_TASK_ID / 3))

status=0
supervise examples/run.sh "$SIZE" "$1" "$seed" || status=$?
if [ "$status" -eq 143 ]; then # SIGTERM
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
