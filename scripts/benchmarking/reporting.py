"""What the scripts print and write, and how a mistake on their command line is told."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from nmt.cli import tell
from nmt.errors import RequestError
from nmt.files import write_atomically
from nmt.options import count as count  # for the scripts, too


class Parser(argparse.ArgumentParser):
    """Options whose mistakes are one line."""

    def error(self, message: str) -> NoReturn:
        raise RequestError(f"{message} (see {self.prog} --help)")


def counts(text: str) -> list[int]:
    """Whole numbers above 0, with commas between them."""
    return [count(part) for part in text.split(",")]


counts.__name__ = "list of whole numbers above 0"


def run(main: Callable[[list[str]], None]) -> int:
    """Runs a script on the process's arguments; its exit status, a mistake told in one line."""
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        return tell(error)
    return 0


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they must be: the first flush left, the others flush right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        first, *others = (f"{cell:{'>' if i else '<'}{widths[i]}}" for i, cell in enumerate(row))
        return "  ".join((first, *others)).rstrip()

    return "\n".join(map(line, (header, *rows)))


def deliver(text: str, record: dict[str, Any], file: Path | None) -> None:
    """Prints the table, then the record as one line of JSON; the record also goes into the file, where one is named."""
    print(f"{text}\n\n{json.dumps(record, ensure_ascii=False)}", flush=True)
    if file is not None:
        write_atomically(file, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def machine(device: Any, threads: int) -> dict[str, Any]:
    """Where the figures come from."""
    import torch

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {"device": device.type, "processor": name, "threads": threads, "torch": torch.__version__}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
