"""The training loop: read, step, measure, save; until the run is as long as it was to be."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

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
from elmo.training.build import batch_rows, build_model, model_ids, to_checkpoint
from elmo.training.corpus.shards import Corpus
from elmo.training.gradients import Gradients
from elmo.training.heldout import heldout_streams
from elmo.training.language_model import measure
from elmo.training.metrics import draw_curve, require_tensorboard
from elmo.training.optimizers import make_optimizer, recipe, set_rate
from elmo.training.prefetch import prepared_ahead
from elmo.training.processes import Processes, joined
from elmo.training.run_log import Record
from elmo.training.settings import TrainSettings
from elmo.training.snapshots import (
    Progress,
    Snapshot,
    load_snapshot,
    newest_snapshot,
    save_snapshot,
)
from elmo.training.streams import Batch, Position, Streams
from elmo.weights.formats import save_checkpoint

RUN_FILE = "run.json"
BEST, LAST = "best", "last"
_LOADERS = max(1, min(4, (os.cpu_count() or 1) - 1))
"""Threads that prepare batches for a GPU."""


@dataclass(frozen=True, kw_only=True)
class TrainReport:
    """What came out of a run."""

    out: Path
    progress: Progress
    finished: bool
    """False if it was interrupted and can go on."""
    loss: float
    """Mean training loss since the last row of metrics."""
    words_per_second: float
    curve: Path | None
    is_first: bool = True
    """Whether this process is the one that speaks to people, and knows what was measured."""


def train(settings: TrainSettings) -> TrainReport:
    """Train a biLM, or go on training one.

    Under `torchrun` every process calls this; the first one writes.

    Args:
        settings: How; with `resume`, all but the length comes from the run's folder.
    """
    settings = _complete(settings)
    with (
        joined(settings.device) as processes,
        _enough_memory(settings),
        _locked_folder(settings, processes),
    ):
        with _Run(settings, processes) as run:
            return run.fit()


@contextmanager
def _enough_memory(settings: TrainSettings) -> Iterator[None]:
    """Say what to change if the GPU's memory does not suffice."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise GpuMemoryError(
            f"the GPU has too little memory for steps of {batch_rows(settings):,} streams of "
            f"{settings.unroll} words ({str(error).splitlines()[0]}); choose a smaller --batch, "
            "and a larger --accumulate if a step is to read as many words, or a smaller model"
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
        require_tensorboard()
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
            f"{settings.out} holds a run already: go on with --resume {settings.out}, or choose "
            "another folder"
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
        self.notes, self.head_share = built.notes, built.head_share
        self.model = built.model.to(processes.device)
        self.rows = batch_rows(settings)
        self.recipe = recipe(settings, self.rows)
        self.optimizer = make_optimizer(self.model, settings, self.recipe.rate)
        self.streams = self._make_streams()
        self.heldout = self._make_heldout()
        self.progress = Progress()
        own_rows = self.rows // processes.world
        self.gradients = Gradients(
            self.model, self.optimizer, self.recipe, settings, processes, own_rows
        )
        if settings.resume is not None:
            self._restore()
        self._begin()

    # --- putting together -------------------------------------------------------------------------

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
            unroll=settings.unroll,
            shuffle=settings.shuffle,
            restarts=settings.restarts,
            seed=settings.seed,
            rank=self.processes.rank,
            world=self.processes.world,
        )

    def _make_heldout(self) -> Streams | None:
        streams = heldout_streams(self.corpus, self.model, self.settings.unroll)
        if streams is None:
            self.notes.append("the corpus has no held-out text: nothing can be measured")
        return streams

    def _begin(self) -> None:
        """Open files; only the first process writes."""
        self.started = time.monotonic() - self.progress.seconds
        if self.processes.is_first:
            self._write_settings()
        self.record = Record(
            self.out,
            is_writer=self.processes.is_first,
            settings=self.settings,
            progress=self.progress,
            done=self._done(),
        )
        reason = reason_against_triton(self.processes.device)
        if self.processes.device.type == "cuda" and self.settings.kernels == "auto" and reason:
            self.notes.append(f"{reason}: training goes on with PyTorch's operators, more slowly")
        for note in self.notes:
            self.record.say(f"note: {note}")

    def _write_settings(self) -> None:
        saved = self.settings.replace(resume=None).to_dict()
        write_text(self.out / RUN_FILE, json.dumps(saved, indent=2) + "\n")

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.record.close()
        self.gradients.close()

    # --- the loop ---------------------------------------------------------------------------------

    def fit(self) -> TrainReport:
        """Train until the end."""
        settings = self.settings
        self.model.train()
        finished = True
        with stop_signals() as stop, self._batches() as batches:
            self.gradients.set_phase(self._head_only())
            if self.progress.step == 0 and settings.start_from is not None:
                self._validate()  # where it comes from
            while self._done() < 1 and not self._is_out_of_patience():
                self._step(batches)
                step = self.progress.step
                if step % settings.log_every == 0:
                    self._log()
                if step % settings.validate_every == 0:
                    self._validate()
                if step % settings.checkpoint_every == 0:
                    self._snapshot()
                if self.processes.agree(bool(stop)):
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
            words_per_second=self.progress.tokens / max(1e-9, self.progress.seconds),
            curve=curve,
            is_first=self.processes.is_first,
        )

    last_loss = math.nan

    def _batches(self) -> AbstractContextManager[Iterator[tuple[Batch, Position]]]:
        start = Position(self.progress.epoch, self.progress.window)
        if self.processes.device.type == "cpu":
            # A second thread would only take its time from the first.
            return nullcontext(self.streams.batches(start))

        def prepare(position: Position) -> tuple[Batch, Position]:
            self.streams.plan_ahead(position)
            batch, following = self.streams.batch_at(position)
            return batch.pinned(), following

        return prepared_ahead(prepare, self.streams.positions(start), _LOADERS)

    def _step(self, batches: Iterator[tuple[Batch, Position]]) -> None:
        """Take one optimizer step."""
        settings, progress = self.settings, self.progress
        self.gradients.set_phase(self._head_only())
        rate = self.recipe.rate
        self.rate = set_rate(self.optimizer, settings, rate, progress.step, self._done())
        knew = self.gradients.trouble
        n_tokens, position = self.gradients.find(batches, progress.step)
        if self.gradients.trouble != knew:
            self.record.say(f"note: steps cannot be recorded: {self.gradients.trouble}")
        self._check_finite()
        self.optimizer.step()
        self.progress = dataclasses.replace(
            progress,
            step=progress.step + 1,
            tokens=progress.tokens + n_tokens,
            epoch=position.epoch,
            window=position.window,
            seconds=self.processes.first_says(time.monotonic() - self.started),
        )

    def _head_only(self) -> bool:
        """Tell whether only the output layer is to learn by now."""
        return self._done() < self.head_share

    def _done(self) -> float:
        """Give the share of the run that is done."""
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

    def _is_out_of_patience(self) -> bool:
        return 0 < self.settings.patience <= self.progress.worse

    # --- telling ----------------------------------------------------------------------------------

    def _mean_loss(self) -> float:
        return float(self.gradients.mean_losses().mean())

    def _log(self) -> None:
        forward, backward = self.gradients.mean_losses().tolist()
        self.last_loss = loss = (forward + backward) / 2
        progress = self.progress
        self.record.row(
            {
                "split": "train",
                "step": progress.step,
                "tokens": progress.tokens,
                "epoch": progress.epoch,
                "loss": loss,
                "loss_forward": forward,
                "loss_backward": backward,
                "rate": self.rate,
                "gradient_norm": float(self.gradients.norm),
            }
        )
        self.record.advance(progress, self._done(), loss)
        self.gradients.forget_losses()

    def _check_finite(self) -> None:
        """Stop before weights are spoilt."""
        if self.processes.device.type == "cuda" and (
            (self.progress.step + 1) % self.settings.log_every
            and (self.progress.step + 1) % self.settings.checkpoint_every
        ):
            # Waiting for the GPU in each step is slow: a NaN stays, so look before it is saved.
            return
        if self.processes.agree(not bool(torch.isfinite(self.gradients.norm))):
            kept = newest_snapshot(self.out)
            raise DivergedError(
                f"the gradient is not finite at step {self.progress.step + 1} (epoch "
                f"{self.progress.epoch}, after {self.progress.tokens:,} words): the run has "
                "diverged; start again in another --out with a lower --rate or --clip"
                f"{'' if kept is None else f'. {kept} is from before'}"
            )

    # --- measuring --------------------------------------------------------------------------------

    def _validate(self) -> None:
        if self.heldout is None:
            return
        loss, perplexity = 0.0, Perplexity(forward=0, backward=0)
        if self.processes.is_first:  # alone: the numbers do not depend on how many there are
            limit = math.ceil(self._heldout_tokens() / self.heldout.rows)
            result = measure(self.model, self.heldout.one_pass(limit), self.processes.device)
            loss, perplexity = result.loss, result.perplexity
        loss = self.processes.first_says(loss)
        progress = self.progress
        self.record.row(
            {
                "split": "heldout",
                "step": progress.step,
                "tokens": progress.tokens,
                "epoch": progress.epoch,
                "loss": loss,
                "ppl_forward": perplexity.forward,
                "ppl_backward": perplexity.backward,
            }
        )
        self.record.say(
            f"step {progress.step:,}: held-out perplexity {perplexity.mean:,.2f} "
            f"(forward {perplexity.forward:,.2f}, backward {perplexity.backward:,.2f})"
        )
        if progress.best_loss is None or loss < progress.best_loss:
            self.progress = dataclasses.replace(
                progress,
                best_loss=loss,
                best_ppl=perplexity.mean,
                best_step=progress.step,
                worse=0,
            )
            if self.processes.is_first:
                self._save_model(BEST)
        else:
            self.progress = dataclasses.replace(progress, worse=progress.worse + 1)

    def _heldout_tokens(self) -> int:
        """Say how many words to measure on: with the full softmax each is worth hundreds."""
        on_cpu = self.processes.device.type == "cpu"
        return self.settings.validate_tokens or (20_000 if on_cpu else 200_000)

    # --- saving -----------------------------------------------------------------------------------

    def _save_model(self, name: str) -> None:
        save_checkpoint(to_checkpoint(self.model, self.corpus.vocabulary), self.out / name)

    def _snapshot(self) -> None:
        hidden, memory = (self.processes.gather(part, dim=2) for part in self.gradients.state)
        losses = self.processes.mean(self.gradients.losses.clone())
        if not self.processes.is_first:
            return
        tensors, rest = optimizer_tensors(self.optimizer)
        # Not the state_dict: there a tied weight stands twice.
        tensors |= {f"model.{name}": p for name, p in self.model.named_parameters()}
        tensors |= {"state.hidden": hidden, "state.memory": memory, "losses": losses}
        progress = dataclasses.replace(self.progress, metrics_bytes=self.record.length)
        about = {
            "optimizer": rest,
            "n_losses": self.gradients.n_losses,
            "data": self.corpus.fingerprint,
        }
        save_snapshot(self.out, Snapshot(progress, tensors, about), self.settings.keep)

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
