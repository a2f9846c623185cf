"""`nmt export`, and `nmt translate` with what it wrote: what is refused and how, and that nothing else is different."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import nmt as library
from nmt.serving import export

Command = Callable[..., Any]

installed = pytest.mark.skipif(
    find_spec("ctranslate2") is None, reason="the optional package CTranslate2 is not installed"
)
KINDS = {
    "pre": ["model.norm=pre", "model.activation=gelu", "model.tie_embeddings=true"],
    "post": ["model.norm=post", "model.activation=relu", "model.tie_embeddings=false"],
}
LINES = [
    "The cat sees a horse.",
    "",
    "The old man waits for the red house.",
    "\u3000",
    "the\tcat ||| <s> </s> <unk> x",
    "My sister draws the summer. " * 12,
]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


@pytest.fixture(scope="module", params=KINDS)
def run(request: pytest.FixtureRequest, tiny: Callable[[str], list[str]], tmp_path_factory: Any) -> Path:
    """A Transformer that gets some words right. Not to be changed."""
    from nmt.configuration import compose
    from nmt.training.session import train

    run = tmp_path_factory.mktemp("runs") / str(request.param)
    options = ["trainer.max_steps=80", "validation.sentences=2", "~data.test.test", f"run.dir={run}"]
    train(compose([*tiny("transformer"), *KINDS[request.param], *options]))
    return run


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its export, with nothing else of the run next to it. Not to be changed."""
    return export.export_run(run, tmp_path_factory.mktemp("exports") / "ct2", None, None, lambda line: None)


@pytest.fixture
def copy(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "copy"))


@pytest.mark.case
def test_a_folder_that_cannot_be_written_is_told_before_the_work(
    nmt: Command, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def translate(*_: object) -> None:
        raise AssertionError("the work has begun")

    monkeypatch.setattr(export.Translator, "translate", translate)
    (tmp_path / "file").write_text("")
    outcome = nmt("export", run, "--output", tmp_path / "file" / "a")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err == f"nmt: error: cannot write {tmp_path / 'file' / 'a'}: Not a directory\n"


@installed
@pytest.mark.case
def test_a_link_to_an_export_stays(nmt: Command, run: Path, copy: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("copy")
    before = (copy / "model.bin").stat().st_ino
    assert nmt("export", run, "--output", tmp_path / "link").status == 0
    assert (tmp_path / "link").is_symlink()
    assert (copy / "model.bin").stat().st_ino != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "link"]


@installed
def test_what_is_told_and_where_it_goes(nmt: Command, run: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(run, tmp_path / "run", symlinks=True)
    outcome = nmt("export", copied, "--format", "ctranslate2", "--quantization", "int8")
    folder = Path(copied) / "ctranslate2-int8"
    assert (outcome.status, outcome.out) == (0, f"{folder}\n")
    first, exact, quantised = outcome.err.splitlines()
    assert first.startswith("translating 20 sentences here and with CTranslate2 ")
    assert exact == "float32: 20 of 20 translations identical"
    found = json.loads((folder / "export.json").read_bytes())["comparison"]
    assert quantised == (
        f"int8: {found['identical']} of 20 translations identical, BLEU {found['bleu']:.2f} between the two"
    )
    again = nmt("export", copied, "--output", folder)
    assert (again.status, json.loads((folder / "export.json").read_bytes())["quantization"]) == (0, "float32")


@installed
@pytest.mark.parametrize("options", [[], ["--beam-size", "1"], ["--n-best", "3"], ["--json"]], ids=" ".join)
def test_an_export_translates_as_its_run(options: list[str], nmt: Command, run: Path, exported: Path) -> None:
    ours = nmt("translate", run, *options, stdin=TEXT)
    theirs = nmt("translate", exported, *options, stdin=TEXT)
    assert (theirs.status, theirs.err) == (0, "")
    assert theirs.out.count("\n") == len(LINES)
    if options != ["--json"]:
        assert theirs == ours
        assert [theirs.out.split("\n")[i] for i in (1, 3)] == ["", ""]
        return
    for left, right in zip(theirs.out.splitlines(), ours.out.splitlines(), strict=True):
        left, right = json.loads(left), json.loads(right)
        assert left.pop("score") == pytest.approx(right.pop("score"), abs=1e-2)
        weights = [record["alignment"] and record["alignment"].pop("weights") for record in (left, right)]
        assert left == right
        if weights[0]:
            assert list(chain(*weights[0])) == pytest.approx(list(chain(*weights[1])), abs=1e-3)


@installed
def test_alignments_and_attention(nmt: Command, run: Path, exported: Path, tmp_path: Path) -> None:
    for source, name in ((run, "ours"), (exported, "theirs")):
        outcome = nmt("translate", source, "--alignments", tmp_path / name, stdin=TEXT)
        assert outcome.status == 0
    assert (tmp_path / "theirs").read_bytes() == (tmp_path / "ours").read_bytes()
    words = [nmt("attend", source, "--text", LINES[0]).out.split("\n")[0] for source in (run, exported)]
    assert words[0] == words[1] != ""
    [translation] = library.load(exported).translate([LINES[0]])
    assert translation.text == words[0]


@installed
def test_lines_of_a_file(nmt: Command, run: Path, exported: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(TEXT * 3)
    for source, name in ((run, "ours"), (exported, "theirs")):
        outcome = nmt("translate", source, "--input", tmp_path / "in", "--output", tmp_path / name)
        assert (outcome.status, outcome.out, outcome.err) == (0, "", "")
    assert (tmp_path / "theirs").read_bytes() == (tmp_path / "ours").read_bytes()


# Refusals --------------------------------------------------------------------------------------------------------


def refused(outcome: Any, status: int, words: str) -> None:
    assert (outcome.status, outcome.out) == (status, "")
    assert outcome.err.startswith("nmt: error: ")
    assert outcome.err.count("\n") == 1
    assert words in outcome.err


def test_models_that_cannot_be_exported(nmt: Command, lstm_run: Path, trained_run: Path) -> None:
    for run, family in ((lstm_run, "lstm"), (trained_run, "bahdanau")):
        outcome = nmt("export", run)
        why = "CTranslate2 has the layers of Transformers alone"
        refused(outcome, 2, f"export: model.family={family} cannot be exported: {why}; ")
        assert "what can is model.family=transformer" in outcome.err
        assert not (run / "ctranslate2").exists()


def test_no_such_option(nmt: Command, lstm_run: Path, tmp_path: Path) -> None:
    refused(
        nmt("export", lstm_run, "--quantization", "int4"), 2, "export: argument --quantization: invalid choice: 'int4'"
    )
    refused(nmt("export", lstm_run, "--format", "onnx"), 2, "export: argument --format: invalid choice: 'onnx'")
    refused(nmt("export", tmp_path / "nothing"), 2, "nothing: no such run directory")


def test_the_optional_package_is_missing(
    nmt: Command, tiny: Callable[[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nmt.configuration import compose
    from nmt.training.session import train

    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    run = tmp_path / "run"
    train(compose([*tiny("transformer"), "trainer.max_steps=1", "~data.test.test", f"run.dir={run}"]))
    refused(nmt("export", run), 2, 'pip install "ctranslate2>=')


@installed
def test_the_optional_package_is_missing_where_it_was_there(
    nmt: Command, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    refused(nmt("translate", exported, "--text", "a"), 2, 'pip install "ctranslate2>=')


@installed
def test_where_an_export_may_go(nmt: Command, run: Path, tmp_path: Path) -> None:
    checkpoint = (run / "checkpoints" / "best").resolve()
    refused(
        nmt("export", checkpoint), 2, "is no run directory, where exports go by default; name a folder with --output"
    )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    refused(nmt("export", run, "--output", tmp_path / "mine"), 2, "mine exists and is no export")
    assert (tmp_path / "mine" / "letter").read_text() == "dear"
    outcome = nmt("export", checkpoint, "--output", tmp_path / "new")
    assert (outcome.status, outcome.out) == (0, f"{tmp_path / 'new'}\n")


@installed
def test_sampling(nmt: Command, run: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(run, tmp_path / "run", symlinks=True))
    config = (copied / "config.yaml").read_text(encoding="utf-8")
    (copied / "config.yaml").write_text(config.replace("  sampling: false\n  temp", "  sampling: true\n  temp"))
    refused(nmt("export", copied), 2, "export: search.sampling=true cannot be exported")


@installed
def test_another_translation_exports_nothing(
    nmt: Command, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = export.build_spec

    def wrong(*arguments: Any) -> Any:
        spec = right(*arguments)
        spec.encoder.layer[0].self_attention.linear[0].weight.array *= 3
        return spec

    monkeypatch.setattr(export, "build_spec", wrong)
    outcome = nmt("export", run, "--output", tmp_path / "new")
    assert (outcome.status, outcome.out) == (1, "")
    assert "nmt: error: export: nothing is exported, since CTranslate2 " in outcome.err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@installed
def test_other_commands_want_the_run(nmt: Command, exported: Path) -> None:
    for verb in ("score", "export"):
        refused(nmt(verb, exported), 2, f"{exported} is an export, which only nmt translate and nmt attend read")


@installed
@pytest.mark.parametrize(
    ("name", "content", "status", "words"),
    [
        ("model.bin", b"", 1, "model.bin is damaged: its checksum is not the one in export.json"),
        ("tokenizer.model", None, 1, "tokenizer.model is missing, though export.json names it"),
        ("export.json", b"{", 1, "export.json is damaged: "),
        ("export.json", b'{"format": 9}', 2, "export.json: export format 9, this version of nmt reads format 1"),
        ("export.json", b'{"format": 1}', 1, "export.json is damaged: it does not say what the export holds"),
        (
            "export.json",
            b'{"format":1,"sha256":{},"search":{},"positions":"x"}',
            1,
            "does not say what the export holds",
        ),
    ],
)
def test_damage(name: str, content: bytes | None, status: int, words: str, nmt: Command, copy: Path) -> None:
    (copy / name).unlink()
    if content is not None:
        (copy / name).write_bytes(content)
    refused(nmt("translate", copy, "--text", "a"), status, words)


@installed
def test_search_settings_that_are_wrong(nmt: Command, copy: Path) -> None:
    record = json.loads((copy / "export.json").read_bytes())
    for key, value, words in (
        ("beam_size", 0, "search.beam_size=0: must be "),
        ("beam_size", "five", "search.beam_size=five: must be "),
        ("beams", 5, "search.beams: this version of nmt has no such key (nearest: search.beam_size)"),
    ):
        changed = {**record, "search": {**record["search"], key: value}}
        (copy / "export.json").write_text(json.dumps(changed))
        refused(nmt("translate", copy, "--text", "a"), 2, f"{copy / 'export.json'}: {words}")
