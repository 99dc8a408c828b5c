"""Sequences of tags: allowed transitions, Viterbi decoding, and a linear-chain CRF.

All tables are for tags in a fixed order: `transitions[i, j]` for j right after i, `start[i]` and
`end[i]` for the first and the last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from elmo.tasks.tag_schemes import OUTSIDE, split_tag

FORBIDDEN = -1e4
"""Score of a forbidden transition: nothing outweighs it, and gradients stay finite."""


TagTables = tuple[Tensor, Tensor, Tensor]
"""Transitions `(tags, tags)`, start `(tags,)` and end `(tags,)`."""


def tag_rules(tags: Sequence[str], scheme: Literal["iob2", "bioes"]) -> TagTables:
    """Return which tags may begin, follow each other and end: True where allowed.

    `bioes` may be written in BILOU letters.
    """
    follows = _follows_iob2 if scheme == "iob2" else _follows_bioes
    n = len(tags)
    return (
        torch.tensor([[follows(a, b) for b in tags] for a in tags], dtype=torch.bool).view(n, n),
        torch.tensor([follows(OUTSIDE, tag) for tag in tags], dtype=torch.bool),
        torch.tensor([follows(tag, OUTSIDE) for tag in tags], dtype=torch.bool),
    )


def _follows_iob2(first: str, second: str) -> bool:
    (before, kind), (prefix, other) = split_tag(first), split_tag(second)
    return prefix != "I" or (before in "BI" and kind == other)


def _follows_bioes(first: str, second: str) -> bool:
    (before, kind), (prefix, other) = split_tag(first), split_tag(second)
    inside = before in "BI"
    return inside and kind == other if prefix in "IEL" else not inside


def viterbi(scores: Tensor, mask: Tensor, tables: TagTables) -> list[list[int]]:
    """Return the sequence of tags with the highest score for each sentence.

    Args:
        scores: Scores of tags, `(sentences, time, tags)`.
        mask: True at words, `(sentences, time)`.
        tables: Scores of pairs, of the first tag and of the last.

    Returns:
        For each sentence a tag for each of its words; the first of equally good ones.
    """
    transitions, start, end = tables
    lengths = mask.sum(dim=1)
    best = scores[:, 0] + start
    backpointers: list[Tensor] = []
    for step in range(1, scores.shape[1]):
        highest, before = (best.unsqueeze(2) + transitions).max(dim=1)
        here = mask[:, step].unsqueeze(1)
        best = torch.where(here, highest + scores[:, step], best)
        backpointers.append(before)
    last = (best + end).argmax(dim=1).tolist()
    pointers = torch.stack(backpointers, dim=1).cpu().numpy() if backpointers else None
    paths = []
    for number, (length, tag) in enumerate(zip(lengths.tolist(), last, strict=True)):
        path = [tag] * min(1, length)
        for step in range(length - 2, -1, -1):
            assert pointers is not None
            path.append(int(pointers[number, step, path[-1]]))
        paths.append(path[::-1])
    return paths


class Crf(nn.Module):
    """Linear-chain conditional random field (Lafferty et al. 2001) with constraints.

    Args:
        rules: Allowed transitions; others have no probability, in training and in prediction.
    """

    def __init__(self, rules: TagTables) -> None:
        super().__init__()
        n = len(rules[0])
        self.transitions = nn.Parameter(torch.empty(n, n).uniform_(-0.1, 0.1))
        self.start = nn.Parameter(torch.empty(n).uniform_(-0.1, 0.1))
        self.end = nn.Parameter(torch.empty(n).uniform_(-0.1, 0.1))
        for name, allowed in zip(("transitions", "start", "end"), rules, strict=True):
            self.register_buffer(f"_no_{name}", ~allowed, persistent=False)

    def tables(self) -> TagTables:
        """Return transitions, start and end, `FORBIDDEN` where they are not allowed."""
        names = ("transitions", "start", "end")
        transitions, start, end = (
            getattr(self, name).masked_fill(getattr(self, f"_no_{name}"), FORBIDDEN)
            for name in names
        )
        return transitions, start, end

    def log_likelihood(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Return the log-probabilities of tags, one per sentence, `(sentences,)`.

        Args:
            scores: Scores of tags, `(sentences, time, tags)`.
            tags: The tags, `(sentences, time)`.
            mask: True at words, `(sentences, time)`; no sentence is empty.
        """
        scores = scores.float()
        return self._score(scores, tags, mask) - self._normalizer(scores, mask)

    def decode(self, scores: Tensor, mask: Tensor) -> list[list[int]]:
        """Return the most probable tags of each sentence; see `viterbi`."""
        return viterbi(scores.float(), mask, self.tables())

    def _score(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        transitions, start, end = self.tables()
        words = scores.gather(2, tags.unsqueeze(2)).squeeze(2) * mask
        pairs = transitions[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]
        last = tags.gather(1, (mask.sum(dim=1) - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
        return start[tags[:, 0]] + words.sum(dim=1) + pairs.sum(dim=1) + end[last]

    def _normalizer(self, scores: Tensor, mask: Tensor) -> Tensor:
        transitions, start, end = self.tables()
        total = scores[:, 0] + start
        for step in range(1, scores.shape[1]):
            further = torch.logsumexp(total.unsqueeze(2) + transitions, dim=1) + scores[:, step]
            total = torch.where(mask[:, step].unsqueeze(1), further, total)
        return torch.logsumexp(total + end, dim=1)
