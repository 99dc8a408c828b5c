"""Draw the path of the data and the order of imports: the picture of docs/architecture.md.

    python -m benchmarks.architecture docs/pictures/architecture.svg

The order of imports is that of `tests/test_package.py`; a test compares the picture in the
repository with what this script draws.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.house import Order, read_order

ROOT = Path(__file__).resolve().parents[1]
STEPS = (
    ("text", "text/files, text/english", "a file or strings to lists of words"),
    ("plan", "embed/pipeline", "batches of similar lengths, and the state they start from"),
    ("words", "backends/base", "each distinct word once: cache, token file, or computed"),
    ("layers", "backends/", "the batch through all recurrent layers, both directions"),
    ("selection", "embed/pipeline", "all layers, top, average, mix, or one"),
    ("results", "embed/pipeline", "one array or tensor a sentence, in the order given"),
    ("file", "bulk/", "HDF5, npz, safetensors, Parquet"),
)
"""Steps of the path: name, where in `src/elmo`, what it does."""
BACKENDS = (
    ("plain", "PyTorch, any cell"),
    ("cpu", "C++, built on demand"),
    ("gpu", "Triton and cuBLAS"),
)
STEP, BOX = 94, 66
"""Distance and height of the boxes of the path."""
RIGHT, WIDTH, LINE = 740, 270, 46
"""Left edge, width and distance of the lines of packages."""
STYLE = """
.bg{fill:#fff}.box{fill:#eef3fa;stroke:#33557f}.side{fill:#f6f1e7;stroke:#8a6d3b}
.room{fill:#f4f4f4;stroke:#777}.t{fill:#1b1b1b}.s{fill:#555;font-size:12px}
.b{fill:#1b1b1b;font-weight:600}.h{fill:#1b1b1b;font-weight:600;font-size:16px}
.m{fill:#1b1b1b;font-family:ui-monospace,monospace;font-size:13px}
.n{fill:#555;font-family:ui-monospace,monospace;font-size:12px}
.l{stroke:#33557f;stroke-width:1.6;fill:none}.d{stroke:#8a6d3b;stroke-dasharray:4 3;fill:none}
@media (prefers-color-scheme:dark){.bg{fill:#16181d}.box{fill:#1f2b3d;stroke:#7fa6d8}
.side{fill:#332b1c;stroke:#c9a466}.room{fill:#24262b;stroke:#999}.t,.h,.b,.m{fill:#eee}
.s,.n{fill:#aaa}.l{stroke:#7fa6d8}.d{stroke:#c9a466}}
"""


def draw(order: Order) -> str:
    """Return the picture as SVG."""
    below = [line for line in order if line != ("__main__",)]
    height = max(72 + STEP * len(STEPS), 72 + LINE * len(below)) + 30
    parts = [*_path(), *_backend(), *_imports(below)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1040 {height}" width="1040" '
        f'height="{height}" role="img" aria-label="The path of the data and the order of imports" '
        'font-family="system-ui, sans-serif" font-size="14">\n'
        f"<style>{STYLE}</style>\n"
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="#5b7fae"/></marker></defs>\n'
        f'<rect class="bg" width="1040" height="{height}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _path() -> list[str]:
    """Draw the steps of the path, one below the other."""
    parts = [_text("h", 30, 34, "The path of the data")]
    parts.append(_text("s", 30, 54, "each arrow is one call downwards"))
    for number, (name, where, what) in enumerate(STEPS):
        y = 72 + STEP * number
        parts.append(_box("box", 30, y, 370, BOX))
        parts.append(_text("b", 44, y + 24, name))
        parts.append(_text("n", 386, y + 24, where, "end"))
        parts.append(_text("s", 44, y + 48, what))
        if number:
            parts.append(_arrow(215, y - STEP + BOX, 215, y - 3))
    top, end = 72 + STEP, 72 + 5 * STEP + BOX
    parts.append(f'<path class="d" d="M408 {top}h8V{end}h-8"/>')
    middle = (72 + 4 * STEP + end) / 2  # below the arrows to the backend
    parts.append(
        f'<text class="s" transform="translate(430 {middle:g}) rotate(90)" '
        'text-anchor="middle">Pipeline, which ELMo holds</text>'
    )
    return parts


def _backend() -> list[str]:
    """Draw what a backend is, next to the steps that it computes."""
    top = 72 + 2 * STEP
    height = STEP + BOX
    parts = [_box("side", 464, top, 236, height), _text("b", 478, top + 24, "a backend")]
    parts.append(_text("s", 478, top + 46, "encode_words, contextualize,"))
    parts.append(_text("s", 478, top + 64, "open_words, limits, tensors"))
    for number, (name, what) in enumerate(BACKENDS):
        y = top + 94 + 24 * number
        parts.append(_text("m", 478, y, name))
        parts.append(_text("s", 524, y, what))
    for number in (2, 3):
        y = 72 + STEP * number + BOX // 2
        parts.append(_arrow(400, y, 461, y))
    parts.append(_text("s", 464, top + height + 20, "chosen once, by backends.choose"))
    return parts


def _imports(order: Order) -> list[str]:
    """Draw the packages, those of a line side by side."""
    parts = [_text("h", RIGHT, 34, "The order of imports")]
    parts.append(_text("s", RIGHT, 54, "a package imports only from above"))
    for number, names in enumerate(order):
        y = 72 + LINE * number
        width = (WIDTH - 8 * (len(names) - 1)) / len(names)
        for place, name in enumerate(names):
            x = RIGHT + place * (width + 8)
            parts.append(_box("room", x, y, width, 32))
            parts.append(_text("m", x + width / 2, y + 21, name, "middle"))
        if number:
            middle = RIGHT + WIDTH / 2
            parts.append(_arrow(middle, y, middle, y - 11))
    end = 72 + LINE * len(order) + 6
    parts.append(_text("s", RIGHT, end, "packages in one line never import each other"))
    return parts


def _box(kind: str, x: float, y: float, width: float, height: float) -> str:
    sizes = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect class="{kind}" {sizes} rx="6"/>'


def _text(kind: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{text}</text>'


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<path class="l" d="M{x:g} {y:g}L{to_x:g} {to_y:g}" marker-end="url(#a)"/>'


def drawn() -> str:
    """Draw this repository."""
    order = read_order(ROOT / "tests" / "test_package.py")
    assert order is not None
    return draw(order)


def main() -> int:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("out", type=Path, help="the SVG file")
    parser.parse_args().out.write_text(drawn(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
