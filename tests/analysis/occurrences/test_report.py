"""The report on a word: text, a page, a figure."""

import html
import json
import re
from html.parser import HTMLParser

import pytest

from elmo.analysis.occurrences.senses import senses

pytest.importorskip("sklearn")


def test_one_of_something_is_not_many(tmp_path, tiny_elmo):
    path = tmp_path / "text.txt"
    path.write_text("a cat\nthe cat\n")
    report = senses("cat", model=tiny_elmo, corpus=path, clusters=1, projection=("pca",))
    assert "2 occurrences of cat" in report.text()
    assert "layer    top: 1 cluster\n" in report.text()
    assert "“cat” in 1 cluster<" in report.page()


class Checker(HTMLParser):
    """Looks for anything that would leave the page, and for unclosed elements."""

    def __init__(self):
        super().__init__()
        self.open, self.scripts, self.addresses = [], 0, []

    def handle_starttag(self, tag, attributes):
        self.scripts += tag == "script"
        self.addresses += [v for k, v in attributes if k in ("src", "href")]
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_needs_no_network_and_escapes_words(tmp_path, tiny_elmo):
    path = tmp_path / "text.txt"
    evil = "</script><script>alert(1)</script>"
    path.write_text(f"a bank & {evil} b\nthe bank <b> \" '\nmy {{bank}} bank\n")
    page = senses("bank", model=tiny_elmo, corpus=path).page()
    checker = Checker()
    checker.feed(page)
    assert checker.scripts == 2
    assert checker.addresses == []
    assert checker.open == []
    assert evil not in page
    assert "http" not in page.replace("http-equiv", "")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert f"& {evil} b" in {entry["right"] for entry in data}
    assert html.escape(evil) in page


def test_the_word_itself_may_be_anything(tmp_path, tiny_elmo):
    pytest.importorskip("matplotlib")
    path = tmp_path / "text.txt"
    path.write_text("a $x_1$ <i>\nthe $x_1$ .\nan $x_1$ ?\n")
    report = senses("$x_1$", model=tiny_elmo, corpus=path)
    report.save(tmp_path)
    assert (tmp_path / "senses-_x_1_.png").read_bytes().startswith(b"\x89PNG")
    assert "[$x_1$]" in report.text()
