"""The mean of several checkpoints' weights (Vaswani et al. 2017, section 6.1, average the last 5 or 20)."""

from __future__ import annotations

from pathlib import Path

import torch

from nmt.configuration import load_config
from nmt.data.tokenizer import Tokenizer
from nmt.errors import RequestError
from nmt.files import require_writable
from nmt.training.checkpoint import CONFIG, Checkpoint, step_directories, write_checkpoint
from nmt.training.store import require_own_files


def average_checkpoints(run: Path, last: int) -> tuple[Path, list[Path]]:
    """Writes checkpoints/average_last_N of a run, a checkpoint to translate with.

    Returns:
        the new directory and the checkpoints it was made of.

    Raises:
        RequestError: fewer checkpoints than asked for, or checkpoints of different models or tokenizers.
    """
    if not run.exists():
        raise RequestError(f"{run}: no such run directory")
    require_own_files(run)
    found = step_directories(run / "checkpoints")
    if len(found) < last:
        raise RequestError(
            f"{run} has {len(found)} checkpoints, {last} were asked for; a run keeps trainer.keep_last of them"
        )
    directory = run / "checkpoints" / f"average_last_{last}"
    require_writable(directory, directory=True)
    used = found[-last:]
    checkpoints = [Checkpoint.open(directory) for directory in used]
    first = checkpoints[0]
    tokenizer = Tokenizer.load(first.directory)
    config = load_config(first.directory / CONFIG)
    for other in checkpoints[1:]:
        if Tokenizer.load(other.directory).identity != tokenizer.identity:
            raise RequestError(f"{other.directory} has another tokenizer than {first.directory}")
        if load_config(other.directory / CONFIG).model != config.model:
            raise RequestError(f"{other.directory} is another model than {first.directory}")
    # Sums in float64, so that the mean of equal weights is those weights to the bit.
    sums = {name: weight.to(torch.float64) for name, weight in first.weights().items()}
    for other in checkpoints[1:]:
        for name, weight in other.weights().items():
            sums[name] += weight
    mean = {name: (total / last).to(torch.float32) for name, total in sums.items()}
    meta = {**checkpoints[-1].meta, "average_of": [path.name for path in used], "valid": None}
    write_checkpoint(directory, mean, None, config, tokenizer, meta)
    return directory, used
