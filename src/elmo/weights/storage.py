"""Models read from disk and written to it, in any of the `formats`, bit for bit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import get_args

from elmo.errors import ConfigError, MissingFileError, OutputExistsError, WeightsError
from elmo.model.checkpoint import Checkpoint
from elmo.settings import OutputDtype
from elmo.text.alphabet import require_alphabet
from elmo.text.vocabulary import Vocabulary
from elmo.weights.checks import check_softmax, require_finite
from elmo.weights.formats import FORMATS, OURS, find_model, format_named
from elmo.weights.parts import VOCABULARY_FILE, ModelFiles
from elmo.weights.tensors_on_disk import StoredTensors, rounded


def load_checkpoint(
    path: Path | str, options: Path | str | None = None, *, lazily: bool = False
) -> Checkpoint:
    """Read a model in any format, checking every tensor against the configuration.

    Args:
        path: A folder or a weights file.
        options: The description of the model, if it is not beside the weights.
        lazily: Leave the output layer in its file until it is first used; vectors need none.
            Its shapes are checked all the same. Only our own format has a file for it.
    """
    format, files = find_model(path, options)
    checkpoint = dataclasses.replace(format.code.read(files), format=format.name)
    for name, tensor in checkpoint.tensors.items():
        require_finite(files.weights, name, tensor)
    # A model that reads characters has no use for a vocabulary but in its softmax.
    if files.vocabulary and (checkpoint.softmax or not checkpoint.config.reads_characters):
        vocabulary = Vocabulary.read(files.vocabulary)
        checkpoint = dataclasses.replace(checkpoint, vocabulary=vocabulary)
    if not checkpoint.config.reads_characters:
        _check_vocabulary(checkpoint, files)
    _check_output_layer(checkpoint, files, lazily)
    return checkpoint


def _check_vocabulary(checkpoint: Checkpoint, files: ModelFiles) -> None:
    if checkpoint.vocabulary is None:
        raise MissingFileError(
            f"{files.weights} reads words, so it needs its {VOCABULARY_FILE} beside it"
        )
    if len(checkpoint.vocabulary) != checkpoint.config.n_words:
        raise WeightsError(
            f"{files.vocabulary} lists {len(checkpoint.vocabulary)} words, "
            f"but {files.weights} has vectors for {checkpoint.config.n_words}"
        )
    checkpoint.vocabulary.require_specials(str(files.vocabulary))


def _check_output_layer(checkpoint: Checkpoint, files: ModelFiles, lazily: bool) -> None:
    softmax, path = checkpoint.softmax, files.weights
    if isinstance(softmax, StoredTensors):
        path = softmax.path
        softmax = softmax.outline() if lazily else dict(softmax)
    if softmax:
        check_softmax(path, softmax, checkpoint.config, checkpoint.vocabulary)


def save_checkpoint(
    checkpoint: Checkpoint,
    folder: Path | str,
    format: str = OURS.name,
    dtype: OutputDtype = "float32",
) -> Checkpoint:
    """Write a model in any format that can be written.

    Args:
        checkpoint: The model.
        folder: Where to.
        format: Name of the format, see `formats.FORMATS`.
        dtype: Type of the stored weights: `float16` halves the files of our own format and keeps
            about three decimal digits. Other formats are always float32.

    Returns:
        The model that was written: its weights are rounded with float16.
    """
    chosen = format_named(format)
    if dtype not in get_args(OutputDtype):
        raise ConfigError(f"dtype is {dtype!r}, expected one of {get_args(OutputDtype)}")
    require_alphabet(checkpoint.config, checkpoint.alphabet)
    folder = Path(folder)
    _refuse_if_hidden(chosen.name, folder)
    stored = rounded_checkpoint(checkpoint, dtype)
    chosen.code.write(stored, folder, dtype)
    return stored


def _refuse_if_hidden(format: str, folder: Path) -> None:
    """Raise if a folder has weights that would be loaded in the place of new ones."""
    for first in FORMATS:
        if first.name == format:
            return
        if (folder / first.weights).exists():
            raise OutputExistsError(
                f"{folder} holds {first.weights}, which would be loaded in the place of a model "
                f"in the format {format}; choose another folder"
            )


def rounded_checkpoint(checkpoint: Checkpoint, dtype: OutputDtype) -> Checkpoint:
    """Return a model, float32 as ever, with its weights rounded to what a type can represent."""
    if dtype == "float32":
        return checkpoint
    lookup = checkpoint.lookup
    return dataclasses.replace(
        checkpoint,
        lookup=None if lookup is None else lookup.rounded_to(rounded(lookup.tensors())),
        tensors=rounded(checkpoint.tensors),
        softmax=rounded(checkpoint.softmax),
    )
