"""Native code is built where it can be, once, and its absence breaks nothing."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from elmo.backends.cpu import compiler
from elmo.backends.cpu.compiler import (
    COMPILERS,
    CannotBuildError,
    cpu_instructions,
    instruction_flags,
    kernel,
    why_not,
)
from elmo.backends.gpu.kernels import sentence_copies, word_numbers

HAS_COMPILER = any(map(shutil.which, COMPILERS))
HEADERS = Path(sysconfig.get_path("include"))

needs_kernel = pytest.mark.skipif(kernel() is None, reason=f"no native kernel: {why_not()}")


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


def run_switched(**environment):
    return run_process(**environment).stdout


def run_process(**environment):
    code = (
        "from elmo.backends.cpu.compiler import kernel, why_not\n"
        "print(kernel() is None, why_not())\n"
        "from elmo import ELMo, ElmoConfig, random_bilm\n"
        "print(ELMo(random_bilm(ElmoConfig.preset('tiny'))).encode_tokens([['a']])[0].shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done


@needs_kernel
def test_the_kernel_can_be_switched_off():
    done = run_process(ELMO_NATIVE="0")
    assert "True ELMO_NATIVE=0 switches it off" in done.stdout
    assert not done.stderr  # it was asked for


@needs_kernel
def test_a_missing_compiler_is_named_and_nothing_breaks():
    done = run_process(CXX="nowhere-c++")
    assert "True no C++ compiler (nowhere-c++)" in done.stdout
    assert "more slowly: no C++ compiler (nowhere-c++)" in done.stderr


@needs_kernel
def test_a_failing_compiler_is_named_and_nothing_breaks(tmp_path):
    broken = tmp_path / "broken-c++"
    broken.write_text(
        "#!/bin/sh\ntest \"$1\" = --version && exit 0\necho 'internal error' >&2\nexit 4\n"
    )
    broken.chmod(0o755)
    told = run_switched(CXX=str(broken), XDG_CACHE_HOME=str(tmp_path))
    assert "failed: internal error" in told
    assert not list((tmp_path / "elmo-torch" / "kernels").iterdir())


@needs_kernel
def test_a_compiler_that_knows_less_than_the_cpu_builds_for_what_it_knows(tmp_path):
    real = " ".join(compiler._compiler())
    old = tmp_path / "old-c++"
    old.write_text(
        '#!/bin/sh\ncase "$*" in *-mavx512*|*-mamx*) echo "unknown option" >&2; exit 1;; esac\n'
        f'exec {real} "$@"\n'
    )
    old.chmod(0o755)
    told = run_switched(CXX=str(old), XDG_CACHE_HOME=str(tmp_path))
    assert told.startswith("False")
    assert "(3, 1, 32)" in told


@needs_kernel
def test_a_compiler_may_have_arguments(tmp_path):
    with_arguments = " ".join([*compiler._compiler(), "-g0"])
    assert run_switched(CXX=with_arguments, XDG_CACHE_HOME=str(tmp_path)).startswith("False")


@needs_kernel
@pytest.mark.parametrize("size", [0, 100])
def test_a_library_that_is_cut_short_is_built_anew(tmp_path, size):
    run_switched(XDG_CACHE_HOME=str(tmp_path))
    (library,) = (tmp_path / "elmo-torch" / "kernels").iterdir()
    os.truncate(library, size)
    assert run_switched(XDG_CACHE_HOME=str(tmp_path)).startswith("False")
    assert library.stat().st_size > 10_000


@needs_kernel
def test_where_no_cache_can_be_a_folder_of_the_process_serves_and_goes_with_it(tmp_path):
    nowhere = tmp_path / "file"
    nowhere.touch()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    told = run_switched(XDG_CACHE_HOME=str(nowhere), TMPDIR=str(temporary))
    assert told.startswith("False")
    assert not list(temporary.iterdir())


@needs_kernel
def test_users_without_a_home_have_a_folder_too(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(compiler.Path, "home", no_home)
    assert compiler._folder() == compiler._private_folder()


@needs_kernel
def test_where_there_is_no_folder_at_all_there_is_no_library(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiler.tempfile, "mkdtemp", full)
    monkeypatch.setattr(compiler, "_compile", full)
    with pytest.raises(CannotBuildError, match="no space left"):
        compiler._built(compiler._SOURCE, [])
    with pytest.raises(CannotBuildError, match="No space left"):
        compiler._private_folder.__wrapped__()


@needs_kernel
def test_the_kernel_is_built_once_and_kept(tmp_path):
    first = run_process(XDG_CACHE_HOME=str(tmp_path))
    assert first.stdout.startswith("False")
    assert first.stderr.count("building the C++ kernel") == 1
    (library,) = (tmp_path / "elmo-torch" / "kernels").iterdir()
    built = library.stat().st_mtime_ns
    assert not run_process(XDG_CACHE_HOME=str(tmp_path)).stderr
    assert library.stat().st_mtime_ns == built


@needs_kernel
def test_whichever_source_changes_the_kernel_is_built_anew(tmp_path, monkeypatch):
    sources = tmp_path / "cpu"
    shutil.copytree(compiler._SOURCE.parent, sources)
    quick = tmp_path / "quick-c++"  # writes what it is asked to build, and leaves it at that
    quick.write_text('#!/bin/sh\nfor last; do :; done\ntest "$1" = --version || echo > "$last"\n')
    quick.chmod(0o755)
    monkeypatch.setenv("CXX", str(quick))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = sources / compiler._SOURCE.name
    first = compiler._built(source, [])
    libraries = {first}
    for path in sources.iterdir():
        before = path.read_bytes()
        path.write_bytes(before + b"// changed\n")
        libraries.add(compiler._built(source, []))
        path.write_bytes(before)
        assert compiler._built(source, []) == first
    (sources / "new.h").touch()
    libraries.add(compiler._built(source, []))
    assert len(libraries) == len(list(sources.iterdir())) + 1
    assert libraries == set(first.parent.iterdir())


@needs_kernel
def test_a_folder_that_others_can_write_to_is_not_used(tmp_path, monkeypatch):
    folder = tmp_path / "elmo-torch" / "kernels"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compiler._folder() != folder
    assert (compiler._folder().stat().st_mode & 0o077) == 0
    folder.chmod(0o700)
    assert compiler._folder() == folder


AVX2 = {"avx2", "fma", "f16c"}


AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq"}


NEWEST = {"avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"}


@needs_kernel
@pytest.mark.parametrize(
    ("instructions", "expected"),
    [
        (set(), []),
        ({"avx2"}, []),
        (AVX2, ["-mavx2", "-mfma", "-mf16c"]),
        (AVX2 | {"avx512f"}, ["-mavx2", "-mfma", "-mf16c"]),
        (AVX2 | {"avx512_vnni"}, ["-mavx2", "-mfma", "-mf16c"]),
    ],
)
def test_the_kernel_is_built_for_what_the_cpu_has(instructions, expected):
    assert instruction_flags(frozenset(instructions)) == expected


@needs_kernel
def test_the_newest_instructions_are_used_where_they_are():
    flags = instruction_flags(frozenset(AVX512 | NEWEST))
    assert {"-mavx512f", "-mavx512vnni", "-mavx512bf16", "-mamx-tile", "-mamx-int8"} <= set(flags)
    assert "-mavx512vnni" not in instruction_flags(frozenset(AVX512))


@needs_kernel
def test_an_old_cpu_gets_no_kernel(monkeypatch):
    monkeypatch.setattr(compiler, "cpu_instructions", lambda: frozenset({"sse2"}))
    with pytest.raises(CannotBuildError, match="needs AVX2, FMA and F16C"):
        compiler._load()


@needs_kernel
def test_the_kernel_is_compiled_without_a_warning(tmp_path):
    """For all CPUs that it knows, not only this one: whatever runs elsewhere compiles here."""
    for instructions in (AVX2, AVX512, AVX512 | {"avx512_vnni"}, AVX512 | NEWEST):
        flags = instruction_flags(frozenset(instructions))
        done = subprocess.run(
            [
                *compiler._compiler(),
                *(*compiler._FLAGS, "-pthread", "-O0", *flags, "-Wall", "-Wextra"),
                # Some versions of GCC's own headers trip over these.
                *("-Wno-maybe-uninitialized", "-Wno-uninitialized"),
                *(str(compiler._SOURCE), "-o", str(tmp_path / "kernel.so")),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")


@needs_kernel
def test_every_header_includes_what_it_uses():
    flags = [*compiler._FLAGS, *instruction_flags(frozenset(AVX512 | NEWEST)), "-fsyntax-only"]
    for header in compiler._SOURCE.parent.glob("*.h"):
        command = [*compiler._compiler(), *flags, "-x", "c++", "-include", str(header), os.devnull]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{header.name}: {done.stderr}"
