"""What `nmt serve` takes on its command line; known without loading any of it."""

from __future__ import annotations

import argparse

from nmt import options


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds them to the parser of the verb."""
    parser.description = (
        "Serve runs: a page on which a person types and sees the translation, n-best lists and alignments, and an API "
        "that follows LibreTranslate's. SIGTERM or Ctrl+C ends it after all that was asked is answered."
    )
    add = parser.add_argument
    add("runs", metavar="RUN", type=options.path, nargs="+", help="run directories, checkpoint directories or exports")
    add("--host", metavar="H", default="127.0.0.1", help="where to listen (default: this machine only)")
    add("--port", metavar="N", type=_port, default=8000, help="0 takes a free one (default: 8000)")
    add(
        "--allow-origin", metavar="O", action="append", default=[], help="whose pages may use it in browsers; * for all"
    )
    add("--max-body", metavar="BYTES", type=options.count, default=1 << 20, help="of a request (default: 1 MiB)")
    add("--max-line", metavar="N", type=options.count, default=1_000, help="characters, and pieces (default: 1000)")
    add("--max-waiting", metavar="N", type=options.count, default=2_000, help="lines, of all requests (default: 2000)")


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number < 65_536:
        raise ValueError
    return number


_port.__name__ = "port from 0 to 65535"  # argparse says: invalid … value
