"""Heads of tasks without the rest: fixed vectors of words, a short training, other paddings."""

import dataclasses
import random
import zlib

import torch

from elmo.tasks.heads.base import FeatureDims, Layout, WordVectors

DIM = 24


def word_vector(word, dim=DIM):
    """A vector for a word, always the same; unknown to no one."""
    generator = torch.Generator().manual_seed(zlib.crc32(word.encode()))
    return torch.randn(dim, generator=generator)


def vectors_of(task, examples, output_dim=0):
    """The vectors of all words of a batch, and others for the output if they are wanted."""
    words = [w for example in examples for sentence in task.sentences(example) for w in sentence]
    given = torch.stack([word_vector(word) for word in words])
    output = None
    if output_dim:
        output = torch.stack([word_vector(f"{word}, too", output_dim) for word in words])
    return WordVectors(given, output)


def built(task, recipe=None, output_dim=0, **changes):
    """A head with weights that are always the same."""
    torch.manual_seed(0)
    recipe = dataclasses.replace(recipe or task.recipe, **changes)
    return task.build(FeatureDims(DIM, output_dim), recipe)


def trained(task, examples, *, steps, batch=16, rate=5e-3, **changes):
    """A head that has seen some batches."""
    head = built(task, dropout=0.0, **changes)
    optimizer = torch.optim.Adam(head.parameters(), lr=rate)
    chooser = random.Random(0)
    for _ in range(steps):
        chosen = chooser.sample(examples, min(batch, len(examples)))
        loss = head.loss(vectors_of(task, chosen), task.collate(chosen))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 5.0)
        optimizer.step()
    return head.eval()


def predictions(task, head, examples):
    """What a head says about examples."""
    with torch.inference_mode():
        return head.predict(vectors_of(task, examples), task.collate(examples))


def half_loss(task, head, examples):
    """The loss with products in bfloat16, and its gradients."""
    with torch.autocast("cpu", torch.bfloat16):
        loss = head.loss(vectors_of(task, examples), task.collate(examples))
    loss.backward()
    assert loss.dtype == torch.float32
    assert all(torch.isfinite(p.grad).all() for p in head.parameters() if p.grad is not None)
    return loss.item()


def widened(layout, more):
    """The same sentences with more padding."""
    index, mask = (torch.nn.functional.pad(part, (0, more)) for part in (layout.index, layout.mask))
    return Layout(index, mask, mask.flatten().nonzero().flatten(), layout.sizes)
