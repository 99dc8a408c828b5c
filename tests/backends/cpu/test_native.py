"""The native kernel: right in every format, blind to neighbors and threads, and dispensable."""

import contextlib
import copy
import ctypes
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import elmo.backends.cpu.model
import elmo.backends.cpu.products
from elmo import ELMo, ElmoConfig
from elmo.backends.cpu import compiler, native
from elmo.backends.cpu.characters import TorchHighway
from elmo.backends.cpu.compiler import kernel, why_not
from elmo.backends.cpu.model import CPUBackend, NativeLSTM, TorchLSTM
from elmo.backends.cpu.native import (
    Format,
    NativeHighway,
    NativeLinear,
    interleaved,
    kernel_threads,
    native_format,
    reused_rows,
    thread_count,
)
from elmo.backends.cpu.products import LinearFactory, runs_natively
from elmo.errors import ElmoWarning
from elmo.model.bilm import State, zero_state
from elmo.model.layers import Highway
from elmo.text.characters import batch_to_ids
from strategies import seeded_bilm

FORMATS = [format for format in Format if kernel() is not None and kernel().elmo_group(int(format))]
"""What this CPU can do; the others are tested where they run."""
# How far the product of numbers of size 1 may be off, for each square root of the inputs.
ALLOWED = {
    Format.FLOAT32: 1e-5,
    Format.FLOAT16: 4e-3,
    Format.BFLOAT16: 2e-2,
    Format.BFLOAT16_PAIRS: 4e-2,
    Format.BFLOAT16_TILES: 4e-2,
    Format.INT8_WORDS: 6e-2,
    Format.INT8_BYTES: 0.15,
    Format.INT8_TILES: 0.15,
}
SENTENCES = [
    "The old bank of the river was flooded .".split(),
    ["Hello"],
    "She put her money into the bank on Monday morning before she left .".split(),
    "a b c".split(),
    ["word"] * 30,
]

pytestmark = pytest.mark.skipif(kernel() is None, reason=f"no native kernel: {why_not()}")


def random_case(out, inputs, rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(out, inputs, generator=generator)
    return (
        weight,
        torch.randn(out, generator=generator),
        torch.randn(rows, inputs, generator=generator),
    )


def test_a_kernel_has_all_precisions():
    assert set(FORMATS) >= {Format.FLOAT32, Format.FLOAT16, Format.BFLOAT16, Format.INT8_WORDS}
    assert all(runs_natively(precision) for precision in ("fp32", "fp16", "bf16", "int8"))


# --- CPUs that are not there ----------------------------------------------------------------------
#
# The instructions of newer CPUs, written out in C++ (emulation/immintrin.h): slow, but it shows
# that each format reads its weights where they lie and counts what it should.

EMULATION = Path(__file__).with_name("emulation")
NEWER = [
    *(Format.FLOAT32, Format.FLOAT16, Format.BFLOAT16, Format.BFLOAT16_PAIRS),
    *(Format.BFLOAT16_TILES, Format.INT8_WORDS, Format.INT8_BYTES, Format.INT8_TILES),
]


def build_for_avx2(folder, *flags):
    library = folder / "kernel.so"
    flags = [*compiler._FLAGS, "-pthread", "-O2", *flags, "-mavx2", "-mfma", "-mf16c"]
    command = [*compiler._compiler(), *flags, str(compiler._SOURCE), "-o", str(library)]
    subprocess.run(command, check=True, capture_output=True)
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module")
def newer_library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("emulated")
    return build_for_avx2(folder, "-Wno-psabi", f"-I{EMULATION}")


@pytest.fixture(scope="module")
def older_library(tmp_path_factory):
    return build_for_avx2(tmp_path_factory.mktemp("older"))


@pytest.fixture
def older_cpu(older_library, monkeypatch):
    monkeypatch.setattr(compiler, "_outcome", lambda: (older_library, ""))
    return older_library


@pytest.fixture
def newer_cpu(newer_library, monkeypatch):
    monkeypatch.setattr(compiler, "_outcome", lambda: (newer_library, ""))
    return newer_library


def test_a_newer_cpu_takes_its_matrix_unit(newer_cpu):
    assert all(newer_cpu.elmo_group(int(format)) for format in Format)
    assert native_format("bf16") == Format.BFLOAT16_TILES
    assert native_format("int8") == Format.INT8_TILES


@pytest.mark.parametrize("format", NEWER)
@pytest.mark.parametrize("inputs", [1, 5, 31, 64, 130])
@pytest.mark.parametrize("rows", [1, 2, 13, 16, 17, 40])
def test_products_on_a_newer_cpu_are_what_float64_says(newer_cpu, format, inputs, rows):
    products_are_what_float64_says(format, inputs, rows)


def products_are_what_float64_says(format, inputs, rows):
    weight, bias, x = random_case(70, inputs, rows)
    linear = NativeLinear(weight, bias, format)
    found = linear(x)
    expected = x.double() @ weight.double().T + bias
    allowed = ALLOWED[format] * inputs**0.5
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=allowed)
    for size in (1, 3, 20):
        assert torch.equal(torch.cat([linear(part) for part in x.split(size)]), found), size


@pytest.mark.parametrize("format", NEWER)
@torch.no_grad()
def test_layers_on_a_newer_cpu_are_close_to_the_plain_ones(newer_cpu, monkeypatch, format):
    monkeypatch.setattr(elmo.backends.cpu.products, "native_format", lambda precision: format)
    plain = seeded_bilm(ElmoConfig.preset("tiny", dim=40, projection_dim=24))
    precision = "fp32" if format == Format.FLOAT32 else "int8"
    packed = CPUBackend(plain, precision)
    ids = batch_to_ids(SENTENCES)
    found, expected = packed.run(ids), plain.run(ids)
    rounded = 5e-2 if "BFLOAT16" in format.name else 0.2
    allowed = {"FLOAT32": 1e-5, "FLOAT16": 5e-3}.get(format.name, rounded)
    torch.testing.assert_close(found.layers, expected.layers, rtol=0, atol=allowed)
    torch.testing.assert_close(found.state.memory, expected.state.memory, rtol=0, atol=allowed)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(packed.run(ids).layers, found.layers)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("format", NEWER)
def test_a_newer_cpu_multiplies_inputs_before_or_within_a_layer_alike(
    newer_cpu, monkeypatch, format
):
    monkeypatch.setattr(elmo.backends.cpu.products, "native_format", lambda precision: format)
    inputs_before_and_within_a_layer_are_alike(monkeypatch, "int8")


@torch.no_grad()
def inputs_before_and_within_a_layer_are_alike(monkeypatch, precision):
    config = ElmoConfig.preset("tiny", dim=40, projection_dim=24)
    packed = CPUBackend(seeded_bilm(config), precision)
    packed._at_once = None
    vectors = torch.randn(30, config.projection_dim, generator=torch.Generator().manual_seed(1))
    lengths = [1, 3, 2, 5, 1, 4, 2, 2, 3, 1, 2, 6, 1, 3, 2]
    tokens = torch.arange(sum(lengths)) % len(vectors)
    for distinct in (vectors, vectors.repeat(2, 1)):  # some stand at many places, or none does
        results = []
        for wide_rows in (10**6, 4, 1):
            monkeypatch.setattr(elmo.backends.cpu.model, "_WIDE_ROWS", wide_rows)
            monkeypatch.setattr(
                elmo.backends.cpu.model, "_TABLE_BYTES", 0 if wide_rows == 1 else 96 << 20
            )
            layers, state = packed.contextualize(distinct, tokens, lengths)
            results.append(torch.cat([torch.stack(layers).flatten(), *map(torch.flatten, state)]))
        assert torch.equal(results[0], results[1])
        assert torch.equal(results[0], results[2])


OLDER = [Format.FLOAT32, Format.FLOAT16, Format.BFLOAT16, Format.INT8_WORDS]


@pytest.mark.parametrize("format", OLDER)
@pytest.mark.parametrize("rows", [1, 2, 3, 6, 7, 40])
def test_products_on_an_older_cpu_are_what_float64_says(older_cpu, format, rows):
    assert older_cpu.elmo_lanes() == 8
    for inputs in (1, 5, 130, 600):
        products_are_what_float64_says(format, inputs, rows)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
@torch.no_grad()
def test_layers_on_an_older_cpu_are_close_to_the_plain_ones(older_cpu, monkeypatch, precision):
    inputs_before_and_within_a_layer_are_alike(monkeypatch, precision)
    plain = seeded_bilm(ElmoConfig.preset("tiny", dim=40, projection_dim=24))
    packed = CPUBackend(plain, precision)
    assert packed.forward_layers[0].kernel.format in OLDER
    ids = batch_to_ids([[f"{n}", "word"][: 1 + n % 2] * (1 + n % 5) for n in range(40)])
    found = packed.run(ids).layers
    allowed = {"fp32": 1e-5, "fp16": 5e-3, "bf16": 5e-2, "int8": 0.1}[precision]
    torch.testing.assert_close(found, plain.run(ids).layers, rtol=0, atol=allowed)
    assert torch.equal(packed.run(ids[7:10]).layers, found[:, 7:10])


# --- products -------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
@given(
    out=st.integers(1, 70),
    inputs=st.sampled_from([1, 2, 3, 5, 16, 33, 64, 300, 1030]),
    rows=st.integers(1, 40),
    bias=st.booleans(),
)
def test_a_product_is_what_float64_says(format, out, inputs, rows, bias):
    weight, b, x = random_case(out, inputs, rows)
    expected = x.double() @ weight.double().T + bias * b
    found = NativeLinear(weight, b if bias else None, format)(x)
    assert found.shape == (rows, out)
    allowed = ALLOWED[format] * inputs**0.5
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=allowed)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("out", "inputs"), [(64, 16), (17, 67), (256, 600)])
def test_a_row_does_not_depend_on_the_others(format, out, inputs):
    weight, bias, x = random_case(out, inputs, 120)
    linear = NativeLinear(weight, bias, format)
    together = linear(x)
    for size in (1, 2, 3, 5, 7, 12, 13, 50):
        parts = torch.cat([linear(part) for part in x.split(size)])
        assert torch.equal(parts, together), size


@pytest.mark.parametrize("format", FORMATS)
def test_a_product_does_not_depend_on_the_threads(format):
    weight, bias, x = random_case(200, 300, 37)
    linear = NativeLinear(weight, bias, format)
    expected = linear(x)
    before = torch.get_num_threads()
    try:
        for threads in (2, 3, 16):
            torch.set_num_threads(threads)
            assert torch.equal(linear(x), expected)
    finally:
        torch.set_num_threads(before)


@given(out=st.integers(1, 70), inputs=st.integers(1, 70))
def test_a_float32_weight_comes_back_bit_for_bit(out, inputs):
    weight, _, _ = random_case(out, inputs, 1)
    assert torch.equal(NativeLinear(weight, None, Format.FLOAT32).weight(), weight)


@pytest.mark.parametrize("format", FORMATS)
def test_other_weights_come_back_rounded(format):
    weight, _, _ = random_case(37, 53, 1)
    given_back = NativeLinear(weight, None, format).weight()
    step = weight.abs().amax(dim=1, keepdim=True) / 127
    assert ((given_back - weight).abs() <= step / 2 + 1e-6).all()


@pytest.mark.parametrize("format", FORMATS)
def test_no_rows_and_zeros_are_no_trouble(format):
    linear = NativeLinear(torch.zeros(20, 10), torch.ones(20), format)
    assert linear(torch.empty(0, 10)).shape == (0, 20)
    assert torch.equal(linear(torch.zeros(3, 10)), torch.ones(3, 20))


@pytest.mark.parametrize(
    "format", [f for f in FORMATS if f in (Format.INT8_WORDS, Format.INT8_BYTES)]
)
def test_whole_numbers_never_overflow(format):
    """All inputs and weights at their bounds: the largest sums there can be."""
    for inputs in (512, 4096, 20000):
        linear = NativeLinear(torch.ones(16, inputs), None, format)
        for sign in (1.0, -1.0):
            found = linear(torch.full((3, inputs), sign))
            torch.testing.assert_close(found, torch.full((3, 16), sign * inputs), rtol=1e-3, atol=0)


def test_rows_that_are_not_in_one_piece_are_read_rightly():
    weight, _, x = random_case(20, 10, 12)
    linear = NativeLinear(weight, None, Format.FLOAT32)
    assert torch.equal(linear(x[::2]), linear(x[::2].clone()))


def test_large_weights_have_pages_of_their_own():
    weight, _, x = random_case(2048, 600, 3)  # 4.9 MB
    linear = NativeLinear(weight, None, Format.FLOAT32)
    torch.testing.assert_close(linear(x), x @ weight.T, rtol=0, atol=1e-3)
    assert torch.equal(linear.weight(), weight)
    place = linear._weights.data_ptr()
    assert place % native._LARGE_PAGE == 0
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    fields = next(line.split() for line in maps if _holds(line.split()[0], place))
    assert fields[1].endswith("p"), "large pages are for private memory only"


def _holds(extent: str, place: int) -> bool:
    first, end = (int(number, 16) for number in extent.split("-"))
    return first <= place < end


# --- highways -------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dim", [1, 15, 16, 33, 130])
@torch.no_grad()
def test_a_highway_is_what_the_plain_one_is(format, dim):
    plain = seeded_highway(dim)
    highway = NativeHighway(plain, format)
    vectors = torch.randn(600, dim, generator=torch.Generator().manual_seed(1))
    found = highway(vectors)
    torch.testing.assert_close(found, plain(vectors), rtol=0, atol=3 * ALLOWED[format])
    for size in (1, 5, 13):
        parts = [highway(part) for part in vectors[:40].split(size)]
        assert torch.equal(torch.cat(parts), found[:40]), size
    assert highway(vectors[:0]).shape == (0, dim)


@pytest.mark.parametrize("dim", [1, 16, 33])
def test_a_highway_gives_its_weights_back(dim):
    plain = seeded_highway(dim)
    native = NativeHighway(plain, Format.FLOAT32)
    for highway in (native, TorchHighway(plain, LinearFactory("fp32"))):
        tensors = highway.tensors()
        assert tensors.keys() == plain.state_dict().keys()
        assert all(torch.equal(tensors[name], t) for name, t in plain.state_dict().items())


def seeded_highway(dim: int) -> Highway:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        highway = Highway(dim)
        highway.reset_parameters()
        for linear in (highway.transform, highway.gate):
            torch.nn.init.normal_(linear.bias)
    return highway


# --- layers ---------------------------------------------------------------------------------------

SHAPES = [
    {},
    {"dim": 40, "projection_dim": 24, "n_layers": 1},
    {"dim": 17, "projection_dim": 5},
    {"dim": 16, "projection_dim": 16},
    {"skip_connections": False, "cell_clip": None, "proj_clip": None},
]


@pytest.mark.parametrize("changes", SHAPES)
@torch.no_grad()
def test_float32_layers_equal_the_plain_ones(changes):
    plain = seeded_bilm(ElmoConfig.preset("tiny", **changes), recurrent_scale=1.5)
    packed = CPUBackend(plain)
    assert isinstance(packed.forward_layers[0], NativeLSTM)
    ids = batch_to_ids(SENTENCES)
    found, expected = packed.run(ids), plain.run(ids)
    torch.testing.assert_close(found.layers, expected.layers, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.state.hidden, expected.state.hidden, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.state.memory, expected.state.memory, rtol=1e-5, atol=1e-5)
    for name, tensor in packed.to_checkpoint().tensors.items():
        assert torch.equal(tensor, plain.state_dict()[name]), name


@torch.no_grad()
def test_both_clips_are_kept(clipping_bilm):
    ids = batch_to_ids(SENTENCES)
    found, expected = CPUBackend(clipping_bilm).run(ids), clipping_bilm.run(ids)
    torch.testing.assert_close(found.layers, expected.layers, rtol=0, atol=1e-5)
    assert found.state.memory.abs().max() == 0.5


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
@torch.no_grad()
def test_reduced_precision_is_close_and_in_order(precision, tiny_config):
    plain = seeded_bilm(tiny_config)
    ids = batch_to_ids(SENTENCES)
    exact = plain.run(ids).layers
    difference = (CPUBackend(plain, precision).run(ids).layers - exact).abs().max()
    assert 0 < difference < {"fp16": 5e-3, "bf16": 5e-2, "int8": 0.2}[precision]


@torch.no_grad()
def test_weights_that_fit_float16_are_kept_in_it_and_give_the_same_bits(tiny_config, monkeypatch):
    plain = seeded_bilm(tiny_config)
    assert CPUBackend(plain).forward_layers[0].kernel.format == Format.FLOAT32
    for parameter in plain.parameters():
        parameter.copy_(parameter.half())
    halves = CPUBackend(plain)
    monkeypatch.setattr(elmo.backends.cpu.model, "fit_halves", lambda weights: False)
    floats = CPUBackend(plain)
    formats = [packed.forward_layers[0].kernel.format for packed in (halves, floats)]
    assert formats == [Format.FLOAT16, Format.FLOAT32]
    for sentences in (SENTENCES, SENTENCES[:1], SENTENCES * 8):
        ids = batch_to_ids(sentences)
        found, expected = halves.run(ids), floats.run(ids)
        assert torch.equal(found.layers, expected.layers)
        assert all(map(torch.equal, found.state, expected.state))
    for name, tensor in halves.to_checkpoint().tensors.items():
        assert torch.equal(tensor, plain.state_dict()[name]), name


def test_small_values_of_a_trained_model_are_not_lost_in_int8():
    # Most cells are smaller than the step of 8 bits: rounded to it, layers were off by 8 %.
    # What filters give, few large values among many small ones, was off by 2 % at the word itself.
    exact, rounded = (
        ELMo.from_pretrained("small-en", device="cpu", precision=precision).encode_tokens(SENTENCES)
        for precision in ("fp32", "int8")
    )
    for layer, most in enumerate((0.013, 0.03, 0.035)):
        one, other = (np.concatenate([v[layer] for v in vectors]) for vectors in (exact, rounded))
        assert np.linalg.norm(one - other) < most * np.linalg.norm(one)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_inputs_may_be_multiplied_before_or_within_a_layer(monkeypatch, precision):
    inputs_before_and_within_a_layer_are_alike(monkeypatch, precision)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_no_precision_depends_on_batch_or_threads(precision, tiny_bilm):
    elmo = ELMo(tiny_bilm, precision=precision)
    expected = elmo.encode_tokens(SENTENCES)
    before = torch.get_num_threads()
    try:
        for threads, size in ((1, 1), (2, 2), (3, 5)):
            torch.set_num_threads(threads)
            found = elmo.encode_tokens(SENTENCES, batch_size=size)
            for one, other in zip(found, expected, strict=True):
                assert (one == other).all()
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("changes", [{}, {"dim": 17, "projection_dim": 5}, {"dim": 100}])
@torch.no_grad()
def test_few_rows_and_many_are_projected_alike(changes, precision):
    # In int8 each thread projects its own cells when there are few rows, all of them otherwise.
    packed = CPUBackend(seeded_bilm(ElmoConfig.preset("tiny", **changes)), precision)
    ids = batch_to_ids([sentence[:4] for sentence in SENTENCES * 6])
    expected = packed.run(ids).layers
    before = torch.get_num_threads()
    try:
        for threads, rows in ((1, 1), (1, 6), (2, 7), (3, 12), (9, 2)):
            torch.set_num_threads(threads)
            for first in range(0, len(ids), rows):
                some = slice(first, first + rows)
                assert torch.equal(packed.run(ids[some]).layers, expected[:, some])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("changes", SHAPES)
@torch.no_grad()
def test_all_layers_in_one_call_are_the_same_as_one_by_one(changes, precision):
    packed = CPUBackend(seeded_bilm(ElmoConfig.preset("tiny", **changes)), precision)
    lengths = [3, 1, 5, 3, 2]
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(6, packed.config.projection_dim, generator=generator)
    tokens = torch.randint(6, (sum(lengths),), generator=generator)
    start = State(
        *(
            torch.randn(part.shape, generator=generator) / 4
            for part in zero_state(packed.config, 5, vectors)
        )
    )
    for state in (None, start, start.take(slice(0, 1)).repeat(5)):
        for depth in range(packed.config.n_layers + 1):
            layers, final = packed.contextualize(vectors, tokens, lengths, state, depth)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(packed, "_at_once", None)
                expected = packed.contextualize(vectors, tokens, lengths, state, depth)
            assert len(layers) == len(expected[0]) == depth
            assert all(map(torch.equal, layers, expected[0]))
            assert all(map(torch.equal, final, expected[1]))


@torch.no_grad()
def test_int8_without_a_projection_falls_back_to_single_steps():
    config = ElmoConfig.preset("tiny", dim=16, projection_dim=16)
    plain = seeded_bilm(config)
    if plain.forward_layers[0].projection_weight is not None:
        pytest.skip("this model has a projection")
    packed = CPUBackend(plain, "int8")
    assert isinstance(packed.forward_layers[0], TorchLSTM)
    ids = batch_to_ids(SENTENCES)
    assert (packed.run(ids).layers - plain.run(ids).layers).abs().max() < 0.2


@pytest.mark.parametrize("dim", [1, 15, 16, 17, 100])
def test_every_gate_has_one_place(dim):
    places = interleaved(dim, 4, kernel().elmo_unit_cells()).tolist()
    assert sorted(place for place in places if place < 4 * dim) == list(range(4 * dim))


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
@torch.no_grad()
def test_gru_layers_take_every_precision(precision, tiny_config):
    plain = seeded_bilm(tiny_config.replace(cell="gru"))
    ids = batch_to_ids(SENTENCES)
    difference = CPUBackend(plain, precision).run(ids).layers - plain.run(ids).layers
    assert 0 < difference.abs().max() < 0.2


# --- threads --------------------------------------------------------------------------------------


def test_pytorch_gets_its_threads_back():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with contextlib.suppress(KeyError), kernel_threads():
            assert torch.get_num_threads() == 1
            assert thread_count() == 3
            with kernel_threads():  # a model inside a model
                assert thread_count() == 3
            assert torch.get_num_threads() == 1
            raise KeyError
        assert torch.get_num_threads() == thread_count() == 3
    finally:
        torch.set_num_threads(before)


def test_models_in_several_threads_agree_and_leave_the_threads_alone(tiny_bilm):
    elmo = ELMo(tiny_bilm)
    expected = elmo.encode_tokens(SENTENCES)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(lambda _: elmo.encode_tokens(SENTENCES), range(12)):
                assert all((one == other).all() for one, other in zip(found, expected, strict=True))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


# --- without the kernel ---------------------------------------------------------------------------


@pytest.fixture
def no_kernel(monkeypatch):
    monkeypatch.setattr(elmo.backends.cpu.products, "native_format", lambda precision: None)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@torch.no_grad()
def test_pytorch_serves_without_the_kernel(no_kernel, tiny_config, cell):
    plain = seeded_bilm(tiny_config.replace(cell=cell))
    packed = CPUBackend(plain)
    assert not isinstance(packed.forward_layers[0], NativeLSTM)
    ids = batch_to_ids(SENTENCES)
    torch.testing.assert_close(packed.run(ids).layers, plain.run(ids).layers, rtol=0, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp16", "int8"])
@torch.no_grad()
def test_without_the_kernel_weights_are_rounded_all_the_same(no_kernel, tiny_config, precision):
    plain = seeded_bilm(tiny_config)
    ids = batch_to_ids(SENTENCES)
    found = CPUBackend(plain, precision).run(ids).layers
    assert LinearFactory(precision).dtype == torch.float32
    rounded = copy.deepcopy(plain)
    for name, parameter in rounded.named_parameters():
        if name.endswith(
            ("recurrent_weight", "input_weight", "projection_weight", "projection.weight")
        ):
            format = Format.FLOAT16 if precision == "fp16" else Format.INT8_WORDS
            parameter.copy_(NativeLinear(parameter, None, format).weight())
    difference = (found - plain.run(ids).layers).abs().max()
    closer = (found - rounded.run(ids).layers).abs().max()
    assert closer < difference  # what is left are the highways' weights


def test_a_precision_that_saves_nothing_says_so(no_kernel, tiny_bilm):
    assert not runs_natively("int8")
    with pytest.warns(ElmoWarning, match="no faster here: no native kernel"):
        ELMo(tiny_bilm, precision="int8")


def test_the_fastest_format_that_the_cpu_has_is_taken(monkeypatch):
    assert native_format("fp32") == Format.FLOAT32
    assert native_format("int8") == max(f for f in FORMATS if f.name.startswith("INT8"))
    assert native_format("bf16") == max(f for f in FORMATS if f.name.startswith("BFLOAT16"))


def test_memory_for_passing_results_is_used_again_and_given_back() -> None:
    with kernel_threads():
        first = reused_rows(3, 40)
        second = reused_rows(5, 24)
        assert first.data_ptr() == second.data_ptr()
        assert (first.shape, second.shape) == ((3, 40), (5, 24))
    assert native._local.buffer is not None  # a little is kept
    with kernel_threads():
        assert reused_rows(3, 40).data_ptr() == first.data_ptr()
        larger = reused_rows(3, 32 << 20)
        assert larger.shape == (3, 32 << 20)
    assert native._local.buffer is None


def test_threads_do_not_share_memory_for_passing_results() -> None:
    mine = reused_rows(2, 8).data_ptr()
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(lambda: reused_rows(2, 8).data_ptr()).result()
    assert mine != theirs
