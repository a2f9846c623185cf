"""The training loop: `Trainer.run` is the order in which things happen.

Exactness shapes it. Which pairs are in which batch is a function of (seed, epoch), the learning rate of the step, and
all other chance of (seed, step, batch): each batch seeds PyTorch's generators anew. So the state that a continuation
needs is small, and a run that was interrupted, wherever, goes on to the same numbers as one that was not. Several
processes run this same loop, each with its share of every step's batches and of every validation.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nmt.config import TrainConfig
from nmt.data.batching import Batch, make_batch, padding_share, plan_batches
from nmt.data.encoded import EncodedCorpus, draw_segmentations
from nmt.data.mixing import epoch_rows, weights
from nmt.data.tokenizer import Tokenizer
from nmt.errors import WorkError
from nmt.models.base import TranslationModel
from nmt.training.compiling import as_written, compile_layers, compiler_said
from nmt.training.device import autocast, is_out_of_memory
from nmt.training.distributed import ALONE, Piece, Processes, replicas
from nmt.training.feeding import Feed
from nmt.training.interruption import Interrupted, Interruption, Stopped
from nmt.training.loss import label_smoothed_loss
from nmt.training.monitor import Monitor, budget_progress
from nmt.training.optim import Averaged, WeightAverage, build_optimizer, build_schedule, step_if
from nmt.training.store import RunStore
from nmt.training.validation import Validator
from nmt.training.window import Outcome, Window


@dataclass
class Progress:
    """How far a run is: all that changes from step to step, besides weights and optimizer."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """Batches of this epoch's plan that are done."""
    tokens: int = 0
    """Target tokens trained on, end marks included."""
    seconds: float = 0.0
    validated_step: int = 0
    best_bleu: float = -1.0
    best_step: int = 0
    validations_without_gain: int = 0
    skipped_in_a_row: int = 0
    skipped: int = 0


class Trainer:
    """One training run, from wherever its store left off to the end of its budget."""

    def __init__(
        self,
        config: TrainConfig,
        model: TranslationModel,
        tokenizer: Tokenizer,
        corpus: EncodedCorpus,
        validator: Validator,
        store: RunStore,
        monitor: Monitor,
        device: torch.device,
        processes: Processes = ALONE,
    ) -> None:
        self.config = config
        self.model = model
        self.tokenizer = tokenizer
        self.corpus = corpus
        self.validator = validator
        self.store = store
        self.monitor = monitor
        self.device = device
        self.processes = processes
        if config.trainer.compile:  # before the weights are shared among processes
            monitor.message(f"compiling {compile_layers(model)} layers: the first steps take longer")
        self.replicas = replicas(model, processes, config.trainer.sharding)
        self.optimizer = build_optimizer(config.optimizer, model)
        self.schedule = build_schedule(config.schedule, config.trainer.max_steps)
        decay = config.trainer.ema_decay
        self.average = WeightAverage(map(self.replicas.kept, model.parameters()), decay) if decay else None
        self.progress = Progress()
        self.window = Window(device)
        self.interruption = Interruption()
        self._signal: int | None = None
        self._saved_step = -1
        self._open: Outcome | None = None
        self.plan: list[NDArray[np.int64]] = []
        self.epoch_corpus = corpus
        self.feed = Feed(self._batch, device)

    def run(self) -> None:
        """Trains until a budget is used up or patience is lost.

        Raises:
            Interrupted: after SIGINT, SIGTERM or SIGHUP, with the state saved.
            WorkError: too many steps in a row without a finite gradient, out of memory, or a full disk.
        """
        self._plan_epoch()
        with self.interruption:
            self._clock = time.perf_counter()
            while True:
                self._agree()
                if self._stopping():
                    self._save()
                    raise Interrupted(self._signal or 0, f"stopped at step {self.progress.step}, saved")
                finished = self._finished()
                if self._validation_due(finished):
                    self._validate()
                    self.window = Window(self.device)  # so that saving takes none of the next line's time
                    continue  # it may have been the last that patience allows
                if finished:
                    return
                try:
                    lr = self._step()
                except Stopped:
                    continue
                self._tick()
                if self.progress.step % self.config.trainer.log_every == 0:
                    self._settle()
                    metrics = self.window.metrics(lr, self.progress.skipped)
                    self.monitor.training(*self._counts(), metrics, *self._budget())
                    self.window = Window(self.device)
                else:
                    self.monitor.advance(self.progress.step, self.progress.seconds, *self._budget())
                if self.progress.step % self.config.trainer.save_every == 0:
                    self._save()

    # One step --------------------------------------------------------------------------------------------------

    def _step(self) -> float:
        """Forward, backward and update over `batch.accumulate` batches; returns the learning rate.

        Raises Stopped between two of them after a signal, and nothing has happened then: a step may take minutes.
        """
        progress, trainer = self.progress, self.config.trainer
        began = progress.epoch, progress.batch
        step = progress.step + 1
        lr = self.config.optimizer.lr * self.schedule(step)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        taken = Window(self.device)
        with self.replicas.summed_gradients():
            batches = self._next_batches()
            taken.tokens = sum(int(self.epoch_corpus.target.lengths[indices].sum()) for indices in batches)
            pieces = self._pieces(batches)
            for piece, following in itertools.zip_longest(pieces, pieces[1:]):
                if self.interruption.received is not None and self.processes.size == 1:  # several end it together
                    progress.epoch, progress.batch = began
                    raise Stopped
                torch.manual_seed(mixed_seed(trainer.seed, step, *piece.key))
                self._accumulate(self.feed.take(piece.indices), taken)
                if following is not None:
                    self.feed.prepare(following.indices)
        self.processes.sum([taken.sums])
        norm = self.replicas.whole(
            torch.nn.utils.clip_grad_norm_(
                self.model.parameters(), trainer.clip_norm if trainer.clip_norm is not None else torch.inf
            )
        )
        taken.sums[4] = norm
        outcome = Outcome(step, taken)
        step_if(self.optimizer, outcome.finite)
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(step)
        progress.step = step
        progress.tokens += taken.tokens
        for piece in self._pieces(self._planned())[:1]:
            self.feed.prepare(piece.indices)
        self._settle()  # the step before this one, for which a GPU that is busy with this one need not be waited for
        self._open = outcome
        if not outcome.late:
            self._settle()
        return lr

    def _settle(self) -> None:
        """Takes in the last step's sums, or says that it was skipped, unless that has been done."""
        outcome, self._open = self._open, None
        if outcome is None:
            return
        if outcome.was_finite():
            self.progress.skipped_in_a_row = 0
            self.window.add(outcome.taken)
        else:
            with self.processes.together():
                self._skip(outcome.step)

    def _accumulate(self, batch: Batch, taken: Window) -> None:
        """Adds a batch's gradient, normalised by the tokens of the whole step, not by those of the batch."""
        try:
            on_device = batch.to(self.device)
            with autocast(self.config.trainer.precision, self.device):
                hidden_BTD = self.model(on_device)
            sums = label_smoothed_loss(
                hidden_BTD,
                self.model.output,
                on_device.target_output_BT,
                self.config.loss.label_smoothing,
                on_device.target_index_P,
            )
            (sums.loss / taken.tokens).backward()
        except (MemoryError, RuntimeError) as error:
            if self.config.trainer.compile and (said := compiler_said(error)) is not None:
                raise WorkError(f"trainer.compile=true: a layer cannot be compiled here: {said}") from error
            if not is_out_of_memory(error):
                raise
            rows, width = batch.target_output_BT.shape
            raise WorkError(
                f"out of memory with a batch of {rows} pairs of up to {max(width, batch.source_BS.shape[1])} pieces: "
                f"lower batch.tokens={self.config.batch.tokens} and raise batch.accumulate instead, in another run.dir"
            ) from error
        taken.sums[:3] += torch.stack((sums.loss.detach(), sums.cross_entropy, sums.correct))
        taken.sums[3] += batch.target_output_BT.numel()

    def _skip(self, step: int) -> None:
        """Says that the weights are as they were; gives up after too many such steps in a row."""
        progress, limit = self.progress, self.config.trainer.max_skipped_steps
        progress.skipped += 1
        progress.skipped_in_a_row += 1
        self.monitor.message(f"step {step}: loss or gradient is not finite, the step is skipped")
        if progress.skipped_in_a_row >= limit:
            raise WorkError(
                f"{limit} steps in a row without a finite loss and gradient, the last one step {step}: lower "
                f"optimizer.lr={self.config.optimizer.lr:g} or use trainer.precision=float32, in another run.dir; "
                "earlier checkpoints are kept"
            )

    # Data ------------------------------------------------------------------------------------------------------

    def _plan_epoch(self) -> None:
        """The batches of the current epoch, a function of seed and epoch."""
        config, epoch = self.config, self.progress.epoch
        if config.tokenizer.sampling:
            self.epoch_corpus = draw_segmentations(self.corpus, self.tokenizer, config, epoch)
        lengths = (self.epoch_corpus.source.lengths, self.epoch_corpus.target.lengths)
        rows = epoch_rows(self.corpus.groups, weights(config.data), config.trainer.seed, epoch)
        self.plan = plan_batches(*lengths, config.batch.budget, config.trainer.seed, epoch, rows)
        self.feed = Feed(self._batch, self.device)
        if epoch == 0:
            share = padding_share(self.plan, *lengths)
            self.monitor.message(f"{len(self.plan)} batches an epoch, {share:.1%} padding")

    def _next_batches(self) -> list[NDArray[np.int64]]:
        """The pairs of each batch of one step, all of one epoch; the last step of an epoch may have fewer batches."""
        progress = self.progress
        if progress.batch >= len(self.plan):
            progress.epoch, progress.batch = progress.epoch + 1, 0
            self._plan_epoch()
        chosen = self._planned()
        progress.batch += len(chosen)
        return chosen

    def _planned(self) -> list[NDArray[np.int64]]:
        """The batches of the coming step; none at the end of an epoch."""
        return self.plan[self.progress.batch : self.progress.batch + self.config.batch.accumulate]

    def _pieces(self, batches: list[NDArray[np.int64]]) -> list[Piece]:
        """This process's share of a step of these batches."""
        return self.processes.share(batches, self.config.batch.accumulate)

    def _batch(self, indices: NDArray[np.int64]) -> Batch:
        source, target = self.epoch_corpus.source, self.epoch_corpus.target
        return make_batch([source[i] for i in indices], [target[i] for i in indices])

    # Budget ----------------------------------------------------------------------------------------------------

    def _finished(self) -> bool:
        progress, trainer = self.progress, self.config.trainer
        return (
            (trainer.max_steps is not None and progress.step >= trainer.max_steps)
            or (trainer.max_epochs is not None and self._epochs() >= trainer.max_epochs)
            or (trainer.max_minutes is not None and progress.seconds >= 60 * trainer.max_minutes)
            or (trainer.patience is not None and progress.validations_without_gain >= trainer.patience)
        )

    def _epochs(self) -> float:
        return self.progress.epoch + self.progress.batch / max(1, len(self.plan))

    def _tick(self) -> None:
        now = time.perf_counter()
        self.progress.seconds += now - self._clock
        self._clock = now

    def _counts(self) -> tuple[int, float, float, int]:
        return self.progress.step, self._epochs(), self.progress.seconds, self.progress.tokens

    def _budget(self) -> tuple[float | None, str]:
        trainer, progress = self.config.trainer, self.progress
        return budget_progress(
            progress.step,
            self._epochs(),
            progress.seconds / 60,
            trainer.max_steps,
            trainer.max_epochs,
            trainer.max_minutes,
        )

    def _agree(self) -> None:
        """From here on all processes know the same time and signal, and decide the same."""
        self._tick()
        self.progress.seconds, self._signal = self.processes.agree(self.progress.seconds, self.interruption.received)

    def _stopping(self) -> bool:
        return self._signal is not None

    # Validation and saving -------------------------------------------------------------------------------------

    def _validation_due(self, finished: bool) -> bool:
        step = self.progress.step
        return step > self.progress.validated_step and (finished or step % self.config.validation.every == 0)

    def _validate(self) -> None:
        """Validates the averaged weights, records the scores, and saves; interrupted, it is made up for on resuming."""
        self._settle()
        progress = self.progress
        try:
            with Averaged(self.average), self.replicas.whole_model(), as_written(self.config):
                found = self.validator(self.model, self.device, lambda: self.interruption.received is not None)
        except Stopped:
            return
        self._tick()
        bleu = found.metrics["bleu"]
        progress.validated_step = progress.step
        gained = bleu > progress.best_bleu
        progress.validations_without_gain = 0 if gained else progress.validations_without_gain + 1
        if gained:
            progress.best_bleu, progress.best_step = bleu, progress.step
        self.monitor.validation(*self._counts(), found.metrics, found.samples, found.alignments, found.warnings)
        self.window = Window(self.device)
        self._save(found.metrics, best=gained)

    def _save(self, metrics: dict[str, float] | None = None, best: bool = False) -> None:
        """Saves the state unless that has been done since the last step; a validation always saves."""
        if metrics is None and self._saved_step == self.progress.step:
            return
        self._settle()
        self._tick()
        self._saved_step = self.progress.step
        with Averaged(self.average):
            weights = {name: weight.clone() for name, weight in self._weights().items()}
        if not all(weight.isfinite().all() for weight in weights.values()):
            raise WorkError(
                f"the weights are not finite after step {self.progress.step}: lower optimizer.lr in another run.dir"
            )
        state = self.state()
        with self.processes.together():
            if self.processes.first:
                self.store.save(self.config, self.tokenizer, weights, state, asdict(self.progress), metrics, best)

    def _weights(self) -> dict[str, torch.Tensor]:
        return {name: self.replicas.whole(parameter) for name, parameter in self.model.named_parameters()}

    def state(self) -> dict[str, Any]:
        """What an exact continuation needs, by any number of processes; plain enough for `weights_only` loading."""
        state: dict[str, Any] = {
            "progress": asdict(self.progress),
            "optimizer": self.replicas.optimizer_state(self.optimizer),
            "window": self.window.state(),
        }
        if self.average is not None:  # then the checkpoint's weights are the averages, and these the raw ones
            state["weights"] = self._weights()
        return state

    def restore(self, weights: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Continues from what `state` and the checkpoint's weights hold; the model has those weights already."""
        self.progress = Progress(**state["progress"])
        self._saved_step = self.progress.step
        if "window" in state:  # older checkpoints have none
            self.window.restore(state["window"])
        self.replicas.load_optimizer(self.optimizer, state["optimizer"])
        if self.average is not None:
            for (name, parameter), average in zip(self.model.named_parameters(), self.average.averages, strict=True):
                average.copy_(self.replicas.share(weights[name], parameter))
                self.replicas.kept(parameter).copy_(self.replicas.share(state["weights"][name], parameter))


def mixed_seed(*numbers: int) -> int:
    """A generator seed of its own for each (seed, step, batch)."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
