"""Several models that decode together, behind the protocol of one: what searches for one searches for all.

At each step the next piece's probability is the arithmetic mean of what the models give it, as in fairseq: a model that
rules a piece out does not veto it, as it would in a geometric mean. Ensembles are what
Sutskever et al. 2014 (table 1) and Luong et al. 2015 (table 1) reached their best figures with.

The mean is taken in logarithms, measured from the greatest, so that equal models give exactly what each of them gives.

Shapes: B sentences, R hypotheses, S source positions, D the models' widths in a row, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from nmt.decoding.translator import Translator
from nmt.errors import RequestError
from nmt.models.base import DecoderState, Memory, TranslationModel
from nmt.training.checkpoint import EXPORT


@dataclass(frozen=True)
class EnsembleMemory(Memory):
    """What each model's encoder leaves."""

    parts: tuple[Memory, ...]


@dataclass(frozen=True)
class EnsembleState(DecoderState):
    """What each model's decoder knows."""

    parts: tuple[DecoderState, ...]


class Ensemble(TranslationModel):
    """Models of one vocabulary. It is searched with; trained is each on its own, so there is no `forward`."""

    def __init__(self, models: Sequence[TranslationModel]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self.widths = [model.output.weight.shape[1] for model in models]

    def encode(self, source_BS: Tensor) -> EnsembleMemory:
        """Each model's memory of the same source."""
        parts = tuple(model.encode(source_BS) for model in self._each())
        return EnsembleMemory(parts[0].mask_BS, parts)

    def start(self, memory: Memory) -> EnsembleState:
        """Each model's state before the first piece."""
        parts = cast(EnsembleMemory, memory).parts
        return EnsembleState(tuple(model.start(part) for model, part in zip(self._each(), parts, strict=True)))

    def step(
        self, tokens_R: Tensor, state: DecoderState, memory: Memory, need_weights: bool = False
    ) -> tuple[Tensor, EnsembleState, Tensor | None]:
        """The models' hidden states side by side (R, D); attention is the mean over the models that attend."""
        states, memories = cast(EnsembleState, state).parts, cast(EnsembleMemory, memory).parts
        hidden: list[Tensor] = []
        following: list[DecoderState] = []
        weights: list[Tensor] = []
        for model, before, part in zip(self._each(), states, memories, strict=True):
            hidden_RD, after, weights_RS = model.step(tokens_R, before, part, need_weights and model.attends)
            hidden.append(hidden_RD)
            following.append(after)
            if weights_RS is not None:
                weights.append(weights_RS)
        mean_RS = torch.stack(weights).mean(dim=0) if weights else None
        return torch.cat(hidden, dim=1), EnsembleState(tuple(following)), mean_RS

    def log_probabilities(self, hidden_RD: Tensor) -> Tensor:
        """log(Σ p / M) over the M models' probabilities p, (R, V)."""
        parts = zip(self._each(), hidden_RD.split(self.widths, dim=1), strict=True)
        each_MRV = torch.stack([model.log_probabilities(part_RD.contiguous()) for model, part_RD in parts])
        greatest_RV = each_MRV.amax(dim=0).clamp(min=torch.finfo(each_MRV.dtype).min)  # -inf less -inf is no number
        return greatest_RV + ((each_MRV - greatest_RV).exp().sum(dim=0) / len(self.widths)).log()

    @property
    def attends(self) -> bool:
        """Whether one of them does."""
        return any(model.attends for model in self._each())

    def _each(self) -> list[TranslationModel]:
        return cast(list[TranslationModel], list(self.models))


def load_ensemble(runs: Sequence[Path | str], device: str = "auto") -> Translator:
    """The translator of several runs or checkpoints together; the search settings are the first one's.

    Raises:
        RequestError: one that cannot be loaded, an export, or runs with unequal tokenizers or languages.
        WorkError: a damaged file.
    """
    for run in runs:
        if (Path(run) / EXPORT).is_file():
            raise RequestError(f"{run} is an export, which translates alone; an ensemble takes runs and checkpoints")
    translators = [Translator.load(run, device) for run in runs]
    first = translators[0]
    for run, other in zip(runs[1:], translators[1:], strict=True):
        if other.tokenizer.identity != first.tokenizer.identity:
            raise RequestError(
                f"{run} and {runs[0]} have different tokenizers: what translates together must have one vocabulary"
            )
        if _languages(other) != _languages(first):
            raise RequestError(
                f"{run} translates {_languages(other)}, and {runs[0]} {_languages(first)}: they cannot do it together"
            )
    model = Ensemble([translator.model for translator in translators]).eval()
    return Translator(model, first.tokenizer, first.search, first.device, config=first.config)


def _languages(translator: Translator) -> str:
    assert translator.config is not None
    data = translator.config.data
    return f"{data.source_language} to {data.target_language}"
