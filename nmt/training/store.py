"""A run directory as training sees it: where its checkpoints go, and what it continues from."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt.config import TrainConfig
from nmt.configuration import load_config
from nmt.data.tokenizer import Tokenizer
from nmt.errors import RequestError, WorkError
from nmt.files import remove_leftovers
from nmt.training.checkpoint import (
    BEST,
    CONFIG,
    LAST,
    Checkpoint,
    point,
    prune,
    remove_temporary_links,
    require_facts,
    save_checkpoint,
    step_directories,
)

OWN_FOLDERS = ("checkpoints", "hypotheses", "tensorboard")
OWN_FILES = ("config.yaml", "*.model", "metrics.jsonl", "results.json", "report.html", "README.md", "hypotheses/*")
"""What training and scoring write into a run directory, besides checkpoints and TensorBoard's files."""


def require_own_files(run: Path) -> None:
    """Raises RequestError where what would be written into a run directory is something else than it should be.

    A link to somewhere else: a run directory that comes from elsewhere could have any file of this machine overwritten.
    A pipe, which would be waited for, or a folder in place of a file: better now than when hours of work are done.
    """
    own = run.resolve()
    for pattern in (*OWN_FOLDERS, "checkpoints/*", "tensorboard/*", *OWN_FILES):
        for path in sorted(run.glob(pattern)):
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(own):
                raise RequestError(
                    f"{path} is a link that leads out of the run directory, and nothing is written through it; "
                    "link the run directory as a whole instead"
                )
            if path.exists() and pattern in OWN_FOLDERS and not path.is_dir():
                raise RequestError(f"{path} is no folder, though a run directory has one of that name; remove it")
            if path.exists() and pattern in OWN_FILES and not path.is_file():
                raise RequestError(f"{path} is no regular file, though a run directory has one of that name; remove it")


class RunStore:
    """The checkpoints of one run.

    Args:
        run: the run directory.
        facts: what each checkpoint's meta.json also says: data identity, parameters, versions.
        keep_last: latest checkpoints that are kept, besides the best.
    """

    def __init__(self, run: Path, facts: dict[str, Any], keep_last: int) -> None:
        self.checkpoints = run / "checkpoints"
        self.facts = facts
        self.keep_last = keep_last

    def save(
        self,
        config: TrainConfig,
        tokenizer: Tokenizer,
        weights: dict[str, Tensor],
        state: dict[str, Any],
        progress: dict[str, Any],
        metrics: dict[str, float] | None,
        best: bool,
    ) -> None:
        """Saves a checkpoint, points `last` and, where it is the best so far, `best` to it, and removes old ones."""
        meta = {**progress, "valid": metrics, **self.facts}
        directory = save_checkpoint(self.checkpoints, weights, state, config, tokenizer, meta)
        if best:
            point(self.checkpoints, BEST, directory.name)
        prune(self.checkpoints, self.keep_last)

    def latest(self, report: Callable[[str], None]) -> Checkpoint | None:
        """The latest checkpoint that is whole; a damaged one is named and passed over.

        `last` and `best` are pointed to what they were when it was saved: a crash may have come in between.

        Raises:
            RequestError: a checkpoint of another format.
            WorkError: there are checkpoints, and all are damaged.
        """
        damaged: WorkError | None = None
        for directory in reversed(step_directories(self.checkpoints)):
            try:
                checkpoint = Checkpoint.open(directory)
                require_facts(checkpoint.meta, directory, "validated_step", "best_step", "data")
            except WorkError as error:
                damaged = error
                report(f"{error}; trying the one before")
                continue
            point(self.checkpoints, LAST, directory.name)
            best = self.checkpoints / f"step_{checkpoint.meta['best_step']:08d}"
            if best.is_dir():
                point(self.checkpoints, BEST, best.name)
            return checkpoint
        if damaged is not None:
            raise damaged
        return None

    def tidy(self) -> None:
        """Removes what a killed process left: half-written checkpoints and links, and what it had not pruned.

        The last by the number that it was given, not by that of today: one who looks at a finished run loses nothing.
        """
        if not self.checkpoints.is_dir():
            return
        remove_leftovers(self.checkpoints)
        remove_temporary_links(self.checkpoints)
        config = self.checkpoints / LAST / CONFIG
        if config.is_file():
            prune(self.checkpoints, load_config(config).trainer.keep_last)
