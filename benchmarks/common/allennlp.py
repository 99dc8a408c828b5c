"""AllenNLP's ELMo, run from its own published files, to be measured beside ours.

AllenNLP 2.10.1 pins versions of a dozen packages that no longer install, but the numeric path of
its `Elmo` needs none of them: torch, NumPy and h5py are enough. `import allennlp.modules.elmo`
pulls the others in only through the `__init__` files of its packages and through imports that
serve reading data and configuration. Here the packages are registered without running their
`__init__`, and the imports that are never called get stand-ins. Not one line that computes is
replaced.
"""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.config import ElmoConfig
from elmo.text.characters import CharacterMapper, batch_to_ids

ALLENNLP_VERSION = "2.10.1"
PEER = f"AllenNLP {ALLENNLP_VERSION}"
_MAX_CHARACTERS = 50
HOW_TO_INSTALL = f"pip install --no-deps allennlp=={ALLENNLP_VERSION}"


class MissingPeerError(Exception):
    """AllenNLP is not there, or is another version than the one we compare with."""


class AllenNLP:
    """`allennlp.modules.elmo.Elmo` with one output representation, for inference.

    Args:
        folder: Where `options.json` and `weights.hdf5` are.
        device: Where to compute.
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        elmo_class = load_elmo_class()
        self._device = device
        self._model = (
            elmo_class(
                str(folder / "options.json"),
                str(folder / "weights.hdf5"),
                num_output_representations=1,
                dropout=0.0,
            )
            .eval()
            .to(device)
        )

    def embed(self, batch: Sequence[Sequence[str]]) -> Tensor:
        """Return the mix of layers of one batch, padded, `(batch, time, dim)`, on the device."""
        ids = self._begin(batch)
        with torch.no_grad():
            mixed: Tensor = self._model(ids)["elmo_representations"][0]
        return mixed

    def layers(self, batch: Sequence[Sequence[str]]) -> list[npt.NDArray[np.float32]]:
        """Return all layers of each sentence of one batch, `(n_layers, n, dim)`."""
        ids = self._begin(batch)
        with torch.no_grad():
            activations: list[Tensor] = self._model._elmo_lstm(ids)["activations"]
        stacked = torch.stack(activations, dim=1)  # (batch, n_layers, time + 2, dim)
        return [
            layers[:, 1 : 1 + len(sentence)].cpu().numpy()  # without the sentence's boundaries
            for layers, sentence in zip(stacked, batch, strict=True)
        ]

    def _begin(self, batch: Sequence[Sequence[str]]) -> Tensor:
        """Forget earlier batches and spell the words of this one."""
        self._model._elmo_lstm._elmo_lstm.reset_states()
        return batch_to_ids(batch).to(self._device)


def why_not(config: ElmoConfig) -> str | None:
    """Return why AllenNLP cannot run a model of these sizes; None if it can."""
    if config.cell != "lstm":
        return f"AllenNLP has no {config.cell} cells"
    if not config.reads_characters or config.has_alphabet:
        return "AllenNLP reads words as UTF-8 bytes only"
    if config.max_characters != _MAX_CHARACTERS:
        return f"AllenNLP reads {_MAX_CHARACTERS} characters of a word, never another number"
    if not (config.has_projection and config.has_word_projection):
        return "AllenNLP always projects cells and words"
    return None


def load_elmo_class() -> Any:
    """Import AllenNLP's `Elmo` without the packages that its numeric path does not need.

    Raises:
        MissingPeerError: It is not installed, or another version is.
    """
    root = _package_folder()
    _require_version(root)
    for name, attributes in _stand_ins().items():
        sys.modules[name] = _module(name, attributes)
    for name in ("allennlp", "allennlp.modules", "allennlp.nn"):
        sys.modules[name] = _shell(name, root)
    return importlib.import_module("allennlp.modules.elmo").Elmo


def _package_folder() -> Path:
    """Find AllenNLP without importing it, whether it was installed or lies on PYTHONPATH."""
    if "allennlp" in sys.modules:
        return Path(sys.modules["allennlp"].__path__[0])
    spec = importlib.util.find_spec("allennlp")
    if spec is None or not spec.submodule_search_locations:
        raise MissingPeerError(f"AllenNLP is not installed; to compare with it: {HOW_TO_INSTALL}")
    return Path(next(iter(spec.submodule_search_locations)))


def _require_version(root: Path) -> None:
    version = runpy.run_path(str(root / "version.py"))["VERSION"]
    if version != ALLENNLP_VERSION:
        raise MissingPeerError(
            f"AllenNLP {version} is installed; to compare with it: {HOW_TO_INSTALL}"
        )


def _shell(name: str, root: Path) -> ModuleType:
    """Return a package whose modules can be imported but whose `__init__` is not run."""
    shell = ModuleType(name)
    shell.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    return shell


def _module(name: str, attributes: dict[str, Any]) -> ModuleType:
    module = ModuleType(name)
    module.__path__ = []  # so that it may have submodules
    vars(module).update(attributes)
    return module


def _stand_ins() -> dict[str, dict[str, Any]]:
    """Return the modules that `allennlp.modules.elmo` imports and embedding never calls.

    Four attributes are used when a model is built, none while it runs: the base class `FromParams`,
    `cached_path` (for a path on disk, that path), the spelling of sentence boundaries, and
    `block_orthogonal` (initial weights, which those of the file replace).
    """

    class FromParams:
        """Base class of whatever can be built from a configuration file."""

    class ConfigurationError(Exception):
        """What AllenNLP raises for wrong arguments."""

    class ELMoCharacterMapper:
        """Spelling of the sentence boundaries, before ids are shifted up by one."""

        beginning_of_sentence_characters, end_of_sentence_characters = (
            CharacterMapper().rows(["<S>", "</S>"]) - 1
        ).tolist()

    return {
        "allennlp.common": {"FromParams": FromParams},
        "allennlp.common.checks": {"ConfigurationError": ConfigurationError},
        "allennlp.common.file_utils": {"cached_path": lambda path: path},
        "allennlp.common.util": dict.fromkeys(
            ("int_to_device", "is_distributed", "is_global_primary", "lazy_groups_of")
        ),
        "allennlp.data": {},
        "allennlp.data.batch": {"Batch": None},
        "allennlp.data.fields": {"TextField": None},
        "allennlp.data.instance": {"Instance": None},
        "allennlp.data.token_indexers": {},
        "allennlp.data.token_indexers.elmo_indexer": {
            "ELMoCharacterMapper": ELMoCharacterMapper,
            "ELMoTokenCharactersIndexer": None,
        },
        "allennlp.data.tokenizers": {},
        "allennlp.data.tokenizers.token_class": {"Token": None},
        "allennlp.data.vocabulary": {"Vocabulary": None},
        "allennlp.nn.initializers": {"block_orthogonal": lambda *_arguments: None},
    }
