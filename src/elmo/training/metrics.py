"""What a run says about itself: `metrics.jsonl`, a line of progress, TensorBoard, a picture.

`metrics.jsonl` has nothing in it that depends on the clock: an interrupted and resumed run writes
the same bytes as an uninterrupted one. Times are in `speed.jsonl`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from tqdm import tqdm

from elmo.errors import MissingExtraError
from elmo.runtime.metrics_file import Row

SPEED_FILE = "speed.jsonl"


def require_tensorboard() -> None:
    """Fail if TensorBoard's events cannot be written, before anything else is."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise MissingExtraError("--tensorboard", "tensorboard") from None


class TensorBoard:
    """Writes numbers as TensorBoard events.

    Args:
        folder: Where to.
    """

    def __init__(self, folder: Path) -> None:
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def write(self, row: Row) -> None:
        """Write the numbers of a row."""
        split = row.get("split", "train")
        for key, value in row.items():
            if key not in ("step", "split") and isinstance(value, int | float):
                self._writer.add_scalar(f"{split}/{key}", value, row["step"])

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class ProgressLine:
    """One line that tells where the run is, with loss, perplexity, speed and the time left.

    Args:
        quiet: Show nothing.
        done: Share of the run that is done already.
    """

    def __init__(self, quiet: bool, done: float) -> None:
        self._bar = tqdm(
            total=1000,
            initial=int(1000 * done),
            disable=quiet,
            bar_format="{percentage:3.0f}%|{bar:20}| {elapsed}<{remaining}{postfix}",
        )

    def update(self, done: float, step: int, loss: float, tokens_per_second: float) -> None:
        """Show the latest numbers."""
        text = f"step {step:,}, loss {loss:.3f}, ppl {perplexity(loss):,.1f}"
        self._bar.set_postfix_str(f"{text}, {tokens_per_second:,.0f} words/s", refresh=False)
        self._bar.update(max(0, min(1000, round(1000 * done)) - self._bar.n))
        self._bar.refresh()

    def say(self, text: str) -> None:
        """Write a line above the bar."""
        if not self._bar.disable:
            tqdm.write(text, file=self._bar.fp)

    def close(self) -> None:
        """Leave the line as it is."""
        self._bar.close()


def perplexity(loss: float) -> float:
    """Give exp(loss), infinite where it is too large to be told."""
    return math.exp(loss) if loss < 700 else math.inf


def draw_curve(rows: Iterable[Row], path: Path) -> bool:
    """Draw training and held-out perplexity over words read.

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
        axes.plot(
            [row["tokens"] for row in train],
            [perplexity(row["loss"]) for row in train],
            color="0.6",
            linewidth=1,
            label="training",
        )
    for key, label in (
        ("ppl_forward", "held-out, forward"),
        ("ppl_backward", "held-out, backward"),
    ):
        if heldout:
            places, values = [row["tokens"] for row in heldout], [row[key] for row in heldout]
            axes.plot(places, values, marker="o", markersize=3, label=label)
    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 1.2M, not 1.2 and 1e6 in a corner
    for formatted in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        formatted(EngFormatter(sep=""))
    axes.set_xlabel("words read")
    axes.set_ylabel("perplexity")
    axes.grid(visible=True, which="both", alpha=0.3)
    if train or heldout:
        axes.legend()
    try:
        figure.savefig(path, dpi=150)
    except OSError:  # a full disk: everything that matters is saved already
        return False
    return True
