"""Reported faults of memory: a tokenizer or a corpus held as a whole. Measured, so not among the quick tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.case, pytest.mark.slow]

TOKENIZER = """
import resource, sys
from pathlib import Path
from nmt.config import TokenizerConfig
from nmt.data.tokenizer import Tokenizer
count = int(sys.argv[1])
pairs = ((f"the old house number {i % 9973} of {i}", f"la vieille maison {i % 9973} de {i}") for i in range(count))
Tokenizer.train(TokenizerConfig(vocab_size=100, sample=10_000), pairs, Path(sys.argv[2]), lambda line: None)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
CORPUS = """
import resource, sys
from pathlib import Path
from nmt.config import DataConfig, ModelConfig, TokenizerConfig, TrainConfig
from nmt.data.corpus import Corpus, PairFiles
from nmt.data.encoded import encode_corpus
from nmt.data.filtered import filter_corpus
from nmt.data.tokenizer import Tokenizer
folder, count = Path(sys.argv[2]), int(sys.argv[1])
files = PairFiles(folder / "a.en", folder / "a.fr")
for path in (files.source, files.target):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"the old house number {i % 9973} of the street\\n" for i in range(count))
config = TrainConfig(ModelConfig("lstm", "x"), DataConfig("files", "x", cache=str(folder / "cache")))
filtered = filter_corpus(Corpus("x", "en", "fr", [files], []), config.data, lambda line: None)
pairs = [("the old house 0123456789", "number of street")]
tokenizer = Tokenizer.train(TokenizerConfig(vocab_size=60), pairs, folder, print)
encoded = encode_corpus(filtered, tokenizer, config, lambda line: None)
assert len(encoded) == count
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.parametrize("program", [TOKENIZER, CORPUS], ids=["tokenizer", "corpus"])
def test_ten_times_the_text_takes_no_more_memory(program: str, tmp_path: Path) -> None:
    """Peak resident memory with 20,000 and with 200,000 pairs, 100 bytes each: within 10 MB of each other."""
    peaks = []
    for count in (20_000, 200_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        command = [sys.executable, "-c", program, str(count), str(folder)]
        done = subprocess.run(command, capture_output=True, check=True, timeout=600)
        peaks.append(int(done.stdout.split()[-1]) / 1_024)
    assert peaks[1] - peaks[0] < 10, f"{peaks[0]:.0f} MB became {peaks[1]:.0f} MB"
