"""Results: one a sentence, whole, in memory that nobody else's result keeps for long."""

from concurrent.futures import ThreadPoolExecutor
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo import delivery
from elmo.delivery import (
    EmbeddedBatch,
    HostCopies,
    array_parts,
    copied_without_room,
    copy_by_sentence_in_torch,
    deliver_arrays,
    deliver_tensors,
    deliver_windows,
    own_parts,
    shared_parts,
)
from elmo.errors import ElmoError
from elmo.kernels.sentence_copies import copy_by_sentence

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


@given(sizes=sizes_of_a_batch, lead=leads)
def test_the_layers_of_a_sentence_lie_together(sizes, lead):
    batch = make_batch(sizes, lead)
    parts = array_parts(batch.vectors.numpy(), sizes)
    for part, own in zip(parts, own_parts(batch), strict=True):
        assert part.flags.c_contiguous
        assert np.array_equal(part, own.numpy())


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=40),
    n_layers=st.integers(1, 4),
    dim=st.sampled_from([1, 3, 1024, 40_000]),
    threads=st.integers(1, 5),
    dtype=st.sampled_from([np.float32, np.float16]),
)
def test_copies_by_sentence_are_those_of_pytorch(sizes, n_layers, dim, threads, dtype):
    counts = np.array(sizes)
    n = min(counts.sum(), 4_000_000 // dim)  # pages of 2 MB: none, one, or several
    counts = np.diff(np.minimum(np.cumsum([0, *sizes]), n))
    vectors = np.random.default_rng(0).integers(0, 2000, (n_layers, n, dim)).astype(dtype)
    copied, expected = (np.full((n_layers * n, dim), np.nan, dtype) for _ in range(2))
    copy_by_sentence_in_torch(vectors, counts, expected)
    if copy_by_sentence(vectors, counts, copied, threads):
        assert np.array_equal(copied, expected)
    start = 0
    for size in counts:
        end = start + size
        own = expected[n_layers * start : n_layers * end].reshape(n_layers, size, dim)
        assert np.array_equal(own, vectors[:, start:end])
        start = end


@pytest.mark.parametrize(
    ("shape", "sizes", "out"),
    [((2, 3, 4), [1, 1], (6, 4)), ((2, 3, 4), [4, -1], (6, 4)), ((2, 3, 4), [3], (5, 4))],
)
def test_copies_by_sentence_keep_within_their_memory(shape, sizes, out):
    with pytest.raises(ValueError, match="in sentences of"):
        copy_by_sentence(np.zeros(shape), np.array(sizes), np.zeros(out), 1)
    with pytest.raises(ValueError, match="in sentences of"):
        copy_by_sentence(np.zeros((4, 3, 2)).T, np.array([3]), np.zeros((6, 4)), 1)


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

    def begin(self, batch):
        self.events.append(("begun", batch.numbers))

        def arrive():
            self.events.append(("arrived", batch.numbers))
            return [np.full(1, number) for number in batch.numbers]

        return arrive


@pytest.fixture
def copies(monkeypatch):
    events = []
    monkeypatch.setattr(delivery, "HostCopies", lambda *_: Copies(events))
    return events


def elsewhere(*numbers):
    """A batch of sentences of one word each that is on no CPU."""
    return EmbeddedBatch(list(numbers), [1] * len(numbers), torch.empty(1, 2, device="meta"))


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
    windows = [[["a"], ["b"], ["c"]], [["d"]], [["e"], ["f"]]]
    planned = {"a": [elsewhere(2, 0), elsewhere(1)], "d": [elsewhere(0)], "e": [elsewhere(1, 0)]}
    delivered = deliver_windows(windows, lambda window: planned[window[0][0]])
    window, arrays = next(delivered)
    assert window == windows[0]
    assert [array.tolist() for array in arrays] == [[0], [1], [2]]
    assert ("begun", [0]) in copies  # the second window's
    assert [window for window, _ in delivered] == windows[1:]


def test_windows_before_a_failure_are_delivered(copies):
    def windows():
        yield [["a"]]
        raise ValueError("a line that is no text")

    delivered = deliver_windows(windows(), lambda window: [elsewhere(0)])
    assert next(delivered)[0] == [["a"]]
    with pytest.raises(ValueError, match="no text"):
        next(delivered)


# --- too little memory ----------------------------------------------------------------------------


@given(sizes=sizes_of_a_batch, lead=leads)
def test_what_is_copied_without_room_is_the_same(sizes, lead):
    batch = make_batch(sizes, lead)
    for dtype in (torch.float32, torch.float16):
        parts = copied_without_room(batch, dtype)
        for part, own in zip(parts, own_parts(batch), strict=True):
            assert np.array_equal(part, own.to(dtype).numpy())
            assert part.dtype == own.to(dtype).numpy().dtype


@pytest.mark.parametrize("n_words", [3 << 17, 3 << 20])
def test_results_arrive_though_there_is_no_memory_to_copy_them_through(n_words, monkeypatch):
    def no_room(*_):
        raise RuntimeError("CUDA error: out of memory")  # what is said of pinned memory

    monkeypatch.setattr(HostCopies, "_buffer", no_room)
    for name in ("synchronize", "Event", "Stream", "current_stream", "stream"):
        monkeypatch.setattr(delivery.torch.cuda, name, MagicMock())
    batch = make_batch([n_words - 1, 1])
    with ThreadPoolExecutor(max_workers=1) as worker:
        copies = HostCopies(torch.device("cpu"), torch.float32, worker)
        parts = copies.begin(batch)()
    for part, own in zip(parts, own_parts(batch), strict=True):
        assert np.array_equal(part, own.numpy())


def test_other_failures_of_a_copy_are_told(monkeypatch):
    def broken(*_):
        raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(delivery, "array_parts", broken)
    with ThreadPoolExecutor(max_workers=1) as worker:
        copies = HostCopies(torch.device("cpu"), torch.float32, worker)
        with pytest.raises(RuntimeError, match="launch failure"):
            copies.begin(make_batch([1, 1]))()


def test_tensors_that_a_gpu_cannot_hold_are_named(monkeypatch):
    def no_room(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(delivery, "own_parts", no_room)
    with pytest.raises(ElmoError, match=r"do not fit on cpu: .*convert_to_tensor=False"):
        next(deliver_tensors(iter([make_batch([1])])))
