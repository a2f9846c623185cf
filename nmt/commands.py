"""What the verbs besides `train` do. Text goes to stdout, everything else to stderr."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import queue
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from nmt.config import SearchConfig
from nmt.configuration import compose
from nmt.data.corpus import GZIP_MAGIC, MAX_LINE_BYTES, decoded_line, prepare_corpus, read_lines
from nmt.data.filtered import filter_corpus
from nmt.data.overview import overview
from nmt.decoding.translator import TextTranslator, Translation, Translator
from nmt.errors import RequestError, WorkError
from nmt.evaluation.alignment import plot_alignment, require_picture
from nmt.evaluation.card import write_card_or_warn
from nmt.evaluation.compare import compare_runs
from nmt.evaluation.lengths import LIMITS
from nmt.evaluation.metrics import score_files
from nmt.evaluation.report import JSON_FILE, PAGE_FILE, as_record, as_text, write_report
from nmt.evaluation.scoring import score_sets
from nmt.files import cause_of, require_writable, write_atomically
from nmt.serving.export import export_run
from nmt.serving.exported import load_translator
from nmt.serving.served import open_served
from nmt.training.average import average_checkpoints
from nmt.training.session import say

LINES_AT_ONCE = 2_000
"""Lines that are sorted by length and translated together; waiting lines are never held back to fill this."""

MOST_NAMED = 10
"""Lines that a warning names."""


# data ------------------------------------------------------------------------------------------------------------


def data(arguments: Namespace) -> None:
    """`nmt data`: a corpus as it will be trained on, and what is left out."""
    config = compose(arguments.overrides, arguments.config_dir).data
    filtered = filter_corpus(prepare_corpus(config, say), config, say)
    print(overview(filtered, config, arguments.samples))


# translate -------------------------------------------------------------------------------------------------------


def translate(arguments: Namespace) -> None:
    """`nmt translate`: one line of output for each line of input, as lines arrive."""
    if arguments.alignments and arguments.output and _same_file(arguments.alignments, arguments.output):
        raise RequestError("translate: --output and --alignments name the same file")
    if arguments.alignments and arguments.input and _same_file(arguments.alignments, arguments.input):
        raise RequestError("translate: --input and --alignments name the same file")
    for path in filter(None, (arguments.output, arguments.alignments)):
        require_writable(path)
    translator = load_translator(arguments.run)
    search = _search_settings(translator.search, arguments.beam_size, arguments.n_best)
    wanted = bool(arguments.alignments) or (arguments.json and translator.attends)
    written: list[str] = []
    aligned: list[str] = []
    done = 0
    for translations in _answers(translator, _input_chunks(arguments), search, wanted):
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
    if arguments.output:
        write_atomically(arguments.output, "".join(written))
    if arguments.alignments:
        write_atomically(arguments.alignments, "".join(aligned))


def _answers(
    translator: TextTranslator, chunks: Iterator[list[str]], search: SearchConfig, alignments: bool
) -> Iterator[list[list[Translation]]]:
    """The translations, some lines at once. Raises what cannot be translated after all lines before it were answered.

    Of lines that cannot be translated together, each half is tried: of a thousand, the one at fault is found in ten.
    """

    def answers(lines: list[str], done: int) -> Iterator[list[list[Translation]]]:
        try:
            yield translator.n_best(lines, search, alignments, first_number=done)
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


def _search_settings(search: SearchConfig, beam_size: int | None, n_best: int | None) -> SearchConfig:
    """The run's settings with the command's; asking for n hypotheses alone widens the beam where it must."""
    count = n_best if n_best is not None else search.n_best
    if beam_size is not None and count > beam_size:
        raise RequestError(f"translate: --n-best {count} is more than --beam-size {beam_size}")
    width = beam_size if beam_size is not None else max(search.beam_size, count)
    return dataclasses.replace(search, beam_size=width, n_best=count)


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


def _input_chunks(arguments: Namespace) -> Iterator[list[str]]:
    if arguments.text is not None:
        yield [arguments.text]
    elif arguments.input is not None:
        yield from _chunks(read_lines(arguments.input))
    else:
        yield from _arriving_chunks()


def _chunks(lines: Iterator[str]) -> Iterator[list[str]]:
    """The lines, many at once. Raises what `lines` raises, after the lines before it were answered."""
    failure: RequestError | None = None
    while failure is None:
        chunk: list[str] = []
        try:
            for line in islice(lines, LINES_AT_ONCE):
                chunk.append(line)
        except RequestError as error:
            failure = error
        if not chunk:
            break
        yield chunk
    if failure is not None:
        raise failure


def _arriving_chunks() -> Iterator[list[str]]:
    """What stdin holds whenever the last lines are done: everything of a file, one line of a person who types.

    Raises RequestError for a closed stdin, and for a line that is not text, after the lines before it were answered.
    """
    if sys.stdin is None:
        raise RequestError("translate: stdin is closed; give --text or --input")
    arrived: queue.Queue[bytes | RequestError | None] = queue.Queue(maxsize=2 * LINES_AT_ONCE)
    threading.Thread(target=_read_lines_of_stdin, args=(arrived,), daemon=True).start()
    number = 0
    ended = False
    while not ended:
        items = [arrived.get()]
        while len(items) < LINES_AT_ONCE:
            try:
                items.append(arrived.get_nowait())
            except queue.Empty:
                break
        chunk: list[str] = []
        failure: RequestError | None = None
        for item in items:
            ended = not isinstance(item, bytes)
            if isinstance(item, RequestError):
                failure = item
            elif item is not None:
                number += 1
                try:
                    if number == 1 and item.startswith(GZIP_MAGIC):
                        raise RequestError("stdin is a gzip file: unpack it with zcat, or name it with --input")
                    chunk.append(decoded_line("stdin", number, item))
                except RequestError as error:
                    failure = error
            if ended or failure:
                break
        if chunk:
            yield chunk
        if failure is not None:
            raise failure


def _read_lines_of_stdin(arrived: queue.Queue[bytes | RequestError | None]) -> None:
    """Puts the lines of stdin, then None, or what is wrong with it.

    Reads the descriptor itself: a thread that waits inside a buffered reader would make Python abort at exit.
    """
    try:
        read: Callable[[int], bytes] = functools.partial(os.read, sys.stdin.fileno())
    except (OSError, ValueError):  # no descriptor behind it
        read = sys.stdin.buffer.read
    begun = bytearray()
    number = 0
    try:
        while block := read(1 << 16):
            *lines, rest = block.split(b"\n")
            for line in lines:
                arrived.put(bytes(begun + line))
                begun.clear()
                number += 1
            begun += rest
            if len(begun) > MAX_LINE_BYTES:
                arrived.put(
                    RequestError(f"stdin line {number + 1}: longer than {MAX_LINE_BYTES} bytes; not a text file?")
                )
                return
        if begun:
            arrived.put(bytes(begun))
        arrived.put(None)
    except OSError as error:
        arrived.put(RequestError(f"stdin cannot be read: {cause_of(error)}"))


# score -----------------------------------------------------------------------------------------------------------


def score(arguments: Namespace) -> None:
    """`nmt score`: a run on its test sets, or any two files."""
    files = (arguments.hypotheses, arguments.references)
    if arguments.run is None:
        if None in files:
            raise RequestError("score: give a RUN, or both --hypotheses and --references")
        if arguments.set is not None:
            raise RequestError("score: --set is a RUN's; two files are scored without it")
        found = score_files(arguments.hypotheses, arguments.references)
        print(f"BLEU {found.bleu:.2f}  {found.bleu_signature}\nchrF {found.chrf:.2f}  {found.chrf_signature}")
        for warning in found.statistics.warnings:
            say(f"warning: {warning}")
        return
    if files != (None, None):
        raise RequestError("score: give a RUN, or --hypotheses and --references, not both")
    translator = Translator.load(arguments.run)
    assert translator.config is not None
    corpus = prepare_corpus(translator.config.data, say)
    names = [arguments.set] if arguments.set is not None else list(corpus.test)
    if not names:
        raise RequestError("score: the data of this run has no test set")
    results = score_sets(translator, corpus, names, arguments.run, say)
    print(format_results(results, names))
    if translator.config.run.report:
        write_card_or_warn(arguments.run, corpus, say)


def format_results(results: dict[str, Any], names: Sequence[str]) -> str:
    """A line for each set, then the signatures, which are the same for all."""
    lines = [f"{'set':24}{'sentences':>10}{'BLEU':>8}{'chrF':>8}{'literature BLEU':>17}{'tokens/s':>10}"]
    for name in names:
        entry = results["sets"][name]
        literature = "" if entry["literature_bleu"] is None else f"{entry['literature_bleu']:.2f}"
        lines.append(
            f"{name:24}{entry['sentences']:10}{entry['bleu']:8.2f}{entry['chrf']:8.2f}{literature:>17}"
            f"{entry['target_tokens_per_s']:10.0f}"
        )
    first = results["sets"][names[0]]
    lines += [f"BLEU  {first['bleu_signature']}", f"chrF  {first['chrf_signature']}"]
    if first["literature_signature"]:
        lines.append(f"literature BLEU  {first['literature_signature']}")
    return "\n".join(lines)


# compare ---------------------------------------------------------------------------------------------------------


def compare(arguments: Namespace) -> None:
    """`nmt compare`: several runs on one test set, printed, as JSON and as a page; then says which runs failed."""
    for name in (JSON_FILE, PAGE_FILE):
        require_writable(arguments.output / name)
    limits = arguments.lengths or LIMITS
    comparison = compare_runs(arguments.runs, say, arguments.baseline, arguments.set, limits)
    record = as_record(comparison)
    print(as_text(record))
    write_report(comparison, record, arguments.output)
    say(f"{arguments.output / JSON_FILE} and {arguments.output / PAGE_FILE} are written")
    if comparison.complaints:
        raise WorkError(f"compare: {'; '.join(comparison.complaints)}")


# attend ----------------------------------------------------------------------------------------------------------


def attend(arguments: Namespace) -> None:
    """`nmt attend`: the translation of a sentence, and where each of its words looked."""
    if arguments.output:
        require_picture(arguments.output)
        require_writable(arguments.output)
    translator = load_translator(arguments.run)
    [translation] = translator.translate([arguments.text], alignments=True)
    if translation.alignment is None:
        raise RequestError("attend: the text is blank")
    alignment = translation.alignment.words(keep_end=True)  # so that all that was attended to is seen
    print(translation.text)
    if arguments.output:
        plot_alignment(alignment, arguments.output)
        print(arguments.output)
        return
    width = max((len(word) for word in alignment.target_tokens), default=0)
    for word, weights_S in zip(alignment.target_tokens, alignment.weights_TS, strict=True):
        strongest = sorted(range(len(weights_S)), key=lambda s: -weights_S[s])[:3]
        print(f"{word:{width}}  " + "  ".join(f"{alignment.source_tokens[s]} {weights_S[s]:.2f}" for s in strongest))


# average ---------------------------------------------------------------------------------------------------------


def average(arguments: Namespace) -> None:
    """`nmt average`: a checkpoint whose weights are the mean of the run's last ones."""
    directory, used = average_checkpoints(Path(arguments.run), arguments.last)
    say(f"mean of {', '.join(path.name for path in used)}")
    print(directory)


# export ----------------------------------------------------------------------------------------------------------


def export(arguments: Namespace) -> None:
    """`nmt export`: a folder for CTranslate2 that is known to translate as the run does."""
    folder = export_run(arguments.run, arguments.output, arguments.quantization, arguments.sentences, say)
    print(folder)


# serve -----------------------------------------------------------------------------------------------------------


def serve(arguments: Namespace) -> None:
    """`nmt serve`: a page and an API, until a signal comes."""
    try:
        from nmt.serving import protocol, server
    except ImportError as error:
        raise RequestError(
            f"serve needs FastAPI and uvicorn, which cannot be imported here ({error}); "
            'pip install "fastapi>=0.115" "uvicorn>=0.30"'
        ) from None
    limits = protocol.Limits(
        body_bytes=arguments.max_body,
        line_characters=arguments.max_line,
        waiting_lines=arguments.max_waiting,
    )
    server.serve(open_served(arguments.runs), arguments.host, arguments.port, limits, arguments.allow_origin)
