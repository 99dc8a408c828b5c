"""`ELMo`: words or texts in, contextualized vectors out."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NoReturn,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_args,
    overload,
)

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm.auto import tqdm

from elmo.backends import choose
from elmo.config import ElmoConfig
from elmo.embed.pipeline import (
    Pipeline,
    deliver_arrays,
    deliver_tensors,
    mix_layers,
    select_layers,
)
from elmo.errors import ConfigError, ElmoError, ElmoWarning, InputError
from elmo.model.bilm import BiLM, Checkpoint, State
from elmo.runtime.devices import find_device
from elmo.settings import (
    EmbedSettings,
    Layers,
    ModelChoice,
    OutputDtype,
    Precision,
    StatePolicy,
    TokenizerChoice,
    precision_of,
)
from elmo.text.files import Tokenizer, get_tokenizer
from elmo.text.sentences import (
    LINES_LOOKED_AT,
    Words,
    checked_sentences,
    collector_paused,
    listed_sentences,
    tokenized_texts,
)

if TYPE_CHECKING:
    from elmo.text.mismatch import Expected
    from elmo.weights.token_file import TokenFile

Array = npt.NDArray[np.float32]
Dtype = OutputDtype | type[np.float32] | type[np.float16] | np.dtype[Any] | torch.dtype
"""Numbers of results: by name, or as a type of NumPy or PyTorch."""
OutputValue = Literal["sentence_embedding", "token_embeddings"]
Text = str | Iterable[str]
"""A raw text, or its words."""
T = TypeVar("T")

_WATCHED_CALLS = 10
"""Calls whose texts are looked at: a few are enough to see what a program passes."""
_LAYER_NAMES = ("forward", "batch_to_ids", "get_output_dim", "parameters", "train", "state_dict")
"""What an `ElmoLayer` has, and users look for here."""

logger = logging.getLogger(__name__)


class Reading(TypedDict, total=False):
    """How sentences are read; see `ELMo.encode_tokens`."""

    layers: Layers
    state: StatePolicy
    batch_size: int | None
    batch_tokens: int | None
    show_progress_bar: bool | None
    dtype: Dtype


class TextReading(TypedDict, total=False):
    """How texts are read; see `ELMo.encode`."""

    prompt: str | None
    batch_size: int | None
    show_progress_bar: bool | None
    device: str | torch.device | None
    normalize_embeddings: bool
    truncate_dim: int | None
    layers: Layers
    state: StatePolicy
    batch_tokens: int | None


class ELMo:
    """Computes vectors of words that depend on the whole sentence.

    Load one with `from_pretrained`. A vector depends on the sentence and the model alone, never on
    the other sentences of the call, their order, or the size of a batch; only `state="carry"` is
    different, by definition.

    Args:
        model: A model, or weights that were read from a file.
        precision: In which numbers weights are kept and multiplied. Smaller ones are faster, most
            of all for single sentences, and less exact: against float64, values of `small-en`
            (their standard deviation is 0.38) were off by at most 1.5e-5 in `fp32` and `fp16`
            (whose weights it has anyway), 1.7e-2 in `bf16` and 1.3e-1 in `int8`, on average by
            2.5e-7, 1.3e-3 and 6.9e-3, with cosines of at least 0.99996 in `bf16` and 0.9988 in
            `int8`; a linear probe for parts of speech changed at most 5 of 10,000 tags in `bf16`
            and 31 in `int8`, its accuracy by at most 0.1 points (CPU with VNNI or AVX512-BF16;
            with AVX2 alone errors are a little smaller). `elmo bench MODEL` measures any
            model. On a GPU: `fp32` without TF32, `bf16` or `fp16`; not `int8`.
        device: Where to compute; if None, a GPU if there is one.
        tokenizer: How `encode` splits raw texts into words; if None, as the model's own text was
            split (`config.tokenizer`), at white space where that is not known.
        word_cache_mb: Memory for the context-free vectors of words seen before; by default 64 on
            a CPU and 512 on a GPU, in its own memory.
        token_file: Precomputed context-free vectors, as `elmo cache` writes them.
        name: What the model is called; its card says what text it expects.
        with_fingerprint: Whether to compute the fingerprint at once, which is faster than later.

    Example:
        >>> from elmo import ELMo, ElmoConfig, random_bilm
        >>> model = ELMo(random_bilm(ElmoConfig.preset("tiny")))
        >>> [vectors.shape for vectors in model.encode_tokens([["A", "cat", "."], ["Hello"]])]
        [(3, 3, 32), (3, 1, 32)]
    """

    def __init__(
        self,
        model: Checkpoint | BiLM,
        *,
        precision: Precision = "fp32",
        device: str | torch.device | None = None,
        tokenizer: TokenizerChoice | Tokenizer | None = None,
        word_cache_mb: float | None = None,
        token_file: TokenFile | None = None,
        name: str | None = None,
        with_fingerprint: bool = False,
    ) -> None:
        if not isinstance(model, Checkpoint | BiLM):
            raise ConfigError(
                f"model is {model!r}, expected a Checkpoint or a BiLM; ELMo.from_pretrained loads "
                "one by its name, folder or file"
            )
        checkpoint = model.to_checkpoint() if isinstance(model, BiLM) else model
        self.config: ElmoConfig = checkpoint.config
        self.name = name
        self._chosen_tokenizer = tokenizer
        self._tokenizer = None if tokenizer is None else self._open_tokenizer()
        self.precision: Precision = precision
        if word_cache_mb is not None and word_cache_mb < 0:
            raise ConfigError(f"word_cache_mb is {word_cache_mb}, expected 0 or more")
        self._word_cache_mb = word_cache_mb
        self._token_file = token_file
        self._softmax = checkpoint.softmax
        self._lookup = checkpoint.lookup
        self._vocabulary = checkpoint.vocabulary
        self._n_parameters = checkpoint.n_parameters
        self._calls_to_watch = _WATCHED_CALLS
        # Rounded weights cannot be restored, so their fingerprint is computed now.
        now = with_fingerprint or precision != "fp32" or self._lookup is not None
        self._fingerprint = checkpoint.fingerprint() if now else None
        warm_state, bilm = checkpoint.warm_state, BiLM.from_checkpoint(checkpoint)
        del checkpoint, model  # so that weights can be freed one by one while they are packed
        backend = choose(bilm, device, precision)
        self._pipeline = Pipeline(backend, warm_state, word_cache_mb, token_file, self._lookup)
        if token_file is not None:
            compute = self._pipeline.words.source.compute
            token_file.require_made_by(self.fingerprint, compute, self.config.projection_dim)

    # --- loading and saving -----------------------------------------------------------------------

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path | None = None,
        *,
        options: str | Path | None = None,
        weights: str | Path | None = None,
        precision: Precision | None = None,
        dtype: str | torch.dtype | None = None,
        device: str | torch.device | None = None,
        tokenizer: TokenizerChoice | Tokenizer | None = None,
        word_cache_mb: float | None = None,
        token_file: TokenFile | str | Path | None = None,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        token: bool | str | None = None,
        local_files_only: bool = False,
        force_download: bool = False,
    ) -> Self:
        """Load a model in any layout.

        Args:
            name_or_path: A folder, a weights file, a name that `elmo models` lists (`small-en`,
                `original`, ...), or a repository of the Hugging Face Hub; the default model if
                None. Published models are downloaded when first used.
            options: Instead of a name, an `options.json`, together with `weights`.
            weights: Instead of a name, a `weights.hdf5`, together with `options`.
            precision: See `ELMo`; `fp32` if None.
            dtype: Instead of `precision`, as in transformers: `float32`, `float16` or `bfloat16`,
                by name or as a type of PyTorch.
            device: See `ELMo`.
            tokenizer: See `ELMo`.
            word_cache_mb: See `ELMo`.
            token_file: See `ELMo`; a path will do if the file carries its words inside.
            revision: Branch, tag or commit on the Hub.
            cache_dir: Where downloads are kept.
            token: Access token of the Hub.
            local_files_only: Never ask the network.
            force_download: Download even what is there already.
        """
        from elmo.hub.names import HubOptions, default_model, open_model
        from elmo.weights.token_file import TokenFile

        hub = HubOptions(
            revision=revision,
            cache_dir=cache_dir,
            token=token,
            local_files_only=local_files_only,
            force_download=force_download,
        )
        if isinstance(token_file, str | Path):
            token_file = TokenFile(token_file)
        return cls(
            open_model(name_or_path, options, weights, hub, lookups=True),
            precision=precision_of(precision, dtype),
            device=device,
            tokenizer=tokenizer,
            word_cache_mb=word_cache_mb,
            token_file=token_file,
            name=str(weights or name_or_path or default_model()),
        )

    def save_pretrained(self, folder: str | Path, format: str = "elmo") -> None:
        """Save the model, with its warm state if it has one.

        Args:
            folder: Where to.
            format: `elmo` for `config.json` + `model.safetensors` + model card; `hdf5` for the
                `options.json` + `weights.hdf5` of bilm-tf and AllenNLP (no place for a warm state).
        """
        from elmo.weights.formats import save_checkpoint

        save_checkpoint(self.to_checkpoint(), folder, format)

    def push_to_hub(self, repo_id: str, *, token: str | None = None, private: bool = False) -> str:
        """Upload the model to the Hugging Face Hub; returns the address of the commit."""
        from huggingface_hub import HfApi

        api = HfApi(token=token)
        api.create_repo(repo_id, private=private, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return str(api.upload_folder(repo_id=repo_id, folder_path=folder))

    def to_checkpoint(self) -> Checkpoint:
        """Return weights and warm state in the form that can be saved."""
        return dataclasses.replace(
            self._pipeline.backend.to_checkpoint(),
            config=self.config,
            warm_state=self._pipeline.warm_state,
            softmax=self._softmax,
            lookup=self._lookup,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles: packed weights can only be built again."""
        return {
            "model": self.to_checkpoint(),
            "precision": self.precision,
            "device": str(self.device),
            "tokenizer": self._chosen_tokenizer,
            "word_cache_mb": self._word_cache_mb,
            "token_file": self._token_file,
            "name": self.name,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        model = state.pop("model")
        self.__init__(model, **state)  # type: ignore[misc]

    # --- what it is -------------------------------------------------------------------------------

    def __repr__(self) -> str:
        tokenizer = "unknown" if self._tokenizer is None else self._tokenizer.name
        return (
            f"ELMo(model={self.name!r}, parameters={self._n_parameters:,}, layers={self.n_layers}, "
            f"dim={self.dim}, tokenizer={self.config.tokenizer or tokenizer!r}, "
            f"device='{self.device}', precision={self.precision!r})"
        )

    if not TYPE_CHECKING:  # a type checker should go on telling misspelled names

        def __getattr__(self, name: str) -> NoReturn:
            if name in _LAYER_NAMES:
                raise AttributeError(
                    f"ELMo has no {name!r}: it computes vectors of words and texts, without "
                    "gradients; the layer for task models is elmo.ElmoLayer"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def tokenizer(self) -> Tokenizer:
        """What splits raw texts into sentences and words."""
        if self._tokenizer is None:
            self._tokenizer = self._open_tokenizer()
        return self._tokenizer

    def _open_tokenizer(self) -> Tokenizer:
        return get_tokenizer(self._chosen_tokenizer or "model", self.config.tokenizer)

    @property
    def dim(self) -> int:
        """Width of a word's vector in one layer."""
        return self.config.output_dim

    @property
    def n_layers(self) -> int:
        """Layers of vectors: the context-free one and one for each recurrent layer."""
        return self.config.n_layers + 1

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self._pipeline.device

    @property
    def max_seq_length(self) -> int | None:
        """The longest sentence that can be read: there is no limit."""
        return None

    @max_seq_length.setter
    def max_seq_length(self, length: int | None) -> None:
        if length is not None:
            raise ConfigError(
                f"max_seq_length is {length!r}, expected None: sentences of any length are read; "
                "cut longer texts yourself"
            )

    def get_max_seq_length(self) -> int | None:
        """Return `max_seq_length`."""
        return self.max_seq_length

    @property
    def n_cut_words(self) -> int:
        """How many words so far were longer than the model reads and lost their end."""
        return self._pipeline.n_cut_words

    @property
    def fingerprint(self) -> str:
        """A SHA-256 of sizes and weights, the same whatever file they came from."""
        if self._fingerprint is None:
            self._fingerprint = self._pipeline.backend.to_checkpoint().fingerprint()
        return self._fingerprint

    def get_embedding_dimension(self) -> int:
        """Return the width of a vector; the name is that of sentence-transformers."""
        return self.dim

    get_sentence_embedding_dimension = get_embedding_dimension

    def to(self, device: str | torch.device) -> Self:
        """Move to another device; carried state is forgotten."""
        if find_device(device) != find_device(self.device):
            before = self._pipeline
            bilm = BiLM.from_checkpoint(before.backend.to_checkpoint())
            self._pipeline = Pipeline(
                choose(bilm, device, self.precision),
                before.warm_state,
                self._word_cache_mb,
                self._token_file,
                self._lookup,
            )
        return self

    # --- state ------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget what `state="carry"` has carried so far."""
        self._pipeline.carried.state = None

    @property
    def carried_state(self) -> State | None:
        """What `state="carry"` goes on from, a row for each row of the batch; may be set."""
        return self._pipeline.carried.state

    @carried_state.setter
    def carried_state(self, state: State | None) -> None:
        self._pipeline.carried.state = state

    def warm_up(self, sentences: Iterable[Iterable[str]] | None = None) -> None:
        """Burn the state of `state="warm"` in, once; it is then saved with the model.

        Args:
            sentences: Running text of the model's language, read from the first to the last
                sentence with carried state; a few English sentences if None.
        """
        self._pipeline.warm_up(None if sentences is None else checked_sentences(sentences))

    # --- vectors ----------------------------------------------------------------------------------

    @overload
    def encode_tokens(
        self,
        sentences: Iterable[Iterable[str]],
        *,
        convert_to_tensor: Literal[False] = ...,
        **reading: Unpack[Reading],
    ) -> list[Array]: ...

    @overload
    def encode_tokens(
        self,
        sentences: Iterable[Iterable[str]],
        *,
        convert_to_tensor: Literal[True],
        **reading: Unpack[Reading],
    ) -> list[Tensor]: ...

    @overload
    def encode_tokens(
        self,
        sentences: Iterable[Iterable[str]],
        *,
        convert_to_tensor: bool,
        **reading: Unpack[Reading],
    ) -> list[Array] | list[Tensor]: ...

    def encode_tokens(
        self,
        sentences: Iterable[Iterable[str]],
        *,
        layers: Layers = "all",
        state: StatePolicy = "zero",
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        show_progress_bar: bool | None = None,
        convert_to_tensor: bool = False,
        dtype: Dtype = "float32",
    ) -> list[Array] | list[Tensor]:
        """Compute the vectors of every word of every sentence.

        Args:
            sentences: Lists of words; any iterable of iterables will do.
            layers: `all` for every layer; or one vector a word: `top` for the last layer,
                `average` of all layers, `mix` with the model's own mix weights, or a layer's number
                (0 is the context-free one, -1 the last).
            state: What the layers remember when a sentence begins: nothing (`zero`); a fixed state
                burned in on running text (`warm`); or whatever the sentence before in the same row
                of the batch left behind (`carry`, as AllenNLP always does; see `reset`).
            batch_size: Sentences in a batch at most. It changes results only with `state="carry"`,
                where sentence i follows sentence i - batch_size; 64 there by default.
            batch_tokens: Words in a batch at most; by default chosen by the size of the model.
            show_progress_bar: Whether to show progress; by default when logging is at level INFO.
            convert_to_tensor: Whether to return tensors on this model's device instead of arrays in
                host memory. On a GPU nothing is then copied or waited for, and neighboring
                sentences share memory: `.clone()` what outlives the others.
            dtype: Numbers of the results, by name or as a type of NumPy or PyTorch; `float16`
                halves what is kept and, from a GPU, copied.

        Returns:
            For each sentence, in the order given, shape `(n_layers, n, dim)` for `all`, else
            `(n, dim)`. An empty sentence has n = 0.
        """
        given = listed_sentences(sentences, self._pipeline.checks_words(state))
        self._watch_call(given, "whitespace")
        return self._vectors_of(
            given,
            layers,
            state,
            batch_size,
            batch_tokens,
            show_progress_bar,
            convert_to_tensor,
            _dtype_name(dtype),
        )

    def _vectors_of(
        self,
        given: list[Words],
        layers: Layers,
        state: StatePolicy,
        batch_size: int | None,
        batch_tokens: int | None,
        show_progress_bar: bool | None,
        convert_to_tensor: bool,
        chosen: OutputDtype,
    ) -> list[Any]:
        """Compute vectors; see `encode_tokens`."""
        selection = select_layers(layers, self.config)
        results: list[Any] = [None] * len(given)
        with collector_paused(), _progress_bar(show_progress_bar, sum(map(len, given))) as bar:
            batches = self._pipeline.batches(given, selection, state, batch_size, batch_tokens)
            deliver = deliver_tensors if convert_to_tensor else deliver_arrays
            for batch, vectors in deliver(batches, chosen):
                for number, own in zip(batch.numbers, vectors, strict=True):
                    results[number] = own
                bar.update(sum(batch.sizes))
        self._pipeline.warn_of_cut_words()
        return results

    def stream_tokens(
        self,
        sentences: Iterable[Iterable[str]],
        *,
        layers: Layers = "all",
        state: StatePolicy = "zero",
        batch_size: int | None = None,
        batch_tokens: int | None = None,
    ) -> Iterator[Array]:
        """Yield what `encode_tokens` gives, one by one and in bounded memory.

        The arguments are those of `encode_tokens`; `sentences` may never end.
        """
        words = watched(checked_sentences(sentences), self._watch_call)
        for _, vectors in self.stream_windows(
            words,
            layers=layers,
            state=state,
            batch_size=batch_size,
            batch_tokens=batch_tokens,
        ):
            yield from vectors

    def stream_windows(
        self,
        sentences: Iterable[Words],
        *,
        layers: Layers = "all",
        state: StatePolicy = "zero",
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        dtype: Dtype = "float32",
    ) -> Iterator[tuple[list[Words], list[Array]]]:
        """Yield what `stream_tokens` gives for as many sentences as are worth embedding together.

        On a GPU the next ones are begun before the vectors of the last have come to the host; but
        with `state="carry"`, `carried_state` is always that after what was yielded last.

        Args:
            sentences: Lists of words.
            layers: See `encode_tokens`.
            state: See `encode_tokens`.
            batch_size: See `encode_tokens`.
            batch_tokens: See `encode_tokens`.
            dtype: See `encode_tokens`.

        Yields:
            Some sentences, in the order given, and their vectors.
        """
        chosen = _dtype_name(dtype)
        return self._pipeline.stream(sentences, layers, state, batch_size, batch_tokens, chosen)

    def windows(self, sentences: Iterable[Words]) -> Iterator[list[Words]]:
        """Cut a stream of sentences into lists that are worth embedding in one call."""
        return self._pipeline.windows(sentences)

    @overload
    def encode(
        self,
        inputs: str | Iterable[Text],
        *,
        output_value: Literal["sentence_embedding"] = ...,
        convert_to_numpy: Literal[True] = ...,
        convert_to_tensor: Literal[False] = ...,
        **reading: Unpack[TextReading],
    ) -> Array: ...

    @overload
    def encode(
        self,
        inputs: str | Iterable[Text],
        *,
        output_value: Literal["sentence_embedding"] = ...,
        convert_to_tensor: Literal[True],
        **reading: Unpack[TextReading],
    ) -> Tensor: ...

    @overload
    def encode(
        self,
        inputs: str,
        *,
        output_value: Literal["token_embeddings"],
        convert_to_numpy: Literal[True] = ...,
        convert_to_tensor: Literal[False] = ...,
        **reading: Unpack[TextReading],
    ) -> Array: ...

    @overload
    def encode(
        self,
        inputs: list[str] | list[list[str]],
        *,
        output_value: Literal["token_embeddings"],
        convert_to_numpy: Literal[True] = ...,
        convert_to_tensor: Literal[False] = ...,
        **reading: Unpack[TextReading],
    ) -> list[Array]: ...

    @overload
    def encode(self, inputs: Any = ..., *arguments: Any, **settings: Any) -> Any: ...

    def encode(
        self,
        inputs: Any = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        output_value: OutputValue | None = "sentence_embedding",
        precision: str = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: str | torch.device | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        pool: None = None,
        chunk_size: None = None,
        *,
        sentences: Any = None,
        layers: Layers = "mix",
        state: StatePolicy = "zero",
        batch_tokens: int | None = None,
    ) -> Any:
        """Compute one vector for each text: the mean over its words.

        Arguments and results are those of `SentenceTransformer.encode`; those that an ELMo cannot
        follow are refused with the reason.

        Args:
            inputs: A text, or many; each is a string, which the tokenizer splits into sentences
                and words, or a list of words.
            prompt_name: Not possible: there are no prompts with names.
            prompt: A text to be put before each raw text.
            batch_size: Sentences in a batch at most; it does not change results.
            show_progress_bar: Whether to show progress; by default when logging is at level INFO.
            output_value: `token_embeddings` for the vectors of all words instead of their mean;
                None for a dictionary with both as tensors, and with the words as `tokens`.
            precision: Of the results: `float32`. That of the model is chosen when it is loaded.
            convert_to_numpy: Whether to return arrays; otherwise a list of tensors.
            convert_to_tensor: Whether to return tensors, whatever `convert_to_numpy` says.
            device: Move the model there first.
            normalize_embeddings: Whether to scale vectors to length 1.
            truncate_dim: How many values of each mean to keep; all if None.
            pool: Not possible: one process computes.
            chunk_size: Not possible: of `pool`.
            sentences: Another name of `inputs`, as it was in sentence-transformers.
            layers: Which vectors of a word; see `encode_tokens`, `all` is not possible here.
            state: See `encode_tokens`.
            batch_tokens: See `encode_tokens`.

        Returns:
            Float32 of shape `(dim,)` for one text, `(texts, dim)` for many; with
            `token_embeddings`, `(n, dim)` or a list of them. A text without words gives zeros.
        """
        _refuse_foreign(prompt_name, precision, device, pool, chunk_size)
        whole = isinstance(truncate_dim, int) and not isinstance(truncate_dim, bool)
        if truncate_dim is not None and not (whole and 1 <= truncate_dim <= self.dim):
            raise ConfigError(
                f"truncate_dim is {truncate_dim!r}, expected a whole number from 1 to {self.dim}"
            )
        if layers == "all":
            raise ConfigError("encode gives one vector a word: layers='all' is for encode_tokens")
        if output_value is not None and output_value not in get_args(OutputValue):
            raise ConfigError(f"output_value is {output_value!r}, expected {get_args(OutputValue)}")
        if device is not None:
            self.to(device)
        given = inputs if sentences is None else sentences
        single = isinstance(given, str)
        texts = self._split_texts([given] if single else given, prompt)
        vectors = iter(
            self._vectors_of(
                [sentence for text in texts for sentence in text],
                layers,
                state,
                batch_size,
                batch_tokens,
                show_progress_bar,
                True,
                "float32",
            )
        )
        results: list[dict[str, Any]] = [
            _as_asked(torch.cat([next(vectors) for _ in text]), normalize_embeddings, truncate_dim)
            | {"tokens": [word for sentence in text for word in sentence]}
            for text in texts
        ]
        if output_value is None:
            return results[0] if single else results
        tensors = [result[output_value] for result in results]
        together = output_value == "sentence_embedding" and not single
        if convert_to_tensor and together:
            return torch.stack(tensors) if tensors else torch.empty(0, truncate_dim or self.dim)
        if convert_to_numpy and not convert_to_tensor:
            arrays = [tensor.cpu().numpy() for tensor in tensors]
            if together:
                return np.array(arrays).reshape(len(arrays), truncate_dim or self.dim)
            return arrays[0] if single else arrays
        return tensors[0] if single else tensors

    encode_query = encode_document = encode

    def _split_texts(self, inputs: Iterable[Any], prompt: str | None) -> list[list[Words]]:
        """Split texts, with a prompt before them, into sentences of words."""
        if not isinstance(inputs, list | tuple | Mapping):
            with suppress(TypeError):  # what is no list is named below
                inputs = list(inputs)
        if not isinstance(inputs, list | tuple):
            return list(tokenized_texts(inputs, self.tokenizer))
        raw = [text for text in islice(inputs, LINES_LOOKED_AT) if isinstance(text, str)]
        if raw:
            self._watch_call(raw, self.tokenizer.name)
        if prompt is not None:
            inputs = [prompt + text if isinstance(text, str) else text for text in inputs]
        return list(tokenized_texts(inputs, self.tokenizer))

    # --- what texts look like ---------------------------------------------------------------------

    def _watch_call(self, texts: Sequence[str | Words], tokenizer: str = "whitespace") -> None:
        """Look at the texts of the first calls; see `warn_of_texts`."""
        if self._calls_to_watch > 0 and len(texts):
            self._calls_to_watch -= 1
            option = "ELMo.from_pretrained(..., tokenizer={!r})"
            some = texts[:LINES_LOOKED_AT]
            if not isinstance(texts[0], str):
                option += ".encode(texts)"
                some = [words for words in some if len(words) > 1]  # single words are meant
            self.warn_of_texts(some, tokenizer, option)

    def warn_of_texts(
        self, texts: Sequence[str | Words], tokenizer: str, option: str = "--tokenizer {}"
    ) -> None:
        """Warn, once, of texts that do not look like what the model expects.

        Args:
            texts: Lines of a file, raw texts, or lists of words: the beginning is enough.
            tokenizer: Name of the tokenizer that splits them.
            option: How a tokenizer is chosen, for the message.
        """
        from elmo.text.mismatch import describe_mismatch

        if self._calls_to_watch < 0:
            return
        in_python = "{!r}" in option
        raw = (self.config.tokenizer if in_python else None) or "model"
        split = None if tokenizer == "whitespace" else self.tokenizer.sentences
        expected = expected_text(self.name, self.config, self._vocabulary)
        note = describe_mismatch(texts, tokenizer, expected, split=split, option=option, raw=raw)
        if note is not None:
            self._calls_to_watch = -1
            warnings.warn(note, ElmoWarning, stacklevel=4)

    # --- other outputs ----------------------------------------------------------------------------

    def outputs(
        self,
        tokens: Iterable[Sequence[str]],
        sequence_len: Sequence[int] | None = None,
        *,
        state: StatePolicy = "zero",
    ) -> dict[str, Array]:
        """Return the outputs of the TensorFlow Hub module's signature `tokens`, under their names.

        Args:
            tokens: Sentences as lists of words, padded with anything where `sequence_len` is given.
            sequence_len: True words of each sentence; all of them if None.
            state: See `encode_tokens`.

        Returns:
            `word_emb` of shape `(batch, time, projection_dim)`; `lstm_outputs1`, `lstm_outputs2`,
            ... of `(batch, time, dim)`; `elmo`, their mix, likewise; and `default`, the mean of
            `elmo` over the true words, `(batch, dim)`. Zero where there is no word.
        """
        sentences = list(checked_sentences(tokens))
        if sequence_len is not None:
            sentences = _shortened(sentences, sequence_len)
        longest = max(map(len, sentences), default=0)
        padded = torch.zeros(self.n_layers, len(sentences), longest, self.dim)
        for number, vectors in enumerate(self.encode_tokens(sentences, state=state)):
            padded[:, number, : vectors.shape[1]] = torch.from_numpy(vectors)
        mixed = mix_layers(list(padded), self.config)
        counts = torch.tensor([max(1, len(sentence)) for sentence in sentences]).reshape(-1, 1)
        named = {"word_emb": padded[0, :, :, : self.config.projection_dim]}
        named |= {f"lstm_outputs{k}": padded[k] for k in range(1, self.n_layers)}
        named |= {"elmo": mixed, "default": mixed.sum(dim=1) / counts}
        return {name: tensor.numpy() for name, tensor in named.items()}

    def word_vectors(self, words: Iterable[str]) -> Array:
        """Return the context-free vectors of words, shape `(len(words), projection_dim)`."""
        (checked,) = checked_sentences([words])
        places: dict[str, int] = {}
        rows = [places.setdefault(word, len(places)) for word in checked]
        array: Array = self._pipeline.words.lookup(list(places))[rows].cpu().numpy()
        return array

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the cosine of every row of one `(n, dim)` with every row of the other: `(n, m)`.

        Args:
            embeddings1: Rows as an array, a tensor or a list of them; one vector is one row.
            embeddings2: Likewise.
        """
        return _unit_rows(embeddings1) @ _unit_rows(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the cosine of each row of one with the same row of the other: `(n,)`."""
        return (_unit_rows(embeddings1) * _unit_rows(embeddings2)).sum(dim=-1)


def load_model(choice: ModelChoice, settings: EmbedSettings | None = None) -> ELMo:
    """Load the model that a command names.

    Args:
        choice: Which model.
        settings: Of `elmo embed`, which may name a token file, and needs the fingerprint: it is
            computed before the weights are laid out for a kernel.
    """
    from elmo.hub.names import default_model, open_model
    from elmo.text.vocabulary import Vocabulary
    from elmo.weights.token_file import TokenFile

    file = words = None
    if settings is not None and settings.token_file is not None:
        if settings.token_vocabulary is not None:
            words = Vocabulary.read(settings.token_vocabulary)
        file = TokenFile(settings.token_file, words)
    return ELMo(
        open_model(choice.model, choice.options, choice.weights, lookups=True),
        precision=choice.precision,
        device=choice.device,
        token_file=file,
        name=str(choice.weights or choice.model or default_model()),
        with_fingerprint=settings is not None,
    )


def expected_text(
    name: str | None, config: ElmoConfig, vocabulary: Container[str] | None = None
) -> Expected:
    """Return what is known of the text that a model was trained on.

    Args:
        name: By which the model was loaded; its card may say more.
        config: Of the model.
        vocabulary: Its words.
    """
    from elmo.hub.names import find_card
    from elmo.text.mismatch import Expected

    try:
        card = None if name is None else find_card(name)
    except ElmoError:  # a card that cannot be read is no reason not to embed
        card = None
    return Expected(
        language=None if card is None else card.language,
        tokenizer=config.tokenizer,
        unknown_rate=None if card is None else card.unknown_rate,
        vocabulary=vocabulary,
    )


def watched(texts: Iterable[T], look: Callable[[list[T]], None]) -> Iterator[T]:
    """Yield texts as they are; the first thousand are looked at once all of them have come."""
    iterator, seen = iter(texts), []
    for text in islice(iterator, LINES_LOOKED_AT):
        seen.append(text)
        if len(seen) == LINES_LOOKED_AT:
            look(seen)
        yield text
    if 0 < len(seen) < LINES_LOOKED_AT:
        look(seen)
    yield from iterator


def _dtype_name(dtype: Dtype) -> OutputDtype:
    """Return the name of a type of numbers, given by name or as a type of NumPy or PyTorch."""
    name = dtype.__name__ if isinstance(dtype, type) else str(dtype).removeprefix("torch.")
    for known in get_args(OutputDtype):
        if name == known:
            return cast("OutputDtype", known)
    raise ConfigError(f"dtype is {dtype!r}, expected one of {get_args(OutputDtype)}")


def _refuse_foreign(
    prompt_name: object, precision: object, device: object, pool: object, chunk_size: object
) -> None:
    """Refuse arguments of `SentenceTransformer.encode` that an ELMo cannot follow."""
    for name, value, possible, reason in (
        ("prompt_name", prompt_name, None, "an ELMo has no prompts with names; give prompt"),
        (
            "precision",
            precision,
            "float32",
            "quantize_embeddings of sentence_transformers.util rounds results; "
            "ELMo.from_pretrained(precision='bf16') chooses the numbers of the model",
        ),
        ("pool", pool, None, "one process computes, with all cores or a GPU"),
        ("chunk_size", chunk_size, None, "it belongs to pool"),
    ):
        if value != possible:
            raise ConfigError(f"{name} is {value!r}, expected {possible!r}: {reason}")
    if isinstance(device, list | tuple):
        raise ConfigError(f"device is {device!r}, expected one device: one process computes")


def _as_asked(vectors: Tensor, normalize: bool, truncate_dim: int | None) -> dict[str, Tensor]:
    """Return the vectors `(n, dim)` of a text's words, and their mean; zeros without words."""
    mean = (vectors.sum(dim=0) / max(1, len(vectors)))[:truncate_dim]
    if normalize:
        mean, vectors = F.normalize(mean, dim=-1), F.normalize(vectors, dim=-1)
    return {"sentence_embedding": mean, "token_embeddings": vectors}


def _unit_rows(embeddings: Any) -> Tensor:
    """Return vectors as rows of length 1, `(n, dim)`."""
    if isinstance(embeddings, list | tuple):
        embeddings = torch.stack([torch.as_tensor(vector) for vector in embeddings])
    rows = torch.as_tensor(embeddings)
    return F.normalize(rows.reshape(-1, rows.shape[-1]), dim=-1)


def _shortened(sentences: list[Words], lengths: Sequence[int]) -> list[Words]:
    if len(lengths) != len(sentences):
        raise InputError(f"sequence_len has {len(lengths)} entries for {len(sentences)} sentences")
    for number, (sentence, length) in enumerate(zip(sentences, lengths, strict=True)):
        if not 0 <= length <= len(sentence):
            raise InputError(
                f"sequence_len of sentence {number} is {length}, but it has {len(sentence)} tokens"
            )
    return [sentence[:length] for sentence, length in zip(sentences, lengths, strict=True)]


@contextmanager
def _progress_bar(show: bool | None, total: int) -> Iterator[Any]:
    if show is None:  # as sentence-transformers decides it
        show = logger.getEffectiveLevel() in (logging.INFO, logging.DEBUG)
    with tqdm(total=total, unit=" words", unit_scale=True, disable=not show) as bar:
        yield bar
