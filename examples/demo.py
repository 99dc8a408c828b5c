"""The main job in one script: embed a file, then see what context does to a word.

Run it with `make demo`, or `python examples/demo.py [MODEL]` for a model of yours.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from elmo.cli.main import main as elmo
from elmo.hub.names import default_model, is_untrained

SENTENCES = Path(__file__).with_name("sentences.txt")
VECTORS = Path("build/demo.hdf5")
SHORTEST = 4
"""Letters of a word worth looking at; shorter ones are mostly grammar."""

Vectors = npt.NDArray[np.float32]
Places = list[tuple[int, Vectors]]
"""Where a word stands: number of the sentence, and its vectors there `(layers, dim)`."""


def cosine(a: Vectors, b: Vectors) -> Vectors:
    """Compare two words layer by layer: `(layers, dim)` twice -> `(layers,)`."""
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    product: Vectors = (a * b).sum(axis=1) / lengths
    return product


def occurrences(
    sentences: list[list[str]], file: h5py.File
) -> dict[str, list[tuple[int, Vectors]]]:
    """Collect, for every word, the sentences it stands in and its vectors there."""
    found: dict[str, list[tuple[int, Vectors]]] = defaultdict(list)
    for number, words in enumerate(sentences):
        vectors = file[str(number)][...]  # (layers, words, dim)
        for place, word in enumerate(words):
            if len(word) >= SHORTEST:
                found[word].append((number, vectors[:, place]))
    return {word: places for word, places in found.items() if len(places) > 1}


def main() -> int:
    """Embed, compare, print."""
    model = sys.argv[1] if len(sys.argv) > 1 else None
    VECTORS.parent.mkdir(exist_ok=True)
    chosen = ["--model", model] if model else []
    print(f"$ elmo embed {SENTENCES.name} {VECTORS} {' '.join(chosen)}", flush=True)
    code = elmo(["embed", str(SENTENCES), str(VECTORS), "--overwrite", *chosen])
    if code:
        return code
    sentences = [line.split() for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
    with h5py.File(VECTORS) as file:
        words = occurrences(sentences, file)
        print(f"\n{VECTORS}: {len(sentences)} sentences, first one {file['0'].shape}")
    n_layers = len(next(iter(words.values()))[0][1])
    print("\nThe same word in two sentences: cosine of its two vectors, layer by layer.")
    print("Layer 0 reads the word alone, so it is always 1; the layers above read the sentence.\n")
    print(
        "word     " + "".join(f"  layer {k}" for k in range(n_layers)) + "   where they differ most"
    )
    for word, places in sorted(words.items()):
        pairs = [(cosine(a, b), i, j) for (i, a), (j, b) in combinations(places, 2)]
        cosines, first, second = min(pairs, key=lambda pair: float(pair[0][-1]))
        columns = "".join(f"{value:9.3f}" for value in cosines)
        print(f"{word:<9}{columns}   {' '.join(sentences[first])}")
        print(f"{'':<9}{'':<{9 * n_layers}}   {' '.join(sentences[second])}")
    if is_untrained(model):
        print(
            f"\nNote: {model or default_model()} is a small model with RANDOM weights, so these "
            "vectors differ by context but mean nothing yet."
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
