"""Streams: every word is read once an epoch, in both directions, from any place on."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ConfigError, InputError
from elmo.text.characters import CharacterMapper
from elmo.text.vocabulary import Vocabulary, WordMapper
from elmo.training.streams import Position, Streams
from list_shards import ListShard

VOCABULARY = Vocabulary(["<S>", "</S>", "<UNK>", "a", "b", "c", "d"])
WORDS = ["a", "b", "c", "d", "rare", "seldom", "long" * 20]
MAPPER = CharacterMapper()


sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6)
documents = st.lists(sentences, min_size=1, max_size=4)
corpora = st.lists(st.lists(documents, min_size=1, max_size=4), min_size=1, max_size=3)


def spelled(ids):
    """The word that a row of character ids spells."""
    letters = [int(i) - 1 for i in ids]
    if letters[1] >= 256:
        return {256: "<S>", 257: "</S>"}[letters[1]]
    return bytes(letters[1 : letters.index(259)]).decode()


def read_all(streams, batches):
    """(read, told) pairs of each row and direction, as words, over some batches."""
    rows = [[[] for _ in range(2)] for _ in range(batches[0].inputs.shape[2])]
    for batch in batches:
        words = [spelled(ids) for ids in batch.types]
        for direction, row in itertools.product(range(2), range(len(rows))):
            read = [words[k] for k in batch.inputs[direction, :, row]]
            told = [VOCABULARY.words[k] for k in batch.targets[direction, :, row]]
            rows[row][direction] += zip(read, told, strict=True)
    return rows


def expected_pairs(sentence):
    """What a sentence is read as, forwards and backwards."""
    cut = [word[:48] for word in sentence]
    known = [word if word in VOCABULARY else "<UNK>" for word in sentence]
    forward = list(zip(["<S>", *cut], [*known, "</S>"], strict=True))
    backward = list(zip(["</S>", *cut[::-1]], [*known[::-1], "<S>"], strict=True))
    return forward, backward


def make(corpus, **settings):
    shards = [ListShard(documents, VOCABULARY) for documents in corpus]
    return Streams(shards, VOCABULARY, MAPPER, **{"rows": 1, "unroll": 1, **settings})


def all_sentences(corpus):
    return [sentence for shard in corpus for document in shard for sentence in document]


@given(corpora, st.integers(1, 7))
def test_one_stream_reads_every_sentence_in_both_directions(corpus, unroll):
    streams = make(corpus, unroll=1, shuffle="none")
    streams.unroll = unroll
    ((forward, backward),) = read_all(streams, list(streams.one_pass()))
    wanted = [expected_pairs(sentence) for sentence in all_sentences(corpus)]
    assert forward == [pair for sides in wanted for pair in sides[0]]
    assert backward == [pair for sides in wanted for pair in sides[1]]


@given(corpora, st.sampled_from(["sentences", "documents"]), st.integers(0, 5))
def test_every_epoch_holds_every_sentence_once(corpus, shuffle, epoch):
    streams = make(corpus, shuffle=shuffle, seed=7)
    found = [
        batch
        for batch, _ in itertools.islice(
            streams.batches(Position(epoch, 0)), streams.windows_per_epoch
        )
    ]
    ((forward, _),) = read_all(streams, found)
    got, sentence = [], []
    for read, told in forward:
        sentence.append((read, told))
        if told == "</S>":
            got.append(sentence)
            sentence = []
    assert sorted(got) == sorted(expected_pairs(s)[0] for s in all_sentences(corpus))


def numbered(corpus):
    """The corpus with the number of its document before each word: no two documents are alike."""
    numbers = itertools.count()
    return [
        [
            [[f"{number}{word}" for word in sentence] for sentence in document]
            for document, number in zip(shard, numbers, strict=False)
        ]
        for shard in corpus
    ]


@given(corpora, st.integers(0, 3))
def test_documents_stay_together_when_they_are_shuffled(corpus, epoch):
    corpus = numbered(corpus)
    streams = make(corpus, shuffle="documents")
    found = [
        batch
        for batch, _ in itertools.islice(
            streams.batches(Position(epoch, 0)), streams.windows_per_epoch
        )
    ]
    ((forward, _),) = read_all(streams, found)
    left = [
        [pair for sentence in document for pair in expected_pairs(sentence)[0]]
        for shard in corpus
        for document in shard
    ]
    while left:
        document = next(d for d in left if forward[: len(d)] == d)
        left.remove(document)
        forward = forward[len(document) :]
    assert not forward


def equal(one, other):
    return all(
        torch.equal(getattr(one, k), getattr(other, k))
        for k in ("types", "inputs", "targets", "resets")
    )


@given(corpora, st.integers(1, 3), st.integers(1, 4), st.integers(0, 20))
def test_streams_go_on_from_any_place(corpus, rows, unroll, skip):
    places = sum(len(sentence) + 1 for sentence in all_sentences(corpus))
    if places < rows * unroll:
        with pytest.raises(InputError, match="smaller batch_size"):
            make(corpus, rows=rows, unroll=unroll)
        return
    settings = {"rows": rows, "unroll": unroll, "reset_prob": 0.5, "seed": 3}
    whole = list(itertools.islice(make(corpus, **settings).batches(Position()), skip + 3))
    position = whole[skip - 1][1] if skip else Position()
    rest = itertools.islice(make(corpus, **settings).batches(position), 3)
    for (batch, place), (again, place_again) in zip(whole[skip:], rest, strict=True):
        assert place == place_again
        assert equal(batch, again)


@given(corpora, st.sampled_from([2, 4]))
def test_processes_share_the_rows_of_a_batch(corpus, world):
    settings = {"rows": world * 2, "unroll": 1, "reset_prob": 0.3}
    if sum(len(sentence) + 1 for sentence in all_sentences(corpus)) < world * 2:
        return
    joined, _ = next(make(corpus, **settings).batches(Position()))
    words = [spelled(ids) for ids in joined.types]
    together = [words[k] for k in joined.inputs[0, 0]]
    apart, targets = [], []
    for rank in range(world):
        part, _ = next(make(corpus, **settings, rank=rank, world=world).batches(Position()))
        own = [spelled(ids) for ids in part.types]
        apart += [own[k] for k in part.inputs[0, 0]]
        targets.append(part.targets)
    assert apart == together
    assert torch.equal(torch.cat(targets, dim=2), joined.targets)


def test_rows_that_do_not_divide_are_refused():
    with pytest.raises(ConfigError, match="cannot be shared by 2"):
        make([[[["a", "b", "c"]]]], rows=3, world=2)


def test_a_word_model_reads_unknown_words_as_unknown():
    shards = [ListShard([[["a", "rare", "b"]]], VOCABULARY)]
    streams = Streams(shards, VOCABULARY, WordMapper(VOCABULARY), rows=1, unroll=4, shuffle="none")
    batch = next(streams.one_pass())
    words = [VOCABULARY.words[k - 1] for k in batch.types]
    assert [words[k] for k in batch.inputs[0, :, 0]] == ["<S>", "a", "<UNK>", "b"]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_resets_are_at_sentence_starts_with_their_probability(share):
    corpus = [[[["a", "b"]] * 2000]]
    streams = make(corpus, rows=1, unroll=6000, reset_prob=share)
    batch = next(streams.one_pass())
    starts = torch.arange(6000) % 3 == 0
    assert not batch.resets[~starts].any()
    assert batch.resets[0, 0]
    assert abs(batch.resets[starts].float().mean() - share) < 0.05
