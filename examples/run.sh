#!/bin/sh
# Pretrains, finetunes and evaluates one model of a sweep:
#
#   examples/run.sh SIZE VARIANT SEED
#
# SIGTERM and Ctrl-C end it after a checkpoint. An interrupted run continues from
# its last checkpoint; a finished one is skipped.
# The environment sets the rest; docs/sweeps.md explains it.
set -eu
. "$(dirname "$0")/signals.sh"
size=$1 variant=$2 seed=$3
: "${OUT:=my_sweep}"                  # a folder or a bucket for the models
: "${DATA:=my_data}"                  # the official files
: "${VOCABULARY:=my_vocabulary.model}"
: "${MIXTURE:=synth_en_mix}"          # to finetune on, and to evaluate
: "${PRETRAIN_STEPS:=1000}" "${FINETUNE_STEPS:=1000}" "${BATCH:=8}"
: "${LEARNING_RATE:=0.001}"           # of finetuning
: "${DEVICE:=}"                       # such as --device=gpu

folder=$OUT/$size/$variant/seed_$seed
if [ -e "$folder/finished" ]; then
  exit
fi

stage() { # command, folder, further arguments
  command=$1 name=$2
  shift 2
  supervise synth-mtf "$command" "$folder/$name" --data_dir="$DATA" \
    --vocabulary="$VOCABULARY" --batch_size="$BATCH" $DEVICE "$@"
}

stage pretrain pretrain --size="$size" --variant="$variant" --seed="$seed" \
  --steps="$PRETRAIN_STEPS"
stage finetune finetune --from="$folder/pretrain" --task="$MIXTURE" \
  --seed="$seed" --steps="$FINETUNE_STEPS" --learning_rate="$LEARNING_RATE"
stage evaluate finetune
case $OUT in
  *://*) ;; # in a bucket, each stage sees by itself that it has ended
  *) touch "$folder/finished" ;;
esac
