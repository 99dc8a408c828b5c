"""The output layer: every kind against NumPy, the sampled one against its expectation."""

import copy
import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import elmo.lm.softmax_losses
from elmo import BiLM
from elmo.errors import ConfigError, WeightsError
from elmo.lm.adaptive_softmax import adaptive_cutoffs
from elmo.lm.softmax import load_output_layer, make_output_layer
from elmo.lm.softmax_losses import draw_candidates, full_loss, sampled_loss
from strategies import VOCABULARY, rows_are_exact, word_config

KINDS = ("full", "sampled", "adaptive")


def drawn_layer(kind, n_words, dim, seed=0, n_samples=20, dtype=torch.float64):
    """Give a layer whose weights, biases too, are drawn at random."""
    layer = make_output_layer(kind, n_words, dim, n_samples).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(noise / math.sqrt(parameter.shape[-1] if parameter.ndim > 1 else 2))
    return layer


def drawn_rows(n, n_words, dim, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, dim, generator=generator, dtype=torch.float64).to(dtype)
    return hidden, torch.randint(0, n_words, (n,), generator=generator)


# --- NumPy, written from the definitions ----------------------------------------------------------


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def oracle_full(hidden, targets, weight, bias):
    """Loss and gradients of cross-entropy with respect to hidden, weight and bias."""
    probabilities = softmax(hidden @ weight.T + bias)
    rows = np.arange(len(targets))
    loss = -np.log(probabilities[rows, targets]).mean()
    slope = probabilities.copy()
    slope[rows, targets] -= 1
    slope /= len(targets)
    return loss, slope @ weight, slope.T @ hidden, slope.sum(axis=0)


def oracle_sampled(hidden, targets, weight, bias, candidates, n_samples):
    """The same for one draw of candidates, one row and one word at a time."""
    n_words = len(bias)
    grads = [np.zeros_like(hidden), np.zeros_like(weight), np.zeros_like(bias)]
    total = 0.0
    for row, target in enumerate(targets):
        words, offsets = [target], [0.0]
        for word in candidates:
            p = math.log((word + 2) / (word + 1)) / math.log(n_words + 1)
            if word != target:
                words.append(word)
                offsets.append(math.log(1 - (1 - p) ** n_samples))
        probabilities = softmax(weight[words] @ hidden[row] + bias[words] - np.array(offsets))
        total -= math.log(probabilities[0])
        slope = probabilities / len(targets)
        slope[0] -= 1 / len(targets)
        grads[0][row] = slope @ weight[words]
        grads[1][words] += np.outer(slope, hidden[row])
        grads[2][words] += slope
    return total / len(targets), *grads


def oracle_adaptive(hidden, tensors, first):
    """Probabilities `(n, n_words)` of a head and its clusters."""
    head = softmax(hidden @ tensors["head.weight"].T + tensors["head.bias"])
    parts = [head[:, :first]]
    for cluster in range(head.shape[1] - first):
        narrow = hidden @ tensors[f"tail.{cluster}.0.weight"].T
        inside = softmax(narrow @ tensors[f"tail.{cluster}.1.weight"].T)
        parts.append(head[:, first + cluster, None] * inside)
    return np.concatenate(parts, axis=1)


def arrays(*tensors):
    return [tensor.detach().numpy() for tensor in tensors]


def gradients(layer, hidden, targets, seed=0):
    """Loss and gradients with respect to hidden, weight and bias."""
    hidden = hidden.clone().requires_grad_()
    layer.zero_grad()
    loss = layer.training_loss(hidden, targets, layer.draw(seed))
    loss.backward()
    return arrays(loss, hidden.grad, layer.weight.grad, layer.bias.grad)


# --- exactness ------------------------------------------------------------------------------------


@given(
    n=st.integers(1, 9), n_words=st.integers(1, 40), dim=st.integers(1, 8), seed=st.integers(0, 9)
)
def test_the_full_softmax_equals_numpy_in_loss_and_gradients(n, n_words, dim, seed):
    layer = drawn_layer("full", n_words, dim, seed)
    hidden, targets = drawn_rows(n, n_words, dim, seed)
    expected = oracle_full(*arrays(hidden, targets, layer.weight, layer.bias))
    for found, wanted in zip(gradients(layer, hidden, targets), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_the_full_loss_has_the_gradients_of_finite_differences(monkeypatch):
    monkeypatch.setattr(elmo.lm.softmax_losses, "_LEAST_ROWS", 2)  # three chunks of rows
    monkeypatch.setitem(elmo.lm.softmax_losses._CHUNK_BYTES, "cpu", 1)
    hidden, targets = drawn_rows(5, 7, 3)
    layer = drawn_layer("full", 7, 3)
    inputs = hidden.requires_grad_(), layer.weight, layer.bias
    assert torch.autograd.gradcheck(lambda h, w, b: full_loss(h, targets, w, b), inputs)


def test_the_full_loss_equals_pytorchs_in_float32_and_needs_no_gradient_of_hidden():
    layer = drawn_layer("full", 300, 16, dtype=torch.float32)
    hidden, targets = drawn_rows(33, 300, 16, dtype=torch.float32)
    loss = layer.training_loss(hidden, targets, layer.draw(0))
    loss.backward()
    wanted = torch.nn.functional.cross_entropy(hidden @ layer.weight.T + layer.bias, targets)
    torch.testing.assert_close(loss, wanted)
    (grad,) = torch.autograd.grad(wanted, layer.weight)
    torch.testing.assert_close(layer.weight.grad, grad)


def test_the_full_loss_never_holds_all_logits():
    """One backward pass in a process of its own, whose memory is bounded by the system."""
    n, n_words = 4096, 50_000  # 819 MB of logits; the rest of a process with PyTorch is about 300
    code = f"""
import resource, torch
from elmo.lm.softmax import make_output_layer
torch.set_num_threads(1)
layer = make_output_layer("full", {n_words}, 8)
hidden = torch.randn({n}, 8, requires_grad=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
layer.training_loss(hidden, torch.zeros({n}, dtype=torch.int64), None).backward()
layer.eval().nll(hidden, torch.zeros({n}, dtype=torch.int64))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 300


@given(
    n=st.integers(1, 6), n_words=st.integers(1, 30), dim=st.integers(1, 6), seed=st.integers(0, 99)
)
def test_the_sampled_loss_equals_numpy_in_loss_and_gradients(n, n_words, dim, seed):
    n_samples = 1 + seed % 25
    layer = drawn_layer("sampled", n_words, dim, seed, n_samples)
    hidden, targets = drawn_rows(n, n_words, dim, seed)
    candidates, _ = draw_candidates(n_words, n_samples, seed)
    inputs = arrays(hidden, targets, layer.weight, layer.bias, candidates)
    expected = oracle_sampled(*inputs, n_samples)
    for found, wanted in zip(gradients(layer, hidden, targets, seed), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-10)


@pytest.mark.parametrize(("n_words", "dim"), [(4, 4), (50, 16), (9_000, 8), (21_000, 64)])
def test_the_adaptive_softmax_equals_numpy(n_words, dim):
    layer = drawn_layer("adaptive", n_words, dim).eval()
    hidden, targets = drawn_rows(12, n_words, dim)
    tensors = {name: tensor.numpy() for name, tensor in layer.tree.state_dict().items()}
    probabilities = oracle_adaptive(hidden.numpy(), tensors, layer.cutoffs[0])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_allclose(layer.log_probs(hidden), np.log(probabilities), atol=1e-10)
    picked = -np.log(probabilities[np.arange(12), targets])
    np.testing.assert_allclose(layer.nll(hidden, targets), picked, atol=1e-10)
    loss = layer.training_loss(hidden, targets, layer.draw(0))
    np.testing.assert_allclose(loss.item(), picked.mean())
    np.testing.assert_allclose(loss.item(), layer.tree(hidden, targets).loss.item())


def test_the_adaptive_loss_has_the_gradients_of_finite_differences():
    layer = drawn_layer("adaptive", 12, 8)
    hidden, targets = drawn_rows(6, 12, 8)
    assert torch.autograd.gradcheck(
        lambda h, *_: layer.training_loss(h, targets, layer.draw(0)),
        (hidden.requires_grad_(), *layer.parameters()),
    )


@pytest.mark.parametrize("kind", ["full", "sampled"])
def test_exact_values_are_those_of_the_full_vocabulary_however_it_is_trained(kind):
    layer = drawn_layer(kind, 60, 5).eval()
    hidden, targets = drawn_rows(7, 60, 5)
    logits = arrays(hidden @ layer.weight.T + layer.bias)[0]
    np.testing.assert_allclose(layer.log_probs(hidden), np.log(softmax(logits)), atol=1e-12)
    loss, *_ = oracle_full(*arrays(hidden, targets, layer.weight, layer.bias))
    np.testing.assert_allclose(layer.nll(hidden, targets).mean().item(), loss)


# --- the sampled softmax estimates the full one ---------------------------------------------------


N_WORDS, N_SAMPLES, N_DRAWS = 400, 200, 3000


def corrections(candidates, log_q):
    """The right correction of the candidates' logits, and two wrong ones."""
    p = torch.log1p(1 / (candidates.double() + 1)) / math.log(N_WORDS + 1)
    counts = torch.log(N_SAMPLES * p)
    return {"right": log_q, "none": torch.zeros_like(log_q), "log(k p)": counts}


@pytest.fixture(scope="module")
def estimates():
    """Partition functions, and gradients of their logarithm, over many draws."""
    layer = drawn_layer("sampled", N_WORDS, 4, seed=5)
    with torch.no_grad():  # as trained layers are: frequent words are likely words
        layer.bias.div_(4).sub_(torch.log(torch.arange(N_WORDS) + 1.0))
    hidden, targets = drawn_rows(3, N_WORDS, 4, seed=5)
    hidden = hidden.div(2).requires_grad_()
    inputs = hidden, layer.weight, layer.bias
    found = {name: {"Z": [], "slopes": []} for name in ("right", "none", "log(k p)")}
    for seed in range(N_DRAWS):
        candidates, log_q = draw_candidates(N_WORDS, N_SAMPLES, seed)
        for name, correction in corrections(candidates, log_q).items():
            loss = sampled_loss(hidden, targets, layer.weight, layer.bias, candidates, correction)
            found[name]["slopes"].append(flat_gradient(loss, inputs))
            with torch.no_grad():
                logits = hidden @ layer.weight.T + layer.bias
                own = logits.gather(1, targets[:, None])
                chosen = logits[:, candidates] - correction
                chosen[candidates == targets[:, None]] = -torch.inf
                found[name]["Z"].append((chosen.exp().sum(dim=1, keepdim=True) + own.exp())[:, 0])
    for name in found:
        found[name] = {key: torch.stack(values) for key, values in found[name].items()}
    with torch.no_grad():
        truth = (hidden @ layer.weight.T + layer.bias).exp().sum(dim=1)
    own_logits = (hidden * layer.weight[targets]).sum(dim=1) + layer.bias[targets]
    known = flat_gradient(-own_logits.mean(), inputs)  # the part that no candidate changes
    for name in found:
        found[name]["slopes"] = found[name]["slopes"] - known
    full = full_loss(hidden, targets, layer.weight, layer.bias)
    return found, truth, flat_gradient(full, inputs) - known


def flat_gradient(loss, inputs):
    return torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, inputs)])


def standard_errors_off(samples, truth):
    """How many standard errors the mean of samples `(draws, n)` is away from the truth `(n,)`."""
    error = samples.std(dim=0) / math.sqrt(len(samples))
    return ((samples.mean(dim=0) - truth).abs() / error).max().item()


def test_the_partition_function_is_estimated_without_bias(estimates):
    found, truth, _ = estimates
    assert standard_errors_off(found["right"]["Z"], truth) < 4


@pytest.mark.parametrize("wrong", ["none", "log(k p)"])
def test_wrong_corrections_are_found_out_by_the_partition_function(estimates, wrong):
    found, truth, _ = estimates
    assert standard_errors_off(found[wrong]["Z"], truth) > 20


def relative_gradient_error(estimates, name):
    found, _, truth = estimates
    return ((found[name]["slopes"].mean(dim=0) - truth).norm() / truth.norm()).item()


def test_the_expected_gradient_is_that_of_the_full_softmax(estimates):
    samples, truth = estimates[0]["right"]["slopes"], estimates[2]
    noise = (samples.var(dim=0).sum() / len(samples)).sqrt() / truth.norm()
    assert noise < 0.01
    assert relative_gradient_error(estimates, "right") < 2 * noise


@pytest.mark.parametrize("wrong", ["none", "log(k p)"])
def test_wrong_corrections_are_found_out_by_the_gradient(estimates, wrong):
    assert relative_gradient_error(estimates, wrong) > 0.2


def test_candidates_are_distinct_and_as_frequent_as_their_q_says():
    n_draws, counts = 4000, np.zeros(30)
    for seed in range(n_draws):
        candidates, log_q = draw_candidates(30, 12, seed)
        assert len(set(candidates.tolist())) == len(candidates)
        assert (log_q <= 0).all()
        counts[candidates] += 1
    p = np.log1p(1 / (np.arange(30) + 1)) / np.log(31)
    np.testing.assert_allclose(p.sum(), 1)
    q = 1 - (1 - p) ** 12
    errors = np.sqrt(q * (1 - q) / n_draws)
    assert (np.abs(counts / n_draws - q) < 4.5 * errors + 1e-9).all()


@given(seed=st.integers(-(2**70), 2**70))
def test_candidates_depend_on_the_seed_alone(seed):
    before = torch.random.get_rng_state()
    first = draw_candidates(1000, 50, seed)
    torch.rand(3)
    second = draw_candidates(1000, 50, seed)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    torch.random.set_rng_state(before)
    draw_candidates(1000, 50, seed)
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_step_whose_only_candidate_is_the_target_has_no_loss_and_no_gradient():
    layer = drawn_layer("sampled", 1, 3)
    hidden, targets = drawn_rows(2, 1, 3)
    for value in gradients(layer, hidden, targets):
        assert not value.any()


# --- rows, precision, devices ---------------------------------------------------------------------


@pytest.mark.skipif(not rows_are_exact(), reason="oneDNN does not give rows the same bits here")
@settings(max_examples=30)
@given(
    kind=st.sampled_from(KINDS),
    n_words=st.sampled_from([5, 17, 300, 4_200]),
    seed=st.integers(0, 9),
    data=st.data(),
)
def test_a_row_is_the_same_bits_whatever_its_neighbors(kind, n_words, seed, data):
    layer = drawn_layer(kind, n_words, 16, seed, dtype=torch.float32).eval()
    hidden, targets = drawn_rows(70, n_words, 16, seed, dtype=torch.float32)
    whole, table = layer.nll(hidden, targets), layer.log_probs(hidden)
    rows = data.draw(st.lists(st.integers(0, 69), min_size=1, max_size=9))
    assert torch.equal(layer.nll(hidden[rows], targets[rows]), whole[rows])
    assert torch.equal(layer.log_probs(hidden[rows]), table[rows])
    assert torch.equal(-table.gather(1, targets[:, None])[:, 0], whole)


@pytest.mark.parametrize("kind", KINDS)
def test_threads_change_no_bit(kind):
    layer = drawn_layer(kind, 4_200, 16, dtype=torch.float32).eval()
    hidden, targets = drawn_rows(3, 4_200, 16, dtype=torch.float32)
    one = layer.nll(hidden, targets)
    try:
        torch.set_num_threads(2)
        two = copy.deepcopy(layer).nll(hidden, targets)
    finally:
        torch.set_num_threads(1)
    assert torch.equal(one, two)


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_autocast_trains_close_to_float32_and_is_judged_in_float32(kind):
    layer = drawn_layer(kind, 500, 32, n_samples=100, dtype=torch.float32)
    hidden, targets = drawn_rows(20, 500, 32, dtype=torch.float32)
    hidden.requires_grad_()
    exact = layer.training_loss(hidden, targets, layer.draw(1))
    wanted = torch.autograd.grad(exact, (hidden, *layer.parameters()))
    with torch.autocast("cpu", torch.bfloat16):
        loss = layer.training_loss(hidden, targets, layer.draw(1))
        judged = layer.nll(hidden, targets)
        half = layer.training_loss(hidden.bfloat16(), targets, layer.draw(1))
    assert loss.dtype == half.dtype == judged.dtype == torch.float32
    assert torch.equal(judged, layer.nll(hidden, targets))
    torch.testing.assert_close(loss, exact, rtol=2e-2, atol=0)
    torch.testing.assert_close(half, exact, rtol=2e-2, atol=0)
    found = torch.autograd.grad(loss, (hidden, *layer.parameters()))
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() <= 0.05 * other.norm()


@pytest.mark.parametrize("kind", KINDS)
def test_exact_values_follow_the_weights_through_training(kind):
    """Packed weights must not outlive the weights that they were made of."""
    layer = drawn_layer(kind, 50, 8, dtype=torch.float32)
    hidden, targets = drawn_rows(6, 50, 8, dtype=torch.float32)
    optimizer = torch.optim.Adagrad(layer.parameters(), lr=0.1)
    values = [layer.eval().nll(hidden, targets)]
    for seed in range(3):
        loss = layer.training_loss(
            hidden, targets, layer.draw(seed)
        )  # without .train(), on purpose
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(layer.nll(hidden, targets))
        fresh = load_output_layer(layer.to_tensors()).eval()
        assert torch.equal(values[-1], fresh.nll(hidden, targets))
    assert all(after.mean() < before.mean() for before, after in itertools.pairwise(values))


def test_no_rows_have_no_values():
    layer = drawn_layer("full", 5, 2)
    hidden, targets = drawn_rows(0, 5, 2)
    assert layer.nll(hidden, targets).shape == (0,)
    assert layer.log_probs(hidden).shape == (0, 5)


# --- sharing, saving, starting --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "sampled"])
def test_a_shared_table_learns_from_both_ends_and_is_saved_once(kind):
    torch.manual_seed(0)
    bilm = BiLM(word_config()).double()
    table = bilm.words.embedding.weight
    layer = make_output_layer(kind, len(VOCABULARY), 16, 50, tied=table).double()
    assert layer.table is table
    assert sorted(layer.to_tensors()) == ["bias"]
    both = torch.nn.ModuleList([bilm, layer])
    assert sum(parameter is table for parameter in both.parameters()) == 1
    ids, targets = torch.tensor([4, 6, 4, 9]), torch.tensor([3, 5, 8, 0])

    def grad(inputs, outputs):
        """The table's gradient through the words that are read, those predicted, or both."""
        hidden = bilm.encode_words(ids) if inputs else bilm.encode_words(ids).detach()
        used = layer if outputs else copy.deepcopy(layer)
        loss = used.training_loss(torch.tanh(hidden), targets, used.draw(1))
        return torch.autograd.grad(loss, table)[0]

    from_inputs, from_outputs = grad(True, False), grad(False, True)
    assert from_inputs[[4, 6, 9]].any(dim=1).all()
    assert not from_inputs[[1, 2, 3, 5]].any()
    assert from_outputs[1:].any(dim=1).all()
    torch.testing.assert_close(grad(True, True), from_inputs + from_outputs)
    assert not grad(True, True)[0].any()


@pytest.mark.parametrize("kind", ["full", "sampled"])
def test_a_shared_table_predicts_as_a_copy_of_it_would(kind):
    table = torch.randn(9, 4, generator=torch.Generator().manual_seed(1))
    shared = make_output_layer(kind, 8, 4, tied=table)
    own = load_output_layer({"weight": table[1:], "bias": shared.bias.detach()})
    hidden, _ = drawn_rows(5, 8, 4, dtype=torch.float32)
    assert torch.equal(shared.log_probs(hidden), own.log_probs(hidden))
    loaded = load_output_layer(shared.to_tensors(), tied=table)
    assert torch.equal(loaded.log_probs(hidden), own.log_probs(hidden))


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_layer_comes_back(kind):
    layer = drawn_layer(kind, 60, 16, dtype=torch.float32)
    tensors = layer.to_tensors()
    again = load_output_layer(tensors, kind=kind)
    assert type(again) is type(layer)
    assert (again.n_words, again.dim) == (60, 16)
    hidden, targets = drawn_rows(4, 60, 16, dtype=torch.float32)
    assert torch.equal(again.nll(hidden, targets), layer.nll(hidden, targets))
    assert {name: tensor.shape for name, tensor in again.to_tensors().items()} == {
        name: tensor.shape for name, tensor in tensors.items()
    }


def test_full_and_sampled_layers_share_their_tensors():
    layer = drawn_layer("full", 6, 3, dtype=torch.float32)
    sampled = load_output_layer(layer.to_tensors(), kind="sampled", n_samples=7)
    assert sampled.n_samples == 7
    assert sorted(sampled.to_tensors()) == ["bias", "weight"]


def test_fresh_layers_start_as_bilm_tf_starts_them():
    torch.manual_seed(0)
    for kind in KINDS:
        layer = make_output_layer(kind, 5000, 64)
        for name, tensor in layer.to_tensors().items():
            if name.endswith("bias"):
                assert not tensor.any()
            else:
                assert tensor.std().item() == pytest.approx(tensor.shape[1] ** -0.5, rel=0.05)


def test_cutoffs_grow_with_the_vocabulary_and_fit_the_width():
    assert adaptive_cutoffs(100, 16) == [25]
    assert adaptive_cutoffs(2, 4) == [1]
    assert adaptive_cutoffs(65_000, 128) == [2_000, 10_000]
    assert adaptive_cutoffs(800_000, 512) == [2_000, 10_000, 50_000, 250_000]
    assert adaptive_cutoffs(800_000, 4) == [2_000]


def test_impossible_layers_are_refused_with_a_reason():
    with pytest.raises(ConfigError, match="'fast', expected one of full, sampled, adaptive"):
        make_output_layer("fast", 10, 4)
    with pytest.raises(ConfigError, match="n_words is 0"):
        make_output_layer("full", 0, 4)
    with pytest.raises(ConfigError, match="n_samples is True"):
        make_output_layer("sampled", 10, 4, n_samples=True)
    with pytest.raises(ConfigError, match=r"shape \(10, 4\), expected \(11, 4\)"):
        make_output_layer("full", 10, 4, tied=torch.zeros(10, 4))
    with pytest.raises(ConfigError, match="adaptive softmax has no weight"):
        make_output_layer("adaptive", 10, 4, tied=torch.zeros(11, 4))
    with pytest.raises(ConfigError, match="4 values at least"):
        make_output_layer("adaptive", 10, 3)
    with pytest.raises(ConfigError, match="'full' and cannot be trained as 'adaptive'"):
        load_output_layer({"weight": torch.zeros(3, 2), "bias": torch.zeros(3)}, kind="adaptive")


def test_damaged_tensors_are_refused_with_a_reason():
    with pytest.raises(WeightsError, match="has bias, expected weight and bias"):
        load_output_layer({"bias": torch.zeros(3)})
    with pytest.raises(WeightsError, match=r"weight of shape \(4, 2\) and a bias of shape \(3,\)"):
        load_output_layer({"weight": torch.zeros(4, 2), "bias": torch.zeros(3)})
    tensors = make_output_layer("adaptive", 60, 16).to_tensors()
    del tensors["tail.0.0.weight"]
    with pytest.raises(WeightsError, match="damaged"):
        load_output_layer(tensors)
