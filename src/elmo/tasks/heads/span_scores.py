"""Span vectors, mention scores and antecedent scores: the parts of the coreference model.

Nothing here loops over spans. The first layer of a network over concatenated vectors is computed as
a sum of products, one for each part, so that parts which many spans share are multiplied once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmo.tasks.heads.encoders import masked_softmax

_FEATURE_DIM = 20
_DISTANCES = 9
"""Classes of distances: 1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63, 64 and more."""
_ROWS_AT_ONCE = 2048
"""Spans whose antecedents are selected at once, to bound memory."""


@dataclass(frozen=True)
class PreparedWords:
    """The words of a document, projected once."""

    encoded: Tensor
    """From the biLSTM, `(words, width)`."""
    inputs: Tensor
    """Input of the biLSTM, `(words, input_dim)`."""
    attention: Tensor
    """Attention scores of words, `(words,)`."""
    starts: Tensor
    """Contribution of first words to the mention network's first layer, `(words, hidden)`."""
    stops: Tensor
    """Likewise of last words."""
    heads: Tensor
    """Likewise of attended words."""


class SpanEncoder(nn.Module):
    """Vectors and mention scores of spans.

    Args:
        width: Of a word from the biLSTM.
        input_dim: Width of a word before the biLSTM.
        hidden: Width of the network's layers.
        longest: Words of a span at most.
        dropout: Between the layers.
    """

    def __init__(
        self, width: int, input_dim: int, *, hidden: int, longest: int, dropout: float
    ) -> None:
        super().__init__()
        self.longest = longest
        self.output_dim = 2 * width + input_dim + _FEATURE_DIM
        self.attention = nn.Linear(width, 1)
        self.widths = nn.Embedding(longest, _FEATURE_DIM)
        self.start = nn.Linear(width, hidden)
        self.stop = nn.Linear(width, hidden, bias=False)
        self.head = nn.Linear(input_dim, hidden, bias=False)
        self.width = nn.Linear(_FEATURE_DIM, hidden, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.between = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, 1)

    def prepared(self, encoded: Tensor, inputs: Tensor) -> PreparedWords:
        """Project the words of a document, `(words, width)` and `(words, input_dim)`."""
        return PreparedWords(
            encoded,
            inputs,
            self.attention(encoded).squeeze(-1),
            self.start(encoded),
            self.stop(encoded),
            self.head(inputs),
        )

    def mention_scores(self, words: PreparedWords, spans: Tensor) -> Tensor:
        """Return the log-odds of spans being mentions, float32 `(spans,)`.

        Args:
            words: Of the document.
            spans: First words and words after the last (further rows are ignored), `(2, spans)`.
        """
        start, width = spans[0], spans[1] - spans[0] - 1
        first = (
            words.starts[start]
            + words.stops[start + width]
            + self._all_heads(words)[start, width]
            + self.width(self.widths.weight)[width]
        )
        second = torch.relu(self.between(self.dropout(torch.relu(first))))
        scores: Tensor = self.output(self.dropout(second)).squeeze(-1)
        return scores.float()

    def _all_heads(self, words: PreparedWords) -> Tensor:
        """Return the contribution of attended words to the first layer, `(words, longest, hidden)`.

        Spans are indexed by first word and width less one. All spans that begin with a word attend
        to the same few words, so one small product per word serves them all.
        """
        longest = self.longest
        windows = nn.functional.pad(words.heads, (0, 0, 0, longest - 1)).unfold(0, longest, 1)
        scores = nn.functional.pad(words.attention, (0, longest - 1)).unfold(0, longest, 1)
        within = torch.ones(longest, longest, dtype=torch.bool, device=scores.device).tril()
        weights = masked_softmax(scores.unsqueeze(1), within).to(windows.dtype)
        return weights @ windows.transpose(1, 2)

    def vectors(self, words: PreparedWords, spans: Tensor) -> Tensor:
        """Return the vectors of a few spans, `(spans, output_dim)`; see `mention_scores`."""
        start, stop = spans[0], spans[1]
        places = start.unsqueeze(1) + torch.arange(self.longest, device=spans.device)
        mask = places < stop.unsqueeze(1)
        places = torch.where(mask, places, 0)
        weights = masked_softmax(words.attention[places], mask).to(words.inputs.dtype)
        head = torch.einsum("sl,sld->sd", weights, words.inputs[places])
        parts = [words.encoded[start], words.encoded[stop - 1], head, self.widths(stop - start - 1)]
        return torch.cat(parts, dim=-1)


@dataclass(frozen=True)
class Antecedents:
    """Antecedents of spans."""

    numbers: Tensor
    """Numbers of earlier spans, `(spans, n)`."""
    mask: Tensor
    """False where there are fewer than n earlier spans, `(spans, n)`."""
    scores: Tensor
    """Scores, against 0 for no antecedent, float32 `(spans, n)`."""


class AntecedentScorer(nn.Module):
    """Score of a link between a span and an earlier one.

    s(i, j) = mention(i) + mention(j) + coarse(i, j) + fine(i, j): a bilinear form selects the pairs
    that a network scores.

    Args:
        dim: Width of a span's vector.
        hidden: Width of the network.
        dropout: Between its layers.
    """

    def __init__(self, dim: int, *, hidden: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.reduced = nn.Linear(dim, hidden)
        self.coarse = nn.Linear(hidden, hidden, bias=False)
        self.later = nn.Linear(hidden, hidden)
        self.earlier = nn.Linear(hidden, hidden, bias=False)
        self.product = nn.Linear(hidden, hidden, bias=False)
        self.distances = nn.Embedding(_DISTANCES, _FEATURE_DIM)
        self.distance = nn.Linear(_FEATURE_DIM, hidden, bias=False)
        self.between = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, 1)

    def forward(self, vectors: Tensor, mentions: Tensor, limit: int) -> Antecedents:
        """Score the antecedents of spans.

        Args:
            vectors: Spans in the order of the text, `(spans, dim)`.
            mentions: Log-probabilities that they are mentions, `(spans,)`.
            limit: Antecedents of a span that the network scores.
        """
        reduced = torch.relu(self.reduced(self.dropout(vectors)))
        keys = self.coarse(self.dropout(reduced))
        chosen = [
            _best_coarse(keys, reduced, mentions, rows, limit)
            for rows in torch.split(
                torch.arange(len(vectors), device=vectors.device), _ROWS_AT_ONCE
            )
        ]
        numbers, mask = (torch.cat(part) for part in zip(*chosen, strict=True))
        earlier = reduced[numbers]
        coarse = torch.einsum("snd,sd->sn", earlier, keys).float() / math.sqrt(keys.shape[1])
        fine = self._fine(reduced, earlier, numbers)
        scores = mentions.unsqueeze(1) + mentions[numbers] + coarse + fine
        return Antecedents(numbers, mask, scores)

    def _fine(self, reduced: Tensor, earlier: Tensor, numbers: Tensor) -> Tensor:
        """Score pairs by a network: `(spans, hidden)`, `(spans, n, hidden)` -> `(spans, n)`."""
        later = torch.arange(len(numbers), device=numbers.device).unsqueeze(1)
        distances = self.distances(distance_classes(later - numbers))
        first = (
            self.later(reduced).unsqueeze(1)
            + self.earlier(reduced)[numbers]
            + self.product(reduced.unsqueeze(1) * earlier)
            + self.distance(distances)
        )
        second = torch.relu(self.between(self.dropout(torch.relu(first))))
        scores: Tensor = self.output(self.dropout(second)).squeeze(-1)
        return scores.float()


def distance_classes(distances: Tensor) -> Tensor:
    """Bucket distances of any shape: 1 to 4 each on its own, then by powers of two."""
    small = distances.clamp(min=1)
    large = torch.log2(small.float()).floor().long() + 2
    return torch.where(small <= 4, small - 1, large).clamp(max=_DISTANCES - 1)


def _best_coarse(
    keys: Tensor, vectors: Tensor, mentions: Tensor, rows: Tensor, limit: int
) -> tuple[Tensor, Tensor]:
    """Select the most likely antecedents of some spans by the cheap score.

    Args:
        keys: Keys of all spans, `(spans, hidden)`.
        vectors: Vectors of all spans, `(spans, hidden)`.
        mentions: Log-probabilities that they are mentions, `(spans,)`.
        rows: Numbers of the spans in question, `(rows,)`.
        limit: Number of antecedents.

    Returns:
        Numbers of spans, and whether they are earlier ones, `(rows, n)`.
    """
    with torch.no_grad():
        scores = (keys[rows] @ vectors.T).float() / math.sqrt(keys.shape[1]) + mentions
        earlier = torch.arange(len(vectors), device=rows.device) < rows.unsqueeze(1)
        scores = scores.masked_fill(~earlier, torch.finfo(scores.dtype).min)
        numbers = scores.topk(min(limit, len(vectors)), dim=1).indices
        return numbers, earlier.gather(1, numbers)


def antecedent_loss(antecedents: Antecedents, clusters: Tensor) -> Tensor:
    """Return the sum over spans of -log p(any correct antecedent), shape `()`.

    "No antecedent" is correct for spans that are no mentions, and for mentions without an
    antecedent of their cluster.

    Args:
        antecedents: Of all spans.
        clusters: Numbers of the spans' clusters, `(spans,)`; 0 for none.
    """
    own = clusters.unsqueeze(1)
    correct = (clusters[antecedents.numbers] == own) & (own > 0) & antecedents.mask
    lowest = torch.finfo(antecedents.scores.dtype).min
    scores = antecedents.scores.masked_fill(~antecedents.mask, lowest)
    nothing = scores.new_zeros(len(scores), 1)
    no_correct = ~correct.any(dim=1, keepdim=True)
    scores = torch.cat([nothing, scores], dim=1)
    correct = torch.cat([no_correct, correct], dim=1)
    return (scores.logsumexp(1) - scores.masked_fill(~correct, lowest).logsumexp(1)).sum()


def best_antecedents(antecedents: Antecedents) -> Tensor:
    """Return the number of each span's best antecedent, `(spans,)`; -1 if none scores above 0."""
    lowest = torch.finfo(antecedents.scores.dtype).min
    best, place = antecedents.scores.masked_fill(~antecedents.mask, lowest).max(dim=1)
    chosen = antecedents.numbers.gather(1, place.unsqueeze(1)).squeeze(1)
    return torch.where(best > 0, chosen, -1)
