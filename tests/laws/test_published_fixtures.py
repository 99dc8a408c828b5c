"""The published outputs of a published model: three streams of ten sentences, 458 word vectors."""

import json

import h5py
import numpy as np
import pytest
import torch

from elmo import BiLM, ELMo, Elmo, TokenFile, batch_to_ids
from elmo.backends.cpu.model import CPUBackend
from elmo.hub.names import open_model
from elmo.text.vocabulary import Vocabulary

STREAMS, STEPS = 3, 10


@pytest.fixture(scope="module")
def checkpoint(published):
    return open_model(options=published / "options.json", weights=published / "lm_weights.hdf5")


@pytest.fixture(scope="module")
def sentences(published):
    """Words by stream and step."""
    streams = json.loads((published / "sentences.json").read_text())
    return [[sentence.split() for sentence in stream] for stream in streams]


@pytest.fixture(scope="module")
def expected(published):
    """Forward and backward top layer by stream and step, each `(2, n, 16)`."""
    streams = []
    for stream in range(STREAMS):
        with h5py.File(published / f"lm_embeddings_{stream}.hdf5") as file:
            streams.append([file[str(step)][...] for step in range(STEPS)])
    return streams


def assert_published(top, both_directions):
    """Compare a top layer `(n, 32)` with the published directions `(2, n, 16)`."""
    np.testing.assert_allclose(top[:, :16], both_directions[0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(top[:, 16:], both_directions[1], rtol=0, atol=1e-5)


def test_ten_calls_with_carried_state_give_the_published_vectors(checkpoint, sentences, expected):
    elmo = ELMo(checkpoint)
    for step in range(STEPS):
        batch = [sentences[stream][step] for stream in range(STREAMS)]
        for stream, vectors in enumerate(elmo.encode_tokens(batch, state="carry")):
            assert_published(vectors[2], expected[stream][step])


def test_one_call_with_interleaved_streams_gives_the_published_vectors(
    checkpoint, sentences, expected
):
    interleaved = [sentences[stream][step] for step in range(STEPS) for stream in range(STREAMS)]
    elmo = ELMo(checkpoint)
    found = elmo.encode_tokens(interleaved, layers="top", state="carry", batch_size=STREAMS)
    for number, vectors in enumerate(found):
        assert_published(vectors, expected[number % STREAMS][number // STREAMS])


def test_a_carried_stream_gives_the_published_vectors(checkpoint, sentences, expected):
    interleaved = (sentences[stream][step] for step in range(STEPS) for stream in range(STREAMS))
    elmo = ELMo(checkpoint)
    # Windows of a few words: they must still not cut a batch of three streams.
    found = elmo.stream_tokens(
        interleaved, layers="top", state="carry", batch_size=STREAMS, batch_tokens=5
    )
    for number, vectors in enumerate(found):
        assert_published(vectors, expected[number % STREAMS][number // STREAMS])


@pytest.mark.parametrize("requires_grad", [False, True])
def test_the_task_module_with_carried_state_gives_the_published_vectors(
    checkpoint, sentences, expected, requires_grad
):
    bilm = BiLM.from_checkpoint(checkpoint)
    module = Elmo(bilm, mix="top", dropout=0.0, state="carry", requires_grad=requires_grad)
    for step in range(STEPS):
        batch = [sentences[stream][step] for stream in range(STREAMS)]
        (top,) = module(batch_to_ids(batch))["elmo_representations"]
        for stream, sentence in enumerate(batch):
            assert_published(top[stream, : len(sentence)].detach(), expected[stream][step])


@pytest.mark.parametrize("packed", [False, True])
@torch.no_grad()
def test_explicit_state_gives_the_published_vectors(checkpoint, sentences, expected, packed):
    bilm = BiLM.from_checkpoint(checkpoint)
    model = CPUBackend(bilm) if packed else bilm
    state = None
    for step in range(STEPS):
        batch = [sentences[stream][step] for stream in range(STREAMS)]
        output = model.run(batch_to_ids(batch), state)
        state = output.state
        for stream, sentence in enumerate(batch):
            assert_published(output.layers[2, stream, : len(sentence)], expected[stream][step])


def test_zero_state_gives_the_published_vectors_of_first_sentences_only(
    checkpoint, sentences, expected
):
    elmo = ELMo(checkpoint)
    for stream in range(STREAMS):
        found = elmo.encode_tokens(sentences[stream], layers="top")
        assert_published(found[0], expected[stream][0])
        for step in range(1, STEPS):
            forward = expected[stream][step][0]
            assert np.abs(found[step][:, :16] - forward).max() > 1e-3


def test_word_vectors_are_the_published_ones(published, checkpoint):
    vocabulary = Vocabulary.read(published / "vocab_test.txt")
    with h5py.File(published / "elmo_token_embeddings.hdf5") as file:
        published_vectors = file["embedding"][...]
    assert published_vectors.shape == (458, 16)
    found = ELMo(checkpoint).word_vectors(vocabulary.words)
    np.testing.assert_allclose(found, published_vectors, rtol=0, atol=1e-5)


def test_the_published_token_file_serves_as_one(published, checkpoint, sentences):
    vocabulary = Vocabulary.read(published / "vocab_test.txt")
    file = TokenFile(published / "elmo_token_embeddings.hdf5", vocabulary)
    with_file = ELMo(checkpoint, token_file=file)
    assert any(word in vocabulary for word in sentences[0][0])
    for vectors, computed in zip(
        with_file.encode_tokens(sentences[0]),
        ELMo(checkpoint).encode_tokens(sentences[0]),
        strict=True,
    ):
        np.testing.assert_allclose(vectors, computed, rtol=0, atol=1e-5)
    row = with_file.word_vectors(["good"])[0]
    assert np.array_equal(row, file.vectors(np.array([vocabulary.place("good")]))[0])
