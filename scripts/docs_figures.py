#!/usr/bin/env python
"""The figures of docs/ladder.md, from trained runs: where each one that attends looked, and BLEU by source length.

scripts/docs_figures.py RUN RUN …               # e.g. of scripts/reproduce_multi30k.sh; writes docs/figures/
scripts/docs_figures.py --by-length RUN RUN …   # e.g. of scripts/reproduce_bottleneck.sh; the second picture alone

They are those of `nmt compare`, in colours of their own instead of a page's. The sentence is this project's, so that no
text of a corpus is copied.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import nmt
from benchmarking import reporting
from nmt.evaluation.compare import compare_runs
from nmt.evaluation.figures import INK, PAPER, SERIES, alignment_figure, by_length_figure
from nmt.training.session import say

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "figures"
SENTENCE = "An old man with a red hat is reading a newspaper in front of a small white house."


def standalone(svg: str) -> str:
    """A figure of a page as a file: with colours, a background and a size."""
    for number, color in enumerate(SERIES):
        svg = svg.replace(f"var(--series-{number})", color)
    head, rest = svg.replace("currentColor", INK).split(">", 1)
    width, height = (float(size) for size in re.search(r'viewBox="0 0 (\S+) (\S+)"', head).groups())  # type: ignore[union-attr]
    head = re.sub(r'style="[^"]*"', f'width="{width * 4 / 3:.0f}" height="{height * 4 / 3:.0f}"', head)
    return f'{head} font-family="sans-serif"><rect width="100%" height="100%" fill="{PAPER}"/>{rest}\n'


def draw_attention(runs: Sequence[Path]) -> None:
    """Writes a picture for each run that attends."""
    for run in runs:
        translator = nmt.load(run)
        assert translator.config is not None
        if translator.attends:
            [found] = translator.translate([SENTENCE], alignments=True)
            assert found.alignment is not None
            family = translator.config.model.family
            svg = alignment_figure(found.alignment.words(), f"attention-{family}")
            (FOLDER / f"attention-{family}.svg").write_text(standalone(svg), encoding="utf-8")
            say(f"{run}: {found.text}")


def draw_by_length(runs: Sequence[Path]) -> None:
    """Writes a picture of all runs, BLEU by source length on their first test set."""
    compared = compare_runs(runs, say)
    name = compared.test.corpus.name
    svg = by_length_figure(compared.rows, compared.buckets)
    (FOLDER / f"length-{name}.svg").write_text(standalone(svg), encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    """Draws what the module's docstring says."""
    runs = [Path(argument) for argument in arguments if argument != "--by-length"]
    FOLDER.mkdir(exist_ok=True)
    if "--by-length" not in arguments:
        draw_attention(runs)
    draw_by_length(runs)


if __name__ == "__main__":
    sys.exit(reporting.run(main))
