#!/bin/sh
# A SLURM array, whose tasks are three variants with three seeds each:
#
#   sbatch examples/array.sh
#
# SLURM sends SIGTERM two minutes before the time limit; the run then saves a
# checkpoint, and it continues when the task is queued again.
#SBATCH --array=0-8
#SBATCH --gpus=1
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
set -eu
export DEVICE='--device=gpu'
seed=$((SLURM_ARRAY_TASK_ID % 3))
set -- vanilla random random_vanilla
shift $((SLURM_ARRAY_TASK_ID / 3))
exec examples/run.sh base "$1" "$seed"
