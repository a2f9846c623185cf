"""What the verbs besides `train` do: a function of its name for each. Text goes to stdout, everything else to stderr.

`translate` has files of its own: `translating` (the verb) and `reading` (its input).
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt.commands.translating import translate as translate
from nmt.configuration import compose
from nmt.data.corpus import prepare_corpus, reference_lines
from nmt.data.filtered import filter_corpus
from nmt.data.overview import overview
from nmt.decoding.translator import Translator
from nmt.errors import RequestError, WorkError
from nmt.evaluation.alignment import plot_alignment, require_picture
from nmt.evaluation.card import write_card_or_warn
from nmt.evaluation.comet import Comet
from nmt.evaluation.compare import compare_runs
from nmt.evaluation.lengths import LIMITS
from nmt.evaluation.metrics import check_counts, score_files
from nmt.evaluation.report import JSON_FILE, PAGE_FILE, as_record, as_text, write_report
from nmt.evaluation.scoring import add_comet, score_sets
from nmt.files import require_writable
from nmt.serving.export import export_run
from nmt.serving.exported import load_translator
from nmt.serving.served import open_served
from nmt.training.average import average_checkpoints
from nmt.training.session import say

# data ------------------------------------------------------------------------------------------------------------


def data(arguments: Namespace) -> None:
    """`nmt data`: a corpus as it will be trained on, and what is left out."""
    config = compose(arguments.overrides, arguments.config_dir).data
    filtered = filter_corpus(prepare_corpus(config, say), config, say)
    print(overview(filtered, config, arguments.samples))


# score -----------------------------------------------------------------------------------------------------------


def score(arguments: Namespace) -> None:
    """`nmt score`: a run on its test sets, or any two files."""
    comet = Comet.find(arguments.comet) if arguments.comet is not None else None
    files = (arguments.hypotheses, arguments.references, arguments.sources)
    if arguments.run is None:
        _score_files(arguments, comet)
        return
    if files != (None, None, None):
        raise RequestError("score: give a RUN, or --hypotheses and --references, not both")
    translator = Translator.load(arguments.run)
    assert translator.config is not None
    corpus = prepare_corpus(translator.config.data, say)
    names = [arguments.set] if arguments.set is not None else list(corpus.test)
    if not names:
        raise RequestError("score: the data of this run has no test set")
    results = score_sets(translator, corpus, names, arguments.run, say)
    if comet:
        results = add_comet(comet, corpus, names, arguments.run, say)
    print(format_results(results, names))
    if translator.config.run.report:
        write_card_or_warn(arguments.run, corpus, say)


def _score_files(arguments: Namespace, comet: Comet | None) -> None:
    """Prints the scores of any two files, and warnings."""
    files = (arguments.hypotheses, arguments.references)
    if None in files:
        raise RequestError("score: give a RUN, or both --hypotheses and --references")
    if arguments.set is not None:
        raise RequestError("score: --set is a RUN's; two files are scored without it")
    if (comet is None) != (arguments.sources is None):
        raise RequestError("score: two files are scored with both --comet and --sources, or with neither")
    found = score_files(arguments.hypotheses, arguments.references)
    sources = reference_lines(arguments.sources) if comet else []
    if comet:
        check_counts(found.statistics.sentences, len(sources), str(arguments.hypotheses), str(arguments.sources))
    print(f"BLEU {found.bleu:.2f}  {found.bleu_signature}\nchrF {found.chrf:.2f}  {found.chrf_signature}")
    for warning in found.statistics.warnings:
        say(f"warning: {warning}")
    if comet:
        print(f"COMET {comet.score(sources, *map(reference_lines, files)):.4f}  {comet.model}")


def format_results(results: dict[str, Any], names: Sequence[str]) -> str:
    """A line for each set, then the signatures, which are the same for all."""
    first = results["sets"][names[0]]
    lines = [f"{'set':24}{'sentences':>10}{'BLEU':>8}{'chrF':>8}{'literature BLEU':>17}{'tokens/s':>10}"]
    lines[0] += f"{'COMET':>8}" if "comet" in first else ""
    for name in names:
        entry = results["sets"][name]
        literature = "" if entry["literature_bleu"] is None else f"{entry['literature_bleu']:.2f}"
        comet = f"{entry['comet']:8.4f}" if "comet" in entry else ""
        lines.append(
            f"{name:24}{entry['sentences']:10}{entry['bleu']:8.2f}{entry['chrf']:8.2f}{literature:>17}"
            f"{entry['target_tokens_per_s']:10.0f}"
            f"{comet}"
        )
    lines += [f"BLEU  {first['bleu_signature']}", f"chrF  {first['chrf_signature']}"]
    if first["literature_signature"]:
        lines.append(f"literature BLEU  {first['literature_signature']}")
    if "comet" in first:
        lines.append(f"COMET  {first['comet_model']}")
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
