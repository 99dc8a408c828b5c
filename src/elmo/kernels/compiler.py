"""Builds C++ for this machine, once, and keeps it for later processes: the kernel for its CPU.

There is nothing to install: where a C++ compiler is at hand a library is built when it is first
needed (a few seconds) and kept in the user's cache folder, under a name made of its sources, its
flags and the compiler. Without a compiler, or on another kind of CPU, PyTorch does the work. Other
libraries are built in the same way (`word_numbers.py`).
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

Library = TypeVar("Library", bound=ctypes.CDLL)

SWITCH = "ELMO_NATIVE"
"""Environment variable: 0 keeps libraries from being built and used."""
COMPILERS = ("c++", "g++", "clang++")

_SOURCE = Path(__file__).parent / "cpu" / "native.cpp"
"""What is compiled; the headers that it includes are in the same folder."""
_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared")
_PATIENCE = 300
"""Seconds after which a compiler is given up."""
_AVX2 = {"avx2": "-mavx2", "fma": "-mfma", "f16c": "-mf16c"}
_AVX512 = {f"avx512{part}": f"-mavx512{part}" for part in ("f", "bw", "vl", "dq")}
_MORE = {"avx512_vnni": "-mavx512vnni", "avx512_bf16": "-mavx512bf16"}
_MORE |= {f"amx_{part}": f"-mamx-{part}" for part in ("tile", "bf16", "int8")}
"""What /proc/cpuinfo calls instructions, and the compiler's flag for them."""

logger = logging.getLogger(__name__)


class CannotBuildError(Exception):
    """Why there is no library; always caught, and told where it matters."""


def kernel() -> ctypes.CDLL | None:
    """Give the kernel built for this CPU, or None if there cannot be one; see `why_not`."""
    return _outcome()[0]


def present_kernel() -> Any:
    """Give the kernel to those who know that there is one."""
    library = kernel()
    assert library is not None, "asked for what is not there: see why_not"
    return library


def why_not() -> str:
    """Say in a few words why there is no kernel; empty if there is one."""
    return _outcome()[1]


@cache
def _outcome() -> tuple[ctypes.CDLL | None, str]:
    """Try once: a compiler that fails takes its time."""
    try:
        return _load(), ""
    except CannotBuildError as reason:
        logger.info("no native kernel: %s", reason)
        return None, str(reason)


def instruction_flags(instructions: frozenset[str]) -> list[str]:
    """Choose the compiler's flags for a CPU; empty if it has too little.

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
    """Give what this CPU can do, in the words of /proc/cpuinfo; nothing on other systems."""
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
    flags = instruction_flags(cpu_instructions())
    if not flags:
        raise CannotBuildError(
            f"it needs AVX2, FMA and F16C, which this CPU ({platform.machine()}) is not known to "
            "have"
        )
    return loaded_library(_SOURCE, [*flags, "-pthread"], ctypes.CDLL)


def loaded_library(source: Path, flags: list[str], kind: type[Library]) -> Library:
    """Give a library, built now if it was not before.

    Args:
        source: What is compiled; the headers that it includes are in the same folder.
        flags: What the compiler is told beside what it is always told.
        kind: How ctypes calls it.

    Raises:
        CannotBuildError: There is no such library here, for the reason given.
    """
    if os.environ.get(SWITCH, "1") == "0":
        raise CannotBuildError(f"{SWITCH}=0 switches it off")
    library = _built(source, [*_FLAGS, *flags])
    try:
        return kind(str(library))
    except OSError as error:
        raise CannotBuildError(f"{library} cannot be loaded: {error}") from None


def _built(source: Path, flags: list[str]) -> Path:
    compiler = _compiler()
    named = "\0".join([compiler, _version(compiler), *flags, *_contents(source.parent)])
    name = f"{source.stem}-{hashlib.sha256(named.encode()).hexdigest()[:24]}.so"
    folder = _folder()
    library = folder / name
    if library.is_file():
        return library
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".so.partial")
    os.close(handle)
    try:
        command = [compiler, *flags, str(source), "-o", temporary]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
        if done.returncode:
            first = next(iter(done.stderr.strip().splitlines()), "no message")
            raise CannotBuildError(f"{compiler} failed: {first}")
        Path(temporary).replace(library)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuildError(f"{compiler} failed: {error}") from None
    finally:
        Path(temporary).unlink(missing_ok=True)
    return library


def _contents(folder: Path) -> list[str]:
    """Give the names of all sources, each with a hash of what is in it, in a fixed order."""
    files = [path for path in folder.iterdir() if path.suffix in (".cpp", ".h")]
    return [
        f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in sorted(files)
    ]


def _compiler() -> str:
    asked = os.environ.get("CXX")
    for name in (asked,) if asked else COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    names = asked or ", ".join(COMPILERS)
    raise CannotBuildError(f"no C++ compiler ({names}): install one, such as Debian's g++")


def _version(compiler: str) -> str:
    try:
        done = subprocess.run(
            [compiler, "--version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuildError(f"{compiler} cannot be run: {error}") from None
    return done.stdout


def _folder() -> Path:
    """Give a folder for libraries in which nobody else can write: what is there gets loaded."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "elmo-torch" / "kernels"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.stat()
        if facts.st_uid == os.getuid() and not facts.st_mode & 0o022 and os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return _private_folder()


@cache
def _private_folder() -> Path:
    """Give a fresh folder for this process, where the cache cannot be used."""
    return Path(tempfile.mkdtemp(prefix="elmo-kernels-"))
