"""Which models are known: those that come with the package, and the published ones by short names.

Addresses are those that their authors published; none of these files is ours. What is not known,
most checksums above all, is not made up: a checksum is then recorded at the first download.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from elmo.config import Preset
from elmo.hub.download import RemoteFile
from elmo.weights.formats import HDF5, MANYLANGS, OURS, Format

BUNDLED = Path(__file__).parents[1] / "bundled"
"""Models that come with the package, a folder each."""

_ALLENNLP = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/"
_NLPL = "https://vectors.nlpl.eu/repository/20/{number}.zip"
_NLPL_FIRST = "http://vectors.nlpl.eu/repository/11/{number}.zip"
_SMALL_SHA256 = "747ba97abce8a5f446558369e10bb0f7931437a46867476fdd156f5d7f576229"


@dataclass(frozen=True, kw_only=True)
class PublishedModel:
    """A model that others published."""

    name: str
    """Short name, for `from_pretrained`."""
    language: str
    description: str
    format: Format
    licence: str
    files: dict[str, RemoteFile]
    """What has to be downloaded, by the name that it gets in the cache."""
    parameters: int | None = None
    """If they are known."""

    @property
    def is_archive(self) -> bool:
        """Whether its files come in one archive."""
        return any(name.endswith(".zip") for name in self.files)

    @property
    def kind(self) -> str:
        """Its format, and whether it comes in an archive."""
        return f"zip ({self.format.name})" if self.is_archive else self.format.name

    @property
    def size(self) -> int | None:
        """Bytes to download, if they are known."""
        sizes = [file.size for file in self.files.values() if file.size is not None]
        return sum(sizes) or None


def _allennlp(
    name: str,
    description: str,
    options: str,
    weights: str,
    *,
    language: str = "en",
    parameters: int | None = None,
    size: int | None = None,
    sha256: str | None = None,
) -> PublishedModel:
    return PublishedModel(
        name=name,
        language=language,
        description=description,
        format=HDF5,
        licence="Apache-2.0 (AllenNLP)",
        files={
            HDF5.options: RemoteFile(address=_ALLENNLP + options),
            HDF5.weights: RemoteFile(address=_ALLENNLP + weights, size=size, sha256=sha256),
        },
        parameters=parameters,
    )


def _pair(stem: str) -> tuple[str, str]:
    return f"{stem}/elmo_{stem}_options.json", f"{stem}/elmo_{stem}_weights.hdf5"


def _archive(
    name: str,
    number: int,
    language: str,
    description: str,
    base: str = _NLPL,
    format: Format = HDF5,
) -> PublishedModel:
    many = format is MANYLANGS
    return PublishedModel(
        name=name,
        language=language,
        description=description,
        format=format,
        licence="MIT (ELMoForManyLangs)" if many else "as its meta.json says",
        files={f"{number}.zip": RemoteFile(address=base.format(number=number))},
    )


_ALLENNLP_MODELS = (
    _allennlp(
        "small",
        "1 Billion Word, 1024 cells, projected to 128",
        *_pair("2x1024_128_2048cnn_1xhighway"),
        parameters=13_600_000,
        size=54_402_456,
        sha256=_SMALL_SHA256,
    ),
    _allennlp(
        "medium",
        "1 Billion Word, 2048 cells, projected to 256",
        *_pair("2x2048_256_2048cnn_1xhighway"),
        parameters=28_000_000,
    ),
    _allennlp(
        "original",
        "1 Billion Word, 4096 cells, projected to 512: the model of the paper",
        *_pair("2x4096_512_2048cnn_2xhighway"),
        parameters=93_600_848,
    ),
    _allennlp(
        "original-5.5B",
        "Wikipedia and news, 5.5 billion words, 4096 cells, projected to 512",
        *_pair("2x4096_512_2048cnn_2xhighway_5.5B"),
        parameters=93_600_848,
    ),
    _allennlp(
        "pt",
        "Portuguese, contributed to AllenNLP",
        "contributed/pt/elmo_pt_options.json",
        "contributed/pt/elmo_pt_weights.hdf5",
        language="pt",
    ),
    _allennlp(
        "pubmed",
        "PubMed abstracts, contributed to AllenNLP, 4096 cells, projected to 512",
        "contributed/pubmed/elmo_2x4096_512_2048cnn_2xhighway_options.json",
        "contributed/pubmed/elmo_2x4096_512_2048cnn_2xhighway_weights_PubMed_only.hdf5",
        parameters=93_600_848,
    ),
)

_NLPL_MODELS = (
    _archive("nlpl:195", 195, "ru", "Russian corpus and Wikipedia, tokens", _NLPL_FIRST),
    _archive("nlpl:196", 196, "ru", "Russian corpus and Wikipedia, lemmas", _NLPL_FIRST),
    _archive("nlpl:199", 199, "ru", "Taiga, 2048 cells, lemmas"),
)

_MANY_LANGUAGES = """
136 ar Arabic; 137 bg Bulgarian; 138 ca Catalan; 139 cs Czech; 140 cu Old Church Slavonic;
141 da Danish; 142 de German; 143 el Greek; 144 en English; 145 es Spanish; 146 et Estonian;
147 eu Basque; 148 fa Persian; 149 fi Finnish; 150 fr French; 151 ga Irish; 152 gl Galician;
153 grc Ancient Greek; 154 he Hebrew; 155 hi Hindi; 156 hr Croatian; 157 hu Hungarian;
158 id Indonesian; 159 it Italian; 160 ja Japanese; 161 ko Korean; 162 la Latin; 163 lv Latvian;
164 nl Dutch; 165 nb Norwegian Bokmål; 166 nn Norwegian Nynorsk; 167 pl Polish; 168 pt Portuguese;
169 ro Romanian; 170 ru Russian; 171 sk Slovak; 172 sl Slovene; 173 sv Swedish; 174 tr Turkish;
175 ug Uyghur; 176 uk Ukrainian; 177 ur Urdu; 178 vi Vietnamese; 179 zh Chinese (traditional)
"""


def _many_languages() -> Iterable[PublishedModel]:
    for row in _MANY_LANGUAGES.split(";"):
        number, code, language = row.split(maxsplit=2)
        yield _archive(
            f"manylangs:{code}",
            int(number),
            code,
            f"{language.strip()}, 20 million words",
            _NLPL_FIRST,
            MANYLANGS,
        )


PUBLISHED: dict[str, PublishedModel] = {
    model.name: model for model in (*_ALLENNLP_MODELS, *_NLPL_MODELS, *_many_languages())
}
"""Every published model with a name of its own. Any other of the NLPL repository is `nlpl:ID`."""


def find_published(name: str) -> PublishedModel | None:
    """Find a published model by its short name; capitals do not matter."""
    for known, model in PUBLISHED.items():
        if known.casefold() == name.casefold():
            return model
    number = re.fullmatch(r"nlpl:0*([1-9]\d{0,5})", name.casefold())
    if number is None:
        return None
    model_name, described = f"nlpl:{number[1]}", "from the NLPL word vectors repository"
    return PUBLISHED.get(model_name) or _archive(model_name, int(number[1]), "?", described)


def bundled_models() -> dict[str, Path]:
    """Return the models that came with this installation, and their folders."""
    if not BUNDLED.is_dir():
        return {}
    folders = sorted(path for path in BUNDLED.iterdir() if (path / OURS.options).is_file())
    return {folder.name: folder for folder in folders}


def all_names() -> list[str]:
    """Return every name of a model: bundled, published and untrained ones."""
    untrained = [f"random-{preset}" for preset in get_args(Preset)]
    return [*bundled_models(), *PUBLISHED, *untrained]


def similar_names(name: str) -> list[str]:
    """Return the known names that the user may have meant."""
    by_key = {known.casefold(): known for known in all_names()}
    found = difflib.get_close_matches(name.casefold(), by_key, n=3, cutoff=0.55)
    inside = [key for key in by_key if len(name) > 2 and name.casefold() in key]
    return [by_key[key] for key in dict.fromkeys([*found, *inside[:3]])][:4]
