#!/usr/bin/env python
"""How fast a run translates: whole sets by beam and batch size, and one sentence at a time.

    scripts/bench_decode.py RUN [--against RUN]… [--set NAME | --input F] [--beams 1,5] [--batch-tokens N,N…]
                            [--sentences N] [--latency-sentences N] [--rounds N] [--threads N] [--json F]

RUN is a run directory, a checkpoint directory or an export (`nmt export`): so the project's own search and CTranslate2
can be compared. Every beam size with every batch size of every run translates the whole set once a round, in turn. The
figures are medians over the rounds with the least and the greatest; tokens are pieces of the translations, end marks
included. A batch size is that of `search.batch_tokens`, source tokens times hypotheses. Latency is the time of one
sentence alone, median and 90th percentile over sentences taken at equal distances from the set. The JSON's own figures
are those of RUN's widest beam at its quickest batch size. Prints two tables and then one line of JSON.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarking import reporting
from benchmarking.decoding import Setting, latency_record, record, some
from benchmarking.measuring import Spread, alternate
from nmt.data.corpus import prepare_corpus, read_lines
from nmt.data.filter import is_blank
from nmt.decoding.translator import TextTranslator, Translator
from nmt.errors import RequestError
from nmt.serving.exported import load_translator
from nmt.training.device import choose_device
from nmt.training.session import say


def main(argv: Sequence[str]) -> None:
    """Measures what the command line names."""
    options = _options(argv)
    if options.threads:
        torch.set_num_threads(options.threads)
    device = choose_device("auto")
    translators = {str(run): load_translator(run) for run in (options.run, *options.against)}
    first = translators[str(options.run)]
    name, texts = _texts(options, first)
    beams, sizes = sorted(set(options.beams)), sorted(set(options.batch_tokens))
    settings = [
        Setting(run, translator, device, beam, size)
        for run, translator in translators.items()
        for beam in beams
        for size in sizes
    ]
    single = some(texts, options.latency_sentences)
    say(f"{name}: {len(texts)} sentences, {len(settings)} settings, {options.rounds} rounds; warming up")
    for setting in settings:
        setting.translate(single)
    passes = alternate([partial(setting.whole, texts) for setting in settings], options.rounds)
    records = compared([record(setting, len(texts), found) for setting, found in zip(settings, passes, strict=True)])
    say(f"{len(single)} sentences, one at a time")
    alone = [setting for setting in settings if setting.batch_tokens == sizes[-1]]
    turns = [[partial(setting.alone, text) for setting in alone] for text in single]
    taken = zip(*([times[0] for times in alternate(turn, 1)] for turn in turns), strict=True)
    latencies = [latency_record(setting, times) for setting, times in zip(alone, taken, strict=True)]
    machine = reporting.machine(device, torch.get_num_threads())
    about = {**_model(first), "set": name, "sentences": len(texts), "rounds": options.rounds}
    reporting.deliver(text(records, latencies), {**machine, **about, **summary(records, latencies)}, options.json)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = reporting.Parser("bench_decode.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", metavar="RUN", type=Path, help="run directory, checkpoint directory or export")
    parser.add_argument("--against", metavar="RUN", type=Path, action="append", default=[], help="another, in turn")
    texts = parser.add_mutually_exclusive_group()
    texts.add_argument("--set", metavar="NAME", help="test set of RUN's corpus (default: the first)")
    texts.add_argument("--input", metavar="F", type=Path, help="file to translate instead, one sentence a line")
    parser.add_argument("--beams", metavar="N,N", type=reporting.counts, default=[1, 5], help="beam sizes (1,5)")
    parser.add_argument(
        "--batch-tokens", metavar="N,N", type=reporting.counts, default=[512, 2_048, 8_192], help="(512,2048,8192)"
    )
    parser.add_argument("--sentences", metavar="N", type=reporting.count, help="translate only so many of the set")
    parser.add_argument("--latency-sentences", metavar="N", type=reporting.count, default=50, help="(default: 50)")
    parser.add_argument("--rounds", metavar="N", type=reporting.count, default=3, help="rounds (default: 3)")
    parser.add_argument("--threads", metavar="N", type=reporting.count, help="CPU threads; else PyTorch's choice")
    parser.add_argument("--json", metavar="F", type=Path, help="file to write the record to")
    return parser.parse_args(list(argv))


def _texts(options: argparse.Namespace, translator: TextTranslator) -> tuple[str, list[str]]:
    """The sentences to translate, without blank lines, and what they are called."""
    if options.input is not None:
        name, lines = options.input.name, list(read_lines(options.input))
    else:
        if not isinstance(translator, Translator) or translator.config is None:
            raise RequestError(f"{options.run}: an export knows no test sets; give --input, or the run first")
        sets = prepare_corpus(translator.config.data, say).test
        if not sets:
            raise RequestError("the data of this run has no test set; give --input")
        name = options.set or next(iter(sets))
        if name not in sets:
            raise RequestError(f"--set {name}: there is no such set; there are: {', '.join(sets)}")
        lines = sets[name].sources()
    texts = [line for line in lines if not is_blank(line)]
    if not texts:
        raise RequestError(f"{name}: nothing to translate")
    return name, some(texts, options.sentences or len(texts))


def _model(translator: TextTranslator) -> dict[str, Any]:
    if not isinstance(translator, Translator) or translator.config is None:
        return {"model": None, "parameters": None}
    return {"model": translator.config.model.name, "parameters": translator.model.parameter_count()}


def compared(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records, each with how many times as many sentences a second the first run has with the same settings."""
    speeds = {
        (one["beam_size"], one["batch_tokens"]): one["sentences_per_s"]
        for one in records
        if one["run"] == records[0]["run"]
    }
    return [{**one, "ratio": speeds[one["beam_size"], one["batch_tokens"]] / one["sentences_per_s"]} for one in records]


def summary(records: Sequence[dict[str, Any]], latencies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the first run's widest beam at its quickest batch size, then all of them."""
    run, beam = records[0]["run"], max(one["beam_size"] for one in records)
    same = [one for one in records if (one["run"], one["beam_size"]) == (run, beam)]
    quickest = max(same, key=lambda one: one["target_tokens_per_s"])
    [alone] = [one for one in latencies if (one["run"], one["beam_size"]) == (run, beam)]
    headline = {key: value for key, value in quickest.items() if key != "ratio" and not key.endswith("_rounds")}
    latency = {key: alone[key] for key in ("latency_ms", "latency_ms_p90")}
    return {**headline, **latency, "settings": list(records), "latencies": list(latencies)}


def text(records: Sequence[dict[str, Any]], latencies: Sequence[dict[str, Any]]) -> str:
    """A row for each setting, then one for each latency."""

    def row(one: dict[str, Any]) -> list[str]:
        sentences, tokens = (Spread(tuple(one[f"{key}_per_s_rounds"])) for key in ("sentences", "target_tokens"))
        memory = [one["peak_rss_mb"], one["peak_device_mb"]]
        cells = [str(one["beam_size"]), f"{one['batch_tokens']:,}", sentences.text(1), tokens.text()]
        ratio = f"{one['ratio']:.2f}"
        return [one["run"], *cells, ratio, *("–" if value is None else f"{value:,.0f}" for value in memory)]

    speeds = ["sentences a second", "target tokens a second", "RUN is × as fast"]
    header = ["run", "beam", "batch", *speeds, "resident MB", "GPU MB"]
    first = reporting.table(header, [row(one) for one in records])
    rows = [
        [one["run"], str(one["beam_size"]), f"{one['latency_ms']:,.1f}", f"{one['latency_ms_p90']:,.1f}"]
        for one in latencies
    ]
    second = reporting.table(["one sentence alone", "beam", "median ms", "90th percentile ms"], rows)
    note = f"median (least–greatest) of {len(records[0]['sentences_per_s_rounds'])} rounds; 1 MB = 10^6 bytes"
    return f"{note}\n\n{first}\n\n{second}"


if __name__ == "__main__":
    sys.exit(reporting.run(main))
