"""Results: one a sentence, whole, in memory that nobody else's result keeps for long."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.backends.gpu.kernels.sentence_copies import (
    Driver,
    SentenceCopies,
    _library,
    sentence_copies,
)
from elmo.embed import results
from elmo.embed.results import (
    EmbeddedBatch,
    HostCopies,
    deliver_arrays,
    deliver_tensors,
    deliver_windows,
    own_parts,
    plain_copy,
    rows_by_sentence,
    sentence_addresses,
    sentence_views,
    shared_parts,
)
from elmo.errors import ElmoError

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

    def converted(self, batch):
        return batch

    def begin(self, batch):
        self.events.append(("begun", batch.numbers))

        def arrive():
            self.events.append(("arrived", batch.numbers))
            return [np.full(1, number) for number in batch.numbers]

        return arrive


@pytest.fixture
def copies(monkeypatch):
    events = []
    monkeypatch.setattr(results, "HostCopies", lambda *_: Copies(events))
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


# --- copies by a loop in C++ ----------------------------------------------------------------------


class DriverOfNoGpu:
    """In the place of CUDA's driver: its GPU is the host.

    Args:
        error: What a copy gives.
    """

    def __init__(self, error=0):
        def copy(target, source, n_bytes, stream):
            ctypes.memmove(target, source, n_bytes)
            self.streams.add(stream)
            return error

        pointer = ctypes.c_void_p
        self.streams = set()
        one, four = (ctypes.CFUNCTYPE(ctypes.c_int, *[pointer] * n) for n in (1, 4))
        self._functions = [one(lambda context: 0), four(copy), one(lambda stream: 0)]

    def copies(self, threads, waiting_bytes):
        driver = Driver(*(ctypes.cast(function, ctypes.c_void_p) for function in self._functions))
        streams = range(100, 100 + threads)
        waiting = torch.empty(threads * waiting_bytes, dtype=torch.uint8)
        return SentenceCopies(driver, ctypes.c_void_p(1), streams, waiting)


needs_loop = pytest.mark.skipif(_library() is None, reason="nothing can be built here")


@needs_loop
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=30),
    n_layers=st.integers(1, 4),
    dim=st.integers(1, 9),
    threads=st.integers(1, 5),
    room=st.integers(1, 40),
    dtype=st.sampled_from([torch.float32, torch.float16]),
)
def test_the_layers_of_a_sentence_come_together(sizes, n_layers, dim, threads, room, dtype):
    vectors = torch.randn(n_layers, sum(sizes), dim).to(dtype)
    word_bytes = n_layers * dim * dtype.itemsize
    array = np.full((n_layers * sum(sizes), dim), np.nan, str(dtype).removeprefix("torch."))
    copies = DriverOfNoGpu().copies(threads, room * word_bytes)
    copies.bring(vectors, np.array(sizes), sentence_addresses(array, sizes))
    rows = rows_by_sentence(n_layers, sizes)
    assert np.array_equal(array, vectors.flatten(0, 1)[rows].numpy())
    start = 0
    for size, view in zip(sizes, sentence_views(array, sizes, [n_layers]), strict=True):
        assert view.flags.c_contiguous
        assert np.array_equal(view, vectors[:, start : start + size].numpy())
        start += size


@needs_loop
def test_an_error_of_the_driver_is_told():
    vectors, array = torch.randn(2, 50, 3), np.empty((100, 3), np.float32)
    copies = DriverOfNoGpu(error=700).copies(3, 24)
    with pytest.raises(RuntimeError, match="the driver says 700"):
        copies.bring(vectors, np.array([20, 30]), sentence_addresses(array, [20, 30]))


@needs_loop
@pytest.mark.parametrize("sizes", [[1, 1], [4], [4, -1]])
def test_copies_keep_within_their_memory(sizes):
    copies, nowhere = DriverOfNoGpu().copies(1, 100), np.zeros(len(sizes), np.int64)
    with pytest.raises(ValueError, match="in sentences of"):
        copies.bring(torch.zeros(2, 3, 4), np.array(sizes), nowhere)
    with pytest.raises(ValueError, match="in sentences of"):
        copies.bring(torch.zeros(4, 3, 2).transpose(0, 2), np.array([3]), nowhere)


def test_without_a_driver_there_is_no_loop(monkeypatch):
    monkeypatch.setattr("elmo.backends.gpu.kernels.sentence_copies._cuda", lambda: None)
    assert sentence_copies([], 1) is None


@pytest.fixture
def gpu_of_the_host(monkeypatch):
    """Let the host be taken for a GPU."""
    for name in ("synchronize", "device", "Event", "Stream", "current_stream", "stream"):
        monkeypatch.setattr(results.torch.cuda, name, MagicMock())
    monkeypatch.setattr(results, "_pinned_like", torch.empty_like)
    monkeypatch.setattr(results, "_threads_of_a_copy", lambda: 3)


BY_TORCH = "by torch"
WAYS = [BY_TORCH, pytest.param("by a loop", marks=needs_loop)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize("n_words", [3, 3 << 16, 3 << 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_results_of_any_size_come_whole(way, lead, n_words, dtype, gpu_of_the_host, monkeypatch):
    driver = DriverOfNoGpu()
    loop = None if way == BY_TORCH else driver.copies(3, 1 << 20)
    monkeypatch.setattr(results, "sentence_copies", lambda *_: loop)
    monkeypatch.setattr(results, "SHARED_BYTES", 8 << 20)
    batch = make_batch([n_words // 2, 0, n_words - n_words // 2, 1], lead)
    with ThreadPoolExecutor(max_workers=2) as workers:
        copies = HostCopies(torch.device("cuda"), dtype, workers)
        parts = copies.begin(copies.converted(batch))()
    for part, own in zip(parts, own_parts(batch), strict=True):
        assert part.dtype == own.to(dtype).numpy().dtype
        assert np.array_equal(part, own.to(dtype).numpy())
    if n_words > 3 << 19 and loop:
        assert {*driver.streams} <= {100, 101, 102}
        assert driver.streams


# --- too little memory ----------------------------------------------------------------------------


@given(sizes=sizes_of_a_batch, lead=leads)
def test_a_plain_copy_is_the_same(sizes, lead):
    batch = make_batch(sizes, lead)
    for dtype in (torch.float32, torch.float16):
        parts = plain_copy(batch, dtype)
        for part, own in zip(parts, own_parts(batch), strict=True):
            assert np.array_equal(part, own.to(dtype).numpy())
            assert part.dtype == own.to(dtype).numpy().dtype


@pytest.mark.parametrize("n_words", [3 << 17, 3 << 20])
def test_results_arrive_though_there_is_no_memory_to_copy_them_through(
    n_words, gpu_of_the_host, monkeypatch
):
    def no_room(*_):
        raise RuntimeError("CUDA error: out of memory")  # what is said of pinned memory

    monkeypatch.setattr(results, "sentence_copies", no_room)
    batch = make_batch([n_words - 1, 1])
    with ThreadPoolExecutor(max_workers=1) as worker:
        parts = HostCopies(torch.device("cuda"), torch.float32, worker).begin(batch)()
    for part, own in zip(parts, own_parts(batch), strict=True):
        assert np.array_equal(part, own.numpy())


def test_results_arrive_though_a_gpu_has_no_memory_left_to_round_them(monkeypatch):
    def no_room(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    batch = make_batch([2, 1])
    with ThreadPoolExecutor(max_workers=1) as worker:
        copies = HostCopies(torch.device("cuda"), torch.float16, worker)
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "to", no_room)
            kept = copies.converted(batch)
        assert kept is batch
        parts = copies.begin(batch)()
    for part, own in zip(parts, own_parts(batch), strict=True):
        assert part.dtype == np.float16
        assert np.array_equal(part, own.numpy())


def test_other_failures_of_a_copy_are_told(gpu_of_the_host, monkeypatch):
    def broken(*_):
        raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(results, "sentence_copies", broken)
    with ThreadPoolExecutor(max_workers=1) as worker:
        copies = HostCopies(torch.device("cuda"), torch.float32, worker)
        with pytest.raises(RuntimeError, match="launch failure"):
            copies.begin(make_batch([3 << 18]))()


def test_tensors_that_a_gpu_cannot_hold_are_named(monkeypatch):
    def no_room(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(results, "own_parts", no_room)
    with pytest.raises(ElmoError, match=r"do not fit on cpu: .*convert_to_tensor=False"):
        next(deliver_tensors(iter([make_batch([1])])))
