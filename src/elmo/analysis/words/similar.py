"""Lists of similar words, and the index that they are searched in.

Only making an index needs PyTorch; a saved one is searched by NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmo.analysis.reports import Listing, Table, as_json
from elmo.analysis.settings import CorpusSettings, SimilarSettings
from elmo.analysis.words.word_index import Similar, WordIndex
from elmo.errors import ConfigError, ElmoError, MissingFileError
from elmo.settings import ModelChoice
from elmo.text.files import TextFile, refuse_to_replace

if TYPE_CHECKING:
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


def find_similar(
    words: Sequence[str],
    choice: ModelChoice,
    load: Callable[[], ELMo],
    corpus: CorpusSettings,
    settings: SimilarSettings,
    show_progress: bool = False,
) -> SimilarReport:
    """Find the words most similar to some words.

    Args:
        words: Each gets a list of its own.
        choice: The model, as an index names it.
        load: Loads the model; not called where an index is read.
        corpus: Which text, if any.
        settings: How.
        show_progress: Whether to show progress bars.
    """
    from elmo.analysis.words.faiss_search import faiss_search, require_faiss

    stop_words = read_stop_words(settings.stop_words)
    if settings.search == "faiss":
        require_faiss()
    index = _open_index(words, choice, load, corpus, settings, show_progress)
    search = None
    if settings.search == "faiss":
        search = faiss_search(index, settings.remove_mean, settings.index, settings.overwrite)
    allowed = index.allowed(stop_words, settings.min_count, settings.max_count)
    forms = [word.lower() if index.facts.get("ignore_case") else word for word in words]
    lists = [
        SimilarWords(
            word,
            index.similar(
                word,
                settings.top,
                remove_mean=settings.remove_mean,
                allowed=allowed,
                search=search,
            ),
        )
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


def _open_index(
    words: Sequence[str],
    choice: ModelChoice,
    load: Callable[[], ELMo],
    corpus: CorpusSettings,
    settings: SimilarSettings,
    show_progress: bool,
) -> WordIndex:
    """Read the index if it exists, else make it and save it; see `find_similar`."""
    facts = _facts_of(choice, corpus, settings)
    path = settings.index
    if path is None:
        return _make_index(words, load, corpus, settings, facts, show_progress)
    for source in corpus.corpus:
        refuse_to_replace(source, path)
    if path.exists() and not settings.overwrite:
        index = WordIndex.load(path)
        require_same(path, index.facts, facts)
        return index
    index = _make_index(words, load, corpus, settings, facts, show_progress)
    index.save(path)
    return index


def _facts_of(
    choice: ModelChoice, corpus: CorpusSettings, settings: SimilarSettings
) -> dict[str, Any]:
    """Return what an index is made of, as far as the user said."""
    files = corpus.corpus
    for path in files:
        if not path.is_file():
            raise MissingFileError(
                f"no such text file: {path} (a pipe will not do: it is read twice)"
            )
    if files and settings.vocabulary is not None:
        raise ConfigError("--corpus and --vocabulary are given: choose one")
    name = choice.model or choice.weights
    facts: dict[str, Any] = {"model": None if name is None else str(name)}
    if settings.vocabulary is not None:
        facts["words"] = str(settings.vocabulary)
    if files:
        facts |= {
            "corpus": ", ".join(map(str, files)),
            "corpus_bytes": sum(path.stat().st_size for path in files),
            "tokenizer": corpus.tokenizer,
            "max_sentences": corpus.max_sentences,
            "ignore_case": corpus.ignore_case,
            "layer": str(settings.layer),
        }
    return facts


def require_same(path: Path, made: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse an index that was made of something else than the user gives."""
    for name, value in given.items():
        if name == "model" and value is None:
            continue
        if made.get(name) != value:
            raise ConfigError(
                f"{path} was made with {name} {made.get(name)!r}, not {value!r}; leave the flags "
                "out to use it, or give --overwrite to make it anew"
            )


def _make_index(
    words: Sequence[str],
    load: Callable[[], ELMo],
    corpus: CorpusSettings,
    settings: SimilarSettings,
    facts: Mapping[str, Any],
    show_progress: bool,
) -> WordIndex:
    """Compute vectors of words: means over a corpus, or context-free ones; see `find_similar`.

    Characters give any word a context-free vector, also a misspelled one that is asked for; an
    index that is saved has only the words of its list.
    """
    from elmo.analysis.corpus import Corpus
    from elmo.analysis.words.word_means import index_of_corpus, index_of_words
    from elmo.text.vocabulary import Vocabulary

    least, most = settings.min_count, settings.max_words
    if corpus.corpus:
        text = Corpus(corpus, show_progress)
        model = load()
        index = index_of_corpus(model, text, settings.layer, least, most, show_progress)
    else:
        if settings.layer not in ("top", 0):
            raise ConfigError(
                f"--layer is {settings.layer}, but without --corpus there is no context: only "
                "layer 0 can be compared"
            )
        path = settings.vocabulary
        listed = None if path is None else Vocabulary.read(path).words
        model = load()
        chosen = list((_own_words(model) if listed is None else listed)[:most])
        if settings.index is None and model.config.reads_characters:
            chosen += words
        source = "the model's vocabulary" if path is None else str(path)
        index = index_of_words(model, chosen, source, show_progress)
    index.facts |= {**facts, "model_sha256": model.fingerprint}
    return index


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
