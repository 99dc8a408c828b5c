"""The names and layouts of a biLM's tensors: the published ones and ours, as one table.

Each row names a tensor of the HDF5 layout (bilm-tf's, which AllenNLP, simple_elmo and others read),
the tensors of ours that hold the same numbers, and the lossless change of layout between them. The
table is read forwards to load and backwards to save, so the two can never drift apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from elmo.config import ElmoConfig
from elmo.model.cells import CELLS, Cell, cell_class

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
    return word_rows + _recurrent_rows(config)


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
        rows.append(_same_row(f"CNN/b_cnn_{i}", f"{ours}.bias", (number,)))
    filters = config.n_filters
    for k in range(config.n_highway):
        # bilm-tf's "carry" gates the transform: x = carry * transform + (1 - carry) * x.
        for theirs, ours in (("transform", "transform"), ("carry", "gate")):
            name = f"words.highways.{k}.{ours}"
            rows.append(
                _transposed_row(f"CNN_high_{k}/W_{theirs}", f"{name}.weight", filters, filters)
            )
            rows.append(_same_row(f"CNN_high_{k}/b_{theirs}", f"{name}.bias", (filters,)))
    if config.has_word_projection:
        out = config.projection_dim
        rows.append(_transposed_row("CNN_proj/W_proj", "words.projection.weight", filters, out))
        rows.append(_same_row("CNN_proj/b_proj", "words.projection.bias", (out,)))
    return rows


def _word_row(config: ElmoConfig) -> TensorRow:
    return _padded_table_row("embedding", config.n_words, config.projection_dim)


def _recurrent_rows(config: ElmoConfig) -> list[TensorRow]:
    """List the tensors of the recurrent layers, as their cell describes them."""
    kind = cell_class(config.cell)
    with torch.device("meta"):  # shapes without memory
        shapes = {name: tuple(p.shape) for name, p in kind(config).named_parameters()}
    return [
        row
        for direction, side in enumerate(("forward_layers", "backward_layers"))
        for layer in range(config.n_layers)
        for row in _cell_rows(
            kind,
            shapes,
            f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/{kind.stored_names[0]}",
            f"{side}.{layer}",
        )
    ]


def _cell_rows(
    kind: type[Cell], shapes: Mapping[str, Shape], theirs: str, ours: str
) -> Iterator[TensorRow]:
    stored_gates = kind.stored_gates or kind.gates
    to_ours = [stored_gates.index(gate) for gate in kind.gates]
    to_theirs = [kind.gates.index(gate) for gate in stored_gates]
    # TensorFlow multiplies input and hidden state, side by side, with one matrix.
    weights = [name for name in ("input_weight", "recurrent_weight") if name in shapes]
    widths = [shapes[name][1] for name in weights]
    rows = shapes["bias"][0]
    yield TensorRow(
        f"{theirs}/W_0",
        (sum(widths), rows),
        {f"{ours}.{name}": shapes[name] for name in weights},
        lambda stored: _reordered(stored.t(), to_ours).split(widths, dim=1),
        lambda parts: _reordered(torch.cat(parts, dim=1), to_theirs).t(),
    )
    yield TensorRow(
        f"{theirs}/B",
        (rows,),
        {f"{ours}.bias": (rows,)},
        lambda stored: (_reordered(stored, to_ours),),
        lambda parts: _reordered(parts[0], to_theirs),
    )
    for name, shape in shapes.items():
        if name not in (*weights, "bias", "projection_weight"):
            stored = kind.stored_parameters.get(name, name)
            yield _same_row(f"{theirs}/{stored}", f"{ours}.{name}", shape)
    if "projection_weight" in shapes:
        out, dim = shapes["projection_weight"]
        yield _transposed_row(f"{theirs}/W_P_0", f"{ours}.projection_weight", dim, out)


def _reordered(rows: Tensor, order: Sequence[int]) -> Tensor:
    """Put the blocks of rows that belong to gates into another order."""
    blocks = rows.chunk(len(order))
    return torch.cat([blocks[place] for place in order])


def _same_row(stored: str, ours: str, shape: Shape) -> TensorRow:
    return TensorRow(stored, shape, {ours: shape}, lambda t: (t,), lambda ts: ts[0])


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
    """Return the standard name of a stored tensor, whichever of the dialects its name is in.

    bilm-tf leaves `MultiRNNCell/Cell0` out of the names of one-layer models, and tools that dump a
    TensorFlow checkpoint as it is keep TensorFlow's own names.
    """
    cells = "|".join(cell.stored_names[0] for cell in CELLS.values())
    for theirs, standard in (
        (r"^(lm|bilm)/", ""),
        (r"/rnn/", "/RNN/"),
        (r"/multi_rnn_cell/", "/MultiRNNCell/"),
        (r"/cell_", "/Cell"),
        *(
            (f"/{dialect}/", f"/{cell.stored_names[0]}/")
            for cell in CELLS.values()
            for dialect in cell.stored_names[1:]
        ),
        (r"/projection/kernel$", "/W_P_0"),
        (r"(RNN_\d/.*)/kernel$", r"\1/W_0"),
        (r"(RNN_\d/.*)/bias$", r"\1/B"),
        (rf"(RNN_\d/RNN)/({cells})/", r"\1/MultiRNNCell/Cell0/\2/"),
    ):
        name = re.sub(theirs, standard, name)
    return name
