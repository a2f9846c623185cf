"""TensorBoard's view of a run: curves, sample translations, attention pictures, and the configuration with its scores.

The event writer is imported and opened at the first thing to write, so that a run that ends in a wrong request has
cost nothing. Text from the corpus is shown as it is: whatever Markdown or HTML would read into it is escaped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.evaluation.alignment import Alignment, alignment_pixels
from nmt.evaluation.lengths import OF_LENGTH
from nmt.training.console import one_line

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

MARKDOWN_SPECIAL = re.compile(r"[\\`*_{}\[\]()<>#+\-!|&~$]")
NO_CURVES = ("steps",)  # how many steps a record is of: the same number but for a few
LENGTHS = "_by_length"
LAYOUT = {
    "The run at a glance": {
        "BLEU and chrF in validation": ["Multiline", ["valid/bleu", "valid/chrf"]],
        "perplexity, training and validation": ["Multiline", ["train/perplexity", "valid/perplexity"]],
        "BLEU in validation by words of the source": ["Multiline", [f"valid{LENGTHS}/.*"]],
        "loss (training with label smoothing)": ["Multiline", ["train/loss", "valid/loss"]],
        "learning rate": ["Multiline", ["train/lr"]],
        "gradient norm before clipping": ["Multiline", ["train/gradient_norm"]],
        "target tokens a second": ["Multiline", ["train/target_tokens_per_s"]],
        "share of padding": ["Multiline", ["train/padding_share"]],
    }
}
"""TensorBoard's page "Custom Scalars": what tells of a run first."""


class Board:
    """One run's event files.

    Every method may raise OSError, also for what an earlier call gave it to write: the writer is a thread of its own.

    Args:
        directory: where they go.
        resumed_step: step that the run continues from; what the event files of the interrupted run say about later
            steps is not shown.
    """

    def __init__(self, directory: Path, resumed_step: int = 0) -> None:
        self._directory = directory
        self._first_step = resumed_step + 1 if resumed_step else 0
        self._opened: SummaryWriter | None = None

    def scalars(self, group: str, values: Mapping[str, float | int | None], step: int) -> None:
        """One point on each curve `group/name`; a value of None, which was no number, leaves a gap."""
        for name, value in values.items():
            if value is not None and name not in NO_CURVES:
                self._writer.add_scalar(f"{group}{LENGTHS * name.startswith(OF_LENGTH)}/{name}", value, step)

    def sample(self, index: int, source: str, hypothesis: str, reference: str, step: int) -> None:
        """A translation with its source and reference."""
        titled = {"source": source, "hypothesis": hypothesis, "reference": reference}
        text = "\n\n".join(f"**{title}**: {escape_markdown(text)}" for title, text in titled.items())
        self._writer.add_text(f"sample/{index}", text, step)

    def alignment(self, index: int, alignment: Alignment, step: int) -> None:
        """The picture of an alignment; one without words has none."""
        if alignment.source_tokens and alignment.target_tokens:
            self._writer.add_image(f"alignment/{index}", alignment_pixels(alignment), step, dataformats="HWC")

    def text(self, name: str, text: str) -> None:
        """A text of several lines, as it is."""
        block = "\n".join(f"    {one_line(line)}" for line in text.split("\n"))
        self._writer.add_text(name, block, self._first_step)

    def results(
        self, settings: Mapping[str, bool | int | float | str], scores: Mapping[str, float | int | None], step: int
    ) -> None:
        """The final scores with the settings that led to them, for TensorBoard's table of runs."""
        named = {name: str(value).lower() if isinstance(value, bool) else value for name, value in settings.items()}
        # SummaryWriter.add_hparams would open a second run in a folder of its own; these are the same records.
        from torch.utils.tensorboard.summary import hparams

        file_writer = self._writer._get_file_writer()
        for summary in hparams(named, dict(scores)):
            file_writer.add_summary(summary)
        for name, value in scores.items():
            self._writer.add_scalar(name, value, step)
        self.flush()

    def flush(self) -> None:
        """Makes what was written so far visible."""
        if self._opened is not None:
            self._opened.flush()

    def close(self) -> None:
        """Closes the event file; a second call does nothing."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def _writer(self) -> SummaryWriter:
        if self._opened is None:
            # Where TensorFlow is installed the event writer imports it, and it greets at length.
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
            from torch.utils.tensorboard import SummaryWriter

            self._opened = SummaryWriter(str(self._directory), purge_step=self._first_step)
            self._opened.add_custom_scalars(LAYOUT)
        return self._opened


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return MARKDOWN_SPECIAL.sub(lambda match: f"&#{ord(match.group())};", one_line(text))
