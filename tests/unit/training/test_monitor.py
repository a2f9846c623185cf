"""The record of a run through crashes and resumptions, what the terminal shows, and what TensorBoard gets."""

from __future__ import annotations

import io
import json
import math
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nmt.errors import WorkError
from nmt.evaluation.alignment import Alignment
from nmt.training.board import LAYOUT, LENGTHS
from nmt.training.monitor import Monitor, Sample, budget_progress, flatten, read_metrics
from recording import train


def lines(run_dir: Path) -> list[dict[str, Any]]:
    """Every line of the record, each of which has to be whole."""
    text = (run_dir / "metrics.jsonl").read_text(encoding="utf-8")
    assert text == "" or text.endswith("\n")
    return [
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        for line in text.split("\n")[:-1]
    ]


def test_each_record_is_one_complete_line_at_once(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, stream=io.StringIO())
    monitor.training(50, 0.25, 12.3456, 9000, {"loss": torch.tensor(2.5), "lr": np.float32(0.5), "skipped": 3})
    assert lines(tmp_path) == [
        {"step": 50, "epoch": 0.25, "seconds": 12.346, "tokens": 9000, "loss": 2.5, "lr": 0.5, "skipped": 3}
    ]
    monitor.validation(50, 0.25, 20.0, 9000, {"loss": 2.0, "bleu": 31.5})
    assert lines(tmp_path)[1] == {
        "step": 50, "epoch": 0.25, "seconds": 20.0, "tokens": 9000, "valid_loss": 2.0, "valid_bleu": 31.5,
    }  # fmt: skip
    monitor.close()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, torch.tensor(math.nan), None])
def test_what_is_no_finite_number_is_null(tmp_path: Path, value: Any) -> None:
    with Monitor(tmp_path, stream=io.StringIO()) as monitor:
        monitor.training(1, 0, 1, 1, {"loss": value})
        monitor.validation(1, 0, 1, 1, {"bleu": value})
    assert lines(tmp_path)[0]["loss"] is None
    assert lines(tmp_path)[1]["valid_bleu"] is None


def test_speed_is_measured_between_records_where_the_trainer_gives_none(tmp_path: Path) -> None:
    with Monitor(tmp_path, stream=io.StringIO()) as monitor:
        monitor.training(1, 0, 10.0, 1000, {})
        monitor.training(2, 0, 14.0, 3000, {})
        monitor.training(3, 0, 15.0, 4000, {"target_tokens_per_s": 7.0})
    assert [record.get("target_tokens_per_s") for record in lines(tmp_path)] == [None, 500.0, 7.0]


def test_a_resumed_run_leaves_the_record_of_an_uninterrupted_one(tmp_path: Path) -> None:
    with Monitor(tmp_path / "whole", stream=io.StringIO()) as monitor:
        train(monitor, 1, 12, validate_at=6)
    with Monitor(tmp_path / "resumed", stream=io.StringIO()) as monitor:
        train(monitor, 1, 9, validate_at=6)
    with open(tmp_path / "resumed" / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 10, "loss": 4.')
    with Monitor(tmp_path / "resumed", resumed_step=7, stream=io.StringIO()) as monitor:
        assert [record["step"] for record in lines(tmp_path / "resumed")] == [1, 2, 3, 4, 5, 6, 6, 7]
        train(monitor, 8, 12)
    whole, resumed = lines(tmp_path / "whole"), lines(tmp_path / "resumed")
    for record in (*whole, *resumed):
        record.pop("target_tokens_per_s", None)
    assert resumed == whole


def test_a_cut_last_line_alone_is_mended(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes('{"step": 1}\n{"step": 2, "é": 1}\n{"step": 3, "é'.encode()[:-1])
    Monitor(tmp_path, resumed_step=5, stream=io.StringIO()).close()
    assert lines(tmp_path) == [{"step": 1}, {"step": 2, "é": 1}]


def test_an_untouched_record_is_not_rewritten(tmp_path: Path) -> None:
    with Monitor(tmp_path, stream=io.StringIO()) as monitor:
        train(monitor, 1, 3)
    before = (tmp_path / "metrics.jsonl").stat().st_ino
    Monitor(tmp_path, resumed_step=3, stream=io.StringIO()).close()
    assert (tmp_path / "metrics.jsonl").stat().st_ino == before


def test_a_new_run_starts_a_new_record(tmp_path: Path) -> None:
    with Monitor(tmp_path, stream=io.StringIO()) as monitor:
        train(monitor, 0, 3)
    Monitor(tmp_path, stream=io.StringIO()).close()
    assert lines(tmp_path) == []


def test_a_killed_run_leaves_a_readable_record(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from nmt.training.monitor import Monitor\n"
        "monitor = Monitor(Path(sys.argv[1]))\n"
        "for step in range(1, 10**6): monitor.training(step, 0, step, step, {'loss': 1.0})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stderr=subprocess.DEVNULL)
    path = tmp_path / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size > 20_000) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    steps = [record["step"] for record in lines(tmp_path)]
    assert len(steps) > 100
    assert steps == list(range(1, len(steps) + 1))


def test_read_metrics_passes_over_what_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b'{"step": 1}\n\xff\n\n{"step": 2}\n{"st')
    assert read_metrics(tmp_path / "m") == [{"step": 1}, {"step": 2}]
    assert read_metrics(tmp_path / "missing") == []


@pytest.mark.case
@pytest.mark.parametrize(
    "line",
    [
        '[{"step": 1}]',
        "1",
        '{"loss": 2.0}',
        '{"step": "1"}',
        '{"step": null}',
        '{"step": 1, "seconds": null}',
        '{"step": 1, "valid_bleu": "high"}',
        '{"step": 1, "loss": [2.0]}',
        '{"step": 1, "loss": {}}',
    ],
)
def test_a_record_of_another_shape_is_named_and_nothing_is_removed(line: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1, "loss": null}}\n{line}\n')
    before = path.read_bytes()
    with pytest.raises(WorkError, match=rf"^{re.escape(str(path))} line 2: not a record that nmt writes"):
        Monitor(tmp_path, resumed_step=9, stream=io.StringIO())
    assert path.read_bytes() == before


def test_an_unwritable_record_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkError, match="cannot write"):
        Monitor(tmp_path / "file", stream=io.StringIO())
    (tmp_path / "run" / "metrics.jsonl").mkdir(parents=True)
    with pytest.raises(WorkError, match=r"metrics\.jsonl: Is a directory"):
        Monitor(tmp_path / "run", stream=io.StringIO())


def limited(program: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program that can write 4,000 bytes to a file and no more, as on a disk that is full."""
    opening = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from nmt.errors import WorkError; from nmt.training.monitor import Monitor\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n"
    )
    command = [sys.executable, "-c", opening + program, str(tmp_path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_full_disk_is_said_in_one_line_and_mended_later(tmp_path: Path) -> None:
    done = limited(
        "try:\n"
        "    with Monitor(Path(sys.argv[1])) as monitor:\n"
        "        for step in range(1000): monitor.training(step, 0, step, step, {})\n"
        "except WorkError as error: print(error)\n",
        tmp_path,
    )
    assert done.stdout == f"cannot write {tmp_path / 'metrics.jsonl'}: File too large\n"
    assert "Traceback" not in done.stderr
    assert (tmp_path / "metrics.jsonl").stat().st_size == 4000
    Monitor(tmp_path, resumed_step=1000, stream=io.StringIO()).close()
    steps = [record["step"] for record in lines(tmp_path)]
    assert steps == list(range(len(steps)))
    assert len(steps) > 30


def test_a_run_goes_on_without_tensorboard(tmp_path: Path) -> None:
    done = limited(
        "with Monitor(Path(sys.argv[1])) as monitor:\n"
        "    monitor.configuration('x' * 5000)\n"
        "    for step in range(3): monitor.validation(step, 0, step, step, {'bleu': 1.0})\n",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert [record["step"] for record in lines(tmp_path)] == [0, 1, 2]
    assert done.stderr.count("warning: TensorBoard's files end here: File too large\n") == 1


@pytest.mark.parametrize(
    ("counts", "limits", "expected"),
    [
        ((300, 1.5, 6.0), (8000, None, 20.0), (0.3, "6.0/20 min")),
        ((6000, 1.5, 6.0), (8000, None, 20.0), (0.75, "step 6000/8000")),
        ((6000, 1.5, 6.0), (None, 2, None), (0.75, "epoch 1.50/2")),
        ((9000, 0, 0), (8000, None, None), (1.0, "step 9000/8000")),
        ((5, 0, 0), (None, None, None), (None, "step 5")),
    ],
)
def test_budget_is_what_ends_first(counts: tuple[Any, ...], limits: tuple[Any, ...], expected: Any) -> None:
    assert budget_progress(*counts, *limits) == expected


# TensorBoard -----------------------------------------------------------------------------------------------------


def board(run_dir: Path) -> EventAccumulator:
    """What TensorBoard would read."""
    accumulator = EventAccumulator(str(run_dir / "tensorboard"), size_guidance={"tensors": 0, "scalars": 0})
    accumulator.Reload()
    return accumulator


def test_tensorboard_gets_curves_samples_pictures_configuration_and_scores(tmp_path: Path) -> None:
    with Monitor(tmp_path, stream=io.StringIO()) as monitor:
        monitor.configuration("model:\n  family: lstm")
        monitor.training(10, 1, 1, 1, {"steps": 10, "loss": 2.5, "gradient_norm": math.nan})
        alignment = Alignment(["a", "b"], ["x"], np.array([[0.5, 0.5]]))
        sample = Sample("*a* <b>", "l'été", "")
        monitor.validation(
            10,
            1,
            1,
            1,
            {"bleu": 31.0, "bleu_over_20_words": 9.0},
            [sample],
            [alignment, Alignment([], [], np.zeros((0, 0)))],
        )
        scores = {"bleu": 40.0, "bleu_signature": "nrefs:1", "literature_bleu": None, "sentences": 9}
        config = {
            "model": {"family": "lstm", "name": "deep", "layers": 2},
            "data": {"name": "captions", "dir": "nowhere"},
            "trainer": {"max_steps": None},
        }
        monitor.results({"sets": {"test": scores}, "provenance": {"parameters": 7, "seed": 1}}, config, 10)
    seen = board(tmp_path)
    assert {tag: [(e.step, e.value) for e in seen.Scalars(tag)] for tag in seen.Tags()["scalars"]} == {
        "train/loss": [(10, 2.5)],
        "valid/bleu": [(10, 31.0)],
        "valid_by_length/bleu_over_20_words": [(10, 9.0)],
        "cost/parameters": [(10, 7.0)],
        "test/test/bleu": [(10, 40.0)],
    }
    assert seen.Tags()["images"] == ["alignment/1"]
    sample_text = seen.Tensors("sample/1/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "**source**: &#42;a&#42; &#60;b&#62;\n\n**hypothesis**: l'été" in sample_text
    config_text = seen.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()
    assert config_text == "    model:\n      family: lstm"
    hparams = seen.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    for part in (b"model.family", b"lstm", b"deep", b"model.layers", b"captions", b"trainer.max_steps"):
        assert part in hparams
    assert b"nowhere" not in hparams
    assert b"test/test/bleu" in seen.SummaryMetadata("_hparams_/experiment").plugin_data.content


def test_what_is_to_be_seen_first_are_curves_that_there_are(trained_run: Path) -> None:
    """Of a real run: the page at a glance names no curve that training does not draw."""
    drawn = [tag for tag in board(trained_run).Tags()["scalars"] if not tag.startswith(("test/", "cost/"))]
    [charts] = LAYOUT.values()
    named = [tag for _, tags in charts.values() for tag in tags if LENGTHS not in tag]  # its sentences are all short
    assert set(named) <= set(drawn)
    assert [tag for tag in drawn if not any(re.match(name, tag) for name in named)] == [
        *("train/accuracy", "valid/length_ratio", "valid/seconds")
    ]
    metadata = board(trained_run).SummaryMetadata("custom_scalars__config__")
    assert metadata.plugin_data.plugin_name == "custom_scalars"


def test_tensorboard_forgets_the_steps_that_are_taken_again(tmp_path: Path) -> None:
    with Monitor(tmp_path, stream=io.StringIO()) as monitor:
        train(monitor, 1, 9)
    time.sleep(1.1)  # TensorBoard reads the files in the order of the second in which they were opened
    with Monitor(tmp_path, resumed_step=5, stream=io.StringIO()) as monitor:
        train(monitor, 6, 8)
    assert [event.step for event in board(tmp_path).Scalars("train/loss")] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_the_constructor_imports_no_tensorboard_and_using_it_warns_of_nothing(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from nmt.training.monitor import *\n"
        "monitor = Monitor(Path(sys.argv[1]))\n"
        "assert 'torch' not in sys.modules and 'tensorboard' not in sys.modules\n"
        "monitor.training(1, 0, 0, 0, {'loss': 1})\n"
        "monitor.close()\n"
    )
    done = subprocess.run([sys.executable, "-W", "always", "-c", program, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr == "step 1  epoch 0.00  loss 1.0000\n"


def test_configuration_is_flattened_to_what_can_be_sorted() -> None:
    tree = {"a": {"b": 1, "c": {"d": True}}, "e": None, "f": ["x", 1], "g": 0.5}
    assert flatten(tree) == {"a.b": 1, "a.c.d": True, "e": "null", "f": "['x', 1]", "g": 0.5}
