"""Layouts of batches, batches on devices, the contract of a task."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.tasks.heads.base import Layout, WordVectors, send

lengths = st.lists(st.integers(0, 5), min_size=1, max_size=5)


@given(lengths, st.randoms(use_true_random=False))
def test_padding_puts_every_word_in_its_place(sizes, random):
    rows = torch.arange(1.0, sum(sizes) + 1).unsqueeze(1)
    chosen = [k for k in range(len(sizes)) if random.random() < 0.7] or [0]
    layout = Layout.of(sizes, chosen)
    padded = layout.pad(rows)
    starts = np.cumsum([0, *sizes])
    for row, number in enumerate(chosen):
        expected = list(range(starts[number] + 1, starts[number] + 1 + sizes[number]))
        expected += [0] * (padded.shape[1] - sizes[number])
        assert padded[row, :, 0].tolist() == expected
    assert layout.sizes == tuple(sizes[k] for k in chosen)


@given(lengths)
def test_unpadding_undoes_padding(sizes):
    rows = torch.randn(sum(sizes), 3)
    layout = Layout.of(sizes)
    assert torch.equal(layout.unpad(layout.pad(rows)), rows)


def test_batches_are_sent_with_everything_in_them():
    words = WordVectors(torch.ones(2, 3))
    batch = send((Layout.of([2]), torch.ones(1), words, "text"), torch.device("cpu"))
    assert batch[3] == "text"
    assert torch.equal(batch[0].mask, torch.ones(1, 2, dtype=torch.bool))
