"""Made-up text whose statistics resemble those of real text, the same on every machine.

What decides the speed of an ELMo is how often words come again, how long words are, and how much
the lengths of sentences differ. All three follow natural language here: word frequencies obey
Zipf's law, frequent words are short, and lengths of sentences are log-normal.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

N_WORDS = 50_000
"""Distinct words of the language."""
SHORTEST, LONGEST = 3, 80
"""Fewest and most words of a sentence."""

# In the order of their frequency in English; Zipf's law holds for letters well enough.
_LETTERS = np.array(list("etaoinshrdlcumwfgypbvkjxqz"))
_LONGEST_WORD = 24
_MEDIAN_SENTENCE, _SPREAD = 18.0, 0.55  # of the log-normal; its mean is close to 21


def make_sentences(number: int, seed: int = 0) -> list[list[str]]:
    """Return sentences, always the same for the same number and seed.

    Args:
        number: How many.
        seed: Another seed gives other sentences of the same language.
    """
    rng = np.random.default_rng(seed)
    drawn = np.round(rng.lognormal(np.log(_MEDIAN_SENTENCE), _SPREAD, number))
    lengths = np.clip(drawn, SHORTEST, LONGEST).astype(int).tolist()
    words = iter(_draw_words(rng, sum(lengths)))
    return [[next(words) for _ in range(length)] for length in lengths]


def make_sentence(length: int, seed: int = 0) -> list[str]:
    """Return one sentence of exactly this many words."""
    return _draw_words(np.random.default_rng(seed), length)


def count_words(sentences: list[list[str]]) -> int:
    """Count the words of all sentences."""
    return sum(map(len, sentences))


def _draw_words(rng: np.random.Generator, number: int) -> list[str]:
    words = vocabulary()
    return [words[rank] for rank in rng.choice(len(words), number, p=_frequencies(len(words)))]


@cache
def vocabulary(seed: int = 0) -> tuple[str, ...]:
    """Return the words of the language, all different, from the most to the least frequent."""
    rng = np.random.default_rng(seed)
    ranks = np.arange(1, N_WORDS + 1)
    # Frequent words are short: about two letters at the top, about seven at the end.
    lengths = np.clip(1 + rng.poisson(1 + 0.5 * np.log(ranks)), 1, _LONGEST_WORD)
    letters = "".join(rng.choice(_LETTERS, lengths.sum(), p=_frequencies(len(_LETTERS))))
    ends = np.cumsum(lengths).tolist()
    seen: dict[str, None] = {}
    for start, end in zip([0, *ends], ends, strict=False):
        word = letters[start:end]
        while word in seen:  # few letters make few words: a taken one is lengthened
            word += str(rng.choice(_LETTERS))
        seen[word] = None
    return tuple(seen)


def _frequencies(number: int) -> npt.NDArray[np.float64]:
    """Return Zipf's frequencies of this many words, which sum to 1."""
    weights = 1 / np.arange(1, number + 1)
    frequencies: npt.NDArray[np.float64] = weights / weights.sum()
    return frequencies
