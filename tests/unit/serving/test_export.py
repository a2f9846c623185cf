"""What CTranslate2 makes of an exported Transformer is what the Transformer makes of it, whatever it is made of.

The models are random ones in float32. In most tests the pieces that a translation never contains are as good as
impossible, as they are for any trained model; what CTranslate2 does where they are not has a test of its own.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nmt.config import GrammarData, SearchConfig, TokenizerConfig, TrainConfig
from nmt.data.batching import make_batch
from nmt.data.tokenizer import BOS, EOS, PAD, UNKNOWN, Tokenizer
from nmt.decoding.penalties import length_penalty
from nmt.decoding.search import NEVER
from nmt.decoding.translator import Translation, Translator, pad
from nmt.errors import RequestError, WorkError
from nmt.models.base import TranslationModel
from nmt.serving import export
from nmt.serving.conversion import POSITIONS, build_spec
from nmt.serving.export import export_run, require_exportable, spread
from nmt.serving.exported import ExportedTranslator, _exponent, load_translator, open_engine
from nmt.training.checkpoint import write_checkpoint
from tiny import CONFIGS, WORDS, tiny_model

pytest.importorskip("ctranslate2", reason="the optional package CTranslate2 is not installed")

LINES = [
    "Le vieux jardin.",
    "un élève",
    "la maison de la rivière où un enfant lit une lettre",
    "x",
    "ça mange du pain",
    "le petit pain",
    "un jeune élève voit la maison où le vieux prend une lettre et ouvre le jardin.",
]
SEARCH = SearchConfig(beam_size=4, n_best=4, min_length=0, max_length_ratio=0.0, max_length_extra=30)
MARGIN = 0.01
"""By how much the end mark falls short of being the likeliest piece once more."""
KINDS = [name for name in CONFIGS if CONFIGS[name].family == "transformer"]


def translator(
    tokenizer: Tokenizer, name: str, search: SearchConfig = SEARCH, share: float = 0.1, seed: int = 1, **changes: object
) -> Translator:
    """A random model that never says what may not be said, and ends a translation at a `share` of its steps.

    Its words are greater and its biases smaller than those of other random models, or it would say one thing always.
    """
    sizes = {"source_vocabulary": tokenizer.source_size, "target_vocabulary": tokenizer.target_size}
    model = tiny_model(name, seed=seed, scale=0.8, dtype=torch.float32, **sizes, **changes)
    with torch.no_grad():
        for weight, parameter in model.named_parameters():
            parameter *= 0.2 if weight.endswith("bias") else 2.0 if weight.startswith("embeddings") else 1.0
        model.output.bias[list(NEVER)] = -30.0
        model.output.bias[EOS] += short_of_end(model, pad(tokenizer.encode_source(LINES))).quantile(share) - MARGIN
    config = TrainConfig(
        dataclasses.replace(CONFIGS[name], **changes), GrammarData("grammar", "grammar"), search=search
    )
    return Translator(model, tokenizer, search, torch.device("cpu"), config=config)


def short_of_end(model: TranslationModel, source_BS: Tensor, steps: int = 15) -> Tensor:
    """By how much the end mark's logit is below the greatest, at each step of a greedy search without end."""
    memory = model.encode(source_BS)
    state, last_B = model.start(memory), torch.full((len(source_BS),), BOS)
    gaps: list[Tensor] = []
    for _ in range(steps):
        hidden_BD, state, _ = model.step(last_B, state, memory)
        logits_BV = model.output(hidden_BD)
        ends_B = logits_BV[:, EOS].clone()
        logits_BV[:, EOS] = -torch.inf
        greatest_B, last_B = logits_BV.max(dim=1)
        gaps.append(greatest_B - ends_B)
    return torch.cat(gaps)


def exported(ours: Translator, folder: Path, quantization: str | None = None) -> ExportedTranslator:
    spec = build_spec(ours.model, ours.config.model, ours.tokenizer)
    spec.optimize(quantization=quantization)
    folder.mkdir(exist_ok=True)
    spec.save(str(folder))
    positions = None if ours.config.model.positions == "rotary" else POSITIONS
    return ExportedTranslator(open_engine(folder, "cpu"), ours.tokenizer, ours.search, positions)


def assert_same(
    theirs: Sequence[Sequence[Translation]], ours: Sequence[Sequence[Translation]], limit: int = 30
) -> None:
    """The same hypotheses with the same scores; where some come to the limit, the best of them alone."""
    for left, right in zip(theirs, ours, strict=True):
        count = 1 if any(len(t.tokens) >= limit for t in right) else len(right)
        assert [t.tokens for t in left[:count]] == [t.tokens for t in right[:count]]
        assert [t.text for t in left[:count]] == [t.text for t in right[:count]]
        assert [t.cut for t in left[:count]] == [t.cut for t in right[:count]]
        assert [t.score for t in left[:count]] == pytest.approx([t.score for t in right[:count]], abs=2e-4)


# Models ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("name", KINDS)
def test_every_transformer_translates_as_before(name: str, tied: bool, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Post- and pre-norm, both norms, every activation, every kind of positions, grouped heads: n-best with scores."""
    ours = translator(tokenizer, name, tie_embeddings=tied)
    theirs = exported(ours, tmp_path)
    for beam_size in (1, 4):
        search = dataclasses.replace(SEARCH, beam_size=beam_size, n_best=beam_size)
        expected = ours.n_best(LINES, search)
        assert beam_size == 1 or len({tuple(t.tokens) for found in expected for t in found}) > 6
        assert_same(theirs.n_best(LINES, search), expected)


def test_two_vocabularies(tmp_path: Path) -> None:
    texts = [" ".join(random.Random(i).choices(WORDS.split(), k=6)) for i in range(60)]
    config = TokenizerConfig(vocab_size=50, joint=False)
    pairs = [(text, text.upper()) for text in texts]
    separate = Tokenizer.train(config, pairs, tmp_path / "tokenizer", lambda line: None)
    ours = translator(separate, "transformer-pre")
    assert_same(exported(ours, tmp_path / "export").n_best(LINES), ours.n_best(LINES))
    assert (tmp_path / "export" / "target_vocabulary.json").is_file()


@pytest.mark.parametrize("head", [None, 0, 2])
@pytest.mark.parametrize("layer", [0, -1])
def test_alignments(head: int | None, layer: int, tokenizer: Tokenizer, tmp_path: Path) -> None:
    ours = translator(tokenizer, "transformer-post", alignment_head=head, alignment_layer=layer)
    theirs = exported(ours, tmp_path)
    assert theirs.attends
    expected = ours.n_best([*LINES, ""], SEARCH, alignments=True)
    found = theirs.n_best([*LINES, ""], SEARCH, alignments=True)
    assert found[-1][0].alignment is None
    for left, right in zip(chain(*found[:-1]), chain(*expected[:-1]), strict=True):
        assert left.alignment.source_tokens == right.alignment.source_tokens
        assert left.alignment.target_tokens == right.alignment.target_tokens
        torch.testing.assert_close(
            torch.tensor(left.alignment.weights_TS), torch.tensor(right.alignment.weights_TS), rtol=0, atol=1e-4
        )


def test_quantising_leaves_the_model_alone(tokenizer: Tokenizer, tmp_path: Path) -> None:
    ours = translator(tokenizer, "transformer-rotary")
    before = {name: weight.clone() for name, weight in ours.model.state_dict().items()}
    theirs = exported(ours, tmp_path, "int8")
    assert all(torch.equal(before[name], weight) for name, weight in ours.model.state_dict().items())
    assert all(found[0].text is not None for found in theirs.n_best(LINES))


# Search ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("penalty", "alpha", "count"), [("none", 1.0, 2), ("average", 0.0, 2), ("average", 0.6, 2), ("gnmt", 0.6, 1)]
)
def test_length_penalties(penalty: str, alpha: float, count: int, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Each gives what it gives in this project, and not what plain averaging gives."""
    search = dataclasses.replace(SEARCH, beam_size=2, n_best=count, length_penalty=penalty, length_alpha=alpha)
    plain = dataclasses.replace(search, length_penalty="average", length_alpha=1.0)
    others = 0
    for kind, seed in (("pre", 1), ("pre", 2), ("rotary", 5)):
        ours = translator(tokenizer, f"transformer-{kind}", search, seed=seed)
        theirs = exported(ours, tmp_path)
        expected = ours.n_best(LINES)
        assert_same(theirs.n_best(LINES), expected)
        pairs = zip(ours.n_best(LINES, plain), expected, strict=True)
        others += sum(averaged[0].tokens != found[0].tokens for averaged, found in pairs)
    assert others > 3


@pytest.mark.parametrize("penalty", ["none", "average", "gnmt"])
def test_the_power_of_the_length_grows_as_the_penalty_does(penalty: str) -> None:
    divisor = length_penalty(penalty, 0.6)
    slope = math.log(divisor(21) / divisor(19)) / math.log(21 / 19)
    search = dataclasses.replace(SEARCH, length_penalty=penalty, length_alpha=0.6)
    assert _exponent(search) == pytest.approx(slope, abs=1e-3)
    assert _exponent(search) > 0


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_lines_that_reach_their_limit(beam_size: int, share: float, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Each line has a limit of its own, and what reaches it gets its end mark at the model's price."""
    search = dataclasses.replace(SEARCH, beam_size=beam_size, n_best=1, max_length_ratio=1.0, max_length_extra=9)
    limits = [len(ids) + 9 for ids in tokenizer.encode_source(LINES)]
    assert len(set(limits)) > 3
    reached = 0
    for seed in range(4):
        ours = translator(tokenizer, "transformer-pre", search, share, seed)
        if not share:
            with torch.no_grad():
                ours.model.output.bias[EOS] -= 50
        expected = ours.n_best(LINES)
        assert_same(exported(ours, tmp_path).n_best(LINES), expected)
        lengths = [len(found[0].tokens) for found in expected]
        assert all(length <= limit for length, limit in zip(lengths, limits, strict=True))
        reached += sum(length == limit for length, limit in zip(lengths, limits, strict=True))
    assert reached == 28 if not share else 0 < reached < 28


def test_the_fewest_pieces(tokenizer: Tokenizer, tmp_path: Path) -> None:
    search = dataclasses.replace(SEARCH, beam_size=1, n_best=1, min_length=5)
    ours = translator(tokenizer, "transformer-pre", search, share=1.0)
    expected = ours.n_best(LINES)
    assert {len(found[0].tokens) for found in expected} == {5}
    found = exported(ours, tmp_path).n_best(LINES)
    assert [[t.text for t in each] for each in found] == [[t.text for t in each] for each in expected]


def test_log_probabilities_leave_out_what_is_never_predicted(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """CTranslate2's softmax has no class for begin mark and unknown piece, whose share the other pieces get."""
    ours = translator(tokenizer, "transformer-pre")
    with torch.no_grad():
        ours.model.output.bias[list(NEVER)] = 8.0
    theirs = exported(ours, tmp_path)
    sources, targets = tokenizer.encode_source(LINES), tokenizer.encode_target(LINES[::-1])
    scored = theirs.engine.score_batch(
        [tokenizer.source_pieces(ids[:-1]) for ids in sources], [tokenizer.target_pieces(ids[:-1]) for ids in targets]
    )
    share = 0.0
    for source, target, found in zip(sources, targets, scored, strict=True):
        if UNKNOWN in target:
            continue
        with torch.no_grad():
            logits_TV = ours.model.output(ours.model(make_batch([source], [target])))[0]
        logits_TV[:, PAD] = -torch.inf
        never_T = logits_TV.softmax(dim=-1)[:, [BOS, UNKNOWN]].sum(dim=-1)
        ours_T = logits_TV.log_softmax(dim=-1).gather(1, torch.tensor(target)[:, None]).squeeze(1)
        torch.testing.assert_close(torch.tensor(found.log_probs), ours_T - torch.log1p(-never_T), rtol=0, atol=5e-4)
        share = max(share, float(never_T.max()))
    assert share > 0.2


@pytest.mark.invariant
def test_neighbours_do_not_matter_and_blank_lines_stay_blank(tokenizer: Tokenizer, tmp_path: Path) -> None:
    theirs = exported(translator(tokenizer, "transformer-grouped"), tmp_path)
    alone = [theirs.n_best([line])[0] for line in LINES]
    mixed = theirs.n_best(["", *LINES, " \u00a0"])
    assert [[t.text for t in found] for found in (mixed[0], mixed[-1])] == [[""], [""]]
    assert_same(mixed[1:-1], alone)
    assert theirs.n_best([]) == []
    small = dataclasses.replace(SEARCH, batch_tokens=1)
    assert_same(theirs.n_best(LINES, small), alone)


@pytest.mark.case
@pytest.mark.parametrize("name", ["transformer-pre", "transformer-grouped", "transformer-rotary"])
def test_long_lines_are_neither_cut_nor_lost(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """CTranslate2 itself would drop what comes after 1,024 pieces; what has no position is refused."""
    search = dataclasses.replace(SEARCH, beam_size=1, n_best=1, max_length_extra=6)
    ours = translator(tokenizer, name, search, max_positions=7)
    theirs = exported(ours, tmp_path)
    line = " ".join(random.Random(1).choices(WORDS.split(), k=1_100))
    other = f"{line} jardin"
    assert len(tokenizer.encode_source([line])[0]) > 1_100
    assert_same(theirs.n_best([line, other]), ours.n_best([line, other]))
    endless = "x " * (POSITIONS // 2)
    if theirs.positions is None:
        assert len(tokenizer.encode_source([f"{line} {line}"])[0]) > 2_048, "more than CTranslate2 prepares angles for"
        assert_same(theirs.n_best([f"{line} {line}"]), ours.n_best([f"{line} {line}"]))
        return
    with pytest.raises(RequestError, match=rf"^line 3 has \d+ pieces, and this exported model {POSITIONS} positions"):
        theirs.n_best(["un", "", endless])


def test_what_cannot_be_searched_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    theirs = exported(translator(tokenizer, "transformer-pre"), tmp_path)
    with pytest.raises(RequestError, match=r"search\.sampling=true"):
        theirs.n_best(LINES, dataclasses.replace(SEARCH, sampling=True))
    with pytest.raises(RequestError, match=r"search\.mbr_samples=4: an exported model searches"):
        theirs.n_best(LINES, dataclasses.replace(SEARCH, mbr_samples=4))
    with pytest.raises(RequestError, match=r"search\.n_best=4: must be at most search\.beam_size=3"):
        theirs.n_best(LINES, dataclasses.replace(SEARCH, beam_size=3))


# What can be exported --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_transformers_can_be_exported_and_others_are_told_what_can(name: str) -> None:
    config = CONFIGS[name]
    if config.family == "transformer":
        require_exportable(config, SEARCH)
        with pytest.raises(RequestError, match=r"search\.sampling=true"):
            require_exportable(config, dataclasses.replace(SEARCH, sampling=True))
        with pytest.raises(RequestError, match=r"search\.mbr_samples=8 .* set it to 0"):
            require_exportable(config, dataclasses.replace(SEARCH, mbr_samples=8))
        return
    with pytest.raises(RequestError, match=rf"model\.family={config.family} cannot .* model\.family=transformer "):
        require_exportable(config, SEARCH)


def test_compared_sentences_are_different_and_spread() -> None:
    items = [str(i) for i in range(1_000)]
    chosen = spread([*items, *items], 200)
    assert len(set(chosen)) == len(chosen) == 200
    assert [int(item) // 5 for item in chosen] == list(range(200))
    assert spread(["b", "a", "b"], 200) == ["b", "a"]
    assert spread([], 200) == []


# The folder ------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """A checkpoint of a random model, and sentences to compare on next to it."""
    ours = translator(tokenizer, "transformer-pre")
    write_checkpoint(tmp_path / "run", dict(ours.model.named_parameters()), None, ours.config, tokenizer, {"step": 7})
    generator = random.Random(2)
    lines = [" ".join(generator.choices(WORDS.split(), k=generator.randint(1, 9))) for _ in range(30)]
    (tmp_path / "lines").write_text("".join(f"{line}\n\n" for line in lines), encoding="utf-8")
    return tmp_path / "run"


def test_an_export_is_complete_and_says_where_it_comes_from(run: Path, tmp_path: Path) -> None:
    told: list[str] = []
    folder = export_run(run, tmp_path / "out", None, tmp_path / "lines", told.append)
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "export.json",
        "model.bin",
        "shared_vocabulary.json",
        "tokenizer.model",
    }
    record = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    count = len(set((tmp_path / "lines").read_text(encoding="utf-8").split("\n")) - {""})
    assert record["comparison"] == {"sentences": count, "identical": count, "bleu": 100.0}
    assert record["search"] == dataclasses.asdict(SEARCH)
    assert (record["provenance"]["checkpoint"], record["provenance"]["step"]) == ("run", 7)
    assert str(tmp_path) not in json.dumps(record)
    assert told[-1] == f"float32: {count} of {count} translations identical"
    moved = folder.rename(tmp_path / "moved")
    assert_same(load_translator(moved).n_best(LINES), load_translator(run).n_best(LINES))


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16", "bfloat16", "int8_float16"])
def test_a_quantised_export_says_how_far_it_agrees(quantization: str, run: Path, tmp_path: Path) -> None:
    told: list[str] = []
    folder = export_run(run, tmp_path / "out", quantization, tmp_path / "lines", told.append)
    plain = export_run(run, tmp_path / "plain", None, tmp_path / "lines", told.append)
    assert (folder / "model.bin").stat().st_size < (plain / "model.bin").stat().st_size
    record = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    found = record["comparison"]
    assert record["quantization"] == quantization
    lines = [line for line in (tmp_path / "lines").read_text(encoding="utf-8").split("\n") if line]
    lines = list(dict.fromkeys(lines))
    ours, theirs = ([t.text for t in load_translator(path).translate(lines)] for path in (run, folder))
    assert found["identical"] == sum(left == right for left, right in zip(ours, theirs, strict=True))
    expected = f"{quantization}: {found['identical']} of {len(lines)} translations identical, BLEU {found['bleu']:.2f}"
    assert [line for line in told if line.startswith(expected)]


@pytest.mark.parametrize("quantization", [None, "int8"])
def test_a_model_that_translates_differently_is_not_exported(
    quantization: str | None, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is a new folder made nor an old one touched."""
    old = export_run(run, tmp_path / "old", None, tmp_path / "lines", lambda line: None)
    before = {path.name: path.read_bytes() for path in old.iterdir()}

    def wrong(*arguments: object) -> object:
        spec = build_spec(*arguments)
        spec.decoder.layer[0].ffn.linear_0.weight.array *= -1
        return spec

    monkeypatch.setattr(export, "build_spec", wrong)
    for folder in (tmp_path / "new", old):
        with pytest.raises(WorkError, match=r"^export: nothing is exported, .* differently in float32; the first: "):
            export_run(run, folder, quantization, tmp_path / "lines", lambda line: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lines", "old", "run"]
    assert {path.name: path.read_bytes() for path in old.iterdir()} == before


def test_only_an_export_is_replaced(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    for folder in (tmp_path / "mine", tmp_path / "lines", run):
        with pytest.raises(RequestError, match=f"{folder} exists and is no export"):
            export_run(run, folder, None, tmp_path / "lines", lambda line: None)
    (tmp_path / "empty").mkdir()
    for _ in range(2):
        export_run(run, tmp_path / "empty", None, tmp_path / "lines", lambda line: None)
    (tmp_path / "blank").write_text("\n \n")
    with pytest.raises(RequestError, match="no sentences to compare"):
        export_run(run, tmp_path / "out", None, tmp_path / "blank", lambda line: None)
