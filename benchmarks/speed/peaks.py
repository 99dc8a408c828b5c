"""The roof of a machine: how fast it multiplies and reads at best, measured here and now."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from elmo.backends.cpu.products import frozen_linear, onednn_works

_SECONDS = 0.5
"""So long each peak is looked for; the fastest run counts."""


@dataclass(frozen=True)
class Peaks:
    """The best speeds that were seen."""

    flops: dict[str, float]
    """Operations a second of large products, by precision: the best that PyTorch has for it. Where
    it has none, or a slow one, that of float32, in which such weights can be multiplied, too."""
    bandwidth: float
    """Bytes a second that are read from memory."""

    def best_of(self, other: Peaks) -> Peaks:
        """Return the better of two measurements: a busy machine shows less than it can do."""
        flops = {name: max(peak, other.flops[name]) for name, peak in self.flops.items()}
        return Peaks(flops, max(self.bandwidth, other.bandwidth))

    def share_of_flops(self, precision: str, operations: float, seconds: float) -> float:
        """Return the part of the peak that some work reached."""
        return operations / seconds / self.flops[precision]

    def share_of_roof(
        self, precision: str, operations: float, bytes_read: float, seconds: float
    ) -> float:
        """Return the least time that work needs, by the roofline model, as a part of its time.

        Args:
            precision: In which numbers.
            operations: Operations of the work.
            bytes_read: Bytes of memory that it reads.
            seconds: How long it took. Where weights stay in a cache, the result may be above 1.
        """
        by_memory = bytes_read / seconds / self.bandwidth
        return max(by_memory, self.share_of_flops(precision, operations, seconds))


@dataclass(frozen=True)
class _Sizes:
    """Sizes of what is multiplied and read."""

    rows: int
    inner: int
    outer: int
    read_bytes: int


_CPU_SIZES = _Sizes(rows=1024, inner=1024, outer=2048, read_bytes=256 << 20)
_GPU_SIZES = _Sizes(rows=8192, inner=8192, outer=8192, read_bytes=1 << 30)
_QUICK_SIZES = _Sizes(rows=128, inner=128, outer=256, read_bytes=8 << 20)


def measure_peaks(precisions: Sequence[str], device: torch.device, quick: bool = False) -> Peaks:
    """Measure a machine's peaks, with the threads that torch uses now.

    Args:
        precisions: Those that are wanted.
        device: Where.
        quick: Small sizes and one run: the figures mean little.
    """
    sizes = _GPU_SIZES if device.type == "cuda" else _CPU_SIZES
    seconds = _SECONDS
    if quick:
        sizes, seconds = _QUICK_SIZES, 0.0
    operations = 2 * sizes.rows * sizes.inner * sizes.outer
    plain = _product("fp32", device, sizes)
    assert plain is not None
    flops = dict.fromkeys(precisions, operations / _best_seconds(plain, device, seconds))
    for precision in precisions:
        product = None if precision == "fp32" else _product(precision, device, sizes)
        if product is not None:
            own = operations / _best_seconds(product, device, seconds)
            flops[precision] = max(own, flops[precision])
    numbers = torch.ones(sizes.read_bytes // 4, device=device)
    return Peaks(flops, sizes.read_bytes / _best_seconds(numbers.sum, device, seconds))


def _product(precision: str, device: torch.device, sizes: _Sizes) -> Callable[[], object] | None:
    """Return a large product in the numbers that a precision multiplies; None if there is none."""
    if precision == "int8":
        return _int8_product(device, sizes)
    generator = torch.Generator(device).manual_seed(0)
    inputs = torch.randn(sizes.rows, sizes.inner, generator=generator, device=device)
    weight = torch.randn(sizes.outer, sizes.inner, generator=generator, device=device)
    if device.type != "cpu":
        kinds = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
        left, right = inputs.to(kinds[precision]), weight.to(kinds[precision]).T
        return lambda: left @ right
    # fp16 on a CPU is a way to store weights; products are in float32.
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    if not onednn_works(dtype):
        return (lambda: inputs @ weight.T) if dtype is torch.float32 else None
    packed, rows = frozen_linear(weight.to(dtype)), inputs.to(dtype)
    return lambda: packed(rows)


def _int8_product(device: torch.device, sizes: _Sizes) -> Callable[[], Tensor] | None:
    generator = torch.Generator(device).manual_seed(0)
    inputs, weight = (
        torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8, device=device)
        for shape in ((sizes.rows, sizes.inner), (sizes.outer, sizes.inner))
    )
    weight = weight.T
    try:
        torch._int_mm(inputs, weight)
    except (RuntimeError, AttributeError, NotImplementedError):
        return None
    return lambda: torch._int_mm(inputs, weight)


def _best_seconds(run: Callable[[], object], device: torch.device, seconds: float) -> float:
    """Time something repeatedly, at least once; return the time of the fastest run."""
    end = time.perf_counter() + seconds
    run()  # the first one has more to do
    times: list[float] = []
    while not times or time.perf_counter() < end:
        _wait(device)
        start = time.perf_counter()
        run()
        _wait(device)
        times.append(time.perf_counter() - start)
    return min(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
