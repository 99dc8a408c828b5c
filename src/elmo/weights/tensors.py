"""The names and layouts of a biLM's tensors: the published ones and ours, as one table.

Each row names a tensor of the HDF5 layout (bilm-tf's, which AllenNLP, simple_elmo and others read),
the tensors of ours that hold the same numbers, and the lossless change of layout between them. The
table is read forwards to load and backwards to save, so the two can never drift apart. Shapes are
those of the model itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from elmo.config import ElmoConfig
from elmo.model.bilm import parameter_shapes
from elmo.model.cells import CELLS, Cell, cell_class

Shape = tuple[int, ...]


@dataclass(frozen=True)
class TensorRow:
    """One tensor of the HDF5 layout and where its numbers live in ours."""

    stored: str
    """Name in the HDF5 file."""
    ours: dict[str, Shape]
    """Names and shapes of our tensors that together hold the same numbers."""
    read: Callable[[Tensor], tuple[Tensor, ...]] = lambda stored: (stored,)
    """From the stored tensor to ours, in the order of `ours`."""
    write: Callable[[tuple[Tensor, ...]], Tensor] = lambda ours: ours[0]
    """The inverse of `read`."""

    @property
    def stored_shape(self) -> Shape:
        """Shape in the HDF5 file."""
        ours = tuple(torch.empty(shape, device="meta") for shape in self.ours.values())
        return tuple(self.write(ours).shape)


def tensor_table(config: ElmoConfig) -> list[TensorRow]:
    """List every tensor of a biLM with this configuration."""
    shapes = parameter_shapes(config)
    rows = list(_word_rows(config, shapes))
    cell = cell_class(config.cell)
    for direction, side in enumerate(("forward_layers", "backward_layers")):
        for layer in range(config.n_layers):
            ours = {
                name: {name: shape}
                for name, shape in shapes.items()
                if name.startswith(f"{side}.{layer}.")
            }
            theirs = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/{cell.stored_names[0]}"
            rows += _cell_rows(
                cell, {name.rpartition(".")[2]: row for name, row in ours.items()}, theirs
            )
    return rows


def _word_rows(config: ElmoConfig, shapes: dict[str, Shape]) -> Iterator[TensorRow]:
    yield TensorRow(
        "char_embed" if config.reads_characters else "embedding",
        _some(shapes, "words.embedding.weight"),
        # Ours has a zero row in front for "no word here".
        lambda stored: (torch.cat([stored.new_zeros(1, stored.shape[1]), stored]),),
        lambda ours: ours[0][1:],
    )
    if not config.reads_characters:
        return
    for i in range(len(config.filters)):
        ours = f"words.convolutions.{i}"
        yield TensorRow(
            f"CNN/W_cnn_{i}",  # (1, width, char_dim, number)
            _some(shapes, f"{ours}.weight"),  # (number, char_dim, width)
            lambda stored: (stored.squeeze(0).permute(2, 1, 0),),
            lambda ours: ours[0].permute(2, 1, 0).unsqueeze(0),
        )
        yield TensorRow(f"CNN/b_cnn_{i}", _some(shapes, f"{ours}.bias"))
    for k in range(config.n_highway):
        # bilm-tf's "carry" gates the transform: x = carry * transform + (1 - carry) * x.
        for theirs, name in (("transform", "transform"), ("carry", "gate")):
            ours = f"words.highways.{k}.{name}"
            yield _transposed(f"CNN_high_{k}/W_{theirs}", _some(shapes, f"{ours}.weight"))
            yield TensorRow(f"CNN_high_{k}/b_{theirs}", _some(shapes, f"{ours}.bias"))
    if config.has_word_projection:
        yield _transposed("CNN_proj/W_proj", _some(shapes, "words.projection.weight"))
        yield TensorRow("CNN_proj/b_proj", _some(shapes, "words.projection.bias"))


def _cell_rows(
    cell: type[Cell], ours: dict[str, dict[str, Shape]], theirs: str
) -> Iterator[TensorRow]:
    stored_gates = cell.stored_gates or cell.gates
    to_ours = [stored_gates.index(gate) for gate in cell.gates]
    to_theirs = [cell.gates.index(gate) for gate in stored_gates]
    projection = ours.pop("projection_weight", None)
    [(_, width)] = ours["input_weight"].values()
    yield TensorRow(
        f"{theirs}/W_0",
        # TensorFlow multiplies input and hidden state, side by side, with one matrix.
        ours.pop("input_weight") | ours.pop("recurrent_weight", {}),
        lambda stored: torch.split(_reordered(stored.t(), to_ours), width, dim=1),
        lambda ours: _reordered(torch.cat(ours, dim=1), to_theirs).t(),
    )
    yield TensorRow(
        f"{theirs}/B",
        ours.pop("bias"),
        lambda stored: (_reordered(stored, to_ours),),
        lambda ours: _reordered(ours[0], to_theirs),
    )
    for name, parameter in ours.items():
        yield TensorRow(f"{theirs}/{cell.stored_parameters.get(name, name)}", parameter)
    if projection is not None:
        yield _transposed(f"{theirs}/W_P_0", projection)


def _some(shapes: dict[str, Shape], name: str) -> dict[str, Shape]:
    return {name: shapes[name]}


def _transposed(stored: str, ours: dict[str, Shape]) -> TensorRow:
    return TensorRow(stored, ours, lambda stored: (stored.t(),), lambda ours: ours[0].t())


def _reordered(rows: Tensor, order: Sequence[int]) -> Tensor:
    """Put the blocks of rows that belong to gates into another order."""
    blocks = rows.chunk(len(order))
    return torch.cat([blocks[place] for place in order])


def standard_name(name: str) -> str:
    """Return the standard name of a stored tensor, whichever of the dialects its name is in.

    bilm-tf leaves `MultiRNNCell/Cell0` out of the names of one-layer models, and tools that dump a
    TensorFlow checkpoint as it is keep TensorFlow's own names.
    """
    cells = {name: cell.stored_names[0] for cell in CELLS.values() for name in cell.stored_names}
    for theirs, standard in (
        (r"^(lm|bilm)/", ""),
        (r"/rnn/", "/RNN/"),
        (r"/multi_rnn_cell/", "/MultiRNNCell/"),
        (r"/cell_", "/Cell"),
        *((f"/{theirs}/", f"/{standard}/") for theirs, standard in cells.items()),
        (r"/projection/kernel$", "/W_P_0"),
        (r"(RNN_\d/.*)/kernel$", r"\1/W_0"),
        (r"(RNN_\d/.*)/bias$", r"\1/B"),
        (rf"(RNN_\d/RNN)/({'|'.join(cells)})/", r"\1/MultiRNNCell/Cell0/\2/"),
    ):
        name = re.sub(theirs, standard, name)
    return name
