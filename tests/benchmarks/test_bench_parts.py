"""What `elmo bench` is made of: text, timing, counts, references, probes."""

import re
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo import ELMo, ElmoConfig
from elmo.analysis.layers.probe import LinearProbe
from elmo.analysis.layers.treebank import parse_conllu, read_treebank
from elmo.benchmark import corpus, peers
from elmo.benchmark.contest import Contest, Roof
from elmo.benchmark.costs import count_costs
from elmo.benchmark.exactness import Mode, layer_errors
from elmo.benchmark.peaks import Peaks, measure_peaks
from elmo.benchmark.reference import float64_layers
from elmo.benchmark.scaling import exponent
from elmo.benchmark.systems import (
    Ours,
    batch_size,
    devices,
    gpu_memory_is_enough,
    usable_precisions,
)
from elmo.benchmark.timing import Contender, Spread, interleave, rates, ratios
from elmo.benchmark.weights import (
    cache_folder,
    published_folder,
    subject_of_model,
    subject_of_size,
)
from elmo.errors import ConfigError, InputError, MissingFileError, OutputError
from elmo.hub.names import open_model
from elmo.model.bilm import BiLM
from elmo.runtime.tables import markdown_table, text_table
from oracle import Oracle, random_tensors, write_files
from strategies import word_config

CPU = torch.device("cpu")


# --- text and timing ------------------------------------------------------------------------------


def test_corpus_is_deterministic():
    first = corpus.make_sentences(50, seed=3)
    corpus.vocabulary.cache_clear()
    assert corpus.make_sentences(50, seed=3) == first
    assert corpus.make_sentences(50, seed=4) != first


def test_corpus_is_the_same_on_every_machine():
    # Were this to change, recorded speeds could no longer be compared.
    assert corpus.make_sentence(4) == ["aosb", "stoi", "os", "os"]


def test_corpus_has_the_lengths_of_real_sentences():
    sentences = corpus.make_sentences(4000)
    lengths = [len(sentence) for sentence in sentences]
    assert min(lengths) >= corpus.SHORTEST
    assert max(lengths) <= corpus.LONGEST
    assert np.mean(lengths) == pytest.approx(21, abs=1)
    assert corpus.count_words(sentences) == sum(lengths)
    assert len(corpus.make_sentence(20000)) == 20000


def test_corpus_obeys_zipf():
    words = corpus.vocabulary()
    assert len(set(words)) == len(words) == corpus.N_WORDS
    text = corpus.make_sentence(20000)
    # The second word is half as frequent as the first, and most words of the language are missing.
    assert text.count(words[0]) == pytest.approx(2 * text.count(words[1]), rel=0.2)
    assert len(set(text)) < corpus.N_WORDS / 4
    letters = [np.mean([len(word) for word in some]) for some in (text, words)]
    assert 3 < letters[0] < letters[1] < 9  # frequent words are short


def test_spread_and_ratios_are_taken_round_by_round():
    # The machine was ten times slower in the second round; the ratio does not notice.
    assert ratios([2.0, 20.0, 2.0], [1.0, 10.0, 1.0]) == Spread(2.0, 2.0, 2.0)
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(median=2.0, low=1.0, high=3.0)
    assert rates(10, [2.0, 5.0]) == [5.0, 2.0]


def test_contenders_take_turns():
    calls = []
    contenders = [
        Contender("a", lambda: calls.append("a"), lambda: calls.append("ready")),
        Contender("b", lambda: calls.append("b")),
    ]
    seconds = interleave(contenders, 2)
    assert calls == ["ready", "a", "b"] * 2
    assert [len(seconds[name]) for name in "ab"] == [2, 2]


def test_tables_are_aligned():
    assert text_table(("name", "n"), [("a", "10"), ("long name", "7")]) == (
        "name        n\na          10\nlong name   7"
    )
    assert markdown_table(("name", "n"), [("a", "1")]) == "| name | n |\n| --- | ---: |\n| a | 1 |"


@given(
    st.floats(-2, 3),
    st.floats(1e-3, 1e3),
    st.lists(st.floats(1, 1e6), min_size=2, max_size=6, unique_by=lambda x: round(x)),
)
def test_the_exponent_of_a_power_is_found(power, factor, sizes):
    values = [factor * size**power for size in sizes]
    # Sizes that are close together fix the slope badly.
    span = np.log(max(sizes)) - np.log(min(sizes))
    assert exponent(sizes, values) == pytest.approx(power, abs=1e-6 / span + 1e-9)


# --- counts ---------------------------------------------------------------------------------------


def test_the_costs_of_the_original_size_are_those_counted_by_hand():
    costs = count_costs(ElmoConfig.preset("original"))
    gates, projection = 4 * 4096 * 512, 4096 * 512
    assert costs.first_input == 2 * 2 * gates
    assert costs.first_input + costs.recurrent == 2 * 4 * (2 * gates + projection) == 150_994_944
    assert costs.dense == 2 * (2 * 2 * 2048 * 2048 + 2048 * 512) == 35_651_584
    # Width times number times places of each group of filters, 16 values a character.
    places = 1600 + 3136 + 9216 + 24064 + 58880 + 138240 + 315392
    assert costs.convolution == 2 * 16 * places == 17_616_896
    assert costs.per_word == 204_263_424
    # Ten words, three of them distinct: word vectors and first input products three times.
    assert costs.least(10, 3) == 3 * (35_651_584 + 33_554_432) + 10 * 117_440_512


def test_the_bytes_of_the_original_size_are_those_counted_by_hand():
    costs = count_costs(ElmoConfig.preset("original"))
    step = 4 * (4 * 4096 * 512 + 4096 * 512)  # two layers, two directions: 42 million weights
    once = 4 * (4 * 4096 * 512) + 2 * 2 * 2048 * 2048 + 2048 * 512
    assert (costs.weights_each_step, costs.weights_once) == (step, once)
    assert costs.sentence_bytes(20, "fp32") == 4 * (once + 20 * step) == 3_560_964_096
    assert costs.sentence_bytes(20, "bf16") == costs.sentence_bytes(20, "fp16") == 1_780_482_048
    assert costs.sentence_bytes(20, "int8") == 890_241_024


@pytest.mark.parametrize(
    "config",
    [
        ElmoConfig.preset("tiny"),
        ElmoConfig.preset("small"),
        ElmoConfig.preset("tiny", cell="gru", n_layers=3),
        ElmoConfig.preset("tiny", dim=16),  # no projection of cells
        ElmoConfig.preset("tiny", n_highway=0, filters=((1, 8), (2, 8))),  # none of words
        word_config(),
    ],
)
def test_every_weight_of_a_product_is_counted_once(config):
    with torch.device("meta"):
        model = BiLM(config)
    products = [
        tensor.numel()
        for name, tensor in model.state_dict().items()
        if tensor.ndim == 2 and "embedding" not in name
    ]
    costs = count_costs(config)
    assert costs.weights_once + costs.weights_each_step == sum(products)
    assert costs.per_word - costs.convolution == 2 * sum(products)


def test_shares_of_the_roof_are_the_larger_of_two():
    peaks = Peaks(flops={"fp32": 100.0}, bandwidth=10.0)
    assert peaks.share_of_flops("fp32", operations=50, seconds=1) == 0.5
    assert peaks.share_of_roof("fp32", operations=50, bytes_read=1, seconds=1) == 0.5
    assert peaks.share_of_roof("fp32", operations=50, bytes_read=8, seconds=1) == 0.8
    assert peaks.share_of_roof("fp32", operations=50, bytes_read=8, seconds=4) == 0.2


def test_the_better_of_two_peaks_counts():
    first = Peaks(flops={"fp32": 1.0, "bf16": 4.0}, bandwidth=2.0)
    second = Peaks(flops={"fp32": 3.0, "bf16": 2.0}, bandwidth=1.0)
    assert first.best_of(second) == Peaks(flops={"fp32": 3.0, "bf16": 4.0}, bandwidth=2.0)


def test_peaks_are_measured_for_every_precision():
    peaks = measure_peaks(("fp32", "fp16", "bf16", "int8"), CPU, quick=True)
    assert set(peaks.flops) == {"fp32", "fp16", "bf16", "int8"}
    # A precision is never worse off than float32, into which its weights can be turned.
    assert all(peak >= peaks.flops["fp32"] > 0 for peak in peaks.flops.values())
    assert peaks.bandwidth > 0


# --- models ---------------------------------------------------------------------------------------


def test_random_weights_are_written_once(tmp_path):
    first = subject_of_size("tiny", tmp_path)
    written = (tmp_path / "tiny" / "weights.hdf5").stat().st_mtime_ns
    assert subject_of_size("tiny", tmp_path) == first
    assert (tmp_path / "tiny" / "weights.hdf5").stat().st_mtime_ns == written
    tensors = first.read().tensors
    assert first.parameters == sum(t.numel() for t in tensors.values()) - first.config.char_dim
    with published_folder(first) as folder:
        assert folder == tmp_path / "tiny"


@pytest.mark.parametrize("options", ["{}", "{", ""])
def test_half_written_weights_are_written_anew(tmp_path, options):
    subject_of_size("tiny", tmp_path)
    (tmp_path / "tiny" / "options.json").write_text(options)
    subject_of_size("tiny", tmp_path).read()


def test_weights_that_cannot_be_kept_name_the_flag(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OutputError, match="--data"):
        subject_of_size("tiny", tmp_path / "file")


def test_a_model_in_our_layout_is_laid_out_for_allennlp(tmp_path, tiny_elmo):
    tiny_elmo.save_pretrained(tmp_path)
    subject = subject_of_model(str(tmp_path))
    with published_folder(subject) as folder:
        assert {"options.json", "weights.hdf5"} <= {path.name for path in folder.iterdir()}
        again = ELMo.from_pretrained(folder, device="cpu")
        assert again.fingerprint == tiny_elmo.fingerprint
    assert not folder.exists()


def test_the_cache_folder_follows_the_custom_of_the_system(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "elmo-torch" / "benchmark"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder().parts[-4:-2] == ("Library", "Caches")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert cache_folder() == tmp_path / "elmo-torch" / "benchmark"


def test_missing_peer_says_how_to_install_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "allennlp", raising=False)
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(peers.MissingPeerError, match=re.escape(peers.HOW_TO_INSTALL)):
        peers.load_elmo_class()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"cell": "gru"}, "no gru"),
        ({"max_characters": 20}, "50 characters"),
        ({"n_characters": 300}, "UTF-8 bytes"),
        ({"dim": 16}, "always projects"),
    ],
)
def test_models_that_allennlp_cannot_run_are_known(changes, reason):
    found = peers.why_not(ElmoConfig.preset("tiny", **changes))
    assert found is None if reason is None else reason in found


def test_a_precision_without_instructions_is_left_out_and_noted(monkeypatch):
    monkeypatch.setattr("elmo.benchmark.systems.runs_natively", lambda precision: False)
    notes = []
    assert "bf16" in usable_precisions(("fp32", "bf16"), CPU, notes, emulate=True)
    assert notes == []
    with pytest.raises(ConfigError, match="no instructions for bf16"):
        usable_precisions(("bf16",), CPU, notes)
    assert len(notes) == 1


def test_devices_are_the_one_asked_for_or_all():
    assert devices("cpu") == [CPU]
    assert devices("auto")[0] == CPU
    with pytest.raises(ConfigError, match="tpu9"):
        devices("tpu9")


def test_all_ways_to_embed_give_the_same_vectors(tmp_path):
    subject = subject_of_size("tiny", tmp_path)
    ours = Ours(subject.source, "fp32", CPU, layers="top")
    sentences = corpus.make_sentences(batch_size(CPU) + 3)
    expected = ours.model.encode_tokens(sentences, layers="top")
    for way in (ours.in_one_call, ours.in_small_calls, ours.on_the_device):
        ours.forget()
        for found, vectors in zip(way(sentences), expected, strict=True):
            np.testing.assert_array_equal(np.asarray(found), vectors)


def test_on_a_gpu_vectors_stay_there_or_come_to_the_host(tmp_path):
    """The line-up of a GPU, run by models on the CPU."""
    subject = subject_of_size("tiny", tmp_path)
    roof = Roof(count_costs(subject.config), Peaks(flops={"fp32": 1e9}, bandwidth=1e9))
    contest = Contest(
        name="tiny",
        device=torch.device("cuda"),
        ours=[Ours(subject.source, "fp32", CPU)],
        peer=None,
        show_progress=False,
    )
    sentences = corpus.make_sentences(3)
    rows = contest.judge_corpus(sentences, contest.time_corpus(sentences, rounds=2), roof)
    assert [row.name for row in rows] == [
        "ours fp32, vectors on the GPU",
        "ours fp32, vectors in host memory",
    ]
    assert all(row.words == corpus.count_words(sentences) for row in rows)
    assert "1024" in contest.given_order


def test_too_little_memory_of_a_gpu_says_what_to_change():
    with pytest.raises(ConfigError, match="fewer sentences"), gpu_memory_is_enough():
        raise torch.OutOfMemoryError("CUDA out of memory.")


# --- exactness ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_reference_in_float64_agrees_with_the_independent_oracle(tmp_path, cell):
    config = ElmoConfig.preset("tiny", cell=cell, cell_clip=0.5, proj_clip=0.3)
    tensors = random_tensors(config.to_options(), seed=1, recurrent_scale=2.0)
    oracle = Oracle(config.to_options(), tensors)
    write_files(tmp_path, config.to_options(), tensors)
    sentences = [["A", "cat", "."], ["naïve"], ["x" * 60, "b"]]
    found = float64_layers(open_model(tmp_path), sentences)
    for layers, expected in zip(found, oracle.read_all(sentences), strict=True):
        assert layers.dtype == np.float64
        np.testing.assert_allclose(layers, expected, rtol=0, atol=1e-12)
    assert min(oracle.clipped.values()) > 0


def test_errors_of_layers_are_those_that_were_put_in():
    rng = np.random.default_rng(0)
    expected = [rng.normal(size=(2, n, 8)) for n in (3, 1)]
    found = [vectors.copy() for vectors in expected]
    found[0][1, 2, 5] += 0.5
    found[1][1] *= -1
    first, second = layer_errors(Mode("bf16", "cpu"), found, expected)
    assert (first.layer, first.largest, first.mean, first.relative) == (0, 0, 0, 0)
    assert first.least_cosine == pytest.approx(1)
    assert second.largest == pytest.approx(max(0.5, 2 * np.abs(expected[1][1]).max()))
    total = 0.5 + 2 * np.abs(expected[1][1]).sum()
    assert second.mean == pytest.approx(total / 32)
    assert second.least_cosine == pytest.approx(-1)
    assert (str(first.mode), str(Mode("bf16", "cuda:0"))) == ("bf16", "bf16 on cuda:0")


def test_a_probe_learns_what_is_linear_and_always_the_same():
    generator = torch.Generator().manual_seed(0)
    vectors = 5 + 100 * torch.randn(300, 6, generator=generator)
    vectors[:, 5] = 7.0  # says nothing
    labels = (vectors[:, :3] @ torch.randn(3, 4, generator=generator)).argmax(dim=1)
    probe = LinearProbe(vectors, labels, 4)
    answers = probe.predict(vectors)
    assert (answers == labels).float().mean() > 0.95
    assert torch.equal(LinearProbe(vectors, labels, 4).predict(vectors), answers)


CONLLU = (
    "# sent_id = 1\n"
    "1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tdo\tdo\tAUX\t_\t_\t_\t_\t_\t_\n"
    "2\tn't\tnot\tPART\t_\t_\t_\t_\t_\t_\n"
    "2.1\tgo\tgo\tVERB\t_\t_\t_\t_\t_\t_\n"
    "\n"
    "1\tStop\tstop\tVERB\t_\t_\t_\t_\t_\t_\n"
)


def test_a_treebank_gives_words_and_tags(tmp_path):
    path = tmp_path / "en-test.conllu"
    path.write_text(CONLLU)
    found = list(parse_conllu(path))
    assert [(s.words, s.tags) for s in found] == [
        (["do", "n't"], ["AUX", "PART"]),
        (["Stop"], ["VERB"]),
    ]
    assert len(read_treebank(tmp_path, "test", 1000)) == 2
    assert len(read_treebank(tmp_path, "test", 1)) == 1


def test_a_treebank_that_is_not_one_is_refused(tmp_path):
    with pytest.raises(MissingFileError, match="no such folder"):
        read_treebank(tmp_path / "missing", "test", 10)
    with pytest.raises(MissingFileError, match="0 files"):
        read_treebank(tmp_path, "train", 10)
    (tmp_path / "a-train.conllu").write_text("The cat sat .\n")
    with pytest.raises(InputError, match=r"line 1: 1 columns"):
        read_treebank(tmp_path, "train", 10)
