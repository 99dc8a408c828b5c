"""Where the native kernel can be built it is there: its tests are not left out by accident."""

import shutil

import pytest

from elmo.kernels.compiler import COMPILERS, cpu_instructions, instruction_flags, kernel, why_not


@pytest.mark.skipif(not instruction_flags(cpu_instructions()), reason="the CPU has no AVX2")
@pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="there is no C++ compiler")
def test_a_machine_with_a_compiler_has_the_kernel() -> None:
    assert kernel() is not None, why_not()
