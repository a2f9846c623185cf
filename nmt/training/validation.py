"""Validation by real decoding: BLEU and chrF of translations, and the loss, on text the model is not trained on."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from nmt.config import TrainConfig
from nmt.data.batching import make_batch
from nmt.data.corpus import Corpus, Report
from nmt.data.encoded import EncodedCorpus, encode_pairs, report_unknown
from nmt.data.tokenizer import Tokenizer
from nmt.decoding.search import go_on
from nmt.decoding.translator import Translator, has_content, length_batches
from nmt.errors import WorkError
from nmt.evaluation.alignment import Alignment
from nmt.evaluation.metrics import bleu_by_length, corpus_scores
from nmt.models.base import TranslationModel
from nmt.training.device import autocast
from nmt.training.distributed import ALONE, Processes
from nmt.training.interruption import Stopped
from nmt.training.loss import label_smoothed_loss
from nmt.training.monitor import Sample


@dataclass(frozen=True)
class Validation:
    """What a validation found."""

    metrics: dict[str, float]
    """bleu, chrf, loss (cross-entropy in nats a token), perplexity, length_ratio, seconds; BLEU by source length."""
    samples: list[Sample]
    alignments: list[Alignment]
    warnings: tuple[str, ...]


class Validator:
    """The validation set, read and encoded once."""

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        config: TrainConfig,
        report: Report,
        processes: Processes = ALONE,
    ) -> None:
        limit = config.validation.sentences
        pairs = [pair for files in corpus.valid for pair in files][:limit]
        self.sources = [source for source, _ in pairs]
        self.references = [line for files in corpus.valid for line in files.references()][:limit]
        self.encoded: EncodedCorpus = encode_pairs(pairs, tokenizer)
        report_unknown("valid", self.encoded, report)
        lengths = self.encoded.source.lengths.tolist()
        self.asked = [i for i, source in enumerate(self.sources) if has_content(source, lengths[i])]
        self.tokenizer = tokenizer
        self.config = config
        self.target_language = corpus.target_language
        self.processes = processes

    def __call__(
        self, model: TranslationModel, device: torch.device, should_stop: Callable[[], bool] = lambda: False
    ) -> Validation:
        """Validates a model, which is in evaluation mode meanwhile. Each process does a share, all get the whole.

        Raises:
            Stopped: when `should_stop` says so, in any of the processes; asked between two batches and, in a search,
                between two positions, since one batch of long sentences may take minutes.
            WorkError: the loss is not finite.
        """
        began = time.perf_counter()
        was_training = model.training
        model.eval()
        try:
            loss = self._loss(model, device, should_stop)
            if not math.isfinite(loss):
                raise WorkError(
                    "the loss in validation is not finite: training has diverged; lower optimizer.lr in another run.dir"
                )
            beam_size = self.config.validation.beam_size
            search = dataclasses.replace(self.config.search.without_chance(), beam_size=beam_size, n_best=1)
            translator = Translator(model, self.tokenizer, search, device)
            hypotheses = self._translate(translator, should_stop)
            translator.between_steps = go_on  # what is left is short, and the first process's alone
            return self.processes.from_first(lambda: self._measured(translator, loss, hypotheses, began))
        finally:
            model.train(was_training)

    def _measured(self, translator: Translator, loss: float, hypotheses: list[str], began: float) -> Validation:
        shown = self.asked[: self.config.validation.samples]
        aligned = (
            translator.translate([self.sources[i] for i in shown], alignments=True) if translator.model.attends else []
        )
        scores = corpus_scores(hypotheses, self.references, target_language=self.target_language)
        metrics = {
            "bleu": scores.bleu,
            "chrf": scores.chrf,
            "loss": loss,
            "perplexity": math.exp(min(loss, 100.0)),
            "length_ratio": scores.statistics.length_ratio or 0.0,
            "seconds": time.perf_counter() - began,
            **bleu_by_length(self.sources, hypotheses, self.references),
        }
        samples = [Sample(self.sources[i], hypotheses[i], self.references[i]) for i in shown]
        alignments = [t.alignment.words() for t in aligned if t.alignment is not None]
        drawn = [alignment for alignment in alignments if alignment.source_tokens and alignment.target_tokens]
        return Validation(metrics, samples, drawn, scores.statistics.warnings)

    def _translate(self, translator: Translator, should_stop: Callable[[], bool]) -> list[str]:
        sources = [self.encoded.source[i].tolist() for i in self.asked]
        search = translator.search

        def leave_if_stopped() -> None:
            if should_stop():
                raise Stopped

        translator.between_steps = leave_if_stopped

        def translated(places: list[int]) -> list[str]:
            found = ["" for _ in places]
            for inside, hypotheses in translator.search_ids([sources[i] for i in places], search):
                for place, best in zip(inside, hypotheses, strict=True):
                    found[place] = self.tokenizer.decode(best[0].tokens)
            return found

        batches = list(length_batches([len(source) for source in sources], search.batch_tokens // search.beam_size))
        hypotheses = ["" for _ in self.sources]
        for places, found in zip(batches, self.processes.spread(batches, translated, should_stop), strict=True):
            for place, text in zip(places, found, strict=True):
                hypotheses[self.asked[place]] = text
        return hypotheses

    @torch.inference_mode()
    def _loss(self, model: TranslationModel, device: torch.device, should_stop: Callable[[], bool]) -> float:
        """Mean cross-entropy a target token, without label smoothing."""
        source, target = self.encoded.source, self.encoded.target

        def cross_entropy(places: list[int]) -> float:
            batch = make_batch([source[i] for i in places], [target[i] for i in places]).to(device)
            with autocast(self.config.trainer.precision, device):
                hidden_BTD = model(batch)
            sums = label_smoothed_loss(hidden_BTD, model.output, batch.target_output_BT, 0.0, batch.target_index_P)
            return sums.cross_entropy.item()

        batches = list(length_batches(np.maximum(source.lengths, target.lengths).tolist(), self.config.batch.budget))
        total = sum(self.processes.spread(batches, cross_entropy, should_stop))
        return total / max(1, int(target.lengths.sum()))
