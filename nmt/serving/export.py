"""`nmt export`: a run's model as a folder that translates without this project's models, through CTranslate2.

    model.bin  config.json                          what CTranslate2 reads, and
    shared_vocabulary.json                          (or one for each side)
    tokenizer.model                                 (or one for each side)
    export.json                                     search settings, where the model comes from, checksums

Nothing appears under its name before it has translated sentences of the run's own test sets as the run does: in
float32 to the letter, whatever is exported; quantised, how far it agrees is measured and kept with it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nmt.config import ModelConfig, SearchConfig, TrainConfig, TransformerConfig
from nmt.data.corpus import prepare_corpus, read_lines
from nmt.data.filter import is_blank
from nmt.decoding.translator import Translator
from nmt.errors import RequestError, WorkError
from nmt.evaluation.metrics import corpus_scores
from nmt.files import complete_directory, require_writable, sha256_of
from nmt.models.transformer import Transformer
from nmt.serving.conversion import POSITIONS, build_spec
from nmt.serving.exported import FORMAT, ExportedTranslator, import_ctranslate2, open_engine
from nmt.training.checkpoint import CONFIG, EXPORT, META, WEIGHTS

COMPARED = 200
"""Sentences that an export translates before it counts."""

Report = Callable[[str], None]


@dataclass(frozen=True)
class Agreement:
    """What two translators make of the same sentences."""

    sentences: int
    identical: int
    bleu: float
    """BLEU of one's translations against the other's."""
    difference: str
    """The first sentence that they translate differently, in words; empty where there is none."""

    @classmethod
    def between(cls, sources: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> Agreement:
        """Compares line by line."""
        pairs = list(zip(sources, ours, theirs, strict=True))
        different = [(source, left, right) for source, left, right in pairs if left != right]
        words = "".join(f"{source!r} became {left!r} here, {right!r} there" for source, left, right in different[:1])
        return cls(len(pairs), len(pairs) - len(different), corpus_scores(theirs, ours).bleu, words)


def export_run(
    run: Path, output: Path | None, quantization: str | None, sentences: Path | None, report: Report
) -> Path:
    """Exports a run's best checkpoint, or the checkpoint given in its place.

    Args:
        output: the new folder; by default `ctranslate2`, with the quantisation's name, in the run directory. An
            export that is there already is replaced.
        quantization: a type that CTranslate2 quantises to; None: float32.
        sentences: a file with source sentences to compare on, in place of the run's test and validation sets.

    Returns:
        the folder.

    Raises:
        RequestError: a model or search that CTranslate2 cannot represent, or a folder that is not to be replaced.
        WorkError: the exported model translates differently, or the folder cannot be written.
    """
    translator = Translator.load(run, device="cpu")
    assert translator.config is not None
    require_exportable(translator.config.model, translator.search)
    folder = output or _default_folder(run, quantization)
    if folder.exists() and not (folder / EXPORT).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise RequestError(f"export: {folder} exists and is no export; choose another --output")
    require_writable(folder, directory=True)
    ctranslate2 = import_ctranslate2()
    sources = list(read_lines(sentences)) if sentences else _own_sentences(translator.config, report)
    sources = spread([source for source in sources if not is_blank(source)], COMPARED)
    if not sources:
        raise RequestError("export: no sentences to compare translations on; name a file with --sentences")
    report(f"translating {len(sources)} sentences here and with CTranslate2 {ctranslate2.__version__}")
    ours = [translation.text for translation in translator.translate(sources)]
    with complete_directory(folder, replace=True) as temporary:
        translator.tokenizer.save(temporary)
        exact = _write_and_compare(translator, temporary, None, sources, ours)
        if exact.difference:
            raise WorkError(
                f"export: nothing is exported, since CTranslate2 {ctranslate2.__version__} translates "
                f"{exact.sentences - exact.identical} of {exact.sentences} sentences differently in float32; "
                f"the first: {exact.difference}"
            )
        report(f"float32: {exact.identical} of {exact.sentences} translations identical")
        found = exact
        if quantization:
            found = _write_and_compare(translator, temporary, quantization, sources, ours)
            report(
                f"{quantization}: {found.identical} of {found.sentences} translations identical, "
                f"BLEU {found.bleu:.2f} between the two"
            )
        record = _record(translator, run, quantization, found)
        record["sha256"] = {path.name: sha256_of(path) for path in sorted(temporary.iterdir())}
        (temporary / EXPORT).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return folder


def require_exportable(model: ModelConfig, search: SearchConfig) -> None:
    """Raises RequestError, naming what can be exported, for a model or a search that CTranslate2 cannot represent."""
    if not isinstance(model, TransformerConfig):
        why = "CTranslate2 has the layers of Transformers alone"
        if model.family == "decoder_only":
            why = "it reads the source in both directions, and CTranslate2's decoders see only what comes before"
        raise RequestError(
            f"export: model.family={model.family} cannot be exported: {why}; what can is model.family=transformer "
            "(the presets model=transformer…), whatever its norm, normalization, activation, positions and heads"
        )
    if search.chance:
        raise RequestError(
            f"export: {search.chance} cannot be exported: CTranslate2 has no seed for each sentence; "
            f"set it to {'0' if search.mbr_samples else 'false'} in the run's config.yaml"
        )


def spread(items: list[str], count: int) -> list[str]:
    """At most `count` different items, evenly spread, in order: test sets may be sorted by length."""
    different = list(dict.fromkeys(items))
    if len(different) <= count:
        return different
    return [different[i * len(different) // count] for i in range(count)]


def _own_sentences(config: TrainConfig, report: Report) -> list[str]:
    """The sources of the test sets, and where they are too few, of the validation set."""
    corpus = prepare_corpus(config.data, report)
    found = [source for files in corpus.test.values() for source in files.sources()]
    if len(set(found)) < COMPARED:
        found += [source for files in corpus.valid for source in files.sources()]
    return found


def _default_folder(run: Path, quantization: str | None) -> Path:
    if (run / META).is_file() or not (run / CONFIG).is_file():
        raise RequestError(
            f"export: {run} is no run directory, where exports go by default; name a folder with --output"
        )
    return run / "-".join(filter(None, ("ctranslate2", quantization)))


def _write_and_compare(
    translator: Translator, folder: Path, quantization: str | None, sources: Sequence[str], ours: Sequence[str]
) -> Agreement:
    """Writes the model into the folder, loads it from there as any user would, and translates."""
    assert translator.config is not None
    model, config = translator.model, translator.config.model
    assert isinstance(model, Transformer) and isinstance(config, TransformerConfig)
    spec = build_spec(model, config, translator.tokenizer)
    spec.optimize(quantization=quantization)
    spec.save(str(folder))
    engine = open_engine(folder, "cpu")
    exported = ExportedTranslator(engine, translator.tokenizer, translator.search, _positions(config))
    return Agreement.between(sources, ours, [translation.text for translation in exported.translate(sources)])


def _positions(config: ModelConfig) -> int | None:
    return None if isinstance(config, TransformerConfig) and config.positions == "rotary" else POSITIONS


def _record(translator: Translator, run: Path, quantization: str | None, agreement: Agreement) -> dict[str, Any]:
    """What export.json says, but for the checksums."""
    assert translator.config is not None and translator.checkpoint is not None
    meta = translator.checkpoint.meta
    return {
        "format": FORMAT,
        "kind": "ctranslate2",
        "quantization": quantization or "float32",
        "positions": _positions(translator.config.model),
        "search": dataclasses.asdict(translator.search),
        "comparison": {
            "sentences": agreement.sentences,
            "identical": agreement.identical,
            "bleu": round(agreement.bleu, 2),
        },
        "provenance": {
            "run": run.absolute().name,
            "checkpoint": translator.checkpoint.directory.name,
            "weights_sha256": meta["sha256"].get(WEIGHTS),
            **{name: meta[name] for name in ("step", "epoch", "tokens", "data") if name in meta},
            "tokenizer": translator.tokenizer.identity,
            "model": dataclasses.asdict(translator.config.model),
            "source_language": translator.config.data.source_language,
            "target_language": translator.config.data.target_language,
            "versions": {library: version(library) for library in ("nmt", "torch", "ctranslate2", "sentencepiece")},
        },
    }
