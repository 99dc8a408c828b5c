"""Count the house: files, rooms, imports between packages, and what a reader of it has to open.

    python -m benchmarks.house                      # this checkout
    python -m benchmarks.house --tree ../old --json
    python -m benchmarks.house --check              # exit code 1 if a target is missed

Definitions, and how they differ from a count by hand of commit 9fa1a33 (in brackets):

* A *room* is a folder; its files are the `.py` files directly in it, `__init__` included.
* An *import* is a pair of modules, wherever the statement stands, those for type checkers alone
  included. A *package* is the first name below `elmo`, so a module at the top is a package of its
  own: cycles are those between such packages. The order of packages is the constant `ORDER` of
  `tests/test_package.py`: lines of names, each of which may import only from the lines above.
* The *closure* of `elmo.embedder` is every module that importing it executes: imports of function
  bodies and of `if TYPE_CHECKING` are left out, each package's `__init__` is counted (by hand it
  was not: 54 modules and 12,198 lines instead of 56 and 12,271).
* The *path* of `elmo embed` is measured (see `walk.py`): functions of the package in the order of
  their first call while one text is embedded into HDF5 on a CPU with the native kernel, each once,
  however often it is called. Two neighbors of that list in different modules are a *jump*; a jump
  into a module that was entered before is a *return*. Properties and special methods other than
  `__init__` and `__call__` are read as attributes and operators, and left out. (By hand: 41
  modules, 10,069 lines, 107 returns. A run calls a little more than a reader lists: 43 modules,
  10,342 lines, 115 returns.)
* A function is as long as its text from `def` to its end, docstring included.
* A line of comment has nothing but a comment in it.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.walk import Walk, walk_embed

PACKAGE = "elmo"
FRONT_DOOR = "embedder"
OWN_WORDS = ("Give", "Tell", "Say")
"""Verbs with which docstrings should not begin."""
TARGETS = {
    **{f"docstrings that begin with {verb}": 0 for verb in OWN_WORDS},
    "files at the top": 10,
    "files of the largest room": 20,
    "modules on the path of elmo embed": 20,
    "returns on the path of elmo embed": 40,
    "lines behind elmo.embedder": 6_000,
    "installed lines": 33_999,
    "lines of README.md": 250,
    "lines of benchmarks/README.md": 150,
}
"""What is held: the most that each may be."""

Order = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Module:
    """A Python file of the package."""

    name: str
    """Below `elmo`, with dots; that of a package for its `__init__`, `__init__` for the top's."""
    path: Path
    text: str
    tree: ast.Module

    @property
    def n_lines(self) -> int:
        """Lines of the file."""
        return len(self.text.splitlines())

    @property
    def package(self) -> str:
        """The first name below `elmo`."""
        return self.name.split(".")[0]


Modules = Mapping[str, Module]


@dataclass(frozen=True)
class House:
    """All counts of a tree."""

    rooms: dict[str, int]
    """Files of each folder; `.` is the top of the package."""
    numbers: dict[str, float | int]
    imports_between_packages: dict[str, int]
    wrong_imports: list[str]
    """Imports against the written order."""
    cycles: list[list[str]]
    walk: Walk | None

    def missed(self) -> list[str]:
        """Return a line for each target that is missed."""
        lines = [
            f"{name}: {self.numbers[name]:,}, at most {most:,}"
            for name, most in TARGETS.items()
            if self.numbers.get(name, 0) > most
        ]
        if self.wrong_imports:
            lines.append(f"imports against the order: {len(self.wrong_imports)}, at most 0")
        return lines


def read_modules(source: Path) -> dict[str, Module]:
    """Read every Python file below a folder `src/elmo`."""
    modules = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and parts[:-1] else parts)
        text = path.read_text(encoding="utf-8")
        modules[name] = Module(name, path, text, ast.parse(text))
    return modules


# --- imports --------------------------------------------------------------------------------------


def imported(module: Module, modules: Modules, *, executed: bool = False) -> set[str]:
    """Return the modules of the package that one of them imports.

    Args:
        module: Whose imports.
        modules: All of them.
        executed: Only what importing the module executes: nothing in function bodies, nothing for
            type checkers alone.
    """
    found: set[str] = set()
    for node in _statements(module.tree, executed):
        if isinstance(node, ast.ImportFrom) and not node.level:
            found.update(_named(node.module or "", node.names, modules))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found.update(_named(alias.name, [], modules))
    return found - {module.name}


def _statements(tree: ast.AST, executed: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        yield node
        if executed and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if executed and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from (other, *_statements(other, executed))
            continue
        yield from _statements(node, executed)


def _named(source: str, names: Sequence[ast.alias], modules: Modules) -> Iterator[str]:
    """Yield the modules that `from source import names` means, or `import source`."""
    if source.split(".")[0] != PACKAGE:
        return
    inside = source.removeprefix(PACKAGE).removeprefix(".")
    if not names and inside in modules:
        yield inside
    for alias in names:
        below = f"{inside}.{alias.name}".removeprefix(".")
        if below in modules:
            yield below
        elif inside in modules:
            yield inside


def closure(start: str, modules: Modules) -> set[str]:
    """Return every module that importing one of them executes, itself included."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        parts = name.split(".")
        above = [".".join(parts[:k]) for k in range(1, len(parts))] + ["__init__"]
        waiting += [package for package in above if package in modules]
        waiting += imported(modules[name], modules, executed=True)
    return seen


def imports_between_packages(modules: Modules) -> list[tuple[str, str]]:
    """Return (importing, imported) modules of different packages."""
    return sorted(
        (module.name, name)
        for module in modules.values()
        for name in imported(module, modules)
        if modules[name].package != module.package and "__init__" not in (module.name, name)
    )


def wrong_imports(edges: Sequence[tuple[str, str]], order: Order) -> list[str]:
    """Return the imports that do not point to a line above, and packages that have no line."""
    level = {name: number for number, line in enumerate(order) for name in line}
    wrong = []
    for edge in edges:
        above, below = (name.split(".")[0] for name in edge)
        if above not in level or below not in level or level[below] >= level[above]:
            wrong.append(" -> ".join(edge))
    return wrong


def read_order(path: Path) -> Order | None:
    """Read the constant `ORDER` of a Python file; None if there is none."""
    if not path.is_file():
        return None
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ORDER":
            order: Order = ast.literal_eval(node.value)
            return order
    return None


def cycles_of(edges: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Return the sets of packages that import each other, directly or not."""
    pairs = {(a.split(".")[0], b.split(".")[0]) for a, b in edges}
    reached = {name: {b for a, b in pairs if a == name} for pair in pairs for name in pair}
    for middle in reached:  # Warshall's transitive closure
        for name in reached:
            if middle in reached[name]:
                reached[name] |= reached[middle]
    groups = {
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in reached
        if name in reached[name]
    }
    return [list(group) for group in sorted(groups)]


# --- text -----------------------------------------------------------------------------------------


def functions_of(modules: Modules) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return all functions, methods and functions inside functions."""
    return [
        node
        for module in modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def count_comment_lines(text: str) -> int:
    """Count the lines that hold a comment and nothing else."""
    strings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant | ast.JoinedStr)
        for line in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
    }
    return sum(
        line.lstrip().startswith("#") and number not in strings
        for number, line in enumerate(text.splitlines(), start=1)
    )


def count_text(modules: Modules) -> dict[str, float | int]:
    """Count functions, docstrings and comments."""
    functions = functions_of(modules)
    lengths = sorted((node.end_lineno or 0) - node.lineno + 1 for node in functions)
    docstrings = [text for text in map(ast.get_docstring, functions) if text]
    lines = sum(module.n_lines for module in modules.values())
    comments = sum(count_comment_lines(module.text) for module in modules.values())
    numbers: dict[str, float | int] = {
        "functions": len(lengths),
        "lines of a function, median": statistics.median(lengths) if lengths else 0,
        "lines of a function, p95": lengths[int(0.95 * len(lengths))] if lengths else 0,
        "functions over 40 lines": sum(length > 40 for length in lengths),
        "docstrings of functions": len(docstrings),
    }
    for verb in OWN_WORDS:
        found = sum(text.split()[0] == verb for text in docstrings)
        numbers[f"docstrings that begin with {verb}"] = found
    numbers["lines of comment"] = comments
    numbers["lines of comment, percent"] = round(100 * comments / max(1, lines), 2)
    return numbers


# --- the whole ------------------------------------------------------------------------------------


def count_house(tree: Path, order: Order | None = None, *, walks: bool = True) -> House:
    """Count everything.

    Args:
        tree: A checkout.
        order: Lines of packages; if None, no import is wrong.
        walks: Whether to run `elmo embed` and follow it.
    """
    source = tree / "src" / PACKAGE
    modules = read_modules(source)
    rooms = Counter(str(module.path.parent.relative_to(source)) for module in modules.values())
    edges = imports_between_packages(modules)
    between = Counter(" -> ".join(name.split(".")[0] for name in edge) for edge in edges)
    numbers: dict[str, float | int] = {
        "installed files": len(modules),
        "installed lines": sum(module.n_lines for module in modules.values()),
        "files at the top": rooms["."],
        "rooms": len(rooms),
        "files of the largest room": max(rooms.values()),
        "imports between packages": len(edges),
    }
    if FRONT_DOOR in modules:
        behind = closure(FRONT_DOOR, modules)
        numbers["modules behind elmo.embedder"] = len(behind)
        numbers["lines behind elmo.embedder"] = sum(modules[name].n_lines for name in behind)
    walk = walk_embed(tree) if walks else None
    if walk is not None:
        numbers["modules on the path of elmo embed"] = len(walk.modules)
        numbers["lines on the path of elmo embed"] = sum(
            modules[name].n_lines for name in walk.modules
        )
        numbers["functions on the path of elmo embed"] = walk.functions
        numbers["jumps on the path of elmo embed"] = walk.jumps
        numbers["returns on the path of elmo embed"] = walk.returns
    numbers |= count_text(modules)
    for name in ("README.md", "benchmarks/README.md"):
        file = tree / name
        if file.is_file():
            numbers[f"lines of {name}"] = len(file.read_text(encoding="utf-8").splitlines())
    return House(
        rooms=dict(sorted(rooms.items())),
        numbers=numbers,
        imports_between_packages=dict(sorted(between.items())),
        wrong_imports=[] if order is None else wrong_imports(edges, order),
        cycles=cycles_of(edges),
        walk=walk,
    )


def render(house: House, *, has_order: bool) -> str:
    """Return the counts as text."""
    width = max(map(len, house.numbers))
    lines = []
    for name, value in house.numbers.items():
        most = TARGETS.get(name, value)
        held = f"  at most {most:,}" if name in TARGETS else ""
        lines.append(f"{name:<{width}} {value:>10,}{held}{' MISSED' if value > most else ''}")
    largest = sorted(house.rooms.items(), key=lambda room: -room[1])[:5]
    lines.append("largest rooms: " + ", ".join(f"{name} {number}" for name, number in largest))
    cycles = ["<->".join(cycle) for cycle in house.cycles]
    lines.append(f"cycles between packages: {', '.join(cycles) or 'none'}")
    if has_order:
        lines.append(f"imports against the order: {len(house.wrong_imports)}")
        lines += [f"  {line}" for line in house.wrong_imports]
    else:
        lines.append("imports against the order: no order is written down")
    if house.walk is not None:
        lines.append(f"path of elmo embed: {' > '.join(house.walk.modules)}")
    return "\n".join(lines)


def main() -> int:
    """Count, print, and check if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add = parser.add_argument
    add("--tree", type=Path, default=Path(__file__).resolve().parents[1], help="a checkout (this)")
    add("--order", type=Path, help="file with the constant ORDER (tests/test_package.py)")
    add("--skip-walk", action="store_true", help="do not run elmo embed")
    add("--json", action="store_true", help="print JSON")
    add("--check", action="store_true", help="exit code 1 if a target is missed")
    choices = parser.parse_args()
    order = read_order(choices.order or choices.tree / "tests" / "test_package.py")
    house = count_house(choices.tree.resolve(), order, walks=not choices.skip_walk)
    if choices.json:
        print(json.dumps(asdict(house), indent=2))
    else:
        print(render(house, has_order=order is not None))
    missed = house.missed() if choices.check else []
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
