"""What is chosen when errors are measured."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.settings import BenchSettings
from elmo.settings import TokenizerName


@dataclass(frozen=True, kw_only=True)
class PrecisionSettings(BenchSettings):
    """How the errors of precisions are measured."""

    text: Path | None = None
    """Text of the model's language, one sentence a line (or raw text, see --tokenizer); may be
    compressed. By default the test sentences of the treebank."""
    tokenizer: TokenizerName = "whitespace"
    """How the text is split into words."""
    words: int = 5000
    """Words of the text that are read."""
    treebank: Path | None = None
    """Folder with a treebank of Universal Dependencies, two files named ...train.conllu and
    ...test.conllu (may be compressed): probes learn its parts of speech from each layer."""
    train_words: int = 50_000
    """Words of the treebank that probes learn from."""
    test_words: int = 30_000
    """Words of the treebank that probes are judged by."""
    markdown: Path | None = None
    """Write the tables to this file, too."""
