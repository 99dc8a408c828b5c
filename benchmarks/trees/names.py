"""Flags and keys that got other names since: scripts use the new ones, an older tree its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

_TRAIN = {
    "--batch-size": "--batch",
    "--frozen-share": "--head-share",
    "--freeze-word-vectors": "--freeze-words",
    "--grad-accumulation": "--accumulate",
    "--grad-clip": "--clip",
    "--init-from": "--start-from",
    "--input": "--reads",
    "--keep-checkpoints": "--keep",
    "--learning-rate": "--rate",
    "--no-cuda-graphs": "--no-graphs",
    "--projection-dim": "--projection",
    "--softmax-samples": "--samples",
    "--state-reset-prob": "--restarts",
    "--tie-embeddings": "--tie",
    "--unroll-steps": "--unroll",
    "--warmup-steps": "--warmup",
}
_PREPARE = {
    "--heldout-share": "--heldout",
    "--max-sentence-length": "--max-sentence",
    "--min-sentence-length": "--min-sentence",
}
_TASK = {"--batch-size": "--batch", "--cache-dir": "--cache", "--hidden-size": "--hidden"}
_FLAGS = {
    "prepare": _PREPARE,
    "train": _TRAIN,
    "finetune": _TRAIN,
    "task": _TASK,
    "similar": {"--vocabulary": "--words"},
    "neighbors": {"--static-vectors": "--static"},
}
"""Old names of flags, by command and new name."""
_KEYS = {
    "best_round": "best_epoch",
    "gradient_norm": "grad_norm",
    "max_sentence": "max_sentence_length",
    "min_sentence": "min_sentence_length",
    "heldout": "heldout_share",
    "ppl_backward": "perplexity_backward",
    "ppl_forward": "perplexity_forward",
    "rate": "learning_rate",
    "round": "epoch",
    "rounds": "epochs",
}
"""New names of keys of JSON files, by old name."""


_ANALYSIS_KEYS = {
    "centred_explained_variance": "centered_explained_variance",  # codespell:ignore centred
    "closeness": "cosine_to_center",
    "compared": "n_compared",
    "figures": "pairs",
    "occurrences_of_word": "n_occurrences",
    "random_words": "baseline_words",
    "way": "condition",
}
"""The same for reports of analysis, at any depth."""


def own_flags(package: Path, arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command with the flags that a tree has.

    Args:
        package: The folder of the tree's package.
        arguments: The command and its arguments, with flags as they are now.
    """
    settings = package / "training" / "settings.py"
    if settings.is_file() and "learning_rate:" in settings.read_text(encoding="utf-8"):
        return list(arguments)
    old = _FLAGS.get(arguments[0], {})
    return [old.get(argument, argument) for argument in arguments]


def renamed(value: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object with its keys as they are named now; a nested object stays as it is."""
    return {_KEYS.get(key, key): entry for key, entry in value.items()}


def renamed_report(value: Any) -> Any:
    """Return a report of analysis with its keys as they are named now."""
    if isinstance(value, dict):
        return {_ANALYSIS_KEYS.get(key, key): renamed_report(v) for key, v in value.items()}
    return [renamed_report(entry) for entry in value] if isinstance(value, list) else value
