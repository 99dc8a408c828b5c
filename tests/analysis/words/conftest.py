"""A small corpus, and an index of random vectors."""

import numpy as np
import pytest

from elmo.analysis.corpus import Corpus
from elmo.analysis.settings import CorpusSettings
from elmo.analysis.words.word_index import WordIndex
from elmo.text.made_up import make_sentences


@pytest.fixture(scope="module")
def sentences():
    return [words[:10] for words in make_sentences(80, seed=2)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, sentences):
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("\n".join(" ".join(words) for words in sentences))
    return Corpus(CorpusSettings(corpus=(path,)))


@pytest.fixture(scope="session")
def random_index():
    """A function that returns an index of random vectors."""
    return _random_index


def _random_index(n=40, dim=6, seed=0, shift=2.0):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((n, dim)).astype(np.float32) + np.float32(shift)
    counts = np.arange(n, 0, -1)
    return WordIndex([f"w{k}" for k in range(n)], counts, vectors, {"min_count": 1})
