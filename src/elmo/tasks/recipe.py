"""Defaults by task: how files are read, and how a model is trained.

Nothing here imports PyTorch, so help texts are printed at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from elmo.settings import TokenizerName


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How files of examples are read; each task uses what concerns it."""

    format: str | None = None
    """Format of the files; detected from names and content if None."""
    tokenizer: TokenizerName = "english"
    """Tokenizer of raw texts; files of words are left as they are."""
    encoding: str = "utf-8"
    """Encoding of the files."""
    text_column: str | None = None
    """Name or number (from 0) of the column or key that holds the text."""
    label_column: str | None = None
    """Name or number (from 0) of the column or key that holds the label or tag."""
    phrases: bool = False
    """Whether phrases within sentences are examples, too (trees; for training only)."""
    max_words: int = 1000
    """Longer sentences are left out, longer texts truncated, with a counted warning."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Default sizes and training of a task; a flag of the same name takes precedence."""

    hidden: int
    """Width of the encoder in one direction."""
    layers: int = 1
    """Recurrent layers of the encoder."""
    dropout: float = 0.3
    """Dropout on the input of every part of the head."""
    batch: int = 32
    """Examples in a batch."""
    epochs: int = 20
    """Epochs, at most."""
    min_steps: int = 500
    """Small training sets are read more often, up to this many steps."""
    patience: int = 5
    """Stop after this many evaluations without an improvement; 0: never."""
    rate: float = 1e-3
    """Highest learning rate of Adam, after a linear warm-up and before a linear decay."""
    weight_decay: float = 0.0
    """Weight decay of AdamW."""
    clip: float = 5.0
    """Bound on the global norm of the gradient."""
    elmo_dropout: float = 0.5
    """Dropout on the mixed layers of ELMo."""
    mix_l2: float = 0.0
    """L2 penalty that pulls the learned mix towards the average of the layers."""
