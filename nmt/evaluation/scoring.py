"""Test sets: translate, score against the untouched reference, and keep hypotheses and scores with the run."""

from __future__ import annotations

import dataclasses
import json
import platform
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nmt.data.corpus import Corpus, PairFiles, Report, reference_lines
from nmt.decoding.translator import Translator
from nmt.errors import RequestError, WorkError
from nmt.evaluation.comet import Comet
from nmt.evaluation.metrics import corpus_scores
from nmt.evaluation.reuse import KEY, translation_key
from nmt.files import cause_of, read_regular, require_writable, write_atomically
from nmt.training.store import require_own_files

RESULTS_FILE = "results.json"


def score_sets(
    translator: Translator, corpus: Corpus, names: Sequence[str], run: Path, report: Report
) -> dict[str, Any]:
    """Translates and scores test sets; writes hypotheses/SET.txt and the sets' entries in results.json.

    Args:
        names: test sets of the corpus.
        run: the run directory.

    Returns:
        the contents of results.json.

    Raises:
        RequestError: no such test set, a text that cannot be read, or a run directory with links that lead out of it.
    """
    require_own_files(run)
    for name in names:
        if name not in corpus.test:
            raise RequestError(f"no test set {name} in {corpus.name}; there are: {', '.join(corpus.test)}")
    for path in (run / RESULTS_FILE, *(run / "hypotheses" / f"{name}.txt" for name in names)):
        require_writable(path)
    results = read_results(run)
    facts = json.loads(json.dumps(provenance(translator)))
    # Scores of other weights or another search must not pass for these: they are dropped, not kept beside.
    kept = results.get("sets", {}) if results.get("provenance") == facts else {}
    results = {"sets": dict(kept), "provenance": facts}
    for name in names:
        report(f"translating and scoring {name}: {corpus.test[name].count()} sentences")
        entry, hypotheses = _score(translator, corpus, corpus.test[name])
        write_atomically(run / "hypotheses" / f"{name}.txt", "".join(f"{line}\n" for line in hypotheses))
        results["sets"][name] = entry
        for warning in entry.pop("warnings"):
            report(f"{name}: {warning}")
        _write(results, run)  # of each set when it is there: an interruption costs no more than one
    if not names:
        _write(results, run)
    return results


def add_comet(comet: Comet, corpus: Corpus, names: Sequence[str], run: Path, report: Report) -> dict[str, Any]:
    """Scores what `score_sets` has just kept by COMET as well; returns the contents of results.json with it.

    Raises:
        WorkError: as `Comet.score`; the sets before have their scores by then.
    """
    results = read_results(run)
    for name in names:
        report(f"scoring {name} with {comet.model}")
        entry, files = results["sets"][name], corpus.test[name]
        hypotheses = reference_lines(run / "hypotheses" / f"{name}.txt")
        entry["comet"] = comet.score(files.sources(), hypotheses, files.references())
        entry["comet_model"] = comet.model
        _write(results, run)
    return results


def _write(results: dict[str, Any], run: Path) -> None:
    write_atomically(run / RESULTS_FILE, json.dumps(results, indent=1, ensure_ascii=False) + "\n")


def _score(translator: Translator, corpus: Corpus, files: PairFiles) -> tuple[dict[str, Any], list[str]]:
    sources, references = files.sources(), files.references()
    began = time.perf_counter()
    translations = translator.translate(sources)
    seconds = time.perf_counter() - began
    hypotheses = [translation.text for translation in translations]
    scores = corpus_scores(hypotheses, references, corpus.literature_score, corpus.target_language)
    tokens = sum(len(translation.tokens) + 1 for translation in translations)
    entry = {
        "bleu": scores.bleu,
        "chrf": scores.chrf,
        "bleu_signature": scores.bleu_signature,
        "chrf_signature": scores.chrf_signature,
        "literature_bleu": scores.literature_bleu,
        "literature_signature": scores.literature_signature,
        "sentences": len(sources),
        "seconds": round(seconds, 3),
        "target_tokens_per_s": round(tokens / seconds, 1),
        "length_ratio": scores.statistics.length_ratio,
        "empty": scores.statistics.empty,
        "repeated": scores.statistics.repeated,
        "warnings": scores.statistics.warnings,
        KEY: translation_key(translator, sources),
    }
    return entry, hypotheses


def provenance(translator: Translator) -> dict[str, Any]:
    """Where the scored weights come from and what computed the scores."""
    found: dict[str, Any] = {
        "parameters": translator.model.parameter_count(),
        "tokenizer": translator.tokenizer.identity,
        "device": translator.device.type,
        "versions": versions(),
    }
    if translator.checkpoint is not None:
        meta = translator.checkpoint.meta
        found["checkpoint"] = translator.checkpoint.directory.name
        recorded = ("step", "epoch", "tokens", "seconds", "data", "init_from")
        found.update({name: meta[name] for name in recorded if name in meta})
    if translator.config is not None:
        found["seed"] = translator.config.trainer.seed
        found["search"] = dataclasses.asdict(translator.search)
        found["notes"] = translator.config.run.notes
    return found


def versions() -> dict[str, str]:
    """Versions of what a score or a training run depends on."""
    libraries = ("nmt", "torch", "sentencepiece", "sacrebleu", "sacremoses", "numpy")
    return {"python": platform.python_version(), **{library: version(library) for library in libraries}}


def read_results(run: Path) -> dict[str, Any]:
    """results.json of a run directory; empty where there is none yet."""
    path = run / RESULTS_FILE
    try:
        results: dict[str, Any] = json.loads(read_regular(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        cause = cause_of(error) if isinstance(error, OSError) else error
        raise WorkError(f"{path} cannot be read: {cause}; remove it to score again") from error
    sets = results.get("sets", {}) if isinstance(results, dict) else None
    if not isinstance(sets, dict) or not all(isinstance(entry, dict) for entry in sets.values()):
        raise WorkError(f"{path} cannot be read: not what nmt writes; remove it to score again")
    return results
