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
    tokens = _TOKEN.findall(text)
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if nodes and not open_nodes:
            raise problem(path, number, f"{token!r} after the end of the tree")
        if token == "(":
            label = tokens[position + 1] if position + 1 < len(tokens) else ""
            if label in ("", "(", ")"):
                raise problem(path, number, "a bracket opens without a label after it")
            open_nodes.append((label, len(words)))
            position += 1
        elif token == ")":
            nodes.append(_closed(path, number, open_nodes, words))
        elif not open_nodes:
            raise problem(path, number, f"{token!r} outside of brackets; expected a tree")
        else:
            words.append(_unescaped(token))
        position += 1
    if open_nodes:
        raise problem(path, number, f"{len(open_nodes)} brackets are not closed")
    return nodes


def _closed(
    path: Path, number: int, open_nodes: list[tuple[str, int]], words: Words
) -> tuple[Words, str]:
    if not open_nodes:
        raise problem(path, number, "a bracket closes that was not opened")
    label, start = open_nodes.pop()
    if start == len(words):
        raise problem(path, number, f"a node of label {label!r} without words")
    return words[start:], label


def _unescaped(word: str) -> str:
    """Undo the treebank's escapes of brackets, slashes and asterisks."""
    return _BRACKETS.get(word) or word.replace("\\/", "/").replace("\\*", "*")
