"""Configurations: every preset composes, every key is explained and bounded, and what is saved is read back."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from nmt.config import DEFAULT_EPOCHS, FilePair, FilesData, GrammarData, ModelConfig, TrainConfig, TransformerConfig
from nmt.configuration import check, compose, load_config, save_config
from nmt.configuration.checks import values_of
from nmt.configuration.composition import compose_sweep
from nmt.configuration.help import WIDTH, train_help
from nmt.configuration.schema import DATA, GROUPS, MODELS, Key, all_keys, fields_of, keys_of
from nmt.configuration.store import config_directory, groups, options_of
from nmt.errors import RequestError

# What a preset cannot know, and the user has to say.
NEEDED = {"hub": ["data.path=./corpus"], "linear": ["trainer.max_steps=5000"], "cosine": ["trainer.max_steps=5000"]}
PRESETS = [(group, name) for group in groups() for name in options_of(group)]


@pytest.mark.parametrize(("group", "name"), PRESETS)
def test_every_preset_composes_and_survives_saving(group: str, name: str, tmp_path: Path) -> None:
    config = compose([f"{group}={name}", *NEEDED.get(name, [])])
    save_config(config, tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml") == config
    if group == "model":
        assert config.model.name == name
        assert type(config.model) is MODELS[config.model.family]
    elif group == "data":
        assert type(config.data) is DATA[config.data.kind]
    elif group in ("optimizer", "schedule"):
        assert getattr(config, group).name == name


def test_every_schema_has_a_preset_and_every_choice_of_a_preset_exists() -> None:
    assert {compose([f"model={name}"]).model.family for name in options_of("model")} == set(MODELS)
    kinds = {compose([f"data={name}", *NEEDED.get(name, [])]).data.kind for name in options_of("data")}
    assert kinds == set(DATA)
    for group in ("optimizer", "schedule"):
        (schema,) = GROUPS[group].values()
        choices = next(key for key in fields_of(schema) if key.path == "name").metadata["choices"]
        assert set(options_of(group)) == set(choices)


@pytest.mark.parametrize("schema", MODELS.values(), ids=MODELS.keys())
def test_the_widths_of_a_tied_matrix_are_keys(schema: type[ModelConfig]) -> None:
    assert set(schema.tied_widths) <= {key.path for key in fields_of(schema)}


def test_transformer_sizes_are_those_of_the_paper() -> None:
    def sizes(name: str) -> tuple[float, ...]:
        model = compose([f"model={name}"]).model
        assert isinstance(model, TransformerConfig)
        layers = (model.encoder_layers, model.decoder_layers)
        return (model.width, model.feed_forward_size, model.heads, *layers, model.dropout)

    # Vaswani et al. 2017, table 3, and the small one for corpora of some ten thousand pairs.
    assert sizes("transformer_base") == (512, 2048, 8, 6, 6, 0.1)
    assert sizes("transformer_big") == (1024, 4096, 16, 6, 6, 0.3)
    assert sizes("transformer_tiny") == (128, 256, 4, 4, 4, 0.1)


def test_every_key_has_a_meaning_and_its_default_is_allowed() -> None:
    schemas = [TrainConfig, *MODELS.values(), *DATA.values(), FilePair]
    for schema in schemas:
        for key in fields_of(schema):
            if dataclasses.is_dataclass(key.type) and schema is TrainConfig:
                continue
            assert key.meaning or dataclasses.is_dataclass(key.type), f"{schema.__name__}.{key.path}"
            assert key.default == "???" or dataclasses.is_dataclass(key.type) or not key.violation(key.default), key


def test_help_lists_every_key_and_preset_within_its_width() -> None:
    text = train_help()
    lines = text.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert "\x1b" not in text
    listed = {line.strip().split("=")[0].split(" ")[0] for line in lines if line.startswith("  ")}
    assert set(all_keys()) <= listed
    for group, name in PRESETS:
        assert any(line.startswith(f"    {name} ") for line in lines), f"{group}={name}"


def test_every_preset_says_what_it_is() -> None:
    assert [f"{group}={name}" for group, name in PRESETS if not options_of(group)[name]] == []


# Overrides -------------------------------------------------------------------------------------------------------


def test_overrides_win_over_presets_and_the_experiment() -> None:
    config = compose(["experiment=overfit", "model=luong", "loss.label_smoothing=0.25", "optimizer.lr=1e-2"])
    assert config.model.family == "luong"
    assert config.model.dropout == 0.0  # of the experiment
    assert config.loss.label_smoothing == 0.25
    assert config.optimizer.lr == 0.01
    assert compose(["+experiment=overfit"]).data == compose(["experiment=overfit"]).data


@pytest.mark.parametrize("budget", ["max_steps", "max_epochs", "max_minutes"])
def test_a_budget_that_is_given_is_the_only_one(budget: str) -> None:
    trainer = compose([f"trainer.{budget}=40"]).trainer
    given = {name: getattr(trainer, name) for name in ("max_steps", "max_epochs", "max_minutes")}
    assert given == {"max_steps": None, "max_epochs": None, "max_minutes": None, budget: 40}


def test_a_run_without_a_budget_gets_one() -> None:
    assert compose().trainer.max_epochs == DEFAULT_EPOCHS


def test_interpolations_and_quoted_values_work() -> None:
    config = compose(['run.dir="runs/${model.name}/${data.name}"', 'run.notes="l\'été: a=b, c"'])
    assert config.run.dir == "runs/bahdanau/grammar"
    assert config.run.notes == "l'été: a=b, c"


def test_default_run_directory_is_harmless_in_an_override() -> None:
    directory = compose().run.dir
    assert directory.startswith("runs/bahdanau-grammar-2")
    assert not set(directory) & set("=, ")


@pytest.mark.parametrize("form", ["{}", "+{}", "++{}"])
def test_one_more_test_set_needs_no_plus(form: str) -> None:
    texts = ["data.test.news.source=n.en", "data.test.news.target=n.fr"]
    config = compose(["data=files", "data.dir=x", *(form.format(text) for text in texts)])
    assert isinstance(config.data, FilesData)
    assert config.data.test["news"] == FilePair("n.en", "n.fr")
    assert "test" in config.data.test


@pytest.mark.case
@pytest.mark.parametrize("emptied", [[], ["data.test={}"]])
def test_a_presets_test_sets_are_taken_away_by_name(emptied: list[str]) -> None:
    """As the refusal of `data.test={}` says; after them, that is what the run has anyway."""
    sets = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
    data = compose(["data=multi30k", *(f"~data.test.{name}" for name in sets[:2]), "data.test.x.source=a",
                    "data.test.x.target=b"]).data  # fmt: skip
    assert isinstance(data, FilesData)
    assert list(data.test) == [sets[2], "x"]
    data = compose(["data=multi30k", *(f"~data.test.{name}" for name in sets), *emptied]).data
    assert isinstance(data, FilesData)
    assert data.test == {}


def test_presets_of_a_further_folder(tmp_path: Path) -> None:
    folder = tmp_path / "mes réglages, à=moi"
    (folder / "experiment").mkdir(parents=True)
    (folder / "experiment" / "mine.yaml").write_text("# @package _global_\n# mine\ntrainer:\n  seed: 77\n")
    assert compose(["experiment=mine"], folder).trainer.seed == 77
    assert "mine" in train_help(folder)
    with pytest.raises(RequestError, match="no such folder"):
        compose([], tmp_path / "nowhere")


# Sweeps ----------------------------------------------------------------------------------------------------------


def test_a_sweep_is_every_combination_in_order() -> None:
    members = compose_sweep(["model=lstm,luong", "trainer.seed=1,2", "+experiment=overfit"])
    found = [(member.config.model.family, member.config.trainer.seed) for member in members]
    assert found == list(itertools.product(["lstm", "luong"], [1, 2]))
    assert all(member.config.loss.label_smoothing == 0 for member in members)


def test_the_directory_of_a_member_tells_its_configuration_and_not_the_time() -> None:
    """Another sweep that has the same run finds it; whatever is trained otherwise has a directory of its own."""

    def directories(*overrides: str) -> list[str]:
        return [member.config.run.dir for member in compose_sweep(overrides)]

    first, second = directories("trainer.seed=1,2", "model=lstm")
    assert re.fullmatch(r"runs/lstm-grammar-[0-9a-f]{12}", first)
    assert directories("model=bahdanau,lstm", "trainer.seed=2,3")[2] == second
    assert directories("model=lstm", "trainer.seed=1", "run.notes=x") == [first]
    assert first not in directories("model=lstm", "trainer.seed=1", "data.seed=2,3", "optimizer.lr=1e-3,1e-4")
    assert directories("trainer.seed=1,2", 'run.dir="x${hydra:job.num}"') == ["x0", "x1"]
    assert len(set(directories("trainer.seed=1,2", 'run.dir="x${now:%f}"'))) == 1, "one time for all"


def test_one_wrong_run_refuses_the_sweep() -> None:
    with pytest.raises(RequestError, match=r"model\.heads=3: must be a divisor of model\.width=160"):
        compose_sweep(["model=transformer", "model.heads=2,4,3"])


# Checks ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def transformer() -> TrainConfig:
    return compose(["model=transformer"])


def bounded_keys() -> list[tuple[Key, float]]:
    """Each bound of each key, as the nearest value that it refuses."""
    cases = []
    for key in keys_of(TrainConfig, groups={"data": GrammarData, "model": TransformerConfig}):
        tiny = 1 if key.type is int else 1e-9
        for name, value in key.metadata.items():
            if name in ("at_least", "at_most"):
                cases.append((key, value - tiny if name == "at_least" else value + tiny))
            elif name in ("above", "below"):
                cases.append((key, value))
    return cases


@pytest.mark.parametrize(("key", "value"), bounded_keys(), ids=lambda case: getattr(case, "path", None))
def test_every_bound_is_enforced(transformer: TrainConfig, key: Key, value: float) -> None:
    config = copy.deepcopy(transformer)
    *sections, last = key.path.split(".")
    node = config
    for section in sections:
        node = getattr(node, section)
    setattr(node, last, value if key.type is float else int(value))
    with pytest.raises(RequestError) as refusal:
        check(config)
    assert str(refusal.value).startswith(f"{key.path}=")
    assert key.allowed() in str(refusal.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, "1", None, [1.0]])
def test_a_number_is_finite_and_a_number(transformer: TrainConfig, value: object) -> None:
    config = copy.deepcopy(transformer)
    config.optimizer.lr = value  # type: ignore[assignment]
    with pytest.raises(RequestError, match=r"optimizer\.lr="):
        check(config)


def test_values_inside_lists_and_mappings_are_visited() -> None:
    data = FilesData(kind="files", name="x", train=[FilePair("a", "b")], test={"t": FilePair("c", "d")})
    visited = {path: value for path, _, value in values_of(data, "data.")}
    assert visited["data.train.0.target"] == "b"
    assert visited["data.test.t.source"] == "c"
    assert visited["data.filter.max_words"] == 250


# Saved configurations --------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    save_config(compose(["run.dir=x"]), path)
    return path


def edited(path: Path, **changes: object) -> Path:
    """The file with keys (sections joined to names by __) set or, with ..., removed."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    for dotted, value in changes.items():
        *sections, last = dotted.split("__")
        node = content
        for section in sections:
            node = node[section]
        if value is ...:
            del node[last]
        else:
            node[last] = value
    path.write_text(yaml.safe_dump(content, allow_unicode=True, explicit_end=True), encoding="utf-8")
    return path


def test_reading_executes_nothing(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "gotcha")
    config = load_config(edited(saved, run__notes="${oc.env:SECRET} ${now:%Y}"))
    assert config.run.notes == "${oc.env:SECRET} ${now:%Y}"
    marker = saved.parent / "executed"
    saved.write_text(f"run: !!python/object/apply:os.mkdir ['{marker}']\n")
    with pytest.raises(RequestError, match=r"config\.yaml line 1: not YAML"):
        load_config(saved)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"trainer__max_step": 3},
            "trainer.max_step: this version of nmt has no such key (nearest: trainer.max_steps)",
        ),
        ({"model___target_": "os.system"}, "model._target_: this version of nmt has no such key"),
        ({"model__family": "gru"}, "model.family=gru: must be one of lstm, cho, bahdanau, luong"),
        ({"model__family": "luong"}, "model.attention_size: this version of nmt has no such key"),
        ({"data__kind": ...}, "data.kind=null: must be one of"),
        ({"model": ...}, "model: is missing"),
        ({"model__name": ...}, "model.name: is missing"),
        ({"optimizer__lr": "fast"}, "optimizer.lr=fast: must be a number, above 0"),
        ({"trainer__seed": 1.5}, "trainer.seed=1.5: must be a whole number, at least 0"),
        ({"trainer__seed": True}, "trainer.seed=true: must be a whole number, at least 0"),
        ({"run__notes": None}, "run.notes=null: must be text"),
        ({"run__dir": "a\0b"}, "run.dir=a\0b: must be text"),
        ({"optimizer__lr": 10**400}, "optimizer.lr=0x"),
        ({"search__n_best": 9}, "search.n_best=9: must be at most search.beam_size=5"),
        ({"tokenizer": [1]}, "tokenizer: must be a mapping of keys to values"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_file_and_key(
    saved: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(RequestError) as refusal:
        load_config(edited(saved, **changes))
    assert str(refusal.value).startswith(f"{saved}: {message}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        (b"", "cut off"),
        (b"[]\n...\n", "must be a mapping"),
        (b"\xe9", "not UTF-8"),
        (b"a: [1\n", "line 2: not YAML"),
        (b"a: \x00", "not YAML"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "config.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RequestError) as refusal:
        load_config(path)
    assert str(path) in str(refusal.value)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.case
def test_a_file_that_is_cut_off_anywhere_is_refused(saved: Path) -> None:
    """Between two keys, too, where the rest is YAML: nothing is taken with defaults in silence."""
    whole = saved.read_bytes()
    for length in [*range(0, len(whole) - 1, 37), *(len(whole) - missing for missing in range(2, 40))]:
        saved.write_bytes(whole[:length])
        with pytest.raises(RequestError, match=r"config\.yaml(: cut off| line \d+: not YAML)"):
            load_config(saved)
    saved.write_bytes(whole[:-1])  # without its last LF, as some editors leave it
    assert load_config(saved).run.dir == "x"


def test_text_that_no_file_can_hold_is_refused(saved: Path) -> None:
    """YAML can write a lone surrogate as an escape."""
    saved.write_text(saved.read_text(encoding="utf-8").replace("notes: ''", 'notes: "\\ud800"'), encoding="utf-8")
    with pytest.raises(RequestError, match=r"run\.notes=.*: must be text"):
        load_config(saved)


def test_numbers_without_a_point_are_numbers(saved: Path) -> None:
    text = saved.read_text(encoding="utf-8").replace("epsilon: 1.0e-09", "epsilon: 1e-9")
    assert "epsilon: 1e-9" in text
    saved.write_text(text, encoding="utf-8")
    assert load_config(saved).optimizer.epsilon == 1e-9


def test_a_key_that_a_file_does_not_have_takes_its_default(saved: Path) -> None:
    assert load_config(edited(saved, search__top_k=...)).search.top_k == 0


# Where the presets are -------------------------------------------------------------------------------------------


def test_a_wheel_brings_its_presets(tmp_path: Path) -> None:
    """What is in a wheel, unpacked elsewhere, composes in an empty folder, from its own presets."""
    installed, empty = tmp_path / "installed", tmp_path / "empty"
    empty.mkdir()
    root = config_directory().parent
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=root, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(installed)
    (about,) = installed.glob("nmt-*.dist-info")
    assert "License-Expression: Apache-2.0\nLicense-File: LICENSE\n" in (about / "METADATA").read_text()
    assert (about / "licenses" / "LICENSE").read_bytes() == (root / "LICENSE").read_bytes()
    page = sorted(path.name for path in (root / "nmt" / "serving" / "web").iterdir())
    assert sorted(path.name for path in (installed / "nmt" / "serving" / "web").iterdir()) == page
    assert "index.html" in page
    program = (
        "from nmt.configuration import compose; from nmt.configuration.store import config_directory; "
        "print(config_directory(), compose(['model=luong']).model.name)"
    )
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=True).stdout
    assert found.split() == [str(installed / "nmt" / "configs"), "luong"]
    presets = sorted(path.relative_to(root) for path in config_directory().rglob("*.yaml"))
    assert sorted(path.relative_to(installed / "nmt") for path in installed.rglob("*.yaml")) == presets


def test_composing_needs_no_pytorch() -> None:
    program = "import sys; from nmt.configuration import compose; compose(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
