"""Long Short-Term Memory-Networks (Cheng et al. 2016): the step between recurrence and self-attention.

An LSTM's one memory cell becomes a tape of all past states and cells, and each step first attends to its *own* past to
put together the state and cell that it goes on from. Encoder and decoder are both such networks; with deep fusion
(section 4) the decoder's memory also takes in, through a gate of its own, what it finds on the encoder's tape.

Shapes: B batch, R = B·N rows, N hypotheses a sentence, S source positions, T target positions (or positions so far),
E embedding width, H state width, A attention width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmt.config import IntraAttentionConfig
from nmt.data.batching import Batch
from nmt.data.tokenizer import PAD
from nmt.models.attention import masked_softmax
from nmt.models.base import DecoderState, Embeddings, Memory, Rows, TranslationModel
from nmt.models.cells import lstm_cell
from nmt.models.layers import Dropout
from nmt.models.repeated import Repeated


@dataclass(frozen=True)
class Tape(Rows):
    """All past states and cells, and what the intra-attention needs of the states: projected once each."""

    hidden_RTH: Tensor
    cell_RTH: Tensor
    keys_RTA: Tensor

    @classmethod
    def empty(cls, like: Tensor, rows: int, hidden_size: int, attention_size: int) -> Tape:
        """The tape before the first position."""
        blank = like.new_zeros(rows, 0, hidden_size)
        return cls(blank, blank, like.new_zeros(rows, 0, attention_size))

    def append(self, hidden_RH: Tensor, cell_RH: Tensor, key_RA: Tensor) -> Tape:
        """A tape with one more position."""
        return Tape(
            torch.cat((self.hidden_RTH, hidden_RH.unsqueeze(1)), dim=1),
            torch.cat((self.cell_RTH, cell_RH.unsqueeze(1)), dim=1),
            torch.cat((self.keys_RTA, key_RA.unsqueeze(1)), dim=1),
        )


class TapeScore(nn.Module):
    """v · tanh(W_h h_i + W_x x_t + W_h̃ h̃_{t-1}) (equation 4; equation 10 has the same form with u and γ)."""

    def __init__(self, input_size: int, hidden_size: int, attention_size: int) -> None:
        super().__init__()
        self.key = nn.Linear(hidden_size, attention_size, bias=False)  # W_h
        self.input = nn.Linear(input_size, attention_size)  # W_x
        self.previous = nn.Linear(hidden_size, attention_size, bias=False)  # W_h̃
        self.score = nn.Linear(attention_size, 1, bias=False)  # v

    def forward(self, query_BNA: Tensor, keys_BSA: Tensor) -> Tensor:
        """Scores (B, N, S) from W_x x_t + W_h̃ h̃_{t-1} and `key`'s values."""
        return self.score(torch.tanh(query_BNA.unsqueeze(2) + keys_BSA.unsqueeze(1))).squeeze(-1)


class TapeWeights(NamedTuple):
    """What an LSTMN multiplies with in every step, to be taken once a batch."""

    key: Repeated  # W_h
    previous: Repeated  # W_h̃
    recurrent: Repeated


class LSTMN(nn.Module):
    """One LSTM memory-network layer (section 3.1), with a gate for a second memory where `fused` (section 4)."""

    def __init__(self, input_size: int, hidden_size: int, attention_size: int, fused: bool) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.attention_size = attention_size
        self.intra = TapeScore(input_size, hidden_size, attention_size)
        self.input = nn.Linear(input_size, 4 * hidden_size)  # the input's half of W
        self.recurrent = nn.Linear(hidden_size, 4 * hidden_size, bias=False)  # the other half, for h̃_t
        self.fusion_input = nn.Linear(input_size, hidden_size) if fused else None  # W_r's half for x_t
        self.fusion = nn.Linear(hidden_size, hidden_size, bias=False) if fused else None  # and for γ̃_t

    def empty_tape(self, like: Tensor, rows: int) -> Tape:
        """The tape before the first position."""
        return Tape.empty(like, rows, self.hidden_size, self.attention_size)

    def step_weights(self) -> TapeWeights:
        """What a step multiplies with, to be taken once a batch."""
        return TapeWeights(
            *(Repeated(linear.weight.t()) for linear in (self.intra.key, self.intra.previous, self.recurrent))
        )

    def forward(
        self,
        projected: tuple[Tensor, Tensor],
        summary_RH: Tensor,
        tape: Tape,
        weights: TapeWeights,
        fused_RH: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tape]:
        """One position.

        Args:
            projected: `intra.input`'s (R, A) and `input`'s (R, 4H) values of x_t.
            summary_RH: h̃_{t-1}.
            tape: positions 1 to t - 1.
            fused_RH: r_t ∘ α̃_t, what deep fusion adds to the cell.

        Returns:
            h_t, h̃_t and the tape with position t.
        """
        projected_RA, gates_R4H = projected
        scores_R1T = self.intra((projected_RA + weights.previous(summary_RH)).unsqueeze(1), tape.keys_RTA)
        weights_R1T = scores_R1T.softmax(dim=-1)  # equation 5; empty at the first position, and so are the sums
        summary_RH = (weights_R1T @ tape.hidden_RTH).squeeze(1)  # h̃_t, equation 6
        memory_RH = (weights_R1T @ tape.cell_RTH).squeeze(1)  # c̃_t
        gates_R4H = gates_R4H + weights.recurrent(summary_RH)  # i_t, f_t, ĉ_t, o_t, equation 7
        # c_t = f_t ∘ c̃_t + i_t ∘ ĉ_t (+ r_t ∘ α̃_t) and h_t = o_t ∘ tanh(c_t), equations 8 and 9
        hidden_RH, cell_RH = lstm_cell(gates_R4H, memory_RH, fused_RH)
        return hidden_RH, summary_RH, tape.append(hidden_RH, cell_RH, weights.key(hidden_RH))


@dataclass(frozen=True)
class IntraAttentionMemory(Memory):
    """The encoder's tape: states γ_j, cells α_j, and keys of the attention between target and source."""

    hidden_BSH: Tensor
    cell_BSH: Tensor
    keys_BSA: Tensor


@dataclass(frozen=True)
class IntraAttentionState(DecoderState):
    """The decoder's own tape, and the summaries h̃_{t-1} of it and γ̃_{t-1} of the encoder's."""

    tape: Tape
    summary_RH: Tensor
    source_summary_RH: Tensor


class DecoderSteps(NamedTuple):
    """What every step of the decoder multiplies with, for the sentences of one batch."""

    recurrence: TapeWeights
    previous: Repeated  # W_γ̃
    fusion: Repeated  # W_r's half for γ̃_t
    source_states: Repeated  # γ
    source_cells: Repeated  # α


class IntraAttention(TranslationModel):
    """Encoder and decoder LSTMN with deep attention fusion (section 4)."""

    def __init__(self, config: IntraAttentionConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        embedding, hidden, attention = config.embedding_size, config.hidden_size, config.attention_size
        self.embeddings = Embeddings(source_vocabulary, target_vocabulary, embedding, config.tie_embeddings)
        self.encoder = LSTMN(embedding, hidden, attention, fused=False)
        self.decoder = LSTMN(embedding, hidden, attention, fused=True)
        self.inter = TapeScore(embedding, hidden, attention)
        self.dropout = Dropout(config.dropout)
        self.output = self.embeddings.projection(hidden, target_vocabulary)

    def encode(self, source_BS: Tensor) -> IntraAttentionMemory:
        embedded_BSE = self.dropout(self.embeddings.source(source_BS))
        projected_BSA = self.encoder.intra.input(embedded_BSE)
        gates_BS4H = self.encoder.input(embedded_BSE)
        weights = self.encoder.step_weights()
        tape = self.encoder.empty_tape(gates_BS4H, len(source_BS))
        summary_BH = gates_BS4H.new_zeros(len(source_BS), self.encoder.hidden_size)
        # Padding stands at the right end, and a position sees only what is to its left.
        for projected in zip(projected_BSA.unbind(1), gates_BS4H.unbind(1), strict=True):
            _, summary_BH, tape = self.encoder(projected, summary_BH, tape, weights)
        return IntraAttentionMemory(source_BS != PAD, tape.hidden_RTH, tape.cell_RTH, self.inter.key(tape.hidden_RTH))

    def forward(self, batch: Batch) -> Tensor:
        memory = self.encode(batch.source_BS)
        state = self.start(memory)
        embedded_BTE = self.dropout(self.embeddings.target(batch.target_input_BT))
        parts = [part.unbind(1) for part in self._project(embedded_BTE)]
        repeated = self._repeated(memory)
        states: list[Tensor] = []
        for projected in zip(*parts, strict=True):
            hidden_BH, state, _ = self._advance(projected, state, memory, repeated)
            states.append(hidden_BH)
        return self.dropout(torch.stack(states, dim=1))

    def start(self, memory: Memory) -> IntraAttentionState:
        assert isinstance(memory, IntraAttentionMemory)
        nothing_BH = torch.zeros_like(memory.hidden_BSH[:, 0])
        return IntraAttentionState(self.decoder.empty_tape(nothing_BH, len(nothing_BH)), nothing_BH, nothing_BH)

    def step(
        self, tokens_R: Tensor, state: DecoderState, memory: Memory, need_weights: bool = False
    ) -> tuple[Tensor, IntraAttentionState, Tensor | None]:
        """The weights are those of the attention to the source; those to the target's own past stay inside."""
        assert isinstance(state, IntraAttentionState) and isinstance(memory, IntraAttentionMemory)
        projected = self._project(self.dropout(self.embeddings.target(tokens_R)))
        hidden_RH, state, weights_RS = self._advance(projected, state, memory, self._repeated(memory))
        return self.dropout(hidden_RH), state, weights_RS if need_weights else None

    def _project(self, embedded: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What depends on x_t alone: for the intra-attention, the gates, the inter-attention and the fusion gate."""
        assert self.decoder.fusion_input is not None
        return (
            self.decoder.intra.input(embedded),
            self.decoder.input(embedded),
            self.inter.input(embedded),
            self.decoder.fusion_input(embedded),
        )

    def _repeated(self, memory: IntraAttentionMemory) -> DecoderSteps:
        assert self.decoder.fusion is not None
        return DecoderSteps(
            self.decoder.step_weights(),
            *(Repeated(linear.weight.t()) for linear in (self.inter.previous, self.decoder.fusion)),
            *(Repeated(tape) for tape in (memory.hidden_BSH, memory.cell_BSH)),
        )

    def _advance(
        self,
        projected: tuple[Tensor, ...],
        state: IntraAttentionState,
        memory: IntraAttentionMemory,
        repeated: DecoderSteps,
    ) -> tuple[Tensor, IntraAttentionState, Tensor]:
        """h_t, the next state, and the weights p_t (R, S) over the source."""
        intra_RA, gates_R4H, inter_RA, fusion_RH = projected
        query_BNA = (inter_RA + repeated.previous(state.source_summary_RH)).unflatten(0, (len(memory.mask_BS), -1))
        scores_BNS = self.inter(query_BNA, memory.keys_BSA)  # equation 10
        weights_BNS = masked_softmax(scores_BNS, memory.mask_BS.unsqueeze(1))  # equation 11
        source_summary_RH = repeated.source_states(weights_BNS).flatten(0, 1)  # γ̃_t, equation 12
        source_memory_RH = repeated.source_cells(weights_BNS).flatten(0, 1)  # α̃_t
        fused_RH = (fusion_RH + repeated.fusion(source_summary_RH)).sigmoid() * source_memory_RH  # r_t ∘ α̃_t
        hidden_RH, summary_RH, tape = self.decoder(
            (intra_RA, gates_R4H), state.summary_RH, state.tape, repeated.recurrence, fused_RH
        )
        following = IntraAttentionState(tape, summary_RH, source_summary_RH)
        return hidden_RH, following, weights_BNS.flatten(0, 1)
