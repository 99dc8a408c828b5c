"""A trained head on disk: one folder.

| file | what |
|---|---|
| `config.json` | the task with its labels, the settings, which biLM and which vectors |
| `model.safetensors` | all trained parameters, and the vectors of the words that were read |
| `words.txt` | the words of those vectors, one a line |
| `elmo/` | the biLM, if it was fine-tuned |
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from elmo import __version__
from elmo.errors import ConfigError, ElmoWarning, MissingFileError, WeightsError
from elmo.hub.names import open_model
from elmo.model.bilm import Checkpoint
from elmo.runtime.files import replacing, write_text
from elmo.tasks.features.static_words import StaticWords
from elmo.tasks.features.word_features import join_features
from elmo.tasks.heads import find_task
from elmo.tasks.heads.base import Task
from elmo.tasks.run.network import TaskNetwork
from elmo.tasks.settings import CONFIG_FILE, HEAD_KIND, Recipe, TaskSettings, read_config
from elmo.text.static_vectors import open_vectors
from elmo.weights.formats import save_checkpoint

WEIGHTS_FILE = "model.safetensors"
WORDS_FILE, ELMO_FOLDER = "words.txt", "elmo"
_BILM = "features.bilm."


class SavedTask(NamedTuple):
    """Contents of a folder."""

    task: Task[Any, Any, Any]
    settings: TaskSettings
    recipe: Recipe
    network: TaskNetwork
    checkpoint: Checkpoint | None
    """The biLM whose layers the network reads; None without ELMo, or if it was fine-tuned."""


def save_task(
    folder: Path,
    task: Task[Any, Any, Any],
    settings: TaskSettings,
    recipe: Recipe,
    network: TaskNetwork,
    fingerprint: str | None,
) -> None:
    """Write a trained head; files that exist are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    static, bilm = network.features.static, network.features.bilm
    config = {
        "kind": HEAD_KIND,
        "version": __version__,
        "task": task.name,
        "fields": dataclasses.asdict(task),
        "settings": settings.to_dict(),
        "recipe": dataclasses.asdict(recipe),
        "elmo": fingerprint,
    }
    tensors = {
        name: tensor.detach().cpu().contiguous()
        for name, tensor in network.state_dict().items()
        if not name.startswith(_BILM)
    }
    with replacing(folder / WEIGHTS_FILE) as temporary:
        save_file(tensors, temporary, {"format": "pt"})
    if static is not None:
        write_text(folder / WORDS_FILE, "".join(f"{word}\n" for word in static.words))
    if bilm is not None:
        save_checkpoint(bilm.to_checkpoint(), folder / ELMO_FOLDER, "elmo")
    write_text(folder / CONFIG_FILE, json.dumps(config, indent=2, ensure_ascii=False) + "\n")


def load_task(folder: Path, model: str | None = None) -> SavedTask:
    """Read a trained head.

    Args:
        folder: Its folder.
        model: Path or name of its biLM, if not that of training.
    """
    config = read_config(folder)
    try:
        task = find_task(config["task"])(**config["fields"])
        settings = TaskSettings.from_dict(config["settings"], str(folder / CONFIG_FILE))
        recipe, fingerprint = Recipe(**config["recipe"]), config["elmo"]
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{folder / CONFIG_FILE} is damaged: {error!r}") from None
    tensors = _read_tensors(folder)
    static = _static(folder, settings, tensors) if settings.static else None
    checkpoint = _checkpoint(folder, settings, model, fingerprint) if settings.reads_elmo else None
    features = join_features(settings, recipe, static, checkpoint)
    network = TaskNetwork(features, task.build(features.dims, recipe))
    own = {f"{_BILM}{k}": v for k, v in features.bilm.state_dict().items()} if features.bilm else {}
    try:
        network.load_state_dict({**tensors, **own})
    except RuntimeError as error:
        raise WeightsError(
            f"{folder / WEIGHTS_FILE} does not fit {CONFIG_FILE}: {str(error).splitlines()[-1]}"
        ) from None
    read = None if settings.finetune_elmo else checkpoint
    return SavedTask(task, settings, recipe, network.eval(), read)


def _checkpoint(
    folder: Path, settings: TaskSettings, model: str | None, fingerprint: str
) -> Checkpoint:
    """Open the biLM of a head, and refuse another one than that of training."""
    if settings.finetune_elmo:
        return open_model(folder / ELMO_FOLDER)
    model = model or settings.model
    checkpoint = open_model(model)
    if checkpoint.fingerprint() != fingerprint:
        raise WeightsError(
            f"the head in {folder} was trained with another biLM than "
            f"{model or 'the default model'}: its fingerprint is "
            f"{checkpoint.fingerprint()[:12]}, expected {fingerprint[:12]}; "
            "give the right one with --model"
        )
    return checkpoint


def _static(folder: Path, settings: TaskSettings, tensors: dict[str, Tensor]) -> StaticWords:
    try:
        words = (folder / WORDS_FILE).read_text(encoding="utf-8").split("\n")[:-1]
    except OSError as error:
        raise MissingFileError(f"cannot read {folder / WORDS_FILE}: {error.strerror}") from None
    table = tensors.get("features.static.table", torch.zeros(0, 0))
    if len(words) != len(table):
        raise WeightsError(
            f"{folder / WORDS_FILE} has {len(words)} words, {WEIGHTS_FILE} {len(table)} vectors"
        )
    source = None
    if settings.static == "glove":
        try:
            source = open_vectors(settings.vectors)
        except MissingFileError as error:
            unknown = "words that were not in the data of the head count as unknown"
            warnings.warn(f"{error}; {unknown}", ElmoWarning, stacklevel=2)
    learned = settings.finetune_vectors or settings.static == "random"
    return StaticWords(words, table, learned=learned, source=source)


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    path = folder / WEIGHTS_FILE
    if not path.is_file():
        raise MissingFileError(f"no such file: {path}")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise WeightsError(f"{path} is damaged: {error}") from None
