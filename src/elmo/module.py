"""`ElmoLayer`, the layer for task models: character ids in, mixed layers out.

`Elmo` is AllenNLP's name for it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast, get_args

import torch
from torch import Tensor, nn

from elmo.backends import choose
from elmo.backends.base import Backend
from elmo.config import ElmoConfig
from elmo.errors import ConfigError
from elmo.hub.names import HubOptions, default_model, open_model
from elmo.model.bilm import BiLM, BiLMOutput, CarriedState
from elmo.model.scalar_mix import ScalarMix
from elmo.runtime.devices import find_device
from elmo.settings import Precision, precision_of
from elmo.text.characters import checked_ids, word_ids
from elmo.text.sentences import checked_sentences
from elmo.weights.formats import save_checkpoint

Mix = Literal["learned", "top", "average"] | int
ModuleState = Literal["zero", "carry"]

_CHOSEN = 1e4
"""Weight before the softmax that leaves nothing for the other layers, in float32 exactly."""

_ENCODER_NAMES = ("encode", "encode_tokens", "stream_tokens", "word_vectors", "similarity")
"""What an `ELMo` has, and users look for here."""

F = TypeVar("F", bound=Callable[..., None])


def _allennlp_arguments(
    options_file: str | Path | None = None,
    weight_file: str | Path | None = None,
    num_output_representations: int = 1,
    requires_grad: bool = False,
    do_layer_norm: bool = False,
    dropout: float = 0.5,
    vocab_to_cache: Sequence[str] | None = None,
    keep_sentence_boundaries: bool = False,
    scalar_mix_parameters: Sequence[float] | None = None,
    module: nn.Module | None = None,
    **ours: Any,
) -> dict[str, Any]:
    """Return AllenNLP's arguments of `Elmo`, taken in its order, as ours; others stay."""
    if not (isinstance(options_file, str | Path) and isinstance(weight_file, str | Path)):
        raise ConfigError(
            f"options_file is {options_file!r} and weight_file is {weight_file!r}, expected two "
            "files; a model by its name or folder is ElmoLayer.from_pretrained(name, ...)"
        )
    for name, value in (("vocab_to_cache", vocab_to_cache), ("module", module)):
        if value is not None:
            raise ConfigError(
                f"{name} is given, expected None: leave it out. Each different word of a batch is "
                "computed once without it, and a model of your own is ElmoLayer(bilm, ...)"
            )
    return {
        "bilm": BiLM.from_checkpoint(open_model(options=options_file, weights=weight_file)),
        "num_output_representations": num_output_representations,
        "requires_grad": requires_grad,
        "do_layer_norm": do_layer_norm,
        "dropout": dropout,
        "keep_sentence_boundaries": keep_sentence_boundaries,
        "scalar_mix_parameters": scalar_mix_parameters,
        "name": str(weight_file),
        **ours,
    }


def _also_as_allennlp(init: F) -> F:
    """Let the constructor take AllenNLP's arguments, too: files in the place of a biLM."""

    @functools.wraps(init)
    def translated(self: ElmoLayer, *args: Any, **settings: Any) -> None:
        has_files = bool(args) and isinstance(args[0], str | Path)
        if has_files or not settings.keys().isdisjoint(("options_file", "weight_file")):
            init(self, **_allennlp_arguments(*args, **settings))
        else:
            init(self, *args, **settings)

    return cast("F", translated)


class ElmoLayer(nn.Module):
    """Several representations of the same words, each with its own mix of one biLM's layers.

    Only the mixes learn, unless `requires_grad`. Call `.eval()` before use as a fixed feature, or
    the dropout stays on, as in any module.

    AllenNLP's own call works, too: `Elmo(options_file, weight_file, 2, dropout=0.0)`, by position
    or by its names. Its state goes on from batch to batch only if `state="carry"` says so.

    Args:
        bilm: The biLM.
        num_output_representations: How many mixes; the paper uses 1 (input) or 2 (and output).
        requires_grad: Whether the biLM learns with the task.
        do_layer_norm: See `ScalarMix`.
        dropout: Dropout on the representations.
        keep_sentence_boundaries: Whether the vectors of `<S>` and `</S>` stay in.
        scalar_mix_parameters: Fixed weights before the softmax, instead of a `mix`.
        mix: `learned`; or fixed: `top`, `average`, or the number of a layer.
        l2: Coefficient of `penalty`, which pulls learned weights towards the average.
        state: What the layers remember when a sentence begins: nothing (`zero`), or what the
            sentence before left in that row of the batch (`carry`, as AllenNLP; see `reset`).
        name: What the model is called.

    Example:
        >>> from elmo import ElmoConfig, ElmoLayer, batch_to_ids, random_bilm
        >>> elmo = ElmoLayer(random_bilm(ElmoConfig.preset("tiny")), dropout=0.0)
        >>> output = elmo(batch_to_ids([["A", "cat", "."], ["Hello"]]))
        >>> output["elmo_representations"][0].shape, output["mask"].sum().item()
        (torch.Size([2, 3, 32]), 4)
    """

    @_also_as_allennlp
    def __init__(
        self,
        bilm: BiLM,
        num_output_representations: int = 1,
        *,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        mix: Mix = "learned",
        l2: float = 0.0,
        state: ModuleState = "zero",
        name: str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(bilm, BiLM):
            raise ConfigError(
                f"bilm is {bilm!r}, expected a BiLM; ElmoLayer.from_pretrained loads one by its "
                "name, folder or file"
            )
        if state not in get_args(ModuleState):
            raise ConfigError(f"state is {state!r}, expected one of {get_args(ModuleState)}")
        n_mixes = num_output_representations
        if not isinstance(n_mixes, int) or isinstance(n_mixes, bool) or n_mixes < 1:
            raise ConfigError(
                f"num_output_representations is {n_mixes!r}, expected a whole number of at least 1"
            )
        self.name = name
        self.bilm = bilm.requires_grad_(requires_grad)
        self.requires_bilm_grad = requires_grad
        self.keep_sentence_boundaries = keep_sentence_boundaries
        self.state_policy: ModuleState = state
        self.dropout = nn.Dropout(dropout)
        weights = fixed_mix_weights(mix, bilm.config.n_layers + 1, scalar_mix_parameters)
        self.mixes = nn.ModuleList(
            ScalarMix(
                bilm.config.n_layers + 1,
                do_layer_norm=do_layer_norm,
                initial_scalar_parameters=weights,
                trainable=weights is None,
                l2=l2,
            )
            for _ in range(n_mixes)
        )
        self._carried = CarriedState(bilm.config)
        self._backend: tuple[list[tuple[int, int]], Backend] | None = None

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path | None = None,
        num_output_representations: int = 1,
        *,
        options: str | Path | None = None,
        weights: str | Path | None = None,
        precision: Precision | None = None,
        dtype: str | torch.dtype | None = None,
        device: str | torch.device | None = None,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        token: bool | str | None = None,
        local_files_only: bool = False,
        force_download: bool = False,
        **settings: Any,
    ) -> Self:
        """Load the biLM from a folder, a file, the Hub, or a pair of options and weights.

        Args:
            name_or_path: See `ELMo.from_pretrained`, as for the arguments without description.
            num_output_representations: How many mixes.
            options: Instead of a name, an `options.json`, together with `weights`.
            weights: Instead of a name, a `weights.hdf5`, together with `options`.
            precision: `fp32`, in which a task model learns; `torch.autocast` computes in others.
            dtype: The same, as in transformers.
            device: Where to; the CPU if None, as any module.
            revision: Branch, tag or commit on the Hub.
            cache_dir: Where downloads are kept.
            token: Access token of the Hub.
            local_files_only: Never ask the network.
            force_download: Download even what is there already.
            settings: The class's other arguments.
        """
        if precision_of(precision, dtype) != "fp32":
            raise ConfigError(
                f"precision is {precision_of(precision, dtype)!r}, expected 'fp32', in which task "
                "models learn: compute in others with torch.autocast, or use ELMo for vectors"
            )
        hub = HubOptions(
            revision=revision,
            cache_dir=cache_dir,
            token=token,
            local_files_only=local_files_only,
            force_download=force_download,
        )
        bilm = BiLM.from_checkpoint(open_model(name_or_path, options, weights, hub))
        settings.setdefault("name", str(weights or name_or_path or default_model()))
        return cls(bilm, num_output_representations, **settings).to(find_device(device or "cpu"))

    def __repr__(self) -> str:
        config = self.bilm.config
        return (
            f"{type(self).__name__}(model={self.name!r}, "
            f"parameters={sum(weight.numel() for weight in self.bilm.parameters()):,}, "
            f"layers={config.n_layers + 1}, dim={config.output_dim}, mixes={len(self.mixes)}, "
            f"requires_grad={self.requires_bilm_grad}, device='{self.bilm.boundaries.device}', "
            "precision='fp32')"
        )

    if not TYPE_CHECKING:  # a type checker should go on telling misspelled names

        def __getattr__(self, name: str) -> Any:
            if name in _ENCODER_NAMES:
                raise AttributeError(
                    f"{type(self).__name__} has no {name!r}: it is a layer for task models, which "
                    "takes ids of batch_to_ids; vectors of words and texts come from "
                    "elmo.ELMo.from_pretrained(...)"
                )
            return super().__getattr__(name)

    def save_pretrained(
        self, folder: str | Path, format: str = "elmo", representation: int = 0
    ) -> None:
        """Save the biLM, fine-tuned or not, together with one of the mixes.

        `ELMo.from_pretrained(folder).encode_tokens(..., layers="mix")` then gives that mix.

        Args:
            folder: Where to.
            format: `elmo` for our layout; `hdf5` for `options.json` + `weights.hdf5`, which has no
                place for the mix.
            representation: Which mix.
        """
        mix = self.mixes[representation]
        assert isinstance(mix, ScalarMix)
        config = self.bilm.config.replace(
            mix_weights=tuple(weight.item() for weight in mix.scalar_parameters),
            mix_gamma=mix.gamma.item(),
        )
        checkpoint = dataclasses.replace(self.bilm.to_checkpoint(), config=config)
        save_checkpoint(checkpoint, folder, format)

    def get_output_dim(self) -> int:
        """Return the width of a representation."""
        return self.bilm.config.output_dim

    def batch_to_ids(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Return the ids of sentences that this model reads, whatever its alphabet or vocabulary.

        Args:
            sentences: Lists of words.

        Returns:
            Character ids `(batch, time, max_characters)`, or word ids `(batch, time)` for a model
            that reads words; 0 where there is no word.
        """
        bilm = self.bilm
        given = list(checked_sentences(sentences))
        return word_ids(bilm.config, bilm.vocabulary, bilm.alphabet).batch(given)

    def forward(self, ids: Tensor) -> dict[str, Any]:
        """Compute the representations of a batch.

        Args:
            ids: Character ids, `(batch, time, max_characters)` as `batch_to_ids` gives them, or
                with further axes in front; word ids without the last axis for a model that reads
                words.

        Returns:
            `elmo_representations`, a list of `(batch, time, dim)`, and `mask`, `(batch, time)`,
            with the further axes of `ids`.
        """
        lead, flat = _flatten(ids, self.bilm.config)
        output = self._read(flat)
        # Boundaries leave after the mix: its layer norm counts them, as AllenNLP's does.
        mixed = [mix(list(output.layers), output.mask) for mix in self.mixes]
        mask = output.mask
        if not self.keep_sentence_boundaries:
            mask = mask[:, 2:]  # right of the words stands </S>, so two less at the right end
            mixed = [representation[:, 1:-1] for representation in mixed]
        shape = (*lead, mask.shape[1])
        return {
            "elmo_representations": [
                (self.dropout(r) * mask.unsqueeze(-1)).reshape(*shape, r.shape[2]) for r in mixed
            ],
            "mask": mask.reshape(shape),
        }

    def penalty(self) -> Tensor:
        """Return the sum of the mixes' penalties, to be added to the loss."""
        penalties = [mix.penalty() for mix in self.mixes if isinstance(mix, ScalarMix)]
        return torch.stack(penalties).sum()

    def reset(self) -> None:
        """Forget what `state="carry"` has carried so far."""
        self._carried.state = None

    def _read(self, ids: Tensor) -> BiLMOutput:
        carry = self.state_policy == "carry"
        start = self._carried.first_rows(len(ids), ids.device) if carry else None
        if self.requires_bilm_grad and torch.is_grad_enabled():
            output = self.bilm.run(ids, start, keep_boundaries=True)
        else:
            with torch.no_grad(), torch.autocast(ids.device.type, enabled=False):
                output = self._frozen().run(ids, start, keep_boundaries=True)
        if carry:
            self._carried.keep(output.state)
        return output

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles: the backend can only be built again."""
        return {**self.__dict__, "_backend": None}

    def _frozen(self) -> Backend:
        """Return what computes the biLM without gradients, built again when a weight has changed.

        PyTorch counts changes of parameters, but not those made through `.data`.
        """
        versions = [(p.data_ptr(), p._version) for p in self.bilm.parameters()]
        if self._backend is None or self._backend[0] != versions:
            self._backend = None  # two at a time are not needed
            device = self.bilm.boundaries.device
            self._backend = versions, choose(self.bilm, device, consume=False)
        return self._backend[1]


Elmo = ElmoLayer
"""AllenNLP's name."""


def _flatten(ids: Tensor, config: ElmoConfig) -> tuple[tuple[int, ...], Tensor]:
    """Merge the axes in front of (time, characters) into one, and check the ids."""
    ids = checked_ids(ids)
    inner = 2 if config.reads_characters else 1
    if ids.dim() <= inner:
        expected = "(batch, time, characters)" if config.reads_characters else "(batch, time)"
        raise ConfigError(f"ids have shape {tuple(ids.shape)}, expected {expected}")
    if config.reads_characters and ids.shape[-1] != config.max_characters:
        raise ConfigError(
            f"ids have {ids.shape[-1]} characters a word, the model reads {config.max_characters}"
        )
    n_ids = config.n_characters if config.reads_characters else config.n_words + 1
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < n_ids:
        raise ConfigError(
            f"ids reach from {int(ids.min())} to {int(ids.max())}, the model has 0 to {n_ids - 1}; "
            "use its own batch_to_ids"
        )
    lead = tuple(ids.shape[:-inner])
    return lead, ids.reshape(math.prod(lead), *ids.shape[-inner:])


def fixed_mix_weights(
    mix: Mix, n_layers: int, given: Sequence[float] | None = None
) -> Sequence[float] | None:
    """Return the weights before the softmax of a fixed mix; None for one that learns.

    Args:
        mix: `learned`, `top`, `average`, or the number of a layer.
        n_layers: Layers of vectors, the context-free one included.
        given: Weights that the user chose; they take precedence.
    """
    if given is not None or mix == "learned":
        return given
    if mix == "average":
        return [0.0] * n_layers
    layer = n_layers - 1 if mix == "top" else mix
    if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < n_layers:
        raise ConfigError(
            f"mix is {mix!r}, expected 'learned', 'top', 'average' or a layer from 0 to "
            f"{n_layers - 1}"
        )
    return [_CHOSEN if k == layer else 0.0 for k in range(n_layers)]
