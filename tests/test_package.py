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
from elmo.errors import EXTRA_PACKAGES

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "elmo"

# Each module may import only modules of lines above its own.
LEVELS = [
    {"errors", "signals", "wording"},
    {"settings"},
    {"kernels.gpu", "kernels.compiler"},
    {"kernels.native_resources", "kernels.word_numbers", "kernels.sentence_copies"},
    {"kernels.native"},
    {"kernels.native_layers"},
    {"kernels.inference_cell", "kernels.inference_graphs", "kernels.word_filters"},
    {"kernels.inference_row"},
    {"kernels.lstm_cell", "kernels.character_windows", "kernels.highway"},
    {"kernels.sampled_softmax", "kernels.small_lstm"},
    {"config", "burn_in", "english", "devices", "records", "transfer", "archives"},
    {"journaled_file"},
    {"alphabet", "model_files", "downloads"},
    {"registry"},
    {"model_cache"},
    {"characters", "text"},
    {"vocabulary", "sentences", "linear", "modelcard", "softmax_losses"},
    {"tensors", "batching", "vector_files", "output_base", "static_vectors"},
    {"weight_checks", "vector_sources", "adaptive_softmax"},
    {"tensor_files", "hdf5_weights", "output_layers"},
    {"word_lookup"},
    {"manylangs"},
    {"checkpoint", "layers", "selection", "word_vectors", "vector_writer"},
    {"bilm", "store", "fused_words", "device_words", "delivery"},
    {"packed_words", "models", "fused_layer"},
    {"packed", "fused"},
    {"pipeline", "representations"},
    {"loaded_model", "predictions"},
    {"embedder"},
    {"bulk", "scoring"},
    {"training.prepare_settings", "training.array_files", "training.sources", "training.workers"},
    {"training.parts", "training.shards"},
    {"training.split", "training.prepare_report", "training.corpus_folder"},
    {"training.counting", "training.shard_writer"},
    {"training.prepare", "training.train_settings"},
    {"training.fused_lstm", "training.fused_spelling"},
    {"training.streams", "training.recurrence", "training.snapshots", "training.metrics"},
    {"training.spelling"},
    {"training.language_model", "training.processes", "training.waiting", "training.record"},
    {"training.optimizers", "training.setup", "training.graphed_step"},
    {"training.heldout", "training.gradients"},
    {"training.trainer"},
    {"training.finetune"},
    {"tasks.recipe"},
    {"tasks.tag_schemes", "tasks.readers.examples", "tasks.readers.files"},
    {"tasks.readers.columns", "tasks.readers.conllu", "tasks.readers.trees"},
    {"tasks.readers.tables", "tasks.readers.entailment", "tasks.readers.squad"},
    {"tasks.readers.propbank", "tasks.readers.props", "tasks.readers.coreference"},
    {"tasks.readers.formats", "tasks.readers.splits"},
    {"tasks.metrics.scores", "tasks.metrics.assignment"},
    {"tasks.metrics.labels", "tasks.metrics.entities", "tasks.metrics.roles"},
    {"tasks.metrics.answers", "tasks.metrics.clusters"},
    {
        "tasks.attention",
        "tasks.base",
        "tasks.settings",
        "tasks.batches",
        "tasks.labels",
        "tasks.limits",
        "tasks.curve",
    },
    {"tasks.static_words", "tasks.layer_cache", "tasks.encoders", "tasks.crf"},
    {"tasks.features"},
    {"tasks.lookup"},
    {"tasks.assembly", "tasks.network"},
    {"tasks.offsets", "tasks.span_candidates"},
    {"tasks.passages", "tasks.span_scores"},
    {"tasks.classify", "tasks.tag", "tasks.srl"},
    {"tasks.nli", "tasks.qa", "tasks.coref"},
    {"tasks.kinds"},
    {"tasks.folder", "tasks.progress"},
    {"tasks.training", "tasks.trained"},
    {"analysis.probe", "analysis.treebank"},
    {"benchmark.bench_settings", "benchmark.tables", "benchmark.corpus", "benchmark.timing"},
    {"benchmark.machine", "benchmark.costs", "benchmark.peaks", "benchmark.peers"},
    {"benchmark.weights", "benchmark.reference"},
    {"benchmark.systems"},
    {"benchmark.memory"},
    {"benchmark.report"},
    {"benchmark.contest", "benchmark.render"},
    {"benchmark.speed", "benchmark.scaling", "benchmark.exactness"},
    {"benchmark.scaling_report", "benchmark.exactness_report"},
    {"analysis.analysis_settings", "analysis.geometry", "analysis.sampling", "analysis.stop_words"},
    {"analysis.intervals", "analysis.clusters", "analysis.projection", "analysis.report_files"},
    {"analysis.passages", "analysis.word_index"},
    {"analysis.word_means", "analysis.faiss_search"},
    {"analysis.static_targets", "analysis.targets", "analysis.wordnet"},
    {"analysis.similar", "analysis.neighbors"},
    {"analysis.contextuality", "analysis.senses", "analysis.task_data", "analysis.correlation"},
    {"analysis.layer_tasks", "analysis.correlation_report", "analysis.neighbor_report"},
    {"analysis.contextuality_report", "analysis.senses_page", "analysis.layer_report"},
    {"tasks.report_settings"},
    {"tasks.report"},
    {"tasks.report_tables"},
    {"tasks.report_plots"},
    {"tasks.report_page"},
    {"commands.base", "commands.config_flags"},
    {"commands.models", "commands.registry", "commands.language"},
    {"commands.prepare", "commands.train", "commands.bench", "commands.analyze"},
    {"commands.task"},
    {"cli"},
    {"__main__"},
]
EXTRAS = (
    "pyarrow",
    "spacy",
    "rjieba",
    "backports.zstd",
    "matplotlib",
    "sklearn",
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


def imported_modules(path):
    """Modules of this package that a file imports, type-checking imports included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("elmo."):
            inside = node.module.removeprefix("elmo.")
            if (SOURCE / inside.replace(".", "/")).is_dir():  # from elmo.commands import models
                yield from (f"{inside}.{alias.name}" for alias in node.names)
            else:
                yield inside


def run_python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )


def test_every_module_has_its_place_in_the_order_of_imports():
    assert set(module_names()) == set().union(*LEVELS)


@pytest.mark.parametrize("name", module_names())
def test_imports_point_one_way(name):
    level = next(number for number, names in enumerate(LEVELS) if name in names)
    allowed = set().union(*LEVELS[:level])
    assert set(imported_modules(SOURCE / f"{name.replace('.', '/')}.py")) <= allowed


def test_messages_know_the_packages_of_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert {
        extra: " ".join(re.match(r"[\w.-]+", package)[0] for package in packages)
        for extra, packages in extras.items()
        if extra not in ("all", "dev")
    } == EXTRA_PACKAGES


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
        "import sys; from elmo.cli import main\n"
        "commands = 'embed info models convert cache prepare train finetune perplexity score '\n"
        "commands += 'bench similar neighbors analyze'\n"
        "tasks = [['task', *name] for name in ([], ['train'], ['evaluate'], ['report'])]\n"
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
    "name", ["alphabet", "characters", "config", "embedder", "representations"]
)
def test_examples_in_docstrings_are_true(name):
    results = doctest.testmod(importlib.import_module(f"elmo.{name}"))
    assert results.attempted > 0
    assert results.failed == 0


def test_the_readme_names_the_two_commands_and_every_module():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in readme
    assert "make test" in readme
    for name in module_names():
        assert f"{name.split('.')[-1]}.py" in readme, f"README's tree does not show {name}.py"


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    """The quickstart is run as printed, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    assert blocks
    code = "import warnings; warnings.simplefilter('ignore')\n" + "\n".join(blocks)
    done = run_python(code)
    assert done.returncode == 0, done.stderr


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
