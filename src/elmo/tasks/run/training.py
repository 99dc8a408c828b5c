"""The training loop of a task.

Features are prepared once. After each epoch, or several if there are few examples, the model is
evaluated on held-out data and saved if it is the best so far, and a snapshot is written. Every
random choice follows from the seed and the number of the evaluation, so a run that was killed and
resumed results in the same model.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from tqdm.auto import tqdm

from elmo.errors import ConfigError, DivergedError, OutputExistsError
from elmo.hub.names import open_model
from elmo.model.bilm import Checkpoint
from elmo.runtime.devices import find_device
from elmo.runtime.files import write_text
from elmo.runtime.interrupts import stop_signals
from elmo.runtime.metrics_file import CURVE_FILE, METRICS_FILE, MetricsFile, read_metrics
from elmo.runtime.tables import counted
from elmo.tasks.features.inputs import CachedLayers, InputStore
from elmo.tasks.features.static_words import StaticWords
from elmo.tasks.features.word_features import WordFeatures, join_features
from elmo.tasks.heads import find_task
from elmo.tasks.heads.base import Task
from elmo.tasks.run.folder import ELMO_FOLDER, WEIGHTS_FILE, save_task
from elmo.tasks.run.network import Runner, TaskNetwork, chosen_share, shuffled_batches
from elmo.tasks.run.progress import (
    SNAPSHOT_FILE,
    TaskProgress,
    draw_curve,
    restore_progress,
    save_progress,
)
from elmo.tasks.settings import CONFIG_FILE, Recipe, TaskSettings

RUN_FILE, RESULT_FILE = "run.json", "result.json"
_LEAST_STEPS = 40
"""Steps between two evaluations, at least: a small training set is read several times."""
_WARM_STEPS = 100
_LOWEST_RATE = 0.02
"""Share of the highest learning rate at the end of the run."""


@dataclass(frozen=True)
class Examples:
    """The data of a run."""

    train: list[Any]
    dev: list[Any]
    test: list[Any]


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """Results of a run."""

    out: Path
    """Folder of the trained head."""
    task: str
    metric: str
    """Name of the main metric."""
    finished: bool
    n_train: int
    n_dev: int
    n_test: int
    parameters: int
    """Number of trained parameters."""
    epochs: int
    steps: int
    best_epoch: int
    dev: dict[str, float]
    """Of the best model."""
    test: dict[str, float] | None
    mix: dict[str, list[float]]
    """Learned weights of ELMo's layers, at input and output."""
    unknown: dict[str, float]
    """Share of words without a static vector, by part of the data; empty without such vectors."""
    elmo: str | None
    """Fingerprint of the biLM before training; None without one."""
    device: str
    """Name of the GPU, or cpu."""
    seconds_preparing: float
    """Reading and embedding; short if the layers were in the cache."""
    seconds_training: float
    """All epochs, evaluation included."""

    def as_dict(self) -> dict[str, Any]:
        """Return the content of `result.json`: all but the folder."""
        values = dataclasses.asdict(self)
        del values["out"]
        return values

    def __str__(self) -> str:
        if not self.finished:
            epochs = counted(self.epochs, "epoch")
            return f"interrupted after {epochs}: continue with the same command and --resume"
        lines = [
            f"{self.out}: {counted(self.n_train, 'example')}, {counted(self.epochs, 'epoch')}, "
            f"{counted(self.steps, 'step')} in "
            f"{self.seconds_training:,.0f} s after {self.seconds_preparing:,.0f} s of preparation; "
            f"best by dev {self.metric} {100 * self.dev[self.metric]:.2f} after epoch "
            f"{self.best_epoch}"
        ]
        for place, weights in self.mix.items():
            shown = ", ".join(f"{weight:.3f}" for weight in weights)
            lines.append(f"weights of layers ({place}): {shown}")
        if self.unknown:
            shares = ", ".join(f"{100 * share:.1f} % in {p}" for p, share in self.unknown.items())
            lines.append(f"words without a static vector: {shares}")
        return "\n".join(lines)

    def _repr_png_(self) -> bytes | None:
        """Return the curve of loss and score for a notebook."""
        curve = self.out / CURVE_FILE
        return curve.read_bytes() if curve.is_file() else None


def train_task(name: str, settings: TaskSettings, examples: Examples | None = None) -> TaskReport:
    """Train a task, or resume an interrupted run.

    Args:
        name: The task.
        settings: The settings; `data` and `out` are required.
        examples: The data, if they have been read.
    """
    out = _prepare_out(name, settings)
    if settings.resume and (out / RESULT_FILE).is_file():
        return TaskReport(out=out, **json.loads((out / RESULT_FILE).read_text(encoding="utf-8")))
    return _Run(name, settings, out, examples).go()


def read_examples(kind: type[Task[Any, Any, Any]], settings: TaskSettings) -> Examples:
    """Read the files of a run; without `--dev` a part of the training data is held out."""
    plain = settings.replace(phrases=False)
    train = kind.read(settings.data, settings)
    test = kind.read(settings.test, plain) if settings.test else []
    if settings.dev:
        return Examples(train, kind.read(settings.dev, plain), test)
    if settings.phrases:
        raise ConfigError("--phrases needs --dev: phrases of held-out sentences would be learned")
    if len(train) < 2:
        raise ConfigError(f"{len(train)} training examples: none can be held out; give --dev")
    held = set(chosen_share(len(train), settings.dev_share, settings.seed))
    return Examples(
        [example for k, example in enumerate(train) if k not in held],
        [train[k] for k in sorted(held)],
        test,
    )


class _Run:
    """One run, from files to a trained head."""

    def __init__(
        self, name: str, settings: TaskSettings, out: Path, examples: Examples | None
    ) -> None:
        started = time.monotonic()
        self.given, self.out = settings, out
        self.fingerprint: str | None = None  # of the biLM before training
        self.source: CachedLayers | None = None
        self.shown = "no evaluation yet"  # in the progress bar
        kind = find_task(name)
        self.device = find_device(settings.device)
        half = settings.precision == "bf16"
        if half and self.device.type == "cpu":
            raise ConfigError("--precision bf16 needs a GPU: on a CPU give fp32, the default")
        self.recipe: Recipe = settings.recipe(kind.recipe)
        checkpoint = open_model(settings.model) if settings.reads_elmo else None
        tokenizer = settings.tokenizer or (checkpoint and checkpoint.config.tokenizer)
        settings = settings.replace(tokenizer=tokenizer or "english")
        self.settings = settings
        examples = examples or read_examples(kind, settings)
        self.task = kind.from_examples(examples.train)
        self.task.check(examples.dev)
        self.task.check(examples.test)
        chosen = chosen_share(len(examples.train), settings.train_share, settings.seed)
        self.examples = dataclasses.replace(examples, train=[examples.train[k] for k in chosen])
        torch.manual_seed(settings.seed)
        features = self._features(checkpoint)
        network = TaskNetwork(features, self.task.build(features.dims, self.recipe))
        store = InputStore(features, self.source, self.device)
        self.runner = Runner(self.task, network, store, self.device, half)
        everything = [*self.examples.train, *self.examples.dev, *self.examples.test]
        self.runner.prepare(everything, repeatedly=True)
        self.sizes = [self.runner.size(example) for example in self.examples.train]
        self.optimizer = _optimizer(network, self.recipe, settings)
        self.plan = _Plan.of(len(self.examples.train), self.recipe)
        self.preparing = time.monotonic() - started

    def _features(self, checkpoint: Checkpoint | None) -> WordFeatures:
        settings, sentences = self.settings, self.task.sentences
        train = [s for e in self.examples.train for s in sentences(e)]
        others = [s for e in (*self.examples.dev, *self.examples.test) for s in sentences(e)]
        static = StaticWords.chosen(settings, train, others)
        if checkpoint is not None:
            self.fingerprint = checkpoint.fingerprint()
            if not settings.finetune_elmo:
                self.source = CachedLayers(
                    checkpoint, self.device, settings.cache_dir, settings.quiet
                )
        return join_features(settings, self.recipe, static, checkpoint)

    @property
    def network(self) -> TaskNetwork:
        return self.runner.network

    def go(self) -> TaskReport:
        write_text(
            self.out / RUN_FILE,
            json.dumps({"task": self.task.name, **self.given.to_dict()}, indent=2) + "\n",
        )
        progress = restore_progress(self.out, self.network, self.optimizer)
        metrics = MetricsFile(self.out / METRICS_FILE, progress.metrics_bytes)
        bar = tqdm(
            total=self.plan.steps,
            initial=progress.step,
            unit=" steps",
            desc=f"{self.task.name}, {self.settings.features}",
            disable=self.settings.quiet,
        )
        try:
            with stop_signals() as signals, bar:
                while not self._is_over(progress):
                    done = self._train_and_evaluate(progress, metrics, bar, signals)
                    if done is None:
                        return self._report(progress, finished=False)
                    progress = done
        finally:
            metrics.close()
        report = self._report(progress, finished=True)
        write_text(self.out / RESULT_FILE, json.dumps(report.as_dict(), indent=2) + "\n")
        (self.out / SNAPSHOT_FILE).unlink(missing_ok=True)
        draw_curve(read_metrics(self.out / METRICS_FILE), self.task.metric, self.out / CURVE_FILE)
        return report

    def _is_over(self, progress: TaskProgress) -> bool:
        waited = (progress.epochs - progress.best_epoch) // self.plan.interval
        return progress.epochs >= self.plan.epochs or 0 < self.recipe.patience <= waited

    def _train_and_evaluate(
        self, progress: TaskProgress, metrics: MetricsFile, bar: Any, signals: list[int]
    ) -> TaskProgress | None:
        """Train until the next evaluation, and evaluate; return None if interrupted."""
        started = time.monotonic()
        loss, step = self._steps(progress, bar, signals)
        if loss is None:
            return None
        scores = self.measure(self.examples.dev)
        value = scores[self.task.metric]
        better = progress.best is None or value > progress.best
        epochs = progress.epochs + self.plan.interval
        row = {"epoch": epochs, "step": step}
        metrics.write({**row, "split": "train", "loss": loss})
        metrics.write({**row, "split": "dev", **scores, "best": better})
        best = value if better else progress.best or 0.0
        self.shown = f"loss {loss:.3f}, dev {self.task.metric} {100 * value:.2f}"
        self.shown += "" if better else f" (best {100 * best:.2f})"
        if better:
            save_task(
                self.out, self.task, self.settings, self.recipe, self.network, self.fingerprint
            )
        progress = TaskProgress(
            epochs=epochs,
            step=step,
            seconds=progress.seconds + time.monotonic() - started,
            metrics_bytes=metrics.length,
            best=best,
            best_epoch=epochs if better else progress.best_epoch,
        )
        save_progress(self.out, progress, self.network, self.optimizer)
        return progress

    def _steps(
        self, progress: TaskProgress, bar: Any, signals: list[int]
    ) -> tuple[float | None, int]:
        """Train until the next evaluation.

        Returns:
            The mean loss, None if interrupted, and the number of steps so far.
        """
        seeds = [self.settings.seed, progress.epochs // self.plan.interval]
        torch.manual_seed(int(np.random.SeedSequence(seeds).generate_state(1)[0]))
        generator = np.random.default_rng(seeds)
        self.network.train()
        step, losses = progress.step, torch.zeros((), device=self.device)
        for epoch in range(progress.epochs + 1, progress.epochs + self.plan.interval + 1):
            for numbers in shuffled_batches(self.sizes, self.recipe.batch_size, generator):
                if signals:
                    return None, step
                losses += self._step([self.examples.train[k] for k in numbers], step)
                step += 1
                rate = self.recipe.learning_rate * self.plan.rate_share(step - 1)
                bar.set_postfix_str(
                    f"epoch {epoch}/{self.plan.epochs}, learning rate {rate:.1e}, {self.shown}",
                    refresh=False,
                )
                bar.update()
        loss = float(losses) / max(1, step - progress.step)
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss is {loss} after {step} steps; try a lower --learning-rate or "
                f"--grad-clip. The best model so far is in {self.out}"
            )
        return loss, step

    def _step(self, examples: Sequence[Any], step: int) -> torch.Tensor:
        share = self.plan.rate_share(step)
        for group in self.optimizer.param_groups:
            group["lr"] = group["highest"] * share
        loss = self.runner.loss(examples)
        total = loss + self.network.features.penalty()
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.grad_clip)
        self.optimizer.step()
        return loss.detach()

    def measure(self, examples: Sequence[Any]) -> dict[str, float]:
        predictions = self.runner.predict(examples, self.recipe.batch_size)
        return self.task.evaluate(examples, predictions)

    def _report(self, progress: TaskProgress, finished: bool) -> TaskReport:
        if progress.best is not None:
            _load_best(self.out, self.network, self.device)
        measured = finished and self.examples.test
        return TaskReport(
            out=self.out,
            task=self.task.name,
            metric=self.task.metric,
            finished=finished,
            n_train=len(self.examples.train),
            n_dev=len(self.examples.dev),
            n_test=len(self.examples.test),
            parameters=sum(p.numel() for p in self.network.parameters() if p.requires_grad),
            epochs=progress.epochs,
            steps=progress.step,
            best_epoch=progress.best_epoch,
            dev=self.measure(self.examples.dev) if finished else {},
            test=self.measure(self.examples.test) if measured else None,
            mix=self.network.features.mix_weights(),
            unknown=self._unknown(),
            elmo=self.fingerprint,
            device=_device_name(self.device),
            seconds_preparing=round(self.preparing, 3),
            seconds_training=round(progress.seconds, 3),
        )

    def _unknown(self) -> dict[str, float]:
        if self.network.features.static is None:
            return {}
        parts = {field.name: getattr(self.examples, field.name) for field in fields(Examples)}
        return {
            name: self.runner.store.unknown_share(
                words for example in part for words in self.task.sentences(example)
            )
            for name, part in parts.items()
            if part
        }


@dataclass(frozen=True)
class _Plan:
    """Length of a run."""

    epochs: int
    interval: int
    """Epochs from one evaluation to the next."""
    steps: int

    @classmethod
    def of(cls, n_examples: int, recipe: Recipe) -> _Plan:
        batches = math.ceil(n_examples / recipe.batch_size)
        interval = math.ceil(_LEAST_STEPS / batches) if recipe.min_steps else 1
        wanted = max(recipe.epochs * batches, recipe.min_steps)
        epochs = interval * math.ceil(wanted / (interval * batches))
        return cls(epochs, interval, epochs * batches)

    def rate_share(self, step: int) -> float:
        """Return the learning rate as a share of the highest: linear warm-up, then linear decay."""
        warm = min(_WARM_STEPS, max(1, self.steps // 20))
        if step < warm:
            return (step + 1) / warm
        left = (self.steps - step) / max(1, self.steps - warm)
        return _LOWEST_RATE + (1 - _LOWEST_RATE) * left


def _optimizer(
    network: TaskNetwork, recipe: Recipe, settings: TaskSettings
) -> torch.optim.Optimizer:
    """Return AdamW; weight decay is for matrices of the head, the biLM has its own rate."""
    groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        rate = (
            settings.elmo_learning_rate
            if name.startswith("features.bilm.")
            else recipe.learning_rate
        )
        decays = name.startswith("head.") and parameter.dim() > 1
        groups.setdefault((rate, recipe.weight_decay if decays else 0.0), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "lr": rate, "highest": rate, "weight_decay": decay}
            for (rate, decay), parameters in groups.items()
        ],
        fused=True,  # one pass over all parameters, on a GPU one kernel
    )


def _load_best(out: Path, network: TaskNetwork, device: torch.device) -> None:
    tensors = load_file(out / WEIGHTS_FILE, device=str(device))
    if network.features.bilm is not None:
        learned = load_file(out / ELMO_FOLDER / WEIGHTS_FILE, device=str(device))
        state = network.features.bilm.state_dict()
        tensors |= {f"features.bilm.{name}": learned[name] for name in state if name in learned}
    network.load_state_dict(tensors, strict=False)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _prepare_out(name: str, settings: TaskSettings) -> Path:
    find_task(name)  # refuse an unknown one before anything is written
    if not settings.data:
        raise ConfigError("--data is missing: expected training files")
    if settings.out is None:
        raise ConfigError("--out is missing: expected a folder for the trained head")
    out = settings.out
    run = out / RUN_FILE
    if settings.resume and run.is_file():
        saved = json.loads(run.read_text(encoding="utf-8"))
        if saved.pop("task") != name:
            raise ConfigError(f"the run in {out} is of another task")
        settings.require_same(TaskSettings.from_dict(saved, str(run)))
        return out
    if out.exists() and not settings.overwrite and any(out.iterdir()):
        raise OutputExistsError(
            f"{out} is not empty: give --resume to continue its run, --overwrite to replace it, or "
            "another folder"
        )
    out.mkdir(parents=True, exist_ok=True)
    for file in (RUN_FILE, RESULT_FILE, METRICS_FILE, SNAPSHOT_FILE, CONFIG_FILE, WEIGHTS_FILE):
        (out / file).unlink(missing_ok=True)
    return out
