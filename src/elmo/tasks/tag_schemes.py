"""Tags of words and the spans that they encode: IOB1, IOB2, BIOES and BILOU.

One rule decodes them all, that of the CoNLL scorer (and of seqeval): a word continues the span of
the word before it unless one of the two is `O`, their types differ, the word begins a span (`B`,
`S`, `U`) or the word before ended one (`E`, `L`, `S`, `U`). So `I-X` after `O` begins a span.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Scheme = Literal["iob1", "iob2", "bioes", "labels"]
"""`labels`: tags that encode no spans, such as parts of speech."""

OUTSIDE = "O"
_BEGINS = frozenset("BSU")
_ENDS = frozenset("ELSU")
_PREFIXES = frozenset("BIELSU")
_NO_TYPE = "_"


class LabeledSpan(NamedTuple):
    """Consecutive words of one type: from `start` up to, not including, `stop`."""

    start: int
    stop: int
    type: str


def split_tag(tag: str) -> tuple[str, str]:
    """Split a tag into prefix and type: `B-ARGM-TMP` -> `B`, `ARGM-TMP`; `O` -> `O`, `_`."""
    return tag[:1], tag[1:].removeprefix("-") or _NO_TYPE


def spans_of(tags: Sequence[str]) -> list[LabeledSpan]:
    """Return the spans that tags of any scheme encode, in order."""
    spans: list[LabeledSpan] = []
    start = -1
    before = (OUTSIDE, _NO_TYPE)
    for place, tag in enumerate([*tags, OUTSIDE]):
        now = split_tag(tag)
        if not _continues(before, now):
            if start >= 0:
                spans.append(LabeledSpan(start, place, before[1]))
            start = -1 if now[0] == OUTSIDE else place
        before = now
    return spans


def _continues(before: tuple[str, str], now: tuple[str, str]) -> bool:
    return (
        OUTSIDE not in (before[0], now[0])
        and before[1] == now[1]
        and now[0] not in _BEGINS
        and before[0] not in _ENDS
    )


def to_iob2(spans: Iterable[LabeledSpan], length: int) -> list[str]:
    """Encode spans that do not overlap as IOB2 tags of `length` words."""
    tags = [OUTSIDE] * length
    for start, stop, kind in spans:
        tags[start:stop] = [f"B-{kind}"] + [f"I-{kind}"] * (stop - start - 1)
    return tags


def to_bioes(spans: Iterable[LabeledSpan], length: int) -> list[str]:
    """Encode spans that do not overlap as BIOES tags of `length` words."""
    tags = [OUTSIDE] * length
    for start, stop, kind in spans:
        inside = [f"B-{kind}", *[f"I-{kind}"] * (stop - start - 2), f"E-{kind}"]
        tags[start:stop] = [f"S-{kind}"] if stop - start == 1 else inside
    return tags


def scheme_of(sentences: Iterable[Sequence[str]]) -> Scheme:
    """Detect the scheme of the tags of a file.

    `labels` if any tag is neither `O` nor a prefix, a hyphen and a type; `bioes` if spans have
    marked ends. In `iob1`, `B` only separates spans of one type; CoNLL-2003 as published has a few
    elsewhere, so what most spans after `O` begin with decides between `iob1` and `iob2`.
    """
    prefixes: set[str] = set()
    begins: Counter[str] = Counter()
    for tags in sentences:
        if not all(is_span_tag(tag) for tag in tags):
            return "labels"
        prefixes.update(tag[0] for tag in tags)
        before = [OUTSIDE, *tags]
        begins.update(tag[0] for tag, last in zip(tags, before, strict=False) if last == OUTSIDE)
    if prefixes & _ENDS:
        return "bioes"
    if prefixes <= {OUTSIDE}:
        return "iob2" if prefixes else "labels"
    return "iob1" if begins["I"] > begins["B"] else "iob2"


def is_span_tag(tag: str) -> bool:
    """Check whether a tag is `O`, or a prefix, a hyphen and a type."""
    return tag == OUTSIDE or (len(tag) > 2 and tag[0] in _PREFIXES and tag[1] == "-")


def irregular_places(tags: Sequence[str]) -> list[int]:
    """Return the words whose tags continue no span (`I-X` after `O` or `B-Y`)."""
    places = []
    before = (OUTSIDE, _NO_TYPE)
    for place, tag in enumerate(tags):
        now = split_tag(tag)
        if now[0] not in _BEGINS | {OUTSIDE} and not _continues(before, now):
            places.append(place)
        before = now
    return places
