"""When translations that are kept in a run directory may stand for translating once more: when that is provable.

What a translation depends on is hashed: weights, tokenizer, source text, search settings, the libraries that compute
it and the kind of device. `nmt score` and training leave the hash with the scores; without it, or with another one,
the test set is translated anew.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nmt.data.corpus import reference_lines
from nmt.decoding.translator import Translator
from nmt.errors import RequestError
from nmt.evaluation.metrics import corpus_scores
from nmt.files import read_regular, require_regular
from nmt.training.checkpoint import WEIGHTS

KEY = "translation_key"
LIBRARIES = ("nmt", "torch", "sentencepiece")

TRAINING_ALONE = ("feed_forward_dropout", "attention_kernel")
"""Keys of a model of no effect here, and unknown to runs from before there were such keys."""

LATER = ("epsilon", "mbr_samples", "mbr_beam")
"""Keys of a search of no effect where they are 0 or false, and unknown to runs from before there were such keys."""


def translation_key(translator: Translator, sources: Sequence[str]) -> str:
    """SHA-256 of all that the translations of these sources depend on; "" for weights that are not a checkpoint's."""
    if translator.checkpoint is None or translator.config is None:
        return ""
    model = dataclasses.asdict(translator.config.model)
    for name in TRAINING_ALONE:
        model.pop(name, None)
    inputs = {
        "weights": translator.checkpoint.meta["sha256"].get(WEIGHTS),
        "model": model,
        "tokenizer": translator.tokenizer.identity,
        "sources": list(sources),
        "search": {
            name: value for name, value in dataclasses.asdict(translator.search).items() if value or name not in LATER
        },
        "versions": {library: version(library) for library in LIBRARIES},
        "device": translator.device.type,
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def kept_translations(
    run: Path, name: str, key: str, references: Sequence[str]
) -> tuple[list[str], dict[str, Any]] | None:
    """hypotheses/NAME.txt and the set's entry in results.json, where they are those of `key`; else None.

    The file must also have the scores that were noted for it: somebody may have edited it.
    """
    try:
        entry = json.loads(read_regular(run / "results.json"))["sets"][name]
        if not key or entry[KEY] != key:
            return None
        kept = run / "hypotheses" / f"{name}.txt"
        require_regular(kept)
        hypotheses = reference_lines(kept)
        scores = corpus_scores(hypotheses, references)
        same = math.isclose(scores.bleu, entry["bleu"]) and math.isclose(scores.chrf, entry["chrf"])
        same &= all(isinstance(entry[name], int | float) for name in ("seconds", "target_tokens_per_s"))
    except (OSError, ValueError, KeyError, TypeError, RequestError):
        return None
    return (hypotheses, entry) if same else None
