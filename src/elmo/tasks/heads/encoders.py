"""Parts that heads share: variational dropout, recurrent encoders, attention, pooling."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmo.backends.gpu.kernels.small_lstm import can_read, read_sides
from elmo.tasks.heads.base import Layout


class SequenceDropout(nn.Module):
    """Variational dropout: one mask for all words of a sequence (Gal and Ghahramani 2016).

    Args:
        share: Probability that a value is dropped.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, vectors: Tensor) -> Tensor:
        """Drop values of `(sentences, time, dim)`."""
        if not self.training or not self.share:
            return vectors
        kept = torch.empty_like(vectors[:, :1]).bernoulli_(1 - self.share)
        return vectors * kept.div_(1 - self.share)


class Lstm(nn.Module):
    """One bidirectional LSTM layer over padded sentences.

    Args:
        input_dim: Width of its input.
        hidden: Width of its output in one direction.
    """

    def __init__(self, input_dim: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(input_dim, hidden, batch_first=True, bidirectional=True)
        for name, weights in self.lstm.named_parameters():
            if name.startswith("weight_hh"):
                for part in weights.data.chunk(4):
                    nn.init.orthogonal_(part)
            elif name.startswith("weight_ih"):
                nn.init.xavier_uniform_(weights)
            else:
                nn.init.zeros_(weights)
                if name.startswith("bias_ih"):
                    weights.data[hidden : 2 * hidden] = 1.0  # forget gate: remember at first

    def forward(self, vectors: Tensor, layout: Layout) -> Tensor:
        """Read sentences `(sentences, time, input_dim)`.

        Returns:
            `(sentences, time, 2 * hidden)`; zero at padding.
        """
        with torch.autocast(vectors.device.type, enabled=False):  # a state sums many steps
            read = self._implementation(vectors.device)
            return read(vectors.float(), layout) * layout.mask.unsqueeze(-1)

    def _implementation(self, device: torch.device) -> Callable[[Tensor, Layout], Tensor]:
        if device.type != "cuda":
            return self._padded
        return self._fused if can_read(self.lstm.hidden_size, device) else self._packed

    def _fused(self, vectors: Tensor, layout: Layout) -> Tensor:
        """Read padding, too; all words and both directions in one kernel launch."""
        weight_in, weight_recurrent, *biases = (
            torch.stack(both) for both in zip(*_directions(self.lstm), strict=True)
        )
        gather, scatter = layout.reading_order
        inputs = vectors.flatten(0, 1).index_select(0, gather.flatten())
        read = read_sides(
            inputs.view(*gather.shape, -1), weight_in, biases[0] + biases[1], weight_recurrent
        )
        return read.flatten(0, 2).index_select(0, scatter.flatten()).view(*layout.mask.shape, -1)

    def _packed(self, vectors: Tensor, layout: Layout) -> Tensor:
        """Read words only, with packed sequences and cuDNN."""
        # cuDNN refuses empty sentences.
        lengths = torch.tensor([max(1, size) for size in layout.sizes])
        packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
        read, _ = self.lstm(packed)
        padded, _ = pad_packed_sequence(read, batch_first=True, total_length=vectors.shape[1])
        return padded

    def _padded(self, vectors: Tensor, layout: Layout) -> Tensor:
        """Read padding, too, after the words of each sentence, which it cannot affect.

        On a CPU the backward pass of packed sequences takes time quadratic in their length: every
        step has a gradient of the full size.
        """
        forward, backward = _directions(self.lstm)
        read = _one_direction(vectors, forward)
        mirrored = _one_direction(_reordered(vectors, layout.reversal), backward)
        return torch.cat([read, _reordered(mirrored, layout.reversal)], dim=-1)


class BiLstm(nn.Module):
    """Layers of bidirectional LSTMs, with variational dropout on the input of each.

    Args:
        input_dim: Width of the input.
        hidden: Width of a direction.
        layers: Number of layers.
        dropout: Probability that a value is dropped.
    """

    def __init__(self, input_dim: int, hidden: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        widths = [input_dim, *[2 * hidden] * (layers - 1)]
        self.layers = nn.ModuleList(Lstm(width, hidden) for width in widths)
        self.dropout = SequenceDropout(dropout)
        self.output_dim = 2 * hidden

    def forward(self, vectors: Tensor, layout: Layout) -> Tensor:
        """Read sentences `(sentences, time, input_dim)`: `(sentences, time, 2 * hidden)`."""
        for layer in self.layers:
            vectors = layer(self.dropout(vectors), layout)
        return vectors


class HighwayLstm(BiLstm):
    """Deep biLSTM with highway connections between layers, after He et al. (2017).

    A layer returns r * h + (1 - r) * Wx with a gate r of its input and of its own previous states,
    in the order of reading. The gate is applied to the layer's output, not in its recurrence, and
    every layer reads in both directions instead of alternating ones, so that a layer is one call of
    an LSTM.
    """

    def __init__(self, input_dim: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__(input_dim, hidden, layers, dropout)
        width = self.output_dim
        widths = [input_dim, *[width] * (layers - 1)]
        self.gates = nn.ModuleList(nn.Linear(own + width, width) for own in widths)
        self.carries = nn.ModuleList(nn.Linear(own, width, bias=False) for own in widths)

    def forward(self, vectors: Tensor, layout: Layout) -> Tensor:
        """Read sentences `(sentences, time, input_dim)`: `(sentences, time, 2 * hidden)`."""
        for layer, gate, carry in zip(self.layers, self.gates, self.carries, strict=True):
            read = layer(vectors, layout)
            share = torch.sigmoid(gate(torch.cat([vectors, _previous_states(read)], dim=-1)))
            vectors = self.dropout(share * read + (1 - share) * carry(vectors))
            vectors = vectors * layout.mask.unsqueeze(-1)
        return vectors


def _previous_states(read: Tensor) -> Tensor:
    """Shift `(sentences, time, 2 * hidden)` by one word, each direction as it reads."""
    from_left, from_right = read.chunk(2, dim=-1)
    shifted = (
        nn.functional.pad(from_left[:, :-1], (0, 0, 1, 0)),
        nn.functional.pad(from_right[:, 1:], (0, 0, 0, 1)),
    )
    return torch.cat(shifted, dim=-1)


# --- attention ------------------------------------------------------------------------------------


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the softmax over the last axis; zero at masked positions, and where all are masked.

    Args:
        scores: Any shape.
        mask: True at positions that count; the shape of `scores`, or one that broadcasts to it.
    """
    scores = scores.float()
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(~mask, lowest), dim=-1) * mask


def attend(scores: Tensor, mask: Tensor, vectors: Tensor) -> Tensor:
    """Return for each query the weighted sum of the vectors it attends to.

    Args:
        scores: Similarity of queries and vectors, `(batch, queries, time)`.
        mask: True where a vector may be attended to, `(batch, time)`, or `(batch, queries, time)`.
        vectors: Shape `(batch, time, dim)`.

    Returns:
        `(batch, queries, dim)`.
    """
    mask = mask.unsqueeze(1) if mask.dim() == 2 else mask
    weights = masked_softmax(scores, mask).to(vectors.dtype)
    return weights @ vectors


class TrilinearScores(nn.Module):
    """Trilinear similarity of two vectors (Seo et al. 2017): u a + v b + w (a * b).

    No vector of a pair is ever materialized: a pair costs one number.

    Args:
        dim: Width of the vectors.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = nn.Linear(dim, 1, bias=False)
        self.second = nn.Linear(dim, 1, bias=False)
        # Initially the dot product: the same word in question and text is found before anything is
        # learned.
        self.product = nn.Parameter(torch.full((dim,), dim**-0.5))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Compare `(batch, n, dim)` with `(batch, m, dim)`: `(batch, n, m)`."""
        single: Tensor = self.first(first) + self.second(second).transpose(1, 2)
        return single + (first * self.product) @ second.transpose(1, 2)


class AttentionPooling(nn.Module):
    """One vector for a sentence: its words weighted by learned attention, and their maximum.

    Args:
        dim: Width of the words' vectors.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, 1)
        self.output_dim = 2 * dim

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Pool `(sentences, time, dim)`: `(sentences, 2 * dim)`; zeros for an empty sentence."""
        weights = masked_softmax(self.score(vectors).squeeze(-1), mask)
        mean = torch.einsum("st,std->sd", weights, vectors)
        lowest = torch.finfo(vectors.dtype).min
        highest = vectors.masked_fill(~mask.unsqueeze(-1), lowest).amax(dim=1)
        return torch.cat([mean, highest * mask.any(dim=1, keepdim=True)], dim=1)


def _directions(lstm: nn.LSTM) -> list[list[Tensor]]:
    """Return the weights of each direction of a layer, as `torch.lstm` takes them."""
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    return [[getattr(lstm, name + ending) for name in names] for ending in ("", "_reverse")]


def _one_direction(vectors: Tensor, weights: list[Tensor]) -> Tensor:
    """Read `(sentences, time, dim)` from left to right: `(sentences, time, hidden)`."""
    start = vectors.new_zeros(1, len(vectors), weights[1].shape[1])
    read: Tensor = torch.lstm(
        vectors,
        (start, start),
        weights,
        has_biases=True,
        num_layers=1,
        dropout=0.0,
        train=True,
        bidirectional=False,
        batch_first=True,
    )[0]
    return read


def _reordered(vectors: Tensor, places: Tensor) -> Tensor:
    return vectors.gather(1, places.unsqueeze(-1).expand(vectors.shape))
