"""Draw what context does to a word: `bank` in twelve sentences, layer by layer.

    python examples/senses.py two-senses.svg

Each dot is the vector of `bank` in one sentence, projected to the plane by PCA. Layer 0 reads the
word alone, so that all its dots are one; the layers above read the sentence. The colors are ours:
the model has never seen labels of senses.

Needs the extra plots: pip install ".[plots]".
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo import ELMo

WORD = "bank"
SENTENCES = {
    "river": """
        She sat on the bank of the river.
        They walked along the bank of the stream.
        He fell off the muddy bank into the water.
        The boat lay on the far bank of the lake.
        The horses climbed the steep bank and drank.
        He threw his line from the bank and caught a fish.
        """,
    "money": """
        The bank raised its interest rates.
        My bank charges a fee for that.
        She asked the bank for a loan.
        The bank was founded in London in 1820.
        Her father worked for a bank in Boston.
        They robbed a bank and stole the money.
        """,
}
COLORS = {"river": "#1f77b4", "money": "#d95f02"}
LINE = 0.06
"""Height of a line of text, as a share of the picture."""

Vectors = npt.NDArray[np.float32]


def occurrences(elmo: ELMo, texts: list[str]) -> Vectors:
    """Compute the vectors of the word in each text: `(layers, texts, dim)`."""
    split = [elmo.tokenizer.sentences(text)[0] for text in texts]
    vectors = elmo.encode_tokens(split)
    places = [words.index(WORD) for words in split]
    return np.stack([own[:, place] for own, place in zip(vectors, places, strict=True)], axis=1)


def project(vectors: Vectors) -> Vectors:
    """Project vectors `(n, dim)` on their two principal components: `(n, 2)`."""
    centered = vectors - vectors.mean(axis=0)
    _, _, directions = np.linalg.svd(centered, full_matrices=False)
    points: Vectors = centered @ directions[:2].T
    return points


def draw(layers: Vectors, texts: list[str], senses: list[str], path: Path) -> None:
    """Draw the lowest and the highest layer side by side: `(layers, texts, dim)`."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.hashsalt": WORD, "svg.fonttype": "none"}
    import matplotlib.pyplot as plt

    shape = {"width_ratios": (1, 4.2), "wspace": 0.03}
    figure, (alone, inside) = plt.subplots(1, 2, figsize=(11, 3.4), gridspec_kw=shape, sharey=True)
    for axis, vectors in ((alone, layers[0]), (inside, layers[-1])):
        points = project(vectors)
        axis.scatter(*points.T, c=[COLORS[sense] for sense in senses], s=30)
        axis.margins(x=2.1, y=0.1)
        axis.set(xticks=[], yticks=[])
    alone.set_title("layer 0 reads the word alone", fontsize=10)
    inside.set_title(f"layer {len(layers) - 1} reads the sentence", fontsize=10)
    for sense, color in COLORS.items():
        alone.scatter([], [], color=color, label=f"{WORD} ({sense})")
        own = [number for number, other in enumerate(senses) if other == sense]
        _label(inside, points[own], [texts[number] for number in own], color, sense == "river")
    alone.legend(loc="lower center", frameon=False, fontsize=9)
    date = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(path, metadata=date, bbox_inches="tight")


def _label(axis: Any, points: Vectors, texts: list[str], color: str, left: bool) -> None:
    """Write each text next to its point, those of close points below each other."""
    low, high = axis.get_ylim()
    line, free = LINE * (high - low), high
    for number in np.argsort(-points[:, 1]):
        y = points[number, 1]
        near = points[np.abs(points[:, 1] - y) < line, 0]
        x = near.min() if left else near.max()
        free = min(y, free - line)
        place = {"xytext": (-8 if left else 8, 0), "ha": "right" if left else "left"}
        axis.annotate(
            texts[number],
            (x, free),
            color=color,
            fontsize=8,
            va="center",
            textcoords="offset points",
            **place,
        )


def main() -> int:
    """Embed, draw, and print the cosines within and between the senses."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "two-senses.svg")
    lines = {
        sense: [text.strip() for text in block.strip().splitlines()]
        for sense, block in SENTENCES.items()
    }
    texts = [text for own in lines.values() for text in own]
    senses = [sense for sense, own in lines.items() for _ in own]
    elmo = ELMo.from_pretrained()
    layers = occurrences(elmo, texts)
    same = np.equal.outer(senses, senses)
    pairs = ~np.eye(len(texts), dtype=bool)
    for number, vectors in enumerate(layers):
        cosines = elmo.similarity(vectors, vectors).numpy()
        within, between = cosines[same & pairs].mean(), cosines[~same].mean()
        print(f"layer {number}: mean cosine {within:.2f} within a sense, {between:.2f} between")
    draw(layers, texts, senses, path)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
