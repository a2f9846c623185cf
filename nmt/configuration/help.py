"""The text of `nmt train --help`, made from the schemas and the presets, so that it lists what there is."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path

from nmt.configuration.checks import shown
from nmt.configuration.schema import Key, sections
from nmt.configuration.store import groups, options_of

WIDTH = 100

_HEAD = """\
usage: nmt train [OPTION ...] [KEY=VALUE ...]

Train a model. Each KEY=VALUE overrides one key of the configuration or chooses a preset of a group:

    nmt train
    nmt train model=transformer data=grammar optimizer.lr=1e-3 trainer.max_minutes=40
    nmt train -m model=lstm,bahdanau,luong,transformer trainer.seed=1,2,3

A value with accents, commas, spaces at its ends, or any of = ; & # ! is quoted, twice because of
the shell: 'run.notes="première, à 8 têtes"'. A relative path starts in the current folder.

Options:
  -m, --multirun           one run for each combination of the values that commas separate; at once,
                           on SLURM or chosen by Optuna: see hydra/launcher= and hydra/sweeper=
  -c, --cfg {job,hydra,all}
                           print the configuration instead of training
      --resolve            with --cfg: references such as ${model.name} are replaced
  -p, --package KEY        with --cfg: only this section
  -i, --info [WHAT]        print how Hydra composes: defaults, defaults-tree, searchpath, plugins, …
  -cd, --config-dir DIR    a further folder of presets, laid out as DIR/model/NAME.yaml
      --hydra-help         Hydra's own options
  -h, --help               this text
"""


def train_help(config_dir: Path | None = None) -> str:
    """The whole help text, at most 100 columns wide."""
    return "\n".join([_HEAD, *_preset_lines(config_dir), "", *_key_lines()])


def _preset_lines(config_dir: Path | None) -> Iterator[str]:
    yield "Presets:"
    extra = [config_dir] if config_dir else []
    options = {group: options_of(group, *extra) for group in (*groups(), "hydra/launcher", "hydra/sweeper")}
    width = max((len(name) for names in options.values() for name in names), default=0) + 2
    for group, names in options.items():
        if names:
            yield f"  {group}="
        for name, description in names.items():
            yield from textwrap.wrap(
                description, WIDTH, initial_indent=f"    {name:{width}}", subsequent_indent=" " * (width + 4)
            ) or [f"    {name}"]


def _key_lines() -> Iterator[str]:
    yield "Keys, each with its default, what it allows and what it means:"
    for section in sections():
        yield ""
        if section.path:
            title = f"{section.path}={section.variant}" if section.variant else section.path
            summary = (inspect.getdoc(section.schema) or "").split("\n\n")[0]
            yield from textwrap.wrap(f"{title} — {summary}", WIDTH)
        for key in section.keys:
            yield from _key_text(key)


def _key_text(key: Key) -> Iterator[str]:
    yield f"  {key.path}{_default(key)}"
    yield from textwrap.wrap(
        f"{key.allowed()}: {key.meaning}", WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
    )


def _default(key: Key) -> str:
    if key.default == "???" or key.default is dataclasses.MISSING:
        return " (from the preset)"
    return f"={shown(key.default)}" if key.default != "" else '=""'
