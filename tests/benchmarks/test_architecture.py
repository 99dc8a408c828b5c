"""The picture of the architecture: true to the order of imports and to the files."""

from pathlib import Path

from benchmarks import architecture

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "pictures" / "architecture.svg"


def test_the_picture_in_the_documents_is_what_the_script_draws():
    assert PICTURE.read_text(encoding="utf-8") == architecture.drawn(), (
        "python -m benchmarks.architecture docs/pictures/architecture.svg"
    )


def test_the_steps_of_the_path_are_where_the_picture_says():
    for _, where, _ in architecture.STEPS:
        for place in where.split(", "):
            path = ROOT / "src" / "elmo" / place
            assert path.is_dir() or path.with_suffix(".py").is_file(), place
    assert all(
        any((ROOT / "src/elmo/backends").glob(f"{name}*")) for name, _ in architecture.BACKENDS
    )
