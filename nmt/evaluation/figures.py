"""The figures of a comparison, as SVG that lives inside a page: its text and lines take the page's colours.

Figures are drawn by matplotlib in the colours for paper. Those colours are then exchanged for CSS variables, so that
one drawing serves light, dark and print, and text stays text: it can be searched, and is drawn in the reader's font.
A series is told apart three times over, by colour, by line style and by marker, for readers who do not see the one.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.evaluation.alignment import LONGEST_LABEL, Alignment
from nmt.evaluation.compare import Row
from nmt.evaluation.lengths import Bucket

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1a1b1e"
"""Text and axes."""
# Seven hues for paper and for the dark: found by a search for the greatest distance between the nearest two, seen with
# and without each kind of colour blindness, of those with a contrast of 3:1 and more with their background.
SERIES = ("#114ead", "#dd2317", "#006242", "#7e237b", "#6d791e", "#038a9b", "#484652")
SERIES_DARK = ("#5f94fd", "#e16c36", "#12ce7c", "#be84c7", "#f5b125", "#adfafe", "#a1a7a4")
PAPER, NIGHT = "#ffffff", "#16181c"
LINES: tuple[str | tuple[int, tuple[float, ...]], ...] = (
    "solid",
    (0, (5, 1.6)),
    (0, (1.2, 1.4)),
    (0, (5, 1.4, 1.2, 1.4)),
    (0, (8, 2)),
    (0, (3, 1.2, 1.2, 1.2, 1.2, 1.2)),
    (0, (2.2, 1)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

WIDTH = 4.4  # inches: on a telephone's screen, text of 9 points is then still read
HEIGHT = 2.9
LEGEND_ROW = 0.2
CELL = 0.2
LEAST_WEIGHT = 0.01  # fainter cells are not drawn
MOST_ROWS = 32  # target words of a picture: a translation that never ends is not shown to its end


@dataclass(frozen=True)
class Style:
    """How a series is drawn wherever it appears."""

    number: int

    @property
    def color(self) -> str:
        """On paper."""
        return SERIES[self.number % len(SERIES)]

    @property
    def line(self) -> str | tuple[int, tuple[float, ...]]:
        """Solid or dashed. After seven series colours return, with other lines and markers."""
        return LINES[(self.number + self.number // len(SERIES)) % len(LINES)]

    @property
    def marker(self) -> str:
        """Of the points."""
        return MARKERS[(self.number + self.number // len(SERIES)) % len(MARKERS)]


def style(number: int) -> Style:
    """The style of the comparison's row of that number, from 0."""
    return Style(number)


def by_length_figure(rows: Sequence[Row], buckets: Sequence[Bucket]) -> str:
    """BLEU by source length with 95 % intervals; the points of a bucket stand side by side so that all are seen."""
    figure, axes = _figure()
    shown = [(number, row) for number, row in enumerate(rows) if row.by_length]
    spread = min(0.7, 0.1 * len(shown))
    for place, (number, row) in enumerate(shown):
        offset = spread * (place / max(1, len(shown) - 1) - 0.5)
        points = [(x + offset, score) for x, score in enumerate(row.by_length) if score is not None]
        look = style(number)
        axes.errorbar(
            [x for x, _ in points],
            [score.value for _, score in points],
            [score.half_width for _, score in points],
            label=_name(row.label),
            color=look.color,
            linestyle=look.line,
            marker=look.marker,
            markersize=4.5 if len(shown) <= 4 else 3.5,
            linewidth=1.4 if len(shown) <= 4 else 1.1,
            elinewidth=0.9,
            capsize=2,
        )
    axes.set_xticks(range(len(buckets)), [f"{bucket.label}\nn={len(bucket.indices)}" for bucket in buckets])
    axes.set_xlim(-0.5, len(buckets) - 0.5)
    _from_zero(axes)
    axes.set_xlabel("source length (words; n sentences)")
    axes.set_ylabel("BLEU")
    _legend(figure, axes, 0.68, HEIGHT if len(shown) <= 4 else 1.3 * HEIGHT)
    return _svg(figure, "by-length", "BLEU by source length")


CURVES: dict[str, tuple[str, Callable[[dict[str, float]], float]]] = {
    "step": ("optimizer steps", lambda record: record["step"]),
    "tokens": ("target tokens trained on (millions)", lambda record: record["tokens"] / 1e6),
    "seconds": ("training time (minutes)", lambda record: record["seconds"] / 60),
}


def curve_figure(rows: Sequence[Row], against: str) -> str | None:
    """Validation BLEU against "step", "tokens" or "seconds", a line for each training; None where there is none."""
    label, position = CURVES[against]
    figure, axes = _figure()
    for number, row in enumerate(rows):
        look = style(number)
        title: str | None = _name(row.label)
        for run in row.runs:
            records = [record for record in run.validations() if against in record]
            if not records:
                continue
            _curve(axes, [(position(record), record["valid_bleu"]) for record in records], look, title)
            title = None
    if not axes.lines:
        return None
    axes.set_xlim(left=0)
    _from_zero(axes)
    axes.set_xlabel(label)
    axes.set_ylabel("validation BLEU")
    _legend(figure, axes)
    return _svg(figure, f"curve-{against}", f"Validation BLEU against {label}")


def _curve(
    axes: Axes, points: Sequence[tuple[float, float]], look: Style, label: str | None, dense: bool = False
) -> None:
    """A series; where its points are dense, a plain line."""
    axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        label=label,
        color=look.color,
        linestyle="solid" if dense else look.line,
        marker="" if dense else look.marker,
        markersize=3.5,
        markevery=max(1, len(points) // 8),
        linewidth=1.4,
    )


def history_figure(series: Mapping[str, Sequence[tuple[float, float]]], name: str, quantity: str) -> str | None:
    """What was measured in training against optimizer steps, a line for each name; None where nothing was."""
    figure, axes = _figure()
    for number, (label, points) in enumerate(series.items()):
        look = style(number)
        if points:
            _curve(axes, points, look, label, dense=len(points) > 60)
    if not axes.lines:
        return None
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("optimizer steps")
    axes.set_ylabel(quantity)
    if len(axes.lines) > 1:
        _legend(figure, axes)
    return _svg(figure, f"history-{name}", f"{quantity} against optimizer steps")


def alignment_figure(alignment: Alignment, name: str) -> str:
    """A heat map, source along the top and generated target down (Bahdanau et al. 2014, Fig. 3).

    The stronger the weight the more ink, so that it prints, and turns light on dark with the page.
    """
    from matplotlib.collections import PatchCollection
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    alignment = Alignment(
        alignment.source_tokens, alignment.target_tokens[:MOST_ROWS], alignment.weights_TS[:MOST_ROWS]
    )
    targets, sources = alignment.weights_TS.shape
    figure, axes = _figure()
    strong = np.argwhere(alignment.weights_TS >= LEAST_WEIGHT).tolist()
    cells = [Rectangle((column - 0.5, row - 0.5), 1, 1) for row, column in strong]
    inks = [(*to_rgb(INK), min(1.0, float(alignment.weights_TS[row, column]))) for row, column in strong]
    axes.add_collection(PatchCollection(cells, facecolors=inks, linewidths=0))
    axes.set_xlim(-0.5, sources - 0.5)
    axes.set_ylim(targets - 0.5, -0.5)
    axes.xaxis.tick_top()
    axes.set_xticks(range(sources), [_short(word) for word in alignment.source_tokens], rotation=90)
    axes.set_yticks(range(targets), [_short(word) for word in alignment.target_tokens])
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set(parse_math=False)
    axes.tick_params(length=0)
    axes.set_xticks(np.arange(0.5, sources - 1), minor=True)
    axes.set_yticks(np.arange(0.5, targets - 1), minor=True)
    axes.tick_params(which="minor", length=0)
    axes.grid(which="major", visible=False)
    axes.grid(which="minor", color=INK, alpha=0.18, linewidth=0.4)
    for spine in axes.spines.values():
        spine.set(visible=True, linewidth=0.6)
    left = 0.075 * max(len(_short(word)) for word in alignment.target_tokens) + 0.12
    top = 0.075 * max(len(_short(word)) for word in alignment.source_tokens) + 0.12
    _place(figure, axes, left, top, sources * CELL, targets * CELL)
    return _svg(figure, name, "Attention of each target word (down) to the source words (along the top)")


# Drawing ----------------------------------------------------------------------------------------------------------


def _figure() -> tuple[Figure, Axes]:
    """An empty figure of no window and no global state, in the page's ink."""
    # matplotlib is imported where it is used: it takes half a second.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT))
    FigureCanvasSVG(figure)
    figure.patch.set_visible(False)
    axes = figure.add_axes((0.13, 0.17, 0.84, 0.79))
    axes.patch.set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(color=INK, alpha=0.15, linewidth=0.6)
    for side, spine in axes.spines.items():
        spine.set(visible=side in ("left", "bottom"), color=INK, linewidth=0.7)
    axes.tick_params(colors=INK, labelsize=8.5, width=0.7, length=3)
    axes.xaxis.label.set(color=INK, fontsize=9)
    axes.yaxis.label.set(color=INK, fontsize=9)
    return figure, axes


def _from_zero(axes: Axes) -> None:
    """A scale of BLEU begins at 0, and does not magnify what is below 1."""
    axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))


def _legend(figure: Figure, axes: Axes, below_axes: float = 0.52, above: float = HEIGHT) -> None:
    """Below the axes, in as many columns as the names leave room for.

    Inches: `below_axes` are for the labels of the x axis, `above` for all but the legend.
    """
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    longest = max(len(label) for label in labels)
    columns = max(1, min(3, len(labels), int(WIDTH / (0.075 * longest + 0.55))))
    rows = -(-len(labels) // columns)
    height = above + LEGEND_ROW * rows + 0.1
    figure.set_size_inches(WIDTH, height)
    below = LEGEND_ROW * rows + 0.1
    axes.set_position((0.13, (below + below_axes) / height, 0.84, (above - below_axes - 0.08) / height))
    legend = figure.legend(
        handles,
        labels,
        loc="lower center",
        bbox_to_anchor=(0.5, 0),
        ncols=columns,
        frameon=False,
        fontsize=8.5,
        labelcolor=INK,
        handlelength=3.2,
        columnspacing=1.4,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _place(figure: Figure, axes: Axes, left: float, top: float, width: float, height: float) -> None:
    """Sizes the figure around axes of that width and height, in inches, with room for labels at left and top."""
    whole_width, whole_height = left + width + 0.04, top + height + 0.04
    figure.set_size_inches(whole_width, whole_height)
    axes.set_position((left / whole_width, 0.04 / whole_height, width / whole_width, height / whole_height))


def _name(label: str) -> str:
    """matplotlib leaves names that begin with an underscore out of legends."""
    return f" {label}" if label.startswith("_") else label


def _short(word: str) -> str:
    limit = LONGEST_LABEL // 2
    return word if len(word) <= limit else f"{word[: limit - 1]}…"


def _svg(figure: Figure, name: str, title: str) -> str:
    """The figure as an SVG element: no fixed size, ids that no other figure has, colours that CSS decides."""
    import matplotlib

    written = io.StringIO()
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "sans-serif"}
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with matplotlib.rc_context(settings):
        figure.savefig(written, format="svg", metadata=nothing)
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text)
    text = text.replace(INK, "currentColor")
    for number, color in enumerate(SERIES):
        text = text.replace(color, f"var(--series-{number})")
    head, rest = text.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    width = round(figure.get_figwidth() * 96)
    return f'{head} role="img" aria-label="{title}" style="width:{width}px">{rest}'
