#!/usr/bin/env python
"""How well a model copies what is the same in both languages: 200 sentences with numbers, dates, e-mail addresses,
words in capitals and emoji, 40 of each kind.

    scripts/probe_copying.py RUN [--beam-size N] [--json F]

The sentences are made here, from templates and a seed. For each kind, without and with the constraints of `nmt
translate --copy`: the share of the sentences whose translation has the item just as it is, as whole words; and what a
glance would tell: how many translations are empty, how many repeat themselves, and their words over the source's.
`--copy` does not protect words in capitals, many of which are translated. Prints a table and one line of JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import re
import sys
from collections.abc import Sequence
from typing import Any

from benchmarking import reporting
from nmt import options
from nmt.config import SearchConfig
from nmt.decoding.constraints import Constraints, whole_words
from nmt.decoding.glossary import copied
from nmt.decoding.translator import TextTranslator
from nmt.evaluation.metrics import repeats
from nmt.files import write_atomically
from nmt.serving.exported import load_translator

EACH = 40
PEOPLE = ("the man", "a woman", "the child", "my sister", "the old teacher", "a young girl", "two boys", "the dog")
TEMPLATES = {
    "number": ("{who} sees {item} birds.", "There are {item} people in the street.", "{who} buys {item} apples."),
    "date": ("{who} waits until {item}.", "It was on {item} in the city.", "{who} played football on {item}."),
    "address": ("{who} writes to {item} today.", "Please write to {item}.", "The address ({item}) is on the sign."),
    "capitals": ("{who} works for {item}.", "A sign says {item} in the street.", "{who} wears a shirt of {item}."),
    "emoji": ("{who} is happy {item}", "What a beautiful day {item}!", "{item} {who} plays in the water."),
}
NAMES = ("anna", "j.martin", "paul_k", "office", "lea.b+news", "info")
HOSTS = ("example.org", "mail.example.com", "uni-nord.example.fr")
CAPITALS = ("NASA", "UNESCO", "IBM", "ACME", "NTSB", "KLM", "BBC", "ORION", "SNCF", "XYZ")
EMOJI = ("🙂", "😂", "🎉", "🐶", "👍", "🌍", "🚲", "☀️")


def probes(seed: int = 1) -> list[tuple[str, str, str]]:
    """Kind, item and sentence of each probe."""
    draw = random.Random(seed)
    items = {
        "number": lambda: draw.choice(
            (str(draw.randint(2, 99)), str(draw.randint(100, 9_999)), f"{draw.randint(1, 99)},{draw.randint(100, 999)}")
        ),
        "date": lambda: draw.choice(
            (
                f"{draw.randint(1990, 2030)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}",
                f"{draw.randint(1, 28)}/{draw.randint(1, 12)}/{draw.randint(1990, 2030)}",
            )
        ),
        "address": lambda: f"{draw.choice(NAMES)}@{draw.choice(HOSTS)}",
        "capitals": lambda: draw.choice(CAPITALS),
        "emoji": lambda: draw.choice(EMOJI),
    }
    found: list[tuple[str, str, str]] = []
    for kind, templates in TEMPLATES.items():
        for _ in range(EACH):
            item = items[kind]()
            sentence = draw.choice(templates).format(who=draw.choice(PEOPLE), item=item)
            found.append((kind, item, sentence[0].upper() + sentence[1:]))
    return found


def measured(translator: TextTranslator, search: SearchConfig, copy: bool) -> dict[str, Any]:
    """The rates of each kind and of all."""
    every = probes()
    texts = [sentence for _, _, sentence in every]
    constraints = [Constraints(phrases=tuple(copied(text))) for text in texts] if copy else None
    answers = [found[0].text for found in translator.n_best(texts, search, constraints=constraints)]
    exact: dict[str, float] = dict.fromkeys(TEMPLATES, 0.0)
    for (kind, item, _), answer in zip(every, answers, strict=True):
        exact[kind] += bool(re.search(whole_words(item), answer)) / EACH
    return {
        "exact": {kind: round(share, 4) for kind, share in exact.items()},
        "empty": sum(not answer for answer in answers),
        "repeated": sum(map(repeats, answers)),
        "length_ratio": round(sum(len(a.split()) for a in answers) / sum(len(t.split()) for t in texts), 3),
    }


def main(argv: Sequence[str]) -> None:
    """Measures what the command line names."""
    parser = reporting.Parser(
        "probe_copying.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", metavar="RUN", type=options.path)
    parser.add_argument("--beam-size", metavar="N", type=options.hypotheses)
    parser.add_argument("--json", metavar="F", type=options.file)
    given = parser.parse_args(argv)
    translator = load_translator(given.run)
    beam = given.beam_size or translator.search.beam_size
    search = dataclasses.replace(translator.search, beam_size=beam, n_best=1)
    free, copy = (measured(translator, search, copy) for copy in (False, True))
    rows = [[kind, *(f"{rates['exact'][kind]:.1%}" for rates in (free, copy))] for kind in TEMPLATES]
    rows += [[name, str(free[name]), str(copy[name])] for name in ("empty", "repeated", "length_ratio")]
    record = {"run": given.run.name, "beam_size": beam, "free": free, "copy": copy}
    reporting.deliver(reporting.table(["", "free", "--copy"], rows), record, None)
    if given.json:
        write_atomically(given.json, f"{json.dumps(record)}\n")


if __name__ == "__main__":
    sys.exit(reporting.run(main))
