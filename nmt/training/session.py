"""`nmt train`: from a configuration to a scored run directory, the steps in the order of the data."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from nmt.config import TrainConfig, TrainerConfig
from nmt.configuration import load_config, save_config
from nmt.data.corpus import Corpus, prepare_corpus
from nmt.data.encoded import encode_corpus
from nmt.data.filtered import FilteredCorpus, filter_corpus
from nmt.data.tokenizer import Tokenizer
from nmt.decoding.translator import Translator
from nmt.errors import RequestError, WorkError
from nmt.evaluation.card import REPORT_FILE, write_card_or_warn
from nmt.evaluation.scoring import RESULTS_FILE, provenance, read_results, score_sets, versions
from nmt.files import cause_of, require_writable, sha256_of
from nmt.launch import Launch
from nmt.models.registry import build_model
from nmt.training.budget import find_tokens, with_tokens
from nmt.training.checkpoint import CONFIG, TRAINING, WEIGHTS, Checkpoint, load_weights, step_directories
from nmt.training.compiling import require_compiler
from nmt.training.device import choose_device, is_out_of_memory, require_kernel, slow_precision
from nmt.training.distributed import Processes, joined
from nmt.training.finetuning import open_parent, parent_facts
from nmt.training.monitor import Monitor, SilentMonitor
from nmt.training.store import RunStore, require_own_files
from nmt.training.trainer import Progress, Trainer, mixed_seed
from nmt.training.validation import Validator

CONFIG_FILE = "config.yaml"


def train(config: TrainConfig) -> float:
    """Trains, or goes on training, the run of a configuration, and scores its best checkpoint on the test sets.

    Returns:
        validation BLEU of the best checkpoint, which is what a sweep optimizes.

    Raises:
        RequestError, WorkError: in one line, what is wrong with the request, the data or the machine.
        Interrupted: after a signal, with the state saved.
    """
    launch = Launch.from_environment()
    device = choose_device(config.trainer.device, launch)
    require_kernel(config, device)
    require_compiler(config, device)
    with joined(launch, device) as processes, contextlib.ExitStack() as held:
        # Before anything is made: a wrong init_from or data.dir leaves no run behind.
        parent = processes.from_first(lambda: open_parent(config, say))
        corpus = processes.in_turn(lambda: prepare_corpus(config.data, say))
        # The first process's folder is everybody's: its name may be the time, which is not the same in all.
        run = processes.from_first(lambda: held.enter_context(made_directory(config.run.dir)))
        with processes.together():
            if processes.first:
                held.enter_context(only_one(run))
                require_usable(run, corpus)
        before = processes.from_first(lambda: config_of(run))
        config = with_kept_tokens(config, before)
        with processes.together():
            require_same_config(config, before, run)
        return _train(config, run, corpus, parent, device, processes)


def _train(
    config: TrainConfig,
    run: Path,
    corpus: Corpus,
    parent: Checkpoint | None,
    device: torch.device,
    processes: Processes,
) -> float:
    if config.trainer.threads is not None:
        torch.set_num_threads(config.trainer.threads)
    facts: dict[str, Any] = {
        "data": processes.from_first(lambda: corpus_identity(corpus)),
        "versions": versions(),
    }
    store = RunStore(run, facts, config.trainer.keep_last)
    checkpoint = processes.from_first(lambda: store.latest(say))
    with processes.together():
        if checkpoint is not None:
            require_same_data(checkpoint, facts["data"], run)
    facts.update(parent_facts(config, parent, checkpoint))
    start = checkpoint or parent
    filtered = processes.in_turn(lambda: filter_corpus(corpus, config.data, say))
    tokenizer = processes.from_first(lambda: prepare_tokenizer(config, filtered, start))
    encoded = processes.in_turn(lambda: encode_corpus(filtered, tokenizer, config, say))
    facts["filtered"] = encoded.filtered
    with contextlib.ExitStack() as held:
        with processes.together():
            torch.manual_seed(mixed_seed(config.trainer.seed, 0, 0))
            model = build_model(config.model, tokenizer.source_size, tokenizer.target_size).to(device)
            facts["parameters"] = model.parameter_count()
            state = training_state_of(checkpoint) if checkpoint is not None else {}
            if start is not None:
                load_weights(model, start.weights(), start.directory / WEIGHTS)
        if config.batch.tokens == "auto":
            found = processes.from_first(lambda: find_tokens(config, model, encoded, device, say))
            config = with_tokens(config, found)
        with processes.together():
            place = device.type if processes.size == 1 else f"{processes.size} processes, {device.type}"
            say(f"{config.model.name}: {facts['parameters']:,} parameters, on {place}, seed {config.trainer.seed}")
            if warning := slow_precision(config.trainer.precision, device):
                say(warning)
            say(end_in_words(config.trainer))
            validator = Validator(corpus, tokenizer, config, say, processes)
            # What follows changes the folder, so it comes after all that may be refused.
            if processes.first:
                tokenizer.save(run)
            monitor = held.enter_context(_monitor(config, run, checkpoint) if processes.first else SilentMonitor())
            if processes.first:
                store.tidy()
        trainer = Trainer(config, model, tokenizer, encoded, validator, store, monitor, device, processes)
        if checkpoint is not None:
            restore(trainer, checkpoint, state)
            say(f"continuing {run} at step {checkpoint.step}")
        trainer.run()
        with processes.together():
            if processes.first:
                score_best(run, corpus, monitor)
        return trainer.progress.best_bleu


def _monitor(config: TrainConfig, run: Path, checkpoint: Checkpoint | None) -> Monitor:
    """The record of the run, and with it its resolved config."""
    save_config(config, run / CONFIG_FILE)
    resumed, validated = (checkpoint.step, checkpoint.meta["validated_step"]) if checkpoint else (0, 0)
    monitor = Monitor(run, resumed, validated_step=validated)
    monitor.configuration((run / CONFIG_FILE).read_text(encoding="utf-8"))
    return monitor


def end_in_words(trainer: TrainerConfig) -> str:
    """What will end the run, with the keys that say so; every run has a budget, if only `DEFAULT_EPOCHS`."""
    limits = [
        f"{f'{value:,}' if isinstance(value, int) else f'{value:g}'} {unit} (trainer.{name})"
        for name, value, unit in (
            ("max_steps", trainer.max_steps, "steps"),
            ("max_epochs", trainer.max_epochs, "epochs"),
            ("max_minutes", trainer.max_minutes, "minutes"),
            ("patience", trainer.patience, "validations without a better BLEU"),
        )
        if value is not None
    ]
    return f"training ends after {' or '.join(limits)}" + (", whichever comes first" if len(limits) > 1 else "")


def training_state_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Raises RequestError for a state that other code than this has written."""
    state = checkpoint.training_state()
    with _of_this_version(checkpoint):
        Progress(**state["progress"])
    return state


def restore(trainer: Trainer, checkpoint: Checkpoint, state: dict[str, Any]) -> None:
    """Raises RequestError for a state that other code than this has written, for another optimizer, say."""
    with _of_this_version(checkpoint):
        trainer.restore(checkpoint.weights(), state)


@contextlib.contextmanager
def _of_this_version(checkpoint: Checkpoint) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        path = checkpoint.directory / TRAINING
        raise RequestError(f"{path} is of another version of nmt ({type(error).__name__}: {error})") from error


def score_best(run: Path, corpus: Corpus, monitor: Monitor) -> None:
    """Scores the best checkpoint on all test sets, unless that has been done."""
    translator = Translator.load(run)
    assert translator.checkpoint is not None and translator.config is not None
    names = list(corpus.test)
    results = read_results(run)
    done = results.get("provenance") == json.loads(json.dumps(provenance(translator)))
    if done and set(names) <= set(results.get("sets", {})):
        monitor.message(f"{run}: nothing left to do, scored at step {translator.checkpoint.step}")
    else:
        results = score_sets(translator, corpus, names, run, monitor.message)
        done = False
    monitor.results(results, dataclasses.asdict(translator.config), translator.checkpoint.step)
    if translator.config.run.report and not (done and (run / REPORT_FILE).exists()):
        write_card_or_warn(run, corpus, monitor.message)


def require_same_config(config: TrainConfig, before: TrainConfig | None, run: Path) -> None:
    """Raises RequestError where the run directory holds checkpoints of another config.

    Budgets, logging and device may differ from those of the run that is continued: they do not change what is trained.
    The one exception is a schedule that ends with trainer.max_steps.
    """
    if before is None:
        return
    differing = differences(before, config)
    if config.schedule.name in ("linear", "cosine") and config.schedule.total is None:
        differing += ["trainer.max_steps"] * (before.trainer.max_steps != config.trainer.max_steps)
    for path in differing:
        raise RequestError(f"run.dir={run} holds a run with another {path}; give that value, or another run.dir")


def config_of(run: Path) -> TrainConfig | None:
    """The configuration of the run that is continued there, if it has a checkpoint."""
    saved = step_directories(run / "checkpoints")
    if not saved:
        return None
    kept = run / CONFIG_FILE
    return load_config(kept if kept.exists() else saved[-1] / CONFIG)


def with_kept_tokens(config: TrainConfig, before: TrainConfig | None) -> TrainConfig:
    """A run that is continued with batch.tokens=auto has the number that was found when it began."""
    if config.batch.tokens != "auto" or before is None:
        return config
    return with_tokens(config, before.batch.budget)


@contextlib.contextmanager
def only_one(run: Path) -> Iterator[None]:
    """Keeps a second process from training in the same run directory at the same time.

    Raises:
        RequestError: another process does.
    """
    descriptor = os.open(run, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise RequestError(f"run.dir={run}: another process is training there") from None
    except OSError:
        pass  # a network file system without locks
    try:
        yield
    finally:
        os.close(descriptor)


FREE_KEYS = (
    "run",
    "search",
    "batch.memory_mb",
    "validation.samples",
    "trainer.max_steps",
    "trainer.max_epochs",
    "trainer.max_minutes",
    "trainer.patience",
    "trainer.device",
    "trainer.sharding",
    "trainer.compile",
    "trainer.threads",
    "trainer.log_every",
    "trainer.save_every",
    "trainer.keep_last",
    "trainer.max_skipped_steps",
    "data.dir",
    "data.cache",
    "data.downloads",
    "data.processes",
)


def differences(before: TrainConfig, after: TrainConfig) -> list[str]:
    """The keys whose values differ in a way that changes what is trained."""

    def compare(left: Any, right: Any, path: str) -> list[str]:
        if path in FREE_KEYS:
            return []
        if isinstance(left, dict) and isinstance(right, dict):
            return [
                found
                for key in left | right
                for found in compare(left.get(key), right.get(key), f"{path}.{key}" if path else str(key))
            ]
        return [path] if left != right else []

    return compare(dataclasses.asdict(before), dataclasses.asdict(after), "")


def require_usable(run: Path, corpus: Corpus) -> None:
    """Raises RequestError or WorkError for what would stop a run only when hours of work have been done."""
    require_own_files(run)
    for path in (CONFIG_FILE, RESULTS_FILE, *(f"hypotheses/{name}.txt" for name in corpus.test)):
        require_writable(run / path)
    require_writable(run / "checkpoints" / "step_00000001", directory=True)
    read_results(run)


@contextlib.contextmanager
def made_directory(name: str) -> Iterator[Path]:
    """The run directory, made where it is missing, and taken away again where it was made and is left empty.

    Raises:
        RequestError, WorkError: it cannot be made.
    """
    try:
        run = Path(name).expanduser()
        missing = [folder for folder in (run, *run.parents) if not folder.exists()]
        run.mkdir(parents=True, exist_ok=True)
    except RuntimeError as error:
        raise RequestError(f"run.dir={name}: no home directory") from error
    except OSError as error:
        raise WorkError(f"run.dir={name} cannot be made: {cause_of(error)}") from error
    try:
        yield run
    finally:
        with contextlib.suppress(OSError):  # not empty
            for folder in missing:
                folder.rmdir()


def prepare_tokenizer(config: TrainConfig, filtered: FilteredCorpus, start: Checkpoint | None) -> Tokenizer:
    """The tokenizer of the checkpoint whose weights are trained further, or a new one trained on the pairs kept.

    It comes into the run directory when nothing is left that may refuse the run.
    """
    if start is not None:
        return Tokenizer.load(start.directory)
    return Tokenizer.train(config.tokenizer, filtered.pairs(), None, say)


def require_same_data(checkpoint: Checkpoint, data: dict[str, str], run: Path) -> None:
    """Raises RequestError where a file is not what the checkpoint was trained on: data.dir may move, not change."""
    before = checkpoint.meta["data"]
    for name in sorted(before.keys() | data.keys()):
        if before.get(name) != data.get(name):
            raise RequestError(f"run.dir={run} holds a run on other data: {name} has changed; give another run.dir")


def corpus_identity(corpus: Corpus) -> dict[str, str]:
    """SHA-256 of every file of the training and validation splits."""
    return {
        f"{split}[{i}] {path.name}": sha256_of(path)
        for split, texts in (("train", corpus.train), ("valid", corpus.valid))
        for i, pair in enumerate(texts)
        for path in (pair.source, pair.target)
    }


def say(text: str) -> None:
    """One line on stderr, if there is somebody to read it."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
