"""What was made for the cache is used as long as it is what was written, and made again when it is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.config import GrammarData
from nmt.data.cached import CHECKSUMS, cached_directory, resumed_directory
from nmt.data.corpus import prepare_corpus
from nmt.data.journal import build_directory

pytestmark = pytest.mark.case


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("cache", [cached_directory, resumed_directory])
@pytest.mark.parametrize("name", ["train.en", CHECKSUMS])
@pytest.mark.parametrize("damage", [flipped, cut_off, Path.unlink])
def test_a_damaged_folder_is_made_again(
    damage: Callable[[Path], None], name: str, cache: Callable[..., None], tmp_path: Path
) -> None:
    reported: list[str] = []
    made: list[Path] = []

    def make(temporary: Path) -> None:
        made.append(temporary)
        (temporary / "train.en").write_text("The cat sees a horse.\n")

    def prepared() -> None:
        cache(tmp_path / "corpus", make, reported.append)
        assert (tmp_path / "corpus" / "train.en").read_text() == "The cat sees a horse.\n"

    prepared()
    prepared()
    assert (len(made), reported) == (1, [])
    damage(tmp_path / "corpus" / name)
    prepared()
    if name == CHECKSUMS and damage is not flipped:  # without them, as in older caches; or still JSON without its LF
        assert (len(made), reported) == (1, [])
    else:
        assert (len(made), reported) == (2, [f"{tmp_path / 'corpus'} is damaged, and is made again"])
    prepared()
    assert len(made) <= 2


def test_another_process_may_have_completed_it_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between looking for the folder and having a lock: what the other one made is used, and nothing is left."""
    make_folder = Path.mkdir

    def completed_meanwhile(folder: Path, *arguments: Any, **options: Any) -> None:
        make_folder(folder, *arguments, **options)
        if folder.name == ".corpus.unfinished":
            make_folder(tmp_path / "corpus")
            (tmp_path / "corpus" / "theirs").write_text("Un chat.\n")

    monkeypatch.setattr(Path, "mkdir", completed_meanwhile)
    build_directory(tmp_path / "corpus", lambda folder: (folder / "ours").touch())
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["corpus", "corpus/theirs"]


def test_the_grammars_text_is_what_was_generated(tmp_path: Path) -> None:
    reported: list[str] = []
    config = GrammarData(
        kind="grammar", name="g", cache=str(tmp_path), train_pairs=30, valid_pairs=3, test_pairs=3, max_words=9
    )
    corpus = prepare_corpus(config, reported.append)
    before = list(corpus.train[0])
    flipped(corpus.train[0].target)
    assert list(prepare_corpus(config, reported.append).train[0]) == before
    assert [line.split(" ")[0] for line in reported] == ["generating", str(corpus.train[0].source.parent), "generating"]
