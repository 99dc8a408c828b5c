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
from elmo.tasks.readers.files import Line, Remarks, Rows, blocks, cells_of, place
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
    found = [_columns(path, block) for block in blocks(path, options.encoding)]
    found = [sentence for sentence in found if sentence.rows[0][0] != _DOCUMENT]
    for sentence in found:
        if len(sentence.rows[0]) != len(found[0].rows[0]):
            what = "sentences have another number of columns than the first"
            remarks.add(what, sentence.numbers[0])
    word = _number(options.text_column, "--text-column", 0)
    tag = _number(options.label_column, "--label-column", -1)
    tags = _normalized(found, [_column(sentence, tag) for sentence in found], remarks)
    examples = [
        TaggedSentence(_column(sentence, word), own, place(path, sentence.numbers[0]))
        for sentence, own in zip(found, tags, strict=True)
    ]
    return remarks.finish(examples, "words with tags")


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


def _columns(path: Path, block: list[Line]) -> Rows:
    """Split the lines of a sentence into columns; skip comments."""
    rows = [cells_of(line.text) for line in block]
    first = 0
    while first < len(rows) - 1 and _is_comment(rows[first], rows[-1]):
        first += 1
    sentence = Rows(path, [line.number for line in block][first:], rows[first:])
    sentence.require_width(len(rows[-1]))
    if len(rows[-1]) < 2:
        raise sentence.problem(0, f"one column ({rows[first][0]!r}), expected words and tags")
    return sentence


def _is_comment(columns: list[str], last: list[str]) -> bool:
    """Check whether a line above others is a comment: `# id 7 domain=en`."""
    if not columns[0].startswith("#"):
        return False
    return len(columns) != len(last) or (is_span_tag(last[-1]) and not is_span_tag(columns[-1]))


def _number(given: str | None, flag: str, default: int) -> int:
    if given is None:
        return default
    try:
        return int(given)
    except ValueError:
        raise InputError(f"{flag} is {given!r}, expected the number of a column, from 0") from None


def _column(sentence: Rows, column: int) -> list[str]:
    width = len(sentence.rows[0])
    if not -width <= column < width:
        raise sentence.problem(0, f"no column {column}: the line has {width}")
    cells = [row[column] for row in sentence.rows]
    if "" in cells:
        raise sentence.problem(cells.index(""), "an empty word or tag")
    return cells


def _normalized(found: list[Rows], tags: list[list[str]], remarks: Remarks) -> list[list[str]]:
    """Convert spans to IOB2, and count tags that continue no span."""
    scheme = scheme_of(tags)
    if scheme == "labels":
        return tags
    if scheme != "iob1":
        for sentence, own in zip(found, tags, strict=True):
            for row in irregular_places(own):
                what = "tags continue a span that is not there; they begin one"
                remarks.add(what, sentence.numbers[row])
    return [to_iob2(spans_of(own), len(own)) for own in tags]
