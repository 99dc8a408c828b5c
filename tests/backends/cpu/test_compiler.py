"""Where native code can be built it is there: its tests are not left out by accident."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from elmo.backends.cpu import compiler
from elmo.backends.cpu.compiler import (
    COMPILERS,
    cpu_instructions,
    instruction_flags,
    kernel,
    why_not,
)
from elmo.backends.gpu.kernels import sentence_copies, word_numbers

HAS_COMPILER = any(map(shutil.which, COMPILERS))
HEADERS = Path(sysconfig.get_path("include"))


@pytest.mark.skipif(not instruction_flags(cpu_instructions()), reason="the CPU has no AVX2")
@pytest.mark.skipif(not HAS_COMPILER, reason="there is no C++ compiler")
def test_a_machine_with_a_compiler_has_the_kernel() -> None:
    assert kernel() is not None, why_not()


@pytest.mark.skipif(not HAS_COMPILER, reason="there is no C++ compiler")
@pytest.mark.skipif(not (HEADERS / "Python.h").exists(), reason="Python's headers are not there")
@pytest.mark.parametrize("module", [word_numbers, sentence_copies])
def test_a_machine_with_a_compiler_and_headers_has_the_loops_of_the_host(module) -> None:
    assert module._library() is not None
    flags = [*compiler._FLAGS, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{HEADERS}"]
    command = [*compiler._compiler(), *flags, str(module._SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
