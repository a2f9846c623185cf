"""A configuration to be trained: the Trainer's own step on the Trainer's own batches, the same ones in every round.

What is timed is `Trainer._step`, that is all of a training run but validation, checkpoints and lines of metrics. Each
round begins the same epoch anew, so rounds differ in the machine alone; with equal data, tokenizer and batch settings
two configurations train on the very same pairs.
"""

from __future__ import annotations

import math
import shlex
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarking.measuring import MEGABYTE, MatrixProduct, Memory, Spread, memory_of, peak_resident, seconds
from benchmarking.operations import training_operations
from benchmarking.parts import time_by_part
from benchmarking.step_by_step import step_by_step
from nmt.config import TrainConfig
from nmt.data.batching import Batch, padding_share
from nmt.data.corpus import Corpus, prepare_corpus
from nmt.data.encoded import EncodedCorpus, encode_corpus
from nmt.data.filtered import filter_corpus
from nmt.data.tokenizer import Tokenizer
from nmt.errors import RequestError
from nmt.models.registry import build_model
from nmt.training import trainer as trainer_module
from nmt.training.budget import find_tokens, with_tokens
from nmt.training.compiling import require_compiler
from nmt.training.device import autocast, choose_device, require_kernel
from nmt.training.monitor import Monitor
from nmt.training.session import say
from nmt.training.store import RunStore
from nmt.training.trainer import Progress, Trainer, mixed_seed
from nmt.training.validation import Validator
from nmt.training.window import Window

PROFILED_STEPS = 3
"""Few: a step of a recurrent model has ten thousand operators and more, and reading their records takes longer."""


@dataclass(frozen=True)
class Round:
    """What one round of one configuration measured."""

    seconds: float
    peak: float
    """Operations a second of a large product, the mean of those before and after the steps."""


class TrainingSubject:
    """One configuration, ready to take steps."""

    def __init__(self, name: str, trainer: Trainer, steps: int) -> None:
        began = time.perf_counter()
        trainer._plan_epoch()
        self.plan_seconds = time.perf_counter() - began
        self.name = name
        self.trainer = trainer
        self.config = trainer.config
        self.device = trainer.device
        self.threads = self.config.trainer.threads or torch.get_num_threads()
        self.plan = trainer.plan
        accumulate = self.config.batch.accumulate
        self.steps = min(steps, math.ceil(len(self.plan) / accumulate))
        self.batches = self.plan[: self.steps * accumulate]
        self.lengths = trainer.epoch_corpus.source.lengths, trainer.epoch_corpus.target.lengths
        pairs = np.concatenate(self.batches)
        source, target = (lengths[pairs] for lengths in self.lengths)
        self.tokens = int(target.sum())
        vocabulary = trainer.tokenizer.target_size
        self.operations = float(training_operations(self.config.model, vocabulary, source, target).sum())
        with autocast(self.config.trainer.precision, self.device):
            one = torch.ones(1, 1, device=self.device)
            self.dtype = (one @ one).dtype

    @property
    def padding_share(self) -> float:
        """Of the whole epoch's plan, both sides together."""
        return padding_share(self.plan, *self.lengths)

    def round(self, product: MatrixProduct) -> Round:
        """The steps, between two large products on as many threads."""
        torch.set_num_threads(self.threads)
        before = product()
        taken = seconds(self.take_steps, self.device)
        return Round(taken, (before + product()) / 2)

    def take_steps(self) -> None:
        """As many steps as a round has."""
        self._train_on(self.batches)

    def memory(self) -> Memory | None:
        """The most that a step takes, over those batches of the epoch that should need most."""
        found = [memory_of(partial(self._train_on, [batch]), self.device) for batch in self._heaviest()]
        return max((one for one in found if one is not None), key=lambda one: one.above_idle, default=None)

    def saving(self) -> float:
        """Seconds that a checkpoint takes, flushed to the disk: the median of three."""
        trainer = self.trainer
        with tempfile.TemporaryDirectory() as folder:
            trainer.store = RunStore(Path(folder), {}, 1)

            def save(step: int) -> None:
                trainer.progress.step, trainer._clock = step, time.perf_counter()
                trainer._save()

            return statistics.median(seconds(partial(save, step), self.device) for step in (1, 2, 3))

    def parts(self) -> dict[str, float]:
        """Seconds of a step by part."""
        torch.set_num_threads(self.threads)
        steps = min(PROFILED_STEPS, self.steps)
        batches = self.plan[: steps * self.config.batch.accumulate]
        found = time_by_part(lambda: self._train_on(batches), self.device)
        return {part: taken / steps for part, taken in found.items()}

    def _train_on(self, batches: list[NDArray[np.int64]]) -> None:
        """Steps over these batches, from the start of the run; nothing but the weights stays changed."""
        trainer = self.trainer
        trainer.progress, trainer.plan = Progress(), batches
        while trainer.progress.batch < len(batches):
            trainer._step()

    def _heaviest(self) -> list[NDArray[np.int64]]:
        """The batch with most positions, and the one whose attention is largest."""
        source, target = self.lengths

        def positions(batch: NDArray[np.int64]) -> int:
            return len(batch) * int(source[batch].max() + target[batch].max())

        def squares(batch: NDArray[np.int64]) -> int:
            return len(batch) * int(max(source[batch].max(), target[batch].max())) ** 2

        return [max(self.plan, key=positions), max(self.plan, key=squares)]


class StepByStepTrainer(Trainer):
    """A Trainer whose forward pass and loss are the plain step-by-step ones; all else is the Trainer's."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.plain = step_by_step(self.model)

    def _accumulate(self, batch: Batch, taken: Window) -> None:
        on_device = batch.to(self.device)
        with autocast(self.config.trainer.precision, self.device):
            loss = self.plain.loss(on_device, self.config.loss.label_smoothing)
        (loss / taken.tokens).backward()
        taken.sums[0] += loss.detach()


class UnguardedTrainer(Trainer):
    """A Trainer whose step is a tutorial's: nothing is seeded, looked at, summed for the log or agreed on.

    What the Trainer's step takes beyond this one's is what its guarantees cost, but for the checkpoints.
    """

    def _step(self) -> float:
        progress, config = self.progress, self.config
        lr = config.optimizer.lr * self.schedule(progress.step + 1)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        batches = [self._batch(indices).to(self.device) for indices in self._next_batches()]
        tokens = sum(batch.target_tokens for batch in batches)
        for batch in batches:
            with autocast(config.trainer.precision, self.device):
                hidden_BTD = self.model(batch)
            # As found there, where time by part watches it.
            sums = trainer_module.label_smoothed_loss(  # type: ignore[attr-defined]
                hidden_BTD,
                self.model.output,
                batch.target_output_BT,
                config.loss.label_smoothing,
                batch.target_index_P,
            )
            (sums.loss / tokens).backward()
        if config.trainer.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.trainer.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        progress.step += 1
        if self.average is not None:
            self.average.update(progress.step)
        return lr


class Workshop:
    """Builds subjects; corpora and tokenizers that several of them share are made once."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._made: dict[str, tuple[Corpus, Tokenizer, EncodedCorpus]] = {}

    def subject(self, name: str, config: TrainConfig, kind: type[Trainer] = Trainer) -> TrainingSubject:
        """The run that `nmt train` would begin, without run directory, validation and checkpoints."""
        device = choose_device(config.trainer.device)
        require_kernel(config, device)
        require_compiler(config, device)
        corpus, tokenizer, encoded = self._data(config)
        torch.manual_seed(mixed_seed(config.trainer.seed, 0, 0))
        model = build_model(config.model, tokenizer.source_size, tokenizer.target_size).to(device)
        if config.batch.tokens == "auto":
            config = with_tokens(config, find_tokens(config, model, encoded, device, say))
        validator = Validator(corpus, tokenizer, config, _silent)
        trainer = kind(config, model, tokenizer, encoded, validator, RunStore(Path(), {}, 1), _Quiet(), device)
        return TrainingSubject(name, trainer, self.steps)

    def _data(self, config: TrainConfig) -> tuple[Corpus, Tokenizer, EncodedCorpus]:
        key = repr((config.data, config.tokenizer))
        if key not in self._made:
            corpus = prepare_corpus(config.data, say)
            filtered = filter_corpus(corpus, config.data, say)
            with tempfile.TemporaryDirectory() as folder:
                tokenizer = Tokenizer.train(config.tokenizer, filtered.pairs(), Path(folder), say)
            self._made[key] = corpus, tokenizer, encode_corpus(filtered, tokenizer, config, say)
        return self._made[key]


def _silent(text: str) -> None:
    pass


class _Quiet(Monitor):
    """Tells what goes wrong in a step, and keeps nothing."""

    def __init__(self) -> None:
        pass

    def message(self, text: str) -> None:
        say(text)


def overridden(overrides: Sequence[str], changes: str) -> list[str]:
    """The overrides with others in the place of those that they replace, or after them.

    A key replaces the same key; another choice in a group (`model=luong`) also what was said of the one before
    (`model.width=64`).

    Args:
        changes: overrides separated by spaces, quoted as in a shell.

    Raises:
        RequestError: a quotation mark without its other half.
    """
    try:
        changed = shlex.split(changes)
    except ValueError as error:
        raise RequestError(f"--against {changes}: {error}") from error
    keys = {_key(override) for override in changed}

    def stays(override: str) -> bool:
        key = _key(override)
        return key not in keys and key.partition(".")[0] not in keys

    return [override for override in overrides if stays(override)] + changed


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def record(
    subject: TrainingSubject, rounds: Sequence[Round], memory: Memory | None, parts: dict[str, float], saving: float
) -> dict[str, Any]:
    """What was measured of one configuration, by the names of the JSON."""
    speed = Spread(tuple(subject.tokens / one.seconds for one in rounds))
    peak = Spread(tuple(one.peak for one in rounds))
    fraction = Spread(tuple(subject.operations / one.seconds / one.peak for one in rounds))
    step_seconds = Spread(tuple(one.seconds / subject.steps for one in rounds)).median
    on_gpu = subject.device.type == "cuda"
    resident = peak_resident() if on_gpu or memory is None else memory.peak
    return {
        "configuration": subject.name,
        "model": subject.config.model.name,
        "parameters": subject.trainer.model.parameter_count(),
        "vocabulary": subject.trainer.tokenizer.target_size,
        "precision": str(subject.dtype).removeprefix("torch."),
        "threads": subject.threads,
        "steps": subject.steps,
        "batches_an_epoch": len(subject.plan),
        "tokens_a_round": subject.tokens,
        "target_tokens_per_s": speed.median,
        "target_tokens_per_s_rounds": list(speed.rounds),
        "operations_per_token": subject.operations / subject.tokens,
        "peak_operations_per_s": peak.median,
        "fraction_of_peak": fraction.median,
        "fraction_of_peak_rounds": list(fraction.rounds),
        "padding_share": subject.padding_share,
        "plan_seconds": subject.plan_seconds,
        "save_seconds": saving,
        "save_share": saving / (saving + step_seconds * subject.config.trainer.save_every),
        "peak_rss_mb": None if resident is None else resident / MEGABYTE,
        "peak_device_mb": memory.peak / MEGABYTE if memory is not None and on_gpu else None,
        "step_memory_mb": None if memory is None else memory.above_idle / MEGABYTE,
        "step_seconds_by_part": parts,
        "share_by_part": {part: taken / sum(parts.values()) for part, taken in parts.items()},
    }
