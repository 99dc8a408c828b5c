"""Parts that several weight formats share: lists of words and characters beside the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmo.config import N_BYTE_CHARACTERS, ElmoConfig
from elmo.errors import MissingFileError, WeightsError
from elmo.model.checkpoint import Checkpoint
from elmo.runtime.files import output_errors, replacing
from elmo.text.alphabet import Alphabet

VOCABULARY_FILE = "vocab.txt"
CHARACTERS_FILE = "characters.txt"
LIST_PATTERNS = ("vocab*.txt*", CHARACTERS_FILE)


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """Where the parts of a model are."""

    options: Path
    weights: Path
    vocabulary: Path | None = None
    characters: Path | None = None
    """The alphabet; only models that spell words as code points need one."""


def files_beside(weights: Path, options: Path) -> ModelFiles:
    """Return weights and description, which must exist, with the lists beside the weights."""
    if not options.exists():
        raise MissingFileError(f"{weights} is there, but not its {options.name} beside it")
    characters = weights.with_name(CHARACTERS_FILE)
    return ModelFiles(
        options=options,
        weights=weights,
        vocabulary=_find_vocabulary(weights.parent),
        characters=characters if characters.exists() else None,
    )


def _find_vocabulary(folder: Path) -> Path | None:
    # bilm-tf's own is called vocab-2016-09-10.txt. Copies that editors leave behind, and lists of
    # characters that other tools call a vocabulary, are none.
    others = (
        path
        for path in sorted(folder.glob("vocab*"))
        if path.name.endswith((".txt", ".txt.gz")) and "char" not in path.name
    )
    usual = [folder / VOCABULARY_FILE, folder / f"{VOCABULARY_FILE}.gz"]
    return next((path for path in (*usual, *others) if path.exists()), None)


def read_alphabet(config: ElmoConfig, files: ModelFiles) -> Alphabet | None:
    """Read the characters of a model that has an alphabet, and check that they are its own."""
    if not config.has_alphabet:
        return None
    if files.characters is None:
        raise MissingFileError(
            f"{files.options}: n_characters is {config.n_characters}, neither of the "
            f"{N_BYTE_CHARACTERS - 1} and {N_BYTE_CHARACTERS} of a model that spells words as "
            f"UTF-8 bytes, and there is no {CHARACTERS_FILE} with an alphabet beside "
            f"{files.weights}; put it there, or correct the number"
        )
    alphabet = Alphabet.read(files.characters)
    if alphabet.n_characters != config.n_characters:
        raise WeightsError(
            f"{files.characters} lists {len(alphabet)} characters, which need n_characters="
            f"{alphabet.n_characters}, but {files.options} has {config.n_characters}; "
            "does the list belong to another model, or is it cut short?"
        )
    return alphabet


def make_folder(folder: Path) -> None:
    """Make the folder of a model, unless it is there."""
    with output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)


def write_lists(checkpoint: Checkpoint, folder: Path) -> None:
    """Write the words and the characters that ids stand for, where there are any."""
    lists: Mapping[str, Any] = {
        VOCABULARY_FILE: checkpoint.vocabulary,
        CHARACTERS_FILE: checkpoint.alphabet,
    }
    for name, entries in lists.items():
        if entries is not None:
            with replacing(folder / name) as path:
                entries.write(path)
