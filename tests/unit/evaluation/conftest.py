"""A comparison of five runs that are made from one small trained one: no further training is needed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from nmt.evaluation.compare import Comparison, compare_runs

Copy = Callable[..., Path]


@pytest.fixture(scope="session")
def copy_run(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """copy_run("name", {"trainer.seed": 2}, weights="step_00000150") → that run, changed."""
    folder = tmp_path_factory.mktemp("compared")

    def copy(name: str, changes: dict[str, Any] | None = None, weights: str | None = None) -> Path:
        run = Path(shutil.copytree(trained_run, folder / name, symlinks=True))
        config = yaml.safe_load((run / "config.yaml").read_text())
        for key, value in (changes or {}).items():
            section, name = key.split(".")
            config[section][name] = value
        (run / "config.yaml").write_text(yaml.safe_dump(config, explicit_end=True))
        if weights is not None:
            (run / "checkpoints" / "best").unlink()
            (run / "checkpoints" / "best").symlink_to(weights)
        return run

    return copy


@pytest.fixture(scope="session")
def comparison(copy_run: Copy) -> Comparison:
    """Rows: three seeds of one configuration, of which one is weaker; one with another search; a damaged run."""
    first = copy_run("ours-s1")
    damaged = copy_run("<b>damaged", {"model.dropout": 0.3})
    weights = damaged / "checkpoints" / "best" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    earlier = earlier_step(first)
    runs = [
        first,
        copy_run("ours-s2", {"trainer.seed": 2}, weights=earlier),
        copy_run("greedy", {"search.beam_size": 1}, weights=earlier),
        damaged,
        copy_run("ours-s3", {"trainer.seed": 3}),
    ]
    return compare_runs(runs, lambda line: None, baseline=runs[2], limits=(5, 6, 7))


def earlier_step(run: Path) -> str:
    """The name of a checkpoint that is not the best."""
    best = (run / "checkpoints" / "best").resolve().name
    names = sorted(path.name for path in (run / "checkpoints").iterdir() if path.name.startswith("step_"))
    return next(name for name in names if name != best)
