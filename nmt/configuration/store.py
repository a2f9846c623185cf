"""Where configs come from: the schemas in Hydra's ConfigStore and the presets in the YAML files of `configs/`."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from nmt.config import TrainConfig
from nmt.configuration.schema import GROUPS

CONFIG_NAME = "train"
VERSION_BASE = "1.3"


def config_directory() -> Path:
    """The folder of `train.yaml` and the groups: inside an installed package, else at the top of the checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "configs"
    return installed if (installed / f"{CONFIG_NAME}.yaml").is_file() else package.parent / "configs"


@functools.cache
def register_schemas() -> None:
    """Make the schemas known to Hydra, as `base_train` and as `base_NAME` in each typed group."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    store.store(name="base_train", node=TrainConfig)
    for group, options in GROUPS.items():
        for name, schema in options.items():
            store.store(group=group, name=f"base_{name}", node=schema)


def options_of(group: str, *extra: Path) -> dict[str, str]:
    """The presets of a group and, of each, the sentence that its file begins with."""
    found: dict[str, str] = {}
    for folder in (*extra, config_directory()):
        for path in sorted((folder / group).glob("*.yaml")):
            if path.stem not in found:
                found[path.stem] = _description(path)
    return dict(sorted(found.items()))


def groups() -> list[str]:
    """The config groups that an override can choose from."""
    return [*GROUPS, "experiment"]


def _description(path: Path) -> str:
    """The first sentence of the comment at the top of a file."""
    words: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.removeprefix("#").strip()
        if not line.startswith("#") or (words and not text):
            break
        if not text.startswith("@package"):
            words += text.split()
    sentence = re.split(r"\.\s(?=[A-Z])", " ".join(words))[0]  # not at "et al. 2017"
    return sentence.removesuffix(".")
