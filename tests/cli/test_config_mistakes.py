"""Mistakes on the command line: one line that names what is wrong and what would be right, and the exit status."""

from __future__ import annotations

import re
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt import cli
from nmt.config import TrainConfig
from nmt.errors import RequestError, WorkError
from nmt.training.interruption import Interrupted

Trainer = Callable[[TrainConfig], None]

# An override (or several, or options) of `nmt train`, and what the line must say.
MISTAKES: list[tuple[list[str], str]] = [
    # misspelt
    (["optimizer.lrr=1"], "optimizer.lrr: no such key; did you mean optimizer.lr (a number, above 0)?"),
    (["lr=1e-3"], "lr: no such key; did you mean optimizer.lr"),
    (["steps=9"], "did you mean trainer.max_steps"),
    (["seed=9"], "did you mean one of data.seed, trainer.seed, search.seed?"),
    (["optmizer=adam"], "optmizer: no such key; did you mean optimizer?"),
    (["data.filter.max_word=3"], "did you mean data.filter.max_words"),
    (["zzz=3"], "zzz: no such key; `nmt train --help` lists them all"),
    (["model.heads=4"], "model.heads: this run has no such key; it belongs to model=transformer"),
    (["data.test.foo=1"], "data.test.foo: this run has no such key; it belongs to data=files, data=hub"),
    (["hydra.job.nam=x"], "hydra.job.nam: no such key; did you mean hydra.job.name?"),
    (["model=bahdanua"], "model=bahdanua: no such preset; did you mean model=bahdanau? There are: bahdanau, cho"),
    (["model=base_lstm"], "no such preset"),
    (["experiment=overfitt"], "did you mean experiment=overfit?"),
    (["+experiment=nothing"], "experiment=nothing: no such preset"),
    (
        ["hydra/launcher=submitit"],
        "hydra/launcher=submitit: no such preset; did you mean hydra/launcher=submitit_slurm?",
    ),
    (["--multirn"], "did you mean --multirun?"),
    (["--cfg", "jb"], "--cfg: invalid choice: 'jb'"),
    (["--cfg", "job", "model=bahdanua"], "did you mean model=bahdanau?"),
    (["--cfg", "job", "-p", "trainr"], "--package trainr: no such section"),
    (["--config-dir", "nowhere"], "--config-dir nowhere: no such folder"),
    # keys that would be dead, or gone
    (["+foo=1"], "foo: no such key"),
    (["++optimizer.lrr=1"], "did you mean optimizer.lr"),
    (["+trainer.seed=4"], "+trainer.seed=4: write it without the +"),
    (["~trainer.seed"], "~trainer.seed: a key cannot be removed"),
    (["~model"], "~model: choose a preset as in model=NAME"),
    (["model@x=lstm"], "model@x=lstm: choose a preset as in model=NAME"),
    (["trainer={sed: 1}"], "trainer={sed: 1}: give each key its value, as in trainer.seed=…"),
    (["trainer=3"], "trainer=3: give each key its value"),
    (["hydra.run.dir=x"], "hydra.run.dir: a run is kept in run.dir"),
    # not an override at all
    (["foo"], "foo: an override is KEY=VALUE"),
    (["=3"], "=3: an override is KEY=VALUE"),
    (["model.dropout"], "model.dropout: an override is KEY=VALUE, as in model.dropout=…"),
    # special characters
    (["data.dir=/home/Hélène/x"], """'data.dir="/home/Hélène/x"'"""),
    (["run.notes=a=b"], """'run.notes="a=b"'"""),
    (["run.notes=#x"], """'run.notes="#x"'"""),
    (["run.notes=« a ; b & c ! »"], """'run.notes="« a ; b & c ! »"'"""),
    (
        ["run.notes=a,b"],
        """several values make several runs, which takes -m; if it is one value that contains a comma""",
    ),
    (["run.notes=a,b"], """'run.notes="a,b"'"""),
    (["run.dir=[x]"], """must be text; quote it: 'run.dir="[x]"'"""),
    (["model=lstm,luong"], "model=lstm,luong: several values make several runs, which takes -m"),
    # wrong type
    (["trainer.max_steps=abc"], "trainer.max_steps=abc: must be a whole number, at least 1, or null"),
    (["trainer.max_steps=1e5"], "must be a whole number, at least 1, or null; write 100000"),
    (["trainer.max_steps="], "trainer.max_steps=: must be a whole number"),
    (["trainer.seed=null"], "trainer.seed=null: must be a whole number"),
    (["trainer.seed=true"], "trainer.seed=true: must be a whole number"),
    (["tokenizer.joint=7"], "tokenizer.joint=7: must be true or false"),
    (["tokenizer.joint=maybe"], "tokenizer.joint=maybe: must be true or false"),
    (["optimizer.lr=fast"], "optimizer.lr=fast: must be a number, above 0"),
    (["tokenizer.user_defined_symbols=a"], "tokenizer.user_defined_symbols=a: must be a list of texts"),
    (["tokenizer.user_defined_symbols=[a,[b]]"], "must be a list of texts"),
    (["data=files", "data.train=[a]"], "data.train=[a]: must be a list of {source: …, target: …}"),
    (["model=null"], "model=null: no such preset"),
    (["model="], "model=: no such preset"),
    (["model=[lstm,luong]"], "model=[lstm,luong]: no such preset"),
    # out of bounds
    (["trainer.max_steps=0"], "trainer.max_steps=0: must be a whole number, at least 1, or null"),
    (["optimizer.lr=nan"], "optimizer.lr=nan: must be a number, above 0"),
    (["optimizer.lr=inf"], "optimizer.lr=inf: must be a number, above 0"),
    (["model.dropout=1"], "model.dropout=1.0: must be a number, at least 0 and below 1"),
    (["trainer.threads=1025"], "trainer.threads=1025: must be a whole number, at least 1 and at most 1024, or null"),
    (["search.beam_size=1001"], "search.beam_size=1001: must be a whole number, at least 1 and at most 1000"),
    (["validation.beam_size=1001"], "validation.beam_size=1001: must be a whole number, at least 1 and at most 1000"),
    (["trainer.device=tpu"], "trainer.device=tpu: must be one of auto, cpu, cuda"),
    (["data.name=a/b"], "data.name=a/b: must be letters, digits"),
    (["run.dir="], "run.dir="),
    # impossible together
    (["search.n_best=9"], "search.n_best=9: must be at most search.beam_size=5"),
    (["search.length_alpha=400"], "search.length_alpha=400.0: must be a number, at least 0 and at most 10"),
    (["search.min_length=100000"], "search.min_length=100000: must be a whole number, at least 0 and at most 1000"),
    (
        ["tokenizer.vocab_size=2147483648"],
        "tokenizer.vocab_size=2147483648: must be a whole number, at least 16 and at most 1000000",
    ),
    (["model=transformer", "model.heads=3"], "model.heads=3: must be a divisor of model.width=160"),
    (["model=transformer", "model.kv_heads=3"], "model.kv_heads=3: must be a divisor of model.heads=4"),
    (["model=transformer", "model.heads=32", "model.positions=rotary"], "model.positions=rotary: turns pairs"),
    (["model=transformer", "model.alignment_layer=4"], "model.alignment_layer=4: must be from -4 to 3"),
    (["model=decoder_only", "model.alignment_layer=-9"], "model.alignment_layer=-9: must be from -8 to 7"),
    (["model=transformer", "model.alignment_head=4"], "model.alignment_head=4: must be below model.heads=4"),
    (["model=transformer", "model.positions=relative"], "model.positions=relative: must be one of sinusoidal"),
    (["model=decoder_only", "model.tie_embeddings=false"], "model=decoder_only: source and target are one sequence"),
    (["model=luong", "model.score=cosine"], "model.score=cosine: must be one of dot, general, concat, location"),
    (["model=luong", "model.window=local"], "model.window=local: must be one of global, local_m, local_p"),
    (["model=luong", "model.window_size=0"], "model.window_size=0: must be"),
    (["model=lstm", "model.cell=elman"], "model.cell=elman: must be one of lstm, gru, rnn"),
    (["model=cho", "model.readout_size=64"], "model.embedding_size=256: must be equal to model.readout_size=64"),
    (["model.embedding_size=128"], "model.embedding_size=128: must be equal to model.readout_size=256"),
    (["model=luong", "model.hidden_size=512"], "model.embedding_size=256: must be equal to model.hidden_size=512"),
    (["tokenizer.joint=false"], "model.tie_embeddings=true: needs tokenizer.joint=true"),
    (["schedule=linear"], "schedule.name=linear: needs the step at which it ends; give schedule.total"),
    (["schedule=cosine", "trainer.max_steps=9"], "schedule.warmup=600: must be below trainer.max_steps=9"),
    (["schedule=cosine", "schedule.total=9"], "schedule.warmup=600: must be below schedule.total=9"),
    (["data.min_words=9", "data.max_words=8"], "data.min_words=9: must be at most data.max_words=8"),
    (["model.family=luong"], "model.family=luong: is chosen with the preset, as in model=luong"),
    (
        ["data=multi30k", "data.test={}"],
        "data.test: is merged with the preset's, not put in its place; to have none: "
        "~data.test.test_2016_flickr ~data.test.test_2017_flickr ~data.test.test_2017_mscoco",
    ),
    (["data=files", "data.dir=x", "~data.test"], "data.test: is merged with the preset's, not put in its place"),
    (["data=files", "data.train=[]"], "data.train: no files; give at least one pair"),
    # missing
    (["data=hub"], "data.path: has no value; give it one, as in data.path=…"),
    (["data=files", "data.test.x.source=a"], "data.test.x.target: has no value"),
    (["run.dir=${nothing}"], "run.dir: ${nothing}: there is no key nothing"),
    (["run.dir=${oc.env:NMT_NOTHING}"], "run.dir: ${oc.env:NMT_NOTHING}: there is no environment variable NMT_NOTHING"),
    # sweeps: refused before the first run
    (["-m", "trainer.seed=1,x"], "trainer.seed=x: must be a whole number"),
    (["-m", "model=lstm,luonng"], "model=luonng: no such preset; did you mean model=luong?"),
    (["-m", "trainer.seed=1,2", "run.dir=x"], "run.dir: two runs of this sweep would be kept in x"),
    (["-m", "--cfg", "job"], "choose one"),
]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[TrainConfig]:
    """The configurations that reach the trainer, which here does nothing."""
    configs: list[TrainConfig] = []
    replace_trainer(monkeypatch, configs.append)
    return configs


def replace_trainer(monkeypatch: pytest.MonkeyPatch, train: Trainer) -> None:
    module = types.ModuleType("nmt.training.session")
    module.train = train  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nmt.training.session", module)


@pytest.mark.case
@pytest.mark.parametrize(("arguments", "says"), MISTAKES, ids=[" ".join(case[0]) for case in MISTAKES])
def test_a_mistake_is_one_line_and_nothing_begins(
    arguments: list[str],
    says: str,
    trained: list[TrainConfig],
    empty_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["train", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("nmt: error: ")
    assert printed.err.count("\n") == 1
    assert says in printed.err
    assert not re.search(r"Traceback|use \+|\+\w+\.", printed.err.removeprefix(f"nmt: error: {arguments[0]}"))
    assert trained == []
    assert list(empty_folder.iterdir()) == []


QUOTED = [arguments[0] for arguments, says in MISTAKES if says.startswith("'")]


@pytest.mark.case
@pytest.mark.parametrize(
    "override",
    [*QUOTED, "run.notes=l'été d\"or, à=1", "run.notes='", 'run.notes="', "run.notes=à\\", "run.notes=à\\\\\"é'"],
)
def test_the_quoted_form_that_is_shown_works_in_a_shell(
    override: str, trained: list[TrainConfig], empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import shlex

    assert cli.main(["train", override]) == 2
    message = capsys.readouterr().err.strip()
    shown = message[message.index("'" + override.split("=")[0]) :]
    (typed,) = shlex.split(shown)
    assert cli.main(["train", "data=files", typed]) == 0
    key, _, value = override.partition("=")
    section, name = key.split(".")
    assert getattr(getattr(trained[0], section), name) == value


# Verbs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["trian"], "trian: no such verb; did you mean nmt train?"),
        (["xyzzy"], "xyzzy: no such verb. There are: train, translate"),
        (["translate"], "translate: the following arguments are required: RUN"),
        (["translate", "r", "--beam-size", "0"], "--beam-size: invalid whole number from 1 to 1000 value: '0'"),
        (["translate", "r", "--beam-size", "1001"], "--beam-size: invalid whole number from 1 to 1000 value: '1001'"),
        (["translate", "r", "--n-best", "1001"], "--n-best: invalid whole number from 1 to 1000 value: '1001'"),
        (["translate", "r", "--beamsize", "3"], "did you mean --beam-size?"),
        (["translate", "r", "--text", "a", "--input", "b"], "not allowed with"),
        (["score", "--hypothesis", "x"], "did you mean --hypotheses?"),
        (["attend", "r"], "required: --text"),
        (["average", "r", "--last", "x"], "--last: invalid whole number above 0 value: 'x'"),
        (["translate", "r", "--text", "\udce9"], "--text: is not UTF-8"),
        (["train", "run.notes=\udce9"], "an override: is not UTF-8"),
    ],
)
def test_mistakes_in_verbs_and_options(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("nmt: error: ")
    assert printed.err.count("\n") == 1
    assert says in printed.err


@pytest.mark.parametrize("arguments", [[], ["--help"], ["train", "--help"], *([verb, "-h"] for verb in cli.PARSERS)])
def test_help_is_on_stdout(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("usage: nmt")
    assert printed.err == ""


def test_text_of_other_verbs_is_not_an_override(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    commands = types.ModuleType("nmt.commands")
    commands.translate = lambda arguments: seen.append(arguments)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nmt.commands", commands)
    monkeypatch.setattr("nmt.commands", commands, raising=False)
    text = "L'été, c'est a=b ${x} « é » #!;"
    assert cli.main(["translate", "un dossier=é, l'autre", "--text", text]) == 0
    assert seen[0].text == text
    assert seen[0].runs == [Path("un dossier=é, l'autre")]


# The flow of train -----------------------------------------------------------------------------------------------


def test_train_hands_over_what_was_composed(trained: list[TrainConfig], empty_folder: Path) -> None:
    assert cli.main(["train", "model=luong", "optimizer.lr=2e-3", "run.dir=here"]) == 0
    (config,) = trained
    assert (config.model.family, config.optimizer.lr, config.run.dir) == ("luong", 2e-3, "here")
    assert isinstance(config, TrainConfig)
    assert list(empty_folder.iterdir()) == []  # the run directory is the trainer's to make


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (RequestError("a.en line 3: not UTF-8"), 2, "nmt: error: a.en line 3: not UTF-8\n"),
        (WorkError("disk full"), 1, "nmt: error: disk full\n"),
        (OSError(28, "No space left on device", "x"), 1, "nmt: error: x: No space left on device\n"),
        (ValueError("two\nlines"), 1, "nmt: error: ValueError: two lines (set NMT_TRACEBACK=1 to see where)\n"),
        (KeyboardInterrupt(), 130, "nmt: interrupted\n"),
        (Interrupted(signal.SIGTERM, "saved at step 7"), 143, "nmt: saved at step 7\n"),
        (Interrupted(signal.SIGINT, "saved at step 7"), 130, "nmt: saved at step 7\n"),
    ],
)
def test_exit_status_of_what_the_trainer_raises(
    error: BaseException,
    status: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    empty_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def train(config: TrainConfig) -> None:
        raise error

    replace_trainer(monkeypatch, train)
    assert cli.main(["train"]) == status
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", says)


@pytest.mark.case
def test_a_run_that_fails_does_not_stop_the_sweep(
    monkeypatch: pytest.MonkeyPatch, empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = []

    def train(config: TrainConfig) -> None:
        begun.append(config.model.name)
        if config.model.name == "luong":
            raise WorkError("out of memory")

    replace_trainer(monkeypatch, train)
    assert cli.main(["train", "-m", "model=lstm,bahdanau,luong,transformer"]) == 1
    assert begun == ["lstm", "bahdanau", "luong", "transformer"]
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "error" in line] == [
        "nmt: error: out of memory",
        "nmt: error: 1 of 4 runs failed: model=luong",
    ]
    assert "nmt: run 3 of 4: model=luong" in lines


def test_runs_of_a_sweep_have_directories_of_their_own(trained: list[TrainConfig], empty_folder: Path) -> None:
    assert cli.main(["train", "-m", "optimizer.lr=1e-3,1e-4", "trainer.seed=range(1,3)"]) == 0
    directories = [config.run.dir for config in trained]
    assert len(set(directories)) == 4
    assert not set("".join(directories)) & set("=, ")
    assert [(config.optimizer.lr, config.trainer.seed) for config in trained] == [
        (1e-3, 1),
        (1e-3, 2),
        (1e-4, 1),
        (1e-4, 2),
    ]


@pytest.mark.parametrize(
    ("stop", "status"), [(KeyboardInterrupt(), 130), (Interrupted(signal.SIGTERM, "saved"), 143)], ids=["INT", "TERM"]
)
def test_an_interruption_ends_the_sweep(
    stop: BaseException, status: int, monkeypatch: pytest.MonkeyPatch, empty_folder: Path
) -> None:
    begun = []

    def train(config: TrainConfig) -> None:
        begun.append(config.trainer.seed)
        raise stop

    replace_trainer(monkeypatch, train)
    assert cli.main(["train", "-m", "trainer.seed=1,2"]) == status
    assert begun == [1]


def test_cfg_prints_the_composed_configuration(
    trained: list[TrainConfig], empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import yaml

    assert cli.main(["train", "model=luong", "--cfg", "job", "optimizer.lr=5e-4"]) == 0
    content = yaml.safe_load(capsys.readouterr().out)
    assert content["model"]["family"] == "luong"
    assert content["optimizer"]["lr"] == 5e-4
    assert "hydra" not in content
    assert trained == []
