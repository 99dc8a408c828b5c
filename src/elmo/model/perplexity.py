"""Perplexity: one definition for `elmo perplexity`, `train`, `finetune` and the cards of models.

The mean of both directions is geometric everywhere: exp of the mean of their losses.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Perplexity:
    """How well a model predicts a text, exp of its mean loss in nats; the lower the better."""

    forward: float
    backward: float
    n_predictions: int = 0
    """Predictions of each direction: every word that counts, and one boundary a sentence."""
    n_sentences: int = 0
    """Sentences with words; others are not counted."""
    n_words: int = 0
    n_unknown: int = 0
    """Words that are not in the vocabulary."""
    counts_unknown: bool = True
    """Whether unknown words count, as predictions of `<UNK>`."""

    @classmethod
    def of_losses(cls, forward: float, backward: float, **counts: Any) -> Perplexity:
        """Return the perplexity of two mean losses in nats; infinite where exp overflows."""
        return cls(forward=_exp(forward), backward=_exp(backward), **counts)

    @property
    def mean(self) -> float:
        """Geometric mean of both directions: exp of the mean of their losses."""
        return math.sqrt(self.forward) * math.sqrt(self.backward)

    @property
    def unknown_rate(self) -> float:
        """Fraction of the words that are not in the vocabulary."""
        return self.n_unknown / max(1, self.n_words)

    def to_dict(self) -> dict[str, Any]:
        """Return all figures, for JSON."""
        sides = {"forward": self.forward, "backward": self.backward, "mean": self.mean}
        return {**sides, **asdict(self), "unknown_rate": self.unknown_rate}


def _exp(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf
