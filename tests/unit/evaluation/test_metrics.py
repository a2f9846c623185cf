"""Scores against sacreBLEU's own command, hand-computed values, and every way to score two texts that do not match."""

from __future__ import annotations

import gzip
import logging
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.errors import RequestError
from nmt.evaluation.metrics import Scores, bleu_by_length, corpus_scores, literature_text, repeats, score_files

HYPOTHESES = [
    "Un petit chat noir dort sur le canapé.",
    "Deux hommes jouent au football dans le parc.",
    "Elle n'a pas mangé ; pourquoi ?",
    "",
]
REFERENCES = [
    "Un petit chat noir dort sur un canapé.",
    "Deux hommes jouent au foot dans un parc.",
    "Elle n’a pas mangé : pourquoi donc ?",
    "Un chien court vite dans l'herbe.",
]
MULTI30K = os.environ.get("NMT_MULTI30K")  # folder with the released files, where there is one


def test_scores_equal_sacrebleus_command(tmp_path: Path) -> None:
    hypotheses, references = tmp_path / "hypotheses.txt", tmp_path / "references.txt"
    hypotheses.write_text("\n".join(HYPOTHESES) + "\n", encoding="utf-8")
    references.write_text("\n".join(REFERENCES) + "\n", encoding="utf-8")
    scores = score_files(hypotheses, references)
    for metric, ours in (("bleu", scores.bleu), ("chrf", scores.chrf)):
        command = [sys.executable, "-m", "sacrebleu", str(references), "-i", str(hypotheses), "-m", metric, "-b"]
        theirs = subprocess.run([*command, "-w", "4"], capture_output=True, text=True, check=True).stdout
        assert ours == pytest.approx(float(theirs), abs=5e-5)


def test_bleu_equals_a_hand_computed_value() -> None:
    # 7 tokens each; precisions 6/7, 4/6, 3/5, 2/4; no brevity penalty.
    expected = 100 * (6 / 7 * 4 / 6 * 3 / 5 * 2 / 4) ** 0.25
    assert corpus_scores(["a b c d e x g"], ["a b c d e f g"]).bleu == pytest.approx(expected)
    # 4 of 8 tokens, all right: the brevity penalty alone, exp(1 - 8/4).
    assert corpus_scores(["a b c d"], ["a b c d e f g h"]).bleu == pytest.approx(100 * math.exp(-1))


def test_signatures_name_metric_and_versions() -> None:
    scores = corpus_scores(HYPOTHESES, REFERENCES, literature=True)
    for part in ("case:mixed", "tok:13a", "smooth:exp", "version:"):
        assert part in scores.bleu_signature
    for part in ("nc:6", "nw:0", "version:"):
        assert part in scores.chrf_signature
    assert scores.literature_signature is not None
    for part in ("case:lc", "norm:moses-fr", "tok:moses-fr", "escape:html", "sacremoses:", "version:"):
        assert part in scores.literature_signature


def test_scores_see_case_and_the_literature_score_does_not() -> None:
    scores = corpus_scores([line.upper() for line in REFERENCES], REFERENCES, literature=True)
    assert scores.bleu < 50
    assert scores.literature_bleu == pytest.approx(100)
    assert corpus_scores(REFERENCES, REFERENCES).literature_bleu is None


def test_the_literature_score_sees_moses_tokens() -> None:
    # "l' homme dort ." against "l' ours dort .": tokens 3/4, pairs 1/3, triples and quadruples 0, smoothed 1/4, 1/4:
    # for "exp", the n-th zero in a row counts 1 / (2^n × number of n-grams): 1/(2 × 2), 1/(4 × 1).
    expected = 100 * (3 / 4 * 1 / 3 * 1 / 4 * 1 / 4) ** 0.25
    scores = corpus_scores(["L’homme dort."], ["l'ours dort."], literature=True)
    assert scores.literature_bleu == pytest.approx(expected)


def test_literature_text_escapes_and_normalises() -> None:
    processed = literature_text(["L’Été : « A & B » <c>", 'Il dit "Non."', ""], "fr")
    assert processed == [
        "l&apos; été : &quot; a &amp; b &quot; &lt; c &gt;",
        "il dit &quot; non &quot; .",
        "",
    ]


@pytest.mark.skipif(MULTI30K is None, reason="NMT_MULTI30K names no folder")
@pytest.mark.parametrize("name", ["test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"])
def test_literature_text_equals_the_released_references(name: str) -> None:
    folder = Path(str(MULTI30K))
    raw, released = (
        gzip.decompress((folder / f"{name}{end}").read_bytes()).decode().split("\n")
        for end in (".fr.gz", ".lc.norm.tok.fr.gz")
    )
    assert literature_text(raw, "fr") == released


@pytest.mark.parametrize(("hypotheses", "references"), [(1, 2), (2, 1), (0, 3), (3, 0), (0, 0)])
def test_unequal_or_empty_sets_are_refused_with_both_counts(hypotheses: int, references: int) -> None:
    with pytest.raises(RequestError) as caught:
        corpus_scores(["a b c d"] * hypotheses, ["a b c d"] * references)
    assert f"{hypotheses} lines" in str(caught.value)
    assert str(references) in str(caught.value)


def test_unequal_files_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("a\n")
    (tmp_path / "long").write_text("a\nb\n")
    with pytest.raises(RequestError, match=r"1 lines in .*short, but 2 in .*long"):
        score_files(tmp_path / "short", tmp_path / "long")


@pytest.mark.parametrize("mark", ["\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
def test_only_lf_ends_a_line(tmp_path: Path, mark: str) -> None:
    text = f"un chat{mark}noir dort ici\ndeux chiens courent vite là\n".encode()
    (tmp_path / "plain").write_bytes(text)
    (tmp_path / "packed").write_bytes(gzip.compress(text))
    scores = score_files(tmp_path / "plain", tmp_path / "packed")
    assert scores.statistics.sentences == 2
    assert scores.bleu == pytest.approx(100)


def test_a_last_line_without_line_end_counts(tmp_path: Path) -> None:
    (tmp_path / "with").write_text("a\nb\n")
    (tmp_path / "without").write_text("a\nb")
    assert score_files(tmp_path / "with", tmp_path / "without").statistics.sentences == 2


def test_an_empty_reference_keeps_its_place() -> None:
    scores = corpus_scores(["", "un chat noir dort"], ["", "un chat noir dort"], literature=True)
    assert (scores.bleu, scores.literature_bleu) == (pytest.approx(100), pytest.approx(100))
    assert scores.statistics.empty == 0
    nothing = corpus_scores([""], [""])
    assert nothing.bleu == 0
    assert nothing.statistics.length_ratio is None


def statistics_warnings(scores: Scores) -> str:
    return "\n".join(scores.statistics.warnings)


def test_statistics_of_ordinary_output() -> None:
    statistics = corpus_scores(HYPOTHESES, REFERENCES).statistics
    assert statistics.sentences == 4
    assert statistics.empty == 1
    assert statistics.identical_share == 0.25
    assert statistics.repeated == 0
    assert statistics.warnings == ()
    assert corpus_scores(["a b c"], ["a b c d"]).statistics.length_ratio == 0.75


def test_identical_translations_are_told() -> None:
    warnings = statistics_warnings(corpus_scores(["le le", "le le", "le le", "un"], REFERENCES))
    assert "3 of 4" in warnings
    assert "le le" in warnings


def test_half_identical_is_not_told_and_neither_is_what_the_references_repeat() -> None:
    assert not corpus_scores(["le", "le", "un", "du"], REFERENCES).statistics.warnings
    assert not corpus_scores(["oui"] * 3, ["oui"] * 3).statistics.warnings
    assert not corpus_scores(["oui"], ["non"]).statistics.warnings


def test_empty_translations_are_told() -> None:
    warnings = statistics_warnings(corpus_scores(["", " ", "\u3000", "un"], REFERENCES))
    assert "3 of 4 translations are empty" in warnings


def test_tokenised_text_is_told_in_our_words_only(caplog: pytest.LogCaptureFixture) -> None:
    lines = [f"un chat numéro {index} dort ." for index in range(200)]
    with caplog.at_level(logging.WARNING):
        tokenised = corpus_scores(lines, lines)
        plain = corpus_scores([line.replace(" .", ".") for line in lines], [line.replace(" .", ".") for line in lines])
    assert "references" in statistics_warnings(tokenised)
    assert "tokenised" in statistics_warnings(tokenised)
    assert plain.statistics.warnings == ()
    assert not caplog.records


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the the the", True),
        ("the the", False),
        ("le chat le chat le chat dort", True),
        ("le chat le chat dort", False),
        ("a b c d a b c d a b c d", True),
        ("a b c d e a b c d e a b c d e", False),
        ("un a un b un c", False),
        ("", False),
    ],
)
def test_repetition(text: str, expected: bool) -> None:
    assert repeats(text) is expected


def test_bleu_by_length_is_that_of_the_sentences_of_a_length() -> None:
    short, long = "a b c d e", " ".join("abcdefghijklmno")
    sources = [short] * 20 + [long] * 25
    hypotheses = [short] * 20 + [long] * 24 + ["a b c d"]
    found = bleu_by_length(sources, hypotheses, sources)
    assert found == {
        "bleu_1_to_10_words": pytest.approx(100),
        "bleu_11_to_20_words": corpus_scores(hypotheses[20:], sources[20:]).bleu,
    }
    assert bleu_by_length(sources[:20], hypotheses[:20], sources[:20]) == {}, "one length is the whole"
