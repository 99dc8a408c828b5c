"""Tags of words and the spans that they stand for: IOB1, IOB2, BIOES and BILOU.

One rule reads them all, that of the CoNLL scorer (and of seqeval): a word goes on with the span of
the word before it unless one of the two is `O`, their types differ, the word begins a span (`B`,
`S`, `U`) or the word before ended one (`E`, `L`, `S`, `U`). So `I-X` after `O` begins a span.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Scheme = Literal["iob1", "iob2", "bioes", "labels"]
"""`labels`: tags that stand for themselves, as parts of speech do."""

OUTSIDE = "O"
_BEGINS = frozenset("BSU")
_ENDS = frozenset("ELSU")
_PREFIXES = frozenset("BIELSU")
_NO_TYPE = "_"


class LabelledSpan(NamedTuple):
    """Consecutive words of one type: from `start` on and before `stop`."""

    start: int
    stop: int
    type: str


def split_tag(tag: str) -> tuple[str, str]:
    """Split a tag into prefix and type: `B-ARGM-TMP` -> `B`, `ARGM-TMP`; `O` -> `O`, `_`."""
    return tag[:1], tag[1:].removeprefix("-") or _NO_TYPE


def spans_of(tags: Sequence[str]) -> list[LabelledSpan]:
    """Give the spans that tags of any scheme stand for, in their order."""
    spans: list[LabelledSpan] = []
    start = -1
    before = (OUTSIDE, _NO_TYPE)
    for place, tag in enumerate([*tags, OUTSIDE]):
        now = split_tag(tag)
        if not _goes_on(before, now):
            if start >= 0:
                spans.append(LabelledSpan(start, place, before[1]))
            start = -1 if now[0] == OUTSIDE else place
        before = now
    return spans


def _goes_on(before: tuple[str, str], now: tuple[str, str]) -> bool:
    return (
        OUTSIDE not in (before[0], now[0])
        and before[1] == now[1]
        and now[0] not in _BEGINS
        and before[0] not in _ENDS
    )


def to_iob2(spans: Iterable[LabelledSpan], length: int) -> list[str]:
    """Write spans that do not overlap as tags of `length` words."""
    tags = [OUTSIDE] * length
    for start, stop, kind in spans:
        tags[start:stop] = [f"B-{kind}"] + [f"I-{kind}"] * (stop - start - 1)
    return tags


def to_bioes(spans: Iterable[LabelledSpan], length: int) -> list[str]:
    """Do as `to_iob2`, with ends (`E`) and spans of one word (`S`) marked."""
    tags = [OUTSIDE] * length
    for start, stop, kind in spans:
        inside = [f"B-{kind}", *[f"I-{kind}"] * (stop - start - 2), f"E-{kind}"]
        tags[start:stop] = [f"S-{kind}"] if stop - start == 1 else inside
    return tags


def scheme_of(sentences: Iterable[Sequence[str]]) -> Scheme:
    """Tell which scheme the tags of a file follow.

    `labels` if any tag is neither `O` nor a prefix, a hyphen and a type; `bioes` if spans have
    marked ends; `iob1` if spans begin with `I` and none after `O` with `B`; else `iob2`.
    """
    prefixes: set[str] = set()
    begins: set[str] = set()
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
    return "iob1" if "I" in begins and "B" not in begins else "iob2"


def is_span_tag(tag: str) -> bool:
    """Tell whether a tag is `O`, or a prefix, a hyphen and a type."""
    return tag == OUTSIDE or (len(tag) > 2 and tag[0] in _PREFIXES and tag[1] == "-")


def irregular_places(tags: Sequence[str]) -> list[int]:
    """Give the words whose tags go on with a span that is not there (`I-X` after `O` or `B-Y`)."""
    places = []
    before = (OUTSIDE, _NO_TYPE)
    for place, tag in enumerate(tags):
        now = split_tag(tag)
        if now[0] not in _BEGINS | {OUTSIDE} and not _goes_on(before, now):
            places.append(place)
        before = now
    return places
