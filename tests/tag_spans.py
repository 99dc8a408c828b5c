"""Spans of words, drawn at random."""

from itertools import pairwise

from hypothesis import strategies as st

from elmo.tasks.tag_schemes import LabeledSpan


@st.composite
def spans(draw, length=12):
    """Draw spans that do not overlap, among `length` words."""
    cuts = sorted(draw(st.sets(st.integers(0, length), max_size=8)))
    kept = [(a, b) for a, b in pairwise(cuts) if draw(st.booleans())]
    return [LabeledSpan(a, b, draw(st.sampled_from("XY"))) for a, b in kept]
