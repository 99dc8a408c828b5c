"""Words with tags in columns and in CoNLL-U."""

import pytest

from elmo.errors import ElmoWarning, InputError
from elmo.tasks.readers.columns import read_columns, read_conllu
from elmo.tasks.settings import ReadOptions
from reader_samples import CONLLU


def test_columns_of_conll_2003_come_as_iob2(write):
    text = (
        "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nBonn NNP I-NP B-ORG\nsaid VBD O O\n\nOh UH O O\n"
    )
    first, second = read_columns(write(text), ReadOptions())
    assert first.words == ["EU", "Bonn", "said"]
    assert first.tags == ["B-ORG", "B-ORG", "O"]
    assert first.place.endswith("data.txt, line 3")
    assert second.words == ["Oh"]
    assert read_columns(write(text), ReadOptions(label_column="1"))[0].tags == ["NNP", "NNP", "VBD"]


IOB1 = """\
-DOCSTART- -X- -X- O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC
call NN I-NP O
to TO I-VP O
boycott VB I-VP O
British JJ I-NP I-MISC
lamb NN I-NP O
. . O O

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER

BRUSSELS NNP I-NP I-LOC
1996-08-22 CD I-NP O

-DOCSTART- -X- -X- O

ITALIAN JJ I-NP B-MISC
Serie NNP I-NP B-MISC
A NNP I-NP I-MISC
results NNS I-NP O
: : O O
Milan NNP I-NP I-ORG
Bologna NNP I-NP B-ORG
2 CD I-NP O
"""
"""As CoNLL-2003 is published: `B` separates spans of one type, and stands at odd places, too."""
IOB2 = ["B-ORG", "O", "B-MISC", "O", "O", "O", "B-MISC", "O", "O"]
IOB2 += ["B-PER", "I-PER", "B-LOC", "O", "B-MISC", "B-MISC", "I-MISC", "O", "O", "B-ORG"]
IOB2 += ["B-ORG", "O"]


@pytest.mark.filterwarnings("error")
def test_iob1_and_iob2_are_recognized_and_read_alike_without_a_word(write):
    sentences = read_columns(write(IOB1, "eng.train"), ReadOptions())
    assert [tag for sentence in sentences for tag in sentence.tags] == IOB2
    assert [len(sentence.words) for sentence in sentences] == [9, 2, 2, 8]
    words = [word for sentence in sentences for word in sentence.words]
    rows = "\n".join(f"{word} {tag}" for word, tag in zip(words, IOB2, strict=True))
    (again,) = read_columns(write(rows, "iob2.txt"), ReadOptions())
    assert again.tags == IOB2


def test_columns_between_tabs_may_hold_hashtags_and_blanks(write):
    path = write("#love\tO\nNew York\tS-LOC\n\t\n#\tO\n", "wnut.txt.gz")
    first, second = read_columns(path, ReadOptions())
    assert first.words == ["#love", "New York"]
    assert first.tags == ["O", "B-LOC"]
    assert second.words == ["#"]


def test_comments_above_a_sentence_are_no_words(write):
    assert read_columns(write("# id 7 domain=en\nOslo _ _ B-LOC\n"), ReadOptions())[0].words == [
        "Oslo"
    ]


def test_tags_that_continue_nothing_are_counted(write):
    path = write("a B-X\nb O\nc I-X\n\nd I-X\n\ne B-X\n\nf B-X\n")
    with pytest.warns(ElmoWarning, match="2 tags continue a span that is not there.*line 3"):
        sentences = read_columns(path, ReadOptions())
    assert [sentence.tags for sentence in sentences] == [
        ["B-X", "O", "B-X"],
        *[["B-X"]] * 3,
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a O\nb\n", "line 1: 2 columns, expected 1"),
        ("a\nb\n", r"line 1: one column \('a'\)"),
        ("a\tO\n\tO\n", "line 2: an empty word or tag"),
        ("\n\n", "no words with tags"),
        ("", "no words with tags"),
    ],
)
def test_bad_columns_are_refused(write, text, message):
    with pytest.raises(InputError, match=message):
        read_columns(write(text), ReadOptions())
    with pytest.raises(InputError, match="no column 5: the line has 2"):
        read_columns(write("a O\n"), ReadOptions(label_column="5"))


def test_sentences_with_other_numbers_of_columns_are_told(write):
    path = write("EU NNP B-ORG\n\nPeter B-PER\n\nUK B-LOC\n", "t.conll")
    message = "2 sentences have another number of columns than the first .first: .*t.conll, line 3"
    with pytest.warns(ElmoWarning, match=message):
        assert [sentence.words for sentence in read_columns(path, ReadOptions())] == [
            ["EU"],
            ["Peter"],
            ["UK"],
        ]


def test_conllu_gives_the_parts_of_words_and_no_gaps(write):
    (sentence,) = read_conllu(write(CONLLU), ReadOptions())
    assert sentence.words == ["Do", "n't", "go"]
    assert sentence.tags == ["AUX", "PART", "VERB"]
    assert sentence.place.endswith("line 3")
    assert read_conllu(write(CONLLU), ReadOptions(label_column="deprel"))[0].tags == [
        "aux",
        "advmod",
        "root",
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("3\tgo", "4\tgo", "line 6: word 4, expected word 3"),
        ("2.1\tyou", "x\tyou", "line 5: 'x' is no number"),
        ("\tAUX\t", "\t", "line 3: 9 columns, expected the 10"),
    ],
)
def test_bad_conllu_is_refused(write, old, new, message):
    with pytest.raises(InputError, match=message):
        read_conllu(write(CONLLU.replace(old, new)), ReadOptions())


def test_sentences_without_the_field_are_counted(write):
    path = write(CONLLU + "\n" + CONLLU.replace("\tVERB\t", "\t_\t"))
    with pytest.warns(ElmoWarning, match="1 sentences have a word without upos.*line 13"):
        assert len(read_conllu(path, ReadOptions())) == 1
    with pytest.raises(InputError, match="no field 'head'"):
        read_conllu(path, ReadOptions(label_column="head"))
