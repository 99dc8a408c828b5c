"""Text files read for a model: looked at first, then split by a tokenizer."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

from tqdm.auto import tqdm

from elmo.config import ElmoConfig
from elmo.errors import ElmoError, ElmoWarning
from elmo.hub.names import find_card
from elmo.settings import ModelChoice
from elmo.text.files import TextFile, Tokenizer, read_sentences
from elmo.text.mismatch import MOST_LINES, Expected, describe_mismatch
from elmo.text.sentences import Words, marked_words
from elmo.text.vocabulary import Vocabulary


def expected_text(
    choice: ModelChoice | None, config: ElmoConfig, vocabulary: Vocabulary | None = None
) -> Expected:
    """Return what is known of the text that a model was trained on.

    Args:
        choice: How the model was named; None for one in memory.
        config: Of the model.
        vocabulary: Of its output layer.
    """
    card = None
    if choice is not None and choice.weights is None:
        with suppress(ElmoError):  # without a readable card, there is less to compare with
            card = find_card(choice.model)
    return Expected(
        language=card.language if card else None,
        tokenizer=config.tokenizer,
        unknown_rate=card.unknown_rate if card else None,
        vocabulary=vocabulary,
    )


def read_text(
    path: Path | str,
    tokenizer: Tokenizer,
    encoding: str = "utf-8",
    expected: Expected | None = None,
    show_progress: bool = False,
) -> Iterator[Words]:
    """Yield the sentences of a file as lists of words; a blank line is an empty sentence.

    A text that looks like another one than the model expects is reported by a warning.

    Args:
        path: A file, compressed or not; `-` for standard input.
        tokenizer: Splits its lines.
        encoding: Of the file.
        expected: What the model was trained on; None to look at nothing.
        show_progress: Whether to show a progress bar.
    """
    with (
        TextFile(path, encoding) as file,
        tqdm(
            total=file.total_bytes,
            disable=not show_progress,
            unit="B",
            unit_scale=True,
            desc=Path(path).name,
        ) as bar,
    ):
        lines = iter(file)
        first: list[str] = []
        if expected is not None:
            first = list(islice(lines, MOST_LINES))
            look_at(first, tokenizer, expected)
        for sentence in read_sentences(chain(first, lines), tokenizer):
            yield sentence
            bar.update(file.bytes_read - bar.n)


def look_at(
    text: Iterable[str | Words],
    tokenizer: Tokenizer,
    expected: Expected,
    option: str = "--tokenizer {}",
    raw: str = "model",
) -> None:
    """Warn if the beginning of a text is not what a model expects; see `describe_mismatch`."""
    note = describe_mismatch(
        text, tokenizer.name, expected, split=tokenizer.sentences, option=option, raw=raw
    )
    if note is not None:
        warnings.warn(note, ElmoWarning, stacklevel=3)


def split_marked(
    sentence: str, tokenizer: Tokenizer, expected: Expected
) -> tuple[Words, list[int]]:
    """Split a sentence of a user; return its words and the positions of those in brackets."""
    look_at([sentence.replace("[", "").replace("]", "")], tokenizer, expected)
    return marked_words(sentence, tokenizer)
