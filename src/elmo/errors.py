"""The errors and warnings of this package.

Each message says what was received, what was expected, and what to do about it. Every error is an
:class:`ElmoError` and also an instance of the built-in exception that fits, so that code which
catches ``ValueError`` or ``FileNotFoundError`` keeps working.
"""


class ElmoError(ValueError):
    """Something the user gave cannot be used; the message says what to change."""


class ConfigError(ElmoError):
    """A configuration or an ``options.json`` with impossible or unknown values."""


class InputError(ElmoError):
    """Sentences, texts or a text file that cannot be embedded as given."""


class WeightsError(ElmoError):
    """Weights that are damaged, or that disagree with their configuration."""


class MissingFileError(ElmoError, FileNotFoundError):
    """A file or folder that is not there."""


class OutputExistsError(ElmoError, FileExistsError):
    """An output that exists already, where nobody allowed to overwrite it."""


class OutputError(ElmoError, OSError):
    """An output that cannot be written on: no space left, not ours, or made with other settings."""


class DownloadError(ElmoError, ConnectionError):
    """A download that stopped half-way; what arrived is kept, and the next try goes on there."""


class DivergedError(ElmoError, ArithmeticError):
    """A training run whose loss is no number any more."""


class GpuMemoryError(ElmoError, MemoryError):
    """Work that needs more memory than the GPU has."""


class MissingExtraError(ElmoError, ImportError):
    """An optional package that is needed here and not installed.

    Args:
        what: The thing that needs the package, as the user named it.
        extra: The extra of this distribution that brings the package.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the '{extra}' extra: pip install \"elmo-torch[{extra}]\"")


class ElmoWarning(UserWarning):
    """Something worth knowing that does not stop the work."""
