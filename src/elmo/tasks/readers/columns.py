"""Words and tags in columns, a word on each line, a blank line between sentences.

CoNLL-2003 (`EU NNP B-NP B-ORG`), WNUT-17 (`word<TAB>tag`) and their many relatives. Columns are
separated by tabs where a line has any, else by white space. `-DOCSTART-` lines are no sentences,
and lines that begin with `#` above a sentence and do not look like its words are comments. CoNLL-U
has a reader of its own.
"""

from __future__ import annotations

from pathlib import Path

from elmo.errors import InputError
from elmo.tasks.readers.examples import TaggedSentence
from elmo.tasks.readers.files import Line, Remarks, blocks, cells_of, place, problem
from elmo.tasks.settings import ReadOptions
from elmo.tasks.tag_schemes import irregular_places, is_span_tag, scheme_of, spans_of, to_iob2
from elmo.text import conllu

_DOCUMENT = "-DOCSTART-"
_FIELDS = ("lemma", "upos", "xpos", "feats", "deprel")


def read_columns(path: Path, options: ReadOptions) -> list[TaggedSentence]:
    """Read sentences of words and tags: the first and the last column, or those given by number.

    Spans are returned in IOB2 whether the file has IOB1, IOB2, BIOES or BILOU. Tags that encode no
    spans (parts of speech) stay as they are.
    """
    remarks = Remarks(path)
    rows = [_columns(path, block) for block in blocks(path, options.encoding)]
    rows = [block for block in rows if block and block[0][1][0] != _DOCUMENT]
    for block in rows:
        number, columns = block[0]
        if len(columns) != len(rows[0][0][1]):
            remarks.add("sentences have another number of columns than the first", number)
    word = _number(options.text_column, "--text-column", 0)
    tag = _number(options.label_column, "--label-column", -1)
    found = [_sentence(path, block, word, tag) for block in rows]
    return remarks.finish(_normalized(found, remarks), "words with tags")


_Row = tuple[int, list[str]]


def read_conllu(path: Path, options: ReadOptions) -> list[TaggedSentence]:
    """Read sentences of words and one of their fields from CoNLL-U: `label_column`, else `upos`.

    A sentence that lacks the field for a word is left out, with a counted warning.
    """
    field = options.label_column or "upos"
    if field not in _FIELDS:
        raise InputError(f"no field {field!r} in CoNLL-U: expected one of {', '.join(_FIELDS)}")
    remarks = Remarks(path)
    sentences = []
    for rows in conllu.read_conllu(path, options.encoding):
        tags = [row.field(field) for row in rows]
        missing = [row.line for row, tag in zip(rows, tags, strict=True) if tag == "_"]
        if missing and field != "feats":
            remarks.add(f"sentences have a word without {field} and are left out", missing[0])
        else:
            words = [row.field("form") for row in rows]
            sentences.append(TaggedSentence(words, tags, place(path, rows[0].line)))
    return remarks.finish(sentences, f"sentences with {field}")


def _columns(path: Path, block: list[Line]) -> list[_Row]:
    """Split the lines of a sentence into columns; skip comments."""
    rows = [(line.number, cells_of(line.text)) for line in block]
    width = len(rows[-1][1])
    while len(rows) > 1 and _is_comment(rows[0][1], [columns for _, columns in rows[1:]]):
        rows = rows[1:]
    for number, columns in rows:
        if len(columns) != width:
            raise problem(
                path,
                number,
                f"{len(columns)} columns, expected {width} as in the rest of the sentence",
            )
    return rows


def _is_comment(columns: list[str], rest: list[list[str]]) -> bool:
    """Check whether the first line above others is a comment: `# id 7 domain=en`."""
    if not columns[0].startswith("#"):
        return False
    if len(columns) != len(rest[-1]):
        return True
    return is_span_tag(rest[-1][-1]) and not is_span_tag(columns[-1])


def _number(given: str | None, flag: str, default: int) -> int:
    if given is None:
        return default
    try:
        return int(given)
    except ValueError:
        raise InputError(f"{flag} is {given!r}, expected the number of a column, from 0") from None


def _sentence(
    path: Path, rows: list[_Row], word_column: int, tag_column: int
) -> tuple[list[int], TaggedSentence]:
    numbers = [number for number, _ in rows]
    width = len(rows[0][1])
    if width < 2:
        raise problem(path, numbers[0], f"one column ({rows[0][1][0]!r}), expected words and tags")
    for column in (word_column, tag_column):
        if not -width <= column < width:
            raise problem(path, numbers[0], f"no column {column}: the line has {width}")
    words = [columns[word_column] for _, columns in rows]
    tags = [columns[tag_column] for _, columns in rows]
    for number, word, tag in zip(numbers, words, tags, strict=True):
        if not word or not tag:
            raise problem(path, number, "an empty word or tag")
    return numbers, TaggedSentence(words, tags, place(path, numbers[0]))


def _normalized(
    found: list[tuple[list[int], TaggedSentence]], remarks: Remarks
) -> list[TaggedSentence]:
    """Convert spans to IOB2, and count tags that continue no span."""
    scheme = scheme_of(sentence.tags or [] for _, sentence in found)
    normalized = []
    for numbers, sentence in found:
        if scheme == "labels":
            normalized.append(sentence)
            continue
        tags = sentence.tags or []
        if scheme != "iob1":
            for k in irregular_places(tags):
                remarks.add("tags continue a span that is not there; they begin one", numbers[k])
        tags = to_iob2(spans_of(tags), len(tags))
        normalized.append(TaggedSentence(sentence.words, tags, sentence.place))
    return normalized
