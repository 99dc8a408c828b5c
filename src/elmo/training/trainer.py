"""The training loop: read, step, measure and save, until the run has its length."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import torch

from elmo.backends.gpu.kernels.gpu import reason_against_triton
from elmo.errors import (
    ConfigError,
    DivergedError,
    GpuMemoryError,
    MissingFileError,
    OutputExistsError,
)
from elmo.hub.names import open_model
from elmo.model.bilm import State
from elmo.model.cells import cell_class
from elmo.model.perplexity import Perplexity
from elmo.runtime.files import LOCK_FILE, lock_output, output_errors, write_text
from elmo.runtime.interrupts import stop_signals
from elmo.runtime.metrics_file import CURVE_FILE, METRICS_FILE, read_metrics
from elmo.runtime.optimizer_state import optimizer_tensors, restore_optimizer
from elmo.runtime.tables import counted
from elmo.training.build import batch_rows, build_model, model_ids, to_checkpoint
from elmo.training.corpus.shards import Corpus
from elmo.training.gradients import Gradients
from elmo.training.heldout import heldout_streams
from elmo.training.language_model import measure
from elmo.training.optimizers import hyperparameters, make_optimizer, set_rate
from elmo.training.processes import Processes, join_processes
from elmo.training.run_log import RunLog, draw_curve, summary_writer
from elmo.training.settings import TrainSettings
from elmo.training.snapshots import (
    Progress,
    Snapshot,
    load_snapshot,
    newest_snapshot,
    save_snapshot,
)
from elmo.training.streams import Batch, Position, Streams, prefetched
from elmo.weights.formats import save_checkpoint

RUN_FILE = "run.json"
BEST, LAST = "best", "last"
_LOADERS = max(1, min(4, (os.cpu_count() or 1) - 1))
"""Threads that prepare batches for a GPU."""


@dataclass(frozen=True, kw_only=True)
class TrainReport:
    """The result of a run."""

    out: Path
    progress: Progress
    finished: bool
    """False if it was interrupted and can be resumed."""
    loss: float
    """Mean training loss since the last row of metrics."""
    tokens_per_second: float
    curve: Path | None
    is_first: bool = True
    """Whether this is the first process, which writes messages and knows what was measured."""

    @property
    def best(self) -> Path:
        """The folder of the model with the lowest held-out perplexity."""
        return self.out / BEST

    def __str__(self) -> str:
        progress = self.progress
        # Nothing was trained where a run that is finished was resumed.
        loss = "" if math.isnan(self.loss) else f", training loss {self.loss:.3f}"
        lines = [
            f"{self.out}: step {progress.step:,}, {counted(progress.tokens, 'token')} in "
            f"{progress.seconds:,.0f} s, {self.tokens_per_second:,.0f} tokens/s{loss}"
        ]
        if not self.finished:
            lines.append(f"interrupted and saved: elmo train --resume {self.out} continues")
        elif progress.best_perplexity is not None:
            lines.append(
                f"best held-out perplexity {progress.best_perplexity:,.2f} (geometric mean of both "
                f"directions) at step {progress.best_step:,}: {self.best}"
            )
        return "\n".join(lines)

    def _repr_png_(self) -> bytes | None:
        """Return the loss curve for a notebook."""
        return None if self.curve is None else self.curve.read_bytes()

    def _repr_html_(self) -> str:
        """Return the summary and the loss curve for a notebook."""
        picture = self._repr_png_()
        if picture is None:
            return f"<pre>{escape(str(self))}</pre>"
        data = base64.b64encode(picture).decode()
        return f'<pre>{escape(str(self))}</pre><img src="data:image/png;base64,{data}">'


def train(settings: TrainSettings | None = None, **changes: Any) -> TrainReport:
    """Train a biLM, or resume a run.

        elmo.train(data="data", out="run", preset="tutorial", minutes=15)

    Ctrl-C, and in a notebook the interruption of its kernel, ends the run after a step with a
    checkpoint. Under `torchrun` every process calls this; the first one writes.

    Args:
        settings: How; with `resume`, all but the length comes from the run's folder.
        **changes: Fields of `TrainSettings`, over those of `settings`.
    """
    settings = _complete((settings or TrainSettings()).replace(**changes))
    with (
        join_processes(settings.device) as processes,
        _memory_errors(settings),
        _locked_folder(settings, processes),
        _Run(settings, processes) as run,
    ):
        return run.fit()


@contextmanager
def _memory_errors(settings: TrainSettings) -> Iterator[None]:
    """Raise an error that says what to change if the GPU has too little memory."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise GpuMemoryError(
            f"the GPU has too little memory for steps of {batch_rows(settings):,} streams of "
            f"{settings.unroll_steps} tokens ({str(error).splitlines()[0]}); choose a smaller "
            "--batch-size, and a larger --grad-accumulation to keep the tokens of a step, or "
            "a smaller model"
        ) from None


@contextmanager
def _locked_folder(settings: TrainSettings, processes: Processes) -> Iterator[None]:
    """Lock the run's folder; of several processes of a run, the first one does."""
    assert settings.out is not None
    if not processes.is_first:
        yield
        return
    was_there = settings.out.is_dir()
    with output_errors(settings.out):
        settings.out.mkdir(parents=True, exist_ok=True)
        lock = lock_output(settings.out, settings.out)
    try:
        yield
    finally:
        with suppress(OSError):
            (settings.out / LOCK_FILE).unlink()
        lock.release()
        if not was_there:
            with suppress(OSError):  # something is in it
                settings.out.rmdir()


def _complete(settings: TrainSettings) -> TrainSettings:
    if settings.cell is not None:
        cell_class(settings.cell)  # an unknown one is refused before anything is written
    if settings.tensorboard:
        summary_writer()  # a missing extra is reported before anything is written
    if settings.resume is not None:
        path = settings.resume / RUN_FILE
        if not path.is_file():
            raise MissingFileError(f"{settings.resume} is not the folder of a run: no {RUN_FILE}")
        saved = TrainSettings.from_dict(json.loads(path.read_text("utf-8")), str(path))
        return settings.resumed(saved).replace(out=settings.resume)
    if settings.data is None or settings.out is None:
        raise ConfigError("a run needs --data, a folder that elmo prepare wrote, and --out")
    if settings.out.resolve() == settings.data.resolve():
        raise ConfigError(
            f"--out is {settings.out}, the folder of --data: choose another folder for the run"
        )
    if (settings.out / RUN_FILE).exists():
        raise OutputExistsError(
            f"{settings.out} holds a run already: resume it with --resume {settings.out}, or "
            "choose another folder"
        )
    return settings


class _Run:
    """A run in progress."""

    def __init__(self, settings: TrainSettings, processes: Processes) -> None:
        self.settings, self.processes = settings, processes
        assert settings.data is not None
        assert settings.out is not None
        self.out = settings.out
        self.corpus = Corpus.open(settings.data)
        built = build_model(settings, self.corpus.vocabulary)
        self.notes, self.frozen_share = built.notes, built.frozen_share
        self.model = built.model.to(processes.device)
        self.rows = batch_rows(settings)
        self.hyperparameters = hyperparameters(settings, self.rows)
        rate = self.hyperparameters.learning_rate
        self.optimizer = make_optimizer(self.model, settings, rate)
        self.streams = self._make_streams()
        self.heldout = heldout_streams(self.corpus, self.model, settings.unroll_steps)
        if self.heldout is None:
            self.notes.append("the corpus has no held-out text: nothing can be measured")
        self.progress = Progress()
        own_rows = self.rows // processes.world
        self.gradients = Gradients(
            self.model, self.optimizer, self.hyperparameters, settings, processes, own_rows
        )
        if settings.resume is not None:
            self._restore()
        self._begin()

    # --- set-up -------------------------------------------------------------------------

    def _make_streams(self) -> Streams:
        settings = self.settings
        n_documents = sum(len(shard.document_starts) - 1 for shard in self.corpus.train)
        if settings.shuffle == "documents" and n_documents < self.rows:
            self.notes.append(
                f"the corpus has {n_documents:,} documents for {self.rows:,} streams, so that its "
                "order hardly changes from epoch to epoch; --shuffle sentences would"
            )
        return Streams(
            self.corpus.train,
            self.corpus.vocabulary,
            model_ids(self.model, self.corpus.vocabulary),
            rows=self.rows,
            unroll=settings.unroll_steps,
            shuffle=settings.shuffle,
            reset_prob=settings.state_reset_prob,
            seed=settings.seed,
            rank=self.processes.rank,
            world=self.processes.world,
        )

    def _begin(self) -> None:
        """Open the log; only the first process writes."""
        self.started = time.monotonic() - self.progress.seconds
        is_first = self.processes.is_first
        if is_first:
            saved = self.settings.replace(resume=None).to_dict()
            write_text(self.out / RUN_FILE, json.dumps(saved, indent=2) + "\n")
        self.log = RunLog(self.out, self.settings, self.progress, self._done(), is_first=is_first)
        reason = reason_against_triton(self.processes.device)
        if self.processes.device.type == "cuda" and self.settings.kernels == "auto" and reason:
            self.notes.append(f"{reason}: training uses PyTorch's operators, which are slower")
        for note in self.notes:
            self.log.say(f"note: {note}")

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()
        self.gradients.close()

    # --- the loop ---------------------------------------------------------------------------------

    def fit(self) -> TrainReport:
        """Train until the end."""
        settings = self.settings
        self.model.train()
        finished = True
        with stop_signals() as stop, self._batches() as batches:
            self.gradients.set_phase(self._head_only())
            if self.progress.step == 0 and settings.init_from is not None:
                self._validate()  # the model before
            while self._done() < 1 and not 0 < settings.patience <= self.progress.n_worse:
                self._step(batches)
                step = self.progress.step
                if step % settings.log_every == 0:
                    self._log()
                if step % settings.validate_every == 0:
                    self._validate()
                if step % settings.checkpoint_every == 0:
                    self._snapshot()
                if self.processes.any(bool(stop)):
                    finished = False
                    break
        return self._end(finished)

    def _end(self, finished: bool) -> TrainReport:
        if finished and self.gradients.n_losses:
            self._log()
        if finished and self.progress.step % self.settings.validate_every:
            self._validate()
        self._snapshot()
        curve = None
        if self.processes.is_first:
            self._save_model(LAST)
            if self.heldout is None:
                self._save_model(BEST)
            if self.settings.hdf5:
                best = open_model(str(self.out / BEST))
                save_checkpoint(best, self.out / f"{BEST}-hdf5", "hdf5")
            if draw_curve(read_metrics(self.out / METRICS_FILE), self.out / CURVE_FILE):
                curve = self.out / CURVE_FILE
        return TrainReport(
            out=self.out,
            progress=self.progress,
            finished=finished,
            loss=self._mean_loss() if self.gradients.n_losses else self.last_loss,
            tokens_per_second=self.progress.tokens / max(1e-9, self.progress.seconds),
            curve=curve,
            is_first=self.processes.is_first,
        )

    last_loss = math.nan

    def _batches(self) -> AbstractContextManager[Iterator[tuple[Batch, Position]]]:
        start = Position(self.progress.epoch, self.progress.window)
        if self.processes.device.type == "cpu":
            # A second thread would only slow the first one down.
            return nullcontext(self.streams.batches(start))

        def prepare(position: Position) -> tuple[Batch, Position]:
            self.streams.plan_ahead(position)
            batch, following = self.streams.batch_at(position)
            return batch.pinned(), following

        return prefetched(prepare, self.streams.positions(start), _LOADERS)

    def _step(self, batches: Iterator[tuple[Batch, Position]]) -> None:
        """Take one optimizer step."""
        settings, progress = self.settings, self.progress
        self.gradients.set_phase(self._head_only())
        rate = self.hyperparameters.learning_rate
        self.rate = set_rate(self.optimizer, settings, rate, progress.step, self._done())
        known = self.gradients.failure
        n_tokens, position = self.gradients.compute(batches, progress.step)
        if self.gradients.failure != known:
            self.log.say(f"note: no CUDA graph of a step: {self.gradients.failure}")
        self._check_finite()
        self.optimizer.step()
        self.progress = dataclasses.replace(
            progress,
            step=progress.step + 1,
            tokens=progress.tokens + n_tokens,
            epoch=position.epoch,
            window=position.window,
            seconds=self.processes.broadcast(time.monotonic() - self.started),
        )

    def _head_only(self) -> bool:
        """Return whether only the output layer learns at this point."""
        return self._done() < self.frozen_share

    def _done(self) -> float:
        """Return the fraction of the run that is done."""
        unit, amount = self.settings.length
        progress = self.progress
        if unit == "epochs":
            windows = self.streams.windows_per_epoch
            return (progress.epoch * windows + progress.window) / (amount * windows)
        so_far = {
            "steps": progress.step,
            "tokens": progress.tokens,
            "minutes": progress.seconds / 60,
        }[unit]
        return so_far / amount

    # --- logging ----------------------------------------------------------------------------------

    def _mean_loss(self) -> float:
        return float(self.gradients.mean_losses().mean())

    def _log(self) -> None:
        forward, backward = self.gradients.mean_losses().tolist()
        self.last_loss = loss = (forward + backward) / 2
        progress = self.progress
        row = {
            "loss": loss,
            "loss_forward": forward,
            "loss_backward": backward,
            "learning_rate": self.rate,
            "grad_norm": float(self.gradients.norm),
        }
        self.log.row("train", progress, row)
        epoch = progress.epoch + progress.window / self.streams.windows_per_epoch
        self.log.advance(progress, self._done(), epoch, loss, self.rate)
        self.gradients.reset_losses()

    def _check_finite(self) -> None:
        """Raise before non-finite gradients reach the weights."""
        if self.processes.device.type == "cuda" and (
            (self.progress.step + 1) % self.settings.log_every
            and (self.progress.step + 1) % self.settings.checkpoint_every
        ):
            # Synchronizing in each step is slow: a NaN stays, so checking before saving is enough.
            return
        if self.processes.any(not bool(torch.isfinite(self.gradients.norm))):
            kept = newest_snapshot(self.out)
            raise DivergedError(
                f"the gradient is not finite at step {self.progress.step + 1} (epoch "
                f"{self.progress.epoch}, after {self.progress.tokens:,} tokens): the run has "
                "diverged; start again in another --out with a lower --learning-rate or --grad-clip"
                f"{'' if kept is None else f'. {kept} is from before'}"
            )

    # --- measuring --------------------------------------------------------------------------------

    def _validate(self) -> None:
        if self.heldout is None:
            return
        loss, perplexity = 0.0, Perplexity(forward=0, backward=0)
        if self.processes.is_first:  # alone: the result does not depend on the number of processes
            # The full softmax is slow on a CPU.
            on_cpu = self.processes.device.type == "cpu"
            n_tokens = self.settings.validate_tokens or (20_000 if on_cpu else 200_000)
            limit = math.ceil(n_tokens / self.heldout.rows)
            result = measure(self.model, self.heldout.one_pass(limit), self.processes.device)
            loss, perplexity = result.loss, result.perplexity
        loss = self.processes.broadcast(loss)
        progress = self.progress
        row = {
            "loss": loss,
            "perplexity_forward": perplexity.forward,
            "perplexity_backward": perplexity.backward,
        }
        self.log.row("heldout", progress, row)
        self.log.say(
            f"step {progress.step:,}: held-out perplexity {perplexity.mean:,.2f} "
            f"(forward {perplexity.forward:,.2f}, backward {perplexity.backward:,.2f})"
        )
        if progress.best_loss is None or loss < progress.best_loss:
            self.progress = dataclasses.replace(
                progress,
                best_loss=loss,
                best_perplexity=perplexity.mean,
                best_step=progress.step,
                n_worse=0,
            )
            if self.processes.is_first:
                self._save_model(BEST)
        else:
            self.progress = dataclasses.replace(progress, n_worse=progress.n_worse + 1)

    # --- saving -----------------------------------------------------------------------------------

    def _save_model(self, name: str) -> None:
        tokenizer = self.corpus.manifest.tokenizer
        checkpoint = to_checkpoint(self.model, self.corpus.vocabulary, tokenizer)
        save_checkpoint(checkpoint, self.out / name)

    def _snapshot(self) -> None:
        hidden, memory = (self.processes.gather(part, dim=2) for part in self.gradients.state)
        losses = self.processes.mean(self.gradients.losses.clone())
        if not self.processes.is_first:
            return
        tensors, rest = optimizer_tensors(self.optimizer)
        # Not the state_dict, which has a tied weight twice.
        tensors |= {f"model.{name}": p for name, p in self.model.named_parameters()}
        tensors |= {"state.hidden": hidden, "state.memory": memory, "losses": losses}
        progress = dataclasses.replace(self.progress, metrics_bytes=self.log.length)
        about = {
            "optimizer": rest,
            "n_losses": self.gradients.n_losses,
            "data": self.corpus.fingerprint,
        }
        save_snapshot(self.out, Snapshot(progress, tensors, about), self.settings.keep_checkpoints)

    def _restore(self) -> None:
        snapshot, notes = load_snapshot(self.out)
        self.notes += notes
        if snapshot is None:
            return
        if snapshot.settings["data"] != self.corpus.fingerprint:
            raise ConfigError(
                f"{self.settings.data} is not the corpus that the run in {self.out} was started "
                "with: its content has changed"
            )
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(snapshot.tensors[f"model.{name}"])
        restore_optimizer(self.optimizer, snapshot.tensors, snapshot.settings["optimizer"])
        device = self.processes.device
        self.gradients.state = State(
            *(
                self.processes.own_rows(snapshot.tensors[f"state.{part}"], dim=2).to(device)
                for part in ("hidden", "memory")
            )
        )
        self.gradients.losses = snapshot.tensors["losses"].to(device)
        self.gradients.n_losses = snapshot.settings["n_losses"]
        self.progress = snapshot.progress
