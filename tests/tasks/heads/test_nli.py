"""Entailment: what ESIM computes, what padding does not change, what it can learn."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ElmoWarning, InputError
from elmo.tasks.heads.labels import LabelBatch
from elmo.tasks.heads.nli import Nli, cross_attention, pooled_pair
from elmo.tasks.readers.examples import EntailmentPair
from elmo.tasks.settings import ReadOptions
from heads import built, half_loss, predictions, trained, vectors_of, widened

TASK = Nli(("different", "same"))
WORDS = "ant bee cat dog eel fox gnu hen".split()
sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6)
pairs = st.builds(EntailmentPair, sentences, sentences, st.sampled_from(TASK.labels))


def made_up(count):
    """Pairs of words: the same word entails itself."""
    generator = np.random.default_rng(0)
    examples = []
    for number in range(count):
        first, second = generator.choice(WORDS, 2, replace=False).tolist()
        same = number % 2
        label = TASK.labels[same]
        examples.append(EntailmentPair(["a", first], [first if same else second, "!"], label))
    return examples


def test_it_learns_which_words_are_the_same():
    examples = made_up(64)
    head = trained(TASK, examples, steps=60, hidden_size=16)
    found = predictions(TASK, head, examples)
    assert TASK.evaluate(examples, found) == {"accuracy": 1.0, "macro_f1": 1.0}
    assert sum(found[0].probabilities.values()) == pytest.approx(1)


@given(st.lists(pairs, min_size=1, max_size=4), st.integers(1, 5), st.sampled_from([0, 3]))
def test_neighbors_and_padding_change_no_score(examples, more, output_dim):
    head = built(TASK, hidden_size=5, output_dim=output_dim).eval()
    batch = TASK.collate(examples)
    vectors = vectors_of(TASK, examples, output_dim)
    together = head(vectors, batch)
    padded = head(vectors, LabelBatch(widened(batch.layout, more), batch.labels))
    torch.testing.assert_close(padded, together, rtol=1e-4, atol=1e-5)
    for row, example in enumerate(examples):
        alone = head(vectors_of(TASK, [example], output_dim), TASK.collate([example]))
        torch.testing.assert_close(alone[0], together[row], rtol=1e-4, atol=1e-5)


def test_products_in_bfloat16_give_nearly_the_same_loss():
    examples = made_up(6)
    exact = built(TASK, hidden_size=8, dropout=0.0)
    expected = exact.loss(vectors_of(TASK, examples), TASK.collate(examples)).item()
    head = built(TASK, hidden_size=8, dropout=0.0)
    assert half_loss(TASK, head, examples) == pytest.approx(expected, rel=0.05)
    with torch.autocast("cpu", torch.bfloat16):
        assert len(predictions(TASK, head.eval(), examples)) == 6


def test_texts_are_compared_as_a_loop_would():
    generator = torch.Generator().manual_seed(0)
    encoded = torch.randn(4, 5, 3, generator=generator)
    lengths = [2, 5, 4, 1]  # two premises, their two hypotheses
    mask = torch.arange(5) < torch.tensor(lengths).unsqueeze(1)
    encoded = encoded * mask.unsqueeze(-1)
    compared = cross_attention(encoded, mask)
    for one, other in ((0, 2), (2, 0), (1, 3), (3, 1)):
        for k in range(lengths[one]):
            own = encoded[one, k].numpy()
            scores = [float(own @ encoded[other, m].numpy()) for m in range(lengths[other])]
            weights = np.exp(scores) / np.exp(scores).sum()
            seen = sum(w * encoded[other, m].numpy() for m, w in enumerate(weights))
            expected = np.concatenate([seen, own - seen, own * seen])
            np.testing.assert_allclose(compared[one, k].numpy(), expected, rtol=1e-4, atol=1e-5)


def test_pooling_leaves_padding_out():
    composed = torch.tensor([[[-1.0], [-3.0], [9.0]], [[5.0], [7.0], [9.0]]])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    means_and_highest = [part.item() for part in pooled_pair(composed, mask)]
    assert means_and_highest == [-2.0, 0.0, -1.0, 0.0]


def test_pairs_are_read_from_files_and_from_text(tmp_path):
    path = tmp_path / "d.jsonl"
    record = {"sentence1": "A b c d.", "sentence2": "Go.", "gold_label": "x"}
    path.write_text(json.dumps(record) + "\n" + json.dumps({**record, "gold_label": "y"}))
    with pytest.warns(ElmoWarning, match=r"2 pairs have a text of more than 2 words.*line 1"):
        examples = Nli.read([path], ReadOptions(max_words=2))
    assert examples[0].premise == ["A", "b"]
    task = Nli.from_examples(examples)
    assert task.labels == ("x", "y")
    with pytest.raises(InputError, match="line 1: unknown label 'x'; the training data have same"):
        Nli(("same",)).check(examples)
    with pytest.raises(InputError, match="nothing to learn"):
        Nli.from_examples(examples[:1])
    (raw,) = task.parse("Don't go.\tGo!\n", ReadOptions())
    assert (raw.premise, raw.hypothesis) == (["Do", "n't", "go", "."], ["Go", "!"])
    assert task.parse(json.dumps(record), ReadOptions())[0].hypothesis == ["Go", "."]
    for text in ("no tab", "a\t", "{]", '{"sentence1": "a"}', "a\tb\tc"):
        with pytest.raises(InputError, match="expected a premise, a tab and a hypothesis"):
            task.parse(text, ReadOptions())


def test_predictions_are_shown_with_both_texts():
    (example,) = TASK.parse("one two\tthree", ReadOptions(tokenizer="whitespace"))
    (prediction,) = predictions(TASK, built(TASK, hidden_size=4).eval(), [example])
    shown = TASK.render(example, prediction)
    assert shown["premise"] == "one two"
    assert shown["hypothesis"] == "three"
    assert shown["label"] in TASK.labels
    json.dumps(shown)
