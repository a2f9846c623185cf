#!/usr/bin/env bash
# The fixed-context bottleneck, measured: every model of the ladder on the grammar corpus, three seeds, equal minutes.
# Two runs at a time, one thread each: under 150 minutes on two cores. Interrupt and repeat at will: finished runs are
# skipped, a half-done one is continued.
#   MINUTES=12 SEEDS="1 2 3" MODELS="lstm cho …" scripts/reproduce_bottleneck.sh [OVERRIDES]
# A model may bring an override of its own, as transformer_tiny:model.positions=rotary does.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/environment.sh
minutes=${MINUTES:-12}
seeds=${SEEDS:-1 2 3}
# Rotary positions, because with sinusoids a Transformer has not learned to follow a long sentence after so few minutes.
rotary=model.positions=rotary
models=${MODELS:-lstm cho bahdanau luong intra_attention transformer_tiny:$rotary decoder_only:$rotary}
folder=${FOLDER:-runs/bottleneck}
mkdir -p "$folder"

train() { # MODEL[:OVERRIDE] SEED [OVERRIDES]
    local model=${1%%:*} run=$folder/${1%%:*}-$2
    # shellcheck disable=SC2046  # an override is a word, and there may be none
    OMP_NUM_THREADS=1 .venv/bin/nmt train experiment=bottleneck model="$model" $(own_override "$1") \
        trainer.seed="$2" trainer.threads=1 trainer.max_minutes="$minutes" run.dir="$run" \
        "${@:3}" >>"$run.log" 2>&1
}

source scripts/two_at_a_time.sh
for seed in $seeds; do
    for model in $models; do
        start train "$model" "$seed" "$@"
    done
done
finish

runs=()
for model in $models; do
    for seed in $seeds; do
        runs+=("$folder/${model%%:*}-$seed")
    done
done
.venv/bin/nmt compare "${runs[@]}" --baseline "${runs[0]}" --lengths 10,20,30,40,60 --output "$folder/comparison"
