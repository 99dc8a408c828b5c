"""Lists of similar words, and the index that they are searched in.

Only making an index needs PyTorch; a saved one is searched by NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmo.analysis.inputs import choice_of, divided, load
from elmo.analysis.reports import Listing, Table, as_json
from elmo.analysis.settings import CorpusSettings, SimilarSettings
from elmo.analysis.words.word_index import Similar, WordIndex
from elmo.errors import ConfigError, ElmoError, InputError, MissingFileError
from elmo.text.files import TextFile, refuse_to_replace

if TYPE_CHECKING:
    from elmo.analysis.inputs import Model, Text
    from elmo.embedder import ELMo


@dataclass(frozen=True)
class SimilarWords:
    """The words most similar to one word, best first."""

    word: str
    similar: list[Similar]


@dataclass(frozen=True)
class SimilarReport(Listing):
    """A list for each word that was asked for."""

    lists: list[SimilarWords]
    n_words: int
    """Words of the index."""
    dim: int

    def parts(self) -> Iterator[str | Table]:
        """Yield a table for each word."""
        for found in self.lists:
            if not found.similar:
                flags = "--min-count, --max-count, --stop-words"
                yield f"{found.word}: no other word may be listed; loosen {flags}"
                continue
            counted = any(entry.count for entry in found.similar)
            rows = [
                (entry.word, f"{entry.cosine:.3f}", *([f"{entry.count:,}"] if counted else []))
                for entry in found.similar
            ]
            yield Table((f"similar to {found.word}", "cosine", *["count"][:counted]), rows)

    def json(self) -> str:
        """Return the lists."""
        return as_json(self.lists)

    def csv_rows(self) -> Iterator[Sequence[object]]:
        """Yield a row for each similar word."""
        yield ("query", "rank", "word", "cosine", "count")
        for found in self.lists:
            for rank, near in enumerate(found.similar, start=1):
                yield (found.word, rank, near.word, f"{near.cosine:.6f}", near.count)


def similar(
    *words: str,
    model: Model = None,
    corpus: Text = (),
    settings: SimilarSettings | None = None,
    show_progress: bool = False,
    **fields: Any,
) -> SimilarReport:
    """List the words most similar to some words, as `elmo similar` does.

    Args:
        words: Each gets a list of its own.
        model: A model, or its name or folder; not loaded where a saved index answers.
        corpus: Text files in which the words occur; without them, context-free vectors are used.
        settings: How.
        show_progress: Whether to show progress bars.
        fields: Fields of `SimilarSettings` and `CorpusSettings`, instead of these.
    """
    from elmo.analysis.words.faiss_search import faiss_search, require_faiss

    settings, text = divided(SimilarSettings, settings, corpus, fields)
    if not words and settings.index is None:
        raise InputError("similar needs a WORD, or --index FILE to make an index")
    stop_words = read_stop_words(settings.stop_words)
    if settings.search == "faiss":
        require_faiss()
    index = _Index(words, model, text, settings, show_progress).open()
    search = None
    if settings.search == "faiss":
        search = faiss_search(index, settings.remove_mean, settings.index, settings.overwrite)
    allowed = index.allowed(stop_words, settings.min_count, settings.max_count)
    forms = [word.lower() if index.facts.get("ignore_case") else word for word in words]
    top, shifted = settings.top, settings.remove_mean
    lists = [
        SimilarWords(word, index.similar(word, top, shifted, allowed=allowed, search=search))
        for word in dict.fromkeys(forms)
    ]
    return SimilarReport(lists, *index.vectors.shape)


def read_stop_words(name: str | None) -> frozenset[str]:
    """Return stop words, in lower case.

    Args:
        name: `english`, or a file with one word a line; None for none.
    """
    if name is None:
        return frozenset()
    if name == "english":
        text = files("elmo.analysis.words").joinpath("stop_words.txt").read_text(encoding="utf-8")
        return frozenset(text.split())
    if not Path(name).is_file():
        raise MissingFileError(
            f"--stop-words is {name!r}, expected 'english' or a file with one word a line"
        )
    with TextFile(name) as lines:
        return frozenset(line.strip().lower() for line in lines) - {""}


# --- the index ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Index:
    """An index that is read from its file, or made; see `similar` for the fields."""

    words: Sequence[str]
    model: Model
    corpus: CorpusSettings
    settings: SimilarSettings
    show_progress: bool

    def open(self) -> WordIndex:
        """Read the index if it exists, else make it and save it."""
        facts, path = self._facts(), self.settings.index
        for source in self.corpus.corpus:
            if path is not None:
                refuse_to_replace(source, path)
        if path is not None and path.exists() and not self.settings.overwrite:
            index = WordIndex.load(path)
            require_same(path, index.facts, facts)
            return index
        index = self._of_corpus() if self.corpus.corpus else self._of_words()
        index.facts |= {name: value for name, value in facts.items() if value is not None}
        if path is not None:
            index.save(path)
        return index

    def _facts(self) -> dict[str, Any]:
        """Return what the index is made of, as far as the user said."""
        paths, vocabulary = self.corpus.corpus, self.settings.vocabulary
        tokenizer = self.corpus.tokenizer
        for path in paths:
            if not path.is_file():
                raise MissingFileError(
                    f"no such text file: {path} (a pipe will not do: it is read twice)"
                )
        if paths and vocabulary is not None:
            raise ConfigError("--corpus and --vocabulary are given: choose one")
        choice = choice_of(self.model)
        name = choice.model or choice.weights
        facts: dict[str, Any] = {"model": None if name is None else str(name)}
        if vocabulary is not None:
            facts["words"] = str(vocabulary)
        if paths:
            facts |= {
                "corpus": ", ".join(map(str, paths)),
                "corpus_bytes": sum(path.stat().st_size for path in paths),
                "tokenizer": None if tokenizer == "model" else tokenizer,
                "max_sentences": self.corpus.max_sentences,
                "ignore_case": self.corpus.ignore_case,
                "layer": str(self.settings.layer),
            }
        return facts

    def _of_corpus(self) -> WordIndex:
        """Average the vectors of frequent words over a corpus."""
        from elmo.analysis.corpus import Corpus, require_corpus
        from elmo.analysis.words.word_means import index_of_corpus

        require_corpus(self.corpus)
        model, _ = load(self.model)
        text = Corpus(self.corpus, model, self.show_progress)
        least, most = self.settings.min_count, self.settings.max_words
        index = index_of_corpus(model, text, self.settings.layer, least, most, self.show_progress)
        index.facts |= {"model_sha256": model.fingerprint, "tokenizer": text.tokenizer.name}
        return index

    def _of_words(self) -> WordIndex:
        """Compute the context-free vectors of a list of words.

        Characters give any word a vector, also a misspelled one that is asked for; an index that is
        saved has only the words of its list.
        """
        from elmo.analysis.words.word_means import index_of_words
        from elmo.text.vocabulary import Vocabulary

        layer, path = self.settings.layer, self.settings.vocabulary
        if layer not in ("top", 0):
            raise ConfigError(
                f"--layer is {layer}, but without --corpus there is no context: only layer 0 can "
                "be compared"
            )
        listed = None if path is None else Vocabulary.read(path).words
        model, _ = load(self.model)
        chosen = list(_own_words(model) if listed is None else listed)[: self.settings.max_words]
        if self.settings.index is None and model.config.reads_characters:
            chosen += self.words
        source = "the model's vocabulary" if path is None else str(path)
        index = index_of_words(model, chosen, source, self.show_progress)
        index.facts["model_sha256"] = model.fingerprint
        return index


def require_same(path: Path, made: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse an index that was made of something else than the user gives."""
    for name, value in given.items():
        if name in ("model", "tokenizer") and value is None:  # the user did not say
            continue
        if made.get(name) != value:
            raise ConfigError(
                f"{path} was made with {name} {made.get(name)!r}, not {value!r}; leave the flags "
                "out to use it, or give --overwrite to make it anew"
            )


def _own_words(model: ELMo) -> list[str]:
    """Return the vocabulary of a model that reads words, or has an output layer."""
    from elmo.text.vocabulary import SPECIALS

    vocabulary = model.to_checkpoint().vocabulary
    if vocabulary is None:
        raise ElmoError(
            "the model has no vocabulary: give --corpus FILE, whose words are compared, or "
            "--vocabulary FILE with one word a line"
        )
    return [word for word in vocabulary if word not in SPECIALS]
