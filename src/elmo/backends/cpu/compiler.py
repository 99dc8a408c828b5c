"""Builds C++ for this machine and caches it for later processes: the kernel for its CPU.

There is nothing to install: where there is a C++ compiler, a library is built when it is first
needed (ten seconds) and kept in the user's cache folder, by a hash of its sources, its flags and
the compiler. Without a compiler, or on another kind of CPU, PyTorch is the fallback. The loops of
the GPU backend are built in the same way (`word_numbers.py`, `sentence_copies.py`).
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import TypeVar

from elmo.runtime.files import cache_folder, replacing, sha256_of

Library = TypeVar("Library", bound=ctypes.CDLL)

SWITCH = "ELMO_NATIVE"
"""Environment variable: 0 keeps libraries from being built and used."""
COMPILERS = ("c++", "g++", "clang++")

_SOURCE = Path(__file__).parent / "src" / "native.cpp"
"""What is compiled; the headers that it includes are in the same folder."""
_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared")
_TIME_LIMIT = 300
"""Time limit of a compiler, in seconds."""
_AVX2 = {"avx2": "-mavx2", "fma": "-mfma", "f16c": "-mf16c"}
_AVX512 = {f"avx512{part}": f"-mavx512{part}" for part in ("f", "bw", "vl", "dq")}
_MORE = {"avx512_vnni": "-mavx512vnni", "avx512_bf16": "-mavx512bf16"}
_MORE |= {f"amx_{part}": f"-mamx-{part}" for part in ("tile", "bf16", "int8")}
"""What /proc/cpuinfo calls instructions, and the compiler's flag for them."""

logger = logging.getLogger(__name__)


class CannotBuildError(Exception):
    """Why there is no library; always caught, as there is a fallback."""


def kernel() -> ctypes.CDLL | None:
    """Return the kernel, built for this CPU; None if there cannot be one, see `why_not`."""
    return _outcome()[0]


def why_not() -> str:
    """Return the reason why there is no kernel, in a few words; empty if there is one."""
    return _outcome()[1]


@cache
def _outcome() -> tuple[ctypes.CDLL | None, str]:
    """Build or load the kernel, once in a process: a compiler that fails takes its time."""
    try:
        return _load(), ""
    except CannotBuildError as reason:
        could_be = instruction_flags(cpu_instructions()) and not _is_switched_off()
        level = logging.WARNING if could_be else logging.INFO
        logger.log(level, "no native kernel, PyTorch computes instead, more slowly: %s", reason)
        return None, str(reason)


def instruction_flags(instructions: frozenset[str]) -> list[str]:
    """Return the compiler's flags for a CPU; empty if it lacks what the kernel needs.

    Args:
        instructions: Names as in /proc/cpuinfo.
    """
    if not instructions.issuperset(_AVX2):
        return []
    flags = list(_AVX2.values())
    if instructions.issuperset(_AVX512):
        flags += _AVX512.values()
        flags += [flag for name, flag in _MORE.items() if name in instructions]
    return flags


@cache
def cpu_instructions() -> frozenset[str]:
    """Return the instruction sets of this CPU, as in /proc/cpuinfo; empty on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()


def _load() -> ctypes.CDLL:
    """Build the kernel for all instruction sets of this CPU, or for those the compiler knows."""
    has = cpu_instructions()
    choices: list[list[str]] = []
    for instructions in (has, has - _MORE.keys(), has & _AVX2.keys()):
        flags = instruction_flags(frozenset(instructions))
        if flags and flags not in choices:
            choices.append(flags)
    if not choices:
        raise CannotBuildError(
            f"it needs AVX2, FMA and F16C, which this CPU ({platform.machine()}) is not known to "
            "have"
        )
    first_reason: CannotBuildError | None = None
    for flags in choices:
        try:
            return loaded_library(_SOURCE, [*flags, "-pthread"], ctypes.CDLL)
        except CannotBuildError as reason:
            logger.info("no native kernel with %s: %s", " ".join(flags), reason)
            first_reason = first_reason or reason
    assert first_reason is not None
    raise first_reason


def loaded_library(source: Path, flags: list[str], kind: type[Library]) -> Library:
    """Load a library, and build it if it is not in the cache.

    Args:
        source: What is compiled; the headers that it includes are in the same folder.
        flags: Flags of the compiler besides those of all libraries.
        kind: Its class of ctypes.

    Raises:
        CannotBuildError: There is no compiler or it fails, or the library cannot be loaded.
    """
    if _is_switched_off():
        raise CannotBuildError(f"{SWITCH}=0 switches it off")
    reason = ""
    for _ in range(2):  # a damaged one is built again
        library = _built(source, [*_FLAGS, *flags])
        try:
            return kind(str(library))
        except OSError as error:
            reason = str(error)
        library.unlink(missing_ok=True)
    raise CannotBuildError(f"{library} cannot be loaded: {reason}")


def _is_switched_off() -> bool:
    return os.environ.get(SWITCH, "1") == "0"


def _built(source: Path, flags: list[str]) -> Path:
    """Return the path of a library in the cache, compiled now if it is not there."""
    compiler = _compiler()
    version, folder = _version(compiler), _folder()
    # Everything that changes what is built: compiler, flags, the sources of the folder by hash.
    files = sorted(path for path in source.parent.iterdir() if path.suffix in (".cpp", ".h"))
    contents = [f"{path.name} {sha256_of(path)}" for path in files]
    key = "\0".join([*compiler, version, *flags, *contents])
    library = folder / f"{source.stem}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.so"
    if library.is_file():
        return library
    try:
        with replacing(library) as temporary:
            if source == _SOURCE:  # the loops of the GPU backend take no time
                _announce_build()
            _compile([*compiler, *flags, str(source), "-o", str(temporary)])
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuildError(f"{compiler[0]} failed: {error}") from None
    return library


@cache
def _announce_build() -> None:
    logger.warning("building the C++ kernel for this CPU, once: about ten seconds")


def _compile(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIME_LIMIT)
    if done.returncode:
        first = next(iter(done.stderr.strip().splitlines()), "no message")
        raise CannotBuildError(f"{command[0]} failed: {first}")


def _compiler() -> list[str]:
    """Return the compiler's command; `CXX` may have arguments, too, as in `ccache g++`."""
    asked = os.environ.get("CXX", "").strip()
    for name, *arguments in [shlex.split(asked)] if asked else [[name] for name in COMPILERS]:
        found = shutil.which(name)
        if found:
            return [found, *arguments]
    names = asked or ", ".join(COMPILERS)
    raise CannotBuildError(f"no C++ compiler ({names}): install one, such as Debian's g++")


def _version(compiler: list[str]) -> str:
    try:
        done = subprocess.run(
            [*compiler, "--version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuildError(f"{compiler[0]} cannot be run: {error}") from None
    return done.stdout


def _folder() -> Path:
    """Return a folder for libraries to which only this user can write: they get executed."""
    try:
        folder = cache_folder("kernels")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.stat()
        if facts.st_uid == os.getuid() and not facts.st_mode & 0o022 and os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):  # the latter: the user has no home folder
        pass
    return _private_folder()


@cache
def _private_folder() -> Path:
    """Create a folder for this process alone, where the cache cannot be used."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="elmo-kernels-"))
    except OSError as error:
        raise CannotBuildError(f"there is no folder to keep it in: {error}") from None
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # not in a fork
        shutil.rmtree(folder, ignore_errors=True)
