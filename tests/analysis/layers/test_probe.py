"""A linear probe learns what is linear."""

import torch

from elmo.analysis.layers.probe import LinearProbe


def test_a_probe_learns_what_is_linear_and_always_the_same():
    generator = torch.Generator().manual_seed(0)
    vectors = 5 + 100 * torch.randn(300, 6, generator=generator)
    vectors[:, 5] = 7.0  # says nothing
    labels = (vectors[:, :3] @ torch.randn(3, 4, generator=generator)).argmax(dim=1)
    probe = LinearProbe(vectors, labels, 4)
    answers = probe.predict(vectors)
    assert (answers == labels).float().mean() > 0.95
    assert torch.equal(LinearProbe(vectors, labels, 4).predict(vectors), answers)
