"""The path of the data: plans that lose nothing, and one result a sentence in memory of its own."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.embed import pipeline
from elmo.embed.pipeline import (
    EmbeddedBatch,
    deliver_arrays,
    deliver_tensors,
    deliver_windows,
    own_parts,
    plan_batches,
    shared_parts,
    windows,
)
from elmo.errors import ElmoError

# --- which sentences share a batch ----------------------------------------------------------------


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


# --- one result a sentence ------------------------------------------------------------------------

sizes_of_a_batch = st.lists(st.integers(0, 5), min_size=1, max_size=6)
leads = st.sampled_from([(), (1,), (3,)])


def make_batch(sizes, lead=()):
    vectors = torch.arange(float(np.prod(lead, dtype=int) * sum(sizes) * 2))
    return EmbeddedBatch(list(range(len(sizes))), sizes, vectors.reshape(*lead, sum(sizes), 2))


@given(sizes=sizes_of_a_batch, lead=leads, most_bytes=st.integers(1, 100))
def test_shared_parts_are_the_same_vectors(sizes, lead, most_bytes):
    batch = make_batch(sizes, lead)
    for part, own in zip(shared_parts(batch, most_bytes), own_parts(batch), strict=True):
        assert torch.equal(part, own)
        whole = part.untyped_storage().nbytes()
        assert whole <= max(most_bytes, len(sizes) and max(sizes) * batch.row_bytes)
        assert own.untyped_storage().nbytes() == own.nbytes


@pytest.mark.parametrize("deliver", [deliver_tensors, deliver_arrays])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_batch_is_delivered_once_in_its_order(deliver, dtype):
    batches = [make_batch([2, 1]), make_batch([3]), make_batch([0])]
    delivered = list(deliver(iter(batches), dtype))
    assert [batch.sizes for batch, _ in delivered] == [[2, 1], [3], [0]]
    for batch, (_, parts) in zip(batches, delivered, strict=True):
        for part, own in zip(parts, own_parts(batch), strict=True):
            assert str(part.dtype).removeprefix("torch.") == dtype
            assert np.array_equal(np.asarray(part, dtype=np.float32), own.numpy())


# --- a GPU's results, which come later ------------------------------------------------------------


class Copies:
    """In the place of copies from a GPU: notes what was begun and what has arrived."""

    def __init__(self, events):
        self.events = events

    def converted(self, vectors):
        return vectors

    def begin(self, vectors, sizes):
        numbers = vectors.numbers
        self.events.append(("begun", numbers))

        def arrive():
            self.events.append(("arrived", numbers))
            return [np.full(1, number) for number in numbers]

        return arrive


@pytest.fixture
def copies(monkeypatch):
    events = []
    monkeypatch.setattr(pipeline, "host_copies", lambda *_: Copies(events))
    return events


def elsewhere(*numbers):
    """A batch of sentences of one word each that is on no CPU."""
    vectors = torch.empty(1, 2, device="meta")
    vectors.numbers = list(numbers)
    return EmbeddedBatch(vectors.numbers, [1] * len(numbers), vectors)


def test_more_batches_are_begun_before_the_first_one_is_waited_for(copies):
    delivered = deliver_arrays(iter([elsewhere(k) for k in range(5)]))
    next(delivered)
    assert copies == [("begun", [0]), ("begun", [1]), ("begun", [2]), ("arrived", [0])]
    assert [batch.numbers for batch, _ in delivered] == [[1], [2], [3], [4]]


def test_what_was_begun_before_a_failure_is_delivered(copies):
    def batches():
        yield elsewhere(0)
        yield elsewhere(1)
        raise ValueError("a line that is no text")

    delivered = deliver_arrays(batches())
    assert next(delivered)[0].numbers == [0]
    assert next(delivered)[0].numbers == [1]
    with pytest.raises(ValueError, match="no text"):
        next(delivered)


def test_windows_come_whole_and_in_order_while_the_next_one_is_begun(copies):
    given = [[["a"], ["b"], ["c"]], [["d"]], [["e"], ["f"]]]
    planned = {"a": [elsewhere(2, 0), elsewhere(1)], "d": [elsewhere(0)], "e": [elsewhere(1, 0)]}
    delivered = deliver_windows((window, planned[window[0][0]]) for window in given)
    window, arrays = next(delivered)
    assert window == given[0]
    assert [array.tolist() for array in arrays] == [[0], [1], [2]]
    assert ("begun", [0]) in copies  # the second window's
    assert [window for window, _ in delivered] == given[1:]


def test_windows_before_a_failure_are_delivered(copies):
    def failing():
        yield [["a"]], [elsewhere(0)]
        raise ValueError("a line that is no text")

    delivered = deliver_windows(failing())
    assert next(delivered)[0] == [["a"]]
    with pytest.raises(ValueError, match="no text"):
        next(delivered)


def test_tensors_that_a_gpu_cannot_hold_are_named(monkeypatch):
    def no_room(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(pipeline, "own_parts", no_room)
    with pytest.raises(ElmoError, match=r"do not fit on cpu: .*convert_to_tensor=False"):
        next(deliver_tensors(iter([make_batch([1])])))
