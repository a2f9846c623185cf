"""Colours that can be told apart by every reader, and SVG that can live in a page beside others."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from nmt.evaluation.alignment import Alignment
from nmt.evaluation.compare import Comparison
from nmt.evaluation.figures import (
    CURVES,
    INK,
    LINES,
    MARKERS,
    NIGHT,
    PAPER,
    SERIES,
    SERIES_DARK,
    alignment_figure,
    by_length_figure,
    curve_figure,
    style,
)

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
COLOR_BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def linear(color: str) -> np.ndarray:
    channels = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def luminance(color: str) -> float:
    return float(linear(color) @ [0.2126, 0.7152, 0.0722])


def lab(rgb: np.ndarray) -> np.ndarray:
    matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(matrix @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize(("colors", "background"), [(SERIES, PAPER), (SERIES_DARK, NIGHT)])
def test_every_colour_stands_out_from_the_background(colors: tuple[str, ...], background: str) -> None:
    """WCAG 2.2, 1.4.11: 3:1 for graphical objects."""
    for color in colors:
        lighter, darker = sorted((luminance(color), luminance(background)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 3, color


@pytest.mark.parametrize("kind", COLOR_BLINDNESS)
@pytest.mark.parametrize("colors", [SERIES, SERIES_DARK])
def test_no_two_colours_are_alike_to_any_reader(kind: str, colors: tuple[str, ...]) -> None:
    """A difference of 2.3 in CIELAB is just noticeable; lines also differ in dashes and markers."""
    seen = [lab(COLOR_BLINDNESS[kind] @ linear(color)) for color in colors]
    closest = min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2))
    assert closest >= 15


def test_series_differ_in_lines_and_markers_too() -> None:
    assert len(set(map(str, LINES))) == len(set(MARKERS)) == len(SERIES)
    looks = [(style(i).color, str(style(i).line), style(i).marker) for i in range(21)]
    assert len(set(looks)) == 21
    assert len({line for _, line, _ in looks[:7]}) == 7


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg.replace("&nbsp;", " "))


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()).strip() for element in parsed(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_figures_take_their_colours_from_the_page_and_share_no_ids(comparison: Comparison) -> None:
    drawn = [by_length_figure(comparison.rows, comparison.buckets)]
    drawn += [svg for against in CURVES if (svg := curve_figure(comparison.rows, against))]
    assert len(drawn) == 4
    identifiers: list[str] = []
    for svg in drawn:
        root = parsed(svg)
        assert root.get("width") is None and root.get("viewBox")
        assert INK not in svg and "currentColor" in svg and "var(--series-0)" in svg
        assert not any(color in svg for color in SERIES)
        own = re.findall(r'\bid="([^"]+)"', svg)
        referenced = re.findall(r'(?:url\(|href=")#([^)"]+)', svg)
        assert set(referenced) <= set(own)
        identifiers += own
    assert len(identifiers) == len(set(identifiers))


def test_axes_have_units_and_series_their_names(comparison: Comparison) -> None:
    shown = texts(by_length_figure(comparison.rows, comparison.buckets))
    assert {"BLEU", "source length (words; n sentences)", "ours", "greedy"} <= set(shown)
    assert "<b>damaged" not in shown
    for against, unit in (("step", "steps"), ("tokens", "millions"), ("seconds", "minutes")):
        svg = curve_figure(comparison.rows, against)
        assert svg is not None
        assert any(unit in text for text in texts(svg))
        # Three trainings are three lines with one entry in the legend.
        assert texts(svg).count("ours") == 1


def test_names_are_no_markup_and_no_mathematics(comparison: Comparison) -> None:
    comparison.rows[0].label, before = "_$x$ & <i>", comparison.rows[0].label
    try:
        assert "_$x$ & <i>" in texts(by_length_figure(comparison.rows, comparison.buckets))
    finally:
        comparison.rows[0].label = before


def test_no_validation_no_curve(comparison: Comparison) -> None:
    damaged = [row for row in comparison.rows if row.status == "failed"]
    for row in damaged:
        for run in row.runs:
            run.records = []
    assert curve_figure(damaged, "step") is None


def test_the_ink_of_a_cell_is_its_weight() -> None:
    weights_TS = np.array([[1.0, 0.0, 0.0], [0.25, 0.7, 0.004]])
    svg = alignment_figure(Alignment(["The", "$cat", "<sees>"], ["Le", "chat"], weights_TS), "a")
    assert [text for text in texts(svg) if text] == ["The", "$cat", "<sees>", "Le", "chat"]
    cells = re.findall(
        r"fill: currentColor(?:; fill-opacity: ([0-9.]+))?", svg.split('id="a-PatchCollection_1"')[1].split("</g>")[0]
    )
    assert sorted(float(opacity or 1) for opacity in cells) == [0.25, 0.7, 1.0]
