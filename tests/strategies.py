"""What the laws of this package quantify over: model sizes, words, sentences, batches."""

import copy
import itertools
from functools import cache

import torch
from hypothesis import strategies as st

from elmo import Alphabet, BiLM, ElmoConfig
from elmo.backends.cpu.products import onednn_works
from elmo.text.vocabulary import Vocabulary

VOCABULARY = ("<S>", "</S>", "<UNK>", "the", "cat", "sat", "Öl", "河", ".")
"""Words of the models that read words."""
ALPHABET = Alphabet("thecasOlé河.x<>S/🤗ü")
"""Characters of the models that spell words as code points; many words have others, too."""

# Words that have broken some published implementation: none, marks, bytes beyond ASCII, astral
# planes, white space inside, one byte below, at and above the 48 bytes of the standard models.
_NOTABLE = ("", "<S>", "</S>", "<s>", "é", "河", "𐍈𐍉", "🤗", "a b", "\n", "\x00", "the", "The")
_LIMITS = ("x" * 47, "x" * 48, "x" * 49, "ü" * 24, "x" + "ü" * 24, "🤗" * 12, "🤗" * 13, "y" * 300)


@st.composite
def options(draw, cells=("lstm",), reads=("characters",), n_layers=(1, 2, 3), spells=("bytes",)):
    """Draw the content of an `options.json`, odd sizes and every switch included."""
    dim = draw(st.sampled_from([1, 2, 5, 7, 8, 16]))
    width = draw(st.one_of(st.just(dim), st.integers(1, dim)))
    lstm = {
        "dim": dim,
        "projection_dim": width,
        "n_layers": draw(st.sampled_from(n_layers)),
        "cell_clip": draw(clips()),
        "proj_clip": draw(clips()),
        "use_skip_connections": draw(st.booleans()),
    }
    cell = draw(st.sampled_from(cells))
    if cell != "lstm":
        lstm["cell"] = cell
    if draw(st.sampled_from(reads)) == "words":
        return {"lstm": lstm, "n_tokens_vocab": len(VOCABULARY)}
    return {"lstm": lstm, "char_cnn": draw(_char_cnn(width, draw(st.sampled_from(spells))))}


@st.composite
def _char_cnn(draw, width, spelling):
    max_characters = draw(st.sampled_from([3, 4, 8, 13, 50]))
    widths = st.integers(1, min(7, max_characters))
    pairs = draw(st.lists(st.tuples(widths, st.integers(1, 6)), min_size=1, max_size=3))
    if draw(st.booleans()):  # as many filters as the projection is wide: it is then left out
        pairs = [(draw(widths), width)]
    return {
        "activation": draw(st.sampled_from(["relu", "tanh"])),
        "embedding": {"dim": draw(st.integers(1, 5))},
        "filters": [list(pair) for pair in pairs],
        "n_highway": draw(st.integers(0, 2)),
        "n_characters": draw(st.sampled_from([261, 262]))
        if spelling == "bytes"
        else ALPHABET.n_characters,
        "max_characters_per_token": max_characters,
    }


def clips():
    """Bounds: none, ones that bite and the published one."""
    return st.sampled_from([None, 0.25, 1.0, 3.0])


def configs(**limits):
    """Draw an `ElmoConfig`; the arguments are those of `options`."""
    return options(**limits).map(ElmoConfig.from_options)


def words(long=True):
    """Draw any word, surrogates apart; only with `long` some that the standard models cut."""
    text = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
    return st.one_of(st.sampled_from(_NOTABLE + _LIMITS if long else _NOTABLE), text)


def sentences(long=True, min_size=0, max_size=5):
    """Draw a list of words, possibly empty; words repeat often."""
    return st.lists(words(long), min_size=min_size, max_size=max_size)


def batches(long=True, min_size=0, max_size=5):
    """Draw a list of sentences."""
    return st.lists(sentences(long), min_size=min_size, max_size=max_size)


def plain_batches(min_size=1, max_size=6):
    """Draw sentences of words that are in `VOCABULARY` or not."""
    word = st.sampled_from([*VOCABULARY[3:], "dog", "unheard-of"])
    return st.lists(st.lists(word, max_size=6), min_size=min_size, max_size=max_size)


def seeded_bilm(config, seed=0, recurrent_scale=1.0):
    """Build a model whose weights, biases too, are all drawn at random.

    Fresh models have zero biases, behind which a forgotten or doubled bias would hide.
    """
    vocabulary = None if config.reads_characters else Vocabulary(VOCABULARY)
    bilm = BiLM(config, vocabulary, ALPHABET if config.has_alphabet else None).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in bilm.named_parameters():
            fan_in = parameter.shape[1:].numel() if parameter.dim() > 1 else 4
            if name.endswith("embedding.weight"):
                fan_in = 4
            scale = 1.0 if name.startswith("words.") else recurrent_scale
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise * scale / fan_in**0.5)
        bilm.words.embedding.weight[0].zero_()
    return bilm


def word_config(**changes):
    """Give the sizes of a small model that reads the words of `VOCABULARY`."""
    settings = {"n_words": len(VOCABULARY), "filters": (), **changes}
    return ElmoConfig.preset("tiny", **settings)


def alphabet_config(**changes):
    """Give the sizes of a small model that spells words with `ALPHABET`."""
    return ElmoConfig.preset("tiny", n_characters=ALPHABET.n_characters, **changes)


def with_changed_weight(checkpoint, name, value):
    """Copy a checkpoint and overwrite the first value of one tensor."""
    changed = copy.deepcopy(checkpoint)
    changed.tensors[name].view(-1)[0] = value
    return changed


@cache
def rows_are_exact():
    """Tell whether this machine can give a row the same bits among any number of rows.

    It asks oneDNN itself, not our code: weights laid out for many rows, products of two or more.
    """
    if not onednn_works(torch.float32):
        return False
    generator = torch.Generator().manual_seed(0)
    for out, inputs in itertools.product((16, 64, 128, 256, 512), (16, 64, 128, 512)):
        weight = torch.randn(out, inputs, generator=generator)
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, 1024)
        rows = torch.randn(100, inputs, generator=generator)
        many = torch.ops.mkldnn._linear_pointwise(rows, packed, None, "none", [], "")
        for few in (2, 3, 5, 8, 17, 64):
            part = torch.ops.mkldnn._linear_pointwise(rows[:few], packed, None, "none", [], "")
            if not torch.equal(part, many[:few]):
                return False
    return True
