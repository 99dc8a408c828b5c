"""The kernels that embed: Triton in its interpreter against plain PyTorch, value by value."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.backends.gpu.kernels.gpu import is_interpreted
from elmo.backends.gpu.kernels.inference_cell import Target, lstm_cell, store_step
from elmo.backends.gpu.kernels.inference_row import cell_of_one_row, project_one_row
from elmo.backends.gpu.kernels.word_filters import highest_responses

pytestmark = pytest.mark.skipif(not is_interpreted(), reason="Triton is not installed")

clips = st.sampled_from([None, 0.25])
dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])


def draw_normal(seed, *shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


def draw_numbers(seed, high, *shape):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(high, shape, generator=generator)


def assert_equal(found, expected, dtype):
    # The interpreter cuts bfloat16 off where everything else rounds: one unit of the last place.
    atol = {torch.float32: 1e-6, torch.float16: 4e-3, torch.bfloat16: 4e-2}[dtype]
    torch.testing.assert_close(found.float(), expected.float(), rtol=0, atol=atol)


@settings(max_examples=15)
@given(
    rows=st.integers(1, 3),
    dim=st.sampled_from([1, 3, 17, 1030]),
    first=st.integers(0, 3),
    indexed=st.booleans(),
    ends=st.booleans(),
    clip=clips,
    dtype=dtypes,
)
def test_a_step_of_the_cell_is_that_of_the_plain_code(rows, dim, first, indexed, ends, clip, dtype):
    n = first + rows + 1
    index = draw_numbers(0, n, 2, n) if indexed else None
    products = draw_normal(1, 2, n, 4 * dim, dtype=dtype)
    recurrent = draw_normal(2, 2, rows, 4 * dim, dtype=dtype)
    # Rows beyond are sentences that have ended: their memory stays as it is.
    before = draw_normal(3, 2, rows + 2, dim)
    active = torch.arange(rows, dtype=torch.int32) % 2 if ends else None  # the first has ended
    results = []
    for compiled in (False, True):
        memory, cells = before.clone(), torch.zeros(2, rows, dim, dtype=dtype)
        lstm_cell(
            products, index, first, recurrent, memory[:, :rows], cells, clip, compiled, active
        )
        results.append((memory, cells))
    (expected, cells), (found, other_cells) = results
    assert_equal(found, expected, torch.float32)
    goes_on = torch.ones(rows, dtype=torch.bool) if active is None else active.bool()
    assert_equal(other_cells[:, goes_on], cells[:, goes_on], dtype)
    assert torch.equal(found[:, rows:], before[:, rows:])
    assert torch.equal(found[:, :rows][:, ~goes_on], before[:, :rows][:, ~goes_on])
    if clip is not None and goes_on.any():
        assert found[:, :rows][:, goes_on].abs().max() <= clip


def test_the_cell_is_that_of_an_lstm():
    inputs, recurrent, before = (
        draw_normal(seed, 2, 3, width) for seed, width in enumerate((20, 20, 5))
    )
    i, f, g, o = (inputs + recurrent).chunk(4, dim=2)
    memory = (f.sigmoid() * before + i.sigmoid() * g.tanh()).clamp(-0.5, 0.5)
    for compiled in (False, True):
        found, cells = before.clone(), torch.empty(2, 3, 5)
        lstm_cell(inputs, None, 0, recurrent, found, cells, 0.5, compiled)
        torch.testing.assert_close(found, memory, rtol=0, atol=1e-6)
        torch.testing.assert_close(cells, o.sigmoid() * memory.tanh(), rtol=0, atol=1e-6)


@settings(max_examples=15)
@given(
    rows=st.integers(1, 3),
    width=st.sampled_from([1, 3, 1030]),
    first=st.integers(0, 3),
    adds=st.booleans(),
    read_again=st.booleans(),
    ends=st.booleans(),
    clip=clips,
    dtype=dtypes,
)
def test_a_step_is_stored_where_the_plain_code_stores_it(
    rows, width, first, adds, read_again, ends, clip, dtype
):
    n = first + rows + 1
    places = torch.stack([torch.arange(n).flip(0), torch.arange(n)])
    projected = draw_normal(0, 2, rows, width, dtype=dtype)
    below = draw_normal(1, n, 2 * width) if adds else None
    active = torch.arange(rows, dtype=torch.int32) % 2 if ends else None  # the first has ended
    results = []
    for compiled in (False, True):
        hidden = torch.zeros(2, rows + 1, width, dtype=dtype)
        output = torch.full((n, 2 * width), 7.0)
        reading = torch.zeros(2, n, width, dtype=dtype) if read_again else None
        target = Target(places, below, output, reading)
        store_step(projected, target, first, hidden[:, :rows], clip, compiled, active)
        results.append((hidden, output, reading))
    for expected, found in zip(*results, strict=True):
        assert (expected is None) == (found is None)
        if expected is not None:
            assert_equal(found, expected, found.dtype)
    hidden, output, reading = results[0]
    untouched = [place for place in range(n) if place not in places[0, first : first + rows]]
    assert (output[untouched, :width] == 7).all()
    assert not hidden[:, rows:].any()
    if clip is not None:
        assert hidden.abs().max() <= clip


def assert_sums_equal(found, expected, dtype):
    # The plain code rounds products before they are added to others; the kernel does not.
    atol = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 8e-2}[dtype]
    torch.testing.assert_close(found.float(), expected.float(), rtol=0, atol=atol)


@settings(max_examples=15)
@given(
    dim=st.sampled_from([1, 3, 17]),
    width=st.sampled_from([1, 5, 513]),
    place=st.integers(0, 3),
    indexed=st.booleans(),
    clip=clips,
    dtype=dtypes,
)
def test_one_row_takes_the_step_of_the_plain_code(dim, width, place, indexed, clip, dtype):
    n = place + 2
    index = draw_numbers(0, n, 2, n) if indexed else None
    products = draw_normal(1, 2, n, 4 * dim, dtype=dtype)
    # The next row's state lies behind that of the row and must not be read.
    hidden = draw_normal(2, 2, 2, width, dtype=dtype)
    hidden[:, 1] = torch.nan
    weight = (draw_normal(3, 2, 4 * dim, width) / width**0.5).to(dtype)
    before = draw_normal(4, 2, 2, dim)
    results = []
    for compiled in (False, True):
        memory, cells = before.clone(), torch.zeros(2, 1, dim, dtype=dtype)
        cell_of_one_row(
            products, index, place, hidden[:, :1], weight, memory[:, :1], cells, clip, compiled
        )
        results.append((memory, cells))
    (expected, cells), (found, other_cells) = results
    assert_sums_equal(found, expected, dtype)
    assert_sums_equal(other_cells, cells, dtype)
    assert torch.equal(found[:, 1:], before[:, 1:])
    assert not torch.equal(found[:, :1], before[:, :1])


@settings(max_examples=15)
@given(
    dim=st.sampled_from([1, 5, 2049]),
    width=st.sampled_from([1, 3, 6]),
    place=st.integers(0, 3),
    adds=st.booleans(),
    read_again=st.booleans(),
    clip=clips,
    dtype=dtypes,
)
def test_one_row_is_projected_as_by_the_plain_code(
    dim, width, place, adds, read_again, clip, dtype
):
    n = place + 2
    places = torch.stack([torch.arange(n).flip(0), torch.arange(n)])
    cells = draw_normal(0, 2, 1, dim, dtype=dtype)
    weight = (draw_normal(1, 2, width, dim) / dim**0.5).to(dtype)
    below = draw_normal(2, n, 2 * width) if adds else None
    results = []
    for compiled in (False, True):
        hidden = torch.zeros(2, 2, width, dtype=dtype)
        output = torch.full((n, 2 * width), 7.0)
        reading = torch.full((2, n, width), 7.0, dtype=dtype) if read_again else None
        target = Target(places, below, output, reading)
        project_one_row(cells, weight, target, place, hidden[:, :1], clip, compiled)
        results.append((hidden, output, reading))
    for expected, found in zip(*results, strict=True):
        assert (expected is None) == (found is None)
        if expected is not None:
            assert_sums_equal(found, expected, dtype)
    hidden, output, _ = results[1]
    untouched = [other for other in range(n) if other != places[0, place]]
    assert (output[untouched, :width] == 7).all()
    assert hidden[:, :1].any()
    assert not hidden[:, 1:].any()
    if clip is not None:
        assert hidden.abs().max() <= clip


@settings(max_examples=12)
@given(
    n=st.integers(1, 3),
    max_characters=st.integers(3, 8),
    widths=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    many=st.booleans(),
)
def test_the_highest_response_is_that_of_a_plain_loop(n, max_characters, widths, many):
    widths = widths * 60 if many else widths  # more filters than a program has
    n_characters, widest, n_filters = 6, max(widths), len(widths)
    responses = draw_normal(0, widest, n_characters, n_filters)
    for filter_number, width in enumerate(widths):
        responses[width:, :, filter_number] = 0
    ids = draw_numbers(1, n_characters, n, max_characters)
    windows = 1 + draw_numbers(2, max_characters, n)
    arguments = ids, windows.int(), responses.flatten(0, 1), torch.tensor(widths).int(), widest
    expected = torch.full((n, n_filters), -torch.inf)
    for word in range(n):
        for k, width in enumerate(widths):
            for start in range(min(int(windows[word]), max_characters - width + 1)):
                sums = [responses[o, ids[word, start + o], k] for o in range(width)]
                expected[word, k] = max(expected[word, k], sum(sums))
    for compiled in (False, True):
        torch.testing.assert_close(
            highest_responses(*arguments, compiled), expected, rtol=0, atol=1e-6
        )


@pytest.mark.parametrize("compiled", [False, True])
def test_no_word_has_no_response(compiled):
    nothing = torch.empty(0, 5, dtype=torch.int64), torch.empty(0, dtype=torch.int32)
    table, widths = torch.randn(12, 4), torch.ones(4, dtype=torch.int32)
    assert highest_responses(*nothing, table, widths, 2, compiled).shape == (0, 4)


def test_kernels_compile_for_a_gpu_that_is_not_there(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    script = Path(__file__).parent / "compile_kernels.py"
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
