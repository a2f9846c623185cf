"""COMET (Rei et al. 2020), a trained metric, by its own command in an environment of its own.

Its package, unbabel-comet up to 2.2.7, takes NumPy below 2, and this one 2 and above: no environment has both. So what
they share is files, which the command `comet-score` reads and writes.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.errors import RequestError, WorkError

COMMAND = "comet-score"


@dataclass(frozen=True)
class Comet:
    """A COMET model, and the command that computes with it."""

    model: str
    """A checkpoint, FILE.ckpt with its hparams.yaml, or a name on the Hugging Face Hub."""
    command: str

    @classmethod
    def find(cls, model: str) -> Comet:
        """Looks for the command on the path and beside this Python. Raises RequestError for what is not there."""
        if model.endswith(".ckpt") and not Path(model).is_file():
            raise RequestError(f"--comet {model}: there is no such checkpoint")
        command = shutil.which(COMMAND) or shutil.which(COMMAND, path=str(Path(sys.executable).parent))
        if command is None:
            raise RequestError(
                f"--comet needs the command {COMMAND}, which is not found; it comes with unbabel-comet, which needs an "
                "environment of its own: uv tool install unbabel-comet, or pipx install unbabel-comet"
            )
        return cls(model, command)

    def score(self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> float:
        """The mean over the sentences, of most models between 0 and 1.

        Args:
            sources, hypotheses, references: as many of each; a model that needs no references ignores them.

        Raises:
            WorkError: what the command said last, or that its scores are not those of the sentences.
        """
        with tempfile.TemporaryDirectory() as folder:
            options = [f"--model={self.model}", "--quiet", "--only_system", f"--to_json={folder}/scores.json"]
            for option, lines in (("-s", sources), ("-t", hypotheses), ("-r", references)):
                file = Path(folder) / f"lines{option}"
                # The command ends lines at CR as well.
                file.write_text("".join(line.replace("\r", " ") + "\n" for line in lines), encoding="utf-8")
                options += [option, str(file)]
            done = subprocess.run(
                [self.command, *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            if done.returncode:
                said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["nothing"]
                raise WorkError(f"{COMMAND} --model={self.model} ended with status {done.returncode}: {said[-1]}")
            scores = _scores(Path(folder) / "scores.json")
        if len(scores) != len(hypotheses) or not all(map(math.isfinite, scores)):
            raise WorkError(f"{COMMAND} --model={self.model} has not given each of {len(hypotheses)} sentences a score")
        return math.fsum(scores) / len(scores)


def _scores(path: Path) -> list[float]:
    """Of {FILE: [{"COMET": score, …}, …]}; none where the file is another one."""
    try:
        [sentences] = json.loads(path.read_bytes()).values()
        return [float(sentence["COMET"]) for sentence in sentences]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []
