"""Embedding on a real GPU: the vectors of the CPU, whatever is batched, recorded or too large.

Run on a machine with one: ELMO_TEST_GPU=1 pytest tests/gpu/test_gpu_embedding.py
"""

import itertools

import numpy as np
import pytest
import torch

from elmo import ELMo, ElmoConfig
from elmo.backends.gpu import host_copies
from elmo.backends.gpu.host_copies import plain_copy
from elmo.backends.gpu.kernels.gpu import triton_ready
from elmo.backends.gpu.kernels.inference_cell import Target, lstm_cell, store_step
from elmo.backends.gpu.kernels.inference_row import cell_of_one_row, project_one_row
from elmo.backends.gpu.kernels.sentence_copies import sentence_copies
from elmo.backends.gpu.kernels.word_filters import highest_responses
from elmo.backends.gpu.model import GPUBackend
from elmo.embed.pipeline import EmbeddedBatch, deliver_arrays
from elmo.errors import ConfigError, ElmoError
from elmo.text.made_up import make_sentence, make_sentences
from strategies import alphabet_config, seeded_bilm, word_config

pytestmark = pytest.mark.gpu

SMALL = ElmoConfig.preset("small")
ODD = ElmoConfig.preset("tiny", dim=7, projection_dim=3, filters=((1, 3), (3, 4)))
HARD = [["naïve", "日本語", "x" * 48, "."], [], ["a"], ["The", "The", "The"]]


@pytest.fixture(scope="module")
def bilm():
    """A model in which clips are met and vectors spread about as in a trained one."""
    return seeded_bilm(SMALL)


@pytest.fixture(scope="module")
def on_cpu(bilm):
    return ELMo(bilm, device="cpu")


@pytest.fixture(scope="module")
def on_gpu(bilm):
    return ELMo(bilm, device="cuda")


@pytest.fixture(scope="module")
def sentences():
    return [*make_sentences(200), *HARD]


@pytest.fixture(scope="module")
def expected(on_cpu, sentences):
    return on_cpu.encode_tokens(sentences)


def assert_close(found, expected, atol=1e-4):
    assert len(found) == len(expected)
    for vectors, others in zip(found, expected, strict=True):
        vectors = vectors.cpu().numpy() if isinstance(vectors, torch.Tensor) else vectors
        assert vectors.shape == others.shape
        np.testing.assert_allclose(vectors, others, rtol=0, atol=atol)


# --- kernels --------------------------------------------------------------------------------------


def test_kernels_are_compiled_here(on_gpu):
    assert triton_ready(on_gpu.device)
    assert isinstance(on_gpu._pipeline.backend, GPUBackend)
    assert on_gpu._pipeline.backend._compiled


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("rows", "dim", "first", "indexed"),
    [(1, 4096, 0, True), (3, 7, 1, False), (1000, 1024, 16, True), (70000, 16, 5, False)],
)
def test_the_compiled_cell_is_the_plain_one(dtype, rows, dim, first, indexed):
    torch.manual_seed(0)
    n = first + rows
    index = torch.randint(n, (2, n), device="cuda") if indexed else None
    products = torch.randn(2, n, 4 * dim, device="cuda").to(dtype)
    recurrent = torch.randn(2, rows, 4 * dim, device="cuda").to(dtype)
    before = torch.randn(2, rows + 1, dim, device="cuda")
    results = []
    for compiled in (False, True):
        memory, cells = before.clone(), torch.empty(2, rows, dim, device="cuda", dtype=dtype)
        lstm_cell(products, index, first, recurrent, memory[:, :rows], cells, 0.5, compiled)
        results.append((memory, cells))
    (memory, cells), (found_memory, found_cells) = results
    torch.testing.assert_close(found_memory, memory, rtol=0, atol=1e-5)
    torch.testing.assert_close(found_cells, cells, rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "width", "first"), [(1, 512, 0), (5, 3, 1), (9000, 128, 32)])
def test_the_compiled_store_is_the_plain_one(dtype, rows, width, first):
    torch.manual_seed(0)
    n = first + rows
    places = torch.stack([torch.randperm(n), torch.randperm(n)]).cuda()
    projected = torch.randn(2, rows, width, device="cuda").to(dtype)
    below = torch.randn(n, 2 * width, device="cuda")
    results = []
    for compiled in (False, True):
        hidden = torch.zeros(2, rows + 1, width, device="cuda", dtype=dtype)
        output = torch.zeros(n, 2 * width, device="cuda")
        reading = torch.zeros(2, n, width, device="cuda", dtype=dtype)
        target = Target(places, below, output, reading)
        store_step(projected, target, first, hidden[:, :rows], 0.5, compiled)
        results.append((hidden, output, reading))
    for plain, found in zip(*results, strict=True):
        torch.testing.assert_close(found, plain, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float32, 1e-4), (torch.bfloat16, 4e-2), (torch.float16, 4e-3)]
)
@pytest.mark.parametrize(("dim", "width", "place"), [(4096, 512, 16), (1024, 128, 1), (7, 3, 0)])
def test_the_compiled_step_of_one_row_is_the_plain_one(dtype, atol, dim, width, place):
    torch.manual_seed(0)
    n = place + 3
    index = torch.randint(n, (2, n), device="cuda")
    places = torch.stack([torch.randperm(n), torch.randperm(n)]).cuda()
    products = torch.randn(2, n, 4 * dim, device="cuda").to(dtype)
    recurrent = (torch.randn(2, 4 * dim, width, device="cuda") / width**0.5).to(dtype)
    projection = (torch.randn(2, width, dim, device="cuda") / dim**0.5).to(dtype)
    before = torch.randn(2, 1, dim, device="cuda")
    results = []
    for compiled in (False, True):
        torch.manual_seed(1)
        hidden = torch.randn(2, 1, width, device="cuda").to(dtype)
        memory, cells = before.clone(), torch.zeros(2, 1, dim, device="cuda", dtype=dtype)
        cell_of_one_row(products, index, place, hidden, recurrent, memory, cells, 3.0, compiled)
        output = torch.zeros(n, 2 * width, device="cuda")
        reading = torch.zeros(2, n, width, device="cuda", dtype=dtype)
        target = Target(places, torch.ones_like(output), output, reading)
        project_one_row(cells, projection, target, place, hidden, 0.5, compiled)
        results.append((memory, cells, hidden, output, reading))
    for plain, found in zip(*results, strict=True):
        torch.testing.assert_close(found, plain, rtol=0, atol=atol)


def test_the_compiled_filters_are_the_plain_ones():
    torch.manual_seed(0)
    n_characters, widest, n_filters = 262, 7, 300
    widths = torch.randint(1, widest + 1, (n_filters,), dtype=torch.int32)
    table = torch.randn(widest, n_characters, n_filters)
    for number, width in enumerate(widths.tolist()):
        table[width:, :, number] = 0
    ids = torch.randint(n_characters, (500, 50), device="cuda")
    windows = torch.randint(1, 51, (500,), dtype=torch.int32, device="cuda")
    arguments = ids, windows, table.flatten(0, 1).cuda(), widths.cuda(), widest
    torch.testing.assert_close(
        highest_responses(*arguments, True), highest_responses(*arguments, False), rtol=0, atol=1e-5
    )


# --- the same vectors -----------------------------------------------------------------------------


def test_fp32_is_within_1e_4_of_the_cpu(on_gpu, sentences, expected):
    assert_close(on_gpu.encode_tokens(sentences), expected)
    assert_close(on_gpu.encode_tokens(sentences, convert_to_tensor=True), expected)


def test_allowing_tf32_does_not_round_fp32(on_gpu, sentences, expected):
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = True
    try:
        on_gpu._pipeline.words.clear()
        assert_close(on_gpu.encode_tokens(sentences), expected)
        assert matmul.allow_tf32
    finally:
        matmul.allow_tf32 = False


@pytest.mark.parametrize(
    ("precision", "largest", "mean"), [("bf16", 0.1, 0.005), ("fp16", 0.01, 0.0005)]
)
def test_rounded_products_are_close(bilm, sentences, expected, precision, largest, mean):
    found = ELMo(bilm, device="cuda", precision=precision).encode_tokens(sentences)
    errors = np.concatenate([(a - b).ravel() for a, b in zip(found, expected, strict=True)])
    assert np.abs(errors).max() < largest
    assert np.abs(errors).mean() < mean


@pytest.mark.parametrize(
    "limits", [{"batch_size": 1}, {"batch_size": 7}, {"batch_tokens": 100}, {"batch_tokens": 10**6}]
)
def test_neither_batches_nor_order_change_vectors(on_gpu, sentences, expected, limits):
    assert_close(on_gpu.encode_tokens(sentences, **limits), expected)
    backwards = on_gpu.encode_tokens(sentences[::-1], **limits)
    assert_close(backwards[::-1], expected)


@pytest.mark.parametrize(
    "config",
    [
        ODD,
        ODD.replace(n_layers=1, skip_connections=False),
        ODD.replace(projection_dim=7, cell_clip=None, proj_clip=None, n_layers=3),
        ODD.replace(cell="gru"),
        alphabet_config(),
        word_config(),
        ElmoConfig.preset("medium", n_highway=0),
    ],
)
def test_models_of_any_kind_give_the_vectors_of_the_cpu(config):
    bilm = seeded_bilm(config)
    text = [*make_sentences(20), ["the", "cat"], [], ["Öl"] * 30]
    assert_close(
        ELMo(bilm, device="cuda").encode_tokens(text), ELMo(bilm, device="cpu").encode_tokens(text)
    )


@pytest.mark.parametrize("state", ["warm", "carry"])
def test_states_are_those_of_the_cpu(bilm, state):
    on_cpu, on_gpu = (ELMo(bilm, device=device) for device in ("cpu", "cuda"))
    for seed in range(3):
        text = make_sentences(40, seed=seed)
        found = on_gpu.encode_tokens(text, state=state, batch_size=16)
        assert_close(found, on_cpu.encode_tokens(text, state=state, batch_size=16))


@pytest.mark.parametrize("layers", ["top", "mix", "average", 0, 1])
def test_layers_are_those_of_the_cpu(on_cpu, on_gpu, layers):
    text = make_sentences(30)
    assert_close(
        on_gpu.encode_tokens(text, layers=layers), on_cpu.encode_tokens(text, layers=layers)
    )


# --- one sentence ---------------------------------------------------------------------------------


def test_recorded_sentences_have_the_vectors_of_plain_ones(bilm, on_cpu):
    on_gpu = ELMo(bilm, device="cuda")
    graphs = on_gpu._pipeline.backend._graphs
    for seed, length in itertools.product(range(4), (1, 2, 20, 33)):
        sentence = make_sentence(length, seed=seed)
        expected = on_cpu.encode_tokens([sentence])
        assert_close(on_gpu.encode_tokens([sentence]), expected)
        assert_close(
            on_gpu.encode_tokens([sentence], state="warm"),
            on_cpu.encode_tokens([sentence], state="warm"),
        )
        assert_close(on_gpu.encode_tokens([sentence], layers=1), [v[1] for v in expected])
    assert graphs.works
    assert len(graphs) >= 4


def test_a_few_recorded_sentences_have_the_vectors_of_plain_ones(bilm):
    on_gpu, on_cpu = ELMo(bilm, device="cuda"), ELMo(bilm, device="cpu")  # both carry state
    graphs = on_gpu._pipeline.backend._graphs
    for seed, number in itertools.product(range(4), (2, 3, 7, 40)):
        lengths = [1 + (seed * 7 + n * 5) % 23 for n in range(number)]
        few = [make_sentence(length, seed=n) for n, length in enumerate(lengths)]
        expected = on_cpu.encode_tokens(few)
        found = on_gpu.encode_tokens(few)
        assert_close(found, expected)
        for again, before in zip(on_gpu.encode_tokens(few), found, strict=True):
            if seed:  # recorded by now, both of them
                assert np.array_equal(again, before)
        assert_close(
            on_gpu.encode_tokens(few, state="carry", batch_size=number),
            on_cpu.encode_tokens(few, state="carry", batch_size=number),
        )
    assert graphs.works
    assert len(graphs) >= 4


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_few_recorded_sentences_are_those_of_a_batch_in_half_precision(bilm, precision):
    on_gpu = ELMo(bilm, device="cuda", precision=precision)
    model = on_gpu._pipeline.backend
    few = [make_sentence(length, seed=length) for length in (20, 3, 11, 1, 17)]
    recorded = [on_gpu.encode_tokens(few) for _ in range(3)][-1]
    assert (8, 24, 2) in model._graphs._recordings
    model._graphs = None
    for found, expected in zip(recorded, on_gpu.encode_tokens(few), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-2)


def test_recorded_words_have_the_vectors_of_plain_ones(bilm, on_cpu):
    on_gpu = ELMo(bilm, device="cuda")
    graphs = on_gpu._pipeline.backend._characters._graphs
    new = iter(sorted({word for sentence in make_sentences(300) for word in sentence}))
    for n in (1, 1, 1, 5, 8, 9, 16, 20, 31, 128, 128, 129):
        words = list(itertools.islice(new, n))
        assert len(words) == n
        assert_close([on_gpu.word_vectors(words)], [on_cpu.word_vectors(words)])
    assert graphs.works
    assert len(graphs) == 4  # for 8, 16, 32 and 128 words


def test_a_long_sentence_is_read_to_its_end(on_cpu, on_gpu):
    sentence = make_sentence(1500)
    assert_close(on_gpu.encode_tokens([sentence]), on_cpu.encode_tokens([sentence]))


# --- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", ["all", "top"])
def test_large_results_come_to_the_host_as_they_are(on_gpu, layers):
    text = make_sentences(8000)  # some hundred megabytes, several batches
    limits = {"layers": layers, "batch_size": 3000}
    tensors = on_gpu.encode_tokens(text, convert_to_tensor=True, **limits)
    arrays = on_gpu.encode_tokens(text, **limits)
    halves = on_gpu.encode_tokens(text, dtype="float16", **limits)
    for tensor, array, half in zip(tensors, arrays, halves, strict=True):
        assert tensor.device.type == "cuda"
        assert array.flags.c_contiguous
        assert array.dtype == np.float32
        assert half.dtype == np.float16
        # The two runs need not be equal bit for bit, but no row may be another's.
        np.testing.assert_allclose(array, tensor.cpu().numpy(), rtol=0, atol=1e-4)
        np.testing.assert_allclose(half, array, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("modest_bytes", [0, 20 << 20, 1 << 40])
def test_results_of_any_size_come_to_the_host_as_they_are(monkeypatch, on_gpu, modest_bytes):
    monkeypatch.setattr("elmo.backends.gpu.host_copies._MODEST_BYTES", modest_bytes)
    text = make_sentences(1500)
    limits = {"batch_size": 400}  # of 50 megabytes to less than 5, the longest sentences first
    tensors = on_gpu.encode_tokens(text, convert_to_tensor=True, **limits)
    arrays = on_gpu.encode_tokens(text, **limits)
    for tensor, array in zip(tensors, arrays, strict=True):
        np.testing.assert_allclose(array, tensor.cpu().numpy(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("by_loop", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("lead", [(), (3,)])
def test_copies_to_the_host_are_bit_for_bit(monkeypatch, by_loop, dtype, lead):
    made = []

    def copies(*given):
        made.append(sentence_copies(*given) if by_loop else None)
        return made[-1]

    monkeypatch.setattr(host_copies, "sentence_copies", copies)
    sizes = [int(size) for size in np.random.default_rng(0).integers(0, 60, 4000)]
    batches = []
    for _ in range(4):  # of 12 to 180 megabytes, computed while others are copied
        vectors = torch.randn(*lead, sum(sizes), 128, device="cuda")
        batches.append(EmbeddedBatch(list(range(len(sizes))), sizes, vectors))
        sizes = sizes[: len(sizes) // 2]
    delivered = list(deliver_arrays(iter(batches), str(dtype).removeprefix("torch.")))
    assert [batch.sizes for batch, _ in delivered] == [batch.sizes for batch in batches]
    for batch, parts in delivered:
        for part, plain in zip(parts, plain_copy(batch.vectors, batch.sizes, dtype), strict=True):
            assert part.dtype == plain.dtype
            assert np.array_equal(part, plain)
    assert made
    assert all(copy is not None for copy in made) == by_loop


def test_streams_are_embedded_in_order(on_gpu, sentences, expected):
    assert_close(list(on_gpu.stream_tokens(iter(sentences), batch_tokens=500)), expected)


def test_a_model_can_leave_the_gpu(bilm, sentences, expected):
    elmo = ELMo(bilm, device="cuda")
    before = elmo.fingerprint
    assert elmo.to("cpu").fingerprint == before
    assert_close(elmo.encode_tokens(sentences), expected)
    assert elmo.to("cuda").fingerprint == before
    assert_close(elmo.encode_tokens(sentences), expected)


def test_a_precision_that_gpus_lack_is_named(bilm):
    with pytest.raises(ConfigError, match="precision is 'int8', expected one of fp32, bf16, fp16"):
        ELMo(bilm, device="cuda", precision="int8")


# --- too little memory ----------------------------------------------------------------------------


@pytest.fixture
def little_memory():
    """Leaves a few hundred megabytes beyond what is allocated now."""

    def leave(megabytes):
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        allowed = torch.cuda.memory_allocated() + megabytes * 2**20
        torch.cuda.set_per_process_memory_fraction(allowed / total)

    yield leave
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def test_batches_that_do_not_fit_are_halved(bilm, on_cpu, little_memory):
    elmo = ELMo(bilm, device="cuda")
    text = make_sentences(20000)
    elmo.encode_tokens(text[:10])
    little_memory(700)
    found = elmo.encode_tokens(text, layers="top", batch_size=10**6, batch_tokens=10**7)
    assert elmo._pipeline.backend.limits.fitting_tokens is not None  # it did not fit
    some = slice(0, len(text), 200)
    assert_close(found[some], on_cpu.encode_tokens(text[some], layers="top"))


def test_a_sentence_that_does_not_fit_alone_is_named(bilm, little_memory):
    elmo = ELMo(bilm, device="cuda")
    elmo.encode_tokens([["a"]])
    little_memory(20)
    with pytest.raises(ElmoError, match="too little memory for a sentence of 200000 words"):
        elmo.encode_tokens([["a"] * 200_000])
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert elmo.encode_tokens([["a"]])[0].shape == (3, 1, 256)


def test_tensors_that_do_not_fit_are_named(bilm, little_memory):
    elmo = ELMo(bilm, device="cuda")
    text = make_sentences(3000)
    elmo.encode_tokens(text, batch_size=256)
    little_memory(150)
    with pytest.raises(ElmoError, match=r"memory|do not fit"):
        elmo.encode_tokens(text, batch_size=256, convert_to_tensor=True)
