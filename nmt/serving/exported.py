"""An exported model, translating through CTranslate2 with the search settings of its run.

Both searches keep twice as many candidates as hypotheses, end a hypothesis only among the best of its step, and stop
when as many have ended as the beam is wide, so what they find is the same. Where they differ, and what is done:

    length penalty    CTranslate2 divides by length^α, end mark counted only if it is returned, which it is here: that
                      is `average`. It has no `gnmt`: the log-probabilities are recovered and divided here, and only
                      for which beam_size of the ended hypotheses it hands over, a power of the length stands in.
    α = 0             makes it go on, however many have ended, until the likeliest candidate of a step ends. An α that
                      is nothing in float32 does not.
    greatest length   is one number for a whole batch there, and what comes to it is cut off. Sentences whose search
                      goes on beyond their own are searched again with theirs, and pay the price of the end mark. One
                      thing is lost: for each hypothesis that ends by itself just there, the weakest of the others.
    forbidden pieces  are left out of its softmax: padding, unknown and begin everywhere, the end mark before
                      min_length. Here the last three keep their share, so its log-probabilities are greater by
                      -log(1 - share) at each step: next to nothing for a trained model.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.config import SearchConfig
from nmt.configuration import read_search
from nmt.data.tokenizer import EOS, Tokenizer
from nmt.decoding.constraints import TokenConstraints
from nmt.decoding.ensemble import load_ensemble
from nmt.decoding.penalties import length_penalty
from nmt.decoding.search import Hypothesis
from nmt.decoding.translator import TextTranslator, Translator, length_batches
from nmt.errors import RequestError, WorkError
from nmt.files import cause_of, read_regular
from nmt.training.checkpoint import EXPORT, require_files
from nmt.training.device import choose_device

FORMAT = 1
NO_PENALTY = 1e-12
"""An exponent of CTranslate2's length penalty that changes no score and, other than 0, not when it stops."""


def load_translator(path: Path | str | Sequence[Path | str], device: str = "auto") -> TextTranslator:
    """The translator of a run, of a checkpoint or of an export; of several runs and checkpoints, their ensemble.

    Raises:
        RequestError: nothing to load there, or files or runs that do not belong together.
        WorkError: a damaged file.
    """
    if not isinstance(path, Path | str):
        if len(path) > 1:
            return load_ensemble(path, device)
        [path] = path
    if (Path(path) / EXPORT).is_file():
        return ExportedTranslator.load(Path(path), device)
    return Translator.load(path, device)


def import_ctranslate2() -> Any:
    """The optional package, its warnings switched off. Raises RequestError where it is not installed."""
    try:
        import ctranslate2
    except ImportError as error:
        raise RequestError(
            f'exports need CTranslate2, which cannot be imported here ({error}); pip install "ctranslate2>=4.6.3"'
        ) from None
    ctranslate2.set_log_level(logging.ERROR)
    return ctranslate2


Candidate = tuple[list[str], float]
"""Pieces with their end mark, and the natural log of their probability."""


class ExportedTranslator(TextTranslator):
    """A folder that `nmt export` wrote, ready to translate.

    Attributes:
        engine: the `ctranslate2.Translator`.
        positions: the most positions on either side; None where there is no end to them.
    """

    def __init__(
        self,
        engine: Any,
        tokenizer: Tokenizer,
        search: SearchConfig,
        positions: int | None,
        source_language: str = "en",
    ) -> None:
        super().__init__(tokenizer, search, source_language)
        self.engine = engine
        self.positions = positions
        pieces = tokenizer.target_pieces(range(tokenizer.target_size))
        self._target_ids = {piece: number for number, piece in enumerate(pieces)}

    @classmethod
    def load(cls, folder: Path, device: str = "auto") -> ExportedTranslator:
        """Reads a folder after comparing the checksums of its files.

        Raises:
            RequestError: no export there, one of another format, or no CTranslate2 to run it.
            WorkError: a damaged one, naming the file.
        """
        record = read_record(folder)
        search = read_search(record["search"], folder / EXPORT)
        made = record.get("provenance")
        language = made.get("source_language") if isinstance(made, dict) else None
        tokenizer = Tokenizer.load(folder)
        return cls(open_engine(folder, device), tokenizer, search, record["positions"], str(language or "en"))

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

        Yields:
            positions in `sources` and their hypotheses.

        Raises:
            RequestError: sampling, which CTranslate2 cannot do from a seed a sentence, or constraints, which it does
                not know; or, naming the line, a source with more pieces than the model has positions.
        """
        if constraints is not None and any(constraints):
            raise RequestError(
                "an exported model cannot be made to write given words; the run that it was made from can"
            )
        if search.chance:
            raise RequestError(f"{search.chance}: an exported model searches; it cannot sample")
        for i, source in enumerate(sources):
            if self.positions is not None and len(source) > self.positions:
                number = i if numbers is None else numbers[i]
                raise RequestError(
                    f"line {number + 1} has {len(source)} pieces, and this exported model {self.positions} positions; "
                    "the run that it was made from has no such limit"
                )
        for places in length_batches([len(source) for source in sources], search.batch_tokens // search.beam_size):
            yield places, self._beam_search([sources[i] for i in places], search)

    def forced_attention(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Tensor]:
        """Attention (T, S) of given translations, as the function of that name.

        CTranslate2 leaves out the column of the source's end mark, which it has added itself: the rest of each row.
        """
        results = self.engine.translate_batch(
            [self._pieces(source) for source, _ in pairs],
            target_prefix=[self.tokenizer.target_pieces(target) for _, target in pairs],
            beam_size=1,
            max_input_length=0,
            max_decoding_length=max(len(target) for _, target in pairs) + 1,
            return_end_token=True,
            return_attention=True,
        )
        weights: list[Tensor] = []
        for (source, target), result in zip(pairs, results, strict=True):
            rows_TS = torch.tensor(result.attention[0][: len(target) + 1]).view(len(target) + 1, len(source) - 1)
            end_T1 = (1 - rows_TS.sum(dim=1, keepdim=True)).clamp(min=0)
            weights.append(torch.cat((rows_TS, end_T1), dim=1))
        return weights

    def max_length(self, search: SearchConfig, source_pieces: int) -> int:
        """The most pieces of a translation: less where the model has not as many positions."""
        limit = super().max_length(search, source_pieces)
        return limit if self.positions is None else min(limit, self.positions - 1)

    def _beam_search(self, sources: Sequence[Sequence[int]], search: SearchConfig) -> list[list[Hypothesis]]:
        limits = [self.max_length(search, len(source)) for source in sources]
        exponent = _exponent(search)
        # One step more than the longest may take: a search that comes to it was not done within its own limit.
        found = self._candidates(sources, search, max(limits) + 1, exponent)
        late: dict[int, list[int]] = {}
        for i, (candidates, limit) in enumerate(zip(found, limits, strict=True)):
            if any(len(target) > limit for target, _ in candidates):
                late.setdefault(limit, []).append(i)
        for limit, places in late.items():
            chosen = [sources[i] for i in places]
            again = self._ended(chosen, self._candidates(chosen, search, limit, NO_PENALTY, patience=2))
            for i, candidates in zip(places, again, strict=True):
                found[i] = candidates
        penalty = length_penalty(search.length_penalty, search.length_alpha)
        hypotheses = [
            [
                Hypothesis([self._target_ids[piece] for piece in target[:-1]], total, total / penalty(len(target)))
                for target, total in candidates
            ]
            for candidates in found
        ]
        return [sorted(each, key=lambda h: -h.score)[: search.n_best] for each in hypotheses]

    def _candidates(
        self, sources: Sequence[Sequence[int]], search: SearchConfig, limit: int, exponent: float, patience: int = 1
    ) -> list[list[Candidate]]:
        """The patience · beam_size best by log-probability / length^exponent of what has ended by the time that as many
        have; what is cut off after `limit` pieces counts as well, and has no end mark."""
        results = self.engine.translate_batch(
            [self._pieces(source) for source in sources],
            beam_size=search.beam_size,
            num_hypotheses=patience * search.beam_size,
            patience=patience,
            length_penalty=exponent,
            max_input_length=0,
            max_decoding_length=limit,
            min_decoding_length=min(search.min_length, limit),
            return_scores=True,
            return_end_token=True,
        )
        return [
            [(target, score * len(target) ** exponent) for target, score in zip(r.hypotheses, r.scores, strict=True)]
            for r in results
        ]

    def _ended(self, sources: Sequence[Sequence[int]], found: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """The same, each with an end mark, for which the model's price is paid."""
        [end] = self.tokenizer.target_pieces([EOS])
        cut = [
            (self._pieces(source), target)
            for source, candidates in zip(sources, found, strict=True)
            for target, _ in candidates
            if target[-1] != end
        ]
        prices = iter(self.engine.score_batch(*map(list, zip(*cut, strict=True)), max_input_length=0) if cut else ())
        return [
            [
                (target, total) if target[-1] == end else ([*target, end], sum(next(prices).log_probs))
                for target, total in candidates
            ]
            for candidates in found
        ]

    def _pieces(self, source: Sequence[int]) -> list[str]:
        """Without the end mark, which CTranslate2 adds."""
        return self.tokenizer.source_pieces(source[:-1])


def _exponent(search: SearchConfig) -> float:
    """The power of the length that CTranslate2 divides by: the penalty's own, or one that grows as it does near 20."""
    share = {"none": 0.0, "average": 1.0, "gnmt": 20 / (5 + 20)}[search.length_penalty]
    return share * search.length_alpha or NO_PENALTY


def open_engine(folder: Path, device: str) -> Any:
    """The `ctranslate2.Translator` of a folder, with as many threads as PyTorch has.

    Raises:
        RequestError: no CTranslate2, or a device that is not there.
        WorkError: what CTranslate2 says against the folder.
    """
    ctranslate2 = import_ctranslate2()
    place = choose_device(device).type
    if place == "cuda" and not ctranslate2.get_cuda_device_count():
        place = "cpu"
    try:
        return ctranslate2.Translator(str(folder), device=place, intra_threads=torch.get_num_threads())
    except (RuntimeError, ValueError) as error:
        raise WorkError(f"{folder}: CTranslate2 {ctranslate2.__version__} cannot load it: {error}") from error


def read_record(folder: Path) -> dict[str, Any]:
    """export.json of a folder whose files are those that it was written with.

    Raises:
        RequestError: another format.
        WorkError: a damaged or missing file, naming it.
    """
    path = folder / EXPORT
    try:
        record = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError) as error:
        cause = cause_of(error) if isinstance(error, OSError) else error
        raise WorkError(f"{path} is damaged: {cause}") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        found = record.get("format") if isinstance(record, dict) else None
        raise RequestError(f"{path}: export format {found}, this version of nmt reads format {FORMAT}")
    complete = isinstance(record.get("sha256"), dict) and record.keys() >= {"search", "positions"}
    if not complete or not isinstance(record["positions"], int | None):
        raise WorkError(f"{path} is damaged: it does not say what the export holds")
    require_files(folder, record["sha256"], EXPORT)
    return record
