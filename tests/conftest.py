"""Fixtures: tiny models that are built once, and the published fixtures where they are at hand."""

import os

# Products of this size gain nothing from a second thread, and lose much on a busy machine. Before
# PyTorch is imported, so that it holds for the processes that tests start, too.
os.environ["OMP_NUM_THREADS"] = "1"
# Models choose a GPU where there is one; these tests are about the CPU, where kernels are
# interpreted. With ELMO_TEST_GPU=1 the tests that are marked `gpu` run, too, on compiled kernels.
os.environ["CUDA_VISIBLE_DEVICES"] = "0" if os.environ.get("ELMO_TEST_GPU") == "1" else ""
os.environ["TRITON_INTERPRET"] = "0" if os.environ.get("ELMO_TEST_GPU") == "1" else "1"

import importlib.util
import signal
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from elmo import ELMo, ElmoConfig
from strategies import seeded_bilm, word_config
from task_data import write_task_data

# Nothing here has a deadline: the machine may be busy with other things. The same examples every
# time, so that a test that passed passes again; HYPOTHESIS_PROFILE=explore looks for new ones.
COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", max_examples=40, derandomize=True, **COMMON)
settings.register_profile("explore", max_examples=400, **COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

torch.set_num_threads(1)


def let_interpreted_kernels_count():
    """Let loaded values be bounds of loops in Triton's interpreter.

    It calls int() on an array of one value, which NumPy 2.4 refuses; Triton 3.6 does not know.
    """
    from triton.runtime import interpreter

    plain = interpreter._patch_lang_tensor

    def patch(tensor, scope):
        plain(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch


@pytest.fixture(scope="session", autouse=True)
def kernels():
    """Make ready for interpreted kernels, where there is Triton."""
    if importlib.util.find_spec("triton"):
        let_interpreted_kernels_count()


def pytest_collection_modifyitems(items):
    """Without a GPU, skip the tests that need one."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU, and ELMO_TEST_GPU=1"))


@pytest.fixture
def ctrl_c():
    """Make Ctrl-C arrive, in this process and in those it starts.

    A shell ignores SIGINT for what it runs in the background, and children inherit that.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


SHARED = Path(__file__).parents[1].parent / "shared"


@pytest.fixture(scope="session")
def tiny_config():
    return ElmoConfig.preset("tiny")


@pytest.fixture(scope="session")
def tiny_bilm(tiny_config):
    """A plain model with 16 values a direction. Never change it: all tests share it."""
    return seeded_bilm(tiny_config)


@pytest.fixture(scope="session")
def tiny_elmo(tiny_bilm):
    """The same model behind the front door. Tests that carry state build their own."""
    return ELMo(tiny_bilm)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_bilm):
    """A folder with the made-up data of `task_data` and a biLM; each module has its own."""
    path = tmp_path_factory.mktemp("tasks")
    write_task_data(path, tiny_bilm)
    return path


@pytest.fixture(scope="session")
def clipping_bilm(tiny_config):
    """A model with weights so large that both clips have work to do at nearly every step."""
    clips = {"cell_clip": 0.5, "proj_clip": 0.3}
    return seeded_bilm(tiny_config.replace(**clips), seed=1, recurrent_scale=2.0)


@pytest.fixture(scope="session")
def word_bilm():
    """A model that reads the words of `strategies.VOCABULARY`."""
    return seeded_bilm(word_config())


@pytest.fixture(scope="session")
def published():
    """The folder of AllenNLP's fixtures: a tiny model with its published outputs."""
    folder = SHARED / "fixtures" / "allennlp"
    if not (folder / "lm_weights.hdf5").is_file():
        pytest.skip("the published fixtures are not beside the repository (../shared/fixtures)")
    return folder
