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
    Group,
    Settings,
    SoftmaxKind,
    at_least,
    flag_of,
)

InputKind = Literal["characters", "codepoints", "words"]
"""Input of a model: the UTF-8 bytes of a word, its code points, or its place in a vocabulary."""
Optimizer = Literal["adamw", "adagrad"]
Shuffle = Literal["sentences", "documents", "none"]
TrainPrecision = Literal["fp32", "bf16"]
Kernels = Literal["auto", "plain"]

LENGTHS = ("steps", "tokens", "epochs", "minutes")
"""Flags for the length of a run, of which one is given."""
_CHANGED_ON_RESUME = (*LENGTHS, "device", "resume", "quiet", "kernels", "no_cuda_graphs")

_LENGTH, _MODEL, _OUTPUT = Group("Length, instead of --epochs"), Group("Model"), Group("Softmax")
_BATCHES, _OPTIMIZER = Group("Batches"), Group("Optimizer and regularization")
_CHECKPOINTS, _MACHINE = Group("Validation, checkpoints and logs"), Group("Machine")


@dataclass(frozen=True, kw_only=True)
class TrainSettings(Settings):
    """How a biLM is trained."""

    data: Path | None = None
    """Folder that elmo prepare wrote."""
    out: Path | None = None
    """Folder for the run: checkpoints, metrics and the trained model."""
    resume: Path | None = None
    """Resume the run in this folder; needs no other flag. A new length is allowed."""
    preset: Preset = "small"
    """Size of the model. novel and tutorial are meant for one book on a CPU."""
    epochs: Annotated[float | None, POSITIVE] = None
    """Length of the run in passes over the corpus; 10 if no length is given."""
    batch_size: Annotated[int | None, POSITIVE] = None
    """Streams of text in a batch, on all processes together; by default by preset."""
    learning_rate: Annotated[float | None, POSITIVE] = None
    """Peak learning rate; by default 0.2 for adagrad, and for adamw 0.001, more for large
    batches."""
    precision: TrainPrecision = "fp32"
    """bf16: products in bfloat16, weights and state in float32; for GPUs."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ...; under torchrun each process takes its own."""
    quiet: bool = False
    """No progress bar."""

    steps: Annotated[int | None, POSITIVE, _LENGTH] = None
    """Optimizer steps."""
    tokens: Annotated[int | None, POSITIVE, _LENGTH] = None
    """Tokens: words, and one boundary a sentence."""
    minutes: Annotated[float | None, POSITIVE, _LENGTH] = None
    """Minutes of training."""
    patience: Annotated[int, at_least(0), _LENGTH] = 0
    """Early stopping: measurements of held-out perplexity without a better one; 0: never."""

    input: Annotated[InputKind | None, _MODEL] = None
    """characters: UTF-8 bytes, as published; codepoints: with an alphabet made from the
    vocabulary; words: an embedding table. By default by preset."""
    cell: Annotated[str | None, _MODEL] = None
    """Recurrent cell, if not the preset's: lstm or gru."""
    layers: Annotated[int | None, POSITIVE, _MODEL] = None
    """Recurrent layers, if not the preset's."""
    dim: Annotated[int | None, _MODEL] = None
    """Cells of a layer in one direction, if not the preset's."""
    projection_dim: Annotated[int | None, _MODEL] = None
    """Width of a direction's output, if not the preset's."""
    init_from: Annotated[str | None, _MODEL] = None
    """Model to start from instead of random weights: folder, weights file or Hub repository."""
    word_vectors: Annotated[Path | None, _MODEL] = None
    """GloVe or word2vec file to start from (only with --input words)."""
    freeze_word_vectors: Annotated[bool, _MODEL] = False
    """Do not train the word vectors (only with --input words)."""

    softmax: Annotated[SoftmaxKind | None, _OUTPUT] = None
    """full; sampled: log-uniform candidates; adaptive. By default full up to 5,000 words, then
    sampled."""
    softmax_samples: Annotated[int | None, POSITIVE, _OUTPUT] = None
    """Candidates of the sampled softmax; by default an eighth of the words, 8192 at most."""
    tie_embeddings: Annotated[bool, _OUTPUT] = False
    """Share word vectors and softmax weights (only with --input words)."""

    unroll_steps: Annotated[int, at_least(1), _BATCHES] = 20
    """Tokens of each stream in a batch: truncated backpropagation through time. State is carried
    further."""
    grad_accumulation: Annotated[int, at_least(1), _BATCHES] = 1
    """Batches whose gradients are accumulated in a step."""
    shuffle: Annotated[Shuffle, _BATCHES] = "documents"
    """What gets a new order in each epoch; the sentences of a document stay together."""
    state_reset_prob: Annotated[float, SHARE, _BATCHES] = 0.1
    """Probability that the state is zeroed before a sentence, as --state zero does in embedding."""

    optimizer: Annotated[Optimizer, _OPTIMIZER] = "adamw"
    """adamw: with warm-up and cosine decay; adagrad: as published, with a constant rate."""
    warmup_steps: Annotated[int, at_least(0), _OPTIMIZER] = 500
    """Steps of linear warm-up (adamw), at most a tenth of the run."""
    weight_decay: Annotated[float, at_least(0), _OPTIMIZER] = 0.0
    """Weight decay (adamw)."""
    grad_clip: Annotated[float | None, POSITIVE, _OPTIMIZER] = None
    """Bound on the global norm of the gradient; by default 1, for adagrad 10 as published."""
    dropout: Annotated[float, PART, _OPTIMIZER] = 0.1
    """Dropout on every layer's input and on the top output."""
    layer_decay: Annotated[float, POSITIVE_SHARE, _OPTIMIZER] = 1.0
    """Factor of the learning rate from each layer to the one below it."""
    frozen_share: Annotated[float | None, SHARE, _OPTIMIZER] = None
    """Fraction of training, from its start, in which only the output layer learns; by default 0.3
    if --init-from has no output layer, else 0."""

    validate_every: Annotated[int, at_least(1), _CHECKPOINTS] = 1000
    """Steps between measurements of held-out perplexity."""
    validate_tokens: Annotated[int | None, POSITIVE, _CHECKPOINTS] = None
    """Most held-out tokens of a measurement; by default 200,000, on a CPU 20,000."""
    checkpoint_every: Annotated[int, at_least(1), _CHECKPOINTS] = 1000
    """Steps between checkpoints from which a run can be resumed."""
    keep_checkpoints: Annotated[int, at_least(1), _CHECKPOINTS] = 2
    """Checkpoints that are kept."""
    log_every: Annotated[int, at_least(1), _CHECKPOINTS] = 100
    """Steps between rows of metrics.jsonl."""
    hdf5: Annotated[bool, _CHECKPOINTS] = False
    """Write the best model in the published layout, too (options.json + weights.hdf5)."""
    tensorboard: Annotated[bool, _CHECKPOINTS] = False
    """Write TensorBoard events, too; needs the extra tensorboard."""

    seed: Annotated[int, at_least(0), _MACHINE] = 0
    """Decides weights, order, dropout and candidates."""
    compile: Annotated[bool, _MACHINE] = False
    """Compile the character encoder with torch.compile (with --kernels plain)."""
    kernels: Annotated[Kernels, _MACHINE] = "auto"
    """auto: Triton kernels on a GPU that can run them; plain: PyTorch's operators, slower, to
    compare with."""
    no_cuda_graphs: Annotated[bool, _MACHINE] = False
    """Launch each kernel of a step instead of replaying a CUDA graph; slower, to look for
    faults."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in LENGTHS if getattr(self, name) is not None]
        if len(given) > 1:
            flags = " and ".join(map(flag_of, given))
            raise ConfigError(f"{flags} are given: a run has one length, choose one of them")

    @property
    def length(self) -> tuple[str, float]:
        """The length of the run: one of `LENGTHS`, and its value."""
        for name in LENGTHS:
            if getattr(self, name) is not None:
                return name, getattr(self, name)
        return "epochs", 10

    def resumed(self, saved: TrainSettings) -> TrainSettings:
        """Return the settings of a resumed run; only its length may differ."""
        changes = self.changes()
        for name, value in changes.items():
            if name not in _CHANGED_ON_RESUME and value != getattr(saved, name):
                raise ConfigError(
                    f"{flag_of(name)} is {value}, but the run in {self.resume} was "
                    f"started with {getattr(saved, name)}; a resumed run keeps its settings, only "
                    f"{', '.join(map(flag_of, LENGTHS))} may change"
                )
        if any(name in LENGTHS for name in changes):
            changes = {name: None for name in LENGTHS} | changes
        return saved.replace(**changes)
