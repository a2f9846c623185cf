"""Train, compare and use English–French translation models, from the fixed-context LSTM to the Transformer.

import nmt
translator = nmt.load("runs/quickstart")
[translation] = translator.translate(["The old man reads a book."], beam_size=5)
print(translation.text, translation.score)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nmt.decoding.translator import TextTranslator

__all__ = ["load"]


def load(run: Path | str | Sequence[Path | str], device: str = "auto") -> TextTranslator:
    """The translator of a run directory (its best checkpoint), of a checkpoint directory or of an export.

    Several runs or checkpoints in a list translate together, as an ensemble.

    Raises:
        nmt.errors.RequestError: nothing to load there, or files or runs that do not belong together.
        nmt.errors.WorkError: a damaged file.
    """
    from nmt.serving.exported import load_translator  # brings PyTorch, which `nmt --help` need not wait for

    return load_translator(run, device)
