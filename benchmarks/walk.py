"""Follow one run of `elmo embed`: which functions are called first, second, ... in which modules.

Started as a script (`walk.py SOURCE TEXT OUTPUT FOUND`) it runs and records one `elmo embed`, in a
process whose PYTHONPATH leads to the tree. See `house.py` for what is counted.
"""

from __future__ import annotations

import ast
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

TEXT = "The river bank was green .\nA cat sat on the mat .\nHello !\n"
TIME_LIMIT = 300
"""Seconds of a run."""


@dataclass(frozen=True)
class Walk:
    """The path of one run through the package."""

    modules: list[str]
    """In the order in which they are entered."""
    functions: int
    jumps: int
    """Changes of module along the list of functions."""
    returns: int
    """Of these, those into a module that was entered before."""


def measure(path: Sequence[str]) -> Walk:
    """Count a list of modules, one for each function in the order of first calls."""
    entered: dict[str, None] = dict.fromkeys(path)
    seen = set(path[:1])
    jumps = returns = 0
    for before, after in pairwise(path):
        if after != before:
            jumps += 1
            returns += after in seen
            seen.add(after)
    return Walk(list(entered), len(path), jumps, returns)


def walk_embed(tree: Path) -> Walk:
    """Run `elmo embed` of a checkout twice, the second time followed; the first builds the kernel.

    Args:
        tree: The checkout.
    """
    source = tree / "src"
    environment = {**os.environ, "PYTHONPATH": str(source), "CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryDirectory() as name:
        text, found = Path(name, "text.txt"), Path(name, "walk.json")
        text.write_text(TEXT, encoding="utf-8")
        arguments = [__file__, str(source / "elmo"), str(text), str(Path(name, "out.hdf5"))]
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, *arguments, str(found)],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=TIME_LIMIT,
            )
            if done.returncode:
                raise SystemExit(f"elmo embed of {tree} failed:\n{done.stderr}")
        return measure(json.loads(found.read_text(encoding="utf-8")))


class Follower:
    """A profiling function that notes each function of a package when it is first called.

    Args:
        source: The package's folder.
    """

    def __init__(self, source: Path) -> None:
        self.source = source
        self.codes: dict[CodeType, None] = {}
        self._importing = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call; what importing a module calls is not on the way of the data."""
        code = frame.f_code
        if code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
            self._importing += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not self._importing and not code.co_name.startswith("<"):
            self.codes.setdefault(code)

    def path(self) -> list[str]:
        """Return the modules of the functions, in the order of their first call."""
        inside = [code for code in self.codes if Path(code.co_filename).is_relative_to(self.source)]
        return [_module(code, self.source) for code in inside if not is_attribute(code)]


def _module(code: CodeType, source: Path) -> str:
    parts = Path(code.co_filename).relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and parts[:-1] else parts)


def is_attribute(code: CodeType) -> bool:
    """Return whether a function is a property, or a special method behind an operator."""
    name = code.co_name
    if name.startswith("__") and name.endswith("__"):
        return name not in ("__init__", "__call__")
    return code.co_firstlineno in _properties(code.co_filename)


@cache
def _properties(file: str) -> set[int]:
    """Return the lines at which properties of a file begin, decorators included."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return {
        min(decorator.lineno for decorator in node.decorator_list)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(
            ast.unparse(decorator).endswith(("property", ".setter"))
            for decorator in node.decorator_list
        )
    }


def _follow(source: Path, text: str, output: str, found: Path) -> None:
    """Run `elmo embed` in this process and write its path to a file."""
    follower = Follower(source)
    sys.argv = ["elmo", "embed", text, output, "--overwrite", "--device", "cpu"]
    threading.setprofile(follower)
    sys.setprofile(follower)
    code: object = 0
    try:
        runpy.run_module("elmo", run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        code = stop.code
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    if code:
        raise SystemExit(code)
    path = follower.path()
    if not path:
        raise SystemExit(f"no function of {source} was called: is it first in PYTHONPATH?")
    found.write_text(json.dumps(path), encoding="utf-8")


if __name__ == "__main__":
    _follow(Path(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4]))
