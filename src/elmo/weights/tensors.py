"""The names and layouts of a biLM's tensors: the published ones and ours, as one table.

Each row names a tensor of the HDF5 layout (bilm-tf's, which AllenNLP, simple_elmo and others read),
the tensors of ours that hold the same numbers, and the lossless change of layout between them. The
table is read forwards to load and backwards to save, so the two can never drift apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from elmo.config import ElmoConfig

Shape = tuple[int, ...]


@dataclass(frozen=True)
class TensorRow:
    """One tensor of the HDF5 layout and where its numbers live in ours."""

    stored: str
    """Name in the HDF5 file."""
    stored_shape: Shape
    ours: dict[str, Shape]
    """Names and shapes of our tensors that together hold the same numbers."""
    read: Callable[[Tensor], tuple[Tensor, ...]]
    """From the stored tensor to ours, in the order of `ours`."""
    write: Callable[[tuple[Tensor, ...]], Tensor]
    """The inverse of `read`."""


def tensor_table(config: ElmoConfig) -> list[TensorRow]:
    """List every tensor of a biLM with this configuration."""
    word_rows = _character_rows(config) if config.reads_characters else [_word_row(config)]
    layer_rows = [
        row
        for direction in range(2)
        for layer in range(config.n_layers)
        for row in _layer_rows(config, direction, layer)
    ]
    return word_rows + layer_rows


def _character_rows(config: ElmoConfig) -> list[TensorRow]:
    rows = [_padded_table_row("char_embed", config.n_characters - 1, config.char_dim)]
    for i, (width, number) in enumerate(config.filters):
        ours = f"words.convolutions.{i}"
        rows.append(
            TensorRow(
                f"CNN/W_cnn_{i}",
                (1, width, config.char_dim, number),
                {f"{ours}.weight": (number, config.char_dim, width)},
                lambda stored: (stored.squeeze(0).permute(2, 1, 0),),
                lambda ours: ours[0].permute(2, 1, 0).unsqueeze(0),
            )
        )
        rows.append(_same_row(f"CNN/b_cnn_{i}", f"{ours}.bias", number))
    filters = config.n_filters
    for k in range(config.n_highway):
        # bilm-tf's "carry" gates the transform: x = carry * transform + (1 - carry) * x.
        for theirs, ours in (("transform", "transform"), ("carry", "gate")):
            name = f"words.highways.{k}.{ours}"
            rows.append(
                _transposed_row(f"CNN_high_{k}/W_{theirs}", f"{name}.weight", filters, filters)
            )
            rows.append(_same_row(f"CNN_high_{k}/b_{theirs}", f"{name}.bias", filters))
    if config.has_word_projection:
        out = config.projection_dim
        rows.append(_transposed_row("CNN_proj/W_proj", "words.projection.weight", filters, out))
        rows.append(_same_row("CNN_proj/b_proj", "words.projection.bias", out))
    return rows


def _word_row(config: ElmoConfig) -> TensorRow:
    return _padded_table_row("embedding", config.n_words, config.projection_dim)


def _layer_rows(config: ElmoConfig, direction: int, layer: int) -> list[TensorRow]:
    inputs, dim, out = config.projection_dim, config.dim, config.projection_dim
    cell = {"lstm": "LSTMCell", "gru": "GRUCell"}[config.cell]
    theirs = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/{cell}"
    ours = f"{('forward_layers', 'backward_layers')[direction]}.{layer}"
    # TensorFlow orders the gates input, candidate, forget, output; we, as PyTorch: i, f, g, o.
    gates = (0, 2, 1, 3) if config.cell == "lstm" else (0, 1, 2)
    width = len(gates) * dim

    def read(stored: Tensor) -> tuple[Tensor, ...]:
        rows = _reorder_blocks(stored.t(), gates)
        return rows[:, :inputs], rows[:, inputs:]

    def write(parts: tuple[Tensor, ...]) -> Tensor:
        return _reorder_blocks(torch.cat(parts, dim=1), gates).t()

    weights: dict[str, Shape] = {
        f"{ours}.input_weight": (width, inputs),
        f"{ours}.recurrent_weight": (width, out),
    }
    rows = [
        TensorRow(f"{theirs}/W_0", (inputs + out, width), weights, read, write),
        TensorRow(
            f"{theirs}/B",
            (width,),
            {f"{ours}.bias": (width,)},
            lambda stored: (_reorder_blocks(stored, gates),),
            lambda parts: _reorder_blocks(parts[0], gates),
        ),
    ]
    if config.cell == "gru":
        rows.append(_same_row(f"{theirs}/B_candidate", f"{ours}.candidate_bias", dim))
    if config.has_projection:
        rows.append(_transposed_row(f"{theirs}/W_P_0", f"{ours}.projection_weight", dim, out))
    return rows


def _reorder_blocks(rows: Tensor, order: tuple[int, ...]) -> Tensor:
    """Put equal blocks of rows into another order; the orders used here are their own inverses."""
    blocks = rows.chunk(len(order))
    return torch.cat([blocks[place] for place in order])


def _same_row(stored: str, ours: str, size: int) -> TensorRow:
    return TensorRow(stored, (size,), {ours: (size,)}, lambda t: (t,), lambda ts: ts[0])


def _transposed_row(stored: str, ours: str, inputs: int, outputs: int) -> TensorRow:
    return TensorRow(
        stored,
        (inputs, outputs),
        {ours: (outputs, inputs)},
        lambda t: (t.t(),),
        lambda ts: ts[0].t(),
    )


def _padded_table_row(stored: str, rows: int, width: int) -> TensorRow:
    """A table of vectors; ours has a zero row in front for "no word here"."""
    return TensorRow(
        stored,
        (rows, width),
        {"words.embedding.weight": (rows + 1, width)},
        lambda t: (torch.cat([t.new_zeros(1, width), t]),),
        lambda ts: ts[0][1:],
    )


def standard_name(name: str) -> str:
    """Give the standard name of a stored tensor, whichever of the dialects its name is in.

    bilm-tf leaves `MultiRNNCell/Cell0` out of the names of one-layer models, and tools that dump a
    TensorFlow checkpoint as it is keep TensorFlow's own names.
    """
    for theirs, standard in (
        (r"^(lm|bilm)/", ""),
        (r"/rnn/", "/RNN/"),
        (r"/multi_rnn_cell/", "/MultiRNNCell/"),
        (r"/cell_", "/Cell"),
        (r"/lstm_cell/", "/LSTMCell/"),
        (r"/projection/kernel$", "/W_P_0"),
        (r"(RNN_\d/.*)/kernel$", r"\1/W_0"),
        (r"(RNN_\d/.*)/bias$", r"\1/B"),
        (r"(RNN_\d/RNN)/(LSTMCell|GRUCell)/", r"\1/MultiRNNCell/Cell0/\2/"),
    ):
        name = re.sub(theirs, standard, name)
    return name
