"""Sentiment trees: phrases, roots and broken brackets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import InputError
from elmo.tasks.readers.trees import read_trees
from elmo.tasks.settings import ReadOptions


def test_trees_give_roots_or_all_phrases(write):
    path = write("(3 (2 It) (4 (2 -LRB-) (4 good)))\n\n(0 (0 bad))\n", "t.txt.xz")
    first, second = read_trees(path, ReadOptions())
    assert (first.words, first.label) == (["It", "(", "good"], "3")
    assert (second.words, second.label, second.place[-6:]) == (["bad"], "0", "line 3")
    found = [(" ".join(e.words), e.label) for e in read_trees(path, ReadOptions(phrases=True))]
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
        read_trees(write(text), ReadOptions())


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
    phrases = read_trees(path, ReadOptions(phrases=True))
    (root,) = read_trees(path, ReadOptions())
    assert phrases[-1] == root or root in phrases
    assert len(phrases) <= text.count("(")
    assert len(root.words) == text.count("(2 ")
