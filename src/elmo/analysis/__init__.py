"""Analysis of a model: similar words, senses in context, and how contextual vectors are.

`contextuality`, `correlation`, `layers`, `neighbors`, `senses` and `similar` are the functions of
the commands. They take a model, a corpus and settings in any form, and return reports.

- `inputs`: models, corpora and settings in any form.
- `settings`: the settings of the commands.
- `corpus`: a corpus, embedded window by window.
- `sampling`: samples of a stream in bounded memory.
- `geometry`: measures of sets of vectors.
- `intervals`: confidence intervals.
- `span_vectors`: vectors of spans of words.
- `reports`: text, HTML, JSON and pictures of reports.
- `words`: similar words, neighbors in context, correlation with human judgments.
- `contextual`: how contextual vectors are.
- `probing`: what each layer knows.
- `occurrences`: the occurrences of a word in clusters.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elmo.analysis.contextual.measure import contextuality
    from elmo.analysis.occurrences.senses import senses
    from elmo.analysis.probing.tasks import layers
    from elmo.analysis.words.correlation import correlation
    from elmo.analysis.words.neighbors import neighbors
    from elmo.analysis.words.similar import similar

_HOMES = {
    "contextuality": "contextual.measure",
    "correlation": "words.correlation",
    "layers": "probing.tasks",
    "neighbors": "words.neighbors",
    "senses": "occurrences.senses",
    "similar": "words.similar",
}

__all__ = ["contextuality", "correlation", "layers", "neighbors", "senses", "similar"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'elmo.analysis' has no attribute {name!r}")
    return getattr(import_module(f"elmo.analysis.{_HOMES[name]}"), name)
