"""Reports show themselves: as text, Markdown, HTML in a notebook, and JSON without NaN."""

from dataclasses import dataclass

import pytest

from elmo.analysis.reports import Report, Table, as_json
from elmo.analysis.words.similar import SimilarReport, SimilarWords
from elmo.analysis.words.word_index import Similar


@dataclass(frozen=True, kw_only=True)
class Small(Report):
    value: float = 1.0

    def tables(self):
        yield "A <title>:"
        yield Table(("name", "value"), [("a&b", "1")])

    def figure(self):
        from matplotlib.figure import Figure

        figure = Figure()
        figure.subplots().plot([0, self.value])
        return figure


def test_a_report_is_text_markdown_and_html():
    report = Small(model="m", model_sha256="abc", notes=["one"])
    assert (
        report.text() == "model    m (abc)\nnote     one\n\nA <title>:\n\nname  value\na&b       1"
    )
    assert "\n\n| name | value |\n| --- | ---: |\n| a&b | 1 |" in report.markdown()
    shown = report._repr_html_()
    assert "<pre>A &lt;title&gt;:</pre>" in shown
    assert "<td>a&amp;b</td>" in shown


def test_a_notebook_shows_the_figure():
    pytest.importorskip("matplotlib")
    shown = Small()._repr_html_()
    assert shown.count("<svg") == shown.count("</svg>") == 1
    assert "<?xml" not in shown


def test_a_list_is_shown_as_a_table_in_a_notebook():
    found = SimilarReport([SimilarWords("<b>", [Similar("x", 0.5, 3)])], 2, 4)
    shown = found._repr_html_()
    assert "<th>similar to &lt;b&gt;</th>" in shown
    assert "<td>0.500</td>" in shown


def test_json_has_no_nan():
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_json(Small(value=float("nan")))
