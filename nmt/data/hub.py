"""Parallel text through Hugging Face `datasets`: streamed once, written as plain text into the cache.

`datasets` earns its place where text is not lines in a file: Parquet and JSON Lines, on the Hub or in a folder. What it
yields is written to two text files, so that all that follows (line rules, counts, filter, tokenizer, references) is the
same code as for files that were plain to begin with. The text goes by as a stream: no second copy in Arrow is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from nmt.config import HubData
from nmt.data.cached import cached_directory
from nmt.data.corpus import Corpus, PairFiles, content_key
from nmt.errors import RequestError, WorkError
from nmt.files import cache_root

# What would end a line of a text file, or make it no text at all. All else is left as it is: it may be a reference.
_NOT_IN_A_LINE = re.compile("\r\n|[\r\n\0]")

_INSTEAD = "or use data=files with data.dir"


def hub_corpus(config: HubData, report: Callable[[str], None]) -> Corpus:
    """The corpus that the dataset's splits hold, from the cache if they were fetched before.

    Raises RequestError naming the key: no such dataset, subset, split, column or language. WorkError: no network.
    """
    splits = {"train": config.train, "valid": config.valid} | {f"test.{name}": s for name, s in config.test.items()}
    directory = cache_root(config.cache) / "hub" / content_key(_identity(config))
    languages = (config.source_language, config.target_language)

    def convert(temporary: Path) -> None:
        for key, split in splits.items():
            report(f"reading {config.path} {config.subset or ''} split {split}".replace("  ", " "))
            pairs: Iterable[tuple[str, str]] = dataset_pairs(config, split, key=f"data.{key}")
            if key == "train":
                pairs = islice(pairs, config.max_train_pairs)
            changed = write_pairs(pairs, temporary / f"{key}.{languages[0]}", temporary / f"{key}.{languages[1]}")
            if changed:
                report(f"line breaks inside {changed} texts of split {split} became spaces")

    cached_directory(directory, convert, report)
    files = {key: PairFiles(*(directory / f"{key}.{language}" for language in languages)) for key in splits}
    return Corpus(
        config.name,
        *languages,
        train=[files["train"]],
        valid=[files["valid"]],
        test={name: files[f"test.{name}"] for name in config.test},
        max_train_pairs=config.max_train_pairs,
    )


def dataset_pairs(config: HubData, split: str, key: str) -> Iterator[tuple[str, str]]:
    """The texts of one split as they are in the dataset; a missing text (null) is an empty one.

    Raises as `hub_corpus`; `key` is the configuration key that named the split.
    """
    for row in _open(config, split, key):
        texts = row
        if config.column is not None:
            if not isinstance(row.get(config.column), dict):
                raise RequestError(f"data.column={config.column}: no such column of texts by language; {_has(row)}")
            texts = row[config.column]
        yield _text(texts, config.source_language, "source"), _text(texts, config.target_language, "target")


def write_pairs(pairs: Iterable[tuple[str, str]], source: Path, target: Path) -> int:
    """Write pairs to two text files, a line each; how many texts had a line break or NUL inside, now a space."""
    changed = 0
    with (
        open(source, "w", encoding="utf-8", newline="") as source_file,
        open(target, "w", encoding="utf-8", newline="") as target_file,
    ):
        for pair in pairs:
            for text, file in zip(pair, (source_file, target_file), strict=True):
                line, breaks = _NOT_IN_A_LINE.subn(" ", text)
                changed += breaks > 0
                file.write(line + "\n")
    return changed


def _open(config: HubData, split: str, key: str) -> Iterable[dict[str, Any]]:
    """The rows of a split. A part of a split, as train[:1%], cannot be streamed; all else is."""
    import datasets
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    path = str(_local(config.path) or config.path)
    try:
        rows: Iterable[dict[str, Any]] = datasets.load_dataset(
            path, config.subset, split=split, revision=config.revision, streaming="[" not in split
        )
        yield from rows
    except (ConnectionError, OfflineModeIsEnabled, HfHubHTTPError, TimeoutError) as error:
        raise WorkError(f"data.path={config.path}: {_one_line(error)}; try again, {_INSTEAD}") from error
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        subset = f", data.subset={config.subset}" if config.subset else ""
        given = f"data.path={config.path}{subset}, {key}={split}"
        raise RequestError(f"{given}: {_one_line(error)}; correct it, {_INSTEAD}") from error
    except Exception as error:  # what else comes from below, such as from the HTTP client, depends on the releases
        raise WorkError(f"data.path={config.path}: {type(error).__name__}: {_one_line(error)}, {_INSTEAD}") from error


def _local(path: str) -> Path | None:
    """The folder that a path beginning as paths do means, relative to where the command is run."""
    if not path.startswith(("/", "./", "../", "~")):
        return None
    folder = Path(path).expanduser().absolute()
    if not folder.is_dir():
        raise RequestError(f"data.path={path}: there is no such folder ({folder})")
    return folder


def _identity(config: HubData) -> dict[str, Any]:
    """Everything that the text depends on; of a folder, the state of its files."""
    fields = ("path", "subset", "revision", "column", "train", "valid", "max_train_pairs")
    identity: dict[str, Any] = {name: getattr(config, name) for name in fields}
    identity |= {"test": dict(config.test), "languages": [config.source_language, config.target_language]}
    folder = _local(config.path)
    if folder is not None:
        files = [(file.relative_to(folder), file.stat()) for file in sorted(folder.rglob("*")) if file.is_file()]
        identity["path"] = str(folder)
        identity["files"] = [(str(name), state.st_size, state.st_mtime_ns) for name, state in files]
    return identity


def _text(texts: dict[str, Any], language: str, side: str) -> str:
    if language not in texts:
        raise RequestError(f"data.{side}_language={language}: no such language in the dataset; {_has(texts)}")
    text = texts[language]
    if text is not None and not isinstance(text, str):
        raise RequestError(f"data.{side}_language={language}: not a text but {type(text).__name__}; {_has(texts)}")
    return text or ""


def _has(row: dict[str, Any]) -> str:
    return "it has " + ", ".join(sorted(row))


def _one_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
