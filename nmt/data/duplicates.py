"""Pairs that have come before, exactly or nearly, found within bounded memory.

What stands for a pair is one number of 64 bits, or several, that are written to a file while the pairs go by. Then the
numbers are looked at in turn, those of one range at a time, as many as fit: whether a number has come before is settled
within its range. A corpus of any size needs a byte for each pair and the memory of one range.

Near duplicates are found by MinHash and locality-sensitive hashing (Leskovec, Rajaraman and Ullman, Mining of Massive
Datasets, sections 3.3 and 3.4; the implementation is datasketch's): pairs of which one band of the signature is equal
count as alike. It is a chance that rises steeply around the similarity asked for, not a bound.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Digests = NDArray[np.uint64]

AT_ONCE = 2_000_000  # numbers that are sorted at once, at about 50 bytes each
SIGNATURE = 128  # hash values of a MinHash
_WORDS = re.compile(r"\w+")


class Exact:
    """One number for each pair: equal for equal pairs, and for others with a probability of 2⁻⁶⁴."""

    columns = 1

    def digests(self, pairs: Sequence[tuple[str, str]]) -> Digests:
        """A row for each pair, of `columns` numbers."""
        # Lone surrogates cannot come from a UTF-8 file; "surrogatepass" is for pairs that were made in Python.
        texts = (f"{source}\n{target}".encode("utf-8", "surrogatepass") for source, target in pairs)
        return _numbers(b"".join(_hash(text) for text in texts), 1)


class Near:
    """Numbers of which some are probably equal for pairs that are alike.

    Compared are the sets of neighbouring words of both sides together, without case and punctuation, by the share that
    they have in common (Jaccard similarity).
    """

    def __init__(self, similarity: float) -> None:
        from datasketch import MinHashLSH

        index = MinHashLSH(threshold=similarity, num_perm=SIGNATURE)  # asked only how to cut a signature into bands
        self.columns, self._rows = int(index.b), int(index.r)

    def digests(self, pairs: Sequence[tuple[str, str]]) -> Digests:
        """As those of `Exact`, a number for each band."""
        from datasketch import MinHash

        parts = (list(_neighbours(source, b"<")) + list(_neighbours(target, b">")) for source, target in pairs)
        signatures = MinHash.generator(parts, num_perm=SIGNATURE, hashfunc=zlib.crc32)
        bands = (
            _hash(signature.hashvalues[band * self._rows : (band + 1) * self._rows].tobytes())
            for signature in signatures
            for band in range(self.columns)
        )
        return _numbers(b"".join(bands), self.columns)


def repeated(digests: Digests, candidates: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which candidates have a number that an earlier candidate has in the same column.

    digests: [pairs, columns], in a mapped file if need be. candidates: the rows that take part.
    """
    found = np.zeros(len(candidates), dtype=bool)
    ranges = max(1, -(-len(candidates) // AT_ONCE))
    bounds = [(number << 64) // ranges for number in range(ranges + 1)]
    for column in range(digests.shape[1]):
        for low, high in pairwise(bounds):
            rows, numbers = _within(digests[:, column], candidates, low, high - 1)
            order = np.argsort(numbers, kind="stable")  # of equal numbers, the earliest row comes first
            numbers = numbers[order]
            found[rows[order[1:][numbers[1:] == numbers[:-1]]]] = True
    return found


def _within(
    column: Digests, candidates: NDArray[np.bool_], low: int, high: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The candidates whose numbers are from low to high, and these numbers."""
    rows, numbers = [], []
    for start in range(0, max(1, len(candidates)), AT_ONCE):
        part = np.array(column[start : start + AT_ONCE])
        inside = candidates[start : start + AT_ONCE] & (part >= np.uint64(low)) & (part <= np.uint64(high))
        rows.append(start + np.flatnonzero(inside))
        numbers.append(part[inside])
    return np.concatenate(rows), np.concatenate(numbers)


def _neighbours(text: str, side: bytes) -> set[bytes]:
    words = [side, *(word.encode("utf-8", "surrogatepass") for word in _WORDS.findall(text.casefold())), side]
    return {side + first + b" " + second for first, second in pairwise(words)}


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8).digest()


def _numbers(data: bytes, columns: int) -> Digests:
    return np.frombuffer(data, np.uint64).reshape(-1, columns)
