#!/usr/bin/env bash
# The fixed-context bottleneck, measured: every model of the ladder on the grammar corpus, three seeds, equal minutes.
# Two runs at a time, one thread each: under 150 minutes on two cores. Interrupt and repeat at will: finished runs are
# skipped, a half-done one is continued.
#   MINUTES=12 SEEDS="1 2 3" MODELS="lstm cho …" scripts/reproduce_bottleneck.sh [OVERRIDES]
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/environment.sh
minutes=${MINUTES:-12}
seeds=${SEEDS:-1 2 3}
models=${MODELS:-lstm cho bahdanau luong intra_attention transformer_tiny decoder_only}
folder=${FOLDER:-runs/bottleneck}
mkdir -p "$folder"

train() { # MODEL SEED [OVERRIDES]
    local model=$1 seed=$2
    shift 2
    OMP_NUM_THREADS=1 .venv/bin/nmt train experiment=bottleneck model="$model" trainer.seed="$seed" trainer.threads=1 \
        trainer.max_minutes="$minutes" run.dir="$folder/$model-$seed" "$@" >>"$folder/$model-$seed.log" 2>&1
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
        runs+=("$folder/$model-$seed")
    done
done
.venv/bin/nmt compare "${runs[@]}" --baseline "${runs[0]}" --output "$folder/comparison"
