#!/usr/bin/env bash
# How well a soft alignment finds the word that is being translated: bahdanau and luong on the grammar corpus with all of
# its words, against the alignments that the grammar knows. What reproduce_bottleneck.sh trains on has few words, so that
# a model need not look at one to know it; otherwise this is the same script, and its settings apply: STEPS, SEEDS, FOLDER.
#   scripts/reproduce_alignment.sh [OVERRIDES]
set -euo pipefail

width=model.embedding_size=128:model.hidden_size=128
export MODELS="bahdanau:$width:model.attention_size=128:model.readout_size=128 luong:$width"
export FOLDER=${FOLDER:-runs/alignment}
exec "$(dirname "$0")/reproduce_bottleneck.sh" data.variety=null data.lengths=even "$@"
