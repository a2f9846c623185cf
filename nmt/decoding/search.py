"""Beam search for every model; greedy search is a beam of one.

The whole search is here: `_Frontier` holds the open hypotheses of the sentences that still have some, `_advance` is one
position, and the one place that reorders, opens and drops rows is its `select` of the model's state.

    - The first step is not expanded: one row a sentence, which select then opens into N.
    - 2N candidates are kept a step, so that N can go on even when N of them end.
    - A candidate that ends counts only among the N best of its step, which makes a beam of one greedy.
    - A sentence is done when N hypotheses have ended, or when no open one can overtake the n_best-th ended one; the
      second is a bound, not a guess, so it never changes the result.
    - A sentence's result depends on nothing but that sentence: done sentences leave the batch.
    - Where an answer must contain given words, hypotheses compete in several banks instead of one (`grid`).

Shapes: B sentences with open hypotheses, N hypotheses of each, R = B·N rows, V vocabulary, S source positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.config import SearchConfig
from nmt.data.tokenizer import BOS, EOS, PAD, UNKNOWN
from nmt.decoding.constraints import Place, TokenConstraints
from nmt.decoding.grid import Bank, Candidate, Demands, grid_candidates
from nmt.decoding.penalties import LengthPenalty, length_penalty
from nmt.errors import WorkError
from nmt.models.base import DecoderState, Memory, TranslationModel

NEVER = (PAD, BOS, UNKNOWN)
"""Pieces that a translation never contains."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation: its pieces without the end mark, and the natural log of its probability."""

    tokens: list[int]
    log_probability: float
    score: float
    """What hypotheses are ranked by: the log-probability over the length penalty (end mark included), or in
    minimum-Bayes-risk decoding the expected utility."""
    written: tuple[Place, ...] = ()
    """Where the phrases are that it had to contain."""


@dataclass
class _Frontier:
    """The sentences that are not done and their open hypotheses, all of one length."""

    sentences: list[int]  # B: which sentence of the batch each one is
    memory: Memory  # B rows
    state: DecoderState  # R rows
    last_R: Tensor  # the piece before the coming position
    total_BN: Tensor  # log-probabilities so far
    history_RT: Tensor  # all pieces so far
    demands: Demands | None = None  # in a search with constraints


def go_on() -> None:
    """What is called between two positions of a search by default; what raises there instead leaves the search."""


@torch.inference_mode()
def beam_search(
    model: TranslationModel,
    source_BS: Tensor,
    config: SearchConfig,
    max_lengths: list[int] | None = None,
    between_steps: Callable[[], None] = go_on,
    constraints: list[TokenConstraints] | None = None,
) -> list[list[Hypothesis]]:
    """The best translations of each sentence.

    Args:
        source_BS: source ids, padded on the right.
        config: beam size, number of results, length penalty and limits.
        max_lengths: most pieces of each translation, end mark not counted; by default from the config's ratio. A
            hypothesis that reaches it is ended there, at the price that the model asks for the end mark.
        between_steps: called after each position; what it raises ends the search.
        constraints: what each translation must contain; the greatest length grows where it takes more.

    Returns:
        for each sentence at most n_best hypotheses, the best first. There is always at least one.

    Raises:
        WorkError: the model's output is not a finite number.
    """
    if max_lengths is None:
        max_lengths = default_max_lengths(source_BS, config)
    demands = None
    if constraints is not None:
        max_lengths = [each.limit(limit) for each, limit in zip(constraints, max_lengths, strict=True)]
        demands = Demands(constraints, [[each.start] for each in constraints], max_lengths)
    ended: list[list[Hypothesis]] = [[] for _ in range(len(source_BS))]
    memory = model.encode(source_BS)
    rows = len(source_BS)
    frontier = _Frontier(
        sentences=list(range(rows)),
        memory=memory,
        state=model.start(memory),
        last_R=source_BS.new_full((rows,), BOS),
        total_BN=torch.zeros(rows, 1, device=source_BS.device),
        history_RT=source_BS.new_zeros((rows, 0)),
        demands=demands,
    )
    position = 0
    while frontier.sentences:
        position += 1
        _advance(model, frontier, ended, config, position, max_lengths)
        between_steps()
    return [sorted(found, key=lambda h: -h.score)[: config.n_best] for found in ended]


def default_max_lengths(source_BS: Tensor, config: SearchConfig) -> list[int]:
    """The most pieces of each translation by the config's ratio to its source's, at least its min_length."""
    return [max_length(config, pieces) for pieces in (source_BS != PAD).sum(dim=1).tolist()]


def max_length(config: SearchConfig, source_pieces: int) -> int:
    """The most pieces of a translation, end mark not counted, of a source of so many pieces, end mark counted."""
    return max(config.min_length, int(config.max_length_ratio * source_pieces) + config.max_length_extra)


def _advance(
    model: TranslationModel,
    frontier: _Frontier,
    ended: list[list[Hypothesis]],
    config: SearchConfig,
    position: int,
    max_lengths: list[int],
) -> None:
    """One position: scores all continuations, ends those that end, keeps the N best others of every sentence."""
    beam, penalty = config.beam_size, length_penalty(config.length_penalty, config.length_alpha)
    hidden_RD, state, _ = model.step(frontier.last_R, frontier.state, frontier.memory)
    banks = _candidates(frontier, model.log_probabilities(hidden_RD), config, position, max_lengths)

    # What ends and what goes on is decided sentence by sentence on the host: a few numbers each.
    width = frontier.total_BN.shape[1]
    history_BNT = frontier.history_RT.view(len(frontier.sentences), width, -1)
    kept: list[tuple[int, list[Candidate]]] = []
    for b, candidates in enumerate(banks):
        found = ended[frontier.sentences[b]]
        going: list[Candidate] = []
        for bank in candidates:
            further, ending = _step_of(bank, beam)
            going += further
            for candidate in ending:
                tokens = history_BNT[b, candidate.parent].tolist()
                score = candidate.total / penalty(position)
                if candidate.progress is None:
                    found.append(Hypothesis(tokens, candidate.total, score))
                elif all(tokens != other.tokens for other in found):  # phrases may begin alike
                    found.append(Hypothesis(tokens, candidate.total, score, candidate.progress.written))
        going.sort(key=lambda candidate: -candidate.total)
        limit = max_lengths[frontier.sentences[b]]
        if going and not _done(found, going[0].total, config, penalty, limit, position if frontier.demands else None):
            kept.append((b, going))
    _keep(frontier, state, kept, beam)


def _candidates(
    frontier: _Frontier, log_probabilities_RV: Tensor, config: SearchConfig, position: int, max_lengths: list[int]
) -> list[list[Bank]]:
    """The candidates of each sentence, in one bank where it has no constraints."""
    prices_RV = log_probabilities_RV.clone() if frontier.demands else log_probabilities_RV
    permitted_RV = _permitted(log_probabilities_RV, frontier, position, config.min_length, max_lengths)
    if frontier.demands:
        _require_finite(float(prices_RV.amax(dim=1).min()))
        return grid_candidates(
            frontier.demands,
            prices_RV,
            permitted_RV,
            frontier.total_BN,
            frontier.last_R,
            config.beam_size,
            position,
        )
    width, vocabulary = frontier.total_BN.shape[1], permitted_RV.shape[1]
    totals_BNV = frontier.total_BN.unsqueeze(2) + permitted_RV.view(-1, width, vocabulary)
    best_BC, flat_BC = totals_BNV.flatten(1).topk(min(2 * config.beam_size, width * vocabulary), dim=1)
    parents_BC, pieces_BC = flat_BC // vocabulary, flat_BC % vocabulary
    banks = [
        [list(map(Candidate, *each))]
        for each in zip(best_BC.tolist(), parents_BC.tolist(), pieces_BC.tolist(), strict=True)
    ]
    for [bank] in banks:
        _require_finite(bank[0].total)  # NaN comes first
    return banks


def _step_of(bank: Bank, beam: int) -> tuple[list[Candidate], list[Candidate]]:
    """Of candidates that compete with each other: the N best that go on, and those that end before or among them."""
    going: list[Candidate] = []
    ending: list[Candidate] = []
    for rank, candidate in enumerate(bank):
        if candidate.total == -torch.inf or len(going) == beam:
            break
        if candidate.piece != EOS:
            going.append(candidate)
        elif rank < beam:
            ending.append(candidate)
    return going, ending


def _keep(frontier: _Frontier, state: DecoderState, kept: list[tuple[int, list[Candidate]]], beam: int) -> None:
    """Goes on with these candidates of these sentences."""
    width = frontier.total_BN.shape[1]
    wide = max([beam, *(len(going) for _, going in kept)])
    rows: list[int] = []
    pieces: list[int] = []
    totals: list[list[float]] = []
    for b, going in kept:
        # Every sentence has as many rows; one with fewer candidates repeats its first, at probability zero.
        padding = wide - len(going)
        totals.append([candidate.total for candidate in going] + [-torch.inf] * padding)
        filled = going + going[:1] * padding
        rows += [b * width + candidate.parent for candidate in filled]
        pieces += [candidate.piece for candidate in filled]
    device = frontier.last_R.device
    history_RT = frontier.history_RT
    if rows != list(range(len(frontier.last_R))):  # else every row stays where it is, as a greedy search's mostly do
        rows_R = torch.tensor(rows, dtype=torch.long, device=device)
        history_RT = history_RT[rows_R]
        state = state.select(rows_R)  # reorders beams, opens the first step, drops what is done
    frontier.state = state
    frontier.last_R = torch.tensor(pieces, dtype=torch.long, device=device)
    frontier.total_BN = torch.tensor(totals, dtype=torch.float32, device=device).view(-1, wide)
    frontier.history_RT = torch.cat((history_RT, frontier.last_R.unsqueeze(1)), dim=1)
    sentences = [b for b, _ in kept]
    if frontier.demands:
        progress = [[candidate.progress for candidate in going if candidate.progress] for _, going in kept]
        frontier.demands = frontier.demands.select(sentences, progress)
    if len(kept) < len(frontier.sentences):
        frontier.memory = frontier.memory.select(torch.tensor(sentences, dtype=torch.long, device=device))
        frontier.sentences = [frontier.sentences[b] for b in sentences]


def _require_finite(total: float) -> None:
    """Raises WorkError for NaN, among which there is no best piece and never an end."""
    if not total > -torch.inf:
        raise WorkError("the model's output is not a finite number: its training has diverged")


def _permitted(
    log_probabilities_RV: Tensor, frontier: _Frontier, position: int, min_length: int, max_lengths: list[int]
) -> Tensor:
    """Log-probabilities of the model, -inf where a piece may not stand at this position.

    The model's probabilities are those of training, where padding was no class; what is forbidden here (unknown, too
    early or too late an end) is not made up for elsewhere, so a hypothesis' score is what the model gives it.
    """
    log_probabilities_RV[:, NEVER] = -torch.inf
    if position <= min_length:
        log_probabilities_RV[:, EOS] = -torch.inf
    over = [max_lengths[sentence] < position for sentence in frontier.sentences]
    if any(over):
        width = frontier.total_BN.shape[1]
        over_R = torch.tensor(over, device=log_probabilities_RV.device).repeat_interleave(width)
        only_end_RV = torch.full_like(log_probabilities_RV, -torch.inf)
        only_end_RV[:, EOS] = log_probabilities_RV[:, EOS]
        log_probabilities_RV = torch.where(over_R.unsqueeze(1), only_end_RV, log_probabilities_RV)
    return log_probabilities_RV


def _done(
    found: list[Hypothesis],
    best_open: float,
    config: SearchConfig,
    penalty: LengthPenalty,
    max_length: int,
    position: int | None,
) -> bool:
    """Whether nothing that is still open can change the sentence's n_best results.

    An open hypothesis can at best keep its log-probability to the greatest length, where the divisor is greatest.
    N ended hypotheses are enough, too; but where constraints must be met (`position` is given), it is the hasty ones
    that end first: there, the open ones must have fallen behind the n_best-th as they are.
    """
    if len(found) < config.n_best:
        return False
    threshold = sorted((hypothesis.score for hypothesis in found), reverse=True)[config.n_best - 1]
    if best_open / penalty(max_length + 1) <= threshold:
        return True
    if len(found) < config.beam_size:
        return False
    return position is None or best_open / penalty(position) <= threshold


@torch.inference_mode()
def sample(
    model: TranslationModel,
    source_BS: Tensor,
    config: SearchConfig,
    seeds: list[int],
    max_lengths: list[int] | None = None,
    between_steps: Callable[[], None] = go_on,
) -> list[list[Hypothesis]]:
    """n_best translations of each sentence, drawn from the model at the config's temperature, top_k and epsilon.

    Each sentence has its own generator, seeded with its entry of `seeds`, so a draw does not depend on the batch.
    The draw takes the greatest of log-probability plus Gumbel noise (Gumbel 1954), which needs no renormalising.
    """
    if max_lengths is None:
        max_lengths = default_max_lengths(source_BS, config)
    penalty = length_penalty(config.length_penalty, config.length_alpha)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    draws = config.n_best
    memory = model.encode(source_BS)
    rows = torch.arange(len(source_BS), device=source_BS.device).repeat_interleave(draws)
    frontier = _Frontier(
        sentences=list(range(len(source_BS))),
        memory=memory,
        state=model.start(memory).select(rows),
        last_R=source_BS.new_full((len(rows),), BOS),
        total_BN=torch.zeros(len(source_BS), draws, device=source_BS.device),
        history_RT=source_BS.new_zeros((len(rows), 0)),
    )
    over_R = torch.zeros(len(rows), dtype=torch.bool, device=source_BS.device)
    for position in range(1, max(max_lengths) + 2):
        hidden_RD, frontier.state, _ = model.step(frontier.last_R, frontier.state, memory)
        permitted_RV = _permitted(
            model.log_probabilities(hidden_RD), frontier, position, config.min_length, max_lengths
        )
        # Measured from the likeliest, which then stays finite at any temperature.
        scaled_RV = (permitted_RV - permitted_RV.amax(dim=1, keepdim=True)) / config.temperature
        if config.epsilon:  # Hewitt et al. 2022, section 4; the likeliest piece, at 0, stays
            unlikely_RV = (permitted_RV < math.log(config.epsilon)) & (scaled_RV < 0)
            scaled_RV = scaled_RV.masked_fill(unlikely_RV, -torch.inf)
        if config.top_k:
            least_R1 = scaled_RV.topk(min(config.top_k, scaled_RV.shape[1]), dim=1).values[:, -1:]
            scaled_RV = scaled_RV.masked_fill(scaled_RV < least_R1, -torch.inf)
        noise_RV = torch.cat([_gumbel(draws, scaled_RV.shape[1], generator) for generator in generators])
        pieces_R = (scaled_RV + noise_RV.to(scaled_RV.device)).argmax(dim=1)
        pieces_R = pieces_R.masked_fill(over_R, EOS)
        gained_R = permitted_RV.gather(1, pieces_R.unsqueeze(1)).squeeze(1).masked_fill(over_R, 0.0)
        frontier.total_BN += gained_R.view_as(frontier.total_BN)
        frontier.last_R = pieces_R
        frontier.history_RT = torch.cat((frontier.history_RT, pieces_R.unsqueeze(1)), dim=1)
        over_R = over_R | (pieces_R == EOS)
        if bool(over_R.all()):
            break
        between_steps()
    return _collect(frontier, draws, penalty)


def _gumbel(draws: int, vocabulary: int, generator: torch.Generator) -> Tensor:
    return -torch.empty(draws, vocabulary).exponential_(generator=generator).log()


def _collect(frontier: _Frontier, draws: int, penalty: LengthPenalty) -> list[list[Hypothesis]]:
    found: list[list[Hypothesis]] = []
    totals = frontier.total_BN.tolist()
    for b, histories in enumerate(frontier.history_RT.view(len(totals), draws, -1).tolist()):
        hypotheses = []
        for history, total in zip(histories, totals[b], strict=True):
            _require_finite(total)
            length = history.index(EOS)
            hypotheses.append(Hypothesis(history[:length], total, total / penalty(length + 1)))
        found.append(sorted(hypotheses, key=lambda h: -h.score))
    return found


Search = Callable[[Tensor, list[int]], list[list[Hypothesis]]]
"""Source ids (B, S) and a seed a sentence to hypotheses: beam search or sampling, bound to a model and a config."""


def build_search(model: TranslationModel, config: SearchConfig, between_steps: Callable[[], None] = go_on) -> Search:
    """The search that the config names."""
    if config.sampling:
        return lambda source_BS, seeds: sample(model, source_BS, config, seeds, between_steps=between_steps)
    return lambda source_BS, seeds: beam_search(model, source_BS, config, between_steps=between_steps)
