"""What a corpus looks like before anything is trained on it: counts, lengths, and examples of what each filter drops.

A filter is only as good as what it throws away, so the pairs that it drops are shown next to those that it keeps. The
examples are taken at equal distances, not drawn, so that the same data give the same text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from nmt.config import DataConfig
from nmt.data.filter import KEPT, REASONS, VERDICTS, key_of
from nmt.data.filtered import FilteredCorpus

MOST_CHARACTERS = 200  # of an example's side


def overview(filtered: FilteredCorpus, config: DataConfig, samples: int) -> str:
    """Lines for a person: what is kept, what is dropped for which reason, lengths in words, examples of each kind."""
    corpus = filtered.corpus
    chosen = _rows(filtered, samples)
    lengths: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
    examples: dict[int, tuple[str, str]] = {}
    wanted = {row for rows in chosen.values() for row in rows}
    for row, (pair, verdict) in enumerate(zip(corpus.training_pairs(), filtered.verdicts.tolist(), strict=True)):
        if verdict == KEPT:
            for counts, text in zip(lengths, pair, strict=True):
                counts[len(text.split())] += 1
        if row in wanted:
            examples[row] = pair
    lines = [f"{corpus.name}: {corpus.source_language} to {corpus.target_language}", *_counts(filtered, config), ""]
    lines += ["words of the kept pairs       mean    median      95 %   longest"]
    for side, counts in zip(("source", "target"), lengths, strict=True):
        mean, *others = _statistics(counts)
        lines.append(f"  {side:22}{mean:10.1f}" + "".join(f"{value:10,}" for value in others))
    return "\n".join([*lines, *_examples(filtered, config, chosen, examples)])


def _counts(filtered: FilteredCorpus, config: DataConfig) -> Iterator[str]:
    corpus, tally = filtered.corpus, filtered.tally
    yield f"training    {tally.total:12,} pairs"
    yield f"  kept      {tally.kept:12,}  {_share(tally.kept, tally.total)}"
    for reason, count in tally.ranked():
        yield f"  dropped   {count:12,}  {_share(count, tally.total)}  {reason}{key_of(reason, config.filter)}"
    yield f"validation  {sum(files.count() for files in corpus.valid):12,} pairs"
    for name, files in corpus.test.items():
        yield f"test        {files.count():12,} pairs  {name}"


def _share(count: int, total: int) -> str:
    return f"{100 * count / max(1, total):6.2f} %"


def _statistics(counts: Counter[int]) -> tuple[float, int, int, int]:
    """Mean, median, 95th percentile and greatest of counted values."""
    values = np.array(sorted(counts))
    numbers = np.array([counts[value] for value in values.tolist()])
    below = np.cumsum(numbers)
    median, most = (int(values[np.searchsorted(below, share * below[-1])]) for share in (0.5, 0.95))
    return float((values * numbers).sum() / below[-1]), median, most, int(values[-1])


def equally_spaced(count: int, wanted: int) -> list[int]:
    """So many of the places 0 to count - 1 at equal distances, or all of them where there are no more."""
    number = min(count, wanted)
    return [(2 * place + 1) * count // (2 * number) for place in range(number)]


def _rows(filtered: FilteredCorpus, samples: int) -> dict[int, list[int]]:
    """For each verdict, the rows of its examples."""
    chosen = {}
    for verdict in (KEPT, *VERDICTS.values()):
        rows = np.flatnonzero(filtered.verdicts == verdict)
        chosen[verdict] = rows[equally_spaced(len(rows), samples)].tolist()
    return chosen


def _examples(
    filtered: FilteredCorpus,
    config: DataConfig,
    chosen: Mapping[int, list[int]],
    examples: Mapping[int, tuple[str, str]],
) -> Iterator[str]:
    tally = filtered.tally
    kinds = [("kept", KEPT, tally.kept), *((reason, VERDICTS[reason], tally.dropped[reason]) for reason in REASONS)]
    for name, verdict, count in kinds:
        rows = chosen[verdict]
        if not rows:
            continue
        yield ""
        yield f"{name}{key_of(name, config.filter)}, {len(rows)} of {count:,}"
        for row in rows:
            number = f"{row + 1}"
            for text, margin in zip(examples[row], (number, ""), strict=True):
                yield f"{margin:>12}  {_cut(text)}"


def _cut(text: str) -> str:
    """A text on one line of bounded length, its control characters and lone marks made visible."""
    shown = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
    return shown if len(shown) <= MOST_CHARACTERS else f"{shown[:MOST_CHARACTERS]}… ({len(text)} characters)"
