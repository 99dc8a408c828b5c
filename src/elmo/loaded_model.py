"""A biLM where it computes: loaded, moved and saved, what it is, and what it carries along."""

from __future__ import annotations

import dataclasses
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from elmo.backends.cpu.compiler import why_not
from elmo.backends.cpu.model import PackedBiLM
from elmo.backends.cpu.products import runs_natively
from elmo.backends.gpu.model import FusedBiLM, on_gpu
from elmo.config import ElmoConfig
from elmo.embed.pipeline import Pipeline
from elmo.embed.words import TokenFile
from elmo.errors import ConfigError, ElmoWarning
from elmo.hub.names import HubOptions, open_model
from elmo.model.bilm import BiLM
from elmo.model.checkpoint import Checkpoint
from elmo.model.ids import word_ids
from elmo.model.state import State
from elmo.runtime.devices import find_device
from elmo.settings import ModelFormat, Precision, TokenizerName
from elmo.text.files import Tokenizer, get_tokenizer
from elmo.text.sentences import checked_sentences
from elmo.weights.storage import save_checkpoint


class LoadedModel:
    """What `ELMo` is beside the vectors that it gives; the arguments are described there."""

    def __init__(
        self,
        model: Checkpoint | BiLM,
        *,
        precision: Precision = "fp32",
        device: str | torch.device | None = None,
        tokenizer: TokenizerName | Tokenizer = "whitespace",
        word_cache_mb: float | None = None,
        token_file: TokenFile | None = None,
    ) -> None:
        checkpoint = model.to_checkpoint() if isinstance(model, BiLM) else model
        self.config: ElmoConfig = checkpoint.config
        self.tokenizer: Tokenizer = get_tokenizer(tokenizer)
        self.precision: Precision = precision
        if word_cache_mb is not None and word_cache_mb < 0:
            raise ConfigError(f"word_cache_mb is {word_cache_mb}, expected 0 or more")
        self._word_cache_mb = word_cache_mb
        self._token_file = token_file
        self._softmax = checkpoint.softmax
        self._lookup = checkpoint.lookup
        self._told_of_cut_words = False
        # Rounded weights cannot be given back, so their fingerprint is taken now.
        later = precision == "fp32" and self._lookup is None
        self._fingerprint = None if later else checkpoint.fingerprint()
        warm_state = _single_row(checkpoint.warm_state)
        bilm = BiLM.from_checkpoint(checkpoint)
        del checkpoint, model  # so that weights can be freed one by one while they are packed
        self._pipeline = self._build(bilm, device, warm_state)

    def _build(
        self, bilm: BiLM, device: str | torch.device | None, warm_state: State | None
    ) -> Pipeline:
        """Put a model where it will compute: packed on a CPU, fused on a GPU."""
        place = find_device(device)
        model: BiLM | PackedBiLM | FusedBiLM
        if place.type == "cpu":
            if not runs_natively(self.precision):
                _warn(
                    f"precision={self.precision!r} rounds the weights as asked, but computes in "
                    f"float32 and is no faster here: no native kernel ({why_not()})"
                )
            model = PackedBiLM(bilm, self.precision, consume=True)
        else:
            model = on_gpu(bilm, self.precision, place)
        ids = word_ids(self.config, bilm.vocabulary, bilm.alphabet)
        pipeline = Pipeline(
            model, ids, warm_state, self._word_cache_mb, self._token_file, self._lookup
        )
        if self._token_file is not None:
            known = self._fingerprint or model.to_checkpoint().fingerprint()
            width = self.config.projection_dim
            self._token_file.require_made_by(known, pipeline.compute_words, width)
        return pipeline

    # --- loading and saving -----------------------------------------------------------------------

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path | None = None,
        *,
        options: str | Path | None = None,
        weights: str | Path | None = None,
        precision: Precision = "fp32",
        device: str | torch.device | None = None,
        tokenizer: TokenizerName | Tokenizer = "whitespace",
        word_cache_mb: float | None = None,
        token_file: TokenFile | str | Path | None = None,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        token: str | None = None,
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
            precision: See `ELMo`.
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
            precision=precision,
            device=device,
            tokenizer=tokenizer,
            word_cache_mb=word_cache_mb,
            token_file=token_file,
        )

    def save_pretrained(self, folder: str | Path, format: ModelFormat = "elmo") -> None:
        """Save the model, with its warm state if it has one.

        Args:
            folder: Where to.
            format: `elmo` for `config.json` + `model.safetensors` + model card; `hdf5` for the
                `options.json` + `weights.hdf5` of bilm-tf and AllenNLP (no place for a warm state).
        """
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
        """Give weights and warm state in the form that can be saved."""
        warm = self._pipeline.warm_state
        return dataclasses.replace(
            self._pipeline.model.to_checkpoint(),
            config=self.config,
            warm_state=None if warm is None else (warm.hidden[:, :, 0], warm.memory[:, :, 0]),
            softmax=self._softmax,
            lookup=self._lookup,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Give what copies and files need: packed weights can only be made anew."""
        return {
            "model": self.to_checkpoint(),
            "precision": self.precision,
            "device": str(self.device),
            "tokenizer": self.tokenizer,
            "word_cache_mb": self._word_cache_mb,
            "token_file": self._token_file,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        model = state.pop("model")
        self.__init__(model, **state)  # type: ignore[misc]

    # --- what it is -------------------------------------------------------------------------------

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

    @property
    def n_cut_words(self) -> int:
        """How many words so far were longer than the model reads and lost their end."""
        return self._pipeline.n_cut_words

    @property
    def fingerprint(self) -> str:
        """A SHA-256 of sizes and weights, the same whatever file they came from."""
        if self._fingerprint is None:
            self._fingerprint = self._pipeline.model.to_checkpoint().fingerprint()
        return self._fingerprint

    def get_embedding_dimension(self) -> int:
        """Give the width of a vector; the name is that of sentence-transformers."""
        return self.dim

    get_sentence_embedding_dimension = get_embedding_dimension

    def to(self, device: str | torch.device) -> Self:
        """Move to another device; what was carried is forgotten."""
        if find_device(device) != find_device(self.device):
            bilm = BiLM.from_checkpoint(self._pipeline.model.to_checkpoint())
            self._pipeline = self._build(bilm, device, self._pipeline.warm_state)
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
                sentence with carried state; a few English sentences of ours if None.
        """
        self._pipeline.warm_up(None if sentences is None else checked_sentences(sentences))

    def _tell_of_cut_words(self) -> None:
        if self.n_cut_words and not self._told_of_cut_words:
            self._told_of_cut_words = True
            unit = "characters" if self.config.has_alphabet else "bytes"
            _warn(
                f"words longer than the {self.config.max_characters - 2} {unit} that the model "
                f"reads were cut ({self.n_cut_words} so far; n_cut_words goes on counting)"
            )


def _single_row(warm_state: tuple[Tensor, Tensor] | None) -> State | None:
    return None if warm_state is None else State(*(part.unsqueeze(2) for part in warm_state))


def _warn(message: str) -> None:
    warnings.warn(message, ElmoWarning, stacklevel=4)
