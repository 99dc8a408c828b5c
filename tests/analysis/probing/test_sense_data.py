"""SemCor, the evaluation data and word in context are read, or refused with a reason."""

import pytest

from elmo.analysis.probing.sense_data import read_evaluation, read_pairs, read_semcor
from elmo.errors import InputError, MissingFileError
from elmo.text.files import get_tokenizer


def test_semcor_is_read_with_phrases_split(data_folder):
    data = read_semcor(data_folder / "wsd")
    assert data.sentences[1] == ["muddy", "river", "bank", "."]
    assert data.spans.tolist() == [[0, 1, 2], [1, 1, 3], [2, 1, 2]]
    assert data.keys[2] == ["bank%1:14:00::", "bank%1:06:01::"]
    assert set(data.lemmas) == {("bank", "NOUN")}
    assert len(read_semcor(data_folder / "wsd", limit=1).sentences) == 1


def test_the_evaluation_is_read_with_its_sets(data_folder):
    data = read_evaluation(data_folder / "wsd")
    assert data.sentences == [["a", "bank", "&"], ["very", "peculiar"]]
    assert data.spans.tolist() == [[0, 1, 2], [1, 0, 2]]
    assert data.groups == ["senseval2", "semeval2013"]
    assert len(data.keys[1]) == 2


def test_pairs_find_their_word_in_raw_text(data_folder):
    data = read_pairs(data_folder / "wic", "dev.en-en", get_tokenizer("english"), limit=4)
    assert len(data.same) == 4
    assert data.same.tolist() == [True, False, True, False]
    for sentence, first, last in data.spans:
        assert data.sentences[sentence][first:last] == ["bank"]
    assert data.sentences[1] == ["The", "bank", "closed", "."]


def test_bad_data_is_reported(tmp_path):
    with pytest.raises(MissingFileError, match=r"semcor\.jsonl"):
        read_semcor(tmp_path)
    (tmp_path / "semcor.jsonl").write_text('{"words": ["a"]}\n')
    with pytest.raises(InputError, match="line 1"):
        read_semcor(tmp_path)
    (tmp_path / "x.data").write_text("[{]")
    with pytest.raises(InputError, match="not JSON"):
        read_pairs(tmp_path, "x", get_tokenizer("english"))
