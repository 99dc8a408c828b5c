"""Results of a GPU come to the host whole, in whatever way they are copied."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.backends.gpu import host_copies
from elmo.backends.gpu.host_copies import (
    HostCopies,
    plain_copy,
    rows_by_sentence,
    sentence_addresses,
    sentence_views,
)
from elmo.backends.gpu.kernels.sentence_copies import (
    Driver,
    SentenceCopies,
    _library,
    sentence_copies,
)

sizes_of_a_batch = st.lists(st.integers(0, 5), min_size=1, max_size=6)
leads = st.sampled_from([(), (1,), (3,)])


def make_vectors(sizes, lead=()):
    vectors = torch.arange(float(np.prod(lead, dtype=int) * sum(sizes) * 2))
    return vectors.reshape(*lead, sum(sizes), 2)


def parts_of(vectors, sizes):
    return torch.split(vectors, sizes, dim=-2)


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

    def copies(self, threads, pinned_bytes):
        driver = Driver(*(ctypes.cast(function, ctypes.c_void_p) for function in self._functions))
        streams = range(100, 100 + threads)
        pinned = torch.empty(threads * pinned_bytes, dtype=torch.uint8)
        return SentenceCopies(driver, ctypes.c_void_p(1), streams, pinned)


needs_loop = pytest.mark.skipif(_library() is None, reason="nothing can be built here")


@needs_loop
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=30),
    n_layers=st.integers(1, 4),
    dim=st.integers(1, 9),
    threads=st.integers(1, 5),
    capacity=st.integers(1, 40),
    dtype=st.sampled_from([torch.float32, torch.float16]),
)
def test_the_layers_of_a_sentence_come_together(sizes, n_layers, dim, threads, capacity, dtype):
    vectors = torch.randn(n_layers, sum(sizes), dim).to(dtype)
    word_bytes = n_layers * dim * dtype.itemsize
    array = np.full((n_layers * sum(sizes), dim), np.nan, str(dtype).removeprefix("torch."))
    copies = DriverOfNoGpu().copies(threads, capacity * word_bytes)
    copies.copy(vectors, np.array(sizes), sentence_addresses(array, sizes))
    rows = rows_by_sentence(n_layers, sizes)
    assert np.array_equal(array, vectors.flatten(0, 1)[rows].numpy())
    start = 0
    for size, view in zip(sizes, sentence_views(array, sizes, [n_layers]), strict=True):
        assert view.flags.c_contiguous
        assert np.array_equal(view, vectors[:, start : start + size].numpy())
        start += size


@needs_loop
def test_an_error_of_the_driver_is_raised():
    vectors, array = torch.randn(2, 50, 3), np.empty((100, 3), np.float32)
    copies = DriverOfNoGpu(error=700).copies(3, 24)
    with pytest.raises(RuntimeError, match="the driver says 700"):
        copies.copy(vectors, np.array([20, 30]), sentence_addresses(array, [20, 30]))


@needs_loop
@pytest.mark.parametrize("sizes", [[1, 1], [4], [4, -1]])
def test_copies_keep_within_their_memory(sizes):
    copies, nowhere = DriverOfNoGpu().copies(1, 100), np.zeros(len(sizes), np.int64)
    with pytest.raises(ValueError, match="in sentences of"):
        copies.copy(torch.zeros(2, 3, 4), np.array(sizes), nowhere)
    with pytest.raises(ValueError, match="in sentences of"):
        copies.copy(torch.zeros(4, 3, 2).transpose(0, 2), np.array([3]), nowhere)


def test_without_a_driver_there_is_no_loop(monkeypatch):
    monkeypatch.setattr("elmo.backends.gpu.kernels.sentence_copies._cuda", lambda: None)
    assert sentence_copies([], 1) is None


@pytest.fixture
def gpu_of_the_host(monkeypatch):
    """Let the host be taken for a GPU."""
    for name in ("synchronize", "device", "Event", "Stream", "current_stream", "stream"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    monkeypatch.setattr(host_copies, "_pinned_like", torch.empty_like)
    monkeypatch.setattr(host_copies, "_threads_of_a_copy", lambda: 3)


BY_TORCH = "by torch"
WAYS = [BY_TORCH, pytest.param("by a loop", marks=needs_loop)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize("n_words", [3, 3 << 16, 3 << 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_results_of_any_size_come_whole(way, lead, n_words, dtype, gpu_of_the_host, monkeypatch):
    driver = DriverOfNoGpu()
    loop = None if way == BY_TORCH else driver.copies(3, 1 << 20)
    monkeypatch.setattr(host_copies, "sentence_copies", lambda *_: loop)
    monkeypatch.setattr(host_copies, "SHARED_BYTES", 8 << 20)
    sizes = [n_words // 2, 0, n_words - n_words // 2, 1]
    vectors = make_vectors(sizes, lead)
    with ThreadPoolExecutor(max_workers=2) as workers:
        copies = HostCopies(torch.device("cuda"), dtype, workers)
        parts = copies.begin(copies.converted(vectors), sizes)()
    for part, own in zip(parts, parts_of(vectors, sizes), strict=True):
        assert part.dtype == own.to(dtype).numpy().dtype
        assert np.array_equal(part, own.to(dtype).numpy())
    if n_words > 3 << 19 and loop:
        assert {*driver.streams} <= {100, 101, 102}
        assert driver.streams


# --- too little memory ----------------------------------------------------------------------------


@given(sizes=sizes_of_a_batch, lead=leads)
def test_a_plain_copy_is_the_same(sizes, lead):
    vectors = make_vectors(sizes, lead)
    for dtype in (torch.float32, torch.float16):
        parts = plain_copy(vectors, sizes, dtype)
        for part, own in zip(parts, parts_of(vectors, sizes), strict=True):
            assert np.array_equal(part, own.to(dtype).numpy())
            assert part.dtype == own.to(dtype).numpy().dtype


@pytest.mark.parametrize("n_words", [3 << 17, 3 << 20])
def test_results_arrive_though_there_is_no_memory_to_copy_them_through(
    n_words, gpu_of_the_host, monkeypatch
):
    def no_memory(*_):
        raise RuntimeError("CUDA error: out of memory")  # what is said of pinned memory

    monkeypatch.setattr(host_copies, "sentence_copies", no_memory)
    sizes = [n_words - 1, 1]
    vectors = make_vectors(sizes)
    with ThreadPoolExecutor(max_workers=1) as worker:
        parts = HostCopies(torch.device("cuda"), torch.float32, worker).begin(vectors, sizes)()
    for part, own in zip(parts, parts_of(vectors, sizes), strict=True):
        assert np.array_equal(part, own.numpy())


def test_results_arrive_though_a_gpu_has_no_memory_left_to_round_them(monkeypatch):
    def no_memory(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    sizes = [2, 1]
    vectors = make_vectors(sizes)
    with ThreadPoolExecutor(max_workers=1) as worker:
        copies = HostCopies(torch.device("cuda"), torch.float16, worker)
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "to", no_memory)
            kept = copies.converted(vectors)
        assert kept is vectors
        parts = copies.begin(vectors, sizes)()
    for part, own in zip(parts, parts_of(vectors, sizes), strict=True):
        assert part.dtype == np.float16
        assert np.array_equal(part, own.numpy())


def test_other_failures_of_a_copy_are_raised(gpu_of_the_host, monkeypatch):
    def broken(*_):
        raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(host_copies, "sentence_copies", broken)
    with ThreadPoolExecutor(max_workers=1) as worker:
        copies = HostCopies(torch.device("cuda"), torch.float32, worker)
        with pytest.raises(RuntimeError, match="launch failure"):
            copies.begin(make_vectors([3 << 18]), [3 << 18])()
