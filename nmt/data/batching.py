"""Which pairs are trained on together, and the tensors that they become.

Padding is time spent on nothing, on both sides of a pair, so batches gather pairs whose source *and* target lengths
agree: the pairs are ordered by strips of one length and, within a strip, by the other length, up in one strip and down
in the next, so that neighbours in the order are neighbours in both. The plan is a pure function of the lengths, the
budget, the seed and the epoch, which is what lets a run resume in the middle of an epoch without saved state.

Shapes: B batch, S source positions, T target positions. All lengths are in pieces and count the end mark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.data.tokenizer import BOS, PAD

Lengths = NDArray[np.int64]

STRIP_SHAPE = 2.0  # a strip's width over (spread of the other length / batches in the strip); least padding, by trial
STRIP_JITTER = 0.3  # that number varies by this share from strip to strip, so that batches differ between epochs


def plan_batches(
    source_lengths: NDArray[np.integer],
    target_lengths: NDArray[np.integer],
    tokens: int,
    seed: int,
    epoch: int,
    rows: NDArray[np.int64] | None = None,
) -> list[NDArray[np.int64]]:
    """Partition the pairs of an epoch into batches, in the order in which they are trained on.

    Every pair is in exactly one batch, or as often as it is in `rows`. The longest sentence of a batch, source or
    target, times its pairs is at most `tokens`; only a pair that is longer than that on its own makes a batch of its
    own. Another epoch (or seed) has other batches in another order.

    Args:
        source_lengths, target_lengths: pieces of each sentence with the end mark, one per pair.
        tokens: the budget of a batch, padding included.
        rows: the pairs of this epoch (nmt.data.mixing); None is all of them once.

    Returns: the indices of the pairs of each batch.
    """
    source, target = _checked(source_lengths, target_lengths)
    if tokens < 1:
        raise ValueError(f"a batch of {tokens} tokens holds nothing")
    if rows is not None:
        source, target = source[rows], target[rows]
    if not len(source):
        return []
    generator = np.random.default_rng([seed, epoch])
    longer = np.maximum(source, target)
    first, second = (source, target) if generator.random() < 0.5 else (target, source)
    strip = _strips(first, second, longer, tokens, generator)
    zigzag = np.where(strip % 2 == 0, second, second.max() - second)
    shuffled = generator.permutation(len(source))  # so that pairs of equal lengths change places
    order = shuffled[np.argsort((strip * (second.max() + 1) + zigzag)[shuffled], kind="stable")]
    batches = _cut(order if rows is None else rows[order], longer[order], tokens, generator)
    return [batches[index] for index in generator.permutation(len(batches))]


def padding_share(
    plan: Sequence[NDArray[np.int64]],
    source_lengths: NDArray[np.integer],
    target_lengths: NDArray[np.integer],
) -> float:
    """Share of all positions of a plan's batches, both sides together, that hold padding."""
    source, target = _checked(source_lengths, target_lengths)
    real = area = 0
    for batch in plan:
        for lengths in (source[batch], target[batch]):
            real += int(lengths.sum())
            area += int(lengths.max()) * len(batch)
    return 1 - real / area if area else 0.0


def _checked(source: NDArray[np.integer], target: NDArray[np.integer]) -> tuple[Lengths, Lengths]:
    if source.shape != target.shape or source.ndim != 1:
        raise ValueError(f"source and target lengths are of shapes {source.shape} and {target.shape}")
    return source.astype(np.int64, copy=False), target.astype(np.int64, copy=False)


def _strips(
    first: Lengths, second: Lengths, longer: Lengths, tokens: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """The strip of each pair: neighbouring values of `first`, as many as make the batches about square.

    Many pairs of a length fill many batches, which then hardly differ in the second length: the strip can be one value
    wide. Few of them need a wide strip. A strip is closed when its width reaches STRIP_SHAPE times the span of the
    second length in one batch.
    """
    pairs = np.bincount(first)
    area = np.bincount(first, longer) / tokens  # in batches
    total = np.bincount(first, second)
    squares = np.bincount(first, second.astype(np.float64) ** 2)
    strip_of_length = np.zeros(len(pairs), dtype=np.int64)
    strip, start = 0, 0
    shapes = STRIP_SHAPE * generator.uniform(1 - STRIP_JITTER, 1 + STRIP_JITTER, len(pairs))
    for length in range(len(pairs)):
        strip_of_length[length] = strip
        inside = slice(start, length + 1)
        count = pairs[inside].sum()
        if not count:
            continue
        variance = squares[inside].sum() / count - (total[inside].sum() / count) ** 2
        spread = float(np.sqrt(max(variance, 1.0)))
        if (length + 1 - start) * area[inside].sum() >= shapes[strip] * spread:
            strip, start = strip + 1, length + 1
    return strip_of_length[first]


def _cut(
    order: NDArray[np.int64], longer: Lengths, tokens: int, generator: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Cut the order into consecutive batches, each as large as the budget allows."""
    batches: list[NDArray[np.int64]] = []
    start = 0
    while start < len(order):
        rows = max(1, tokens // int(longer[start]))
        longest = np.maximum.accumulate(longer[start : start + rows])
        fitting = np.count_nonzero(longest * np.arange(1, len(longest) + 1) <= tokens)
        rows = max(1, int(fitting))
        if not batches:  # a first batch of any size moves all the later cuts
            rows = int(generator.integers(1, rows + 1))
        batches.append(order[start : start + rows])
        start += rows
    return batches


@dataclass
class Batch:
    """Pairs as tensors of int64, padded on the right; teacher forcing shifts the target by one.

    P: real positions.

    source_BS: source pieces, each with its end mark.
    source_lengths_B: pieces of each source, with the end mark; it stays on the host, where what depends on the lengths
        is decided without waiting for a device.
    source_index_P, target_index_P: where the real pieces are in the flattened (B, S) and (B, T), for the same reason.
    target_input_BT: what the decoder reads: begin mark, then the target without its end mark.
    target_output_BT: what it shall say: the target with its end mark.
    """

    source_BS: Tensor
    source_lengths_B: Tensor
    source_index_P: Tensor
    target_input_BT: Tensor
    target_output_BT: Tensor
    target_index_P: Tensor
    target_tokens: int

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on a device; from pinned memory the copy does not make the caller wait."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> Batch:
        """The same batch in memory that a GPU can copy from by itself."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        return Batch(
            change(self.source_BS),
            self.source_lengths_B,
            change(self.source_index_P),
            change(self.target_input_BT),
            change(self.target_output_BT),
            change(self.target_index_P),
            self.target_tokens,
        )


def make_batch(
    source: Sequence[Sequence[int] | NDArray[np.integer]],
    target: Sequence[Sequence[int] | NDArray[np.integer]],
) -> Batch:
    """A batch of encoded pairs. Each sentence ends with its end mark and so has at least one piece."""
    if len(source) != len(target):
        raise ValueError(f"{len(source)} source and {len(target)} target sentences")
    output_BT, target_lengths_B = padded(target)
    source_BS, source_lengths_B = padded(source)
    input_BT = np.full_like(output_BT, PAD)
    input_BT[:, 0] = BOS
    input_BT[:, 1:] = output_BT[:, :-1]
    input_BT[np.arange(output_BT.shape[1]) >= target_lengths_B[:, None]] = PAD  # the end mark is never read
    return Batch(
        source_BS=torch.from_numpy(source_BS),
        source_lengths_B=torch.from_numpy(source_lengths_B),
        source_index_P=torch.from_numpy(np.flatnonzero(source_BS != PAD)),
        target_input_BT=torch.from_numpy(input_BT),
        target_output_BT=torch.from_numpy(output_BT),
        target_index_P=torch.from_numpy(np.flatnonzero(output_BT != PAD)),
        target_tokens=int(target_lengths_B.sum()),
    )


def padded(sentences: Sequence[Sequence[int] | NDArray[np.integer]]) -> tuple[NDArray[np.int64], Lengths]:
    """Ids padded on the right, and the lengths. Raises ValueError without a sentence, or for an empty one."""
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    if not len(lengths) or not lengths.min():
        raise ValueError("a batch needs at least one sentence, and each sentence its end mark")
    padded = np.full((len(lengths), int(lengths.max())), PAD, dtype=np.int64)
    for row, sentence in zip(padded, sentences, strict=True):
        row[: len(sentence)] = sentence
    return padded, lengths
