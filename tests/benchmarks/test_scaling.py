"""Speed and memory as things grow: the command, its picture."""

import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.common.command import run
from benchmarks.common.machine import this_machine
from benchmarks.common.timing import Spread
from benchmarks.scaling.__main__ import scaling
from benchmarks.scaling.measure import KEPT, STREAMED, ScalingReport, ScalingRow, exponent
from benchmarks.scaling.report import readable, scaling_figure

QUICK = ["--quick", "--threads", "1", "--device", "cpu", "--quiet"]


def test_scaling_gives_a_table_a_json_and_a_picture(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    paths = [tmp_path / "new" / "scaling.json", tmp_path / "pictures" / "scaling.png"]
    flags = ["--precision", "fp32", "--batches", "1", "4", "--lengths", "3", "9"]
    flags += ["--corpora", "8", "16", "--data", str(tmp_path / "data")]
    flags += ["--json", str(paths[0]), "--plot", str(paths[1])]
    assert run(scaling, [*QUICK, *flags]) == 0
    out = capsys.readouterr().out
    report = json.loads(paths[0].read_text(encoding="utf-8"))
    points = [(row["sweep"], row["way"], row["size"]) for row in report["rows"]]
    assert points == [
        *(("batch", "encode_tokens", size) for size in (1, 4)),
        *(("length", "encode_tokens", size) for size in (3, 9)),
        *(("corpus", "stream_tokens", size) for size in (8, 16)),
        *(("corpus", "encode_tokens", size) for size in (8, 16)),
    ]
    assert [row["words"] for row in report["rows"][2:4]] == [32 * 3, 32 * 9]
    for row in report["rows"]:
        assert f"{row['words_per_second']['median']:,.0f}" in out
    assert [growth["sweep"] for growth in report["growth"]] == ["length", "corpus", "corpus"]
    for growth in report["growth"]:
        assert f"words^{growth['exponent']:.2f}" in out
    assert paths[1].read_bytes().startswith(b"\x89PNG")


def made_scaling_report(**sizes):
    """A report of a model whose memory grows by a megabyte a sentence."""
    rows = [
        ScalingRow("small", sweep, way, size, size, [1.0], Spread(size, size, size), size, None)
        for sweep, some in sizes.items()
        for way in ((KEPT, STREAMED) if sweep == "corpus" else (KEPT,))
        for size in some
    ]
    return ScalingReport("elmo bench scaling", "0", this_machine(), rows=rows)


def test_a_picture_has_numbers_where_something_was_measured():
    pytest.importorskip("matplotlib")
    sizes = {"batch": (1, 8, 64), "length": (10, 40), "corpus": (16,)}
    panels = scaling_figure(made_scaling_report(**sizes)).axes
    scales = ["log"] * 3 + ["linear"] * 3
    for panel, expected, scale in zip(panels, [*sizes.values()] * 2, scales, strict=True):
        assert panel.get_xscale() == scale
        assert tuple(panel.get_xticks()) == expected
        assert [label.get_text() for label in panel.get_xticklabels()] == list(map(str, expected))
    for panel in panels[3:]:  # of memory: no line lies on the edge
        assert panel.get_ylim() == pytest.approx((0, 1.1 * 64))


@pytest.mark.parametrize(
    ("sizes", "scale", "expected"),
    [
        ((7,), "log", [7]),
        ((1, 2, 4, 8, 16, 32, 64, 128, 256), "log", [1, 2, 4, 8, 16, 32, 64, 128, 256]),
        ((1, 2, 4, 8, 16, 32, 64, 128, 256), "linear", [1, 32, 64, 128, 256]),
        ((1, 2, 3, 4, 5, 6, 7, 8, 9, 1000), "log", [1, 3, 8, 1000]),
        ((1000, 1001, 1002, 100_000), "log", [1000, 100_000]),
    ],
)
def test_numbers_below_a_picture_do_not_touch(sizes, scale, expected):
    assert readable(sizes, scale) == expected


def test_a_picture_without_matplotlib_names_the_extra(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = tmp_path / "scaling.png"
    assert run(scaling, [*QUICK, "--plot", str(path)]) == 2
    assert "--plot needs the 'plots' extra: pip install matplotlib" in capsys.readouterr().err
    assert not path.exists()


@given(
    st.floats(-2, 3),
    st.floats(1e-3, 1e3),
    st.lists(st.floats(1, 1e6), min_size=2, max_size=6, unique_by=lambda x: round(x)),
)
def test_the_exponent_of_a_power_is_found(power, factor, sizes):
    values = [factor * size**power for size in sizes]
    # Sizes that are close together fix the slope badly.
    span = np.log(max(sizes)) - np.log(min(sizes))
    assert exponent(sizes, values) == pytest.approx(power, abs=1e-6 / span + 1e-9)
