"""A fast rule tokenizer for raw English: words as in the Penn Treebank, and ends of sentences.

Text is cut at white space first. What stands between two spaces (a chunk: `"Don't!"`) is split by
one regular expression, slow and thorough, and remembered: in running text nearly every chunk has
been seen before, so that a word costs one look-up. Whether a sentence ends after a chunk depends
on the chunk (`etc.`, `J.`, `go!"`) and on how the next one begins, which is remembered too.

No character is changed, lost or added: the words of a text, joined, are the text without its white
space. Quotation marks stay as they are, hyphenated words stay whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from itertools import chain
from typing import NamedTuple, TypeVar

_CACHE_LIMIT = 100_000
"""Chunks remembered, about 35 MB, and as many of the time before."""
_LONGEST_REMEMBERED = 64
_Value = TypeVar("_Value")
_joined = chain.from_iterable


class _End(IntEnum):
    """What a chunk says about the end of a sentence after it."""

    NO = 0
    """Nothing ends here."""
    STRONG = 1
    """A sentence ends unless the next word begins with a small letter."""
    WEAK = 2
    """An abbreviation: a sentence ends if the next word is one that begins sentences."""
    NUMBERED = 3
    """`No.` and the like: an abbreviation before a number, else the end of a sentence."""


class _Opening(IntEnum):
    """How a chunk begins."""

    SMALL = 0
    """With a small letter, or with a mark that goes on with a sentence."""
    CAPITAL = 1
    """With anything else."""
    STARTER = 2
    """With a capitalized word such as `The`, hardly ever a part of a name."""
    NUMBER = 3
    """With a digit or a Roman number."""


class _Chunk(NamedTuple):
    """What a chunk says about sentences."""

    words: list[str]
    end: _End
    opening: _Opening
    last_words: list[str]
    """The words if a sentence ends here: `etc.` gives up its full stop."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Before a name or an example: never the end of a sentence.
_TITLES = _words(
    "Mr Mrs Ms Mx Messrs Mmes Mlle Mme Dr Drs Prof Profs Rev Revd Hon Rt Gov Sen Rep Reps Sens "
    "Pres Supt Atty Amb Gen Gens Col Cols Lt Maj Capt Capts Cpt Cmdr Cdr Comdr Adm Sgt Pvt Cpl "
    "Brig Lieut Insp Msgr MR MRS DR vs v cf viz ca approx resp incl esp eds"
)
_NEVER_LAST = frozenset({"e.g.", "i.e.", "a.k.a."})
# After a name: the end of a sentence only where the next word begins sentences. Not here are
# abbreviations that are also words which end sentences (in., Miss., sing.).
_SUFFIXES = _words(
    "Jr Sr Esq Inc Ltd Co Corp Bros Cos Cie Assn Univ Intl Natl Mfg Ave Blvd Rd Bldg Ln Hwy Sq Pl "
    "Ct St Ste Mt Ft ST Dept dept al Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues "
    "Wed Thu Thur Thurs Fri Ala Ariz Ark Calif Cal Colo Conn Del Fla Ga Ill Ind Kan Ky La Md Mich "
    "Minn Mo Mont Neb Nev Okla Ore Penn Penna Tenn Tex Va Vt Wash Wis Wisc Wyo Gt Bart Phila Chas "
    "Geo Jas Jos Jno Wm Thos Robt Saml Benj Edw Danl Richd Eng Fr Lat Gr Heb Amer Brit lb lbs oz "
    "hr hrs yr yrs Mss MSS jr sr inc ltd co corp bros ed Ry"
)
# These end sentences as easily as any word; only their full stop is theirs.
_ET_CETERA = _words("etc &c ect seq")
_NUMBERED = _words(
    "No Nos no nos p pp vol Vol vols Vols fig Fig figs Figs art Art arts Arts sec Sec sect Sect ch "
    "chap Ch Chap chs pt Pt par Par vv n nn f ff l ll col cols op Op Nr nr Bk bk ex Ex eq Eq eqs "
    "cap tab Tab app App vers ver ser Ser b c d m r"
)
_STARTERS = _words(
    "The A An In On At It He She They We You This That These Those But And Or So Yet However His "
    "Her Their Its Our My Your As For From When While After Before During Since Although Though "
    "There By With Some Many Most If To One Both Such Another Other Others Also Then Thus Because "
    "Not No Each All Every Under Until Where What Who Why How Here Once Despite According Among "
    "Between Following Instead Later Nevertheless Nor Now Of Only Several Therefore Through "
    "Today Two Three Unlike Upon Whether Which Within Without Additionally Moreover Furthermore "
    "Finally First Initially Originally Recently Currently Meanwhile Subsequently Eventually "
    "Is Was Are Were Did Do Does Has Have Had Can Could Will Would Should May Might Must Let I Ten "
    "Even Still Just About Over Having Being Perhaps Indeed Like"
)
_SPLIT_WORDS = {
    "cannot": 3, "gonna": 3, "gotta": 3, "wanna": 3, "lemme": 3, "gimme": 3, "'tis": 2, "'twas": 2,
    "’tis": 2, "’twas": 2,
}  # fmt: skip

_OPENERS = frozenset("\"'“‘«‹„‚([{<`¿¡*_~#•·●■▪►–—―-…") | {"''", "``", "--", "..."}
_CLOSING_MARKS = "\"'”’»›)]}>*_“‘"
_CLOSERS = frozenset(_CLOSING_MARKS) | {"''"}
_TERMINATORS = re.compile(r"[.!?…。！？]+")
_MAY_END = re.compile(rf"[.!?…。！？][{re.escape(_CLOSING_MARKS)}]*(?=\s|$)")
_NEXT_CHUNK = re.compile(r"\s*(\S+)")
_ROMAN = re.compile(r"[IVXLCDM]+$")

# Every mark that is no part of a word. What is not listed (letters, digits, accents, currencies of
# other alphabets) belongs to words, so that scripts which Python's \w tears apart stay whole.
_MARKS = (
    r"""!"\#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~"""
    "“”‘’„‚«»‹›…–—―−†‡§¶•·●■▪►∗™®©¡¿£€¥¢₹×÷′″←→↑↓"
    "。、，！？；：「」『』（）《》〈〉【】〔〕・～"
)
_C = rf"[^\s{_MARKS}]"
_L = r"[^\W\d_]"
_QUOTE = "['’]"
_CLITIC = r"(?i:s|re|ve|ll|d|m)"

_PIECE = re.compile(
    rf"""
    (?:https?://|ftp://|www\.(?=\w)) [^\s<>"“”«»]*? (?=[.,;:!?…'’"”)\]}}>]* (?:[\s<>"“”«»]|$) )
  | [\w.+-]{{1,64}} @ [\w-]{{1,64}} (?:\.[\w-]{{1,64}})+            # e-mail
  | (?:[a-z0-9-]{{1,64}}\.)+ (?:com|org|net|edu|gov|info|io|co\.uk)
        (?: / [\w./%~?=&+-]* [\w/] )? (?!{_C})
  | ^ [:;=] [-o^']? [)(\[\]DPpO/\\|3*]+ (?=[.,!?]*$) | ^<3+$        # smileys
  | </?\w+/?>  | @[-.,]@                                             # marks of other tools
  | [@\#] {_L} \w*                                                  # names and tags of the Web
  | \.{{2,}} | …+ | -{{2,}} | [–—―]+ | '' | `` | [!?]+              # marks that are one together
  | (?<!{_C}) {_QUOTE} (?: (?i:tis|twas|em|cause|til|bout|round|n) (?!{_C}) | \d\ds? (?!{_C}) )
  | {_C}+? (?= (?i:n{_QUOTE}t) (?!{_C}) )                           # do | n't
  | (?i:n{_QUOTE}t) (?!{_C})
  | (?<=[^\s"(\[“‘]) {_QUOTE} {_CLITIC} (?!{_C})                    # it | 's
  | (?<!{_C}) (?:{_L}\.)+ {_L} \.? (?:-{_C}+)* (?!{_C})             # U.S., e.g., U.S.-led, U.S
  | (?<!{_C}) (?:{_L}\.){{2,}} (?=[A-Z])                            # J.R.R.Tolkien
  | (?<!{_C}) [Pp]h\.[Dd]\.? (?!{_C}) | (?<!{_C}) [Mm][Ss]c\.(?={_C})
  | (?<!{_C}) [A-Z]{{1,3}} [$£€¥]                                   # US$ | 5
  | (?<!{_C}) & c (?!{_C})                                          # &c
  | (?: (?<![^\s(\["“$£€¥–—]) [+−-] (?=[.]?\d) )?
        \.?\d+ (?: [.,:/] \d+ )* {_C}* (?:-{_C}+)*                  # -1,000.5  10:30  3/4  1.5m
  | -? {_C}+
    (?: (?: - | & | _+ | · | \.(?=[a-z0-9]) | (?<=\d)[.,:/](?=\d)
          | {_QUOTE} (?! {_CLITIC} (?!{_C}) ) ) {_C}+ )*
    (?: -(?![->]) | (?:\+{{1,2}}|\#)(?!{_C}) )?                     # words
  | \*+ | _+ | =+ | ~+ | \#+ | `+ | \S
    """,
    re.VERBOSE,
)
# What most chunks look like, for speed; the result is the same as without it.
_PLAIN = re.compile(rf"""(["“(\[]?)({_L}+(?:-{_L}+)*)(["”)\],;:]*)(\.?)(["”)\]]*)""")


class EnglishTokenizer:
    """Raw English by rules: `Mr. Fox can't go to the U.S.` -> `Mr. Fox ca n't go to the U.S.`.

    A line is a paragraph: its end is the end of a sentence.

    Example:
        >>> EnglishTokenizer().sentences("Don't go. It's $5!")
        [['Do', "n't", 'go', '.'], ['It', "'s", '$', '5', '!']]
    """

    name = "english"

    def __init__(self) -> None:
        self._words = _Memory(_split_words)
        self._chunks = _Memory(_judge)

    def sentences(self, text: str) -> list[list[str]]:
        """Split a text into sentences of words; a blank text is one empty sentence."""
        found: list[list[str]] = []
        for line in text.split("\n"):
            self._split_line(line, found)
        return found or [[]]

    def _split_line(self, line: str, found: list[list[str]]) -> None:
        """Append the sentences of a line to those found."""
        # This is the speed of `elmo prepare`: between two places where a sentence may end, every
        # step is one call that loops in C.
        words_of = self._words.__getitem__
        sentence: list[str] = []
        start = 0
        for match in _MAY_END.finditer(line):
            *chunks, last = line[start : match.end()].split()
            start = match.end()
            sentence += _joined(map(words_of, chunks))
            if self._ends(last, line, start, bool(sentence)):
                sentence += self._chunks[last].last_words
                found.append(sentence)
                sentence = []
            else:
                sentence += words_of(last)
        sentence += _joined(map(words_of, line[start:].split()))
        if sentence:
            found.append(sentence)
        self._words.forget()
        self._chunks.forget()

    def _ends(self, last: str, line: str, place: int, inside: bool) -> bool:
        """Return whether a sentence ends after a chunk, before this place of a line."""
        chunk = self._chunks[last]
        if not chunk.end:
            return False
        following = _NEXT_CHUNK.match(line, place)
        return _ends(chunk, self._chunks[following[1]] if following else None, inside)


def _ends(chunk: _Chunk, following: _Chunk | None, inside: bool) -> bool:
    """Return whether a sentence ends after a chunk.

    Args:
        chunk: One whose `end` is not `NO`.
        following: The next one; None at the end of a line.
        inside: Whether the sentence has words before this chunk.
    """
    if following is None:
        return True
    if chunk.end is _End.WEAK:
        return following.opening is _Opening.STARTER
    if chunk.end is _End.NUMBERED:
        return following.opening in (_Opening.CAPITAL, _Opening.STARTER)
    # "1. First of all": a number alone at the beginning counts items.
    return following.opening is not _Opening.SMALL and (inside or not chunk.words[0].isdecimal())


class _Memory(dict[str, _Value]):
    """What was found out about chunks; of others it is found out when they are first asked for.

    Args:
        find_out: What to do with a chunk.
    """

    def __init__(self, find_out: Callable[[str], _Value]) -> None:
        super().__init__()
        self._find_out = find_out
        self._old: dict[str, _Value] = {}

    def __missing__(self, text: str) -> _Value:
        value = self._old.get(text) or self._find_out(text)
        if len(text) <= _LONGEST_REMEMBERED:
            self[text] = value
        return value

    def forget(self) -> None:
        """If there is too much, begin a new list; what is not asked for again is forgotten."""
        if len(self) > _CACHE_LIMIT:
            self._old = dict(self)
            self.clear()


def _judge(text: str) -> _Chunk:
    """Split what stands between two spaces, and judge what it says about sentences."""
    words = _split_words(text)
    end = _end(words)
    last_words = words if end is _End.NO else _without_last_full_stop(words)
    return _Chunk(words, end, _opening(words), last_words)


def _split_words(text: str) -> list[str]:
    """Split what stands between two spaces into words."""
    plain = _split_plain(text)
    if plain is not None:
        return plain
    pieces: list[str] = []
    for piece in _PIECE.findall(text):
        cut = _SPLIT_WORDS.get(piece.lower())
        pieces += [piece] if cut is None else [piece[:cut], piece[cut:]]
    return _with_full_stops(pieces)


def _split_plain(text: str) -> list[str] | None:
    """Split a word of letters between marks, as most chunks that are new are; None for others."""
    found = _PLAIN.fullmatch(text)
    if found is None:
        return None
    opener, stem, marks, stop, closers = found.groups()
    if stem.lower() in _SPLIT_WORDS or (stop and not marks and takes_full_stop(stem)):
        return None
    return [*opener, stem, *marks, *stop, *closers]


def _with_full_stops(pieces: list[str]) -> list[str]:
    """Return abbreviations and initials their full stops back."""
    words: list[str] = []
    for place, piece in enumerate(pieces):
        if piece == "." and words and place and takes_full_stop(words[-1]):
            words[-1] += "."
        else:
            words.append(piece)
    return words


def takes_full_stop(word: str) -> bool:
    """Return whether a full stop right after a word is that of an abbreviation or initial."""
    return (
        word in _TITLES
        or word in _SUFFIXES
        or word in _ET_CETERA
        or word in _NUMBERED
        or (len(word) == 1 and word.isupper())
        or (word.startswith("-") and len(word) == 2 and word.isupper())
    )


def _is_abbreviation(word: str) -> bool:
    """Return whether a word carries a full stop of its own that can be taken off at an end."""
    return len(word) > 2 and word.endswith(".") and "." not in word[:-1]


def _before_closers(words: list[str]) -> list[str]:
    """Leave closing quotation marks and brackets off the end, as long as something is left."""
    stop = len(words)
    while stop > 1 and words[stop - 1] in _CLOSERS:
        stop -= 1
    return words[:stop]


def _without_last_full_stop(words: list[str]) -> list[str]:
    """Split the full stop off the last word, before closing marks: `etc.)` -> `etc . )`.

    Words with full stops inside (`U.S.`) and initials stay whole.
    """
    core = _before_closers(words)
    last = core[-1]
    if not _is_abbreviation(last):
        return words
    return [*core[:-1], last[:-1], ".", *words[len(core) :]]


def _end(words: list[str]) -> _End:
    """Judge whether a sentence may end after these words."""
    last = _before_closers(words)[-1]
    if _TERMINATORS.fullmatch(last):
        return _End.STRONG
    if not last.endswith(".") or len(last) < 2 or last.startswith(("http", "www.")):
        return _End.NO
    stem = last[:-1]
    if stem in _ET_CETERA:
        return _End.STRONG
    if stem in _NUMBERED:
        return _End.NUMBERED
    if stem in _TITLES or last.lower() in _NEVER_LAST:
        return _End.NO
    return _End.WEAK


def _opening(words: list[str]) -> _Opening:
    """Judge how a chunk begins, whatever marks open it."""
    first = next((word for word in words if word not in _OPENERS), None)
    if first is None:  # marks only: a dash or an ellipsis goes on, a quotation mark or bullet opens
        return _Opening.SMALL if words[0][0] in "-–—―….'" else _Opening.CAPITAL
    return _word_opening(first)


def _word_opening(first: str) -> _Opening:
    letter = first[0]
    if letter in "-&'’" and len(first) > 1:
        letter = first[1]
    if letter.isdigit() or (letter in "IVXLCDM" and _ROMAN.match(first)):
        # "I" begins sentences far more often than it counts chapters.
        return _Opening.STARTER if first == "I" else _Opening.NUMBER
    if first in _STARTERS:
        return _Opening.STARTER
    if letter.islower() or (len(first) == 1 and letter in ",;:.)]}%/=+&|>"):
        return _Opening.SMALL
    return _Opening.CAPITAL
