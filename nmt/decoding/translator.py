"""From text to text: what `nmt translate`, `nmt score`, validation and Python users all go through.

A line never depends on its neighbours. Lines are sorted by length and put into batches for speed, and come back in
their own order. A blank line comes back blank, and the model is not asked: trained on sentences, it would make one up.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nmt.config import SearchConfig, TrainConfig
from nmt.configuration import check_search, load_config
from nmt.data.batching import padded
from nmt.data.corpus import clean_line
from nmt.data.filter import is_blank
from nmt.data.tokenizer import BOS, EOS, Tokenizer
from nmt.decoding.constraints import Constraints, TokenConstraints, WordEdges, encode_constraints
from nmt.decoding.risk import least_risk
from nmt.decoding.search import Hypothesis, beam_search, build_search, go_on, max_length
from nmt.errors import RequestError, WorkError
from nmt.evaluation.alignment import Alignment
from nmt.files import is_text
from nmt.models.base import TranslationModel
from nmt.models.registry import build_model
from nmt.training.checkpoint import CONFIG, WEIGHTS, Checkpoint, load_weights, open_checkpoint
from nmt.training.device import choose_device, is_out_of_memory


@dataclass(frozen=True)
class Translation:
    """One translation of one line."""

    text: str
    score: float
    """Log-probability over the length penalty; of minimum-Bayes-risk decoding expected chrF; 0 for a blank line."""
    tokens: list[str]
    """Pieces of the translation, without the end mark."""
    alignment: Alignment | None = None
    """Attention of every target piece (end mark included) to every source piece, where it was asked for."""
    cut: bool = False
    """It reached the greatest length that the search allows and was ended there: something may be missing."""


class TextTranslator:
    """What every translator does with text, whatever searches for it.

    Attributes:
        tokenizer: the one the model was trained with.
        search: the run's own search settings, which the methods' arguments change.
        source_language: code of the language that it reads.
    """

    def __init__(self, tokenizer: Tokenizer, search: SearchConfig, source_language: str = "en") -> None:
        self.tokenizer = tokenizer
        self.search = search
        self.source_language = source_language

    @property
    def attends(self) -> bool:
        """Whether there are alignments to show."""
        return True

    def search_ids(
        self,
        sources: Sequence[Sequence[int]],
        search: SearchConfig,
        numbers: Sequence[int] | None = None,
        constraints: Sequence[TokenConstraints | None] | None = None,
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        """Translates encoded sources batch by batch, long ones first.

        Args:
            numbers: of the sources among all that are being translated; by default the position.
            constraints: what each translation must contain.

        Yields:
            positions in `sources` and their hypotheses.
        """
        raise NotImplementedError

    def forced_attention(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Tensor]:
        """As the function of that name."""
        raise NotImplementedError

    def max_length(self, search: SearchConfig, source_pieces: int) -> int:
        """The most pieces of a translation, as the function of that name, unless the model ends it earlier."""
        return max_length(search, source_pieces)

    def translate(
        self,
        texts: Sequence[str],
        beam_size: int | None = None,
        alignments: bool = False,
        search: SearchConfig | None = None,
    ) -> list[Translation]:
        """The best translation of each text, in order.

        Args:
            beam_size: hypotheses kept; None: as in the run's config. 1 is greedy search.
            alignments: also compute each translation's attention.
            search: all settings at once, in place of the run's.
        """
        settings = dataclasses.replace(search or self.search, n_best=1)
        if beam_size is not None:
            settings = dataclasses.replace(settings, beam_size=beam_size)
        return [found[0] for found in self.n_best(texts, settings, alignments)]

    def n_best(
        self,
        texts: Sequence[str],
        search: SearchConfig | None = None,
        alignments: bool = False,
        numbers: Sequence[int] | None = None,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[list[Translation]]:
        """The `search.n_best` best translations of each text, the best first; a blank line has one, blank.

        So has a line that the tokenizer makes no pieces of.

        Args:
            numbers: of the texts among all that are being translated, by default from 0; a sampled translation's seed
                is made of its text's number.
            constraints: what the translations of each text must contain; of a blank one, nothing.

        Raises:
            RequestError: search settings that are out of bounds or at odds, a model without attention asked for
                alignments, constraints of samples or of an export, or a text that is no Unicode.
            WorkError: out of memory.
        """
        settings = search or self.search
        check_search(settings)
        if alignments and not self.attends:
            raise RequestError("this model has no attention: there is no alignment to show")
        if isinstance(texts, str):
            raise TypeError("translate takes a list of texts, not one text")
        clean = [clean_line(text) for text in texts]
        numbers = range(len(clean)) if numbers is None else numbers
        for number, text in zip(numbers, clean, strict=True):
            if not is_text(text):
                raise RequestError(f"text {number + 1} has a lone surrogate or NUL")
        encoded = self.tokenizer.encode_source(clean)
        asked = [i for i, text in enumerate(clean) if has_content(text, len(encoded[i]))]
        sources = [encoded[i] for i in asked]
        results: list[list[Translation]] = [[Translation("", 0.0, [])] for _ in clean]
        demands = self._demands([constraints[i] for i in asked], settings) if constraints is not None else None
        theirs = [numbers[i] for i in asked]
        for places, hypotheses in self.search_ids(sources, settings, numbers=theirs, constraints=demands):
            weights = self._attention(places, sources, hypotheses) if alignments else None
            for n, (place, found) in enumerate(zip(places, hypotheses, strict=True)):
                demanded = demands[place] if demands is not None else None
                results[asked[place]] = [
                    self._translation(
                        sources[place], hypothesis, settings, weights[n][k] if weights else None, demanded
                    )
                    for k, hypothesis in enumerate(found)
                ]
        return results

    def _demands(
        self, constraints: Sequence[Constraints], search: SearchConfig
    ) -> list[TokenConstraints | None] | None:
        """The constraints in pieces; None where nothing is demanded."""
        encoded = [encode_constraints(each, self.tokenizer, self._word_edges) for each in constraints]
        if not any(encoded):
            return None
        if search.chance:
            raise RequestError(f"{search.chance}: what is drawn cannot be made to contain given words")
        return encoded

    @cached_property
    def _word_edges(self) -> WordEdges:
        return WordEdges.of(self.tokenizer)

    def _translation(
        self,
        source: Sequence[int],
        hypothesis: Hypothesis,
        search: SearchConfig,
        weights_TS: Tensor | None,
        demanded: TokenConstraints | None,
    ) -> Translation:
        tokens = self.tokenizer.target_pieces(hypothesis.tokens)
        alignment = None
        if weights_TS is not None:
            target = [*tokens, *self.tokenizer.target_pieces([EOS])]
            alignment = Alignment(self.tokenizer.source_pieces(source), target, weights_TS.cpu().numpy())
        limit = self.max_length(search, len(source))
        text = self.tokenizer.decode(hypothesis.tokens)
        if demanded is not None:
            limit = demanded.limit(limit)
            text = demanded.text(self.tokenizer, hypothesis.tokens, hypothesis.written)
        return Translation(text, hypothesis.score, tokens, alignment, len(tokens) >= limit)

    def _attention(
        self, places: Sequence[int], sources: Sequence[Sequence[int]], hypotheses: list[list[Hypothesis]]
    ) -> list[list[Tensor]]:
        """Weights (T, S) of every hypothesis, from one forced pass over all of them."""
        rows = [(sources[place], h.tokens) for place, found in zip(places, hypotheses, strict=True) for h in found]
        weights = iter(self.forced_attention(rows))
        return [[next(weights) for _ in found] for found in hypotheses]


class Translator(TextTranslator):
    """A trained model with its tokenizer, ready to translate.

    Attributes:
        model: in evaluation mode, on `device`.
        tokenizer: the one the model was trained with.
        search: the run's own search settings, which the methods' arguments change.
        checkpoint: where the weights come from; None for a model still in training.
        between_steps: called after each position of a search; what it raises leaves the search at once.
    """

    def __init__(
        self,
        model: TranslationModel,
        tokenizer: Tokenizer,
        search: SearchConfig,
        device: torch.device,
        checkpoint: Checkpoint | None = None,
        config: TrainConfig | None = None,
    ) -> None:
        super().__init__(tokenizer, search, config.data.source_language if config else "en")
        self.model = model
        self.device = device
        self.checkpoint = checkpoint
        self.config = config
        self.between_steps: Callable[[], None] = go_on

    @classmethod
    def load(cls, run: Path | str, device: str = "auto") -> Translator:
        """From a run directory (its best checkpoint) or a checkpoint directory.

        Raises:
            RequestError: nothing to load there, or files that do not belong together.
            WorkError: a damaged file.
        """
        checkpoint = open_checkpoint(Path(run))
        # A run's own config may have another search or data folder than when the checkpoint was saved.
        own = Path(run) / CONFIG
        config = load_config(own if own.is_file() else checkpoint.directory / CONFIG)
        tokenizer = Tokenizer.load(checkpoint.directory)
        model = build_model(config.model, tokenizer.source_size, tokenizer.target_size)
        load_weights(model, checkpoint.weights(), checkpoint.directory / WEIGHTS)
        place = choose_device(device)
        return cls(model.to(place).eval(), tokenizer, config.search, place, checkpoint, config)

    def search_ids(
        self,
        sources: Sequence[Sequence[int]],
        search: SearchConfig,
        numbers: Sequence[int] | None = None,
        constraints: Sequence[TokenConstraints | None] | None = None,
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        """Translates encoded sources batch by batch, long ones first; those with constraints come after those without.

        Args:
            search: where it has `mbr_samples`, the results are those of least risk, and their scores expected chrF.
            numbers: what a sampled translation's seed is made of, besides `search.seed`; by default the position.
            constraints: what each translation must contain.

        Yields:
            positions in `sources` and their hypotheses.

        Raises:
            WorkError: out of memory.
        """
        if search.mbr_samples:
            find_all = functools.partial(self.search_ids, sources, numbers=numbers)
            yield from least_risk(find_all, search, self.tokenizer.decode)
            return
        find = build_search(self.model, search, self.between_steps)
        tokens = search.batch_tokens // search.beam_size
        demands = constraints if constraints is not None else [None] * len(sources)
        for places in _batches(sources, demands, tokens):
            source_BS = pad([sources[i] for i in places]).to(self.device)
            seeds = [_mixed(search.seed, numbers[i] if numbers is not None else i) for i in places]
            demanded = [each for each in (demands[i] for i in places) if each is not None]
            try:
                hypotheses = (
                    beam_search(self.model, source_BS, search, None, self.between_steps, demanded)
                    if demanded
                    else find(source_BS, seeds)
                )
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                raise WorkError(
                    f"out of memory with {_lines(*source_BS.shape)} and "
                    f"{search.beam_size} hypotheses: lower search.batch_tokens or the beam size, or split long lines"
                ) from error
            yield places, hypotheses

    @property
    def attends(self) -> bool:
        """Whether there are alignments to show."""
        return self.model.attends

    def forced_attention(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Tensor]:
        """As the function of that name, by this model."""
        return forced_attention(self.model, pairs, self.device)


def has_content(text: str, pieces: int) -> bool:
    """Whether a text is to be translated: it is not blank, and the tokenizer's normalisation leaves something of it.

    Args:
        pieces: of its encoding, with the end mark.
    """
    return pieces > 1 and not is_blank(text)


@torch.inference_mode()
def forced_attention(
    model: TranslationModel, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], device: torch.device
) -> list[Tensor]:
    """Attention (T, S) of given translations: T pieces and the end mark, S source pieces.

    Args:
        pairs: source ids with their end mark, target ids without.
    """
    source_BS = pad([source for source, _ in pairs]).to(device)
    written_BT = pad([[BOS, *target] for _, target in pairs]).to(device)
    memory = model.encode(source_BS)
    state = model.start(memory)
    columns: list[Tensor] = []
    for tokens_B in written_BT.unbind(1):
        _, state, weights_BS = model.step(tokens_B, state, memory, need_weights=True)
        assert weights_BS is not None
        columns.append(weights_BS)
    weights_BTS = torch.stack(columns, dim=1)
    return [weights_BTS[b, : len(target) + 1, : len(source)] for b, (source, target) in enumerate(pairs)]


def pad(sentences: Sequence[Sequence[int]]) -> Tensor:
    """Ids (B, S), padded on the right."""
    return torch.from_numpy(padded(sentences)[0])


def length_batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Positions in batches of neighbouring lengths, the longest first, at most `tokens` padded tokens each."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batch and (len(batch) + 1) * lengths[batch[0]] > tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _batches(
    sources: Sequence[Sequence[int]], demands: Sequence[TokenConstraints | None], tokens: int
) -> Iterator[list[int]]:
    """`length_batches` of the sources without constraints, then of the others, which have so many more hypotheses."""
    plain = [i for i, demanded in enumerate(demands) if demanded is None]
    bound = [i for i, demanded in enumerate(demands) if demanded is not None]
    banks = 1 + max((demanded.total for demanded in demands if demanded is not None), default=0)
    for group, share in ((plain, tokens), (bound, tokens // banks)):
        for places in length_batches([len(sources[i]) for i in group], share):
            yield [group[place] for place in places]


def _mixed(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _lines(rows: int, width: int) -> str:
    return f"a line of {width} pieces" if rows == 1 else f"{rows} lines of up to {width} pieces"
