"""The command `nmt`: a verb each, as thin as it can be.

`train` is a Hydra application; every other verb has ordinary options, since text and names of files are not overrides.
What goes wrong is one line on stderr, and the exit status says whose fault it was: 2 the request's, 1 the work's.
"""

from __future__ import annotations

import argparse
import difflib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from nmt import options
from nmt.config import TrainConfig
from nmt.decoding.options import add_options as add_translate_options
from nmt.errors import RequestError, WorkError
from nmt.launch import Launch
from nmt.serving.options import add_options as add_serve_options
from nmt.streams import discard_output, ensure_utf8_mode, print_on_stderr, set_streams
from nmt.training.interruption import Interrupted, Terminated, termination_raised

OVERVIEW = """\
usage: nmt VERB …        (nmt VERB --help tells more)

  nmt train [KEY=VALUE …]      train a model, as in: nmt train model=bahdanau data=grammar
  nmt data [KEY=VALUE …]       counts, lengths and examples of what the filters keep and drop, without training
  nmt translate RUN            translate text, a file, or what is typed
  nmt score RUN                BLEU and chrF of a run's translations, or of any two files
  nmt compare RUN RUN …        table, significance and a page of figures for several runs
  nmt attend RUN --text T      picture of the attention between a sentence and its translation
  nmt average RUN --last N     average the weights of the last checkpoints
  nmt export RUN               a model for CTranslate2, which nmt translate takes as well
  nmt serve RUN …              a page to translate on and LibreTranslate's API, on this machine
  nmt --version

RUN is a run directory or a checkpoint directory. Exit status: 0 done, 1 the work failed,
2 the request was wrong, 130, 143 and 129 after an interruption.
"""

LONGEST_MESSAGE = 2_000
"""Characters of a message on stderr; of a longer one the middle is left out."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status."""
    if argv is None:
        ensure_utf8_mode()
        argv = sys.argv[1:]
    set_streams()
    follows = list(argv[:1]) == ["train"] and Launch.from_environment().rank > 0
    if follows and os.environ.get("NMT_TRACEBACK") != "1":  # of several processes of a training, the first speaks
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  open until the process ends
    status = _status(argv)
    if follows and status:
        _leave_after_the_first()
    return status


def _status(argv: Sequence[str]) -> int:
    try:
        with termination_raised():
            status = _dispatch(list(argv))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader has left, as in `nmt train --help | head`
        discard_output()
        return 141
    except KeyboardInterrupt:
        print_on_stderr("nmt: interrupted")
        return 130
    except Terminated as stop:
        print_on_stderr("nmt: terminated")
        return 128 + stop.signal_number
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        if isinstance(error, OSError):
            discard_output()
        return tell(error)


def _leave_after_the_first() -> None:
    """torchrun ends all processes as soon as one has failed; by then the first one shall have said why."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(1)


def tell(error: Exception) -> int:
    """Print an error as one line on stderr and return the exit status for it."""
    print_on_stderr(f"nmt: error: {describe(error)}")
    return 2 if isinstance(error, RequestError) else 1


def describe(error: Exception) -> str:
    """What is said of an error: one line, its control characters escaped."""
    if os.environ.get("NMT_TRACEBACK") == "1":
        raise error
    if isinstance(error, RequestError | WorkError):
        message = str(error)
    elif isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        message = "out of memory (set NMT_TRACEBACK=1 to see where)"
    else:
        message = f"{type(error).__name__}: {error} (set NMT_TRACEBACK=1 to see where)"
    from nmt.training.console import one_line  # a name of a file, or what a file says, may hold any character

    message = one_line(" ".join(message.split()))
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[: LONGEST_MESSAGE // 2]}…{message[-LONGEST_MESSAGE // 4 :]}"
    return message


class Parser(argparse.ArgumentParser):
    """Options whose mistakes are one line, with the nearest option for one that does not exist."""

    def __init__(self, verb: str, **settings: Any) -> None:
        super().__init__(prog=f"nmt {verb}", allow_abbrev=False, **settings)

    def parsed(self, words: Sequence[str]) -> argparse.Namespace:
        """The options' values; one that is "--", which argparse leaves out before Python 3.13, included."""
        namespace = self.parse_args(self.with_text(words))
        for action in self._actions:
            if action.nargs is None and getattr(namespace, action.dest, None) == []:
                try:
                    setattr(namespace, action.dest, self._get_value(action, "--"))
                except argparse.ArgumentError as error:
                    self.error(str(error))
        return namespace

    def with_text(self, words: Sequence[str]) -> list[str]:
        """The words with --text joined to a text that begins with a dash, which argparse would take for an option."""
        joined: list[str] = []
        for word in words:
            known = word.split("=")[0] in self._option_string_actions
            if joined and joined[-1] == "--text" and word.startswith("-") and not known:
                joined[-1] = f"--text={word}"
            else:
                joined.append(word)
        return joined

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        wrong = message.removeprefix("unrecognized arguments: ").split(" ")[0]
        hint = ""
        if message.startswith("unrecognized arguments: -"):
            near = difflib.get_close_matches(wrong.split("=")[0], self._option_string_actions, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
        raise RequestError(f"{self.prog.removeprefix('nmt ')}: {message}{hint} (see {self.prog} --help)")


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(OVERVIEW, end="")
        return 0
    verb, *rest = argv
    if verb == "--version":
        from importlib import metadata

        try:
            print(f"nmt {metadata.version('nmt')}")
        except metadata.PackageNotFoundError:
            print("nmt (not installed)")
        return 0
    if verb == "train":
        return _train(rest)
    if verb not in PARSERS:
        near = difflib.get_close_matches(verb, ["train", *PARSERS], n=1, cutoff=0.5)
        hint = f"; did you mean nmt {near[0]}?" if near else "."
        raise RequestError(f"{verb}: no such verb{hint} There are: train, {', '.join(PARSERS)}")
    parser = Parser(verb)
    PARSERS[verb](parser)
    arguments = parser.parsed(rest)
    if getattr(arguments, "text", None) is not None:
        _require_utf8("--text", arguments.text)
    from nmt import commands

    return int(getattr(commands, verb)(arguments) or 0)


def _train(argv: list[str]) -> int:
    parser = Parser("train", add_help=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("-c", "--cfg", choices=["job", "hydra", "all"])
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("-p", "--package")
    parser.add_argument("-i", "--info", nargs="?", const="all", choices=INFO)
    parser.add_argument("-cd", "--config-dir", type=options.path)
    parser.add_argument("--hydra-help", action="store_true")
    arguments = parser.parse_intermixed_args(argv)
    for override in arguments.overrides:
        _require_utf8("an override", override)
    if arguments.help:
        from nmt.configuration.help import train_help

        print(train_help(arguments.config_dir))
        return 0
    from nmt.configuration import application

    flags = _hydra_flags(arguments)
    if flags:
        if arguments.multirun:
            raise RequestError("train: -m trains, and --cfg, --info and --hydra-help print; choose one")
        application.show(arguments.overrides, flags, arguments.config_dir)
    elif arguments.multirun:
        from nmt.configuration.sweep import train_sweep

        train_sweep(arguments.overrides, arguments.config_dir, _trainer, describe)
    else:
        application.train_one(arguments.overrides, arguments.config_dir, _trainer)
    return 0


def _trainer(config: TrainConfig) -> float:
    from nmt.training.session import train  # brings PyTorch, which a mistake in an override need not wait for

    try:
        return train(config)
    except Interrupted as stop:
        # Not an Exception, so that it ends a sweep as well; the state is saved.
        print_on_stderr(f"nmt: {stop}")
        raise SystemExit(128 + stop.signal_number) from stop


def _hydra_flags(arguments: argparse.Namespace) -> list[str]:
    flags = ["--cfg", arguments.cfg] if arguments.cfg else []
    if not flags and (arguments.resolve or arguments.package):
        raise RequestError("train: --resolve and --package say what --cfg prints; add --cfg job")
    flags += ["--resolve"] if arguments.resolve else []
    flags += ["--package", arguments.package] if arguments.package else []
    flags += [f"--info={arguments.info}"] if arguments.info else []
    return flags + (["--hydra-help"] if arguments.hydra_help else [])


def _data(parser: Parser) -> None:
    parser.description = (
        "Prepare a corpus as nmt train does; print what the filters keep and drop, lengths, and examples of each kind."
    )
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help="as for nmt train, such as data=multi30k")
    parser.add_argument(
        "--samples", metavar="N", type=options.count, default=3, help="examples of each kind (default: 3)"
    )
    parser.add_argument("-cd", "--config-dir", metavar="DIR", type=Path, help="a further folder of presets")


def _score(parser: Parser) -> None:
    parser.description = (
        "BLEU and chrF, with signatures: of a run on a test set, or of a file against a reference file."
    )
    parser.add_argument(
        "run", metavar="RUN", type=options.path, nargs="?", help="run directory or checkpoint directory"
    )
    parser.add_argument("--set", metavar="NAME", help="test set; else all of the run's test sets")
    parser.add_argument("--hypotheses", metavar="FILE", type=options.path, help="translations, one a line")
    parser.add_argument("--references", metavar="FILE", type=options.path, help="reference translations, one a line")
    parser.add_argument(
        "--comet",
        metavar="MODEL",
        help="also COMET: a checkpoint (FILE.ckpt), or a name such as Unbabel/wmt22-comet-da (needs comet-score)",
    )
    parser.add_argument("--sources", metavar="FILE", type=options.path, help="with --comet: what was translated")


def _compare(parser: Parser) -> None:
    parser.description = (
        "Score several runs on one test set with one scorer: a table with intervals and significance, printed and as "
        "JSON, and with figures as a page."
    )
    parser.add_argument(
        "runs", metavar="RUN", type=options.path, nargs="+", help="run directories or checkpoint directories"
    )
    parser.add_argument(
        "--baseline", metavar="RUN", type=options.path, help="one of them; default: the first that has scores"
    )
    parser.add_argument("--set", metavar="NAME", help="test set (default: test, or the corpus's first)")
    parser.add_argument(
        "--lengths",
        metavar="N,N,…",
        type=options.lengths,
        help="greatest words of each bucket of source length (10,20,…,60)",
    )
    parser.add_argument(
        "--output", metavar="DIR", type=options.path, default=Path("comparison"), help="for comparison.json and .html"
    )


def _attend(parser: Parser) -> None:
    parser.description = "Translate a sentence and draw which source words each target word attended to."
    parser.add_argument("run", metavar="RUN", type=options.path, help="run directory, checkpoint directory or export")
    parser.add_argument("--text", metavar="T", required=True, help="sentence to translate")
    parser.add_argument(
        "--output", metavar="FILE", type=options.file, help="picture (PNG, PDF or SVG); else printed as text"
    )


def _average(parser: Parser) -> None:
    parser.description = "Average the weights of a run's last checkpoints into a new checkpoint of that run."
    parser.add_argument("run", metavar="RUN", type=options.path, help="run directory")
    parser.add_argument("--last", metavar="N", type=options.count, default=5, help="how many checkpoints (default: 5)")


QUANTIZATIONS = ("int8", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16")


def _export(parser: Parser) -> None:
    parser.description = (
        "Write a Transformer as a folder for CTranslate2, which nmt translate takes as well. It must translate 200 "
        "sentences as the run does, or nothing is written; for a quantised model, the agreement is told."
    )
    parser.add_argument("run", metavar="RUN", type=options.path, help="run directory or checkpoint directory")
    parser.add_argument("--format", choices=["ctranslate2"], default="ctranslate2", help="the only one (default)")
    parser.add_argument("--quantization", choices=QUANTIZATIONS, help="type of the matrices; else float32")
    parser.add_argument(
        "--output", metavar="DIR", type=options.path, help="new folder; else ctranslate2[-TYPE] in the run"
    )
    parser.add_argument(
        "--sentences",
        metavar="FILE",
        type=options.path,
        help="source text to compare on; else the run's test and validation sets",
    )


INFO = ["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"]

# The verbs besides train, and what each takes; `nmt.commands` has a function of the same name for each.
PARSERS: dict[str, Callable[[Parser], None]] = {
    "translate": add_translate_options,
    "score": _score,
    "compare": _compare,
    "attend": _attend,
    "average": _average,
    "export": _export,
    "serve": add_serve_options,
    "data": _data,
}


def _require_utf8(name: str, text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise RequestError(f"{name}: is not UTF-8") from None
