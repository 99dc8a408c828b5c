"""Text that is not what a model expects: raw where it should be split, another language, a table.

Called before embedding with the beginning of a text, in the form in which it was given:

    note = describe_mismatch(lines, "whitespace", Expected(language="en", tokenizer="english"))
    if note is not None:
        warnings.warn(note, ElmoWarning)

It looks at `LINES_LOOKED_AT` lines, and of these at `MOST_CHARACTERS` characters, so that it
costs far less than embedding them. What it says is a guess, so it is for a note, never an error.
Thresholds lie between honest and wrong texts of several kinds, see `tests/text/test_mismatch.py`.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from elmo.text.english import takes_full_stop
from elmo.text.sentences import LINES_LOOKED_AT

MOST_CHARACTERS = 20_000
"""Characters that are looked at, of lines evenly spread: some 3,500 words settle all questions."""

_LEAST_RECORDS = 3
"""Lines from which on a table is told from chance: two lines of text may well look alike."""
_LEAST_LINES = 10
"""Lines with one word each from which on they are no verses, greetings or titles."""
_LEAST_LETTERS = 20
"""Letters from which on a script, and words from which on a language is judged."""
_MOST = 0.9
"""Share of lines that must look alike: headers, blank fields and comments are exceptions."""
_FOREIGN_LETTERS = 0.6
"""Share of letters of another script; honest Chinese about music or software is a third Latin."""
_LETTERS_OF_SYLLABLE = 4
"""Letters that a Chinese, Japanese or Korean character counts for: it says about as much."""
_COMMON_SHARE = 0.08
"""Share of a language's ten most common words from which on a text is of that language.

They are 15 to 30 % of running text, 0 to 3 % of text of another language with these letters.
"""
_COMMON_RATIO = 3.0
"""So many times the share of the model's own language."""
_LEAST_SPLIT_MARKS = 3
"""Separate marks from which on text was split: raw text has one now and then, as in `Oh !`."""
_SPLIT_RATIO = 3.0
"""Separate marks for each attached one from which on raw text is taken for split.

In raw text there is hardly any, in split text there are fifty or more.
"""
_LONGEST_WORD = 4.0
"""Mean characters between spaces above which Chinese is raw: words have 1.7, clauses 10."""
_MEAN_OF_SPLIT = 2.5
"""The same below which it is split; verses and names have 3 and more."""
_LEAST_KNOWN = 200
"""Words from which on the share of unknown ones is judged."""
_MOST_WORDS = 1000
"""Words at which a language and the share of unknown ones are known well enough."""
_UNKNOWN_RATIO, _UNKNOWN_MARGIN = 3.0, 0.3
"""Unknown words beyond the card's: so many times as many, and so much more.

Other honest text has up to 20 percentage points more (tweets; old novels 5), other languages 60.
"""

_SCRIPTS = {
    "Latin": r"A-Za-z\u00c0-\u024f\u1e00-\u1eff",
    "Greek": r"\u0370-\u03ff\u1f00-\u1fff",
    "Cyrillic": r"\u0400-\u052f",
    "Hebrew": r"\u0590-\u05ff",
    "Arabic": r"\u0600-\u06ff\u0750-\u077f",
    "Devanagari": r"\u0900-\u097f",
    "Thai": r"\u0e00-\u0e7f",
    "Japanese": r"\u3040-\u30ff",
    "Korean": r"\u1100-\u11ff\uac00-\ud7a3",
    "Chinese": r"\u3400-\u4dbf\u4e00-\u9fff",
}
"""Ranges of letters. Japanese is known by its kana; most of its other letters are Chinese."""
_SYLLABLES = ("Japanese", "Korean", "Chinese")
_IN_SCRIPT = {name: re.compile(f"[{letters}]") for name, letters in _SCRIPTS.items()}
_SCRIPTS_OF = {
    "zh": ("Chinese",),
    "ja": ("Japanese", "Chinese"),
    "ko": ("Korean", "Chinese"),
    **dict.fromkeys(("el", "grc"), ("Greek",)),
    "he": ("Hebrew",),
    "hi": ("Devanagari",),
    "th": ("Thai",),
    **dict.fromkeys(("ar", "fa", "ur", "ug"), ("Arabic",)),
    **dict.fromkeys(("ru", "uk", "bg", "cu", "be", "mk"), ("Cyrillic",)),
    **dict.fromkeys(("sr", "kk"), ("Cyrillic", "Latin")),
}
_LATIN = frozenset(
    (
        "ca cs da de en es et eu fi fr ga gl hr hu id it la lv nb nl nn no pl pt ro sk sl sv tr vi"
    ).split()
)

_COMMON = {
    language: frozenset(words.split())
    for language, words in {
        "en": "the of and to is that was for with his it he are this you have not be",
        "de": "der und das ist nicht von mit dem den ein eine sich auf für auch werden",
        "fr": "le les des et est une dans du pour que qui pas sur au par il",
        "es": "el los las y que una por con del para es se como su más pero",
        "it": "il di che della per una è gli nel con del non sono anche le si",
        "pt": "o os não uma do da dos em para com que é por mais como ao",
        "nl": "het een van en niet zijn op te dat voor met aan er ook bij naar",
        "sv": "och att det som en är på för av inte med till har den ett om",
    }.items()
}
"""Common words of languages in Latin script, nearly all of them rare in the other ones."""
_LANGUAGES = {
    "en": "English", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian",
    "pt": "Portuguese", "nl": "Dutch", "sv": "Swedish", "zh": "Chinese",
}  # fmt: skip
_NAMES_OF_CODES = {name.casefold(): code for code, name in _LANGUAGES.items()}

_PUNCTUATION = ".,;:!?…\"'”’“‘)(][—-"
_CLITIC = r"(?:n['’]t|['’](?:s|re|ve|ll|d|m))"
_ATTACHED = re.compile(
    rf"""
    .* [^\W\d_] (?: [,;:!?]+ ["'”’)\]]* | ["”)\]]+ )        # well, | why?" | so)
  | ["“(\[]+ [^\W\d_]{{2}} .*                              # "So | (as
  | .* [^\W\d_] {_CLITIC}                                  # isn't
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What stands between two spaces in raw text, but not in split text."""
_SEPARATE = re.compile(
    rf"[.,;:!?)\]”\"] | `` | '' | -[LR][RCS]B- | {_CLITIC}", re.VERBOSE | re.IGNORECASE
)
"""What stands between two spaces in split text, but not in raw text."""
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_TAGGED = re.compile(r"\S+([ \t]\S*)*[ \t]([BIOESLU]-\S+|O)")
"""A line of a CoNLL file."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What is known of the text that a model was trained on; None and "" for what is not."""

    language: str | None = None
    """Code such as `en`, as in a model's card or in `hub.names`."""
    tokenizer: str | None = None
    unknown_rate: float | None = None
    """Share of words outside of the vocabulary in held-out text."""
    vocabulary: Container[str] | None = None
    """Words of the output layer, such as `Checkpoint.vocabulary`."""


def describe_mismatch(
    text: Iterable[str | Sequence[str]],
    tokenizer: str,
    expected: Expected | None = None,
    *,
    split: Callable[[str], list[list[str]]] | None = None,
    option: str = "--tokenizer {}",
    raw: str = "model",
) -> str | None:
    """Return one line on what a text looks like if a model expects another one, else None.

    Args:
        text: Lines of a file or raw texts, as given, or sentences as lists of words. Only the
            beginning is read; hand in a list or `itertools.islice` if it is read on elsewhere.
        tokenizer: Name of the tokenizer that splits the text; `whitespace` if it is split already
            and for lists of words.
        expected: What the model was trained on, as far as it is known.
        split: The tokenizer's `sentences`, to count unknown words of raw text; without it they are
            not counted there.
        option: How the user chooses a tokenizer: `--tokenizer {}` or `tokenizer={!r}`.
        raw: The name to choose for raw text: `model` on the command line. In Python, and where the
            model's tokenizer is not known, that of a tokenizer.
    """
    expected = expected or Expected()
    given = [
        line for line in map(_joined, islice(text, LINES_LOOKED_AT)) if line and not line.isspace()
    ]
    if not given:
        return None
    language = _code(expected.language)
    lines = _sample(given)
    chunks = [chunk for line in lines for chunk in line.split()]
    return (
        _describe_records(given)
        or _describe_script(chunks, language)
        or _describe_language(chunks, language)
        or _describe_splitting(lines, chunks, tokenizer, expected, option, raw)
        or _describe_single_words(lines, chunks)
        or _describe_unknown(lines, tokenizer, expected, split)
    )


def _joined(entry: str | Sequence[str]) -> str:
    return entry if isinstance(entry, str) else " ".join(entry)


def _sample(lines: Sequence[str]) -> Sequence[str]:
    """Return lines evenly spread over all of these, together about `MOST_CHARACTERS` long."""
    total = sum(map(len, lines))
    if total <= MOST_CHARACTERS:
        return lines
    chosen = lines[:: min(len(lines), -(-total // MOST_CHARACTERS))]
    return [line[: MOST_CHARACTERS // len(chosen) + 100] for line in chosen]


def _code(language: str | None) -> str | None:
    """Return the code of a language that was given as a code (`en`, `en-US`) or a name."""
    name = (language or "").casefold()
    return _NAMES_OF_CODES.get(name, re.split("[-_]", name)[0]) or None


# --- what is no text ------------------------------------------------------------------------------


def _describe_records(lines: Sequence[str]) -> str | None:
    """Look for JSON, tables and tagged words."""
    lines = lines[:100]
    if _is_json(lines):
        return (
            "the text looks like JSON, expected plain text: write the sentences out of it first, "
            "one a line"
        )
    if len(lines) < _LEAST_RECORDS:
        return None
    if sum(_TAGGED.fullmatch(line.rstrip()) is not None for line in lines) >= _MOST * len(lines):
        return (
            "the text looks like a CoNLL file with one tagged word a line, expected plain text: "
            "write one sentence a line, its words with spaces between them"
        )
    for name, delimiter in (("TSV", "\t"), ("CSV", ","), ("CSV", ";")):
        if _is_table(lines, delimiter):
            return (
                f"the text looks like {name}, expected plain text: write the column of the text "
                "out of it first, one sentence a line"
            )
    return None


def _is_json(lines: Sequence[str]) -> bool:
    """Return whether a file begins as one of JSON does, or each line is an object or array."""
    first = lines[0].strip()
    if re.match(r'(\[\s*)?\{\s*("(?:[^"\\]|\\.)*"\s*:|\}|$)', first) is None and first != "[":
        return _is_json_value(first)
    return len(lines) > 1 or _is_json_value(first)


def _is_json_value(line: str) -> bool:
    """Return whether a line is an object or array; `[1]` alone may be a note in a text."""
    try:
        value: Any = json.loads(line) if line[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return False
    return bool(value) and (isinstance(value, dict) or not isinstance(value[0], int | float))


def _is_table(lines: Sequence[str], delimiter: str) -> bool:
    """Return whether nearly all lines have the same number of fields, without space around them."""
    if sum(delimiter in line for line in lines) < _MOST * len(lines):
        return False
    try:
        rows = list(csv.reader((line.strip() for line in lines), delimiter=delimiter))
    except csv.Error:
        return False
    widths = [len(row) for row in rows]
    common = max(set(widths), key=widths.count)
    alike = [
        row
        for row in rows
        if len(row) == common and (delimiter == "\t" or not any(f[:1] == " " for f in row))
    ]
    return common > 1 and len(rows) >= _LEAST_RECORDS and len(alike) >= _MOST * len(rows)


def _describe_single_words(lines: Sequence[str], chunks: Sequence[str]) -> str | None:
    if len(lines) < _LEAST_LINES or len(chunks) > len(lines) / _MOST:
        return None
    if _is_chinese(chunks) and _sign_of_raw_chinese(chunks, longest=_MEAN_OF_SPLIT):
        return None  # sentences: there is no space in any of them
    return (
        "the text has one word a line, and each is read as a sentence of its own, without "
        "context: write one sentence a line, its words with spaces between them"
    )


# --- which language -------------------------------------------------------------------------------


def _describe_script(chunks: Sequence[str], language: str | None) -> str | None:
    """Look for letters that the model's language does not have."""
    expected = _SCRIPTS_OF.get(language or "", ("Latin",) if language in _LATIN else None)
    if expected is None:
        return None
    counts = _count_letters(" ".join(chunks[:_MOST_WORDS]))
    foreign = {name: count for name, count in counts.items() if name not in expected}
    total = sum(counts.values())
    if total < _LEAST_LETTERS or sum(foreign.values()) < _FOREIGN_LETTERS * total:
        return None
    script = max(foreign, key=lambda name: foreign[name])
    return (
        f"the text is in {script} script, but the model is for {_named(language)}: choose "
        "another with --model ('elmo models' lists them with their languages)"
    )


def _count_letters(text: str) -> dict[str, int]:
    """Count the letters of each script; characters that are syllables count several times."""
    if text.isascii():
        return {"Latin": sum(map(str.isalpha, text))}
    return {
        name: len(letters.findall(text)) * (_LETTERS_OF_SYLLABLE if name in _SYLLABLES else 1)
        for name, letters in _IN_SCRIPT.items()
    }


def _describe_language(chunks: Sequence[str], language: str | None) -> str | None:
    """Look for common words of another language."""
    if language not in _COMMON:
        return None
    words = [chunk.strip(_PUNCTUATION).lower() for chunk in chunks[:_MOST_WORDS]]
    if len(words) < _LEAST_LETTERS:
        return None
    shares = {
        code: sum(map(common.__contains__, words)) / len(words) for code, common in _COMMON.items()
    }
    found = max(shares, key=lambda code: shares[code])
    if shares[found] < max(_COMMON_SHARE, _COMMON_RATIO * shares[language]):
        return None
    return (
        f"the text looks like {_named(found)}, but the model is for {_named(language)}: choose "
        "another with --model ('elmo models' lists them with their languages)"
    )


def _named(language: str | None) -> str:
    return _LANGUAGES.get(language or "", f"the language {language!r}")


# --- raw or split ---------------------------------------------------------------------------------


def _describe_splitting(
    lines: Sequence[str],
    chunks: Sequence[str],
    tokenizer: str,
    expected: Expected,
    option: str,
    raw: str,
) -> str | None:
    """Look for raw text that is not going to be split, and for split text that is."""
    is_chinese = _is_chinese(chunks)
    if tokenizer == "whitespace":
        if expected.tokenizer == "whitespace":  # the model may have been trained on such words
            return None
        sign = _sign_of_raw_chinese(chunks) if is_chinese else _sign_of_raw(lines, chunks)
        if sign is None:
            return None
        if raw == "model" and not expected.tokenizer:
            raw = "chinese" if is_chinese else "english"
        return (
            f"the text looks raw ({sign}), but is split at white space alone: "
            f"use {option.format(raw)} for raw text"
        )
    sign = _sign_of_split_chinese(chunks) if is_chinese else _sign_of_split(lines, chunks)
    if sign is None:
        return None
    return (
        f"the text looks split into words already ({sign}), but the tokenizer {tokenizer!r} "
        f"splits it again: use {option.format('whitespace')}"
    )


def _is_chinese(chunks: Sequence[str]) -> bool:
    return len(_chinese(chunks)) > 0.3 * len(chunks)


def _chinese(chunks: Sequence[str]) -> list[str]:
    return [chunk for chunk in chunks if not chunk.isascii() and _HAN.match(chunk)]


def _sign_of_raw_chinese(chunks: Sequence[str], longest: float = _LONGEST_WORD) -> str | None:
    """Return an example of Chinese without spaces, if what stands between spaces is too long."""
    chinese = _chinese(chunks)
    if sum(map(len, chinese)) <= longest * len(chinese):
        return None
    return f"Chinese characters without spaces, as {max(chinese[:20], key=len)[:8]!r}"


def _sign_of_split_chinese(chunks: Sequence[str]) -> str | None:
    """Return an example of Chinese with spaces, if nearly all that stands between is as a word."""
    chinese = _chinese(chunks)
    if len(chinese) < _LEAST_LINES or sum(map(len, chinese)) > _MEAN_OF_SPLIT * len(chinese):
        return None
    return f"Chinese with spaces between words, as {' '.join(chinese[:3])!r}"


def _sign_of_raw(lines: Sequence[str], chunks: Sequence[str]) -> str | None:
    """Return an example of punctuation that sticks to words, if most of it does."""
    attached, separate = _marks(lines, chunks)
    if len(attached) <= len(separate):
        return None
    return f"punctuation sticks to words, as in {attached[0][:30]!r}"


def _sign_of_split(lines: Sequence[str], chunks: Sequence[str]) -> str | None:
    """Return an example of punctuation that stands alone, if most of it does."""
    attached, separate = _marks(lines, chunks)
    if len(separate) < max(_LEAST_SPLIT_MARKS, _SPLIT_RATIO * len(attached)):
        return None
    return f"punctuation stands alone, as {separate[0]!r}"


def _marks(lines: Sequence[str], chunks: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what has punctuation attached to a word, and what is punctuation that stands alone."""
    no_words = [chunk for chunk in chunks if not chunk.isalpha()]
    attached = [chunk for chunk in no_words if _ATTACHED.fullmatch(chunk)]
    attached += [chunk for line in lines for chunk in line.split()[-1:] if _has_full_stop(chunk)]
    return attached, [chunk for chunk in no_words if _SEPARATE.fullmatch(chunk)]


def _has_full_stop(last: str) -> bool:
    """Return whether the last word of a line ends in a full stop that is no part of it."""
    bare = last.rstrip("\"'”’)]")
    stem = bare[:-1]
    return (
        bare.endswith(".")
        and stem[-1:].isalpha()
        and "." not in stem
        and not (takes_full_stop(stem))
    )


# --- unknown words --------------------------------------------------------------------------------


def _describe_unknown(
    lines: Sequence[str],
    tokenizer: str,
    expected: Expected,
    split: Callable[[str], list[list[str]]] | None,
) -> str | None:
    """Compare the share of unknown words with the one that the model's card states."""
    if expected.vocabulary is None or expected.unknown_rate is None:
        return None
    words: list[str] = []
    for line in lines:
        if tokenizer == "whitespace":
            words += line.split()
        elif split is not None:
            words += (word for sentence in split(line) for word in sentence)
        if len(words) >= _MOST_WORDS:
            break
    if len(words) < _LEAST_KNOWN:
        return None
    share = sum(word not in expected.vocabulary for word in words) / len(words)
    most = max(_UNKNOWN_RATIO * expected.unknown_rate, expected.unknown_rate + _UNKNOWN_MARGIN)
    if share <= most:
        return None
    return (
        f"{share:.0%} of the words are unknown to the model, of its own text "
        f"{expected.unknown_rate:.1%}: is it another language or period, all in capitals, or split "
        "in another way?"
    )
