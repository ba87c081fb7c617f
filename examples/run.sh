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
: "${DEVICE:=--gin_file=runs/cpu.gin}"

folder=$OUT/$size/$variant/seed_$seed
if [ -e "$folder/finished" ]; then
  exit
fi

stage() { # name, run file, further arguments
  name=$1 run=$2
  shift 2
  supervise synth-mtf transformer --data_dir="$DATA" --vocabulary="$VOCABULARY" \
    --model_dir="$folder/$name" \
    --gin_file="sizes/$size.gin" --gin_file="variants/$variant.gin" \
    --gin_file="runs/$run.gin" $DEVICE \
    --gin_param="utils.run.batch_size = $BATCH" "$@"
}

set_seed="--gin_file=runs/repeatable.gin
  --gin_param=mesh_train_dataset_fn.seed=$seed
  --gin_param=synth_mtf.train_with_progress.seed=$seed"
stage pretrain pretrain_text $set_seed \
  --gin_param="utils.run.train_steps = $PRETRAIN_STEPS"
stage finetune finetune_en_mix $set_seed \
  --gin_param="MIXTURE_NAME = '$MIXTURE'" \
  --gin_param="utils.run.init_checkpoint = \
    '$folder/pretrain/model.ckpt-$PRETRAIN_STEPS'" \
  --gin_param="utils.run.train_steps = $((PRETRAIN_STEPS + FINETUNE_STEPS))"
stage finetune eval_en_mix --gin_param="MIXTURE_NAME = '$MIXTURE'" \
  --gin_param="eval_checkpoint_step = -1"
case $OUT in
  *://*) ;; # in a bucket, each stage sees by itself that it has ended
  *) touch "$folder/finished" ;;
esac
