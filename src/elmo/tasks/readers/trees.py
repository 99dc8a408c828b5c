"""The Stanford Sentiment Treebank: one tree on each line, a label at every node.

`(3 (2 It) (4 (2 's) (4 good)))` is a sentence of label 3 with four phrases in it.
"""

from __future__ import annotations

import re
from pathlib import Path

from elmo.tasks.readers.examples import TextExample, Words
from elmo.tasks.readers.files import Remarks, numbered_lines, place, problem
from elmo.tasks.settings import ReadOptions

_TOKEN = re.compile(r"\(|\)|[^\s()]+")
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}


def read_trees(path: Path, options: ReadOptions) -> list[TextExample]:
    """Read sentences with the labels of their roots.

    With `phrases`, phrases with their labels are examples, too, as is usual for training; a phrase
    that recurs in a sentence with the same label is taken once.
    """
    examples = []
    for number, text in numbered_lines(path, options.encoding):
        if text.strip():
            found = _nodes(path, number, text)
            if not options.phrases:
                found = found[-1:]  # the root is closed last
            unique = {(label, *words): (words, label) for words, label in found}
            where = place(path, number)
            examples += [TextExample(words, label, where) for words, label in unique.values()]
    return Remarks(path).finish(examples, "trees")


def _nodes(path: Path, number: int, text: str) -> list[tuple[Words, str]]:
    """Return words and label of every node of a tree in post-order."""
    words: Words = []
    open_nodes: list[tuple[str, int]] = []
    nodes: list[tuple[Words, str]] = []
    tokens = iter(_TOKEN.findall(text))
    for token in tokens:
        if nodes and not open_nodes:
            raise problem(path, number, f"{token!r} after the end of the tree")
        if token == "(":
            label = next(tokens, ")")
            if label in ("(", ")"):
                raise problem(path, number, "a bracket opens without a label after it")
            open_nodes.append((label, len(words)))
        elif not open_nodes:
            raise problem(path, number, f"{token!r} outside of brackets; expected a tree")
        elif token == ")":
            label, start = open_nodes.pop()
            if start == len(words):
                raise problem(path, number, f"a node of label {label!r} without words")
            nodes.append((words[start:], label))
        else:
            words.append(_unescaped(token))
    if open_nodes:
        raise problem(path, number, f"{len(open_nodes)} brackets are not closed")
    return nodes


def _unescaped(word: str) -> str:
    """Undo the treebank's escapes of brackets, slashes and asterisks."""
    return _BRACKETS.get(word) or word.replace("\\/", "/").replace("\\*", "*")
