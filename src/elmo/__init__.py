"""ELMo in PyTorch: deep contextualized word vectors, exact, deterministic and fast.

    from elmo import ELMo

    elmo = ELMo.from_pretrained("path/to/model")
    vectors = elmo.encode_tokens([["The", "river", "bank", "."]])[0]   # (layers, words, dim)

Names are loaded when first used, so that `import elmo` and the command line start at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elmo.analysis.words.neighbors import neighbors
    from elmo.analysis.words.similar import similar
    from elmo.config import ElmoConfig
    from elmo.embedder import ELMo
    from elmo.errors import ElmoError, ElmoWarning
    from elmo.lm.scoring import LanguageModelScorer
    from elmo.model.bilm import BiLM, State, random_bilm
    from elmo.model.scalar_mix import ScalarMix
    from elmo.module import Elmo, ElmoLayer
    from elmo.text.alphabet import Alphabet
    from elmo.text.characters import CharacterMapper, batch_to_ids
    from elmo.training.corpus.prepare import prepare
    from elmo.training.finetune import finetune
    from elmo.training.trainer import train
    from elmo.weights.token_file import TokenFile

__version__ = "0.1.0"

_HOMES = {
    "Alphabet": "text.alphabet",
    "BiLM": "model.bilm",
    "CharacterMapper": "text.characters",
    "ELMo": "embedder",
    "Elmo": "module",
    "ElmoConfig": "config",
    "ElmoError": "errors",
    "ElmoLayer": "module",
    "ElmoWarning": "errors",
    "LanguageModelScorer": "lm.scoring",
    "ScalarMix": "model.scalar_mix",
    "State": "model.bilm",
    "TokenFile": "weights.token_file",
    "batch_to_ids": "text.characters",
    "finetune": "training.finetune",
    "neighbors": "analysis.words.neighbors",
    "prepare": "training.corpus.prepare",
    "random_bilm": "model.bilm",
    "similar": "analysis.words.similar",
    "train": "training.trainer",
}

__all__ = [
    "Alphabet",
    "BiLM",
    "CharacterMapper",
    "ELMo",
    "Elmo",
    "ElmoConfig",
    "ElmoError",
    "ElmoLayer",
    "ElmoWarning",
    "LanguageModelScorer",
    "ScalarMix",
    "State",
    "TokenFile",
    "batch_to_ids",
    "finetune",
    "neighbors",
    "prepare",
    "random_bilm",
    "similar",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in ("analysis", "tasks"):
        return import_module(f"elmo.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'elmo' has no attribute {name!r}")
    return getattr(import_module(f"elmo.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
