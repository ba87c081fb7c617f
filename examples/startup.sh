#!/bin/sh
# The start-up script of a TPU VM: installs the package and trains one model. It
# reads the checkout, the data and the vocabulary from a bucket, and writes the model
# there. docs/sweeps.md has the command that passes it to a VM.
set -eu
bucket=gs://BUCKET-OF-YOURS variant=random_vanilla seed=0
export OUT=$bucket/sweep DATA=$bucket/data VOCABULARY=$bucket/my_vocabulary.model
export DEVICE=--device=tpu

cd "$(mktemp -d)"
gcloud storage cp "$bucket/my_checkout.tar" .
tar -xf my_checkout.tar
cd synth_mtf
apt-get update
apt-get install --yes make python3-venv
make env TF=2.20
.venv-tf2.20/bin/pip install -c constraints-tf2.20.txt 'jax[tpu]'
PATH=$PWD/.venv-tf2.20/bin:$PATH
exec sh examples/run.sh base "$variant" "$seed"
