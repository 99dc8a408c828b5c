"""What a model must compute and read, counted from its sizes.

A product of `rows x in` by `in x out` counts 2 * rows * in * out operations. Element-wise work is
not counted: it is less than a hundredth.
"""

from __future__ import annotations

from dataclasses import dataclass

from elmo.config import ElmoConfig
from elmo.model.cells import cell_class

WEIGHT_BYTES: dict[str, int] = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}
"""Bytes of one weight of the large products."""


@dataclass(frozen=True)
class Costs:
    """Operations for one word, and weights that one sentence needs."""

    convolution: int
    """Operations of the character convolution at all places, as it is defined."""
    dense: int
    """Operations of highways and word projection."""
    first_input: int
    """Operations of the first layer's input products, both directions."""
    recurrent: int
    """Operations of all else in the recurrent layers, both directions."""
    weights_once: int
    """Weights that a sentence needs once: encoder of words, input products."""
    weights_each_step: int
    """Weights that every time step needs again: recurrent products and projections."""

    @property
    def per_word(self) -> int:
        """Operations for one word by the book: nothing is shared between equal words."""
        return self.convolution + self.dense + self.first_input + self.recurrent

    def least(self, words: int, distinct: int) -> int:
        """Count the operations of products that no program can avoid for a text.

        Vectors of words and the first layer's input products are the same wherever a word stands.
        The convolution is left out: as a table of characters it needs no product.

        Args:
            words: Words of the text.
            distinct: Different words among them.
        """
        return distinct * (self.dense + self.first_input) + words * self.recurrent

    def sentence_bytes(self, words: int, precision: str) -> int:
        """Count the bytes of weights that pass for one sentence, were nothing kept in a cache."""
        weights = self.weights_once + words * self.weights_each_step
        return weights * WEIGHT_BYTES[precision]


def count_costs(config: ElmoConfig) -> Costs:
    """Count what a model of these sizes needs."""
    width = config.projection_dim
    cell = cell_class(config.cell)
    gates = len(cell.gates) * config.dim
    recurrent = gates * width if cell.has_recurrent_weight else 0
    projection = config.dim * width if config.has_projection else 0
    step = 2 * config.n_layers * (recurrent + projection)  # weights, both directions
    first_input = 2 * gates * width
    later_inputs = (config.n_layers - 1) * first_input
    dense = _dense_weights(config)
    return Costs(
        convolution=2 * config.char_dim * _filter_positions(config),
        dense=2 * dense,
        first_input=2 * first_input,
        recurrent=2 * (step + later_inputs),
        weights_once=dense + first_input + later_inputs,
        weights_each_step=step,
    )


def _dense_weights(config: ElmoConfig) -> int:
    """Count the weights of highways (transform and gate) and word projection."""
    highways = config.n_highway * 2 * config.n_filters**2 if config.reads_characters else 0
    projection = config.n_filters * config.projection_dim if config.has_word_projection else 0
    return highways + projection


def _filter_positions(config: ElmoConfig) -> int:
    """Sum, over all filters, their width times the places where they are applied."""
    return sum(
        number * width * (config.max_characters - width + 1) for width, number in config.filters
    )
