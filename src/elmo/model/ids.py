"""The ids that a biLM reads, by its configuration: spelled words or places in a vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from elmo.config import ElmoConfig
from elmo.errors import InputError
from elmo.text.alphabet import Alphabet, require_alphabet
from elmo.text.characters import BEGIN_SENTENCE, END_SENTENCE, CharacterMapper
from elmo.text.vocabulary import Vocabulary, WordMapper

WordIds = CharacterMapper | WordMapper

_ID_TYPES = (torch.int64, torch.int32, torch.int16)
"""Types of numbers that every id of a character fits into."""


def word_ids(
    config: ElmoConfig, vocabulary: Vocabulary | None, alphabet: Alphabet | None = None
) -> WordIds:
    """Return what turns words into the ids that a model with these sizes reads."""
    if config.reads_characters:
        require_alphabet(config, alphabet)
        return CharacterMapper(config.max_characters, alphabet=alphabet)
    if vocabulary is None:
        raise InputError("a model that reads words needs its vocabulary to look words up")
    return WordMapper(vocabulary)


def boundary_ids(
    config: ElmoConfig, vocabulary: Vocabulary | None, alphabet: Alphabet | None = None
) -> Tensor:
    """Return the ids of `<S>` and `</S>`, int64 `(2, max_characters)` or `(2,)`."""
    if not config.reads_characters and vocabulary is None:
        return torch.tensor([1, 2])  # bilm-tf wants <S> and </S> to be the first two words
    return word_ids(config, vocabulary, alphabet).rows([BEGIN_SENTENCE, END_SENTENCE])


def checked_ids(ids: Tensor) -> Tensor:
    """Return ids as int64, or raise an `InputError` that names what was passed instead.

    Kernels take ids for places in memory, and would read anywhere with other numbers.
    """
    if not isinstance(ids, Tensor):
        received = f"a {type(ids).__name__}"
    elif ids.dtype not in _ID_TYPES:
        received = str(ids.dtype).removeprefix("torch.")
    else:
        return ids.long()
    raise InputError(
        f"ids are {received}, expected a tensor of whole numbers (int64) as batch_to_ids gives it"
    )
