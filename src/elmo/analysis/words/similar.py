"""What `elmo similar` does: an index of words by what the user gave, and lists as text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmo.analysis.settings import CorpusSettings, SimilarSettings, TableFormat
from elmo.analysis.words.word_index import Similar, WordIndex
from elmo.errors import ConfigError, ElmoError, MissingFileError
from elmo.runtime.tables import text_table
from elmo.settings import ModelChoice

if TYPE_CHECKING:
    from elmo.embedder import ELMo

Facts = dict[str, Any]


def facts_of(choice: ModelChoice, corpus: CorpusSettings, settings: SimilarSettings) -> Facts:
    """Say what an index is made of, as far as the user told; None for the rest."""
    files = corpus.corpus
    for path in files:
        if not path.is_file():
            raise MissingFileError(
                f"no such text file: {path} (a pipe will not do: it is read twice)"
            )
    if files and settings.words is not None:
        raise ConfigError("--corpus and --words are given: choose one")
    told: Facts = {"model": str(choice.model or choice.weights) if _named(choice) else None}
    if settings.words is not None:
        told["words"] = str(settings.words)
    if files:
        told |= {
            "corpus": ", ".join(map(str, files)),
            "corpus_bytes": sum(path.stat().st_size for path in files),
            "tokenizer": corpus.tokenizer,
            "sentences": corpus.sentences,
            "ignore_case": corpus.ignore_case,
            "layer": str(settings.layer),
        }
    return told


def _named(choice: ModelChoice) -> bool:
    return choice.model is not None or choice.weights is not None


def require_same(path: Path, made: Mapping[str, Any], told: Mapping[str, Any]) -> None:
    """Fail if an index was made of something else than the user tells."""
    for name, value in told.items():
        if name == "model" and value is None:
            continue
        if made.get(name) != value:
            raise ConfigError(
                f"{path} was made with {name} {made.get(name)!r}, not {value!r}; leave the flags "
                "out to use it, or give --overwrite to make it anew"
            )


def make_index(
    load: Callable[[], ELMo],
    corpus: CorpusSettings,
    settings: SimilarSettings,
    facts: Facts,
    show_progress: bool,
    asked: Sequence[str] = (),
) -> WordIndex:
    """Compute vectors of words: means over a corpus, or context-free ones of a list.

    Args:
        load: Loads the model, when everything else has been checked.
        corpus: Which text, if any.
        settings: Which words.
        facts: What the index will say of itself, besides what is known here.
        show_progress: Whether to show progress bars.
        asked: Words that the user wants to know about. Characters give any word a context-free
            vector, a misspelt one, too; an index that is kept has the words of its list only.
    """
    from elmo.analysis.passages import Corpus
    from elmo.analysis.words.word_means import index_of_corpus, index_of_words
    from elmo.text.vocabulary import Vocabulary

    if corpus.corpus:
        text = Corpus(corpus, show_progress)
        model = load()
        index = index_of_corpus(
            model, text, settings.layer, settings.min_count, settings.max_words, show_progress
        )
    else:
        if settings.layer not in ("top", 0):
            raise ConfigError(
                f"--layer is {settings.layer}, but without --corpus there is no context: only "
                "layer 0 can be compared"
            )
        listed = None if settings.words is None else Vocabulary.read(settings.words).words
        model = load()
        words = _own_words(model) if listed is None else listed
        source = "the model's vocabulary" if listed is None else str(settings.words)
        chosen = words[: settings.max_words]
        if settings.index is None and model.config.reads_characters:
            chosen = list(dict.fromkeys([*chosen, *asked]))
        index = index_of_words(model, chosen, source, show_progress)
    index.facts |= {**facts, "model_sha256": model.fingerprint}
    return index


def _own_words(model: ELMo) -> Sequence[str]:
    """Give the words of a model that reads words, or has an output layer."""
    from elmo.text.vocabulary import SPECIALS

    vocabulary = model.to_checkpoint().vocabulary
    if vocabulary is None:
        raise ElmoError(
            "the model has no list of words: give --corpus FILE, whose words are compared, or "
            "--words FILE with one word a line"
        )
    return [word for word in vocabulary if word not in SPECIALS]


def render_similar(found: Mapping[str, Sequence[Similar]], format: TableFormat) -> str:
    """Give lists of similar words as text.

    Args:
        found: For each word its list.
        format: As tables for people, JSON or CSV.
    """
    if format == "json":
        lists = [
            {"word": word, "similar": [vars(entry) for entry in entries]}
            for word, entries in found.items()
        ]
        return json.dumps(lists, ensure_ascii=False, indent=2, allow_nan=False)
    if format == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("query", "rank", "word", "cosine", "count"))
        for word, entries in found.items():
            for rank, entry in enumerate(entries, start=1):
                writer.writerow((word, rank, entry.word, f"{entry.cosine:.6f}", entry.count))
        return text.getvalue().rstrip("\n")
    return "\n\n".join(_table(word, entries) for word, entries in found.items())


def _table(word: str, entries: Sequence[Similar]) -> str:
    if not entries:
        return f"{word}: no other word may be listed; loosen --min-count, --max-count, --stop-words"
    counted = any(entry.count for entry in entries)
    header = (f"similar to {word}", "cosine", *(["count"] if counted else []))
    rows = [
        (entry.word, f"{entry.cosine:.3f}", *([f"{entry.count:,}"] if counted else []))
        for entry in entries
    ]
    return text_table(header, rows)
