"""Merging pieces to words, links, the alignment error rate against hand-computed values, and the picture."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.errors import RequestError, WorkError
from nmt.evaluation.alignment import (
    Alignment,
    alignment_error_rate,
    alignment_pixels,
    parse_pharaoh,
    plot_alignment,
)


def pieces() -> Alignment:
    """ "the cat" as ▁the ▁c at </s>, "le chat" as ▁le ▁ch at </s>."""
    weights = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.3, 0.5, 0.1], [0.1, 0.4, 0.2, 0.3], [0.0, 0.0, 0.1, 0.9]]
    return Alignment(["▁the", "▁c", "at", "</s>"], ["▁le", "▁ch", "at", "</s>"], np.array(weights))


def test_words_sum_over_source_pieces_and_average_over_target_pieces() -> None:
    words = pieces().words()
    assert words.source_tokens == ["the", "cat"]
    assert words.target_tokens == ["le", "chat"]
    # cat: chat's two pieces gave 0.3 + 0.5 and 0.4 + 0.2; the end mark's 0.1 and 0.3 are not spread over the words.
    np.testing.assert_allclose(words.weights_TS, [[0.7, 0.2], [0.1, 0.7]])


def test_words_with_the_end_mark_keep_the_whole_distribution() -> None:
    words = pieces().words(keep_end=True)
    assert words.source_tokens == ["the", "cat", "</s>"]
    np.testing.assert_allclose(words.weights_TS, [[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.0, 0.1, 0.9]])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=8), st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_merging_keeps_rows_that_sum_to_one(source: list[bool], target: list[bool], data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 1000))
    weights_TS = np.random.default_rng(seed).dirichlet(np.ones(len(source)), size=len(target))
    names = [["▁a" if starts else "b" for starts in side] for side in (source, target)]
    words = Alignment(names[0], names[1], weights_TS).words()
    np.testing.assert_allclose(words.weights_TS.sum(axis=1), 1)
    assert len(words.source_tokens) == sum(source[1:]) + 1
    assert "".join(words.target_tokens) == "".join(names[1]).replace("▁", "")


def test_a_lone_word_start_belongs_to_the_pieces_after_it() -> None:
    alignment = Alignment(["▁", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "▁x"], ["▁y"], np.full((1, 6), 1 / 6))
    words = alignment.words()
    assert words.source_tokens == ["😀", "x"]
    np.testing.assert_allclose(words.weights_TS, [[5 / 6, 1 / 6]])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["▁", "▁a", "b", "▁bc"]), max_size=8), st.booleans())
def test_words_are_those_of_the_text_whatever_spaces_a_model_writes(target: list[str], keep_end: bool) -> None:
    """A link names a word by its place in the line that was printed."""
    pieces = [*target, "</s>"]
    words = Alignment(["▁x", "</s>"], pieces, np.full((len(pieces), 2), 0.5)).words(keep_end)
    assert words.target_tokens == "".join(target).replace("▁", " ").split() + ["</s>"] * keep_end
    np.testing.assert_allclose(words.weights_TS, 0.5)


def test_an_end_mark_in_the_text_is_no_end_mark() -> None:
    assert Alignment(["▁a", "</s>", "▁b"], ["▁y"], np.full((1, 3), 1 / 3)).words().source_tokens == ["a</s>", "b"]


def test_pharaoh_links_each_target_word_to_its_best_source_word() -> None:
    weights = [[0.1, 0.9, 0.0], [0.8, 0.1, 0.1], [0.4, 0.2, 0.4], [0.0, 0.0, 0.0]]
    alignment = Alignment(["a", "b", "c"], ["w", "x", "y", "z"], np.array(weights))
    assert alignment.pharaoh() == "0-1 0-2 1-0"  # the first of equals; no weight, no link
    assert alignment.pharaoh(threshold=0.4) == "0-1 0-2 1-0 2-2"
    assert parse_pharaoh(alignment.pharaoh()) == {(0, 1), (0, 2), (1, 0)}


def test_no_words_have_no_links() -> None:
    assert Alignment([], ["a"], np.zeros((1, 0))).pharaoh() == ""
    assert Alignment(["a"], [], np.zeros((0, 1))).pharaoh() == ""
    assert Alignment(["</s>"], ["</s>"], np.ones((1, 1))).words().pharaoh() == ""


def test_json_is_one_line_that_says_everything() -> None:
    alignment = Alignment(["été\u2028"], ["a", "b"], np.array([[0.25], [1 / 3]], dtype=np.float32))
    text = alignment.to_json()
    assert "\n" not in text
    assert json.loads(text) == {"source": ["été\u2028"], "target": ["a", "b"], "weights": [[0.25], [0.333333]]}


def test_weights_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(3, 2\)"):
        Alignment(["a", "b"], ["x", "y", "z"], np.zeros((2, 3)))


@pytest.mark.parametrize("line", ["0-", "a-b", "0-1-2", "-1-2", "0 1", "1–2", "٣-٣"])
def test_what_is_no_link_is_refused(line: str) -> None:
    with pytest.raises(RequestError, match="link"):
        parse_pharaoh(line)


def test_alignment_error_rate_by_hand() -> None:
    # |A| = 4, |S| = 3, A∩S = {00, 11}, A∩P = {00, 11, 12}: 1 - (2 + 3) / (4 + 3).
    predicted = {(0, 0), (1, 1), (1, 2), (3, 3)}
    sure = {(0, 0), (1, 1), (2, 2)}
    possible = {(1, 2)}
    assert alignment_error_rate([predicted], [sure], [possible]) == pytest.approx(2 / 7)
    # Sure links alone: 1 - 2·2 / (4 + 3).
    assert alignment_error_rate([predicted], [sure]) == pytest.approx(3 / 7)


def test_alignment_error_rate_counts_over_the_corpus() -> None:
    # 1 of 1 right, and 0 of 3 against 3: 1 - 2·1 / (4 + 4), not the mean of 0 and 1.
    predicted = [[(0, 0)], [(0, 1), (1, 2), (2, 0)]]
    sure = [[(0, 0)], [(0, 0), (1, 1), (2, 2)]]
    assert alignment_error_rate(predicted, sure) == pytest.approx(0.75)
    assert alignment_error_rate(sure, sure) == 0
    assert alignment_error_rate([[]], [[]]) == 0
    assert alignment_error_rate([[]], [[(0, 0)]]) == 1


def test_alignment_error_rate_refuses_unequal_corpora() -> None:
    with pytest.raises(RequestError, match="2 predicted alignments, but 1"):
        alignment_error_rate([[], []], [[]])


def test_the_picture_has_the_source_along_the_top_and_the_target_down() -> None:
    words = pieces().words()
    axes, bar = plot_alignment(words).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["the", "cat"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["le", "chat"]
    assert axes.xaxis.get_ticks_position() == "top"
    low, high = axes.get_ylim()
    assert low > high  # the first target word is above
    assert bar.get_ylabel() == "attention weight"
    image = axes.get_images()[0]
    np.testing.assert_allclose(np.asarray(image.get_array()), words.weights_TS)
    assert image.cmap(0.0)[:3] == (0, 0, 0)
    assert image.cmap(1.0)[:3] == (1, 1, 1)


@pytest.mark.parametrize(("sources", "targets"), [(5, 7), (60, 60), (1, 20), (20, 1)])
def test_words_do_not_overlap_and_fit_the_picture(sources: int, targets: int) -> None:
    tokens = [["extraordinairement"] + ["mot"] * (count - 1) for count in (sources, targets)]
    figure = plot_alignment(Alignment(tokens[0], tokens[1], np.full((targets, sources), 1 / sources)))
    figure.canvas.draw()
    axes, bar = figure.axes
    for labels, along in ((axes.get_xticklabels(), "x"), (axes.get_yticklabels(), "y")):
        boxes = [label.get_window_extent() for label in labels]
        spans = sorted((box.x0, box.x1) if along == "x" else (box.y0, box.y1) for box in boxes)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
        assert all(box.x0 >= 0 and box.y1 <= figure.bbox.height for box in boxes)
        assert min(min(box.width, box.height) for box in boxes) > 8  # pixels, at 100 an inch
    assert bar.get_window_extent().x0 > axes.get_window_extent().x1
    assert bar.get_tightbbox().x1 <= figure.bbox.width
    assert bar.get_tightbbox().y0 >= 0


@pytest.mark.parametrize("name", ["picture.png", "picture.pdf", "picture.svg"])
def test_any_text_can_be_drawn_without_a_warning(tmp_path: Path, name: str) -> None:
    tokens = ["été", "😀", "$5", "a$b$", "_x^{2}", "漢字", "\u2028", "%", "\\frac"]
    alignment = Alignment(tokens, tokens, np.eye(len(tokens)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_alignment(alignment, tmp_path / name)
        assert alignment_pixels(alignment).shape[2] == 3
    assert (tmp_path / name).stat().st_size > 1000


def test_a_very_long_sentence_stays_a_picture_of_bounded_size() -> None:
    long = ["a"] * 400
    width, height = plot_alignment(Alignment(long, long, np.eye(400))).get_size_inches()
    assert width < 50
    assert height < 50


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no words"):
        plot_alignment(Alignment([], [], np.zeros((0, 0))))
    with pytest.raises(RequestError, match=r"picture\.docx"):
        plot_alignment(pieces(), tmp_path / "picture.docx")
    plot_alignment(pieces(), tmp_path / "made" / "picture.png")
    assert (tmp_path / "made" / "picture.png").is_file()
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkError, match=r"file"):
        plot_alignment(pieces(), tmp_path / "file" / "picture.png")


def test_drawing_leaves_matplotlibs_global_state_alone(tmp_path: Path) -> None:
    program = (
        "import sys, numpy as np; from pathlib import Path; from nmt.evaluation.alignment import *\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"plot_alignment(Alignment(['😀'], ['漢'], np.ones((1, 1))), Path({str(tmp_path / 'a.png')!r}))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
