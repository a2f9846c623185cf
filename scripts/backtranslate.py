#!/usr/bin/env python
"""Makes training pairs of text in the target language alone: a reverse model translates it back (Sennrich et al. 2016).

    nmt train data=multi30k data.source_language=fr data.target_language=en run.dir=runs/reverse
    scripts/backtranslate.py more.fr --reverse runs/reverse --output back
                             [--tag '<BT>'] [--beam-size N | --sampling] [--weight 1]
                             [--train data=multi30k model=transformer run.dir=runs/with_back …]

Writes OUTPUT/synthetic.SOURCE and OUTPUT/synthetic.TARGET, of which the target side is the text as people wrote it, and
OUTPUT/backtranslation.json, which says where they come from. Every synthetic source begins with the tag (Caswell et al.
2019), so that the model can tell it from text that people wrote; `--tag ''` leaves it out. Lines that are blank, hold
the tag, or come back empty or cut off at the greatest length are left out, and counted. With `--train`, `nmt train`
follows with the overrides given, the synthetic pairs mixed in under `data.mix.back`, and the tag a symbol of the
tokenizer, which is therefore always one piece. Without, the command for that is printed.

The text is read as a stream. Interrupted or killed, the same command goes on from its last commit to the same files,
and then the training does.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from nmt import cli, options
from nmt.config import SearchConfig, TrainConfig
from nmt.configuration import compose
from nmt.configuration.mistakes import in_quotes
from nmt.data.corpus import content_key, read_lines
from nmt.data.filter import is_blank
from nmt.data.filtered import chunks_of
from nmt.data.journal import Journal, build_directory
from nmt.decoding.translator import Translation, Translator
from nmt.errors import RequestError, WorkError
from nmt.files import read_regular, sha256_of
from nmt.training.checkpoint import WEIGHTS
from nmt.training.session import say

META_FILE = "backtranslation.json"
LINES_AT_ONCE = 2_000
"""Lines that are translated together, and then committed."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What is to be translated back, by what, into what."""

    text: Path
    output: Path
    tag: str
    search: SearchConfig
    translator: Translator
    lines: int

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target of the pairs that are made, the reverse of the model's."""
        assert self.translator.config is not None
        data = self.translator.config.data
        return data.target_language, data.source_language

    @property
    def files(self) -> list[Path]:
        """The two sides of the pairs, source and target."""
        return [self.output / f"synthetic.{language}" for language in self.languages]

    @functools.cached_property
    def origin(self) -> dict[str, Any]:
        """All that the pairs depend on."""
        checkpoint = self.translator.checkpoint
        assert checkpoint is not None
        return {
            "weights_sha256": checkpoint.meta["sha256"].get(WEIGHTS),
            "step": checkpoint.step,
            "text_sha256": sha256_of(self.text),
            "tag": self.tag,
            "search": dataclasses.asdict(self.search),
        }


def main(argv: Sequence[str]) -> int:
    """Makes the pairs, and trains with them if asked to; the exit status."""
    given = _options(argv)
    translator = Translator.load(given.reverse)
    search = dataclasses.replace(
        translator.search.without_chance(),
        beam_size=given.beam_size or translator.search.beam_size,
        n_best=1,
        sampling=given.sampling,
    )
    # Every line once before the first is translated: what is wrong in the last one shows now and not after hours.
    lines = sum(1 for _ in read_lines(given.text))
    request = Request(given.text, given.output, given.tag, search, translator, lines)
    overrides = training_overrides(request, given.weight, given.train or [])
    back_translate(request)
    if given.train is None:
        print(shlex.join(["nmt", "train", *overrides]))
        return 0
    return cli.main(["train", *overrides])


def back_translate(request: Request) -> None:
    """Writes the pairs, unless that has been done.

    Raises:
        RequestError: the output is something else, such as the pairs of another model.
        WorkError: not one line is left, or it cannot be written.
    """
    output = request.output
    if not output.exists():
        build_directory(output, functools.partial(_write, request))
    try:
        meta = json.loads(read_regular(output / META_FILE))
    except (OSError, ValueError) as error:
        raise RequestError(f"--output {output}: is there already, and holds no back-translation") from error
    if meta.get("origin") != json.loads(json.dumps(request.origin)):
        raise RequestError(
            f"--output {output}: holds a back-translation by another model, or of other text; name another"
        )
    dropped = ", ".join(f"{reason} {count}" for reason, count in meta["dropped"].items())
    say(f"{output}: {meta['pairs']} pairs of {request.lines} lines" + (f"; left out: {dropped}" if dropped else ""))


def training_overrides(request: Request, weight: float, overrides: Sequence[str]) -> list[str]:
    """The overrides of `nmt train` with the pairs mixed in and the tag known to the tokenizer.

    Raises:
        RequestError: the training is refused, or translates in another direction than the pairs.
    """
    config = compose(overrides)
    wanted = config.data.source_language, config.data.target_language
    if wanted != request.languages:
        raise RequestError(
            f"--reverse: translates from {request.languages[1]} to {request.languages[0]}, which is not the reverse of "
            f"the training's {wanted[0]} to {wanted[1]}"
        )
    source, target = (in_quotes(str(path)) for path in request.files)
    mixed = f"data.mix={{back: {{source: {source}, target: {target}, weight: {weight:g}}}}}"
    return [*overrides, mixed, *_known_tag(config, request.tag)]


def _known_tag(config: TrainConfig, tag: str) -> list[str]:
    symbols = config.tokenizer.user_defined_symbols
    if not tag or tag in symbols:
        return []
    return [f"tokenizer.user_defined_symbols=[{', '.join(in_quotes(symbol) for symbol in [*symbols, tag])}]"]


def _write(request: Request, directory: Path) -> None:
    """Translates chunk by chunk, going on from the journal's last commit where that is of the same origin."""
    key = content_key(request.origin)
    names = [path.name for path in request.files]
    with Journal(directory, names) as journal:
        state = journal.state
        if state.get("key") != key:
            state = {}
            for name in names:
                journal[name].seek(0)
                journal[name].truncate()
        read, pairs, dropped = state.get("read", 0), state.get("pairs", 0), Counter(state.get("dropped", {}))
        if read:
            say(f"going on after {read} of {request.lines} lines")
        for lines in chunks_of(islice(read_lines(request.text), read, None), LINES_AT_ONCE):
            numbers = range(read, read + len(lines))
            found = request.translator.n_best(lines, request.search, numbers=numbers)
            for line, (translation, *_) in zip(lines, found, strict=True):
                reason = _reason_to_drop(line, translation, request.tag)
                if reason:
                    dropped[reason] += 1
                    continue
                pairs += 1
                tagged = f"{request.tag} {translation.text}" if request.tag else translation.text
                for name, text in zip(names, (tagged, line), strict=True):
                    journal[name].write(f"{text}\n".encode())
            read += len(lines)
            journal.commit({"key": key, "read": read, "pairs": pairs, "dropped": dropped})
            say(f"translated back {read} of {request.lines} lines")
        if not pairs:
            raise WorkError(f"{request.text}: not one of {request.lines} lines is left: {dict(dropped)}")
        meta = {"origin": request.origin, "pairs": pairs, "dropped": dropped}
        (directory / META_FILE).write_text(json.dumps(meta, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        journal.forget()


def _reason_to_drop(line: str, translation: Translation, tag: str) -> str:
    """Why a pair is left out; empty where it is not."""
    if is_blank(line):
        return "blank"
    if tag and tag in line:
        return "with the tag in it"
    if is_blank(translation.text):
        return "empty translation"
    return "translation cut off" if translation.cut else ""


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = cli.Parser("backtranslate", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.prog = "backtranslate.py"
    parser.add_argument(
        "text", metavar="TEXT", type=options.path, help="text in the target language, a sentence a line"
    )
    parser.add_argument("--reverse", metavar="RUN", type=options.path, required=True, help="run of the reverse model")
    parser.add_argument("--output", metavar="DIR", type=options.path, required=True, help="new folder for the pairs")
    parser.add_argument("--tag", metavar="TAG", default="<BT>", help="first word of a synthetic source (<BT>)")
    search = parser.add_mutually_exclusive_group()
    search.add_argument("--beam-size", metavar="N", type=options.hypotheses, help="hypotheses kept (as in the run)")
    search.add_argument(
        "--sampling", action="store_true", help="draw translations instead of searching (Edunov et al. 2018)"
    )
    parser.add_argument("--weight", metavar="W", type=float, default=1.0, help="times that an epoch has each pair (1)")
    parser.add_argument("--train", metavar="KEY=VALUE", nargs="*", help="train as well, with these overrides")
    return parser.parsed(argv)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (RequestError, WorkError) as error:
        sys.exit(cli.tell(error))
