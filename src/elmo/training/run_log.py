"""Everything that a run tells while it goes on: files, TensorBoard, a line on the screen."""

from __future__ import annotations

import time
from pathlib import Path

from elmo.runtime.metrics_file import METRICS_FILE, MetricsFile, Row
from elmo.training.metrics import SPEED_FILE, ProgressLine, TensorBoard
from elmo.training.settings import TrainSettings
from elmo.training.snapshots import Progress


class Record:
    """Writes down how a run goes; one process of many does, the others keep silent.

    Args:
        out: The folder of the run.
        is_writer: Whether this process writes.
        settings: The settings.
        progress: How far the run has come.
        done: The same as a share of the run.
    """

    def __init__(
        self,
        out: Path,
        *,
        is_writer: bool,
        settings: TrainSettings,
        progress: Progress,
        done: float,
    ) -> None:
        self._line = ProgressLine(settings.quiet or not is_writer, done)
        self._clock = (time.monotonic(), progress.tokens)
        self._files: list[MetricsFile | TensorBoard] = []
        self._speed: MetricsFile | None = None
        if not is_writer:
            return
        self._metrics = MetricsFile(out / METRICS_FILE, progress.metrics_bytes)
        self._files.append(self._metrics)
        speed = out / SPEED_FILE
        self._speed = MetricsFile(speed, speed.stat().st_size if speed.exists() else 0)
        if settings.tensorboard:
            self._files.append(TensorBoard(out / "tensorboard"))

    @property
    def length(self) -> int:
        """Bytes of `metrics.jsonl`, all of them on the disk."""
        return self._metrics.length

    def row(self, row: Row) -> None:
        """Write a row of metrics."""
        for file in self._files:
            file.write(row)

    def advance(self, progress: Progress, done: float, loss: float) -> None:
        """Show how far the run has come, and how fast it was since the last time."""
        now = time.monotonic()
        speed = (progress.tokens - self._clock[1]) / max(1e-9, now - self._clock[0])
        self._clock = (now, progress.tokens)
        if self._speed is not None:
            told = {"step": progress.step, "seconds": progress.seconds, "words_per_second": speed}
            self._speed.write(told)
        self._line.update(done, progress.step, loss, speed)

    def say(self, text: str) -> None:
        """Tell people something."""
        self._line.say(text)

    def close(self) -> None:
        """Close all files."""
        self._line.close()
        for file in (*self._files, *([self._speed] if self._speed else [])):
            file.close()
