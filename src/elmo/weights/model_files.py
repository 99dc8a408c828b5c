"""The files of a model: what they are called, and which of a folder's files belong together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elmo.errors import MissingFileError

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
SOFTMAX_FILE = "softmax.safetensors"
CARD_FILE = "README.md"
OPTIONS_FILE = "options.json"
HDF5_FILE = "weights.hdf5"
VOCABULARY_FILE = "vocab.txt"
CHARACTERS_FILE = "characters.txt"
LOOKUP_FILE = "lookup.safetensors"
LOOKUP_WORDS = "lookup.txt"
MANYLANGS_FILE = "encoder.pkl"
"""Weights of ELMoForManyLangs; the rest of such a model lies beside it, under fixed names."""


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """Where the parts of a model lie."""

    options: Path
    weights: Path
    vocabulary: Path | None = None
    characters: Path | None = None
    """The alphabet; only models that spell words as code points need one."""

    @property
    def is_ours(self) -> bool:
        """Whether this is our own layout (else the published one)."""
        return self.weights.suffix == ".safetensors"

    @property
    def is_manylangs(self) -> bool:
        """Whether this is a folder of ELMoForManyLangs."""
        return self.weights.name == MANYLANGS_FILE


def find_model(path: Path | str) -> ModelFiles:
    """Find the files of a model in a folder, or beside its weights file."""
    path = Path(path)
    if not path.exists():
        raise MissingFileError(f"no such model folder or file: {path}")
    folder = path if path.is_dir() else path.parent
    weights = path if path.is_file() else _find_weights(folder)
    return name_files(_find_options(folder, weights), weights)


def name_files(options: Path, weights: Path) -> ModelFiles:
    """Add to a pair of options and weights the lists that lie beside the weights."""
    folder = weights.parent
    characters = folder / CHARACTERS_FILE
    return ModelFiles(
        options=options,
        weights=weights,
        vocabulary=_find_vocabulary(folder),
        characters=characters if characters.exists() else None,
    )


def _find_vocabulary(folder: Path) -> Path | None:
    for name in (VOCABULARY_FILE, f"{VOCABULARY_FILE}.gz"):
        if (folder / name).exists():
            return folder / name
    # bilm-tf's own is called vocab-2016-09-10.txt. Copies that editors leave behind, and lists of
    # characters that other tools call a vocabulary, are none.
    return next(
        (
            path
            for path in sorted(folder.glob("vocab*"))
            if path.name.endswith((".txt", ".txt.gz")) and "char" not in path.name
        ),
        None,
    )


def _find_weights(folder: Path) -> Path:
    if (folder / WEIGHTS_FILE).exists():
        return folder / WEIGHTS_FILE
    for name in (
        HDF5_FILE,
        "model.hdf5",
        MANYLANGS_FILE,
    ):  # the NLPL repository calls it model.hdf5
        if (folder / name).exists():
            return folder / name
    found = sorted(p for pattern in ("*.hdf5", "*.h5") for p in folder.glob(pattern))
    named = [p for p in found if "weights" in p.name]  # others may be vectors or token files
    for candidates in (named, found):
        if len(candidates) == 1:
            return candidates[0]
    listing = ", ".join(p.name for p in found or sorted(folder.iterdir())[:10]) or "nothing"
    reason = "several weights files" if found else "no weights file"
    raise MissingFileError(
        f"{folder}: {reason} (found: {listing}); expected {WEIGHTS_FILE} or {HDF5_FILE}, "
        "or name options and weights one by one"
    )


def _find_options(folder: Path, weights: Path) -> Path:
    if weights.suffix == ".safetensors" or weights.name == MANYLANGS_FILE:
        expected = [folder / CONFIG_FILE]
    else:
        # AllenNLP's names: X_weights.hdf5 goes with X_options.json.
        expected = [folder / OPTIONS_FILE]
        if "weights" in weights.name:
            twin = weights.name.replace("weights", "options").rsplit(".", 1)[0] + ".json"
            expected.insert(0, folder / twin)
        others = sorted(folder.glob("*options*.json"))
        expected += others if len(others) == 1 else []
    for candidate in expected:
        if candidate.exists():
            return candidate
    names = " or ".join(dict.fromkeys(candidate.name for candidate in expected))
    raise MissingFileError(f"{weights} is there, but not its {names} beside it")
