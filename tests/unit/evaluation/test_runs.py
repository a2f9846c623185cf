"""What a run directory tells before its model is loaded. Checkpoints here are a meta.json: no weights are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.configuration import compose, save_config
from nmt.errors import RequestError
from nmt.evaluation.runs import config_differences, configuration_key, protocol_marks, read_runs

MakeRun = Callable[..., Path]
BASE = ["model=luong", "data=grammar", "trainer.max_steps=100"]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """make_run("name", "override", …, spent={…}, best={…}): a run directory that says so."""

    def make(
        name: str,
        *overrides: str,
        spent: dict[str, Any] | None = None,
        best: dict[str, Any] | None = None,
        records: list[dict[str, Any]] | None = None,
    ) -> Path:
        run = tmp_path / name
        save_config(compose([*BASE, *overrides, f"run.dir={run}"]), run / "config.yaml")
        usual = {"step": 100, "epoch": 1, "tokens": 5000, "seconds": 60.0, "data": {"train.en": "aa"}}
        usual["sha256"] = {"tokenizer.model": "t1", "model.safetensors": name}
        for link, changes in (("best", best), ("last", spent)):
            meta = {**usual, **(spent or {}), **(changes or {})}
            directory = run / "checkpoints" / f"step_{meta['step']:08d}"
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "meta.json").write_text(json.dumps(meta))
            (run / "checkpoints" / link).symlink_to(directory.name)
        (run / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records or []))
        return run

    return make


def test_what_is_no_run_is_said(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("a")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RequestError, match="missing: no such run directory"):
        read_runs([run, tmp_path / "missing"])
    with pytest.raises(RequestError, match=r"empty is no run: it has neither config.yaml nor checkpoints/"):
        read_runs([run, tmp_path / "empty"])
    with pytest.raises(RequestError, match=r"a/../a is given twice \(as .*a\)"):
        read_runs([run, run / ".." / "a"])


def test_two_language_pairs_are_no_comparison(make_run: MakeRun) -> None:
    other = make_run("b", "data.source_language=fr", "data.target_language=en")
    with pytest.raises(RequestError, match=r"different language pairs: .*a is en→fr, .*b is fr→en"):
        read_runs([make_run("a"), other])


@pytest.mark.parametrize(
    ("overrides", "spent", "unfinished"),
    [
        ([], {"step": 100}, ""),
        ([], {"step": 60}, "step 60/100"),
        (["trainer.max_steps=null", "trainer.max_minutes=2"], {"seconds": 120.01}, ""),
        (["trainer.max_steps=null", "trainer.max_minutes=2"], {"seconds": 90.0}, "1.5/2 min"),
        (["trainer.max_minutes=2"], {"seconds": 120.5, "step": 60}, ""),
        (["trainer.patience=3"], {"step": 60, "validations_without_gain": 3}, ""),
        (["trainer.patience=3"], {"step": 60, "validations_without_gain": 2}, "step 60/100"),
    ],
)
def test_a_run_is_finished_when_one_of_its_limits_is_reached(
    make_run: MakeRun, overrides: list[str], spent: dict[str, Any], unfinished: str
) -> None:
    """The best checkpoint is an early one: what counts is the latest."""
    [run] = read_runs([make_run("a", *overrides, spent=spent, best={"step": 20, "validations_without_gain": 0})])
    assert run.unfinished == unfinished
    assert run.failure == ""
    assert run.meta["step"] == 20


def test_epochs_are_finished_when_the_metrics_say_so(make_run: MakeRun) -> None:
    """A checkpoint counts complete epochs from 0; the metrics have the fraction, rounded."""
    overrides = ["trainer.max_steps=null", "trainer.max_epochs=2"]
    before = {"step": 50, "epoch": 1.2, "seconds": 30.0, "tokens": 2000}
    done = make_run("a", *overrides, records=[before, {**before, "step": 100, "epoch": 2.0}])
    half = make_run("b", *overrides, spent={"step": 75}, records=[before, {**before, "step": 75, "epoch": 1.5}])
    assert [run.unfinished for run in read_runs([done, half])] == ["", "epoch 1.50/2"]


def test_a_run_without_a_checkpoint_says_how_far_it_came(make_run: MakeRun, tmp_path: Path) -> None:
    for name in ("early", "late"):
        save_config(compose([*BASE]), tmp_path / name / "config.yaml")
    (tmp_path / "late" / "metrics.jsonl").write_text('{"step": 30}\n{"step": 4')
    early, late = read_runs([tmp_path / "early", tmp_path / "late"])
    assert early.failure == "no checkpoint: training ended before its first step"
    assert late.failure == "no checkpoint: training ended after step 30"


def test_a_config_of_another_version_is_a_failed_run(make_run: MakeRun) -> None:
    run = make_run("a")
    (run / "config.yaml").write_text("colour: red\n" + (run / "config.yaml").read_text())
    assert "colour: this version of nmt has no such key" in read_runs([run])[0].failure


@pytest.mark.case
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("metrics.jsonl", '[{"step": 1}]', "metrics.jsonl line 1: not a record that nmt writes"),
        ("checkpoints/best/meta.json", "[]", "meta.json is damaged: it does not say what the checkpoint holds"),
        ("checkpoints/best/meta.json", '{"step": [1]}', "meta.json is damaged: its step is not what nmt writes"),
        ("checkpoints/best/meta.json", '{"step": 1, "seconds": 2}', "meta.json is damaged: it has no tokens"),
    ],
)
def test_json_of_another_shape_is_a_failed_run_that_says_so(
    name: str, content: str, says: str, make_run: MakeRun
) -> None:
    run = make_run("a")
    (run / name).write_text(content)
    assert says in read_runs([run])[0].failure


def test_a_checkpoint_can_stand_for_a_run(make_run: MakeRun) -> None:
    """It is not unfinished, and what it cost is what it says; how far its training had come is noted."""
    records = [{"step": step, "valid_bleu": step / 10} for step in (10, 20, 100)]
    run = make_run("a", best={"step": 20, "seconds": 9.0}, records=records)
    checkpoint = run / "checkpoints" / "step_00000020"
    (checkpoint / "config.yaml").write_bytes((run / "config.yaml").read_bytes())
    [found] = read_runs([checkpoint])
    assert (found.unfinished, found.spent["seconds"], found.directory_name) == ("", 9.0, "a/step_00000020")
    assert [record["step"] for record in found.validations()] == [10, 20]
    assert found.cut_short == "step 20/100"
    (run / "metrics.jsonl").write_text("")  # which alone knows fractions of an epoch
    assert read_runs([checkpoint])[0].cut_short == ""


def test_the_last_checkpoint_is_not_cut_short(make_run: MakeRun) -> None:
    run = make_run("a", records=[{"step": 100}])
    checkpoint = run / "checkpoints" / "step_00000100"
    (checkpoint / "config.yaml").write_bytes((run / "config.yaml").read_bytes())
    assert read_runs([checkpoint])[0].cut_short == ""


def test_training_speed_leaves_validations_out(make_run: MakeRun) -> None:
    records = [{"step": 1, "target_tokens_per_s": speed} for speed in (900.0, 1000.0, 1010.0)]
    with_log, without = read_runs([make_run("a", records=records), make_run("b")])
    assert with_log.training_speed() == 1000.0
    assert without.training_speed() == 5000 / 60


def test_seeds_and_places_are_no_other_configuration(make_run: MakeRun) -> None:
    runs = read_runs(
        [
            make_run("a"),
            make_run("b", "trainer.seed=2", "run.notes=again", "data.cache=/elsewhere"),
            make_run("c", "model.dropout=0.5"),
        ]
    )
    first, seed, dropout = (configuration_key(run) for run in runs)
    assert first == seed != dropout
    assert config_differences(runs[2], runs[0]) == {"model.dropout": (0.5, runs[0].flat_config()["model.dropout"])}


@pytest.mark.parametrize(
    ("overrides", "spent", "kind", "told"),
    [
        (["tokenizer.vocab_size=99"], {}, "tokenizer", "another tokenizer: tokenizer.vocab_size=99 (baseline 4000)"),
        ([], {"sha256": {"tokenizer.model": "t2"}}, "tokenizer", "of the same settings, trained on other text"),
        (["init_from=runs/a"], {}, "start", "another start: init_from=runs/a (baseline null)"),
        (["trainer.max_steps=50"], {}, "budget", "another budget: trainer.max_steps=50 (baseline 100)"),
        (["batch.tokens=50"], {}, "budget", "another budget: batch.tokens=50 (baseline 1500)"),
        (["search.beam_size=1"], {}, "search", "another search: search.beam_size=1 (baseline 5)"),
        ([], {"data": {"train.en": "bb"}}, "data", "other training or validation data: train.en"),
        (["data.train_pairs=7"], {"data": {"train.en": "bb"}}, "data", "data.train_pairs=7 (baseline 30000)"),
        (["data.max_train_pairs=9"], {}, "data", "data.max_train_pairs=9 (baseline null)"),
    ],
)
def test_another_protocol_is_marked(
    make_run: MakeRun, overrides: list[str], spent: dict[str, Any], kind: str, told: str
) -> None:
    baseline, run = read_runs([make_run("a"), make_run("b", *overrides, spent=spent)])
    [mark] = protocol_marks(run, baseline)
    assert mark.kind == kind
    assert told in mark.sentence


def test_another_model_is_no_other_protocol(make_run: MakeRun) -> None:
    baseline, run = read_runs([make_run("a"), make_run("b", "model.dropout=0.5", "optimizer.lr=1e-4")])
    assert list(protocol_marks(run, baseline)) == []


def test_minutes_are_another_budget_on_more_threads(make_run: MakeRun) -> None:
    minutes = ["trainer.max_steps=null", "trainer.max_minutes=2", "batch.tokens=50"]
    baseline, run = read_runs([make_run("a", *minutes[:2]), make_run("b", *minutes, "trainer.threads=8")])
    [mark] = protocol_marks(run, baseline)
    assert mark.sentence == "another budget: trainer.threads=8 (baseline null)"
