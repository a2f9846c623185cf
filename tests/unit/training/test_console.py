"""What the terminal shows: plain lines or a bar, of whole parts, whatever its width, and nothing that ends a run."""

from __future__ import annotations

import io
import os
import pty
import re
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmt.training.monitor import Monitor, Sample, read_metrics
from recording import train

ESCAPES = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


def test_plain_lines_say_what_happens_without_control_characters(tmp_path: Path) -> None:
    stream = io.StringIO()
    with Monitor(tmp_path, stream=stream) as monitor:
        monitor.message("1,900,000 parameters")
        train(monitor, 4, 5, validate_at=5)
        sample = Sample("un\x1b[31m \r\n chat", "le chat\u2028", "été")
        monitor.validation(6, 1, 1, 1, {"bleu": 12.0}, [sample], warnings=["3 of 4 translations are empty"])
        monitor.results({"sets": {"test": {"bleu": 31.25, "chrf": 55.5, "literature_bleu": None}}}, {}, 6)
    shown = stream.getvalue().split("\n")
    assert not ESCAPES.search(stream.getvalue())
    assert shown[0] == "1,900,000 parameters"
    assert shown[1].startswith("step 4  epoch 1.00  loss 4.6000")
    assert "20.0% of the budget" in shown[1]
    assert "2 min 40 s left" in shown[1]  # 40 s for a fifth
    assert "100 tokens/s" in shown[2]
    assert shown[3] == "step 5  validation  BLEU 15.00  the best so far"
    assert shown[4] == "step 6  validation  BLEU 12.00  best BLEU 15.00 at step 5"
    assert "warning: 3 of 4 translations are empty" in shown
    assert r"  source      un\x1b[31m \r\n chat" in shown
    assert "  reference   été" in shown
    assert shown[-2:] == ["test  BLEU 31.25  chrF 55.50", ""]


def test_the_best_score_survives_a_resumption(tmp_path: Path) -> None:
    with Monitor(tmp_path, stream=io.StringIO()) as monitor:
        train(monitor, 1, 5, validate_at=3)
        train(monitor, 6, 9, validate_at=8)
    stream = io.StringIO()
    with Monitor(tmp_path, resumed_step=7, stream=stream) as monitor:
        monitor.validation(9, 0, 0, 0, {"bleu": 12.5})
    assert "best BLEU 13.00 at step 3" in stream.getvalue()


def test_a_stream_without_accents_escapes_them(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with Monitor(tmp_path, stream=io.TextIOWrapper(buffer, encoding="ascii", write_through=True)) as monitor:
        monitor.message("été")
    assert buffer.getvalue() == rb"\xe9t\xe9" + b"\n"


def test_a_stream_that_goes_away_does_not_end_the_run(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as stream, Monitor(tmp_path, stream=stream) as monitor:
        train(monitor, 1, 3, validate_at=2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # so that closing it does not fail
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 4


class Terminal:
    """A pseudo-terminal: `stream` is what a program writes to, `shown()` what arrives on the other side."""

    def __init__(self, columns: int) -> None:
        self.columns = columns or 80
        self._master, slave = pty.openpty()
        if columns:
            termios.tcsetwinsize(slave, (24, columns))
        self.stream = os.fdopen(slave, "w", encoding="utf-8")

    def shown(self) -> str:
        os.set_blocking(self._master, False)
        data = b""
        try:
            while chunk := os.read(self._master, 65536):
                data += chunk
        except BlockingIOError:
            pass
        return data.decode()

    def close(self) -> None:
        self.stream.close()
        os.close(self._master)


@pytest.fixture(params=[0, 80, 130], ids="{} columns".format)
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    """Terminals, one of which does not know its size, as in a container."""
    made = Terminal(request.param)
    yield made
    made.close()


def test_a_terminal_shows_a_bar_with_everything_that_matters(tmp_path: Path, terminal: Terminal) -> None:
    with Monitor(tmp_path, stream=terminal.stream) as monitor:
        train(monitor, 1, 6, validate_at=5)
        drawn = re.split(r"[\r\n]+", terminal.shown())
    assert "step 5  validation  BLEU 15.00  the best so far" in drawn
    last = drawn[-1]
    for part in ("30%", "step 6/20", "2 min 20 s left", "loss 4.4000", "BLEU 15.00, best 15.00"):
        assert part in last
    assert all(len(line) <= terminal.columns for line in drawn)


MEASURED = {"bleu": 31.2, "chrf": 50.12, "loss": 2.34567, "perplexity": 10.4401, "length_ratio": 0.98765, "seconds": 12}
SENTENCE = "A man in a blue shirt is standing on a ladder cleaning a window, and the word antidisestablishmentarianism."


@pytest.mark.case
def test_nothing_is_cut_and_nothing_wraps(tmp_path: Path, terminal: Terminal) -> None:
    """No line is wider than the terminal, and each is made of whole parts; where there is room, all are on one."""
    wide = terminal.columns > 100
    with Monitor(tmp_path, stream=terminal.stream) as monitor:
        metrics = {"loss": 2.3456, "target_tokens_per_s": 12_345.0}
        monitor.validation(500, 1.5, 99_000.0, 10**9, MEASURED, [Sample(SENTENCE, SENTENCE, "été")])
        monitor.training(1_234_567, 20.57, 100_000.0, 10**9, metrics, 0.125, "step 1234567/9876543")
        drawn = [line for line in re.split(r"[\r\n]+", terminal.shown()) if line.strip()]
    assert all(len(line) <= terminal.columns for line in drawn)
    source, hypothesis = (next(i for i, line in enumerate(drawn) if name in line) for name in ("source", "hypothesis"))
    assert "  ".join(line.strip() for line in drawn[:source]).split("  ") == [
        *("step 500", "validation", "BLEU 31.20", "chrF 50.12", "loss 2.3457", "perplexity 10.44"),
        *("length ratio 0.9877", "seconds 12.0", "the best so far"),
    ]
    assert " ".join(line[14:] for line in drawn[source:hypothesis]) == SENTENCE
    assert all(line.startswith(" " * 14) for line in drawn[source + 1 : hypothesis])
    assert (source == 1) == wide
    bar, _, text = drawn[-1].rpartition("| ")
    assert bar.startswith(" 12%|")
    parts = ["step 1234567/9876543", "194 h 26 min left", "loss 2.3456", "BLEU 31.20", "best 31.20", "12,345 tokens/s"]
    assert text == ", ".join(parts if wide else parts[:4])


def test_messages_stand_above_the_bar(tmp_path: Path, terminal: Terminal) -> None:
    with Monitor(tmp_path, stream=terminal.stream) as monitor:
        train(monitor, 1, 2)
        terminal.shown()
        monitor.message("hello")
        after = terminal.shown()
    # The bar is wiped, the message has a line of its own, and the bar is drawn again.
    assert re.fullmatch(r"\r +\rhello\r\n\r *10%\|.*", after)


def test_the_cursor_ends_below_the_bar(tmp_path: Path, terminal: Terminal) -> None:
    with Monitor(tmp_path, stream=terminal.stream) as monitor:
        train(monitor, 1, 20)
        monitor.close()
        shown = terminal.shown()
    assert shown.endswith("\n")
    assert "100%" in shown


def test_a_run_without_budget_shows_its_step(tmp_path: Path, terminal: Terminal) -> None:
    with Monitor(tmp_path, stream=terminal.stream) as monitor:
        monitor.training(7, 0, 1, 1, {"loss": 2.0})
        assert "step 7, loss 2.0000" in terminal.shown()


def test_the_bar_moves_between_records_a_few_times_a_second(tmp_path: Path) -> None:
    terminal = Terminal(80)
    with Monitor(tmp_path, stream=terminal.stream) as monitor:
        for step in range(1000):
            monitor.advance(step, step / 100, step / 1000, f"step {step}/1000")
        drawings = terminal.shown().count("step ")
    terminal.close()
    assert 1 <= drawings < 50
    assert read_metrics(tmp_path / "metrics.jsonl") == []
