"""The scripts from end to end, on something tiny: what they print and what their JSON holds."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bench_corpus
import bench_decode
import bench_serve
import bench_train
from benchmarking import serving
from benchmarking.measuring import MatrixProduct
from nmt.decoding.translator import TextTranslator, Translator
from nmt.errors import RequestError

PROMISED = {"target_tokens_per_s", "fraction_of_peak", "peak_rss_mb", "padding_share"}


@pytest.fixture(autouse=True)
def _small_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MatrixProduct, "SIZE", {"cpu": 32})


def test_training(tiny: Callable[[str], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = [*tiny("luong"), "data.max_train_pairs=40", "batch.tokens=60"]
    options = ["--steps", "1", "--rounds", "2", "--threads", "1", "--json", str(tmp_path / "f.json")]
    bench_train.main([*overrides, *options, "--against", "model.input_feeding=false", "--step-by-step"])
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "f.json").read_text("utf-8"))
    assert json.loads(printed.splitlines()[-1]) == found
    records = [found, *found["against"]]
    names = [" ".join(overrides), " ".join([*overrides, "model.input_feeding=false"])]
    assert [one["configuration"] for one in records] == names + [f"{name}, step by step" for name in names]
    for one in records:
        assert all(one[key] > 0 for key in PROMISED)
        assert one["threads"] == 1
        assert one["tokens_a_round"] == found["tokens_a_round"]
        assert len(one["target_tokens_per_s_rounds"]) == len(one["fraction_of_peak_rounds"]) == 2
        assert sum(one["share_by_part"].values()) == pytest.approx(1)
    for one in found["against"]:
        assert one["ratio"] == found["target_tokens_per_s"] / one["target_tokens_per_s"]
        assert f"{one['ratio']:.2f}" in printed
    assert found["operations_per_token"] > found["against"][0]["operations_per_token"]
    for part in ("attention", "recurrence", "projection and loss", "dropout", "optimizer", "data"):
        assert f"\n  {part} " in printed


def test_preparing_a_corpus(tiny: Callable[[str], list[str]], tmp_path: Path) -> None:
    model = [override for override in tiny("lstm") if not override.startswith(("data", "tokenizer"))]
    options = ["--steps", "1", "--folder", str(tmp_path), "--json", str(tmp_path / "f.json")]
    bench_corpus.main(["300", *model, "tokenizer.vocab_size=200", *options])
    found = json.loads((tmp_path / "f.json").read_text("utf-8"))
    steps = ["read", "filter", "train the tokenizer", "encode", "plan an epoch", "train"]
    assert list(found["phases"]) == steps
    assert all(phase["peak_mb"] > phase["peak_anonymous_mb"] > 0 for phase in found["phases"].values())
    assert found["peak_rss_mb"] == max(phase["peak_mb"] for phase in found["phases"].values())
    assert 250 < found["prepared"]["kept"] < 300, "some pairs are spoilt"


def test_what_is_wrong_is_said_before_anything_is_built(tiny: Callable[[str], list[str]]) -> None:
    for options in (["model=loung"], [*tiny("lstm"), "--against", "batch.tokes=3"], ["--steps", "0"]):
        with pytest.raises(RequestError, match=r"luong|batch\.tokens|whole number above 0"):
            bench_train.main(options)


def decoded(run: Path, *options: str) -> dict[str, Any]:
    small = ["--beams", "5,1", "--batch-tokens", "64,512", "--sentences", "6", "--latency-sentences", "2"]
    record = run.parent / "record.json"
    bench_decode.main([str(run), *small, "--rounds", "2", "--json", str(record), *options])
    found: dict[str, Any] = json.loads(record.read_text("utf-8"))
    return found


def test_decoding(run_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = decoded(run_copy)
    printed = capsys.readouterr().out
    assert json.loads(printed.splitlines()[-1]) == found
    assert (found["set"], found["sentences"], found["model"]) == ("test", 6, "bahdanau")
    assert found["beam_size"] == 5
    settings = [(one["beam_size"], one["batch_tokens"]) for one in found["settings"]]
    assert settings == [(1, 64), (1, 512), (5, 64), (5, 512)]
    wide = [one for one in found["settings"] if one["beam_size"] == 5]
    assert found["target_tokens_per_s"] == max(one["target_tokens_per_s"] for one in wide)
    for one in found["settings"]:
        assert len(one["sentences_per_s_rounds"]) == 2
        assert one["peak_rss_mb"] > 0
        rate = one["target_tokens_per_s"] / one["sentences_per_s"]
        assert rate == pytest.approx(one["target_tokens"] / 6)
    assert wide[0]["target_tokens"] == wide[1]["target_tokens"], "a translation does not depend on its batch"
    assert [one["beam_size"] for one in found["latencies"]] == [1, 5]
    assert found["latency_ms"] == found["latencies"][1]["latency_ms"] <= found["latency_ms_p90"]


def test_decoding_a_file_with_two_runs(run_copy: Path, tmp_path: Path) -> None:
    older = run_copy / "checkpoints" / "step_00000050"
    (tmp_path / "texte.en").write_text("The cat sees a horse.\n\nThe dog likes the sea.\n", encoding="utf-8")
    found = decoded(run_copy, "--against", str(older), "--input", str(tmp_path / "texte.en"))
    assert (found["set"], found["sentences"]) == ("texte.en", 2), "a blank line is nothing to translate"
    assert [one["run"] for one in found["latencies"]] == [str(run_copy)] * 2 + [str(older)] * 2
    assert found["run"] == str(run_copy)
    for first, other in zip(found["settings"][:4], found["settings"][4:], strict=True):
        assert first["ratio"] == 1
        assert other["ratio"] == first["sentences_per_s"] / other["sentences_per_s"]


def test_decoding_with_what_is_no_run(run_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an export is: it searches by itself and has neither configuration nor test sets."""
    run = Translator.load(run_copy)

    class Export(TextTranslator):
        def search_ids(self, *arguments: Any, **named: Any) -> Any:
            return run.search_ids(*arguments, **named)

    monkeypatch.setattr(bench_decode, "load_translator", lambda _: Export(run.tokenizer, run.search))
    (tmp_path / "text.en").write_text("The cat sees a horse.\n", encoding="utf-8")
    found = decoded(tmp_path / "export", "--input", str(tmp_path / "text.en"))
    assert (found["model"], found["sentences"]) == (None, 1)
    with pytest.raises(RequestError, match="export: an export knows no test sets; give --input, or the run first"):
        decoded(tmp_path / "export")


def test_a_set_that_is_not_there(run_copy: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="--set tset: there is no such set; there are: test"):
        decoded(run_copy, "--set", "tset")
    (tmp_path / "blank.en").write_text("\n \n", encoding="utf-8")
    with pytest.raises(RequestError, match=r"blank\.en: nothing to translate"):
        decoded(run_copy, "--input", str(tmp_path / "blank.en"))


def test_without_a_gpu_its_script_says_so(tmp_path: Path) -> None:
    script = Path(bench_train.__file__).with_name("bench_gpu.sh")
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "NMT_PYTHON": sys.executable}
    done = subprocess.run(["bash", script, tmp_path / "gpu.json"], env=hidden, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("bench_gpu.sh: no GPU: PyTorch ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "gpu.json").exists()


def test_serving(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fastapi", reason="the optional package FastAPI is not installed")
    monkeypatch.setattr(serving, "UNUSUAL", ("no JSON", "huge", "no HTTP"))
    monkeypatch.setattr(serving, "EVERY", 2)
    monkeypatch.setattr(bench_serve, "WARM_UP", 0.1)
    file = tmp_path / "in.txt"
    file.write_text("The cat sees a horse.\n\nA girl likes the sea.\n", "utf-8")
    options = ["--clients", "3", "--seconds", "1", "--input", str(file), "--json", str(tmp_path / "f.json")]
    bench_serve.main([str(trained_run), *options])
    found = json.loads((tmp_path / "f.json").read_text("utf-8"))
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == found
    assert (found["dropped"], found["model"]) == (0, "bahdanau")
    assert found["requests"] == sum(sum(counts.values()) for counts in found["answers"].values())
    for kind in (serving.GOOD, *serving.UNUSUAL):
        assert found["answers"][kind].keys() == {str(serving.EXPECTED[kind])}
    assert found["latency_ms_p50"] <= found["latency_ms_p99"]


def test_a_server_that_leaves_requests_unanswered_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that answers the first request and hangs up at the second, in the midst of its answer."""
    monkeypatch.setattr(serving, "EVERY", 10**9)

    async def run() -> serving.Tally:
        count = 0

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal count
            count += 1
            await reader.readuntil(b"}")
            body = json.dumps({"translatedText": str(count)}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body))
            writer.write(body if count != 2 else body[:-1])
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            return await serving.load(serving.Target(host, port, ["a"], ("en", "fr")), 1, 1.0)

    tally = asyncio.run(run())
    assert tally.dropped == ["good: IncompleteReadError"]
    assert tally.different == tally.statuses[serving.GOOD, 200] - 1 > 0
