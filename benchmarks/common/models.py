"""The models that are measured: random weights on disk, or a model of the user's."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from elmo.config import ElmoConfig, Preset
from elmo.hub.names import open_model
from elmo.model.bilm import BiLM, Checkpoint, random_bilm
from elmo.runtime.files import cache_folder, output_errors
from elmo.weights.formats import HDF5, save_checkpoint

_GAIN = 2.0
_BIAS = 0.1


@dataclass(frozen=True)
class Subject:
    """A model that is measured."""

    name: str
    source: str
    """What `ELMo.from_pretrained` is given."""
    config: ElmoConfig
    parameters: int
    """Weights, the masked character's row of zeros left out."""

    def read(self) -> Checkpoint:
        """Read the weights."""
        return open_model(self.source)


def subject_of_size(size: Preset, data: Path | None) -> Subject:
    """Return a model of a size with random weights, writing them if they are not there.

    Args:
        size: Which.
        data: The folder for weights; the user's cache folder if None.
    """
    config = ElmoConfig.preset(size)
    folder = (data or cache_folder("benchmark")) / size
    if not _is_written(folder, config):
        with output_errors(folder, "choose another folder for random weights by --data"):
            save_checkpoint(_lively(random_bilm(config)).to_checkpoint(), folder, HDF5.name)
    with torch.device("meta"):
        tensors = BiLM(config).state_dict()
    return Subject(size, str(folder), config, _count(tensors, config))


def subject_of_model(name: str) -> Subject:
    """Return the model of the user's that has a name, as `ELMo.from_pretrained` knows it."""
    checkpoint = open_model(name)
    config = checkpoint.config
    return Subject(name, name, config, _count(checkpoint.tensors, config))


@contextmanager
def published_folder(subject: Subject) -> Iterator[Path]:
    """Return a folder where the model lies in the published layout, writing it if need be."""
    folder = Path(subject.source)
    if (folder / HDF5.options).is_file() and (folder / HDF5.weights).is_file():
        yield folder
        return
    with tempfile.TemporaryDirectory() as name:
        save_checkpoint(dataclasses.replace(subject.read(), softmax={}), name, HDF5.name)
        yield Path(name)


def _count(tensors: Mapping[str, Tensor], config: ElmoConfig) -> int:
    """Count weights, the masked character's row of zeros left out."""
    masked = config.char_dim if config.reads_characters else 0
    return sum(tensor.numel() for tensor in tensors.values()) - masked


def _is_written(folder: Path, config: ElmoConfig) -> bool:
    options = folder / HDF5.options  # written last, so the weights are complete
    if not options.exists() or not (folder / HDF5.weights).exists():
        return False
    try:
        return bool(json.loads(options.read_text(encoding="utf-8")) == config.to_options())
    except ValueError:  # whatever it is, they are not our weights
        return False


def _lively(model: BiLM) -> BiLM:
    """Scale fresh weights so that vectors spread as in a trained model.

    As drawn, gates hardly open and clips are never met, and a comparison of results would be kind
    to errors. With this gain vectors have a standard deviation near 1 and some reach the clip.
    """
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.add_(_BIAS * torch.randn(parameter.shape, generator=generator))
            elif "_layers." in name:
                parameter.mul_(_GAIN)
    return model
