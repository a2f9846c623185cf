"""Attention weights as a word alignment: merged to words, written as Pharaoh links, scored against gold, drawn.

S source positions, T target positions. A model attends between SentencePiece pieces; people and gold alignments speak
of words. A word's weight is the sum over its source pieces, since attention is a distribution over the source, and the
mean over its target pieces, since each of them looked once.
"""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nmt.errors import RequestError
from nmt.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WORD_START = "▁"
END_MARK = "</s>"
PICTURE_TYPES = (".png", ".pdf", ".svg")
LONGEST_LABEL = 40  # characters
# Inches:
LARGEST_SIDE = 40
MARGIN = 0.08
BAR_WIDTH = 0.16
BAR_LABELS = 0.7
BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")

Link = tuple[int, int]
"""(source word, target word), both counted from 0."""

# Fonts that hold what DejaVu Sans, matplotlib's own, lacks; those that are installed are used.
FALLBACK_FONTS = ("Noto Sans CJK JP", "Noto Sans CJK SC", "WenQuanYi Zen Hei", "Symbola", "Noto Emoji", "Noto Sans")


@dataclass(frozen=True)
class Alignment:
    """How much each target token attended to each source token.

    Attributes:
        source_tokens: S pieces or words.
        target_tokens: T pieces or words.
        weights_TS: attention, one row a target token. A row sums to 1 while it covers all that the model attended to.

    Raises:
        ValueError: the shape of the weights is not (T, S).
    """

    source_tokens: list[str]
    target_tokens: list[str]
    weights_TS: npt.NDArray[np.floating]

    def __post_init__(self) -> None:
        expected = (len(self.target_tokens), len(self.source_tokens))
        if self.weights_TS.shape != expected:
            raise ValueError(f"weights of shape {self.weights_TS.shape} for {expected} target and source tokens")

    def words(self, keep_end: bool = False) -> Alignment:
        """The same alignment between words, whose first pieces begin with "▁".

        The end marks are left out unless `keep_end`. The weight that a target word gave to the source's end mark is
        then dropped, not spread over the words: the row's sum shows how much of the attention the words got.
        """
        source_groups = _word_groups(self.source_tokens, keep_end)
        target_groups = _word_groups(self.target_tokens, keep_end)
        weights_TS = np.zeros((len(target_groups), len(source_groups)), dtype=np.float64)
        for row, target_group in enumerate(target_groups):
            for column, source_group in enumerate(source_groups):
                weights_TS[row, column] = self.weights_TS[np.ix_(target_group, source_group)].sum(axis=1).mean()
        return Alignment(
            [_surface([self.source_tokens[index] for index in group]) for group in source_groups],
            [_surface([self.target_tokens[index] for index in group]) for group in target_groups],
            weights_TS,
        )

    def links(self, threshold: float | None = None) -> list[Link]:
        """The alignment as a set of links, sorted.

        By default each target token is linked to the source token that it attended to most, the first one of equals;
        one with no weight at all stays unlinked. With a threshold every pair of at least that weight is a link.
        """
        if not self.source_tokens or not self.target_tokens:
            return []
        if threshold is not None:
            targets, sources = np.nonzero(self.weights_TS >= threshold)
            return sorted(zip(sources.tolist(), targets.tolist(), strict=True))
        best_T = self.weights_TS.argmax(axis=1).tolist()
        return sorted((source, target) for target, source in enumerate(best_T) if self.weights_TS[target, source] > 0)

    def pharaoh(self, threshold: float | None = None) -> str:
        """The links as "source-target" pairs separated by spaces, counted from 0; see `links`."""
        return " ".join(f"{source}-{target}" for source, target in self.links(threshold))

    def to_json(self) -> str:
        """One line of JSON: {"source": [S], "target": [T], "weights": [T][S] with six decimals}."""
        return json.dumps(
            {
                "source": self.source_tokens,
                "target": self.target_tokens,
                "weights": np.round(self.weights_TS.astype(np.float64), 6).tolist(),
            },
            ensure_ascii=False,
        )


def parse_pharaoh(line: str) -> set[Link]:
    """The links of a line such as "0-0 1-2 2-1".

    Raises:
        RequestError: something in the line is not a pair of numbers.
    """
    links = set()
    for pair in line.split():
        match = re.fullmatch(r"([0-9]+)-([0-9]+)", pair)
        if match is None:
            raise RequestError(f"not a word alignment link such as 0-1: {pair!r}")
        links.add((int(match[1]), int(match[2])))
    return links


def alignment_error_rate(
    predicted: Sequence[Collection[Link]],
    sure: Sequence[Collection[Link]],
    possible: Sequence[Collection[Link]] | None = None,
) -> float:
    """Alignment error rate of a corpus (Och and Ney 2003, equation 19): 1 - (|A∩S| + |A∩P|) / (|A| + |S|).

    Links are counted over all sentences before the division. Gold alignments that know only one kind of link are
    given as `sure` alone, and are the possible ones as well; sure links always count as possible.

    Returns:
        0 (all sure links found and none that is not possible) to 1; 0 where nothing is predicted and nothing is sure.

    Raises:
        RequestError: the numbers of sentences differ.
    """
    possible = sure if possible is None else possible
    if not len(predicted) == len(sure) == len(possible):
        raise RequestError(f"cannot score: {len(predicted)} predicted alignments, but {len(sure)} gold ones")
    found, total = 0, 0
    for links, sure_links, possible_links in zip(predicted, sure, possible, strict=True):
        a, s = set(links), set(sure_links)
        p = s | set(possible_links)
        found += len(a & s) + len(a & p)
        total += len(a) + len(s)
    return 1 - found / total if total else 0.0


def plot_alignment(alignment: Alignment, path: Path | None = None) -> Figure:
    """Draws the weights in grey, black 0 and white 1: source along the top, generated target down (Bahdanau Fig. 3).

    The figure grows with the number of tokens, so that they stay readable. It belongs to no window and to no global
    state of matplotlib, and needs no closing.

    Args:
        alignment: at least one token on either side.
        path: where to save it; the name's end gives the format (.png, .pdf, .svg).

    Raises:
        RequestError: a side is empty, or the name's end is another one.
    """
    # Imported where it is used: matplotlib takes half a second, and most commands draw nothing.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sources, targets = len(alignment.source_tokens), len(alignment.target_tokens)
    if not sources or not targets:
        raise RequestError("cannot draw an alignment: the sentence or its translation has no words")
    # Inches: smaller cells for long sentences, and none so many that the picture's pixels fill the memory.
    cell = min(0.36 if max(sources, targets) <= 30 else 0.28, LARGEST_SIDE / max(sources, targets))
    figure = Figure()
    FigureCanvasAgg(figure)
    axes, bar_axes = figure.add_axes((0, 0, 1, 1)), figure.add_axes((0, 0, 1, 1))
    image = axes.imshow(alignment.weights_TS, cmap="gray", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.xaxis.tick_top()
    axes.set_xticks(range(sources), [_label(token) for token in alignment.source_tokens], rotation=90)
    axes.set_yticks(range(targets), [_label(token) for token in alignment.target_tokens])
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set(parse_math=False, fontfamily=_fonts(), fontsize=cell * 33)
    axes.tick_params(which="both", length=0)
    # Faint lines between the cells: in a long sentence the eye needs them to find the word at the margin.
    axes.set_xticks(np.arange(0.5, sources - 1), minor=True)
    axes.set_yticks(np.arange(0.5, targets - 1), minor=True)
    axes.grid(which="minor", color="0.3", linewidth=0.3)
    figure.colorbar(image, cax=bar_axes).set_label("attention weight")
    _lay_out(figure, axes, bar_axes, sources * cell, targets * cell)
    if path is not None:
        _save(figure, path)
    return figure


def alignment_pixels(alignment: Alignment) -> npt.NDArray[np.uint8]:
    """The picture of `plot_alignment` as red, green and blue bytes, of shape (height, width, 3)."""
    figure = plot_alignment(alignment)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figure.canvas.draw()
    pixels: npt.NDArray[np.uint8] = np.asarray(figure.canvas.buffer_rgba())[:, :, :3]  # type: ignore[attr-defined]
    return pixels


def _lay_out(figure: Figure, axes: Axes, bar_axes: Axes, width: float, height: float) -> None:
    """Sizes the figure around cells of the given width and height, in inches, and the labels as they turn out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # see _save
        left = max(label.get_window_extent().width for label in axes.get_yticklabels()) / figure.dpi + 2 * MARGIN
        top = max(label.get_window_extent().height for label in axes.get_xticklabels()) / figure.dpi + 2 * MARGIN
    bar_height = min(max(height, 1.5), 3.0)
    total_width = left + width + 2 * MARGIN + BAR_WIDTH + BAR_LABELS
    total_height = top + max(height, bar_height) + 2 * MARGIN
    figure.set_size_inches(total_width, total_height)
    for part, x, part_width, part_height in (
        (axes, left, width, height),
        (bar_axes, left + width + 2 * MARGIN, BAR_WIDTH, bar_height),
    ):
        bottom = total_height - top - part_height
        part.set_position(
            (x / total_width, bottom / total_height, part_width / total_width, part_height / total_height)
        )


def _label(token: str) -> str:
    return token if len(token) <= LONGEST_LABEL else f"{token[: LONGEST_LABEL - 1]}…"


def require_picture(path: Path) -> None:
    """Raises RequestError where the name's end is none of `PICTURE_TYPES`."""
    if path.suffix.lower() not in PICTURE_TYPES:
        raise RequestError(f"cannot write {path}: the name must end in {', '.join(PICTURE_TYPES)}")


def _save(figure: Figure, path: Path) -> None:
    require_picture(path)
    with warnings.catch_warnings():
        # A character that no font holds is drawn as a box; that is all there is to say about it.
        warnings.simplefilter("ignore")
        drawn = io.BytesIO()
        figure.savefig(drawn, format=path.suffix[1:].lower(), dpi=120)
    write_atomically(path, drawn.getvalue())


def _fonts() -> list[str]:
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return ["DejaVu Sans", *(name for name in FALLBACK_FONTS if name in installed)]


def _word_groups(pieces: Sequence[str], keep_end: bool) -> list[list[int]]:
    """The indices of each word's pieces: the words are those of the text that the pieces spell.

    A piece that is nothing but a space belongs to the word after it, at the end to the one before it. An end mark
    stands at the end only, and is a word of its own.
    """
    ended = len(pieces) > 0 and pieces[-1] == END_MARK
    groups: list[list[int]] = []
    spelt = False  # whether the last group has anything but spaces
    for index, piece in enumerate(pieces[:-1] if ended else pieces):
        if not groups or (spelt and piece.startswith(WORD_START)):
            groups.append([])
            spelt = False
        groups[-1].append(index)
        spelt = spelt or piece.strip(WORD_START) != ""
    if groups and not spelt:
        spaces = groups.pop()
        if groups:
            groups[-1] += spaces
    return groups + [[len(pieces) - 1]] * (ended and keep_end)


def _surface(pieces: Sequence[str]) -> str:
    """The word that pieces spell; runs of byte pieces are decoded together."""
    encoded = b"".join(
        bytes.fromhex(match[1]) if (match := BYTE_PIECE.fullmatch(piece)) else piece.encode() for piece in pieces
    )
    return encoded.decode(errors="replace").replace(WORD_START, "")
