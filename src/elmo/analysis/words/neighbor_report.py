"""Neighbours in context and static ones, side by side, as text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from elmo.analysis.settings import TableFormat
from elmo.analysis.words.neighbors import Neighborhood
from elmo.text.sentences import Words

_CONTEXT = 10
"""Words shown on either side."""


def render_neighbors(found: Sequence[Neighborhood], format: TableFormat) -> str:
    """Give what was found as text.

    Args:
        found: For each marked word.
        format: For people, JSON or CSV.
    """
    if format == "json":
        facts = [_as_dict(neighborhood) for neighborhood in found]
        return json.dumps(facts, ensure_ascii=False, indent=2, allow_nan=False)
    if format == "csv":
        return _csv(found)
    return "\n\n".join(map(_table, found))


def marked(words: Words, position: int, context: int | None = None) -> str:
    """Give a sentence with brackets around one word, or only so many words around it."""
    start = 0 if context is None else max(0, position - context)
    stop = len(words) if context is None else position + 1 + context
    shown = [*words[start:position], f"[{words[position]}]", *words[position + 1 : stop]]
    before, after = ["..."] * (start > 0), ["..."] * (stop < len(words))
    return " ".join([*before, *shown, *after])


def _table(found: Neighborhood) -> str:
    query = found.query
    lines = [
        marked(query.sentence, query.position),
        f"compared with {found.n_occurrences:,} occurrences; {query.word!r} itself occurs "
        f"{found.n_word:,} times in the corpus",
        "",
        f"static, by {found.static_source}, whatever the context:",
    ]
    if found.static:
        lines.append("  " + ", ".join(f"{n.word} {n.cosine:.3f}" for n in found.static))
    else:
        lines.append(f"  there is no vector of {query.word!r}")
    lines += ["", "in context:"]
    lines += [
        f"  {near.cosine:.3f}  {marked(near.sentence, near.position, _CONTEXT)}"
        for near in found.occurrences
    ]
    if not found.occurrences:
        lines.append(f"  {query.word!r} never occurs in the corpus")
    return "\n".join(lines)


def _as_dict(found: Neighborhood) -> dict[str, object]:
    return {
        "sentence": found.query.sentence,
        "position": found.query.position,
        "compared": found.n_occurrences,
        "occurrences_of_word": found.n_word,
        "in_context": [vars(near) for near in found.occurrences],
        "static_source": found.static_source,
        "static": [vars(near) for near in found.static],
    }


def _csv(found: Sequence[Neighborhood]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("query", "kind", "rank", "cosine", "word", "sentence"))
    for neighborhood in found:
        query = marked(neighborhood.query.sentence, neighborhood.query.position)
        for rank, near in enumerate(neighborhood.occurrences, start=1):
            sentence = marked(near.sentence, near.position)
            word = near.sentence[near.position]
            writer.writerow((query, "context", rank, f"{near.cosine:.6f}", word, sentence))
        for rank, other in enumerate(neighborhood.static, start=1):
            writer.writerow((query, "static", rank, f"{other.cosine:.6f}", other.word, ""))
    return text.getvalue().rstrip("\n")
