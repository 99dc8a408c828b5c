"""The package as a whole: what imports what, what starts quickly, what the README promises."""

import ast
import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import elmo
from elmo.cli.main import main
from elmo.errors import EXTRA_PACKAGES

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "elmo"

# A package may import only from the lines above its own; packages of one line never each other.
ORDER = (
    ("errors",),
    ("settings",),
    ("config",),
    ("runtime",),
    ("text",),
    ("model",),
    ("weights",),
    ("hub",),
    ("backends",),
    ("embed",),
    ("embedder", "module"),
    ("lm",),
    ("bulk",),
    ("training", "tasks", "analysis"),
    ("cli",),
    ("__main__",),
)
PACKAGES = sorted(str(path.parent.relative_to(SOURCE)) for path in SOURCE.rglob("*/__init__.py"))
OTHER_FLAGS = {"--all", "--help", "--nproc-per-node", "--only-write", "--seeds", "--write"}
"""Flags in the documents that are of other programs: allennlp, torchrun, benchmarks.task_report."""
EXTRAS = (
    "pyarrow",
    "spacy",
    "rjieba",
    "backports.zstd",
    "matplotlib",
    "scipy",
    "sklearn",
    "threadpoolctl",
    "faiss",
    "tensorboard",
    "triton",
)


def module_names():
    return sorted(
        module.name.removeprefix("elmo.")
        for module in pkgutil.walk_packages([str(SOURCE)], prefix="elmo.")
        if not module.ispkg
    )


def imported_packages(path):
    """Packages of elmo that a file imports, type-checking imports included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "elmo":
            inside = node.module.split(".")[1:]
            yield from inside[:1] or (alias.name for alias in node.names if alias.name[0] != "_")
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("elmo."))


def run_python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )


def test_every_package_has_its_place_in_the_order_of_imports():
    assert {name.split(".")[0] for name in module_names()} == set().union(*ORDER)


@pytest.mark.parametrize("name", [name for line in ORDER for name in line])
def test_imports_between_packages_point_one_way(name):
    level = next(number for number, names in enumerate(ORDER) if name in names)
    allowed = {name}.union(*ORDER[:level])
    files = [SOURCE / f"{name}.py", *(SOURCE / name).rglob("*.py")]
    wrong = {
        f"{path.relative_to(SOURCE)} -> {package}"
        for path in files
        if path.is_file()
        for package in imported_packages(path)
        if package not in allowed
    }
    assert not wrong


def test_rooms_stay_small():
    assert len(list(SOURCE.glob("*.py"))) <= 10
    for folder in {path.parent for path in SOURCE.rglob("*.py")}:
        assert len(list(folder.glob("*.py"))) <= 20, folder


def test_messages_know_the_packages_of_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert {
        extra: " ".join(re.match(r"[\w.-]+", package)[0] for package in packages)
        for extra, packages in extras.items()
        if extra not in ("all", "dev")
    } == EXTRA_PACKAGES


def test_every_package_that_is_imported_is_a_dependency_or_an_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    declared = {re.match(r"[\w.-]+", package)[0] for group in groups for package in group}
    other_names = {"backports": "backports.zstd", "faiss": "faiss-cpu", "sklearn": "scikit-learn"}
    known = {"elmo", "compression", *sys.stdlib_module_names}  # compression: Python 3.14
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found = {module.split(".")[0] for module in modules} - known
            assert {other_names.get(name, name) for name in found} <= declared, path


def test_the_paths_of_the_project_file_exist():
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    paths = [*tools["ruff"]["lint"]["per-file-ignores"], *tools["ruff"]["src"]]
    paths += tools["hatch"]["build"]["targets"]["sdist"]["include"]
    for override in tools["mypy"]["overrides"]:
        names = [name for name in override["module"] if name.startswith("elmo")]
        paths += [f"src/{name.removesuffix('.*').replace('.', '/')}*" for name in names]
    assert [path for path in paths if path != "." and not any(ROOT.glob(path))] == []


def test_every_module_imports_without_the_extras():
    blocked = ", ".join(f"{name!r}: None" for name in EXTRAS)
    imports = "; ".join(f"import elmo.{name}" for name in module_names() if name != "__main__")
    done = run_python(f"import sys; sys.modules.update({{{blocked}}}); {imports}")
    assert done.returncode == 0, done.stderr


def test_importing_the_package_does_not_import_torch():
    done = run_python("import elmo, sys; print('torch' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


def test_the_help_of_every_command_comes_without_torch():
    code = (
        "import sys; from elmo.cli.main import main\n"
        "commands = 'embed info models convert cache prepare train finetune perplexity score '\n"
        "commands += 'bench similar neighbors analyze'\n"
        "tasks = [['task', *name] for name in ([], ['train'], ['evaluate'])]\n"
        "for command in ([], *([name] for name in commands.split()), *tasks):\n"
        "    assert main([*command, '--help']) == 0\n"
        "assert 'torch' not in sys.modules and 'h5py' not in sys.modules"
    )
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert "--layers" in done.stdout


def test_public_names_are_there_and_documented():
    for name in elmo.__all__:
        assert getattr(elmo, name).__doc__, name
    with pytest.raises(AttributeError, match="no_such_name"):
        elmo.no_such_name  # noqa: B018


def test_the_version_is_stated_once_and_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == elmo.__version__
    assert f"## {elmo.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    "name", ["text.alphabet", "text.characters", "config", "embedder", "module"]
)
def test_examples_in_docstrings_are_true(name):
    results = doctest.testmod(importlib.import_module(f"elmo.{name}"))
    assert results.attempted > 0
    assert results.failed == 0


def test_the_readme_names_the_two_commands_and_every_package():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in readme
    assert "make test" in readme
    tree = readme[readme.index("src/elmo/\n") : readme.index("\ntests/ ")]
    packages = {path.parent.name for path in SOURCE.rglob("__init__.py")} - {"elmo"}
    top = {path.name for path in SOURCE.glob("*.py")} - {"__init__.py"}
    assert {name for name in packages if f" {name}/" not in tree} == set()
    assert {name for name in top if name not in tree} == set()


@pytest.mark.parametrize("room", PACKAGES)
def test_every_module_is_listed_in_the_docstring_of_its_package(room):
    folder = SOURCE / room
    listed = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    modules |= {path.parent.name for path in folder.glob("*/__init__.py")}
    assert {name for name in modules if f"`{name}`" not in (listed or "")} == set()


def test_the_first_example_of_the_readme_prints_what_it_says():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code, printed = re.search(r"```python\n(.*?)```\s+```\n(.*?)```", readme, re.DOTALL).groups()
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    found, expected = (
        [float(number) for number in re.findall(r"-?\d+\.\d+", text)]
        for text in (done.stdout, printed)
    )
    assert len(expected) == 16
    assert found == pytest.approx(expected, abs=1e-3)


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    """All examples are run as printed, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    assert blocks
    code = "import warnings; warnings.simplefilter('ignore')\n" + "\n".join(blocks)
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_flags_in_the_documents_exist(capsys):
    """Of each line that shows a command, those of the command; elsewhere, of any."""
    commands = (
        "embed info models convert cache prepare train finetune perplexity score substitutes "
    )
    commands += "bench similar neighbors task_train task_evaluate task_predict task_split "
    commands += "analyze_contextuality analyze_layers analyze_senses analyze_correlation"
    flag = re.compile(r"--[a-z][a-z0-9-]*")
    flags = {}
    for command in commands.split():
        assert main([*command.split("_"), "--help"]) == 0
        flags[command.replace("_", " ")] = set(flag.findall(capsys.readouterr().out))
    anywhere = set().union(*flags.values(), OTHER_FLAGS)
    documents = [
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "recipes").glob("*.md"),
    ]
    for path in documents:
        for line in path.read_text(encoding="utf-8").splitlines():
            shown = re.match(r"elmo ((?:task |analyze )?[a-z]+)", line)
            known = flags[shown[1]] if shown and shown[1] in flags else anywhere
            assert set(flag.findall(line.split(" #")[0])) <= known, f"{path.name}: {line}"


def test_tracked_files_hold_no_paths_of_one_machine():
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "grep", "-nIE", r"/(home|root|work|farm)/[a-z]"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode > 1:
        pytest.skip("not a git checkout")
    assert listed.stdout == ""
