"""Shards made of lists, for tests that need no files."""

from dataclasses import dataclass

import numpy as np

from elmo.text.vocabulary import Vocabulary


@dataclass
class ListShard:
    """A shard made of documents of sentences of words."""

    documents: list[list[list[str]]]
    vocabulary: Vocabulary

    def __post_init__(self):
        known = self.vocabulary
        sentences = [sentence for document in self.documents for sentence in document]
        words = [word for sentence in sentences for word in sentence]
        self.rare = sorted({word for word in words if word not in known})
        places = {word: len(known) + k for k, word in enumerate(self.rare)}
        ids = [known.place(word) if word in known else places[word] for word in words]
        self.tokens = np.array(ids, dtype=np.uint32)
        self.sentence_starts = np.cumsum([0, *map(len, sentences)])
        self.document_starts = np.cumsum([0, *map(len, self.documents)])
        self.n_rare = len(self.rare)

    def rare_words(self, numbers):
        return [self.rare[number] for number in numbers]

    def rare_bytes(self, numbers):
        spelled = [self.rare[number].encode() for number in numbers]
        lengths = np.array([len(letters) for letters in spelled], dtype=np.int64)
        return np.frombuffer(b"".join(spelled), dtype=np.uint8), lengths
