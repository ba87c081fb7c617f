# synth_mtf on CPUs, or on GPUs through JAX (--device=gpu):
#
#   docker build --tag synth_mtf .
#   docker build --tag synth_mtf:gpu --build-arg ACCELERATOR='jax[cuda12]' .
#
# docs/scaling.md shows how it is used.
FROM python:3.12-slim

ARG ACCELERATOR=
COPY . /opt/synth_mtf
WORKDIR /opt/synth_mtf
RUN pip install --no-cache-dir --constraint constraints.txt '.[plot]' $ACCELERATOR

# The reader's files: docker run --volume "$PWD:/work" ...
WORKDIR /work
ENTRYPOINT ["synth-mtf"]
