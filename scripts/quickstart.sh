#!/usr/bin/env bash
# From nothing to a translator in minutes: makes .venv, installs nmt, generates the grammar corpus, trains the default
# model on it, scores it, translates a few sentences and draws one alignment. The run is kept in runs/quickstart; run
# again, this continues where it stopped.
#   scripts/quickstart.sh [OVERRIDES]      e.g. scripts/quickstart.sh model=transformer
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/environment.sh
nmt=.venv/bin/nmt
run=runs/quickstart
began=$SECONDS

"$nmt" train experiment=quickstart "$@"

echo
cat <<'TEXT' | tee /dev/stderr | "$nmt" translate "$run"
The old woman reads a red book.
Do you see the little cat that sleeps in the garden?
TEXT
