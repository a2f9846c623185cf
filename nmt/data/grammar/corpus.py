"""Training, validation and test sets of generated pairs.

Each set has its own generator, seeded by the seed and the set's name, and the test set is made first: it stays the same
when more training pairs are asked for. No sentence, of either language, occurs twice in the three sets together.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from random import Random

from nmt.config import GrammarData
from nmt.data.grammar.clauses import Clauses
from nmt.data.grammar.source import DeadEnd
from nmt.data.grammar.tokens import Pair, realise
from nmt.errors import RequestError

SHORTEST, LONGEST = 3, 60
_MOST_DEAD_ENDS = 10_000
_MOST_REPETITIONS = 300


def generate_pair(rng: Random, length: int, variety: int | None = None) -> Pair:
    """A sentence of exactly `length` English words and its translation; the state of `rng` alone decides which.

    Words are counted as `str.split` counts them: a final mark, a comma and 's belong to the word before. `length` is
    from 3 to 60; ValueError otherwise. `variety` is how many words of a kind there are to choose from, None for all.
    """
    if not SHORTEST <= length <= LONGEST:
        raise ValueError(f"length is {length}; sentences have {SHORTEST} to {LONGEST} words")
    for _ in range(_MOST_DEAD_ENDS):
        try:
            return realise(Clauses(rng, variety).sentence(length))
        except DeadEnd:
            continue
    raise AssertionError(f"no sentence of {length} words in {_MOST_DEAD_ENDS} tries")


def even_lengths(shortest: int, longest: int, count: int) -> Iterator[int]:
    """`count` lengths in turn, so that each is as frequent: always the test set's."""
    for index in range(count):
        yield shortest + index % (longest - shortest + 1)


def skewed_lengths(rng: Random, shortest: int, longest: int, count: int) -> Iterator[int]:
    """`count` lengths drawn from a geometric distribution cut off at the longest: many short ones, some of each."""
    ratio = 1 - 1 / max(2.0, (longest - shortest) / 5)
    weights = [1.0]
    for _ in range(shortest, longest):
        weights.append(weights[-1] * ratio)  # not a power function: the same bits on every machine
    total = sum(weights)
    for _ in range(count):
        point, length = rng.random() * total, shortest
        while length < longest and point >= weights[length - shortest]:
            point -= weights[length - shortest]
            length += 1
        yield length


def mixed_lengths(rng: Random, shortest: int, longest: int, count: int) -> Iterator[int]:
    """A length of either kind in turn: short sentences to learn from first, and long ones to be good at."""
    half = -(-count // 2)
    kinds = skewed_lengths(rng, shortest, longest, half), even_lengths(shortest, longest, half)
    return islice(chain.from_iterable(zip(*kinds, strict=True)), count)


def generate_sets(config: GrammarData) -> Iterator[tuple[str, list[Pair]]]:
    """The sets by name, test first. Raises RequestError where the configuration cannot be met."""
    _check(config)
    low, high = config.min_words, config.max_words
    seen: set[str] = set()
    for name, count in (("test", config.test_pairs), ("valid", config.valid_pairs), ("train", config.train_pairs)):
        rng = Random(f"{config.seed} {name}")
        match "even" if name == "test" else config.lengths:
            case "even":
                lengths = even_lengths(low, high, count)
            case "mixed":
                lengths = mixed_lengths(rng, low, high, count)
            case _:
                lengths = skewed_lengths(rng, low, high, count)
        yield name, [_new_pair(rng, length, seen, name, config) for length in lengths]


def _new_pair(rng: Random, length: int, seen: set[str], name: str, config: GrammarData) -> Pair:
    for _ in range(_MOST_REPETITIONS):
        pair = generate_pair(rng, length, config.variety)
        sides = (f"en {pair.english}", f"fr {pair.french}")
        if seen.isdisjoint(sides):
            seen.update(sides)
            return pair
    raise RequestError(
        f"data.{name}_pairs is {getattr(config, f'{name}_pairs')}: the grammar does not make that many different "
        f"sentences of {length} words; raise data.max_words{' or data.variety' if config.variety else ''}, or ask for "
        "fewer pairs"
    )


def _check(config: GrammarData) -> None:
    if {config.source_language, config.target_language} != {"en", "fr"}:
        raise RequestError(
            f"data.source_language is {config.source_language} and data.target_language is {config.target_language}: "
            "the grammar translates between en and fr"
        )
    if config.min_words > config.max_words:
        raise RequestError(f"data.min_words is {config.min_words}, more than data.max_words, {config.max_words}")
    if config.min_words < SHORTEST:
        raise RequestError(f"data.min_words is {config.min_words}: the shortest sentences have {SHORTEST} words")
    if config.max_words > LONGEST:
        raise RequestError(f"data.max_words is {config.max_words}: the longest sentences have {LONGEST} words")


def write_grammar_corpus(config: GrammarData, directory: Path) -> None:
    """Writes NAME.en, NAME.fr and NAME.align into the directory, NAME being train, valid and test.

    UTF-8 with LF; the same configuration gives the same bytes. A line of NAME.align has the gold links of a pair as
    "i-j", i counting the tokens of `config.source_language`, j those of `config.target_language`, both from 0 over
    `words`. Lengths (`config.min_words` to `config.max_words`) are of the English side whatever the direction.
    Raises RequestError, naming the key, where the configuration cannot be met.
    """
    for name, pairs in generate_sets(config):
        reverse = config.source_language == "fr"
        columns = {
            "en": [pair.english for pair in pairs],
            "fr": [pair.french for pair in pairs],
            "align": [
                " ".join(f"{i}-{j}" for i, j in sorted((j, i) if reverse else (i, j) for i, j in pair.alignment))
                for pair in pairs
            ],
        }
        for suffix, lines in columns.items():
            with open(directory / f"{name}.{suffix}", "w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{line}\n" for line in lines)
