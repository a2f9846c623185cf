"""What the dataclasses of `nmt.config` say about each key: its type, its default, what it allows and what it means.

Everything that checks or explains a configuration walks the schemas through this module, so that the help text, the
error messages and the checks cannot disagree.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nmt import config as schemas
from nmt.config import DataConfig, ModelConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from nmt.files import is_text

MODELS: dict[str, type[ModelConfig]] = {
    "lstm": schemas.LstmConfig,
    "cho": schemas.ChoConfig,
    "bahdanau": schemas.BahdanauConfig,
    "luong": schemas.LuongConfig,
    "intra_attention": schemas.IntraAttentionConfig,
    "transformer": schemas.TransformerConfig,
    "decoder_only": schemas.DecoderOnlyConfig,
}
DATA: dict[str, type[DataConfig]] = {
    "grammar": schemas.GrammarData,
    "files": schemas.FilesData,
    "hub": schemas.HubData,
}
# The config groups whose presets are typed, and the schemas that the presets may extend.
GROUPS: dict[str, dict[str, type]] = {
    "model": dict(MODELS),
    "data": dict(DATA),
    "optimizer": {"optimizer": OptimizerConfig},
    "schedule": {"schedule": ScheduleConfig},
}


@dataclass(frozen=True)
class Key:
    """One key of a schema."""

    path: str
    hint: Any
    default: Any
    metadata: Mapping[str, Any]

    @property
    def meaning(self) -> str:
        """The sentence that explains the key."""
        return str(self.metadata.get("meaning", ""))

    @property
    def optional(self) -> bool:
        """Whether null is a value."""
        return type(None) in typing.get_args(self.hint)

    @property
    def type(self) -> Any:
        """The type of a value that is neither null nor the key's `word`."""
        if isinstance(self.hint, types.UnionType):
            return next(option for option in typing.get_args(self.hint) if option is not type(None))
        return self.hint

    @property
    def open(self) -> bool:
        """Whether keys below this one are the user's own: a list or a mapping."""
        return typing.get_origin(self.type) in (list, dict)

    @property
    def mapping(self) -> bool:
        """Whether the names below this key are the user's own."""
        return typing.get_origin(self.type) is dict

    def is_word(self, value: Any) -> bool:
        """Whether a value is the word that may stand in a number's place."""
        return isinstance(value, str) and value == self.metadata.get("word")

    def allowed(self) -> str:
        """What the key accepts, in words: "a whole number, at least 1, or null"."""
        choices = self.metadata.get("choices")
        bounds = [
            f"{words} {self.metadata[bound]:.9g}"
            for bound, words in (
                ("above", "above"),
                ("at_least", "at least"),
                ("below", "below"),
                ("at_most", "at most"),
            )
            if bound in self.metadata
        ]
        kind = "one of " + ", ".join(choices) if choices else _in_words(self.type)
        text = ", ".join([kind, " and ".join(bounds)]) if bounds else kind
        if "word" in self.metadata:
            text = f"{text}, or {self.metadata['word']}"
        return (f"{text}, or null" if bounds else f"{text} or null") if self.optional else text

    def violation(self, value: Any) -> bool:
        """Whether a value is of another type, outside the bounds or none of the choices."""
        if value is None:
            return not self.optional
        if self.is_word(value):
            return False
        if not _fits(self.type, value):
            return True
        tests: dict[str, Any] = {
            "choices": lambda bound: value in bound,
            "at_least": lambda bound: value >= bound,
            "above": lambda bound: value > bound,
            "below": lambda bound: value < bound,
            "at_most": lambda bound: value <= bound,
        }
        infinite = isinstance(value, float) and value in (float("inf"), float("-inf"))
        # Asking whether the test holds, and not whether it is broken, also refuses NaN.
        return infinite or not all(test(self.metadata[name]) for name, test in tests.items() if name in self.metadata)


def fields_of(schema: Any) -> Iterator[Key]:
    """The fields of one dataclass (or of an instance of one), each under its own name."""
    hints = typing.get_type_hints(schema if isinstance(schema, type) else type(schema))
    for field in dataclasses.fields(schema):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        yield Key(field.name, hints[field.name], default, field.metadata)


def keys_of(schema: type, prefix: str = "", groups: Mapping[str, type] | None = None) -> Iterator[Key]:
    """Every key below a schema under its dotted path; `groups` says which class a top-level section has."""
    for key in fields_of(schema):
        path = prefix + key.path
        section = (groups or {}).get(path, key.type)
        if dataclasses.is_dataclass(section):
            yield from keys_of(typing.cast(type, section), path + ".")
        else:
            yield dataclasses.replace(key, path=path)


@dataclass(frozen=True)
class Section:
    """Keys that are told together: of one section of the configuration, or those that one family or kind adds to it.

    path: of the section; empty for keys that are in none. variant: the family or kind; empty for what all have.
    """

    path: str
    variant: str
    schema: type
    keys: list[Key]


def sections() -> Iterator[Section]:
    """Every key of a run once, in the order of the schemas."""
    variants: dict[str, dict[str, type]] = {"model": dict(MODELS), "data": dict(DATA)}
    for field in fields_of(TrainConfig):
        if not dataclasses.is_dataclass(field.type):
            yield Section("", "", TrainConfig, [field])
            continue
        schema = typing.cast(type, field.type)
        common = list(keys_of(schema, f"{field.path}."))
        yield Section(field.path, "", schema, common)
        known = {key.path for key in common}
        for name, variant in variants.get(field.path, {}).items():
            own = [key for key in keys_of(variant, f"{field.path}.") if key.path not in known]
            yield Section(field.path, name, variant, own)


def all_keys() -> dict[str, dict[str, Key]]:
    """For each dotted path the keys of that name, by the schema of the model or data that has it; "" is every run's."""
    found: dict[str, dict[str, Key]] = {}
    for key in keys_of(TrainConfig):
        found.setdefault(key.path, {})[""] = key
    for group, options in (("model", MODELS), ("data", DATA)):
        for name, schema in options.items():
            for key in keys_of(schema, group + "."):
                if "" not in found.get(key.path, {}):
                    found.setdefault(key.path, {})[name] = key
    return found


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value is of a type; whole numbers are numbers, true and false are not."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is list:
        return isinstance(value, list) and all(_fits(arguments[0], member) for member in value)
    if typing.get_origin(hint) is dict:
        return isinstance(value, dict) and all(
            isinstance(name, str) and _fits(arguments[1], member) for name, member in value.items()
        )
    if hint in (int, float):
        return isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
    return isinstance(value, hint) and (hint is not str or is_text(value))


def _in_words(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if hint in names:
        return names[hint]
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is list:
        return f"a list of {_plural(arguments[0])}"
    if typing.get_origin(hint) is dict:
        return f"a mapping of names to {_plural(arguments[1])}"
    return "a mapping" if dataclasses.is_dataclass(hint) else str(hint)


def _plural(hint: Any) -> str:
    if dataclasses.is_dataclass(hint):
        return "{" + ", ".join(f"{key.path}: …" for key in fields_of(hint)) + "}"
    return {int: "whole numbers", float: "numbers", str: "texts"}.get(hint, "values")
