"""Treebanks give words and tags, and a linear probe learns what is linear."""

import pytest
import torch

from elmo.analysis.probing.tagging import LinearProbe, read_treebank
from elmo.errors import InputError, MissingFileError

CONLLU = (
    "# sent_id = 1\n"
    "1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tdo\tdo\tAUX\t_\t_\t_\t_\t_\t_\n"
    "2\tn't\tnot\tPART\t_\t_\t_\t_\t_\t_\n"
    "2.1\tgo\tgo\tVERB\t_\t_\t_\t_\t_\t_\n"
    "\n"
    "1\tStop\tstop\tVERB\t_\t_\t_\t_\t_\t_\n"
)


def test_a_treebank_gives_words_and_tags(tmp_path):
    path = tmp_path / "en-test.conllu"
    path.write_text(CONLLU)
    found = read_treebank(tmp_path, "test", 1000)
    assert sorted((s.words, s.tags) for s in found) == [
        (["Stop"], ["VERB"]),
        (["do", "n't"], ["AUX", "PART"]),
    ]
    assert len(read_treebank(tmp_path, "test", 1)) == 1


def test_a_treebank_that_is_not_one_is_refused(tmp_path):
    with pytest.raises(MissingFileError, match="no such folder"):
        read_treebank(tmp_path / "missing", "test", 10)
    with pytest.raises(MissingFileError, match="0 files"):
        read_treebank(tmp_path, "train", 10)
    (tmp_path / "a-train.conllu").write_text("The cat sat .\n")
    with pytest.raises(InputError, match=r"line 1: 1 columns"):
        read_treebank(tmp_path, "train", 10)


def test_a_probe_learns_what_is_linear_and_always_the_same():
    generator = torch.Generator().manual_seed(0)
    vectors = 5 + 100 * torch.randn(300, 6, generator=generator)
    vectors[:, 5] = 7.0  # says nothing
    labels = (vectors[:, :3] @ torch.randn(3, 4, generator=generator)).argmax(dim=1)
    probe = LinearProbe(vectors, labels, 4)
    answers = probe.predict(vectors)
    assert (answers == labels).float().mean() > 0.95
    assert torch.equal(LinearProbe(vectors, labels, 4).predict(vectors), answers)
