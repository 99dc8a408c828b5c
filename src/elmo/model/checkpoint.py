"""A biLM as plain data: configuration, tensors, words and characters.

How it is read from files and written to them is decided in `elmo.weights`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from elmo.config import ElmoConfig
from elmo.model.word_lookup import WordLookup
from elmo.text.alphabet import Alphabet
from elmo.text.vocabulary import Vocabulary

Tensors = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A biLM at rest."""

    config: ElmoConfig
    tensors: Tensors
    """The weights under the names of `BiLM.state_dict()`, float32."""
    vocabulary: Vocabulary | None = None
    """The words of a model that reads words, or of the softmax."""
    alphabet: Alphabet | None = None
    """The characters of a model that spells words as code points."""
    warm_state: tuple[Tensor, Tensor] | None = None
    """Burned-in hidden `(layers, 2, projection_dim)` and memory `(layers, 2, dim)`, if saved."""
    format: str = "elmo"
    """Name of the weight format it was read from."""
    lookup: WordLookup | None = None
    """Terms of known words beside their characters, in models of ELMoForManyLangs."""
    softmax: Mapping[str, Tensor] = field(default_factory=dict)
    """The language model's output layer, if present: `weight` (words, projection_dim) and `bias`
    (words,), without `weight` where it is the table of words; or the tensors of an adaptive one.
    It may still be in its file: `StoredTensors`."""

    @property
    def n_parameters(self) -> int:
        """Number of weights, without the output layer."""
        return sum(tensor.numel() for tensor in self.tensors.values())

    def fingerprint(self) -> str:
        """Return the SHA-256 of what decides a word's vectors, the same in every file format.

        That is sizes and weights, and for a model that reads words its vocabulary, for one with
        an alphabet its characters.
        """
        digest = hashlib.sha256()
        digest.update(json.dumps(self.config.to_options(), sort_keys=True).encode())
        if self.vocabulary is not None and not self.config.reads_characters:
            digest.update(json.dumps(self.vocabulary.words).encode())
        if self.alphabet is not None:
            digest.update(json.dumps(self.alphabet.characters).encode())
        for name in sorted(self.tensors):
            tensor = self.tensors[name].contiguous()
            digest.update(f"{name}{tuple(tensor.shape)}".encode())
            digest.update(tensor.numpy().data)
        if self.lookup is not None:
            self.lookup.update(digest)
        return digest.hexdigest()
