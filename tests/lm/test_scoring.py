"""The language model at work: every number against an independent float64 computation, and laws."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.errors import ConfigError, ElmoWarning, InputError, MissingFileError, WeightsError
from elmo.hub.names import open_model
from elmo.lm.scoring import LanguageModelScorer
from elmo.lm.softmax import make_output_layer
from elmo.text.vocabulary import Vocabulary
from elmo.weights.formats import save_checkpoint
from oracle import Oracle, random_tensors, write_files
from strategies import VOCABULARY, options, plain_batches, rows_are_exact

pytestmark = pytest.mark.filterwarnings("ignore:words longer:elmo.errors.ElmoWarning")

EXACT = {"rtol": 0, "atol": 2e-5}
SENTENCES = [["the", "cat", "sat", "."], ["Öl"], [], ["unheard-of", "河", "the", "the", "."]]


SMALL = {
    "lstm": {
        "dim": 24,
        "projection_dim": 16,
        "n_layers": 2,
        "cell_clip": 3.0,
        "proj_clip": 3.0,
        "use_skip_connections": True,
    },
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 4},
        "filters": [[1, 8], [3, 8]],
        "n_highway": 1,
        "n_characters": 262,
        "max_characters_per_token": 50,
    },
}


# --- the oracle's answers -------------------------------------------------------------------------


class LanguageOracle:
    """What a language model says, from the oracle's layers, one distribution at a time."""

    def __init__(self, oracle, weight, bias):
        self.oracle = oracle
        self.weight, self.bias = weight.astype(np.float64), bias.astype(np.float64)

    def distributions(self, words, state=None):
        """Give log-probabilities: forwards of each word and `</S>`, backwards of `<S>` and each."""
        layers, state = self.oracle.read(words, state, boundaries=True)
        top, width = layers[-1], self.oracle.width
        forward = [self.log_softmax(top[k, :width]) for k in range(len(words) + 1)]
        backward = [self.log_softmax(top[k + 1, width:]) for k in range(len(words) + 1)]
        return forward, backward, state

    def log_softmax(self, output):
        logits = self.weight @ output + self.bias
        return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()

    def score(self, words, state=None):
        """Give surprisals of words forwards, backwards, jointly, of the end and of the begin."""
        forward, backward, state = self.distributions(words, state)
        ids = [VOCABULARY.index(word) if word in VOCABULARY else 2 for word in words]
        columns = np.zeros((3, len(words)))
        for k, word in enumerate(ids):
            product = forward[k] + backward[k + 1]
            joint = product - np.log(np.exp(product).sum())
            columns[:, k] = -forward[k][word], -backward[k + 1][word], -joint[word]
        return columns, -forward[-1][1], -backward[0][0], state


def language_model(folder, drawn, seed=0, tied=False):
    """Give the oracle and the checkpoint of one model with a random output layer."""
    generator = np.random.default_rng(seed + 100)
    tensors = random_tensors(drawn, seed)
    width = drawn["lstm"]["projection_dim"]
    weight = generator.standard_normal((len(VOCABULARY), width)).astype(np.float32)
    softmax = {"softmax/b": generator.standard_normal(len(VOCABULARY)).astype(np.float32)}
    if tied:
        weight = tensors["embedding"]
    else:
        softmax["softmax/W"] = weight
    write_files(folder, drawn, tensors | softmax, VOCABULARY)
    words = None if "char_cnn" in drawn else VOCABULARY
    oracle = LanguageOracle(Oracle(drawn, tensors, words), weight, softmax["softmax/b"])
    return oracle, open_model(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("oracle")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """One model with its oracle, for the laws and the command line."""
    place = tmp_path_factory.mktemp("small")
    oracle, checkpoint = language_model(place, SMALL)
    return oracle, LanguageModelScorer(checkpoint, device="cpu"), place


def assert_scores(found, expected, scale=1.0):
    columns, end, begin = expected[:3]
    for name, column in zip(("forward", "backward", "joint"), columns * scale, strict=True):
        np.testing.assert_allclose(getattr(found, name), column, **EXACT)
    np.testing.assert_allclose([found.end, found.begin], [end * scale, begin * scale], **EXACT)


# --- numbers --------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    drawn=options(cells=("lstm", "gru"), reads=("characters", "words")),
    batch=plain_batches(),
    seed=st.integers(0, 9),
)
def test_every_number_equals_the_oracle(folder, drawn, batch, seed):
    oracle, checkpoint = language_model(folder, drawn, seed)
    scorer = LanguageModelScorer(checkpoint, device="cpu")
    for words, found in zip(batch, scorer.score(batch), strict=True):
        assert_scores(found, oracle.score(words))
        assert found.words == tuple(words)
        assert found.known == tuple(word in VOCABULARY for word in words)


@settings(max_examples=15)
@given(drawn=options(reads=("characters", "words")), batch=plain_batches(), rows=st.integers(1, 3))
def test_carried_state_equals_the_oracle(folder, drawn, batch, rows):
    oracle, checkpoint = language_model(folder, drawn, seed=1)
    scorer = LanguageModelScorer(checkpoint, device="cpu")
    found = scorer.score(batch, state="carry", batch_size=rows)
    states = [{} for _ in range(rows)]
    for number, words in enumerate(batch):
        *expected, states[number % rows] = oracle.score(words, states[number % rows])
        assert_scores(found[number], expected)
    scorer.reset()
    again = scorer.score(batch, state="carry", batch_size=rows)
    assert [one.to_dict() for one in again] == [one.to_dict() for one in found]


def test_the_warm_state_equals_the_oracle(small):
    oracle, _, place = small
    scorer = LanguageModelScorer(open_model(place), device="cpu")
    state = None
    text = [["the", "cat"], ["sat", "."]]
    for words in text:
        _, state = oracle.oracle.read(words, state)
    scorer._reader.warm_up(text)
    for words, found in zip(SENTENCES, scorer.score(SENTENCES, state="warm"), strict=True):
        assert_scores(found, oracle.score(words, state))


def test_surprisal_in_bits_is_that_in_nats_by_another_name(small):
    oracle, scorer, _ = small
    for words, found in zip(SENTENCES, scorer.score(SENTENCES, unit="bits"), strict=True):
        assert_scores(found, oracle.score(words), scale=1 / math.log(2))
        assert found.unit == "bits"


def test_a_table_shared_with_the_output_layer_is_found_in_the_model(folder):
    drawn = {
        "lstm": {
            "dim": 8,
            "projection_dim": 4,
            "n_layers": 1,
            "cell_clip": None,
            "proj_clip": None,
            "use_skip_connections": False,
        },
        "n_tokens_vocab": len(VOCABULARY),
    }
    oracle, checkpoint = language_model(folder, drawn, tied=True)
    assert sorted(checkpoint.softmax) == ["bias"]
    found = LanguageModelScorer(checkpoint, device="cpu").score(SENTENCES)
    for words, one in zip(SENTENCES, found, strict=True):
        assert_scores(one, oracle.score(words))


def test_an_adaptive_output_layer_is_asked_like_any_other(small, tmp_path):
    _, _, place = small
    torch.manual_seed(0)
    layer = make_output_layer("adaptive", len(VOCABULARY), 16)
    checkpoint = dataclasses.replace(open_model(place), softmax=layer.to_tensors())
    save_checkpoint(checkpoint, tmp_path, "elmo")
    scorer = LanguageModelScorer.from_pretrained(tmp_path, device="cpu")
    assert all(np.isfinite(one.joint).all() for one in scorer.score(SENTENCES))
    assert scorer.perplexity(SENTENCES).n_predictions == 13


# --- laws -----------------------------------------------------------------------------------------


@pytest.mark.skipif(not rows_are_exact(), reason="oneDNN does not give rows the same bits here")
@given(batch=plain_batches(), batch_size=st.integers(1, 4), data=st.data())
def test_no_neighbor_no_order_and_no_batch_size_changes_a_bit(small, batch, batch_size, data):
    scorer = small[1]
    whole = [one.to_dict() for one in scorer.score(batch)]
    order = data.draw(st.permutations(range(len(batch))))
    shuffled = scorer.score([batch[number] for number in order], batch_size=batch_size)
    for number, one in zip(order, shuffled, strict=True):
        assert one.to_dict() == whole[number]
    alone = data.draw(st.sampled_from(range(len(batch))))
    assert scorer.score([batch[alone]])[0].to_dict() == whole[alone]


@pytest.mark.parametrize("count_unknown", [True, False])
@given(batch=plain_batches())
def test_perplexity_is_exp_of_the_mean_of_scores(small, count_unknown, batch):
    scorer = small[1]
    batch = [words for words in batch if words] or [["the"]]
    scores = scorer.score(batch)

    def mean(name, boundary):
        values = [getattr(one, boundary) for one in scores]
        for one in scores:
            kept = [count_unknown or known for known in one.known]
            values += getattr(one, name)[kept].astype(float).tolist()
        return math.fsum(values) / len(values), len(values)

    (forward, n), (backward, _) = mean("forward", "end"), mean("backward", "begin")
    found = scorer.perplexity(iter([*batch, []]), count_unknown=count_unknown)
    assert found.forward == pytest.approx(math.exp(forward), rel=1e-12)
    assert found.backward == pytest.approx(math.exp(backward), rel=1e-12)
    assert found.mean == pytest.approx(math.sqrt(found.forward * found.backward), rel=1e-12)
    assert found.n_predictions == n
    assert found.n_sentences == len(batch)
    assert found.n_words == sum(map(len, batch))
    assert found.n_unknown == sum(not known for one in scores for known in one.known)
    assert found == scorer.perplexity(batch[::-1], count_unknown=count_unknown, batch_size=1)


@given(
    words=st.lists(st.sampled_from([*VOCABULARY[3:], "dog"]), min_size=1, max_size=5),
    data=st.data(),
)
def test_the_first_substitute_is_the_best_word_by_brute_force(small, words, data):
    oracle, scorer, _ = small
    position = data.draw(st.integers(-len(words), len(words) - 1))
    found = scorer.substitutes(words, position, k=4)
    position %= len(words)
    forward, backward, _ = oracle.distributions(words)
    pair = forward[position], backward[position + 1]
    joint = np.exp(pair[0] + pair[1])
    joint /= joint.sum()
    order = [place for place in np.argsort(-joint) if place > 2]
    assert [entry.word for entry in found.words] == [VOCABULARY[place] for place in order[:4]]
    for entry, place in zip(found.words, order, strict=False):
        expected = joint[place], np.exp(pair[0][place]), np.exp(pair[1][place])
        np.testing.assert_allclose(entry[1:], expected, atol=1e-5)
    score = scorer.score([words])[0]
    assert found.original.joint == pytest.approx(math.exp(-score.joint[position]), rel=1e-5)
    if words[position] in VOCABULARY:
        assert found.rank == 1 + order.index(VOCABULARY.index(words[position]))
    else:
        assert found.rank is None
        assert found.original.word == "<UNK>"


def test_more_substitutes_than_words_are_all_words(small):
    found = small[1].substitutes(["the"], 0, k=1000)
    assert sorted(entry.word for entry in found.words) == sorted(VOCABULARY[3:])


def test_a_stream_that_never_ends_is_scored_as_it_comes(small):
    def endless():
        while True:
            yield ["the", "cat"]

    stream = small[1].stream(endless())
    expected = small[1].score([["the", "cat"]])[0].to_dict()
    assert next(stream).to_dict() == next(stream).to_dict() == expected


# --- what cannot be answered ----------------------------------------------------------------------


def test_a_model_without_an_output_layer_says_how_to_get_one(small):
    checkpoint = dataclasses.replace(open_model(small[2]), softmax={})
    with pytest.raises(WeightsError, match=r"elmo train.*elmo finetune"):
        LanguageModelScorer(checkpoint)


def test_an_output_layer_without_its_words_is_refused(small):
    checkpoint = open_model(small[2])
    with pytest.raises(MissingFileError, match=r"vocab\.txt"):
        LanguageModelScorer(dataclasses.replace(checkpoint, vocabulary=None))
    fewer = Vocabulary(VOCABULARY[:-1])
    with pytest.raises(WeightsError, match="for 9 words and 16 values"):
        LanguageModelScorer(dataclasses.replace(checkpoint, vocabulary=fewer))
    other = Vocabulary(f"w{n}" for n in range(9))
    with pytest.raises(InputError, match="lacks <S>, </S>, <UNK>"):
        LanguageModelScorer(dataclasses.replace(checkpoint, vocabulary=other))


def test_impossible_questions_are_refused(small):
    scorer = small[1]
    with pytest.raises(InputError, match="no words"):
        scorer.perplexity([[], []])
    with pytest.raises(InputError, match="position 2 is outside the sentence of 2 words"):
        scorer.substitutes(["the", "cat"], 2)
    with pytest.raises(InputError, match="outside the sentence of 0 words"):
        scorer.substitutes([], 0)
    with pytest.raises(ConfigError, match="k is 0"):
        scorer.substitutes(["the"], 0, k=0)
    with pytest.raises(ConfigError, match="unit is 'bytes'"):
        scorer.score([["the"]], unit="bytes")
    with pytest.raises(ConfigError, match="state is 'cold'"):
        scorer.score([["the"]], state="cold")
    with pytest.raises(InputError, match="expected a list of words"):
        scorer.score(["the cat"])
    with pytest.raises(ConfigError, match="device 'nowhere'"):
        LanguageModelScorer(open_model(small[2]), device="nowhere")


def test_sentences_of_words_that_were_not_split_are_reported_in_python():
    scorer = LanguageModelScorer.from_pretrained("small-en", device="cpu")
    with pytest.warns(ElmoWarning, match=r"looks raw .* get_tokenizer\('english'\)"):
        scorer.score([["Isn't", "this", "strange?", "He", "said", "so,", "didn't", "he?"]] * 3)


def test_a_damaged_card_does_not_keep_a_model_from_scoring(small, tmp_path):
    save_checkpoint(open_model(small[2]), tmp_path / "model", "elmo")
    (tmp_path / "model" / "card.json").write_text('{"rights": "?"}')
    found = LanguageModelScorer.from_pretrained(tmp_path / "model", device="cpu")
    assert found.score([["the"]])[0].end == small[1].score([["the"]])[0].end
