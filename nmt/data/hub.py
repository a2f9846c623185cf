"""Parallel text through Hugging Face `datasets`: streamed once, written as plain text into the cache.

`datasets` earns its place where text is not lines in a file: Parquet and JSON Lines, on the Hub or in a folder. What it
yields is written to two text files, so that all that follows (line rules, counts, filter, tokenizer, references) is the
same code as for files that were plain to begin with. The text goes by as a stream: no second copy in Arrow is made.
Reading that was interrupted goes on where the last commit was, and from then on no network is needed.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from nmt.config import DataConfig, HubData, MixedText
from nmt.data.cached import resumed_directory
from nmt.data.corpus import Corpus, PairFiles, content_key
from nmt.data.journal import Journal
from nmt.errors import RequestError, WorkError
from nmt.files import cache_root

ROWS = 1_000  # that are asked for at once
COMMIT_ROWS = 100_000

# What would end a line of a text file, or make it no text at all. All else is left as it is: it may be a reference.
_NOT_IN_A_LINE = re.compile("\r\n|[\r\n\0]")

_INSTEAD = "or use data=files with data.dir"


def hub_corpus(config: HubData, report: Callable[[str], None]) -> Corpus:
    """The corpus that the dataset's splits hold, from the cache if they were fetched before.

    Raises RequestError naming the key: no such dataset, subset, split, column or language. WorkError: no network.
    """
    splits = {"train": config.train, "valid": config.valid} | {f"test.{name}": s for name, s in config.test.items()}
    files = _files(config, splits, report)
    return Corpus(
        config.name,
        config.source_language,
        config.target_language,
        train=[files["train"]],
        valid=[files["valid"]],
        test={name: files[f"test.{name}"] for name in config.test},
        max_train_pairs=config.max_train_pairs,
    )


def hub_text(config: DataConfig, name: str, text: MixedText, report: Callable[[str], None]) -> PairFiles:
    """A split of a dataset that is mixed into the training text of another corpus. Raises as `hub_corpus`."""
    dataset = HubData(
        kind="hub",
        name=name,
        source_language=config.source_language,
        target_language=config.target_language,
        cache=config.cache,
        path=text.path or "",
        subset=text.subset,
        revision=text.revision,
        column=text.column,
    )
    return _files(dataset, {f"mix.{name}": text.split}, report)[f"mix.{name}"]


def _files(config: HubData, splits: Mapping[str, str], report: Callable[[str], None]) -> dict[str, PairFiles]:
    """The text of each split, from the cache if it was fetched before. The keys are those that named the splits."""
    directory = cache_root(config.cache) / "hub" / content_key(_identity(config, splits))
    resumed_directory(directory, functools.partial(_read, config, splits, report), report)
    languages = (config.source_language, config.target_language)
    return {key: PairFiles(*(directory / f"{key}.{language}" for language in languages)) for key in splits}


def _read(config: HubData, splits: Mapping[str, str], report: Callable[[str], None], directory: Path) -> None:
    """Write the splits to text files, a pair of files each, going on from the journal's last commit."""
    languages = (config.source_language, config.target_language)
    names = {key: [f"{key}.{language}" for language in languages] for key in splits}
    with Journal(directory, [name for pair in names.values() for name in pair]) as journal:
        done = journal.state.get("done", [])
        revision = journal.state["revision"] if journal.state else _newest_commit(config)
        for key, split in splits.items():
            if key in done:
                continue
            report(f"reading {config.path} {config.subset or ''} split {split}".replace("  ", " "))
            rows = SplitRows(config, split, f"data.{key}", revision)
            before = journal.state if journal.state.get("split") == key else {}
            writer = _PairWriter([journal[name] for name in names[key]], before.get("changed", 0))
            if before:
                report(f"going on after {before['rows']} pairs")
            limit = config.max_train_pairs if key == "train" else None
            uncommitted = 0
            for pairs in rows.batches(before.get("rows", 0), limit, before.get("stream")):
                writer.write(pairs)
                uncommitted += len(pairs)
                if uncommitted >= COMMIT_ROWS:
                    uncommitted = 0
                    reached = {"split": key, "rows": rows.done, "changed": writer.changed, "stream": rows.state()}
                    journal.commit({"done": done, "revision": revision, **reached})
            done = [*done, key]
            journal.commit({"done": done, "revision": revision})
            if writer.changed:
                report(f"line breaks inside {writer.changed} texts of split {split} became spaces")
        journal.forget()


class _PairWriter:
    """Writes pairs to two text files, a line each; a line break or NUL inside a text becomes a space.

    changed: how many texts had one.
    """

    def __init__(self, files: Sequence[Any], changed: int) -> None:
        self._files = files
        self.changed = changed

    def write(self, pairs: Sequence[tuple[str, str]]) -> None:
        for side, file in enumerate(self._files):
            lines = []
            for pair in pairs:
                line, breaks = _NOT_IN_A_LINE.subn(" ", pair[side])
                self.changed += breaks > 0
                lines.append(f"{line}\n")
            file.write("".join(lines).encode("utf-8"))


class SplitRows:
    """The pairs of one split as they are in the dataset; a missing text (null) is an empty one.

    done: rows that were read, those before a resumption included. Raises as `hub_corpus`; `key` named the split.
    """

    def __init__(self, config: HubData, split: str, key: str, revision: str | None) -> None:
        self.config, self.split, self.key, self.revision = config, split, key, revision
        self.done = 0
        self._rows: Any = None

    def batches(self, done: int, limit: int | None, stream: dict[str, Any] | None) -> Iterator[list[tuple[str, str]]]:
        """The pairs after the first `done` up to number `limit`; `stream` is what `state` was by then."""
        self.done = done
        for batch in self._batches(stream):
            length = len(next(iter(batch.values())))
            pairs = list(islice(self._pairs(batch, length), None if limit is None else limit - self.done))
            self.done += len(pairs)
            yield pairs
            if limit is not None and self.done >= limit:
                return

    def state(self) -> dict[str, Any] | None:
        """Where a stream is, for `batches`; None where its rows are counted instead."""
        return dict(self._rows.state_dict()) if hasattr(self._rows, "state_dict") else None

    def _batches(self, stream: dict[str, Any] | None) -> Iterator[dict[str, list[Any]]]:
        """Columns of some rows. A part of a split, as train[:1%], cannot be streamed; all else is."""
        import datasets
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

        config = self.config
        path = str(_local(config.path) or config.path)
        streaming = "[" not in self.split
        try:
            self._rows = datasets.load_dataset(
                path, config.subset, split=self.split, revision=self.revision, streaming=streaming
            )
            if stream is not None:
                self._rows.load_state_dict(stream)
            elif self.done:
                self._rows = self._rows.skip(self.done)
            yield from self._rows.iter(batch_size=ROWS)
        except (ConnectionError, OfflineModeIsEnabled, HfHubHTTPError, TimeoutError) as error:
            raise WorkError(f"data.path={config.path}: {_one_line(error)}; try again, {_INSTEAD}") from error
        except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
            if self.done and isinstance(error, OSError):  # what has worked so far will work again
                raise WorkError(f"data.path={config.path}: {_one_line(error)}; try again, {_INSTEAD}") from error
            subset = f", data.subset={config.subset}" if config.subset else ""
            given = f"data.path={config.path}{subset}, {self.key}={self.split}"
            raise RequestError(f"{given}: {_one_line(error)}; correct it, {_INSTEAD}") from error
        except Exception as error:  # what else comes from below, such as from the HTTP client, depends on the releases
            raise WorkError(
                f"data.path={config.path}: {type(error).__name__}: {_one_line(error)}, {_INSTEAD}"
            ) from error

    def _pairs(self, batch: dict[str, list[Any]], length: int) -> Iterator[tuple[str, str]]:
        config = self.config
        for row in range(length):
            texts = {name: column[row] for name, column in batch.items()}
            if config.column is not None:
                if not isinstance(texts.get(config.column), dict):
                    raise RequestError(
                        f"data.column={config.column}: no such column of texts by language; {_has(texts)}"
                    )
                texts = texts[config.column]
            yield _text(texts, config.source_language, "source"), _text(texts, config.target_language, "target")


def _newest_commit(config: HubData) -> str | None:
    """The commit of a dataset on the Hub, so that reading that is continued later is of the same; None in a folder.

    None also where the Hub does not answer: what is wrong is then told by the reading itself.
    """
    if _local(config.path) is not None:
        return config.revision
    from huggingface_hub import HfApi

    with contextlib.suppress(Exception):
        return HfApi().dataset_info(config.path, revision=config.revision).sha or config.revision
    return config.revision


def _local(path: str) -> Path | None:
    """The folder that a path beginning as paths do means, relative to where the command is run."""
    if not path.startswith(("/", "./", "../", "~")):
        return None
    folder = Path(path).expanduser().absolute()
    if not folder.is_dir():
        raise RequestError(f"data.path={path}: there is no such folder ({folder})")
    return folder


def _identity(config: HubData, splits: Mapping[str, str]) -> dict[str, Any]:
    """Everything that the text depends on; of a folder, the state of its files."""
    fields = ("path", "subset", "revision", "column", "max_train_pairs")
    identity: dict[str, Any] = {name: getattr(config, name) for name in fields}
    identity |= {"splits": dict(splits), "languages": [config.source_language, config.target_language]}
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
