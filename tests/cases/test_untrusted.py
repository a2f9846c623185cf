"""A run directory, a config or a preset that somebody else made: it executes nothing, and neither leaks nor overwrites.

What a stranger may put there is tried here; that no other way of loading exists is read off the source.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

import nmt as package
from examples import examples
from nmt.config import FilesData
from nmt.configuration import load_config
from nmt.errors import RequestError, WorkError
from nmt.files import sha256_of
from nmt.training.checkpoint import BEST, CHECKSUM, CONFIG, META, TRAINING, WEIGHTS, Checkpoint, checksum_of
from nmt.training.session import train
from nmt.training.store import RunStore

pytestmark = pytest.mark.case
Command = Callable[..., Any]


class Malicious:
    """What a pickle would execute when it is read."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch executed",)


@pytest.fixture(autouse=True)
def nothing_executed(empty_folder: Path) -> Iterator[None]:
    """No command of a stranger's has run: each would make a file here."""
    yield
    assert not (empty_folder / "executed").exists()


def best(run: Path) -> Path:
    return (run / "checkpoints" / BEST).resolve()


def sign(checkpoint: Path) -> None:
    """Gives the checkpoint checksums that are right, as a stranger would."""
    meta = json.loads((checkpoint / META).read_text(encoding="utf-8"))
    meta["sha256"] = {name: sha256_of(checkpoint / name) for name in meta["sha256"]}
    meta[CHECKSUM] = checksum_of(meta)
    (checkpoint / META).write_text(json.dumps(meta), encoding="utf-8")


def continued(run: Path) -> None:
    """`nmt train` with the config of the run, for one step more."""
    config = load_config(run / CONFIG)
    config.run.dir = str(run)
    config.trainer.max_steps = 2
    train(config)


def edit(path: Path, **changes: Any) -> None:
    """Sets keys of a YAML or JSON file; the parts of a key are joined by __."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    for key, value in changes.items():
        *sections, last = key.split("__")
        node = content
        for section in sections:
            node = node[section]
        node[last] = value
    if CHECKSUM in content:
        content[CHECKSUM] = checksum_of(content)
    text = json.dumps(content) if path.suffix == ".json" else f"{yaml.safe_dump(content, allow_unicode=True)}...\n"
    path.write_text(text, encoding="utf-8")


# The source ------------------------------------------------------------------------------------------------------


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Every call in the package, by the dotted name of what is called."""
    for path in Path(package.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield ast.unparse(node.func), node


def test_nothing_is_loaded_in_a_way_that_could_execute_it() -> None:
    found = list(calls())
    names = {name for name, _ in found}
    assert {"safetensors.torch.load_file", "torch.load", "yaml.safe_load"} <= names, "the test reads the right source"
    for name, call in found:
        options = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert options.get("allow_pickle", "False") == "False"
        assert "trust_remote_code" not in options
        assert options.get("shell", "False") == "False"
        if name.split(".")[-1] in ("load", "loads", "load_all", "full_load", "unsafe_load"):
            assert name in ("torch.load", "json.loads", "json.load") or name[0].isupper() or name == "cls.load", name
        if name == "torch.load":
            assert options["weights_only"] == "True"
    executing = {
        "eval",
        "exec",
        "compile",
        "__import__",
        "os.system",
        "os.popen",
        "hydra.utils.instantiate",
        "instantiate",
    }
    assert not executing & names
    banned = {name for name in names if name.startswith(("pickle.", "subprocess.", "joblib.", "marshal.", "shelve."))}
    assert banned == {"subprocess.run"}
    commands = [ast.unparse(call.args[0]) for name, call in found if name == "subprocess.run"]
    assert commands == ["[self.command, *options]"], "comet-score's, which the user asks for with --comet"


# Pickles ---------------------------------------------------------------------------------------------------------


def raw_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(Malicious(), protocol=2))


def torch_file(path: Path) -> None:
    torch.save({"progress": {"step": 1}, "optimizer": Malicious()}, path)


@pytest.mark.parametrize("write", [raw_pickle, torch_file])
@pytest.mark.parametrize("name", [TRAINING, WEIGHTS, "tokenizer.model", CONFIG])
def test_a_pickle_in_place_of_any_file_is_refused(name: str, write: Callable[[Path], None], run: Path) -> None:
    write(best(run) / name)
    sign(best(run))
    if name == CONFIG:
        (run / CONFIG).unlink()
    with pytest.raises((RequestError, WorkError)) as refusal:
        package.load(run) if name != TRAINING else continued(run)
    assert str(best(run) / name) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_pickle_beside_the_files_is_not_read(run: Path) -> None:
    for name in ("model.pt", "pytorch_model.bin", "model.ckpt", "training.pkl"):
        raw_pickle(best(run) / name)
        raw_pickle(run / name)
    assert len(package.load(run).translate(["The cat sees a horse."])) == 1


@examples(60)
@given(
    st.binary(max_size=40)
    | st.lists(
        st.sampled_from(
            [
                b"\x80\x02",
                b"(",
                b"t",
                b"R",
                b".",
                b"}",
                b"]",
                b"K\x01",
                b"X\x01\x00\x00\x00a",
                b"cos\nsystem\n",
                b"ctorch._utils\n_rebuild_tensor_v2\n",
                b"u",
                b"s",
                b"e",
                b"0",
                b"q\x00",
                b"h\x00",
                b"N",
                b"Q",
                b"b",
                b"\x81",
            ]
        ),
        max_size=9,
    ).map(b"".join)
)
def test_any_bytes_for_a_training_state_are_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / TRAINING).write_bytes(content)
    said = ""
    try:
        Checkpoint(tmp_path, {"step": 1}).training_state()  # plain data may come out, which the trainer looks into
    except WorkError as error:
        said = str(error)
    assert said.startswith(str(tmp_path / TRAINING) if said else "")
    assert "\n" not in said


@pytest.mark.parametrize(
    "change",
    [
        lambda state: {},
        lambda state: [],
        lambda state: None,
        lambda state: {**state, "progress": 7},
        lambda state: {**state, "progress": {"x": 1}},
        lambda state: {"progress": state["progress"]},
        lambda state: {**state, "optimizer": {}},
        lambda state: {**state, "optimizer": {"state": {}, "param_groups": []}},
        lambda state: {**state, "optimizer": 7},
        lambda state: {**state, "window": {**state["window"], "sums": [0.0] * 9}},
    ],
)
def test_plain_data_that_is_no_training_state_is_one_line(change: Callable[[Any], Any], run: Path) -> None:
    state = torch.load(best(run) / TRAINING, weights_only=True)
    torch.save(change(state), best(run) / TRAINING)
    sign(best(run))
    with pytest.raises(RequestError, match=r"training\.pt is of another version of nmt \("):
        continued(run)


# meta.json and weights -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["/etc/hostname", "../../config.yaml", "a/../../x"])
def test_meta_names_no_files_elsewhere(name: str, run: Path) -> None:
    meta = best(run) / META
    edit(meta, sha256={name: "0" * 64})
    with pytest.raises(WorkError) as refusal:
        package.load(run)
    assert str(refusal.value) == f"{meta} is damaged: {name} is not the name of a file beside it"


@pytest.mark.parametrize(
    "changes",
    [
        {"best_step": "7"},
        {"best_step": None},
        {"validated_step": 1.5},
        {"data": [1]},
        {"data": None},
        {"step": None},
        {"sha256": {}},
        {"sha256": {"model.safetensors": 7}},
    ],
    ids=str,
)
def test_meta_of_another_make_is_one_line(changes: dict[str, Any], run: Path) -> None:
    edit(best(run) / META, **changes)
    with pytest.raises(WorkError, match="is damaged") as refusal:
        continued(run)
    assert "\n" not in str(refusal.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["step", "data", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)
META_KEYS = ["format", "step", "sha256", "best_step", "validated_step", "data", "epoch", "seconds", "versions"]


METAS = (st.dictionaries(st.sampled_from(META_KEYS), JSON | st.just(1), max_size=9) | JSON).map(json.dumps)


@examples(60)
@given(METAS | st.sampled_from(["[" * 99_999, '{"format": 1, "step": ' + "9" * 9_999, '{"a":' * 99_999, "{}}"]))
def test_any_meta_is_a_checkpoint_or_one_line(one_step_run: Path, tmp_path: Path, meta: str) -> None:
    directory = tmp_path / "checkpoints" / "step_00000001"
    if not directory.exists():
        shutil.copytree(best(one_step_run), directory)
    (directory / META).write_text(meta, encoding="utf-8")
    told: list[str] = []
    with pytest.raises((RequestError, WorkError)) as refusal:  # none of these is signed for the files that are there
        RunStore(tmp_path, {}, 1).latest(told.append)
    assert str(refusal.value).startswith(str(directory))
    assert all(len(line.splitlines()) == 1 for line in (*told, str(refusal.value)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(value: float, run: Path) -> None:
    weights = safetensors.torch.load_file(best(run) / WEIGHTS)
    weights["output.bias"][3] = value
    safetensors.torch.save_file(weights, best(run) / WEIGHTS)
    sign(best(run))
    with pytest.raises(RequestError, match=r"weight output\.bias is not made of finite numbers"):
        package.load(run)


def test_weights_of_another_type_are_refused(run: Path) -> None:
    weights = safetensors.torch.load_file(best(run) / WEIGHTS)
    safetensors.torch.save_file({name: weight.to(torch.int32) for name, weight in weights.items()}, best(run) / WEIGHTS)
    sign(best(run))
    with pytest.raises(RequestError, match="is not made of finite numbers"):
        package.load(run)


# Configs ---------------------------------------------------------------------------------------------------------


def test_a_secret_of_the_environment_stays_there(
    run: Path, nmt: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever a config may have text, and in everything that translating, scoring and comparing write."""
    monkeypatch.setenv("SECRET", "gotcha")
    reference = "${oc.env:SECRET} ${oc.decode:${oc.env:SECRET}} $SECRET"
    edit(run / CONFIG, run__notes=reference, run__dir=reference, data__cache=None)
    outcomes = [nmt("translate", run, "--text", "The cat."), nmt("score", run)]
    other = Path(shutil.copytree(run, run.parent / "other", symlinks=True))
    outcomes.append(nmt("compare", run, other, "--output", run.parent / "page"))
    assert [outcome.status for outcome in outcomes] == [0, 0, 0]
    assert json.loads((run / "results.json").read_text(encoding="utf-8"))["provenance"]["notes"] == reference
    written = [path.read_bytes() for path in run.parent.rglob("*") if path.is_file()]
    said = [text.encode() for outcome in outcomes for text in (outcome.out, outcome.err)]
    assert not any(b"gotcha" in content for content in written + said)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            "model: {family: lstm, name: x, _target_: os.system}\ndata: {}\n",
            "model._target_: this version of nmt has no such",
        ),
        ("run: !!python/object/apply:os.system ['touch executed']\n", "line 1: not YAML"),
        ("run: !!python/name:os.system\n", "line 1: not YAML"),
        ("_target_: os.system\n_args_: [touch executed]\n", "_target_: this version of nmt has no such key"),
        ("defaults: [evil]\nhydra: {}\n", "defaults: this version of nmt has no such key"),
    ],
)
def test_a_config_is_data(content: str, says: str, run: Path, nmt: Command) -> None:
    (run / CONFIG).write_text(f"{content}...\n")
    for outcome in (nmt("translate", run, "--text", "a"), nmt("score", run)):
        assert (outcome.status, outcome.out) == (2, "")
        assert outcome.err.startswith(f"nmt: error: {run / CONFIG}")
        assert says in outcome.err


@pytest.mark.parametrize("name", ["../../../owned", "/tmp/owned", "a/../../../owned"])
def test_a_download_stays_below_the_cache(name: str, run: Path, nmt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own address and checksum, a config could otherwise put any content anywhere."""
    monkeypatch.setattr("nmt.data.corpus.fetch", lambda *_: pytest.fail("fetched"))
    pair = {"source": name, "target": name}
    edit(run / CONFIG, data__dir=None, data__test={"test": pair}, data__train=[pair], data__valid=[pair])
    edit(run / CONFIG, data__downloads={name: {"url": "https://example.org/x", "sha256": "0" * 64}})
    outcome = nmt("score", run)
    assert outcome.status == 2
    assert f"data.downloads: the name {name} must be a path below data.dir, without .." in outcome.err


PRESETS = {
    "callback": "# @package _global_\nhydra:\n  callbacks:\n    x: {_target_: os.system, command: touch executed}\n",
    "handler": "# @package _global_\nhydra:\n  job_logging:\n    version: 1\n    handlers:\n"
    "      x: {(): os.system, command: touch executed}\n    root: {handlers: [x]}\n",
    "elsewhere": "# @package hydra.callbacks\nx:\n  _target_: os.system\n  command: touch executed\n",
    "environment": "# @package hydra.job\nenv_set: {LD_PRELOAD: x.so}\n",
    "model": "# @package _global_\nmodel:\n  _target_: os.system\n  command: touch executed\n",
    "tag": "# @package _global_\nrun:\n  notes: !!python/object/apply:os.system ['touch executed']\n",
}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_from_elsewhere_are_data(name: str, empty_folder: Path, nmt: Command) -> None:
    folder = empty_folder / "presets" / "experiment"
    folder.mkdir(parents=True)
    (folder / "theirs.yaml").write_text(PRESETS[name])
    for option in ([], ["-m"], ["--cfg", "job"]):
        outcome = nmt("train", "--config-dir", folder.parent, "experiment=theirs", *option)
        assert (outcome.status, outcome.out) == (2, "")
        assert outcome.err.startswith("nmt: error: ")
        assert outcome.err.count("\n") == 1
    assert [path.name for path in empty_folder.iterdir()] == ["presets"]


def test_a_dataset_of_the_hub_executes_no_script(empty_folder: Path, nmt: Command) -> None:
    (empty_folder / "books").mkdir()
    (empty_folder / "books" / "books.py").write_text("import os\nos.system('touch executed')\n")
    outcome = nmt("train", "data=hub", "data.path=./books", "trainer.max_steps=1")
    assert outcome.status in (1, 2)
    assert "use data=files with data.dir" in outcome.err


# Links -----------------------------------------------------------------------------------------------------------


def scored(run: Path, nmt: Command) -> Any:
    return nmt("score", run)


def averaged(run: Path, nmt: Command) -> Any:
    return nmt("average", run, "--last", "1")


def trained(run: Path, nmt: Command) -> Any:
    data = load_config(best(run) / CONFIG).data
    assert isinstance(data, FilesData)
    return nmt("train", "model=luong", "data=files", f'data.dir="{data.dir}"', f'run.dir="{run}"')


@pytest.mark.parametrize("verb", [scored, averaged, trained])
@pytest.mark.parametrize(
    "name",
    [
        "hypotheses/test.txt",
        "results.json",
        "metrics.jsonl",
        "config.yaml",
        "tokenizer.model",
        "checkpoints/average_last_1",
    ],
)
def test_nothing_is_written_through_a_link(name: str, verb: Command, run: Path, nmt: Command, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine", encoding="utf-8")
    path = run / name
    path.unlink(missing_ok=True)
    path.symlink_to(os.path.relpath(precious, path.parent))
    outcome = verb(run, nmt)
    assert outcome.status == 2
    if name != CONFIG or verb is not scored:  # which reads it first, and it is no config
        assert f"{path} is a link that leads out of the run directory" in outcome.err
    assert precious.read_text(encoding="utf-8") == "mine"
    assert path.is_symlink()


@pytest.mark.parametrize("name", ["hypotheses", "tensorboard", "checkpoints"])
def test_nothing_is_written_into_a_folder_elsewhere(name: str, run: Path, nmt: Command, tmp_path: Path) -> None:
    shutil.move(run / name, tmp_path / "elsewhere")
    before = sorted(path.name for path in (tmp_path / "elsewhere").rglob("*"))
    (run / name).symlink_to(tmp_path / "elsewhere")
    outcome = nmt("score", run)
    assert outcome.status == 2
    assert f"{run / name} is a link that leads out of the run directory" in outcome.err
    assert sorted(path.name for path in (tmp_path / "elsewhere").rglob("*")) == before


def test_links_within_a_run_and_to_a_whole_run_are_fine(run: Path, nmt: Command, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run)
    assert nmt("score", tmp_path / "link").status == 0
    assert nmt("average", tmp_path / "link", "--last", "1").status == 0


@pytest.mark.parametrize("target", ["checkpoints/best", "nowhere", "/dev/zero"])
def test_a_link_that_leads_nowhere_useful_is_one_line(target: str, run: Path, nmt: Command) -> None:
    link = run / "checkpoints" / BEST
    checkpoint = best(run)
    link.unlink()
    shutil.rmtree(checkpoint)
    (run / "checkpoints" / "last").unlink()
    link.symlink_to(run / target if not target.startswith("/") else target)
    outcome = nmt("translate", run, "--text", "a")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith(f"nmt: error: {run} has no checkpoint")


# What people see -------------------------------------------------------------------------------------------------


def test_a_message_moves_no_cursor(run: Path, nmt: Command) -> None:
    edit(run / CONFIG, model__family="\x1b]0;owned\x07\x1b[2J\u2028")
    outcome = nmt("translate", run, "--text", "a")
    assert outcome.status == 2
    assert "model.family=" in outcome.err
    assert outcome.err.removesuffix("\n").isprintable()


class Tags(HTMLParser):
    """The elements and handlers of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(name for name, _ in attributes if name.startswith("on"))}


def test_the_page_of_a_comparison_runs_nothing(run: Path, nmt: Command) -> None:
    """Names, notes, translations and versions of a stranger's run."""
    hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'$x^{y}$\x1b[2J"
    other = Path(
        shutil.copytree(run, run.parent / "<script>alert(1)<%2fscript><img src=x onerror=alert(1)>", symlinks=True)
    )
    edit(other / CONFIG, run__notes=hostile, trainer__seed=2)
    edit(best(other) / META, versions={hostile: hostile}, data={hostile: hostile})
    (other / "hypotheses" / "test.txt").write_text(f"{hostile}\n" * 24, encoding="utf-8")
    outcome = nmt("compare", run, other, "--output", run.parent / "page")
    assert outcome.status == 0, outcome.err
    page = (run.parent / "page" / "comparison.html").read_text(encoding="utf-8")
    assert not {name for name in Tags(page).found if name in ("script", "img", "iframe", "object") or name[:2] == "on"}
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize(
    "changes",
    [{"step": "x"}, {"epoch": "x"}, {"tokens": [1]}, {"seconds": {}}, {"data": 7}, {"sha256": [1]}, {"seconds": 1e400}],
    ids=str,
)
def test_a_run_that_says_nonsense_is_a_failed_row(changes: dict[str, Any], run: Path, nmt: Command) -> None:
    other = Path(shutil.copytree(run, run.parent / "other", symlinks=True))
    edit(best(other) / META, **changes)
    outcome = nmt("compare", run, other, "--output", run.parent / "page")
    assert outcome.status == 1
    assert f"{other} failed: " in outcome.err.splitlines()[-1]
    assert "NMT_TRACEBACK" not in outcome.err


@pytest.mark.parametrize(
    "line", ['{"step": NaN}', '{"step": 1, "loss": NaN}', '{"step": 1, "loss": "<b>"}', "[1]", "1"]
)
def test_metrics_that_are_nonsense_are_a_failed_row(line: str, run: Path, nmt: Command) -> None:
    other = Path(shutil.copytree(run, run.parent / "other", symlinks=True))
    with open(other / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(f"{line}\n{'[' * 99_999}\n")
    outcome = nmt("compare", run, other, "--output", run.parent / "page")
    assert outcome.status == 1
    assert f"{other} failed: {other / 'metrics.jsonl'} line " in outcome.err.splitlines()[-1]


def test_results_and_kept_translations_of_another_make_are_not_believed(run: Path, nmt: Command) -> None:
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))
    results["sets"]["test"]["seconds"] = "fast"
    (run / "results.json").write_text(json.dumps(results))
    other = Path(shutil.copytree(run, run.parent / "other", symlinks=True))
    outcome = nmt("compare", run, other, "--output", run.parent / "page")
    assert outcome.status == 0
    assert outcome.err.count("translating test, 24 sentences") == 2


def test_a_saved_config_holds_no_code(one_step_run: Path) -> None:
    """What we write ourselves is plain: it reads the same with a reader that knows scalars, lists and mappings only."""
    text = (one_step_run / CONFIG).read_text(encoding="utf-8")
    assert "!!" not in text
    assert yaml.safe_load(text) == dataclasses.asdict(load_config(one_step_run / CONFIG))
