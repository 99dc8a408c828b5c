"""First senses from WordNet."""

import numpy as np
import pytest

from conftest import SHARED
from elmo.analysis.probing.sense_data import read_evaluation
from elmo.analysis.probing.wordnet import WordNet
from elmo.analysis.settings import WORDNET
from elmo.errors import InputError, MissingFileError

TASKS = SHARED / "data" / "tasks"


def test_first_senses_are_given_as_keys(wordnet_folder):
    wordnet = WordNet(wordnet_folder)
    assert wordnet.first_sense("Bank", "NOUN") == "bank%1:14:00::"
    assert wordnet.first_sense("peculiar", "ADJ") == "peculiar%5:00:00:odd:02"
    assert wordnet.first_sense("unheard-of", "NOUN") is None


def test_a_folder_without_wordnet_is_reported(tmp_path, wordnet_folder):
    with pytest.raises(MissingFileError, match="wordnet-base"):
        WordNet(tmp_path)
    for path in wordnet_folder.iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "data.noun").write_text("x" * 80)
    with pytest.raises(InputError, match="are the files of one version"):
        WordNet(tmp_path).first_sense("bank", "NOUN")


def test_the_first_senses_of_the_real_wordnet_score_as_published():
    """65.2 on all data sets, as in Raganato et al. (2017), table 2."""
    if not (TASKS / "wsd").is_dir():
        pytest.skip("the data of tasks is not beside the repository (../shared/data/tasks)")
    if not (WORDNET / "index.noun").is_file():
        pytest.skip("WordNet is not installed (Debian: wordnet-base)")
    data, wordnet = read_evaluation(TASKS / "wsd"), WordNet(WORDNET)
    assert len(data.spans) == 7253
    right = {}
    for lemma, keys, group in zip(data.lemmas, data.keys, data.groups, strict=True):
        right.setdefault(group, []).append(wordnet.first_sense(*lemma) in keys)
    scores = {group: round(100 * float(np.mean(r)), 1) for group, r in right.items()}
    assert scores == {
        "senseval2": 66.8, "senseval3": 66.2, "semeval2007": 55.2, "semeval2013": 63.0,
        "semeval2015": 67.8,
    }  # fmt: skip
    assert round(100 * np.mean([r for rights in right.values() for r in rights]), 1) == 65.2
