"""Rows, marks and differences of runs that are copies of one trained run with other seeds, settings and weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nmt.config import SearchConfig, TrainConfig, TransformerConfig
from nmt.decoding.translator import Translator
from nmt.errors import RequestError, WorkError
from nmt.evaluation import measure
from nmt.evaluation.compare import Comparison, Row, compare_runs
from nmt.evaluation.metrics import corpus_scores
from nmt.evaluation.reuse import translation_key
from nmt.evaluation.runs import read_runs

Copy = Callable[..., Path]


def quiet(line: str) -> None:
    pass


def row_of(comparison: Comparison, label: str) -> Row:
    return next(row for row in comparison.rows if row.label == label)


def test_rows_stand_in_the_order_of_their_first_runs(comparison: Comparison) -> None:
    assert [row.label for row in comparison.rows] == ["ours", "greedy", "<b>damaged"]
    assert [len(row.runs) for row in comparison.rows] == [3, 1, 1]
    assert [row.status for row in comparison.rows] == ["finished", "finished", "failed"]
    assert comparison.baseline.label == "greedy"


def test_seeds_are_one_row_with_mean_and_spread(comparison: Comparison) -> None:
    row = row_of(comparison, "ours")
    assert row.bleu is not None
    single = [corpus_scores(m.hypotheses, m.test.references).bleu for m in row.measurements]
    assert row.bleu.per_training == pytest.approx(single)
    assert single[0] == single[2] != single[1]
    assert row.bleu.value == pytest.approx(np.mean(single))
    assert row.bleu.deviation == pytest.approx(np.std(single, ddof=1))


def test_differences_are_to_the_baseline(comparison: Comparison) -> None:
    ours, greedy = row_of(comparison, "ours"), comparison.baseline
    assert ours.bleu and greedy.bleu and ours.chrf and greedy.chrf
    assert ours.bleu.difference == pytest.approx(ours.bleu.value - greedy.bleu.value)
    assert ours.chrf.difference == pytest.approx(ours.chrf.value - greedy.chrf.value)
    assert ours.bleu.p is not None and 1 / 1001 <= ours.bleu.p <= 1
    assert greedy.bleu.difference is None and greedy.bleu.p is None


def test_a_damaged_run_is_a_row_that_says_why(comparison: Comparison) -> None:
    row = row_of(comparison, "<b>damaged")
    assert row.bleu is None and row.measurements == []
    [mark] = row.marks
    assert mark.kind == "failed"
    assert "model.safetensors is damaged: its checksum is not the one in meta.json" in mark.sentence
    assert len(comparison.complaints) == 1


def test_another_search_is_marked_and_compared(comparison: Comparison) -> None:
    [mark] = row_of(comparison, "ours").marks
    assert mark.sentence == "another search: search.beam_size=5 (baseline 1)"


def test_each_bucket_is_scored_on_its_sentences_alone(comparison: Comparison) -> None:
    row = comparison.baseline
    [found] = row.measurements
    assert sum(len(bucket.indices) for bucket in comparison.buckets) == len(found.test.sources)
    for bucket, score in zip(comparison.buckets, row.by_length, strict=True):
        hypotheses = [found.hypotheses[i] for i in bucket.indices]
        references = [found.test.references[i] for i in bucket.indices]
        assert score is not None
        assert score.value == pytest.approx(corpus_scores(hypotheses, references).bleu)


def test_examples_are_where_the_first_training_and_the_baseline_differ_most(comparison: Comparison) -> None:
    examples = row_of(comparison, "ours").examples
    gains = [example.chrf - example.baseline_chrf for example in examples]
    better = [gain for gain in gains if gain > 0]
    assert better and better == sorted(better, reverse=True)
    assert gains == better + sorted(gain for gain in gains if gain < 0)
    for example in examples:
        assert example.source == comparison.test.sources[example.number - 1]
        assert example.hypothesis != example.baseline


def test_pictures_are_of_the_same_sentences_for_every_run(comparison: Comparison) -> None:
    pictured = comparison.test.pictured
    assert len(set(pictured)) == 3
    for row in comparison.rows[:2]:
        for found in row.measurements:
            assert list(found.alignments) == pictured
            for number, alignment in found.alignments.items():
                assert alignment.source_tokens == found.test.sources[number].split()
                assert alignment.target_tokens == found.hypotheses[number].split()


def test_another_test_set_has_no_difference(copy_run: Copy, corpus_folder: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(corpus_folder, tmp_path / "other"))
    lines = (other / "test.fr").read_text().splitlines()
    (other / "test.fr").write_text("".join(f"{line}\n" for line in ["Un oiseau.", *lines[1:]]))
    runs = [copy_run("same"), copy_run("moved", {"data.dir": str(other)})]
    comparison = compare_runs(runs, quiet)
    same, moved = comparison.rows
    assert not moved.comparable and moved.bleu is not None and moved.bleu.difference is None and moved.bleu.p is None
    assert moved.by_length == [] and moved.examples == []
    assert moved.marks[0].kind == "test set"
    assert moved.marks[0].sentence.startswith("not comparable: another reference text of test (24 sentences of")
    assert same.bleu is not None and moved.bleu.value != same.bleu.value
    assert comparison.complaints == []


def test_a_run_before_the_end_of_its_budget_is_a_row_of_its_own(copy_run: Copy) -> None:
    longer = {"trainer.max_steps": 500}
    comparison = compare_runs([copy_run("u1", longer), copy_run("u2", {**longer, "trainer.seed": 2})], quiet)
    assert [row.status for row in comparison.rows] == ["unfinished"] * 2
    assert comparison.rows[0].marks[0].sentence == "did not use up its budget: step 200/500"
    assert [line.split(" is ")[1] for line in comparison.complaints] == ["unfinished: step 200/500"] * 2
    assert comparison.rows[1].bleu is not None and comparison.rows[1].bleu.p == 1.0


def test_a_copy_is_no_further_training(copy_run: Copy) -> None:
    """It would count as a second seed, and halve the variance of what was trained once."""
    runs = [copy_run("once"), copy_run("copied"), copy_run("seed-2", {"trainer.seed": 2})]
    rows = compare_runs(runs, quiet).rows
    assert [[run.path.name for run in row.runs] for row in rows] == [["once", "seed-2"], ["copied"]]
    assert rows[1].bleu is not None and rows[1].bleu.deviation is None


def test_checkpoints_of_one_training_are_rows_and_an_early_one_is_marked(copy_run: Copy) -> None:
    checkpoints = copy_run("steps") / "checkpoints"
    last, early = (checkpoints / f"step_{step:08d}" for step in (200, 150))
    rows = compare_runs([last, early], quiet).rows
    assert [row.label for row in rows] == ["steps/step_00000200", "steps/step_00000150"]
    assert rows[0].marks == []
    [mark] = rows[1].marks
    assert mark.kind == "budget"
    assert mark.sentence.endswith("step 150/200 (baseline all of its budget)")


def test_requests_that_cannot_be_met_are_refused_in_one_line(copy_run: Copy) -> None:
    runs = [copy_run("r1"), copy_run("r2")]
    with pytest.raises(RequestError, match="at least two runs"):
        compare_runs(runs[:1], quiet)
    with pytest.raises(RequestError, match=r"--baseline nowhere is none of the runs: .*r1, .*r2"):
        compare_runs(runs, quiet, baseline=Path("nowhere"))
    with pytest.raises(RequestError, match=r"--set dev: no such test set; there are: test"):
        compare_runs(runs, quiet, set_name="dev")


def test_without_a_scored_baseline_there_is_no_comparison(copy_run: Copy) -> None:
    runs = [copy_run("b1"), copy_run("b2")]
    (runs[1] / "checkpoints" / "best" / "model.safetensors").unlink()
    with pytest.raises(WorkError, match=r"the baseline can not be scored: .*b2: .*model.safetensors is missing"):
        compare_runs(runs, quiet, baseline=runs[1])
    (runs[0] / "checkpoints" / "best" / "model.safetensors").unlink()
    with pytest.raises(WorkError, match=r"none of the runs can not be scored: .*b1: .*; .*b2: "):
        compare_runs(runs, quiet)


# Reuse ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(run_copy: Path) -> tuple[Path, dict[str, Any]]:
    """A run whose results.json has the key of its translations, and those translations altered in one character that
    no score sees, so that they can be told from new ones."""
    run = read_runs([run_copy])[0]
    test = measure.TestSets(quiet).of(run, "test")
    results = json.loads((run_copy / "results.json").read_text())
    results["sets"]["test"]["translation_key"] = translation_key(Translator.load(run_copy), test.sources)
    (run_copy / "results.json").write_text(json.dumps(results))
    hypotheses = run_copy / "hypotheses" / "test.txt"
    hypotheses.write_text(hypotheses.read_text().replace(" ", "  ", 1))
    return run_copy, results


def measured(path: Path) -> measure.Measurement:
    [run] = read_runs([path])
    return measure.measure(run, measure.TestSets(quiet).of(run, "test"), quiet)


def test_translations_of_the_same_weights_search_and_text_are_kept(kept: tuple[Path, dict[str, Any]]) -> None:
    path, results = kept
    found = measured(path)
    assert found.reused
    assert "  " in found.hypotheses[0]
    assert found.tokens_per_s == results["sets"]["test"]["target_tokens_per_s"]


def _other_search(path: Path) -> None:
    config = path / "config.yaml"
    config.write_text(config.read_text().replace("beam_size: 5", "beam_size: 4"))


def _other_weights(path: Path) -> None:
    names = sorted(p.name for p in (path / "checkpoints").iterdir() if p.name.startswith("step_"))
    best = path / "checkpoints" / "best"
    other = next(name for name in names if name != best.resolve().name)
    best.unlink()
    best.symlink_to(other)


def _edited_translations(path: Path) -> None:
    file = path / "hypotheses" / "test.txt"
    file.write_text(file.read_text().replace("Le", "La"))


def _lost_translation(path: Path) -> None:
    file = path / "hypotheses" / "test.txt"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))


def _no_key(path: Path) -> None:
    results = json.loads((path / "results.json").read_text())
    del results["sets"]["test"]["translation_key"]
    (path / "results.json").write_text(json.dumps(results))


@pytest.mark.parametrize(
    "change", [_other_search, _other_weights, _edited_translations, _lost_translation, _no_key, lambda path: None]
)
def test_anything_else_is_translated_anew(kept: tuple[Path, dict[str, Any]], change: Callable[[Path], None]) -> None:
    path, _ = kept
    change(path)
    found = measured(path)
    assert found.reused == (change.__name__ == "<lambda>")
    assert ("  " in found.hypotheses[0]) == found.reused


def test_what_training_alone_reads_is_no_part_of_the_key() -> None:
    """Runs from before there were such keys keep their translations."""
    keys = []
    for dropout, kernel in ((None, "fused"), (0.0, "fused"), (0.2, "plain")):
        translator = SimpleNamespace(
            checkpoint=SimpleNamespace(meta={"sha256": {}}),
            config=SimpleNamespace(
                model=TransformerConfig("transformer", "tiny", feed_forward_dropout=dropout, attention_kernel=kernel)
            ),
            tokenizer=SimpleNamespace(identity="t"),
            search=SearchConfig(),
            device=SimpleNamespace(type="cpu"),
        )
        keys.append(translation_key(translator, ["a b"]))
    assert len(set(keys)) == 1 and keys[0]


def test_the_key_is_of_the_source_text(run_copy: Path) -> None:
    translator = Translator.load(run_copy)
    assert isinstance(translator.config, TrainConfig)
    assert translation_key(translator, ["a b"]) == translation_key(translator, ["a b"])
    assert translation_key(translator, ["a b"]) != translation_key(translator, ["a", "b"])
