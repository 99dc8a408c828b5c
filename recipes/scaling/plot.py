#!/usr/bin/env python3
"""Draw the scaling study: plot.py writes scaling.png beside it from results/SIZE-metrics.jsonl."""

from __future__ import annotations

import json
import math
from pathlib import Path

import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent
SIZES = ("small", "medium", "original")
MINUTES = 3.3


def measured(size: str) -> tuple[list[float], list[float]]:
    """Return words read, in millions, and held-out perplexity, the mean of both directions."""
    words, perplexities = [], []
    for line in (FOLDER / "results" / f"{size}-metrics.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["split"] == "heldout":
            words.append(row["tokens"] / 1e6)
            perplexities.append(math.sqrt(row["ppl_forward"] * row["ppl_backward"]))
    return words, perplexities


def main() -> None:
    """Draw perplexity by words and by minutes."""
    figure, (by_words, by_minutes) = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True)
    for size in SIZES:
        words, perplexities = measured(size)
        minutes = [MINUTES * number / words[-1] for number in words]
        by_words.plot(words, perplexities, marker="o", label=size)
        by_minutes.plot(minutes, perplexities, marker="o", label=size)
    by_words.set(xlabel="million words read", ylabel="held-out perplexity", yscale="log")
    by_words.set_xscale("log")
    by_minutes.set(xlabel="minutes of one H200")
    ticks = [40, 50, 60, 80, 100, 120]
    by_words.set_yticks(ticks, [str(tick) for tick in ticks])
    ticks = [30, 50, 100, 200, 500]
    by_words.set_xticks(ticks, [str(tick) for tick in ticks])
    by_words.minorticks_off()
    by_minutes.legend(frameon=False)
    for axes in (by_words, by_minutes):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(FOLDER / "scaling.png", dpi=110)


if __name__ == "__main__":
    main()
