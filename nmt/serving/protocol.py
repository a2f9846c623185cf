"""What clients send and get: LibreTranslate's names, and more on request.

Parameters come as LibreTranslate takes them: a JSON object, a form (application/x-www-form-urlencoded), or in the
address, also of a POST. What is not known is ignored, as there, since clients send keys and options of their own.
A mistake is an `ApiError`, which becomes {"error": "…"}.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, Field, ValidationError

from nmt.decoding.translator import Translation
from nmt.files import is_text
from nmt.serving.served import Served

MOST_ALTERNATIVES = 15
"""Each widens the search."""

AUTO = "auto"
LANGUAGE_NAMES = {"en": "English", "fr": "French", "de": "German", "es": "Spanish", "it": "Italian"}


class ApiError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """What a server takes on."""

    body_bytes: int = 1 << 20
    body_seconds: float = 10.0
    """In which a request must have come."""
    line_characters: int = 1_000
    """Of a line; the pieces that the tokenizer makes of it are at most as many."""
    waiting_lines: int = 2_000


class TranslateParameters(BaseModel):
    """Parameters of POST /translate."""

    q: Annotated[str, Field(min_length=1)] | Annotated[list[str], Field(min_length=1)] = Field(
        description="text, or a list of texts; each line of a text is translated by itself"
    )
    source: str = Field(min_length=1, description='code of its language, or "auto": the one that the server reads')
    target: str = Field(min_length=1, description="code of the language to translate to")
    format: Literal["text"] = "text"
    alternatives: int = Field(0, ge=0, le=MOST_ALTERNATIVES, description="further translations of each text, at most")
    model: str | None = Field(None, description="which of the runs (GET /models); else the first for the languages")
    scores: bool = Field(False, description="answer with scores, line by line")
    alignments: bool = Field(False, description="answer with scores and alignments, line by line")


class DetectParameters(BaseModel):
    """Parameters of POST /detect."""

    q: str = Field(min_length=1)


MEANINGS = {
    "q": "a text or a list of texts",
    "alternatives": f"a whole number from 0 to {MOST_ALTERNATIVES}",
    "scores": "true or false",
    "alignments": "true or false",
}

Parameters = TypeVar("Parameters", bound=BaseModel)


# Reading ---------------------------------------------------------------------------------------------------------


async def read_parameters(request: Request, limits: Limits) -> dict[str, Any]:
    """The parameters of a request: those of its body, or, where there is none, of its address.

    Raises:
        ApiError: 400, 408, 413 or 415.
    """
    body = await _read_body(request, limits)
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if not body:
        return _form(request.url.query)
    if kind == "application/json" or kind.endswith("+json"):
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            raise ApiError(400, "Invalid JSON format") from None
        if not isinstance(found, dict):
            raise ApiError(400, "Invalid JSON format")
        return found
    if kind in ("", "application/x-www-form-urlencoded"):
        try:
            return _form(body.decode())
        except UnicodeDecodeError:
            raise ApiError(400, "Invalid request: the form is not UTF-8") from None
    raise ApiError(415, f"{kind} is not supported: send application/json or application/x-www-form-urlencoded")


async def _read_body(request: Request, limits: Limits) -> bytes:
    """The body. One that is too large is read to its end, and not kept: a client that still sends hears no answer."""
    size = request.headers.get("content-length", "")
    too_large = size.isdecimal() and int(size) > limits.body_bytes
    if too_large and "expect" in request.headers:  # the client waits to be told whether to send it
        raise ApiError(413, f"Invalid request: more than {limits.body_bytes} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                too_large = too_large or len(body) + len(part) > limits.body_bytes
                if not too_large:
                    body += part
    except TimeoutError:
        raise ApiError(408, f"Invalid request: it had not come after {limits.body_seconds:g} seconds") from None
    if too_large:
        raise ApiError(413, f"Invalid request: more than {limits.body_bytes} bytes")
    return bytes(body)


def _form(text: str) -> dict[str, Any]:
    """Names and values; a name that comes several times has a list of values."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict")
    except ValueError:
        raise ApiError(400, "Invalid request: the form is not UTF-8") from None
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name not in found:
            found[name] = value
        elif isinstance(found[name], list):
            found[name].append(value)
        else:
            found[name] = [found[name], value]
    return found


def checked(schema: type[Parameters], found: Mapping[str, Any]) -> Parameters:
    """The parameters, typed. Raises ApiError, with LibreTranslate's words where it has some."""
    for name, field in schema.model_fields.items():
        if field.is_required() and not found.get(name):
            raise ApiError(400, f"Invalid request: missing {name} parameter")
    if found.get("format") not in (None, "", "text"):
        raise ApiError(400, f"{found['format']} format is not supported")
    try:
        return schema.model_validate({name: value for name, value in found.items() if value not in (None, "")})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0])
        if first["type"] == "string_unicode":
            raise ApiError(400, f"Invalid request: {name} has a lone surrogate") from None
        if name == "alternatives" and first["type"] in ("int_parsing", "int_type"):
            raise ApiError(400, "Invalid request: alternatives parameter is not a number") from None
        raise ApiError(400, f"Invalid request: {name} must be {MEANINGS.get(name, 'a text')}") from None


def lines_of(texts: Sequence[str], limits: Limits) -> list[list[str]]:
    """The lines of each text. Raises ApiError for what is no text, for a line that is too long, and for too many."""
    if not all(map(is_text, texts)):
        raise ApiError(400, "Invalid request: q has a NUL character")
    found = [[line.removesuffix("\r") for line in text.split("\n")] for text in texts]
    if sum(map(len, found)) > limits.waiting_lines:
        raise ApiError(413, f"Invalid request: more than {limits.waiting_lines} lines")
    if any(len(line) > limits.line_characters for lines in found for line in lines):
        raise ApiError(413, f"Invalid request: a line of more than {limits.line_characters} characters")
    return found


# Choosing --------------------------------------------------------------------------------------------------------


def choose_model(models: Sequence[Served], parameters: TranslateParameters) -> Served:
    """The model that is asked for, or the first for the languages.

    Raises:
        ApiError: there is none.
    """
    known = {code for model in models for code in (model.source, model.target)}
    source, target = (known_code(code, known) for code in (parameters.source, parameters.target))
    if parameters.model is not None:
        models = [model for model in models if model.name == parameters.model]
        if not models:
            raise ApiError(400, f"{parameters.model} is not a model of this server")
    models = [model for model in models if model.target == target]
    fitting = [model for model in models if source in (model.source, AUTO)]
    if not fitting:
        raise ApiError(400, f"{described(target)} is not available as a target language from {described(source)}")
    if source == AUTO and len({model.source for model in fitting}) > 1:
        raise ApiError(
            400, "languages are not detected here: auto is not enough where there are several to choose from"
        )
    return fitting[0]


def known_code(code: str, known: set[str]) -> str:
    """The language that is meant, where a variant such as en-US stands for one. Raises ApiError for no known one."""
    for candidate in (code, code.lower(), code.lower().replace("_", "-").split("-")[0]):
        if candidate in known or candidate == AUTO:
            return candidate
    raise ApiError(400, f"{code} is not supported")


def described(code: str) -> str:
    """Name and code."""
    return code if code == AUTO else f"{language_name(code)} ({code})"


def language_name(code: str) -> str:
    """In English; the code itself where it has none here."""
    return LANGUAGE_NAMES.get(code, code)


def languages(models: Sequence[Served]) -> list[dict[str, Any]]:
    """What GET /languages answers: every language that is read, with those that it is translated to."""
    targets: dict[str, set[str]] = {}
    for model in models:
        targets.setdefault(model.source, set()).add(model.target)
        targets.setdefault(model.target, set())
    return [{"code": code, "name": language_name(code), "targets": sorted(to)} for code, to in sorted(targets.items())]


def detected(source: str) -> dict[str, Any]:
    """A language as the answer to which one it is. Nothing was measured, so there is no confidence in it."""
    return {"confidence": 0.0, "language": source}


# Answering -------------------------------------------------------------------------------------------------------


def answer(parameters: TranslateParameters, model: Served, texts: Sequence[Sequence[list[Translation]]]) -> Any:
    """What POST /translate answers.

    Args:
        texts: of each text the lines, of each line the hypotheses.
    """
    record: dict[str, Any] = {"translatedText": ["\n".join(found[0].text for found in lines) for lines in texts]}
    if parameters.alternatives:
        record["alternatives"] = [_alternatives(lines) for lines in texts]
    if parameters.source == AUTO:
        record["detectedLanguage"] = [detected(model.source) for _ in texts]
    if parameters.scores or parameters.alignments:
        record["lines"] = [[[_hypothesis(each) for each in found] for found in lines] for lines in texts]
    if isinstance(parameters.q, str):
        record = {name: values[0] for name, values in record.items()}
    return record if "lines" not in record else {**record, "model": model.name}


def _alternatives(lines: Sequence[list[Translation]]) -> list[str]:
    """The texts of the second hypotheses of all lines, of the third, …, each text once; a line that has run out of
    hypotheses keeps its best."""
    texts: dict[str, None] = {}
    for rank in range(max(map(len, lines))):
        texts["\n".join(found[rank if rank < len(found) else 0].text for found in lines)] = None
    return list(texts)[1:]


def _hypothesis(translation: Translation) -> dict[str, Any]:
    record: dict[str, Any] = {"text": translation.text, "score": translation.score, "cut": translation.cut}
    if translation.alignment is not None:
        record["alignment"] = json.loads(translation.alignment.words().to_json())
    return record
