"""What `nmt translate` takes on its command line; known without loading any of it."""

from __future__ import annotations

import argparse

from nmt import options


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds them to the parser of the verb."""
    parser.description = (
        "Translate each line of the input to one line of output. Reads stdin where no input is named. A line is read "
        "whole, however long; of several sentences on it, a model that was trained on single ones may leave some out: "
        "--split takes them apart."
    )
    parser.add_argument(
        "runs",
        metavar="RUN",
        type=options.path,
        nargs="+",
        help="run directory, checkpoint directory or export; several runs translate together, as an ensemble",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--text", metavar="T", help="text to translate")
    source.add_argument("--input", metavar="FILE", type=options.path, help="file to translate")
    parser.add_argument("--output", metavar="FILE", type=options.file, help="file to write to; else stdout")
    parser.add_argument("--beam-size", metavar="N", type=options.hypotheses, help="hypotheses kept; 1 is greedy search")
    parser.add_argument(
        "--n-best", metavar="N", type=options.hypotheses, help="hypotheses printed for each line; at most beam size"
    )
    parser.add_argument(
        "--mbr",
        metavar="N",
        type=options.hypotheses,
        help="minimum Bayes risk: draw N translations, print the one most like all of them by chrF; see also --search",
    )
    parser.add_argument(
        "--search",
        metavar="KEY=VALUE",
        action="append",
        help="another value for a search setting of the run, such as epsilon=0.02 or seed=2; may be repeated",
    )
    parser.add_argument(
        "--split", action="store_true", help="translate a line of several sentences sentence by sentence (needs pysbd)"
    )
    prefix = parser.add_mutually_exclusive_group()
    prefix.add_argument("--prefix", metavar="T", help="words that every translation begins with")
    prefix.add_argument(
        "--prefixes",
        metavar="FILE",
        type=options.path,
        help="a line for each line: words that its translation begins with",
    )
    parser.add_argument(
        "--glossary",
        metavar="FILE",
        type=options.path,
        help="lines of source phrase, tab, target phrase: where the one occurs, the translation contains the other",
    )
    parser.add_argument(
        "--copy",
        action="store_true",
        help="numbers, addresses, placeholders and emoji are in the translation as they are in the line",
    )
    parser.add_argument(
        "--json", action="store_true", help="a JSON object for each line: text, score, tokens, alignment"
    )
    parser.add_argument(
        "--alignments", metavar="FILE", type=options.file, help="also write word alignments, as pairs i-j"
    )
