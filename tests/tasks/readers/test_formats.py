"""Which reader a file needs, options of all readers, real data."""

import warnings

import pytest

from conftest import SHARED
from elmo.errors import ElmoWarning, InputError, MissingFileError
from elmo.tasks.readers import formats
from elmo.tasks.readers.columns import read_columns
from elmo.tasks.readers.coreference import find_documents
from elmo.tasks.settings import ReadOptions
from reader_samples import CONLL_2012, CONLLU, PROPS, litbank


def test_formats_are_detected_by_name_and_content(write):
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
    with pytest.raises(
        InputError, match="no format 'xml' for this task: expected jsonl or tsv or csv"
    ):
        formats.read_entailment(texts, ReadOptions(format="xml"))
    with pytest.raises(InputError, match="label_column is 'ner', expected the number"):
        formats.read_tagged([write("a O\n", "a.conll")], ReadOptions(label_column="ner"))


def test_other_encodings_are_read_or_refused_with_the_line(tmp_path):
    path = tmp_path / "trec.txt"
    path.write_bytes("LOC Where ?\nLOC Café ?\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"line 2: byte 0xe9 .*encoding"):
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
        read_columns(tmp_path / "none.conll", ReadOptions())


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
