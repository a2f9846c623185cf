"""Corpus scores, each with the signature that says how it was computed, and what is odd about a set of translations.

Three numbers that are never mixed: sacreBLEU's BLEU on the untouched text (13a, cased), chrF2 on the same, and, where
a corpus is reported so in the literature, BLEU on text that is lower-cased, punctuation-normalised, Moses-tokenised
and HTML-escaped. sacreBLEU's Python interface scores two texts of unequal length without a word; this one refuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from nmt.data.corpus import reference_lines
from nmt.data.filter import is_blank
from nmt.errors import RequestError
from nmt.evaluation.lengths import length_buckets

LONGEST_REPEATED_GROUP = 4  # words
FEWEST_REPETITIONS = 3
TOKENIZED_ENDS_TO_WARN = 0.5  # share of lines


@dataclass(frozen=True)
class OutputStatistics:
    """What a glance over the translations would tell, besides their score."""

    sentences: int
    length_ratio: float | None
    """13a tokens of the hypotheses over those of the references; None where the references have none."""
    empty: int
    """Hypotheses without a visible character, where the reference has one."""
    repeated: int
    """Hypotheses that say the same one to four words three times or more in direct succession."""
    identical_share: float
    """Share of the sentences that got the commonest of all hypotheses."""
    warnings: tuple[str, ...] = ()
    """One line for everything that makes the scores doubtful."""


@dataclass(frozen=True)
class Scores:
    """Scores of one set of translations, 0 to 100, each with its signature."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    literature_bleu: float | None
    literature_signature: str | None
    statistics: OutputStatistics


def bleu_metric() -> BLEU:
    """BLEU on untouched text."""
    return BLEU(tokenize="13a", lowercase=False, force=True)


def chrf_metric() -> CHRF:
    """chrF2."""
    return CHRF()


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[str], literature: bool = False, target_language: str = "fr"
) -> Scores:
    """Scores hypotheses against one reference each.

    Args:
        hypotheses: detokenised translations, one a sentence.
        references: the reference file's lines as they are, in the same order.
        literature: also compute BLEU on text processed as the papers on Multi30k do (see `literature_text`).
        target_language: language of both, for the Moses rules of the literature score.

    Raises:
        RequestError: the two are not of one length, or are empty.
    """
    check_counts(len(hypotheses), len(references))
    by_bleu, by_chrf = bleu_metric(), chrf_metric()
    bleu = by_bleu.corpus_score(hypotheses, [references])
    chrf = by_chrf.corpus_score(hypotheses, [references])
    literature_bleu, literature_signature = None, None
    if literature:
        literature_bleu, literature_signature = literature_score(hypotheses, references, target_language)
    return Scores(
        bleu=float(bleu.score),
        chrf=float(chrf.score),
        bleu_signature=str(by_bleu.get_signature()),
        chrf_signature=str(by_chrf.get_signature()),
        literature_bleu=literature_bleu,
        literature_signature=literature_signature,
        statistics=output_statistics(hypotheses, references, bleu.sys_len, bleu.ref_len),
    )


def bleu_by_length(sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """BLEU of the sentences of each bucket of source lengths (see `length_buckets`), by `Bucket.metric`.

    Empty where all of them are in one bucket, which would have the score of the whole.
    """
    buckets = length_buckets([len(source.split()) for source in sources])
    metric = bleu_metric()
    return {
        bucket.metric: float(
            metric.corpus_score(
                [hypotheses[i] for i in bucket.indices], [[references[i] for i in bucket.indices]]
            ).score
        )
        for bucket in buckets
        if len(buckets) > 1
    }


def score_files(hypotheses: Path, references: Path, literature: bool = False, target_language: str = "fr") -> Scores:
    """Scores one text file against another, line by line; lines end at LF only, and gzip is read as well.

    Raises:
        RequestError: a file cannot be read, or the files do not have the same number of lines.
    """
    hypothesis_lines, reference_texts = reference_lines(hypotheses), reference_lines(references)
    check_counts(len(hypothesis_lines), len(reference_texts), str(hypotheses), str(references))
    if all(map(is_blank, reference_texts)):
        raise RequestError(f"cannot score: every line of {references} is blank")
    return corpus_scores(hypothesis_lines, reference_texts, literature, target_language)


def check_counts(
    hypotheses: int, references: int, hypotheses_name: str = "hypotheses", references_name: str = "references"
) -> None:
    """Raises RequestError, naming both numbers of lines, unless the two are equal and not zero."""
    if hypotheses != references:
        raise RequestError(
            f"cannot score: {hypotheses} lines in {hypotheses_name}, but {references} in {references_name}"
        )
    if hypotheses == 0:
        raise RequestError(f"cannot score: 0 lines in {hypotheses_name} and 0 in {references_name}")


def literature_text(lines: Sequence[str], language: str) -> list[str]:
    """Lower-cases, normalises the punctuation of, Moses-tokenises and HTML-escapes each line.

    With language "fr" this turns the raw references of Multi30k's three test sets into the released `.lc.norm.tok`
    files, byte by byte.
    """
    # Imported where it is used: only some corpora have a literature score.
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    # The script that made the released files sees each line with its line end, and one of its rules, which moves a
    # full stop out of closing quotes, asks for a character behind the quotes: without the LF, line 694 of
    # test_2016_flickr comes out otherwise. The tokenizer drops it again.
    return [str(tokenizer.tokenize(normalizer.normalize(f"{line.lower()}\n"), return_str=True)) for line in lines]


def literature_score(hypotheses: Sequence[str], references: Sequence[str], language: str) -> tuple[float, str]:
    """BLEU on lower-cased, normalised, Moses-tokenised, HTML-escaped text, and a signature that names the steps."""
    metric = BLEU(tokenize="none", force=True)
    processed = literature_text(references, language)
    score = metric.corpus_score(literature_text(hypotheses, language), [processed])
    signature = "|".join(
        [
            "nrefs:1",
            "case:lc",
            f"norm:moses-{language}",
            f"tok:moses-{language}",
            "escape:html",
            "eff:no",
            "smooth:exp",
            f"sacremoses:{version('sacremoses')}",
            f"version:{version('sacrebleu')}",
        ]
    )
    return float(score.score), signature


def output_statistics(
    hypotheses: Sequence[str], references: Sequence[str], hypothesis_tokens: int, reference_tokens: int
) -> OutputStatistics:
    """Counts what is wrong with hypotheses at a glance; the two numbers of tokens give the length ratio."""
    sentences = len(hypotheses)
    empty = sum(
        not hypothesis.strip() and bool(reference.strip())
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    )
    identical_share = _commonest_share(hypotheses)
    warnings = []
    if empty > sentences / 2:
        warnings.append(f"{empty} of {sentences} translations are empty")
    elif identical_share > max(0.5, _commonest_share(references)):
        commonest, count = Counter(hypotheses).most_common(1)[0]
        warnings.append(f"{count} of {sentences} translations are the same line: {commonest!r}")
    tokenized_hypotheses, tokenized_references = _tokenized_share(hypotheses), _tokenized_share(references)
    for name, share in (("translations", tokenized_hypotheses), ("references", tokenized_references)):
        if share > TOKENIZED_ENDS_TO_WARN:
            warnings.append(
                f"{share:.0%} of the {name} end in a full stop set apart by a space: they look tokenised, and BLEU is"
                " meant for text as people write it; score the raw file instead"
            )
    return OutputStatistics(
        sentences=sentences,
        length_ratio=hypothesis_tokens / reference_tokens if reference_tokens else None,
        empty=empty,
        repeated=sum(repeats(hypothesis) for hypothesis in hypotheses),
        identical_share=identical_share,
        warnings=tuple(warnings),
    )


def repeats(text: str) -> bool:
    """Whether a group of one to four words occurs three times or more in direct succession."""
    words = text.split()
    for size in range(1, LONGEST_REPEATED_GROUP + 1):
        run = 0  # words in a row that equal the word `size` places before them
        for index in range(size, len(words)):
            run = run + 1 if words[index] == words[index - size] else 0
            if run >= size * (FEWEST_REPETITIONS - 1):
                return True
    return False


def _commonest_share(lines: Sequence[str]) -> float:
    return Counter(lines).most_common(1)[0][1] / len(lines)


def _tokenized_share(lines: Sequence[str]) -> float:
    return sum(line.rstrip().endswith(" .") for line in lines) / len(lines)
