"""Fetching a file once: checked against its SHA-256, continued after an interruption, used offline from then on.

Python's own HTTP client is enough for this (it honours the proxy variables and checks certificates), so that fetching
depends on no library. The bytes go to NAME.partial next to the destination. They are renamed only when the checksum is
right, and asked for again from where they end when a former attempt was cut off.
"""

from __future__ import annotations

import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import cast

from nmt.errors import RequestError, WorkError
from nmt.files import cause_of, locked, sha256_of

TIMEOUT_SECONDS = 30.0
ATTEMPTS = 3  # for one file, when the connection breaks in the middle of it
_CHUNK_BYTES = 2**18
_REPORT_SECONDS = 5.0

_INSTEAD = "or put the files into a folder and give it as data.dir"


class _CutOffError(Exception):
    """The connection ended before the file did; what has arrived is kept."""


def fetch(url: str, sha256: str, destination: Path, report: Callable[[str], None]) -> Path:
    """Download `url` to `destination` unless it is there, and return `destination`.

    A complete file is used without any network. A partial one is continued where the server can do that.

    Raises RequestError for an address or checksum that cannot be one; WorkError, saying to use data.dir instead, where
    the server refuses, is not reached, sends too little or something else than the checksum is of, or the disk is full.
    """
    if not url.startswith(("https://", "http://")):
        raise RequestError(f"data.downloads: {url} is not an http or https address")
    if re.fullmatch("[0-9a-fA-F]{64}", sha256) is None:
        raise RequestError(f"data.downloads: the sha256 of {url} is not 64 hexadecimal digits: {sha256!r}")
    sha256 = sha256.lower()
    if _is_complete(destination, sha256):
        return destination
    partial = destination.with_name(destination.name + ".partial")
    # Several runs that start together wait here for the one that downloads.
    with locked(destination.with_name(f".{destination.name}.lock")):
        if _is_complete(destination, sha256):
            return destination
        continued = _download(url, partial, report)
        if continued and sha256_of(partial) != sha256:
            # The beginning may be of an older version of the file. Once more, from the start.
            partial.unlink()
            _download(url, partial, report)
        found = sha256_of(partial)
        if found != sha256:
            partial.unlink()
            raise WorkError(f"{url}: SHA-256 is {found}, not {sha256}: the file has changed; try again, {_INSTEAD}")
        try:
            os.replace(partial, destination)
        except OSError as error:
            raise WorkError(f"cannot write {destination}: {cause_of(error)}") from error
    return destination


def _is_complete(destination: Path, sha256: str) -> bool:
    return destination.is_file() and sha256_of(destination) == sha256


def _download(url: str, partial: Path, report: Callable[[str], None]) -> bool:
    """Bring all bytes into `partial`; whether some had been there before."""
    before = _size(partial)
    for attempt in range(1, ATTEMPTS + 1):
        start = _size(partial)
        try:
            _transfer(url, partial, report)
            return before > 0
        except _CutOffError as error:
            # The same again is of use only while something arrives.
            if attempt == ATTEMPTS or _size(partial) <= start:
                raise WorkError(f"{url}: {error}; the same command continues it, {_INSTEAD}") from error
            report(f"{url}: {error}; continuing")
    raise AssertionError("unreachable")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _transfer(url: str, partial: Path, report: Callable[[str], None]) -> None:
    """One request; appends to `partial`, or starts it anew where the server does not continue."""
    start = _size(partial)
    response = _ask(url, start)
    if response is None:  # the server has nothing beyond `start`: either all is there, or it is of another file
        return
    with response:
        if response.status != 206 or not (response.headers["Content-Range"] or "").startswith(f"bytes {start}-"):
            if response.status == 206:
                raise WorkError(f"{url}: the server continues elsewhere than it was asked to; try again, {_INSTEAD}")
            start = 0
        length = response.headers["Content-Length"]
        total = None if length is None else start + int(length)
        name = partial.name.removesuffix(".partial")
        report(f"downloading {name} from {url}" + (f" ({_megabytes(total)})" if total else ""))
        arrived = _copy(response, partial, start, total, report)
    if total is not None and arrived != total:
        raise _CutOffError(f"cut off after {arrived} of {total} bytes")


def _ask(url: str, start: int) -> http.client.HTTPResponse | None:
    """The server's answer; None where it says that a file has no byte number `start`."""
    headers = {"User-Agent": "nmt", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)
    try:
        return cast(http.client.HTTPResponse, urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS))
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and start:
            return None
        advice = "correct data.downloads" if error.code in (401, 403, 404, 410) else "try again later"
        raise WorkError(f"{url}: the server says {error.code} {error.reason}; {advice}, {_INSTEAD}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:  # URLError is an OSError
        raise WorkError(f"{url}: cannot be reached ({_network_cause(error)}); try again, {_INSTEAD}") from error


def _network_cause(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    return cause_of(reason) if isinstance(reason, OSError) else str(reason) or type(reason).__name__


def _copy(
    response: http.client.HTTPResponse, partial: Path, start: int, total: int | None, report: Callable[[str], None]
) -> int:
    """Write what arrives from byte `start` on; the number of bytes that the file then has."""
    arrived, told = start, time.monotonic()
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "ab") as file:
            file.truncate(start)
            while chunk := _read(response, arrived):
                file.write(chunk)
                arrived += len(chunk)
                if time.monotonic() - told >= _REPORT_SECONDS:
                    told = time.monotonic()
                    report(f"  {_megabytes(arrived)}" + (f" of {_megabytes(total)}" if total else ""))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise WorkError(f"cannot write {partial}: {cause_of(error)}") from error
    return arrived


def _read(response: http.client.HTTPResponse, arrived: int) -> bytes:
    """The next bytes, empty at the end. A broken connection must not look like an error of the disk, hence its type."""
    try:
        return response.read(_CHUNK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise _CutOffError(f"cut off after {arrived} bytes ({_network_cause(error)})") from error


def _megabytes(size: int | None) -> str:
    return f"{(size or 0) / 1e6:.1f} MB"
