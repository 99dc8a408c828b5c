"""Tags of words: schemes, unknown tags, records, padding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ElmoWarning
from elmo.tasks.heads.tag import Tag, TagBatch
from elmo.tasks.readers.examples import TaggedSentence
from elmo.tasks.settings import ReadOptions
from heads import built, half_loss, predictions, trained, vectors_of, widened

SENTENCES = [
    TaggedSentence("Ann saw New York".split(), "B-PER O B-LOC I-LOC".split()),
    TaggedSentence("York saw Bo".split(), "B-LOC O B-PER".split()),
]
TASK = Tag.from_examples(SENTENCES)
words = st.lists(st.sampled_from("Ann saw New York Bo".split()), min_size=1, max_size=5)


def test_it_learns_spans_and_returns_bioes():
    head = trained(TASK, SENTENCES, steps=40, hidden_size=8)
    assert predictions(TASK, head, SENTENCES)[0] == ["S-PER", "O", "B-LOC", "E-LOC"]
    assert TASK.evaluate(SENTENCES, predictions(TASK, head, SENTENCES))["f1"] == 1.0


def test_every_type_has_all_tags_of_the_scheme():
    assert TASK.spans
    assert TASK.tags == ("O", *(f"{p}-{kind}" for kind in ("LOC", "PER") for p in "BIES"))
    pos = Tag.from_examples([TaggedSentence(["a"], ["DET"]), TaggedSentence(["b"], ["NOUN"])])
    assert (pos.spans, pos.tags) == (False, ("DET", "NOUN"))


@given(st.lists(words, min_size=1, max_size=3), st.integers(1, 4))
def test_padding_and_neighbors_do_not_change_tags(sentences, more):
    examples = [TaggedSentence(sentence) for sentence in sentences]
    head = built(TASK, hidden_size=4).eval()
    batch = TASK.collate(examples)
    vectors = vectors_of(TASK, examples)
    wide = widened(batch.layout, more)
    tags = head.predict(vectors, TagBatch(wide, batch.tags))
    assert tags == head.predict(vectors, batch)
    assert tags == [predictions(TASK, head, [example])[0] for example in examples]


def test_products_in_bfloat16_give_nearly_the_same_loss():
    head = built(TASK, hidden_size=8, dropout=0.0)
    exact = head.loss(vectors_of(TASK, SENTENCES), TASK.collate(SENTENCES)).item()
    assert half_loss(TASK, head, SENTENCES) == pytest.approx(exact, rel=0.02)


def test_unknown_tags_are_counted():
    with pytest.warns(ElmoWarning, match=r"1 tags \(S-ORG\) are not in the training data"):
        TASK.check([TaggedSentence(["UN"], ["B-ORG"], "a.conll, line 1")])


def test_a_text_is_shown_with_spans_in_iob2():
    (example,) = TASK.parse("Ann saw New York", ReadOptions(tokenizer="whitespace"))
    record = TASK.render(example, ["S-PER", "O", "B-LOC", "E-LOC"])
    assert record["tags"] == ["B-PER", "O", "B-LOC", "I-LOC"]
    assert record["spans"][1] == {"type": "LOC", "start": 2, "stop": 4, "text": "New York"}
