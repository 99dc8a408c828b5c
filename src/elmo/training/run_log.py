"""What a run logs: `metrics.jsonl`, `speed.jsonl`, a progress bar, TensorBoard, a loss curve.

`metrics.jsonl` holds nothing that depends on the clock: an interrupted and resumed run writes the
same bytes as an uninterrupted one. Times are in `speed.jsonl`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from elmo.errors import MissingExtraError
from elmo.runtime.metrics_file import METRICS_FILE, MetricsFile, Row
from elmo.training.settings import TrainSettings
from elmo.training.snapshots import Progress

SPEED_FILE = "speed.jsonl"


class RunLog:
    """Logs a run; of several processes only the first one does.

    Args:
        out: The folder of the run.
        settings: The settings.
        progress: How far the run has come.
        done: The same as a fraction of the run.
        is_first: Whether this is the first process.
    """

    def __init__(
        self, out: Path, settings: TrainSettings, progress: Progress, done: float, *, is_first: bool
    ) -> None:
        unit, amount = settings.length
        self._amount = amount
        self._bar = tqdm(
            total=amount,
            initial=done * amount,
            disable=settings.quiet or not is_first,
            bar_format="{percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}",
            unit=unit,
        )
        self._last = (time.monotonic(), progress.tokens)
        """Time and tokens of the last row."""
        self._files: list[MetricsFile] = []
        self._events: Any = None
        if not is_first:
            return
        speed = out / SPEED_FILE
        speed_bytes = speed.stat().st_size if speed.exists() else 0
        lengths = {out / METRICS_FILE: progress.metrics_bytes, speed: speed_bytes}
        self._files = [MetricsFile(path, length) for path, length in lengths.items()]
        if settings.tensorboard:
            self._events = summary_writer()(str(out / "tensorboard"))

    @property
    def length(self) -> int:
        """Bytes of `metrics.jsonl`, all of them flushed to disk."""
        return self._files[0].length

    def row(self, split: str, progress: Progress, values: Row) -> None:
        """Write a row of metrics.

        Args:
            split: `train` or `heldout`.
            progress: How far the run has come.
            values: What was measured.
        """
        place = {"step": progress.step, "tokens": progress.tokens, "epoch": progress.epoch}
        if self._files:
            self._files[0].write({"split": split, **place, **values})
        if self._events is not None:
            for key, value in {**place, **values}.items():
                if key != "step":
                    self._events.add_scalar(f"{split}/{key}", value, progress.step)

    def advance(
        self, progress: Progress, done: float, epoch: float, loss: float, rate: float
    ) -> None:
        """Show how far the run has come, and log how fast it was since the last time.

        Args:
            progress: The same in numbers.
            done: The same as a fraction of the run.
            epoch: The same in passes over the corpus.
            loss: Mean training loss since the last time.
            rate: Learning rate.
        """
        now, (before, tokens_before) = time.monotonic(), self._last
        speed = (progress.tokens - tokens_before) / max(1e-9, now - before)
        self._last = (now, progress.tokens)
        if self._files:
            row = {"step": progress.step, "seconds": progress.seconds, "tokens_per_second": speed}
            self._files[1].write(row)
        self._bar.set_postfix_str(
            f"step {progress.step:,}, epoch {epoch:.2f}, {progress.tokens:,} tokens, "
            f"loss {loss:.3f}, learning rate {rate:.2g}, {speed:,.0f} tokens/s",
            refresh=False,
        )
        self._bar.update(max(0.0, min(1.0, done) * self._amount - self._bar.n))
        self._bar.refresh()

    def say(self, text: str) -> None:
        """Write a line above the progress bar."""
        if not self._bar.disable:
            self._bar.write(text, file=self._bar.fp)

    def close(self) -> None:
        """Close all files."""
        self._bar.close()
        for file in (*self._files, *([self._events] if self._events else [])):
            file.close()


def summary_writer() -> Any:
    """Return the class that writes TensorBoard events; raise if it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtraError("--tensorboard", "tensorboard") from None
    return SummaryWriter


def draw_curve(rows: Iterable[Row], path: Path) -> bool:
    """Draw training and held-out perplexity over tokens.

    Returns:
        False where matplotlib is not installed, or the picture cannot be written.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import EngFormatter, LogLocator
    except ImportError:
        return False
    rows = list(rows)
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    train = [row for row in rows if row["split"] == "train"]
    heldout = [row for row in rows if row["split"] == "heldout"]
    if train:
        tokens = [row["tokens"] for row in train]
        perplexity = [math.exp(min(700, row["loss"])) for row in train]
        axes.plot(tokens, perplexity, color="0.6", linewidth=1, label="training")
    for direction in ("forward", "backward") if heldout else ():
        tokens = [row["tokens"] for row in heldout]
        perplexity = [row[f"perplexity_{direction}"] for row in heldout]
        axes.plot(tokens, perplexity, marker="o", markersize=3, label=f"held-out, {direction}")
    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 1.2M, not 1.2 and 1e6 in a corner
    for formatted in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        formatted(EngFormatter(sep=""))
    axes.set_xlabel("tokens")
    axes.set_ylabel("perplexity")
    axes.grid(visible=True, which="both", alpha=0.3)
    if train or heldout:
        axes.legend()
    try:
        figure.savefig(path, dpi=150)
    except OSError:  # a full disk: everything that matters is saved already
        return False
    return True
