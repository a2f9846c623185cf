"""The protocol that every translation model keeps, so that loss, search, scorer and pictures are written once.

Rows are the notable idea. Everything that a decoder carries from step to step (`DecoderState`) and everything that it
looks back at (`Memory`) is a value made of tensors that share their first dimension. Reordering beams, opening the
first step's single hypothesis into several, and dropping finished sentences are then one operation for every model:
`select`. A memory has a row for each sentence and a state has one for each hypothesis; the hypotheses of a sentence
are neighbours, so a model finds N by dividing, and source keys are never copied for each hypothesis.

Shapes: B batch (sentences), R = B·N rows (hypotheses), N hypotheses a sentence, S source positions, T target
positions, D model width, E embedding width, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.data.tokenizer import PAD

if TYPE_CHECKING:
    from nmt.data.batching import Batch


def _select(value: Any, index: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value.index_select(0, index)
    if isinstance(value, tuple):
        return tuple(_select(part, index) for part in value)
    if isinstance(value, Rows):
        return value.select(index)
    return value


class Rows:
    """A dataclass whose tensors, also those in tuples, share their first dimension."""

    def select(self, index: Tensor) -> Self:
        """The same value for the rows `index` (int64, any length; a row may come several times or not at all)."""
        fields = dataclasses.fields(cast(Any, self))
        changes = {field.name: _select(getattr(self, field.name), index) for field in fields}
        return cast(Self, dataclasses.replace(cast(Any, self), **changes))


@dataclass(frozen=True)
class Memory(Rows):
    """What the encoder leaves for the decoder: one row a sentence."""

    mask_BS: Tensor
    """True at source positions that are not padding."""


@dataclass(frozen=True)
class DecoderState(Rows):
    """What the decoder knows after the pieces written so far: one row a hypothesis."""


class OutputProjection(nn.Module):
    """Hidden states to logits over the target vocabulary, `W h + b`; W may be the embedding matrix.

    Padding is never a prediction. Its id is 0, so the loss leaves it out by a slice and the search by a mask.
    """

    def __init__(self, hidden_size: int, vocabulary: int, tied: Tensor | None) -> None:
        super().__init__()
        if tied is None:
            self.weight = nn.Parameter(torch.empty(vocabulary, hidden_size))
            nn.init.normal_(self.weight, std=hidden_size**-0.5)
        else:
            self.weight = cast(nn.Parameter, tied)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits (…, V) of hidden states (…, D)."""
        return F.linear(hidden, self.weight, self.bias)


class TranslationModel(nn.Module):
    """What loss, search, scorer, exporter and attention plots need from a model, and all that they use.

    A family implements `forward`, `encode`, `start` and `step`. `step` with the pieces of a target one by one gives
    the hidden states that `forward` gives at once; the tests hold every family to it.
    """

    output: OutputProjection

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states (B, T, D) that predict `batch.target_output_BT`, given the true pieces before (teacher
        forcing). The projection to the vocabulary is left to the loss, which never needs all logits at once."""
        raise NotImplementedError

    def encode(self, source_BS: Tensor) -> Memory:
        """Reads source ids, padded on the right with PAD."""
        raise NotImplementedError

    def start(self, memory: Memory) -> DecoderState:
        """The state before the first piece, one row a sentence."""
        raise NotImplementedError

    def step(
        self, tokens_R: Tensor, state: DecoderState, memory: Memory, need_weights: bool = False
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        """One target position for every row.

        Args:
            tokens_R: the piece before this position, BOS at first. R is a multiple of the memory's B rows and the
                hypotheses of a sentence are neighbours.
            need_weights: also return the attention weights (R, S), zero on padding, one in sum.

        Returns:
            hidden states (R, D), the next state, and the weights, or None where not asked for or where the model
            does not attend.
        """
        raise NotImplementedError

    def log_probabilities(self, hidden_RD: Tensor) -> Tensor:
        """Natural log-probabilities (R, V) of the next piece in float32. As in training, padding is no class: -inf."""
        logits_RV = self.output(hidden_RD).float()
        logits_RV[:, PAD] = -torch.inf
        return logits_RV.log_softmax(dim=-1)

    @property
    def attends(self) -> bool:
        """Whether `step` has attention weights to give."""
        return True

    def parameter_count(self) -> int:
        """Trained numbers; a tied matrix counts once."""
        return sum(parameter.numel() for parameter in self.parameters())


class ScaledEmbedding(nn.Embedding):
    """√E · E[token] (Vaswani et al. 2017, section 3.4), for every model of the project.

    An output projection wants rows of unit length, a recurrent or attention layer wants inputs of unit variance, and a
    tied matrix is both. Without the factor an LSTM of 128 cells starts with states so small that a product of two of
    them says nothing, and multiplicative attention is learned late or never.
    """

    def __init__(self, vocabulary: int, size: int) -> None:
        super().__init__(vocabulary, size, padding_idx=PAD)
        nn.init.normal_(self.weight, std=size**-0.5)
        with torch.no_grad():
            self.weight[PAD].zero_()

    def forward(self, tokens: Tensor) -> Tensor:
        """Vectors (…, E) of tokens (…)."""
        return super().forward(tokens) * math.sqrt(self.embedding_dim)


class Embeddings(nn.Module):
    """Source and target embeddings: one matrix where tied, and then the output projection's as well."""

    def __init__(self, source_vocabulary: int, target_vocabulary: int, size: int, tied: bool) -> None:
        super().__init__()
        if tied and source_vocabulary != target_vocabulary:
            raise ValueError("tied embeddings need one joint vocabulary")
        self.source = ScaledEmbedding(source_vocabulary, size)
        self.target = self.source if tied else ScaledEmbedding(target_vocabulary, size)
        self.tied = tied

    def projection(self, hidden_size: int, vocabulary: int) -> OutputProjection:
        """The output projection that goes with these embeddings."""
        return OutputProjection(hidden_size, vocabulary, self.target.weight if self.tied else None)
