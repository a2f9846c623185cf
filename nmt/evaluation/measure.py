"""What one run makes of a test set: translations, their scores, and where the model looked."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from nmt.data.corpus import Corpus, PairFiles, Report, prepare_corpus
from nmt.data.filter import is_blank
from nmt.data.tokenizer import UNKNOWN
from nmt.decoding.translator import Translator
from nmt.errors import RequestError
from nmt.evaluation.alignment import Alignment
from nmt.evaluation.gold import GoldScore, score_alignments
from nmt.evaluation.metrics import Scores, corpus_scores
from nmt.evaluation.reuse import kept_translations, translation_key
from nmt.evaluation.runs import Run

PICTURED_WORDS = (5, 10, 16)
"""Source lengths of the sentences whose alignments are drawn: what a telephone's screen still shows."""
_UNKNOWN_MARK = re.compile(r"<unk>|⁇")


@dataclass(frozen=True)
class TestSet:
    """A test set, read once."""

    __test__ = False  # no pytest class

    name: str
    corpus: Corpus
    files: PairFiles

    @cached_property
    def sources(self) -> list[str]:
        """The source side, as models get it."""
        return self.files.sources()

    @cached_property
    def references(self) -> list[str]:
        """The target side, untouched."""
        return self.files.references()

    @cached_property
    def identity(self) -> tuple[str, str]:
        """SHA-256 of the source text and of the references: the same test set wherever its files lie."""
        source, target = ("\n".join(lines).encode() for lines in (self.sources, self.references))
        return hashlib.sha256(source).hexdigest(), hashlib.sha256(target).hexdigest()

    @cached_property
    def pictured(self) -> list[int]:
        """Which sentences' alignments are drawn: the first ones of about 5, 10 and 16 words, whatever came out."""
        lengths = [len(source.split()) for source in self.sources]
        chosen: list[int] = []
        for wanted in PICTURED_WORDS:
            rest = [i for i in range(len(lengths)) if i not in chosen and lengths[i]]
            if rest:
                chosen.append(min(rest, key=lambda i: abs(lengths[i] - wanted)))
        return chosen


class TestSets:
    """The test sets of several runs; a corpus that several of them use is prepared once."""

    __test__ = False

    def __init__(self, report: Report) -> None:
        self.report = report
        self._corpora: dict[str, Corpus] = {}
        self._sets: dict[tuple[str, str], TestSet] = {}

    def corpus(self, run: Run) -> Corpus:
        """Raises RequestError or WorkError where the run's corpus is not to be had."""
        assert run.config is not None
        key = repr(run.config.data)
        if key not in self._corpora:
            self._corpora[key] = prepare_corpus(run.config.data, self.report)
        return self._corpora[key]

    def of(self, run: Run, name: str) -> TestSet:
        """Raises RequestError where the run's corpus has no such test set, naming those it has."""
        assert run.config is not None
        corpus = self.corpus(run)
        if name not in corpus.test:
            raise RequestError(f"no test set {name} in {corpus.name}; there are: {', '.join(corpus.test) or 'none'}")
        key = (repr(run.config.data), name)
        if key not in self._sets:
            self._sets[key] = TestSet(name, corpus, corpus.test[name])
        return self._sets[key]


@dataclass(frozen=True)
class Measurement:
    """One run's checkpoint on one test set."""

    test: TestSet
    hypotheses: list[str]
    scores: Scores
    seconds: float
    tokens_per_s: float
    """Target tokens, end marks included."""
    reused: bool
    """The translations, and their speed, are those that the run kept from the same weights, search and text."""
    parameters: int
    tokenizer: str
    step: int
    search: str
    unknown_sources: int
    """Source sentences with a piece that the vocabulary lacks."""
    unknown_outputs: int
    """Translations with a mark in place of a word; the search never chooses the unknown piece."""
    attends: bool
    gold: GoldScore | None
    alignments: dict[int, Alignment]
    """Between words, of the sentences that are drawn, by their number."""


def measure(run: Run, test: TestSet, report: Report) -> Measurement:
    """Loads the run's best checkpoint, translates the test set with the run's own search, and scores it.

    Raises:
        RequestError, WorkError: the checkpoint cannot be loaded, or the test set cannot be read.
    """
    translator = Translator.load(run.path)
    assert translator.checkpoint is not None
    key = translation_key(translator, test.sources)
    kept = kept_translations(run.path, test.name, key, test.references)
    if kept is not None:
        hypotheses, entry = kept
        seconds, speed = float(entry["seconds"]), float(entry["target_tokens_per_s"])
        report(f"{run.path}: the translations of {test.name} are there, from the same checkpoint, search and text")
    else:
        report(f"{run.path}: translating {test.name}, {len(test.sources)} sentences")
        hypotheses, seconds, tokens = _translate(translator, test.sources)
        speed = tokens / seconds
    corpus = test.corpus
    return Measurement(
        test=test,
        hypotheses=hypotheses,
        scores=corpus_scores(hypotheses, test.references, corpus.literature_score, corpus.target_language),
        seconds=seconds,
        tokens_per_s=speed,
        reused=kept is not None,
        parameters=translator.model.parameter_count(),
        tokenizer=translator.tokenizer.identity,
        step=translator.checkpoint.step,
        search=_in_words(translator),
        unknown_sources=sum(UNKNOWN in ids for ids in translator.tokenizer.encode_source(test.sources)),
        unknown_outputs=sum(_UNKNOWN_MARK.search(hypothesis) is not None for hypothesis in hypotheses),
        attends=translator.model.attends,
        gold=score_alignments(translator, test.files),
        alignments=_alignments(translator, test) if translator.model.attends else {},
    )


def _translate(translator: Translator, sources: Sequence[str]) -> tuple[list[str], float, int]:
    """Translations, seconds, and target tokens with end marks."""
    began = time.perf_counter()
    translations = translator.translate(sources)
    seconds = time.perf_counter() - began
    return [t.text for t in translations], seconds, sum(len(t.tokens) + 1 for t in translations)


def _alignments(translator: Translator, test: TestSet) -> dict[int, Alignment]:
    chosen = [i for i in test.pictured if not is_blank(test.sources[i])]
    found = translator.translate([test.sources[i] for i in chosen], alignments=True)
    between_words = {i: t.alignment.words() for i, t in zip(chosen, found, strict=True) if t.alignment is not None}
    return {
        i: alignment for i, alignment in between_words.items() if alignment.source_tokens and alignment.target_tokens
    }


def _in_words(translator: Translator) -> str:
    search = translator.search
    if search.mbr_samples:
        beam = f" and beam {search.beam_size}" if search.mbr_beam else ""
        return f"minimum Bayes risk, {search.mbr_samples} samples{beam}, seed {search.seed}"
    if search.sampling:
        return f"sampling, seed {search.seed}"
    if search.beam_size == 1:
        return "greedy"
    penalty = "" if search.length_penalty == "none" else f", {search.length_penalty} length penalty"
    return f"beam {search.beam_size}{penalty}"
