#!/usr/bin/env bash
# The fixed-context bottleneck, measured: every model of the ladder on the grammar corpus, three seeds, the same batches
# and equally many of them. Two runs at a time, one thread each: under 150 minutes on two cores. Interrupt and repeat at
# will: finished runs are skipped, a half-done one is continued. The figures do not depend on what else the machine does.
#   STEPS=3000 SEEDS="1 2 3" MODELS="lstm cho …" scripts/reproduce_bottleneck.sh [OVERRIDES]
# A model may bring overrides of its own, as transformer_tiny:model.positions=rotary does, with a colon before each.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/environment.sh
steps=${STEPS:-3000}
seeds=${SEEDS:-1 2 3}
# All are 128 wide, as transformer_tiny is.
state=model.embedding_size=128:model.hidden_size=128
attention=model.attention_size=128
readout=model.readout_size=128
# Rotary positions, because with sinusoids a Transformer has not learned to follow a long sentence after so few steps.
rotary=model.positions=rotary
models=${MODELS:-lstm:$state cho:$state:$readout bahdanau:$state:$attention:$readout luong:$state
    intra_attention:$state:$attention transformer_tiny:$rotary decoder_only:$rotary}
folder=${FOLDER:-runs/bottleneck}
mkdir -p "$folder"

train() { # MODEL[:OVERRIDE]… SEED [OVERRIDES]
    local model=${1%%:*} run=$folder/${1%%:*}-$2
    # shellcheck disable=SC2046  # an override is a word, and there may be none
    OMP_NUM_THREADS=1 .venv/bin/nmt train experiment=bottleneck model="$model" $(own_overrides "$1") \
        trainer.seed="$2" trainer.threads=1 trainer.max_steps="$steps" run.dir="$run" \
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
