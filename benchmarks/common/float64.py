"""The same model in float64: what the errors of faster ways are measured against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from elmo.config import ElmoConfig
from elmo.model.bilm import BiLM, Checkpoint, State
from elmo.text.characters import word_ids

_BATCH = 32


def float64_layers(
    checkpoint: Checkpoint, sentences: Sequence[Sequence[str]], show_progress: bool = False
) -> list[npt.NDArray[np.float64]]:
    """Embed sentences with the plain model in float64, on the CPU.

    Args:
        checkpoint: The weights.
        sentences: Lists of words, none empty.
        show_progress: Whether to show progress.

    Returns:
        For each sentence `(n_layers + 1, n, dim)`.
    """
    model = BiLM.from_checkpoint(checkpoint).double()
    ids = word_ids(model.config, model.vocabulary, model.alphabet)
    order = sorted(range(len(sentences)), key=lambda number: len(sentences[number]))
    results: list[npt.NDArray[np.float64]] = [np.empty(0)] * len(sentences)
    hidden = None if show_progress else True  # None: hidden unless on a terminal
    with tqdm(total=len(order), desc="float64", disable=hidden, leave=False) as bar:
        for start in range(0, len(order), _BATCH):
            numbers = order[start : start + _BATCH]
            rows = [ids.rows(list(sentences[number])) for number in numbers]
            padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
            with torch.no_grad():
                layers = model.run(padded, _zeros(model.config, len(numbers))).layers
            for row, number in enumerate(numbers):
                results[number] = layers[:, row, : len(sentences[number])].numpy()
            bar.update(len(numbers))
    return results


def _zeros(config: ElmoConfig, rows: int) -> State:
    shape = (config.n_layers, 2, rows)
    return State(
        torch.zeros(*shape, config.projection_dim, dtype=torch.float64),
        torch.zeros(*shape, config.dim, dtype=torch.float64),
    )
