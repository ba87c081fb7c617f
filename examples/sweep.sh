#!/bin/sh
# Runs every size, variant and seed, one after another, and prints one table. After
# an interruption, the same command continues. docs/sweeps.md explains it.
set -eu
. "$(dirname "$0")/signals.sh"
: "${OUT:=my_sweep}"
: "${SIZES:=tiny}" "${VARIANTS:=vanilla random random_vanilla}" "${SEEDS:=0 1 2}"
export OUT

for size in $SIZES; do
  for variant in $VARIANTS; do
    for seed in $SEEDS; do
      supervise "$(dirname "$0")/run.sh" "$size" "$variant" "$seed"
    done
  done
done
synth-mtf table "$OUT"/*/*/*/finetune
