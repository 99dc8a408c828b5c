"""The settings of training: the flags of `elmo train`, its TOML file, and `run.json`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from elmo.config import Preset
from elmo.errors import ConfigError
from elmo.settings import (
    PART,
    POSITIVE,
    POSITIVE_SHARE,
    SHARE,
    Settings,
    SoftmaxKind,
    at_least,
    flag_of,
)

Reads = Literal["characters", "codepoints", "words"]
"""Input of a model: the UTF-8 bytes of a word, its code points, or its number in a vocabulary."""
Optimizer = Literal["adamw", "adagrad"]
Shuffle = Literal["sentences", "documents", "none"]
TrainPrecision = Literal["fp32", "bf16"]
Kernels = Literal["auto", "plain"]

LENGTHS = ("steps", "tokens", "epochs", "minutes")
"""Flags for the length of a run, of which one is given."""
_CHANGED_ON_RESUME = (*LENGTHS, "device", "resume", "quiet", "kernels", "no_graphs")


@dataclass(frozen=True, kw_only=True)
class TrainSettings(Settings):
    """How a biLM is trained."""

    data: Path | None = None
    """Folder that elmo prepare wrote."""
    out: Path | None = None
    """Folder for the run: snapshots, metrics and the trained model."""
    resume: Path | None = None
    """Go on with the run in this folder; needs no other flag. A new length is allowed."""

    preset: Preset = "small"
    """Size of the model. novel and tutorial are meant for one book on a CPU."""
    reads: Reads | None = None
    """characters: UTF-8 bytes, as published; codepoints: with a dictionary made from the
    vocabulary; words: a table of vectors. By default what the preset says."""
    cell: str | None = None
    """Kind of recurrent cell, if not the preset's: lstm or gru."""
    layers: Annotated[int | None, POSITIVE] = None
    """Recurrent layers, if not the preset's."""
    dim: int | None = None
    """Cells of a layer in one direction, if not the preset's."""
    projection: int | None = None
    """Width of a direction's output, if not the preset's."""

    steps: Annotated[int | None, POSITIVE] = None
    """Length of the run in optimizer steps."""
    tokens: Annotated[int | None, POSITIVE] = None
    """Length of the run in words (each sentence counts one more for its boundary)."""
    epochs: Annotated[float | None, POSITIVE] = None
    """Length of the run in passes over the corpus; 10 if no length is given."""
    minutes: Annotated[float | None, POSITIVE] = None
    """Length of the run in minutes."""

    batch: Annotated[int | None, POSITIVE] = None
    """Streams of text read side by side, on all processes together; by default by preset."""
    unroll: Annotated[int, at_least(1)] = 20
    """Words of each stream in a step: gradients reach back so far, state further."""
    accumulate: Annotated[int, at_least(1)] = 1
    """Batches whose gradients are summed in a step."""
    shuffle: Shuffle = "documents"
    """What is put into a new order in each epoch; sentences of a document stay together."""
    restarts: Annotated[float, SHARE] = 0.1
    """Share of sentences that are read from a zero state, as --state zero does when embedding."""

    softmax: SoftmaxKind | None = None
    """full; sampled: log-uniform candidates; adaptive. By default full up to 5,000 words, then
    sampled."""
    samples: Annotated[int | None, POSITIVE] = None
    """Candidates of the sampled softmax; by default an eighth of the words, 8192 at most."""
    tie: bool = False
    """Share word vectors and softmax weights (only with --reads words)."""
    word_vectors: Path | None = None
    """GloVe or word2vec file to start from (only with --reads words)."""
    freeze_words: bool = False
    """Keep the word vectors as they are (only with --reads words)."""

    optimizer: Optimizer = "adamw"
    """adamw: with warm-up and cosine decay; adagrad: as published, with a constant rate."""
    rate: Annotated[float | None, POSITIVE] = None
    """Learning rate; by default 0.2 for adagrad, and for adamw 0.001, more for large batches."""
    warmup: Annotated[int, at_least(0)] = 500
    """Steps of rising rate (adamw), at most a tenth of the run."""
    weight_decay: Annotated[float, at_least(0)] = 0.0
    """Weight decay (adamw)."""
    clip: Annotated[float | None, POSITIVE] = None
    """Bound on the global norm of the gradient; by default 1, for adagrad 10 as published."""
    dropout: Annotated[float, PART] = 0.1
    """Dropout on every layer's input and on the top output."""
    precision: TrainPrecision = "fp32"
    """bf16: products in bfloat16, weights and state in float32; for GPUs."""
    compile: bool = False
    """Compile the character encoder with torch.compile; pays on GPUs."""

    kernels: Kernels = "auto"
    """auto: fused kernels on a GPU that can run them; plain: PyTorch's own operators instead,
    slower, to compare with."""
    no_graphs: bool = False
    """Let the CPU start every kernel of a step on a GPU, instead of recording a step as a CUDA
    graph and playing it again; slower, to look for faults."""

    start_from: str | None = None
    """Model to go on from instead of random weights: folder, weights file or Hub repository."""
    head_share: Annotated[float | None, SHARE] = None
    """Fraction of training, from its start, in which only the output layer learns; by default 0.3
    if --start-from has no output layer, else 0."""
    layer_decay: Annotated[float, POSITIVE_SHARE] = 1.0
    """Factor of the learning rate for each layer further from the output."""

    validate_every: Annotated[int, at_least(1)] = 1000
    """Steps between measurements of held-out perplexity."""
    validate_tokens: Annotated[int | None, POSITIVE] = None
    """Held-out words that are read each time, at most; by default 200,000, on a CPU 20,000."""
    patience: Annotated[int, at_least(0)] = 0
    """Stop after so many measurements without a better one; 0: never."""
    checkpoint_every: Annotated[int, at_least(1)] = 1000
    """Steps between snapshots from which a run can go on."""
    keep: Annotated[int, at_least(1)] = 2
    """Snapshots that are kept."""
    log_every: Annotated[int, at_least(1)] = 100
    """Steps between rows of metrics.jsonl."""
    hdf5: bool = False
    """Write the best model in the published layout, too (options.json + weights.hdf5)."""
    tensorboard: bool = False
    """Write TensorBoard events, too; needs the extra tensorboard."""
    seed: Annotated[int, at_least(0)] = 0
    """Decides weights, order, dropout and candidates."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ...; under torchrun each process takes its own."""
    quiet: bool = False
    """No progress line."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in LENGTHS if getattr(self, name) is not None]
        if len(given) > 1:
            flags = " and ".join(map(flag_of, given))
            raise ConfigError(f"{flags} are given: a run has one length, choose one of them")

    @property
    def length(self) -> tuple[str, float]:
        """The length of the run: one of `LENGTHS`, and how many of it."""
        for name in LENGTHS:
            if getattr(self, name) is not None:
                return name, getattr(self, name)
        return "epochs", 10

    def over(self, below: TrainSettings) -> TrainSettings:
        """Return other settings with what differs from the default here."""
        changes = self.changes()
        if any(name in LENGTHS for name in changes):
            changes = {name: None for name in LENGTHS} | changes
        return below.replace(**changes)

    def resumed(self, saved: TrainSettings) -> TrainSettings:
        """Return the settings of a resumed run; only its length may differ."""
        for name, value in self.changes().items():
            if name not in _CHANGED_ON_RESUME and value != getattr(saved, name):
                raise ConfigError(
                    f"{flag_of(name)} is {value}, but the run in {self.resume} was "
                    f"started with {getattr(saved, name)}; a resumed run keeps its settings, only "
                    f"{', '.join(map(flag_of, LENGTHS))} may change"
                )
        return self.over(saved)
