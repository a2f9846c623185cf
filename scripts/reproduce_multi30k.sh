#!/usr/bin/env bash
# The ladder on Multi30k, equal minutes a model. Two runs at a time, one thread each. Interrupt and repeat at will.
#   MINUTES=40 DATA_DIR=… MODELS="lstm bahdanau …" scripts/reproduce_multi30k.sh [OVERRIDES]
# A model may bring overrides of its own, as transformer_tiny:model.positions=rotary does, with a colon before each.
# Without DATA_DIR the corpus is downloaded.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/environment.sh
minutes=${MINUTES:-40}
# Rotary positions, because a Transformer with sinusoids has learned less after so few epochs.
rotary=model.positions=rotary
models=${MODELS:-lstm cho bahdanau luong intra_attention transformer_tiny:$rotary decoder_only:$rotary}
folder=${FOLDER:-runs/multi30k}
mkdir -p "$folder"

train() { # MODEL[:OVERRIDE]… [OVERRIDES]
    local model=${1%%:*}
    # shellcheck disable=SC2046  # an override is a word, and there may be none
    OMP_NUM_THREADS=1 .venv/bin/nmt train model="$model" $(own_overrides "$1") data=multi30k \
        ${DATA_DIR:+data.dir="$DATA_DIR"} trainer.threads=1 trainer.max_minutes="$minutes" run.dir="$folder/$model" \
        "${@:2}" >>"$folder/$model.log" 2>&1
}

source scripts/two_at_a_time.sh
for model in $models; do
    start train "$model" "$@"
done
finish

runs=()
for model in $models; do
    runs+=("$folder/${model%%:*}")
done
for set in test_2016_flickr test_2017_flickr test_2017_mscoco; do
    .venv/bin/nmt compare "${runs[@]}" --baseline "${runs[0]}" --set "$set" --output "$folder/comparison/$set"
done
