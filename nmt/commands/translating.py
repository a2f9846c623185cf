"""`nmt translate`: from lines to lines, in their order and as they arrive, and what is said about them on stderr."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nmt.commands.constraining import Constraining
from nmt.commands.reading import input_chunks
from nmt.config import SearchConfig
from nmt.configuration import changed_search, check_search
from nmt.decoding.sentences import as_one, joined, parts_of, sentence_splitter
from nmt.decoding.translator import TextTranslator, Translation
from nmt.errors import RequestError, WorkError
from nmt.files import require_writable, write_atomically
from nmt.serving.exported import load_translator
from nmt.training.session import say

MOST_NAMED = 10
"""Lines that a warning names."""


def translate(arguments: Namespace) -> None:
    """`nmt translate`: one line of output for each line of input, as lines arrive."""
    if arguments.alignments and arguments.output and _same_file(arguments.alignments, arguments.output):
        raise RequestError("translate: --output and --alignments name the same file")
    if arguments.alignments and arguments.input and _same_file(arguments.alignments, arguments.input):
        raise RequestError("translate: --input and --alignments name the same file")
    for path in filter(None, (arguments.output, arguments.alignments)):
        require_writable(path)
    translator = _load(arguments.runs)
    search = _search_settings(translator.search, arguments)
    wanted = bool(arguments.alignments) or (arguments.json and translator.attends)
    constraining = Constraining.read(arguments)
    split = sentence_splitter(translator.source_language) if arguments.split else as_one
    written: list[str] = []
    aligned: list[str] = []
    done = 0

    def ask(lines: list[str], before: int) -> list[list[Translation]]:
        parts = parts_of(lines, split)
        constraints = None
        if constraining is not None:
            constraints = [constraining.of(each.text, before + each.line, each.place == 0) for each in parts]
        numbers = [each.number(before) for each in parts]
        found = translator.n_best([each.text for each in parts], search, wanted, numbers, constraints)
        return joined(len(lines), parts, found)

    for translations in _answers(ask, input_chunks(arguments)):
        warn_of_cuts(translations, done, search)
        warn_of_empty_ones(translations, done)
        done += len(translations)
        for found in translations:
            line = _as_json(found) if arguments.json else "\t".join(t.text for t in found)
            if arguments.output:
                written.append(f"{line}\n")
            else:
                print(line, flush=False)
            if arguments.alignments:
                aligned.append(f"{found[0].alignment.words().pharaoh() if found[0].alignment else ''}\n")
        sys.stdout.flush()
    if constraining:
        constraining.require_all_used(done)
    if arguments.output:
        write_atomically(arguments.output, "".join(written))
    if arguments.alignments:
        write_atomically(arguments.alignments, "".join(aligned))


def _load(runs: Sequence[Path]) -> TextTranslator:
    """The translator of a run, or of several together. Raises RequestError also for a text among them."""
    for further in runs[1:]:
        if not further.exists():
            raise RequestError(f"translate: there is no run {further}; a text is given with --text")
    return load_translator(runs)


def _answers(
    ask: Callable[[list[str], int], list[list[Translation]]], chunks: Iterator[list[str]]
) -> Iterator[list[list[Translation]]]:
    """The translations, some lines at once. Raises what cannot be translated after all lines before it were answered.

    `ask` gives the translations of lines, so many of which came before. Of lines that cannot be translated together,
    each half is tried: of a thousand, the one at fault is found in ten.
    """

    def answers(lines: list[str], done: int) -> Iterator[list[list[Translation]]]:
        try:
            yield ask(lines, done)
        except (RequestError, WorkError):
            if len(lines) == 1:
                raise
        else:
            return
        half = len(lines) // 2
        yield from answers(lines[:half], done)
        yield from answers(lines[half:], done + half)

    done = 0
    for lines in chunks:
        yield from answers(lines, done)
        done += len(lines)


def warn_of_cuts(translations: Sequence[Sequence[Translation]], done: int, search: SearchConfig) -> None:
    """Says on stderr which lines have a translation that was ended at the greatest length; `done` come before them."""
    _warn(
        [done + i + 1 for i, found in enumerate(translations) if found[0].cut],
        f"the translation was ended at its greatest length (search.max_length_ratio={search.max_length_ratio:g}, "
        f"search.max_length_extra={search.max_length_extra})",
    )


def warn_of_empty_ones(translations: Sequence[Sequence[Translation]], done: int) -> None:
    """Says which lines have a translation without text: nothing but a piece that is a space is an answer, too."""
    numbers = [done + i + 1 for i, found in enumerate(translations) if found[0].tokens and not found[0].text]
    _warn(numbers, "the model's translation has no text; it answered with nothing but spaces")


def _warn(numbers: Sequence[int], what: str) -> None:
    if not numbers:
        return
    named = ", ".join(map(str, numbers[:MOST_NAMED]))
    more = f" and {len(numbers) - MOST_NAMED} more" if len(numbers) > MOST_NAMED else ""
    say(f"warning: line{'s' if len(numbers) > 1 else ''} {named}{more}: {what}")


def _same_file(left: Path, right: Path) -> bool:
    return os.path.realpath(left) == os.path.realpath(right)


def _search_settings(search: SearchConfig, options: Namespace) -> SearchConfig:
    """The run's settings with the command's; asking for n hypotheses alone widens the search where it must."""
    search = changed_search(search, options.search or ())
    if options.mbr is not None:
        search = dataclasses.replace(search, mbr_samples=options.mbr, sampling=False)
    if options.beam_size is not None:
        search = dataclasses.replace(search, beam_size=options.beam_size)
    count = options.n_best if options.n_best is not None else search.n_best
    name, given = ("--mbr", options.mbr) if search.mbr_samples else ("--beam-size", options.beam_size)
    if given is not None and count > given:
        raise RequestError(f"translate: --n-best {count} is more than {name} {given}")
    search = search.for_results(count)
    check_search(search)
    return search


def _as_json(found: Sequence[Translation]) -> str:
    """One object: the best translation, and all of them under `n_best` where there are several."""

    def plain(translation: Translation) -> dict[str, Any]:
        alignment = translation.alignment
        return {
            "text": translation.text,
            "score": translation.score,
            "tokens": translation.tokens,
            "alignment": json.loads(alignment.words().to_json()) if alignment else None,
        }

    record = plain(found[0])
    if len(found) > 1:
        record["n_best"] = [plain(translation) for translation in found]
    return json.dumps(record, ensure_ascii=False)
