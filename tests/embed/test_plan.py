"""Which sentences share a batch, and which batches are planned together."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.embed.plan import plan_batches, windows


@given(
    lengths=st.lists(st.integers(0, 9), max_size=20),
    max_tokens=st.integers(1, 20),
    max_rows=st.integers(1, 5),
)
def test_planned_batches_hold_every_sentence_once_within_both_budgets(
    lengths, max_tokens, max_rows
):
    batches = plan_batches(lengths, max_tokens, max_rows)
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    for batch in batches:
        assert 1 <= len(batch) <= max_rows
        # A sentence over the budget is read alone rather than not at all.
        assert len(batch) == 1 or sum(lengths[number] for number in batch) <= max_tokens
    flat = [lengths[number] for batch in batches for number in batch]
    assert flat == sorted(lengths, reverse=True)


@given(
    lengths=st.lists(st.integers(0, 9), max_size=20),
    max_tokens=st.integers(1, 20),
    max_rows=st.integers(1, 5),
)
def test_no_planned_batch_could_have_taken_the_next_sentence_too(lengths, max_tokens, max_rows):
    batches = plan_batches(lengths, max_tokens, max_rows)
    for batch, following in pairwise(batches):
        tokens = sum(lengths[number] for number in [*batch, following[0]])
        assert len(batch) == max_rows or tokens > max_tokens


sentences_of_a_stream = st.lists(st.lists(st.just("word"), max_size=4), max_size=30)


@settings(max_examples=50)
@given(stream=sentences_of_a_stream, max_tokens=st.integers(1, 12), multiple=st.integers(1, 4))
def test_windows_cut_a_stream_without_losing_or_moving_anything(stream, max_tokens, multiple):
    numbered = [[f"{n}", *sentence] for n, sentence in enumerate(stream)]
    cut = list(windows(iter(numbered), max_tokens, multiple))
    assert [sentence for window in cut for sentence in window] == numbered
    assert all(cut)
    for window in cut[:-1]:
        assert len(window) % multiple == 0
        # A window ends as soon as it may: without its last sentences it was not full.
        before = window[:-multiple]
        assert sum(1 + len(sentence) for sentence in before) < max_tokens


def test_windows_end_even_if_all_sentences_are_empty():
    # Words alone would never fill a window of a stream of blank lines.
    endless = iter(lambda: [], None)
    assert len(next(windows(endless, max_tokens=5))) == 5


def test_windows_read_no_further_than_they_must():
    stream = iter([["a", "b"], ["c"], ["d"], ["e"]])
    assert next(windows(stream, max_tokens=4)) == [["a", "b"], ["c"]]
    assert next(stream) == ["d"]
