"""Random weights on disk, in the layout that both systems read."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from elmo.bilm import BiLM, random_bilm
from elmo.checkpoint import save_published
from elmo.config import ElmoConfig, Preset
from elmo.model_files import HDF5_FILE, OPTIONS_FILE

DATA_FOLDER = Path(__file__).resolve().parent.parent / ".benchmark-data"

_GAIN = 2.0
_BIAS = 0.1


def weights_folder(size: Preset) -> Path:
    """Give the folder with the random weights of a size, writing them if they are not there."""
    config = ElmoConfig.preset(size)
    folder = DATA_FOLDER / size
    if not _is_written(folder, config):
        save_published(_lively(random_bilm(config)).to_checkpoint(), folder)
    return folder


def count_parameters(size: Preset) -> int:
    """Count the weights of a model, the masked character's row of zeros left out."""
    config = ElmoConfig.preset(size)
    with torch.device("meta"):
        return sum(p.numel() for p in BiLM(config).parameters()) - config.char_dim


def _is_written(folder: Path, config: ElmoConfig) -> bool:
    options = folder / OPTIONS_FILE  # written last, so the weights are complete
    if not options.exists() or not (folder / HDF5_FILE).exists():
        return False
    return bool(json.loads(options.read_text(encoding="utf-8")) == config.to_options())


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
