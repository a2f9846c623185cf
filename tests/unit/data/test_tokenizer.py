"""The tokenizer: exact training and drawing, ids that mean the same everywhere, text that comes back as one line."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config import TokenizerConfig
from nmt.data.tokenizer import BOS, CONTROLS, EOS, MAX_SENTENCE_BYTES, PAD, UNKNOWN, Tokenizer, _in_background
from nmt.errors import RequestError

WORDS = (
    "the a old young small garden house river teacher child reads sees eats takes opens a letter bread an apple slowly",
    "le la un vieux jeune petit jardin maison rivière élève enfant lit voit mange prend ouvre lettre pain où ça cœur",
)


def made_pairs(number: int, seed: int = 0) -> list[tuple[str, str]]:
    generator = random.Random(seed)
    return [
        tuple(" ".join(generator.choices(words.split(), k=generator.randint(3, 9))) + "." for words in WORDS)  # type: ignore[misc]
        for _ in range(number)
    ]


def trained(directory: Path, pairs: list[tuple[str, str]] | None = None, **keys: object) -> Tokenizer:
    config = replace(TokenizerConfig(vocab_size=120), **keys)
    return Tokenizer.train(config, made_pairs(200) if pairs is None else pairs, directory, lambda line: None)


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return trained(tmp_path_factory.mktemp(request.param), model=request.param)


@pytest.fixture(scope="module")
def with_bytes(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return trained(tmp_path_factory.mktemp("bytes"), vocab_size=400, byte_fallback=True)


# Training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["unigram", "bpe"])
def test_the_same_pairs_give_the_same_bytes(tmp_path: Path, model: str) -> None:
    first, second = (trained(tmp_path / name, model=model) for name in "ab")
    assert (tmp_path / "a/tokenizer.model").read_bytes() == (tmp_path / "b/tokenizer.model").read_bytes()
    assert first.identity == second.identity == Tokenizer.load(tmp_path / "a").identity
    assert trained(tmp_path / "c", made_pairs(200, seed=5), model=model).identity != first.identity


def test_a_sample_is_bounded_even_and_repeatable(tmp_path: Path) -> None:
    pairs = [(f"w{number % 10}", chr(0x4E00 + number)) for number in range(2000)]  # each target has its own character
    lines: list[str] = []

    def size(name: str, sample: int) -> int:
        config = TokenizerConfig(vocab_size=8000, sample=sample)
        return Tokenizer.train(config, iter(pairs), tmp_path / name, lines.append).target_size

    whole = size("whole", 4000)
    assert not any("tokenizer.sample" in line for line in lines)
    assert whole > 2000
    half = size("half", 2000)
    assert "tokenizer: trained on 2000 of 4000 sentences (tokenizer.sample)" in lines
    # An even half of all sentences holds about a half of the characters, of both halves of the corpus.
    assert 800 < half - 20 < 1200
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "half/tokenizer.model"))
    early = sum(model.piece_to_id(target) != UNKNOWN for _, target in pairs[:1000])
    assert 400 < early < 600
    size("again", 2000)
    assert (tmp_path / "half/tokenizer.model").read_bytes() == (tmp_path / "again/tokenizer.model").read_bytes()


@pytest.mark.case
@pytest.mark.parametrize("model", ["unigram", "bpe"])
def test_a_vocabulary_that_is_too_large_shrinks_and_says_so(tmp_path: Path, model: str) -> None:
    lines: list[str] = []
    config = TokenizerConfig(model=model, vocab_size=16_000)
    tokenizer = Tokenizer.train(config, made_pairs(50), tmp_path, lines.append)
    assert tokenizer.target_size < 16_000
    assert lines == [f"tokenizer: the text fills only {tokenizer.target_size} of tokenizer.vocab_size=16000 pieces"]


@pytest.mark.case
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_a_vocabulary_below_the_characters_names_the_least_size(tmp_path: Path, byte_fallback: bool) -> None:
    with pytest.raises(RequestError, match=r"tokenizer\.vocab_size=16 is too small .* at least (\d+)") as caught:
        trained(tmp_path, vocab_size=16, byte_fallback=byte_fallback)
    least = int(str(caught.value).split("at least ")[1].split()[0])
    assert trained(tmp_path, vocab_size=least, byte_fallback=byte_fallback, model="bpe").target_size == least
    with pytest.raises(RequestError, match=f"at least {least}"):
        trained(tmp_path, vocab_size=least - 1, byte_fallback=byte_fallback)


@pytest.mark.case
@pytest.mark.parametrize("pairs", [[], [("", " ")], [("\u200b", "\t")]])
def test_a_corpus_without_text_is_refused(tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(RequestError, match="no sentence"):
        trained(tmp_path, pairs)
    assert not list(tmp_path.iterdir())


@pytest.mark.case
def test_long_lines_are_learnt_from_and_longer_ones_counted(tmp_path: Path) -> None:
    lines: list[str] = []
    long, too_long = "zebra " * 1000, "quagga " * (MAX_SENTENCE_BYTES // 7 + 1)
    pairs = [*made_pairs(50), (long, "ça"), (too_long, "ça")]
    tokenizer = Tokenizer.train(TokenizerConfig(vocab_size=60), pairs, tmp_path, lines.append)
    assert UNKNOWN not in tokenizer.encode_source(["zebra"])[0]
    assert UNKNOWN in tokenizer.encode_source(["quagga"])[0]
    assert lines == [f"tokenizer: skipped 1 sentences of more than {MAX_SENTENCE_BYTES} bytes"]


def test_training_says_nothing_by_itself(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trained(tmp_path)
    assert capfd.readouterr() == ("", "")


@pytest.mark.case
def test_training_can_be_interrupted() -> None:
    endless = threading.Event()
    threading.Timer(0.1, lambda: signal.raise_signal(signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        _in_background(lambda: bytes(endless.wait(30)))
    assert time.monotonic() - start < 10
    endless.set()


def test_training_sees_the_pairs_once_in_a_stream(tmp_path: Path) -> None:
    def stream() -> Iterator[tuple[str, str]]:
        yield from made_pairs(50)

    Tokenizer.train(TokenizerConfig(vocab_size=60), stream(), tmp_path, lambda line: None)
    assert (tmp_path / "tokenizer.model").is_file()


# Ids --------------------------------------------------------------------------------------------------------------


@pytest.mark.case
def test_special_ids_never_come_from_text(tokenizer: Tokenizer) -> None:
    texts = ["the <s> </s> <pad> <unk> child", "", " ", "\u3000", "漢字"]
    encoded = tokenizer.encode_source(texts) + tokenizer.sample_source(texts, 1, 0.5)
    for ids in encoded:
        assert ids[-1] == EOS
        assert not {PAD, BOS, EOS} & set(ids[:-1])
    assert encoded[1] == encoded[2] == encoded[3] == [EOS]
    assert UNKNOWN in encoded[4]


@pytest.mark.parametrize("ids", [{"pad_id": -1}, {"pad_id": 3, "eos_id": 0}, {"unk_id": 0, "pad_id": 1}])
def test_a_model_with_other_ids_is_refused(tmp_path: Path, ids: dict[str, int]) -> None:
    with open(tmp_path / "tokenizer.model", "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["le petit jardin"] * 5),
            model_writer=file,
            vocab_size=20,
            hard_vocab_limit=False,
            minloglevel=2,
            **{"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, **ids},
        )
    with pytest.raises(RequestError, match=r"tokenizer\.model: pad, unknown, bos and eos have the ids"):
        Tokenizer.load(tmp_path)


def test_absent_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"tokenizer\.model: no such file"):
        Tokenizer.load(tmp_path)
    for content in (b"", b"not a model"):
        (tmp_path / "tokenizer.model").write_bytes(content)
        with pytest.raises(RequestError, match=r"tokenizer\.model: not a SentencePiece model"):
            Tokenizer.load(tmp_path)
    trained(tmp_path, joint=False)
    (tmp_path / "tokenizer.target.model").unlink()
    with pytest.raises(RequestError, match=r"tokenizer\.target\.model: no such file"):
        Tokenizer.load(tmp_path)


def test_separate_vocabularies(tmp_path: Path) -> None:
    tokenizer = trained(tmp_path, joint=False, vocab_size=70)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.source.model", "tokenizer.target.model"]
    assert not tokenizer.joint
    assert UNKNOWN not in tokenizer.encode_target(["rivière"])[0]
    assert UNKNOWN in tokenizer.encode_source(["rivière"])[0]
    assert tokenizer.decode(tokenizer.encode_target(["où ça"])[0]) == "où ça"
    tokenizer.save(tmp_path / "copy")
    assert Tokenizer.load(tmp_path / "copy").identity == tokenizer.identity
    joint = trained(tmp_path)  # in the same folder: the separate ones go
    assert Tokenizer.load(tmp_path).joint
    assert [path.name for path in tmp_path.glob("*.model")] == ["tokenizer.model"]
    assert joint.source_size == joint.target_size


def test_batches_encode_as_single_texts_do(tokenizer: Tokenizer) -> None:
    texts = [source for source, _ in made_pairs(600, seed=3)]
    assert tokenizer.encode_source(tuple(texts)) == [tokenizer.encode_source([text])[0] for text in texts]


def test_pieces_spell_the_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_source(["the old house."])[0]
    assert "".join(tokenizer.source_pieces(ids[:-1])).replace("▁", " ").strip() == "the old house."
    assert tokenizer.target_pieces([PAD, UNKNOWN, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]


# Text -------------------------------------------------------------------------------------------------------------


@given(st.text(alphabet="".join(sorted(set("".join(WORDS)))), max_size=60))
@settings(deadline=None)
def test_known_characters_come_back(tokenizer: Tokenizer, text: str) -> None:
    # Of unchanged text only spaces differ: one at a time, none at the ends.
    expected = " ".join(unicodedata.normalize("NFKC", text).split())
    for ids in (tokenizer.encode_target([text])[0], tokenizer.sample_target([text], 1, 0.3)[0]):
        assert tokenizer.decode([BOS, *ids, PAD, PAD]) == expected


@given(st.text(max_size=40))
@settings(deadline=None)
def test_any_text_comes_back_as_one_line(tokenizer: Tokenizer, with_bytes: Tokenizer, text: str) -> None:
    for one in (tokenizer, with_bytes):
        decoded = one.decode(one.encode_target([text])[0])
        assert len(decoded.splitlines()) <= 1
        assert "⁇" not in decoded


@given(st.lists(st.integers(0, 399), max_size=30))
@settings(deadline=None)
def test_any_ids_make_one_line(with_bytes: Tokenizer, ids: list[int]) -> None:
    decoded = with_bytes.decode([id_ % with_bytes.target_size for id_ in ids])
    assert not CONTROLS.search(decoded)
    assert "<0x" not in decoded


@pytest.mark.case
def test_byte_pieces_are_characters_and_their_control_characters_spaces(with_bytes: Tokenizer) -> None:
    assert with_bytes.decode(with_bytes.encode_target(["漢字 pain 😀"])[0]) == "漢字 pain 😀"
    pieces = {piece: id_ for id_, piece in enumerate(with_bytes.target_pieces(range(with_bytes.target_size)))}
    bread = with_bytes.encode_target(["pain"])[0][:-1]
    for control in "\n\r\v\x85\u2028\0\t\x1b\x7f\x9b":
        encoded = [pieces[f"<0x{byte:02X}>"] for byte in control.encode()]
        assert with_bytes.decode([*bread, *encoded, *bread]) == "pain pain"


@pytest.mark.case
def test_an_unknown_piece_is_left_out(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode_target(["le 漢字 pain 漢"])[0]) == "le pain"


@pytest.mark.case
def test_what_normalisation_changes(tmp_path: Path) -> None:
    """A table of M4: what the default rewrites, what it leaves, and that `identity` leaves all but the spaces."""
    changed = {"x\u00a0y": "x y", "x\u202fy": "x y", "a…": "a...", "m²": "m2", "nº": "no", "ﬁ": "fi"}
    kept = ["cœur", "l’eau", "« oui »"]
    text = [(" ".join([*changed, *changed.values(), *kept]),) * 2] * 5
    rewriting = trained(tmp_path / "default", text)
    leaving = trained(tmp_path / "identity", text, normalization="identity")
    for before, after in [*changed.items(), *zip(kept, kept, strict=True)]:
        assert rewriting.decode(rewriting.encode_target([before])[0]) == after
        assert leaving.decode(leaving.encode_target([before])[0]) == before
    for one in (rewriting, leaving):
        assert one.decode(one.encode_target(["  l’eau   cœur "])[0]) == "l’eau cœur"


@pytest.mark.case
@pytest.mark.parametrize("model", ["unigram", "bpe"])
def test_user_defined_symbols_survive(tmp_path: Path, model: str) -> None:
    symbols = ["⟦1⟧", "<a,b>", '"q"', "__™__", "<é>"]
    given_symbols = [*symbols[:-1], unicodedata.normalize("NFD", symbols[-1])]
    tokenizer = trained(tmp_path, model=model, user_defined_symbols=given_symbols)
    text = f"le ⟦1⟧ pain{symbols[1]}, {' '.join(symbols)}"
    ids = tokenizer.encode_target([text.replace(",  ", " ")])[0]
    pieces = tokenizer.target_pieces(ids)
    assert all(symbol in pieces for symbol in symbols)
    assert tokenizer.decode(ids) == text.replace(f"{symbols[1]},", symbols[1])  # the comma was never seen


@pytest.mark.parametrize("symbols", [[""], ["a b"], ["x", "x"], ["<s>"], ["▁"]])
def test_impossible_symbols_are_refused(tmp_path: Path, symbols: list[str]) -> None:
    with pytest.raises(RequestError, match=r"tokenizer\.user_defined_symbols"):
        trained(tmp_path, user_defined_symbols=symbols)


@pytest.mark.case
def test_text_with_line_separators_trains_and_reloads(tmp_path: Path) -> None:
    pairs = [(f"{a}\u2028{a}", f"{b}\x85{b}") for a, b in made_pairs(50)]
    tokenizer = trained(tmp_path, pairs)
    assert Tokenizer.load(tmp_path).encode_target(["pain\u2028pain"]) == tokenizer.encode_target(["pain\u2028pain"])
    assert tokenizer.decode(tokenizer.encode_target(["pain\u2028pain\x85pain"])[0]) == "pain pain pain"


# Drawing ----------------------------------------------------------------------------------------------------------

TEXTS = [source for source, _ in made_pairs(40, seed=7)]


def test_a_draw_depends_on_the_seed_alone(tokenizer: Tokenizer) -> None:
    first = tokenizer.sample_source(TEXTS, 11, 0.3)
    assert first != tokenizer.encode_source(TEXTS)
    assert tokenizer.sample_source(TEXTS, 12, 0.3) != first
    tokenizer.sample_target(TEXTS[:7], 5, 0.9)
    random.seed(1)
    assert tokenizer.sample_source(TEXTS, 11, 0.3) == first
    assert tokenizer.resample_source(map(np.array, tokenizer.encode_source(TEXTS)), 11, 0.3) == first


def test_draws_in_threads_do_not_disturb_each_other(tokenizer: Tokenizer) -> None:
    expected = [tokenizer.sample_source(TEXTS, seed, 0.3) for seed in range(24)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda seed: tokenizer.sample_source(TEXTS, seed, 0.3), range(24))) == expected


@pytest.mark.parametrize("model", ["unigram", "bpe"])
def test_another_process_draws_the_same(tmp_path: Path, model: str) -> None:
    """SentencePiece's own draws do not pass this test."""
    tokenizer = trained(tmp_path, model=model)
    program = (
        "import sys; from pathlib import Path; from nmt.data.tokenizer import Tokenizer\n"
        "tokenizer = Tokenizer.load(Path(sys.argv[1]))\n"
        "print(tokenizer.sample_source(sys.argv[2:], 2**40 + 3, 0.3))"
    )
    # From the repository's root, so that the package is found whether or not it is installed.
    root = Path(__file__).parents[3]
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), *TEXTS], capture_output=True, text=True, check=True, cwd=root
    )
    assert ran.stdout.strip() == str(tokenizer.sample_source(TEXTS, 2**40 + 3, 0.3))


def test_a_greater_alpha_means_what_it_says(tmp_path: Path) -> None:
    """BPE: skipping more merges leaves more pieces; all of them, characters. Unigram: likelier pieces, so fewer."""
    bpe, unigram = (trained(tmp_path / model, model=model) for model in ("bpe", "unigram"))

    def pieces(tokenizer: Tokenizer, alpha: float) -> int:
        return sum(map(len, tokenizer.sample_source(TEXTS * 5, 1, alpha)))

    assert pieces(bpe, 0.1) < pieces(bpe, 0.5) < pieces(bpe, 1.0)
    assert pieces(bpe, 1.0) == 5 * sum(len(text) + 2 for text in TEXTS)
    assert pieces(unigram, 0.1) > pieces(unigram, 1.0)
