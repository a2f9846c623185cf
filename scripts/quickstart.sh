#!/usr/bin/env bash
# From nothing to a translator in minutes: makes .venv, installs nmt, generates the grammar corpus, trains the default
# model on it, scores it, translates a few sentences and draws one alignment. The run is kept in runs/quickstart; run
# again, this continues where it stopped.
#   scripts/quickstart.sh [OVERRIDES]      e.g. scripts/quickstart.sh trainer.max_minutes=10
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/environment.sh
nmt=.venv/bin/nmt
run=runs/quickstart
began=$SECONDS

"$nmt" train experiment=quickstart "$@"

sentences=(
    "The old woman reads a red book."
    "Do you see the small cat that sleeps in the garden?"
    "My brother never gives them the letter because he is tired."
)
echo
for sentence in "${sentences[@]}"; do
    echo "$sentence"
done
echo
printf '%s\n' "${sentences[@]}" | "$nmt" translate "$run"
echo
"$nmt" attend "$run" --text "${sentences[1]}" --output "$run/alignment.png" | tail -n 1
echo
echo "done in $((SECONDS - began)) s after the installation"
echo "next: $nmt translate $run        $nmt train --help        .venv/bin/tensorboard --logdir runs"
