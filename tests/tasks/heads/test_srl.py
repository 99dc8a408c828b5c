"""Semantic roles: predicates that are given, marked or found; padding; scores."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.tasks.heads.srl import Srl, SrlPrediction
from elmo.tasks.readers.examples import Frame
from elmo.tasks.settings import ReadOptions
from heads import built, half_loss, predictions, trained, vectors_of, widened

WORDS = "Ann met Bo and left".split()
FRAMES = [
    Frame(WORDS, 1, ["B-A0", "B-V", "B-A1", "O", "O"], (1, 4), "a.jsonl, line 1"),
    Frame(WORDS, 4, ["B-A0", "O", "O", "O", "B-V"], (1, 4), "a.jsonl, line 1"),
]
TASK = Srl.from_examples(FRAMES)
SPLIT = ReadOptions(tokenizer="whitespace")


def test_it_learns_the_roles_of_each_predicate_and_finds_predicates():
    head = trained(TASK, FRAMES, steps=80, hidden_size=16, layers=2)
    found = predictions(TASK, head, FRAMES)
    assert [list(p.tags.items()) for p in found] == [[(f.predicate, f.tags)] for f in FRAMES]
    assert TASK.evaluate(FRAMES, found) == pytest.approx(
        {"f1": 1, "precision": 1, "recall": 1, "predicate_f1": 1}
    )
    (raw,) = TASK.parse("Ann met Bo and left", SPLIT)
    (both,) = predictions(TASK, head, [raw])
    assert both.tags == {frame.predicate: frame.tags for frame in FRAMES}


@given(st.integers(1, 4), st.integers(2, 5))
def test_padding_and_neighbors_do_not_change_roles(more, length):
    examples = [*FRAMES, Frame(WORDS[:length], 1)]
    head = built(TASK, hidden_size=4).eval()
    batch = TASK.collate(examples)
    layout = widened(batch.layout, more)
    flags = batch.flags.new_zeros(layout.mask.shape)
    flags[:, : batch.flags.shape[1]] = batch.flags
    wide = replace(batch, layout=layout, flags=flags)
    tags = [p.tags for p in head.predict(vectors_of(TASK, examples), wide)]
    assert tags == [predictions(TASK, head, [example])[0].tags for example in examples]


def test_products_in_bfloat16_give_nearly_the_same_loss():
    head = built(TASK, hidden_size=8, dropout=0.0)
    exact = head.loss(vectors_of(TASK, FRAMES), TASK.collate(FRAMES)).item()
    assert half_loss(TASK, head, FRAMES) == pytest.approx(exact, rel=0.02)


def test_words_in_brackets_are_predicates():
    marked = TASK.parse("Ann [met] Bo and [ left ]", SPLIT)
    assert [(frame.words, frame.predicate) for frame in marked] == [(WORDS, 1), (WORDS, 4)]
    assert TASK.parse("[ ]", SPLIT)[0].words == ["[", "]"]


def test_a_sentence_counts_once_for_predicates_however_many_frames_it_has():
    found = [SrlPrediction({frame.predicate: frame.tags}, (1,)) for frame in FRAMES]
    assert TASK.evaluate(FRAMES, found)["predicate_f1"] == pytest.approx(2 / 3)


def test_arguments_are_shown_with_their_words():
    record = TASK.render(FRAMES[0], SrlPrediction({1: FRAMES[0].tags}, (1,)))
    (frame,) = record["frames"]
    assert (frame["predicate"], frame["word"]) == (1, "met")
    assert [(a["role"], a["text"]) for a in frame["arguments"]] == [("A0", "Ann"), ("A1", "Bo")]
