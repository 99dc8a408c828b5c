"""Text files and sentences read for a model: looked at first, then split by a tokenizer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from tqdm.auto import tqdm

from elmo.errors import ElmoWarning
from elmo.text.files import TextFile, Tokenizer, read_sentences
from elmo.text.mismatch import Expected, describe_mismatch
from elmo.text.sentences import LINES_LOOKED_AT, Words, marked_words

Look = Callable[[list[str], str], None]
"""Looks at the beginning of a raw text, with the name of the tokenizer that is to split it."""


def read_text(
    path: Path | str,
    tokenizer: Tokenizer,
    encoding: str = "utf-8",
    look: Look | None = None,
    show_progress: bool = False,
) -> Iterator[Words]:
    """Yield the sentences of a file as lists of words; a blank line is an empty sentence.

    Args:
        path: A file, compressed or not; `-` for standard input.
        tokenizer: Splits its lines.
        encoding: Of the file.
        look: Called with the first lines before any sentence is returned.
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
        if look is not None:
            first = list(islice(lines, LINES_LOOKED_AT))
            look(first, tokenizer.name)
        for sentence in read_sentences(chain(first, lines), tokenizer):
            yield sentence
            bar.update(file.bytes_read - bar.n)


def split_marked(sentence: str, tokenizer: Tokenizer, look: Look) -> tuple[Words, list[int]]:
    """Split a sentence of a user; return its words and the positions of those in brackets."""
    look([sentence.replace("[", "").replace("]", "")], tokenizer.name)
    return marked_words(sentence, tokenizer)


def look_at(
    text: Sequence[str | Words],
    tokenizer: Tokenizer,
    expected: Expected,
    option: str = "--tokenizer {}",
    raw: str = "model",
) -> bool:
    """Warn if a text is not what a model expects, see `describe_mismatch`; return whether so."""
    note = describe_mismatch(
        text, tokenizer.name, expected, split=tokenizer.sentences, option=option, raw=raw
    )
    if note is not None:
        warnings.warn(note, ElmoWarning, stacklevel=4)
    return note is not None
