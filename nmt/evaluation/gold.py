"""A model's attention against gold word alignments: which words does it look at while it writes the reference?

The gold links of the grammar corpus speak of `nmt.data.grammar.words`, a model attends between SentencePiece pieces,
and neither respects the other's limits: a piece may hold "l'a" of "l'arbre", or "chat." So pieces are laid over words
character by character. The weight of a source piece is split over the words that it covers by their shares of its
characters; a target word's row is the mean of its pieces' rows, weighted by the characters that each gives it. Every
target word is then linked to the source word with the most weight.

The reference is forced on the model (its own translation has no gold alignment), so that the rate says where the model
looks, not how well it translates.

S source positions, T target positions, W words.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmt.data.corpus import PairFiles, clean_line, read_lines
from nmt.data.filter import is_blank
from nmt.data.grammar import words
from nmt.data.tokenizer import EOS, UNKNOWN
from nmt.decoding.translator import Translator, forced_attention, length_batches
from nmt.errors import RequestError
from nmt.evaluation.alignment import WORD_START, Alignment, Link, alignment_error_rate, parse_pharaoh

BATCH_TOKENS = 2_048  # source pieces, padding included
_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class GoldScore:
    """Alignment error rate of a test set."""

    error_rate: float
    """0 to 1, of the sentences whose pieces could be laid over their words."""
    sentences: int
    left_out: int
    """Sentences whose pieces do not spell their text, such as those that the tokenizer normalises away."""


def score_alignments(translator: Translator, files: PairFiles) -> GoldScore | None:
    """Alignment error rate of the attention while the references are forced on the model.

    Returns:
        None where the model does not attend or the test set has no gold alignments.

    Raises:
        RequestError: as many gold alignments as pairs are not there, or one is not in Pharaoh format.
    """
    if files.alignment is None or not translator.model.attends:
        return None
    pairs = [(clean_line(source), clean_line(target)) for source, target in files]
    gold = [_links(files, number, line) for number, line in enumerate(read_lines(files.alignment), start=1)]
    if len(gold) != len(pairs):
        raise RequestError(f"{files.alignment} has {len(gold)} lines for {len(pairs)} pairs")
    asked = [i for i, pair in enumerate(pairs) if not is_blank(pair[0]) and not is_blank(pair[1])]
    found = forced_alignments(translator, [pairs[i] for i in asked])
    kept = [(alignment.links(), gold[i]) for i, alignment in zip(asked, found, strict=True) if alignment is not None]
    rate = alignment_error_rate([predicted for predicted, _ in kept], [sure for _, sure in kept])
    return GoldScore(rate, len(kept), len(asked) - len(kept))


def forced_alignments(translator: Translator, pairs: Sequence[tuple[str, str]]) -> list[Alignment | None]:
    """Attention between the `words` of each source and of the given translation of it.

    Returns:
        None for a pair whose pieces do not spell its text.
    """
    tokenizer = translator.tokenizer
    sources = tokenizer.encode_source([source for source, _ in pairs])
    targets = [
        ids[:-1] if ids[-1:] == [EOS] else ids for ids in tokenizer.encode_target([target for _, target in pairs])
    ]
    results: list[Alignment | None] = [None] * len(pairs)
    for places in length_batches([max(len(sources[i]), len(targets[i])) for i in range(len(pairs))], BATCH_TOKENS):
        weights = forced_attention(translator.model, [(sources[i], targets[i]) for i in places], translator.device)
        for i, weights_TS in zip(places, weights, strict=True):
            source, target = pairs[i]
            over_source_WS = overlaps(_surfaces(tokenizer.source_pieces(sources[i]), sources[i]), source)
            over_target_WT = overlaps(_surfaces(tokenizer.target_pieces(targets[i]), targets[i]), target)
            if over_source_WS is not None and over_target_WT is not None:
                # The last row is the end mark's: nothing that has a gold link.
                weights_WW = between_words(weights_TS[:-1].cpu().numpy(), over_source_WS, over_target_WT)
                results[i] = Alignment(words(source), words(target), weights_WW)
    return results


def between_words(
    weights_TS: NDArray[np.floating], over_source_WS: NDArray[np.float64], over_target_WT: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weights between pieces as weights between words, given `overlaps` of either side; see the top of the file."""
    source_shares = over_source_WS / np.maximum(over_source_WS.sum(axis=0, keepdims=True), 1)
    target_shares = over_target_WT / np.maximum(over_target_WT.sum(axis=1, keepdims=True), 1)
    result: NDArray[np.float64] = target_shares @ weights_TS.astype(np.float64) @ source_shares.T
    return result


def overlaps(surfaces: Sequence[str | None], text: str) -> NDArray[np.float64] | None:
    """How many characters each of the text's words has in each piece, (words, pieces).

    A space, "▁", counts for the word after it.

    Args:
        surfaces: what each piece stands for; None for an unknown piece, which stands for what is left between its
            neighbours, and "" for the end mark.

    Returns:
        None where the pieces do not spell the text.
    """
    plain = unicodedata.normalize("NFKC", text)
    marked = "".join(WORD_START + part for part in plain.split())
    tokens = words(plain)
    if len(tokens) != len(words(text)):
        return None
    spans = _spans(surfaces, marked)
    if spans is None:
        return None
    owner = np.full(len(marked), -1)  # which word each character belongs to
    end = 0
    for number, token in enumerate(tokens):
        begin = marked.index(token, end)
        owner[end : begin + len(token)] = number
        end = begin + len(token)
    counts = np.zeros((len(tokens), len(surfaces)))
    for piece, (begin, stop) in enumerate(spans):
        np.add.at(counts[:, piece], owner[begin:stop][owner[begin:stop] >= 0], 1)
    return counts


def _spans(surfaces: Sequence[str | None], text: str) -> list[tuple[int, int]] | None:
    """Where each piece stands in the text; None where the pieces do not spell it."""
    known = [surface for surface in surfaces if surface is not None]
    if len(known) == len(surfaces):  # nearly always; compiling a pattern of so many groups takes longer than all else
        stops = list(itertools.accumulate(map(len, known)))
        return list(zip([0, *stops], stops, strict=False)) if "".join(known) == text else None
    found = re.fullmatch(_pattern(surfaces), text)
    return [found.span(piece + 1) for piece in range(len(surfaces))] if found else None


def _pattern(surfaces: Sequence[str | None]) -> str:
    """A group for each piece. Of several unknown ones in a row, such as the bytes of a character, the first has all."""
    groups: list[str] = []
    for before, surface in zip([None, *surfaces[:-1]] if surfaces else [], surfaces, strict=True):
        follows = bool(groups) and before is None
        groups.append(f"({re.escape(surface)})" if surface is not None else "()" if follows else "(.+?)")
    return "".join(groups)


def _surfaces(pieces: Sequence[str], ids: Sequence[int]) -> list[str | None]:
    return [
        "" if number == EOS else None if number == UNKNOWN or _BYTE_PIECE.fullmatch(piece) else piece
        for piece, number in zip(pieces, ids, strict=True)
    ]


def _links(files: PairFiles, number: int, line: str) -> set[Link]:
    try:
        return parse_pharaoh(line)
    except RequestError as error:
        raise RequestError(f"{files.alignment} line {number}: {error}") from None
