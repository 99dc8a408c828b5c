"""Readers of task data: small files of every format, what is refused and where, real data."""

import gzip
import json
import lzma
import warnings
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import SHARED
from elmo.errors import ElmoWarning, InputError, MissingFileError
from elmo.tasks.readers import formats, splits
from elmo.tasks.readers.columns import read_columns
from elmo.tasks.readers.conllu import read_conllu
from elmo.tasks.readers.coreference import find_documents, read_coreference
from elmo.tasks.readers.entailment import read_pairs
from elmo.tasks.readers.examples import Answer
from elmo.tasks.readers.propbank import read_propbank
from elmo.tasks.readers.props import read_props
from elmo.tasks.readers.squad import read_squad
from elmo.tasks.readers.tables import read_label_lines, read_table
from elmo.tasks.readers.trees import read_trees
from elmo.tasks.recipe import ReadOptions
from elmo.text.files import EnglishTokenizer, WhitespaceTokenizer

ENGLISH, WORDS = EnglishTokenizer(), WhitespaceTokenizer()


@pytest.fixture
def write(tmp_path):
    def write(text, name="data.txt"):
        path = tmp_path / name
        opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
        with opener(path, "wt", encoding="utf-8") as file:
            file.write(text)
        return path

    return write


# Columns


def test_columns_of_conll_2003_come_as_iob2(write):
    text = (
        "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nBonn NNP I-NP B-ORG\nsaid VBD O O\n\nOh UH O O\n"
    )
    first, second = read_columns(write(text))
    assert first.words == ["EU", "Bonn", "said"]
    assert first.tags == ["B-ORG", "B-ORG", "O"]
    assert first.place.endswith("data.txt, line 3")
    assert second.words == ["Oh"]
    assert read_columns(write(text), tag_column=1)[0].tags == ["NNP", "NNP", "VBD"]


def test_columns_between_tabs_may_hold_hashtags_and_blanks(write):
    path = write("#love\tO\nNew York\tS-LOC\n\t\n#\tO\n", "wnut.txt.gz")
    first, second = read_columns(path)
    assert first.words == ["#love", "New York"]
    assert first.tags == ["O", "B-LOC"]
    assert second.words == ["#"]


def test_comments_above_a_sentence_are_no_words(write):
    assert read_columns(write("# id 7 domain=en\nOslo _ _ B-LOC\n"))[0].words == ["Oslo"]


def test_tags_that_go_on_with_nothing_are_counted(write):
    path = write("a B-X\nb O\nc I-X\n\nd I-X\n")
    with pytest.warns(ElmoWarning, match="2 tags go on with a span that is not there.*line 3"):
        sentences = read_columns(path)
    assert [sentence.tags for sentence in sentences] == [["B-X", "O", "B-X"], ["B-X"]]


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
        read_columns(write(text))
    with pytest.raises(InputError, match="no column 5: the line has 2"):
        read_columns(write("a O\n"), tag_column=5)


def test_sentences_with_other_numbers_of_columns_are_told(write):
    path = write("EU NNP B-ORG\n\nPeter B-PER\n\nUK B-LOC\n", "t.conll")
    message = "2 sentences have another number of columns than the first; the first is in line 3"
    with pytest.warns(ElmoWarning, match=message):
        assert [sentence.words for sentence in read_columns(path)] == [["EU"], ["Peter"], ["UK"]]


# CoNLL-U

CONLLU = (
    "# text = Don't go\n"
    "1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tDo\tdo\tAUX\tVB\t_\t3\taux\t_\t_\n"
    "2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_\n"
    "2.1\tyou\tyou\tPRON\t_\t_\t_\t_\t_\t_\n"
    "3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n"
)


def test_conllu_gives_the_parts_of_words_and_no_gaps(write):
    (sentence,) = read_conllu(write(CONLLU))
    assert sentence.words == ["Do", "n't", "go"]
    assert sentence.tags == ["AUX", "PART", "VERB"]
    assert sentence.place.endswith("line 3")
    assert read_conllu(write(CONLLU), field="deprel")[0].tags == ["aux", "advmod", "root"]


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
        read_conllu(write(CONLLU.replace(old, new)))


def test_sentences_without_the_field_are_counted(write):
    path = write(CONLLU + "\n" + CONLLU.replace("\tVERB\t", "\t_\t"))
    with pytest.warns(ElmoWarning, match="1 sentences have a word without upos.*line 13"):
        assert len(read_conllu(path)) == 1
    with pytest.raises(InputError, match="no field 'head'"):
        read_conllu(path, field="head")


# Trees


def test_trees_give_roots_or_all_phrases(write):
    path = write("(3 (2 It) (4 (2 -LRB-) (4 good)))\n\n(0 (0 bad))\n", "t.txt.xz")
    first, second = read_trees(path)
    assert (first.words, first.label) == (["It", "(", "good"], "3")
    assert (second.words, second.label, second.place[-6:]) == (["bad"], "0", "line 3")
    found = [(" ".join(e.words), e.label) for e in read_trees(path, phrases=True)]
    assert found == [
        ("It", "2"),
        ("(", "2"),
        ("good", "4"),
        ("( good", "4"),
        ("It ( good", "3"),
        ("bad", "0"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(3 (2 It)", "line 1: 1 brackets are not closed"),
        ("(3 It))", r"line 1: '\)' after the end"),
        ("(3 (2 It)) (1 x)", "after the end of the tree"),
        ("(3 It)\nwords", "line 2: 'words' outside of brackets"),
        ("(3 ((2 It)))", "line 1: a bracket opens without a label"),
        ("(3 (2))", "line 1: a node of label '2' without words"),
        ("", "no trees"),
    ],
)
def test_broken_trees_are_refused(write, text, message):
    with pytest.raises(InputError, match=message):
        read_trees(write(text))


trees = st.recursive(
    st.sampled_from(["It", "'s", "good", "-LRB-"]).map(lambda word: ("leaf", word)),
    lambda inner: st.lists(inner, min_size=1, max_size=3),
    max_leaves=8,
)


def written(tree):
    if isinstance(tree, tuple):
        return f"(2 {tree[1]})"
    return f"(3 {' '.join(map(written, tree))})"


@given(trees)
def test_a_tree_has_a_phrase_for_every_bracket(tmp_path_factory, tree):
    path = tmp_path_factory.mktemp("trees") / "tree.txt"
    text = written(tree)
    path.write_text(text)
    phrases = read_trees(path, phrases=True)
    (root,) = read_trees(path)
    assert phrases[-1] == root or root in phrases
    assert len(phrases) <= text.count("(")
    assert len(root.words) == text.count("(2 ")


# Tables


def test_csv_with_a_header_several_texts_and_lines_in_quotation_marks(write):
    path = write('label,title,description\n3,"A, b","two\nlines"\n1,c,d\n', "news.csv")
    first, second = read_table(path, WORDS)
    assert (first.words, first.label) == (["A,", "b", "two", "lines"], "3")
    assert second.place.endswith("line 4")
    assert read_table(path, WORDS, text_column="title")[0].words == ["A,", "b"]
    assert read_table(path, WORDS, text_column="title,label", label_column="title")


def test_tables_without_names_go_by_number(write):
    path = write('pos\tsay "no\nneg\tagain\n', "data.tsv")
    with pytest.raises(InputError, match=r"which column is the label.*--label-column"):
        read_table(path, WORDS)
    examples = read_table(path, WORDS, label_column="0", text_column="1")
    assert [(e.words, e.label) for e in examples] == [(["say", '"no'], "pos"), (["again"], "neg")]


def test_json_lines_with_numbers_as_labels(write):
    path = write('{"text": "Don\'t go.", "label": 1}\n\n{"text": "", "label": 0}\n', "d.jsonl.gz")
    with pytest.warns(ElmoWarning, match="1 rows with empty texts are left out.*line 3"):
        (example,) = read_table(path, ENGLISH)
    assert (example.words, example.label) == (["Do", "n't", "go", "."], "1")


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("text,label\na,b,c\n", "d.csv", "line 2: 3 columns, expected 2: text, label"),
        ('text,label\n"a,b\n', "d.csv", "line 2: not valid csv"),
        ("text,label\n", "d.csv", "no texts with labels"),
        ("{'text'}", "d.jsonl", "line 1: not valid JSON"),
        ("[1]", "d.jsonl", "line 1: expected a JSON object"),
        ('{"text": "a", "label": 1}\n{"text": "a"}', "d.jsonl", "line 2: which column"),
    ],
)
def test_bad_tables_are_refused(write, text, name, message):
    with pytest.raises(InputError, match=message):
        read_table(write(text, name), WORDS)
    path = write("text,label\na,b\n", "ok.csv")
    with pytest.raises(InputError, match="no column 'body'; there are: text, label"):
        read_table(path, WORDS, text_column="body")


def test_lines_that_begin_with_a_label(write):
    path = write("LOC:city Where is it ?\n__label__HUM Who ?\nDESC\n")
    with pytest.warns(ElmoWarning, match="1 labels without a text.*line 3"):
        examples = read_label_lines(path, WORDS)
    assert [(e.words, e.label) for e in examples] == [
        (["Where", "is", "it", "?"], "LOC:city"),
        (["Who", "?"], "HUM"),
    ]


# Pairs

PAIR = {"sentence1": "A man eats.", "sentence2": "He eats.", "gold_label": "entailment"}


def test_pairs_of_json_lines_and_tables(write):
    lines = [PAIR, {**PAIR, "gold_label": "-"}, {**PAIR, "gold_label": "-"}]
    with pytest.warns(ElmoWarning, match="2 pairs have no label.*line 2"):
        (pair,) = read_pairs(write("\n".join(map(json.dumps, lines)), "d.jsonl"), ENGLISH)
    assert pair.premise == ["A", "man", "eats", "."]
    assert pair.hypothesis == ["He", "eats", "."]
    assert pair.label == "entailment"
    table = write("\t".join(PAIR) + "\n" + "\t".join(PAIR.values()) + "\n", "d.tsv")
    (other,) = read_pairs(table, ENGLISH)
    assert (other.premise, other.hypothesis, other.label) == (
        pair.premise,
        pair.hypothesis,
        pair.label,
    )
    assert other.place.endswith("line 2")


def test_bad_pairs_are_refused(write):
    with pytest.raises(InputError, match="line 1: no gold_label or label that is a string"):
        read_pairs(write('{"sentence1": "a", "gold_label": 3}', "d.jsonl"), ENGLISH)
    with pytest.raises(InputError, match="line 1: no 'sentence2' that is a string"):
        read_pairs(write('{"sentence1": "a", "label": "x"}', "d.jsonl"), ENGLISH)
    with pytest.raises(InputError, match="line 2: 2 columns, expected 3"):
        read_pairs(write("sentence1\tsentence2\tgold_label\na\tb\n", "d.tsv"), ENGLISH)
    with pytest.warns(ElmoWarning, match="1 pairs lack a text"), pytest.raises(InputError):
        read_pairs(write(json.dumps({**PAIR, "sentence2": " "}), "d.jsonl"), ENGLISH)


# Questions


def squad(context, *answers):
    qas = [{"id": "q1", "question": "Who?", "answers": list(answers)}]
    paragraphs = [{"context": context, "qas": qas}]
    return {"version": "1.1", "data": [{"title": "T", "paragraphs": paragraphs}]}


def test_questions_have_their_paragraph_and_answers(write):
    given_answers = {"text": "Ann", "answer_start": 0}, {"text": "Bo", "answer_start": 8}
    path = write(json.dumps(squad("Ann and Bo.", *given_answers), indent=1), "d.json.gz")
    (question,) = read_squad(path)
    assert question.id == "q1"
    assert question.answers == (Answer("Ann", 0), Answer("Bo", 8))
    assert question.title == "T"
    assert question.place.endswith("line 11, question q1")


def test_answers_elsewhere_are_moved_and_answers_nowhere_counted(write):
    wrong = {"text": "Ann", "answer_start": 9}, {"text": "Cy", "answer_start": 0}
    path = write(json.dumps(squad("Ann, Bo, Ann.", *wrong[:1])), "d.json")
    assert read_squad(path)[0].answers == (Answer("Ann", 9),)
    path = write(json.dumps(squad("Ann, Bo,  Ann.", *wrong)), "d.json")
    with pytest.warns(ElmoWarning) as told:
        (question,) = read_squad(path)
    assert question.answers == (Answer("Ann", 10),)
    messages = [str(warning.message) for warning in told]
    assert any("1 answers are not where answer_start says" in text for text in messages)
    assert any("not in their context; left out; the first is in line 1, question q1" in text
               for text in messages)  # fmt: skip


def test_questions_without_an_answer_are_counted(write):
    path = write(json.dumps(squad("Ann.")), "d.json")
    with (
        pytest.warns(ElmoWarning, match="1 questions without an answer.*question q1"),
        pytest.raises(InputError, match="no questions with answers"),
    ):
        read_squad(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "line 1: not valid JSON"),
        ("[]", "expected an object with a list 'data'"),
        ('{"data": [{}]}', "article 0: no 'paragraphs' of type list"),
        (json.dumps(squad("Ann.", {"text": 3})), "question q1: no 'text' of type str"),
        (json.dumps(squad("A", {"text": "A", "answer_start": "0"})), "'answer_start' of type int"),
    ],
)
def test_bad_questions_are_refused(write, content, message):
    with pytest.raises(InputError, match=message):
        read_squad(write(content, "d.json"))


# Frames

FRAME = {"pred": 1, "sense": "go.01", "tags": ["B-ARG0", "B-V", "O"]}


def test_frames_of_json_lines(write):
    lines = [{"words": ["I", "go", "."], "frames": [FRAME]}, {"words": ["Oh"], "frames": []}]
    (frame,) = read_propbank(write("\n".join(map(json.dumps, lines))))
    assert (frame.words, frame.predicate, frame.sense) == (["I", "go", "."], 1, "go.01")
    assert frame.tags == ["B-ARG0", "B-V", "O"]
    assert frame.place.endswith("line 1")


@pytest.mark.parametrize(
    ("words", "change", "message"),
    [
        (["I", "go", "."], {"pred": 3}, "'pred' is 3, expected a word from 0 to 2"),
        (["I", "go", "."], {"tags": ["O"]}, "expected 3 tags, one a word"),
        (["I", "go", "."], {"tags": ["X", "B-V", "O"]}, "tags are not O, B-ARG"),
        ([], {}, "no 'words'"),
    ],
)
def test_bad_frames_are_refused(write, words, change, message):
    record = {"words": words, "frames": [{**FRAME, **change}]}
    with pytest.raises(InputError, match=f"line 1: .*{message}"):
        read_propbank(write(json.dumps(record)))


PROPS = """\
The  DT  -     (A0*  (A1*
cat  NN  -     *)    *)
sat  VBD sit   (V*)  *
and  CC  -     *     *
purred VBD purr *    (V*)
"""


def test_props_in_brackets(write):
    first, second = read_props(write(PROPS))
    assert first.words == ["The", "cat", "sat", "and", "purred"]
    assert (first.predicate, first.sense) == (2, "sit")
    assert first.tags == ["B-A0", "I-A0", "B-V", "O", "O"]
    assert (second.predicate, second.tags[4]) == (4, "B-V")
    assert second.place.endswith("line 5")


CONLL_2012 = """\
#begin document (nw/x); part 000
nw/x 0 0 She PRP (TOP(S* - - - spk * (ARG0*) (3)
nw/x 0 1 has VBZ * have 01 - spk * (V*) -
nw/x 0 2 cats NNS *)) - - - spk * (ARG1*) -

nw/x 0 0 Oh UH (TOP*) - - - spk * -
#end document
"""


def test_props_of_conll_2012(write):
    (frame,) = read_props(write(CONLL_2012))
    assert frame.words == ["She", "has", "cats"]
    assert (frame.predicate, frame.sense) == (1, "have.01")
    assert frame.tags == ["B-ARG0", "B-V", "B-ARG1"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cat  NN  -     *)", "cat  NN  -     *", r"line 1: .*\(A0 is not closed|line 3: .*inside"),
        ("and  CC  -     *  ", "and  CC  -     *) ", "line 4: .* closes what was not opened"),
        ("and  CC  -     *  ", "and  CC  -     x  ", "line 1: no column marks|line 4"),
        ("cat  NN  -     *)", "cat  NN  -     (A2*))", "line 2: .* an argument inside of another"),
        ("(V*)  *\n", "(V*)\n", "line 3: 4 columns, expected 5"),
        ("sit ", "- ", "line 1: no column marks as many predicates"),
    ],
)
def test_broken_props_are_refused(write, old, new, message):
    assert old in PROPS
    with pytest.raises(InputError, match=message):
        read_props(write(PROPS.replace(old, new)))


# Coreference


def litbank(rows, name="b"):
    lines = [f"#begin document ({name}); part 0"]
    for row in rows:
        lines.append("\t".join([name, "0", "0", row[0], *"________", row[1]]) if row else "")
    return "\n".join([*lines, "#end document", ""])


def test_coreference_of_litbank_with_nested_mentions(write):
    rows = [
        ("His", "(0|(1)"),
        ("dog", "0)"),
        (),
        ("He", "(1)"),
        ("and", ""),
        ("it", "(0)"),
        ("the", "(2"),
        ("end", "2)"),
    ]
    (document,) = read_coreference(write(litbank(rows), "b.conll"))
    assert document.sentences == [["His", "dog"], ["He", "and", "it", "the", "end"]]
    assert document.clusters == [[(0, 1), (2, 3)], [(0, 2), (4, 5)], [(5, 7)]]
    assert document.name == "b; part 0"
    assert document.lines == (2, 5)


def test_coreference_of_conll_2012(write):
    (document,) = read_coreference(write(CONLL_2012))
    assert document.clusters == [[(0, 1)]]
    assert document.sentences[1] == ["Oh"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", "(0"), ("b", "")], r"line 2: the mention \(0 is not closed"),
        ([("a", "0)")], r"line 2: '0\)' closes what was not opened"),
        ([("a", "(x)")], "line 2: .*expected marks such as"),
        ([("a", "3")], "line 2: .*expected marks such as"),
    ],
)
def test_broken_coreference_is_refused(write, rows, message):
    with pytest.raises(InputError, match=message):
        read_coreference(write(litbank(rows)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\n", "line 1: a word before '#begin document'"),
        ("#begin document (x)\n#begin document (y)\n", "line 2: a document begins inside"),
        ("#end document\n", "line 1: a document ends that did not begin"),
        ("#begin document (x)\na b c d -\n", "line 2: the file ends inside of a document"),
        ("#begin document (x)\na b c\n", "line 2: 3 columns, expected those of CoNLL-2012"),
        ("", "no documents"),
    ],
)
def test_documents_must_begin_and_end(write, text, message):
    with pytest.raises(InputError, match=message):
        read_coreference(write(text))


def test_odd_mentions_are_counted(write):
    rows = [("a", "(0)|(0)"), ("b", "(1)|(2)"), ("c", "(3"), (), ("d", "3)")]
    with pytest.warns(ElmoWarning) as told:
        (document,) = read_coreference(write(litbank(rows)))
    assert document.clusters == [[(0, 1)], [(1, 2)]]
    text = " ".join(str(warning.message) for warning in told)
    assert "1 mentions are marked twice" in text
    assert "1 mentions are in two clusters" in text
    assert "1 mentions go over the end of a sentence" in text


# Which reader


def test_formats_are_told_by_name_and_content(write):
    texts = [
        write("label,text\nx,a b\n", "a.csv"),
        write("(3 (2 a) (2 b))\n", "a.txt"),
        write("x a b\n", "b.txt"),
        write('{"label": "x", "text": "a b"}\n', "a.jsonl"),
    ]
    examples = formats.read_texts(texts, ReadOptions())
    assert [e.words for e in examples] == [["a", "b"]] * 4
    assert len(formats.read_tagged([write(CONLLU, "a.conllu")], ReadOptions())) == 1
    assert len(formats.read_tagged([write("a O\n", "a.conll")], ReadOptions())) == 1
    assert len(formats.read_frames([write(PROPS, "a.props")], ReadOptions())) == 2
    assert len(formats.read_documents([write(CONLL_2012, "a.conll")], ReadOptions())) == 1
    with pytest.raises(InputError, match="no format 'xml' for this task: expected jsonl or tsv"):
        formats.read_entailment(texts, ReadOptions(format="xml"))
    with pytest.raises(InputError, match="--label-column is 'ner', expected the number"):
        formats.read_tagged([write("a O\n", "a.conll")], ReadOptions(label_column="ner"))


def test_other_encodings_are_read_or_refused_with_the_line(tmp_path):
    path = tmp_path / "trec.txt"
    path.write_bytes("LOC Where ?\nLOC Café ?\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"line 2: byte 0xe9 .* --encoding"):
        formats.read_texts([path], ReadOptions())
    examples = formats.read_texts([path], ReadOptions(encoding="latin-1"))
    assert examples[1].words == ["Café", "?"]


def test_a_folder_of_documents_is_read_in_the_order_of_names(write, tmp_path):
    write(litbank([("b", "(0)")], "b"), "b.conll")
    write(litbank([("a", "(0)")], "a"), "a.conll")
    write(litbank([("a", "(0)")], "a"), "a.conll.xz")
    names = [d.name for d in formats.read_documents([tmp_path], ReadOptions())]
    assert names == ["a; part 0", "b; part 0"]
    with pytest.raises(InputError, match="no files named"):
        find_documents(tmp_path.parent)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(MissingFileError, match="no such text file"):
        read_columns(tmp_path / "none.conll")


# Splits


def test_the_small_training_set_of_snli_knows_no_premise_of_the_others(
    write, tmp_path, monkeypatch
):
    monkeypatch.setattr(splits, "TUNED_PAIRS", 4)
    pairs = [{**PAIR, "sentence1": f"Premise {k // 2} ."} for k in range(20)]
    test = [{**PAIR, "sentence1": "premise  3"}]
    write("\n".join(map(json.dumps, pairs)), "snli_1.0_dev.jsonl")
    write("\n".join(map(json.dumps, test)), "snli_1.0_test.jsonl.gz")
    rows = ["\t".join([f"Premise {k} .", "h", "neutral"]) for k in range(12)]
    write("\n".join(["\t".join(PAIR), *rows]), "cad-train.tsv")
    parts = splits.split_snli(tmp_path, tmp_path / "out")
    premises = [
        {json.loads(line)["sentence1"].lower().replace(" ", "").strip(".")
         for line in path.read_text().splitlines()}
        for path in parts
    ]  # fmt: skip
    assert len(premises[1]) == 2
    assert premises[2] == {"premise3"}
    assert not premises[0] & (premises[1] | premises[2])
    assert len(premises[0]) == 12 - len(premises[1] | premises[2])


def test_squad_is_cut_between_articles(write, tmp_path):
    data = [squad("Ann.", {"text": "Ann", "answer_start": 0})["data"][0] for _ in range(40)]
    for number, article in enumerate(data):
        article["title"] = str(number)
    for name in ("train-v1.1-x.json", "dev-v1.1.json"):
        write(json.dumps({"version": "1.1", "data": data}), name)
    parts = splits.split_squad(tmp_path, tmp_path / "out")
    titles = [[question.title for question in read_squad(path)] for path in parts]
    assert [len(part) for part in titles] == [38, 2, 40]
    assert sorted(titles[0] + titles[1]) == sorted(titles[2])


def test_agnews_and_trec_keep_every_row_once(write, tmp_path):
    write("label,text\n" + "".join(f'{k % 4},"a, {k}"\n' for k in range(50)), "news.csv")
    parts = splits.split_agnews(tmp_path, tmp_path / "out")
    found = [[tuple(e.words) for e in read_table(path, WORDS)] for path in parts]
    assert [len(part) for part in found] == [40, 5, 5]
    assert len(set(chain.from_iterable(found))) == 50
    for name in ("TREC.train.all", "TREC.test.all"):
        (tmp_path / name).write_bytes(b"LOC Where is \xe9 ?\n" * 20)
    parts = splits.split_trec(tmp_path, tmp_path / "trec")
    assert [len(read_table(path, WORDS)) for path in parts] == [18, 2, 20]
    assert read_table(parts.dev, WORDS)[0].words == ["Where", "is", "é", "?"]


def test_splits_say_what_is_missing(tmp_path, write):
    with pytest.raises(MissingFileError, match=r"has no file snli_1\.0_dev\.jsonl"):
        splits.split_snli(tmp_path, tmp_path / "out")
    write(litbank([("b", "(0)")]), "b.conll")
    with pytest.raises(InputError, match="1 documents, expected 100"):
        splits.split_litbank(tmp_path, tmp_path / "out")


# Real data


@pytest.fixture(scope="module")
def task_data():
    folder = SHARED / "data" / "tasks"
    if not (folder / "sst").is_dir():
        pytest.skip("the task data is not beside the repository (../shared/data/tasks)")
    return folder


def test_real_files_have_as_many_examples_as_their_authors_say(task_data):
    sizes = {
        "wnut17/emerging.dev.conll": (formats.read_tagged, 1009),
        "pos_ewt/en_ewt-ud-test.conllu": (formats.read_tagged, 2077),
        "sst/dev.txt": (formats.read_texts, 1101),
        "snli/cad-dev.tsv": (formats.read_entailment, 1000),
        "squad/dev-v1.1-rebuilt.json": (formats.read_questions, 10570),
        "srl_ewt/dev.jsonl": (formats.read_frames, 4960),
    }
    for name, (read, size) in sizes.items():
        (path,) = [task_data / f"{name}{s}" for s in ("", ".xz", ".gz")
                   if (task_data / f"{name}{s}").is_file()]  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(read([path], ReadOptions())) == size, name
    (path,) = (task_data / "snli").glob("snli_1.0_test.jsonl*")
    with pytest.warns(ElmoWarning, match="176 pairs have no label"):
        assert len(formats.read_entailment([path], ReadOptions())) == 9824
